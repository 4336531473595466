//! A sender's offer to let its target read the data, and the state of that read.

use std::rc::Rc;

use crate::device::Range;
use crate::tracked::Track;
use crate::wire::{Reader, Writer};

/// Maximum number of blocks of an offered source: their addresses travel with the request to send, in one packet.
pub(super) const OFFERED: usize = 192;

/// The location of a message's data in its sender's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) key: Vec<u8>,
    pub(super) ranges: Vec<Range>,
}

/// The read of the data of a message.
pub(super) struct Read {
    pub(super) offer: Offer,
    /// The imported region, and the track that counts the request, once it has been posted.
    pub(super) posted: Option<(u64, Rc<Track>)>,
    /// The sender has cancelled the message meanwhile.
    pub(super) cancelled: bool,
}

impl Offer {
    pub(super) fn write(&self) -> Vec<u8> {
        let w = Writer::new().bytes(&self.key);
        self.ranges.iter().fold(w, |w, r| w.u64(r.offset as u64).u64(r.len as u64)).done()
    }

    /// Parses the offer of a message of `len` bytes; `None` if it is malformed.
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
}

impl Read {
    pub(super) fn new(offer: Offer) -> Self {
        Self { offer, posted: None, cancelled: false }
    }

    /// Whether the request is posted, so that memory of the sink may be written.
    pub(super) fn is_posted(&self) -> bool {
        self.posted.is_some()
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

    proptest! {
        #[test]
        fn any_bytes_are_no_offer_or_one_of_that_length(bytes in prop::collection::vec(any::<u8>(), 0..80), len in 0usize..300) {
            if let Some(offer) = Offer::read(&bytes, len) {
                prop_assert_eq!(offer.ranges.iter().map(|r| r.len).sum::<usize>(), len);
            }
        }
    }
}
