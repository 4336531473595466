#![allow(unsafe_code)]
//! Every algorithm of the table on a device, at 1 to 8 ranks, against a serial model.

use farside_core::coll::execute::{self, Arguments, Memory, Shape};
use farside_core::coll::operation::{Algorithm, Call, Neighbors, Operation};
use farside_core::coll::table;
use farside_core::settings::Settings;
use farside_core::{Job, Result, Team};

use super::model::{Case, Made, Placing};
use super::{every_size, quick};

/// Values of the parameters: the defaults, the minimum values, and values above the defaults.
fn parameters(a: &Algorithm) -> Vec<Vec<u32>> {
    let of = |f: fn(u32, u32, u32) -> u32| a.parameters.iter().map(|p| f(p.default, p.least, p.most)).collect();
    let mut all: Vec<Vec<u32>> = vec![of(|d, _, _| d), of(|_, least, _| least), of(|d, _, most| most.min(d + 2))];
    all.dedup();
    all
}

/// The calls with which an algorithm is tried.
fn cases(a: &'static Algorithm, p: usize) -> Vec<Case> {
    use Operation as O;
    let mut cases = Vec::new();
    let irregular = !a.operation.is_of_a_vector() && a.operation != O::Barrier;
    let in_place = !matches!(
        a.operation,
        O::Barrier | O::Alltoall | O::ReduceScatter | O::NeighborAllgather | O::NeighborAlltoall
    );
    let layouts = !a.operation.is_reduction() && a.operation != O::Barrier;
    for root in 0..if a.operation.is_rooted() { p } else { 1 } {
        let plain = Case { algorithm: Some(a), root, commutative: a.commutative, ..Case::new(a.operation) };
        cases.push(plain);
        cases.extend(in_place.then_some(Case { in_place: true, ..plain }));
        if root > 1 {
            continue;
        }
        cases.extend(irregular.then_some(Case { irregular: true, ..plain }));
        cases.push(Case { elements: 0, ..plain });
        cases.extend((a.operation != O::Barrier).then_some(Case { elements: 40, ..plain }));
        if layouts {
            for placing in [Placing::Displaced, Placing::Gaps] {
                cases.push(Case { placing, irregular, ..plain });
            }
        } else if a.operation == O::ReduceScatter {
            cases.push(Case { placing: Placing::Displaced, irregular, ..plain });
        }
    }
    // These are more bytes than are sent without a request to the receiver.
    let long = if quick() { 3000 } else { 20_000 };
    if a.operation != O::Barrier {
        cases.push(Case { algorithm: Some(a), commutative: a.commutative, elements: long, ..Case::new(a.operation) });
    }
    cases
}

fn applies(team: &Team, case: Case, parameters: &[u32], nodes: &[u32]) -> bool {
    let sizes: Vec<u64> = (0..2 * team.size() as u64).collect();
    let a = case.algorithm.unwrap();
    let call = |rank: usize| Call {
        root: case.root as u32,
        in_place: case.in_place,
        elements: case.elements,
        sizes: if case.irregular { &sizes } else { &[] },
        parameters,
        lends: team.is_on_one_node(),
        nodes,
        ..Call::new(case.operation, rank as u32, team.size() as u32)
    };
    (a.applies)(&call(0))
}

/// Checks an algorithm. `nodes` are the nodes of the ranks, if they are known.
pub(crate) fn check(team: &Team, a: &'static Algorithm, nodes: &[u32]) -> Result<()> {
    for parameters in parameters(a) {
        for case in cases(a, team.size()) {
            if applies(team, case, &parameters, nodes) {
                let mut made = Made::new(team, case);
                made.start(team, &parameters)?.wait()?;
                made.assert();
            }
        }
    }
    Ok(())
}

fn check_all(operation: Operation) {
    let wanted = std::env::var("FARSIDE_TEST_ALGORITHM").ok();
    let wanted = |a: &&&Algorithm| wanted.as_ref().is_none_or(|w| *w == format!("{}/{}", operation.name(), a.name));
    let algorithms: Vec<_> = table::of(operation).collect();
    every_size(|job| {
        let team = job.world()?;
        algorithms.iter().filter(wanted).try_for_each(|a| check(&team, a, &[]))?;
        team.barrier()
    });
}

/// Long messages in packets, sent with and without a request to the receiver, whatever the device's default is; some
/// arrive before their steps.
#[test]
fn long_messages_in_packets() {
    for cut_offs in
        ["eager:1000000", "eager:0"].map(|eager| format!("{eager},read-intra:1000000000,read-inter:1000000000"))
    {
        let given = |name: &str| (name == "FARSIDE_TRANSFER").then(|| cut_offs.clone());
        let settings = Settings::from_lookup(|name| given(name).or_else(|| std::env::var(name).ok())).unwrap();
        for p in [2, 3] {
            let run = |job: &Job| {
                let team = job.world()?;
                for operation in [Operation::Allreduce, Operation::Allgather, Operation::Alltoall] {
                    table::of(operation).try_for_each(|a| check(&team, a, &[]))?;
                }
                team.barrier()
            };
            Job::threads_with(p as usize, &settings, run).unwrap_or_else(|e| panic!("{p} ranks, {cut_offs}: {e}"));
        }
    }
}

macro_rules! operations {
    ($($name:ident: $operation:ident;)*) => { $(
        #[test]
        fn $name() {
            check_all(Operation::$operation);
        }
    )* };
}

operations! {
    barrier: Barrier;
    broadcast: Broadcast;
    scatter: Scatter;
    gather: Gather;
    allgather: Allgather;
    alltoall: Alltoall;
    reduce: Reduce;
    allreduce: Allreduce;
    reduce_scatter: ReduceScatter;
    scan: Scan;
    exscan: Exscan;
    neighbor_allgather: NeighborAllgather;
    neighbor_alltoall: NeighborAlltoall;
}

/// Runs that are cached for repeated calls are used only for the same neighbours.
#[test]
fn neighbors_of_a_call_are_not_those_of_the_one_before() {
    every_size(|job| {
        let team = job.world()?;
        let (me, p) = (team.rank() as u32, team.size() as u32);
        for round in 0..6 {
            let step = round % 3 % p;
            let (from, to) = ([(me + p - step) % p], [(me + step) % p]);
            let (input, mut output) = ([u64::from(me) + 100 * u64::from(round)], [0]);
            let arguments = Arguments {
                shape: Shape::Equal(1),
                element: 8,
                input: Memory::Contiguous(input.as_ptr().cast_mut().cast()),
                output: Memory::Contiguous(output.as_mut_ptr().cast()),
                neighbors: Neighbors { sources: &from, destinations: &to },
                ..Arguments::new(Operation::NeighborAlltoall)
            };
            // SAFETY: the buffers have an element each, and outlive the call.
            unsafe { execute::run(&team, &arguments) }?;
            assert_eq!(output, [u64::from(from[0]) + 100 * u64::from(round)], "round {round}");
        }
        team.barrier()
    });
}
