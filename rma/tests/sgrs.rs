#![allow(unsafe_code)]
//! Transfers with lists on both sides (send-gather, receive-scatter): counted work requests, no copies, no layout sent
//! twice; refused transfers are errors at both ranks. Runs over verbs with `FARSIDE_DEVICE=verbs`; otherwise over a
//! simulated network with delays, reordering and loss.

use std::sync::mpsc;
use std::time::Duration;

use farside_datatype::{Datatype, Named, TypeMap};
use farside_rma::core::am::{self, Counters, HandlerId};
use farside_rma::core::coll;
use farside_rma::core::settings::Settings;
use farside_rma::core::sim::{Network, Simulation};
use farside_rma::core::stats::{Kind, Snapshot};
use farside_rma::core::wire::Writer;
use farside_rma::raw::{Options, RawWindow};
use farside_rma::{Assert, ErrorKind, Job, LockKind, Result, Team};

const NONE: Assert = Assert::empty();
const WATCHDOG: Duration = Duration::from_secs(60);

/// `count` blocks of `block` ints, with starts `stride` ints apart.
fn vector(count: usize, block: usize, stride: usize) -> TypeMap {
    Datatype::vector(count as u64, block as u64, stride as i64, &Named::Int.into()).unwrap().message(1).unwrap()
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + i / 251) ^ (seed * 17 + 1)) as u8).collect()
}

fn is_verbs() -> bool {
    std::env::var("FARSIDE_DEVICE").is_ok_and(|d| d == "verbs")
}

/// Runs `body` as two ranks whose transfers use `scheme`.
fn two(scheme: &'static str, body: impl Fn(&Job) -> Result<()> + Send + Sync + 'static) {
    let given = |name: &str| (name == "FARSIDE_TRANSFER").then(|| scheme.to_owned());
    let settings = Settings::from_lookup(|name| given(name).or_else(|| std::env::var(name).ok())).unwrap();
    if !is_verbs() {
        let network = Network { jitter: 5000.0, reorders: true, loss: 0.02, retry: 4000.0, ..Network::default() };
        let simulation = Simulation::new(2).network(network).settings(settings);
        (0..4).for_each(|seed| drop(simulation.clone().seed(seed).run(&body).unwrap()));
        return;
    }
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = done.send(Job::threads_with(2, &settings, |job| body(job)));
    });
    result.recv_timeout(WATCHDOG).expect("a rank still waits").unwrap();
}

fn blocks_of_a_list(job: &Job) -> u64 {
    job.device().capabilities().lists.unwrap().blocks as u64
}

/// Copies the elements of layout `origin` in `from` to those of layout `target` in `to`.
fn moved(from: &[u8], origin: &TypeMap, to: &mut [u8], target: &TypeMap) {
    let bytes: Vec<u8> =
        origin.blocks(0).flat_map(|(at, len)| from[at as usize..at as usize + len as usize].to_vec()).collect();
    let mut taken = 0;
    for (at, len) in target.blocks(0) {
        to[at as usize..at as usize + len as usize].copy_from_slice(&bytes[taken..taken + len as usize]);
        taken += len as usize;
    }
}

/// Opens and closes an epoch at both ranks.
type Epoch = fn(&RawWindow, &mut dyn FnMut() -> Result<()>) -> Result<()>;

fn fenced(w: &RawWindow, body: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    w.fence(NONE)?;
    body()?;
    w.fence(Assert::NOSUCCEED)
}

fn started(w: &RawWindow, body: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let peer = [1 - w.team().rank()];
    w.post(&peer, NONE)?;
    w.start(&peer, NONE)?;
    body()?;
    w.complete()?;
    w.wait()
}

/// Runs two equal transfers of each rank to or from the other's window at byte 64; returns this rank's counters of
/// each.
fn transfers(team: &Team, epoch: Epoch, put: bool, origin: &TypeMap, target: &TypeMap) -> Result<[Snapshot; 2]> {
    let (me, job) = (team.rank(), team.job());
    let room = target.true_ub() as usize + 128;
    let window = RawWindow::allocate(team, room, Options::default())?;
    let mut local = vec![0u8; origin.true_ub() as usize];
    let mut costs = [Snapshot::default(); 2];
    for (round, cost) in costs.iter_mut().enumerate() {
        let (mine, own) = (pattern(me + 2 * round, local.len()), pattern(me + 50, room));
        local.copy_from_slice(&mine);
        // SAFETY: this rank's own memory, which no other rank accesses between epochs.
        unsafe { std::ptr::copy_nonoverlapping(own.as_ptr(), window.base(), room) };
        team.barrier()?;
        let before = job.stats();
        epoch(&window, &mut || {
            // SAFETY: the buffer outlives the epoch.
            unsafe {
                if put {
                    window.put_typed(local.as_ptr(), origin, 1 - me, 64, target)
                } else {
                    window.get_typed(local.as_mut_ptr(), origin, 1 - me, 64, target)
                }
            }
        })?;
        *cost = job.stats() - before;
        team.barrier()?;
        let mut now = vec![0; room];
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(window.base(), now.as_mut_ptr(), room) };
        let (mut expected_window, mut expected_local) = (own, mine);
        if put {
            let theirs = pattern(1 - me + 2 * round, local.len());
            moved(&theirs, origin, &mut expected_window[64..], target);
        } else {
            moved(&pattern(1 - me + 50, room)[64..], target, &mut expected_local, origin);
        }
        assert!(now == expected_window, "the window, round {round}, put: {put}");
        assert!(local[..] == expected_local[..], "the buffer, round {round}, put: {put}");
    }
    window.free()?;
    Ok(costs)
}

/// Both ranks put and get concurrently, in both kinds of epoch: the bytes are correct, each side posts one work request
/// for each list of blocks, and no byte is copied. The second transfer of the same layouts sends no layout.
#[test]
fn lists_of_blocks_on_both_sides_and_nothing_copied() {
    // There are several lists, even in a quick run.
    let blocks = if std::env::var_os("FARSIDE_TEST_QUICK").is_some() { 300 } else { 1000 };
    two("sgrs", move |job| {
        let team = job.world()?;
        let most = blocks_of_a_list(job);
        let (origin, target) = (vector(blocks, 128, 200), vector(blocks, 128, 333));
        for epoch in [fenced as Epoch, started] {
            for put in [true, false] {
                let [first, second] = transfers(&team, epoch, put, &origin, &target)?;
                for s in [&first, &second] {
                    let lists = (blocks as u64).div_ceil(most);
                    assert_eq!((s.count(Kind::Gather), s.count(Kind::Scatter)), (lists, lists), "{s:?}");
                    assert_eq!((s.bytes(Kind::Gather), s.bytes(Kind::Scatter)), (origin.size(), origin.size()));
                    assert_eq!((s.count(Kind::Copy), s.count(Kind::Write), s.count(Kind::Read)), (0, 0, 0), "{s:?}");
                }
                let wires = (origin.to_wire().len() + target.to_wire().len()) as u64;
                assert_eq!((first.count(Kind::Layout), first.bytes(Kind::Layout)), (2, wires), "{first:?}");
                assert_eq!((second.count(Kind::Layout), second.bytes(Kind::Layout)), (0, 0), "{second:?}");
                assert_eq!(second.count(Kind::Register), 0, "{second:?}");
            }
        }
        Ok(())
    });
}

/// The same transfer block by block, for comparison.
#[test]
fn multi_w_sends_a_work_request_for_each_block() {
    const BLOCKS: usize = 200;
    two("multi-w", |job| {
        let team = job.world()?;
        let (origin, target) = (vector(BLOCKS, 128, 200), vector(BLOCKS, 128, 333));
        let [_, s] = transfers(&team, fenced, true, &origin, &target)?;
        assert_eq!((s.count(Kind::Write), s.count(Kind::Gather)), (BLOCKS as u64, 0), "{s:?}");
        assert!(!is_verbs() || s.count(Kind::Post) >= BLOCKS as u64, "{s:?}");
        Ok(())
    });
}

/// Blocks of different lengths on the two sides, one contiguous side, and a message of one list.
#[test]
fn blocks_are_split_where_the_other_side_has_ends() {
    two("sgrs", |job| {
        let team = job.world()?;
        for (origin, target) in [
            (vector(700, 30, 41), vector(300, 70, 77)),
            (vector(300, 70, 77), vector(700, 30, 41)),
            (vector(1, 21_000, 1), vector(700, 30, 41)),
            (vector(700, 30, 41), vector(1, 21_000, 1)),
            (vector(3, 2, 5), vector(2, 3, 5)),
        ] {
            for put in [true, false] {
                let [_, s] = transfers(&team, fenced, put, &origin, &target)?;
                assert!(s.count(Kind::Gather) > 0 && s.count(Kind::Gather) == s.count(Kind::Scatter), "{s:?}");
                assert_eq!((s.bytes(Kind::Gather), s.count(Kind::Copy)), (origin.size(), 0), "{s:?}");
            }
        }
        Ok(())
    });
}

/// More layouts than a rank caches: evicted layouts are sent again, and every transfer is correct.
#[test]
fn more_layouts_than_are_remembered() {
    two("sgrs", |job| {
        let team = job.world()?;
        let (me, peer) = (team.rank(), 1 - team.rank());
        let window = RawWindow::allocate(&team, 4096, Options::default())?;
        let bytes = pattern(me, 4096);
        let theirs = pattern(peer, 4096);
        for stride in (3..90).chain(3..6) {
            let (origin, target) = (vector(4, 2, stride), vector(4, 2, stride + 1));
            window.fence(NONE)?;
            // SAFETY: the buffer outlives the fences.
            unsafe { window.put_typed(bytes.as_ptr(), &origin, peer, 0, &target) }?;
            window.fence(Assert::NOSUCCEED)?;
            let mut now = vec![0u8; 4096];
            // SAFETY: this rank's own memory, between epochs.
            unsafe { std::ptr::copy_nonoverlapping(window.base(), now.as_mut_ptr(), 4096) };
            let mut expected = now.clone();
            moved(&theirs, &origin, &mut expected, &target);
            assert!(now == expected, "stride {stride}");
            team.barrier()?;
        }
        window.free()
    });
}

/// A target in a lock epoch, which may be computing, receives no requests.
#[test]
fn locked_target_is_not_asked_to_help() {
    two("sgrs", |job| {
        let team = job.world()?;
        let (origin, target) = (vector(100, 8, 11), vector(100, 8, 13));
        let window = RawWindow::allocate(&team, 100 * 13 * 4, Options::default())?;
        let bytes = pattern(1, 100 * 11 * 4);
        if team.rank() == 0 {
            let before = job.stats();
            window.lock(LockKind::Shared, 1, NONE)?;
            // SAFETY: the buffer outlives the unlock.
            unsafe { window.put_typed(bytes.as_ptr(), &origin, 1, 0, &target) }?;
            window.unlock(1)?;
            let s = job.stats() - before;
            assert_eq!((s.count(Kind::Gather), s.count(Kind::Layout)), (0, 0), "{s:?}");
        }
        team.barrier()?;
        if team.rank() == 1 {
            let mut now = vec![0u8; 100 * 13 * 4];
            // SAFETY: this rank's own memory; the other rank has unlocked it.
            unsafe { std::ptr::copy_nonoverlapping(window.base(), now.as_mut_ptr(), now.len()) };
            let mut expected = vec![0; now.len()];
            moved(&bytes, &origin, &mut expected, &target);
            assert!(now == expected);
        }
        window.free()
    });
}

/// Sends a request of a put to the first window's handler, in the format of an origin but with forged layouts.
fn forged(job: &Job, offset: u64, origin: &[u8], target: &[u8]) -> Result<()> {
    /// The window's listener has the previous number.
    const HANDLER: u16 = HandlerId::RUNTIME + 1;
    let header = Writer::new().u8(1).u32(99).u8(0).u32(u32::from(HANDLER)).u64(offset).u64(0).u32(0).u64(0).u32(0);
    let header = header.u32(0).u8(1).u32(origin.len() as u32).u32(1).u8(1).u32(target.len() as u32).done();
    let data = [origin, target].concat();
    // SAFETY: the window checks each message, and is exposed in this epoch.
    unsafe { am::send_any(job, 1, HandlerId(HANDLER), &header, &data, Counters::default()) }
}

/// The target refuses malformed requests, and its closing call returns the reason; no memory is written, and no rank
/// hangs.
#[test]
fn requests_that_make_no_sense_are_refused() {
    const LEN: usize = 4096;
    let vector_wire = |count, block, stride| vector(count, block, stride).to_wire();
    let good = vector_wire(4, 2, 5);
    let mut corrupted = good.clone();
    corrupted.truncate(good.len() - 1);
    let floats = Datatype::vector(4, 2, 5, &Named::Float.into()).unwrap().message(1).unwrap().to_wire();
    let twice = Datatype::hvector(4, 2, 4, &Named::Int.into()).unwrap().message(1).unwrap().to_wire();
    let cases = [
        (0, good.clone(), corrupted, ErrorKind::Protocol),
        (LEN as u64 - 8, good.clone(), good.clone(), ErrorKind::OutOfRange),
        (u64::MAX, good.clone(), good.clone(), ErrorKind::OutOfRange),
        (0, floats, good.clone(), ErrorKind::BadArgument),
        (0, good.clone(), twice, ErrorKind::BadArgument),
        (0, good.clone(), Vec::new(), ErrorKind::Protocol),
    ];
    for (offset, origin, target, kind) in cases {
        two("sgrs", move |job| {
            let team = job.world()?;
            let window = RawWindow::allocate(&team, LEN, Options::default())?;
            window.fence(NONE)?;
            // The other rank has left its fence, which would return the error.
            team.barrier()?;
            if team.rank() == 0 {
                forged(job, offset, &origin, &target)?;
            }
            team.barrier()?;
            // The request arrived before the barrier's signal, and is served by the first progress call that finds it.
            (0..10).try_for_each(|_| job.progress().map(|_| ()))?;
            let closed = window.fence(Assert::NOSUCCEED);
            if team.rank() == 1 {
                let e = closed.expect_err("a malformed request");
                assert_eq!((e.kind(), e.blamed()), (kind, Some(0)), "{e}");
                let mut now = vec![1u8; LEN];
                // SAFETY: this rank's own memory, between epochs.
                unsafe { std::ptr::copy_nonoverlapping(window.base(), now.as_mut_ptr(), LEN) };
                assert!(now.iter().all(|b| *b == 0));
            } else {
                closed?;
            }
            coll::allgather(&team, &[])?;
            window.free()
        });
    }
}
