//! Teams: ordered sets of ranks, each with a context of its own, so that their traffic never mixes.
//!
//! Every member makes the team locally, without a message ([`Team::of`]); the members and the context identify it. The
//! signal array of its barriers, which takes memory of the device, is made by the first barriers ([`Team::barrier`]).
//!
//! **Contexts.** A context is a number that no other live team of the members has
//! ([`Job::new_context`](crate::Job::new_context)). Any rank allocates one, and the caller distributes it to the other
//! members. [`Team::split`] uses one that team rank 0 allocates and sends with the colors. Other constructors can do
//! the same: for a duplicate, by a broadcast over the old team; for a group whose members alone make the call, by
//! messages of its first member ([two-sided](crate::two_sided) ones, for example), or by a collective on a team of
//! these members with a fixed context; between two teams, the leader of one sends the context to the leader of the
//! other. [Two-sided messages](crate::two_sided) use the same number; their traffic is separate from that of
//! collectives.

pub(crate) mod members;
mod on_node;
mod signals;
mod split;

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use crate::bootstrap::{Directory, Exchange};
use crate::coll::barrier_switch::{self, SwitchGroup};
use crate::coll::execute::{Kept, TeamCalls};
use crate::coll::selection::Choice;
use crate::coll::two_level;
use crate::error::{Error, ErrorKind, Result};
use crate::job::{Job, OneThread};
use crate::signal::SignalArray;
use members::Members;
use on_node::NodeSignals;

/// In larger teams, exchanges among all ranks transfer as few bytes as possible.
pub(super) const LARGE_TEAM: usize = 256;

/// An ordered set of ranks. Clones are the same team.
///
/// ```
/// use farside_core::Job;
///
/// Job::threads(4, |job| {
///     let world = job.world()?;
///     // Even and odd ranks, in descending order.
///     let Some(team) = world.split(Some(job.rank_number() % 2), 4 - job.rank_number())? else { return Ok(()) };
///     assert_eq!(team.members(), [[2, 0], [3, 1]][world.rank() % 2]);
///     assert_eq!(team.job_rank(team.rank())?, job.rank_number());
///     team.barrier()
/// })?;
/// # Ok::<(), farside_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Team {
    // This field is first, so that compiler errors name it.
    _thread: OneThread,
    inner: Rc<Inner>,
}

struct Inner {
    job: Job,
    members: Members,
    /// Number of barriers that used messages.
    barriers: Cell<u64>,
    /// Number of exchanges through the [directory](Team::directory).
    exchanges: Cell<u32>,
    /// Number of [barriers at the end of the job](Team::end_barrier).
    end_barriers: Cell<u64>,
    signals: OnceCell<SignalArray>,
    /// Whether some rank had no memory for a signal array; the same at all ranks.
    no_signals: Cell<bool>,
    /// Group of the in-switch barrier, after the first barrier; `None` at all ranks if the team has none.
    switch: OnceCell<Option<SwitchGroup>>,
    /// The two-level algorithm of the team's barriers, after the first barrier; `None` if another algorithm is used.
    two_level: OnceCell<Option<Choice>>,
    /// The signals within the node for these barriers; `None` at all ranks if they use messages.
    on_node: OnceCell<Option<NodeSignals>>,
    calls: Rc<TeamCalls>,
    /// The team's calls that are stored for reuse.
    kept: Kept,
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team")
            .field("context", &self.context())
            .field("members", &self.members())
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The switch group of the team of all ranks ends with the job.
        if let Some(Some(group)) = self.switch.get()
            && self.members.me == 0
            && !self.job.has_ended()
            && self.calls.context() != 0
            && !std::thread::panicking()
        {
            barrier_switch::end(&self.job, group);
        }
        self.job.calls().forget(&self.job, &self.calls);
    }
}

impl Team {
    /// Makes the team of these ranks of the job, in this order; this rank must be one of them. Local: sends no message
    /// and does not wait for the other members. Messages from members that have made the team earlier are stored.
    /// Memory: about 8 bytes per member until the last clone is dropped; after that no member may use the team.
    ///
    /// All members pass the same list and the same `context`, which no other live team of any member has: one of
    /// [`Job::new_context`], or a fixed one below [`Job::FIXED_CONTEXTS`](crate::Job::FIXED_CONTEXTS). Teams that share
    /// no member may have the same context.
    ///
    /// ```
    /// use farside_core::{Job, Team};
    ///
    /// Job::threads(3, |job| {
    ///     // Ranks 2 and 0 make a team, without a message.
    ///     if job.rank() != 1 {
    ///         let team = Team::of(job, &[2, 0], 5)?;
    ///         assert_eq!(team.rank(), if job.rank() == 2 { 0 } else { 1 });
    ///         team.barrier()?;
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), farside_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NoSuchRank`; `BadArgument` if this rank is not a member of the team, a rank is listed twice, or another team of
    /// this rank has the context; `Freed` after the end of the job. Members that pass different lists get a `Mismatch`
    /// from the first collective whose messages show it.
    pub fn of(job: &Job, members: &[u32], context: u32) -> Result<Self> {
        const OP: &str = "make a team";
        job.running(OP)?;
        if let Some(rank) = members.iter().find(|rank| **rank >= job.size_number()) {
            let e = Error::new(ErrorKind::NoSuchRank, OP).peer(*rank);
            return Err(e.cause(format!("the job has {} ranks", job.size())));
        }
        let mut sorted = members.to_vec();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::new(ErrorKind::BadArgument, OP).cause(format!("rank {} is listed twice", pair[0])));
        }
        let me = members.iter().position(|m| *m == job.rank_number());
        let me =
            me.ok_or_else(|| Error::new(ErrorKind::BadArgument, OP).cause("this rank is not a member of the team"))?;
        let ranks = Rc::from(members);
        let calls = job.calls().of_team(context, &ranks).ok_or_else(|| {
            let e = Error::new(ErrorKind::BadArgument, OP)
                .cause(format!("another team of this rank has context {context}"));
            e.remedy("use a context from Job::new_context, or drop the other team first")
        })?;
        let inner = Rc::new(Inner {
            members: Members {
                one_node: members.iter().all(|m| job.device().shares_memory(*m)),
                nodes: two_level::nodes(&job.device().capabilities().nodes, members),
                ranks,
                me,
            },
            job: job.clone(),
            barriers: Cell::new(0),
            exchanges: Cell::new(0),
            end_barriers: Cell::new(0),
            signals: OnceCell::new(),
            no_signals: Cell::new(false),
            switch: OnceCell::new(),
            two_level: OnceCell::new(),
            on_node: OnceCell::new(),
            calls,
            kept: Kept::default(),
        });
        Ok(Self { _thread: PhantomData, inner })
    }

    /// Whether all ranks of the team share memory, so that memory allocated for the team can be mapped by all of them.
    #[must_use]
    #[inline]
    pub fn is_on_one_node(&self) -> bool {
        self.inner.members.one_node
    }

    /// This rank's number in the team, from 0.
    #[must_use]
    #[inline]
    pub fn rank(&self) -> usize {
        self.inner.members.me
    }

    /// Number of ranks in the team.
    #[must_use]
    #[inline]
    pub fn size(&self) -> usize {
        self.inner.members.size()
    }

    /// Rank in the job of team rank `rank`.
    ///
    /// # Errors
    /// `NoSuchRank`.
    pub fn job_rank(&self, rank: usize) -> Result<u32> {
        self.inner.members.ranks.get(rank).copied().ok_or_else(|| {
            Error::new(ErrorKind::NoSuchRank, "look up a rank of the team")
                .rank(self.job().rank())
                .peer(rank as u32)
                .cause(format!("the team has {} ranks", self.size()))
        })
    }

    /// Ranks of the job, in team order.
    #[must_use]
    pub fn members(&self) -> &[u32] {
        &self.inner.members.ranks
    }

    /// The number that separates the team's traffic from that of other teams; also the context of its [two-sided
    /// messages](crate::two_sided).
    #[must_use]
    #[inline]
    pub fn context(&self) -> u32 {
        self.inner.calls.context()
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.inner.job
    }

    /// Whether the team's barriers use a counter, to which each rank sends one signal, instead of rounds, since ranks
    /// share cores. `false` before the team has a signal array.
    #[must_use]
    pub fn is_oversubscribed(&self) -> bool {
        self.inner.signals.get().is_some_and(SignalArray::is_oversubscribed)
    }

    /// The directory in which the members publish data that others need, instead of sending it to all, and the number
    /// of this exchange. `None` at all members unless the team has more than 256 ranks and the job has a directory. A
    /// collective call.
    pub(crate) fn directory(&self) -> Option<(Directory, Exchange)> {
        let directory = (self.size() > LARGE_TEAM).then(|| self.job().bootstrap.borrow().directory()).flatten()?;
        let number = self.inner.exchanges.get() + 1;
        self.inner.exchanges.set(number);
        Some((directory, (self.context(), number)))
    }

    pub(crate) fn membership(&self) -> &Members {
        &self.inner.members
    }

    /// The collective calls on the team.
    #[inline]
    pub(crate) fn calls(&self) -> &Rc<TeamCalls> {
        &self.inner.calls
    }

    /// The team's signal array, if a call of short data can use one.
    ///
    /// # Errors
    /// Errors of making the signal array.
    #[inline]
    pub(crate) fn signals_for_short(&self) -> Result<Option<&SignalArray>> {
        match self.inner.signals.get() {
            Some(signals) => Ok(Some(signals).filter(|signals| signals.has_short())),
            None => self.make_for_short(),
        }
    }

    /// The calls that are stored for reuse.
    #[inline]
    pub(crate) fn kept(&self) -> &Kept {
        &self.inner.kept
    }
}
