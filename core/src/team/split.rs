//! What the ranks of a team do together: they make teams, and wait for each other.

use std::cell::Cell;
use std::rc::Rc;

use super::{Inner, Team};
use crate::coll;
use crate::coll::execute::Cache;
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::signal::Board;
use crate::wire::{Reader, Writer};

impl Team {
    pub(crate) fn world(job: &Job) -> Result<Self> {
        Self::make(job, 0, (0..job.size()).collect())
    }

    fn make(job: &Job, context: u32, members: Vec<u32>) -> Result<Self> {
        let me = members.iter().position(|m| *m == job.rank());
        let me =
            me.ok_or_else(|| Error::new(ErrorKind::BadArgument, "make a team").cause("this rank is not a member"))?;
        let one_node = members.iter().all(|m| job.device().shares_memory(*m));
        let team = Self(Rc::new(Inner {
            job: job.clone(),
            one_node,
            me,
            barriers: Cell::new(0),
            board: std::cell::OnceCell::new(),
            calls: job.calls().of_team(context, &members),
            cache: Cache::default(),
            members,
        }));
        let board = Board::new(&team, 0)?;
        let _ = team.0.board.set(board);
        Ok(team)
    }

    /// Splits the team: ranks that give the same color form a team, ordered by `key` and then by rank here;
    /// `None` gives none. Collective; one allgather of 20 bytes a rank, and the start of the new team.
    ///
    /// # Errors
    /// `PeerLost`, `SharedMemoryFull`.
    pub fn split(&self, color: Option<u32>, key: u32) -> Result<Option<Team>> {
        const OP: &str = "split a team";
        let job = self.job();
        let mine = Writer::new()
            .u8(u8::from(color.is_some()))
            .u32(color.unwrap_or(0))
            .u32(key)
            .u32(job.next_context().get())
            .done();
        let all = coll::allgather(self, &mine)?;
        let mut context = 0;
        let mut chosen = Vec::new();
        for (index, bytes) in all.iter().enumerate() {
            let mut r = Reader::new(bytes);
            let fields = (|| Some((r.u8()? != 0, r.u32()?, r.u32()?, r.u32()?)))();
            let (member, c, k, next) =
                fields.ok_or_else(|| Error::new(ErrorKind::Protocol, OP).peer(self.0.members[index]))?;
            context = context.max(next);
            if member && Some(c) == color {
                chosen.push((k, index));
            }
        }
        // All colors use the same context: their members are disjoint.
        job.next_context().set(context + 1);
        if color.is_none() {
            return Ok(None);
        }
        chosen.sort_unstable();
        let members = chosen.into_iter().map(|(_, index)| self.0.members[index]).collect();
        Self::make(job, context, members).map(Some)
    }

    /// The team of the given ranks of this one, in this order; `None` at ranks that are not among them.
    /// Collective over this team; all give the same list.
    ///
    /// # Errors
    /// `NoSuchRank`, `BadArgument` for a rank given twice, else as [`split`](Self::split).
    pub fn subteam(&self, ranks: &[usize]) -> Result<Option<Team>> {
        const OP: &str = "make a sub-team";
        for (i, r) in ranks.iter().enumerate() {
            if *r >= self.size() {
                return Err(Error::new(ErrorKind::NoSuchRank, OP).peer(*r as u32));
            }
            if ranks[..i].contains(r) {
                return Err(Error::new(ErrorKind::BadArgument, OP).cause(format!("rank {r} twice")));
            }
        }
        let place = ranks.iter().position(|r| *r == self.rank());
        self.split(place.map(|_| 0), place.unwrap_or(0) as u32)
    }

    /// Splits the team by nodes: the ranks that share memory with this one, itself among them, in the order of this
    /// team. Windows of such a team are mapped. Over verbs alone every rank is by itself. Collective, as
    /// [`split`](Self::split).
    ///
    /// # Errors
    /// `PeerLost`, `SharedMemoryFull`.
    pub fn split_by_node(&self) -> Result<Team> {
        let device = self.job().device();
        let shares = |m: &u32| *m == self.job().rank() || device.shares_memory(*m);
        let first = self.0.members.iter().position(shares).unwrap_or(self.0.me);
        let team = self.split(Some(first as u32), 0)?;
        team.ok_or_else(|| Error::new(ErrorKind::Protocol, "split a team by nodes"))
    }

    /// Waits until every rank of the team has called it: ⌈log2 P⌉ messages a rank (dissemination), or one where
    /// the team [is crowded](Self::is_crowded).
    ///
    /// # Errors
    /// `PeerLost`.
    pub fn barrier(&self) -> Result<()> {
        let number = self.0.barriers.get() + 1;
        self.0.barriers.set(number);
        match self.0.board.get() {
            Some(board) => coll::barrier_dissemination::run(self, board, number),
            None => Err(Error::new(ErrorKind::Freed, "barrier")),
        }
    }
}
