//! Collective operations of a team: making teams, and barriers.

use super::{Team, on_node};
use crate::bill::Account;
use crate::coll::execute;
use crate::coll::operation::{Call, Operation};
use crate::coll::selection::{Choice, Facts, Placement};
use crate::coll::{self, barrier_switch, two_level};
use crate::error::{Error, ErrorKind, Result, located};
use crate::job::Job;
use crate::signal::short::MAX_RANKS;
use crate::signal::{MARK_BITS, SignalArray};
use crate::wire::{Reader, Writer};

/// Number of barriers, or collectives, for which a team uses messages before it makes its signal array. Making the
/// array takes memory and more time than a few of these, and many teams are used for only a few collectives.
const BY_MESSAGES: u64 = 4;

impl Team {
    /// All ranks of the job, with a signal array. Collective.
    pub(crate) fn world(job: &Job) -> Result<Self> {
        let members: Vec<u32> = (0..job.size_number()).collect();
        let team = Self::of(job, &members, 0)?;
        team.make_signals()?;
        Ok(team)
    }

    /// Makes the signal array. Collective; no rank returns before all have called it.
    fn make_signals(&self) -> Result<()> {
        let signals = SignalArray::for_short(self)?;
        let _ = self.inner.signals.set(signals);
        Ok(())
    }

    /// Makes the signal array if all ranks have memory for it. If not, no rank tries again, and the team continues to
    /// use messages. Collective; no rank returns before all have called it.
    fn make_signals_if_there_is_memory(&self) -> Result<()> {
        match self.make_signals() {
            // The error has the same kind at all ranks.
            Err(e) if matches!(e.kind(), ErrorKind::SharedMemoryFull | ErrorKind::Limit | ErrorKind::Forbidden) => {
                tracing::debug!("team {} falls back to messages, without signal arrays: {e}", self.context());
                self.inner.no_signals.set(true);
                Ok(())
            }
            made => made,
        }
    }

    /// Makes the signal array in the first call of short data after [`BY_MESSAGES`] collectives.
    #[cold]
    pub(super) fn make_for_short(&self) -> Result<Option<&SignalArray>> {
        let worthwhile = self.is_on_one_node() && (2..=MAX_RANKS).contains(&self.size());
        // The condition is the same at all ranks.
        if !worthwhile || self.inner.no_signals.get() || u64::from(self.calls().made()) < BY_MESSAGES {
            return Ok(None);
        }
        self.make_signals_if_there_is_memory()?;
        Ok(self.inner.signals.get().filter(|signals| signals.has_short()))
    }

    /// Splits the team: ranks that pass the same color form a team, ordered by `key` and then by rank in this team; a
    /// rank that passes `None` gets `None`. Collective; one allgather of 13 bytes per rank, ⌈log2 P⌉ messages.
    ///
    /// # Errors
    /// `PeerLost`; `Limit` at all ranks if team rank 0 has no context left.
    #[track_caller]
    pub fn split(&self, color: Option<u32>, key: u32) -> Result<Option<Team>> {
        located(|| {
            const OP: &str = "split a team";
            let context = if self.rank() == 0 { self.job().new_context() } else { Ok(0) };
            let context = context.map_err(|e| execute::fail_everywhere(self, e))?;
            let mine = Writer::new().u8(u8::from(color.is_some())).u32(color.unwrap_or(0)).u32(key).u32(context).done();
            let all = coll::allgather_short(self, OP, &mine, mine.len())?;
            // All colors use the context of rank 0, since their members are disjoint.
            let mut context = 0;
            let mut chosen = Vec::new();
            for (index, bytes) in all.iter().enumerate() {
                let mut r = Reader::new(bytes);
                let fields = (|| Some((r.u8()? != 0, r.u32()?, r.u32()?, r.u32()?)))();
                let (member, c, k, given) =
                    fields.ok_or_else(|| Error::new(ErrorKind::Protocol, OP).peer(self.inner.members.ranks[index]))?;
                if index == 0 {
                    context = given;
                }
                if member && Some(c) == color {
                    chosen.push((k, index));
                }
            }
            if color.is_none() {
                return Ok(None);
            }
            chosen.sort_unstable();
            let members: Vec<u32> = chosen.into_iter().map(|(_, index)| self.inner.members.ranks[index]).collect();
            Self::of(self.job(), &members, context).map(Some)
        })
    }

    /// The team of the given ranks of this team, in this order; `None` at ranks that are not listed. Collective over
    /// this team; all ranks pass the same list.
    ///
    /// ```
    /// use farside_core::Job;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?.subteam(&[2, 1])?;
    ///     assert_eq!(team.map(|team| team.rank()), [None, Some(1), Some(0)][job.rank() as usize]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), farside_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NoSuchRank`; `BadArgument` for a rank listed twice; those of [`split`](Self::split).
    #[track_caller]
    pub fn subteam(&self, ranks: &[usize]) -> Result<Option<Team>> {
        located(|| {
            const OP: &str = "make a sub-team";
            for (i, r) in ranks.iter().enumerate() {
                if *r >= self.size() {
                    return Err(Error::new(ErrorKind::NoSuchRank, OP).peer(*r));
                }
                if ranks[..i].contains(r) {
                    return Err(Error::new(ErrorKind::BadArgument, OP).cause(format!("rank {r} is listed twice")));
                }
            }
            let place = ranks.iter().position(|r| *r == self.rank());
            self.split(place.map(|_| 0), place.unwrap_or(0) as u32)
        })
    }

    /// Splits the team by nodes: returns the team of the ranks that share memory with this rank, including this rank,
    /// in the order of this team. Windows of such a team are mapped. If verbs is the only device, every rank is in a
    /// team of its own. Collective, like [`split`](Self::split).
    ///
    /// # Errors
    /// The errors of [`split`](Self::split).
    #[track_caller]
    pub fn split_by_node(&self) -> Result<Team> {
        located(|| {
            let device = self.job().device();
            let shares = |m: &u32| *m == self.job().rank_number() || device.shares_memory(*m);
            let members = &self.inner.members;
            let first = members.ranks.iter().position(shares).unwrap_or(members.me);
            let team = self.split(Some(first as u32), 0)?;
            team.ok_or_else(|| Error::new(ErrorKind::Protocol, "split a team by nodes"))
        })
    }

    /// Waits until every rank of the team has called it.
    ///
    /// On a network with an [in-switch barrier](crate::device::Capabilities::switch) that takes less time than signals
    /// between as many nodes, the first barrier of a team allocates a group id of the switch, and each further barrier
    /// takes one message of every rank to the switch and one back, unless `FARSIDE_COLL` fixes another algorithm. If no
    /// id is free, and on other networks, signals are used: those of the team's signal array, ⌈log2 P⌉ per rank
    /// (dissemination), or one if the team [is oversubscribed](Self::is_oversubscribed). In a team of N nodes, at least
    /// one of which has several ranks, the barrier has two levels unless `FARSIDE_COLL` fixes another algorithm: two
    /// signals between a rank and its parent on the node, and ⌈log2 N⌉ signals of each node's leader to other nodes.
    ///
    /// The first four barriers of a team other than the world use messages, and the next one makes the signal array
    /// with two allgathers; in two levels, one more barrier makes the arrays within nodes with a [split](Self::split),
    /// an allreduce, and two allgathers of each node. If a rank has no memory for an array, all barriers use messages.
    ///
    /// # Errors
    /// `PeerLost`; `Mismatch` if ranks have made other collectives before it, or wait in one; the in-switch barrier
    /// detects only the latter; `Freed` after the end of the job; `InCallback`.
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        located(|| {
            self.job().running("barrier")?;
            match self.inner.switch.get() {
                Some(Some(group)) => return barrier_switch::run(self, group),
                Some(None) => {}
                None => {
                    let group = barrier_switch::join(self)?;
                    if self.inner.switch.get_or_init(|| group).is_some() {
                        return Ok(());
                    }
                }
            }
            if let Some(choice) = self.inner.two_level.get_or_init(|| self.two_level_choice()) {
                return self.two_level_barrier(choice);
            }
            if let Some(signals) = self.inner.signals.get() {
                let run = |number, mark| coll::barrier_dissemination::run(self, signals, number, mark);
                return self.signal_barrier(signals.is_oversubscribed(), run);
            }
            if self.uses_messages() {
                return execute::barrier(self);
            }
            self.make_signals_if_there_is_memory()
        })
    }

    /// Whether the next barrier of a team without a signal array uses messages.
    fn uses_messages(&self) -> bool {
        let number = self.inner.barriers.get() + 1;
        self.inner.barriers.set(number);
        number <= BY_MESSAGES || self.inner.no_signals.get()
    }

    /// Runs the two-level barrier: with signals if the leaders disseminate, as soon as the team has its signal array
    /// and those of its nodes.
    fn two_level_barrier(&self, choice: &Choice) -> Result<()> {
        let super::Inner { signals, on_node: within, .. } = &*self.inner;
        if let (Some(signals), Some(Some(within))) = (signals.get(), within.get()) {
            let run = |number, mark| on_node::run(signals, within, number, mark);
            return self.signal_barrier(false, run);
        }
        if matches!(within.get(), Some(None)) || choice.value(1) != "dissemination" {
            return execute::barrier_by(self, choice);
        }
        if signals.get().is_none() {
            if self.uses_messages() {
                return execute::barrier_by(self, choice);
            }
            return self.make_signals_if_there_is_memory();
        }
        let made = on_node::make(self, choice.value(0) == "flat")?;
        let _ = within.set(made);
        Ok(())
    }

    /// The two-level algorithm, if the selection chooses one for barriers; the same at all ranks.
    fn two_level_choice(&self) -> Option<Choice> {
        let nodes = &self.membership().nodes;
        if nodes.is_empty() {
            return None;
        }
        let (rank, size) = (self.rank() as u32, self.size() as u32);
        let call = Call { nodes, lends: false, ..Call::new(Operation::Barrier, rank, size) };
        let facts = Facts::new(&call, 1, true, Placement::Anywhere);
        let (choice, _) = self.job().calls().tuning.selection().select(&call, &facts);
        two_level::is(choice.algorithm).then_some(choice)
    }

    /// Waits until all ranks of the world team have reached the end of the job, whatever calls they have made before.
    pub(crate) fn end_barrier(&self) -> Result<()> {
        let number = self.inner.end_barriers.get() + 1;
        self.inner.end_barriers.set(number);
        self.inner
            .signals
            .get()
            .map_or(Ok(()), |signals| coll::barrier_dissemination::end_barrier(self, signals, number))
    }

    /// Runs a barrier with signals: calls `run` with the barrier's number and this rank's mark. Signals do not contain
    /// the number of the call, so the mark encodes how many collectives with messages the rank has made before the
    /// barrier, modulo the range of a mark, which is small if the team [is oversubscribed](Self::is_oversubscribed).
    /// Fails if the marks of the ranks differ.
    #[inline]
    fn signal_barrier(&self, is_oversubscribed: bool, run: impl Fn(u64, u16) -> Result<u16>) -> Result<()> {
        if let Some(bill) = self.job().bill() {
            bill.called(Account::team(self.context()), "barrier");
        }
        let bits = if is_oversubscribed { MARK_BITS as u32 } else { u16::BITS };
        let mark = 1 << (self.calls().made() % bits);
        let marks = self.calls().in_barrier(|number| run(number, mark))?;
        if marks == mark { Ok(()) } else { Err(self.differ()) }
    }

    #[cold]
    fn differ(&self) -> Error {
        let (e, made) = (Error::new(ErrorKind::Mismatch, "barrier").rank(self.job().rank()), self.calls().made());
        e.cause(format!(
            "this rank has made {made} collective calls on the team before this barrier, other ranks more or fewer"
        ))
    }
}
