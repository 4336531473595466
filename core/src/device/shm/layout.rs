//! Layout of a rank's base segment.
//!
//! ```text
//! 0     magic, 8 rank and size
//! 64    doorbell (futex)          written by peers that wake this rank
//! 128   sleeping                  1 while this rank is about to sleep or sleeps
//! 192   state                     running, left, lost; 196: 1 + the rank of the job whose loss this rank has seen
//! 256   `process_vm_*` transfer that this rank makes; see `vm_transfer`; 264: 1 if it may make them with all ranks; 272: 1 if it
//!       cannot map the segments of all ranks
//! 320   live keys                 of user memory; see `live_key`
//!       heads of the packet rings, one line per source
//!       reply lines, one per higher rank, none of them adjacent
//!       packet rings, one per source
//!       cells for long packets, CELLS per other rank
//!       turns, requests and bounce buffer of the target service; see `device::target`
//! ```

use std::ops::Range;

use super::ring::max_packet;
use crate::device::target;
use crate::memory::segment::page_up;

/// A cache line.
pub(super) const LINE: usize = 64;
/// Maximum length in bytes of a message that is sent through the ring, if the ring does not set a lower limit.
pub(super) const EAGER: usize = 32 << 10;
/// Number of cells in the segment of each of two ranks that they share for packets.
pub(super) const CELLS: usize = 2;
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"farside8");
pub(super) const IDENTITY: usize = 8;
pub(super) const DOORBELL: usize = 64;
pub(super) const SLEEPING: usize = 128;
pub(super) const STATE: usize = 192;
pub(super) const MET: usize = 196;
pub(super) const VM_TRANSFER: usize = 256;
pub(super) const VM_WORKS: usize = 264;
pub(super) const REFUSED: usize = 272;
const LIVE: usize = 320;
/// Entries of the table of live keys for memory of windows, and for memory that is exported for one transfer: at most
/// this number of regions are accessed directly at a time.
pub(super) const LIVE_KEYS_OF: [Range<u32>; 2] = [0..256, 256..LIVE_KEYS];
/// Entries of the table of live keys.
pub(super) const LIVE_KEYS: u32 = 512;
const HEADS: usize = LIVE + 8 * LIVE_KEYS as usize;

pub(super) const STATE_RUNNING: u32 = 1;
pub(super) const STATE_LEFT: u32 = 2;
pub(super) const STATE_LOST: u32 = 3;

/// Sizes that all ranks of a job share, and the offsets that follow from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) ranks: usize,
    pub(super) ring: usize,
    pub(super) bounce: usize,
}

/// Offset of an entry of the table of live keys. It holds the key of a region of program memory until the region is
/// released. Peers read it before they access the memory directly.
pub(super) fn live_key(entry: u32) -> usize {
    LIVE + 8 * entry as usize
}

/// Value of a rank's word `VM_TRANSFER` while the rank moves bytes of region `key` of rank `peer`.
pub(super) fn vm_transfer(peer: usize, key: u64) -> u64 {
    (peer as u64 + 1) << 48 | key
}

impl Layout {
    /// Offset of the head of the ring from `source`, which has a line of its own.
    pub(super) fn ring_head(&self, source: usize) -> usize {
        HEADS + source * LINE
    }

    /// Offset of the reply line of this rank and a higher rank. Reply lines are two lines apart, since processors fetch
    /// lines in pairs.
    pub(super) fn reply_line(&self, higher: usize) -> usize {
        page_up(self.ring_head(self.ranks)) + higher * 2 * LINE
    }

    pub(super) fn ring(&self, source: usize) -> usize {
        page_up(self.reply_line(self.ranks)) + source * self.ring
    }

    /// Maximum length of a packet: the headers and the longest message that is sent through the ring if the ring does
    /// not set a lower limit ([`EAGER`]). If both ranks send at the same time, one long packet is faster than several,
    /// which wait for each other.
    pub(super) fn max_packet(&self) -> usize {
        max_packet(self.ring).min(EAGER + LINE)
    }

    /// Length of a cell.
    pub(super) fn cell_len(&self) -> usize {
        self.max_packet().next_multiple_of(LINE)
    }

    /// Offset of the [`CELLS`] that this rank shares with `peer` in this rank's segment.
    pub(super) fn cell(&self, peer: usize) -> usize {
        self.ring(self.ranks) + peer * CELLS * self.cell_len()
    }

    pub(super) fn service(&self) -> target::Layout {
        target::Layout::new(page_up(self.cell(self.ranks)), self.ranks, self.bounce)
    }

    pub(super) fn len(&self) -> usize {
        self.service().end()
    }
}
