#![allow(unsafe_code)]
//! Scatter and gather lists: messages of many blocks on both sides, over the lanes of [`super::connect::sgrs`].
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
use super::sys::lane::LanePair;
use super::sys::queue::{Completion, Fired};
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
struct Lane {
    pair: Option<Arc<LanePair>>,
    sends: VecDeque<u32>,
    receives: VecDeque<u32>,
    /// Why it ends, and since when.
    ending: Option<(Error, Instant)>,
    /// A list waits to be sent until the peer has said that it is connected.
    waits: bool,
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty()
    }
}

/// All lanes of a rank.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Vec<Option<Box<Lane>>>,
    /// Peers on whose lane something is under way.
    active: Vec<u32>,
    limits: Lists,
}

impl Lanes {
    pub(super) fn new(ranks: usize, limits: Lists) -> Self {
        Self { lanes: (0..ranks).map(|_| None).collect(), active: Vec::new(), limits }
    }

    /// Scatter lists that no message has come for.
    fn open_receives(&self) -> usize {
        self.lanes.iter().flatten().map(|l| l.receives.len()).sum()
    }
}

impl Drop for Lanes {
    /// The memory of lists goes after this, the queue pairs later.
    fn drop(&mut self) {
        for pair in self.lanes.iter().flatten().filter_map(|l| l.pair.as_ref()) {
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
        let (peer, limits) = (request.peer, self.lanes.limits);
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
        let Some(pair) = self.lane(peer, way)? else { return Ok(Posted::Busy) };
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
        if !self.lanes.active.contains(&peer) {
            self.lanes.active.push(peer);
        }
        if let Some(lane) = &mut self.lanes.lanes[peer as usize] {
            let (queue, kind) = match way {
                Way::Gather => (&mut lane.sends, Kind::Gather),
                Way::Scatter => (&mut lane.receives, Kind::Scatter),
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
    fn lane(&mut self, peer: u32, way: Way) -> Result<Option<Arc<LanePair>>> {
        let lane = self.lanes.lanes[peer as usize].get_or_insert_default();
        if lane.pair.as_ref().is_some_and(|p| p.ended().is_some()) && lane.is_empty() {
            (lane.pair, lane.ending) = (None, None);
        }
        if lane.ending.is_some() {
            return Ok(None);
        }
        let pair = match &lane.pair {
            Some(pair) => Arc::clone(pair),
            None => Arc::clone(lane.pair.insert(self.links.lane(peer)?)),
        };
        lane.waits = way == Way::Gather && !pair.is_confirmed();
        if lane.waits {
            self.links.pair(peer, &pair);
        }
        let (queue, room) = match way {
            Way::Gather => (&lane.sends, self.links.lanes.sends),
            Way::Scatter => (&lane.receives, self.links.lanes.receives),
        };
        Ok((!lane.waits && pair.ended().is_none() && queue.len() < room as usize).then_some(pair))
    }

    /// Takes in the completions of lists.
    #[inline]
    pub(super) fn poll_lanes(&mut self, stats: &Stats) -> Result<()> {
        if self.lanes.active.is_empty() { Ok(()) } else { self.poll_active_lanes(stats) }
    }

    fn poll_active_lanes(&mut self, stats: &Stats) -> Result<()> {
        for i in (0..self.lanes.active.len()).rev() {
            let peer = self.lanes.active[i];
            self.poll_lane(peer, stats)?;
            if self.lanes.lanes[peer as usize].as_ref().is_none_or(|l| l.is_empty()) {
                self.lanes.active.swap_remove(i);
            }
        }
        Ok(())
    }

    fn poll_lane(&mut self, peer: u32, stats: &Stats) -> Result<()> {
        let Some(Some(lane)) = self.lanes.lanes.get_mut(peer as usize) else { return Ok(()) };
        let Some(pair) = lane.pair.clone() else { return Ok(()) };
        let polled = pair.completions.poll(|c| self.list_completed(peer, &pair, &c, stats));
        polled.map_err(|e| Error::system("poll for completions of lists", e).peer(peer).device("verbs"))?;
        let Some(lane) = &mut self.lanes.lanes[peer as usize] else { return Ok(()) };
        if let (None, Some(why), false) = (&lane.ending, pair.ended(), lane.is_empty()) {
            lane.ending = Some((aborted(Way::Gather, peer, why), Instant::now()));
        }
        if lane.ending.as_ref().is_some_and(|(_, since)| lane.is_empty() || since.elapsed() > PATIENCE) {
            drop(pair);
            self.destroy_lane(peer, stats);
        }
        Ok(())
    }

    /// Destroys the queue pair of a lane that ends: the HCA touches none of the memory of lists any more that it has not
    /// given back, and they fail.
    pub(super) fn destroy_lane(&mut self, peer: u32, stats: &Stats) {
        let Some(Some(lane)) = self.lanes.lanes.get_mut(peer as usize) else { return };
        let Some((error, _)) = lane.ending.take() else { return };
        let rest: Vec<u32> = lane.sends.drain(..).chain(lane.receives.drain(..)).collect();
        if let Some(pair) = lane.pair.take() {
            self.links.discard(peer, &pair);
        }
        for op in rest {
            self.op_landed(op, Err(error.again()), stats);
        }
    }

    fn list_completed(&mut self, peer: u32, pair: &Arc<LanePair>, c: &Completion, stats: &Stats) {
        let Some(lane) = &mut self.lanes.lanes[peer as usize] else { return };
        let (way, queue) = match c.id {
            RECEIVE => (Way::Scatter, &mut lane.receives),
            _ => (Way::Gather, &mut lane.sends),
        };
        let Some(op) = queue.pop_front() else { return };
        let result = if c.status == 0 {
            Ok(())
        } else {
            if lane.ending.is_none() {
                self.end_lane(peer, meaning(c, way, peer, pair.ended()));
            }
            match self.lanes.lanes[peer as usize].as_ref().and_then(|l| l.ending.as_ref()) {
                Some((e, _)) => Err(e.again()),
                None => Err(meaning(c, way, peer, pair.ended())),
            }
        };
        self.op_landed(op, result, stats);
    }

    /// Ends the lane to `peer`: every list on it fails with `error`, here and there.
    pub(super) fn end_lane(&mut self, peer: u32, error: Error) {
        let Some(Some(lane)) = self.lanes.lanes.get_mut(peer as usize) else { return };
        let Some(pair) = lane.pair.clone() else { return };
        if lane.ending.is_none() {
            tracing::debug!("the connection for lists to rank {peer} has ended: {error}");
            if error.kind() == ErrorKind::PeerLost {
                pair.end("the peer is lost");
            } else {
                self.links.renew(peer, &pair, "a list failed");
            }
            lane.ending = Some((error, Instant::now()));
        }
    }

    /// Ends the lanes on which one of the operations is: a list cannot be taken back alone.
    pub(super) fn cancel_lists(&mut self, ops: &[u32]) {
        for i in 0..self.lanes.active.len() {
            let peer = self.lanes.active[i];
            let has = |l: &Lane| l.sends.iter().chain(&l.receives).any(|op| ops.contains(op));
            if self.lanes.lanes[peer as usize].as_ref().is_some_and(|l| has(l)) {
                let cause = "a list to or from this rank was cancelled, and with it all that were under way";
                self.end_lane(
                    peer,
                    Error::new(ErrorKind::Aborted, "post a list").peer(peer).device("verbs").cause(cause),
                );
            }
        }
    }

    /// Asks for events with the next completions of lists.
    pub(super) fn arm_lanes(&self) -> std::io::Result<()> {
        let pairs = self.lanes.active.iter().filter_map(|p| self.lanes.lanes[*p as usize].as_ref()?.pair.as_ref());
        pairs.into_iter().try_for_each(|pair| pair.completions.arm())
    }

    /// Takes note of an event of one of these queues, also of a lane that is not active any more.
    pub(super) fn note_lanes(&self, fired: &Fired) {
        let mut pairs = self.lanes.lanes.iter().flatten().filter_map(|lane| lane.pair.as_ref());
        pairs.any(|pair| pair.completions.note(fired));
    }

    /// Whether a list can be sent now that waited for its lane.
    pub(super) fn is_lane_restless(&self) -> bool {
        let can = |l: &Lane| l.waits && l.pair.as_ref().is_some_and(|p| p.is_confirmed() || p.ended().is_some());
        self.lanes.lanes.iter().flatten().any(|l| can(l))
    }

    /// Whether nothing is under way but scatter lists that wait for a message.
    pub(super) fn are_ops_idle(&self) -> bool {
        self.ops.count() == self.lanes.open_receives()
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
