#![allow(unsafe_code)]
//! The requests of this rank to one peer: a queue of what the card has, in order, and what waits for room in it.
//!
//! Most requests are signalled, since somebody waits for each; signals and packets are not, but every quarter
//! of the queue one is, so that their places come free. When a request fails alone the connection is made
//! anew and everything behind it, which the peer has not executed, is posted again.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::buffers::Chunk;
use super::flight::{Flight, UnderWay};
use super::ops::Whose;
use super::status::{Fate, explain};
use super::sys::qp::{Action, LIST, Order, Requester};
use super::sys::queue::{Completion, Piece};
use crate::error::{Error, ErrorKind, Result};

/// A request that has come to an end.
#[derive(Debug)]
pub(super) struct Landed {
    pub(super) flight: Flight,
    pub(super) result: Result<()>,
}

/// Requests to one peer.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) peer: u32,
    qp: Option<Requester>,
    capacity: usize,
    /// Number of the next request.
    next: u64,
    flights: UnderWay,
    backlog: VecDeque<Flight>,
    unsignalled: usize,
    /// The fate of this connection, once a request has failed.
    ending: Option<Fate>,
    /// Executed by nobody: to be posted on the next connection.
    again: VecDeque<Flight>,
    /// Why the card has refused a request for good: nothing more is posted.
    refused: Option<Error>,
    lost: Option<Error>,
}

/// Bits of a request's number that count; the peer is above.
const COUNT: u32 = 40;

/// The peer of a completion.
pub(super) fn peer_of(id: u64) -> usize {
    (id >> COUNT) as usize
}

/// Whether the next request is signalled: as its operation wants it, or for the sake of the queue, that no more than
/// `most` in a row are not.
#[inline]
fn signals(unsignalled: &mut usize, most: usize, wanted: bool, scarce: bool) -> bool {
    let signalled = wanted || scarce || *unsignalled + 1 >= most;
    *unsignalled = if signalled { 0 } else { *unsignalled + 1 };
    signalled
}

impl Stream {
    pub(super) fn new(peer: u32, capacity: usize) -> Self {
        Self {
            peer,
            qp: None,
            capacity,
            next: 0,
            flights: UnderWay::default(),
            backlog: VecDeque::new(),
            unsignalled: 0,
            ending: None,
            again: VecDeque::new(),
            refused: None,
            lost: None,
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.qp.is_some() && self.ending.is_none()
    }

    /// Whether something waits to be posted.
    pub(super) fn is_waiting(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Whether there is no connection, and none that is still winding up.
    pub(super) fn is_gone(&self) -> bool {
        self.qp.is_none()
    }

    /// Whether a connection is needed for what waits.
    pub(super) fn wants_connection(&self) -> bool {
        self.qp.is_none() && self.lost.is_none() && !self.backlog.is_empty()
    }

    pub(super) fn connected(&mut self, qp: Requester) {
        self.qp = Some(qp);
        self.next = 0;
        self.unsignalled = 0;
    }

    /// Bytes that go inside a request.
    pub(super) fn inline(&self) -> usize {
        self.qp.as_ref().map_or(0, Requester::inline)
    }

    /// Places for new requests; none while others wait for places.
    pub(super) fn room(&self) -> usize {
        if self.backlog.is_empty() && self.is_connected() { self.capacity - self.flights.len() } else { 0 }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether nothing is under way or waiting.
    pub(super) fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.backlog.is_empty() && self.again.is_empty()
    }

    /// Number of the oldest request under way.
    pub(super) fn oldest(&self) -> Option<u64> {
        (!self.flights.is_empty()).then(|| self.next - self.flights.len() as u64)
    }

    /// Whether requests are under way of which nothing will be heard unless another one asks.
    pub(super) fn is_silent(&self) -> bool {
        !self.flights.is_empty() && self.flights.iter().all(|f| !f.signalled)
    }

    /// Why the peer cannot be reached.
    pub(super) fn lost(&self) -> Option<&Error> {
        self.lost.as_ref()
    }

    /// Gives up on the peer: the card drops what is under way, and everything fails.
    pub(super) fn lose(&mut self, error: Error, landed: &mut Vec<Landed>) {
        if self.lost.is_some() {
            return;
        }
        self.lost = Some(error);
        if let Some(qp) = &self.qp {
            if let Err(e) = qp.fail() {
                tracing::warn!("a queue pair to rank {} was not ended: {e}", self.peer);
            }
            self.ending.get_or_insert(Fate::Lost);
            if self.flights.is_empty() {
                self.wind_up(landed);
            }
        }
        self.fail_backlog(landed);
    }

    /// Destroys the queue pair of a peer that was given up, though completions of what is under way have not come: the
    /// HCA touches none of that memory any more, and everything fails.
    pub(super) fn destroy(&mut self, landed: &mut Vec<Landed>) {
        let (Some(_), Some(lost)) = (&self.qp, &self.lost) else { return };
        let lost = lost.again();
        self.qp = None;
        while let Some(flight) = self.flights.pop() {
            landed.push(Landed { flight, result: Err(lost.again()) });
        }
        self.wind_up(landed);
    }

    /// Posts requests in order, all or as many as there are places for; the rest waits.
    ///
    /// # Safety
    /// The memory of pieces stays registered and mapped until their flight has landed.
    pub(super) unsafe fn push(&mut self, flights: impl IntoIterator<Item = Flight>, scarce: bool) -> usize {
        self.backlog.extend(flights);
        // SAFETY: the same contract.
        unsafe { self.flush(scarce) }
    }

    /// As [`push`](Self::push) of one that `fill` completes where it is kept; whether it went at once. An operation that is
    /// known to do so asks for [`room`](Self::room) before.
    ///
    /// # Safety
    /// As [`push`](Self::push).
    #[inline(always)]
    pub(super) unsafe fn push_one(&mut self, action: Action, fill: impl FnOnce(&mut Flight), scarce: bool) -> bool {
        if self.room() == 0 {
            let mut flight = Flight::new(action);
            fill(&mut flight);
            self.backlog.push_back(flight);
            return false;
        }
        let id = self.id(0);
        let most = self.capacity / 4;
        let flight = self.flights.grow(action);
        fill(flight);
        flight.signalled = signals(&mut self.unsignalled, most, flight.signalled, scarce);
        let Some(qp) = &self.qp else { return false };
        let own = flight.own();
        // SAFETY: inline bytes live in the flight during the call; other memory by the contract.
        let code = unsafe { qp.post_one(&flight.order(id, &own)) };
        if code != 0 {
            self.put_back(code);
            return false;
        }
        self.next += 1;
        true
    }

    /// The card has not taken the last.
    #[cold]
    fn put_back(&mut self, code: i32) {
        let flight = self.flights.pop_back();
        self.backlog.extend(flight);
        self.not_taken(code);
    }

    /// The card has not taken a request: there is no room for it yet, or it will never take it.
    #[cold]
    fn not_taken(&mut self, code: i32) {
        if code != libc::ENOMEM {
            let why = std::io::Error::from_raw_os_error(code);
            self.refused = Some(Error::system("post a work request", why).peer(self.peer).device("verbs"));
        }
    }

    /// Why the card has refused a request for good, if it has; whoever asks gives up on the peer.
    pub(super) fn refused(&mut self) -> Option<Error> {
        self.refused.take()
    }

    /// Whether it is to be looked after though nothing comes.
    pub(super) fn is_restless(&self) -> bool {
        self.refused.is_some() || (self.qp.is_none() && !self.backlog.is_empty())
    }

    /// Of the `i`th of the requests that are posted next.
    fn id(&self, i: usize) -> u64 {
        u64::from(self.peer) << COUNT | (self.next + i as u64)
    }

    /// Posts what waits, as far as there are places; returns how many were posted.
    ///
    /// # Safety
    /// As [`push`](Self::push).
    pub(super) unsafe fn flush(&mut self, scarce: bool) -> usize {
        let mut posted = 0;
        while self.refused.is_none()
            && self.is_connected()
            && !self.backlog.is_empty()
            && self.flights.len() < self.capacity
        {
            let count = self.backlog.len().min(self.capacity - self.flights.len()).min(LIST);
            for i in 0..count {
                let wanted = self.backlog[i].signalled;
                self.backlog[i].signalled = signals(&mut self.unsignalled, self.capacity / 4, wanted, scarce);
            }
            let (taken, code) = {
                let own: SmallVec<[Piece; LIST]> = self.backlog.iter().take(count).map(Flight::own).collect();
                let mut orders: SmallVec<[Order<'_>; LIST]> = SmallVec::new();
                let mut pieces = 0;
                for (i, f) in self.backlog.iter().take(count).enumerate() {
                    pieces += f.pieces.len().max(1);
                    if pieces > 48 && i > 0 {
                        break;
                    }
                    orders.push(f.order(self.id(i), &own[i]));
                }
                let Some(qp) = &self.qp else { return posted };
                // SAFETY: inline bytes live in the backlog during the call; other memory by the contract.
                match unsafe { qp.post(&orders) } {
                    Ok(()) => (orders.len(), 0),
                    Err(refused) => refused,
                }
            };
            self.next += taken as u64;
            posted += taken;
            self.backlog.drain(..taken).for_each(|flight| self.flights.push(flight));
            if code != 0 {
                self.not_taken(code);
                break;
            }
        }
        posted
    }

    /// The request under way that `c` completes, if that is the oldest, has succeeded, and nothing has failed before.
    /// What is left of it: whom it concerns, and what comes free.
    #[inline]
    pub(super) fn completed_next(&mut self, c: &Completion) -> Option<(Whose, Option<Chunk>)> {
        let oldest = self.next.wrapping_sub(self.flights.len() as u64);
        if c.status != 0 || self.ending.is_some() || c.id & ((1 << COUNT) - 1) != oldest {
            return None;
        }
        let flight = self.flights.pass()?;
        Some((flight.whose, flight.chunk.take()))
    }

    /// Takes in a completion: hands out the requests that have ended, in order.
    pub(super) fn completed(&mut self, c: &Completion, landed: &mut Vec<Landed>, failed: &dyn Fn(Whose) -> bool) {
        let number = c.id & ((1 << COUNT) - 1);
        let first = self.next - self.flights.len() as u64;
        let before = number.saturating_sub(first);
        // A later request's completion is that of those before it too, except after the end.
        for _ in 0..before {
            if let Some(flight) = self.flights.pop() {
                self.land(flight, c, true, landed, failed);
            }
        }
        if let Some(flight) = self.flights.pop() {
            self.land(flight, c, false, landed, failed);
        }
        if self.ending.is_some() && self.flights.is_empty() {
            self.wind_up(landed);
        }
    }

    fn land(
        &mut self,
        flight: Flight,
        c: &Completion,
        earlier: bool,
        landed: &mut Vec<Landed>,
        failed: &dyn Fn(Whose) -> bool,
    ) {
        if c.status == 0 || (earlier && self.ending.is_none()) {
            landed.push(Landed { flight, result: Ok(()) });
            return;
        }
        let name = match flight.action {
            Action::Write { .. } => "write remote memory",
            Action::Read { .. } => "read remote memory",
            Action::Send => "send a packet",
            Action::FetchAdd { .. } => "fetch and add",
            Action::CompareSwap { .. } => "compare and swap",
        };
        let (error, fate) = explain(c.status, c.vendor, name, self.peer);
        if self.ending.is_none() {
            self.ending = Some(fate);
            if fate != Fate::Renew {
                tracing::debug!("the connection to rank {} has ended: {error}", self.peer);
                self.lost.get_or_insert_with(|| error.again());
            }
        }
        match (fate, &self.lost) {
            (Fate::Flushed, Some(lost)) => landed.push(Landed { flight, result: Err(lost.again()) }),
            // Not executed; done with if another part of its operation has failed.
            (Fate::Flushed, None) if !failed(flight.whose) => self.again.push_back(flight),
            _ => landed.push(Landed { flight, result: Err(error) }),
        }
    }

    /// The connection has ended and given everything back.
    fn wind_up(&mut self, landed: &mut Vec<Landed>) {
        self.qp = None;
        self.ending = None;
        while let Some(flight) = self.again.pop_back() {
            self.backlog.push_front(flight);
        }
        self.fail_backlog(landed);
    }

    /// Once the peer is lost, what never was posted fails too.
    pub(super) fn fail_backlog(&mut self, landed: &mut Vec<Landed>) {
        if let (Some(lost), None) = (&self.lost, &self.qp) {
            for flight in self.backlog.drain(..) {
                landed.push(Landed { flight, result: Err(lost.again()) });
            }
        }
    }

    /// Nobody hears of the requests any more that are whole operations and that `which` chooses. How many there are.
    pub(super) fn cancel(&mut self, which: &dyn Fn(u64) -> bool) -> usize {
        let chosen = |f: &Flight| f.whose.user().is_some_and(which);
        let mut count = 0;
        for flight in self.flights.iter_mut().chain(&mut self.again).chain(&mut self.backlog).filter(|f| chosen(f)) {
            flight.whose = Whose::Cancelled;
            count += 1;
        }
        count
    }

    /// Drops what has not been posted of an operation that is given up.
    pub(super) fn withdraw(&mut self, op: u32, landed: &mut Vec<Landed>) {
        let (out, rest) =
            std::mem::take(&mut self.backlog).into_iter().partition(|f: &Flight| f.whose == Whose::Op(op));
        self.backlog = rest;
        let gone = |flight| Landed {
            flight,
            result: Err(Error::new(ErrorKind::Aborted, "post a work request").cause("it was cancelled")),
        };
        landed.extend(<VecDeque<Flight>>::into_iter(out).map(gone));
    }
}
