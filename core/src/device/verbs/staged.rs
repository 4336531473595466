#![allow(unsafe_code)]
//! Transfers of memory that cannot be registered: what the limit of locked memory does not leave room for goes through
//! chunks, piece after piece (bcopy). A transfer is an operation, each of its pieces one of its own ([`Owner::Part`]).

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::buffers::{Chunk, LARGEST};
use super::cut::Limits;
use super::engine::{Engine, Notice};
use super::ops::{Op, Owner};
use super::sys::qp::Action;
use crate::device::{Block, Posted, WorkRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::stats::{Kind, Stats};

/// A transfer as far as it has not been posted.
#[derive(Debug)]
pub(super) struct Staged {
    /// Its operation, which waits for all pieces.
    op: u32,
    peer: u32,
    /// Of the first byte that is left: a write or a read.
    action: Action,
    blocks: VecDeque<Block>,
    /// Longest piece, and how many are left.
    most: usize,
    pieces: usize,
}

/// Takes up to `len` bytes off the front.
fn take(blocks: &mut VecDeque<Block>, len: usize) -> SmallVec<[Block; 4]> {
    let (mut out, mut room) = (SmallVec::new(), len);
    while let Some(front) = blocks.front_mut().filter(|_| room > 0) {
        let len = front.len.min(room);
        out.push(Block { len, ..*front });
        (front.base, front.len, room) = (front.base.wrapping_add(len), front.len - len, room - len);
        if front.len == 0 {
            blocks.pop_front();
        }
    }
    out
}

impl Engine {
    /// Begins a transfer, whose request has been checked.
    ///
    /// # Safety
    /// As [`crate::device::Device::post`].
    pub(super) unsafe fn stage(
        &mut self,
        request: &WorkRequest<'_>,
        blocks: &[Block],
        action: Action,
        notice: Option<Notice>,
        limits: Limits,
        stats: &Stats,
    ) -> Posted {
        let len = blocks.iter().map(|b| b.len).sum::<usize>();
        let most = LARGEST.min(limits.message);
        let pieces = len.div_ceil(most);
        let mut op = Op::new(Owner::User(request.id), request.peer, pieces);
        if notice.is_some() {
            stats.add(Kind::Notify, 8);
            op.notice = notice.map(Box::new);
        }
        let blocks = blocks.iter().filter(|b| b.len > 0).copied().collect();
        let op = self.ops.add(op);
        self.staged.push_back(Staged { op, peer: request.peer, action, blocks, most, pieces });
        self.todo = true;
        self.drive_staged(stats);
        Posted::Pending
    }

    /// Posts pieces as far as there are chunks and places in send queues; ends what has failed or was cancelled.
    pub(super) fn drive_staged(&mut self, stats: &Stats) {
        for _ in 0..self.staged.len() {
            let Some(mut staged) = self.staged.pop_front() else { return };
            match self.post_pieces(&mut staged, stats) {
                Ok(()) if staged.pieces == 0 => {}
                Ok(()) => self.staged.push_back(staged),
                Err(e) => (0..staged.pieces).for_each(|_| self.op_landed(staged.op, Err(e.again()), stats)),
            }
        }
    }

    fn post_pieces(&mut self, staged: &mut Staged, stats: &Stats) -> Result<()> {
        while staged.pieces > 0 {
            if self.ops.has_failed(staged.op) {
                return Err(Error::new(ErrorKind::Aborted, "move memory in pieces").cause("an earlier piece failed"));
            }
            if self.ready(staged.peer)?.is_none_or(|s| s.room() == 0) {
                return Ok(());
            }
            let Some(chunk) = self.pool.take(staged.most) else { return Ok(()) };
            let blocks = take(&mut staged.blocks, staged.most);
            let len = blocks.iter().map(|b| b.len).sum::<usize>();
            let piece = self.pool.piece(&chunk, 0, len);
            let action = staged.action;
            let writes = match &mut staged.action {
                Action::Write { address, .. } => {
                    *address += len as u64;
                    true
                }
                Action::Read { address, .. } => {
                    *address += len as u64;
                    false
                }
                _ => return Err(Error::new(ErrorKind::BadArgument, "move memory in pieces")),
            };
            staged.pieces -= 1;
            // SAFETY: memory of an operation that is neither complete nor cancelled.
            let part = unsafe { self.part(staged.op, staged.peer, chunk, &blocks, writes, stats) };
            self.post_single(staged.peer, part, action, |f| f.pieces.push(piece), None, stats);
        }
        Ok(())
    }

    /// Adds the operation that moves blocks through a chunk, which has room for them, as a part of operation `of`.
    ///
    /// # Safety
    /// The blocks are valid until `of` is complete or cancelled.
    unsafe fn part(&mut self, of: u32, peer: u32, chunk: Chunk, blocks: &[Block], writes: bool, stats: &Stats) -> u32 {
        let mut op = Op::new(Owner::Part(of), peer, 1);
        if writes {
            // SAFETY: by the contract.
            unsafe { self.pool.gather(&chunk, 0, blocks) };
            stats.add(Kind::Copy, blocks.iter().map(|b| b.len).sum());
        } else {
            op.copy_to(blocks);
        }
        op.chunk = Some(chunk);
        self.ops.add(op)
    }

    /// Whether a piece can be posted now.
    pub(super) fn is_stage_restless(&self) -> bool {
        !self.staged.is_empty() && self.pool.has_largest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_cut_across_blocks() {
        let block = |at: usize, len| Block { base: std::ptr::without_provenance_mut(at), len };
        let mut blocks = VecDeque::from([block(100, 3), block(200, 10), block(300, 1)]);
        let mut next = |len| take(&mut blocks, len).iter().map(|b| (b.base.addr(), b.len)).collect::<Vec<_>>();
        assert_eq!(next(5), [(100, 3), (200, 2)]);
        assert_eq!(next(8), [(202, 8)]);
        assert_eq!(next(8), [(300, 1)]);
        assert!(next(8).is_empty());
    }
}
