//! Windows in a job in which only some ranks share memory: over all ranks and over those of each node. With
//! `FARSIDE_DEVICE=route` and `FARSIDE_TEST_NODES=2`, as in the machine of `ci/rxe`, rank r is on node r modulo 2.
//! Otherwise all ranks are on one node, and then on two nodes, with the same results.

use std::time::{Duration, Instant};

use farside_harness::quick;
use farside_rma::core::settings::Settings;
use farside_rma::core::stats::{Kind, Snapshot};
use farside_rma::prelude::*;
use farside_rma::{Epoch, ErrorKind, SharedWindow};

/// The job sizes; with [`quick`] only the first.
const RANKS: [u32; 3] = [4, 2, 3];

/// Two nodes on this machine, each of whose ranks share memory; between the nodes the default device is TCP if there is
/// no HCA.
const TWO_NODES: &[(&str, &str)] = &[("FARSIDE_DEVICE", "route"), ("FARSIDE_TEST_NODES", "2")];

fn every(f: impl Fn(&Job) -> Result<()> + Sync) {
    let sets = if std::env::var_os("FARSIDE_DEVICE").is_some() { &[&[][..]][..] } else { &[&[][..], TWO_NODES] };
    let numbers = if quick() { &RANKS[..1] } else { &RANKS };
    for (n, set) in numbers.iter().flat_map(|n| sets.iter().map(move |set| (*n, *set))) {
        for wait in ["auto", "park"] {
            let find = |name: &str| match set.iter().find(|(set, _)| *set == name) {
                Some((_, value)) => Some((*value).to_owned()),
                None if name == "FARSIDE_WAIT" => Some(wait.to_owned()),
                None => std::env::var(name).ok(),
            };
            let settings = Settings::from_lookup(find).unwrap();
            let ended = Job::threads_with(n as usize, &settings, &f);
            ended.unwrap_or_else(|e| panic!("{n} ranks, {wait}, {set:?}: {e}"));
        }
    }
}

/// The number of nodes of the job, if it has several.
fn nodes(job: &Job) -> Option<u32> {
    let node_count = || std::env::var("FARSIDE_TEST_NODES").map_or(2, |nodes| nodes.parse().unwrap());
    (job.device().capabilities().name == "route").then(node_count)
}

/// The teams of all ranks and of this node.
fn teams(job: &Job) -> Result<[Team; 2]> {
    let world = job.world()?;
    let node = world.split_by_node()?;
    Ok([world, node])
}

#[test]
fn team_of_a_node_has_the_ranks_that_share_memory() {
    every(|job| {
        let [world, node] = teams(job)?;
        if let Some(nodes) = nodes(job) {
            let here = |r: &u32| r % nodes == job.rank_number() % nodes;
            assert_eq!(node.members(), (0..job.size_number()).filter(here).collect::<Vec<_>>());
            assert!(!world.is_on_one_node());
        }
        assert!(node.is_on_one_node() || node.size() == 1);
        assert_eq!(node.size() == world.size(), world.is_on_one_node());
        Ok(())
    });
}

/// All ranks update the same words of rank 0 concurrently, with every kind of atomic operation: no update is lost,
/// whether the origin is on rank 0's node or on another.
#[test]
fn atomics_on_one_window_from_the_node_and_from_others_add_up() {
    const ROUNDS: u64 = 60;
    every(|job| {
        for team in teams(job)? {
            let window = LockWindow::<u64>::allocate(&team, 4)?;
            let small = LockWindow::<u32>::allocate(&team, 2)?;
            window.lock_all(Assert::empty(), |e| {
                for _ in 0..ROUNDS {
                    e.accumulate(Op::Sum, &[1], 0, 0)?;
                    e.fetch_and_op_blocking(Op::Sum, 2, 0, 1)?;
                    // Only compare-and-swap changes the third word.
                    let mut seen = e.get_blocking(0, 2)?;
                    loop {
                        let found = e.compare_and_swap_blocking(seen, seen + 3, 0, 2)?;
                        if found == seen {
                            break;
                        }
                        seen = found;
                    }
                }
                Ok(())
            })?;
            small.lock_all(Assert::empty(), |e| (0..ROUNDS).try_for_each(|_| e.accumulate(Op::Sum, &[1], 0, 1)))?;
            team.barrier()?;
            if team.rank() == 0 {
                let all = ROUNDS * team.size() as u64;
                assert_eq!(window.with_local(|l| Ok(l.to_vec()))?, [all, 2 * all, 3 * all, 0]);
                assert_eq!(small.with_local(|l| Ok(l.to_vec()))?, [0, all as u32]);
            }
            team.barrier()?;
            small.free()?;
            window.free()?;
        }
        Ok(())
    });
}

/// Elements of a long accumulate.
const LONG_ELEMENTS: usize = 1500;

/// Adds 1 to all elements of rank 0, 1 more to some of them, and 1 more to the first; gets the previous value of the
/// first element, and the value of the last.
fn add<'s>(e: &'s Epoch<'s, '_, f64>, ones: &'s [f64], first: &'s mut f64, last: &'s mut f64) -> Result<()> {
    e.accumulate(Op::Sum, ones, 0, 0)?;
    (0..LONG_ELEMENTS).step_by(100).try_for_each(|at| e.accumulate(Op::Sum, &ones[..1], 0, at))?;
    e.fetch_and_op(Op::Sum, &ones[0], first, 0, 0)?;
    e.get_accumulate(Op::NoOp, &ones[..1], std::slice::from_mut(last), 0, LONG_ELEMENTS - 1)
}

/// The same in fence and PSCW epochs, with accumulates of every length. Ranks of the same node use shared memory.
#[test]
fn accumulates_of_epochs_from_the_node_and_from_others_add_up() {
    every(|job| {
        for team in teams(job)? {
            let (p, me) = (team.size(), team.rank());
            let (all, none) = ((0..p).collect::<Vec<_>>(), Assert::empty());
            let mut window = Window::<f64>::allocate(&team, LONG_ELEMENTS)?;
            let ones = vec![1.0; LONG_ELEMENTS];
            for round in 1..=10 {
                let (mut first, mut last) = (-1.0, -1.0);
                if round % 2 == 0 {
                    window.fence(none, |e| add(e, &ones, &mut first, &mut last))?;
                } else {
                    window.expose(&all, none, |x| x.start(&all, none, |e| add(e, &ones, &mut first, &mut last)))?;
                }
                let before = ((round - 1) * p) as f64;
                assert!(first >= 3.0 * before + 2.0 && last > before && last <= before + p as f64, "{first}, {last}");
                for (at, sum) in window.local()?.iter().enumerate() {
                    let adds = if at == 0 { 3 } else { 1 + usize::from(at % 100 == 0) };
                    assert_eq!(*sum, if me == 0 { (round * p * adds) as f64 } else { 0.0 }, "element {at}");
                }
                team.barrier()?;
            }
            window.free()?;
        }
        Ok(())
    });
}

/// In fence and PSCW epochs, intra-node puts, gets and accumulates cause no messages other than the signals of the
/// calls.
#[test]
fn operations_of_epochs_within_a_node_cause_no_messages() {
    const OPERATIONS: u64 = 20;
    every(|job| {
        let world = job.world()?;
        let target = (world.rank() + 2) % world.size();
        if world.size() < 4 {
            return Ok(());
        }
        assert!(nodes(job).is_none_or(|nodes| nodes != 2) || job.device().shares_memory(world.members()[target]));
        let mut window = Window::<u64>::allocate(&world, 4)?;
        let messages = |before: &[(&str, Snapshot)]| {
            let sums = job.stats_by_device().iter().zip(before).map(|(a, b)| a.1 - b.1).collect::<Vec<_>>();
            // The signal of a closing call may be combined with an operation.
            let kinds = [Kind::Signal, Kind::Notify, Kind::Send, Kind::FetchAdd];
            let sent = |s: &Snapshot| kinds.iter().map(|kind| s.count(*kind)).sum::<u64>();
            sums.iter().map(sent).sum::<u64>() + sums[1..].iter().map(|s| s.count(Kind::Write)).sum::<u64>()
        };
        let mut counts = Vec::new();
        for many in [0, OPERATIONS] {
            let before = job.stats_by_device();
            let mut got = vec![0; many as usize];
            window.fence(Assert::empty(), |e| {
                (0..many).try_for_each(|i| e.put_value(i, target, 0))?;
                (0..many).try_for_each(|_| e.accumulate(Op::Sum, &[1], target, 1))?;
                got.iter_mut().try_for_each(|got| e.get(std::slice::from_mut(got), target, 2))
            })?;
            window.expose(&[target], Assert::empty(), |x| {
                x.start(&[target], Assert::empty(), |e| {
                    (0..many).try_for_each(|i| e.put_value(i, target, 0))?;
                    (0..many).try_for_each(|_| e.accumulate(Op::Sum, &[1], target, 1))
                })
            })?;
            counts.push(messages(&before));
        }
        assert_eq!(counts[0], counts[1]);
        window.free()
    });
}

/// In a fence epoch that follows no other, an intra-node put starts as soon as the target has opened its epoch, also on
/// a window over several nodes.
#[test]
fn puts_within_a_node_start_in_the_epoch() {
    every(|job| {
        let world = job.world()?;
        let near = |t: &usize| *t != world.rank() && job.device().shares_memory(world.members()[*t]);
        let mut window = Window::<u64>::allocate(&world, 1)?;
        window.fence(Assert::empty(), |e| {
            let limit = Instant::now() + Duration::from_secs(20);
            for target in (0..world.size()).filter(near) {
                let before = job.stats().count(Kind::Write);
                while job.stats().count(Kind::Write) == before {
                    assert!(Instant::now() < limit, "puts to rank {target} wait for the closing call");
                    e.put_value(7, target, 0)?;
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Ok(())
        })?;
        let written = (0..world.size()).any(|t| near(&t));
        assert_eq!(window.local()?[0], if written { 7 } else { 0 });
        world.barrier()?;
        window.free()
    });
}

/// Windows over all ranks and over a node, with epochs open on both at the same time.
#[test]
fn windows_of_the_node_and_of_all_ranks_side_by_side() {
    every(|job| {
        let [world, node] = teams(job)?;
        let mut outer = Window::<u64>::allocate(&world, world.size())?;
        let mut inner = Window::<u64>::allocate(&node, node.size())?;
        for round in 1..=30u64 {
            let mine = round * 100 + job.rank() as u64;
            outer.fence(Assert::empty(), |o| {
                inner.fence(Assert::empty(), |i| {
                    (0..node.size()).try_for_each(|to| i.put_value(mine, to, node.rank()))
                })?;
                (0..world.size()).try_for_each(|to| o.put_value(mine, to, world.rank()))
            })?;
            for (team, window) in [(&world, &mut outer), (&node, &mut inner)] {
                let expected: Vec<u64> = team.members().iter().map(|m| round * 100 + u64::from(*m)).collect();
                assert_eq!(window.local()?, expected);
                team.barrier()?;
            }
        }
        inner.free()?;
        outer.free()
    });
}

#[test]
fn shared_window_is_for_the_ranks_of_a_node() {
    every(|job| {
        let [world, node] = teams(job)?;
        if node.is_on_one_node() {
            let window = SharedWindow::<u64>::allocate(&node, 2)?;
            for rank in 0..node.size() {
                window.of(rank)?.fetch_and_op(Op::Sum, 5, 1)?;
            }
            node.barrier()?;
            assert_eq!(window.of(node.rank())?.load(1)?, 5 * node.size() as u64);
            node.barrier()?;
            window.free()?;
        }
        if !world.is_on_one_node() {
            let e = SharedWindow::<u64>::allocate(&world, 2).map(drop).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
            assert!(e.to_string().contains("one node"), "{e}");
        }
        Ok(())
    });
}

/// An intra-node put is a copy, also on a window over several nodes; an inter-node put uses the inter-node device.
#[test]
fn puts_within_a_node_are_copies_and_others_use_the_device_between_nodes() {
    const PUTS: u64 = 10;
    every(|job| {
        for team in teams(job)? {
            let window = LockWindow::<u64>::allocate(&team, 1)?;
            for step in 0..team.size() {
                // No two ranks lock the same target at a time: ranks that wait for a lock write entries of its queue.
                team.barrier()?;
                let target = (team.rank() + step) % team.size();
                let before = job.stats_by_device();
                window.lock(LockKind::Shared, target, Assert::NOCHECK, |e| {
                    (0..PUTS).try_for_each(|i| e.put_value(i, target, 0))
                })?;
                let after = job.stats_by_device();
                let writes = |s: &[(&str, Snapshot)]| s.iter().map(|d| d.1.count(Kind::Write)).collect::<Vec<_>>();
                let spent: Vec<u64> = writes(&after).iter().zip(writes(&before)).map(|(a, b)| a - b).collect();
                assert_eq!(spent.iter().sum::<u64>(), PUTS);
                if nodes(job).is_some() {
                    assert_eq!(after[0].0, "shm");
                    let near = target == team.rank() || job.device().shares_memory(team.members()[target]);
                    assert_eq!(spent[0], if near { PUTS } else { 0 }, "to rank {target}");
                }
            }
            team.barrier()?;
            window.free()?;
        }
        Ok(())
    });
}

/// A network that is listed twice provides two connections to each peer, which share long transfers and messages.
#[test]
fn long_transfers_share_the_connections_of_a_device_that_is_listed_twice() {
    const LEN: usize = 1 << 17;
    let find = |name: &str| (name == "FARSIDE_DEVICES").then(|| "tcp,tcp".to_owned());
    let settings = Settings::from_lookup(find).unwrap();
    let ended = Job::threads_with(2, &settings, |job| {
        let world = job.world()?;
        let window = LockWindow::<u64>::allocate(&world, 2 * LEN)?;
        let mine: Vec<u64> = (0..LEN as u64).map(|at| at * (world.rank() as u64 + 3)).collect();
        let mut back = vec![0; LEN];
        let (me, other) = (world.rank(), 1 - world.rank());
        let moved = || {
            let mut moved = Vec::new();
            job.device().stats(&mut |name, stats| {
                let bytes = [Kind::Write, Kind::Read].map(|kind| stats.snapshot().bytes(kind));
                moved.extend((name == "tcp").then_some(bytes));
            });
            moved
        };
        // Each connection has moved more than a third of the bytes that were written or read since `before`.
        let check_shares = |before: &[[u64; 2]], kind: usize| {
            let shares: Vec<u64> = moved().iter().zip(before).map(|(now, before)| now[kind] - before[kind]).collect();
            let (all, some) = (shares.iter().sum::<u64>(), shares.iter().filter(|share| **share > 0));
            assert!(all >= 8 * LEN as u64 && some.clone().count() == 2, "{shares:?}");
            assert!(some.clone().all(|share| 3 * share > all), "{shares:?}");
        };
        window.lock_all(Assert::empty(), |e| {
            let before = moved();
            e.put(&mine, other, 0)?;
            e.flush(other)?;
            check_shares(&before, 0);
            let before = moved();
            e.get_into_blocking(&mut back, other, 0)?;
            check_shares(&before, 1);
            assert_eq!(back, mine);
            // Lists of blocks: from all elements to every second 128 of them, and back.
            let (all, apart) = (Selection::contiguous(LEN)?, Selection::vector(LEN / 128, 128, 256)?);
            let before = moved();
            e.put_selected(&mine, &all, other, 0, &apart)?;
            e.flush(other)?;
            check_shares(&before, 0);
            let before = moved();
            back.fill(0);
            e.get_selected(&mut back, &all, other, 0, &apart)?;
            e.flush(other)?;
            check_shares(&before, 1);
            Ok(())
        })?;
        assert_eq!(back, mine);
        world.barrier()?;
        let before = moved();
        let mut got = vec![0; LEN];
        for sender in 0..2 {
            if sender == me {
                world.send(&mine, other, 0)?;
            } else {
                world.recv(&mut got, other, 0)?;
            }
        }
        check_shares(&before, 1);
        assert!(got.iter().zip(0..).all(|(got, at)| *got == at * (other as u64 + 3)));
        world.barrier()?;
        window.free()
    });
    ended.unwrap();
}
