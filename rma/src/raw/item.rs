//! One operation on one target, as a value, and what it is to a device.

use std::rc::Rc;

use farside_core::device::{Block, Operation, Place, Range, Spread};

use super::layouts::{Action, Owned};

/// One operation on one target.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Put {
        from: *const u8,
        len: usize,
        offset: usize,
    },
    Get {
        into: *mut u8,
        len: usize,
        offset: usize,
    },
    Accumulate {
        code: u32,
        operand: *const u8,
        old: *mut u8,
        len: usize,
        offset: usize,
    },
    CompareSwap {
        len: usize,
        expected: u64,
        desired: u64,
        old: *mut u8,
        offset: usize,
    },
    /// One message of a transfer between layouts.
    Lists(Box<Lists>),
    /// A whole operation between layouts that waits for its target.
    Layouts(Rc<Owned>),
}

/// Blocks of this rank and ranges of the target, equal in their sum.
#[derive(Clone, Debug)]
pub(crate) struct Lists {
    /// To the target, or from it.
    pub(super) put: bool,
    pub(super) blocks: Vec<Block>,
    pub(super) ranges: Vec<Range>,
}

impl Item {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Item::Put { .. } => "put",
            Item::Get { .. } => "get",
            Item::Accumulate { .. } => "accumulate",
            Item::CompareSwap { .. } => "compare and swap",
            Item::Lists(lists) if lists.put => "put",
            Item::Lists(_) => "get",
            Item::Layouts(all) => all.action.name(),
        }
    }

    /// Whether it brings back what is at the target, and whether it may change that by plain stores.
    pub(super) fn reads_and_stores(&self) -> (bool, bool) {
        match self {
            Item::Put { .. } => (false, true),
            Item::Accumulate { old, .. } => (!old.is_null(), true),
            Item::Get { .. } | Item::CompareSwap { .. } => (true, false),
            Item::Lists(lists) => (!lists.put, lists.put),
            Item::Layouts(all) => (all.action != Action::Put, all.action != Action::Get),
        }
    }

    /// Where it begins at the target and how long it is there, if that is one range.
    pub(super) fn range(&self) -> Option<(usize, usize)> {
        match *self {
            Item::Put { len, offset, .. }
            | Item::Get { len, offset, .. }
            | Item::Accumulate { len, offset, .. }
            | Item::CompareSwap { len, offset, .. } => Some((offset, len)),
            Item::Lists(_) | Item::Layouts(_) => None,
        }
    }

    /// Its operation on `region`; `None` for one that takes more than a message.
    pub(crate) fn with_operation<R>(&self, region: u64, post: impl FnOnce(Operation<'_>) -> R) -> Option<R> {
        let at = |offset| Place { region, offset };
        let block;
        let operation = match *self {
            Item::Put { from, len, offset } => {
                block = [Block::of(from, len)];
                Operation::Write { from: &block, to: at(offset) }
            }
            Item::Get { into, len, offset } => {
                block = [Block { base: into, len }];
                Operation::Read { into: &block, from: at(offset) }
            }
            Item::Accumulate { code, operand, old, len, offset } => {
                Operation::Accumulate { at: at(offset), code, operand: Block::of(operand, len), old }
            }
            Item::CompareSwap { len, expected, desired, old, offset } => {
                Operation::CompareSwap { at: at(offset), len, expected, desired, old }
            }
            Item::Lists(ref lists) => {
                let (blocks, spread) = (&lists.blocks, Spread { region, ranges: &lists.ranges });
                match (&lists.ranges[..], lists.put) {
                    ([one], true) => Operation::Write { from: blocks, to: at(one.offset) },
                    ([one], false) => Operation::Read { into: blocks, from: at(one.offset) },
                    (_, true) => Operation::WriteBlocks { from: blocks, to: spread },
                    (_, false) => Operation::ReadBlocks { into: blocks, from: spread },
                }
            }
            Item::Layouts(_) => return None,
        };
        Some(post(operation))
    }
}
