//! Calls of a subgroup of a team, one rank of which has refused the call for its arguments.
//!
//! The other ranks of the subgroup wait for a message of that rank, which may repeat the call. If that rank makes a
//! collective call of the team instead, it will not send the message before the others make that call too. So in its
//! next long wait it reports to all ranks of the team how many calls it has made, and a rank of the subgroup that has
//! made fewer stops waiting for it.

use std::rc::Rc;

use super::calls::{self, Calls, Header, TeamCalls};
use super::plan::{Check, MOVED_ON};
use crate::am::Messenger;
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;

fn is_later(call: u32, than: u32) -> bool {
    call.wrapping_sub(than).cast_signed() > 0
}

impl TeamCalls {
    /// Number of collective calls of this rank, by messages and by signals.
    pub(super) fn all_made(&self) -> u32 {
        self.made().wrapping_add(self.barriers())
    }

    /// Fails if rank `from` of the job has refused a call of a subgroup and then made a collective call that this rank
    /// has not made.
    pub(super) fn check_group_call(&self, job: &Job, operation: &'static str, from: u32) -> Result<()> {
        match self.refusals.others.borrow().get(&from) {
            Some(theirs) if is_later(*theirs, self.all_made()) => {
                let e = Error::new(ErrorKind::Mismatch, operation).rank(job.rank()).peer(from);
                Err(e.cause("the peer rejected the arguments of its own call, and then made another collective call"))
            }
            _ => Ok(()),
        }
    }

    /// Whether a rank that had made `made` collective calls called an operation that this rank has refused, before the
    /// last call that this rank has made.
    pub(super) fn has_refused(&self, made: u32) -> bool {
        self.refusals.own.get().is_some_and(|own| !is_later(made, own) && is_later(self.all_made(), own))
    }
}

impl Calls {
    /// Records that this rank has refused a call of a subgroup of the team.
    pub(super) fn note_refusal(&self, team: &Rc<TeamCalls>) {
        team.refusals.own.set(Some(team.all_made()));
        let mut unreported = self.unreported.borrow_mut();
        if !unreported.iter().any(|known| Rc::ptr_eq(known, team)) {
            unreported.push(Rc::clone(team));
        }
    }

    /// Called in a wait, once for each check of the peers.
    pub(super) fn report_refusals(&self, job: &Messenger) {
        self.unreported.borrow_mut().retain(|team| {
            let made = team.all_made();
            if team.refusals.own.get() == Some(made) {
                return true;
            }
            let message = Header { context: team.context(), sequence: made, tag: MOVED_ON, check: Check(0) }.write();
            let members = team.members.get().into_iter().flat_map(|members| members.iter().copied());
            members.filter(|rank| *rank != job.rank_number()).for_each(|rank| calls::ask(job, rank, &message));
            false
        });
    }

    /// Handles a report of the number of calls that rank `source` has made. Returns whether the message is such a
    /// report.
    pub(super) fn take_refusal(&self, header: Header, source: u32) -> bool {
        if header.tag == MOVED_ON
            && let Some(team) = self.team_of(header.context)
        {
            team.refusals.others.borrow_mut().insert(source, header.sequence);
        }
        header.tag == MOVED_ON
    }
}
