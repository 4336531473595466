//! Messages, reductions and rounds of prefix reductions equal the formulas of their sources: Sanders, Träff 2006; Träff
//! 2025.

use farside_schedule::operation::Operation::{Exscan, Scan};

use super::cost::{cost, log_ceil, log_floor};

#[test]
fn chain_is_a_pipeline_of_segments() {
    for p in super::counts() {
        for segments in [1, 2, 7, 64] {
            for operation in [Scan, Exscan] {
                let c = cost(operation, "chain", &[segments], p);
                assert_eq!((c.rounds, c.chain), (p - 2 + segments, p - 1), "P {p}, segments {segments}");
                for r in 0..p {
                    let sends = if r + 1 < p { segments } else { 0 };
                    assert_eq!(c.messages[r as usize], sends, "P {p}, segments {segments}, rank {r}");
                    let reduces = r > 0 && (operation == Scan || r + 1 < p);
                    let reduced = if reduces { u64::from(segments) } else { 0 };
                    assert_eq!(c.reduced[r as usize], reduced, "P {p}, segments {segments}, rank {r}");
                }
            }
        }
    }
}

#[test]
fn recursive_doubling_takes_log2_rounds() {
    for p in super::counts() {
        for operation in [Scan, Exscan] {
            let c = cost(operation, "recursive-doubling", &[], p);
            assert_eq!((c.rounds, c.chain), (log_ceil(2, p), log_floor(2, p)), "P {p}");
            for r in 0..p {
                assert_eq!(c.messages[r as usize], log_ceil(2, p - r), "P {p}, rank {r}");
                // Messages arrive from r - 1, r - 2, r - 4, ..
                let came = if r == 0 { 0 } else { log_floor(2, r) + 1 };
                let given = (0..came).filter(|k| r + (2 << k) < p).count() as u32;
                let reduced = if operation == Scan { came } else { came.saturating_sub(1) + given };
                assert_eq!(c.reduced[r as usize], u64::from(reduced), "{operation:?}, P {p}, rank {r}");
            }
        }
    }
}

#[test]
fn doubling_123_reduces_once_in_a_round() {
    for p in super::counts() {
        let c = cost(Exscan, "123-doubling", &[], p);
        // ⌈log2(4 (P - 1) / 3)⌉
        let rounds = (0..).find(|q| 3 << q >= 4 * (p - 1)).unwrap();
        assert_eq!(c.rounds, rounds, "P {p}");
        assert!((log_ceil(2, p - 1)..=log_ceil(2, p) + 1).contains(&rounds), "P {p}");
        for r in 0..p {
            // Messages arrive from r - 1, r - 2, r - 3, r - 6, .., the last ones not from rank 0.
            let came =
                [1, 2].into_iter().filter(|d| r >= *d).count() as u32 + (0..6).filter(|k| r > 3 << k).count() as u32;
            let reduced = came.saturating_sub(1) + u32::from(r > 0 && r + 2 < p);
            assert_eq!(c.reduced[r as usize], u64::from(reduced), "P {p}, rank {r}");
            assert!(reduced <= rounds, "P {p}, rank {r}");
        }
    }
}

#[test]
fn binomial_sends_fewer_than_two_messages_for_each_rank() {
    for p in super::counts() {
        let levels = log_floor(2, p);
        // Upwards all ranks send except the roots, one for each 1 bit of P; downwards all receive except the ranks r =
        // 2^k - 1, which have the whole prefix.
        let messages = (p - p.count_ones()) + (p - levels - 1);
        let scan = cost(Scan, "binomial", &[], p);
        let exscan = cost(Exscan, "binomial", &[], p);
        assert_eq!(scan.messages, exscan.messages, "P {p}");
        assert_eq!(scan.messages.iter().sum::<u32>(), messages, "P {p}");
        assert_eq!(scan.reduced.iter().sum::<u64>(), u64::from(messages), "P {p}");
        for c in [scan, exscan] {
            if p.is_power_of_two() {
                assert_eq!(c.rounds, 2 * levels - 1, "P {p}");
            } else {
                assert!(c.rounds < 2 * log_ceil(2, p), "P {p}");
            }
        }
    }
}
