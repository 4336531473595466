#![allow(unsafe_code)]
//! Rendezvous by reading: the request to send contains the address of the data, and the target reads it from the
//! sender's memory, from the blocks of the source straight into those of the sink.
//!
//! The memory is registered for that one message, and released when the target has the data or the message is
//! cancelled; a later read fails. Data that cannot be read is sent in packets.
//!
//! A long message between two ranks that share memory but no processors is copied by both. The target exports its sink
//! to the sender, and each of the two copies the segments that it has claimed ([`claims`](super::claims)): the target
//! from the front, and the sender, while it is inside the runtime, from the back (`write.rs`). The target copies all
//! segments that the sender does not claim, and waits at most for the sender's last segment.

use super::handler::Token;
use super::messenger::Messenger;
use super::offer::{FAILED, LentSink, MAX_OFFERED_BLOCKS, Offer, Offered, Read, Reading};
use super::packet::{Prefix, SINK};
use super::pieces::{BYTES_PER_TURN, Pieces, cut, few_blocks};
use super::queue::release;
use super::sink::{Filling, Source};
use crate::device::{Block, Operation, Range, Region};
use crate::error::Result;
use crate::tracked::Track;
use crate::wire::Writer;

/// Maximum number of blocks of a sink into which a message is read.
const READ_INTO: usize = 1024;
/// Maximum ratio of the span from the first to the last block of a source to its data, on devices that register the
/// whole span.
const SPREAD: usize = 4;

/// Outcome of a step of a read.
pub(super) enum Step {
    /// The device is full.
    NoRoom,
    /// The read continues; `true` if this step has posted a request.
    UnderWay(bool),
    Done,
    /// Packets are faster, or reading is impossible.
    Packets,
}

/// The memory from the first to the last byte of these blocks.
fn span(blocks: &[Block]) -> (*mut u8, usize) {
    let start = blocks.iter().map(|b| b.base).min().unwrap_or_default();
    (start, blocks.iter().map(|b| b.base.addr() + b.len).max().unwrap_or(0) - start.addr())
}

/// Exports these blocks of `region` to `peer`; returns the handle of the registration.
///
/// # Safety
/// The contract of [`register`](crate::device::Device::register) for the blocks, which alone are accessed.
unsafe fn lend(job: &Messenger, peer: u32, blocks: &[Block], region: Region) -> Result<(u64, Offer)> {
    // SAFETY: by the contract.
    let made = unsafe { job.device().register(Region { brief: true, user: Some(peer), ..region }) }?;
    let range = |b: &Block| Range { offset: b.base.addr() - region.base.addr(), len: b.len };
    Ok((made.handle, Offer { key: made.key, ranges: blocks.iter().map(range).collect() }))
}

/// Imports memory that `peer` has exported, for requests whose shortest block has some `shortest` bytes; `None` if
/// packets are faster.
pub(super) fn import(job: &Messenger, peer: u32, key: &[u8], shortest: usize) -> Result<Option<u64>> {
    let remote = job.device().import(peer, key, None)?;
    if remote.lists.is_some_and(|least| shortest as u64 >= least) {
        return Ok(Some(remote.handle));
    }
    forget(job, remote.handle);
    Ok(None)
}

pub(super) fn forget(job: &Messenger, region: u64) {
    // SAFETY: this module accesses exported memory by requests only, not by its mapping.
    unsafe { job.device().forget(region) };
}

/// Whether the target should read a message of one block although it could be sent eagerly: peers of this node can map
/// its memory, so a read is one copy. Counts a use of the memory.
///
/// # Safety
/// The contract of [`start_send`](super::start_send).
#[inline]
pub(crate) unsafe fn is_read_if_mapped(job: &Messenger, target: u32, source: &Source) -> bool {
    let Source::Bytes(block) = source else { return false };
    // SAFETY: by the contract.
    block.len >= job.message_cut_offs().read_intra
        && job.device().shares_memory(target)
        && unsafe { job.device().peers_can_map(*block) }
}

impl Offer {
    /// Exports `source` to `target`, if the data can be read and a read is faster than packets.
    pub(super) fn make(job: &Messenger, target: u32, source: &Source) -> Result<Option<(Offered, Self)>> {
        let (device, len) = (job.device(), source.len());
        let (one_node, cut_offs) = (device.shares_memory(target), job.message_cut_offs());
        if len < if one_node { cut_offs.read_intra } else { cut_offs.read_inter } {
            return Ok(None);
        }
        let blocks =
            few_blocks(len, MAX_OFFERED_BLOCKS, source.one(), |from, len, blocks| source.blocks(from, len, blocks))?;
        let Some(blocks) = blocks.filter(|blocks| !blocks.is_empty()) else { return Ok(None) };
        let (start, span) = span(&blocks);
        if !one_node && span / SPREAD > len {
            return Ok(None);
        }
        // SAFETY: by the contract of `start_send`, the blocks are valid until the message is complete or cancelled.
        match unsafe {
            lend(job, target, &blocks, Region { one_node, exclusive: blocks.len() == 1, ..Region::of(start, span) })
        } {
            Ok((region, offer)) => Ok(Some((Offered { region, writing: None }, offer))),
            Err(e) => {
                tracing::debug!(
                    "a message of {len} bytes is sent in packets, because its memory cannot be exported: {e}"
                );
                Ok(None)
            }
        }
    }
}

impl LentSink {
    /// Exports the blocks of a sink to the sender of the message, which may then write segments of it.
    fn offer(job: &Messenger, token: Token, into: &[Block], pieces: Pieces) -> Option<Self> {
        if into.len() > MAX_OFFERED_BLOCKS {
            return None;
        }
        let mut table = job.active_messages().claims.borrow_mut();
        let (claims, board, number) = table.open(job.device(), pieces.count())?;
        let mut body = Writer::new().bytes(board).done();
        let (start, span) = span(into);
        // Bytes between the blocks may belong to other code.
        let region = Region { one_node: true, exclusive: into.len() == 1, ..Region::of(start, span) };
        // SAFETY: by its contract the sink is valid for writes, and not accessed by others, until its completion runs or
        // it is abandoned, both of which come after the release.
        let lent = unsafe { lend(job, token.source, into, region) }.and_then(|(sink, offer)| {
            body.extend(offer.write());
            let (header, body) =
                (Prefix::control(SINK, token.number, number).write(), Block::of(body.as_ptr(), body.len()));
            let sent = job.try_send(token.source, Operation::send(&header, &[body]));
            if !matches!(sent, Ok(true)) {
                release(job, sink);
            }
            Ok(sent?.then_some(sink))
        });
        match lent {
            Ok(Some(sink)) => return Some(Self { claims, sink, written: 0 }),
            Ok(None) => {}
            Err(e) => tracing::debug!(
                "the sender cannot write the message, because the receive buffer cannot be exported: {e}"
            ),
        }
        table.close(&claims);
        None
    }

    /// Releases the sink: afterwards the sender no longer writes to it.
    fn end(self, job: &Messenger) {
        job.active_messages().claims.borrow_mut().close(&self.claims);
        release(job, self.sink);
    }
}

impl Read {
    /// Begins to read the data of a message into the sink, or continues; no request of the read is in progress. Does
    /// not wait. Once the message is cancelled, nothing more is read, and the read ends.
    ///
    /// # Errors
    /// The reason why the data could not be read; the caller falls back to packets.
    pub(super) fn advance(&mut self, job: &Messenger, token: Token, filling: &mut Filling) -> Result<Step> {
        if self.begun.is_none() {
            self.begun = Reading::begin(job, token, &self.offer, filling)?;
        }
        let Some(begun) = &mut self.begun else { return Ok(Step::Packets) };
        let step = if self.cancelled { Ok(Step::Done) } else { begun.advance(job, token.source) };
        if let Ok(Step::NoRoom | Step::UnderWay(_)) = step {
            return step;
        }
        self.end(job);
        if let Ok(Step::Done) = step
            && !self.cancelled
        {
            // SAFETY: the requests of all segments are complete without an error, and the sender has written the
            // others.
            unsafe { filling.was_filled() };
        }
        step
    }

    /// Ends the read: afterwards the memory of the sink is no longer written.
    pub(super) fn end(&mut self, job: &Messenger) {
        let Some(Reading { region, track, lent, .. }) = self.begun.take() else { return };
        if track.open() > 0 {
            job.cancel(&track);
        }
        forget(job, region);
        if let Some(lent) = lent {
            lent.end(job);
        }
    }
}

impl Reading {
    /// Prepares the read of a message; `None` if packets are faster.
    fn begin(job: &Messenger, token: Token, offer: &Offer, filling: &mut Filling) -> Result<Option<Self>> {
        let kept = filling.kept;
        let blocks = few_blocks(kept, READ_INTO, filling.one(), |from, len, blocks| filling.blocks(from, len, blocks))?;
        let Some(into) = blocks else { return Ok(None) };
        let ranges = cut(&offer.ranges, 0, kept);
        let shortest = kept / into.len().max(ranges.len()).max(1);
        let Some(region) = import(job, token.source, &offer.key, shortest)? else { return Ok(None) };
        let one_node = job.device().shares_memory(token.source);
        // A sender that has to be woken, or that needs this rank's processor, would cost more time than it saves.
        let is_ready = one_node && !job.is_on_oversubscribed_node() && !job.device().is_asleep(token.source);
        let shared = Pieces::shared(kept).filter(|_| is_ready);
        let lent = shared.and_then(|pieces| LentSink::offer(job, token, &into, pieces));
        let alone = Pieces::of(kept, if one_node { BYTES_PER_TURN } else { kept });
        let pieces = shared.filter(|_| lent.is_some()).unwrap_or(alone);
        Ok(Some(Self { region, ranges, into, pieces, track: Track::new(), posted: 0, claimed: false, lent }))
    }

    /// Posts the next segments, one at a time.
    fn advance(&mut self, job: &Messenger, peer: u32) -> Result<Step> {
        let (mut any, mut left) = (false, BYTES_PER_TURN);
        while self.track.open() == 0 {
            self.track.check()?;
            if !self.claimed && self.is_done() {
                return Ok(Step::Done);
            }
            // Segments beyond this turn are not claimed yet: the sender may copy them earlier.
            if left == 0 || !(self.claimed || self.claim()) {
                break;
            }
            self.claimed = true;
            let (from, len) = self.pieces.nth(self.posted);
            let into = cut(&self.into, from, len);
            let ranges = cut(&self.ranges, from, len);
            let operation = Operation::read_list(&into, self.region, &ranges);
            let reads = &job.active_messages().reads;
            // SAFETY: by its contract the sink is valid until its completion runs or it is abandoned, both of which come
            // after the end of the request.
            if unsafe { job.try_post(peer, operation, None, &[&self.track, reads]) }?.is_none() {
                return Ok(Step::NoRoom);
            }
            (self.posted, self.claimed, any) = (self.posted + 1, false, true);
            left = left.saturating_sub(len);
        }
        Ok(Step::UnderWay(any))
    }

    /// Whether all segments are in the sink, provided that those posted by this rank are.
    fn is_done(&self) -> bool {
        let left = u64::from(self.pieces.count() - self.posted);
        left == 0 || self.lent.as_ref().is_some_and(|lent| lent.written == left)
    }

    /// Claims the next segment. If the sender has failed to write its segments, this rank copies them.
    fn claim(&self) -> bool {
        self.lent.as_ref().is_none_or(|lent| lent.written == FAILED || lent.claims.claim())
    }
}
