#![allow(unsafe_code)]
//! Ends operations: releases the resources that they held, and reports their results.

use std::collections::VecDeque;
use std::rc::Rc;

use super::request::{Held, Notice, Owner};
use crate::device::Block;
use crate::device::verbs::connect::credits::Credit;
use crate::device::verbs::memory::buffers::Pool;
use crate::device::verbs::memory::lent::Witness;
use crate::device::verbs::sys::qp::Action;
use crate::error::{Error, ErrorKind, Result};
use crate::stats::{Kind, Stats};

/// A transfer through bounce buffers, segment after segment, that is not complete.
pub(crate) struct Staged {
    pub(super) number: u64,
    /// Id of the user's operation.
    pub(super) id: u64,
    pub(super) peer: u32,
    /// Handle of the remote region.
    pub(super) region: u64,
    /// Write or read, at the remote address of the first remaining byte.
    pub(super) action: Action,
    /// The remaining local blocks.
    pub(super) blocks: VecDeque<Block>,
    /// Maximum length of a segment.
    pub(super) max_segment: usize,
    /// Number of segments outstanding.
    pub(super) open: usize,
    pub(super) error: Option<Error>,
    pub(super) notice: Option<Notice>,
}

/// The consequences of operations that end.
pub(crate) struct Outcomes {
    pub(crate) pool: Pool,
    pub(crate) credits: Vec<Credit>,
    /// Transfers of memory that cannot be registered.
    pub(crate) staged: VecDeque<Staged>,
    /// Operations of the user that have ended.
    pub(crate) done: VecDeque<(u64, Result<()>)>,
    /// Operations of the user that have not ended.
    pub(crate) open: usize,
    /// Notifications of completed operations, with the peers to which they are to be posted.
    pub(crate) notices: Vec<(u32, Notice)>,
    /// Operations whose data has arrived, with the peers and the witnesses that are to be read.
    pub(crate) witnessed: Vec<(u32, Witness, Held)>,
    pub(crate) stats: Rc<Stats>,
}

impl Outcomes {
    /// Handles the end of the last request of an operation on `peer`.
    ///
    /// # Safety
    /// If the operation has succeeded, the destination of the chunk's bytes is valid for writes.
    #[inline]
    pub(crate) unsafe fn end(&mut self, peer: u32, held: &mut Held, mut result: Result<()>) {
        if let Some(witness) = held.witness.take()
            && result.is_ok()
            && held.owner != Owner::Cancelled
        {
            held.leases.clear();
            held.zcopy = false;
            self.witnessed.push((peer, witness, std::mem::take(held)));
            return;
        }
        let mut taken = None;
        if let Some(chunk) = held.chunk.take() {
            if result.is_ok() && !held.into.is_empty() {
                // SAFETY: by the contract; a chunk is as long as the blocks together.
                let len = unsafe { self.pool.scatter(&chunk, &held.into) };
                if len > 8 {
                    self.stats.add(Kind::Copy, len);
                }
            }
            let expected = held.expected.take();
            if (held.owner == Owner::Credit || expected.is_some()) && result.is_ok() {
                // SAFETY: the first word of a chunk, which the HCA has written.
                let word = unsafe { self.pool.at(&chunk, 0).cast::<u64>().read() };
                match expected {
                    None => taken = Some(word),
                    Some(expected) if expected == word => {}
                    Some(_) => result = Err(revoked(peer)),
                }
            }
            held.into.clear();
            self.pool.give(chunk);
        }
        if !held.leases.is_empty() {
            held.leases.clear();
        }
        if let Some(notice) = held.notice.take()
            && result.is_ok()
        {
            self.notices.push((peer, *notice));
        }
        match held.owner {
            Owner::User(id) => self.end_user(id, result),
            Owner::Credit => self.credits[peer as usize].answered(taken),
            Owner::Piece(number) => self.end_piece(number, result),
            Owner::Nobody | Owner::Cancelled => {}
        }
    }

    #[inline]
    pub(crate) fn end_user(&mut self, id: u64, result: Result<()>) {
        self.open -= 1;
        self.done.push_back((id, result));
    }

    pub(super) fn end_piece(&mut self, number: u64, result: Result<()>) {
        let Some(at) = self.staged.iter().position(|s| s.number == number) else { return };
        let staged = &mut self.staged[at];
        staged.open -= 1;
        if let Err(e) = result {
            staged.blocks.clear();
            staged.error.get_or_insert(e);
        }
        if staged.open > 0 || !staged.blocks.is_empty() {
            return;
        }
        let Some(staged) = self.staged.remove(at) else { return };
        if let (None, Some(notice)) = (&staged.error, staged.notice) {
            self.notices.push((staged.peer, notice));
        }
        self.end_user(staged.id, staged.error.map_or(Ok(()), Err));
    }

    /// Whether the remaining requests of an operation need not be executed.
    pub(crate) fn is_over(&self, owner: Owner) -> bool {
        match owner {
            Owner::Cancelled => true,
            Owner::Piece(number) => self.staged.iter().all(|s| s.number != number || s.error.is_some()),
            Owner::Nobody | Owner::User(_) | Owner::Credit => false,
        }
    }
}

#[cold]
fn revoked(peer: u32) -> Error {
    Error::new(ErrorKind::Aborted, "read blocks of remote memory")
        .peer(peer)
        .device("verbs")
        .cause("the peer has already released the memory that it exported for this transfer")
}
