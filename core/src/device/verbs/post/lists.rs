#![allow(unsafe_code)]
//! Scatter and gather lists: messages of many blocks on both sides, over the SGRS queue pairs of `connect::sgrs`.
//!
//! Zcopy: memory that is not yet registered is registered, and stays registered (`memory::user`). The nth gather list
//! posted at one end is received by the nth scatter list posted at the other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::CANCEL_TIMEOUT;
use super::engine::{Engine, STALLED};
use super::request::{Held, Owner};
use crate::device::request::length;
use crate::device::verbs::memory::buffers::MAX_CHUNK;
use crate::device::verbs::status::{Fate, explain};
use crate::device::verbs::sys::Rights;
use crate::device::verbs::sys::queue::{Completion, Fired};
use crate::device::verbs::sys::sgrs::SgrsQueuePair;
use crate::device::{Block, Lists, Posted, WorkRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::stats::Kind;

/// Marks the id of a receive.
const RECEIVE: u64 = 1;

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Gather,
    Scatter,
}

impl List {
    fn name(self) -> &'static str {
        match self {
            List::Gather => "send a gather list",
            List::Scatter => "receive a scatter list",
        }
    }
}

/// The lists to and from one peer: the resources that their operations hold, in posting order.
#[derive(Default)]
struct PeerSgrs {
    pair: Option<Arc<SgrsQueuePair>>,
    sends: VecDeque<Held>,
    receives: VecDeque<Held>,
    /// The error with which outstanding lists fail while the queue pair is drained, and the time at which that began.
    ending: Option<(Error, Instant)>,
    /// Whether a gather list waits for the peer's confirmation that its queue pair is connected.
    waits: bool,
    /// Number of completed sends.
    sent: u64,
    /// The value of `sent`, and the time when the port went down while sends were outstanding.
    down: Option<(u64, Instant)>,
}

impl PeerSgrs {
    fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty()
    }

    fn held(&self) -> impl Iterator<Item = &Held> {
        self.sends.iter().chain(&self.receives)
    }
}

/// The SGRS queue pairs of a rank.
pub(crate) struct SgrsQueues {
    peers: Vec<Option<Box<PeerSgrs>>>,
    /// Peers on whose SGRS queue pair a list is outstanding.
    active: Vec<u32>,
    limits: Lists,
    /// Number of times that the port had gone down when lists were last ended for that reason.
    downs: u32,
}

impl SgrsQueues {
    pub(crate) fn new(ranks: usize, limits: Lists) -> Self {
        Self { peers: (0..ranks).map(|_| None).collect(), active: Vec::new(), limits, downs: 0 }
    }

    /// Whether no gather list is outstanding. Scatter lists may still wait for a message.
    pub(crate) fn are_sends_idle(&self) -> bool {
        self.peers.iter().flatten().all(|l| l.sends.is_empty())
    }

    /// Whether lists to or from `peer` use memory of cancelled operations.
    pub(crate) fn has_cancelled(&self, peer: u32) -> bool {
        self.peers[peer as usize].as_ref().is_some_and(|l| l.held().any(|h| h.owner == Owner::Cancelled))
    }
}

impl Drop for SgrsQueues {
    /// The memory that lists use is freed after this call; the queue pairs are destroyed later.
    fn drop(&mut self) {
        for pair in self.peers.iter().flatten().filter_map(|l| l.pair.as_ref()) {
            pair.end("the peer has left the job");
        }
    }
}

impl Engine {
    /// # Safety
    /// All local pointers stay valid (and exclusive where written) until the request has completed.
    pub(crate) unsafe fn list(&mut self, request: &WorkRequest<'_>, blocks: &[Block], list: List) -> Result<Posted> {
        let (peer, limits) = (request.peer, self.sgrs.limits);
        let bad = |cause: String| {
            Err(Error::new(ErrorKind::BadArgument, list.name()).peer(peer).device("verbs").cause(cause))
        };
        let len = length(blocks);
        if blocks.len() > limits.blocks || len > limits.bytes {
            let Lists { blocks: most, bytes } = limits;
            return bad(format!(
                "the list has {} blocks and {len} bytes, but at most {most} blocks and {bytes} bytes are allowed",
                blocks.len()
            ));
        }
        if request.notify.is_some() {
            return bad("a list cannot carry a notification".into());
        }
        if let Some(e) = self.queue(peer).lost() {
            return Err(e.again());
        }
        let Some(pair) = self.sgrs_queue_pair(peer, list)? else { return Ok(Posted::Busy) };
        let rights = if list == List::Gather { Rights::Source } else { Rights::Local };
        let regions = &self.regions;
        // SAFETY: the blocks are valid until the operation is complete or cancelled, and the operation holds the
        // leases.
        let found = unsafe { self.user.pieces(blocks, rights, |b| regions.local_key(b.base, b.len), &self.out.stats) };
        let mut held = Held { owner: Owner::User(request.id), zcopy: true, ..Held::default() };
        let pieces = match found {
            Ok((pieces, leases)) => {
                held.leases = leases;
                pieces
            }
            Err(e) if e.kind() == ErrorKind::Limit && len <= MAX_CHUNK => {
                let Some(chunk) = self.out.pool.take(len) else { return Ok(Posted::Busy) };
                match list {
                    // SAFETY: by the contract; the chunk has room for all blocks.
                    List::Gather => unsafe { self.out.pool.gather(&chunk, 0, blocks) },
                    List::Scatter => held.into.extend_from_slice(blocks),
                }
                let piece = self.out.pool.piece(&chunk, 0, len);
                held.chunk = Some(chunk);
                vec![piece]
            }
            Err(e) => return Err(e.peer(peer)),
        };
        // SAFETY: as above.
        let posted = unsafe {
            match list {
                List::Gather => pair.send(0, &pieces),
                List::Scatter => pair.receive(RECEIVE, &pieces),
            }
        };
        if let Err(e) = posted {
            held.chunk.into_iter().for_each(|chunk| self.out.pool.give(chunk));
            if e.raw_os_error() == Some(libc::ENOMEM) {
                return Ok(Posted::Busy);
            }
            return Err(Error::system(list.name(), e).peer(peer).device("verbs"));
        }
        self.out.open += 1;
        if !self.sgrs.active.contains(&peer) {
            self.sgrs.active.push(peer);
        }
        if let Some(sgrs) = &mut self.sgrs.peers[peer as usize] {
            match list {
                List::Gather => {
                    sgrs.sends.push_back(held);
                    self.out.stats.add(Kind::Post, 0);
                }
                List::Scatter => sgrs.receives.push_back(held),
            }
        }
        Ok(Posted::Pending)
    }

    /// The queue pair for a list, if it can accept one now.
    fn sgrs_queue_pair(&mut self, peer: u32, list: List) -> Result<Option<Arc<SgrsQueuePair>>> {
        let sgrs = self.sgrs.peers[peer as usize].get_or_insert_default();
        if sgrs.pair.as_ref().is_some_and(|p| p.ended().is_some()) && sgrs.is_empty() {
            (sgrs.pair, sgrs.ending) = (None, None);
        }
        if sgrs.ending.is_some() {
            return Ok(None);
        }
        let pair = match &sgrs.pair {
            Some(pair) => Arc::clone(pair),
            None => Arc::clone(sgrs.pair.insert(self.links.sgrs(peer)?)),
        };
        sgrs.waits = list == List::Gather && !pair.is_confirmed();
        if sgrs.waits {
            self.links.pair(peer, &pair);
        }
        let (queue, room) = match list {
            List::Gather => (&sgrs.sends, self.links.sgrs_sizes.sends),
            List::Scatter => (&sgrs.receives, self.links.sgrs_sizes.receives),
        };
        Ok((!sgrs.waits && pair.ended().is_none() && queue.len() < room as usize).then_some(pair))
    }

    /// Handles the completions of lists.
    #[inline]
    pub(crate) fn poll_sgrs(&mut self) -> Result<()> {
        if self.sgrs.active.is_empty() { Ok(()) } else { self.poll_active_sgrs() }
    }

    fn poll_active_sgrs(&mut self) -> Result<()> {
        for i in (0..self.sgrs.active.len()).rev() {
            let peer = self.sgrs.active[i];
            self.poll_peer_sgrs(peer)?;
            if self.sgrs.peers[peer as usize].as_ref().is_none_or(|l| l.is_empty()) {
                self.sgrs.active.swap_remove(i);
            }
        }
        Ok(())
    }

    fn poll_peer_sgrs(&mut self, peer: u32) -> Result<()> {
        let Some(Some(sgrs)) = self.sgrs.peers.get_mut(peer as usize) else { return Ok(()) };
        let Some(pair) = sgrs.pair.clone() else { return Ok(()) };
        let polled = pair.completions.poll(|c| self.list_completed(peer, &pair, &c));
        polled.map_err(|e| Error::system("poll for completions of lists", e).peer(peer).device("verbs"))?;
        let Some(sgrs) = &mut self.sgrs.peers[peer as usize] else { return Ok(()) };
        if let (None, Some(why), false) = (&sgrs.ending, pair.ended(), sgrs.is_empty()) {
            sgrs.ending = Some((aborted(List::Gather, peer, why), Instant::now()));
        }
        if sgrs.ending.as_ref().is_some_and(|(_, since)| sgrs.is_empty() || since.elapsed() > CANCEL_TIMEOUT) {
            drop(pair);
            self.destroy_sgrs(peer);
        }
        Ok(())
    }

    /// Destroys an SGRS queue pair that is ending: lists that have not completed fail, and the HCA no longer accesses
    /// their memory.
    pub(crate) fn destroy_sgrs(&mut self, peer: u32) {
        let Some(Some(sgrs)) = self.sgrs.peers.get_mut(peer as usize) else { return };
        let Some((error, _)) = sgrs.ending.take() else { return };
        let rest: Vec<Held> = sgrs.sends.drain(..).chain(sgrs.receives.drain(..)).collect();
        if let Some(pair) = sgrs.pair.take() {
            self.links.discard(peer, &pair);
        }
        for mut held in rest {
            // SAFETY: an operation that has failed writes nothing.
            unsafe { self.out.end(peer, &mut held, Err(error.again())) };
        }
    }

    fn list_completed(&mut self, peer: u32, pair: &Arc<SgrsQueuePair>, c: &Completion) {
        let Some(sgrs) = &mut self.sgrs.peers[peer as usize] else { return };
        let (list, queue) = match c.id {
            RECEIVE => (List::Scatter, &mut sgrs.receives),
            _ => (List::Gather, &mut sgrs.sends),
        };
        let Some(mut held) = queue.pop_front() else { return };
        sgrs.sent += u64::from(list == List::Gather);
        let result = if c.status == 0 {
            Ok(())
        } else {
            if sgrs.ending.is_none() {
                let error = meaning(c, list, peer, pair.ended()).because(&format!("by {}", self.links.port()));
                self.end_sgrs(peer, error);
            }
            match self.sgrs.peers[peer as usize].as_ref().and_then(|l| l.ending.as_ref()) {
                Some((e, _)) => Err(e.again()),
                None => Err(meaning(c, list, peer, pair.ended())),
            }
        };
        // SAFETY: the user's memory is valid until the operation is complete or cancelled.
        unsafe { self.out.end(peer, &mut held, result) };
    }

    /// Ends the SGRS queue pair to `peer`: every list on it fails with `error`, at both ends.
    pub(crate) fn end_sgrs(&mut self, peer: u32, error: Error) {
        let Some(Some(sgrs)) = self.sgrs.peers.get_mut(peer as usize) else { return };
        let Some(pair) = sgrs.pair.clone() else { return };
        let is_lost = self.queues[peer as usize].as_ref().is_some_and(|queue| queue.lost().is_some());
        if sgrs.ending.is_none() {
            tracing::debug!("the SGRS connection to rank {peer} has ended: {error}");
            if is_lost {
                pair.end("the peer is lost");
            } else {
                self.links.renew(peer, &pair, "a list failed");
            }
            sgrs.ending = Some((error, Instant::now()));
        }
    }

    /// Ends the SGRS queue pairs on which a message was sent while the port was down: it is unknown whether it has
    /// arrived, and a queue pair of Soft-RoCE may never report it. `downs`: number of times that the port has gone
    /// down.
    pub(super) fn end_sgrs_of_port(&mut self, downs: u32) {
        let (now, is_new) = (Instant::now(), std::mem::replace(&mut self.sgrs.downs, downs) != downs);
        let mut stalled = Vec::new();
        for peer in self.sgrs.active.iter().copied() {
            let Some(sgrs) = &mut self.sgrs.peers[peer as usize] else { continue };
            sgrs.down = match sgrs.down {
                _ if sgrs.sends.is_empty() || sgrs.ending.is_some() => None,
                _ if is_new => Some((sgrs.sent, now)),
                down => down.filter(|(sent, _)| *sent == sgrs.sent),
            };
            stalled.extend(sgrs.down.filter(|(_, since)| now.duration_since(*since) > STALLED).map(|_| peer));
        }
        if stalled.is_empty() || self.links.is_port_down() {
            return;
        }
        for peer in stalled {
            let cause = format!(
                "{} went down while a list was in transit; the list may or may not have arrived",
                self.links.port()
            );
            let e = Error::new(ErrorKind::Aborted, List::Gather.name()).peer(peer).device("verbs").cause(cause);
            self.end_sgrs(peer, e);
        }
    }

    /// Cancels lists, and ends the SGRS queue pairs on which they are posted: a single list cannot be withdrawn.
    pub(crate) fn cancel_lists(&mut self, which: &dyn Fn(u64) -> bool) {
        for i in 0..self.sgrs.active.len() {
            let peer = self.sgrs.active[i];
            let Some(sgrs) = &mut self.sgrs.peers[peer as usize] else { continue };
            let lists = sgrs.sends.iter_mut().chain(&mut sgrs.receives);
            let cancelled = lists.filter(|h| matches!(h.owner, Owner::User(id) if which(id))).map(Held::cancel).count();
            self.out.open -= cancelled;
            if cancelled > 0 {
                let cause = "a list between the two ranks was cancelled, which cancels all their lists in progress";
                self.end_sgrs(
                    peer,
                    Error::new(ErrorKind::Aborted, "post a list").peer(peer).device("verbs").cause(cause),
                );
            }
        }
    }

    /// Requests an event for the next completion of a list.
    pub(crate) fn arm_sgrs(&self) -> std::io::Result<()> {
        let pairs = self.sgrs.active.iter().filter_map(|p| self.sgrs.peers[*p as usize].as_ref()?.pair.as_ref());
        pairs.into_iter().try_for_each(|pair| pair.completions.arm())
    }

    /// Records an event of one of these completion queues; also for SGRS queue pairs that are no longer active.
    pub(crate) fn note_sgrs(&self, fired: &Fired) {
        let mut pairs = self.sgrs.peers.iter().flatten().filter_map(|peer| peer.pair.as_ref());
        pairs.any(|pair| pair.completions.note(fired));
    }

    /// Whether a list that waited for its SGRS queue pair can be sent now.
    pub(crate) fn can_gather(&self) -> bool {
        let can = |l: &PeerSgrs| l.waits && l.pair.as_ref().is_some_and(|p| p.is_confirmed() || p.ended().is_some());
        self.sgrs.peers.iter().flatten().any(|l| can(l))
    }
}

fn aborted(list: List, peer: u32, why: &str) -> Error {
    Error::new(ErrorKind::Aborted, list.name())
        .peer(peer)
        .device("verbs")
        .cause(format!("the SGRS connection ended before the list was executed: {why}"))
        .remedy("see the first error of a list between the two ranks, on either side")
}

/// The error of a list whose completion has a failure status.
fn meaning(c: &Completion, list: List, peer: u32, ended: Option<&str>) -> Error {
    use ibverbs::ibv_wc_status as s;
    let error = |kind| Error::new(kind, list.name()).peer(peer).device("verbs");
    match (c.status, ended) {
        (s::IBV_WC_RNR_RETRY_EXC_ERR, _) => error(ErrorKind::Timeout)
            .cause("the peer posted no scatter list for the message within several seconds")
            .remedy("post the scatter list first, or notify the peer when it is posted"),
        (s::IBV_WC_LOC_LEN_ERR, _) if list == List::Scatter => error(ErrorKind::BadArgument)
            .cause("the message is longer than the scatter list")
            .remedy("post lists of equal length on both sides"),
        (s::IBV_WC_REM_INV_REQ_ERR, _) => error(ErrorKind::BadArgument)
            .cause("the peer's scatter list is shorter than the message")
            .remedy("post lists of equal length on both sides"),
        (s::IBV_WC_WR_FLUSH_ERR, Some(why)) => aborted(list, peer, why),
        (status, _) => match explain(status, c.vendor, list.name(), peer) {
            // The list may have arrived, so it is not repeated.
            (e, Fate::Unknown) => error(ErrorKind::Aborted).cause(e.reason()),
            (e, _) => e,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_lists_say_whose_list_was_wrong() {
        use ibverbs::ibv_wc_status as s;
        let text = |status, list, ended| {
            let c = Completion { id: 0, status, opcode: 0, vendor: 0, len: 0, immediate: None, qp: 0 };
            let e = meaning(&c, list, 3, ended);
            assert_eq!(e.blamed(), Some(3));
            (e.kind(), e.to_string())
        };
        let (kind, t) = text(s::IBV_WC_RNR_RETRY_EXC_ERR, List::Gather, None);
        assert!(kind == ErrorKind::Timeout && t.contains("no scatter list"), "{t}");
        let (kind, t) = text(s::IBV_WC_LOC_LEN_ERR, List::Scatter, None);
        assert!(kind == ErrorKind::BadArgument && t.contains("longer than the scatter list"), "{t}");
        let (kind, t) = text(s::IBV_WC_REM_INV_REQ_ERR, List::Gather, None);
        assert!(kind == ErrorKind::BadArgument && t.contains("shorter"), "{t}");
        let (kind, t) = text(s::IBV_WC_WR_FLUSH_ERR, List::Scatter, Some("over"));
        assert!(kind == ErrorKind::Aborted && t.contains("over"), "{t}");
        assert_eq!(text(s::IBV_WC_RETRY_EXC_ERR, List::Gather, None).0, ErrorKind::PeerLost);
    }
}
