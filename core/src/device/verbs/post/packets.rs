#![allow(unsafe_code)]
//! Packets of a rank to itself. They bypass the HCA and are queued until the rank polls.

use std::collections::VecDeque;

use crate::device::Block;
use crate::memory::copy;

/// Packets of this rank to itself.
#[derive(Debug, Default)]
pub(crate) struct PacketsToSelf {
    waiting: VecDeque<Vec<u8>>,
    /// Buffers of delivered packets, for reuse.
    spare: Vec<Vec<u8>>,
}

impl PacketsToSelf {
    /// Maximum number of queued packets.
    const MAX_QUEUED: usize = 64;

    /// Queues a packet; returns `false` if the queue is full.
    ///
    /// # Safety
    /// The blocks are valid for reads.
    pub(crate) unsafe fn send(&mut self, header: &[u8], body: &[Block]) -> bool {
        if self.waiting.len() == Self::MAX_QUEUED {
            return false;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.extend_from_slice(header);
        for b in body {
            let at = bytes.len();
            bytes.resize(at + b.len, 0);
            // SAFETY: the block is valid by the contract; the vector was just resized for it.
            unsafe { copy::load(b.base, bytes[at..].as_mut_ptr(), b.len) };
        }
        self.waiting.push_back(bytes);
        true
    }

    /// Number of queued packets.
    pub(crate) fn count(&self) -> usize {
        self.waiting.len()
    }

    /// Removes the oldest packet.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        self.waiting.pop_front()
    }

    /// Returns the buffer of a delivered packet for reuse.
    pub(crate) fn give_back(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        self.spare.push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_in_their_order_and_no_more_than_there_is_room_for() {
        let mut packets = PacketsToSelf::default();
        let bytes = [7u8; 3];
        let body = [Block::of(bytes.as_ptr(), 2), Block::of(bytes.as_ptr(), 1)];
        for n in 0..PacketsToSelf::MAX_QUEUED as u8 {
            // SAFETY: the blocks refer to live memory.
            assert!(unsafe { packets.send(&[n], &body) });
        }
        // SAFETY: no blocks.
        assert!(!unsafe { packets.send(&[0], &[]) });
        for n in 0..PacketsToSelf::MAX_QUEUED as u8 {
            let packet = packets.take().unwrap();
            assert_eq!(packet, [n, 7, 7, 7]);
            packets.give_back(packet);
        }
        assert!(packets.take().is_none() && packets.count() == 0);
        // SAFETY: no blocks.
        assert!(unsafe { packets.send(&[], &[]) });
        assert!(packets.take().unwrap().is_empty());
    }
}
