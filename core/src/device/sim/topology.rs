//! Topologies: the links between the network interfaces of the ranks, and the static route of each pair of ranks.
//!
//! Each cable is two directed links, which are numbered separately. In fat trees and dragonflies the cable between a
//! rank and its switch counts too, so the route between two different ranks has at least two links; in a torus a rank's
//! interface is the node itself.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};

/// Maximum number of ranks of a topology.
const MAX_RANKS: u64 = 1 << 20;
/// Maximum number of directed links of a topology.
const MAX_LINKS: u64 = 1 << 24;

/// A topology: which links a message passes between the network interfaces of two ranks.
///
/// ```
/// use farside_core::sim::Topology;
///
/// let tree: Topology = "fat-tree:16x16/8x8".parse()?;
/// assert_eq!(tree, Topology::FatTree { down: vec![16, 16], up: vec![8, 8] });
/// assert_eq!((tree.ranks(), tree.to_string().as_str()), (Some(256), "fat-tree:16x16/8x8"));
/// # Ok::<(), farside_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Every pair of ranks has a separate path (crossbar): only interfaces are shared.
    Crossbar,
    /// Extended generalised fat tree (Öhring et al. 1995) with one cable per rank. Radices are given per level of
    /// switches, bottom first. Messages climb to the lowest common level; the uplink is chosen by the destination
    /// (D-Mod-K, Zahavi 2012), so a tree with `up` equal to `down` routes every cyclic shift of the ranks without
    /// contention.
    FatTree {
        /// Children of each switch.
        down: Vec<u32>,
        /// Parents of each switch; fewer than children is oversubscribed. The last entry, that of the top level, has no
        /// links.
        up: Vec<u32>,
    },
    /// Dragonfly (Kim et al. 2008) with all-to-all links inside a group, one global link between each pair of groups,
    /// and minimal routing: at most one global link. A group's global links are assigned to its routers round-robin.
    Dragonfly {
        /// Number of groups.
        groups: u32,
        /// Routers of each group.
        routers: u32,
        /// Ranks of each router.
        ranks: u32,
    },
    /// 3-D torus, one rank per node, the first dimension varying fastest. Routing is dimension-ordered, in each dimension
    /// in the direction with fewer links, or in the positive one if both have as many.
    Torus([u32; 3]),
}

/// The cables between one level of a fat tree and the next one, numbered by the lower end's subtree and then by the upper
/// end's plane. Switches of a level that have the same ranks below them differ by their plane; a switch in plane `p` has
/// its children in the plane that is `p` modulo their number of planes.
#[derive(Clone, Copy)]
struct Stage {
    /// Number of the first link.
    first: u64,
    /// Ranks below the lower end.
    below: u64,
    /// Number of planes of the upper level.
    planes: u64,
}

impl Stage {
    const BOTTOM: Self = Self { first: 0, below: 1, planes: 1 };

    /// Number of links of this stage in a tree of `ranks` ranks.
    fn links(self, ranks: u64) -> u64 {
        (ranks / self.below).saturating_mul(self.planes).saturating_mul(2)
    }

    fn above(self, ranks: u64, down: u32, up: u32) -> Self {
        Self {
            first: self.first.saturating_add(self.links(ranks)),
            below: self.below.saturating_mul(down.into()),
            planes: self.planes.saturating_mul(up.into()),
        }
    }

    fn beneath(self, ranks: u64, down: u32, up: u32) -> Self {
        let lower = Self { first: 0, below: self.below / u64::from(down), planes: self.planes / u64::from(up) };
        Self { first: self.first - lower.links(ranks), ..lower }
    }

    /// The uplink above `rank` that leads to `to`; the downlink is the next number.
    fn uplink(self, rank: u64, to: u64) -> usize {
        (self.first + 2 * (rank / self.below * self.planes + to % self.planes)) as usize
    }
}

/// The index of `other` among all numbers except `own`.
fn among_others(own: u64, other: u64) -> u64 {
    other - u64::from(other > own)
}

fn product(factors: &[u32]) -> u64 {
    factors.iter().fold(1, |all, factor| all.saturating_mul((*factor).into()))
}

/// Links of a torus that leave each node in a dimension of `size`: two nodes have one cable between them.
fn torus_degree(size: u64) -> u64 {
    size.saturating_sub(1).min(2)
}

impl Topology {
    /// The maximum number of ranks; `None` if any number is possible.
    #[must_use]
    pub fn ranks(&self) -> Option<u32> {
        self.room().map(|ranks| u32::try_from(ranks).unwrap_or(u32::MAX))
    }

    /// The product of the radices that determine the number of ranks, at most `u64::MAX`; `None` if any number of ranks
    /// is possible.
    fn room(&self) -> Option<u64> {
        match self {
            Topology::Crossbar => None,
            Topology::FatTree { down, .. } => Some(product(down)),
            Topology::Dragonfly { groups, routers, ranks } => Some(product(&[*groups, *routers, *ranks])),
            Topology::Torus(size) => Some(product(size)),
        }
    }

    fn all_links(&self) -> u64 {
        let room = self.room().unwrap_or(0);
        match self {
            Topology::Crossbar => 0,
            Topology::FatTree { down, up } => {
                let levels = down.iter().zip(up);
                levels.fold(Stage::BOTTOM, |stage, (down, up)| stage.above(room, *down, *up)).first
            }
            Topology::Dragonfly { groups, routers, .. } => {
                let pairs = |n: u32| u64::from(n) * u64::from(n).saturating_sub(1);
                let local = pairs(*routers).saturating_mul((*groups).into());
                room.saturating_mul(2).saturating_add(local).saturating_add(pairs(*groups))
            }
            Topology::Torus(size) => room.saturating_mul(size.map(|size| torus_degree(size.into())).iter().sum()),
        }
    }

    /// Number of directed links: each direction of a cable is a separate link. The topology has passed
    /// [`check`](Self::check).
    pub(crate) fn links(&self) -> usize {
        self.all_links() as usize
    }

    /// Passes the numbers of the directed links from one rank to another to `each`, in order: none if the ranks are the
    /// same, or in a crossbar. The topology has passed [`check`](Self::check), and both ranks are below
    /// [`ranks`](Self::ranks).
    pub(crate) fn route(&self, from: u32, to: u32, each: impl FnMut(usize)) {
        if from == to {
            return;
        }
        match self {
            Topology::Crossbar => {}
            Topology::FatTree { down, up } => fat_tree(down, up, from.into(), to.into(), each),
            Topology::Dragonfly { groups, routers, ranks } => {
                dragonfly([*groups, *routers, *ranks].map(u64::from), from.into(), to.into(), each);
            }
            Topology::Torus(size) => torus(size.map(u64::from), from.into(), to.into(), each),
        }
    }

    /// Checks that the topology is well-formed, has room for `ranks`, and is not too large to simulate.
    ///
    /// # Errors
    /// `BadArgument`.
    pub(crate) fn check(&self, ranks: u32) -> Result<()> {
        let bad = |cause: String, remedy: &str| {
            let error = Error::new(ErrorKind::BadArgument, "validate the simulated network");
            Err(error.cause(format!("{self}: {cause}")).remedy(remedy))
        };
        let zero = match self {
            Topology::Crossbar => return Ok(()),
            Topology::FatTree { down, up } if down.is_empty() || down.len() != up.len() => {
                return bad(
                    format!("the fat tree has {} radices down and {} up", down.len(), up.len()),
                    "give a fat tree one radix down and one up for each level of switches",
                );
            }
            Topology::FatTree { down, up } => down.contains(&0) || up.contains(&0),
            Topology::Dragonfly { groups, routers, ranks } => [groups, routers, ranks].contains(&&0),
            Topology::Torus(size) => size.contains(&0),
        };
        if zero {
            return bad("a radix is 0".to_owned(), "give radices of at least 1");
        }
        let room = self.room().unwrap_or(u64::MAX);
        if room > MAX_RANKS {
            return bad(format!("the topology has more than {MAX_RANKS} ports"), "give smaller radices");
        }
        if self.all_links() > MAX_LINKS {
            return bad(format!("the topology has more than {MAX_LINKS} links"), "give smaller radices");
        }
        if room < ranks.into() {
            return bad(
                format!("the topology has ports for {room} of {ranks} ranks"),
                "give larger radices, or fewer ranks",
            );
        }
        Ok(())
    }
}

fn fat_tree(down: &[u32], up: &[u32], from: u64, to: u64, mut each: impl FnMut(usize)) {
    let ranks = product(down);
    let (mut stage, mut below) = (Stage::BOTTOM, 0);
    for (down, up) in down.iter().zip(up) {
        each(stage.uplink(from, to));
        let switch = stage.below * u64::from(*down);
        if from / switch == to / switch {
            break;
        }
        stage = stage.above(ranks, *down, *up);
        below += 1;
    }
    each(stage.uplink(to, to) + 1);
    for (down, up) in down.iter().zip(up).take(below).rev() {
        stage = stage.beneath(ranks, *down, *up);
        each(stage.uplink(to, to) + 1);
    }
}

/// Links are numbered: two for each rank, those inside each group by their routers, and those between groups.
fn dragonfly([groups, routers, ranks]: [u64; 3], from: u64, to: u64, mut each: impl FnMut(usize)) {
    let mut pass = |link: u64| each(link as usize);
    let first_local = 2 * groups * routers * ranks;
    let first_global = first_local + groups * routers * (routers - 1);
    // Routers are numbered in their group.
    let local = |group: u64, from: u64, to: u64| {
        let link = (group * routers + from) * (routers - 1) + among_others(from, to);
        (from != to).then_some(first_local + link)
    };
    let [(a, out), (b, last)] = [from, to].map(|rank| (rank / ranks / routers, rank / ranks % routers));
    pass(2 * from);
    if a == b {
        local(a, out, last).map(&mut pass);
    } else {
        let (there, back) = (among_others(a, b), among_others(b, a));
        local(a, out, there % routers).map(&mut pass);
        pass(first_global + a * (groups - 1) + there);
        local(b, back % routers, last).map(&mut pass);
    }
    pass(2 * to + 1);
}

/// Links are numbered by dimension, node, and direction, the positive one first.
fn torus(size: [u64; 3], from: u64, to: u64, mut each: impl FnMut(usize)) {
    let nodes: u64 = size.iter().product();
    let (mut first, mut stride, mut node) = (0, 1, from);
    for size in size {
        let degree = torus_degree(size);
        let (mut at, end) = (from / stride % size, to / stride % size);
        let ahead = (end + size - at) % size;
        let (links, step, direction) = if 2 * ahead <= size { (ahead, 1, 0) } else { (size - ahead, size - 1, 1) };
        for _ in 0..links {
            each((first + node * degree + direction) as usize);
            let next = (at + step) % size;
            node = node - at * stride + next * stride;
            at = next;
        }
        first += nodes * degree;
        stride *= size;
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let radices = |f: &mut fmt::Formatter<'_>, before: &str, all: &[u32]| {
            f.write_str(before)?;
            all.iter().enumerate().try_for_each(|(i, radix)| write!(f, "{}{radix}", if i == 0 { "" } else { "x" }))
        };
        match self {
            Topology::Crossbar => f.write_str("crossbar"),
            Topology::FatTree { down, up } => {
                radices(f, "fat-tree:", down)?;
                radices(f, "/", up)
            }
            Topology::Dragonfly { groups, routers, ranks } => radices(f, "dragonfly:", &[*groups, *routers, *ranks]),
            Topology::Torus(size) => radices(f, "torus:", size),
        }
    }
}

fn parse(text: &str) -> Option<Topology> {
    let radices = |text: &str| text.split('x').map(|radix| radix.parse().ok()).collect::<Option<Vec<u32>>>();
    let three = |text: &str| <[u32; 3]>::try_from(radices(text)?).ok();
    if text == "crossbar" {
        return Some(Topology::Crossbar);
    }
    let (shape, rest) = text.split_once(':')?;
    match shape {
        "fat-tree" => {
            let (down, up) = rest.split_once('/')?;
            Some(Topology::FatTree { down: radices(down)?, up: radices(up)? })
        }
        "dragonfly" => three(rest).map(|[groups, routers, ranks]| Topology::Dragonfly { groups, routers, ranks }),
        "torus" => three(rest).map(Topology::Torus),
        _ => None,
    }
}

impl FromStr for Topology {
    type Err = Error;

    /// Parses the form that `Display` writes. Whether the radices form a valid topology is checked when a network is
    /// made from it.
    fn from_str(text: &str) -> Result<Self> {
        parse(text.trim()).ok_or_else(|| {
            Error::new(ErrorKind::Setting, "read a topology").cause(format!("{text:?} is not a topology")).remedy(
                "write `crossbar`, `fat-tree:DOWNxDOWN../UPxUP..`, `dragonfly:GROUPSxROUTERSxRANKS` or `torus:XxYxZ`",
            )
        })
    }
}

#[cfg(test)]
mod tests {
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
}
