//! Messages that come: packets are taken apart, handlers and completions run.

use rustc_hash::FxHashMap;

use super::ActiveMessages;
use super::handler::{Delivery, Message, Received, Then, Token};
use super::packet::{ACKNOWLEDGE, CANCEL, CTS, FIN, FIRST, MORE, Prefix, RTS};
use super::sink::{Filling, Sink};
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::stats::Kind;

const OP: &str = "receive an active message";
/// Longest message, as a bound on what a peer can make this rank allocate.
const MAX_MESSAGE: u64 = 1 << 40;

/// A message of which a part is still to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Envelope {
    token: Token,
    len: usize,
    target: u32,
    completion: u32,
}

enum Arrival {
    /// At its sender, until [`deliver`] is called.
    Held(Envelope),
    /// It was held, and its sender has cancelled it.
    Gone(Envelope),
    /// `expected` bytes of it come in packets.
    Coming { envelope: Envelope, filling: Filling, expected: usize, then: Option<Then> },
}

/// The messages of which a part is still to come.
#[derive(Default)]
pub(super) struct Arrivals(FxHashMap<Token, Arrival>);

fn garbage(source: u32, why: &str) -> Error {
    Error::new(ErrorKind::Protocol, OP).peer(source).cause(why.to_owned())
}

/// Lets go of a message whose handler panics: its sender need not wait for it.
struct Refused<'a>(&'a ActiveMessages, Token);

impl Drop for Refused<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.finish_at_sender(self.1, Some(ErrorKind::Aborted));
        }
    }
}

impl ActiveMessages {
    /// Takes a packet apart and runs its handler.
    #[inline(always)]
    pub(crate) fn dispatch(&self, job: &Job, source: u32, bytes: &[u8]) -> Result<()> {
        if let Some((p, rest)) = Prefix::read(bytes)
            && p.kind == FIRST
            && let Some((header, data)) = rest.split_at_checked(usize::from(p.header_len))
            && data.len() as u64 == p.number
            && let Some(handler) = self.handler(p.handler)
        {
            let message = Message { source, number: 0, header, len: data.len(), data: Some(data), waits: false };
            return match handler(message) {
                Delivery::Done => self.finished(source, p.target, p.completion),
                other => self.whole(source, &p, data, other),
            };
        }
        self.dispatch_other(job, source, bytes)
    }

    /// A whole message goes where its handler says.
    #[inline(never)]
    fn whole(&self, source: u32, p: &Prefix, data: &[u8], delivery: Delivery) -> Result<()> {
        let Delivery::Into(sink, then) = delivery else {
            return Err(cannot_hold(source));
        };
        let token = Token { source, number: p.message };
        let envelope = Envelope { token, len: data.len(), target: p.target, completion: p.completion };
        let filled = Filling::new(sink, data.len()).and_then(|mut filling| {
            filling.take(data);
            filling.received()
        });
        self.complete(envelope, Some(then), filled.map_err(|e| e.peer(source)))
    }

    /// What is no whole message, and what makes no sense.
    #[inline(never)]
    fn dispatch_other(&self, job: &Job, source: u32, bytes: &[u8]) -> Result<()> {
        let Some((p, rest)) = Prefix::read(bytes) else { return Err(garbage(source, "shorter than its prefix")) };
        let token = Token { source, number: p.message };
        match p.kind {
            FIRST | RTS => {
                let Some((header, data)) = rest.split_at_checked(usize::from(p.header_len)) else {
                    return Err(garbage(source, "header longer than the packet"));
                };
                let waits = p.kind == RTS;
                if p.number > MAX_MESSAGE || (!waits && data.len() as u64 > p.number) {
                    return Err(garbage(source, "data longer than announced"));
                }
                if self.arrivals.borrow().0.contains_key(&token) {
                    return Err(garbage(source, "message number used twice"));
                }
                let envelope = Envelope { token, len: p.number as usize, target: p.target, completion: p.completion };
                self.begin(job, envelope, &p, header, if waits { None } else { Some(data) })
            }
            MORE => self.more(job, token, p.number, rest),
            CANCEL => self.cancelled(token),
            ACKNOWLEDGE => self.acknowledged(source, p.message),
            CTS => self.clear_to_send(source, p.message, p.number),
            FIN => self.taken(source, p.message, p.number),
            _ => Err(garbage(source, "unknown kind")),
        }
    }

    /// A message begins of which only `came` is here, or nothing, since it waits at its sender.
    fn begin(&self, job: &Job, envelope: Envelope, p: &Prefix, header: &[u8], came: Option<&[u8]>) -> Result<()> {
        let (token, waits) = (envelope.token, came.is_none());
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
            Message { source: token.source, number: token.number, header, len: envelope.len, data: None, waits };
        let delivery = {
            let _refused = waits.then(|| Refused(self, token));
            handler(message)
        };
        let (sink, then, wrong) = match delivery {
            Delivery::Hold if waits => {
                self.arrivals.borrow_mut().0.insert(token, Arrival::Held(envelope));
                return Ok(());
            }
            Delivery::Hold => (Sink::discard(), None, Some(cannot_hold(token.source))),
            Delivery::Done => (Sink::discard(), None, None),
            Delivery::Into(sink, then) => (sink, Some(then), None),
        };
        let Some(data) = came else { return self.fetch(envelope, sink, then) };
        let (mut envelope, mut then) = (envelope, then);
        let mut filling = match Filling::new(sink, envelope.len) {
            Ok(filling) => filling,
            Err(e) => {
                self.complete(envelope, then.take(), Err(e.peer(token.source)))?;
                (envelope.target, envelope.completion) = (0, 0);
                Filling::discarding(envelope.len)
            }
        };
        job.device().stats().add(Kind::Copy, filling.take(data));
        let arrival = Arrival::Coming { envelope, filling, expected: envelope.len, then };
        self.arrivals.borrow_mut().0.insert(token, arrival);
        wrong.map_or(Ok(()), Err)
    }

    /// Has the data of a message come that waits at its sender.
    fn fetch(&self, envelope: Envelope, sink: Sink, then: Option<Then>) -> Result<()> {
        let token = envelope.token;
        let filling = match Filling::new(sink, envelope.len) {
            Ok(filling) => filling,
            Err(e) => {
                self.finish_at_sender(token, Some(e.kind()));
                return self.complete(envelope, then, Err(e.peer(token.source)));
            }
        };
        let expected = filling.kept;
        if expected == 0 {
            self.finish_at_sender(token, None);
            return self.complete(envelope, then, filling.received());
        }
        let arrival = Arrival::Coming { envelope, filling, expected, then };
        self.arrivals.borrow_mut().0.insert(token, arrival);
        self.control(token.source, &Prefix::about(CTS, token.number, expected as u64));
        Ok(())
    }

    fn more(&self, job: &Job, token: Token, offset: u64, data: &[u8]) -> Result<()> {
        let mut arrivals = self.arrivals.borrow_mut();
        let Some(Arrival::Coming { filling, expected, .. }) = arrivals.0.get_mut(&token) else {
            return Err(garbage(token.source, "a piece that fits nowhere"));
        };
        let left = *expected - filling.filled;
        if filling.filled as u64 != offset || data.is_empty() || data.len() > left {
            return Err(garbage(token.source, "a piece that fits nowhere"));
        }
        job.device().stats().add(Kind::Copy, filling.take(data));
        if data.len() < left {
            return Ok(());
        }
        let arrival = arrivals.0.remove(&token);
        drop(arrivals);
        match arrival {
            Some(Arrival::Coming { envelope, filling, then, .. }) => {
                self.complete(envelope, then, filling.received().map_err(|e| e.peer(token.source)))
            }
            _ => Ok(()),
        }
    }

    /// The sender has taken back a message.
    fn cancelled(&self, token: Token) -> Result<()> {
        let arrival = self.arrivals.borrow_mut().0.remove(&token);
        // One that is not known is over, and its sender will hear so.
        let Some(arrival) = arrival else { return Ok(()) };
        self.finish_at_sender(token, None);
        let (envelope, then) = match arrival {
            Arrival::Held(envelope) => {
                // `deliver` is to say so.
                self.arrivals.borrow_mut().0.insert(token, Arrival::Gone(envelope));
                return Ok(());
            }
            Arrival::Gone(envelope) => (envelope, None),
            // Of one that was abandoned too there is nobody to tell.
            Arrival::Coming { then: None, .. } => return Ok(()),
            Arrival::Coming { envelope, then, .. } => (envelope, then),
        };
        self.complete(envelope, then, Err(taken_back(token.source)))
    }

    /// A message has come, or will not: its completion runs, its counters move.
    fn complete(&self, envelope: Envelope, then: Option<Then>, received: Result<Received>) -> Result<()> {
        let Envelope { token, target, completion, .. } = envelope;
        let failed = received.is_err();
        match then {
            None => {}
            Some(Then::Quick(f)) => f(received),
            Some(Then::Later(f)) => {
                self.defer(Box::new(move |job| {
                    f(job, received)?;
                    let completion = if failed { 0 } else { completion };
                    job.active_messages().finished(token.source, 0, completion)
                }));
                return if failed { Ok(()) } else { self.finished(token.source, target, 0) };
            }
        }
        if failed { Ok(()) } else { self.finished(token.source, target, completion) }
    }

    /// Tells the sender of a message that waits that its data is not needed any more, or why it was not taken.
    fn finish_at_sender(&self, token: Token, why: Option<ErrorKind>) {
        let code = why.and_then(|why| ErrorKind::ALL.iter().position(|kind| *kind == why));
        let number = code.map_or(0, |code| code as u64 + 1);
        self.control(token.source, &Prefix::about(FIN, token.number, number));
    }
}

fn cannot_hold(source: u32) -> Error {
    Error::new(ErrorKind::BadArgument, "hold a message")
        .peer(source)
        .cause("its data is here, or on its way")
        .remedy("hold only what `Message::waits` says of, and give other messages a buffer")
}

fn taken_back(source: u32) -> Error {
    Error::new(ErrorKind::Aborted, OP).peer(source).cause("its sender has cancelled it")
}

/// Names the sink of a message that its handler has [held](Delivery::Hold); `then` runs when the data is there. Does not
/// wait.
///
/// # Errors
/// `BadArgument` for a message that is not held: it was delivered or abandoned before.
pub fn deliver(job: &Job, token: Token, sink: Sink, then: Then) -> Result<()> {
    let am = job.active_messages();
    if token.source == job.rank() {
        return am.deliver_held_own(job, token.number, sink, then);
    }
    let mut arrivals = am.arrivals.borrow_mut();
    if !matches!(arrivals.0.get(&token), Some(Arrival::Held(_) | Arrival::Gone(_))) {
        return Err(not_held(token));
    }
    let arrival = arrivals.0.remove(&token);
    drop(arrivals);
    match arrival {
        Some(Arrival::Held(envelope)) => am.fetch(envelope, sink, Some(then)),
        Some(Arrival::Gone(envelope)) => am.complete(envelope, Some(then), Err(taken_back(token.source))),
        _ => Ok(()),
    }
}

pub(super) fn not_held(token: Token) -> Error {
    Error::new(ErrorKind::BadArgument, "deliver a held message")
        .peer(token.source)
        .cause(format!("message {} is not held", token.number))
        .remedy("deliver each held message once")
}

/// Gives up a message of which a part is still to come, held or not: its completion does not run, and the memory of its
/// sink is not touched any more. Returns whether there was such a message.
pub fn abandon(job: &Job, token: Token) -> bool {
    let am = job.active_messages();
    if token.source == job.rank() {
        return am.abandon_own(token.number);
    }
    let mut arrivals = am.arrivals.borrow_mut();
    let forgotten = match arrivals.0.remove(&token) {
        None => return false,
        Some(Arrival::Held(_)) => {
            am.finish_at_sender(token, None);
            None
        }
        Some(Arrival::Gone(_)) => None,
        Some(Arrival::Coming { envelope, filling, expected, then }) => {
            let mut rest = Filling::discarding(envelope.len);
            rest.filled = filling.filled;
            arrivals.0.insert(token, Arrival::Coming { envelope, filling: rest, expected, then: None });
            Some((filling, then))
        }
    };
    drop(arrivals);
    // What the completion holds may come back here.
    drop(forgotten);
    true
}
