#![allow(unsafe_code)]
//! Times of real runs compared with those of the models, and the effects of contention and faults on them.

use std::time::Duration;

use farside_core::coll::execute::{self, Arguments};
use farside_core::coll::operation::{Call, Operation};
use farside_core::coll::schedule::predict::{Bytes, LogGP, predict_algorithm};
use farside_core::coll::table;
use farside_core::device::{Block, Place, Region};
use farside_core::settings::Settings;
use farside_core::sim::{Flap, Interface, Network, Simulation};
use farside_core::{ErrorKind, Job, Result, device};

/// The settings with one value changed.
pub(crate) fn with(name: &str, value: &str) -> Settings {
    Settings::from_lookup(|asked| (asked == name).then(|| value.to_owned())).unwrap()
}

/// Time in nanoseconds from the start of `f` at all ranks until the last of them has finished it.
pub(crate) fn time_of(simulation: &Simulation, f: impl Fn(&Job) -> Result<()>) -> u128 {
    let run = simulation
        .run(|job| {
            f(job)?;
            // No rank has an operation in progress, and all continue at the same time.
            job.device().compute(Duration::from_millis(1));
            job.align()?;
            let begin = job.device().now();
            f(job)?;
            let time = job.device().now() - begin;
            // The messages at the end of a rank do not overlap with those of `f`.
            job.device().compute(Duration::from_millis(1));
            Ok(time)
        })
        .unwrap();
    run.results.iter().max().unwrap().as_nanos()
}

/// Barriers by messages take the time that LogP gives their schedules: the closed formulas of the thesis, to which the
/// predictor is compared elsewhere. Those in which messages of several rounds wait at the same time may be shorter.
#[test]
fn barriers_take_the_times_of_log_p() {
    let (mut same, mut all) = (0, 0);
    // The gap equals the overhead, so that the processor never waits for its interface.
    for (latency, overhead) in [(1000.0, 100.0), (300.0, 250.0)] {
        let interface = Interface::log_p(latency, overhead, overhead);
        let (model, network) = (LogGP::from(interface), Network { interface, ..Network::default() });
        for algorithm in table::of(Operation::Barrier) {
            let parameters = algorithm.defaults();
            for ranks in [2, 3, 4, 7, 8, 16, 27, 64] {
                let call = |rank| Call { parameters: &parameters, ..Call::new(Operation::Barrier, rank, ranks) };
                if !(algorithm.applies)(&call(0)) {
                    continue;
                }
                let predicted = predict_algorithm(algorithm, call, Bytes::Each(0), &model).unwrap().time;
                let settings = with("FARSIDE_COLL", &format!("barrier:{}", algorithm.name));
                let simulation = Simulation::new(ranks as usize).settings(settings).network(network.clone());
                let time = time_of(&simulation, |job| {
                    // SAFETY: a barrier has no memory.
                    unsafe { execute::run(&job.world()?, &Arguments::new(Operation::Barrier)) }
                });
                // Ranks that receive messages of two rounds at the same time take them in the order of arrival, the
                // predictor in the order of rounds.
                let name = algorithm.name;
                assert!(
                    time as f64 <= predicted + overhead,
                    "{name}, P {ranks}: predicted {predicted}, simulated {time}"
                );
                if name == "dissemination" || name == "tournament" || name == "binomial-spanning-tree" {
                    assert_eq!(time as f64, predicted, "{name}, P {ranks}");
                }
                (same, all) = (same + u32::from(time as f64 == predicted), all + 1);
            }
        }
    }
    println!("{same} of {all} barriers take the time of LogP");
    assert!(same * 10 >= all * 9, "{same} of {all}");
}

/// The barrier by signals takes L + o per round: no processor receives.
#[test]
fn barrier_by_signals() {
    let network = Network { interface: Interface::log_p(1000.0, 100.0, 100.0), ..Network::default() };
    for (ranks, rounds) in [(2, 1), (3, 2), (8, 3), (9, 4), (64, 6)] {
        let simulation = Simulation::new(ranks).network(network.clone());
        assert_eq!(time_of(&simulation, |job| job.world()?.barrier()), 1100 * rounds, "{ranks} ranks");
    }
}

/// Time of one write of `LEN` bytes from every rank to the rank that `to` gives.
fn writes(network: &Network, ranks: usize, to: fn(usize, usize) -> Option<usize>) -> f64 {
    const LEN: usize = 1 << 20;
    let simulation = Simulation::new(ranks).network(network.clone());
    time_of(&simulation, |job| {
        let team = job.world()?;
        let device = job.device();
        let own = device.allocate(Region::allocated(LEN * ranks))?;
        // SAFETY: the regions are released below, when all writes are complete.
        let (own, remotes) = unsafe { farside_core::coll::exchange_regions(&team, Ok(own), None) }?;
        let data = vec![1u8; LEN];
        job.align()?;
        if let Some(to) = to(team.rank(), ranks) {
            let place = Place { region: remotes[to].handle, offset: team.rank() * LEN };
            let from = [Block::of(data.as_ptr(), LEN)];
            let operation = device::Operation::write(&from, place);
            // SAFETY: the data outlives the call.
            unsafe { job.complete("write", to as u32, operation) }?;
        }
        job.align()?;
        for remote in remotes {
            // SAFETY: not used after this call.
            unsafe { device.forget(remote.handle) };
        }
        // SAFETY: no rank uses it any longer.
        unsafe { device.release(own.handle) }
    }) as f64
}

#[test]
fn congested_link_halves_and_hot_spot_serializes() {
    // Two switches of four ranks each, with two cables up, and with one.
    let tree = |up: u32| Network { topology: format!("fat-tree:4x2/{up}x1").parse().unwrap(), ..Network::default() };
    let across = |rank: usize, _| (rank < 2).then_some(rank + 4);
    let times = |network: &Network, to: fn(usize, usize) -> Option<usize>| {
        writes(network, 8, to) - writes(network, 8, |_, _| None)
    };
    let (free, shared) = (times(&tree(4), across), times(&tree(1), across));
    assert!((shared / free - 2.0).abs() < 0.05, "{shared} against {free}");
    // Seven ranks write to one.
    let spot = times(&Network::default(), |rank, _| (rank > 0).then_some(0));
    let pair = times(&Network::default(), |rank, _| (rank == 1).then_some(0));
    assert!((spot / pair - 7.0).abs() < 0.2, "{spot} against {pair}");
}

fn hostile() -> Network {
    Network { jitter: 5000.0, reorders: true, loss: 0.05, retry: 4000.0, ..Network::default() }
}

fn work(job: &Job) -> Result<u64> {
    let team = job.world()?;
    let sum = |sum: &mut [u8], other: &[u8]| sum[0] = sum[0].wrapping_add(other[0]);
    let mut all = 0;
    for round in 0..5u8 {
        all += u64::from(farside_core::coll::allreduce(&team, &[round + job.rank() as u8], &mut { sum })?[0]);
        team.barrier()?;
    }
    Ok(all)
}

#[test]
fn seed_replays_and_seeds_differ() {
    let run = |seed| Simulation::new(9).seed(seed).network(hostile()).run(work).unwrap();
    let (first, again, other) = (run(1), run(1), run(2));
    assert_eq!((first.digest, first.time, first.messages), (again.digest, again.time, again.messages));
    assert_ne!(first.digest, other.digest);
    assert_eq!(first.results, other.results);
}

#[test]
fn slow_rank_and_flapping_interface_delay_and_change_nothing() {
    let plain = Simulation::new(4).run(work).unwrap();
    let slow = Simulation::new(4).slow(2, 50.0).run(work).unwrap();
    assert!(slow.time > 3 * plain.time && slow.results == plain.results, "{:?} {:?}", slow.time, plain.time);
    let down = vec![Flap { rank: 1, from: 2000.0, until: 5_000_000.0 }];
    let flap = Simulation::new(4).network(Network { down, ..Network::default() }).run(work).unwrap();
    assert!(flap.time >= Duration::from_millis(5) && flap.results == plain.results, "{:?}", flap.time);
}

/// A message that waits for an interface, or that is retransmitted, occupies no link meanwhile.
#[test]
fn delayed_messages_do_not_delay_others() {
    let tree = |down| Network { topology: "fat-tree:4x2/1x1".parse().unwrap(), down, ..Network::default() };
    let early = |network: Network| {
        let run = Simulation::new(8).network(network).run(|job| {
            let team = job.world()?;
            let device = job.device();
            let own = device.allocate(Region::allocated(64))?;
            // SAFETY: the regions are released below, when all writes are complete.
            let (own, remotes) = unsafe { farside_core::coll::exchange_regions(&team, Ok(own), None) }?;
            job.align()?;
            device.compute(Duration::from_millis(10));
            job.align()?;
            let begin = device.now();
            if team.rank() < 2 {
                let (to, data) = (team.rank() + 4, [1u8; 64]);
                let place = Place { region: remotes[to].handle, offset: 0 };
                let from = [Block::of(data.as_ptr(), 64)];
                let operation = device::Operation::write(&from, place);
                // SAFETY: the data outlives the call.
                unsafe { job.complete("write", to as u32, operation) }?;
            }
            let time = device.now() - begin;
            job.align()?;
            for remote in remotes {
                // SAFETY: not used after this call.
                unsafe { device.forget(remote.handle) };
            }
            // SAFETY: no rank uses it any longer.
            unsafe { device.release(own.handle) }?;
            Ok(time)
        });
        run.unwrap().results
    };
    let down = vec![Flap { rank: 0, from: 5_000_000.0, until: 50_000_000.0 }];
    let (free, held) = (early(tree(Vec::new())), early(tree(down)));
    assert!(held[0] > Duration::from_millis(30), "{held:?}");
    assert!(held[1] <= free[1], "{held:?} {free:?}");
}

/// Work that lasts longer than the time after which the simulation counts as deadlocked, and a death that happens too
/// late.
#[test]
fn long_work_is_no_stillness_and_a_rank_that_panics_before_its_death_is_an_error() {
    let long = |job: &Job| {
        if job.rank() == 0 {
            job.device().compute(Duration::from_secs(300));
        }
        job.world()?.barrier()
    };
    assert!(Simulation::new(3).run(long).unwrap().time >= Duration::from_secs(300));
    assert!(Simulation::new(3).minimal().slow(0, 2.0).run(long).unwrap().time >= Duration::from_secs(600));
    let e = Simulation::new(3).dies(1, Duration::from_secs(5)).run(|job| -> Result<()> {
        assert_ne!(job.rank(), 1, "on purpose");
        job.world()?.barrier()
    });
    let e = e.unwrap_err();
    assert!(e.kind() == ErrorKind::Aborted && e.to_string().contains("on purpose"), "{e}");
}

#[test]
fn dead_rank_is_lost_to_the_others() {
    for at in [0, 3, 10, 40] {
        let simulation = Simulation::new(5).seed(at).dies(3, Duration::from_micros(at));
        let e = simulation.run(|job| (0..200).try_for_each(|_| job.world()?.barrier())).unwrap_err();
        assert!(e.kind() == ErrorKind::PeerLost && e.to_string().contains("seed"), "{e}");
    }
}

#[test]
fn refused_memory_is_an_error_that_names_the_rank() {
    let simulation = Simulation::new(3).refuses_memory(1, 2);
    let e = simulation
        .run(|job| {
            (0..5).try_for_each(|_| {
                let own = job.device().allocate(Region::allocated(64));
                // SAFETY: nothing uses the regions, which end with the device of the rank.
                unsafe { farside_core::coll::exchange_regions(&job.world()?, own, None) }.map(drop)
            })
        })
        .unwrap_err();
    assert!(e.kind() == ErrorKind::Limit && e.blamed() == Some(1), "{e}");
}

#[test]
fn ranks_that_wait_for_each_other_are_an_error_and_not_a_hang() {
    let e = Simulation::new(2).seed(5).run(|job| job.wait("test", || Ok(None::<()>))).unwrap_err();
    assert!(e.kind() == ErrorKind::Timeout && e.to_string().contains("seed 5"), "{e}");
}
