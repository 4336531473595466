//! The nodes of a call and their leaders.

use crate::operation::{Call, Operation};

/// Offsets of the tags of the parts: the first intra-node part, the part between leaders, and the last intra-node part.
pub(super) const TAGS: [u32; 3] = [0, 1 << 26, 2 << 26];

/// The node of each member of a team, as in [`Call::nodes`], from the lowest rank of each rank's node. Empty unless there
/// are several nodes, and several members on one of them.
#[must_use]
pub fn nodes(lowest: &[u32], members: &[u32]) -> Box<[u32]> {
    let of = |member: &u32| lowest.get(*member as usize).copied();
    let Some(of_members) = members.iter().map(of).collect::<Option<Vec<u32>>>() else { return Box::default() };
    let mut numbers = rustc_hash::FxHashMap::default();
    let number = |lowest| {
        let next = numbers.len() as u32;
        *numbers.entry(lowest).or_insert(next)
    };
    let nodes: Box<[u32]> = of_members.into_iter().map(number).collect();
    if has_levels(&nodes) { nodes } else { Box::default() }
}

/// Whether there are several nodes, and several ranks on one of them.
pub(crate) fn has_levels(nodes: &[u32]) -> bool {
    let count = nodes.iter().max().map_or(0, |last| *last as usize + 1);
    count > 1 && count < nodes.len()
}

/// The number of nodes of `ranks` ranks, and the maximum number of ranks per node. If the nodes are not known, each
/// rank counts as a node.
pub(crate) fn counts(nodes: &[u32], ranks: u32) -> (u32, u32) {
    let mut each = vec![0; nodes.iter().max().map_or(0, |last| *last as usize + 1)];
    nodes.iter().for_each(|node| each[*node as usize] += 1);
    each.iter().max().map_or((ranks, 1), |most| (each.len() as u32, *most))
}

/// The lowest rank of each node.
pub fn lowest_of_nodes(nodes: &[u32]) -> impl Iterator<Item = u32> {
    let mut next = 0;
    // Nodes are numbered in the order of their lowest ranks.
    let is_first = move |node: u32| {
        let is_first = node == next;
        next += u32::from(is_first);
        is_first
    };
    nodes.iter().zip(0..).scan(is_first, |is_first, (node, rank)| Some(is_first(*node).then_some(rank))).flatten()
}

/// Whether the ranks of each node are consecutive.
pub(super) fn are_consecutive(nodes: &[u32]) -> bool {
    nodes.is_sorted()
}

/// The nodes of a call, seen from one rank.
#[derive(Clone, Debug)]
pub(super) struct Levels {
    /// The ranks of each node, in order.
    pub(super) nodes: Vec<Vec<u32>>,
    /// The leader of each node.
    pub(super) leaders: Vec<u32>,
    /// The node of this rank.
    pub(super) node: usize,
    /// This rank's number on its node, and that of the leader.
    pub(super) me: u32,
    pub(super) leader: u32,
    /// The node of the root.
    pub(super) root: u32,
}

impl Levels {
    pub(super) fn of(call: &Call<'_>) -> Self {
        let (count, _) = counts(call.nodes, call.size);
        let mut nodes = vec![Vec::new(); count as usize];
        call.nodes.iter().zip(0..).for_each(|(node, rank)| nodes[*node as usize].push(rank));
        let mut leaders: Vec<u32> = lowest_of_nodes(call.nodes).collect();
        let root = if call.operation.is_rooted() { call.nodes[call.root as usize] } else { 0 };
        if call.operation.is_rooted() {
            leaders[root as usize] = call.root;
        }
        let node = call.nodes[call.rank as usize] as usize;
        let number = |rank: u32| nodes[node].iter().take_while(|r| **r < rank).count() as u32;
        let (me, leader) = (number(call.rank), number(leaders[node]));
        Self { leaders, node, me, leader, root, nodes }
    }

    /// The ranks of this rank's node.
    pub(super) fn own(&self) -> &[u32] {
        &self.nodes[self.node]
    }

    /// Whether this rank is the only one of its node.
    pub(super) fn is_alone(&self) -> bool {
        self.own().len() == 1
    }

    pub(super) fn is_leader(&self) -> bool {
        self.me == self.leader
    }

    /// Elements of the blocks of the leaders' call by size number, if they differ.
    pub(super) fn sizes_of_nodes(&self, call: &Call<'_>) -> Vec<u64> {
        let own = self.own().len() as u64;
        let of_node = |ranks: &Vec<u32>| {
            if call.sizes.is_empty() {
                return ranks.len() as u64 * call.elements.max(1);
            }
            ranks.iter().map(|rank| call.sizes[*rank as usize]).fold(0, u64::saturating_add)
        };
        let is_even = self.nodes.iter().all(|ranks| ranks.len() as u64 == own);
        match call.operation {
            _ if call.operation.is_of_a_vector() || call.sizes.is_empty() && is_even => Vec::new(),
            Operation::Alltoall => self.nodes.iter().map(|ranks| own * of_node(ranks)).collect::<Vec<u64>>().repeat(2),
            _ => self.nodes.iter().map(of_node).collect(),
        }
    }

    /// Elements of the block of each rank of this node, if the blocks differ.
    pub(super) fn sizes_of_own(&self, call: &Call<'_>) -> Vec<u64> {
        if call.sizes.is_empty() {
            return Vec::new();
        }
        self.own().iter().map(|rank| call.sizes[*rank as usize]).collect()
    }

    /// The call of the leaders. A rank that is not a leader gets that of its leader.
    pub(super) fn between<'a>(&self, call: &Call<'a>, sizes: &'a [u64]) -> Call<'a> {
        let (rank, size) = (self.node as u32, self.nodes.len() as u32);
        Call { rank, size, root: self.root, sizes, nodes: &[], lends: false, switch: false, ..*call }
    }

    /// A call of `operation` of the ranks of this node, with the leader as root.
    pub(super) fn within<'a>(&self, call: &Call<'a>, operation: Operation, sizes: &'a [u64]) -> Call<'a> {
        let (rank, size, root) = (self.me, self.own().len() as u32, self.leader);
        Call { operation, rank, size, root, sizes, nodes: &[], lends: false, switch: false, ..*call }
    }
}
