#![allow(unsafe_code)]
//! Jobs of threads on two nodes: rank r is on node r modulo 2, the ranks of a node share memory, and an in-memory
//! network connects all ranks. `ci/test verbs` runs the same over verbs.

mod cut;
mod late;
mod routed;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use super::table::SIZES;
use super::{Member, RouteDevice};
use crate::am::{self, Counters, Delivery, HandlerId};
use crate::bootstrap::{Bootstrap, threads};
use crate::device::loopback::{Hub, Loopback};
use crate::device::{
    Block, Device, Leave, Operation, Place, Region, Registration, RemoteRegion, Sleep, WorkRequest, shm,
};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{Job, Track};
use crate::memory::keys::AccumulateFn;
use crate::service::steps::Steps;
use crate::settings::Settings;
use crate::signal::SignalArray;
use crate::stats::{Kind, Snapshot};
use crate::{Team, coll};

const NODES: u32 = 2;
const ID: HandlerId = HandlerId(1);
/// Longer than any test takes; turns a hang into a failure.
const WATCHDOG: Duration = Duration::from_secs(100);

/// Combines an intra-node device with one that connects all ranks.
pub(crate) fn joined(me: u32, size: u32, intra: Box<dyn Device>, inter: Box<dyn Device>) -> Result<RouteDevice> {
    let member = Member { number: 1, kind: 0, carries: [true; SIZES] };
    RouteDevice::new(me, Some(intra), vec![(member, inter)], &vec![0b11; size as usize], &[])
}

/// The network between the nodes.
#[derive(Clone, Copy, Debug)]
enum Between {
    /// Atomics are coherent with the processor's.
    Coherent,
    /// Atomics are treated as not coherent, as those of an HCA.
    Apart,
}

fn start(
    mut bootstrap: Box<dyn Bootstrap>,
    hub: &std::sync::Arc<Hub>,
    settings: &Settings,
    between: Between,
) -> Result<Job> {
    let (me, size) = (bootstrap.rank(), bootstrap.size());
    let ranks: Vec<u32> = (0..size).filter(|r| r % NODES == me % NODES).collect();
    let intra = shm::Prepared::new((me / NODES) as usize, ranks.clone(), settings)?;
    bootstrap.put(&format!("intra.{me}"), &intra.address()?)?;
    bootstrap.fence()?;
    let addresses = ranks.iter().map(|r| bootstrap.get(&format!("intra.{r}"))).collect::<Result<Vec<_>>>()?;
    let intra = intra.connect(&addresses, size)?;
    let lowest: Vec<u32> = (0..size).map(|rank| rank % NODES).collect();
    let inter: Box<dyn Device> = match between {
        Between::Coherent => Box::new(Loopback::new(hub, me)),
        Between::Apart => Box::new(Steps::over(Box::new(Loopback::minimal(hub, me)))),
    };
    let device = joined(me, size, Box::new(intra), inter)?.on_nodes(&lowest);
    Job::start_on(bootstrap, settings.clone(), Box::new(device))
}

/// The result of `f` at each of `n` ranks, all of which wait as `wait` specifies.
fn mixed<R: Send + 'static>(
    n: u32,
    wait: &'static str,
    between: Between,
    f: impl Fn(&Job) -> Result<R> + Send + Sync + 'static,
) -> Vec<Result<R>> {
    let (done, results) = mpsc::channel();
    std::thread::spawn(move || {
        let settings = Settings::from_lookup(|name| match name {
            "FARSIDE_WAIT" => Some(wait.to_owned()),
            "FARSIDE_PEER_CHECK_MS" => Some("5".to_owned()),
            _ => None,
        });
        let (hub, settings) = (Hub::new(n), settings.unwrap());
        let results: Vec<Result<R>> = std::thread::scope(|scope| {
            let ranks: Vec<_> = threads::threads(n as usize)
                .into_iter()
                .map(|b| {
                    let (f, hub, settings) = (&f, &hub, &settings);
                    scope.spawn(move || {
                        let job = start(Box::new(b), hub, settings, between)?;
                        let result = f(&job).and_then(|r| job.finalize().map(|()| r));
                        job.device().leave(Leave::Lost)?;
                        result
                    })
                })
                .collect();
            ranks.into_iter().map(|r| r.join().expect("a rank panicked")).collect()
        });
        let _ = done.send(results);
    });
    results.recv_timeout(WATCHDOG).expect("a rank panicked, or a rank still waits")
}

fn well<R: Send + 'static>(
    n: u32,
    wait: &'static str,
    f: impl Fn(&Job) -> Result<R> + Send + Sync + 'static,
) -> Vec<R> {
    let f = std::sync::Arc::new(f);
    let over = |between| {
        let f = std::sync::Arc::clone(&f);
        let results = mixed(n, wait, between, move |job| f(job));
        results.into_iter().map(move |r| r.unwrap_or_else(|e| panic!("{n} ranks, {wait}, {between:?}: {e}")))
    };
    [Between::Coherent, Between::Apart].into_iter().flat_map(over).collect()
}

fn region(team: &Team) -> Region {
    let one_node = team.is_on_one_node();
    Region { one_node, ..Region::allocated(0) }
}

fn exchange_regions(
    team: &Team,
    own: Result<Registration>,
    accumulate: Option<AccumulateFn>,
) -> Result<(Registration, Vec<RemoteRegion>)> {
    // SAFETY: a registration of this job, which no test uses after a failure.
    unsafe { coll::exchange_regions(team, own, accumulate) }
}

fn release(job: &Job, handle: u64) -> Result<()> {
    // SAFETY: no test uses a pointer into a region after its release.
    unsafe { job.device().release(handle) }
}

fn forget(job: &Job, handle: u64) {
    // SAFETY: no test uses a pointer into a region after `forget`.
    unsafe { job.device().forget(handle) };
}

#[test]
fn packets_use_shared_memory_on_the_node_and_the_hca_elsewhere_each_pair_in_order() {
    const PACKETS: u32 = 300;
    for (n, wait) in [(2, "auto"), (3, "auto"), (4, "park"), (5, "yield")] {
        well(n, wait, move |job| {
            let got = Rc::new(RefCell::new(vec![0; n as usize]));
            let sink = got.clone();
            job.active_messages().register(ID, move |m| {
                let number = u32::from_le_bytes(m.data().unwrap()[..4].try_into().unwrap());
                let expected = &mut sink.borrow_mut()[m.source as usize];
                assert_eq!(number, *expected, "from rank {}", m.source);
                *expected += 1;
                Delivery::Done
            })?;
            let team = job.world()?;
            // The first device sends packets, to which peers reply until they have left it.
            (0..2).try_for_each(|_| team.barrier())?;
            let before = job.stats_by_device();
            for number in 0..PACKETS {
                let data = [number.to_le_bytes(); 20];
                (0..n).try_for_each(|to| am::send(job, to, ID, &[], data.as_flattened(), Counters::default()))?;
            }
            job.wait("packets", || Ok(got.borrow().iter().all(|g| *g == PACKETS).then_some(())))?;
            let sent = |i: usize| (job.stats_by_device()[i].1 - before[i].1).count(Kind::Send);
            // Messages of a rank to itself need no packets.
            let here = (0..n).filter(|r| r % NODES == job.rank_number() % NODES).count() as u64;
            assert_eq!((before[0].0, sent(0)), ("shm", (here - 1) * u64::from(PACKETS)));
            assert_eq!((before[1].0, sent(1)), ("loopback", (u64::from(n) - here) * u64::from(PACKETS)));
            team.barrier()
        });
    }
}

#[test]
fn collectives_over_both_devices() {
    for (n, wait) in [(2, "auto"), (3, "park"), (4, "auto"), (5, "park")] {
        well(n, wait, move |job| {
            let team = job.world()?;
            let node = team.split_by_node()?;
            let expected: Vec<u32> = (0..n).filter(|r| r % NODES == job.rank_number() % NODES).collect();
            assert_eq!(node.members(), expected);
            assert!(node.is_on_one_node() && !team.is_on_one_node());
            for t in [&team, &node] {
                for round in 0..20 {
                    let mine = vec![job.rank() as u8; round * 100 + t.rank()];
                    let all = coll::allgather(t, &mine)?;
                    for (rank, bytes) in all.iter().enumerate() {
                        assert_eq!(*bytes, vec![t.members()[rank] as u8; round * 100 + rank]);
                    }
                    t.barrier()?;
                }
            }
            Ok(())
        });
    }
}

/// In a barrier of the world only the lowest rank of each node signals the other node. Later teams first make their
/// barriers with messages.
#[test]
fn barriers_and_gathers_in_two_levels() {
    const BARRIERS: u64 = 5;
    for (n, wait) in [(3, "auto"), (5, "park"), (6, "yield")] {
        well(n, wait, move |job| {
            let (world, me) = (job.world()?, job.rank());
            world.barrier()?;
            let before = job.stats_by_device();
            (0..BARRIERS).try_for_each(|_| world.barrier())?;
            let count = |i: usize, kind: Kind| (job.stats_by_device()[i].1 - before[i].1).count(kind);
            let leaders = if me < NODES as usize { BARRIERS } else { 0 };
            assert_eq!((count(1, Kind::Signal), count(0, Kind::Send) + count(1, Kind::Send)), (leaders, 0));
            let reversed: Vec<usize> = (0..n as usize).rev().collect();
            let team = world.subteam(&reversed)?.unwrap();
            for round in 0..10 {
                let root = round % n as usize;
                let all = coll::gather(&team, root, &vec![me as u8; me * round])?;
                let expected = team.members().iter().map(|rank| vec![*rank as u8; *rank as usize * round]);
                assert_eq!(all, if team.rank() == root { expected.collect() } else { Vec::new() });
                team.barrier()?;
            }
            world.barrier()
        });
    }
}

/// The number of requests of a kind since `before`, by device: shared memory, then the network.
fn spent(job: &Job, before: &[(&'static str, Snapshot)], kind: Kind) -> Vec<u64> {
    job.stats_by_device().iter().zip(before).map(|(a, b)| (a.1 - b.1).count(kind)).collect()
}

/// A region has a single atomic domain: ranks of the same node and of others add to its words at the same time, and no
/// addition is lost. Writes and reads within a node are copies.
#[test]
fn atomics_of_ranks_of_the_node_and_of_others_add_up() {
    const ADDS: u64 = 2000;
    for n in [3, 4] {
        well(n, "auto", move |job| {
            let world = job.world()?;
            let node = world.split_by_node()?;
            let coherent = job.device().capabilities().coherent;
            for team in [&world, &node] {
                let own = job.device().allocate(Region { len: 64, ..region(team) });
                let (own, remotes) = exchange_regions(team, own, None)?;
                for remote in &remotes {
                    let near = job.device().shares_memory(remote.peer) && (node.size() > 1 || team.is_on_one_node());
                    let atomics = near.then_some(coherent || team.is_on_one_node());
                    assert_eq!(remote.mapped.map(|mapped| mapped.atomics), atomics, "{remote:?}");
                }
                assert_eq!(remotes.iter().map(|r| r.peer).collect::<Vec<_>>(), team.members());
                team.barrier()?;
                let before = job.stats_by_device();
                for _ in 0..ADDS {
                    let mut old = 0;
                    let at = Place { region: remotes[0].handle, offset: 8 };
                    let add = Operation::fetch_add(at, 1, &raw mut old);
                    // SAFETY: `old` outlives the call.
                    unsafe { job.complete("add", team.members()[0], add) }?;
                }
                let near = remotes[0].mapped.is_some_and(|mapped| mapped.atomics);
                assert_eq!(spent(job, &before, Kind::FetchAdd), if near { [ADDS, 0] } else { [0, ADDS] });
                let before = job.stats_by_device();
                let (word, mut back) = (job.rank() as u64, [0u64]);
                let offset = 16 + 8 * team.rank();
                let to = Place { region: remotes[0].handle, offset };
                let from = [Block::of((&raw const word).cast(), 8)];
                let into = [Block { base: back.as_mut_ptr().cast(), len: 8 }];
                // SAFETY: the words outlive the calls.
                unsafe {
                    job.complete("write", team.members()[0], Operation::write(&from, to))?;
                    job.complete("read", team.members()[0], Operation::read(&into, to))?;
                }
                assert_eq!(back, [word]);
                let near = remotes[0].mapped.is_some();
                for kind in [Kind::Write, Kind::Read] {
                    assert_eq!(spent(job, &before, kind), if near { [1, 0] } else { [0, 1] }, "{kind:?}");
                }
                team.barrier()?;
                if team.rank() == 0 {
                    // SAFETY: this rank's own word, which no rank changes any longer.
                    let sum = unsafe { own.base.cast::<u64>().add(1).read_volatile() };
                    assert_eq!(sum, ADDS * team.size() as u64);
                }
                remotes.iter().for_each(|r| forget(job, r.handle));
                release(job, own.handle)?;
            }
            Ok(())
        });
    }
}

/// No wake-up is lost while a rank that sleeps for up to a minute each time is signalled by a rank of its node and by a
/// rank of another node. The former sets cells that are mapped, and in every other round cells of a team that spans nodes,
/// by the device. A lost wake-up would cost a minute; two would exceed the watchdog.
#[test]
fn signal_of_either_device_wakes_a_parked_rank_every_time() {
    const ROUNDS: u64 = 2000;
    const LIMIT: Duration = Duration::from_secs(60);
    let parks = well(3, "park", |job| {
        let world = job.world()?;
        let node = world.split_by_node()?;
        let arrays = [SignalArray::new(&node, 0)?, SignalArray::new(&world, 0)?];
        // The signal array that rank 0 and another rank use in a round, and the numbers of both in its team.
        let pair = |rank: usize, round: u64| match (rank, round % 2) {
            (2, 0) => (&arrays[0], 1),
            _ => (&arrays[1], rank),
        };
        let sleep_until = |come: &dyn Fn() -> bool| -> Result<()> {
            while !come() {
                job.device().park(Sleep::For(LIMIT), &mut || come());
                job.progress()?;
            }
            Ok(())
        };
        let before = job.stats();
        for round in 1..=ROUNDS {
            let others = [1, 2].map(|rank| pair(rank, round));
            if job.rank() == 0 {
                sleep_until(&|| others.iter().all(|(signals, number)| signals.reached(*number, 0, round)))?;
                others.iter().try_for_each(|(signals, number)| signals.set(*number, 1, round))?;
            } else {
                let (signals, _) = others[job.rank() - 1];
                signals.set(0, 0, round)?;
                sleep_until(&|| signals.reached(0, 1, round))?;
            }
        }
        Ok((job.stats() - before).count(Kind::Park))
    });
    assert!(parks[0] > 0, "no rank ever slept");
}

#[test]
fn rank_lost_on_the_node_or_elsewhere_is_named_at_every_rank() {
    for wait in ["auto", "park", "spin"] {
        for victim in 0..4 {
            let ends = mixed(4, wait, Between::Coherent, move |job| {
                let team = job.world()?;
                team.barrier()?;
                if job.rank() == victim {
                    return Err(Error::new(ErrorKind::BadArgument, "end on purpose"));
                }
                team.barrier()
            });
            for (rank, end) in ends.into_iter().enumerate().filter(|(r, _)| *r != victim) {
                let e = end.expect_err("a barrier without one of the ranks");
                assert_eq!(e.kind(), ErrorKind::PeerLost, "{e}");
                // A rank that ends because of the victim's loss is also lost for other ranks.
                assert!(e.blamed().is_some_and(|b| b != rank && b < 4), "rank {rank}, {victim} is lost: {e}");
            }
        }
    }
}

#[test]
fn requests_that_make_no_sense_are_refused_with_ranks_of_the_job() {
    well(4, "auto", |job| {
        let world = job.world()?;
        let node = world.split_by_node()?;
        let device = job.device();
        let intra = exchange_regions(&node, device.allocate(Region { len: 64, ..region(&node) }), None)?;
        let inter = exchange_regions(&world, device.allocate(Region { len: 64, ..region(&world) }), None)?;
        let arrays = [SignalArray::new(&node, 0)?, SignalArray::new(&world, 0)?];
        // The other rank of this node, which is number 0 or 1 there.
        let mate = (job.rank_number() + 2) % 4;
        let word = [7u8; 8];
        let from = [Block::of(word.as_ptr(), 8)];
        let write = |peer: u32, region: u64, offset: usize, notify: Option<(Place, u64)>| {
            let operation = Operation::write(&from, Place { region, offset });
            // SAFETY: the bytes are copied or refused immediately.
            let refused = unsafe { device.post(&WorkRequest { peer, operation, notify, id: u64::MAX }) }.unwrap_err();
            (refused.kind(), refused.blamed_number())
        };
        let at_mate = intra.1[1 - node.rank()].handle;
        assert_eq!(write(mate, at_mate, 60, None), (ErrorKind::OutOfRange, Some(mate)));
        assert_eq!(write(mate, intra.1[node.rank()].handle, 0, None), (ErrorKind::BadArgument, Some(mate)));
        assert_eq!(write((mate + 1) % 4, at_mate, 0, None), (ErrorKind::BadArgument, Some((mate + 1) % 4)));
        assert_eq!(write(mate, inter.1[mate as usize].handle, 60, None), (ErrorKind::OutOfRange, Some(mate)));
        assert_eq!(write(4, at_mate, 0, None), (ErrorKind::NoSuchRank, Some(4)));
        for (peer, region) in [(mate, 0), (mate, 2000), (mate, 2001), ((mate + 1) % 4, 2001)] {
            assert_eq!(write(peer, region, 0, None).0, ErrorKind::BadKey, "{region} at {peer}");
        }
        let long = vec![0; device.capabilities().max_packet.max(device.capabilities().max_lent_packet) + 1];
        for peer in 0..4 {
            let packet = Operation::send(&long, &[]);
            // SAFETY: the request is refused.
            let e = unsafe { device.post(&WorkRequest { peer, operation: packet, notify: None, id: 0 }) }.unwrap_err();
            assert_eq!((e.kind(), e.blamed_number()), (ErrorKind::BadArgument, Some(peer)));
        }
        assert_eq!(device.import(4, &intra.0.key, None).unwrap_err().kind(), ErrorKind::NoSuchRank);
        let cell = arrays[1].cell_at(((mate + 1) % 4) as usize, 0, 1);
        assert_eq!(write(mate, at_mate, 0, Some((cell, 1))), (ErrorKind::BadArgument, Some(mate)));
        for key in [&[][..], &[9], &[0, 1, 2], &[1, 2]] {
            let e = device.import(mate, key, None).unwrap_err();
            assert_eq!((e.kind(), e.blamed_number()), (ErrorKind::Protocol, Some(mate)), "{key:?}: {e}");
        }
        let e = device.import((mate + 1) % 4, &intra.0.key, None).unwrap_err();
        assert_eq!((e.kind(), e.blamed_number()), (ErrorKind::Protocol, Some((mate + 1) % 4)));
        world.barrier()?;
        for (own, remotes) in [intra, inter] {
            remotes.iter().for_each(|r| forget(job, r.handle));
            release(job, own.handle)?;
            assert_eq!(release(job, own.handle).unwrap_err().kind(), ErrorKind::Freed);
        }
        world.barrier()
    });
}

/// A write and its notification use the same device.
#[test]
fn write_is_there_when_its_notification_is() {
    const ROUNDS: u64 = 200;
    well(4, "auto", |job| {
        let world = job.world()?;
        let node = world.split_by_node()?;
        for team in [&node, &world] {
            let signals = SignalArray::new(team, 0)?;
            let own = job.device().allocate(Region { len: 8 * team.size(), ..region(team) });
            let (own, remotes) = exchange_regions(team, own, None)?;
            let (next, before) = ((team.rank() + 1) % team.size(), (team.rank() + team.size() - 1) % team.size());
            for round in 1..=ROUNDS {
                let word = (round * 1000).to_le_bytes();
                let from = [Block::of(word.as_ptr(), 8)];
                let operation = Operation::write(&from, Place { region: remotes[next].handle, offset: 0 });
                let track = Track::new();
                let notify = Some((signals.cell_at(next, 0, round), round));
                // SAFETY: the request is complete before the next round.
                unsafe { job.post(team.members()[next], operation, notify, &[&track]) }?;
                job.wait("notification", || Ok(signals.reached(before, 0, round).then_some(())))?;
                // SAFETY: this rank's own word, which does not change before the barrier.
                assert_eq!(unsafe { own.base.cast::<u64>().read_volatile() }, round * 1000);
                job.wait("write", || Ok((track.open() == 0).then_some(())))?;
                team.barrier()?;
            }
            remotes.iter().for_each(|r| forget(job, r.handle));
            release(job, own.handle)?;
        }
        Ok(())
    });
}
