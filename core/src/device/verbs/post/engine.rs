#![allow(unsafe_code)]
//! Drives the requests of a rank: the send queues to its peers, and the consequences of completed requests.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cut::Limits;
use super::lists::SgrsQueues;
use super::notices::{Notification, SentSlots, definition};
use super::outcomes::Outcomes;
use super::queue::{Ended, Failure, SendQueue, peer_of};
use super::request::{Notice, Owner, Request};
use crate::device::verbs::connect::credits::Credit;
use crate::device::verbs::connect::links::{Links, Standing};
use crate::device::verbs::memory::buffers::Pool;
use crate::device::verbs::memory::regions::Regions;
use crate::device::verbs::memory::user::UserMemory;
use crate::device::verbs::sys::qp::Action;
use crate::device::verbs::sys::queue::Completion;
use crate::error::{Error, Result};
use crate::stats::{Kind, Stats};

/// Time without progress on a peer's requests after which an empty request makes the HCA check its queue again.
pub(super) const STALLED: Duration = Duration::from_secs(3);
/// A request that transfers no bytes.
const EMPTY: Action = Action::Write { address: 0, key: 0 };

/// Fields are dropped in this order: queue pairs before the memory that they use.
pub(crate) struct Engine {
    pub(super) queues: Vec<Option<SendQueue>>,
    pub(crate) sgrs: SgrsQueues,
    pub(crate) out: Outcomes,
    pub(crate) regions: Regions,
    pub(crate) user: UserMemory,
    pub(crate) slots: Vec<SentSlots>,
    /// Maximum number of unacknowledged packets to each peer.
    window: u64,
    pub(crate) limits: Limits,
    /// Address and key of each peer's counter of this rank's packets.
    counters: Vec<(u64, u32)>,
    /// Packets of this rank to itself, which bypass the HCA.
    pub(crate) to_self: VecDeque<Vec<u8>>,
    pub(crate) links: Arc<Links>,
    /// Whether requests may be waiting for queue space or for a connection.
    pub(super) todo: bool,
    /// Number of staged transfers so far, which is the number of the next one.
    pub(super) transfers: u64,
    /// Per peer, the oldest outstanding request, and the time since which it has been the oldest.
    oldest: Vec<(Option<u64>, Instant)>,
}

impl Engine {
    pub(crate) fn new(
        links: &Arc<Links>,
        (pool, regions, user): (Pool, Regions, UserMemory),
        sgrs: SgrsQueues,
        (window, limits): (u64, Limits),
        stats: &Rc<Stats>,
    ) -> Self {
        let ranks = links.addresses.len();
        Self {
            queues: (0..ranks).map(|_| None).collect(),
            sgrs,
            out: Outcomes {
                pool,
                credits: (0..ranks).map(|_| Credit::default()).collect(),
                staged: VecDeque::new(),
                done: VecDeque::new(),
                open: 0,
                notices: Vec::new(),
                witnessed: Vec::new(),
                stats: Rc::clone(stats),
            },
            regions,
            user,
            slots: (0..ranks).map(|_| SentSlots::default()).collect(),
            window,
            limits,
            counters: vec![(0, 0); ranks],
            to_self: VecDeque::new(),
            links: Arc::clone(links),
            todo: false,
            transfers: 0,
            oldest: vec![(None, Instant::now()); ranks],
        }
    }

    #[inline]
    pub(super) fn queue(&mut self, peer: u32) -> &mut SendQueue {
        let capacity = self.links.sizes.sends as usize;
        self.queues[peer as usize].get_or_insert_with(|| SendQueue::new(peer, capacity))
    }

    /// The loss of a peer that no other device reaches, if any.
    pub(crate) fn lost(&self) -> Option<&Error> {
        if self.queues.iter().flatten().all(|queue| queue.lost().is_none()) {
            return None;
        }
        let table = self.links.lock();
        let watched = table.peers.iter().zip(&self.queues).filter(|(peer, _)| !peer.is_given_up);
        watched.filter_map(|(_, queue)| queue.as_ref()).find_map(SendQueue::lost)
    }

    /// The send queue to `peer` if it is connected; otherwise starts a connection and returns `None`.
    #[inline]
    pub(super) fn ready(&mut self, peer: u32) -> Result<Option<&mut SendQueue>> {
        let queue = self.queue(peer);
        if let Some(e) = queue.lost() {
            return Err(e.again());
        }
        if !queue.is_connected() && !self.connect(peer)? {
            return Ok(None);
        }
        Ok(Some(self.queue(peer)))
    }

    /// Connects to `peer` if the last connection has ended; returns whether the queue is connected now.
    fn connect(&mut self, peer: u32) -> Result<bool> {
        if !self.queue(peer).is_disconnected() {
            return Ok(false);
        }
        match self.links.connect(peer)? {
            Standing::Ready((qp, counter)) => {
                self.counters[peer as usize] = counter;
                let downs = self.links.downs();
                self.queue(peer).connected(qp, downs);
                Ok(true)
            }
            Standing::Making => Ok(false),
        }
    }

    /// Posts a request to `peer`, filled in by `fill`, or adds it to the backlog.
    #[inline]
    pub(super) fn post_one(&mut self, peer: u32, action: Action, fill: impl FnOnce(&mut Request)) {
        let scarce = self.out.pool.is_scarce();
        // SAFETY: the segments are in bounce buffers and registered memory, which the operation holds until it ends.
        if unsafe { self.queue(peer).post(action, fill, scarce) } {
            self.out.stats.add(Kind::Post, 0);
        } else {
            self.todo = true;
        }
    }

    /// Posts a write that sets a signal cell and wakes the peer.
    pub(super) fn post_signal(&mut self, peer: u32, notice: &Notice) {
        let Notice { import, offset, value } = *notice;
        self.slots[import.peer as usize].set((import.number, offset as u64), value);
        self.post_one(peer, Action::Write { address: import.address(offset), key: import.key }, |r| {
            r.inline.extend_from_slice(&value.to_le_bytes());
            r.immediate = Some(0);
        });
    }

    /// Prepares the notification of a write that is about to be posted; returns the immediate data, if the notification
    /// is sent with the write.
    pub(super) fn immediate(&mut self, peer: u32, notice: &Notice) -> Option<u32> {
        let cell = (notice.import.number, notice.offset as u64);
        let (defined, immediate) = match self.slots[peer as usize].notify(cell, notice.value) {
            Notification::Immediate(immediate) => (None, immediate),
            Notification::Define(slot, immediate) => (Some(slot), immediate),
            Notification::Alone => return None,
        };
        if let Some(slot) = defined {
            self.post_one(peer, Action::Send, |r| {
                r.inline.extend_from_slice(&definition(slot, cell));
                r.immediate = Some(0);
            });
        }
        self.out.stats.add(Kind::Notify, 8);
        Some(immediate)
    }

    /// Whether a packet may be sent to `peer`, which is connected. Reads the peer's counter if credits run low.
    pub(super) fn has_credit(&mut self, peer: u32) -> bool {
        let advice = self.out.credits[peer as usize].advise(self.window);
        if advice.ask
            && self.queue(peer).room() > 1
            && let Some(chunk) = self.out.pool.take(8)
        {
            let (address, key) = self.counters[peer as usize];
            let piece = self.out.pool.piece(&chunk, 0, 8);
            self.out.credits[peer as usize].asked();
            self.post_one(peer, Action::Read { address, key }, |r| {
                r.pieces.push(piece);
                (r.signalled, r.held.owner, r.held.chunk) = (true, Owner::Credit, Some(chunk));
            });
        }
        advice.send
    }

    /// Handles a completion of a request.
    #[inline]
    pub(crate) fn completed(&mut self, c: &Completion) {
        let peer = peer_of(c.id);
        let Some(Some(queue)) = self.queues.get_mut(peer) else { return };
        if queue.is_success(c) {
            while let Some(request) = queue.pop(c.id) {
                // SAFETY: the user's memory is valid until the operation is complete or cancelled.
                unsafe { self.out.end(peer as u32, &mut request.held, Ok(())) };
            }
            self.todo |= queue.is_waiting();
            self.read_witnesses();
        } else {
            let mut ended = Vec::new();
            let downs = queue.downs;
            let failure = Failure {
                is_over: &|owner| self.out.is_over(owner),
                port_was_down: &|| self.links.is_port_down() || self.links.downs() != downs,
            };
            queue.failed(c, &mut ended, &failure);
            self.todo |= queue.is_waiting() || queue.wants_restart();
            self.end_all(peer as u32, ended);
        }
        if !self.out.notices.is_empty() {
            self.post_notices();
        }
    }

    fn end_all(&mut self, peer: u32, ended: Vec<Ended>) {
        for (mut held, result) in ended {
            // SAFETY: as in `completed`.
            unsafe { self.out.end(peer, &mut held, result) };
        }
        self.read_witnesses();
    }

    /// Reads the witnesses of operations whose data has arrived.
    #[inline]
    fn read_witnesses(&mut self) {
        while let Some((peer, witness, mut held)) = self.out.witnessed.pop() {
            let piece = held.chunk.as_ref().map(|chunk| self.out.pool.piece(chunk, 0, 8));
            held.expected = Some(witness.expected);
            self.post_one(peer, Action::Read { address: witness.address, key: witness.key }, |r| {
                r.pieces.extend(piece);
                (r.signalled, r.held) = (true, held);
            });
        }
    }

    /// Posts the notifications of completed operations. A read or an atomic may still be in progress when a later write
    /// arrives, so its notification is posted only after it has completed. A fence in the HCA would do the same, but
    /// can hang Soft-RoCE: a retransmitted request waits at its fence for later requests, or for itself, because their
    /// slots of the read limit are not released.
    #[cold]
    pub(super) fn post_notices(&mut self) {
        for (peer, notice) in std::mem::take(&mut self.out.notices) {
            self.post_signal(peer, &notice);
        }
    }

    /// Posts requests that waited for queue space or for a connection.
    #[inline]
    pub(crate) fn drive(&mut self) {
        // Called at every turn of a wait, and usually nothing is queued.
        if self.todo {
            self.drive_queues();
        }
    }

    fn drive_queues(&mut self) {
        let scarce = self.out.pool.is_scarce();
        for peer in 0..self.queues.len() as u32 {
            let Some(queue) = &mut self.queues[peer as usize] else { continue };
            let connected = match queue {
                queue if queue.wants_connection() => self.connect(peer).map(drop),
                // The agent wakes the rank when the port is up.
                queue if queue.wants_restart() && !self.links.is_port_down() => {
                    let restarted = queue.restart(self.links.downs());
                    restarted.map_err(|e| e.because(&format!("by {}", self.links.port())))
                }
                _ => Ok(()),
            };
            let queue = self.queue(peer);
            // SAFETY: as in `post_one`.
            let posted = unsafe { queue.flush(scarce) };
            let refused = connected.err().or_else(|| queue.refused());
            (0..posted).for_each(|_| self.out.stats.add(Kind::Post, 0));
            if let Some(e) = refused {
                self.lose(peer, &e);
                continue;
            }
            // Operations that failures have added to the backlog in the meantime.
            let mut ended = Vec::new();
            self.queue(peer).fail_backlog(&mut ended);
            self.end_all(peer, ended);
        }
        self.drive_staged();
        let has_work = |queue: &SendQueue| queue.is_waiting() || queue.wants_restart();
        self.todo = self.queues.iter().flatten().any(has_work) || !self.out.staged.is_empty();
    }

    /// Declares a peer lost: all operations to it fail.
    #[cold]
    pub(crate) fn lose(&mut self, peer: u32, error: &Error) {
        let mut ended = Vec::new();
        self.queue(peer).lose(error.again(), &mut ended);
        self.end_sgrs(peer, error.again());
        self.end_all(peer, ended);
    }

    /// Destroys the queue pairs to a lost peer: all operations that have not completed fail.
    #[cold]
    pub(crate) fn destroy(&mut self, peer: u32) {
        let mut ended = Vec::new();
        self.queue(peer).destroy(&mut ended);
        self.end_all(peer, ended);
        self.destroy_sgrs(peer);
    }

    /// Whether work is pending that no completion will announce.
    pub(crate) fn has_work(&self) -> bool {
        !self.out.done.is_empty()
            || !self.to_self.is_empty()
            || self.can_gather()
            || self.can_stage()
            || self.queues.iter().flatten().any(SendQueue::has_work)
            || self.queues.iter().flatten().any(SendQueue::wants_restart) && !self.links.is_port_down()
    }

    /// Whether every request has ended. Posts a signalled request if no completion would show that.
    pub(crate) fn is_idle(&mut self) -> bool {
        for peer in 0..self.queues.len() {
            if self.queues[peer].as_ref().is_some_and(|q| q.is_silent() && q.room() > 0) {
                self.post_one(peer as u32, EMPTY, |r| r.signalled = true);
            }
        }
        self.to_self.is_empty()
            && self.out.staged.is_empty()
            && self.sgrs.are_sends_idle()
            && self.queues.iter().flatten().all(|q| q.is_idle() || q.lost().is_some())
    }

    /// Posts an empty write to peers whose requests have made no progress for a while. Soft-RoCE may fail to notice
    /// that the read limit allows further reads, and checks its queue when a request is posted; on other HCAs the write
    /// is harmless.
    ///
    /// If the port was down meanwhile, the queue pair is restarted instead: one of Soft-RoCE that could not send a
    /// packet neither sends further packets nor reports an error while an answer to an earlier request is missing.
    pub(crate) fn kick_stalled(&mut self) {
        let now = Instant::now();
        let downs = self.links.downs();
        self.end_sgrs_of_port(downs);
        for peer in 0..self.queues.len() {
            let Some(queue) = &self.queues[peer] else { continue };
            let (oldest, since) = &mut self.oldest[peer];
            if queue.oldest() != *oldest {
                (*oldest, *since) = (queue.oldest(), now);
            } else if oldest.is_some() && now.duration_since(*since) > STALLED {
                *since = now;
                tracing::debug!("no request to rank {peer} has completed for {STALLED:?}");
                if queue.downs != downs && !self.links.is_port_down() {
                    let queue = self.queue(peer as u32);
                    queue.downs = downs;
                    queue.interrupt();
                } else if queue.room() > 0 {
                    self.post_one(peer as u32, EMPTY, |r| r.signalled = true);
                }
            }
        }
    }

    /// Cancels operations of the user. The HCA may still access their memory as long as
    /// [`peers_with_cancelled`](Self::peers_with_cancelled) lists a peer.
    pub(crate) fn cancel(&mut self, which: &dyn Fn(u64) -> bool) {
        let (cancelled, kept): (VecDeque<_>, _) = self.out.staged.drain(..).partition(|s| which(s.id));
        self.out.staged = kept;
        self.out.open -= cancelled.len();
        let chosen = |owner| match owner {
            Owner::User(id) => which(id),
            Owner::Piece(number) => cancelled.iter().any(|s| s.number == number),
            Owner::Nobody | Owner::Cancelled | Owner::Credit => false,
        };
        for peer in 0..self.queues.len() {
            let mut ended = Vec::new();
            let Some(queue) = &mut self.queues[peer] else { continue };
            self.out.open -= queue.cancel(&chosen, &mut ended);
            self.end_all(peer as u32, ended);
        }
        self.cancel_lists(which);
        self.out.done.retain(|(id, _)| !which(*id));
    }

    /// Peers whose outstanding requests use memory of cancelled operations.
    pub(crate) fn peers_with_cancelled(&self) -> Vec<u32> {
        let has = |p: &u32| self.queues[*p as usize].as_ref().is_some_and(SendQueue::has_cancelled);
        (0..self.queues.len() as u32).filter(|p| has(p) || self.sgrs.has_cancelled(*p)).collect()
    }
}
