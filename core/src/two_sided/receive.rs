#![allow(unsafe_code)]
//! Receives and probes.

use std::rc::Rc;

use super::check;
use super::mailbox::Mailbox;
use super::offers::Stage;
use super::state::{Matched, RECEIVE, Receive, Status, Unexpected, status};
use crate::am::{self, OnComplete, Payload, Sink};
use crate::bill::Account;
use crate::error::{Error, ErrorKind, Result};
use crate::matching::{Envelope, Pattern};

impl Mailbox {
    /// Starts a receive: the first message that matches `pattern` goes to `sink`; the part that exceeds the sink is
    /// discarded, which the [`Status`] shows. Does not wait. `receive` [is done](Receive::is_done) when it has ended.
    ///
    /// # Safety
    /// The memory of the sink satisfies the contract of [`Sink::memory`], until the receive [is done](Receive::is_done)
    /// or [`forget_receive`](Self::forget_receive) has returned.
    ///
    /// # Errors
    /// `NoSuchRank`, `Freed`; an error of sending; `BadArgument` if `receive` was started and has not ended.
    pub unsafe fn start_receive(&self, receive: &Rc<Receive>, pattern: Pattern, sink: Sink) -> Result<()> {
        check(self, "receive a message", &pattern)?;
        receive.check_free()?;
        let two_sided = self.two_sided();
        if two_sided.owes_credit() {
            self.give_credit()?;
        }
        if two_sided.has_unexpected()
            && let Some(matched) = self.take_unexpected(&pattern)
        {
            if let Some(bill) = self.bill() {
                bill.called_for(Account::team(pattern.context()), RECEIVE, pattern.source());
            }
            // SAFETY: the same contract.
            return unsafe { self.receive_message(receive, matched, sink) };
        }
        if let Some(bill) = self.bill() {
            bill.called_for(Account::team(pattern.context()), RECEIVE, pattern.source());
        }
        receive.post(&mut two_sided.matching.borrow_mut(), pattern, sink);
        Ok(())
    }

    /// Posts a receive into `len` bytes at `base`, if nothing else has to be done for it, such as taking an unexpected
    /// message. Returns whether it was posted; otherwise nothing has changed, and
    /// [`start_receive`](Self::start_receive) starts it, or returns the error. Makes no progress.
    ///
    /// # Safety
    /// The contract of [`start_receive`](Self::start_receive). `receive` [is done](Receive::is_done), and the source is
    /// a rank of the job.
    #[inline(always)]
    pub unsafe fn try_post_receive(&self, receive: &Rc<Receive>, pattern: Pattern, base: *mut u8, len: usize) -> bool {
        debug_assert!(receive.is_done());
        let two_sided = self.two_sided();
        if !self.is_plain() || two_sided.owes_credit() {
            return false;
        }
        let mut matching = two_sided.matching.borrow_mut();
        let may_post = matching.unexpected() == 0;
        if may_post {
            // SAFETY: the same contract.
            receive.post(&mut matching, pattern, unsafe { Sink::memory(base, len) });
        }
        may_post
    }

    /// Removes and returns the unexpected message that matches `pattern`. Drops messages that their senders have
    /// cancelled.
    fn take_unexpected(&self, pattern: &Pattern) -> Option<Matched> {
        loop {
            let (envelope, unexpected) = self.two_sided().matching.borrow_mut().take_unexpected(pattern)?;
            if !self.drop_withdrawn(&envelope, &unexpected, true) {
                return Some(Matched { envelope, unexpected });
            }
        }
    }

    /// Whether an unexpected message was cancelled by its sender; then its remaining state is dropped. With `claim` the
    /// sender cannot cancel it afterwards.
    fn drop_withdrawn(&self, envelope: &Envelope, unexpected: &Unexpected, claim: bool) -> bool {
        let am::Unexpected::Held(token, _) = unexpected.body else { return false };
        let withdrawn = !am::is_held(self, token, claim);
        if withdrawn {
            self.take_credits(envelope, unexpected);
            am::abandon(self, token);
        }
        withdrawn
    }

    /// Receives a message that was removed from matching. `receive` [is done](Receive::is_done) when it has ended.
    ///
    /// # Safety
    /// The contract of [`start_receive`](Self::start_receive).
    ///
    /// # Errors
    /// An error of sending.
    pub unsafe fn receive_message(&self, receive: &Rc<Receive>, message: Matched, sink: Sink) -> Result<()> {
        receive.check_free()?;
        let Matched { envelope, unexpected } = message;
        receive.pattern.set(Some(Pattern::exact(envelope.context, envelope.source, envelope.tag)));
        self.take_credits(&envelope, &unexpected);
        match unexpected.body {
            am::Unexpected::Whole(data) => {
                receive.start_matched(None);
                receive.fill(envelope, sink, Payload::Bytes(&data));
                Ok(())
            }
            am::Unexpected::Held(token, _) => {
                receive.start_matched(Some(token));
                let to = Rc::clone(receive);
                let then = OnComplete::inline(move |received| to.complete(envelope, received));
                am::deliver(self, token, sink, then).inspect_err(|_| self.forget_receive(receive))
            }
        }
    }

    /// Counts a formerly unexpected message as received, if its sender counts it against its credits.
    fn take_credits(&self, envelope: &Envelope, unexpected: &Unexpected) {
        if unexpected.counted {
            self.two_sided().credits.taken_from_store(envelope.source, unexpected.body.len());
        }
    }

    /// Cancels a receive whose message has not arrived. Returns `false` if the message has arrived: then the receive
    /// ends as usual.
    #[must_use]
    pub fn cancel_receive(&self, receive: &Receive) -> bool {
        let Some(ticket) = receive.ticket.get() else { return false };
        let cancelled = self.two_sided().matching.borrow_mut().cancel(ticket).is_some();
        if cancelled {
            receive.fail(Error::new(ErrorKind::Aborted, "receive a message").cause("the receive was cancelled"));
        }
        cancelled
    }

    /// Abandons a receive in any state: its memory is no longer accessed. A matched message is lost.
    pub fn forget_receive(&self, receive: &Receive) {
        if receive.is_done() || self.cancel_receive(receive) {
            return;
        }
        // The token is taken first, so that code that reenters from `abandon` does not find it.
        if let Some(token) = receive.take_arriving() {
            am::abandon(self, token);
        }
        receive.fail(Error::new(ErrorKind::Aborted, "receive a message").cause("the receive was dropped"));
    }

    /// The message that a receive of `pattern` would match now. Makes no progress: see
    /// [`wait`](crate::engine::Engine::wait) and [`progress`](crate::engine::Engine::progress).
    ///
    /// # Errors
    /// `NoSuchRank`, `Freed`.
    pub fn probe(&self, pattern: &Pattern) -> Result<Option<Status>> {
        check(self, "probe for a message", pattern)?;
        loop {
            let mut matching = self.two_sided().matching.borrow_mut();
            let Some((ticket, envelope, unexpected)) = matching.probe(pattern) else { return Ok(None) };
            if !self.drop_withdrawn(&envelope, unexpected, false) {
                return Ok(Some(status(&envelope, unexpected)));
            }
            let _ = matching.take(ticket);
        }
    }

    /// Removes and returns the message that a receive of `pattern` would match now, so that no other receive or probe
    /// finds it (matched probe).
    ///
    /// # Errors
    /// Those of [`probe`](Self::probe).
    pub fn take_message(&self, pattern: &Pattern) -> Result<Option<Matched>> {
        check(self, "receive a matched message", pattern)?;
        Ok(self.take_unexpected(pattern))
    }

    /// Drops all posted receives and unexpected messages of a context whose team is freed, and the partitions of
    /// messages that no partitioned receive has matched.
    pub fn forget_context(&self, context: u32) {
        let (partitioned, offers) = self.two_sided().offers.borrow_mut().drain(context);
        partitioned.iter().for_each(|receive| receive.fail("the message's team was freed", Stage::Ended));
        let partitions = offers.iter().map(|(_, offer)| offer.context);
        partitions.chain([context]).for_each(|context| self.forget_messages(context));
    }

    /// Drops all posted receives and unexpected messages of a context.
    fn forget_messages(&self, context: u32) {
        let (receives, messages) = self.two_sided().matching.borrow_mut().drain(context);
        for receive in receives {
            receive.fail(Error::new(ErrorKind::Aborted, "receive a message").cause("the team was freed"));
        }
        for (envelope, unexpected) in messages {
            self.take_credits(&envelope, &unexpected);
            unexpected.body.abandon(self);
        }
    }
}
