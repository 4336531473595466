//! Missing messages: a rank that waits for a message asks its sender.
//!
//! The sender answers only if its part of the call is over. Messages of a pair of ranks keep their order, so a message
//! that has not arrived before that answer will not arrive, and the waiting rank fails the call. If the call is in
//! progress at the sender and has no such message, the sender fails it. So ranks that disagree get an error also if no
//! other message shows it: for example if only one rank takes a rank for the root, or a block is empty for its sender
//! alone. A rank that has not started the call is waited for, unless it waits in a barrier by signals that the asking
//! rank has not entered: then both fail.

use std::rc::Rc;

use super::{Run, Slot, State};
use crate::coll::execute::calls::{self, Header};
use crate::coll::execute::plan::{Check, QUESTION};
use crate::coll::schedule::{Action, Step};
use crate::wire::{Reader, Writer};

/// Tag in a question about short data.
const SHORT: u32 = u32::MAX;

/// Identifies the message in question.
#[derive(Clone, Copy, Debug)]
pub(in crate::coll::execute) struct Question {
    tag: u32,
    /// Round of a persistent call; else 0.
    round: u32,
    /// Number of barriers by signals that the asking rank has begun.
    pub(in crate::coll::execute) barriers: u32,
}

impl Question {
    pub(in crate::coll::execute) fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        Some(Self { tag: r.u32()?, round: r.u32()?, barriers: r.u32()? })
    }

    /// Writes a message with this question after the header.
    pub(in crate::coll::execute) fn write(self, header: Header) -> Vec<u8> {
        [&header.write()[..], &Writer::new().u32(self.tag).u32(self.round).u32(self.barriers).done()].concat()
    }
}

impl Run {
    /// Asks for the messages that the run waits for, if it has waited for some checks of the peers.
    pub(in crate::coll::execute) fn ask(&self) {
        let (left, patience) = self.patience.get();
        if self.state.get() != State::Active || left > 1 {
            self.patience.set((left.saturating_sub(1), patience));
            return;
        }
        self.patience.set((patience.saturating_mul(2), patience.saturating_mul(2)));
        let (context, sequence, check) = (self.team.context(), self.sequence.get(), self.plan.check);
        let (header, barriers) = (Header { context, sequence, tag: QUESTION, check }, self.team.barriers());
        if self.short.get() {
            let question = Question { tag: SHORT, round: 0, barriers }.write(header);
            let others = self.plan.peers.iter().filter(|rank| **rank != self.job.rank());
            return others.for_each(|rank| calls::notify(&self.job, *rank, &question));
        }
        for (slot, expected) in self.slots.borrow().iter().zip(&self.plan.expected) {
            if matches!(slot, Slot::Posted) {
                let question = Question { tag: expected.tag, round: self.round.get(), barriers };
                calls::notify(&self.job, expected.source, &question.write(header));
            }
        }
    }

    /// Handles a question of rank `source` about a message of this rank. Returns whether the call is over here.
    pub(in crate::coll::execute) fn asked(self: &Rc<Self>, source: u32, check: Check, question: Question) -> bool {
        let ahead = question.round.wrapping_sub(self.round.get()).cast_signed();
        if self.persistent && ahead != 0 {
            return ahead < 0;
        }
        if self.state.get() == State::Active {
            let short = question.tag == SHORT;
            let is_it = |step: Step<'_>| match step.action {
                Action::Send { to, tag } | Action::Signal { to, tag } => {
                    (self.plan.peers[to as usize], tag) == (source, question.tag)
                }
                _ => false,
            };
            let sends = short == self.short.get() && (short || self.plan.schedule.steps().any(is_it));
            if check != self.plan.check {
                self.mismatch(source, self.plan.difference(check));
            } else if !sends {
                self.mismatch(source, format!("it waits for a message that a {} does not send here", self.name()));
            }
            self.queue();
            return false;
        }
        self.state.get() != State::Idle
    }

    /// Handles the answer of rank `source` that the call is over there.
    pub(in crate::coll::execute) fn over(self: &Rc<Self>, source: u32, question: Question) {
        if self.state.get() != State::Active || self.persistent && question.round != self.round.get() {
            return;
        }
        if self.short.get() {
            return self.over.set(Some(source));
        }
        let slot = self.plan.slot(source, question.tag);
        if slot.is_some_and(|slot| matches!(self.slots.borrow()[slot], Slot::Empty | Slot::Posted)) {
            self.mismatch(source, format!("its {} is over, without a message that this rank waits for", self.name()));
            self.queue();
        }
    }
}
