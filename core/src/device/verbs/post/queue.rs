#![allow(unsafe_code)]
//! The send queue to one peer: requests that the HCA has, in order, followed by the backlog that waits for free slots.
//!
//! Most requests are signalled, since a caller waits for each. Signals and packets are not, except one per quarter of
//! the queue, whose completion frees their slots. When a request fails, its status determines what is known about it
//! and the following requests ([`Fate`]). Requests that the peer has not executed are posted again on a new connection.
//! Requests that it may have executed are posted again on the same queue pair, from the first unacknowledged packet on,
//! so that the peer executes nothing twice.

use std::time::{Duration, Instant};

use super::request::{Held, Owner, Request, Ring};
use crate::device::verbs::status::{Fate, explain};
use crate::device::verbs::sys::qp::{Action, Requester, Sends};
use crate::device::verbs::sys::queue::Completion;
use crate::error::{Error, ErrorKind, Result};

/// The resources of a request that has ended, and its result.
pub(crate) type Ended = (Held, Result<()>);

/// Pause after the first restart of the queue pair; it doubles with each further restart until a request is
/// acknowledged.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MOST: Duration = Duration::from_secs(1);
/// Maximum number of restarts of the queue pair without a request acknowledged in between, which take some five
/// seconds.
const RESTARTS: u32 = 10;

/// Restarts of a queue pair without a request acknowledged in between.
struct Restarts {
    count: u32,
    /// Number of the first packet.
    at: u32,
    due: Instant,
    /// The reason why the queue pair has failed.
    why: Error,
}

/// Context of a failure.
pub(crate) struct Failure<'a> {
    /// Whether the remaining requests of an owner's operation need not be executed.
    pub(crate) is_over: &'a dyn Fn(Owner) -> bool,
    /// Whether the port was down while requests were outstanding.
    pub(crate) port_was_down: &'a dyn Fn() -> bool,
}

/// Requests to one peer.
pub(crate) struct SendQueue<Q = Requester> {
    peer: u32,
    qp: Option<Q>,
    capacity: usize,
    /// Number of the next request.
    next: u64,
    /// In order: requests that failed and are posted again (`to_repost`), requests posted to the HCA (`posted`), and the
    /// backlog.
    requests: Ring,
    to_repost: usize,
    posted: usize,
    unsignalled: usize,
    /// Numbers of the first packet that is not acknowledged, and of the packet after the last one posted.
    acknowledged: u32,
    end: u32,
    /// The fate of this connection, once a request has failed. While it is [`Fate::Unknown`] and all requests are
    /// drained, the queue pair waits to be restarted.
    ending: Option<Fate>,
    restarts: Option<Restarts>,
    /// Number of times that the port had gone down when the queue pair was started.
    pub(crate) downs: u32,
    /// Error of an earlier request of the operation to which the first request belongs.
    failed: Option<Error>,
    /// The reason why the HCA has permanently refused a request. No further requests are posted.
    refused: Option<Error>,
    lost: Option<Error>,
}

/// Width of the counter in a completion id; the peer is in the bits above.
const COUNT: u32 = 40;
const NUMBER: u64 = (1 << COUNT) - 1;

/// The peer to which a completion id belongs.
pub(crate) fn peer_of(id: u64) -> usize {
    (id >> COUNT) as usize
}

impl<Q: Sends> SendQueue<Q> {
    pub(crate) fn new(peer: u32, capacity: usize) -> Self {
        Self {
            peer,
            qp: None,
            capacity,
            next: 0,
            requests: Ring::default(),
            to_repost: 0,
            posted: 0,
            unsignalled: 0,
            acknowledged: 0,
            end: 0,
            ending: None,
            restarts: None,
            downs: 0,
            failed: None,
            refused: None,
            lost: None,
        }
    }

    #[inline]
    pub(crate) fn is_connected(&self) -> bool {
        self.qp.is_some() && self.ending.is_none()
    }

    #[inline]
    fn backlog(&self) -> usize {
        self.requests.len() - self.posted - self.to_repost
    }

    /// Whether requests wait to be posted.
    pub(crate) fn is_waiting(&self) -> bool {
        self.backlog() > 0
    }

    /// Whether there is no connection, not even one that is still draining.
    pub(crate) fn is_disconnected(&self) -> bool {
        self.qp.is_none()
    }

    /// Whether the backlog needs a connection.
    pub(crate) fn wants_connection(&self) -> bool {
        self.qp.is_none() && self.lost.is_none() && self.is_waiting()
    }

    pub(crate) fn connected(&mut self, qp: Q, downs: u32) {
        (self.acknowledged, self.end) = (qp.first(), qp.first());
        (self.qp, self.next, self.unsignalled, self.downs) = (Some(qp), 0, 0, downs);
        self.restarts = None;
    }

    /// Whether the queue pair must be restarted.
    pub(crate) fn wants_restart(&self) -> bool {
        self.ending == Some(Fate::Unknown) && self.posted == 0 && self.lost.is_none()
    }

    /// Restarts the queue pair, if the restart is due; the failed requests become backlog.
    ///
    /// # Errors
    /// The reason why the queue pair has failed, if it fails repeatedly.
    #[cold]
    pub(crate) fn restart(&mut self, downs: u32) -> Result<()> {
        let (Some(qp), Some(restarts)) = (&self.qp, &mut self.restarts) else { return Ok(()) };
        let now = Instant::now();
        if now < restarts.due {
            return Ok(());
        }
        if restarts.count == RESTARTS {
            return Err(restarts.why.again());
        }
        restarts.count += 1;
        restarts.due = now + (PAUSE * (1 << (restarts.count - 1))).min(PAUSE_MOST);
        if let Err(e) = qp.restart(self.acknowledged) {
            tracing::debug!("the queue pair to rank {} cannot be restarted yet: {e}", self.peer);
            return Ok(());
        }
        tracing::debug!(
            "the queue pair to rank {} is restarted and {} requests are posted again",
            self.peer,
            self.to_repost
        );
        (self.end, self.ending, self.to_repost, self.unsignalled) = (self.acknowledged, None, 0, 0);
        self.downs = downs;
        Ok(())
    }

    /// Moves the queue pair to the error state, since it makes no progress although its port is up again; it is then
    /// restarted.
    #[cold]
    pub(crate) fn interrupt(&mut self) {
        if let Some(qp) = self.qp.as_ref().filter(|_| self.is_connected() && self.posted > 0) {
            match qp.fail() {
                Ok(()) => tracing::debug!("the stalled queue pair to rank {} is moved to the error state", self.peer),
                Err(e) => {
                    tracing::warn!("the queue pair to rank {} could not be moved to the error state: {e}", self.peer)
                }
            }
        }
    }

    /// Inline limit in bytes.
    pub(crate) fn inline(&self) -> usize {
        self.qp.as_ref().map_or(0, Q::inline)
    }

    /// Number of free slots for new requests; 0 while a backlog exists.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        if self.is_connected() && self.backlog() == 0 { self.capacity - self.posted } else { 0 }
    }

    /// Whether an operation of this many requests can be accepted now, with a slot for its notification. An operation
    /// longer than half of the queue is accepted when half of it is free; its remaining requests join the backlog.
    pub(crate) fn has_room(&self, requests: usize) -> bool {
        self.room() >= 2 + requests.min(self.capacity / 2)
    }

    /// Whether no request is outstanding or waiting.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests.len() == 0
    }

    /// Number of the oldest outstanding request.
    pub(crate) fn oldest(&self) -> Option<u64> {
        (self.posted > 0).then(|| self.next - self.posted as u64)
    }

    /// Whether all outstanding requests are unsignalled, so that only a further request would show their completion.
    pub(crate) fn is_silent(&self) -> bool {
        self.posted > 0 && self.requests.iter().skip(self.to_repost).take(self.posted).all(|r| !r.signalled)
    }

    /// Whether the HCA may still access memory of a cancelled operation.
    pub(crate) fn has_cancelled(&self) -> bool {
        self.requests.iter().any(|r| r.held.owner == Owner::Cancelled && r.held.zcopy)
    }

    /// The reason why the peer cannot be reached.
    pub(crate) fn lost(&self) -> Option<&Error> {
        self.lost.as_ref()
    }

    /// Declares the peer lost: the HCA drops the outstanding requests, and all operations fail.
    pub(crate) fn lose(&mut self, error: Error, ended: &mut Vec<Ended>) {
        if self.lost.is_some() {
            return;
        }
        self.lost = Some(error);
        if let Some(qp) = &self.qp {
            if let Err(e) = qp.fail() {
                tracing::warn!("the queue pair to rank {} could not be moved to the error state: {e}", self.peer);
            }
            self.ending.get_or_insert(Fate::Lost);
            if self.posted == 0 {
                self.wind_up(ended);
            }
        }
        self.fail_backlog(ended);
    }

    /// Destroys the queue pair to a lost peer, even if completions of outstanding requests have not arrived. The HCA no
    /// longer accesses their memory, and all operations fail.
    pub(crate) fn destroy(&mut self, ended: &mut Vec<Ended>) {
        if self.lost.is_some() && self.qp.is_some() {
            self.posted = 0;
            self.wind_up(ended);
        }
    }

    /// Posts a request that `fill` completes in place, or adds it to the backlog; returns whether it was posted. For an
    /// operation that must not join the backlog, the caller checks [`room`](Self::room) first.
    ///
    /// # Safety
    /// The memory of pieces stays registered and mapped until the request has ended.
    #[inline(always)]
    pub(crate) unsafe fn post(&mut self, action: Action, fill: impl FnOnce(&mut Request), scarce: bool) -> bool {
        let at_once = self.room() > 0;
        fill(self.requests.grow(action));
        // SAFETY: the same contract.
        at_once && unsafe { self.post_next(scarce) }
    }

    /// Posts the first request of the backlog on a connected queue; returns whether the HCA accepted it. The request is
    /// signalled if bounce buffers are `scarce`.
    ///
    /// # Safety
    /// The memory of segments stays registered and mapped until the request has ended.
    #[inline(always)]
    unsafe fn post_next(&mut self, scarce: bool) -> bool {
        let id = u64::from(self.peer) << COUNT | self.next;
        let Some(qp) = &self.qp else { return false };
        let request = self.requests.get_mut(self.posted);
        request.signalled |= scarce || self.unsignalled + 1 >= self.capacity / 4;
        let piece = request.inline_piece();
        // SAFETY: inline bytes live in the request during the call; other memory by the contract.
        let code = unsafe { qp.post(&request.order(id, &piece)) };
        if code != 0 {
            self.not_taken(code);
            return false;
        }
        self.unsignalled = if request.signalled { 0 } else { self.unsignalled + 1 };
        self.end = self.end.wrapping_add(qp.packets(request.len()));
        request.end = self.end;
        self.next += 1;
        self.posted += 1;
        true
    }

    /// Handles a request that the HCA has not accepted: `ENOMEM` means that the queue is full unless it is empty, any
    /// other code is permanent. Some drivers return negative codes.
    #[cold]
    fn not_taken(&mut self, code: i32) {
        if code != libc::ENOMEM || self.posted == 0 {
            let why = std::io::Error::from_raw_os_error(code.abs());
            self.refused = Some(Error::system("post a work request", why).peer(self.peer).device("verbs"));
        }
    }

    /// Returns the reason for which the HCA has permanently refused a request, if any; the caller declares the peer
    /// lost.
    pub(crate) fn refused(&mut self) -> Option<Error> {
        self.refused.take()
    }

    /// Whether the queue needs attention that no completion will announce.
    pub(crate) fn has_work(&self) -> bool {
        self.refused.is_some() || (self.qp.is_none() && self.is_waiting())
    }

    /// Posts the backlog as far as there are free slots; returns how many requests were posted.
    ///
    /// # Safety
    /// The memory of pieces stays registered and mapped until the request has ended.
    pub(crate) unsafe fn flush(&mut self, scarce: bool) -> usize {
        let before = self.posted;
        while self.refused.is_none() && self.is_connected() && self.is_waiting() && self.posted < self.capacity {
            // SAFETY: the same contract.
            if !unsafe { self.post_next(scarce) } {
                break;
            }
        }
        self.posted - before
    }

    /// Whether `c` belongs to a successful request on a connection without failures. [`pop`](Self::pop) then removes
    /// the completed requests.
    #[inline]
    pub(crate) fn is_success(&self, c: &Completion) -> bool {
        c.status == 0 && self.ending.is_none() && self.failed.is_none()
    }

    /// Removes the oldest outstanding request if its number is at most `id`: a completion covers all requests before
    /// its own. The caller takes the request's resources from the returned reference.
    #[inline]
    pub(crate) fn pop(&mut self, id: u64) -> Option<&mut Request> {
        if self.posted == 0 || self.next - self.posted as u64 > id & NUMBER {
            return None;
        }
        self.posted -= 1;
        let request = self.requests.pop()?;
        self.acknowledged = request.end;
        Some(request)
    }

    /// Handles a completion of a failed request, or one on a connection where an earlier request has failed: appends
    /// the ended requests to `ended`, in order.
    #[cold]
    pub(crate) fn failed(&mut self, c: &Completion, ended: &mut Vec<Ended>, failure: &Failure<'_>) {
        let first = self.next - self.posted as u64;
        let count = ((c.id & NUMBER) + 1).saturating_sub(first).min(self.posted as u64);
        for left in (0..count).rev() {
            self.end_oldest(c, left > 0, ended, failure);
        }
        if self.ending.is_some() && self.posted == 0 {
            self.wind_up(ended);
        }
    }

    fn end_oldest(&mut self, c: &Completion, is_earlier: bool, ended: &mut Vec<Ended>, failure: &Failure<'_>) {
        self.posted -= 1;
        let Request { action, end, held: Held { owner, .. }, .. } = *self.requests.get(self.to_repost);
        if c.status == 0 || (is_earlier && self.ending.is_none()) {
            if self.to_repost == 0 {
                self.acknowledged = end;
            }
            return self.end(self.to_repost, Ok(()), ended);
        }
        let (error, fate) = explain(c.status, c.vendor, action.name(), self.peer);
        let is_first = self.ending.is_none();
        if is_first {
            self.fail(&error, fate, failure);
        }
        let is_kept = match self.ending {
            _ if self.lost.is_some() => false,
            Some(Fate::Unknown) => true,
            _ => !is_first && self.failed.is_none() && !(failure.is_over)(owner),
        };
        if is_kept {
            self.to_repost += 1;
            return;
        }
        let error = match &self.lost {
            Some(lost) if !is_first => lost.again(),
            _ => error,
        };
        self.end(self.to_repost, Err(error), ended);
    }

    /// Decides the fate of the connection whose first request has failed.
    fn fail(&mut self, error: &Error, fate: Fate, failure: &Failure<'_>) {
        let fate = match fate {
            Fate::Silent if (failure.port_was_down)() => Fate::Unknown,
            Fate::Silent => Fate::Lost,
            fate => fate,
        };
        tracing::debug!("the connection to rank {} has failed ({fate:?}): {error}", self.peer);
        self.ending = Some(fate);
        match fate {
            Fate::Lost | Fate::Silent => {
                // Whatever the first request's own error is, the others fail because the peer cannot be reached.
                let lost = || Error::new(ErrorKind::PeerLost, error.operation()).peer(self.peer).device("verbs");
                self.lost.get_or_insert_with(|| match error.kind() {
                    ErrorKind::PeerLost => error.again(),
                    _ => lost().cause(error.reason()),
                });
            }
            Fate::Unknown => {
                let at = self.acknowledged;
                let why = error.again();
                match &mut self.restarts {
                    Some(restarts) if restarts.at == at => restarts.why = why,
                    restarts => *restarts = Some(Restarts { count: 0, at, due: Instant::now(), why }),
                }
            }
            Fate::Refused => {}
        }
    }

    /// Ends request `i`. The first error of an operation also becomes that of its last request.
    fn end(&mut self, i: usize, result: Result<()>, ended: &mut Vec<Ended>) {
        let Some(request) = self.requests.remove(i) else { return };
        let result = self.failed.take().map_or(result, Err);
        if let (true, Err(e)) = (request.more, &result) {
            self.failed = Some(e.again());
        }
        ended.push((request.held, result));
    }

    /// Handles the end of a drained connection: requests that were not executed become backlog again. If the queue pair
    /// is to be restarted, they wait for that.
    fn wind_up(&mut self, ended: &mut Vec<Ended>) {
        if self.wants_restart() {
            return;
        }
        (self.qp, self.ending, self.to_repost) = (None, None, 0);
        self.fail_backlog(ended);
    }

    /// Once the peer is lost, the backlog fails too.
    pub(crate) fn fail_backlog(&mut self, ended: &mut Vec<Ended>) {
        if let (Some(lost), None) = (&self.lost, &self.qp) {
            let lost = lost.again();
            while self.requests.len() > 0 {
                self.end(0, Err(lost.again()), ended);
            }
        }
    }

    /// Cancels the operations whose owners `which` selects; their unposted requests end. Returns how many complete
    /// operations of the user were cancelled.
    pub(crate) fn cancel(&mut self, which: &dyn Fn(Owner) -> bool, ended: &mut Vec<Ended>) -> usize {
        let (mut count, mut first) = (0, 0);
        for i in 0..self.requests.len() {
            let request = self.requests.get(i);
            if request.more {
                continue;
            }
            if which(request.held.owner) {
                count += usize::from(matches!(request.held.owner, Owner::User(_)));
                for part in first..=i {
                    let request = self.requests.get_mut(part);
                    request.more = false;
                    request.held.cancel();
                }
                if first == 0 {
                    self.failed = None;
                }
            }
            first = i + 1;
        }
        // Requests that the HCA has, or that are to be repeated unchanged.
        let first = if self.ending == Some(Fate::Unknown) { 0 } else { self.to_repost };
        let last = self.to_repost + self.posted;
        for i in (0..self.requests.len()).rev() {
            if (first..last).contains(&i) || self.requests.get(i).held.owner != Owner::Cancelled {
                continue;
            }
            let Some(mut request) = self.requests.remove(i) else { continue };
            self.to_repost -= usize::from(i < self.to_repost);
            if first < last {
                // The HCA may still use that memory for an earlier request of the same operation.
                let last = self.requests.get_mut(self.to_repost + self.posted - 1);
                last.held.leases.extend(request.held.leases.drain(..));
            }
            let error = Error::new(ErrorKind::Aborted, "post a work request").cause("the request was cancelled");
            ended.push((request.held, Err(error)));
        }
        count
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use rdma_sys::ibv_wc_status as s;

    use super::*;

    /// A queue whose requests are all posted: for each its owner, and whether further requests of its operation follow.
    fn queue(requests: &[(Owner, bool)]) -> SendQueue {
        let mut queue = SendQueue::new(3, 64);
        for (owner, more) in requests {
            let request = queue.requests.grow(Action::Send);
            (request.held.owner, request.held.zcopy, request.more, request.signalled) = (*owner, true, *more, !more);
        }
        (queue.posted, queue.next) = (requests.len(), requests.len() as u64);
        queue
    }

    fn completion(number: u64, status: u32) -> Completion {
        let id = 3 << COUNT | number;
        Completion { id, status, opcode: 0, vendor: 0, len: 0, immediate: None, qp: 0 }
    }

    fn fail(queue: &mut SendQueue, number: u64, status: u32) -> Vec<(Owner, Option<ErrorKind>)> {
        let mut ended = Vec::new();
        let failure = Failure { is_over: &|owner| owner == Owner::Cancelled, port_was_down: &|| false };
        queue.failed(&completion(number, status), &mut ended, &failure);
        ended.iter().map(|(held, result)| (held.owner, result.as_ref().err().map(Error::kind))).collect()
    }

    const USER: Owner = Owner::User(7);

    #[test]
    fn completion_of_a_success_takes_out_all_before_it() {
        let mut q = queue(&[(Owner::Nobody, false), (USER, false), (Owner::User(8), false)]);
        let c = completion(1, 0);
        assert!(q.is_success(&c));
        let mut owners = Vec::new();
        while let Some(request) = q.pop(c.id) {
            owners.push(request.held.owner);
        }
        assert_eq!(owners, [Owner::Nobody, USER]);
        assert_eq!((q.oldest(), q.is_idle()), (Some(2), false));
    }

    #[test]
    fn operation_ends_with_its_last_request_and_keeps_the_first_error() {
        let mut q = queue(&[(Owner::Nobody, true), (Owner::Nobody, true), (USER, false), (Owner::User(8), false)]);
        assert_eq!(fail(&mut q, 0, s::IBV_WC_REM_ACCESS_ERR), [(Owner::Nobody, Some(ErrorKind::BadKey))]);
        assert_eq!(fail(&mut q, 1, s::IBV_WC_WR_FLUSH_ERR), [(Owner::Nobody, Some(ErrorKind::BadKey))]);
        assert_eq!(fail(&mut q, 2, s::IBV_WC_WR_FLUSH_ERR), [(USER, Some(ErrorKind::BadKey))]);
        assert_eq!(fail(&mut q, 3, s::IBV_WC_WR_FLUSH_ERR), [], "not executed: posted again");
        assert!(q.is_waiting() && q.is_disconnected() && q.lost().is_none() && q.failed.is_none());
    }

    #[test]
    fn cancelled_operation_ends_where_it_was_not_posted_and_is_waited_for_where_it_was() {
        let mut q = queue(&[(Owner::Nobody, true), (USER, false), (Owner::User(8), false), (USER, false)]);
        q.posted = 1;
        let mut ended = Vec::new();
        assert_eq!(q.cancel(&|owner| owner == USER, &mut ended), 2);
        assert!(ended.len() == 2 && ended.iter().all(|(held, r)| held.owner == Owner::Cancelled && r.is_err()));
        assert!(q.has_cancelled() && q.is_waiting());
        q.next = 1;
        assert_eq!(
            fail(&mut q, 0, s::IBV_WC_RETRY_EXC_ERR),
            [(Owner::Cancelled, Some(ErrorKind::PeerLost)), (Owner::User(8), Some(ErrorKind::PeerLost)),]
        );
        assert!(q.is_idle() && !q.has_cancelled());
    }
}
