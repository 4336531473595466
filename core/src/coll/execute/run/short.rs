#![allow(unsafe_code)]
//! A blocking call made through [short data](crate::signal::short): every rank gives its data, reads the data of all
//! others, and computes the result of the algorithm. The steps of the schedule are not executed, since they take longer
//! than the signals.

use std::cell::Cell;
use std::rc::Rc;

use super::question::SHORT;
use super::{Run, State};
use crate::bill::Awaited;
use crate::coll::execute::memory::zip;
use crate::coll::execute::plan::Check;
use crate::coll::operation::Operation as O;
use crate::coll::schedule::{Side, Slice};
use crate::device::Block;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Pace;
use crate::signal::SignalArray;
use crate::signal::short::{Given, MOST, MOST_RANKS, Short};

/// Data that all ranks have given, by team rank.
type All = [Cell<Short>; MOST_RANKS];

impl Run {
    /// Bytes that each rank gives or reads, if the call can be made through short data.
    #[inline]
    pub(in crate::coll::execute) fn short(&self) -> Option<usize> {
        self.plan.short
    }

    /// Makes the call, with `len` bytes of each rank; `wait` waits until the call is over here.
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
            self.look_for_faults();
        }
        let flag = u64::from(self.sequence.get()) << 32 | u64::from(self.plan.check.0);
        let (size, me) = (self.plan.peers.len(), self.plan.schedule.rank() as usize);
        let all: All = Default::default();
        // SAFETY: the caller's promise.
        unsafe { self.read_own(len, &all[me]) };
        // The first rank whose data has not arrived, and the rank and flag of other data found in its place.
        let (next, other) = (Cell::new(0), Cell::new(None));
        let is_same = |flag: u64| (flag >> 32) as u32 == self.sequence.get();
        // Whether nothing is left to wait for.
        let look = || {
            while next.get() < size {
                let rank = next.get();
                if rank != me {
                    match signals.short_of(rank, flag) {
                        Given::Here(data) => all[rank].set(data),
                        Given::NotYet => return false,
                        Given::Other(other)
                            if is_same(other) && self.plan.other_call(Check(other as u32)).is_none() =>
                        {
                            self.compare(self.plan.peers[rank], SHORT);
                            return false;
                        }
                        Given::Other(flag) => {
                            other.set(Some((rank, flag)));
                            return true;
                        }
                    }
                }
                next.set(rank + 1);
            }
            true
        };
        signals.give_short(flag, len, &all[me].get(), look);
        if self.fault.borrow().is_none() && !look() && !self.job.look_for(Pace::ANSWER, look) {
            let ready = || look() || self.state.get() != State::Active || self.over.get().is_some();
            // The rank at which `look` has stopped.
            let awaited = || self.awaited(self.plan.peers.get(next.get()).copied());
            wait(&awaited, &ready)?;
        }
        if next.get() < size || self.fault.borrow().is_some() {
            if next.get() < size {
                signals.repeat_short();
            }
            self.end_in_vain(other.get());
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.do_short(len, &all) };
        }
        signals.fetch_short();
        self.short.set(false);
        Ok(())
    }

    /// Fails the call for lack of data, with the other data that was found, or with the error that was announced.
    #[cold]
    fn end_in_vain(self: &Rc<Self>, other: Option<(usize, u64)>) {
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

    /// Reads the data that this rank gives.
    ///
    /// # Safety
    /// The memory of the call is valid.
    #[inline]
    unsafe fn read_own(&self, len: usize, own: &Cell<Short>) {
        let (operation, me, root) = (self.plan.operation, self.plan.schedule.rank(), self.plan.root);
        // In a rooted operation only the root may have its data in place.
        let in_place = self.plan.in_place && (me == root || !operation.is_rooted());
        let slice = match operation {
            O::Barrier => return,
            O::Broadcast if me != root => return,
            O::Broadcast => Slice::output(0, 1),
            O::Allgather | O::Gather if in_place => Slice::output(me, 1),
            _ if in_place => Slice::output(0, 1),
            _ => Slice::input(0, 1),
        };
        let room = [Block { base: own.as_ptr().cast(), len: len.min(MOST) }];
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
    unsafe fn do_short(self: &Rc<Self>, len: usize, all: &All) {
        let is_root = self.plan.schedule.rank() == self.plan.root;
        let (size, buffers) = (self.plan.peers.len(), self.buffers());
        let fill = |slice: Slice, data: &Cell<Short>| {
            // SAFETY: `data` has `len` bytes; the output is the run's, by the caller's promise.
            unsafe { buffers.fill(&[slice], std::slice::from_raw_parts(data.as_ptr().cast(), len)) };
        };
        match self.plan.operation {
            O::Broadcast if !is_root => fill(Slice::output(0, 1), &all[self.plan.root as usize]),
            O::Reduce | O::Allreduce if self.plan.operation == O::Allreduce || is_root => {
                let elements = len / self.plan.element.max(1);
                let done = self.reduction.is_none_or(|reduction| {
                    let add = |operand: &Cell<Short>| {
                        let (operand, into) = (operand.as_ptr().cast_const().cast(), all[0].as_ptr().cast());
                        // SAFETY: both have `elements` elements, are aligned, and do not overlap.
                        unsafe { (reduction.function)(reduction.context, operand, into, elements, Side::Right) }
                    };
                    all[1..size].iter().all(add)
                });
                if done {
                    fill(Slice::output(0, 1), &all[0]);
                } else {
                    let e = Error::new(ErrorKind::Aborted, self.name()).rank(self.job.rank()).peer(self.job.rank());
                    self.fail(e.cause("the reduction has failed"), super::Announce::Others);
                    return;
                }
            }
            O::Gather | O::Allgather if self.plan.operation == O::Allgather || is_root => {
                all[..size].iter().enumerate().for_each(|(rank, data)| fill(Slice::output(rank as u32, 1), data));
            }
            _ => {}
        }
        self.state.set(State::Done);
        self.team.remove(self);
    }
}
