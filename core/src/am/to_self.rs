#![allow(unsafe_code)]
//! Messages of a rank to itself: no packets, and one copy, from the source to the sink.

use std::rc::Rc;

use super::arrivals::Envelope;
use super::counter::Counter;
use super::data::Data;
use super::handler::{Message, Token};
use super::messenger::Messenger;
use super::outgoing::Queued;
use super::own::OwnMessage;
use super::packet::{Prefix, SHORT_BODY_WORDS};
use super::payload::Payload;
use super::receive::{cancelled, not_held};
use super::sink::{Filling, Received, Sink, Source};
use super::state::OWN;
use super::{ActiveMessages, Delivery, OnComplete};
use crate::entered::Entered;
use crate::error::{Error, Result};
use crate::stats::Kind;
use crate::tracked::Track;

impl ActiveMessages {
    /// Delivers the queued messages; returns whether there were any.
    pub(super) fn deliver_own(&self, job: &Messenger) -> Result<bool> {
        let Some(_entered) = Entered::new(&self.delivering) else { return Ok(false) };
        let mut any = false;
        loop {
            let next = self.own.borrow_mut().queue.pop_front();
            match next {
                None => break,
                Some(OwnMessage::Short(prefix, words)) => self.deliver_short(job, &prefix, words)?,
                Some(OwnMessage::Long(message)) => self.deliver_to_handler(job, message)?,
            }
            any = true;
        }
        self.unmark(OWN);
        Ok(any)
    }

    fn deliver_short(&self, job: &Messenger, prefix: &Prefix, words: [u64; SHORT_BODY_WORDS]) -> Result<()> {
        let handler = self.handler_for(prefix.handler, job.rank_number())?;
        let bytes = words.map(u64::to_le_bytes);
        let (header, data) = bytes.as_flattened().split_at(usize::from(prefix.header_len));
        self.run_whole(&handler, job.rank_number(), prefix, header, Payload::Bytes(&data[..prefix.number as usize]))
    }

    #[inline(never)]
    fn deliver_to_handler(&self, job: &Messenger, message: Box<Queued>) -> Result<()> {
        let source = job.rank_number();
        let handler = match self.handler_for(message.handler.0, source) {
            Ok(handler) => handler,
            Err(e) => {
                message.data.fail(&e);
                return Err(e);
            }
        };
        let data = match &message.data {
            Data::Copied(bytes) => Some(&bytes[..]),
            Data::Lent(lent) => match lent.source() {
                Source::Bytes(block) if block.len > 0 => {
                    // SAFETY: valid and not written until the message is complete, by the contract of `start_send`.
                    Some(unsafe { std::slice::from_raw_parts(block.base.cast_const(), block.len) })
                }
                Source::Bytes(_) => Some(&[][..]),
                Source::Layout(_) => None,
            },
        };
        let delivery = handler(Message {
            source,
            number: message.number,
            header: &message.header,
            len: message.data.len(),
            payload: data.map(Payload::Bytes),
            waits: true,
        });
        match delivery {
            Delivery::Done => {
                message.data.complete();
                self.finished(source, message.target, 0)?;
                message.completion.inspect(Counter::increment);
                Ok(())
            }
            Delivery::Into(sink, then) => self.copy_own(job, *message, sink, then),
            Delivery::Hold => {
                self.own.borrow_mut().held.insert(message.number, (Some(message), false));
                Ok(())
            }
        }
    }

    /// Copies a message of this rank to itself into its sink.
    fn copy_own(&self, job: &Messenger, message: Queued, sink: Sink, then: OnComplete) -> Result<()> {
        let copy = |data: &Data| -> Result<Received> {
            let mut filling = Filling::new(sink, data.len())?;
            match data {
                Data::Copied(bytes) => _ = filling.take(bytes),
                // SAFETY: the source is valid until the message is complete, by the contract of `start_send`; no other
                // code reads the sink's memory, so it does not overlap the source.
                Data::Lent(lent) => unsafe { filling.take_from(lent.source()) }?,
            }
            filling.received()
        };
        let received = copy(&message.data).map_err(|e| e.peer(job.rank()));
        match &received {
            Ok(received) => {
                job.device().own_stats().add(Kind::Copy, received.kept);
                message.data.complete();
                self.finished(job.rank_number(), message.target, 0)?;
            }
            Err(e) => message.data.fail(e),
        }
        let completion = message.completion.filter(|_| received.is_ok());
        match then {
            OnComplete::Inline(f) => {
                f(received);
                completion.inspect(Counter::increment);
            }
            OnComplete::Deferred(f) => self.defer(Box::new(move |job| {
                f(job, received)?;
                completion.inspect(Counter::increment);
                Ok(())
            })),
        }
        Ok(())
    }

    pub(super) fn deliver_held_own(&self, job: &Messenger, number: u64, sink: Sink, then: OnComplete) -> Result<()> {
        let (token, held) = (Token { source: job.rank_number(), number }, self.own.borrow_mut().held.remove(&number));
        match held.ok_or_else(|| not_held(token))? {
            (Some(message), _) => self.copy_own(job, *message, sink, then),
            (None, _) => {
                let envelope = Envelope { token, len: 0, target: 0, acknowledged: false };
                self.complete(envelope, Some(then), Err(cancelled()))
            }
        }
    }

    pub(super) fn abandon_own(&self, number: u64) -> bool {
        let held = self.own.borrow_mut().held.remove(&number);
        held.map(|(message, _)| message.map(|message| message.data.complete())).is_some()
    }

    /// Cancels the messages of this rank to itself that `track` counts; with `withdrawn` only those that may still be
    /// withdrawn, which end with that error.
    pub(super) fn cancel_own(&self, track: &Rc<Track>, withdrawn: Option<&Error>) {
        let taken = self.own.borrow_mut().take(track, withdrawn.is_some());
        for data in taken {
            match withdrawn {
                Some(e) => data.fail(e),
                None => data.cancel(),
            }
        }
    }
}
