//! Ten thousand teams, one after the other and all at the same time: they leave no resources behind, and teams of few
//! collectives use no resources of the device. A hundred thousand queued sends: a bound on the memory of each. Each
//! test has its own process, since others would change the counts.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::rc::Rc;
use std::sync::Barrier;

use farside_core::am::{self, Counters, Delivery, HandlerId, Source};
use farside_core::job::Track;
use farside_core::{Job, Result, Team, coll};

thread_local! {
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator with a count of bytes for each thread, which is a rank.
struct Counting;

// SAFETY: every call is forwarded unchanged to `System`; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, request: Layout) -> *mut u8 {
        BYTES.set(BYTES.get().wrapping_add(request.size()));
        // SAFETY: the caller satisfies the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(request) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, request: Layout) {
        BYTES.set(BYTES.get().wrapping_sub(request.size()));
        // SAFETY: the caller satisfies the contract of `GlobalAlloc::dealloc`; the memory came from `System`.
        unsafe { System.dealloc(pointer, request) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const RANKS: u32 = 3;

/// Resources in use while no rank allocates or frees: bytes of this rank; at rank 0 also descriptors and regions of the
/// process.
fn held(team: &Team, still: &Barrier) -> Result<(usize, usize, usize)> {
    team.barrier()?;
    still.wait();
    let bytes = BYTES.get();
    let (mut descriptors, mut regions) = (0, 0);
    if team.rank() == 0 {
        descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let shared = |line: &&str| line.split_whitespace().nth(1).is_some_and(|rights| rights.ends_with('s'));
        regions = maps.lines().filter(shared).count();
    }
    still.wait();
    Ok((bytes, descriptors, regions))
}

/// Returns `count` new contexts, distributed by rank 0 in short messages, since buffers of long ones may be moved to
/// memory that has a descriptor.
fn contexts(world: &Team, count: usize) -> Result<Vec<u32>> {
    const PART: usize = 500;
    let given =
        if world.rank() == 0 { (0..count).map(|_| world.job().new_context()).collect() } else { Ok(Vec::new()) };
    let bytes: Vec<u8> = given?.into_iter().flat_map(u32::to_le_bytes).collect();
    let mut contexts = Vec::with_capacity(count);
    for begin in (0..count).step_by(PART) {
        let part = bytes.get(4 * begin..4 * count.min(begin + PART)).unwrap_or_default();
        let part = coll::broadcast(world, 0, part)?;
        contexts.extend(part.chunks_exact(4).map(|context| u32::from_le_bytes(context.try_into().unwrap())));
    }
    Ok(contexts)
}

/// Runs an allgather and some barriers; with `signals`, more barriers than a team runs by messages.
fn works(team: &Team, signals: bool) -> Result<()> {
    let all = coll::allgather(team, &[team.rank() as u8])?;
    assert!(all.iter().enumerate().all(|(rank, block)| *block == [rank as u8]));
    (0..if signals { 6 } else { 1 }).try_for_each(|_| team.barrier())
}

#[test]
fn ten_thousand_teams_leave_nothing() {
    farside_harness::alone!("ten_thousand_teams_leave_nothing");
    let teams = 10_000;
    let still = Barrier::new(RANKS as usize);
    let run = |job: &Job| {
        let world = job.world()?;
        let members: Vec<u32> = (0..RANKS).rev().collect();
        let made = |context: u32| Team::of(job, &members, context);
        let in_turns = |n: usize| {
            contexts(&world, n)?.into_iter().enumerate().try_for_each(|(i, context)| {
                let team = if i % 10 == 0 { world.split(Some(0), 0)?.unwrap() } else { made(context)? };
                works(&team, i % 50 == 0)
            })
        };
        // Queues do not shrink: the bound is less than two bytes for each team.
        let assert_released = |now: (usize, usize, usize), before: (usize, usize, usize), how: &str| {
            let grown = now.0 >= before.0 + (16 << 10) || (now.1, now.2) != (before.1, before.2);
            assert!(!grown, "{teams} {how}: (bytes, descriptors, regions) {before:?}, then {now:?}");
        };
        in_turns(100)?;
        let before = held(&world, &still)?;
        in_turns(teams)?;
        assert_released(held(&world, &still)?, before, "in turns");
        let all: Vec<Team> = contexts(&world, teams)?.into_iter().map(made).collect::<Result<_>>()?;
        all.iter().try_for_each(|team| works(team, false))?;
        let most = held(&world, &still)?;
        assert_eq!((most.1, most.2), (before.1, before.2), "teams of few collectives take nothing of the device");
        let each = (most.0 - before.0) / teams;
        assert!(each < 8 << 10, "{each} bytes for a team");
        drop(all);
        assert_released(held(&world, &still)?, before, "at once");
        Ok(())
    };
    Job::threads(RANKS as usize, run).unwrap();
}

/// Sends to a rank that does not receive them, short and long: each takes an entry of the queue, whatever its length,
/// and leaves no memory behind.
#[test]
fn hundred_thousand_sends_that_wait_take_less_than_512_bytes_each() {
    farside_harness::alone!("hundred_thousand_sends_that_wait_take_less_than_512_bytes_each");
    const ID: HandlerId = HandlerId(7);
    let sends = 100_000;
    let still = Barrier::new(2);
    let run = |job: &Job| {
        let come = Rc::new(Cell::new(0));
        let count = Rc::clone(&come);
        job.active_messages().register(ID, move |_| {
            count.set(count.get() + 1);
            Delivery::Done
        })?;
        let (world, track) = (job.world()?, Track::new());
        let data = vec![7u8; 200_000];
        let send_all = |len: usize| -> Result<usize> {
            let before = held(&world, &still)?.0;
            if job.rank_number() == 0 {
                for _ in 0..sends {
                    let source = Source::of(&data[..len]);
                    // SAFETY: the data outlives the track.
                    unsafe { am::start_send(job, 1, ID, &[1; 32], source, Counters::default(), &track) }?;
                }
                let each = BYTES.get().saturating_sub(before) / sends;
                println!("{len} bytes: {each} for each send, {} in progress", track.open());
                assert!(track.open() > sends / 2 && each < 512, "{each} bytes for each of {} sends", track.open());
            }
            still.wait();
            job.wait("the sends", || {
                let done = job.rank_number() == 0 && track.open() == 0 || job.rank_number() == 1 && come.get() >= sends;
                Ok(done.then_some(()))
            })?;
            come.set(0);
            track.check()?;
            Ok(held(&world, &still)?.0.saturating_sub(before))
        };
        for len in [8, 65, 3000, 200_000] {
            send_all(len)?;
        }
        for len in [8, 200_000] {
            // Tables do not shrink, and their growth depends on timing: it suffices that one of three rounds leaves
            // nothing.
            let left = [send_all(len)?, send_all(len)?, send_all(len)?];
            assert!(left.iter().any(|left| *left < sends), "{left:?} bytes are left after sends of {len} bytes");
        }
        Ok(())
    };
    Job::threads(2, run).unwrap();
}
