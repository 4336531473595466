//! Costs of a job for each number of ranks, on the simulated network: messages, bytes and memory of a rank for each
//! operation. Bytes are counted for each thread, and all ranks of a simulation are on one.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::time::Duration;

use farside_core::coll::log2_up;
use farside_core::sim::{Network, Simulation};
use farside_core::stats::{Kind, Snapshot};
use farside_core::{Job, Result};
use farside_rma::raw::{Options, RawWindow};
use farside_rma::{Assert, Collectives, Error, Op, Window};

thread_local! {
    static BYTES: Cell<isize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<isize> = const { Cell::new(0) };
}

/// The system allocator with a byte counter for each thread; all ranks of a simulation are on one thread.
struct Counting;

fn count(bytes: usize) {
    BYTES.set(BYTES.get() + bytes.cast_signed());
    PEAK_BYTES.set(PEAK_BYTES.get().max(BYTES.get()));
}

// SAFETY: every call is forwarded unchanged to `System`; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, request: Layout) -> *mut u8 {
        count(request.size());
        // SAFETY: the caller fulfils the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(request) }
    }

    unsafe fn alloc_zeroed(&self, request: Layout) -> *mut u8 {
        count(request.size());
        // SAFETY: the caller fulfils the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(request) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, request: Layout) {
        BYTES.set(BYTES.get() - request.size().cast_signed());
        // SAFETY: the caller fulfils the contract of `GlobalAlloc::dealloc`; the memory came from `System`.
        unsafe { System.dealloc(pointer, request) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The maximum number of ranks at which each rank sends its keys to all others.
const SENT_TO_ALL: usize = 256;

/// Number of ranks to which a rank has operations.
const NEIGHBOURS: usize = 4;

/// Costs of one operation: the maximum over the ranks, and the average number of bytes of memory of a rank.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    messages: u64,
    bytes: u64,
    /// Bytes allocated by the operation that are still allocated after it, and their maximum in between.
    kept: isize,
    most: isize,
}

/// Costs by operation, in the order in which they are made.
#[derive(Default)]
struct Costs {
    all: RefCell<Vec<(&'static str, Cost)>>,
    before: Cell<isize>,
}

impl Costs {
    /// Runs `f`; before and after it all ranks are idle.
    fn of<R>(&self, job: &Job, name: &'static str, f: impl FnOnce() -> Result<R>) -> Result<R> {
        job.align()?;
        if job.rank() == 0 {
            self.all.borrow_mut().push((name, Cost::default()));
            self.before.set(BYTES.get());
            PEAK_BYTES.set(BYTES.get());
        }
        job.align()?;
        let before = job.stats();
        let result = f()?;
        let used = job.stats() - before;
        job.align()?;
        let (ranks, start) = (job.size().cast_signed(), self.before.get());
        if let Some((_, cost)) = self.all.borrow_mut().last_mut() {
            cost.messages = cost.messages.max(used.messages());
            cost.bytes = cost.bytes.max(bytes(&used));
            if job.rank() == 0 {
                (cost.kept, cost.most) = ((BYTES.get() - start) / ranks, (PEAK_BYTES.get() - start) / ranks);
            }
        }
        job.align()?;
        Ok(result)
    }

    fn get(&self, name: &str) -> Cost {
        self.all.borrow().iter().find(|(other, _)| *other == name).unwrap().1
    }
}

/// Bytes of the messages of a rank.
fn bytes(used: &Snapshot) -> u64 {
    use Kind::*;
    [Write, Read, FetchAdd, CompareSwap, Signal, Send].iter().map(|kind| used.bytes(*kind)).sum()
}

/// Runs every operation once; an operation that sets up state for later ones is run once before.
fn costs(ranks: usize) -> Costs {
    let costs = Costs::default();
    let run = Simulation::new(ranks).run(|job| {
        let team = costs.of(job, "world", || job.world())?;
        costs.of(job, "barrier", || team.barrier())?;
        costs.of(job, "allreduce 8", || team.allreduce(&mut [1u64], Op::Sum))?;
        let mut data = vec![1u64; 8192];
        costs.of(job, "allreduce 65536", || team.allreduce(&mut data, Op::Sum))?;
        assert!(data.iter().all(|sum| *sum == ranks as u64));
        drop(data);
        let half = costs.of(job, "split", || team.split(Some(job.rank_number() % 2), 0))?;
        drop(half);
        let options = Options { locks: true };
        let window = costs.of(job, "window", || RawWindow::allocate(&team, 8 * NEIGHBOURS, options))?;
        let (me, data) = (team.rank(), 1 + team.rank() as u64);
        let neighbours: Vec<usize> = [1, 2, ranks - 2, ranks - 1].iter().map(|d| (me + d) % ranks).collect();
        let put = |(place, target): (usize, &usize)| {
            // SAFETY: the word is valid until the epoch is closed.
            unsafe { window.put((&raw const data).cast(), 8, *target, 8 * place) }
        };
        let puts = || neighbours.iter().enumerate().try_for_each(put);
        window.fence(Assert::NOPRECEDE)?;
        window.fence(Assert::empty())?;
        costs.of(job, "fence", || {
            puts()?;
            window.fence(Assert::empty())
        })?;
        window.fence(Assert::NOSUCCEED)?;
        // SAFETY: no epoch is open, so no rank writes.
        let own = unsafe { std::slice::from_raw_parts(window.base().cast::<u64>(), NEIGHBOURS) };
        let from = neighbours.iter().rev().map(|rank| 1 + *rank as u64);
        assert!(own.iter().copied().eq(from), "{own:?}");
        costs.of(job, "start", || {
            window.post(&neighbours, Assert::empty())?;
            window.start(&neighbours, Assert::empty())?;
            puts()?;
            window.complete()?;
            window.wait()
        })?;
        costs.of(job, "lock_all", || {
            window.lock_all(Assert::empty())?;
            puts()?;
            window.flush_all()?;
            window.unlock_all()
        })?;
        costs.of(job, "free", || window.free())
    });
    let run = run.unwrap();
    println!("{ranks} ranks: {} messages, {} events, {:?} of simulated time", run.messages, run.events, run.time);
    for (name, cost) in &*costs.all.borrow() {
        let Cost { messages, bytes, kept, most } = cost;
        println!("{name:>16}: {messages:>4} messages, {bytes:>7} bytes per rank; memory {kept:>8}, at most {most:>8}");
    }
    costs
}

/// Checks the costs against formulas of the number of ranks.
fn check(costs: &Costs, ranks: usize) {
    let rounds = u64::from(log2_up(ranks) as u32);
    let (p, k) = (ranks as u64, NEIGHBOURS as u64);
    // These messages are the same at every rank.
    for (name, messages) in [
        ("barrier", rounds),
        ("allreduce 8", rounds),
        ("fence", k + rounds),
        // A post and a put that notifies for each neighbour.
        ("start", 2 * k),
        // A read and a compare-and-swap of the lock word, the put, and an addition to the lock word.
        ("lock_all", 4 * k),
        ("free", rounds),
    ] {
        let cost = costs.get(name);
        assert_eq!(cost.messages, messages, "{name}: {cost:?}");
        assert!(cost.bytes <= 32 * messages, "{name}: {cost:?}");
        // Ranks with which a rank does not communicate cost nothing, except the numbers of freed keys, which are
        // reused.
        let (log, each) = (rounds.cast_signed() as isize, if name == "free" { 4 } else { 0 });
        let all = each * ranks.cast_signed();
        assert!(cost.kept <= 4096 + 512 * log + all, "{name}: {cost:?}");
        assert!(cost.most <= 8192 + 1024 * log + all, "{name}: {cost:?}");
    }
    // Halving and doubling: less than twice the vector, in packets.
    let cost = costs.get("allreduce 65536");
    assert!(cost.bytes <= 5 * 65536 / 2 && cost.messages <= 40 + 4 * rounds, "{cost:?}");
    for (name, exchanges, record) in [("world", 2, 0), ("split", 1, 24), ("window", 5, 0)] {
        let cost = costs.get(name);
        let (record, folds) = match (ranks > SENT_TO_ALL, record) {
            (true, 0) => {
                // Each key or announcement takes an allreduce, with two more messages where P is not a power of two.
                // Ranks with which a rank does not communicate cost only their numbers, a number for each credit, and
                // pages of the table.
                let least = 32768 + 24 * ranks.cast_signed();
                assert!(cost.kept <= least && cost.most <= least + 8192, "{name}: {cost:?}");
                (0, 2)
            }
            (true, record) => (record, 0),
            (false, _) => (128 * exchanges, 0),
        };
        // Exchanges of records of all ranks: rounds of at least one packet, which has at most 4 KiB.
        let packets = 2 * exchanges * (rounds + folds) + record * p / 4000;
        assert!(cost.messages <= packets && cost.bytes <= record * p + 128 * packets, "{name}: {cost:?}");
    }
    if ranks <= SENT_TO_ALL {
        // Keys of all ranks, and the state of a target in a window.
        for (name, each) in [("world", 72), ("window", 304)] {
            let cost = costs.get(name);
            assert!(cost.kept <= 65536 + each * ranks.cast_signed(), "{name}: {cost:?}");
            assert!(cost.most <= 65536 + (each + 192) * ranks.cast_signed(), "{name}: {cost:?}");
        }
    }
}

#[test]
fn costs_with_up_to_300_ranks() {
    for ranks in [64, 256, 300] {
        check(&costs(ranks), ranks);
    }
}

/// Every rank puts to the next one, in some fences.
fn fence_ring(ranks: usize) {
    const FENCES: u64 = 10;
    let run = Simulation::new(ranks).run(|job| {
        let team = job.world()?;
        let mut window = Window::<u64>::allocate(&team, 1)?;
        let (me, next) = (team.rank() as u64, (team.rank() + 1) % ranks);
        window.fences(|run| {
            for fence in 0..FENCES {
                run.epoch(Assert::empty(), |epoch| epoch.put_value(1 + me + fence, next, 0))?;
            }
            Ok::<_, Error>(())
        })?;
        assert_eq!(window.local()?[0], (me as usize + ranks - 1) as u64 % ranks as u64 + FENCES);
        window.free()
    });
    let run = run.unwrap();
    println!(
        "fence ring of {ranks}: {} messages, {} events, {:?} of simulated time",
        run.messages, run.events, run.time
    );
}

/// A rank has memory for the ranks with which it communicates, not for all ranks.
#[test]
fn memory_of_a_rank_in_a_ring_does_not_grow_with_the_ring() {
    let most = |ranks: usize| {
        let before = BYTES.get();
        PEAK_BYTES.set(before);
        fence_ring(ranks);
        (PEAK_BYTES.get() - before) / ranks.cast_signed()
    };
    let (small, large) = (most(288), most(576));
    println!("maximum bytes per rank: {small}, {large}");
    // The growth is one more round, and for each rank a few of its numbers and a word for its credit.
    assert!(large <= small + 2048 + 24 * 288, "{small} {large}");
}

/// Errors of a collective call name the same rank in a large team as in a small one.
#[test]
fn errors_of_large_teams_are_those_of_small_ones() {
    let errors = |ranks: usize| {
        let simulation = Simulation::new(ranks);
        // The registrations are those of a team, of a window's memory and of its signal array; each except the first is
        // refused once.
        let refused = [1, 2].map(|after| {
            let errors = RefCell::new(Vec::new());
            let run = simulation.clone().refuses_memory(2, after).run(|job| {
                let made = Window::<u64>::allocate(&job.world()?, 1);
                errors.borrow_mut().extend(made.as_ref().err().map(|e| (e.kind(), e.blamed())));
                made?.free()
            });
            assert_eq!(errors.borrow().len(), ranks, "{run:?}");
            let mut all = errors.into_inner();
            all.sort_by_key(|(_, blamed)| *blamed);
            all.dedup();
            (run.unwrap_err().kind(), all)
        });
        let other = simulation.run(|job| match job.rank() {
            1 => Window::<u32>::allocate(&job.world()?, 1)?.free(),
            _ => Window::<u64>::allocate(&job.world()?, 1)?.free(),
        });
        // After errors a window can be created, and its targets can be accessed.
        let after = simulation.run(|job| {
            let team = job.world()?;
            let window = RawWindow::allocate(&team, 8, Options::default())?;
            let none = window.lock(farside_rma::LockKind::Shared, ranks, Assert::empty()).unwrap_err();
            window.free()?;
            Ok((none.kind(), window.fence(Assert::empty()).unwrap_err().kind()))
        });
        let other = other.unwrap_err();
        (refused, (other.kind(), other.blamed()), after.unwrap().results[0])
    };
    let small = errors(4);
    println!("{small:?}");
    assert_eq!(small, errors(260));
}

/// Bytes of a line of the status of this process.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    1024 * line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
}

/// CPU time of this thread, on which all ranks of a simulation run.
fn on_processor() -> Duration {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(times.split_whitespace().next().unwrap().parse().unwrap())
}

#[test]
#[ignore = "by `ci/test scale`"]
fn ring_and_costs_with_4096_ranks() {
    let within = |name: &str, run: &dyn Fn(), most: usize| {
        // CPU time, so that other programs on the machine do not affect it.
        let begin = on_processor();
        run();
        let bytes = status("VmHWM:");
        let (time, gib) = (on_processor() - begin, bytes as f64 / f64::from(1 << 30));
        println!("{name} of 4096 ranks: {:.1} s, {gib:.2} GiB", time.as_secs_f64());
        assert!(bytes < most << 30, "{bytes} bytes");
        time
    };
    // This test comes first, since it measures the maximum use of memory by the process.
    let time = within("fence ring", &|| fence_ring(4096), 4);
    assert!(time < Duration::from_secs(60), "{time:?}");
    within("costs", &|| [1024, 4096].iter().for_each(|ranks| check(&costs(*ranks), *ranks)), 6);
}

/// All ranks put to all others, in a fence and in exposures to all, while one computes. Notifications and signals take
/// receives, as over verbs: three for each rank suffice, and with fewer receives the remaining messages are
/// retransmitted and nothing is lost.
#[test]
fn three_receives_for_each_rank_are_enough_when_all_put_to_all() {
    const RANKS: usize = 128;
    let refused = |receives: usize| {
        let network = Network { receives, ..Network::default() };
        let run = Simulation::new(RANKS).network(network).run(|job| {
            let team = job.world()?;
            let window = RawWindow::allocate(&team, 8 * RANKS, Options::default())?;
            let (me, data) = (team.rank(), 1 + team.rank() as u64);
            let others: Vec<usize> = (0..RANKS).filter(|rank| *rank != me).collect();
            let puts = || {
                // SAFETY: the word is valid until the epoch is closed.
                others.iter().try_for_each(|to| unsafe { window.put((&raw const data).cast(), 8, *to, 8 * me) })
            };
            let compute = || {
                if me == 0 {
                    job.device().compute(Duration::from_millis(1));
                }
            };
            // SAFETY: no epoch is open, so no rank writes.
            let own = || unsafe { std::slice::from_raw_parts(window.base().cast::<u64>(), RANKS) }.iter().sum::<u64>();
            let all = (RANKS * (RANKS + 1) / 2) as u64 - data;
            window.fence(Assert::NOPRECEDE)?;
            puts()?;
            compute();
            window.fence(Assert::NOSUCCEED)?;
            assert_eq!(own(), all);
            for _ in 0..3 {
                window.post(&others, Assert::empty())?;
                window.start(&others, Assert::empty())?;
                puts()?;
                compute();
                window.complete()?;
                window.wait()?;
                assert_eq!(own(), all);
            }
            window.free()
        });
        run.unwrap().refused
    };
    assert_eq!(refused(3 * RANKS), 0);
    assert!(refused(2 * RANKS) > 0);
}
