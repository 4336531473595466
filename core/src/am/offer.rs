//! A sender's offer to let its target read the data, a target's offer of its sink, and the state of the copies.

use std::rc::Rc;

use super::claims::Claims;
use super::pieces::{Parts, Pieces};
use crate::device::{Block, Range};
use crate::tracked::Track;
use crate::wire::{Reader, Writer};

/// Maximum number of blocks of offered memory, whose addresses have to fit into one packet.
pub(super) const MAX_OFFERED_BLOCKS: usize = 192;
/// The number of segments that a sender reports if it has failed to write one.
pub(super) const FAILED: u64 = u64::MAX;

/// The location of a message's data, or of its sink, in memory that a rank has exported for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) key: Vec<u8>,
    pub(super) ranges: Parts<Range>,
}

impl Offer {
    pub(super) fn write(&self) -> Vec<u8> {
        let w = Writer::new().bytes(&self.key);
        self.ranges.iter().fold(w, |w, r| w.u64(r.offset as u64).u64(r.len as u64)).done()
    }

    /// Parses an offer; `None` if it is malformed.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let (key, mut ranges, mut sum) = (r.bytes()?.to_vec(), Parts::new(), 0usize);
        while !r.is_empty() {
            let range = Range { offset: r.u64()?.try_into().ok()?, len: r.u64()?.try_into().ok()? };
            sum = sum.checked_add(range.len)?;
            ranges.push(range);
        }
        (ranges.len() <= MAX_OFFERED_BLOCKS).then_some(Self { key, ranges })
    }

    /// Length of the data in bytes.
    pub(super) fn len(&self) -> usize {
        self.ranges.iter().map(|range| range.len).sum()
    }
}

/// The read of the data of a message.
pub(super) struct Read {
    pub(super) offer: Offer,
    pub(super) begun: Option<Reading>,
    /// The sender has cancelled the message meanwhile.
    pub(super) cancelled: bool,
}

/// A read that has begun: memory of the sink may be written.
pub(super) struct Reading {
    /// The sender's region, and its ranges that are read.
    pub(super) region: u64,
    pub(super) ranges: Parts<Range>,
    pub(super) into: Parts<Block>,
    pub(super) pieces: Pieces,
    /// Counts the request in progress.
    pub(super) track: Rc<Track>,
    /// Number of segments that this rank has posted, and whether the next one is claimed.
    pub(super) posted: u32,
    pub(super) claimed: bool,
    pub(super) lent: Option<LentSink>,
}

/// A sink into which the sender of the message may write segments.
pub(super) struct LentSink {
    pub(super) claims: Claims,
    /// Handle of the sink's registration.
    pub(super) sink: u64,
    /// Number of segments that the sender has written, or [`FAILED`].
    pub(super) written: u64,
}

/// Memory that this rank has exported to the target of a message.
pub(super) struct Offered {
    /// Handle of its registration.
    pub(super) region: u64,
    /// The writes of segments of the message, if the target has exported its sink.
    pub(super) writing: Option<Box<Writing>>,
}

/// The writes of segments of a message into the target's sink.
pub(super) struct Writing {
    pub(super) sink: Offer,
    /// The location of the claims: the key of the target's claim table, and the number of the message in it.
    pub(super) board: (Vec<u8>, u64),
    pub(super) begun: Option<Write>,
    /// Number of segments that have been posted, and number of those that have been reported to the target.
    pub(super) posted: u32,
    pub(super) reported: u32,
}

/// A message of which this rank writes segments.
pub(super) struct Write {
    pub(super) claims: Claims,
    /// The target's region.
    pub(super) region: u64,
    pub(super) from: Parts<Block>,
    pub(super) pieces: Pieces,
    /// Counts the request in progress.
    pub(super) track: Rc<Track>,
}

impl Writing {
    /// Parses a target's offer of its sink for a message of `len` bytes; `None` if it is malformed.
    pub(super) fn read(number: u64, bytes: &[u8], len: usize) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let (board, sink) = ((r.bytes()?.to_vec(), number), Offer::read(r.rest())?);
        (sink.len() <= len).then_some(Self { sink, board, begun: None, posted: 0, reported: 0 })
    }
}

impl Read {
    pub(super) fn new(offer: Offer) -> Self {
        Self { offer, begun: None, cancelled: false }
    }

    /// Whether a request of the read is in progress.
    pub(super) fn is_in_progress(&self) -> bool {
        self.begun.as_ref().is_some_and(|begun| begun.track.open() > 0)
    }

    /// Records the sender's report of how many segments it has written; `false` if that is more than this rank has left
    /// unclaimed.
    pub(super) fn was_written(&mut self, pieces: u64) -> bool {
        let Some(begun) = &mut self.begun else { return true };
        let own = begun.posted + u32::from(begun.claimed);
        let Some(lent) = &mut begun.lent else { return true };
        lent.written = pieces;
        pieces == FAILED || pieces <= u64::from(begun.pieces.count() - own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn offers_round_trip() {
        let ranges = smallvec::smallvec![Range { offset: 0, len: 7 }, Range { offset: 1 << 40, len: 3 }];
        let offer = Offer { key: vec![1, 2, 3], ranges };
        let bytes = offer.write();
        assert_eq!((Offer::read(&bytes), offer.len()), (Some(offer), 10));
        // Cut between two ranges, or after the key, the bytes are an offer of fewer bytes.
        assert!((0..bytes.len()).filter(|n| ![7, 23].contains(n)).all(|n| Offer::read(&bytes[..n]).is_none()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_malformed_or_an_offer(bytes in prop::collection::vec(any::<u8>(), 0..80), len in 0usize..300) {
            if let Some(offer) = Offer::read(&bytes) {
                prop_assert_eq!(offer.write(), bytes.clone());
            }
            if let Some(writing) = Writing::read(1, &bytes, len) {
                prop_assert!(writing.sink.len() <= len);
            }
        }
    }
}
