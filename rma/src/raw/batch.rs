#![allow(unsafe_code)]
//! Accumulates that the target's CPU applies, if the device would need several steps for each
//! ([`farside_core::service::steps`]). This happens only in epochs in which the target enters the runtime before they
//! end: between fences, and from start to complete.
//!
//! Accumulates for one target are batched as records of offset and operand. A packet of records is sent when it is
//! full, and by the closing call. The target applies records in the order of issue. The last packet carries the
//! notification of the closing call, or requests an answer, which means that all records before it have been applied.
//!
//! | accumulates of one rank to one target, in one epoch | messages |
//! |---|---|
//! | to this rank itself | none |
//! | complete, and fences of two ranks, which notify the target | one for each full packet; the last is the notification |
//! | fences of more ranks | one for each full packet, and one answer |
//! | with former values | in addition an answer to each packet that requests former values |
//!
//! Every accumulate and compare-and-swap of such an epoch is applied this way, whatever its length, operation and type,
//! so that all are atomic with each other; those of [`super::update`] have a lock of their own. The HCA's atomics,
//! which need not be coherent with the CPU's, are used only in lock epochs: memory is never exposed and locked at the
//! same time (MPI-5.0 section 12.5.3). Attached memory (dynamic windows) is updated by the HCA's atomics in all epochs.

use farside_core::am::{self, Counters, HandlerId};
use farside_core::device::code::{self, Effect};
use farside_core::stats::Kind;
use farside_core::wire::Writer;
use farside_core::{Error, ErrorKind, Result};

use super::item::Item;
use super::records::{Accumulate, Batch, HEADER, NO_CELL, RECORDS, apply, room};
use super::{Access, RawWindow, Target};

impl RawWindow {
    /// Batches an accumulate or a compare-and-swap for `t` if the target's CPU applies it in the current epoch; returns
    /// whether it did. With `singly`, a request-based operation, it is complete on return.
    pub(super) fn batched(&self, t: &Target, item: &Item, singly: bool) -> Result<bool> {
        if !self.serving.accumulates || !matches!(self.access.get(), Access::Fence(_) | Access::Start) {
            return Ok(false);
        }
        let mut words = [0; 2];
        let Some(mut rest) = Accumulate::of(item, &mut words) else { return Ok(false) };
        if !(t.alignment + rest.offset).is_multiple_of(rest.size) {
            return Err(Error::new(ErrorKind::Misaligned, item.name())
                .rank(self.job.rank())
                .peer(t.region.peer)
                .cause(format!("byte {} of the window", rest.offset)));
        }
        self.stats().add(item.kind(), rest.len);
        if t.team_rank == self.team.rank() {
            let to = self.own.base.wrapping_add(rest.offset);
            // SAFETY: `to` is inside the window, which the call has checked; the buffers are valid by the contract of
            // the call that made the item.
            unsafe { apply(rest.code, to, rest.operand, rest.old, rest.len) };
            return Ok(true);
        }
        if rest.old.is_null() && code::effect(rest.code) == Effect::Read {
            return Ok(true);
        }
        let most = room(&self.job);
        while rest.len > 0 {
            // SAFETY: the operand is valid by the contract of the call that made the item.
            let taken = unsafe { rest.append(&mut t.batch.borrow_mut(), most) };
            if taken == 0 {
                self.send_batch(t, None, false)?;
            }
            rest.skip(taken);
        }
        if singly {
            self.complete_at(t.team_rank)?;
        }
        Ok(true)
    }

    /// Sends the batch for `t`, with `notify`, the cell and value of a notification, if given. `answered` requests an
    /// answer even if no former values are requested.
    pub(super) fn send_batch(&self, t: &Target, notify: Option<(usize, u64)>, answered: bool) -> Result<()> {
        if t.batch.borrow().is_empty() {
            return Ok(());
        }
        // `send_any` may wait, and another thread may issue operations meanwhile, so the batch is taken first.
        let Batch { mut records, old, .. } = t.batch.take();
        let number = if answered || !old.is_empty() { self.serving.answers.expect(&t.unanswered, old) } else { 0 };
        let (cell, value) = notify.map_or((NO_CELL, 0), |(cell, value)| (cell as u8, value));
        if notify.is_some() {
            self.stats().add(Kind::Notify, 8);
        }
        let me = self.team.rank() as u32;
        let header = Writer::new()
            .u8(RECORDS)
            .u8(cell)
            .u32(u32::from(self.serving.listener.id()))
            .u32(me)
            .u32(number)
            .u64(value);
        let (header, to) = (header.done(), HandlerId(t.listens));
        debug_assert_eq!(header.len(), HEADER);
        // SAFETY: the records are for the peer's window, in the format of its handler, in an epoch in which the window
        // is exposed.
        unsafe { am::send_any(&self.job, t.region.peer, to, &header, &records, Counters::default()) }?;
        let mut batch = t.batch.borrow_mut();
        if batch.is_empty() {
            records.clear();
            batch.records = records;
        }
        Ok(())
    }
}
