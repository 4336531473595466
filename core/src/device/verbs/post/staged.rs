#![allow(unsafe_code)]
//! Transfers of memory that cannot be registered because of the limit of locked memory: they go through bounce buffers,
//! segment after segment (bcopy). Each segment is a request whose owner is the transfer ([`Owner::Piece`]).

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::engine::Engine;
use super::outcomes::Staged;
use super::posting::region_of;
use super::request::{Held, Notice, Owner};
use crate::device::verbs::memory::buffers::MAX_CHUNK;
use crate::device::verbs::sys::qp::Action;
use crate::device::{Block, Posted, WorkRequest};
use crate::error::Result;
use crate::stats::Kind;

/// Removes up to `len` bytes from the front.
fn take(blocks: &mut VecDeque<Block>, len: usize) -> SmallVec<[Block; 1]> {
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
    /// Begins a transfer whose request has been checked.
    ///
    /// # Safety
    /// All local pointers stay valid (and exclusive where written) until the request has completed.
    pub(super) unsafe fn stage(
        &mut self,
        request: &WorkRequest<'_>,
        blocks: &[Block],
        action: Action,
        notice: Option<Notice>,
    ) -> Posted {
        let region = region_of(request);
        self.transfers += 1;
        self.out.open += 1;
        self.out.staged.push_back(Staged {
            number: self.transfers,
            id: request.id,
            peer: request.peer,
            region,
            action,
            blocks: blocks.iter().filter(|b| b.len > 0).copied().collect(),
            max_segment: MAX_CHUNK.min(self.regions.limits(region, self.limits).message),
            open: 0,
            error: None,
            notice,
        });
        self.todo = true;
        self.drive_staged();
        Posted::Pending
    }

    /// Posts segments as far as there are bounce buffers and queue slots.
    pub(super) fn drive_staged(&mut self) {
        for _ in 0..self.out.staged.len() {
            let Some(mut staged) = self.out.staged.pop_front() else { return };
            let result = self.post_pieces(&mut staged);
            let number = staged.number;
            self.out.staged.push_back(staged);
            if let Err(e) = result {
                // This counts as a segment that could not be posted.
                self.out.staged.back_mut().into_iter().for_each(|s| s.open += 1);
                self.out.end_piece(number, Err(e));
            }
        }
    }

    fn post_pieces(&mut self, staged: &mut Staged) -> Result<()> {
        while !staged.blocks.is_empty() {
            if self.ready(staged.peer)?.is_none_or(|q| q.room() == 0) {
                return Ok(());
            }
            let Some(chunk) = self.out.pool.take(staged.max_segment) else { return Ok(()) };
            let blocks = take(&mut staged.blocks, staged.max_segment);
            let len = blocks.iter().map(|b| b.len).sum::<usize>();
            let piece = self.out.pool.piece(&chunk, 0, len);
            let action = self.regions.keyed(staged.region, staged.action);
            staged.action = action.behind(len as u64);
            staged.open += 1;
            let mut held = Held { owner: Owner::Piece(staged.number), ..Held::default() };
            if let Action::Write { .. } = action {
                // SAFETY: the operation is neither complete nor cancelled, so its memory is valid; the chunk has room.
                unsafe { self.out.pool.gather(&chunk, 0, &blocks) };
                self.out.stats.add(Kind::Copy, len);
            } else {
                held.into = blocks;
            }
            held.chunk = Some(chunk);
            self.post_one(staged.peer, action, |r| {
                r.pieces.push(piece);
                (r.signalled, r.held) = (true, held);
            });
        }
        Ok(())
    }

    /// Whether a segment can be posted now.
    pub(super) fn can_stage(&self) -> bool {
        self.out.staged.iter().any(|s| !s.blocks.is_empty()) && self.out.pool.has_largest()
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
