#![allow(unsafe_code)]
//! The receiving side of a run: messages that arrive before or after their steps start, and where their data goes.

use std::rc::Rc;

use super::super::calls::{Announce, EarlyMessage, Header};
use super::super::memory::Scratch;
use super::super::plan::Check;
use super::loans::MAX_LOAN_BYTES;
use super::{Run, Slot, State};
use crate::am::{self, Delivery, Message, OnComplete, Payload, Received, Sink, Unexpected};
use crate::coll::schedule::{Action, Slice};
use crate::device::Block;
use crate::error::{Error, ErrorKind, Result};

impl Run {
    /// Handles the messages that have arrived before the start.
    pub(super) fn take_early(&self) {
        for message in self.team.take_early(self.sequence.get()) {
            let slot = self.plan.slot(message.source, message.tag);
            if message.check != self.plan.check || slot.is_none() || self.short.get() {
                self.unexpected(message.source, message.check, message.tag);
                message.body.abandon(&self.job);
                continue;
            }
            let slot = slot.unwrap_or(0);
            let mut slots = self.slots.borrow_mut();
            if matches!(slots[slot], Slot::Empty) {
                slots[slot] = Slot::Early(message.body);
            } else if self.persistent {
                // For a later round: messages of one source and tag arrive in the order of the rounds.
                self.team.keep(self.sequence.get(), message);
            } else {
                drop(slots);
                self.mismatch(message.source, "the peer sent a message twice".to_owned());
                message.body.abandon(&self.job);
            }
        }
    }

    /// Handles a message that the call does not expect at this rank.
    #[cold]
    fn unexpected(&self, source: u32, check: Check, tag: u32) {
        let cause = if check == self.plan.check && self.short.get() {
            format!("the peer has started a {} with another algorithm than this rank", self.name())
        } else if check == self.plan.check {
            format!("the peer sent a message that this rank's {} does not expect", self.name())
        } else if let Some(cause) = self.plan.other_call(check) {
            cause
        } else {
            return self.compare(source, tag);
        };
        self.mismatch(source, cause);
    }

    pub(super) fn mismatch(&self, source: u32, cause: String) {
        let e = Error::new(ErrorKind::Mismatch, self.name()).rank(self.job.rank()).peer(source);
        self.fault(e.cause(cause), Announce::Others);
    }

    /// Whether the call has such a message, in any round.
    pub(in crate::coll::execute) fn expects(&self, header: Header, source: u32) -> bool {
        header.check == self.plan.check && self.plan.slot(source, header.tag).is_some()
    }

    /// Handles a message of this call.
    pub(in crate::coll::execute) fn arrive(self: &Rc<Self>, header: Header, m: Message<'_>) -> Delivery {
        let keep = |m: Message<'_>| {
            let (body, delivery) = Unexpected::of(m, true);
            (EarlyMessage { source: m.source, tag: header.tag, check: header.check, body }, delivery)
        };
        if self.state.get() != State::Active {
            let (message, delivery) = keep(m);
            self.team.keep(self.sequence.get(), message);
            return delivery;
        }
        let fits = header.check == self.plan.check && !self.short.get();
        let Some(slot) = self.plan.slot(m.source, header.tag).filter(|_| fits) else {
            self.unexpected(m.source, header.check, header.tag);
            self.queue();
            return Delivery::Done;
        };
        let mut slots = self.slots.borrow_mut();
        match slots[slot] {
            Slot::Posted => {
                drop(slots);
                self.take(slot, m)
            }
            Slot::Empty => {
                let (body, delivery) = Unexpected::of(m, true);
                slots[slot] = Slot::Early(body);
                delivery
            }
            _ if self.persistent => {
                let (message, delivery) = keep(m);
                self.team.keep(self.sequence.get(), message);
                delivery
            }
            _ => {
                drop(slots);
                self.mismatch(m.source, "the peer sent a message twice".to_owned());
                self.queue();
                Delivery::Done
            }
        }
    }

    /// Receives a message for which its step waits.
    #[inline]
    pub(super) fn take(self: &Rc<Self>, slot: usize, m: Message<'_>) -> Delivery {
        let step = self.plan.expected[slot].step;
        if !self.has_length(slot, m.len) {
            self.queue();
            return Delivery::Done;
        }
        if let Some(data) = m.payload {
            self.consume(step, data);
            self.slots.borrow_mut()[slot] = Slot::Done;
            self.complete(step);
            self.queue();
            return Delivery::Done;
        }
        let Some((sink, operand)) = self.sink(step) else {
            self.queue();
            return Delivery::Done;
        };
        self.slots.borrow_mut()[slot] = Slot::Filling(m.token(), operand);
        Delivery::Into(sink, self.then(slot))
    }

    pub(super) fn then(self: &Rc<Self>, slot: usize) -> OnComplete {
        let run = Rc::clone(self);
        OnComplete::inline(move |received| run.filled(slot, received))
    }

    /// Checks the length of a message; a wrong length fails the run. Only a message for a single block may be shorter
    /// than it.
    #[inline]
    pub(super) fn has_length(&self, slot: usize, len: usize) -> bool {
        let expected = self.plan.expected[slot];
        let want = self.plan.bytes[expected.step as usize];
        if len == want {
            return true;
        }
        let step = self.plan.schedule.step(expected.step as usize);
        match step.action {
            Action::Borrow { .. } if len <= MAX_LOAN_BYTES => return true,
            Action::Reclaim { .. } if len == 0 => return true,
            _ => {}
        }
        let is_block = matches!((step.action, step.into), (Action::Receive { .. }, [Slice { count: 1, .. }]));
        let right = self.plan.may_be_shorter && is_block && len < want;
        if !right {
            self.mismatch(
                expected.source,
                format!("the peer's message of a {} has {len} bytes, but {want} are expected", self.name()),
            );
        }
        right
    }

    /// The destination of a message whose data has not all arrived, and the operand buffer if it has one; `None` as for
    /// [`operand`](Self::operand).
    pub(super) fn sink(&self, step: u32) -> Option<(Sink, Scratch)> {
        let bytes = self.plan.bytes[step as usize];
        let s = self.plan.schedule.step(step as usize);
        Some(match s.action {
            Action::ReceiveReduce { .. } => {
                let mut operand = self.operand(bytes)?;
                // SAFETY: the buffer stays allocated, and is not accessed otherwise, until the message is received or
                // abandoned.
                (unsafe { Sink::memory(operand.start_mut(), bytes) }, operand)
            }
            Action::Borrow { .. } | Action::Reclaim { .. } => (Sink::buffer(Vec::new()), Scratch::default()),
            // SAFETY: the memory belongs to the run until it has ended: by the contract of `start`, and since no other
            // step in progress accesses these blocks.
            _ => (unsafe { self.buffers().sink(s.into) }, Scratch::default()),
        })
    }

    /// Memory for an operand, aligned for its elements; `None`, and the run fails, if it cannot be allocated.
    pub(super) fn operand(&self, bytes: usize) -> Option<Scratch> {
        let mut spare = self.operands.borrow_mut();
        if let Some(at) = spare.iter().position(|operand| operand.has_room(bytes)) {
            return Some(spare.swap_remove(at));
        }
        let operand = Scratch::new(bytes, self.plan.align);
        if operand.is_none() {
            let e = Error::new(ErrorKind::Limit, self.name()).rank(self.job.rank());
            self.fault(e.cause(format!("cannot allocate {bytes} bytes")), Announce::Others);
        }
        operand
    }

    /// Handles the end of the receive of a message into its destination.
    pub(super) fn filled(self: &Rc<Self>, slot: usize, received: Result<Received>) {
        if self.state.get() != State::Active {
            return;
        }
        let step = self.plan.expected[slot].step;
        let was = std::mem::replace(&mut self.slots.borrow_mut()[slot], Slot::Done);
        match (received, was) {
            (Ok(received), Slot::Filling(_, operand)) => {
                let action = self.plan.schedule.step(step as usize).action;
                if matches!(action, Action::Borrow { .. } | Action::Reclaim { .. }) {
                    self.consume(step, Payload::Bytes(&received.buffer));
                } else if !operand.is_empty() {
                    // SAFETY: the operand has at least the bytes of the step, and all of it is initialized.
                    let data = unsafe { std::slice::from_raw_parts(operand.start(), self.plan.bytes[step as usize]) };
                    self.consume(step, Payload::Bytes(data));
                    self.operands.borrow_mut().push(operand);
                }
                self.complete(step);
            }
            (Err(e), _) => self.not_received(slot, e),
            _ => {}
        }
        self.queue();
    }

    /// Handles a message that will not arrive. If its sender has cancelled it, the sender has failed or got the error
    /// of another rank, and the first rank to fail announces the error to all.
    #[cold]
    pub(super) fn not_received(&self, slot: usize, error: Error) {
        if error.kind() == ErrorKind::Aborted {
            self.slots.borrow_mut()[slot] = Slot::Posted;
        } else {
            self.fault(error, Announce::Others);
        }
    }

    /// Stores or reduces the data of a message, whose length has been checked, as its step specifies.
    #[inline]
    pub(super) fn consume(&self, step: u32, data: Payload<'_>) {
        let s = self.plan.schedule.step(step as usize);
        match s.action {
            // SAFETY: as in `sink`.
            Action::Receive { .. } => unsafe { self.buffers().fill(s.into, data) },
            Action::Borrow { source, tag } => self.borrow(source, tag, data.bytes()),
            Action::Reclaim { .. } => self.reclaim(s),
            Action::ReceiveReduce { side, .. } => {
                let data = data.bytes();
                if data.as_ptr().addr().is_multiple_of(self.plan.align) {
                    self.reduce(&[Block::of(data.as_ptr(), data.len())], &self.buffers().each(s.into), side);
                } else if let Some(mut operand) = self.operand(data.len()) {
                    // SAFETY: the operand has at least the bytes of the message, and only this call has it.
                    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), operand.start_mut(), data.len()) };
                    self.reduce(&[Block::of(operand.start(), data.len())], &self.buffers().each(s.into), side);
                    self.operands.borrow_mut().push(operand);
                }
            }
            _ => {}
        }
    }

    /// Starts to receive. Returns whether the message has arrived.
    pub(super) fn receive(self: &Rc<Self>, step: u32) -> Result<bool> {
        let slot = self.plan.slots[step as usize] as usize;
        let was = std::mem::replace(&mut self.slots.borrow_mut()[slot], Slot::Posted);
        let set = |now: Slot| self.slots.borrow_mut()[slot] = now;
        let Slot::Early(body) = was else { return Ok(false) };
        match body {
            Unexpected::Whole(data) => {
                set(Slot::Done);
                if !self.has_length(slot, data.len()) {
                    return Ok(false);
                }
                self.consume(step, Payload::Bytes(&data));
                Ok(true)
            }
            Unexpected::Held(token, len) => {
                if !self.has_length(slot, len) {
                    am::abandon(&self.job, token);
                    return Ok(false);
                }
                let Some((sink, operand)) = self.sink(step) else {
                    am::abandon(&self.job, token);
                    return Ok(false);
                };
                set(Slot::Filling(token, operand));
                if let Err(e) = am::deliver(&self.job, token, sink, self.then(slot)) {
                    self.not_received(slot, e);
                }
                Ok(false)
            }
        }
    }
}
