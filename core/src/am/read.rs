#![allow(unsafe_code)]
//! Rendezvous by reading: the request to send carries the address of the data, and the target reads it out of the
//! sender's memory, from the blocks of the source straight into those of the sink.
//!
//! The memory is registered for that one message, and released when the target has the data or the message is
//! cancelled; a later read fails. Data that cannot be read travels in packets.

use super::messenger::Messenger;
use crate::device::{Block, Operation, Range, Region, RemoteVector};
use crate::error::Result;
use crate::tracked::Track;

use super::offer::{OFFERED, Offer, Read};
use super::sink::{Filling, Source};

/// Maximum number of blocks of a sink that is read into.
const READ_INTO: usize = 1024;
/// Maximum ratio of the span from the first to the last block of a source to its data, where devices register the whole
/// span.
const SPREAD: usize = 4;

/// Outcome of a step of a read.
pub(super) enum Step {
    /// There is no room for its request.
    NoRoom,
    UnderWay,
    Done,
    /// Packets are faster, or reading is impossible.
    Packets,
}

/// The nonempty blocks of the first `len` bytes, if they are at most `most`.
fn few_blocks(
    len: usize,
    most: usize,
    mut look_up: impl FnMut(usize, usize, &mut Vec<Block>) -> Result<()>,
) -> Result<Option<Vec<Block>>> {
    let (mut all, mut some): (Vec<Block>, Vec<Block>) = (Vec::new(), Vec::new());
    let (mut from, mut window) = (0, 4096);
    while from < len {
        let now = window.min(len - from);
        look_up(from, now, &mut some)?;
        for block in some.drain(..).filter(|block| block.len > 0) {
            match all.last_mut() {
                // A block that was split by the window.
                Some(last) if last.base.wrapping_add(last.len) == block.base => last.len += block.len,
                _ => all.push(block),
            }
        }
        if all.len() > most {
            return Ok(None);
        }
        from += now;
        window *= 4;
    }
    Ok(Some(all))
}

impl Offer {
    /// Offers `source` to `target` and returns the handle of its registration, if the data can be read and that is
    /// better than packets.
    pub(super) fn make(job: &Messenger, target: u32, source: &Source) -> Result<Option<(u64, Self)>> {
        let (device, len) = (job.device(), source.len());
        let (one_node, cut_offs) = (device.shares_memory(target), job.message_cut_offs());
        let from = match one_node {
            true if job.is_on_oversubscribed_node() => cut_offs.read_oversubscribed,
            true => cut_offs.read_intra,
            false => cut_offs.read_inter,
        };
        if len < from {
            return Ok(None);
        }
        let blocks = few_blocks(len, OFFERED, |from, len, blocks| source.blocks(from, len, blocks))?;
        let Some(blocks) = blocks.filter(|blocks| !blocks.is_empty()) else { return Ok(None) };
        let start = blocks.iter().map(|b| b.base).min().unwrap_or_default();
        let span = blocks.iter().map(|b| b.base.addr() + b.len).max().unwrap_or(0) - start.addr();
        if !one_node && span / SPREAD > len {
            return Ok(None);
        }
        let region = Region { brief: true, one_node, ..Region::of(start, span) };
        // SAFETY: the caller of `start_send` lends the blocks until the message is complete or cancelled, and only
        // those blocks of the region are read before the release.
        match unsafe { device.register(region) } {
            Ok(made) => {
                let range = |b: &Block| Range { offset: b.base.addr() - start.addr(), len: b.len };
                Ok(Some((made.handle, Self { key: made.key, ranges: blocks.iter().map(range).collect() })))
            }
            Err(e) => {
                tracing::debug!("a message of {len} bytes goes in packets: {e}");
                Ok(None)
            }
        }
    }
}

impl Read {
    /// Begins to read the data of `peer` into the sink, or checks whether the read is complete. Does not wait.
    ///
    /// # Errors
    /// The cause why the data could not be read; the caller falls back to packets.
    pub(super) fn advance(&mut self, job: &Messenger, peer: u32, filling: &mut Filling) -> Result<Step> {
        if self.posted.is_none()
            && let Some(step) = self.post(job, peer, filling)?
        {
            return Ok(step);
        }
        let Some((region, track)) = self.posted.take_if(|(_, track)| track.open() == 0) else {
            return Ok(Step::UnderWay);
        };
        forget(job, region);
        track.check()?;
        // SAFETY: the request is complete without an error, so the bytes have been read.
        unsafe { filling.was_filled() };
        Ok(Step::Done)
    }

    /// Posts the request; if that is not possible, returns the step to take instead.
    fn post(&mut self, job: &Messenger, peer: u32, filling: &mut Filling) -> Result<Option<Step>> {
        let kept = filling.kept;
        let blocks = few_blocks(kept, READ_INTO, |from, len, blocks| filling.blocks(from, len, blocks))?;
        let Some(into) = blocks else { return Ok(Some(Step::Packets)) };
        let mut left = kept;
        let cut = |r: &Range| {
            let len = r.len.min(left);
            left -= len;
            Range { len, ..*r }
        };
        let ranges: Vec<Range> = self.offer.ranges.iter().map(cut).filter(|r| r.len > 0).collect();
        let remote = job.device().import(peer, &self.offer.key, None)?;
        let shortest = (kept / into.len().max(ranges.len()).max(1)) as u64;
        let mut step = Ok(Some(Step::Packets));
        if remote.lists.is_some_and(|least| shortest >= least) {
            let track = Track::new();
            let from = RemoteVector { region: remote.handle, ranges: &ranges };
            // SAFETY: by its contract the sink is valid until its completion runs or it is abandoned, both of which
            // come after the end of the request.
            match unsafe { job.try_post(peer, Operation::ReadBlocks { into: &into, from }, None, &[&track]) } {
                Ok(Some(_)) => {
                    self.posted = Some((remote.handle, track));
                    return Ok(None);
                }
                Ok(None) => step = Ok(Some(Step::NoRoom)),
                Err(e) => step = Err(e),
            }
        }
        forget(job, remote.handle);
        step
    }

    /// Abandons the read: afterwards the memory of the sink is not written any more.
    pub(super) fn abandon(self, job: &Messenger) {
        if let Some((region, track)) = self.posted {
            job.cancel(&track);
            forget(job, region);
        }
    }
}

fn forget(job: &Messenger, region: u64) {
    // SAFETY: the region is not mapped.
    unsafe { job.device().forget(region) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_a_window_has_cut_are_one_again() {
        let bytes = [0u8; 100_000];
        let look_up = |from: usize, len: usize, blocks: &mut Vec<Block>| {
            blocks.push(Block::of(bytes[from..].as_ptr(), len));
            Ok(())
        };
        let blocks = few_blocks(100_000, 1, look_up).unwrap().unwrap();
        assert_eq!(blocks.iter().map(|b| b.len).collect::<Vec<_>>(), [100_000]);
        let apart = |from: usize, len: usize, blocks: &mut Vec<Block>| {
            blocks.extend((from..from + len).map(|at| Block::of(bytes[2 * at % 100_000..].as_ptr(), 1)));
            Ok(())
        };
        assert!(few_blocks(100, 99, apart).unwrap().is_none());
        assert_eq!(few_blocks(100, 100, apart).unwrap().unwrap().len(), 100);
    }
}
