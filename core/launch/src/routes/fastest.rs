//! Fastest routes to a node by Dijkstra's algorithm, for messages of one size.

use std::collections::BTreeMap;

use petgraph::algo::dijkstra;
use petgraph::graph::{NodeIndex, UnGraph};
use petgraph::visit::{EdgeRef, IntoEdges, NodeFiltered};

use super::network::{Hop, Network};

/// The cost of a route. Times are whole picoseconds, at least one per link: sums are exact in any order, and every hop
/// of a fastest route is nearer to its end than the previous one, so that next hops cannot form a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    /// The number of intermediate nodes that forward nothing. Only a route without any can be used.
    pub refused: u32,
    pub picoseconds: u128,
    /// Among routes of equal time, fewer hops count as faster.
    pub hops: u32,
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            refused: self.refused + other.refused,
            picoseconds: self.picoseconds + other.picoseconds,
            hops: self.hops + other.hops,
        }
    }
}

fn picoseconds(microseconds: f64) -> u128 {
    (microseconds * 1e6).round() as u128
}

impl Network {
    /// The cost of a link.
    pub(crate) fn link_cost(&self, link: usize, range: usize, bytes: u64) -> Cost {
        Cost { refused: 0, picoseconds: picoseconds(self.link_time(link, range, bytes).sum()).max(1), hops: 1 }
    }

    /// The cost of forwarding by a node.
    fn forward_cost(&self, node: usize) -> Cost {
        let forward = self.nodes[node].forward;
        if forward.is_finite() {
            Cost { picoseconds: picoseconds(forward), ..Cost::default() }
        } else {
            Cost { refused: 1, ..Cost::default() }
        }
    }
}

/// A network with the costs of messages of one size.
pub(crate) struct Fastest {
    /// The fastest link between each two nodes, with its number.
    graph: UnGraph<(), (Cost, usize)>,
    /// The cost of forwarding by each node.
    forward: Vec<Cost>,
}

impl Fastest {
    pub(crate) fn new(network: &Network, range: usize, bytes: u64) -> Self {
        let mut best: BTreeMap<[usize; 2], (Cost, usize)> = BTreeMap::new();
        for (n, link) in network.links.iter().enumerate().filter(|(_, link)| !link.is_inside()) {
            let cost = (network.link_cost(n, range, bytes), n);
            best.entry(link.ends).and_modify(|best| *best = cost.min(*best)).or_insert(cost);
        }
        let mut graph = UnGraph::with_capacity(network.nodes.len(), best.len());
        for _ in &network.nodes {
            graph.add_node(());
        }
        for ([a, b], link) in best {
            graph.add_edge(NodeIndex::new(a), NodeIndex::new(b), link);
        }
        Self { graph, forward: (0..network.nodes.len()).map(|node| network.forward_cost(node)).collect() }
    }

    /// The next hop and the cost of each node's fastest route to `to` that avoids the nodes `without`; `None` at those
    /// nodes, at `to`, and if no links lead there. Tables of different nodes agree, since among equal routes the next
    /// hop with the lowest number is chosen.
    pub(crate) fn toward(&self, to: usize, without: &[u32]) -> Vec<Option<(Hop, Cost)>> {
        let graph = NodeFiltered::from_fn(&self.graph, |node: NodeIndex| !without.contains(&(node.index() as u32)));
        // Routes are searched backwards: the nearer node of an edge is its source.
        let step = |nearer: NodeIndex, cost: Cost| {
            if nearer.index() == to { cost } else { self.forward[nearer.index()] + cost }
        };
        let mut costs = vec![None; self.forward.len()];
        for (node, cost) in dijkstra(&graph, NodeIndex::new(to), None, |edge| step(edge.source(), edge.weight().0)) {
            costs[node.index()] = Some(cost);
        }
        let next = |from: NodeIndex| {
            let cost = costs[from.index()].filter(|_| from.index() != to)?;
            let hops = graph.edges(from).filter_map(|edge| {
                let (nearer, (link_cost, link)) = (edge.target(), *edge.weight());
                let is_fastest = costs[nearer.index()]? + step(nearer, link_cost) == cost;
                is_fastest.then(|| Hop { to: nearer.index() as u32, link: link as u32 })
            });
            hops.min().map(|hop| (hop, cost))
        };
        self.graph.node_indices().map(next).collect()
    }
}
