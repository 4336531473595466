#![allow(unsafe_code)]
//! Ranks that share nodes: times of collectives in two levels compared with those of all flat algorithms, and the
//! selection.

use std::time::Duration;

use farside_core::coll::execute::{self, Arguments, Memory, Reduction, Shape};
use farside_core::coll::operation::{Algorithm, Call, Neighbors, Operation};
use farside_core::coll::schedule::Side;
use farside_core::coll::schedule::predict::{Bytes, LogGP, predict_on_nodes};
use farside_core::coll::table;
use farside_core::sim::{Interface, Network, Nodes, Simulation, Switch};
use farside_core::{Result, Team};

use super::times::{time_of, with};

/// The interface between nodes: about as fast as TCP, whose overhead is that of the kernel on both sides.
fn tcp() -> Interface {
    Interface { gap_per_byte: 0.8, ..Interface::log_p(10_000.0, 5000.0, 5000.0) }
}

/// The interface within a node.
fn memory() -> Interface {
    Interface { gap_per_byte: 0.05, ..Interface::log_p(300.0, 50.0, 50.0) }
}

/// Two nodes of four ranks each, with consecutive ranks, with ranks in turn, and with ranks in random order.
fn layouts() -> [(&'static str, Nodes); 3] {
    let mixed = Nodes { of: vec![0, 1, 1, 0, 1, 0, 0, 1], within: memory() };
    [("consecutive", Nodes::consecutive(2, 4, memory())), ("in turn", Nodes::in_turn(2, 4, memory())), ("mixed", mixed)]
}

fn simulation(nodes: &Nodes) -> Simulation {
    let network = Network { interface: tcp(), nodes: Some(nodes.clone()), ..Network::default() };
    Simulation::new(nodes.of.len()).network(network)
}

/// # Safety
/// The contract of `ReduceFn`, of elements of 8 bytes.
unsafe fn add(_: *const (), operand: *const u8, into: *mut u8, elements: usize, _: Side) -> Result<()> {
    for i in 0..elements {
        // SAFETY: by the caller's contract the pointers are aligned and have `elements` elements.
        unsafe { *into.cast::<u64>().add(i) += *operand.cast::<u64>().add(i) };
    }
    Ok(())
}

/// Makes a barrier, or an allreduce of 8 bytes.
fn make(team: &Team, operation: Operation, by: Option<(&'static Algorithm, &[u32])>) -> Result<()> {
    let (input, mut output) = ([team.rank() as u64 + 1], [0]);
    let sum = Reduction { function: add, context: std::ptr::null(), code: 1, commutative: true, align: 8 };
    let arguments = match operation {
        Operation::Barrier => Arguments { algorithm: by, ..Arguments::new(operation) },
        _ => Arguments {
            shape: Shape::Vector(1),
            element: 8,
            input: Memory::Contiguous(input.as_ptr().cast_mut().cast()),
            output: Memory::Contiguous(output.as_mut_ptr().cast()),
            reduction: Some(sum),
            algorithm: by,
            ..Arguments::new(operation)
        },
    };
    // SAFETY: the buffers have an element each, and outlive the call.
    unsafe { execute::run(team, &arguments) }?;
    let p = team.size() as u64;
    assert!(operation == Operation::Barrier || output[0] == p * (p + 1) / 2, "{output:?}");
    Ok(())
}

fn time(nodes: &Nodes, operation: Operation, by: Option<(&'static Algorithm, &[u32])>) -> u128 {
    time_of(&simulation(nodes), |job| make(&job.world()?, operation, by))
}

/// All algorithms with default parameters, those in two levels with all values.
fn choices(operation: Operation, nodes: &Nodes) -> Vec<(&'static Algorithm, Vec<u32>)> {
    let all = table::of(operation).flat_map(|a| {
        let values: Vec<Vec<u32>> = match a.parameters {
            [intra, inter] if a.name.starts_with("two-level") => {
                (0..=intra.most).flat_map(|intra| (0..=inter.most).map(move |inter| vec![intra, inter])).collect()
            }
            _ => vec![a.defaults()],
        };
        values.into_iter().map(move |values| (a, values))
    });
    let ranks = nodes.of.len() as u32;
    let applies = |(a, parameters): &(&'static Algorithm, Vec<u32>)| {
        let call = Call { parameters, elements: 1, lends: false, nodes: &nodes.of, ..Call::new(operation, 0, ranks) };
        (a.applies)(&call)
    };
    all.filter(applies).collect()
}

/// With the overhead of TCP on every message, and one interface for the ranks of a node, two levels take at most 0.7 of the
/// time of the best flat algorithm, whatever the order of the ranks; and the selection chooses them.
#[test]
fn two_levels_beside_flat_algorithms() {
    for (name, nodes) in layouts() {
        for operation in [Operation::Barrier, Operation::Allreduce] {
            let timed = |(a, parameters): (&'static Algorithm, Vec<u32>)| {
                (time(&nodes, operation, Some((a, &parameters))), a.name)
            };
            let all: Vec<(u128, &str)> = choices(operation, &nodes).into_iter().map(timed).collect();
            let best = |two_levels| all.iter().filter(|(_, a)| a.starts_with("two-level") == two_levels).min().unwrap();
            let (flat, best, selected) = (best(false), best(true), time(&nodes, operation, None));
            println!("{name}, {}: {best:?}, selected {selected}, flat {flat:?}", operation.name());
            assert!(10 * selected <= 7 * flat.0, "{name}, {operation:?}: {selected} ns, {flat:?}");
            assert!(20 * selected <= 21 * best.0, "{name}, {operation:?}: {selected} ns, {best:?}");
        }
        let flat = simulation(&nodes).settings(with("FARSIDE_COLL", "barrier:dissemination"));
        let [two_levels, by_signals] =
            [simulation(&nodes), flat].map(|simulation| time_of(&simulation, |job| job.world()?.barrier()));
        println!("{name}: barrier of the team {two_levels}, by signals {by_signals}");
        assert!(10 * two_levels <= 7 * by_signals, "{name}: {two_levels} ns, by signals {by_signals} ns");
    }
}

/// The choice of a model that was measured between nodes and confirmed by calls is an algorithm in two levels.
#[test]
fn measured_choices_are_in_two_levels() {
    for (name, nodes) in layouts() {
        let run = simulation(&nodes).tuned().run(|job| {
            let team = job.world()?;
            let calls = |n| (0..n).try_for_each(|_| make(&team, Operation::Allreduce, None));
            // The first call is chosen by the model.
            calls(1)?;
            job.device().compute(Duration::from_millis(1));
            job.align()?;
            let begin = job.device().now();
            calls(1)?;
            let time = job.device().now() - begin;
            calls(200)?;
            Ok((time, job.measured_rules().to_string()))
        });
        let results = run.unwrap().results;
        let time = results.iter().map(|(time, _)| time.as_nanos()).max().unwrap();
        assert!(time < 25_000, "{name}: {time} ns by the model");
        for (_, rules) in &results {
            assert!(rules.starts_with("allreduce 8 8-15 2x4 two-level"), "{name}: {rules}");
        }
    }
}

/// The predictor models the links of nodes: barriers with messages take the times that LogP gives their schedules,
/// except if several messages need a processor or an interface at the same time and are served in another order.
#[test]
fn barriers_take_the_times_of_log_p_on_nodes() {
    let (network, within) = (Interface { gap_per_byte: 0.0, ..tcp() }, Interface { gap_per_byte: 0.0, ..memory() });
    let models = [LogGP::from(network), LogGP::from(within)];
    let (mut same, mut all) = (0, 0);
    for (name, nodes) in layouts() {
        let nodes = Nodes { within, ..nodes };
        let described = Network { interface: network, nodes: Some(nodes.clone()), ..Network::default() };
        let simulation = Simulation::new(8).network(described);
        for (a, parameters) in choices(Operation::Barrier, &nodes) {
            let (parameters, nodes) = (&parameters[..], &nodes.of[..]);
            let call = |rank| Call { parameters, nodes, ..Call::new(Operation::Barrier, rank, 8) };
            let predicted = predict_on_nodes(a, call, Bytes::Each(0), &models[0], &models[1]).unwrap().time;
            let time =
                time_of(&simulation, |job| make(&job.world()?, Operation::Barrier, Some((a, parameters)))) as f64;
            (same, all) = (same + u32::from((time - predicted).abs() <= 100.0), all + 1);
            println!("{name}, {}{parameters:?}: predicted {predicted}, simulated {time}", a.name);
            let is_like = (time - predicted).abs() <= 0.15 * predicted;
            assert!(is_like, "{name}, {}{parameters:?}: predicted {predicted}, simulated {time}", a.name);
        }
    }
    println!("{same} of {all} within 100 ns");
    assert!(2 * same >= all, "{same} of {all}");
}

#[test]
fn nodes_that_do_not_fit_are_refused() {
    let run = |network: Network| Simulation::new(4).network(network).run(|_| Ok(())).unwrap_err().to_string();
    let nodes = |of: &[u32]| Some(Nodes { of: of.to_vec(), within: memory() });
    for (of, said) in [(&[0, 0, 1][..], "3 node numbers"), (&[0, 1, 2, 4], "up to 4, were given for 4 ranks")] {
        let error = run(Network { nodes: nodes(of), ..Network::default() });
        assert!(error.contains(said), "{error}");
    }
    let switch = Some(Switch::default());
    let error = run(Network { nodes: nodes(&[0, 0, 1, 1]), switch, ..Network::default() });
    assert!(error.contains("several ranks per node"), "{error}");
}

/// Messages of the ranks of a node wait for each other at its interface, but not for those within the node.
#[test]
fn ranks_of_a_node_share_its_interface() {
    let time = |nodes: Option<Nodes>, to: fn(u32) -> u32| {
        let interface = Interface::log_p(1000.0, 100.0, 400.0);
        let network = Network { interface, nodes, ..Network::default() };
        time_of(&Simulation::new(6).network(network), |job| {
            let (me, team) = (job.rank_number(), job.world()?);
            let peer = [to(me)];
            let (input, mut output) = ([u64::from(me)], [0]);
            let arguments = Arguments {
                shape: Shape::Equal(1),
                element: 8,
                input: Memory::Contiguous(input.as_ptr().cast_mut().cast()),
                output: Memory::Contiguous(output.as_mut_ptr().cast()),
                neighbors: Neighbors { sources: &peer, destinations: &peer },
                ..Arguments::new(Operation::NeighborAllgather)
            };
            // SAFETY: the buffers have an element each, and outlive the call.
            unsafe { execute::run(&team, &arguments) }
        })
    };
    let across: fn(u32) -> u32 = |rank| (rank + 3) % 6;
    let nodes = Some(Nodes::consecutive(2, 3, Interface::log_p(300.0, 50.0, 50.0)));
    assert_eq!(time(None, across), 1200);
    // The third message enters the network two gaps later.
    assert_eq!(time(nodes.clone(), across), 1200 + 2 * 400);
    // Two ranks of each node exchange messages within it; the third has itself as neighbour.
    let beside: fn(u32) -> u32 = |rank| if rank % 3 == 2 { rank } else { rank / 3 * 3 + 1 - rank % 3 };
    assert_eq!(time(nodes, beside), 400);
}
