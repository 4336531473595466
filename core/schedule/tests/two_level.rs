//! Collectives in two levels: their results on nodes of any sizes and orders, and their messages between nodes.

use farside_schedule::operation::{Algorithm, Call, Operation};
use farside_schedule::schedule::Action;
use farside_schedule::selection::Choice;
use farside_schedule::table;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::algorithms::check_one;

/// The algorithms in two levels.
fn algorithms() -> impl Iterator<Item = &'static Algorithm> {
    Operation::ALL.into_iter().flat_map(table::of).filter(|a| a.name.starts_with("two-level"))
}

/// All values of the parameters.
fn parameters(a: &Algorithm) -> Vec<Vec<u32>> {
    let [intra, inter] = a.parameters else { panic!("{} has {} parameters", a.name, a.parameters.len()) };
    (0..=intra.most).flat_map(|intra| (0..=inter.most).map(move |inter| vec![intra, inter])).collect()
}

/// Nodes, numbered in the order of their lowest ranks.
fn numbered(of: &[u32]) -> Vec<u32> {
    let mut known = Vec::new();
    let number = |node: &u32| {
        let at = known.iter().position(|other| other == node);
        at.unwrap_or_else(|| {
            known.push(*node);
            known.len() - 1
        }) as u32
    };
    of.iter().map(number).collect()
}

/// Consecutive ranks of each node, and ranks in turn.
fn regular(nodes: u32, each: u32) -> [Vec<u32>; 2] {
    let p = nodes * each;
    [(0..p).map(|rank| rank / each).collect(), (0..p).map(|rank| rank % nodes).collect()]
}

/// Ranks on nodes of random sizes, in ascending or random order.
fn random(p: u32, random: &mut Xoshiro256PlusPlus) -> Vec<u32> {
    let most = random.random_range(1..=p);
    let mut nodes: Vec<u32> = (0..p).map(|_| random.random_range(0..most)).collect();
    if random.random_bool(0.5) {
        nodes.sort_unstable();
    }
    numbered(&nodes)
}

#[test]
fn results_on_nodes_of_any_sizes_and_orders() {
    let mut generator = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut layouts: Vec<Vec<u32>> =
        (3..=12).flat_map(|p| (0..2).map(move |_| p)).map(|p| random(p, &mut generator)).collect();
    layouts.extend((13..=33).step_by(5).map(|p| random(p, &mut generator)));
    layouts.extend([(2, 2), (2, 4), (4, 2), (3, 5), (8, 4)].into_iter().flat_map(|(nodes, each)| regular(nodes, each)));
    for a in algorithms() {
        let mut checked = 0;
        for nodes in &layouts {
            for values in parameters(a) {
                checked += check_one(a, nodes.len() as u32, &values, nodes);
            }
        }
        assert!(checked > 100, "{} {}: {checked} calls", a.operation.name(), a.name);
    }
}

/// The algorithms are for several nodes of which one has several ranks; those that keep the order of the ranks also
/// need consecutive ranks.
#[test]
fn layouts_without_two_levels_are_refused() {
    for a in algorithms() {
        let applies = |nodes: &[u32]| {
            (a.applies)(&Call { parameters: &a.defaults(), nodes, elements: 8, ..Call::new(a.operation, 0, 4) })
        };
        assert!(!applies(&[]) && !applies(&[0, 1, 2, 3]) && !applies(&[0, 0, 0, 0]), "{}", a.operation.name());
        assert!(applies(&[0, 0, 1, 1]) && applies(&[0, 1, 1, 1]), "{}", a.operation.name());
        let any_order = a.commutative || !a.operation.is_reduction();
        assert_eq!(applies(&[0, 1, 0, 1]), any_order, "{} {}", a.operation.name(), a.name);
    }
}

/// The rank with which a step exchanges a message.
fn peer(action: Action) -> Option<u32> {
    match action {
        Action::Send { to, .. } | Action::Signal { to, .. } => Some(to),
        Action::Receive { source, .. } | Action::ReceiveReduce { source, .. } | Action::Await { source, .. } => {
            Some(source)
        }
        _ => None,
    }
}

/// Only leaders send between nodes: the lowest rank of each node, or the root on its node.
#[test]
fn only_leaders_send_between_nodes() {
    for nodes in regular(3, 4).into_iter().chain([numbered(&[5, 1, 1, 0, 5, 1, 2, 1])]) {
        let p = nodes.len() as u32;
        let node = |rank: u32| nodes[rank as usize];
        for a in algorithms().filter(|a| !a.operation.is_reduction() || a.commutative) {
            let root = if a.operation.is_rooted() { 3 } else { 0 };
            let is_leader = |rank: u32| match node(rank) == node(root) {
                true => rank == root,
                false => (0..rank).all(|other| node(other) != node(rank)),
            };
            for parameters in parameters(a) {
                let (parameters, nodes) = (&parameters[..], &nodes[..]);
                let call = |rank| Call { root, parameters, nodes, elements: 64, ..Call::new(a.operation, rank, p) };
                for rank in (0..p).filter(|rank| (a.applies)(&call(*rank))) {
                    let schedule = (a.build)(&call(rank));
                    let mut peers = schedule.steps().filter_map(|step| peer(step.action));
                    let sends = peers.any(|peer| node(peer) != node(rank));
                    assert_eq!(sends, is_leader(rank), "{} {parameters:?}, rank {rank}", a.operation.name());
                }
            }
        }
    }
}

#[test]
fn parts_are_named_in_the_text_of_a_choice() {
    for a in algorithms() {
        for parameters in parameters(a) {
            let text = Choice { algorithm: a, parameters: parameters.clone() }.to_string();
            assert_eq!(Choice::parse(a.operation, &text).unwrap().parameters, parameters, "{text}");
        }
    }
    let parse = |text: &str| Choice::parse(Operation::Allreduce, text).map(|choice| choice.to_string());
    assert_eq!(parse("two-level").unwrap(), "two-level(binomial,recursive-doubling)");
    assert_eq!(parse("two-level( flat )").unwrap(), "two-level(flat,recursive-doubling)");
    let wrong = parse("two-level(flat,butterflies)").unwrap_err();
    assert!(wrong.contains("inter is \"butterflies\", but allowed are recursive-doubling, linear"), "{wrong}");
    assert!(parse("two-level(1)").unwrap_err().contains("intra is \"1\", but allowed are binomial, flat"));
}
