#![allow(unsafe_code)]
//! A blocking call made through [short data](crate::signal::short): every rank gives its data, reads the data of all
//! others, and computes the result of the algorithm. The steps of the schedule are not executed, since they take longer
//! than the signals.

use std::cell::Cell;
use std::rc::Rc;

use smallvec::{SmallVec, smallvec};

use super::question::SHORT;
use super::{Run, State};
use crate::am::Payload;
use crate::bill::Awaited;
use crate::callback::Callback;
use crate::coll::execute::memory::zip;
use crate::coll::execute::plan::Check;
use crate::coll::operation::Operation as O;
use crate::coll::schedule::{Side, Slice};
use crate::device::Block;
use crate::error::Result;
use crate::progress::Pace;
use crate::signal::SignalArray;
use crate::signal::short::ShortData;

/// Data that this rank has read, of each rank by team rank.
struct All<'a> {
    words: &'a [Cell<u64>],
    /// Words of a rank.
    each: usize,
    /// Bytes of a rank before the data, and of the data.
    skip: usize,
    len: usize,
}

impl All<'_> {
    fn words(&self, rank: usize) -> &[Cell<u64>] {
        &self.words[rank * self.each..][..self.each]
    }

    fn data(&self, rank: usize) -> *mut u8 {
        self.words(rank).as_ptr().cast_mut().cast::<u8>().wrapping_add(self.skip)
    }
}

impl Run {
    /// Bytes of a block, if the call can be made through short data.
    #[inline]
    pub(in crate::coll::execute) fn short(&self) -> Option<usize> {
        self.plan.short
    }

    /// Makes the call, with blocks of `len` bytes; `wait` waits until the call is over here.
    ///
    /// # Safety
    /// The contract of [`start`](Self::start).
    ///
    /// # Errors
    /// The error of `wait`; `Freed`. Whether the call has failed is reported by [`outcome`](Self::outcome).
    #[inline]
    pub(in crate::coll::execute) unsafe fn make_short(
        self: &Rc<Self>,
        signals: &SignalArray,
        len: usize,
        wait: impl FnOnce(&dyn Fn() -> Awaited, &dyn Fn() -> bool) -> Result<()>,
    ) -> Result<()> {
        self.begin()?;
        self.short.set(true);
        self.open.set(1);
        if !self.team.is_quiet() {
            self.ready.borrow_mut().clear();
            self.take_early();
            self.check_faults();
        }
        let flag = u64::from(self.sequence.get()) << 32 | u64::from(self.plan.check.0);
        let (size, me) = (self.plan.peers.len(), self.plan.schedule.rank() as usize);
        // Of data that has a block for each rank, others' blocks are not read.
        let (given, begin) = if self.plan.operation.has_block_for_each() { (size * len, me * len) } else { (len, 0) };
        let (first, skip) = (begin / 8, begin % 8);
        let each = (skip + len).div_ceil(8);
        let mut words: SmallVec<[u64; 32]> = smallvec![0; size * each];
        let all = All { words: Cell::from_mut(&mut words[..]).as_slice_of_cells(), each, skip, len };
        let from_root = matches!(self.plan.operation, O::Broadcast | O::Scatter);
        let given = if from_root && me as u32 != self.plan.root { 0 } else { given };
        let mut own: SmallVec<[u64; 16]> = smallvec![0; given.div_ceil(8)];
        // SAFETY: the caller's promise.
        unsafe { self.read_own(&mut own, given) };
        all.words(me).iter().zip(own.get(first..).unwrap_or_default()).for_each(|(to, word)| to.set(*word));
        // The first rank whose data has not arrived, and the rank and flag of other data found in its place.
        let (next, other) = (Cell::new(0), Cell::new(None));
        let is_same = |flag: u64| (flag >> 32) as u32 == self.sequence.get();
        // Whether nothing is left to wait for.
        let look = || {
            while next.get() < size {
                let rank = next.get();
                if rank != me {
                    let into = if self.reads(rank) { all.words(rank) } else { &[] };
                    match signals.read_inline(rank, flag, first, into) {
                        ShortData::Ready => {}
                        ShortData::Pending => return false,
                        ShortData::Mismatch(other)
                            if is_same(other) && self.plan.other_call(Check(other as u32)).is_none() =>
                        {
                            self.compare(self.plan.peers[rank], SHORT);
                            return false;
                        }
                        ShortData::Mismatch(flag) => {
                            other.set(Some((rank, flag)));
                            return true;
                        }
                    }
                }
                next.set(rank + 1);
            }
            true
        };
        signals.publish_inline(flag, given, &own, look);
        if self.fault.borrow().is_none() && !look() && !self.job.spin_for(Pace::ANSWER, look) {
            let ready = || look() || self.state.get() != State::Active || self.over.get().is_some();
            // The rank at which `look` has stopped.
            let awaited = || self.awaited(self.plan.peers.get(next.get()).copied());
            if let Err(e) = wait(&awaited, &ready) {
                if next.get() < size {
                    signals.repeat_short();
                }
                self.short.set(false);
                return Err(e);
            }
        }
        if next.get() < size || self.fault.borrow().is_some() {
            if next.get() < size {
                signals.repeat_short();
            }
            self.end_unmatched(other.get());
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.do_short(&all) };
        }
        signals.fetch_short();
        self.short.set(false);
        Ok(())
    }

    /// Fails the call for lack of data, with the other data that was found, or with the error that was announced.
    #[cold]
    fn end_unmatched(self: &Rc<Self>, other: Option<(usize, u64)>) {
        /// Turns of progress in which a message that was sent earlier arrives.
        const TURNS: usize = 64;
        let is_same = |flag: u64| (flag >> 32) as u32 == self.sequence.get();
        if other.is_some_and(|(_, flag)| !is_same(flag)) {
            // A rank that has gone on has announced its error, which is more precise.
            let over = || self.fault.borrow().is_some() || self.state.get() != State::Active;
            let _ = (0..TURNS).any(|_| over() || self.job.progress().is_err());
        }
        let over = self.over.take();
        if let Some((rank, flag)) = other {
            let other_call = self.plan.other_call(Check(flag as u32)).filter(|_| is_same(flag));
            let gone_on = || format!("it has gone on after a {} that has failed", self.name());
            self.mismatch(self.plan.peers[rank], other_call.unwrap_or_else(gone_on));
        } else if let Some(source) = over {
            self.mismatch(source, format!("its {} is over, without what this rank waits for", self.name()));
        }
        self.advance();
    }

    /// Whether the call's result at this rank depends on the data of team rank `rank`.
    #[inline]
    fn reads(&self, rank: usize) -> bool {
        let (me, root) = (self.plan.schedule.rank(), self.plan.root);
        match self.plan.operation {
            O::Broadcast | O::Scatter => rank as u32 == root,
            O::Gather | O::Reduce => me == root,
            O::Scan | O::Exscan => rank < me as usize,
            _ => true,
        }
    }

    /// Reads the data that this rank gives, `len` bytes.
    ///
    /// # Safety
    /// The memory of the call is valid.
    #[inline]
    unsafe fn read_own(&self, own: &mut [u64], len: usize) {
        let (operation, me, root) = (self.plan.operation, self.plan.schedule.rank(), self.plan.root);
        // In a rooted operation only the root may have its data in place.
        let in_place = self.plan.in_place && (me == root || !operation.is_rooted());
        let slice = match operation {
            O::Barrier => return,
            O::Broadcast | O::Scatter if me != root => return,
            O::Broadcast => Slice::output(0, 1),
            O::Allgather | O::Gather if in_place => Slice::output(me, 1),
            O::Scatter | O::Alltoall | O::ReduceScatter => Slice::input(0, self.plan.peers.len() as u32),
            _ if in_place => Slice::output(0, 1),
            _ => Slice::input(0, 1),
        };
        let room = [Block { base: own.as_mut_ptr().cast(), len }];
        let copy = |from: *const u8, into: *mut u8, len: usize| {
            // SAFETY: the source is valid by the caller's promise; the destination has the room.
            unsafe { std::ptr::copy_nonoverlapping(from, into, len) };
            true
        };
        let buffers = self.buffers();
        match buffers.contiguous(&[slice]) {
            Some(block) => zip(&[block], &room, 1, copy),
            None => zip(&buffers.each(&[slice]), &room, 1, copy),
        };
    }

    /// Performs the operation on the data of all ranks, and ends the run.
    ///
    /// # Safety
    /// The contract of [`start`](Self::start).
    #[inline]
    unsafe fn do_short(self: &Rc<Self>, all: &All<'_>) {
        let (size, me, root) = (self.plan.peers.len(), self.plan.schedule.rank() as usize, self.plan.root as usize);
        let buffers = self.buffers();
        let fill = |slice: Slice, rank: usize| {
            // SAFETY: the data has `len` bytes; the output is the run's, by the caller's promise.
            unsafe { buffers.fill(&[slice], Payload::Bytes(std::slice::from_raw_parts(all.data(rank), all.len))) };
        };
        // The data of the ranks before this one is reduced.
        let end = match self.plan.operation {
            O::Scan => me + 1,
            O::Exscan => me,
            _ => size,
        };
        match self.plan.operation {
            O::Broadcast if me == root => {}
            O::Scatter if me == root && self.plan.in_place => {}
            O::Broadcast | O::Scatter => fill(Slice::output(0, 1), root),
            O::Reduce if me != root => {}
            O::Reduce | O::Allreduce | O::ReduceScatter | O::Scan | O::Exscan if end > 0 => {
                let elements = all.len / self.plan.element.max(1);
                let done = self.reduction.map_or(Ok(()), |reduction| {
                    let add = |rank: usize| {
                        let (operand, into) = (all.data(rank).cast_const(), all.data(0));
                        // SAFETY: both have `elements` elements, are aligned, and do not overlap.
                        unsafe { (reduction.function)(reduction.context, operand, into, elements, Side::Right) }
                    };
                    let _inside = self.job.inside(Callback::Operator);
                    (1..end).try_for_each(add)
                });
                if let Err(e) = done {
                    self.fail(self.operator_failed(e), super::Announce::Others);
                    return;
                }
                fill(Slice::output(0, 1), 0);
            }
            O::Gather if me != root => {}
            O::Gather | O::Allgather | O::Alltoall => {
                (0..size).for_each(|rank| fill(Slice::output(rank as u32, 1), rank));
            }
            _ => {}
        }
        self.state.set(State::Done);
        self.team.remove(self);
    }
}
