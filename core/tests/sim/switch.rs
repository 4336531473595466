#![allow(unsafe_code)]
//! The in-switch barrier: no rank leaves before all have entered, whatever is lost; its times and messages; groups,
//! ids, and members that never arrive.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use farside_core::coll::execute::{self, Arguments};
use farside_core::coll::operation::{Call, Operation};
use farside_core::coll::schedule::predict::{Bytes, LogGP, predict_algorithm};
use farside_core::coll::selection::Choice;
use farside_core::device::{self, BarrierRequest};
use farside_core::job::{CancelOnDrop, Track};
use farside_core::sim::{Flap, Interface, Network, Simulation, Switch};
use farside_core::stats::Kind;
use farside_core::{ErrorKind, Job, Result, Team};

use super::times::{time_of, with};

/// A setting, and its value that makes each team use the in-switch barrier.
const COLL: &str = "FARSIDE_COLL";
const SWITCH: &str = "barrier:switch";

fn network(interface: Interface) -> Network {
    Network { interface, switch: Some(Switch::default()), ..Network::default() }
}

/// Packets are lost in both directions, delayed by more than the time between two repetitions, and overtake each other.
fn hostile(loss: f64) -> Network {
    let switch = Some(Switch { retry: 3000.0, ..Switch::default() });
    Network { jitter: 7000.0, reorders: true, loss, retry: 4000.0, switch, ..Network::default() }
}

/// Times at which a rank entered and left barriers, in their order.
type Times = Vec<[Instant; 2]>;

/// Makes a barrier of a team after some work, and records its times.
fn meet(team: &Team, work: u64, times: &mut Times) -> Result<()> {
    let device = team.job().device();
    device.compute(Duration::from_nanos(work));
    let entered = device.now();
    team.barrier()?;
    times.push([entered, device.now()]);
    Ok(())
}

/// Work of a rank before its next barrier in nanoseconds: usually little, sometimes much.
fn work(rank: usize, number: usize, seed: u64) -> u64 {
    let mixed = (rank as u64 * 31 + number as u64 * 17 + seed * 7).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    if mixed.is_multiple_of(5) { mixed % 40_000 } else { mixed % 300 }
}

/// Asserts that no rank has left a barrier before all its members have entered it.
fn assert_barriers(ranks: &[Times], context: &str) {
    for number in 0..ranks[0].len() {
        let last = ranks.iter().map(|times| times[number][0]).max();
        let first = ranks.iter().map(|times| times[number][1]).min();
        assert!(last <= first, "{context}: a rank has left barrier {number} before all have entered it");
    }
}

fn switch_requests(job: &Job) -> u64 {
    job.stats().count(Kind::Switch)
}

#[test]
fn no_rank_leaves_before_all_have_entered() {
    const BARRIERS: usize = 8;
    for ranks in 2..=64 {
        for seed in 0..6 {
            let loss = [0.0, 0.05, 0.3][seed as usize % 3];
            let simulation = Simulation::new(ranks).seed(seed).network(hostile(loss)).settings(with(COLL, SWITCH));
            let simulation = simulation.slow(seed as usize % ranks, 20.0);
            let run = simulation.run(|job| {
                let (world, mut times) = (job.world()?, Times::new());
                for number in 0..BARRIERS {
                    meet(&world, work(job.rank(), number, seed), &mut times)?;
                }
                // Each rank sends a request to participate, and one for each barrier except the first; rank 0 has
                // requested the id.
                assert_eq!(switch_requests(job), (BARRIERS + usize::from(job.rank() == 0)) as u64);
                Ok(times)
            });
            assert_barriers(&run.unwrap().results, &format!("{ranks} ranks, seed {seed}"));
        }
    }
}

/// Teams that overlap, some of them at the same time, are made and dropped again: there are fewer ids than teams in
/// total.
#[test]
fn several_groups_at_once() {
    const ROUNDS: usize = 5;
    for ranks in [4, 7, 12, 24] {
        for seed in 0..25 {
            let loss = [0.0, 0.1, 0.3][seed as usize % 3];
            let simulation = Simulation::new(ranks).seed(seed).network(hostile(loss)).settings(with(COLL, SWITCH));
            let run = simulation.run(|job| {
                let (world, rank) = (job.world()?, job.rank());
                let mut all: Vec<(Vec<u32>, Times)> = Vec::new();
                for round in 0..2 {
                    let colors = [rank % 2, rank / 3, (rank + round) % 3];
                    let teams = colors.map(|color| world.split(Some(color as u32), 0));
                    let teams = teams.into_iter().map(|team| team.map(Option::unwrap)).collect::<Result<Vec<_>>>()?;
                    let first = all.len();
                    all.extend(teams.iter().map(|team| (team.members().to_vec(), Times::new())));
                    for number in 0..ROUNDS {
                        for (team, (_, times)) in teams.iter().zip(&mut all[first..]) {
                            meet(team, work(rank, number, seed), times)?;
                        }
                    }
                }
                Ok(all)
            });
            let results = run.unwrap().results;
            for of_team in 0..6 {
                for ranks in results.iter().map(|all| &all[of_team].0) {
                    let times: Vec<_> = ranks.iter().map(|rank| results[*rank as usize][of_team].1.clone()).collect();
                    assert_barriers(&times, &format!("team {ranks:?}, seed {seed}"));
                }
            }
        }
    }
}

/// o + 2 L + o_p(P) + o, as in section 3.1.1.3 of the thesis, by run and by prediction, with two messages for each rank.
#[test]
fn time_and_messages_are_those_of_the_thesis() {
    for (latency, overhead) in [(1000.0, 100.0), (300.0, 250.0)] {
        let network = network(Interface::log_p(latency, overhead, overhead));
        for ranks in 2..=64usize {
            let levels = f64::from(ranks.next_power_of_two().trailing_zeros());
            let formula = overhead + 2.0 * latency + Switch::default().gate * levels + overhead;
            let simulation = Simulation::new(ranks).network(network.clone()).settings(with(COLL, SWITCH));
            let barriers = |n: usize| {
                let run = simulation.run(|job| (0..n).try_for_each(|_| job.world()?.barrier())).unwrap();
                run.messages
            };
            assert_eq!(time_of(&simulation, |job| job.world()?.barrier()) as f64, formula, "P {ranks}");
            assert_eq!(predicted("switch", ranks as u32, &LogGP::from(&network)), Some(formula), "P {ranks}");
            assert_eq!(barriers(13) - barriers(3), 10 * 2 * ranks as u64, "P {ranks}");
        }
    }
}

/// The time that a model gives a barrier; `None` if the algorithm is not for this number of ranks.
fn predicted(choice: &str, ranks: u32, model: &LogGP) -> Option<f64> {
    let Choice { algorithm, parameters } = Choice::parse(Operation::Barrier, choice).unwrap();
    let call = |rank| Call { parameters: &parameters, switch: true, ..Call::new(Operation::Barrier, rank, ranks) };
    (algorithm.applies)(&call(0)).then(|| predict_algorithm(algorithm, call, Bytes::Each(0), model).unwrap().time)
}

/// The in-switch barrier compared with the others, predicted and run. With L to the switch as long as to another rank
/// it takes about two rounds, and hardly more with more ranks. The barrier with signals needs no processor of a
/// receiver.
#[test]
fn gain_beside_other_barriers() {
    let others = ["central-counter", "combining-tree", "tournament", "mcs-tree", "dissemination", "dissemination(3)"];
    let network = network(Interface::default());
    let model = LogGP::from(&network);
    println!("barriers on the default network in ns: predicted/simulated");
    println!("{:>4} {:>14} {:>14} {}", "P", "switch", "signals", others.map(|name| format!("{name:>18}")).join(" "));
    for ranks in [2, 4, 8, 16, 32, 64] {
        let time = |setting: &str, by_messages: bool| {
            let simulation = Simulation::new(ranks).network(network.clone()).settings(with("FARSIDE_COLL", setting));
            time_of(&simulation, |job| {
                let world = job.world()?;
                if !by_messages {
                    return world.barrier();
                }
                // SAFETY: a barrier has no memory.
                unsafe { execute::run(&world, &Arguments::new(Operation::Barrier)) }
            })
        };
        let (switch, signals) = (time(SWITCH, false), time("barrier:dissemination", false));
        let guess = |name: &str| predicted(name, ranks as u32, &model).unwrap();
        let mut line = format!("{ranks:>4} {:>9}/{switch} {:>9}/{signals}", guess("switch"), "-");
        for name in others {
            let by_messages = time(&format!("barrier:{name}"), true);
            line += &format!(" {:>12}/{by_messages}", guess(name));
            assert_eq!(switch < by_messages, guess("switch") < guess(name), "{name}, P {ranks}");
            assert!(ranks < 32 || switch < by_messages, "{name}, P {ranks}");
        }
        println!("{line}");
        assert_eq!(switch < signals, ranks >= 8, "P {ranks}: {switch} {signals}");
    }
}

/// A team uses the in-switch barrier if and only if it is faster than the barrier that the team uses on a network
/// without it.
#[test]
fn switch_is_chosen_only_where_it_is_faster() {
    let slow_gates = Some(Switch { gate: 700.0, ..Switch::default() });
    let (default, near) = (network(Interface::default()), network(Interface::log_p(200.0, 500.0, 0.0)));
    let gates = Network { switch: slow_gates, ..default.clone() };
    let cases = [default, near, gates].map(|network| [2, 3, 4, 5, 8, 16, 33, 64].map(|ranks| (network.clone(), ranks)));
    let (mut chosen, mut all) = (0, 0);
    for (network, ranks) in cases.into_iter().flatten() {
        let time = |network: &Network, setting: &str| {
            let simulation = Simulation::new(ranks).network(network.clone()).settings(with(COLL, setting));
            time_of(&simulation, |job| {
                job.world()?.barrier()?;
                job.world()?.barrier()
            })
        };
        let [by_choice, by_switch] = ["auto", SWITCH].map(|setting| time(&network, setting));
        let without = time(&Network { switch: None, ..network.clone() }, "auto");
        println!("P {ranks}: {by_choice} ns; by the switch {by_switch}, without {without}");
        assert_eq!(by_choice, by_switch.min(without), "P {ranks}, {network:?}");
        chosen += usize::from(by_switch < without);
        all += 1;
    }
    assert!(chosen > 10 && chosen + 10 < all, "{chosen} of {all}");
}

#[test]
fn teams_without_an_id_use_signals_at_all_ranks() {
    let few = Network { switch: Some(Switch { ids: 2, ..Switch::default() }), ..hostile(0.1) };
    for seed in 0..20 {
        let run = Simulation::new(6).seed(seed).network(few.clone()).run(|job| {
            let world = job.world()?;
            let barriers = |team: &Team| {
                let before = switch_requests(job);
                (0..8).try_for_each(|_| team.barrier())?;
                Ok::<_, farside_core::Error>(switch_requests(job) - before)
            };
            let (a, b) = (world.split(Some(0), 0)?.unwrap(), world.split(Some(0), 0)?.unwrap());
            let used = [barriers(&world)?, barriers(&a)?, barriers(&b)?];
            // The id of a dropped team is free when its last `ready` is acknowledged.
            drop(a);
            job.device().compute(Duration::from_millis(1));
            world.barrier()?;
            let c = world.split(Some(0), 0)?.unwrap();
            let used = [used[0], used[1], used[2], barriers(&c)?];
            Ok(used)
        });
        for (rank, used) in run.unwrap().results.into_iter().enumerate() {
            let by_switch = 8 + u64::from(rank == 0);
            assert_eq!(used, [by_switch, by_switch, u64::from(rank == 0), by_switch], "rank {rank}");
        }
    }
}

#[test]
fn settings_choose_another_barrier() {
    let simulation = Simulation::new(5).network(network(Interface::default()));
    let requests = |simulation: &Simulation| {
        let run = simulation.run(|job| {
            (0..5).try_for_each(|_| job.world()?.barrier())?;
            Ok(switch_requests(job))
        });
        run.unwrap().results
    };
    assert_eq!(requests(&simulation), [6, 5, 5, 5, 5]);
    assert_eq!(requests(&simulation.clone().settings(with("FARSIDE_COLL", "barrier:switch"))), [6, 5, 5, 5, 5]);
    assert_eq!(requests(&simulation.clone().settings(with("FARSIDE_COLL", "barrier:dissemination"))), [0; 5]);
    // On a network without it, the setting has no effect.
    let without = simulation.network(Network::default()).settings(with("FARSIDE_COLL", "barrier:switch"));
    assert_eq!(requests(&without), [0; 5]);
}

/// If members die or reach the end of the job, the others get an error within a second.
#[test]
fn members_that_do_not_arrive_are_errors() {
    for seed in 0..30 {
        for dies in [true, false] {
            let latest = Cell::new(Duration::ZERO);
            let errors = RefCell::new(Vec::new());
            let simulation = Simulation::new(5).seed(seed).network(hostile(0.2));
            let simulation = if dies { simulation.dies(3, Duration::from_micros(20 + 15 * seed)) } else { simulation };
            let e = simulation.run(|job| {
                let world = job.world()?;
                let begin = job.device().now();
                for _ in 0..if dies { 100 } else { 2 + seed } {
                    world.barrier()?;
                }
                if job.rank() == 3 {
                    return Ok(());
                }
                let met = world.barrier();
                latest.set(latest.get().max(job.device().now() - begin));
                errors.borrow_mut().extend(met.as_ref().err().map(|e| (e.kind(), e.blamed(), e.to_string())));
                met
            });
            let e = e.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::PeerLost, "seed {seed}: {e}");
            if !dies {
                // The first rank that detects the loss ends, and may be the one that others find to be lost.
                let errors = errors.borrow();
                let is_end = |(_, blamed, text): &(_, _, String)| *blamed == Some(3) && text.contains("has finalized");
                assert!(errors.iter().any(is_end), "seed {seed}: {errors:?}");
                assert!(errors.len() == 4 && errors.iter().all(|e| e.0 == ErrorKind::PeerLost), "{errors:?}");
                assert!(latest.get() < Duration::from_secs(10), "{:?}", latest.get());
            }
        }
    }
}

#[test]
fn interface_that_is_down_delays() {
    let down = vec![Flap { rank: 1, from: 3000.0, until: 2_000_000.0 }];
    let network = Network { down, ..network(Interface::default()) };
    let run = Simulation::new(6).network(network).run(|job| {
        let (world, mut times) = (job.world()?, Times::new());
        (0..5).try_for_each(|number| meet(&world, work(job.rank(), number, 0), &mut times))?;
        Ok(times)
    });
    let run = run.unwrap();
    assert_barriers(&run.results, "flap");
    assert!(run.time >= Duration::from_millis(2), "{:?}", run.time);
}

/// Posts a request and waits for it; cancels it first if `cancels`.
fn ask(job: &Job, request: BarrierRequest, cancels: bool) -> Result<()> {
    let track = Track::new();
    let open = CancelOnDrop::new(job, &track);
    // SAFETY: complete or cancelled before the group goes out of scope.
    unsafe { job.post(job.rank() as u32, device::Operation::Barrier(request), None, &[&track]) }?;
    if cancels {
        drop(open);
        return Ok(());
    }
    job.wait("test", || Ok((track.open() == 0).then_some(())))?;
    track.check()
}

#[test]
fn requests_that_make_no_sense_are_errors() {
    let one = Network { switch: Some(Switch { ids: 1, ..Switch::default() }), ..hostile(0.2) };
    let run = Simulation::new(2).network(one).run(|job| {
        let open = |cancels| {
            let mut group = 0;
            ask(job, BarrierRequest::Open { group: &raw mut group }, cancels).map(|()| group)
        };
        if job.rank() == 1 {
            let e = ask(job, BarrierRequest::Enter { group: 77, number: 1 }, false).unwrap_err();
            assert!(e.kind() == ErrorKind::BadArgument && e.to_string().contains("switch"), "{e}");
            let e = ask(job, BarrierRequest::Join { group: BarrierRequest::NO_GROUP }, false).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::BadArgument);
            return Ok(());
        }
        // The id of a cancelled request is released.
        open(true)?;
        job.device().compute(Duration::from_millis(2));
        job.progress()?;
        let group = open(false)?;
        assert_ne!(group, BarrierRequest::NO_GROUP);
        assert_eq!(open(false)?, BarrierRequest::NO_GROUP);
        let e = ask(job, BarrierRequest::Enter { group, number: 1 }, false).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::BadArgument);
        ask(job, BarrierRequest::Join { group }, false)?;
        (1..4).try_for_each(|number| ask(job, BarrierRequest::Enter { group, number }, false))?;
        let e = ask(job, BarrierRequest::Enter { group, number: 6 }, false).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::BadArgument);
        // SAFETY: no local memory is involved.
        unsafe { job.post(0, device::Operation::Barrier(BarrierRequest::Close { group }), None, &[]) }?;
        job.device().compute(Duration::from_millis(1));
        assert_ne!(open(false)?, BarrierRequest::NO_GROUP);
        Ok(())
    });
    run.unwrap();
    let lacks = Simulation::new(2).run(|job| ask(job, BarrierRequest::Join { group: 1 }, false)).unwrap_err();
    assert_eq!(lacks.kind(), ErrorKind::Unsupported);
}

#[test]
fn networks_that_have_no_single_switch_are_refused() {
    let torus = Network { topology: "torus:2x2x2".parse().unwrap(), ..network(Interface::default()) };
    let of = |switch| Network { switch: Some(switch), ..Network::default() };
    let (none, never) = (Switch { ids: 0, ..Switch::default() }, Switch { retry: 0.0, ..Switch::default() });
    for network in [torus, of(none), of(never)] {
        let e = Simulation::new(8).network(network).run(|_| Ok(())).unwrap_err();
        assert!(e.kind() == ErrorKind::BadArgument && e.to_string().contains("switch"), "{e}");
    }
}
