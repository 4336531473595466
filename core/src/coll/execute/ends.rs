//! Ranks that reach the end of the job while others wait for them.
//!
//! A rank that has waited through several checks of the peers, for one peer or for all ranks of a team, asks those
//! ranks whether they have reached the end of the job, and doubles the interval before each further question. A
//! question is a message of 16 bytes. Only a rank that has reached the end answers it, and is not asked again. Messages
//! of a pair of ranks keep their order, and a rank signals before it reaches the end, so a message or signal that has
//! not arrived one check of the peers after the answer will not arrive.

use smallvec::SmallVec;

use super::calls::{Calls, HANDLER, Header};
use super::plan::{CHECKS_BEFORE_QUESTION, Check, ENDED, ENDS};
use crate::am::{self, Messenger};
use crate::bill::Awaited;
use crate::error::{Error, ErrorKind, Result};
use crate::stats::Kind;

fn message(tag: u32) -> [u8; 16] {
    Header { context: 0, sequence: 0, tag, check: Check(0) }.write()
}

impl Calls {
    /// Records whether this rank has reached the end of the job.
    pub(crate) fn set_end(&self, at_end: bool) {
        self.ends.own.set(at_end);
    }

    /// Handles a question or an answer about ends. Returns whether the message was one.
    pub(super) fn take_end(&self, tag: u32, source: u32) -> bool {
        match tag {
            ENDS if self.ends.own.get() => self.answer(source, message(ENDED).to_vec()),
            ENDED => _ = self.ends.others.borrow_mut().entry(source).or_insert(self.checks()),
            _ => return tag == ENDS,
        }
        true
    }

    /// Called in a wait, once for each check of the peers. Fails if an awaited rank has reached the end of the job.
    ///
    /// # Errors
    /// `PeerLost`.
    pub(super) fn ask_for_ends(&self, job: &Messenger, awaited: &Awaited) -> Result<()> {
        let ranks = self.needed(job, awaited);
        if ranks.is_empty() || self.ends.own.get() {
            self.ends.asks.set(None);
            return Ok(());
        }
        let has_ended = |rank: &&u32| {
            let is_reported = self.ends.others.borrow().get(*rank).is_some_and(|check| *check != self.checks());
            is_reported && !job.active_messages().is_receiving(**rank)
        };
        if let Some(rank) = ranks.iter().find(has_ended) {
            let e = Error::new(ErrorKind::PeerLost, awaited.operation).rank(job.rank()).peer(*rank);
            return Err(e.cause("the peer has finalized while this rank waits for it"));
        }
        let (left, patience) = match self.ends.asks.get() {
            Some((same, left, patience)) if same == *awaited => (left, patience),
            // Twice the interval of a question about a message, so that in a wait for a message that question, which is
            // more precise, comes first.
            _ => (2 * CHECKS_BEFORE_QUESTION, 2 * CHECKS_BEFORE_QUESTION),
        };
        if left > 1 {
            self.ends.asks.set(Some((*awaited, left - 1, patience)));
            return Ok(());
        }
        self.ends.asks.set(Some((*awaited, patience.saturating_mul(2), patience.saturating_mul(2))));
        let unknown = |rank: &&u32| !self.ends.others.borrow().contains_key(*rank);
        let question = message(ENDS);
        let ask = |rank: &u32| {
            job.device().own_stats().add(Kind::Question, question.len());
            am::notify(job, *rank, HANDLER, &question).map_err(|e| e.during(awaited.operation))
        };
        ranks.iter().filter(unknown).try_for_each(ask)
    }

    /// All ranks that a wait needs: if one of them has ended, the wait cannot complete.
    fn needed(&self, job: &Messenger, awaited: &Awaited) -> SmallVec<[u32; 4]> {
        let all = || self.members(awaited.account.filter(|_| awaited.call > 0)?.context);
        let of_team = |ranks: std::rc::Rc<[u32]>| ranks.iter().copied().collect();
        let needed: SmallVec<[u32; 4]> = awaited
            .from
            .map_or_else(|| all().map_or_else(SmallVec::new, of_team), |rank| SmallVec::from_slice(&[rank]));
        needed.into_iter().filter(|rank| *rank != job.rank_number()).collect()
    }
}
