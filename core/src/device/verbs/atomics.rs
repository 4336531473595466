#![allow(unsafe_code)]
//! Atomics and accumulates of the seam: one request to the card where it has what is asked for and nothing is before
//! it, else an update in steps (`super::accumulate`).

use super::cut::Limits;
use super::engine::{Engine, Notice};
use super::ops::{Owner, Whose};
use super::post::counted;
use super::sys::qp::Action;
use super::update::{Update, What};
use crate::device::{Block, Place, Posted, WorkRequest, code};
use crate::error::{Error, ErrorKind, Result};
use crate::stats::{Kind, Stats};

impl Engine {
    /// One atomic of the card on 8 bytes.
    ///
    /// # Safety
    /// `old` is null, or valid for 8 bytes until the operation is complete or cancelled.
    pub(super) unsafe fn atomic(
        &mut self,
        request: &WorkRequest<'_>,
        action: Action,
        old: *mut u8,
        notice: Option<Notice>,
        stats: &Stats,
    ) -> Result<Posted> {
        self.fetch(request.peer, request.id, action, (old, 8), notice, stats)
    }

    /// A read or an atomic of at most 8 bytes, which go to `to` by way of a chunk; nowhere, if that is null.
    pub(super) fn fetch(
        &mut self,
        peer: u32,
        id: u64,
        action: Action,
        (to, len): (*mut u8, usize),
        notice: Option<Notice>,
        stats: &Stats,
    ) -> Result<Posted> {
        if self.ready(peer)?.is_none_or(|s| s.room() < 2) {
            return Ok(Posted::Busy);
        }
        let Some(chunk) = self.pool.take_word() else { return Ok(Posted::Busy) };
        let piece = self.pool.piece(&chunk, 0, len);
        let Some(notice) = notice else {
            self.whole += 1;
            self.push_one(peer, action, stats, |flight| {
                flight.pieces.push(piece);
                (flight.whose, flight.signalled, flight.chunk) = (Whose::Fetch { id, to, len }, true, Some(chunk));
            });
            return Ok(Posted::Pending);
        };
        let to = (!to.is_null()).then_some((to, len));
        let op = self.ops.add_with_chunk(Owner::User(id), peer, chunk, to);
        self.post_single(peer, op, action, |f| f.pieces.push(piece), Some(notice), stats);
        Ok(Posted::Pending)
    }

    /// # Safety
    /// As [`crate::device::Device::post`].
    #[allow(clippy::too_many_arguments)]
    pub(super) unsafe fn compare_swap(
        &mut self,
        request: &WorkRequest<'_>,
        at: Place,
        len: usize,
        (expected, desired): (u64, u64),
        old: *mut u8,
        notice: Option<Notice>,
        stats: &Stats,
    ) -> Result<Posted> {
        const OP: &str = "compare and swap";
        if !matches!(len, 1 | 2 | 4 | 8) {
            return Err(Error::new(ErrorKind::BadArgument, OP).cause(format!("an integer of {len} bytes")));
        }
        let import = self.regions.region(request.peer, at, len, OP)?;
        let address = import.aligned(at.offset, len, OP)?;
        if len == 8 && self.updates[request.peer as usize].is_empty() {
            let action = Action::CompareSwap { address, key: import.key, expected, desired };
            // SAFETY: the same contract.
            let posted = unsafe { self.atomic(request, action, old, notice, stats) }?;
            return Ok(counted(posted, Kind::CompareSwap, len, stats));
        }
        let what = if len == 8 { What::Swap { expected, desired } } else { What::SwapLocked { expected, desired } };
        let update = Update::new(request.id, import, at.offset, what, Vec::new(), old, len, notice);
        Ok(self.queue(update, Kind::CompareSwap, stats))
    }

    /// # Safety
    /// As [`crate::device::Device::post`].
    #[allow(clippy::too_many_arguments)]
    pub(super) unsafe fn accumulate(
        &mut self,
        request: &WorkRequest<'_>,
        at: Place,
        code: u32,
        operand: Block,
        old: *mut u8,
        notice: Option<Notice>,
        stats: &Stats,
    ) -> Result<Posted> {
        const OP: &str = "accumulate";
        let import = self.regions.find(request.peer, at, operand.len, OP)?;
        let f = import.accumulate.ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, OP)
                .peer(import.peer)
                .device("verbs")
                .cause("the region was imported without a function for accumulates")
        })?;
        if operand.len == 0 {
            // SAFETY: no bytes.
            return unsafe { self.write(request, &[], at, notice, Limits { pieces: 1, message: 1 }, stats) };
        }
        let size = code::element(code);
        if size > 0 {
            import.aligned(at.offset, size, OP)?;
        }
        let words = size == 8 && operand.len.is_multiple_of(8);
        let what = match code::effect(code) {
            code::Effect::Read if words => What::Read,
            code::Effect::Add if words => What::Add,
            _ if words => What::Words(f, code),
            _ => What::Locked(f, code),
        };
        let (address, key) = (import.address(at.offset), import.key);
        if let (What::Add, 8, true) = (what, operand.len, self.updates[request.peer as usize].is_empty()) {
            let mut add = 0u64;
            // SAFETY: a private operand of 8 bytes.
            unsafe { std::ptr::copy_nonoverlapping(operand.base, (&raw mut add).cast(), 8) };
            let action = Action::FetchAdd { address, key, add };
            // SAFETY: the same contract.
            let posted = unsafe { self.atomic(request, action, old, notice, stats) }?;
            return Ok(counted(posted, Kind::Accumulate, 8, stats));
        }
        let import = *import;
        let mut bytes = vec![0u8; operand.len];
        // SAFETY: by the contract; the vector has that length.
        unsafe { std::ptr::copy_nonoverlapping(operand.base, bytes.as_mut_ptr(), operand.len) };
        stats.add(Kind::Copy, operand.len);
        let update = Update::new(request.id, import, at.offset, what, bytes, old, operand.len, notice);
        Ok(self.queue(update, Kind::Accumulate, stats))
    }

    fn queue(&mut self, update: Update, kind: Kind, stats: &Stats) -> Posted {
        /// Updates to one peer that may wait.
        const MOST: usize = 1024;
        if self.updates[update.import.peer as usize].len() >= MOST {
            return Posted::Busy;
        }
        stats.add(kind, update.len);
        if update.notice.is_some() {
            stats.add(Kind::Notify, 8);
        }
        self.update(update, stats);
        Posted::Pending
    }
}
