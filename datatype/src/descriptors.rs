//! Splits the transfer between two layouts into messages: a list of blocks on each side, with equal total lengths
//! within the limits of a list.

use std::iter::FusedIterator;

use smallvec::SmallVec;

use crate::runs::MapBlocks;
use crate::typemap::TypeMap;

/// (offset, length) of each block of one side of a message; offsets are relative to the address of that side.
pub type BlockList = SmallVec<[(i64, u64); 4]>;

/// One message: blocks of the origin and of the target with equal total length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Offset of the message in packed order.
    pub packed: u64,
    /// Number of bytes on each side.
    pub len: u64,
    /// Blocks of the origin, in packed order.
    pub origin: BlockList,
    /// Blocks of the target, in packed order.
    pub target: BlockList,
}

/// The messages of a plan; see [`Plan::descriptors`](crate::Plan::descriptors). Greedy: each message takes all the
/// blocks that its lists hold, and a block that does not fit is split. Two ranks with the same layouts and limits get
/// the same messages.
///
/// ```
/// use farside_datatype::{CutOffs, Datatype, Direction, Named, Plan, PlanLimits, Scheme};
///
/// // Eight blocks, of which a message takes three.
/// let column = Datatype::vector(8, 1, 2, &Named::Int.into())?.message(1)?;
/// let limits = PlanLimits { max_sge: 3, max_message: 1 << 30, mapped: false, target_helps: true };
/// let plan = Plan::with_scheme(Scheme::Sgrs, &column, &column, Direction::Get, limits, &CutOffs::default())?;
/// assert!(plan.descriptors().map(|message| (message.packed, message.len)).eq([(0, 12), (12, 12), (24, 8)]));
/// # Ok::<(), farside_datatype::DatatypeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Descriptors<'a> {
    origin: Side<'a>,
    target: Side<'a>,
    packed: u64,
    max_message: u64,
}

/// A layout that is being split: the current block, and the remaining blocks.
#[derive(Clone, Debug)]
struct Side<'a> {
    offset: i64,
    len: u64,
    rest: MapBlocks<'a>,
    max_blocks: usize,
}

impl<'a> Side<'a> {
    fn new(map: &'a TypeMap, packed: u64, max_blocks: usize) -> Self {
        Self { offset: 0, len: 0, rest: map.blocks(packed), max_blocks }
    }

    /// Number of bytes of the current or next block that can be added to `list`.
    fn available(&mut self, list: &BlockList) -> u64 {
        if self.len == 0 {
            let Some(next) = self.rest.next() else { return 0 };
            (self.offset, self.len) = next;
        }
        if list.len() < self.max_blocks || self.continues(list) { self.len } else { 0 }
    }

    /// Whether the current block starts where the list ends.
    fn continues(&self, list: &BlockList) -> bool {
        list.last().is_some_and(|(offset, len)| offset + *len as i64 == self.offset)
    }

    fn take(&mut self, list: &mut BlockList, len: u64) {
        match list.last_mut() {
            Some((offset, last)) if *offset + *last as i64 == self.offset => *last += len,
            _ => list.push((self.offset, len)),
        }
        self.offset += len as i64;
        self.len -= len;
    }
}

impl<'a> Descriptors<'a> {
    pub(crate) fn new(
        origin: &'a TypeMap,
        target: &'a TypeMap,
        packed: u64,
        (origin_blocks, target_blocks): (usize, usize),
        max_message: u64,
    ) -> Self {
        let (origin, target) = (Side::new(origin, packed, origin_blocks), Side::new(target, packed, target_blocks));
        Self { origin, target, packed, max_message }
    }
}

impl Iterator for Descriptors<'_> {
    type Item = Descriptor;

    fn next(&mut self) -> Option<Descriptor> {
        let mut message = Descriptor { packed: self.packed, ..Descriptor::default() };
        loop {
            let room = self.max_message - message.len;
            let len = self.origin.available(&message.origin).min(self.target.available(&message.target)).min(room);
            if len == 0 {
                break;
            }
            self.origin.take(&mut message.origin, len);
            self.target.take(&mut message.target, len);
            message.len += len;
        }
        self.packed += message.len;
        (message.len > 0).then_some(message)
    }
}

impl FusedIterator for Descriptors<'_> {}
