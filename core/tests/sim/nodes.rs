#![allow(unsafe_code)]
//! Collectives of ranks that share nodes: times in two levels beside those of all flat algorithms, the selection, and that
//! results are right.

use farside_core::coll::execute::{self, Arguments, Memory, Reduction, Shape};
use farside_core::coll::operation::{Algorithm, Call, Operation};
use farside_core::coll::schedule::Side;
use farside_core::coll::schedule::predict::{Bytes, LogGP, predict_on_nodes};
use farside_core::coll::table;
use farside_core::sim::{Interface, Network, Nodes, Simulation};
use farside_core::{Job, Result, Team};

use crate::times::time_of;

/// Between nodes about as fast as TCP, whose overhead is that of the kernel on both sides.
fn tcp() -> Interface {
    Interface { gap_per_byte: 0.8, ..Interface::log_p(10_000.0, 5000.0, 5000.0) }
}

/// Within a node.
fn memory() -> Interface {
    Interface { gap_per_byte: 0.05, ..Interface::log_p(300.0, 50.0, 50.0) }
}

/// Two nodes of four ranks each, with consecutive ranks, with ranks in turn, and with ranks in no order.
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
unsafe fn add(_: *const (), operand: *const u8, into: *mut u8, elements: usize, _: Side) -> bool {
    for i in 0..elements {
        // SAFETY: by the caller's promise the pointers are aligned and have `elements` elements.
        unsafe { *into.cast::<u64>().add(i) += *operand.cast::<u64>().add(i) };
    }
    true
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

#[test]
fn two_levels_beside_flat_algorithms() {
    for (name, nodes) in layouts() {
        for operation in [Operation::Barrier, Operation::Allreduce] {
            let (mut flat, mut two_level) = (Vec::new(), Vec::new());
            for (a, parameters) in choices(operation, &nodes) {
                let time = time(&nodes, operation, Some((a, &parameters)));
                let times = if a.name.starts_with("two-level") { &mut two_level } else { &mut flat };
                times.push((time, a.name, parameters));
            }
            flat.sort();
            two_level.sort();
            let selected = time(&nodes, operation, None);
            println!("{name}, {}: selected {selected} ns", operation.name());
            println!("  flat {flat:?}");
            println!("  in two levels {two_level:?}");
        }
        let team = time_of(&simulation(&nodes), |job| job.world()?.barrier());
        println!("{name}: barrier of the team {team} ns");
    }
}
