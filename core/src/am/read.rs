#![allow(unsafe_code)]
//! Rendezvous by reading: the request to send says where the data lies, and the target reads it out of the sender's memory,
//! from the blocks of the source straight into those of the sink.
//!
//! The memory is registered for that one message, and released when the target has it, or when the message is cancelled: from
//! then on it is not read. What cannot be read comes in packets.

use crate::device::{Block, Operation, Place, Range, Region, RemoteVector};
use crate::error::Result;
use crate::job::Job;
use crate::wire::{Reader, Writer};

use super::sink::{Filling, Source};

/// Most blocks of a source that is offered: their places travel with the request to send.
const OFFERED: usize = 32;
/// Most blocks of a sink that is read into.
const READ_INTO: usize = 1024;

/// Where the data of a message lies in its sender's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    key: Vec<u8>,
    ranges: Vec<Range>,
}

/// The blocks of the first `len` bytes that are not empty, if they are at most `most`.
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
                // A block that the window has cut.
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
    /// Offers `source` to `target`, with the handle of its registration, where reading is possible and better than packets.
    pub(super) fn make(job: &Job, target: u32, source: &Source) -> Result<Option<(u64, Self)>> {
        let (device, len) = (job.device(), source.len());
        if len < device.capabilities().messages.read || !device.shares_memory(target) {
            return Ok(None);
        }
        let blocks = few_blocks(len, OFFERED, |from, len, blocks| source.blocks(from, len, blocks))?;
        let Some(blocks) = blocks.filter(|blocks| !blocks.is_empty()) else { return Ok(None) };
        let start = blocks.iter().map(|b| b.base).min().unwrap_or_default();
        let end = blocks.iter().map(|b| b.base.addr() + b.len).max().unwrap_or(0);
        let region = Region { brief: true, one_node: true, ..Region::of(start, end - start.addr()) };
        // SAFETY: the caller of `start_send` lends the blocks until the message is complete or cancelled, and nothing of the
        // region but those is read before the release.
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

    pub(super) fn write(&self) -> Vec<u8> {
        let w = Writer::new().bytes(&self.key);
        self.ranges.iter().fold(w, |w, r| w.u64(r.offset as u64).u64(r.len as u64)).done()
    }

    /// The offer of a message of `len` bytes; `None` if it makes no sense.
    pub(super) fn read(bytes: &[u8], len: usize) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let (key, mut ranges, mut sum) = (r.bytes()?.to_vec(), Vec::new(), 0usize);
        while !r.is_empty() {
            let range = Range { offset: r.u64()?.try_into().ok()?, len: r.u64()?.try_into().ok()? };
            sum = sum.checked_add(range.len)?;
            ranges.push(range);
        }
        (sum == len && ranges.len() <= OFFERED).then_some(Self { key, ranges })
    }

    /// Reads the data of `peer` into the sink; `false` if that is not possible, or packets are better.
    ///
    /// # Errors
    /// Why it could not be read: packets are the remedy.
    pub(super) fn fetch(&self, job: &Job, peer: u32, filling: &mut Filling) -> Result<bool> {
        let (device, kept) = (job.device(), filling.kept);
        let blocks = few_blocks(kept, READ_INTO, |from, len, blocks| filling.blocks(from, len, blocks))?;
        let Some(into) = blocks else { return Ok(false) };
        let mut left = kept;
        let cut = |r: &Range| {
            let len = r.len.min(left);
            left -= len;
            Range { len, ..*r }
        };
        let ranges: Vec<Range> = self.ranges.iter().map(cut).filter(|r| r.len > 0).collect();
        let remote = device.import(peer, &self.key, None)?;
        let worth = |least: u64| (kept / into.len().max(ranges.len())) as u64 >= least;
        let operation = match &ranges[..] {
            [one] if into.len() == 1 => {
                Some(Operation::Read { into: &into, from: Place { region: remote.handle, offset: one.offset } })
            }
            ranges => remote
                .lists
                .is_some_and(worth)
                .then_some(Operation::ReadBlocks { into: &into, from: RemoteVector { region: remote.handle, ranges } }),
        };
        // SAFETY: the sink is valid by its contract, and the read is done or has not begun when the call returns.
        let read = operation.map_or(Ok(false), |operation| unsafe { job.read_now(peer, operation) });
        // SAFETY: nothing of it is mapped.
        unsafe { device.forget(remote.handle) };
        if matches!(read, Ok(true)) {
            // SAFETY: the bytes have just been read.
            unsafe { filling.was_filled() };
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn offers_come_back_as_they_were() {
        let ranges = vec![Range { offset: 0, len: 7 }, Range { offset: 1 << 40, len: 3 }];
        let offer = Offer { key: vec![1, 2, 3], ranges };
        let bytes = offer.write();
        assert_eq!(Offer::read(&bytes, 10), Some(offer));
        assert!(Offer::read(&bytes, 9).is_none() && Offer::read(&bytes, 11).is_none());
        assert!((0..bytes.len()).all(|n| Offer::read(&bytes[..n], 10).is_none()));
    }

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

    proptest! {
        #[test]
        fn any_bytes_are_no_offer_or_one_of_that_length(bytes in prop::collection::vec(any::<u8>(), 0..80), len in 0usize..300) {
            if let Some(offer) = Offer::read(&bytes, len) {
                prop_assert_eq!(offer.ranges.iter().map(|r| r.len).sum::<usize>(), len);
            }
        }
    }
}
