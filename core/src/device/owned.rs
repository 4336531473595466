//! Operations that own their blocks and ranges, so that they can be stored, simulated or repeated.

use std::cell::RefCell;

use super::parts::{Parts, cut};
use super::request::length;
use super::{Block, Operation, Place, Range, Ranges, Transfer, Update};

/// A write or a read, or a part of one.
#[derive(Clone, Debug)]
pub struct OwnedTransfer {
    /// Whether the local bytes are written to the region; otherwise they are read from it.
    pub write: bool,
    /// Blocks of this rank's memory.
    pub local: Parts<Block>,
    /// The handle of the region.
    pub region: u64,
    /// Ranges of the region, with the same total length.
    pub ranges: Parts<Range>,
}

impl OwnedTransfer {
    #[inline]
    pub(crate) fn of(transfer: &Transfer<'_>) -> Self {
        let Transfer { write, local, region, ref ranges } = *transfer;
        Self { write, local: Parts::from_slice(local), region, ranges: Parts::from_slice(ranges) }
    }

    /// A transfer of one block and one range of the same length.
    #[inline]
    #[must_use]
    pub fn one(write: bool, base: *mut u8, len: usize, at: Place) -> Self {
        let (local, ranges) = (Block { base, len }, Range { offset: at.offset, len });
        Self { write, local: Parts::from_buf([local]), region: at.region, ranges: Parts::from_buf([ranges]) }
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        length(&self.local)
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The `len` bytes from byte `from` on, in the region with handle `region`.
    #[must_use]
    pub fn part(&self, region: u64, from: usize, len: usize) -> Self {
        let (local, ranges) = (cut(&self.local, from, len), cut(&self.ranges, from, len));
        Self { write: self.write, local, region, ranges }
    }

    /// The operation. A list of one range becomes that range.
    #[inline]
    #[must_use]
    pub fn operation(&self) -> Operation<'_> {
        let Self { write, ref local, region, ref ranges } = *self;
        let ranges = if let [one] = ranges[..] { Ranges::One(one) } else { Ranges::List(ranges) };
        Operation::Transfer(Transfer { write, local, region, ranges })
    }

    /// Calls a closure with the operation on the region with handle `region`, whose byte 0 is at byte `start` there.
    pub fn with_operation<R>(&self, (region, start): (u64, usize), f: impl FnOnce(Operation<'_>) -> R) -> R {
        let shifted: Parts<Range>;
        let ranges = match &self.ranges[..] {
            [one] => Ranges::One(Range { offset: start + one.offset, ..*one }),
            all if start == 0 => Ranges::List(all),
            all => {
                shifted = all.iter().map(|range| Range { offset: start + range.offset, ..*range }).collect();
                Ranges::List(&shifted)
            }
        };
        f(Operation::Transfer(Transfer { write: self.write, local: &self.local, region, ranges }))
    }
}

/// An operation that owns its I/O vector. A packet also owns its bytes, which can be taken only once.
pub(crate) enum Owned {
    Transfer(OwnedTransfer),
    Update(Update),
    Signal { at: Place, value: u64 },
    Packet(RefCell<Vec<u8>>),
    List { send: bool, local: Parts<Block> },
}

impl Owned {
    /// `None` for a packet, whose bytes the caller gathers, and for a request to a barrier.
    pub(crate) fn of(operation: &Operation<'_>) -> Option<Self> {
        Some(match *operation {
            Operation::Transfer(ref transfer) => Self::Transfer(OwnedTransfer::of(transfer)),
            Operation::Update(update) => Self::Update(update),
            Operation::Signal { at, value } => Self::Signal { at, value },
            Operation::List { send, local } => Self::List { send, local: Parts::from_slice(local) },
            Operation::Packet(_) | Operation::Barrier(_) => return None,
        })
    }

    /// The operation; `None` for a packet.
    pub(crate) fn operation(&self) -> Option<Operation<'_>> {
        Some(match *self {
            Self::Transfer(ref transfer) => transfer.operation(),
            Self::Update(update) => Operation::Update(update),
            Self::Signal { at, value } => Operation::Signal { at, value },
            Self::List { send, ref local } => Operation::List { send, local },
            Self::Packet(_) => return None,
        })
    }
}
