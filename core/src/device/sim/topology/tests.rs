use std::collections::{HashMap, HashSet, VecDeque};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Node {
    /// A rank's interface.
    Rank(u32),
    /// A switch of a fat tree: level, subtree, plane.
    Switch(usize, u32, u32),
    /// A router of a dragonfly: group, router.
    Router(u32, u32),
}

/// The two ends of each directed link, in the order of their numbers.
fn model(topology: &Topology) -> Vec<(Node, Node)> {
    let mut links = Vec::new();
    match topology {
        Topology::Crossbar => {}
        Topology::FatTree { down, up } => {
            let (mut planes, mut lower_planes) = (1, 1);
            for level in 0..down.len() {
                for subtree in 0..down[level..].iter().product() {
                    for plane in 0..planes {
                        let lower = match level {
                            0 => Node::Rank(subtree),
                            _ => Node::Switch(level, subtree, plane % lower_planes),
                        };
                        let upper = Node::Switch(level + 1, subtree / down[level], plane);
                        links.extend([(lower, upper), (upper, lower)]);
                    }
                }
                (planes, lower_planes) = (planes * up[level], planes);
            }
        }
        &Topology::Dragonfly { groups, routers, ranks } => {
            for rank in 0..groups * routers * ranks {
                let router = Node::Router(rank / (routers * ranks), rank / ranks % routers);
                links.extend([(Node::Rank(rank), router), (router, Node::Rank(rank))]);
            }
            let others = |n: u32, own: u32| (0..n).filter(move |other| *other != own);
            for group in 0..groups {
                for from in 0..routers {
                    let ends = |to| (Node::Router(group, from), Node::Router(group, to));
                    links.extend(others(routers, from).map(ends));
                }
            }
            let mut ports = HashMap::new();
            for a in 0..groups {
                let in_turn = others(groups, a).zip((0..routers).cycle());
                ports.extend(in_turn.map(|(b, router)| ((a, b), Node::Router(a, router))));
            }
            let pairs = (0..groups).flat_map(|a| others(groups, a).map(move |b| (a, b)));
            links.extend(pairs.map(|(a, b)| (ports[&(a, b)], ports[&(b, a)])));
        }
        &Topology::Torus(size @ [x, y, z]) => {
            for dimension in 0..3 {
                let n = size[dimension];
                for node in 0..x * y * z {
                    for step in [1, n - 1].iter().take(n as usize - 1) {
                        let mut to = [node % x, node / x % y, node / x / y];
                        to[dimension] = (to[dimension] + step) % n;
                        links.push((Node::Rank(node), Node::Rank(to[0] + x * (to[1] + y * to[2]))));
                    }
                }
            }
        }
    }
    links
}

/// Distances from a node, by breadth-first search.
fn distances(links: &[(Node, Node)], from: Node) -> HashMap<Node, usize> {
    let mut next: HashMap<Node, Vec<Node>> = HashMap::new();
    for (from, to) in links {
        next.entry(*from).or_default().push(*to);
    }
    let (mut found, mut queue) = (HashMap::from([(from, 0)]), VecDeque::from([from]));
    while let Some(node) = queue.pop_front() {
        for to in next.get(&node).into_iter().flatten() {
            if !found.contains_key(to) {
                found.insert(*to, found[&node] + 1);
                queue.push_back(*to);
            }
        }
    }
    found
}

fn route(topology: &Topology, from: u32, to: u32) -> Vec<usize> {
    let mut links = Vec::new();
    topology.route(from, to, |link| links.push(link));
    links
}

/// The maximum number of messages on an uplink, and on a downlink, while each rank sends one to the rank that `to`
/// returns.
fn most_on_a_link(tree: &Topology, to: impl Fn(u32) -> u32) -> [usize; 2] {
    let mut loads = vec![0; tree.links()];
    for from in 0..tree.ranks().unwrap() {
        tree.route(from, to(from), |link| loads[link] += 1);
    }
    [0, 1].map(|parity| loads.iter().skip(parity).step_by(2).copied().max().unwrap())
}

fn fat_tree(down: &[u32], up: &[u32]) -> Topology {
    Topology::FatTree { down: down.to_vec(), up: up.to_vec() }
}

fn dragonfly(groups: u32, routers: u32, ranks: u32) -> Topology {
    Topology::Dragonfly { groups, routers, ranks }
}

fn topologies() -> impl Strategy<Value = Topology> {
    prop_oneof![
        prop::collection::vec((1..5u32, 1..5u32), 1..4).prop_map(|levels| {
            let (down, up) = levels.into_iter().unzip();
            Topology::FatTree { down, up }
        }),
        (1..8u32, 1..6u32, 1..4u32).prop_map(|(groups, routers, ranks)| dragonfly(groups, routers, ranks)),
        [1..7u32, 1..7, 1..7].prop_map(Topology::Torus),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 400 }, failure_persistence: None, ..ProptestConfig::default() })]

    /// A dragonfly's shortest path may pass a third group; minimal routing takes the shortest one through two groups.
    #[test]
    fn routes_are_shortest_paths(topology in topologies(), from: prop::sample::Index) {
        let (ends, ranks) = (model(&topology), topology.ranks().unwrap());
        topology.check(ranks).unwrap();
        prop_assert_eq!(topology.links(), ends.len());
        prop_assert_eq!(ends.iter().collect::<HashSet<_>>().len(), ends.len());
        let from = from.index(ranks as usize) as u32;
        let all = distances(&ends, Node::Rank(from));
        for to in 0..ranks {
            let links = route(&topology, from, to);
            prop_assert_eq!(links.iter().collect::<HashSet<_>>().len(), links.len());
            let mut at = Node::Rank(from);
            for link in &links {
                prop_assert!(*link < ends.len());
                prop_assert_eq!(ends[*link].0, at);
                at = ends[*link].1;
            }
            prop_assert_eq!(at, Node::Rank(to));
            let shortest = match &topology {
                Topology::Dragonfly { routers, ranks, .. } => {
                    let groups = [from, to].map(|rank| rank / (routers * ranks));
                    let is_used = |node: &Node| !matches!(node, Node::Router(group, _) if !groups.contains(group));
                    let used: Vec<_> = ends.iter().copied().filter(|(a, b)| is_used(a) && is_used(b)).collect();
                    distances(&used, Node::Rank(from))[&Node::Rank(to)]
                }
                _ => all[&Node::Rank(to)],
            };
            prop_assert_eq!(links.len(), shortest, "{} to {}", from, to);
        }
    }

    /// Each destination has a separate downlink in every stage, so downlinks have no contention for any
    /// permutation.
    #[test]
    fn fat_trees_without_oversubscription_carry_shifts_without_contention(
        down in prop::collection::vec(1..6u32, 1..4), shift: u32, seed: u64,
    ) {
        let tree = fat_tree(&down, &down);
        let ranks = tree.ranks().unwrap();
        prop_assert!(most_on_a_link(&tree, |rank| (rank + shift % ranks) % ranks).iter().all(|most| *most <= 1));
        let mut to: Vec<u32> = (0..ranks).collect();
        to.sort_by_key(|rank| u64::from(*rank + 1).wrapping_mul(seed | 1).rotate_left(29));
        prop_assert!(most_on_a_link(&tree, |rank| to[rank as usize])[1] <= 1);
    }

    #[test]
    fn text_is_read_back(topology in topologies()) {
        prop_assert_eq!(topology.to_string().parse::<Topology>().unwrap(), topology);
    }

    #[test]
    fn any_radices_are_checked(radices in prop::collection::vec(prop_oneof![0..40u32, any::<u32>()], 6), ranks: u32) {
        let torus = Topology::Torus([radices[0], radices[1], radices[2]]);
        let dragonfly = dragonfly(radices[0], radices[1], radices[2]);
        for topology in [torus, dragonfly, fat_tree(&radices[..3], &radices[3..])] {
            if topology.check(ranks).is_ok() {
                prop_assert!(topology.ranks().is_some_and(|room| ranks <= room && room <= 1 << 20));
                prop_assert!(topology.links() <= 1 << 24);
                let _ = route(&topology, 0, topology.ranks().unwrap() - 1);
            }
        }
    }
}

#[test]
fn switches_of_a_fat_tree_have_their_radices() {
    let (down, up) = ([3, 2, 4], [2, 5, 7]);
    let tree = fat_tree(&down, &up);
    let level = |node| if let Node::Switch(level, ..) = node { level } else { 0 };
    let mut degrees: HashMap<Node, [u32; 2]> = HashMap::new();
    for (from, to) in model(&tree) {
        degrees.entry(from).or_default()[usize::from(level(to) > level(from))] += 1;
    }
    for (node, degree) in degrees {
        let expected = match level(node) {
            0 => [0, 1],
            3 => [down[2], 0],
            level => [down[level - 1], up[level - 1]],
        };
        assert_eq!(degree, expected, "{node:?}");
    }
}

#[test]
fn oversubscribed_uplinks_are_shared_evenly() {
    let tree = fat_tree(&[8, 4], &[2, 1]);
    assert_eq!(most_on_a_link(&tree, |rank| (rank + 8) % 32), [4, 4]);
    assert_eq!(most_on_a_link(&tree, |rank| rank ^ 1), [1, 1]);
}

#[test]
fn known_routes() {
    let tree = fat_tree(&[2, 2], &[2, 1]);
    // 8 links between ranks and switches, then 2 links to each of the 2 parents of each switch.
    assert_eq!(tree.links(), 16);
    assert_eq!(route(&tree, 0, 1), [0, 3]);
    assert_eq!(route(&tree, 0, 2), [0, 8, 13, 5]);
    assert_eq!(route(&tree, 0, 3), [0, 10, 15, 7]);
    // In a ring of 4 the opposite node is reached in the positive direction.
    let torus = Topology::Torus([4, 2, 1]);
    assert_eq!(torus.links(), 8 * 3);
    assert_eq!(route(&torus, 0, 2), [0, 2]);
    assert_eq!(route(&torus, 0, 3), [1]);
    assert_eq!(route(&torus, 3, 4), [6, 16]);
    // 12 links to ranks, 2 in each of 3 groups, and 6 between groups.
    let dragonfly = dragonfly(3, 2, 1);
    assert_eq!(dragonfly.links(), 24);
    assert_eq!(route(&dragonfly, 0, 1), [0, 12, 3]);
    assert_eq!(route(&dragonfly, 0, 5), [0, 12, 19, 16, 11]);
    assert!(route(&Topology::Crossbar, 3, 4).is_empty());
    assert_eq!((Topology::Crossbar.ranks(), Topology::Crossbar.links()), (None, 0));
}

#[test]
fn refused_networks_name_the_cause() {
    for (topology, ranks, cause) in [
        (fat_tree(&[4, 4], &[4]), 2, "2 radices down and 1 up"),
        (fat_tree(&[], &[]), 0, "0 radices down and 0 up"),
        (fat_tree(&[4, 4], &[4, 0]), 2, "a radix is 0"),
        (dragonfly(3, 0, 1), 0, "a radix is 0"),
        (Topology::Torus([4, 0, 4]), 0, "a radix is 0"),
        (fat_tree(&[4, 4], &[4, 4]), 17, "ports for 16 of 17 ranks"),
        (Topology::Torus([u32::MAX; 3]), 2, "more than 1048576 ports"),
        (Topology::Torus([128, 128, 65]), 2, "more than 1048576 ports"),
        (fat_tree(&[2, 2, 2], &[u32::MAX; 3]), 2, "more than 16777216 links"),
        (dragonfly(1, 1 << 20, 1), 2, "more than 16777216 links"),
    ] {
        let error = topology.check(ranks).unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::BadArgument, "validate the simulated network"));
        assert!(error.to_string().contains(cause), "{error}");
    }
    for topology in [fat_tree(&[2, 2], &[1, u32::MAX]), dragonfly(40, 2, 1), Topology::Torus([128, 128, 64])] {
        topology.check(4).unwrap();
    }
    Topology::Crossbar.check(u32::MAX).unwrap();
    assert_eq!(Topology::Torus([u32::MAX; 3]).ranks(), Some(u32::MAX));
}

#[test]
fn texts_are_read_or_refused() {
    for text in ["crossbar", "fat-tree:16x16/8x8", "fat-tree:4/1", "dragonfly:9x4x2", "torus:4x4x8"] {
        assert_eq!(text.parse::<Topology>().unwrap().to_string(), text);
    }
    let refused = ",mesh,crossbar:,crossbar:4,fat-tree,fat-tree:,fat-tree:/,fat-tree:4x4,fat-tree:4x/4,fat-tree:4/4/4,\
                       dragonfly:9x4,dragonfly:9x4x2x1,torus:4x4,torus:4x4x-1,torus:4x4x4294967296,torus:4 x4x4,Torus:4x4x4";
    for text in refused.split(',') {
        let error = text.parse::<Topology>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Setting);
        let forms = ["crossbar", "fat-tree:", "dragonfly:", "torus:"];
        assert!(forms.iter().all(|form| error.to_string().contains(form)), "{error}");
    }
}
