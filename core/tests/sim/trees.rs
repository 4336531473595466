#![allow(unsafe_code)]
//! Broadcasts, scatters and gathers in simulated runs, compared with the closed formulas of pLogP (Barchet-Estefanel,
//! Mounié 2004, "Fast Tuning of Intra-cluster Collective Communications", tables 1 and 2) and with the predictor.
//!
//! The simulated interface is that of LogGP. A message of m bytes is one packet of m + 24 bytes, since the prefix of an
//! active message and the header of a collective take 8 and 16; a signal is such a message with m = 0. Sent at time 0,
//! it has arrived at o_s + L + G (m + 23) + o_r, and the next message of the same sender, or to the same receiver,
//! follows after g + G (m + 23). So pLogP's parameters are
//! - g(m) = g + G (m + 23), if neither o_s nor o_r exceeds it, nor their sum at a rank that forwards messages;
//! - L' = L + o_s + o_r - g, since in pLogP a message arrives L' + g(m) after the start of its send.

use farside_core::coll::execute::{self, Arguments, Memory, Shape};
use farside_core::coll::operation::{Algorithm, Call, Operation};
use farside_core::coll::schedule::predict::{Bytes, LogGP, Model, Receiving, Sending, predict_algorithm};
use farside_core::coll::table;
use farside_core::settings::Settings;
use farside_core::sim::{Interface, Network, Simulation};

use super::times::{time_of, with};

/// Bytes of a packet in addition to the data.
const HEADER: u64 = 24;

/// LogGP for data whose messages have a header.
struct WithHeader(LogGP);

impl Model for WithHeader {
    fn send(&self, bytes: u64, fan: u32) -> Sending {
        self.0.send(bytes + HEADER, fan)
    }

    fn receive(&self, bytes: u64, from: u32, fan: u32) -> Receiving {
        self.0.receive(bytes + HEADER, from, fan)
    }
}

/// Parameters of pLogP.
#[derive(Clone, Copy)]
struct P {
    latency: f64,
    gap: f64,
    byte: f64,
}

impl P {
    fn of(i: &Interface) -> Self {
        let latency = i.latency + i.send_overhead + i.receive_overhead - i.gap;
        Self { latency, gap: i.gap, byte: i.gap_per_byte }
    }

    fn g(&self, bytes: u64) -> f64 {
        self.gap + self.byte * (bytes + HEADER - 1) as f64
    }
}

fn interfaces() -> [Interface; 3] {
    let log_p = Interface { receive_overhead: 150.0, ..Interface::log_p(1000.0, 100.0, 300.0) };
    [log_p, Interface { gap_per_byte: 1.0, ..log_p }, Interface { gap_per_byte: 0.08, ..log_p }]
}

/// Simulated and predicted time of an algorithm for blocks, or a vector, of `bytes`.
fn times(
    algorithm: &'static Algorithm,
    parameters: &[u32],
    ranks: u32,
    bytes: u64,
    interface: Interface,
    settings: &Settings,
) -> (f64, f64) {
    let operation = algorithm.operation;
    let vector = operation == Operation::Broadcast;
    let network = Network { interface, ..Network::default() };
    let simulated = time_of(&Simulation::new(ranks as usize).network(network).settings(settings.clone()), |job| {
        let all = bytes as usize * ranks as usize;
        let (mut input, mut output) = (vec![1u8; all], vec![0u8; all]);
        let memory = |of: &mut Vec<u8>| Memory::Contiguous(of.as_mut_ptr());
        let arguments = Arguments {
            shape: if vector { Shape::Vector(bytes) } else { Shape::Equal(bytes) },
            input: if vector { Memory::None } else { memory(&mut input) },
            output: memory(&mut output),
            algorithm: Some((algorithm, parameters)),
            ..Arguments::new(operation)
        };
        // SAFETY: both buffers have room for a block of each rank, and the call has ended when this returns.
        unsafe { execute::run(&job.world()?, &arguments) }
    });
    let call = |rank| Call { parameters, elements: bytes, lends: false, ..Call::new(operation, rank, ranks) };
    let of = if vector { Bytes::Vector(bytes) } else { Bytes::Each(bytes) };
    let predicted = predict_algorithm(algorithm, call, of, &WithHeader(LogGP::from(interface))).unwrap();
    (simulated as f64, predicted.time)
}

/// ⌈log2 P⌉ and ⌊log2 P⌋.
fn logs(ranks: u32) -> (f64, f64) {
    (f64::from(ranks.next_power_of_two().ilog2()), f64::from(ranks.ilog2()))
}

/// The closed formula for an algorithm, with the number of segments, if one is published and exact: for trees, if they
/// are complete.
fn formula(algorithm: &Algorithm, segments: u32, ranks: u32, m: u64, model: &P) -> Option<f64> {
    let (l, g) = (model.latency, |bytes: u64| model.g(bytes));
    let (others, k, s) = (f64::from(ranks - 1), f64::from(segments), m / u64::from(segments));
    let (levels, complete) = (logs(ranks).0, ranks.is_power_of_two());
    // Request and answer are messages without data.
    let handshake = 2.0 * g(0) + 2.0 * l;
    let of_subtrees = (0..levels as u32).map(|j| g(m << j)).sum::<f64>();
    let of_rests = (1..u64::from(ranks)).map(|j| g(j * m)).sum::<f64>();
    Some(match (algorithm.operation, algorithm.name) {
        (Operation::Broadcast, "flat") => others * k * g(s) + l,
        (Operation::Broadcast, "chain") => others * (g(s) + l) + (k - 1.0) * g(s),
        (Operation::Broadcast, "binomial") if complete => levels * (k * g(s) + l),
        (Operation::Broadcast, "binary") if segments == 1 && (ranks + 1).is_power_of_two() => {
            logs(ranks).1 * (2.0 * g(m) + l)
        }
        // This holds as long as the requests have been sent before the first answer arrives.
        (Operation::Broadcast, "flat-rendezvous") if ranks <= 8 => others * g(m) + l + handshake,
        (Operation::Broadcast, "chain-rendezvous") => others * (g(m) + l + handshake),
        (Operation::Broadcast, "binomial-rendezvous") if complete => levels * (g(m) + l + handshake),
        (Operation::Scatter | Operation::Gather, "flat") => others * g(m) + l,
        (Operation::Scatter | Operation::Gather, "chain") => of_rests + others * l,
        (Operation::Scatter | Operation::Gather, "binomial") if complete => of_subtrees + levels * l,
        _ => return None,
    })
}

/// Every broadcast, scatter and gather of messages of one packet takes the predicted time, and that of its closed
/// formula where it has one; exactly, except for the nanoseconds of the clock.
#[test]
fn trees_take_the_times_of_plogp() {
    let settings = with("FARSIDE_COLL", "auto");
    let (mut with_formula, mut same, mut all) = (0, 0, 0);
    println!("{:<36} {:>3} {:>5} {:>12} {:>10} {:>10}", "G = 0.08 ns", "P", "m", "formula", "predicted", "simulated");
    for (interface, number) in interfaces().into_iter().zip(0..) {
        let model = P::of(&interface);
        for operation in [Operation::Broadcast, Operation::Scatter, Operation::Gather] {
            for algorithm in table::of(operation).filter(|a| a.name != "direct") {
                let segments = algorithm.parameters.iter().position(|p| p.name == "segments");
                for (ranks, k) in [2, 3, 4, 5, 7, 8, 15, 16, 32].into_iter().flat_map(|p| [(p, 1), (p, 4)]) {
                    // A vector that can be divided evenly into parts for each rank, or blocks that all fit into a
                    // packet.
                    let sizes =
                        if operation == Operation::Broadcast { [u64::from(2 * ranks * k), 3360] } else { [1, 120] };
                    let mut parameters = algorithm.defaults();
                    match segments {
                        Some(at) => parameters[at] = k,
                        None if k > 1 => continue,
                        None => {}
                    }
                    let call = Call { parameters: &parameters, ..Call::new(operation, 0, ranks) };
                    for bytes in sizes.into_iter().filter(|_| (algorithm.applies)(&call)) {
                        let (simulated, predicted) = times(algorithm, &parameters, ranks, bytes, interface, &settings);
                        let formula = formula(algorithm, k, ranks, bytes, &model);
                        let name = format!("{} {}{parameters:?}", operation.name(), algorithm.name);
                        let what = format!("{name}, P {ranks}, {bytes} bytes: {formula:?} {predicted} {simulated}");
                        let (early, late) = match algorithm.name {
                            // LogGP delays a processor while its interface is busy, here messages queue at the
                            // interface: the root has spent its overheads on all requests when the first answers
                            // arrive.
                            "flat-rendezvous" if ranks > 8 => (interface.send_overhead, 0.0),
                            // A rank that receives messages of two rounds takes them in the order of arrival, the
                            // predictor in the order of rounds.
                            "split-binary" | "scatter-ring" | "scatter-doubling" | "scatter-bruck" => {
                                (0.06 * predicted, 0.01 * predicted)
                            }
                            _ => (0.0, 0.0),
                        };
                        assert!((-1.0 - early..=1.0 + late).contains(&(simulated - predicted)), "{what}");
                        same += u32::from((simulated - predicted).abs() <= 1.0);
                        if let Some(formula) = formula {
                            assert!((simulated - formula).abs() <= 1.0, "{what}");
                            with_formula += 1;
                        } else if algorithm.name == "binary" && k == 1 {
                            let most = logs(ranks).0 * (2.0 * model.g(bytes) + model.latency);
                            assert!(simulated <= most + 1.0, "{what}, at most {most}");
                        } else if operation == Operation::Broadcast && algorithm.name == "binomial" {
                            let most = logs(ranks).0 * (f64::from(k) * model.g(bytes / u64::from(k)) + model.latency);
                            assert!(simulated <= most + 1.0, "{what}, at most {most}");
                        }
                        all += 1;
                        if number == 2 && bytes > 100 && ranks == 16 {
                            let formula = formula.map_or("-".to_owned(), |time| format!("{time:.0}"));
                            println!(
                                "{name:<36} {ranks:>3} {bytes:>5} {formula:>12} {predicted:>10.0} {simulated:>10}"
                            );
                        }
                    }
                }
            }
        }
    }
    println!("{same} of {all} calls take the predicted time, {with_formula} that of a closed formula");
    assert!(with_formula > 400 && same * 20 > all * 19, "{with_formula} and {same} of {all}");
}

/// Messages of several packets. With a rendezvous, which is the default of the simulated device, their times are those
/// of the formulas with a rendezvous, whatever the schedule says: a request of 40 bytes, an answer of 24, and packets
/// of up to 4096 bytes, 24 of them a prefix. Sent eagerly they are only the packets, the first with a header of 16 more
/// bytes.
#[test]
fn long_messages_take_the_times_of_their_packets() {
    const PACKET: u64 = 4096;
    for interface in interfaces() {
        let (P { latency: l, .. }, g) =
            (P::of(&interface), |bytes: u64| interface.gap + interface.gap_per_byte * (bytes - 1) as f64);
        for (eager, first) in [(0, 24), (1 << 20, 40)] {
            let settings = with("FARSIDE_TRANSFER", &format!("eager:{eager}"));
            for m in [4073, 8144, 20_000u64] {
                let mut all = 0.0;
                let (mut left, mut prefix) = (m, first);
                while left > 0 {
                    let part = left.min(PACKET - prefix);
                    all += g(part + prefix);
                    (left, prefix) = (left - part, 24);
                }
                let handshake = if eager == 0 { g(40) + g(24) + 2.0 * l } else { 0.0 };
                for ranks in [2u32, 3, 4, 8] {
                    for name in ["flat", "chain", "binomial"] {
                        let formula = match name {
                            "flat" => f64::from(ranks - 1) * all + l + handshake,
                            "chain" => f64::from(ranks - 1) * (all + l + handshake),
                            _ if !ranks.is_power_of_two() => continue,
                            _ => logs(ranks).0 * (all + l + handshake),
                        };
                        let algorithm = table::named(Operation::Broadcast, name).unwrap();
                        let (simulated, _) = times(algorithm, &[1], ranks, m, interface, &settings);
                        let what = format!("{name}, P {ranks}, {m} bytes, eager {eager}");
                        assert!((simulated - formula).abs() <= 1.0, "{what}: {formula} {simulated}");
                    }
                }
            }
        }
    }
}
