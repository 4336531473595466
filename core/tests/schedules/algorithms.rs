//! The results of every algorithm, for every number of ranks, root, in place and not, with equal and irregular blocks.

use farside_core::coll::operation::{Algorithm, Call, Neighbors, Operation};
use farside_core::coll::schedule::check::check_algorithm;
use farside_core::coll::table;

/// Numbers of ranks.
fn ranks() -> Vec<u32> {
    let most = std::env::var("FARSIDE_TEST_RANKS").map_or(u32::MAX, |n| n.parse().unwrap());
    (1..=128).chain([255, 256, 257]).filter(|p| *p <= most).collect()
}

fn wanted(a: &Algorithm) -> bool {
    std::env::var("FARSIDE_TEST_ALGORITHM").map_or(true, |w| w == format!("{}/{}", a.operation.name(), a.name))
}

/// Values of the parameters to be tried: least, default, and of those with small defaults the next two and one beyond.
fn parameters(a: &Algorithm) -> Vec<Vec<u32>> {
    let mut all = vec![Vec::new()];
    for p in a.parameters {
        let mut values = vec![p.default, p.least];
        if p.default < 10 {
            values.extend([p.default + 1, p.default + 2, p.most.min(p.default + 5)]);
        }
        values.retain(|v| (p.least..=p.most).contains(v));
        values.sort_unstable();
        values.dedup();
        all = all.iter().flat_map(|have| values.iter().map(move |v| [&have[..], &[*v]].concat())).collect();
    }
    all
}

/// Irregular sizes with zeros among them.
fn irregular(n: u32) -> Vec<u64> {
    (0..u64::from(n)).map(|i| if i % 3 == 1 { 0 } else { 1 + i * 7 % 5 }).collect()
}

/// Destinations of all ranks of a graph, with edges to itself and double ones; and each rank's sources.
fn graph(p: u32) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
    let destinations: Vec<Vec<u32>> =
        (0..p).map(|r| vec![(r + 1) % p, (r * r + 2) % p, (r + p - 1) % p, r].split_off((r % 3) as usize)).collect();
    let sources = (0..p)
        .map(|r| {
            (0..p).flat_map(|s| destinations[s as usize].iter().filter(move |d| **d == r).map(move |_| s)).collect()
        })
        .collect();
    (destinations, sources)
}

/// Irregular sizes of the blocks of each rank, by number, where the operation knows them.
fn irregular_sizes(operation: Operation, destinations: &[Vec<u32>], sources: &[Vec<u32>]) -> Option<Vec<Vec<u64>>> {
    let p = destinations.len();
    let by_rank = irregular(p as u32);
    let pair = |from: usize, to: usize| by_rank[(from * 5 + to) % p];
    // The nth edge between two ranks has another size than the one before.
    let edge = |from: usize, to: usize, n: usize| pair(from, to + n);
    let edges = |ranks: &[u32], of: &dyn Fn(usize, usize) -> u64| -> Vec<u64> {
        let n = |i: usize| ranks[..i].iter().filter(|r| **r == ranks[i]).count();
        (0..ranks.len()).map(|i| of(ranks[i] as usize, n(i))).collect()
    };
    let of = |r: usize| match operation {
        Operation::Alltoall => (0..p).map(|to| pair(r, to)).chain((0..p).map(|from| pair(from, r))).collect(),
        Operation::NeighborAllgather => [vec![by_rank[r]], edges(&sources[r], &|from, _| by_rank[from])].concat(),
        Operation::NeighborAlltoall => {
            [edges(&destinations[r], &|to, n| edge(r, to, n)), edges(&sources[r], &|from, n| edge(from, r, n))].concat()
        }
        _ => by_rank.clone(),
    };
    let known = !operation.is_of_a_vector() && operation != Operation::Barrier;
    known.then(|| (0..p).map(of).collect())
}

/// Whether input and output may be the same memory: else a schedule does not depend on it.
fn may_be_in_place(operation: Operation) -> bool {
    use Operation as O;
    matches!(operation, O::Scatter | O::Gather | O::Allgather | O::Reduce | O::Allreduce | O::Scan | O::Exscan)
}

fn check_one(a: &'static Algorithm, p: u32, parameters: &[u32]) {
    let rooted = a.operation.is_rooted();
    let (destinations, sources) = graph(p);
    let sizes = irregular_sizes(a.operation, &destinations, &sources);
    for root in 0..if rooted { p } else { 1 } {
        for in_place in [false, true] {
            for irregular in [false, true] {
                let skips = in_place && !may_be_in_place(a.operation) || irregular && in_place && root > 0;
                let sizes = match &sizes {
                    Some(sizes) if irregular => &sizes[..],
                    _ => &[],
                };
                if skips || irregular && sizes.is_empty() {
                    continue;
                }
                let call = |rank: u32| Call {
                    root,
                    in_place,
                    parameters,
                    sizes: sizes.get(rank as usize).map_or(&[], |s| &s[..]),
                    elements: 1000,
                    neighbors: Neighbors {
                        sources: &sources[rank as usize],
                        destinations: &destinations[rank as usize],
                    },
                    ..Call::new(a.operation, rank, p)
                };
                if !(a.applies)(&call(0)) {
                    continue;
                }
                if let Err(fault) = check_algorithm(a, call, sizes) {
                    panic!(
                        "{}/{}{parameters:?}, P {p}, root {root}, in place {in_place}: {fault}",
                        a.operation.name(),
                        a.name
                    );
                }
            }
        }
    }
}

fn check_family(operation: Operation) {
    for a in table::of(operation).filter(|a| wanted(a)) {
        for p in ranks() {
            for values in parameters(a) {
                check_one(a, p, &values);
            }
        }
    }
}

macro_rules! families {
    ($($name:ident: $operation:ident;)*) => { $(
        #[test]
        fn $name() {
            check_family(Operation::$operation);
        }
    )* };
}

families! {
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
