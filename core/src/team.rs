//! Teams: ordered sets of ranks, each with a context of its own, so that their traffic never mixes.

mod split;

use std::cell::Cell;
use std::rc::Rc;

use crate::coll::execute::{Cache, TeamCalls};
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::signal::Board;

/// An ordered set of ranks. Clones are the same team.
#[derive(Clone, Debug)]
pub struct Team(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    job: Job,
    members: Vec<u32>,
    me: usize,
    one_node: bool,
    barriers: Cell<u64>,
    board: std::cell::OnceCell<Board>,
    calls: Rc<TeamCalls>,
    cache: Cache,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.job.calls().forget(&self.calls);
    }
}

impl Team {
    /// Whether all its ranks share memory: what is allocated for it may then be mapped by all of them.
    #[must_use]
    #[inline]
    pub fn is_on_one_node(&self) -> bool {
        self.0.one_node
    }

    /// This rank's number in the team, from 0.
    #[must_use]
    #[inline]
    pub fn rank(&self) -> usize {
        self.0.me
    }

    /// How many ranks it has.
    #[must_use]
    #[inline]
    pub fn size(&self) -> usize {
        self.0.members.len()
    }

    /// Rank of the job of team rank `rank`.
    ///
    /// # Errors
    /// `NoSuchRank`.
    pub fn job_rank(&self, rank: usize) -> Result<u32> {
        self.0.members.get(rank).copied().ok_or_else(|| {
            Error::new(ErrorKind::NoSuchRank, "look up a rank")
                .peer(rank as u32)
                .cause(format!("a team of {}", self.size()))
        })
    }

    /// Ranks of the job, in team order.
    #[must_use]
    pub fn members(&self) -> &[u32] {
        &self.0.members
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.0.job
    }

    /// Whether ranks share cores, so that barriers and fences are made by one signal of each rank and not in rounds:
    /// see [`Board::is_crowded`].
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.0.board.get().is_some_and(Board::is_crowded)
    }

    /// The collectives on it.
    #[inline]
    pub(crate) fn calls(&self) -> &Rc<TeamCalls> {
        &self.0.calls
    }

    #[inline]
    pub(crate) fn cache(&self) -> &Cache {
        &self.0.cache
    }
}
