//! Nodes of several ranks.

use rustc_hash::FxHashMap;

use super::network::Interface;
use crate::error::{Error, ErrorKind, Result};

/// The nodes of a simulated network. The ranks of a node share its interface to the network, and its position in the
/// topology. Messages within a node have separate costs, and pass neither interface nor links; they are not lost or
/// delayed.
///
/// Teams know on which nodes their ranks are, but ranks of a node do not map each other's memory.
///
/// ```
/// use farside_core::sim::{Interface, Nodes};
///
/// let memory = Interface::log_p(200.0, 50.0, 50.0);
/// assert_eq!(Nodes::consecutive(2, 3, memory).of, [0, 0, 0, 1, 1, 1]);
/// assert_eq!(Nodes::in_turn(2, 3, memory).of, [0, 1, 0, 1, 0, 1]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Nodes {
    /// The node of each rank, below the number of ranks.
    pub of: Vec<u32>,
    /// Costs of messages between ranks of a node.
    pub within: Interface,
}

impl Nodes {
    /// `nodes` nodes, each with `each` consecutive ranks.
    #[must_use]
    pub fn consecutive(nodes: u32, each: u32, within: Interface) -> Self {
        Self { of: (0..nodes * each).map(|rank| rank / each).collect(), within }
    }

    /// `nodes` nodes to which ranks are assigned in turn, until each has `each`.
    #[must_use]
    pub fn in_turn(nodes: u32, each: u32, within: Interface) -> Self {
        Self { of: (0..nodes * each).map(|rank| rank % nodes).collect(), within }
    }

    /// Whether two ranks are on one node.
    pub(super) fn share(&self, one: u32, other: u32) -> bool {
        self.of[one as usize] == self.of[other as usize]
    }

    /// The lowest rank of each rank's node.
    pub(super) fn lowest(&self) -> Vec<u32> {
        let mut lowest = FxHashMap::default();
        let of = self.of.iter().zip(0..).map(|(node, rank)| *lowest.entry(*node).or_insert(rank));
        of.collect()
    }

    /// Checks the nodes of `ranks` ranks; returns one more than the highest number of a node.
    ///
    /// # Errors
    /// `BadArgument`.
    pub(super) fn check(&self, ranks: u32) -> Result<u32> {
        let most = self.of.iter().max().map_or(0, |most| *most);
        if self.of.len() == ranks as usize && most < ranks {
            return Ok(most + 1);
        }
        let e = Error::new(ErrorKind::BadArgument, "validate the simulated network");
        let e = e.cause(format!("{} node numbers, up to {most}, were given for {ranks} ranks", self.of.len()));
        Err(e.remedy("give one node number for each rank, below the number of ranks"))
    }
}
