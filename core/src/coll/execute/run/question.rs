//! Missing messages: a rank that waits for a message asks its sender.
//!
//! The sender answers only if the call has ended at the sender. Messages of a pair of ranks keep their order, so a
//! message that has not arrived before that answer will not arrive, and the waiting rank fails the call. If the call is
//! in progress at the sender and has no such message, the sender fails it. So ranks that disagree get an error even if
//! no other message shows the disagreement: for example if only one rank passes another root, or a block is empty only
//! at its sender. The wait for a rank that has not started the call continues, unless that rank waits in a barrier by
//! signals that the asking rank has not entered: then both fail.
//!
//! A question also contains the properties of the call, and an answer those of the call that has ended, so that the
//! error of ranks that disagree names the property that differs, with both values.

use std::rc::Rc;

use super::{Run, Slot, State};
use crate::coll::execute::calls::{self, Header};
use crate::coll::execute::plan::{CHECKS_BEFORE_QUESTION, Check, Plan, QUESTION};
use crate::coll::schedule::{Port, Step};
use crate::wire::{Reader, Writer};

/// Tag in a question about short data.
pub(super) const SHORT: u32 = u32::MAX;

/// Identifies the message in question.
#[derive(Clone, Debug)]
pub(in crate::coll::execute) struct Question {
    tag: u32,
    /// Round of a persistent call; else 0.
    round: u32,
    /// Number of barriers by signals that the asking rank has begun.
    pub(in crate::coll::execute) barriers: u32,
    /// Properties of the call at the rank that asks or answers, for the error if they differ; empty if not known.
    properties: String,
}

impl Question {
    pub(in crate::coll::execute) fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let (tag, round, barriers) = (r.u32()?, r.u32()?, r.u32()?);
        Some(Self { tag, round, barriers, properties: String::from_utf8_lossy(r.bytes()?).into_owned() })
    }

    /// The answer, with the properties of this rank's call.
    pub(in crate::coll::execute) fn with(self, properties: String) -> Self {
        Self { properties, ..self }
    }

    /// Writes a message with this question after the header.
    pub(in crate::coll::execute) fn write(self, header: Header) -> Vec<u8> {
        let numbers = Writer::new().u32(self.tag).u32(self.round).u32(self.barriers);
        [&header.write()[..], &numbers.bytes(self.properties.as_bytes()).done()].concat()
    }
}

impl Run {
    /// Asks for the messages for which the run waits, if it has waited through enough checks of the peers. A run that
    /// has asked for the properties of another call and got no answer then fails without them.
    pub(in crate::coll::execute) fn ask(self: &Rc<Self>) {
        if self.plan.lends {
            self.check_failed_access();
            self.queue();
        }
        let (left, patience) = self.patience.get();
        if self.state.get() != State::Active || left > 1 {
            self.patience.set((left.saturating_sub(1), patience));
            return;
        }
        self.patience.set((patience.saturating_mul(2), patience.saturating_mul(2)));
        if let Some(source) = self.compared.get() {
            if patience >= 8 * CHECKS_BEFORE_QUESTION {
                self.differs(source, "");
            }
            return;
        }
        if self.short.get() {
            let question = self.question(SHORT);
            let missing = self.plan.peers.iter().enumerate().filter(|(rank, _)| self.missing.get() & 1 << rank != 0);
            return missing.for_each(|(_, rank)| calls::ask(&self.job, *rank, &question));
        }
        for (slot, expected) in self.slots.borrow().iter().zip(&self.plan.expected) {
            if matches!(slot, Slot::Posted) {
                calls::ask(&self.job, expected.source, &self.question(expected.tag));
            }
        }
    }

    /// A question about a message.
    fn question(&self, tag: u32) -> Vec<u8> {
        let (context, sequence, check) = (self.team.context(), self.sequence.get(), self.plan.check);
        let (round, barriers) = (self.round.get(), self.team.barriers());
        let question = Question { tag, round, barriers, properties: self.plan.properties() };
        question.write(Header { context, sequence, tag: QUESTION, check })
    }

    /// Asks the sender of a message of another call with the same operation and root for the properties of that call.
    /// The error names the property that differs: the sender fails if it is still in the call, else it answers. If
    /// there are several senders, only the first is asked.
    #[cold]
    pub(super) fn compare(&self, source: u32, tag: u32) {
        if self.compared.get().is_none() {
            self.compared.set(Some(source));
            self.patience.set((CHECKS_BEFORE_QUESTION, CHECKS_BEFORE_QUESTION));
            self.calls.answer(source, self.question(tag));
        }
    }

    /// Fails the run because its properties differ from those of the call of rank `source`.
    fn differs(self: &Rc<Self>, source: u32, properties: &str) {
        self.mismatch(source, self.plan.difference(self.job.rank_number(), source, properties));
        self.queue();
    }

    /// The plan of the call.
    pub(in crate::coll::execute) fn plan(&self) -> &Rc<Plan> {
        &self.plan
    }

    /// Handles a question of rank `source` about a message of this rank. Returns whether the call has ended at this
    /// rank.
    pub(in crate::coll::execute) fn asked(self: &Rc<Self>, source: u32, check: Check, question: &Question) -> bool {
        let ahead = question.round.wrapping_sub(self.round.get()).cast_signed();
        if self.persistent && ahead != 0 {
            return ahead < 0;
        }
        if self.state.get() == State::Active {
            let short = question.tag == SHORT;
            let is_it = |step: Step<'_>| {
                let message = step.action.message(self.plan.schedule.rank());
                let is_it = |to: u32, tag| (self.plan.peers[to as usize], tag) == (source, question.tag);
                matches!(message, Some((Port::Out, (_, to, tag))) if is_it(to, tag))
            };
            let sends = short == self.short.get() && (short || self.plan.schedule.steps().any(is_it));
            if let Some(cause) = self.plan.other_call(check) {
                self.mismatch(source, cause);
            } else if check != self.plan.check {
                self.differs(source, &question.properties);
            } else if !sends {
                self.mismatch(
                    source,
                    format!("the peer waits for a message that this rank's {} does not send", self.name()),
                );
            }
            self.queue();
            return false;
        }
        self.state.get() != State::Idle
    }

    /// Handles the answer of rank `source` that the call has ended there.
    pub(in crate::coll::execute) fn over(self: &Rc<Self>, source: u32, question: &Question) {
        if self.state.get() != State::Active || self.persistent && question.round != self.round.get() {
            return;
        }
        if self.compared.get() == Some(source) {
            return self.differs(source, &question.properties);
        }
        if self.short.get() {
            let ranks = self.plan.peers.iter().enumerate().filter(|(_, rank)| **rank == source);
            return ranks.for_each(|(rank, _)| self.over.set(self.over.get() | 1 << rank));
        }
        let slot = self.plan.slot(source, question.tag);
        if slot.is_some_and(|slot| matches!(self.slots.borrow()[slot], Slot::Empty | Slot::Posted)) {
            self.mismatch(
                source,
                format!(
                    "the peer has completed its {} without sending a message that this rank waits for",
                    self.name()
                ),
            );
            self.queue();
        }
    }
}
