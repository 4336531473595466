#![allow(unsafe_code)]
//! Packets of a rank to itself, which need no card: they wait here until the rank polls.

use std::collections::VecDeque;

use crate::device::Block;
use crate::memory::copy;

#[derive(Debug, Default)]
pub(super) struct Own {
    waiting: VecDeque<Vec<u8>>,
    /// Memory of packets that were taken.
    spare: Vec<Vec<u8>>,
}

impl Own {
    /// So many wait at most.
    const MOST: usize = 64;

    /// Takes in a packet, if there is room.
    ///
    /// # Safety
    /// The blocks are valid for reads.
    pub(super) unsafe fn send(&mut self, header: &[u8], body: &[Block]) -> bool {
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
    pub(super) fn count(&self) -> usize {
        self.waiting.len()
    }

    /// The oldest.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        self.waiting.pop_front()
    }

    /// The memory of one that was taken.
    pub(super) fn give_back(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        self.spare.push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_in_their_order_and_no_more_than_there_is_room_for() {
        let mut own = Own::default();
        let bytes = [7u8; 3];
        let body = [Block::of(bytes.as_ptr(), 2), Block::of(bytes.as_ptr(), 1)];
        for n in 0..Own::MOST as u8 {
            // SAFETY: the blocks are of live memory.
            assert!(unsafe { own.send(&[n], &body) });
        }
        // SAFETY: no blocks.
        assert!(!unsafe { own.send(&[0], &[]) });
        for n in 0..Own::MOST as u8 {
            let packet = own.take().unwrap();
            assert_eq!(packet, [n, 7, 7, 7]);
            own.give_back(packet);
        }
        assert!(own.take().is_none() && own.count() == 0);
        // SAFETY: no blocks.
        assert!(unsafe { own.send(&[], &[]) });
        assert!(own.take().unwrap().is_empty());
    }
}
