#![allow(unsafe_code)]
//! Scatter and gather lists: messages of many blocks on both sides, over the SGRS queue pairs of [`super::connect::sgrs`].
//!
//! The card takes the bytes where they lie and puts them where they belong: memory that is not registered is, and stays
//! so ([`super::pinned`]). Lists meet in the order in which they were posted at either end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::PATIENCE;
use super::buffers::LARGEST;
use super::engine::Engine;
use super::ops::{Op, Owner};
use super::status::explain;
use super::stream::Stream;
use super::sys::Rights;
use super::sys::queue::{Completion, Fired};
use super::sys::sgrs::SgrsQueuePair;
use crate::device::{Block, Lists, Posted, WorkRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::stats::{Kind, Stats};

/// Marks the completion of a receive.
const RECEIVE: u64 = 1;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Gather,
    Scatter,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Gather => "send a gather list",
            Way::Scatter => "receive a scatter list",
        }
    }
}

/// The lists to and from one peer: the numbers of their operations, in order.
#[derive(Debug, Default)]
struct PeerSgrs {
    pair: Option<Arc<SgrsQueuePair>>,
    sends: VecDeque<u32>,
    receives: VecDeque<u32>,
    /// Why it ends, and since when.
    ending: Option<(Error, Instant)>,
    /// A list waits to be sent until the peer has said that it is connected.
    waits: bool,
}

impl PeerSgrs {
    fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty()
    }
}

/// The SGRS queue pairs of a rank.
#[derive(Debug)]
pub(super) struct SgrsQueues {
    peers: Vec<Option<Box<PeerSgrs>>>,
    /// Peers on whose SGRS queue pair something is under way.
    active: Vec<u32>,
    limits: Lists,
}

impl SgrsQueues {
    pub(super) fn new(ranks: usize, limits: Lists) -> Self {
        Self { peers: (0..ranks).map(|_| None).collect(), active: Vec::new(), limits }
    }

    /// Scatter lists that no message has come for.
    fn open_receives(&self) -> usize {
        self.peers.iter().flatten().map(|l| l.receives.len()).sum()
    }
}

impl Drop for SgrsQueues {
    /// The memory of lists goes after this, the queue pairs later.
    fn drop(&mut self) {
        for pair in self.peers.iter().flatten().filter_map(|l| l.pair.as_ref()) {
            pair.end("the rank has ended");
        }
    }
}

impl Engine {
    /// # Safety
    /// As [`crate::device::Device::post`].
    pub(super) unsafe fn list(
        &mut self,
        request: &WorkRequest<'_>,
        blocks: &[Block],
        way: Way,
        stats: &Stats,
    ) -> Result<Posted> {
        let (peer, limits) = (request.peer, self.sgrs.limits);
        let bad =
            |cause: String| Err(Error::new(ErrorKind::BadArgument, way.name()).peer(peer).device("verbs").cause(cause));
        let len = blocks.iter().fold(0usize, |n, b| n.saturating_add(b.len));
        if blocks.len() > limits.blocks || len > limits.bytes {
            let Lists { blocks: most, bytes } = limits;
            return bad(format!("{} blocks of {len} bytes, {most} blocks and {bytes} bytes allowed", blocks.len()));
        }
        if request.notify.is_some() {
            return bad("a list carries no notification".into());
        }
        if let Some(e) = self.streams[peer as usize].as_ref().and_then(Stream::lost) {
            return Err(e.again());
        }
        let Some(pair) = self.sgrs_queue_pair(peer, way)? else { return Ok(Posted::Busy) };
        let rights = if way == Way::Gather { Rights::Source } else { Rights::Local };
        let regions = &self.regions;
        // SAFETY: the blocks are valid until the operation, which holds the leases, is complete or cancelled.
        let found = unsafe { self.user.pieces(blocks, rights, |b| regions.local_key(b.base, b.len), stats) };
        let mut op = Op::new(Owner::User(request.id), peer, 1);
        op.direct = true;
        let pieces = match found {
            Ok((pieces, leases)) => {
                op.memories = leases;
                pieces
            }
            Err(e) if e.kind() == ErrorKind::Limit && len <= LARGEST => {
                let Some(chunk) = self.pool.take(len) else { return Ok(Posted::Busy) };
                match way {
                    // SAFETY: by the contract; the chunk has room for all.
                    Way::Gather => unsafe { self.pool.gather(&chunk, 0, blocks) },
                    Way::Scatter => op.copy_to(blocks),
                }
                let piece = self.pool.piece(&chunk, 0, len);
                op.chunk = Some(chunk);
                vec![piece]
            }
            Err(e) => return Err(e.peer(peer)),
        };
        // SAFETY: as above.
        let posted = unsafe {
            match way {
                Way::Gather => pair.send(0, &pieces),
                Way::Scatter => pair.receive(RECEIVE, &pieces),
            }
        };
        if let Err(e) = posted {
            self.pool_back(op);
            if e.raw_os_error() == Some(libc::ENOMEM) {
                return Ok(Posted::Busy);
            }
            return Err(Error::system(way.name(), e).peer(peer).device("verbs"));
        }
        let number = self.ops.add(op);
        if !self.sgrs.active.contains(&peer) {
            self.sgrs.active.push(peer);
        }
        if let Some(sgrs) = &mut self.sgrs.peers[peer as usize] {
            let (queue, kind) = match way {
                Way::Gather => (&mut sgrs.sends, Kind::Gather),
                Way::Scatter => (&mut sgrs.receives, Kind::Scatter),
            };
            queue.push_back(number);
            stats.add(kind, len);
            if way == Way::Gather {
                stats.add(Kind::Post, 0);
            }
        }
        Ok(Posted::Pending)
    }

    /// The queue pair for a list, if it takes one now.
    fn sgrs_queue_pair(&mut self, peer: u32, way: Way) -> Result<Option<Arc<SgrsQueuePair>>> {
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
        sgrs.waits = way == Way::Gather && !pair.is_confirmed();
        if sgrs.waits {
            self.links.pair(peer, &pair);
        }
        let (queue, room) = match way {
            Way::Gather => (&sgrs.sends, self.links.sgrs_sizes.sends),
            Way::Scatter => (&sgrs.receives, self.links.sgrs_sizes.receives),
        };
        Ok((!sgrs.waits && pair.ended().is_none() && queue.len() < room as usize).then_some(pair))
    }

    /// Takes in the completions of lists.
    #[inline]
    pub(super) fn poll_sgrs(&mut self, stats: &Stats) -> Result<()> {
        if self.sgrs.active.is_empty() { Ok(()) } else { self.poll_active_sgrs(stats) }
    }

    fn poll_active_sgrs(&mut self, stats: &Stats) -> Result<()> {
        for i in (0..self.sgrs.active.len()).rev() {
            let peer = self.sgrs.active[i];
            self.poll_peer_sgrs(peer, stats)?;
            if self.sgrs.peers[peer as usize].as_ref().is_none_or(|l| l.is_empty()) {
                self.sgrs.active.swap_remove(i);
            }
        }
        Ok(())
    }

    fn poll_peer_sgrs(&mut self, peer: u32, stats: &Stats) -> Result<()> {
        let Some(Some(sgrs)) = self.sgrs.peers.get_mut(peer as usize) else { return Ok(()) };
        let Some(pair) = sgrs.pair.clone() else { return Ok(()) };
        let polled = pair.completions.poll(|c| self.list_completed(peer, &pair, &c, stats));
        polled.map_err(|e| Error::system("poll for completions of lists", e).peer(peer).device("verbs"))?;
        let Some(sgrs) = &mut self.sgrs.peers[peer as usize] else { return Ok(()) };
        if let (None, Some(why), false) = (&sgrs.ending, pair.ended(), sgrs.is_empty()) {
            sgrs.ending = Some((aborted(Way::Gather, peer, why), Instant::now()));
        }
        if sgrs.ending.as_ref().is_some_and(|(_, since)| sgrs.is_empty() || since.elapsed() > PATIENCE) {
            drop(pair);
            self.destroy_sgrs(peer, stats);
        }
        Ok(())
    }

    /// Destroys an SGRS queue pair that ends: lists that have not completed fail, and the HCA touches none of their memory any
    /// more.
    pub(super) fn destroy_sgrs(&mut self, peer: u32, stats: &Stats) {
        let Some(Some(sgrs)) = self.sgrs.peers.get_mut(peer as usize) else { return };
        let Some((error, _)) = sgrs.ending.take() else { return };
        let rest: Vec<u32> = sgrs.sends.drain(..).chain(sgrs.receives.drain(..)).collect();
        if let Some(pair) = sgrs.pair.take() {
            self.links.discard(peer, &pair);
        }
        for op in rest {
            self.op_landed(op, Err(error.again()), stats);
        }
    }

    fn list_completed(&mut self, peer: u32, pair: &Arc<SgrsQueuePair>, c: &Completion, stats: &Stats) {
        let Some(sgrs) = &mut self.sgrs.peers[peer as usize] else { return };
        let (way, queue) = match c.id {
            RECEIVE => (Way::Scatter, &mut sgrs.receives),
            _ => (Way::Gather, &mut sgrs.sends),
        };
        let Some(op) = queue.pop_front() else { return };
        let result = if c.status == 0 {
            Ok(())
        } else {
            if sgrs.ending.is_none() {
                self.end_sgrs(peer, meaning(c, way, peer, pair.ended()));
            }
            match self.sgrs.peers[peer as usize].as_ref().and_then(|l| l.ending.as_ref()) {
                Some((e, _)) => Err(e.again()),
                None => Err(meaning(c, way, peer, pair.ended())),
            }
        };
        self.op_landed(op, result, stats);
    }

    /// Ends the SGRS queue pair to `peer`: every list on it fails with `error`, here and there.
    pub(super) fn end_sgrs(&mut self, peer: u32, error: Error) {
        let Some(Some(sgrs)) = self.sgrs.peers.get_mut(peer as usize) else { return };
        let Some(pair) = sgrs.pair.clone() else { return };
        if sgrs.ending.is_none() {
            tracing::debug!("the connection for lists to rank {peer} has ended: {error}");
            if error.kind() == ErrorKind::PeerLost {
                pair.end("the peer is lost");
            } else {
                self.links.renew(peer, &pair, "a list failed");
            }
            sgrs.ending = Some((error, Instant::now()));
        }
    }

    /// Ends the SGRS queue pairs on which one of the operations is: a list cannot be taken back alone.
    pub(super) fn cancel_lists(&mut self, ops: &[u32]) {
        for i in 0..self.sgrs.active.len() {
            let peer = self.sgrs.active[i];
            let has = |l: &PeerSgrs| l.sends.iter().chain(&l.receives).any(|op| ops.contains(op));
            if self.sgrs.peers[peer as usize].as_ref().is_some_and(|l| has(l)) {
                let cause = "a list to or from this rank was cancelled, and with it all that were under way";
                self.end_sgrs(
                    peer,
                    Error::new(ErrorKind::Aborted, "post a list").peer(peer).device("verbs").cause(cause),
                );
            }
        }
    }

    /// Asks for events with the next completions of lists.
    pub(super) fn arm_sgrs(&self) -> std::io::Result<()> {
        let pairs = self.sgrs.active.iter().filter_map(|p| self.sgrs.peers[*p as usize].as_ref()?.pair.as_ref());
        pairs.into_iter().try_for_each(|pair| pair.completions.arm())
    }

    /// Takes note of an event of one of these queues, also of an SGRS queue pair that is not active any more.
    pub(super) fn note_sgrs(&self, fired: &Fired) {
        let mut pairs = self.sgrs.peers.iter().flatten().filter_map(|peer| peer.pair.as_ref());
        pairs.any(|pair| pair.completions.note(fired));
    }

    /// Whether a list can be sent now that waited for its SGRS queue pair.
    pub(super) fn is_sgrs_restless(&self) -> bool {
        let can = |l: &PeerSgrs| l.waits && l.pair.as_ref().is_some_and(|p| p.is_confirmed() || p.ended().is_some());
        self.sgrs.peers.iter().flatten().any(|l| can(l))
    }

    /// Whether nothing is under way but scatter lists that wait for a message.
    pub(super) fn are_ops_idle(&self) -> bool {
        self.ops.count() == self.sgrs.open_receives()
    }
}

fn aborted(way: Way, peer: u32, why: &str) -> Error {
    Error::new(ErrorKind::Aborted, way.name())
        .peer(peer)
        .device("verbs")
        .cause(format!("the connection for lists ended before it was executed: {why}"))
        .remedy("see the first error of a list between the two ranks, at either of them")
}

/// The error of a list whose completion says that it failed.
fn meaning(c: &Completion, way: Way, peer: u32, ended: Option<&str>) -> Error {
    use ibverbs::ibv_wc_status as s;
    let error = |kind| Error::new(kind, way.name()).peer(peer).device("verbs");
    match (c.status, ended) {
        (s::IBV_WC_RNR_RETRY_EXC_ERR, _) => error(ErrorKind::Timeout)
            .cause("the other side posted no scatter list for it within some seconds")
            .remedy("post the scatter list first, or tell the peer when it is posted"),
        (s::IBV_WC_LOC_LEN_ERR, _) if way == Way::Scatter => error(ErrorKind::BadArgument)
            .cause("the message was longer than the blocks")
            .remedy("post lists of equal length on both sides"),
        (s::IBV_WC_REM_INV_REQ_ERR, _) => error(ErrorKind::BadArgument)
            .cause("the other side's scatter list is shorter than the message")
            .remedy("post lists of equal length on both sides"),
        (s::IBV_WC_WR_FLUSH_ERR, Some(why)) => aborted(way, peer, why),
        (status, _) => explain(status, c.vendor, way.name(), peer).0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_lists_say_whose_list_was_wrong() {
        use ibverbs::ibv_wc_status as s;
        let text = |status, way, ended| {
            let c = Completion { id: 0, status, opcode: 0, vendor: 0, len: 0, immediate: None, qp: 0 };
            let e = meaning(&c, way, 3, ended);
            assert_eq!(e.blamed(), Some(3));
            (e.kind(), e.to_string())
        };
        let (kind, t) = text(s::IBV_WC_RNR_RETRY_EXC_ERR, Way::Gather, None);
        assert!(kind == ErrorKind::Timeout && t.contains("no scatter list"), "{t}");
        let (kind, t) = text(s::IBV_WC_LOC_LEN_ERR, Way::Scatter, None);
        assert!(kind == ErrorKind::BadArgument && t.contains("longer than the blocks"), "{t}");
        let (kind, t) = text(s::IBV_WC_REM_INV_REQ_ERR, Way::Gather, None);
        assert!(kind == ErrorKind::BadArgument && t.contains("shorter"), "{t}");
        let (kind, t) = text(s::IBV_WC_WR_FLUSH_ERR, Way::Scatter, Some("over"));
        assert!(kind == ErrorKind::Aborted && t.contains("over"), "{t}");
        assert_eq!(text(s::IBV_WC_RETRY_EXC_ERR, Way::Gather, None).0, ErrorKind::PeerLost);
    }
}
