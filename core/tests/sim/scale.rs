#![allow(unsafe_code)]
//! Predictions for many ranks, and their comparison with real runs where these are possible.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use farside_core::am::{self, Counters, Delivery, HandlerId};
use farside_core::coll::operation::{Algorithm, Call, Operation};
use farside_core::coll::schedule::predict::{Bytes, LogGP, predict_algorithm};
use farside_core::coll::{self, execute, table};
use farside_core::signal::{Pace, SignalArray};
use farside_core::sim::{Interface, Network, Simulation};

use super::times::{time_of, with};

fn named(operation: Operation, name: &str) -> &'static Algorithm {
    table::named(operation, name).unwrap()
}

/// The predicted time in nanoseconds for a vector of `bytes`.
fn predicted(algorithm: &Algorithm, ranks: u32, bytes: u64, interface: Interface) -> f64 {
    let parameters = algorithm.defaults();
    let call =
        |rank| Call { parameters: &parameters, elements: bytes / 8, ..Call::new(algorithm.operation, rank, ranks) };
    predict_algorithm(algorithm, call, Bytes::Vector(bytes), &LogGP::from(interface)).unwrap().time
}

/// A barrier with messages and an allreduce of 8 bytes take the predicted times. The barrier of a team uses signals
/// instead, which no processor receives.
#[test]
fn barrier_and_allreduce_of_many_ranks_take_the_predicted_time() {
    let interface = Interface::log_p(1000.0, 100.0, 100.0);
    let network = Network { interface, ..Network::default() };
    for ranks in [64, 100, 1024] {
        for (operation, name) in [(Operation::Barrier, "dissemination"), (Operation::Allreduce, "recursive-doubling")] {
            let settings = with("FARSIDE_COLL", &format!("{}:{name}", operation.name()));
            let simulation = Simulation::new(ranks as usize).settings(settings).network(network.clone());
            let time = time_of(&simulation, |job| match operation {
                Operation::Allreduce => {
                    let sum = |sum: &mut [u8], other: &[u8]| sum[0] = sum[0].wrapping_add(other[0]);
                    coll::allreduce(&job.world()?, &[1; 8], &mut { sum }).map(drop)
                }
                // SAFETY: a barrier has no memory.
                _ => unsafe { execute::run(&job.world()?, &execute::Arguments::new(operation)) },
            });
            let predicted = predicted(named(operation, name), ranks, 8, interface);
            assert_eq!(time as f64, predicted, "{name}, {ranks} ranks");
        }
    }
}

/// Prints predicted times for 10^3 to 10^6 ranks on the default network.
#[test]
#[ignore = "takes a minute; by `ci/test scale`"]
fn a_million_ranks_are_predicted() {
    let interface = Interface::default();
    println!("{:>40} {:>8} {:>10} {:>9}", "microseconds, of ranks", "ranks", "predicted", "seconds");
    for (operation, name, bytes) in [
        (Operation::Barrier, "dissemination", 0),
        (Operation::Barrier, "tournament", 0),
        (Operation::Broadcast, "binomial", 8),
        (Operation::Broadcast, "binomial", 65536),
        (Operation::Allreduce, "recursive-doubling", 8),
    ] {
        let mut last = 0.0;
        for ranks in [1000, 10_000, 100_000, 1_000_000] {
            let begin = Instant::now();
            let time = predicted(named(operation, name), ranks, bytes, interface);
            let what = format!("{} by {name}, {bytes} bytes", operation.name());
            println!("{what:>40} {ranks:>8} {:>10.2} {:>9.2}", time / 1e3, begin.elapsed().as_secs_f64());
            // The growth is logarithmic: ten times as many ranks take at most four more rounds, and two more if their
            // number is not a power of two.
            let rounds = f64::from(coll::log2_up(ranks as usize) as u32);
            assert!(time > last && time <= (rounds + 3.0) * (2400.0 + 0.1 * bytes as f64), "{what}, {ranks}: {time}");
            last = time;
        }
    }
}

/// 999 ranks each send a signal, or a packet, to one that computes for 2 ms: more than an HCA has receives by default. All arrive,
/// the last ones at the first retry after the rank begins to wait, 0.64 ms later; with three receives for each rank, as a rank
/// with an HCA has, no message is refused.
#[test]
fn storms_need_a_receive_for_each_rank_or_wait_for_a_retry() {
    const RANKS: usize = 1000;
    const ID: HandlerId = HandlerId(1);
    let storm = |receives: usize, packets: bool| {
        let network = Network { receives, ..Network::default() };
        let run = Simulation::new(RANKS).network(network).run(|job| {
            let team = job.world()?;
            let signals = if packets { None } else { Some(SignalArray::new(&team, 0)?) };
            let arrived = Rc::new(Cell::new(0));
            let count = Rc::clone(&arrived);
            job.active_messages().register(ID, move |_| {
                count.set(count.get() + 1);
                Delivery::Done
            })?;
            job.align()?;
            let begin = job.device().now();
            if team.rank() == 0 {
                job.device().compute(Duration::from_millis(2));
            }
            match (&signals, team.rank()) {
                (None, 0) => job.wait("storm", || Ok((arrived.get() == RANKS - 1).then_some(())))?,
                (None, _) => am::send(job, 0, ID, &[], &[7], Counters::default())?,
                (Some(signals), 0) => {
                    (1..RANKS).try_for_each(|from| signals.wait("storm", from, 2, 1, Pace::EXCHANGE))?;
                }
                (Some(signals), _) => signals.set(0, 2, 1)?,
            }
            let time = job.device().now() - begin;
            job.align()?;
            Ok(time)
        });
        let run = run.unwrap();
        println!("{receives} receives, packets {packets}: {:?}, {} refused", run.results[0], run.refused);
        (run.results[0], run.refused)
    };
    let computes = Duration::from_millis(2);
    for packets in [false, true] {
        let (long, none) = storm(3 * RANKS, packets);
        let (short, refused) = storm(512, packets);
        assert_eq!(none, 0, "packets {packets}");
        assert!(refused >= RANKS as u64 - 513 && short > long, "{refused} {short:?} {long:?}");
        assert!(short < long + Duration::from_micros(700), "{short:?} {long:?}");
        assert!(packets || long == computes, "{long:?}");
    }
}
