#![allow(unsafe_code)]
//! Operations under way: how many requests each still waits for, and what is to be done when the last has landed.

use smallvec::SmallVec;

use super::buffers::{Chunk, Pool};
use super::engine::Notice;
use super::user::Leases;
use crate::device::Block;
use crate::error::{Error, Result};
use crate::stats::{Kind, Stats};

/// Whom the end of a request concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Nobody: a packet, a signal.
    Nobody,
    /// The operation of this number.
    Op(u32),
    /// The caller of `post`, by its id: a request that is the whole operation, and holds nothing.
    User(u64),
    /// As `User`, of one that brings `len` bytes, 8 at most, into its chunk, from where they go to `to`; null: nowhere.
    Fetch { id: u64, to: *mut u8, len: usize },
    /// Nobody any more: the user has cancelled it.
    Cancelled,
}

impl Whose {
    /// The id of the user's operation that the request is as a whole.
    pub(super) fn user(self) -> Option<u64> {
        match self {
            Whose::User(id) | Whose::Fetch { id, .. } => Some(id),
            Whose::Nobody | Whose::Op(_) | Whose::Cancelled => None,
        }
    }
}

/// Who hears of the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The caller of `post`, by its id.
    User(u64),
    /// The credit for packets to the peer.
    Credit,
    /// The operation of which it is a part.
    Part(u32),
    /// Nobody: the user has cancelled it.
    Nobody,
}

/// Bytes to copy from the operation's chunk when it has succeeded.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyOut {
    pub(super) offset: usize,
    pub(super) to: *mut u8,
    pub(super) len: usize,
}

/// An operation.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) owner: Owner,
    pub(super) peer: u32,
    /// Requests that have not landed.
    pub(super) open: u32,
    pub(super) error: Option<Error>,
    pub(super) chunk: Option<Chunk>,
    pub(super) results: SmallVec<[CopyOut; 1]>,
    /// Registrations of memory of the user.
    pub(super) memories: Leases,
    /// The card itself reads or writes memory of the user.
    pub(super) direct: bool,
    /// A cell to set when it has succeeded.
    pub(super) notice: Option<Box<Notice>>,
}

impl Op {
    /// Has bytes of its chunk copied to blocks when it has succeeded, one behind the other.
    pub(super) fn copy_to(&mut self, blocks: &[Block]) {
        let mut offset = 0;
        for b in blocks {
            self.results.push(CopyOut { offset, to: b.base, len: b.len });
            offset += b.len;
        }
    }

    pub(super) fn new(owner: Owner, peer: u32, open: usize) -> Self {
        Self {
            owner,
            peer,
            open: open as u32,
            error: None,
            chunk: None,
            results: SmallVec::new(),
            memories: Leases::new(),
            direct: false,
            notice: None,
        }
    }
}

/// All operations, by number. Each stays in its place until it is [taken out](Ops::end).
#[derive(Debug, Default)]
pub(super) struct Ops {
    slots: Vec<Op>,
    free: Vec<u32>,
}

impl Ops {
    /// Takes in an operation of one request that holds nothing: [`add`](Self::add) without the way there.
    #[inline(always)]
    pub(super) fn add_plain(&mut self, owner: Owner, peer: u32) -> u32 {
        let Some(n) = self.free.pop() else { return self.add(Op::new(owner, peer, 1)) };
        // What ended here left nothing behind.
        let op = &mut self.slots[n as usize];
        (op.owner, op.peer, op.open, op.direct) = (owner, peer, 1, false);
        n
    }

    /// As [`add_plain`](Self::add_plain), of one that has a chunk, the first `len` bytes of which go to `to` in the end.
    #[inline]
    pub(super) fn add_with_chunk(
        &mut self,
        owner: Owner,
        peer: u32,
        chunk: Chunk,
        to: Option<(*mut u8, usize)>,
    ) -> u32 {
        let n = self.add_plain(owner, peer);
        let op = &mut self.slots[n as usize];
        op.chunk = Some(chunk);
        if let Some((to, len)) = to {
            op.results.push(CopyOut { offset: 0, to, len });
        }
        n
    }

    /// What is to be told when operation `number`, which was just added, has succeeded.
    pub(super) fn notify(&mut self, number: u32, notice: Notice) {
        if let Some(op) = self.slots.get_mut(number as usize) {
            op.notice = Some(Box::new(notice));
        }
    }

    pub(super) fn add(&mut self, op: Op) -> u32 {
        match self.free.pop() {
            Some(n) => {
                self.slots[n as usize] = op;
                n
            }
            None => {
                self.slots.push(op);
                self.slots.len() as u32 - 1
            }
        }
    }

    /// The operation of this number, if it is under way.
    pub(super) fn get(&self, number: u32) -> Option<&Op> {
        self.slots.get(number as usize).filter(|op| op.open > 0)
    }

    /// Whether the rest of an operation is not worth executing.
    pub(super) fn has_failed(&self, number: u32) -> bool {
        self.get(number).is_none_or(|op| match op.owner {
            Owner::Nobody => true,
            Owner::Part(of) => op.error.is_some() || self.has_failed(of),
            Owner::User(_) | Owner::Credit => op.error.is_some(),
        })
    }

    /// One request of an operation has landed; the operation, if that was the last: then it is to be
    /// [ended](Self::end).
    #[inline]
    pub(super) fn landed(&mut self, number: u32, result: Result<()>) -> Option<&mut Op> {
        let op = self.slots.get_mut(number as usize).filter(|op| op.open > 0)?;
        if let Err(e) = result {
            op.error.get_or_insert(e);
        }
        op.open -= 1;
        (op.open == 0).then_some(op)
    }

    /// The place of an operation that has [finished](Op::finish) is free.
    #[inline]
    pub(super) fn end(&mut self, number: u32) {
        self.free.push(number);
    }

    /// Takes away the local pointers of the operations that `which` chooses, and of their parts, and their owner; the
    /// numbers of those whose memory the card may still touch.
    pub(super) fn cancel(&mut self, which: &dyn Fn(u64) -> bool) -> Vec<u32> {
        let mut direct = Vec::new();
        for (number, op) in self.slots.iter_mut().enumerate().filter(|(_, op)| op.open > 0) {
            if matches!(op.owner, Owner::User(id) if which(id)) {
                op.owner = Owner::Nobody;
                op.results.clear();
                op.notice = None;
                if op.direct {
                    direct.push(number as u32);
                }
            }
        }
        for number in 0..self.slots.len() {
            let Owner::Part(of) = self.slots[number].owner else { continue };
            if self.slots[number].open > 0 && self.slots[of as usize].owner == Owner::Nobody {
                self.slots[number].results.clear();
            }
        }
        direct
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Op {
    /// Copies the results out and gives back all that the operation held, so that nothing is left in its place; how it
    /// went.
    ///
    /// # Safety
    /// The pointers of the results are valid, unless the operation was cancelled or has failed.
    #[inline]
    pub(super) unsafe fn finish(&mut self, pool: &mut Pool, stats: &Stats) -> Result<()> {
        if let Some(chunk) = self.chunk.take() {
            if self.error.is_none() {
                for r in &self.results {
                    // SAFETY: by the contract.
                    unsafe { pool.copy_out(&chunk, r.offset, r.to, r.len) };
                    if r.len > 8 {
                        stats.add(Kind::Copy, r.len);
                    }
                }
            }
            pool.give(chunk);
        }
        self.results.clear();
        if !self.memories.is_empty() {
            self.memories.clear();
        }
        self.error.take().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn operation_ends_with_its_last_request_and_keeps_the_first_error() {
        let mut ops = Ops::default();
        let n = ops.add(Op::new(Owner::User(7), 1, 3));
        assert!(ops.landed(n, Ok(())).is_none());
        assert!(ops.landed(n, Err(Error::new(ErrorKind::BadKey, "write"))).is_none());
        assert!(ops.has_failed(n));
        let op = ops.landed(n, Err(Error::new(ErrorKind::PeerLost, "write"))).unwrap();
        assert_eq!(op.error.take().unwrap().kind(), ErrorKind::BadKey);
        ops.end(n);
        assert!(ops.count() == 0 && ops.landed(n, Ok(())).is_none() && ops.get(n).is_none());
        assert_eq!(ops.add_plain(Owner::User(8), 2), n);
        let op = ops.get(n).unwrap();
        assert_eq!((op.owner, op.peer, op.open, op.error.is_none()), (Owner::User(8), 2, 1, true));
    }

    #[test]
    fn cancelled_operation_keeps_no_pointer() {
        let mut ops = Ops::default();
        let mut op = Op::new(Owner::User(7), 1, 1);
        op.results.push(CopyOut { offset: 0, to: std::ptr::dangling_mut(), len: 4 });
        op.direct = true;
        let n = ops.add(op);
        assert!(ops.cancel(&|id| id == 8).is_empty());
        assert_eq!(ops.cancel(&|id| id == 7), [n]);
        let op = ops.landed(n, Ok(())).unwrap();
        assert!(op.results.is_empty() && op.owner == Owner::Nobody);
    }
}
