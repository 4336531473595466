//! The receiving side: parses packets, and runs handlers and completions.

use super::arrivals::{Arrival, Envelope};
use super::handler::{Handler, Message, Token};
use super::messenger::Messenger;
use super::offer::{Offer, Read};
use super::packet::{ACKNOWLEDGE, CANCEL, CTS, FIN, FIRST, MORE, PREFIX, Prefix, RTS, SINK, WHOLE, WITHDRAW, WRITTEN};
use super::payload::Payload;
use super::read::Step;
use super::sink::{Filling, Received, Sink};
use super::state::{NO_ROOM, READ};
use super::{ActiveMessages, Delivery, MAX_HEADER, MAX_MESSAGE, OnComplete};
use crate::callback::Callback;
use crate::device::Unread;
use crate::error::{Error, ErrorKind, Result};

const OP: &str = "receive an active message";

fn malformed(source: u32, why: &str) -> Error {
    Error::new(ErrorKind::Protocol, OP).peer(source).cause(why.to_owned())
}

impl Offer {
    /// Parses the offer that arrived with a request to send, if any.
    fn of(bytes: &[u8], len: usize, source: u32) -> Result<Option<Self>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let offer = Self::read(bytes).filter(|offer| offer.len() == len);
        offer.map(Some).ok_or_else(|| malformed(source, "malformed remote address in the message's header"))
    }
}

/// Ends a message that has arrived in part, when its handler panics: one that waits is refused at its sender, and the
/// remaining packets of any other are discarded.
struct Refused<'a> {
    am: &'a ActiveMessages,
    token: Token,
    len: usize,
    /// Bytes that have arrived; `None` if the message waits.
    filled: Option<usize>,
}

impl Drop for Refused<'_> {
    fn drop(&mut self) {
        let Some(filled) = self.filled else { return self.am.finish_at_sender(self.token, Some(ErrorKind::Aborted)) };
        if filled < self.len {
            let mut filling = Filling::discarding(self.len, None);
            filling.filled = filled;
            let envelope = Envelope { token: self.token, len: self.len, target: 0, acknowledged: false };
            let rest = Arrival::Coming { envelope, filling, expected: self.len, then: None, held: false };
            self.am.arrivals.borrow_mut().open.insert(self.token, rest);
        }
    }
}

impl ActiveMessages {
    /// Parses a packet and runs its handler.
    #[inline(always)]
    pub(crate) fn dispatch(&self, job: &Messenger, source: u32, bytes: &[u8]) -> Result<()> {
        if let Some((p, rest)) = Prefix::read(bytes)
            && matches!(p.kind, WHOLE | FIRST)
            && let Some((header, data)) = rest.split_at_checked(usize::from(p.header_len))
            && data.len() as u64 == p.number
            && let Some(handler) = self.handler(p.handler)
        {
            return self.run_whole(&handler, source, &p, header, Payload::Bytes(data));
        }
        self.dispatch_other(job, source, bytes)
    }

    /// Parses a long packet. Its data is copied from the packet straight into its sink.
    #[inline(never)]
    pub(crate) fn dispatch_long(&self, job: &Messenger, source: u32, packet: &Unread<'_>) -> Result<()> {
        let first = packet.first::<PREFIX>();
        match first.as_ref().and_then(|first| Prefix::read(first)) {
            Some((p, _)) if matches!(p.kind, WHOLE | FIRST) => {
                let (mut header, begin, len) = ([0; MAX_HEADER], p.len(), usize::from(p.header_len));
                if let Some(header) = header.get_mut(..len)
                    && let Some(data) = packet.len().checked_sub(begin + len)
                    && let Some(handler) = self.handler(p.handler)
                {
                    packet.copy_into(begin, header);
                    let payload = Payload::Unread(packet, begin + len);
                    return match p.kind {
                        FIRST if data as u64 != p.number => self.begin(source, &p, header, Ok(payload)),
                        _ => self.run_whole(&handler, source, &p, header, payload),
                    };
                }
            }
            Some((p, [])) if p.kind == MORE => {
                let (token, len) = (Token { source, number: p.message }, packet.len() - PREFIX);
                return self.receive_segment(token, p.number, len, |filling| filling.take_unread(packet, PREFIX));
            }
            _ => {}
        }
        self.dispatch(job, source, packet.read())
    }

    /// Runs the handler of a message that has arrived completely.
    #[inline(always)]
    pub(super) fn run_whole(
        &self,
        handler: &Handler<Messenger>,
        source: u32,
        p: &Prefix,
        header: &[u8],
        payload: Payload<'_>,
    ) -> Result<()> {
        match handler(Message::whole(source, header, payload)) {
            Delivery::Done => self.finished(source, p.target, p.acknowledges()),
            other => self.whole(source, p, payload, other),
        }
    }

    /// Puts a message that has arrived completely into the sink that its handler named.
    #[inline(never)]
    fn whole(&self, source: u32, p: &Prefix, data: Payload<'_>, delivery: Delivery) -> Result<()> {
        let Delivery::Into(sink, then) = delivery else {
            return Err(cannot_hold(source));
        };
        let token = Token { source, number: p.message };
        let envelope = Envelope { token, len: data.len(), target: p.target, acknowledged: p.acknowledged };
        self.complete(envelope, Some(then), Filling::beginning(sink, data.len(), data).received())
    }

    /// Handles all packets that are not whole messages, and malformed ones.
    #[inline(never)]
    fn dispatch_other(&self, job: &Messenger, source: u32, bytes: &[u8]) -> Result<()> {
        let Some((p, rest)) = Prefix::read(bytes) else {
            return Err(malformed(source, "a packet is shorter than its prefix"));
        };
        let token = Token { source, number: p.message };
        match p.kind {
            WHOLE | FIRST | RTS => {
                let Some((header, data)) = rest.split_at_checked(usize::from(p.header_len)) else {
                    return Err(malformed(source, "a header is longer than its packet"));
                };
                let waits = p.kind == RTS;
                let first =
                    if waits { Err(Offer::of(data, p.number as usize, source)?) } else { Ok(Payload::Bytes(data)) };
                self.begin(source, &p, header, first)
            }
            MORE => self.receive_segment(token, p.number, rest.len(), |filling| _ = filling.take(rest)),
            CANCEL => self.cancelled(token, p.number == WITHDRAW),
            ACKNOWLEDGE => self.acknowledged(source, p.message),
            CTS => self.clear_to_send(job, source, p.message, p.number),
            FIN => self.finished_by_target(job, source, p.message, p.number),
            SINK => self.sink_lent(source, p.message, p.number, rest),
            WRITTEN => self.was_written(token, p.number),
            _ => Err(malformed(source, "unknown kind")),
        }
    }

    /// Begins a message that has arrived in part. `first` is its first data; for a message that waits at its sender, it
    /// is the sender's offer, if any.
    fn begin(
        &self,
        source: u32,
        p: &Prefix,
        header: &[u8],
        first: std::result::Result<Payload<'_>, Option<Offer>>,
    ) -> Result<()> {
        let token = Token { source, number: p.message };
        if p.number > MAX_MESSAGE || first.as_ref().is_ok_and(|data| data.len() as u64 > p.number) {
            return Err(malformed(source, "the message is longer than announced, or than the maximum length"));
        }
        if self.arrivals.borrow().open.contains_key(&token) {
            return Err(malformed(source, "the number of a message is already in use"));
        }
        let envelope = Envelope { token, len: p.number as usize, target: p.target, acknowledged: p.acknowledged };
        let (first, offer) = match first {
            Ok(first) => (Some(first), None),
            Err(offer) => (None, offer),
        };
        let waits = first.is_none();
        let handler = match self.handler_for(p.handler, token.source) {
            Ok(handler) => handler,
            Err(e) => {
                if waits {
                    self.finish_at_sender(token, Some(ErrorKind::Protocol));
                }
                return Err(e);
            }
        };
        let message =
            Message { source: token.source, number: token.number, header, len: envelope.len, payload: None, waits };
        let refused = Refused { am: self, token, len: envelope.len, filled: first.as_ref().map(|first| first.len()) };
        let delivery = handler(message);
        std::mem::forget(refused);
        let (sink, then, held) = match delivery {
            Delivery::Hold if waits => {
                self.arrivals.borrow_mut().open.insert(token, Arrival::Held { envelope, offer, claimed: false });
                return Ok(());
            }
            Delivery::Hold => (Sink::buffer(Vec::new()), None, true),
            Delivery::Done => (Sink::discard(), None, false),
            Delivery::Into(sink, then) => (sink, Some(then), false),
        };
        let Some(data) = first else { return self.fetch(envelope, offer, sink, then) };
        self.receive(envelope, Filling::beginning(sink, envelope.len, data), then, held)
    }

    /// Receives the rest of a message into its sink.
    fn receive(&self, envelope: Envelope, filling: Filling, then: Option<OnComplete>, held: bool) -> Result<()> {
        let expected = envelope.len;
        if filling.filled == expected {
            return self.complete(envelope, then, filling.received());
        }
        let arrival = Arrival::Coming { envelope, filling, expected, then, held };
        self.arrivals.borrow_mut().open.insert(envelope.token, arrival);
        Ok(())
    }

    /// Fetches the data of a message that waits at its sender.
    fn fetch(&self, envelope: Envelope, offer: Option<Offer>, sink: Sink, then: Option<OnComplete>) -> Result<()> {
        let token = envelope.token;
        let filling = match Filling::new(sink, envelope.len) {
            Ok(filling) => filling,
            Err(e) => {
                self.finish_at_sender(token, Some(e.kind()));
                return self.complete(envelope, then, Err(e));
            }
        };
        let expected = filling.kept;
        if expected == 0 {
            self.finish_at_sender(token, None);
            return self.complete(envelope, then, filling.received());
        }
        if let Some(offer) = offer {
            // Only queued: the device must not be used in the middle of a poll.
            let mut arrivals = self.arrivals.borrow_mut();
            arrivals.open.insert(token, Arrival::Offered { envelope, filling, then, read: Read::new(offer) });
            arrivals.offered.push_back(token);
            self.mark(READ);
            return Ok(());
        }
        self.ask(envelope, filling, then);
        Ok(())
    }

    /// Asks the sender for the data in packets.
    fn ask(&self, envelope: Envelope, filling: Filling, then: Option<OnComplete>) {
        let (token, expected) = (envelope.token, filling.kept);
        let arrival = Arrival::Coming { envelope, filling, expected, then, held: false };
        self.arrivals.borrow_mut().open.insert(token, arrival);
        self.control(token.source, &Prefix::control(CTS, token.number, expected as u64));
    }

    /// Advances the reads of offered messages; returns whether any began or ended.
    pub(super) fn read_offered(&self, job: &Messenger) -> Result<bool> {
        if self.work.get() & READ == 0 {
            return Ok(false);
        }
        self.unmark(NO_ROOM);
        let mut any = false;
        let count = self.arrivals.borrow().offered.len();
        for _ in 0..count {
            let mut arrivals = self.arrivals.borrow_mut();
            if self.reads.open() == arrivals.offered.len() {
                // Every offered message has a read in progress.
                break;
            }
            let Some(token) = arrivals.offered.pop_front() else { break };
            match arrivals.open.get(&token) {
                Some(Arrival::Offered { read, .. }) if read.is_in_progress() => {
                    arrivals.offered.push_back(token);
                    continue;
                }
                Some(Arrival::Offered { .. }) => {}
                // The message has been cancelled or abandoned.
                _ => continue,
            }
            let Some(Arrival::Offered { envelope, mut filling, then, mut read }) = arrivals.open.remove(&token) else {
                continue;
            };
            drop(arrivals);
            let step = read.advance(job, token, &mut filling);
            any |= match step {
                Ok(Step::NoRoom) => false,
                Ok(Step::UnderWay(any)) => any,
                _ => true,
            };
            match step {
                Ok(step @ (Step::NoRoom | Step::UnderWay(_))) => {
                    if let Step::NoRoom = step {
                        self.mark(NO_ROOM);
                    }
                    let mut arrivals = self.arrivals.borrow_mut();
                    arrivals.open.insert(token, Arrival::Offered { envelope, filling, then, read });
                    arrivals.offered.push_back(token);
                }
                // Whether the read succeeded does not matter: the sender may have changed the data before it was read.
                _ if read.cancelled => {
                    self.finish_at_sender(token, None);
                    self.complete(envelope, then, Err(cancelled()))?;
                }
                Ok(Step::Done) => {
                    self.finish_at_sender(token, None);
                    self.complete(envelope, then, filling.received())?;
                }
                Ok(Step::Packets) => self.ask(envelope, filling, then),
                // The sender may have cancelled the message, which asking for packets reveals.
                Err(e) => {
                    tracing::debug!(
                        "the message of rank {} cannot be read from its memory and is requested in packets: {e}",
                        token.source
                    );
                    self.ask(envelope, filling, then);
                }
            }
        }
        if self.arrivals.borrow().offered.is_empty() {
            self.unmark(READ);
        }
        Ok(any)
    }

    /// Handles a segment of `len` bytes, which `take` consumes.
    fn receive_segment(&self, token: Token, offset: u64, len: usize, take: impl FnOnce(&mut Filling)) -> Result<()> {
        let mut arrivals = self.arrivals.borrow_mut();
        let Some(Arrival::Coming { filling, expected, held, .. }) = arrivals.open.get_mut(&token) else {
            return Err(malformed(token.source, "received a segment of a message that is not in progress"));
        };
        let left = *expected - filling.filled;
        if filling.filled as u64 != offset || len == 0 || len > left {
            return Err(malformed(token.source, "received a segment out of order, or past the end of its message"));
        }
        take(filling);
        if len < left || *held {
            return Ok(());
        }
        let arrival = arrivals.open.remove(&token);
        drop(arrivals);
        match arrival {
            Some(Arrival::Coming { envelope, filling, then, .. }) => self.complete(envelope, then, filling.received()),
            _ => Ok(()),
        }
    }

    /// Handles the number of segments that the sender has written into an exported sink; the message may have ended
    /// meanwhile.
    fn was_written(&self, token: Token, pieces: u64) -> Result<()> {
        let mut arrivals = self.arrivals.borrow_mut();
        let Some(Arrival::Offered { read, .. }) = arrivals.open.get_mut(&token) else { return Ok(()) };
        if read.was_written(pieces) {
            Ok(())
        } else {
            Err(malformed(token.source, "the sender reported more written segments than the message has left"))
        }
    }

    /// Handles a message that its sender cancels; with `withdrawn` it is cancelled only if it is held.
    fn cancelled(&self, token: Token, withdrawn: bool) -> Result<()> {
        let mut arrivals = self.arrivals.borrow_mut();
        match arrivals.open.get_mut(&token) {
            // The sender of a message in state `Gone` was answered when it withdrew the message.
            Some(Arrival::Gone(_)) => return Ok(()),
            Some(Arrival::Held { claimed: false, .. }) => {}
            _ if withdrawn => return Ok(()),
            // Its completion must not run while a read may still write to the sink's memory.
            Some(Arrival::Offered { read, .. }) if read.begun.is_some() => {
                read.cancelled = true;
                return Ok(());
            }
            _ => {}
        }
        // An unknown message has already ended at this rank.
        let Some(arrival) = arrivals.open.remove(&token) else { return Ok(()) };
        drop(arrivals);
        self.finish_at_sender(token, withdrawn.then_some(ErrorKind::Aborted));
        let (envelope, then) = match arrival {
            Arrival::Held { envelope, .. } | Arrival::Gone(envelope) | Arrival::Coming { envelope, held: true, .. } => {
                // A later `deliver` of the held message reports the cancellation.
                self.arrivals.borrow_mut().open.insert(token, Arrival::Gone(envelope));
                return Ok(());
            }
            Arrival::Offered { envelope, then, .. } | Arrival::Coming { envelope, then, .. } => (envelope, then),
        };
        self.complete(envelope, then, Err(cancelled()))
    }

    /// Ends a message, with its data or an error: runs its completion and increments its counters.
    pub(super) fn complete(
        &self,
        envelope: Envelope,
        then: Option<OnComplete>,
        received: Result<Received>,
    ) -> Result<()> {
        let Envelope { token, target, acknowledged, .. } = envelope;
        let received = received.map_err(|e| e.peer(token.source));
        let (failed, number) = (received.is_err(), if acknowledged { token.number } else { 0 });
        match then {
            None => {}
            Some(OnComplete::Inline(f)) => f(received),
            Some(OnComplete::Deferred(f)) => {
                self.defer(Box::new(move |job| {
                    f(job, received)?;
                    let number = if failed { 0 } else { number };
                    job.active_messages().finished(token.source, 0, number)
                }));
                return if failed { Ok(()) } else { self.finished(token.source, target, 0) };
            }
        }
        if failed { Ok(()) } else { self.finished(token.source, target, number) }
    }

    /// Notifies the sender of a waiting message that its data is no longer needed, or why it could not be received.
    fn finish_at_sender(&self, token: Token, why: Option<ErrorKind>) {
        let code = why.and_then(|why| ErrorKind::ALL.iter().position(|kind| *kind == why));
        let number = code.map_or(0, |code| code as u64 + 1);
        self.control(token.source, &Prefix::control(FIN, token.number, number));
    }
}

fn cannot_hold(source: u32) -> Error {
    Error::new(ErrorKind::BadArgument, "hold a message")
        .peer(source)
        .cause("the message's data has arrived")
        .remedy("read the data from `Message::data`, or pass a buffer to receive into")
}

pub(super) fn cancelled() -> Error {
    Error::new(ErrorKind::Aborted, OP).cause("the sender has cancelled the message")
}

/// Whether a message that its handler has held (`Delivery::Hold`) still waits: its sender may have withdrawn it. With
/// `claim` the sender cannot withdraw it afterwards.
#[must_use]
pub fn is_held(job: &Messenger, token: Token, claim: bool) -> bool {
    let am = job.active_messages();
    if token.source == job.rank_number() {
        return am.own.borrow_mut().is_held(token.number, claim);
    }
    match am.arrivals.borrow_mut().open.get_mut(&token) {
        Some(Arrival::Held { claimed, .. }) => {
            *claimed |= claim;
            true
        }
        Some(Arrival::Coming { held, .. }) => *held,
        _ => false,
    }
}

/// Names the sink of a message that its handler has held (`Delivery::Hold`); `then` runs when the data is complete.
/// Does not wait.
///
/// # Errors
/// `BadArgument` for a message that is not held, for instance one already delivered or abandoned.
pub fn deliver(job: &Messenger, token: Token, sink: Sink, then: OnComplete) -> Result<()> {
    let (am, _inside) = (job.active_messages(), job.inside(Callback::Handler));
    if token.source == job.rank_number() {
        return am.deliver_held_own(job, token.number, sink, then);
    }
    let mut arrivals = am.arrivals.borrow_mut();
    let is_held = |arrival: &Arrival<_>| {
        matches!(arrival, Arrival::Held { .. } | Arrival::Gone(_) | Arrival::Coming { held: true, .. })
    };
    if !arrivals.open.get(&token).is_some_and(is_held) {
        return Err(not_held(token));
    }
    let arrival = arrivals.open.remove(&token);
    drop(arrivals);
    match arrival {
        Some(Arrival::Held { envelope, offer, .. }) => am.fetch(envelope, offer, sink, Some(then)),
        Some(Arrival::Gone(envelope)) => am.complete(envelope, Some(then), Err(cancelled())),
        Some(Arrival::Coming { envelope, filling, .. }) => am.receive(envelope, filling.moved(sink), Some(then), false),
        _ => Ok(()),
    }
}

pub(super) fn not_held(token: Token) -> Error {
    Error::new(ErrorKind::BadArgument, "deliver a held message")
        .peer(token.source)
        .cause(format!("message {} is not held by the handler, or was already delivered", token.number))
        .remedy("deliver each held message exactly once")
}

/// Abandons a message that has not arrived completely, held or not: its completion does not run, and the memory of its
/// sink is no longer accessed. Returns whether there was such a message.
pub fn abandon(job: &Messenger, token: Token) -> bool {
    let am = job.active_messages();
    if token.source == job.rank_number() {
        return am.abandon_own(token.number);
    }
    let mut arrivals = am.arrivals.borrow_mut();
    let forgotten = match arrivals.open.remove(&token) {
        None => return false,
        Some(Arrival::Held { .. }) => {
            am.finish_at_sender(token, None);
            None
        }
        Some(Arrival::Offered { filling, then, mut read, .. }) => {
            drop(arrivals);
            read.end(job);
            am.finish_at_sender(token, None);
            drop((filling, then));
            return true;
        }
        Some(Arrival::Gone(_)) => None,
        Some(Arrival::Coming { envelope, filling, expected, then, .. }) if filling.filled < expected => {
            let mut rest = Filling::discarding(envelope.len, None);
            rest.filled = filling.filled;
            let rest = Arrival::Coming { envelope, filling: rest, expected, then: None, held: false };
            arrivals.open.insert(token, rest);
            Some((filling, then))
        }
        // A held message whose data has arrived completely: it is counted as if its last packet arrived after this
        // call.
        Some(Arrival::Coming { envelope, filling, .. }) => {
            drop(arrivals);
            if let Err(e) = am.complete(envelope, None, filling.received()) {
                am.defer(Box::new(move |_| Err(e)));
            }
            return true;
        }
    };
    drop(arrivals);
    // Dropped last: dropping what the completion holds may reenter this module.
    drop(forgotten);
    true
}
