#![allow(unsafe_code)]
//! A work request in the send queue, and the resources that its operation holds until it is complete.

use smallvec::SmallVec;

use crate::device::Block;
use crate::device::verbs::memory::buffers::Chunk;
use crate::device::verbs::memory::lent::Witness;
use crate::device::verbs::memory::regions::Import;
use crate::device::verbs::memory::user::Leases;
use crate::device::verbs::sys::qp::{Action, Order};
use crate::device::verbs::sys::queue::Piece;
use crate::memory::copy;

/// A signal cell of a peer and its new value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice {
    pub(crate) import: Import,
    pub(crate) offset: usize,
    pub(crate) value: u64,
}

/// The owner to which the end of a request is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Owner {
    /// No owner: a packet, a signal, or a part of an operation that a later request completes.
    #[default]
    Nobody,
    /// The operation had an owner, but the user has cancelled it.
    Cancelled,
    /// The caller of `post`, by its id.
    User(u64),
    /// The credits for packets to the peer, whose counter the request reads.
    Credit,
    /// The staged transfer of this number; the request transfers one of its segments.
    Piece(u64),
}

/// The resources that an operation holds until its last request is complete.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) owner: Owner,
    /// The bounce buffer (bcopy).
    pub(crate) chunk: Option<Chunk>,
    /// The word that is read into the chunk after the data has arrived ([`super::blocks`]).
    pub(crate) witness: Option<Witness>,
    /// The value of the word that the chunk must contain at the end; otherwise the operation has failed.
    pub(crate) expected: Option<u64>,
    /// Destination of the chunk's bytes once the operation has succeeded.
    pub(crate) into: SmallVec<[Block; 1]>,
    /// Registrations of memory of the user.
    pub(crate) leases: Leases,
    /// Whether the HCA accesses memory of the user directly.
    pub(crate) zcopy: bool,
    /// A cell to set once the operation has succeeded.
    pub(crate) notice: Option<Box<Notice>>,
}

impl Held {
    /// Cancels the operation: this rank no longer accesses the user's memory.
    pub(crate) fn cancel(&mut self) {
        self.owner = Owner::Cancelled;
        self.into.clear();
        self.notice = None;
    }
}

/// A work request.
pub(crate) struct Request {
    pub(crate) action: Action,
    pub(crate) pieces: SmallVec<[Piece; 2]>,
    /// Inline bytes, used instead of segments.
    pub(crate) inline: SmallVec<[u8; 32]>,
    pub(crate) immediate: Option<u32>,
    pub(crate) signalled: bool,
    /// Whether the next request belongs to the same operation.
    pub(crate) more: bool,
    /// Number of the packet after its last one, once it is posted.
    pub(crate) end: u32,
    pub(crate) held: Held,
}

impl Request {
    #[inline]
    fn new(action: Action) -> Self {
        Self {
            action,
            pieces: SmallVec::new(),
            inline: SmallVec::new(),
            immediate: None,
            signalled: false,
            more: false,
            end: 0,
            held: Held::default(),
        }
    }

    /// Resets an ended request to a new one. The allocations for segments and inline bytes are reused; the request
    /// holds no resources.
    #[inline]
    fn renew(&mut self, action: Action) {
        self.action = action;
        // SAFETY: the new lengths are shorter, and the elements are plain data that need no drop.
        unsafe {
            self.pieces.set_len(0);
            self.inline.set_len(0);
        }
        (self.immediate, self.signalled, self.more) = (None, false, false);
        (self.held.owner, self.held.zcopy) = (Owner::Nobody, false);
    }

    /// Length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        if self.inline.is_empty() { self.pieces.iter().map(|p| p.len as usize).sum() } else { self.inline.len() }
    }

    /// The inline bytes as a segment.
    #[inline]
    pub(crate) fn inline_piece(&self) -> Piece {
        Piece { address: self.inline.as_ptr().expose_provenance() as u64, len: self.inline.len() as u32, key: 0 }
    }

    /// The request with number `id`, in the form for the HCA.
    #[inline]
    pub(crate) fn order<'a>(&'a self, id: u64, inline_piece: &'a Piece) -> Order<'a> {
        let inline = !self.inline.is_empty();
        Order {
            id,
            action: self.action,
            pieces: if inline { std::slice::from_ref(inline_piece) } else { &self.pieces },
            inline,
            immediate: self.immediate,
            signalled: self.signalled,
        }
    }

    /// Appends bytes to the inline bytes. Memory that other code may write is read word by word.
    ///
    /// # Safety
    /// The block is valid for reads.
    #[inline(always)]
    pub(crate) unsafe fn append(&mut self, block: &Block) {
        let at = self.inline.len();
        if block.len > self.inline.capacity() - at {
            self.inline.reserve(block.len);
        }
        // SAFETY: there is space for the block after the `at` bytes, all of which are written before they count.
        unsafe {
            copy::load(block.base, self.inline.as_mut_ptr().add(at), block.len);
            self.inline.set_len(at + block.len);
        }
    }
}

/// A queue of requests. A later request is built in place in a slot that was used before, because moving a request
/// costs more than building it.
#[derive(Default)]
pub(crate) struct Ring {
    places: Vec<Request>,
    first: usize,
    len: usize,
}

impl Ring {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn place(&self, i: usize) -> usize {
        let at = self.first + i;
        if at < self.places.len() { at } else { at - self.places.len() }
    }

    #[inline]
    pub(crate) fn get(&self, i: usize) -> &Request {
        &self.places[self.place(i)]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, i: usize) -> &mut Request {
        let at = self.place(i);
        &mut self.places[at]
    }

    /// A slot after the last request, in which the caller builds a request.
    #[inline(always)]
    pub(crate) fn grow(&mut self, action: Action) -> &mut Request {
        if self.len == self.places.len() {
            self.places.rotate_left(self.first);
            self.first = 0;
            self.places.push(Request::new(action));
        }
        let at = self.place(self.len);
        self.len += 1;
        let request = &mut self.places[at];
        request.renew(action);
        request
    }

    /// Removes the first request; its slot stays unchanged until another request is built there.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<&mut Request> {
        self.len = self.len.checked_sub(1)?;
        let at = self.first;
        self.first = if at + 1 < self.places.len() { at + 1 } else { 0 };
        Some(&mut self.places[at])
    }

    /// Removes request `i`.
    #[cold]
    pub(crate) fn remove(&mut self, i: usize) -> Option<Request> {
        for i in (0..i).rev() {
            let (a, b) = (self.place(i), self.place(i + 1));
            self.places.swap(a, b);
        }
        self.pop().map(|place| std::mem::replace(place, Request::new(Action::Send)))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> {
        (0..self.len).map(|i| self.get(i))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn places_are_used_again_in_the_order_of_a_queue() {
        let (mut ring, mut expected) = (Ring::default(), VecDeque::new());
        let (mut next, mut state) = (0_u64, 1_u32);
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match state >> 29 {
                0..4 if expected.len() < 40 => {
                    next += 1;
                    let request = ring.grow(Action::Send);
                    assert!(
                        request.held.owner == Owner::Nobody && request.inline.is_empty() && request.pieces.is_empty()
                    );
                    request.held.owner = Owner::User(next);
                    request.inline.extend_from_slice(&next.to_le_bytes());
                    request.pieces.push(Piece { address: 0, len: 0, key: 7 });
                    expected.push_back(Owner::User(next));
                }
                4 if !expected.is_empty() => {
                    let i = (state >> 8) as usize % expected.len();
                    assert_eq!(ring.remove(i).map(|r| r.held.owner), expected.remove(i));
                }
                _ => {
                    let owner = ring.pop().map(|place| place.held.owner);
                    assert_eq!(owner, expected.pop_front());
                }
            }
            assert_eq!(ring.len(), expected.len());
        }
        assert!(ring.iter().map(|r| r.held.owner).eq(expected));
    }

    #[test]
    fn cancelled_operation_keeps_no_pointer() {
        let into = smallvec::smallvec![Block { base: std::ptr::dangling_mut(), len: 4 }];
        let mut held = Held { owner: Owner::User(7), into, zcopy: true, ..Held::default() };
        held.cancel();
        assert!(held.into.is_empty() && held.owner == Owner::Cancelled && held.zcopy);
    }
}
