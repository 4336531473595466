//! Which port each rank takes: a pure function of what all ranks offer, so that both ends of every pair agree.
//!
//! The network that most ranks have comes first, and each of them takes its first candidate there; the others take
//! their first candidate that all reach by routes. Of networks with as many ranks RoCE v2 is before v1, and then the
//! one that the lowest rank has first, so for ranks that have the same the first by name. Subnets that are known come
//! before the loopback interface, and that before guesses. Every pair of what is chosen reaches each other; it is not
//! tried whether the ranks that depend on routes could have taken another mixture. If nothing connects all ranks by
//! its addresses, ports that the settings name are taken at their word.

use std::cmp::Reverse;
use std::fmt::Write;

use rustc_hash::FxHashMap;

use super::netdev::{Prefix, is_ipv4};
use super::reach::{Candidate, GidKind, Offer, Scope, reach};
use super::sys::Gid;

/// Networks that are tried, and ranks and candidates of a rank that an error names.
const TRIES: usize = 64;
const RANKS_TOLD: usize = 8;
const CANDIDATES_TOLD: usize = 4;

/// What was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Agreement {
    /// Of each rank the index of its candidate.
    pub(super) picks: Vec<u8>,
    /// How they reach each other, for people.
    pub(super) how: String,
    /// They do so by the word of the settings only.
    pub(super) trusted: bool,
}

/// What candidates have in common that reach each other without a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Network<'a> {
    kind: GidKind,
    scope: Scope,
    ipv4: bool,
    /// `None` if it is not known, or not what decides.
    subnet: Option<Prefix>,
    /// The machine, for its loopback interface.
    machine: Option<(&'a [u8], &'a [u8])>,
}

impl<'a> Network<'a> {
    fn of(offer: &'a Offer, c: &Candidate) -> Self {
        let (kind, scope, ipv4) = (c.kind, c.scope(), is_ipv4(&c.gid));
        let machine = (scope == Scope::Machine).then_some((&offer.machine[..], &offer.space[..]));
        Self { kind, scope, ipv4, subnet: c.subnet.filter(|_| scope == Scope::Network), machine }
    }
}

/// How many ranks have a network, and where it was seen first: rank and position there.
#[derive(Clone, Copy, Debug)]
struct Seen {
    ranks: usize,
    last: usize,
    first: (usize, usize),
}

/// All networks, best first.
fn networks(offers: &[Offer]) -> Vec<(Network<'_>, Seen)> {
    let mut found = FxHashMap::default();
    for (rank, offer) in offers.iter().enumerate() {
        for (position, c) in offer.candidates.iter().enumerate() {
            let new = Seen { ranks: 1, last: rank, first: (rank, position) };
            let seen = found.entry(Network::of(offer, c)).or_insert(new);
            if seen.last != rank {
                (seen.ranks, seen.last) = (seen.ranks + 1, rank);
            }
        }
    }
    let mut all: Vec<(Network<'_>, Seen)> = found.into_iter().collect();
    all.sort_unstable_by_key(|(network, seen)| {
        let (rank, position) = seen.first;
        let guess = offers[rank].candidates[position].is_guess();
        (guess, network.scope, Reverse(seen.ranks), network.kind == GidKind::RoceV1, seen.first)
    });
    all
}

/// A candidate of each rank such that all reach each other, those of `network` first.
fn grow(offers: &[Offer], network: &Network<'_>, trust: bool) -> Option<Vec<u8>> {
    let mut picks = vec![None; offers.len()];
    // In the network everyone reaches everyone, unless two machines have one address.
    let mut inside: FxHashMap<&Gid, usize> = FxHashMap::default();
    for (rank, offer) in offers.iter().enumerate() {
        picks[rank] = offer.candidates.iter().position(|c| {
            let first = || *inside.get(&c.gid).unwrap_or(&rank);
            Network::of(offer, c) == *network && reach((offer, c), (&offers[first()], c), trust)
        });
        if let Some(pick) = picks[rank] {
            inside.entry(&offer.candidates[pick].gid).or_insert(rank);
        }
    }
    for (rank, offer) in offers.iter().enumerate() {
        if picks[rank].is_none() {
            let pick = offer.candidates.iter().position(|c| {
                let mut chosen = offers.iter().zip(&picks).filter_map(|(o, p)| Some((o, &o.candidates[(*p)?])));
                chosen.all(|other| reach((offer, c), other, trust))
            });
            picks[rank] = Some(pick?);
        }
    }
    picks.into_iter().map(|p| p.and_then(|p| u8::try_from(p).ok())).collect()
}

/// Chooses.
///
/// # Errors
/// Who has what, if no port of each rank reaches those of all others.
pub(super) fn choose(offers: &[Offer]) -> Result<Agreement, String> {
    let networks = networks(offers);
    if offers.iter().all(|o| !o.candidates.is_empty()) {
        for trusted in [false, true] {
            for (network, seen) in networks.iter().take(TRIES) {
                if let Some(picks) = grow(offers, network, trusted) {
                    let how = how(offers, network, seen, &picks, trusted);
                    return Ok(Agreement { picks, how, trusted });
                }
            }
            if !offers.iter().any(|o| o.named) {
                break;
            }
        }
    }
    Err(refusal(offers, networks.first()))
}

fn how(offers: &[Offer], network: &Network<'_>, seen: &Seen, picks: &[u8], trusted: bool) -> String {
    let name = offers[seen.first.0].candidates[seen.first.1].network();
    let taken = |(o, p): (&Offer, &u8)| Network::of(o, &o.candidates[usize::from(*p)]) == *network;
    let within = offers.iter().zip(picks).filter(|pair| taken(*pair)).count();
    match (trusted, within == offers.len()) {
        (true, _) => {
            "as FARSIDE_VERBS_DEVICE names it: the addresses of the ranks do not tell that they reach each other"
                .to_owned()
        }
        (_, true) if offers.len() == 1 => format!("the job's only rank, {name}"),
        (_, true) => format!("all {} ranks have {name}", offers.len()),
        _ => format!("{within} of {} ranks have {name}, and the others routes", offers.len()),
    }
}

/// Names ranks that lack what most have, one that has it, and what each has.
fn refusal(offers: &[Offer], best: Option<&(Network<'_>, Seen)>) -> String {
    let (mut lines, mut more) = (Vec::new(), 0);
    let has = |o: &Offer| best.is_some_and(|(n, _)| o.candidates.iter().any(|c| Network::of(o, c) == *n));
    let first = best.map(|(_, seen)| seen.first.0);
    let all_have = best.is_some_and(|(_, seen)| seen.ranks == offers.len());
    for (rank, offer) in offers.iter().enumerate().filter(|(rank, o)| all_have || Some(*rank) == first || !has(o)) {
        if lines.len() == RANKS_TOLD {
            more += 1;
            continue;
        }
        let all = &offer.candidates;
        let mut told: Vec<String> = all.iter().take(CANDIDATES_TOLD).map(Candidate::to_string).collect();
        if all.len() > CANDIDATES_TOLD {
            told.push(format!("{} more", all.len() - CANDIDATES_TOLD));
        }
        let has = if all.is_empty() { format!("none: {}", offer.lacks) } else { told.join(", ") };
        lines.push(format!("rank {rank} on `{}` has {has}", offer.host));
    }
    let mut text = "no port of each rank reaches those of all others by its subnet or routes".to_owned();
    if let Some((_, seen)) = best.filter(|(_, seen)| seen.ranks > 1) {
        let name = offers[seen.first.0].candidates[seen.first.1].network();
        let _ = match all_have {
            true => write!(text, "; all have {name}, but several machines one address"),
            false => write!(text, "; most, {} of {}, have {name}", seen.ranks, offers.len()),
        };
    }
    let _ = write!(text, ": {}", lines.join("; "));
    if more > 0 {
        let _ = write!(text, "; and {more} more ranks");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::reach::tests::{candidate, offer};
    use super::*;
    use GidKind::*;
    use proptest::prelude::*;

    fn v2(device: &str, address: &str) -> Candidate {
        candidate(device, RoceV2, address, &[])
    }

    fn picks(offers: &[Offer]) -> Vec<u8> {
        choose(offers).unwrap().picks
    }

    #[test]
    fn network_of_all_is_taken_though_each_has_another_first() {
        let ranks: Vec<Offer> = (1..=3)
            .map(|i| offer(&format!("{i}"), &[v2("a", &format!("10.{i}.0.1/24")), v2("b", &format!("10.9.0.{i}/24"))]))
            .collect();
        let choice = choose(&ranks).unwrap();
        assert_eq!((choice.picks, choice.trusted), (vec![1, 1, 1], false));
        assert_eq!(choice.how, "all 3 ranks have RoCE v2, 10.9.0.0/24");
        assert_eq!(picks(&ranks[..1]), [0], "alone: the first");
        // By device name, not by place: two that are common to all.
        let both = |i: u8| {
            let on = |net: u8| format!("10.{net}.0.{i}/24");
            offer(&i.to_string(), &[v2("a", &on(2)), v2("b", &on(1))])
        };
        assert_eq!(picks(&[both(1), both(2)]), [0, 0]);
    }

    #[test]
    fn ranks_with_more_ports_in_one_network_and_of_one_machine_share_the_first() {
        let both = |m| offer(m, &[v2("r0", "10.9.0.1/24"), v2("r1", "10.9.0.2/24")]);
        assert_eq!(picks(&[both("m"), both("m"), both("m")]), [0, 0, 0]);
        // Where two machines see the same devices, one address cannot be both.
        assert_eq!(picks(&[both("m"), both("n"), both("m")]), [0, 1, 0]);
        let text = choose(&[both("m"), both("n"), both("o")]).unwrap_err();
        assert!(text.contains("all have RoCE v2, 10.9.0.0/24, but several machines one address: rank 0"), "{text}");
        assert!(text.contains("rank 2 on `host-o` has r0 port 1"), "{text}");
    }

    #[test]
    fn bridges_with_one_address_everywhere_are_passed_over() {
        let rank = |i: u8| {
            let card = format!("10.9.0.{i}/24");
            offer(&i.to_string(), &[v2("docker", "172.17.0.1/16"), v2("mlx5_0", &card)])
        };
        assert_eq!(picks(&[rank(1), rank(2), rank(3)]), [1, 1, 1]);
    }

    #[test]
    fn routes_connect_who_has_not_the_network_of_most() {
        let routed = |device, address| candidate(device, RoceV2, address, &["10.0.0.0/8"]);
        let ranks = [
            offer("1", &[v2("x", "192.0.2.1/24"), routed("y", "10.3.0.1/24")]),
            offer("2", &[routed("a", "10.1.0.1/24"), routed("b", "10.2.0.1/24")]),
            offer("3", &[routed("a", "10.4.0.2/24"), routed("b", "10.2.0.2/24")]),
        ];
        let choice = choose(&ranks).unwrap();
        assert_eq!(choice.picks, [1, 1, 1]);
        assert_eq!(choice.how, "2 of 3 ranks have RoCE v2, 10.2.0.0/24, and the others routes");
    }

    #[test]
    fn kinds_and_scopes_have_their_order() {
        let all = |i: u8| {
            let at = |net: &str| format!("{net}{i}");
            offer(
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
        let looped = |m| offer(m, &[v2("lo", "127.0.0.1/8"), v2("r", &format!("10.{m}.0.1/24"))]);
        assert_eq!(picks(&[looped("1"), looped("1")]), [1, 1], "a card before the loopback interface");
        assert!(choose(&[looped("1"), looped("2")]).is_err());
        let only = |m| offer(m, &[v2("lo", "127.0.0.1/8")]);
        assert_eq!(picks(&[only("1"), only("1")]), [0, 0]);
        assert!(choose(&[only("1"), only("2")]).is_err());
    }

    #[test]
    fn refusal_names_ranks_what_they_have_and_why_one_has_nothing() {
        let ranks = [
            offer("1", &[v2("a", "10.1.0.1/24")]),
            offer("2", &[v2("a", "10.1.0.2/24")]),
            offer("3", &[v2("b", "10.2.0.1/24"), candidate("c", InfiniBand, "fe80::1/64", &[])]),
        ];
        let text = choose(&ranks).unwrap_err();
        assert!(text.contains("most, 2 of 3, have RoCE v2, 10.1.0.0/24"), "{text}");
        assert!(text.contains("rank 0 on `host-1` has a port 1 (RoCE v2, 10.1.0.0/24)"), "{text}");
        assert!(!text.contains("rank 1"), "{text}");
        let third = "rank 2 on `host-3` has b port 1 (RoCE v2, 10.2.0.0/24), c port 1 (InfiniBand, fe80::/64)";
        assert!(text.contains(third), "{text}");
        let nothing = Offer { lacks: "r0: port 1 is not active".into(), ..offer("4", &[]) };
        let text = choose(&[ranks[0].clone(), nothing]).unwrap_err();
        assert!(text.contains("rank 1 on `host-4` has none: r0: port 1 is not active"), "{text}");
        let many: Vec<Offer> = (0..100).map(|i| offer(&i.to_string(), &[v2("a", &format!("10.{i}.0.1/24"))])).collect();
        let text = choose(&many).unwrap_err();
        assert!(text.contains("and 92 more ranks") && text.len() < 1000, "{text}");
    }

    #[test]
    fn names_are_trusted_last() {
        let named = |m: &str, all: &[Candidate]| Offer { named: true, ..offer(m, all) };
        let far = [named("1", &[v2("a", "10.1.0.1/24")]), named("2", &[v2("a", "10.2.0.1/24")])];
        let choice = choose(&far).unwrap();
        assert!(choice.trusted && choice.how.contains("FARSIDE_VERBS_DEVICE"), "{choice:?}");
        let near = |m: &str, i: u8| named(m, &[v2("a", &format!("10.{i}.0.1/24")), v2("a", &format!("10.9.0.{i}/24"))]);
        assert_eq!(choose(&[near("1", 1), near("2", 2)]).unwrap().picks, [1, 1]);
        assert!(!choose(&[near("1", 1), near("2", 2)]).unwrap().trusted);
        let ib = named("3", &[candidate("m", InfiniBand, "fe80::1/64", &[])]);
        assert!(choose(&[far[0].clone(), ib]).is_err());
    }

    /// Few addresses and routes, so that they meet.
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

    fn small_offers(routes: bool) -> impl Strategy<Value = Vec<Offer>> {
        let candidates = prop::collection::vec(small_candidate(routes), 0..4);
        let rank = ("[mno]", any::<bool>(), candidates);
        prop::collection::vec(rank.prop_map(|(m, named, all)| Offer { named, ..offer(&m, &all) }), 1..5)
    }

    fn all_reach(offers: &[Offer], picks: &[u8], trust: bool) -> bool {
        let chosen: Vec<_> = offers.iter().zip(picks).map(|(o, p)| (o, &o.candidates[usize::from(*p)])).collect();
        chosen.iter().all(|a| chosen.iter().all(|b| reach(*a, *b, trust)))
    }

    /// Every choice of a candidate for each rank.
    fn every(offers: &[Offer]) -> Vec<Vec<u8>> {
        offers.iter().fold(vec![Vec::new()], |before, o| {
            let with = |b: &Vec<u8>| (0..o.candidates.len() as u8).map(|p| [&b[..], &[p]].concat()).collect::<Vec<_>>();
            before.iter().flat_map(with).collect()
        })
    }

    proptest! {
        #[test]
        fn what_is_chosen_reaches_each_other(offers in small_offers(true)) {
            if let Ok(choice) = choose(&offers) {
                prop_assert!(all_reach(&offers, &choice.picks, choice.trusted), "{choice:?}");
                prop_assert!(!choice.trusted || !offers.iter().all(|o| !o.named));
            }
            prop_assert_eq!(choose(&offers), choose(&offers));
        }

        /// Of a network that all ranks have none is missed, and nobody is refused who could be connected.
        #[test]
        fn without_routes_whatever_is_possible_is_found(offers in small_offers(false)) {
            let offers: Vec<Offer> = offers.into_iter().map(|o| Offer { named: false, ..o }).collect();
            // Addresses are one machine's each here: which of two that collide yields is not searched for.
            let offers: Vec<Offer> = offers.into_iter().map(|o| Offer { machine: b"m".to_vec(), ..o }).collect();
            let possible = every(&offers).iter().any(|picks| all_reach(&offers, picks, false));
            prop_assert_eq!(choose(&offers).is_ok(), possible);
        }
    }
}
