//! Work requests: the six operations of a device, as values.

use std::ops::Deref;

use super::{BarrierRequest, Block, Packet, code};
use crate::error::{Error, ErrorKind};
use crate::stats::Kind;

/// A remote address: a byte of a peer's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// [`RemoteRegion::handle`](super::RemoteRegion::handle).
    pub region: u64,
    /// Byte offset.
    pub offset: usize,
}

/// Consecutive bytes of a peer's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Byte offset of the first byte in the region.
    pub offset: usize,
    /// Number of bytes.
    pub len: usize,
}

/// Ranges of a region, in the order of the bytes.
#[derive(Clone, Copy, Debug)]
pub enum Ranges<'a> {
    /// A single range, which every device supports.
    One(Range),
    /// A list of ranges of a region for which [`RemoteRegion::lists`](super::RemoteRegion::lists) is set. Ranges that
    /// overlap are written in their order.
    List(&'a [Range]),
}

impl Deref for Ranges<'_> {
    type Target = [Range];

    #[inline(always)]
    fn deref(&self) -> &[Range] {
        match self {
            Ranges::One(range) => std::slice::from_ref(range),
            Ranges::List(ranges) => ranges,
        }
    }
}

/// A write or a read. Local blocks and ranges have the same total length.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'a> {
    /// Whether the local bytes are written to the region; otherwise they are read from it.
    pub write: bool,
    /// Blocks of this rank's memory.
    pub local: &'a [Block],
    /// [`RemoteRegion::handle`](super::RemoteRegion::handle).
    pub region: u64,
    /// Ranges of the region.
    pub ranges: Ranges<'a>,
}

impl Transfer<'_> {
    /// Number of bytes of the local blocks.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        length(self.local)
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline(always)]
    pub(crate) fn kind(&self) -> Kind {
        if self.write { Kind::Write } else { Kind::Read }
    }

    #[inline(always)]
    pub(crate) fn name(&self) -> &'static str {
        if self.write { "write remote memory" } else { "read remote memory" }
    }
}

/// The change that an update makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds to a word of 8 bytes, which no accumulate changes at the same time; the sum wraps.
    Add(u64),
    /// Replaces an integer of 1, 2, 4 or 8 bytes if it has the expected value.
    CompareSwap {
        /// The expected value.
        expected: u64,
        /// The desired value.
        desired: u64,
    },
    /// Applies an accumulate by the region's own function.
    Accumulate {
        /// Operation and element type in the encoding of the region's function, with hints for devices ([`code`]).
        code: u32,
        /// The operands, of [`operand_len`](code::operand_len) bytes.
        operand: *const u8,
    },
}

/// Changes consecutive remote elements, each atomically, and stores their former values.
#[derive(Clone, Copy, Debug)]
pub struct Update {
    /// The change.
    pub change: Change,
    /// The first element. Integers are aligned to their size.
    pub at: Place,
    /// Length of the elements in bytes.
    pub len: usize,
    /// Receives the former values, of the same length; may be null.
    pub old: *mut u8,
}

impl Update {
    #[inline(always)]
    pub(crate) fn kind(&self) -> Kind {
        match self.change {
            Change::Add(_) => Kind::FetchAdd,
            Change::CompareSwap { .. } => Kind::CompareSwap,
            Change::Accumulate { .. } => Kind::Accumulate,
        }
    }

    /// The name in errors.
    #[inline(always)]
    pub(crate) fn name(&self) -> &'static str {
        match self.change {
            Change::Add(_) => "fetch and add",
            Change::CompareSwap { .. } => "compare and swap",
            Change::Accumulate { .. } => "accumulate",
        }
    }

    /// Whether one integer is changed, which must be aligned to its size.
    #[inline(always)]
    pub(crate) fn is_integer(&self) -> bool {
        !matches!(self.change, Change::Accumulate { .. })
    }

    /// The code of the change in messages: [`COMPARE_SWAP`](code::COMPARE_SWAP) for a compare-and-swap.
    #[must_use]
    pub fn code(&self) -> u32 {
        match self.change {
            Change::Add(_) => code::hint(8, code::Effect::Add),
            Change::CompareSwap { .. } => code::COMPARE_SWAP,
            Change::Accumulate { code, .. } => code,
        }
    }

    /// Size of an element in bytes; 1 if the code does not determine it.
    #[must_use]
    pub fn element(&self) -> usize {
        match self.change {
            Change::Add(_) | Change::CompareSwap { .. } => self.len,
            Change::Accumulate { code, .. } => code::element(code).max(1),
        }
    }

    /// Whether its length is a whole number of elements, or that of an integer.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        match self.change {
            Change::Add(_) => self.len == 8,
            Change::CompareSwap { .. } => matches!(self.len, 1 | 2 | 4 | 8),
            Change::Accumulate { .. } => self.len.is_multiple_of(self.element()),
        }
    }

    /// Removes the first `len` bytes of an accumulate.
    pub fn skip(&mut self, len: usize) {
        self.len -= len;
        self.at.offset += len;
        if let Change::Accumulate { operand, .. } = &mut self.change {
            *operand = operand.wrapping_add(len);
        }
        if !self.old.is_null() {
            self.old = self.old.wrapping_add(len);
        }
    }
}

/// The operation of a work request. Pointers must stay valid until it has completed.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Writes local blocks to ranges of a region, or reads the ranges into the blocks.
    Transfer(Transfer<'a>),
    /// Changes elements of a region.
    Update(Update),
    /// Sets a signal cell and wakes its rank if that rank sleeps.
    Signal {
        /// The cell.
        at: Place,
        /// Its new value.
        value: u64,
    },
    /// Sends a packet to another rank.
    Packet(Packet<'a>),
    /// One side of a message between lists of blocks of two ranks: the nth list that one rank posts with `send` is
    /// received by the nth list that the other posts without it. Complete when the bytes have arrived.
    ///
    /// If the peer has posted no list to receive, the sent list waits for several seconds and then fails with
    /// `Timeout`. A message longer than the receiving blocks fails this operation and all lists in progress between the
    /// two ranks; a shorter message leaves the remainder of the blocks unchanged.
    List {
        /// Whether the blocks are sent.
        send: bool,
        /// At most [`Lists::blocks`](super::Lists::blocks) blocks, together at most
        /// [`Lists::bytes`](super::Lists::bytes).
        local: &'a [Block],
    },
    /// A request to the in-switch barrier of the network ([`Capabilities::switch`](super::Capabilities::switch)). The
    /// peer of the request is this rank.
    Barrier(BarrierRequest),
}

impl<'a> Operation<'a> {
    /// Writes blocks to consecutive bytes.
    #[inline(always)]
    #[must_use]
    pub fn write(from: &'a [Block], to: Place) -> Self {
        let ranges = Ranges::One(Range { offset: to.offset, len: length(from) });
        Self::Transfer(Transfer { write: true, local: from, region: to.region, ranges })
    }

    /// Reads consecutive bytes into blocks.
    #[inline(always)]
    #[must_use]
    pub fn read(into: &'a [Block], from: Place) -> Self {
        let ranges = Ranges::One(Range { offset: from.offset, len: length(into) });
        Self::Transfer(Transfer { write: false, local: into, region: from.region, ranges })
    }

    /// Writes blocks to a list of ranges.
    #[must_use]
    pub fn write_list(from: &'a [Block], region: u64, ranges: &'a [Range]) -> Self {
        Self::Transfer(Transfer { write: true, local: from, region, ranges: Ranges::List(ranges) })
    }

    /// Reads a list of ranges into blocks.
    #[must_use]
    pub fn read_list(into: &'a [Block], region: u64, ranges: &'a [Range]) -> Self {
        Self::Transfer(Transfer { write: false, local: into, region, ranges: Ranges::List(ranges) })
    }

    /// Adds to a word of 8 bytes; its former value goes to `old` unless that is null.
    #[inline(always)]
    #[must_use]
    pub fn fetch_add(at: Place, add: u64, old: *mut u64) -> Self {
        Self::Update(Update { change: Change::Add(add), at, len: 8, old: old.cast() })
    }

    /// Replaces an integer of `len` bytes if it has the expected value; its former value goes to `old` unless that is
    /// null.
    #[inline(always)]
    #[must_use]
    pub fn compare_swap(at: Place, len: usize, [expected, desired]: [u64; 2], old: *mut u8) -> Self {
        Self::Update(Update { change: Change::CompareSwap { expected, desired }, at, len, old })
    }

    /// Applies an accumulate to as many bytes as the operand has; the former values go to `old` unless that is null.
    #[inline(always)]
    #[must_use]
    pub fn accumulate(at: Place, code: u32, operand: Block, old: *mut u8) -> Self {
        let change = Change::Accumulate { code, operand: operand.base };
        Self::Update(Update { change, at, len: operand.len, old })
    }

    /// Sends a packet of a header and blocks.
    #[inline(always)]
    #[must_use]
    pub fn send(header: &'a [u8], body: &'a [Block]) -> Self {
        Self::Packet(Packet::Long { header, body })
    }

    /// Sends blocks as one message to the peer's next receiving list.
    #[must_use]
    pub fn gather(local: &'a [Block]) -> Self {
        Self::List { send: true, local }
    }

    /// Receives the peer's next list into blocks.
    #[must_use]
    pub fn scatter(local: &'a [Block]) -> Self {
        Self::List { send: false, local }
    }

    /// The region of a peer that the operation accesses, if any.
    #[inline(always)]
    pub(crate) fn region(&self) -> Option<u64> {
        match self {
            Operation::Transfer(transfer) => Some(transfer.region),
            Operation::Update(Update { at, .. }) | Operation::Signal { at, .. } => Some(at.region),
            Operation::Packet(_) | Operation::List { .. } | Operation::Barrier(_) => None,
        }
    }

    /// The same operation on the region with handle `handle`.
    #[inline(always)]
    pub(crate) fn on_region(mut self, handle: u64) -> Self {
        match &mut self {
            Operation::Transfer(transfer) => transfer.region = handle,
            Operation::Update(Update { at, .. }) | Operation::Signal { at, .. } => at.region = handle,
            Operation::Packet(_) | Operation::List { .. } | Operation::Barrier(_) => {}
        }
        self
    }

    /// The name in errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Operation::Transfer(transfer) => transfer.name(),
            Operation::Update(update) => update.name(),
            Operation::Signal { .. } => "signal a peer",
            Operation::Packet(_) => "send a packet",
            Operation::List { .. } => "post a scatter or gather list",
            Operation::Barrier(_) => "enter the in-switch barrier",
        }
    }

    /// The error of a device that does not support the operation.
    #[cold]
    #[must_use]
    pub fn unsupported(&self, peer: u32, device: &'static str) -> Error {
        let e = Error::new(ErrorKind::Unsupported, self.name()).peer(peer).device(device);
        match self {
            Operation::Transfer(_) => e
                .cause("a request of this device accesses a single range of remote memory")
                .remedy("check `RemoteRegion::lists` first"),
            Operation::Update(_) => {
                e.cause("this device supports only fetch-and-add and compare-and-swap on 8-byte words")
            }
            Operation::List { .. } => e
                .cause("this device does not support scatter/gather lists on both sides of a transfer")
                .remedy("check `Capabilities::lists` first; if it is `None`, pack the blocks or write them one by one"),
            Operation::Barrier(_) => {
                e.cause("the network has no in-switch barrier").remedy("check `Capabilities::switch` first")
            }
            Operation::Signal { .. } | Operation::Packet(_) => e,
        }
    }

    /// The kind under which the operation is counted, and its number of bytes.
    #[inline]
    #[must_use]
    pub fn counted(&self) -> (Kind, usize) {
        match self {
            Operation::Transfer(transfer) => (transfer.kind(), transfer.len()),
            Operation::Update(update) => (update.kind(), update.len),
            Operation::Signal { .. } => (Kind::Signal, 8),
            Operation::Packet(packet) => (Kind::Send, packet.len()),
            Operation::List { send, local } => (if *send { Kind::Gather } else { Kind::Scatter }, length(local)),
            Operation::Barrier(_) => (Kind::Switch, 0),
        }
    }
}

/// Number of bytes of blocks.
#[inline(always)]
pub(crate) fn length(blocks: &[Block]) -> usize {
    blocks.iter().fold(0, |sum, block| sum.saturating_add(block.len))
}

/// A work request.
#[derive(Clone, Copy, Debug)]
pub struct WorkRequest<'a> {
    /// The peer (rank of the job).
    pub peer: u32,
    /// The operation.
    pub operation: Operation<'a>,
    /// A signal cell of the peer, and its new value: set after the operation is visible at the peer, as part of the
    /// same message. Successive values that this rank assigns to the cell grow, and no other rank sets it.
    pub notify: Option<(Place, u64)>,
    /// Number that the completion reports.
    pub id: u64,
}
