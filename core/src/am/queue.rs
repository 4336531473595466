#![allow(unsafe_code)]
//! The send queues: how messages are queued, how targets' answers are handled, and how messages are cancelled.

use std::collections::VecDeque;
use std::rc::Rc;

use super::ActiveMessages;
use super::data::Data;
use super::messenger::Messenger;
use super::offer::{Offered, Writing};
use super::outgoing::PendingRendezvous;
use super::packet::{CANCEL, OP, Prefix, WITHDRAW};
use super::state::PACKETS;
use crate::error::{Error, ErrorKind, Result};
use crate::tracked::Track;

impl ActiveMessages {
    pub(super) fn acknowledged(&self, source: u32, number: u64) -> Result<()> {
        let mut out = self.outgoing.borrow_mut();
        if out.awaited.get(&number).is_none_or(|(target, _)| *target != source) {
            return Err(unknown(source, "acknowledgement"));
        }
        out.awaited.remove(&number).inspect(|(_, c)| c.increment());
        Ok(())
    }

    /// Handles a clear to send: the target wants the first `wanted` bytes.
    pub(super) fn clear_to_send(&self, job: &Messenger, source: u32, number: u64, wanted: u64) -> Result<()> {
        let mut out = self.outgoing.borrow_mut();
        match out.asked.remove(&number) {
            Some(PendingRendezvous::Waiting { target, lent, offered })
                if target == source && (1..=lent.source.len() as u64).contains(&wanted) =>
            {
                let wanted = wanted as usize;
                out.asked.insert(number, PendingRendezvous::Streaming { target, lent, wanted, sent: 0 });
                out.streams.entry(target).or_default().push_back(number);
                self.mark(PACKETS);
                drop(out);
                release_offered(job, offered, true);
                Ok(())
            }
            other => {
                // The message may have been cancelled meanwhile.
                let crossed = matches!(other, Some(PendingRendezvous::Cancelled(target)) if target == source);
                other.map(|other| out.asked.insert(number, other));
                if crossed { Ok(()) } else { Err(unknown(source, "clear to send")) }
            }
        }
    }

    /// Handles a sink that the target of a message has exported for this rank to write segments of the message into.
    pub(super) fn sink_lent(&self, source: u32, number: u64, claims: u64, sink: &[u8]) -> Result<()> {
        let mut out = self.outgoing.borrow_mut();
        match out.asked.get_mut(&number) {
            Some(PendingRendezvous::Waiting { target, lent, offered: Some(offered) })
                if *target == source && offered.writing.is_none() =>
            {
                let writing = Writing::read(claims, sink, lent.source.len());
                offered.writing = Some(Box::new(writing.ok_or_else(|| unknown(source, "malformed sink"))?));
                out.writes.push_back(number);
                self.mark(PACKETS);
                Ok(())
            }
            // The message was cancelled meanwhile.
            Some(PendingRendezvous::Cancelled(target)) if *target == source => Ok(()),
            _ => Err(unknown(source, "sink")),
        }
    }

    /// Handles the end of a message: its target no longer needs the data, or could not receive it because of the error
    /// kind with index `code` - 1.
    pub(super) fn finished_by_target(&self, job: &Messenger, source: u32, number: u64, code: u64) -> Result<()> {
        let mut out = self.outgoing.borrow_mut();
        let (lent, offered) = match out.asked.remove(&number) {
            Some(PendingRendezvous::Waiting { target, lent, offered }) if target == source => (lent, offered),
            Some(PendingRendezvous::Cancelled(target)) if target == source => return Ok(()),
            other => {
                other.map(|other| out.asked.insert(number, other));
                return Err(unknown(source, "end"));
            }
        };
        if code != 0 {
            out.awaited.remove(&number);
        }
        drop(out);
        release_offered(job, offered, true);
        match code.checked_sub(1) {
            None => lent.complete(),
            Some(code) => {
                let kind = usize::try_from(code).ok().and_then(|code| ErrorKind::ALL.get(code).copied());
                let e = Error::new(kind.unwrap_or(ErrorKind::Protocol), OP).peer(source);
                lent.fail(&e.cause("the target could not receive the message and reported this error kind"));
            }
        }
        Ok(())
    }

    /// Withdraws messages that `track` counts, if no byte of them has been sent and their targets have not named a
    /// sink: they end with `Aborted`, at once or when the target has confirmed. The others continue.
    pub(crate) fn withdraw(&self, track: &Rc<Track>) {
        let withdrawn = Error::new(ErrorKind::Aborted, OP).cause("the sender cancelled the message");
        self.cancel_own(track, Some(&withdrawn));
        let mut out = self.outgoing.borrow_mut();
        let mut taken = Vec::new();
        out.queues.retain(|_, queue| {
            let (own, kept) = std::mem::take(queue)
                .into_iter()
                .partition::<VecDeque<_>, _>(|message| message.sent == 0 && message.data.is_of(track));
            *queue = kept;
            taken.extend(own);
            !queue.is_empty()
        });
        let asked = out
            .asked
            .iter()
            .filter(|(_, asked)| matches!(asked, PendingRendezvous::Waiting { .. }) && asked.is_of(track));
        let questions: Vec<(u64, u32)> = asked.map(|(number, asked)| (*number, asked.target())).collect();
        for (number, target) in questions {
            out.control.entry(target).or_default().push_back(Prefix::control(CANCEL, number, WITHDRAW));
            self.mark(PACKETS);
        }
        drop(out);
        taken.into_iter().for_each(|message| message.data.fail(&withdrawn));
    }

    /// Targets and lengths of the eager messages that `track` counts, if no byte of them has been sent.
    pub(crate) fn unsent(&self, track: &Rc<Track>) -> Vec<(u32, usize)> {
        let out = self.outgoing.borrow();
        let all = out.queues.iter().flat_map(|(target, queue)| queue.iter().map(|message| (*target, message)));
        let unsent = all.filter(|(_, m)| m.sent == 0 && !m.waits && m.data.is_of(track));
        unsent.map(|(target, message)| (target, message.data.len())).collect()
    }

    /// Cancels the messages that `track` counts: afterwards their memory is no longer read.
    pub(crate) fn cancel(&self, job: &Messenger, track: &Rc<Track>) {
        self.cancel_own(track, None);
        let mut out = self.outgoing.borrow_mut();
        let mut cancelled = Vec::new();
        let (mut partly, mut revoked) = (Vec::new(), Vec::new());
        out.queues.retain(|target, queue| {
            let (taken, kept) = std::mem::take(queue).into_iter().partition::<VecDeque<_>, _>(|m| m.data.is_of(track));
            *queue = kept;
            for message in taken {
                if message.sent > 0 {
                    partly.push((message.number, *target));
                }
                cancelled.push(message.data);
            }
            !queue.is_empty()
        });
        let numbers: Vec<u64> = out.asked.iter().filter(|(_, a)| a.is_of(track)).map(|(number, _)| *number).collect();
        out.streams.retain(|_, streams| {
            streams.retain(|number| !numbers.contains(number));
            !streams.is_empty()
        });
        for number in numbers {
            let (target, lent) = match out.asked.remove(&number) {
                Some(PendingRendezvous::Waiting { target, lent, offered }) => {
                    revoked.push(offered);
                    (target, lent)
                }
                Some(PendingRendezvous::Streaming { target, lent, .. }) => (target, lent),
                _ => continue,
            };
            partly.push((number, target));
            cancelled.push(Data::Lent(lent));
        }
        for (number, target) in partly {
            out.awaited.remove(&number);
            out.asked.insert(number, PendingRendezvous::Cancelled(target));
            out.control.entry(target).or_default().push_back(Prefix::control(CANCEL, number, 0));
            self.mark(PACKETS);
        }
        drop(out);
        revoked.into_iter().for_each(|offered| release_offered(job, offered, false));
        cancelled.into_iter().for_each(Data::cancel);
    }
}

/// Releases memory that was exported for a target to read, and ends this rank's writes of the same message. `is_read`:
/// the target reads it no longer; otherwise a read in progress ends there with an error.
pub(super) fn release_offered(job: &Messenger, offered: Option<Offered>, is_read: bool) {
    let Some(Offered { region, writing }) = offered else { return };
    if let Some(writing) = writing {
        writing.end(job);
    }
    if is_read {
        job.device().sealed(region);
    }
    release(job, region);
}

/// Releases memory that was exported for one message.
pub(super) fn release(job: &Messenger, region: u64) {
    // SAFETY: registered for one message, which has ended; the memory is the caller's own.
    if let Err(e) = unsafe { job.device().release(region) } {
        tracing::warn!("the region exported for a message could not be released: {e}");
    }
}

fn unknown(source: u32, what: &str) -> Error {
    Error::new(ErrorKind::Protocol, "receive an active message")
        .peer(source)
        .cause(format!("the peer sent a {what} for a message that this rank never sent to it"))
}
