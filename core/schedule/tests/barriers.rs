//! Signals and rounds of the barriers equal the formulas of their sources: Hoefler 2005, table 2.1 and section 2.2.6.

use farside_schedule::operation::Operation;
use farside_schedule::schedule::check::Cost;

use super::cost::{cost, log_ceil, log_floor};

fn barrier(name: &str, parameters: &[u32], p: u32) -> Cost {
    cost(Operation::Barrier, name, parameters, p)
}

// `chain` counts rounds in which a rank may send and receive any number of signals, `rounds` those with one port.

/// Signals of each rank in the release over a binomial tree: to r + 2^i for all 2^i > r.
fn released(p: u32) -> Vec<u32> {
    (0..p).map(|r| (0..7).filter(|i| 1 << i > r && r + (1 << i) < p).count() as u32).collect()
}

/// One signal of every rank but 0, and the signals of the release.
fn up_and(released: &[u32]) -> Vec<u32> {
    released.iter().enumerate().map(|(r, n)| n + u32::from(r > 0)).collect()
}

/// The longest chain of losers among P ranks in groups of n: ⌈log_n P⌉ if P is a power of n, otherwise up to one less.
fn deepest(n: u32, p: u32) -> u32 {
    log_floor(n, (p - 1) * (n - 1) + 1)
}

#[test]
fn central_counter_takes_two_rounds() {
    for p in super::counts() {
        let c = barrier("central-counter", &[], p);
        assert_eq!((c.chain, c.rounds), (2, 2 * (p - 1)));
        assert_eq!(c.messages[0], p - 1);
        assert!(c.messages[1..].iter().all(|n| *n == 1));
    }
}

#[test]
fn trees_take_a_check_in_and_a_release() {
    for p in super::counts() {
        let release = log_floor(2, p);
        assert_eq!(released(p)[0], log_ceil(2, p));
        for n in [2, 3, 4, 8, 64] {
            let c = barrier("combining-tree", &[n], p);
            assert_eq!(c.messages, up_and(&released(p)), "P {p}, n {n}");
            assert_eq!(c.chain, deepest(n, p) + release, "P {p}, n {n}");
            let (groups, rounds) = (log_ceil(n, p), (n - 1) * log_ceil(n, p) + log_ceil(2, p));
            if n.pow(groups) == p {
                assert_eq!((c.chain, c.rounds), (groups + release, rounds), "P {p}, n {n}");
            } else {
                assert!(c.rounds <= rounds, "P {p}, n {n}");
            }
        }
        let c = barrier("tournament", &[], p);
        assert_eq!(c.messages, up_and(&released(p)), "P {p}");
        assert_eq!((c.chain, c.rounds), (2 * log_floor(2, p), 2 * log_ceil(2, p)), "P {p}");
        let c = barrier("binomial-spanning-tree", &[], p);
        assert_eq!(c.messages, up_and(&released(p)), "P {p}");
        assert_eq!((c.chain, c.rounds), (2 * log_floor(2, p), 2 * log_ceil(2, p)), "P {p}");
    }
}

#[test]
fn f_way_tournament_takes_as_few_rounds_with_smaller_games() {
    for p in super::counts() {
        for f in [2, 3, 8, 64] {
            let rounds = log_ceil(f, p);
            let even = (2..=f).find(|g| g.pow(rounds) >= p).unwrap();
            let c = barrier("f-way-tournament", &[f], p);
            assert_eq!(c.messages, up_and(&released(p)), "P {p}, f {f}");
            assert_eq!(c.chain, deepest(even, p) + log_floor(2, p), "P {p}, f {f}");
            assert!(c.chain <= rounds + log_ceil(2, p), "P {p}, f {f}");
            assert!(c.rounds <= (even - 1) * rounds + log_ceil(2, p), "P {p}, f {f}");
        }
    }
}

#[test]
fn mcs_tree_takes_the_heights_of_its_trees() {
    // Height of the tree in which rank r has the children n r + 1 to n r + n: ⌈log_n((n - 1) P + 1)⌉ - 1.
    let height = |n: u32, p: u32| if n == 1 { p - 1 } else { log_ceil(n, (n - 1) * p + 1) - 1 };
    for p in super::counts() {
        for (n, w) in [(4, 2), (2, 2), (1, 3), (8, 1), (64, 64)] {
            let c = barrier("mcs-tree", &[n, w], p);
            assert_eq!(c.chain, height(n, p) + height(w, p), "P {p}, n {n}, w {w}");
            assert!(c.rounds <= n * height(n, p) + w * height(w, p), "P {p}, n {n}, w {w}");
            assert_eq!(c.messages.iter().sum::<u32>(), 2 * (p - 1));
            assert!(c.messages.iter().enumerate().all(|(r, m)| *m <= w + u32::from(r > 0)));
        }
    }
}

#[test]
fn butterfly_takes_log2_rounds_and_up_to_twice_the_signals() {
    for p in super::counts() {
        let c = barrier("butterfly", &[], p);
        let rounds = log_ceil(2, p);
        assert_eq!(c.chain, rounds, "P {p}");
        if p.is_power_of_two() {
            assert_eq!(c.rounds, rounds, "P {p}");
            assert!(c.messages.iter().all(|n| *n == rounds), "P {p}");
        } else {
            assert!(c.rounds <= 2 * rounds, "P {p}");
            assert!(c.messages.iter().all(|n| (rounds..=2 * rounds).contains(n)), "P {p}");
        }
    }
}

#[test]
fn exchanges_take_the_rounds_of_the_largest_power_and_two_more() {
    for p in super::counts() {
        for n in [1, 2, 3, 5, 64] {
            let c = barrier("n-wise-exchange", &[n], p);
            let rounds = log_floor(n + 1, p);
            let most = (n + 1).pow(rounds);
            // No rank serves more ranks beyond the power than rank 0, which receives their signals first and signals
            // them last.
            assert_eq!(c.rounds, n * rounds + 2 * ((p - 1) / most), "P {p}, n {n}");
            for (r, messages) in (0..p).zip(&c.messages) {
                let beyond = (p - r - 1) / most;
                assert_eq!(*messages, if r < most { n * rounds + beyond } else { 1 }, "P {p}, n {n}, rank {r}");
            }
            if n == 1 {
                assert_eq!(barrier("pairwise-exchange", &[], p), c);
            }
        }
    }
}

#[test]
fn dissemination_takes_the_fewest_rounds() {
    for p in super::counts() {
        for n in [1, 2, 3, 7, 64] {
            let c = barrier("dissemination", &[n], p);
            let rounds = log_ceil(n + 1, p);
            // The last round omits ranks of earlier rounds.
            let last = n.min((p - 1) / (n + 1).pow(rounds - 1));
            assert_eq!(c.chain, rounds, "P {p}, n {n}");
            assert_eq!(c.rounds, n * (rounds - 1) + last, "P {p}, n {n}");
            assert!(c.messages.iter().all(|m| *m == c.rounds), "P {p}, n {n}");
        }
    }
}

#[test]
fn switch_takes_a_message_of_each_rank_and_an_answer() {
    for p in super::counts() {
        let c = barrier("switch", &[], p);
        assert_eq!((c.chain, c.rounds), (2, 2), "P {p}");
        assert!(c.messages.iter().all(|m| *m == 1), "P {p}");
    }
}
