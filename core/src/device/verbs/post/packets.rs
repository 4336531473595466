#![allow(unsafe_code)]
//! Packets of a rank to itself, which need no HCA: they wait here until the rank polls.

use std::collections::VecDeque;

use crate::device::Block;
use crate::memory::copy;

/// Packets of this rank to itself.
#[derive(Debug, Default)]
pub(crate) struct PacketsToSelf {
    waiting: VecDeque<Vec<u8>>,
    /// Memory of packets that were taken.
    spare: Vec<Vec<u8>>,
}

impl PacketsToSelf {
    /// Most that wait.
    const MOST: usize = 64;

    /// Takes in a packet, if there is room.
    ///
    /// # Safety
    /// The blocks are valid for reads.
    pub(crate) unsafe fn send(&mut self, header: &[u8], body: &[Block]) -> bool {
        if self.waiting.len() == Self::MOST {
            return false;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.extend_from_slice(header);
        for b in body {
            let at = bytes.len();
            bytes.resize(at + b.len, 0);
            // SAFETY: the block by the contract; the vector has just got room for it.
            unsafe { copy::load(b.base, bytes[at..].as_mut_ptr(), b.len) };
        }
        self.waiting.push_back(bytes);
        true
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.waiting.len()
    }

    /// The oldest.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        self.waiting.pop_front()
    }

    /// The memory of one that was taken.
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
        for n in 0..PacketsToSelf::MOST as u8 {
            // SAFETY: the blocks are of live memory.
            assert!(unsafe { packets.send(&[n], &body) });
        }
        // SAFETY: no blocks.
        assert!(!unsafe { packets.send(&[0], &[]) });
        for n in 0..PacketsToSelf::MOST as u8 {
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
