//! The ranks of a team.

use std::rc::Rc;

/// The ranks of a team, seen from one of them.
pub(crate) struct Members {
    /// Ranks of the job, in team order.
    pub(crate) ranks: Rc<[u32]>,
    /// This rank's number in the team.
    pub(crate) me: usize,
    /// Whether all members share memory.
    pub(crate) one_node: bool,
    /// The node of each member, as in [`Call::nodes`](crate::coll::operation::Call::nodes); empty unless there are
    /// several nodes, and several members on one of them.
    pub(crate) nodes: Box<[u32]>,
}

impl Members {
    /// This rank of the job.
    pub(crate) fn job_rank(&self) -> u32 {
        self.ranks[self.me]
    }

    pub(crate) fn size(&self) -> usize {
        self.ranks.len()
    }
}
