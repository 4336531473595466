#![allow(unsafe_code)]
//! A blocking call made through [short data](crate::signal::short): every rank publishes its data, reads the data of
//! the others, and executes the local part of its schedule's steps on it.

use std::cell::Cell;
use std::rc::Rc;

use smallvec::SmallVec;

use super::question::SHORT;
use super::{Run, State};
use crate::am::Payload;
use crate::bill::Awaited;
use crate::coll::execute::one_round::OneRound;
use crate::coll::execute::plan::Check;
use crate::coll::schedule::Action;
use crate::device::Block;
use crate::error::Result;
use crate::progress::Pace;
use crate::signal::SignalArray;
use crate::signal::short::{ShortData, lowest};

impl Run {
    /// Whether the call can be made through short data.
    #[inline]
    pub(in crate::coll::execute) fn is_short(&self) -> bool {
        self.plan.short.is_some()
    }

    /// Makes a call that [is short](Self::is_short); `wait` waits until the call has ended at this rank.
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
        wait: impl FnOnce(&dyn Fn() -> Awaited, &dyn Fn() -> bool) -> Result<()>,
    ) -> Result<()> {
        let Some(OneRound { own, given, len, begin, reads, readers, steps }) = &self.plan.short else { return Ok(()) };
        self.begin_unlisted()?;
        self.short.set(true);
        self.open.set(1);
        // Handlers of messages, which run only in turns of progress, find the run in the list.
        let is_listed = Cell::new(false);
        let list = || {
            if !is_listed.replace(true) {
                self.team.add(self);
            }
        };
        if !self.team.is_quiet() {
            list();
            self.ready.borrow_mut().clear();
            self.take_early();
            self.check_faults();
        }
        let flag = u64::from(self.sequence.get()) << 32 | u64::from(self.plan.check.0);
        let (first, skip) = (begin / 8, begin % 8);
        let each = (skip + len).div_ceil(8);
        // Words of the data of each rank that is read, in the order of the ranks.
        let words = |rank: usize| {
            let before = (reads & ((1 << rank) - 1)).count_ones() as usize;
            &self.words[before * each..][..each]
        };
        let mut gathered: SmallVec<[u64; 16]> = SmallVec::new();
        let data = match own {
            None => Block { base: std::ptr::null_mut(), len: 0 },
            Some(own) => self.buffers().contiguous(&[*own]).unwrap_or_else(|| {
                gathered.resize(given.div_ceil(8), 0);
                let block = Block { base: gathered.as_mut_ptr().cast(), len: *given };
                // SAFETY: by the caller's contract; the data fits into its slice.
                unsafe { self.buffers().gather(&[*own], block) };
                block
            }),
        };
        let (turn, is_published) = (signals.turn(), Cell::new(false));
        // The rank and flag of data of another call, found instead of the data of this call.
        let other = Cell::new(None);
        let is_same = |flag: u64| (flag >> 32) as u32 == self.sequence.get();
        self.missing.set(*reads);
        // Whether the data of `rank` has been read now.
        let read = |rank: usize, everywhere: bool| {
            match signals.read_inline(rank, (turn, flag), first, words(rank), everywhere) {
                ShortData::Ready => {
                    self.missing.set(self.missing.get() & !(1 << rank));
                    return true;
                }
                ShortData::Pending => {}
                ShortData::Mismatch(other) if is_same(other) && self.plan.other_call(Check(other as u32)).is_none() => {
                    self.compare(self.plan.peers[rank], SHORT);
                }
                ShortData::Mismatch(flag) => other.set(Some((rank, flag))),
            }
            false
        };
        let read_all = |everywhere: bool| {
            while let Some(rank) = lowest(self.missing.get()) {
                if !read(rank, everywhere) {
                    return false;
                }
            }
            true
        };
        // In most calls all ranks wait for each other: then the last one wakes the others.
        let meets = reads.count_ones() as usize == self.plan.peers.len() - 1;
        // Whether nothing is left to execute or to wait for.
        let look = |everywhere: bool| {
            if !is_published.get() && signals.reader(everywhere).is_none() {
                is_published.set(true);
                // SAFETY: by the caller's contract.
                unsafe { signals.publish_inline(flag, data, *readers, || !meets || read_all(false)) };
            }
            read_all(everywhere) && is_published.get() || other.get().is_some()
        };
        if !look(false) && self.fault.borrow().is_none() && !self.job.spin_for(Pace::ANSWER, || look(false)) {
            list();
            // A rank at which the call has ended has published its data before.
            let is_over = || lowest(self.over.get() & self.missing.get()).is_some_and(|rank| !read(rank, true));
            let ready = || look(true) || self.state.get() != State::Active || is_over();
            let awaited = || {
                let rank = lowest(self.missing.get()).or_else(|| signals.reader(true));
                self.awaited(rank.map(|rank| self.plan.peers[rank]))
            };
            if let Err(e) = wait(&awaited, &ready) {
                self.short.set(false);
                return Err(e);
            }
        }
        if self.missing.get() != 0 || !is_published.get() || self.fault.borrow().is_some() {
            list();
            self.end_unmatched(other.get());
        } else {
            let data = |rank: u32| Block {
                base: words(rank as usize).as_ptr().cast_mut().cast::<u8>().wrapping_add(skip),
                len: *len,
            };
            let execute = |step: &u32| {
                // SAFETY: by the caller's contract.
                unsafe { self.execute_short(*step, data) };
                self.fault.borrow().is_none()
            };
            if steps.iter().all(execute) && !is_listed.get() {
                self.state.set(State::Done);
                self.team.ended(self);
            } else {
                list();
                self.open.set(0);
                self.advance();
            }
        }
        signals.fetch_short(*len.max(given));
        self.short.set(false);
        Ok(())
    }

    /// Fails the call because data is missing, with the data of another call that was found, or with the error that was
    /// announced.
    #[cold]
    fn end_unmatched(self: &Rc<Self>, other: Option<(usize, u64)>) {
        /// Number of turns of progress in which a message that was sent earlier arrives.
        const TURNS: usize = 64;
        let is_same = |flag: u64| (flag >> 32) as u32 == self.sequence.get();
        if other.is_some_and(|(_, flag)| !is_same(flag)) {
            // A rank that has made a later call has announced its error, which is more precise.
            let over = || self.fault.borrow().is_some() || self.state.get() != State::Active;
            let _ = (0..TURNS).any(|_| over() || self.job.progress().is_err());
        }
        let over = (self.over.get() & self.missing.get()).trailing_zeros() as usize;
        if let Some((rank, flag)) = other {
            let other_call = self.plan.other_call(Check(flag as u32)).filter(|_| is_same(flag));
            let already_failed = || format!("the peer has made a later call after {} failed there", self.name());
            self.mismatch(self.plan.peers[rank], other_call.unwrap_or_else(already_failed));
        } else if let Some(source) = self.plan.peers.get(over) {
            self.mismatch(
                *source,
                format!("the peer has completed its {} without sending the data that this rank waits for", self.name()),
            );
        }
        self.advance();
    }

    /// Executes a step on the published data of the ranks, without receiving messages.
    ///
    /// # Safety
    /// The contract of [`start`](Self::start).
    #[inline]
    unsafe fn execute_short(self: &Rc<Self>, step: u32, data: impl Fn(u32) -> Block) {
        let (s, buffers) = (self.plan.schedule.step(step as usize), self.buffers());
        match s.action {
            // SAFETY: the data is as long as its destination; the output and scratch belong to the run, by the caller's
            // contract.
            Action::Receive { source, .. } => unsafe {
                let Block { base, len } = data(source);
                buffers.fill(s.into, Payload::Bytes(std::slice::from_raw_parts(base, len)));
            },
            Action::ReceiveReduce { source, side, .. } => self.reduce(&[data(source)], &buffers.each(s.into), side),
            _ => _ = self.execute(step),
        }
    }
}
