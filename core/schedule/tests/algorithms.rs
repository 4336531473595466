//! The results of every algorithm, for every number of ranks, root, in place and not, with equal and irregular blocks.

use farside_schedule::operation::{Algorithm, Call, Neighbors, Operation};
use farside_schedule::schedule::Buffer;
use farside_schedule::schedule::check::check_algorithm;
use farside_schedule::table;

/// Job sizes to test.
fn ranks() -> Vec<u32> {
    let most = std::env::var("FARSIDE_TEST_RANKS").map_or(u32::MAX, |n| n.parse().unwrap());
    let long = if super::is_whole() { &[129, 255, 256, 257][..] } else { &[129] };
    (1..=1).chain(super::counts()).chain(long.iter().copied()).filter(|p| *p <= most).collect()
}

/// Whether a call is tested. Roots differ only in where the numbers of ranks wrap to 0. For more than 20 ranks, two
/// roots are tested with all parameters and two more with defaults; the others are tested with defaults if the
/// algorithm has few steps. `FARSIDE_TEST_ROOTS=all` tests all of them.
fn is_tried(a: &Algorithm, call: &Call<'_>, is_plain: bool) -> bool {
    let (root, p) = (call.root, call.size);
    let always =
        p <= 20 || [0, p * 5 / 8].contains(&root) || std::env::var("FARSIDE_TEST_ROOTS").is_ok_and(|w| w == "all");
    always || is_plain && ([1, p - 1].contains(&root) || (a.build)(call).len() as u32 * p * p <= 1 << 14)
}

fn wanted(a: &Algorithm) -> bool {
    std::env::var("FARSIDE_TEST_ALGORITHM").map_or(true, |w| w == format!("{}/{}", a.operation.name(), a.name))
}

/// Values of the parameters to be tested. For each parameter its minimum value and, if its default is small, the next
/// two and one beyond the default, with defaults of the others; also a list in which no value is a default. For more
/// than 40 ranks only the defaults and that list.
fn parameters(a: &Algorithm, ranks: u32) -> Vec<Vec<u32>> {
    let mut all = vec![a.defaults(), a.parameters.iter().map(|p| p.most.min(p.default + 1)).collect()];
    for (i, p) in a.parameters.iter().enumerate().filter(|_| ranks <= 40) {
        let beyond = [p.default + 1, p.default + 2, p.most.min(p.default + 5)];
        let values = [p.least].into_iter().chain(beyond.into_iter().filter(|_| p.default < 10));
        let of = |v: u32| a.defaults().iter().enumerate().map(|(j, d)| if i == j { v } else { *d }).collect();
        all.extend(values.filter(|v| (p.least..=p.most).contains(v)).map(of));
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Irregular sizes with zeros among them.
fn irregular(n: u32) -> Vec<u64> {
    (0..u64::from(n)).map(|i| if i % 3 == 1 { 0 } else { 1 + i * 7 % 5 }).collect()
}

/// Destinations of all ranks of a graph, with self-loops and double edges; and each rank's sources.
pub(crate) fn graph(p: u32) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
    let destinations: Vec<Vec<u32>> =
        (0..p).map(|r| vec![(r + 1) % p, (r * r + 2) % p, (r + p - 1) % p, r].split_off((r % 3) as usize)).collect();
    let sources = (0..p)
        .map(|r| {
            (0..p).flat_map(|s| destinations[s as usize].iter().filter(move |d| **d == r).map(move |_| s)).collect()
        })
        .collect();
    (destinations, sources)
}

/// Irregular sizes of the blocks of each rank, by number.
fn irregular_sizes(operation: Operation, destinations: &[Vec<u32>], sources: &[Vec<u32>]) -> Vec<Vec<u64>> {
    let p = destinations.len();
    let by_rank = irregular(p as u32);
    let pair = |from: usize, to: usize| by_rank[(from * 5 + to) % p];
    // The nth edge between two ranks has another size than the previous one.
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
    (0..p).map(of).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocks {
    Equal,
    Irregular,
    /// Irregular sizes that only the root knows.
    Unknown,
}

/// `nodes` are the nodes of the ranks, if known.
pub(crate) fn check_one(a: &'static Algorithm, p: u32, parameters: &[u32], nodes: &[u32]) -> u32 {
    use Operation as O;
    let rooted = a.operation.is_rooted();
    let blocks: &[Blocks] = match a.operation {
        O::Scatter | O::Gather => &[Blocks::Equal, Blocks::Irregular, Blocks::Unknown],
        o if o.is_of_a_vector() || o == O::Barrier => &[Blocks::Equal],
        _ => &[Blocks::Equal, Blocks::Irregular],
    };
    let places: &[bool] = match a.operation {
        O::Scatter | O::Gather | O::Allgather | O::Reduce | O::Allreduce | O::Scan | O::Exscan => &[false, true],
        _ => &[false],
    };
    let (destinations, sources) = graph(p);
    let sizes = irregular_sizes(a.operation, &destinations, &sources);
    let mut checked = 0;
    let root_in_place = |root| places.iter().flat_map(move |i| blocks.iter().map(move |b| (root, *i, *b)));
    for (root, in_place, blocks) in (0..if rooted { p } else { 1 }).flat_map(root_in_place) {
        let plain = blocks == Blocks::Equal && !in_place && *parameters == a.defaults();
        if blocks != Blocks::Equal && in_place && root > 0 {
            continue;
        }
        let call = |rank: u32| Call {
            root,
            in_place,
            parameters,
            sizes: match blocks {
                Blocks::Irregular => &sizes[rank as usize],
                Blocks::Unknown if rank == root => &sizes[rank as usize],
                _ => &[],
            },
            sizes_known: blocks != Blocks::Unknown,
            elements: 1000,
            switch: true,
            nodes,
            neighbors: Neighbors { sources: &sources[rank as usize], destinations: &destinations[rank as usize] },
            ..Call::new(a.operation, rank, p)
        };
        if !(a.applies)(&call(0)) || !is_tried(a, &call((root + p / 2) % p), plain) {
            continue;
        }
        let context = format!(
            "{}/{}{parameters:?}, P {p}, root {root}, in place {in_place}, {blocks:?}, nodes {nodes:?}",
            a.operation.name(),
            a.name
        );
        if let Err(fault) = check_algorithm(a, call, if blocks == Blocks::Equal { &[] } else { &sizes }) {
            panic!("{context}: {fault}");
        }
        checked += 1;
        if blocks == Blocks::Unknown {
            for rank in (0..p).filter(|r| *r != root) {
                let s = (a.build)(&call(rank));
                let named = [Buffer::Input, Buffer::Output, Buffer::Scratch]
                    .map(|b| (0..s.blocks_of(b)).any(|i| s.size_of(b, i) != rank));
                assert_eq!(named, [false; 3], "{context}: rank {rank} names a size that it does not know");
            }
        }
    }
    checked
}

fn check_family(operation: Operation) {
    for a in table::of(operation).filter(|a| wanted(a)) {
        for p in ranks() {
            for values in parameters(a, p) {
                check_one(a, p, &values, &[]);
            }
        }
    }
}

/// Parameters that are out of range are clamped to their limits; every value within the limits gives a valid schedule.
#[test]
fn parameters_out_of_range() {
    for a in Operation::ALL.into_iter().flat_map(table::of) {
        for p in [1, 2, 5, 8] {
            for given in [0, 1, p, p + 1, u32::MAX] {
                check_one(a, p, &a.within_limits(&vec![given; a.parameters.len()]), &[]);
            }
        }
        assert_eq!(a.within_limits(&[]), a.defaults());
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
