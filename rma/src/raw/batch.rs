#![allow(unsafe_code)]
//! Accumulates that the processor of their target carries out, where the device would make each of steps
//! ([`farside_core::service::steps`]). That is in epochs in which the target comes into the runtime before they end: between
//! fences, and from start to complete.
//!
//! What is issued for one target is gathered as records of place and operand, and sent as one packet when that is full, and by
//! the closing call. The target carries records out in the order of issue. The last packet carries the notification of
//! the closing call, or asks for an answer, which says that all before it have been carried out.
//!
//! | accumulates of one rank to one target, in one epoch | messages |
//! |---|---|
//! | to this rank itself | none |
//! | complete, and fences of two ranks, which notify the target | one for each full packet; the last is the notification |
//! | fences of more ranks | one for each full packet, and one answer |
//! | with former values | the same, and an answer to each packet of which some are wanted |
//!
//! Every accumulate and compare-and-swap of such an epoch goes this way, whatever its length, operation and type, so that all are
//! atomic with each other; those of [`super::update`] have a lock of their own. The HCA's atomics, which need not be
//! coherent with the processor's, are those of epochs of locks alone: memory is never exposed and locked at the same time (MPI-5.0
//! section 12.5.3). Attached memory (dynamic windows) has the HCA's atomics in all epochs.

use farside_core::am::{self, Counters, HandlerId};
use farside_core::device::code::{self, Effect};
use farside_core::stats::Kind;
use farside_core::wire::Writer;
use farside_core::{Error, ErrorKind, Result};

use super::item::Item;
use super::records::{Accumulate, Batch, HEADER, NO_CELL, RECORDS, apply, room};
use super::{Access, RawWindow, Target};

impl RawWindow {
    /// Takes an accumulate or a compare-and-swap for `t`, if in the present epoch the processor of the target carries it out:
    /// whether that is so. One that is waited for singly is complete on return.
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
            // SAFETY: inside the window, by the check of the call; the buffers by the contract of the call that made the item.
            unsafe { apply(rest.code, to, rest.operand, rest.old, rest.len) };
            return Ok(true);
        }
        if rest.old.is_null() && code::effect(rest.code) == Effect::Read {
            return Ok(true);
        }
        let most = room(&self.job);
        while rest.len > 0 {
            // SAFETY: by the contract of the call that made the item.
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

    /// Sends what is gathered for `t`: with a notification, the cell and its value, or to be answered, also if no former values
    /// are wanted.
    pub(super) fn send_batch(&self, t: &Target, notify: Option<(usize, u64)>, answered: bool) -> Result<()> {
        if t.batch.borrow().is_empty() {
            return Ok(());
        }
        // The call may wait, and another thread issue operations meanwhile.
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
        // SAFETY: records for the window of the peer, as its handler reads them, in an epoch in which it is exposed.
        unsafe { am::send_any(&self.job, t.region.peer, to, &header, &records, Counters::default()) }?;
        let mut batch = t.batch.borrow_mut();
        if batch.is_empty() {
            records.clear();
            batch.records = records;
        }
        Ok(())
    }
}
