//! Broadcast, scatter and gather: rounds, messages and elements of each rank equal the published formulas, and so do
//! predicted times (Barchet-Estefanel, Mounié 2004, "Fast Tuning of Intra-cluster Collective Communications", tables 1
//! and 2).

use farside_schedule::operation::{Call, Operation};
use farside_schedule::schedule::check::{Cost, check_algorithm};
use farside_schedule::schedule::predict::{Bytes, PLogP, Table, predict_algorithm};
use farside_schedule::table;

/// Elements of a vector, and of each of 64 parts.
const VECTOR: u64 = 64 * PART;
const PART: u64 = 30;

fn log2_down(p: u32) -> u32 {
    p.ilog2()
}

fn log2_up(p: u32) -> u32 {
    p.next_power_of_two().ilog2()
}

/// Number of ranks in the subtree of number `n` of a binomial tree.
fn subtree(n: u32, p: u32) -> u32 {
    let span = if n == 0 { p } else { 1 << n.trailing_zeros() };
    span.min(p - n)
}

/// Number of children of number `n` of a binomial tree.
fn children(n: u32, p: u32) -> u32 {
    log2_up(subtree(n, p))
}

/// Job sizes, with every root if the ranks are few.
fn ranks_and_roots() -> impl Iterator<Item = (u32, u32)> {
    super::counts().flat_map(|p| (0..if p <= 12 { p } else { 1 }).map(move |root| (p, root)))
}

/// The cost of an algorithm, with messages and elements by the number of the rank after the root. `sizes` are the sizes
/// of blocks by rank, or of the parts of a vector.
fn cost(operation: Operation, name: &str, parameters: &[u32], (p, root): (u32, u32), sizes: &[u64]) -> Cost {
    let a = table::named(operation, name).unwrap();
    let call = |rank| Call { root, parameters, elements: VECTOR, ..Call::new(operation, rank, p) };
    let mut cost = check_algorithm(a, call, &vec![sizes.to_vec(); p as usize])
        .unwrap_or_else(|fault| panic!("{name}{parameters:?}, P {p}, root {root}: {fault}"));
    cost.messages.rotate_left(root as usize);
    cost.elements.rotate_left(root as usize);
    cost
}

/// The cost of a broadcast of a vector in `parts` parts.
fn broadcast(name: &str, parameters: &[u32], at: (u32, u32), parts: u32) -> Cost {
    cost(Operation::Broadcast, name, parameters, at, &vec![VECTOR / u64::from(parts); parts as usize])
}

/// A value for each rank.
fn each(p: u32, of: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..p).map(of).collect()
}

fn elements(p: u32, of: impl Fn(u32) -> u64) -> Vec<u64> {
    (0..p).map(of).collect()
}

#[test]
fn broadcast_down_trees() {
    for (p, root) in ranks_and_roots() {
        for k in [1, 2, 8] {
            let check = |name: &str, parameters: &[u32], messages: &dyn Fn(u32) -> u32| {
                let c = broadcast(name, parameters, (p, root), k);
                assert_eq!(c.messages, each(p, |n| k * messages(n)), "{name}{parameters:?}, P {p}, root {root}");
                assert_eq!(c.elements, elements(p, |n| VECTOR * u64::from(messages(n))), "{name}, P {p}, root {root}");
                assert_eq!(c.scratch, 0);
                c
            };
            let c = check("flat", &[k], &|n| if n == 0 { p - 1 } else { 0 });
            assert_eq!((c.rounds, c.chain), (k * (p - 1), 1), "P {p}");
            let c = check("chain", &[k], &|n| u32::from(n + 1 < p));
            assert_eq!((c.rounds, c.chain), (p - 1 + k - 1, p - 1), "P {p}");
            let c = check("binomial", &[k], &|n| children(n, p));
            assert_eq!((c.rounds, c.chain), (k * log2_up(p), log2_down(p)), "P {p}");
            // A rank may have fewer than two children; the tree has the least possible number of levels.
            let c = broadcast("binary", &[k], (p, root), k);
            assert!(c.messages.iter().all(|m| *m <= 2 * k), "P {p}");
            assert_eq!(c.messages.iter().sum::<u32>(), k * (p - 1), "P {p}");
            assert_eq!(c.chain, log2_down(p), "P {p}");
            assert!(c.rounds <= 2 * log2_up(p) + 2 * (k - 1), "P {p}: {}", c.rounds);
        }
    }
}

#[test]
fn broadcast_down_trees_of_k() {
    for (p, root) in ranks_and_roots() {
        for k in [2, 3, 4, 7] {
            let c = broadcast("k-ary", &[k, 1], (p, root), 1);
            // Number of levels: the smallest d with 1 + k + .. + k^d ≥ P.
            let levels = (0u32..).find(|d| (0..=*d).map(|i| k.pow(i)).sum::<u32>() >= p).unwrap();
            assert_eq!(c.chain, levels, "P {p}, k {k}");
            assert!(c.messages.iter().all(|m| *m <= k));
            let c = broadcast("k-nomial", &[k, 1], (p, root), 1);
            let rounds = (0u32..).find(|d| k.pow(*d) >= p).unwrap();
            assert!(c.rounds <= rounds * (k - 1), "P {p}, k {k}: {}", c.rounds);
            assert!(c.chain <= rounds, "P {p}, k {k}: {}", c.chain);
            if p == k.pow(rounds) {
                assert_eq!((c.rounds, c.chain), (rounds * (k - 1), rounds), "P {p}, k {k}");
                assert_eq!(c.messages[0], rounds * (k - 1));
            }
        }
    }
}

#[test]
fn broadcast_by_rendezvous() {
    for (p, root) in ranks_and_roots() {
        // Each rank sends a request and the vector to each child, and an answer to the parent.
        let check = |name: &str, children: &dyn Fn(u32) -> u32| {
            let c = broadcast(name, &[], (p, root), 1);
            assert_eq!(c.messages, each(p, |n| 2 * children(n) + u32::from(n > 0)), "{name}, P {p}, root {root}");
            assert_eq!(c.elements, elements(p, |n| VECTOR * u64::from(children(n))), "{name}, P {p}, root {root}");
            c.chain
        };
        assert_eq!(check("flat-rendezvous", &|n| if n == 0 { p - 1 } else { 0 }), 3);
        assert_eq!(check("chain-rendezvous", &|n| u32::from(n + 1 < p)), 3 * (p - 1));
        assert_eq!(check("binomial-rendezvous", &|n| children(n, p)), 3 * log2_down(p));
    }
}

#[test]
fn broadcast_in_parts() {
    for (p, root) in ranks_and_roots() {
        let log = log2_up(p);
        // Every rank but the root receives each element once, and no rank sends more than twice (P - 1) / P of the
        // vector.
        let check = |name: &str, most: u32, rounds: u32| {
            let sizes = vec![PART; p as usize];
            let c = cost(Operation::Broadcast, name, &[], (p, root), &sizes);
            assert_eq!(c.elements.iter().sum::<u64>(), u64::from(p - 1) * u64::from(p) * PART, "{name}, P {p}");
            assert!(c.elements.iter().all(|e| *e <= 2 * u64::from(p - 1) * PART), "{name}, P {p}: {:?}", c.elements);
            assert!(c.messages.iter().all(|m| *m <= most), "{name}, P {p}: {:?}", c.messages);
            assert!(c.rounds <= rounds, "{name}, P {p}: {} rounds", c.rounds);
        };
        check("scatter-ring", log + p - 1, log + p - 1);
        check("scatter-bruck", 2 * log, 2 * log);
        if p.is_power_of_two() {
            check("scatter-doubling", 2 * log, 2 * log);
        }
        // Halves: k segments from the parent and one message from the counterpart, or from the root.
        for k in [1, 4] {
            let c = broadcast("split-binary", &[k], (p, root), 2 * k);
            assert_eq!(c.messages.iter().sum::<u32>(), (p - 1) * (k + 1), "P {p}");
            assert_eq!(c.elements.iter().sum::<u64>(), u64::from(p - 1) * VECTOR, "P {p}");
            assert!(c.elements.iter().all(|e| *e <= 3 * VECTOR / 2), "P {p}: {:?}", c.elements);
            // Levels of the two trees, and the exchange between counterparts.
            let exchanged = if p > 2 { log2_down((p - 1) / 2) + 2 } else { 0 };
            assert_eq!(c.chain, exchanged.max(log2_down(p / 2) + 1), "P {p}");
        }
    }
}

#[test]
fn scatter_and_gather() {
    for (p, root) in ranks_and_roots() {
        let all = u64::from(p - 1);
        let irregular: Vec<u64> = (0..u64::from(p)).map(|i| if i % 3 == 1 { 0 } else { i * 7 % 11 }).collect();
        for sizes in [&vec![PART; p as usize], &irregular] {
            // Elements of consecutive ranks after the root.
            let run = |n: u32, count: u32| (n..n + count).map(|i| sizes[((root + i) % p) as usize]).sum::<u64>();
            let scatter = |name, messages: &dyn Fn(u32) -> u32, below: &dyn Fn(u32) -> u32| {
                let c = cost(Operation::Scatter, name, &[], (p, root), sizes);
                assert_eq!(c.messages, each(p, messages), "{name}, P {p}, root {root}");
                // All elements that a rank sends are for the ranks below it.
                assert_eq!(c.elements, elements(p, |n| run(n + 1, below(n))), "{name}, P {p}, root {root}");
                c.rounds
            };
            let gather = |name, below: &dyn Fn(u32) -> u32| {
                let c = cost(Operation::Gather, name, &[], (p, root), sizes);
                assert_eq!(c.messages, each(p, |n| u32::from(n > 0)), "{name}, P {p}, root {root}");
                let sent = |n: u32| if n == 0 { 0 } else { run(n, below(n) + 1) };
                assert_eq!(c.elements, elements(p, sent), "{name}, P {p}, root {root}");
                c.rounds
            };
            let flat = |n: u32| if n == 0 { p - 1 } else { 0 };
            let (chain, tree) = (|n: u32| p - 1 - n, |n: u32| subtree(n, p) - 1);
            assert_eq!(scatter("flat", &flat, &flat), p - 1);
            assert_eq!(scatter("chain", &|n| u32::from(n + 1 < p), &chain), p - 1);
            assert_eq!(scatter("binomial", &|n| children(n, p), &tree), log2_up(p));
            assert_eq!(gather("flat", &flat), p - 1);
            assert_eq!(gather("chain", &chain), p - 1);
            assert_eq!(gather("binomial", &tree), log2_up(p));
        }
        for window in [1, 2, 5] {
            let c = cost(Operation::Gather, "flat-window", &[window], (p, root), &vec![PART; p as usize]);
            // The root signals each rank; ranks whose signals follow each other's blocks form a chain.
            assert_eq!(c.messages, each(p, |n| if n == 0 { p - 1 } else { 1 }), "P {p}");
            assert_eq!(c.elements.iter().sum::<u64>(), all * PART);
            assert_eq!(c.chain, 2 * (p - 1).div_ceil(window), "P {p}, window {window}");
        }
    }
}

/// pLogP with gaps that are not linear in the size, and the given latency.
fn plogp(latency: f64) -> PLogP {
    PLogP { latency, gap: Table(vec![(1, 3.0), (100, 11.0), (2000, 190.0), (200_000, 31_000.0)]), ..PLogP::default() }
}

fn predicted(operation: Operation, name: &str, parameters: &[u32], p: u32, model: &PLogP) -> f64 {
    let a = table::named(operation, name).unwrap();
    let call = |rank| Call { root: p / 3, parameters, elements: VECTOR, ..Call::new(operation, rank, p) };
    let bytes = if operation == Operation::Broadcast { Bytes::Vector(VECTOR) } else { Bytes::Each(PART) };
    predict_algorithm(a, call, bytes, model).unwrap().time
}

fn assert_close(time: f64, formula: f64, of: impl std::fmt::Display) {
    assert!((time - formula).abs() <= 1e-9 * formula, "{of}: {time}, by the formula {formula}");
}

#[test]
fn broadcast_predicted_by_the_closed_formulas() {
    for l in [0.5, 100.0, 5000.0] {
        let model = plogp(l);
        let (g, g1) = (|m: u64| model.gap.at(m), model.gap.at(1));
        let gm = g(VECTOR);
        for p in super::counts() {
            let of = |name: &str, parameters: &[u32]| predicted(Operation::Broadcast, name, parameters, p, &model);
            let (others, up, down) = (f64::from(p - 1), f64::from(log2_up(p)), f64::from(log2_down(p)));
            for k in [1, 2, 16] {
                let (gs, segments) = (g(VECTOR / u64::from(k)), f64::from(k));
                assert_close(of("flat", &[k]), others * gs * segments + l, format!("flat({k}), P {p}"));
                assert_close(
                    of("chain", &[k]),
                    others * (gs + l) + gs * (segments - 1.0),
                    format!("chain({k}), P {p}"),
                );
                let binomial = of("binomial", &[k]);
                // If P is not a power of two, the published formula has fewer gaps than the root sends messages.
                assert!(binomial <= (up * (gs * segments + l)) * (1.0 + 1e-9), "binomial({k}), P {p}: {binomial}");
                if p.is_power_of_two() {
                    assert_close(binomial, down * gs * segments + up * l, format!("binomial({k}), P {p}"));
                }
            }
            let binary = of("binary", &[1]);
            assert!(binary <= up * (2.0 * gm + l) * (1.0 + 1e-9), "binary, P {p}: {binary}");
            let handshake = 2.0 * g1 + 3.0 * l;
            // The first answer comes after 2 g(1) + 2 L; before that the root must have sent all requests.
            if others * g1 <= 2.0 * (g1 + l) {
                assert_close(of("flat-rendezvous", &[]), others * gm + handshake, format!("flat-rendezvous, P {p}"));
            }
            // The answer of a child comes 2 g(1) + 2 L after the data, and g(m) after it at the earliest.
            if gm <= 2.0 * (g1 + l) {
                assert_close(
                    of("chain-rendezvous", &[]),
                    others * (gm + handshake),
                    format!("chain-rendezvous, P {p}"),
                );
                if p.is_power_of_two() {
                    let time = of("binomial-rendezvous", &[]);
                    assert_close(time, down * gm + up * handshake, format!("binomial-rendezvous, P {p}"));
                }
            }
        }
        for (k, rounds) in [(3u32, 4), (4, 3), (5, 2), (7, 2)] {
            let time = predicted(Operation::Broadcast, "k-nomial", &[k, 1], k.pow(rounds), &model);
            assert_close(time, f64::from(rounds) * (f64::from(k - 1) * gm + l), format!("k-nomial({k})"));
        }
    }
}

#[test]
fn scatter_and_gather_predicted_by_the_closed_formulas() {
    for l in [0.5, 40.0, 5000.0] {
        let model = plogp(l);
        let g = |blocks: u32| model.gap.at(u64::from(blocks) * PART);
        for p in super::counts() {
            let (others, up) = (f64::from(p - 1), f64::from(log2_up(p)));
            for operation in [Operation::Scatter, Operation::Gather] {
                let of = |name: &str| predicted(operation, name, &[], p, &model);
                let what = |name: &str| format!("{} {name}, P {p}, L {l}", operation.name());
                assert_close(of("flat"), others * g(1) + l, what("flat"));
                assert_close(of("chain"), (1..p).map(g).sum::<f64>() + others * l, what("chain"));
                let binomial = (0..log2_up(p)).map(|j| g(1 << j)).sum::<f64>() + up * l;
                let time = of("binomial");
                assert!(time <= binomial * (1.0 + 1e-9), "{}: {time}, at most {binomial}", what("binomial"));
                if p.is_power_of_two() {
                    assert_close(time, binomial, what("binomial"));
                }
            }
        }
    }
}
