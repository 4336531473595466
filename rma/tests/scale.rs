//! Costs of a job by its number of ranks, on the simulated network: messages, bytes and memory of a rank for each operation.
//! A separate test program, since other tests would change the counts of bytes.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::time::Duration;

use farside_core::coll::log2_up;
use farside_core::sim::{Network, Simulation};
use farside_core::stats::{Kind, Snapshot};
use farside_core::{Job, Result};
use farside_rma::raw::{Options, RawWindow};
use farside_rma::{Assert, Collectives, Op};

thread_local! {
    static BYTES: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator with a count of bytes for each thread: all ranks of a simulation are on one.
struct Counting;

fn count(bytes: usize) {
    BYTES.set(BYTES.get() + bytes.cast_signed());
    MOST.set(MOST.get().max(BYTES.get()));
}

// SAFETY: every call is forwarded unchanged to `System`; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, request: Layout) -> *mut u8 {
        count(request.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(request) }
    }

    unsafe fn alloc_zeroed(&self, request: Layout) -> *mut u8 {
        count(request.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(request) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, request: Layout) {
        BYTES.set(BYTES.get() - request.size().cast_signed());
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`; the memory came from `System`.
        unsafe { System.dealloc(pointer, request) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Number of ranks to which a rank has operations.
const NEIGHBOURS: usize = 4;

/// Costs of one operation: the most of any rank, and bytes of memory of a rank on average.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    messages: u64,
    bytes: u64,
    /// Bytes allocated by the operation that are still allocated after it, and the most in between.
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
    /// Runs `f`, before which and after which all ranks stand still.
    fn of<R>(&self, job: &Job, name: &'static str, f: impl FnOnce() -> Result<R>) -> Result<R> {
        job.align()?;
        if job.rank() == 0 {
            self.all.borrow_mut().push((name, Cost::default()));
            self.before.set(BYTES.get());
            MOST.set(BYTES.get());
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
                (cost.kept, cost.most) = ((BYTES.get() - start) / ranks, (MOST.get() - start) / ranks);
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

/// Runs every operation once, after another run of it where the first one makes what later ones use.
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
        println!("{name:>16}: {messages:>4} messages, {bytes:>7} bytes a rank; memory {kept:>8}, at most {most:>8}");
    }
    costs
}

/// Checks the costs against formulas of the number of ranks.
fn check(costs: &Costs, ranks: usize) {
    let rounds = u64::from(log2_up(ranks) as u32);
    let (p, k) = (ranks as u64, NEIGHBOURS as u64);
    // Messages that are the same at every rank.
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
        // Nothing for ranks that it has nothing to do with, but for the numbers of freed keys, which are used again.
        let (log, each) = (rounds.cast_signed() as isize, if name == "free" { 4 } else { 0 });
        let all = each * ranks.cast_signed();
        assert!(cost.kept <= 4096 + 512 * log + all, "{name}: {cost:?}");
        assert!(cost.most <= 8192 + 1024 * log + all, "{name}: {cost:?}");
    }
    // Halving and doubling: less than twice the vector, in packets.
    let cost = costs.get("allreduce 65536");
    assert!(cost.bytes <= 5 * 65536 / 2 && cost.messages <= 40 + 4 * rounds, "{cost:?}");
    // Exchanges of records of all ranks: rounds of at least one packet, which has at most 4 KiB.
    for (name, exchanges, record) in [("world", 2, 64 + 16), ("split", 1, 24), ("window", 5, 2 * (64 + 16) + 40)] {
        let record = if ranks > 256 { record } else { 128 * exchanges };
        let cost = costs.get(name);
        let packets = 2 * exchanges * rounds + record * p / 4000;
        assert!(cost.messages <= packets && cost.bytes <= record * p + 96 * packets, "{name}: {cost:?}");
    }
    // Keys of all ranks, and the state of a target in a window.
    for (name, each) in [("world", 72), ("window", 304)] {
        let cost = costs.get(name);
        assert!(cost.kept <= 65536 + each * ranks.cast_signed(), "{name}: {cost:?}");
        assert!(cost.most <= 65536 + (each + 192) * ranks.cast_signed(), "{name}: {cost:?}");
    }
}

#[test]
fn costs_with_up_to_256_ranks() {
    for ranks in [64, 256] {
        check(&costs(ranks), ranks);
    }
}

/// Bytes of a line of the status of this process.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    1024 * line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
}

#[test]
#[ignore = "takes a minute and 8 GiB; by `ci/test scale`"]
fn costs_with_1024_and_4096_ranks() {
    check(&costs(1024), 1024);
    let begin = std::time::Instant::now();
    check(&costs(4096), 4096);
    let most = status("VmHWM:");
    println!("4096 ranks: {:.1} s, {:.2} GiB", begin.elapsed().as_secs_f64(), most as f64 / f64::from(1 << 30));
    assert!(most < 8 << 30, "{most} bytes");
}

/// All ranks put to all others, in a fence and in exposures to all, while one computes. Notifications and signals take
/// receives, as over verbs: three for each rank are enough, and with fewer the rest is sent again and nothing is lost.
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
