//! Chooses the port of each rank: a pure function of the candidates of all ranks, so that both ends of every pair
//! agree.
//!
//! Two GIDs of one kind and address family reach each other if they are in one subnet, or if the interfaces of both
//! have routes to the other (RoCE v2 only: ranks do not know routers between InfiniBand subnets, and two fabrics that
//! both kept the default prefix cannot be distinguished). An address that two machines have, or one of the loopback
//! interface, reaches only its own machine. A link-local address, or one whose subnet is unknown, is assumed to reach
//! all addresses of its kind.
//!
//! Networks are tried in this order: known subnets, the loopback interface, assumptions; then those that more ranks
//! have; then RoCE v2 before v1; then by the bandwidth of the slowest rank's best port there; then the order of the
//! candidates of the lowest rank that has the network. Each rank takes its best candidate in the network, ranks of a
//! machine whose best ones are equal take these in turn. A rank that is not in the network takes its first candidate
//! that all ranks reach by routes. Other mixtures of candidates are not tried for ranks that depend on routes. If
//! nothing connects all ranks by their addresses, ports that the settings name are trusted to do so.
//!
//! If the settings name several ports, the ranks of a machine take these in turn: a rank has no other candidates.

use std::cmp::Reverse;
use std::fmt::Write;
use std::net::IpAddr;

use ipnet::IpNet;
use rustc_hash::FxHashMap;

use super::candidate::{Candidate, GidKind, PortsOfRank, Scope};

/// Maximum number of networks that are tried.
const TRIES: usize = 64;
/// Maximum number of ranks, and of candidates per rank, that an error lists.
const RANKS_NAMED: usize = 8;
const CANDIDATES_NAMED: usize = 4;

/// The chosen ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// Index of the candidate, by rank.
    pub(super) picks: Vec<u8>,
    /// Whether only the settings indicate that the ports reach each other.
    pub(super) trusted: bool,
    /// Describes how the ports reach each other.
    pub(super) description: String,
}

/// Properties shared by candidates that reach each other without a router: kind, scope, whether IPv4, subnet if known,
/// and for the loopback interface the machine and its network namespace.
type Network<'a> = (GidKind, Scope, bool, Option<IpNet>, Option<(&'a str, &'a str)>);

fn network<'a>(rank: &'a PortsOfRank, c: &Candidate) -> Network<'a> {
    let machine = (c.scope() == Scope::Machine).then_some((&rank.machine[..], &rank.namespace[..]));
    (c.kind, c.scope(), c.address.is_ipv4(), c.subnet, machine)
}

/// A network that some ranks have.
struct SharedNetwork<'a> {
    network: Network<'a>,
    ranks: usize,
    /// The lowest rank in the network, and its first candidate there.
    first: (usize, &'a Candidate),
}

/// All networks, best first.
fn networks(ranks: &[PortsOfRank]) -> Vec<SharedNetwork<'_>> {
    let mut found = Vec::new();
    for (rank, ports) in ranks.iter().enumerate() {
        found.extend(ports.candidates.iter().enumerate().map(|(i, c)| (network(ports, c), rank, i)));
    }
    found.sort_unstable();
    found.dedup_by_key(|(network, rank, _)| (*network, *rank));
    let mut shared: Vec<_> = found.chunk_by(|a, b| a.0 == b.0).collect();
    shared.sort_by_key(|of| {
        let ((kind, scope, ..), rank, i) = of[0];
        let slowest = of.iter().map(|(_, rank, i)| ranks[*rank].candidates[*i].merit.speed).min();
        let is_guess = ranks[rank].candidates[i].is_guess();
        (is_guess, scope, Reverse(of.len()), kind == GidKind::RoceV1, Reverse(slowest), rank, i)
    });
    let shared = shared.into_iter().map(|of| {
        let (network, rank, i) = of[0];
        SharedNetwork { network, ranks: of.len(), first: (rank, &ranks[rank].candidates[i]) }
    });
    shared.collect()
}

/// Whether each candidate reaches the other. With `trust`, ports that the settings name on both sides are assumed to
/// reach each other if that is possible at all.
fn reach((rank, a): (&PortsOfRank, &Candidate), (other, b): (&PortsOfRank, &Candidate), trust: bool) -> bool {
    let same_machine = rank.machine == other.machine;
    if (a.kind, a.scope(), a.address.is_ipv4()) != (b.kind, b.scope(), b.address.is_ipv4()) {
        return false;
    }
    if a.scope() == Scope::Machine {
        return same_machine && rank.namespace == other.namespace;
    }
    if trust && rank.entries > 0 && other.entries > 0 {
        return true;
    }
    if a.address == b.address && a.kind != GidKind::InfiniBand {
        return same_machine;
    }
    a.leads_to(&b.address) && b.leads_to(&a.address)
}

/// Returns the index of a candidate for each rank such that all reach each other; candidates in `wanted` are preferred.
fn connect(ranks: &[PortsOfRank], wanted: &Network<'_>, trust: bool) -> Option<Vec<u8>> {
    // Within the network all candidates reach each other, unless two machines have the same address.
    let mut owners: FxHashMap<IpAddr, &PortsOfRank> = FxHashMap::default();
    let mut picks: Vec<Option<usize>> = Vec::with_capacity(ranks.len());
    // Number of ranks of a machine so far whose best port is this one.
    let mut turns: FxHashMap<(&str, &str, u8), usize> = FxHashMap::default();
    for rank in ranks {
        let is_inside = |c: &Candidate| {
            let owner = owners.get(&c.address).unwrap_or(&rank);
            network(rank, c) == *wanted && reach((rank, c), (owner, c), trust)
        };
        let inside = || rank.candidates.iter().enumerate().filter(|(_, c)| is_inside(c));
        let pick = inside().next().map(|(_, best)| {
            let turn = turns.entry((&rank.machine, &best.device, best.port)).or_default();
            let equal: Vec<usize> = inside().filter(|(_, c)| c.merit == best.merit).map(|(i, _)| i).collect();
            *turn += 1;
            equal[(*turn - 1) % equal.len()]
        });
        if let Some(pick) = pick {
            owners.entry(rank.candidates[pick].address).or_insert(rank);
        }
        picks.push(pick);
    }
    for (i, rank) in ranks.iter().enumerate() {
        if picks[i].is_none() {
            let reaches_all = |c: &Candidate| {
                let mut chosen = ranks.iter().zip(&picks).filter_map(|(r, pick)| Some((r, &r.candidates[(*pick)?])));
                chosen.all(|other| reach((rank, c), other, trust))
            };
            picks[i] = Some(rank.candidates.iter().position(reaches_all)?);
        }
    }
    picks.into_iter().map(|pick| pick.map(|p| p as u8)).collect()
}

/// Of each rank the candidates of its own entry of `FARSIDE_VERBS_DEVICE`, and their indices: the ranks of a machine take the
/// entries in turn.
fn of_own_entries(ranks: &[PortsOfRank]) -> (Vec<PortsOfRank>, Vec<Vec<u8>>) {
    let mut turns: FxHashMap<&str, usize> = FxHashMap::default();
    let of_own = |rank: &PortsOfRank, turn: usize| {
        let entry = turn.checked_rem(usize::from(rank.entries));
        let is_own = |(_, c): &(u8, &Candidate)| entry.is_none_or(|entry| usize::from(c.entry) == entry);
        let own = (0..).zip(&rank.candidates).filter(is_own);
        let (indices, candidates): (Vec<u8>, Vec<_>) = own.map(|(i, c)| (i, c.clone())).unzip();
        let mut own = PortsOfRank { candidates, ..rank.clone() };
        if let Some(entry) = entry.filter(|_| own.candidates.is_empty() && own.lacks.is_empty()) {
            own.lacks = format!("entry {} of FARSIDE_VERBS_DEVICE names no port that is active here", entry + 1);
        }
        (own, indices)
    };
    let in_turn = ranks.iter().map(|rank| {
        let turn = turns.entry(&rank.machine).or_default();
        *turn += 1;
        of_own(rank, *turn - 1)
    });
    in_turn.unzip()
}

/// Chooses a candidate for each rank.
///
/// # Errors
/// A text that lists the candidates, if no choice connects all ranks.
pub(super) fn choose(all: &[PortsOfRank]) -> Result<Choice, String> {
    let (ranks, indices) = of_own_entries(all);
    let networks = networks(&ranks);
    let trusts = if ranks.iter().any(|r| r.entries > 0) { &[false, true][..] } else { &[false] };
    for trusted in trusts {
        for shared in networks.iter().take(TRIES) {
            if let Some(picks) = connect(&ranks, &shared.network, *trusted) {
                let description = description(&ranks, shared, &picks, *trusted);
                let picks = picks.iter().zip(&indices).map(|(pick, indices)| indices[usize::from(*pick)]).collect();
                return Ok(Choice { picks, trusted: *trusted, description });
            }
        }
    }
    Err(refusal(&ranks, networks.first()))
}

fn description(ranks: &[PortsOfRank], shared: &SharedNetwork<'_>, picks: &[u8], trusted: bool) -> String {
    let name = shared.first.1.network();
    let is_inside = |(r, pick): &(&PortsOfRank, &u8)| network(r, &r.candidates[usize::from(**pick)]) == shared.network;
    match (ranks.iter().zip(picks).filter(is_inside).count(), ranks.len()) {
        _ if trusted => {
            "named by FARSIDE_VERBS_DEVICE; the addresses do not show that the ranks reach each other".to_owned()
        }
        (_, 1) => format!("the job has one rank, which has {name}"),
        (inside, all) if inside == all => format!("all {all} ranks have {name}"),
        (inside, all) => format!("{inside} of {all} ranks have {name}, and the others have routes to it"),
    }
}

/// Lists ranks that are not in the most common network, one rank that is, and the candidates of each.
fn refusal(ranks: &[PortsOfRank], best: Option<&SharedNetwork<'_>>) -> String {
    let mut text = "not every rank has a port that reaches all other ranks by its subnet or routes".to_owned();
    let all_have = best.is_some_and(|b| b.ranks == ranks.len());
    if let Some(b) = best.filter(|b| b.ranks > 1) {
        let name = b.first.1.network();
        let _ = match all_have {
            true => write!(text, "; all ranks have {name}, but several machines have the same address"),
            false => write!(text, "; most, {} of {}, have {name}", b.ranks, ranks.len()),
        };
    }
    let lacks = |rank: usize, ports: &PortsOfRank| {
        all_have
            || best
                .is_none_or(|b| b.first.0 == rank || !ports.candidates.iter().any(|c| network(ports, c) == b.network))
    };
    let mut named = ranks.iter().enumerate().filter(|(rank, ports)| lacks(*rank, ports));
    let lines: Vec<String> = named
        .by_ref()
        .take(RANKS_NAMED)
        .map(|(rank, ports)| {
            let all = &ports.candidates;
            let mut has: Vec<String> = all.iter().take(CANDIDATES_NAMED).map(Candidate::to_string).collect();
            if all.is_empty() {
                has.push(format!("none: {}", ports.lacks));
            } else if all.len() > CANDIDATES_NAMED {
                has.push(format!("{} more", all.len() - CANDIDATES_NAMED));
            }
            format!("rank {rank} on `{}` has {}", ports.host, has.join(", "))
        })
        .collect();
    let _ = write!(text, ": {}", lines.join("; "));
    match named.count() {
        0 => text,
        more => format!("{text}; and {more} more ranks"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidate::tests::{any_candidate, candidate, ports};
    use super::super::merit::Merit;
    use super::*;
    use GidKind::*;
    use proptest::prelude::*;

    fn v2(device: &str, address: &str) -> Candidate {
        candidate(device, RoceV2, address, &[])
    }

    fn picks(ranks: &[PortsOfRank]) -> Vec<u8> {
        choose(ranks).unwrap().picks
    }

    #[test]
    fn network_of_all_is_taken_though_each_has_another_first() {
        let ranks: Vec<PortsOfRank> = (1..=3)
            .map(|i| ports(&format!("{i}"), &[v2("a", &format!("10.{i}.0.1/24")), v2("b", &format!("10.9.0.{i}/24"))]))
            .collect();
        let choice = choose(&ranks).unwrap();
        assert_eq!((choice.picks, choice.trusted), (vec![1, 1, 1], false));
        assert_eq!(choice.description, "all 3 ranks have RoCE v2, 10.9.0.0/24");
        assert_eq!(picks(&ranks[..1]), [0], "alone: the first");
        // Two devices are common to all ranks; the choice is by name, not by position.
        let both = |i: u8| {
            let on = |net: u8| format!("10.{net}.0.{i}/24");
            ports(&i.to_string(), &[v2("a", &on(2)), v2("b", &on(1))])
        };
        assert_eq!(picks(&[both(1), both(2)]), [0, 0]);
    }

    #[test]
    fn ranks_of_one_machine_with_more_ports_in_one_network_take_them_in_turn() {
        let both = |m| ports(m, &[v2("r0", "10.9.0.1/24"), v2("r1", "10.9.0.2/24")]);
        assert_eq!(picks(&[both("m"), both("m"), both("m")]), [0, 1, 0]);
        // Two machines with the same devices cannot both use the same address.
        assert_eq!(picks(&[both("m"), both("n"), both("m")]), [0, 1, 0]);
        let text = choose(&[both("m"), both("n"), both("o")]).unwrap_err();
        assert!(
            text.contains("all ranks have RoCE v2, 10.9.0.0/24, but several machines have the same address: rank 0"),
            "{text}"
        );
        assert!(text.contains("rank 2 on `host-o` has r0 port 1"), "{text}");
    }

    /// A candidate of this merit, as its rank orders them.
    fn of(speed: u32, distance: u8, c: Candidate) -> Candidate {
        Candidate { merit: Merit { speed: speed * 1000, distance }, ..c }
    }

    fn hca(device: &str, speed: u32, distance: u8) -> Candidate {
        let number: u8 = device.rsplit('_').next().unwrap().parse().unwrap();
        of(speed, distance, candidate(device, InfiniBand, &format!("fe80::{}/64", number + 1), &[]))
    }

    /// Eight adapters of 200 Gb/s in one subnet, four at each socket: a rank takes one of its own socket, and all are
    /// used.
    #[test]
    fn eight_adapters_are_spread_over_the_ranks_of_each_socket() {
        let rank = |socket: u8| {
            let near = |i: u8| if i / 4 == socket { 10 } else { 32 };
            let mut all: Vec<_> = (0..8).map(|i| hca(&format!("mlx5_{i}"), 200, near(i))).collect();
            all.sort_by_key(|c| c.merit.order(false));
            ports("dgx", &all)
        };
        let devices = |ranks: &[PortsOfRank]| -> Vec<String> {
            let device = |(rank, pick): (&PortsOfRank, u8)| rank.candidates[usize::from(pick)].device.clone();
            ranks.iter().zip(picks(ranks)).map(device).collect()
        };
        let names = |all: [u8; 8]| all.map(|i| format!("mlx5_{i}"));
        assert_eq!(devices(&[0, 0, 0, 0, 1, 1, 1, 1].map(rank)), names([0, 1, 2, 3, 4, 5, 6, 7]));
        assert_eq!(devices(&[0, 1, 0, 1, 0, 1, 0, 1].map(rank)), names([0, 4, 1, 5, 2, 6, 3, 7]));
        // Ranks that may run anywhere know no distance.
        let anywhere = ports("dgx", &(0..8).map(|i| hca(&format!("mlx5_{i}"), 200, 0)).collect::<Vec<_>>());
        assert_eq!(devices(&vec![anywhere; 8]), names([0, 1, 2, 3, 4, 5, 6, 7]));
    }

    /// mlx5_0 is an Ethernet function of 50 Gb/s, and mlx5_1 InfiniBand of 200 Gb/s: all ranks have both networks.
    #[test]
    fn faster_network_is_taken_though_another_is_first_by_name() {
        let rank = |i: u8| {
            let mut all = [of(50, 0, v2("mlx5_0", &format!("10.0.0.{i}/24"))), hca(&format!("mlx5_{i}"), 200, 0)];
            all.sort_by_key(|c| c.merit.order(c.kind != InfiniBand));
            ports(&i.to_string(), &all)
        };
        let choice = choose(&[rank(1), rank(2), rank(3)]).unwrap();
        assert_eq!(choice.picks, [0, 0, 0]);
        assert!(choice.description.contains("InfiniBand"), "{}", choice.description);
        // A rank whose InfiniBand port is slow makes that network slow.
        let slow = ports("4", &[of(50, 0, v2("a", "10.0.0.4/24")), hca("mlx5_9", 10, 0)]);
        let choice = choose(&[rank(1), slow]).unwrap();
        assert!(choice.description.contains("RoCE v2, 10.0.0.0/24"), "{}", choice.description);
    }

    /// Both ports of one card in one subnet; and a bond, which is one device.
    #[test]
    fn ports_of_one_card_are_taken_in_turn_and_a_bond_is_one() {
        let card = ports("m", &[hca("mlx5_0", 100, 10), Candidate { port: 2, ..hca("mlx5_1", 100, 10) }]);
        assert_eq!(picks(&vec![card; 4]), [0, 1, 0, 1]);
        let bond = ports("m", &[of(200, 10, v2("mlx5_bond_0", "10.0.0.1/24"))]);
        assert_eq!(picks(&vec![bond; 3]), [0, 0, 0]);
        // A slower port in the same subnet is not used.
        let mixed = ports("m", &[hca("mlx5_0", 200, 10), hca("mlx5_1", 100, 10)]);
        assert_eq!(picks(&vec![mixed; 3]), [0, 0, 0]);
    }

    #[test]
    fn bridges_with_one_address_everywhere_are_passed_over() {
        let rank = |i: u8| {
            let hca = format!("10.9.0.{i}/24");
            ports(&i.to_string(), &[v2("docker", "172.17.0.1/16"), v2("mlx5_0", &hca)])
        };
        assert_eq!(picks(&[rank(1), rank(2), rank(3)]), [1, 1, 1]);
    }

    #[test]
    fn routes_connect_who_has_not_the_network_of_most() {
        let routed = |device, address| candidate(device, RoceV2, address, &["10.0.0.0/8"]);
        let ranks = [
            ports("1", &[v2("x", "192.0.2.1/24"), routed("y", "10.3.0.1/24")]),
            ports("2", &[routed("a", "10.1.0.1/24"), routed("b", "10.2.0.1/24")]),
            ports("3", &[routed("a", "10.4.0.2/24"), routed("b", "10.2.0.2/24")]),
        ];
        let choice = choose(&ranks).unwrap();
        assert_eq!(choice.picks, [1, 1, 1]);
        assert_eq!(choice.description, "2 of 3 ranks have RoCE v2, 10.2.0.0/24, and the others have routes to it");
    }

    #[test]
    fn kinds_and_scopes_have_their_order() {
        let all = |i: u8| {
            let at = |net: &str| format!("{net}{i}");
            ports(
                &i.to_string(),
                &[
                    v2("a", &at("fe80::")),
                    candidate("b", RoceV1, &format!("10.0.0.{i}/24"), &[]),
                    v2("c", &format!("10.0.1.{i}/24")),
                    candidate("d", InfiniBand, &format!("fe80::{i}/64"), &[]),
                ],
            )
        };
        let mut ranks = [all(1), all(2)];
        for left in [[2, 2], [2, 2], [1, 1], [0, 0]] {
            assert_eq!(picks(&ranks), left, "{ranks:?}");
            ranks.iter_mut().for_each(|o| drop(o.candidates.remove(usize::from(left[0]))));
        }
        let looped = |m| ports(m, &[v2("lo", "127.0.0.1/8"), v2("r", &format!("10.{m}.0.1/24"))]);
        assert_eq!(picks(&[looped("1"), looped("1")]), [1, 1], "an HCA before the loopback interface");
        assert!(choose(&[looped("1"), looped("2")]).is_err());
        let only = |m| ports(m, &[v2("lo", "127.0.0.1/8")]);
        assert_eq!(picks(&[only("1"), only("1")]), [0, 0]);
        assert!(choose(&[only("1"), only("2")]).is_err());
    }

    #[test]
    fn refusal_names_ranks_what_they_have_and_why_one_has_nothing() {
        let ranks = [
            ports("1", &[v2("a", "10.1.0.1/24")]),
            ports("2", &[v2("a", "10.1.0.2/24")]),
            ports("3", &[v2("b", "10.2.0.1/24"), candidate("c", InfiniBand, "fe80::1/64", &[])]),
        ];
        let text = choose(&ranks).unwrap_err();
        assert!(text.contains("most, 2 of 3, have RoCE v2, 10.1.0.0/24"), "{text}");
        assert!(text.contains("rank 0 on `host-1` has a port 1 (RoCE v2, 10.1.0.0/24)"), "{text}");
        assert!(!text.contains("rank 1"), "{text}");
        let third = "rank 2 on `host-3` has b port 1 (RoCE v2, 10.2.0.0/24), c port 1 (InfiniBand, fe80::/64)";
        assert!(text.contains(third), "{text}");
        let nothing = PortsOfRank { lacks: "r0: port 1 is not active".into(), ..ports("4", &[]) };
        let text = choose(&[ranks[0].clone(), nothing]).unwrap_err();
        assert!(text.contains("rank 1 on `host-4` has none: r0: port 1 is not active"), "{text}");
        let many: Vec<PortsOfRank> =
            (0..100).map(|i| ports(&i.to_string(), &[v2("a", &format!("10.{i}.0.1/24"))])).collect();
        let text = choose(&many).unwrap_err();
        assert!(text.contains("and 92 more ranks") && text.len() < 1000, "{text}");
    }

    #[test]
    fn names_are_trusted_last() {
        let named = |m: &str, all: &[Candidate]| PortsOfRank { entries: 1, ..ports(m, all) };
        let far = [named("1", &[v2("a", "10.1.0.1/24")]), named("2", &[v2("a", "10.2.0.1/24")])];
        let choice = choose(&far).unwrap();
        assert!(choice.trusted && choice.description.contains("FARSIDE_VERBS_DEVICE"), "{choice:?}");
        let near = |m: &str, i: u8| named(m, &[v2("a", &format!("10.{i}.0.1/24")), v2("a", &format!("10.9.0.{i}/24"))]);
        assert_eq!(choose(&[near("1", 1), near("2", 2)]).unwrap().picks, [1, 1]);
        assert!(!choose(&[near("1", 1), near("2", 2)]).unwrap().trusted);
        let ib = named("3", &[candidate("m", InfiniBand, "fe80::1/64", &[])]);
        assert!(choose(&[far[0].clone(), ib]).is_err());
    }

    /// Four adapters, each in a subnet of its own, and six ranks a machine: the fifth of each machine takes the first entry.
    #[test]
    fn ranks_of_each_machine_take_the_entries_of_the_setting_in_turn() {
        let rank = |m: u8| {
            let at = |entry: u8| Candidate { entry, ..v2(&format!("mlx5_{entry}"), &format!("10.{entry}.0.{m}/24")) };
            // The order of the candidates is not that of the entries.
            PortsOfRank { entries: 4, ..ports(&m.to_string(), &[3, 1, 0, 2].map(at)) }
        };
        let entries = |ranks: &[PortsOfRank]| -> Vec<u8> {
            let taken = |(rank, pick): (&PortsOfRank, u8)| rank.candidates[usize::from(pick)].entry;
            ranks.iter().zip(picks(ranks)).map(taken).collect()
        };
        let ranks: Vec<PortsOfRank> = [1; 6].into_iter().chain([2; 6]).map(rank).collect();
        assert_eq!(entries(&ranks), [0, 1, 2, 3, 0, 1, 0, 1, 2, 3, 0, 1]);
        assert!(choose(&ranks).unwrap().trusted);
        // Placed in turn, too.
        let ranks: Vec<PortsOfRank> = [1, 2].repeat(4).into_iter().map(rank).collect();
        assert_eq!(entries(&ranks), [0, 0, 1, 1, 2, 2, 3, 3]);
        // A rank whose entry names nothing says so.
        let mut few = vec![rank(1), rank(1)];
        few[1].candidates.retain(|c| c.entry != 1);
        let text = choose(&few).unwrap_err();
        assert!(text.contains("rank 1 on `host-1` has none: entry 2 of FARSIDE_VERBS_DEVICE"), "{text}");
    }

    /// Whether ranks on machines a and b with these candidates reach each other.
    fn meet(a: Candidate, b: Candidate) -> bool {
        let (x, y) = (ports("a", std::slice::from_ref(&a)), ports("b", std::slice::from_ref(&b)));
        let there = reach((&x, &a), (&y, &b), false);
        assert_eq!(there, reach((&y, &b), (&x, &a), false), "{a} and {b}");
        there
    }

    #[test]
    fn subnets_routes_and_kinds_decide() {
        let v2 = |address, routes: &[&str]| candidate("r", RoceV2, address, routes);
        assert!(meet(v2("10.0.0.1/24", &[]), v2("10.0.0.2/24", &[])));
        assert!(!meet(v2("10.0.0.1/24", &[]), v2("10.0.1.2/24", &[])), "other subnets, no routes");
        assert!(!meet(v2("10.0.0.1/24", &["0.0.0.0/0"]), v2("10.0.1.2/24", &[])), "no way back");
        assert!(meet(v2("10.0.0.1/24", &["0.0.0.0/0"]), v2("10.0.1.2/24", &["10.0.0.0/16"])));
        assert!(meet(v2("10.0.0.1/24", &[]), v2("10.0.0.2/16", &[])), "masks that differ and cover both");
        assert!(!meet(v2("10.0.0.1/24", &[]), candidate("r", RoceV1, "10.0.0.2/24", &[])));
        assert!(!meet(v2("2001:db8::1/64", &["::/0"]), v2("10.0.0.2/24", &["0.0.0.0/0"])), "two families");
        assert!(meet(v2("2001:db8::1/64", &[]), v2("2001:db8::2/64", &[])));
        assert!(meet(v2("10.0.0.1", &[]), v2("10.0.1.2/24", &["0.0.0.0/0"])), "unknown: the benefit of the doubt");
        let ib = |address| candidate("m", InfiniBand, address, &[]);
        assert!(meet(ib("fe80::1/64"), ib("fe80::2/64")), "the default prefix of subnets");
        assert!(!meet(ib("fe80::1/64"), ib("fec0::2/64")));
        assert!(!meet(ib("fe80::1/64"), v2("fe80::2/64", &[])));
    }

    #[test]
    fn addresses_of_the_link_and_of_the_machine_stay_there() {
        let v2 = |address| candidate("r", RoceV2, address, &["::/0", "0.0.0.0/0"]);
        assert!(meet(v2("fe80::1/64"), v2("fe80::2/64")) && v2("fe80::1/64").is_guess());
        assert!(!meet(v2("fe80::1/64"), v2("2001:db8::2/64")));
        assert!(!meet(v2("169.254.0.1/16"), v2("10.0.0.1/24")));
        assert!(!meet(v2("127.0.0.1/8"), v2("127.0.0.1/8")) && !meet(v2("::1/128"), v2("::1/128")));
        assert!(!meet(v2("127.0.0.1/8"), v2("10.0.0.1/24")));
        let (a, l) = (ports("a", &[]), v2("127.0.0.1/8"));
        assert!(reach((&a, &l), (&a, &l), false), "ranks of one machine");
        let other = PortsOfRank { namespace: "another".into(), ..a.clone() };
        assert!(!reach((&a, &l), (&other, &l), true), "whatever is named");
    }

    #[test]
    fn address_of_two_machines_reaches_neither() {
        let bridge = candidate("r", RoceV2, "172.17.0.1/16", &[]);
        assert!(!meet(bridge.clone(), bridge.clone()));
        let a = ports("a", &[]);
        assert!(reach((&a, &bridge), (&a, &bridge), false), "one port, used by two ranks");
        let ib = candidate("m", InfiniBand, "fe80::1/64", &[]);
        assert!(meet(ib.clone(), ib), "no two ports of InfiniBand have one");
    }

    #[test]
    fn names_are_trusted_where_both_sides_have_them_and_only_for_what_can_be() {
        let v2 = |address| candidate("r", RoceV2, address, &[]);
        let (a, b) = (ports("a", &[]), ports("b", &[]));
        let (x, y) = (PortsOfRank { entries: 1, ..a }, PortsOfRank { entries: 1, ..b.clone() });
        let (p, q) = (v2("10.0.0.1/24"), v2("10.0.1.1/24"));
        assert!(!reach((&x, &p), (&y, &q), false));
        assert!(reach((&x, &p), (&y, &q), true));
        assert!(!reach((&x, &p), (&b, &q), true));
        assert!(!reach((&x, &p), (&y, &v2("2001:db8::1/64")), true));
    }

    /// Few distinct addresses and routes, so that candidates often reach each other.
    fn small_candidate(routes: bool) -> impl Strategy<Value = Candidate> {
        let kind = prop_oneof![4 => Just(RoceV2), 1 => Just(RoceV1), 1 => Just(InfiniBand)];
        let routed = if routes { 0..3usize } else { 0..1 };
        (kind, 0..3u8, 1..6u8, any::<bool>(), routed).prop_map(|(kind, net, host, known, routes)| {
            let routes = &["10.0.0.0/15", "10.2.0.0/16"][..routes];
            match kind {
                InfiniBand => candidate("m", kind, &format!("fec{net}::{host}/64"), &[]),
                _ if known => candidate("r", kind, &format!("10.{net}.0.{host}/16"), routes),
                _ => candidate("r", kind, &format!("2001:db8:{net}::{host}/48"), &[]),
            }
        })
    }

    fn small_offers(routes: bool) -> impl Strategy<Value = Vec<PortsOfRank>> {
        let candidates = prop::collection::vec(small_candidate(routes), 0..4);
        let rank = ("[mno]", any::<bool>(), candidates);
        let rank = rank.prop_map(|(m, named, all)| PortsOfRank { entries: u8::from(named), ..ports(&m, &all) });
        prop::collection::vec(rank, 1..5)
    }

    fn all_reach(offers: &[PortsOfRank], picks: &[u8], trust: bool) -> bool {
        let chosen: Vec<_> = offers.iter().zip(picks).map(|(o, p)| (o, &o.candidates[usize::from(*p)])).collect();
        chosen.iter().all(|a| chosen.iter().all(|b| reach(*a, *b, trust)))
    }

    /// All combinations of one candidate for each rank.
    fn every(offers: &[PortsOfRank]) -> Vec<Vec<u8>> {
        offers.iter().fold(vec![Vec::new()], |before, o| {
            let with = |b: &Vec<u8>| (0..o.candidates.len() as u8).map(|p| [&b[..], &[p]].concat()).collect::<Vec<_>>();
            before.iter().flat_map(with).collect()
        })
    }

    proptest! {
        #[test]
        fn reachability_is_symmetric(a in any_candidate(), b in any_candidate()) {
            meet(a, b);
        }

        #[test]
        fn what_is_chosen_reaches_each_other(offers in small_offers(true)) {
            if let Ok(choice) = choose(&offers) {
                prop_assert!(all_reach(&offers, &choice.picks, choice.trusted), "{choice:?}");
                prop_assert!(!choice.trusted || !offers.iter().all(|o| o.entries == 0));
            }
            prop_assert_eq!(choose(&offers), choose(&offers));
        }

        /// A network common to all ranks is always found, and ranks that can be connected are never refused.
        #[test]
        fn without_routes_whatever_is_possible_is_found(offers in small_offers(false)) {
            let offers: Vec<PortsOfRank> = offers.into_iter().map(|o| PortsOfRank { entries: 0, ..o }).collect();
            // All ranks are on one machine, so addresses do not collide: which of two colliding addresses is dropped is
            // not tested.
            let offers: Vec<PortsOfRank> = offers.into_iter().map(|o| PortsOfRank { machine: "m".into(), ..o }).collect();
            let possible = every(&offers).iter().any(|picks| all_reach(&offers, picks, false));
            prop_assert_eq!(choose(&offers).is_ok(), possible);
        }
    }
}
