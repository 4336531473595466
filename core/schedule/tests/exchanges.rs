//! Messages, elements and rounds of allgathers, alltoalls and neighbour exchanges equal the formulas of their sources:
//! Thakur, Rabenseifner, Gropp 2005, section 4; Bruck et al. 1997; Chen et al. 2005.

use farside_schedule::operation::{Call, Neighbors, Operation};
use farside_schedule::schedule::check::Cost;

use super::cost::{cost, cost_of, log_ceil, log_floor};

/// Checks that every rank sends `messages` messages with `elements` elements in all, in `rounds` rounds with one port,
/// and that `chain` is the length of the longest chain of messages that wait for each other.
fn assert_each(c: &Cost, messages: u32, elements: u32, rounds: u32, chain: u32, what: &str) {
    assert!(c.messages.iter().all(|m| *m == messages), "{what}: {:?}", c.messages);
    assert!(c.elements.iter().all(|n| *n == u64::from(elements)), "{what}: {:?}", c.elements);
    assert_eq!((c.rounds, c.chain), (rounds, chain), "{what}");
}

fn allgather(name: &str, p: u32) -> Cost {
    cost(Operation::Allgather, name, &[], p)
}

#[test]
fn allgathers_send_each_block_once() {
    for p in super::counts() {
        let what = format!("P {p}");
        assert_each(&allgather("linear", p), p - 1, p - 1, p - 1, 1, &what);
        assert_each(&allgather("ring", p), p - 1, p - 1, p - 1, p - 1, &what);
        if p % 2 == 0 {
            assert_each(&allgather("neighbor-exchange", p), p / 2, p - 1, p / 2, p / 2, &what);
        }
        let rounds = log_ceil(2, p);
        let c = allgather("bruck", p);
        assert!(c.chain <= rounds, "{what}");
        assert_each(&c, rounds, p - 1, rounds, c.chain, &what);
    }
}

/// A direct algorithm has a message for each loan and one for its return, all at the same time, and reads or writes
/// each element once, in place.
#[test]
fn direct_algorithms_move_each_element_once() {
    use Operation as O;
    for p in 2..=64_u32 {
        let others = p - 1;
        for operation in [O::Allgather, O::Alltoall, O::ReduceScatter, O::Allreduce, O::Scan] {
            let c = cost(operation, "direct", if operation == O::Allreduce { &[1] } else { &[] }, p);
            // A rank gets the block of each other rank; in an allreduce and a scan also its results of the others' parts.
            let elements = if matches!(operation, O::Allreduce | O::Scan) { 2 * others } else { others };
            assert_each(&c, 2 * others, elements, c.rounds, 2, &format!("{} P {p}", operation.name()));
        }
        for (operation, parameters, at_root, at_others) in [
            (O::Gather, &[][..], (others, 0), (1, 1)),
            (O::Scatter, &[], (others, others), (1, 0)),
            (O::Broadcast, &[0], (others, others), (1, 0)),
            // The root reads nothing and writes a part to each rank, which reads P - 1 parts.
            (O::Broadcast, &[1], (2 * others, others * p), (2, 0)),
            // All ranks read the parts of all, and write their sum to the root.
            (O::Reduce, &[1], (2 * others, others), (2 * others, p)),
        ] {
            let c = cost(operation, "direct", parameters, p);
            for r in 0..p as usize {
                let want = if r == 0 { at_root } else { at_others };
                let got = (c.messages[r], c.elements[r] as u32);
                assert_eq!(got, want, "{} {parameters:?}, P {p}, rank {r}", operation.name());
            }
            assert_eq!(c.chain, 2);
        }
    }
}

#[test]
fn allgather_by_recursive_doubling_sends_twice_what_is_beyond_a_power_of_two() {
    for p in super::counts() {
        let c = allgather("recursive-doubling", p);
        let rounds = log_floor(2, p);
        if p.is_power_of_two() {
            assert_each(&c, rounds, p - 1, rounds, rounds, &format!("P {p}"));
            continue;
        }
        let most = 1 << rounds;
        assert_eq!(c.rounds, rounds + 2, "P {p}");
        for r in 0..p {
            let has_partner = r + most < p;
            let messages = if r < most { rounds + u32::from(has_partner) } else { 1 };
            assert_eq!(c.messages[r as usize], messages, "P {p}, rank {r}");
            // The blocks of each group of r: one of each rank below `most`, and those of their partners.
            let groups = (0..rounds).map(|k| (r >> k << k, 1 << k));
            let sent: u32 = groups.map(|(g, n)| n + p.saturating_sub(g + most).min(n)).sum();
            let elements = if r < most { sent + if has_partner { p - 1 } else { 0 } } else { 1 };
            assert_eq!(c.elements[r as usize], u64::from(elements), "P {p}, rank {r}");
        }
    }
}

#[test]
fn allgather_leaves_out_empty_messages() {
    for p in super::counts() {
        let sizes: Vec<u64> = (0..u64::from(p)).map(|r| if r % 3 == 1 { 0 } else { 1 + r % 5 }).collect();
        let call = |rank| Call { sizes: &sizes, ..Call::new(Operation::Allgather, rank, p) };
        let by_rank = vec![sizes.clone(); p as usize];
        let linear = cost_of("linear", call, &by_rank);
        let ring = cost_of("ring", call, &by_rank);
        let [full, all] = [sizes.iter().filter(|n| **n > 0).count() as u32, sizes.iter().sum::<u64>() as u32];
        for r in 0..p as usize {
            let [own, next] = [sizes[r], sizes[(r + 1) % p as usize]];
            assert_eq!(linear.messages[r], if own > 0 { p - 1 } else { 0 }, "P {p}, rank {r}");
            assert_eq!(linear.elements[r], own * u64::from(p - 1), "P {p}, rank {r}");
            assert_eq!(ring.messages[r], full - u32::from(next > 0), "P {p}, rank {r}");
            assert_eq!(ring.elements[r], u64::from(all) - next, "P {p}, rank {r}");
        }
    }
}

#[test]
fn alltoalls_send_each_block_straight() {
    for p in super::counts() {
        let what = format!("P {p}");
        for window in [0, 3] {
            let c = cost(Operation::Alltoall, "linear", &[window], p);
            let chain = if window == 0 { 1 } else { (p - 1).div_ceil(window) };
            assert_each(&c, p - 1, p - 1, p - 1, chain, &what);
            assert_eq!(c.scratch, 0);
        }
        let c = cost(Operation::Alltoall, "pairwise-exchange", &[], p);
        assert_each(&c, p - 1, p - 1, p - 1, p - 1, &what);
    }
}

#[test]
fn alltoall_of_bruck_moves_a_block_once_for_each_digit() {
    for p in super::counts() {
        for radix in [2_u32, 3, 8] {
            let digits = |i: u32| (0..log_ceil(radix, p)).map(move |k| i / radix.pow(k) % radix);
            let moves = |i: u32| digits(i).filter(|z| *z > 0).count() as u32;
            let messages = (1..p).filter(|i| moves(*i) == 1).count() as u32;
            let c = cost(Operation::Alltoall, "bruck", &[radix], p);
            let what = format!("P {p}, radix {radix}");
            assert!(((0..p).map(moves).max().unwrap()..=messages).contains(&c.chain), "{what}");
            assert_each(&c, messages, (0..p).map(moves).sum(), messages, c.chain, &what);
            assert!(messages <= (radix - 1) * log_ceil(radix, p), "{what}");
            if radix == 2 && p.is_power_of_two() {
                assert_eq!((c.rounds, c.elements[0]), (log_ceil(2, p), u64::from(p / 2 * log_ceil(2, p))), "{what}");
            }
        }
    }
}

#[test]
fn alltoall_leaves_out_empty_messages() {
    for p in super::counts() {
        let size = |from: u32, to: u32| if (from + to).is_multiple_of(4) { 1 + u64::from(from) } else { 0 };
        let of = |r| (0..p).map(|to| size(r, to)).chain((0..p).map(|from| size(from, r))).collect::<Vec<_>>();
        let sizes: Vec<Vec<u64>> = (0..p).map(of).collect();
        for name in ["linear", "pairwise-exchange"] {
            let call =
                |r: u32| Call { sizes: &sizes[r as usize], parameters: &[0], ..Call::new(Operation::Alltoall, r, p) };
            let c = cost_of(name, call, &sizes);
            for r in 0..p {
                let to: Vec<u64> = (0..p).filter(|to| *to != r).map(|to| size(r, to)).filter(|n| *n > 0).collect();
                assert_eq!(c.messages[r as usize], to.len() as u32, "{name}, P {p}, rank {r}");
                assert_eq!(c.elements[r as usize], to.iter().sum::<u64>(), "{name}, P {p}, rank {r}");
            }
        }
    }
}

/// On a ring of P ranks each rank sends two blocks to each side and one to itself; with P = 2 both sides are the same
/// rank.
#[test]
fn neighbors_get_a_message_for_each_edge() {
    for p in (1..=1).chain(super::counts()) {
        let edges = |a: u32, r: u32, b: u32| vec![a % p, b % p, r, a % p, b % p];
        let destinations: Vec<Vec<u32>> = (0..p).map(|r| edges(r + 1, r, r + p - 1)).collect();
        let sources: Vec<Vec<u32>> = (0..p).map(|r| edges(r + p - 1, r, r + 1)).collect();
        for operation in [Operation::NeighborAllgather, Operation::NeighborAlltoall] {
            let call = |r: u32| {
                let (sources, destinations) = (&sources[r as usize], &destinations[r as usize]);
                let neighbors = Neighbors { sources, destinations };
                Call { neighbors, ..Call::new(operation, r, p) }
            };
            let messages = if p == 1 { 0 } else { 4 };
            assert_each(&cost_of("linear", call, &[]), messages, messages, messages, messages.min(1), "neighbors");
        }
    }
}
