//! The blocks that a rank fills, those on their way, and those that have arrived.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::finish::Tree;
use super::wire::InFlight;

/// Maximum number of buffers that are kept for reuse.
const MAX_SPARE: usize = 4;

/// The way to one other rank.
#[derive(Default)]
pub(super) struct Channel {
    pub(super) to: usize,
    pub(super) filling: Vec<u8>,
    pub(super) in_flight: VecDeque<InFlight>,
    /// Number of blocks that have left, and that have not been consumed.
    pub(super) left: u64,
    pub(super) unconsumed: u32,
    /// The block contains a flush, so that it leaves before it is full.
    pub(super) flushes: bool,
    pub(super) is_due: bool,
}

/// A block that has arrived, or that holds items of this rank to itself.
pub(super) struct Block {
    /// The sender and the level; `None` for a block of this rank.
    pub(super) from: Option<(u32, u8)>,
    pub(super) phase: u8,
    pub(super) bytes: Vec<u8>,
    /// The first byte that has not been consumed.
    pub(super) at: usize,
}

/// The blocks of one sender at one level.
#[derive(Default)]
pub(super) struct Incoming {
    /// Number of blocks that have not been consumed.
    pub(super) open: u32,
    /// Number of the next block.
    pub(super) next: u64,
    /// The block after the next, which is complete before it.
    pub(super) early: Option<Block>,
}

#[derive(Default)]
pub(super) struct Blocks {
    pub(super) channels: Vec<Channel>,
    /// Number of channels with a block that is not empty.
    pub(super) filled: usize,
    /// Channels whose blocks may leave in the next turn: they are full or contain a flush, or this rank has nothing else to
    /// do. So a turn looks at no others.
    pub(super) due: Vec<usize>,
    pub(super) incoming: FxHashMap<(u32, u8), Incoming>,
    /// Blocks to be passed on.
    pub(super) arrived: VecDeque<Block>,
    /// Blocks of items for this rank.
    pub(super) ready: VecDeque<Block>,
    /// Items for this rank that are not in a block of `ready` yet, and whether there is such a block.
    pub(super) own: Vec<u8>,
    pub(super) own_is_ready: bool,
    pub(super) spare: Vec<Vec<u8>>,
    /// Number of blocks that have left and have not been consumed.
    pub(super) unconsumed: u32,
    pub(super) pushed: u64,
    pub(super) consumed: u64,
    pub(super) phase: u8,
    /// Whether blocks leave that are not full: this rank has nothing else to do.
    pub(super) leaving: bool,
    /// Whether this rank pushes no further items except in answer to others.
    pub(super) closing: bool,
    pub(super) tree: Tree,
}

impl Block {
    /// The rank that sent the block, if it was not this one.
    pub(super) fn sender(&self) -> Option<u32> {
        self.from.map(|(sender, _)| sender)
    }
}

impl Blocks {
    pub(super) fn offer_own(&mut self) {
        let (bytes, phase) = (std::mem::take(&mut self.own), self.phase);
        self.own_is_ready = true;
        self.ready.push_back(Block { from: None, phase, bytes, at: 0 });
    }

    /// The next block of items for this rank.
    pub(super) fn front(&mut self) -> Option<&mut Block> {
        if self.ready.is_empty() && !self.own.is_empty() {
            self.offer_own();
        }
        self.ready.front_mut()
    }

    /// Whether no item is at this rank, and all that it has sent have been consumed.
    pub(super) fn is_idle(&self) -> bool {
        let is_current = |block: &Block| block.phase == self.phase;
        let (own, passed) = (self.own.is_empty() && !self.own_is_ready, !self.arrived.iter().any(is_current));
        own && passed && self.ready.is_empty() && self.filled == 0 && self.unconsumed == 0
    }

    /// Counts a block of a channel as consumed; `false` if none is in progress.
    pub(super) fn was_consumed(&mut self, number: usize) -> bool {
        let channel = &mut self.channels[number];
        let is_open = channel.unconsumed > 0;
        channel.unconsumed -= u32::from(is_open);
        self.unconsumed -= u32::from(is_open);
        if !channel.filling.is_empty() {
            self.make_due(number);
        }
        is_open
    }

    pub(super) fn make_due(&mut self, number: usize) {
        if !std::mem::replace(&mut self.channels[number].is_due, true) {
            self.due.push(number);
        }
    }

    /// Lets blocks leave that are not full, or keeps them.
    pub(super) fn set_leaving(&mut self, leaving: bool) {
        if leaving && !std::mem::replace(&mut self.leaving, leaving) && self.filled > 0 {
            for number in 0..self.channels.len() {
                if !self.channels[number].filling.is_empty() {
                    self.make_due(number);
                }
            }
        }
        self.leaving = leaving;
    }

    pub(super) fn take_spare(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    pub(super) fn keep(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < MAX_SPARE {
            bytes.clear();
            self.spare.push(bytes);
        }
    }
}
