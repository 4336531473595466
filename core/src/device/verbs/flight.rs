#![allow(unsafe_code)]
//! Requests as they are kept until they are complete, and those that the card has, in order.

use smallvec::SmallVec;

use super::buffers::Chunk;
use super::ops::Whose;
use super::sys::qp::{Action, Order};
use super::sys::queue::Piece;
use crate::device::Block;
use crate::memory::copy;

/// A request as it is kept until it is complete.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) action: Action,
    pub(super) pieces: SmallVec<[Piece; 2]>,
    /// Bytes that go inside the request, in place of pieces.
    pub(super) inline: SmallVec<[u8; 32]>,
    pub(super) immediate: Option<u32>,
    pub(super) signalled: bool,
    pub(super) whose: Whose,
    /// What comes free with it.
    pub(super) chunk: Option<Chunk>,
}

impl Flight {
    #[inline]
    pub(super) fn new(action: Action) -> Self {
        Self {
            action,
            pieces: SmallVec::new(),
            inline: SmallVec::new(),
            immediate: None,
            signalled: false,
            whose: Whose::Nobody,
            chunk: None,
        }
    }

    /// Its inline bytes as a piece.
    #[inline]
    pub(super) fn own(&self) -> Piece {
        Piece { address: self.inline.as_ptr().addr() as u64, len: self.inline.len() as u32, key: 0 }
    }

    /// The request with number `id`; `own` names its inline bytes.
    #[inline]
    pub(super) fn order<'a>(&'a self, id: u64, own: &'a Piece) -> Order<'a> {
        let inline = !self.inline.is_empty();
        Order {
            id,
            action: self.action,
            pieces: if inline { std::slice::from_ref(own) } else { &self.pieces },
            inline,
            immediate: self.immediate,
            signalled: self.signalled,
        }
    }

    /// Adds bytes to those that go inside the request; of memory that others may write, read by the word.
    ///
    /// # Safety
    /// The block is valid for reads.
    #[inline(always)]
    pub(super) unsafe fn append(&mut self, block: &Block) {
        let at = self.inline.len();
        if block.len > self.inline.capacity() - at {
            self.inline.reserve(block.len);
        }
        // SAFETY: there is room for the block behind the `at` bytes, all of which are written before they count.
        unsafe {
            copy::load(block.base, self.inline.as_mut_ptr().add(at), block.len);
            self.inline.set_len(at + block.len);
        }
    }
}

impl Flight {
    /// Makes a new one of one that has ended, whose room for pieces and bytes stays.
    #[inline]
    fn renew(&mut self, action: Action) {
        self.action = action;
        // SAFETY: shorter, of plain data: nothing is to be dropped.
        unsafe {
            self.pieces.set_len(0);
            self.inline.set_len(0);
        }
        (self.immediate, self.signalled, self.whose, self.chunk) = (None, false, Whose::Nobody, None);
    }
}

/// What the card has, in order. A place is used again by a later request, which is made there: to move one takes longer
/// than to make it.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    places: Vec<Flight>,
    first: usize,
    len: usize,
}

impl UnderWay {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn place(&self, i: usize) -> usize {
        let at = self.first + i;
        if at < self.places.len() { at } else { at - self.places.len() }
    }

    /// A place behind the last, for a request that is made there.
    #[inline(always)]
    pub(super) fn grow(&mut self, action: Action) -> &mut Flight {
        if self.len == self.places.len() {
            self.places.rotate_left(self.first);
            self.first = 0;
            self.places.push(Flight::new(action));
        }
        let at = self.place(self.len);
        self.len += 1;
        let flight = &mut self.places[at];
        flight.renew(action);
        flight
    }

    pub(super) fn push(&mut self, flight: Flight) {
        let action = flight.action;
        *self.grow(action) = flight;
    }

    /// Takes out the last again.
    #[cold]
    pub(super) fn pop_back(&mut self) -> Option<Flight> {
        self.len = self.len.checked_sub(1)?;
        let at = self.place(self.len);
        Some(std::mem::replace(&mut self.places[at], Flight::new(Action::Send)))
    }

    pub(super) fn pop(&mut self) -> Option<Flight> {
        self.pass().map(|place| std::mem::replace(place, Flight::new(Action::Send)))
    }

    /// Takes out the first; its place, as it was left, until another one is made there.
    #[inline]
    pub(super) fn pass(&mut self) -> Option<&mut Flight> {
        self.len = self.len.checked_sub(1)?;
        let at = self.first;
        self.first = if at + 1 < self.places.len() { at + 1 } else { 0 };
        Some(&mut self.places[at])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Flight> {
        (0..self.len).map(|i| &self.places[self.place(i)])
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Flight> {
        let (before, from) = self.places.split_at_mut(self.first);
        from.iter_mut().chain(before).take(self.len)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn places_are_used_again_in_the_order_of_a_queue() {
        let (mut under_way, mut expected) = (UnderWay::default(), VecDeque::new());
        let (mut next, mut state) = (0_u32, 1_u32);
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match state >> 29 {
                0..4 if expected.len() < 40 => {
                    next += 1;
                    let flight = under_way.grow(Action::Send);
                    assert!(flight.whose == Whose::Nobody && flight.inline.is_empty() && flight.pieces.is_empty());
                    flight.whose = Whose::Op(next);
                    flight.inline.extend_from_slice(&next.to_le_bytes());
                    flight.pieces.push(Piece { address: 0, len: 0, key: next });
                    expected.push_back(Whose::Op(next));
                }
                4 => assert_eq!(under_way.pop().map(|f| f.whose), expected.pop_front()),
                5 => assert_eq!(under_way.pop_back().map(|f| f.whose), expected.pop_back()),
                _ => {
                    let whose = under_way.pass().map(|place| place.whose);
                    assert_eq!(whose, expected.pop_front());
                }
            }
            assert_eq!((under_way.len(), under_way.is_empty()), (expected.len(), expected.is_empty()));
        }
        assert!(under_way.iter().map(|f| f.whose).eq(expected.iter().copied()));
        assert!(under_way.iter_mut().map(|f| f.whose).eq(expected));
    }
}
