#![allow(unsafe_code)]
//! Typed windows with passive-target epochs: lock, lock_all, flush.

mod requests;

use std::ops::Deref;
use std::rc::Rc;

use bytemuck::Pod;
use farside_core::settings::TransferScheme;
use farside_core::{Error, Located, Result, Team, located};

use crate::assert::Assert;
use crate::elements::bytes;
use crate::epoch::{Epoch, closing};
use crate::memory::{LOCK_WINDOW, WindowMemory};
use crate::op::{CasElement, Element, Op};
use crate::raw::lock::LockKind;
use crate::raw::{Body, RawWindow};
use crate::shared_window::SharedSlice;

/// A window of elements of type `T` with passive-target epochs (lock, lock_all, flush), allocated by the runtime or made
/// from a vector.
///
/// Peers may change the memory at any time, so it is accessed only through operations, or locally under an exclusive lock
/// of this rank's own memory ([`with_local`](Self::with_local)).
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(4, |job| {
///     let team = job.world()?;
///     let window = LockWindow::<u64>::allocate(&team, 2)?;
///     // Each rank draws a ticket from rank 0, which does not participate.
///     let ticket = window.lock(LockKind::Shared, 0, Assert::empty(), |epoch| {
///         epoch.fetch_and_op_blocking(Op::Sum, 1, 0, 0)
///     })?;
///     assert!(ticket < 4);
///     let (mine, mut drawn) = ([ticket], [0]);
///     window.lock_all(Assert::empty(), |epoch| {
///         epoch.put(&mine, team.rank(), 1)?;
///         epoch.get(&mut drawn, 0, 0)?;
///         epoch.flush(0)
///     })?;
///     window.with_local(|own| {
///         assert_eq!(own[1], ticket);
///         Ok(())
///     })?;
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
pub struct LockWindow<T: Pod> {
    memory: WindowMemory<T>,
}

impl<T: Pod> LockWindow<T> {
    pub(crate) fn raw(&self) -> &Rc<RawWindow> {
        &self.memory.raw
    }

    /// Allocates a window of `len` zeroed elements at this rank. Collective; lengths may differ.
    ///
    /// # Errors
    /// Those of [`crate::Window::allocate`].
    #[track_caller]
    pub fn allocate(team: &Team, len: usize) -> Result<Self> {
        located(|| Ok(Self { memory: WindowMemory::allocate(team, len, LOCK_WINDOW)? }))
    }

    /// Like [`allocate`](Self::allocate), for the memory of another object.
    pub(crate) fn allocate_for(team: &Team, len: usize, object: &'static str) -> Result<Self> {
        Ok(Self { memory: WindowMemory::allocate(team, len, object)? })
    }

    /// Makes a window over the elements of a vector, which stay at their address. Collective. If peers cannot map all
    /// of it, an agent thread of this rank serves it while the rank computes.
    ///
    /// # Errors
    /// Those of [`crate::Window::from_vec`].
    #[track_caller]
    pub fn from_vec(team: &Team, vec: Vec<T>) -> Result<Self> {
        located(|| Ok(Self { memory: WindowMemory::from_vec(team, vec, LOCK_WINDOW)? }))
    }

    /// Frees the window and returns the vector; empty if the window was not made from one. Collective.
    ///
    /// # Errors
    /// Those of [`free`](Self::free); the vector is then leaked.
    #[track_caller]
    pub fn into_vec(self) -> Result<Vec<T>> {
        located(|| self.memory.into_vec())
    }

    /// Frees the window. Collective, with a barrier.
    ///
    /// # Errors
    /// `PeerLost`; `System` if memory could not be deregistered or unmapped.
    #[track_caller]
    pub fn free(self) -> Result<()> {
        located(|| self.memory.raw.free())
    }

    /// The team.
    #[must_use]
    pub fn team(&self) -> &Team {
        self.memory.raw.team()
    }

    /// Sets the scheme of later transfers between datatypes ([`RawWindow::set_transfer`]).
    pub fn set_transfer(&self, scheme: TransferScheme) {
        self.memory.raw.set_transfer(scheme);
    }

    /// Length of the window at `rank`, in elements.
    ///
    /// # Errors
    /// `NoSuchRank`.
    #[track_caller]
    pub fn len_at(&self, rank: usize) -> Result<usize> {
        located(|| self.memory.len_at(rank))
    }

    /// Whether every rank's memory is mapped at every other rank, so that operations are loads and stores.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.memory.raw.is_mapped()
    }

    /// One epoch under a lock of `target`. The lock may be granted as late as the first operation must be complete; it
    /// is released when the epoch is closed, after all its operations are complete. Messages: none on mapped windows
    /// (two atomics on the target's lock word); otherwise lock, operations and unlock, or none if the epoch has no
    /// operations. Epochs on different targets may be nested.
    ///
    /// # Errors
    /// `WrongEpoch` if this rank has locked `target` already; any error of `body`; `PeerLost`.
    #[track_caller]
    pub fn lock<'env, R, E: From<Error>>(
        &self,
        kind: LockKind,
        target: usize,
        asserts: Assert,
        body: impl for<'scope> FnOnce(&'scope PassiveEpoch<'scope, 'env, T>) -> Result<R, E>,
    ) -> Result<R, E> {
        located(|| self.memory.raw.lock(kind, target, asserts - Assert::NOCHECK))?;
        let epoch = PassiveEpoch { epoch: Epoch::new(&self.memory.raw), only: Some(target) };
        // An inner epoch may also issue operations to the targets of the outer epoch. Their buffers are borrowed only
        // until the inner epoch ends, so these operations are completed here too.
        closing(
            &self.memory.raw,
            Body::Lock,
            || body(&epoch),
            || {
                let unlocked = self.memory.raw.unlock(target);
                let completed = self.memory.raw.complete_enclosing();
                unlocked.and(completed)
            },
        )
    }

    /// One epoch under shared locks of all ranks; the lock of a rank is taken at the first access to that rank.
    ///
    /// # Errors
    /// `WrongEpoch` inside another epoch; any error of `body`; `PeerLost`.
    #[track_caller]
    pub fn lock_all<'env, R, E: From<Error>>(
        &self,
        asserts: Assert,
        body: impl for<'scope> FnOnce(&'scope PassiveEpoch<'scope, 'env, T>) -> Result<R, E>,
    ) -> Result<R, E> {
        located(|| self.memory.raw.lock_all(asserts - Assert::NOCHECK))?;
        let epoch = PassiveEpoch { epoch: Epoch::new(&self.memory.raw), only: None };
        closing(&self.memory.raw, Body::Lock, || body(&epoch), || self.memory.raw.unlock_all())
    }

    /// Runs `body` with this rank's elements, under an exclusive lock of this rank.
    ///
    /// # Errors
    /// `WrongEpoch` if this rank has locked itself already or is inside `lock_all`; any error of `body`.
    #[track_caller]
    pub fn with_local<R, E: From<Error>>(&self, body: impl FnOnce(&mut [T]) -> Result<R, E>) -> Result<R, E> {
        located(|| self.memory.raw.lock_local())?;
        // Completes the operations of an enclosing epoch that read the memory, before `body` may write it.
        if self.memory.raw.own_in_use.replace(false)
            && let Err(e) = self.memory.raw.flush_local_all()
        {
            self.memory.raw.unlock(self.memory.raw.team().rank())?;
            return Err(e.into());
        }
        // SAFETY: `len` elements of this window. Every access of another rank is under a lock that conflicts with this
        // one; operations of this rank on itself fail while `body` has the slice; a nested call fails since the lock is
        // held.
        let local = unsafe { std::slice::from_raw_parts_mut(self.memory.base(), self.memory.len) };
        let raw = &self.memory.raw;
        raw.borrowed.set(true);
        let unlock = || {
            raw.borrowed.set(false);
            raw.unlock(raw.team().rank())
        };
        closing(raw, Body::Lock, || body(local), unlock)
    }

    /// This rank's elements, for loads and stores concurrent with operations of other ranks: this rank sees a value
    /// that a peer has put, whether or not either of them holds a lock.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let window = LockWindow::<u64>::allocate(&team, 2)?;
    ///     window.lock_all(Assert::default(), |epoch| {
    ///         let peer = 1 - team.rank();
    ///         epoch.put_value(7, peer, 0)?;
    ///         epoch.flush(peer)?;
    ///         epoch.put_value(1, peer, 1)?;
    ///         epoch.flush(peer)?;
    ///         let own = window.local_shared();
    ///         while own.load(1)? == 0 {
    ///             job.progress()?;
    ///         }
    ///         assert_eq!(own.load(0)?, 7);
    ///         Ok::<(), Error>(())
    ///     })?;
    ///     window.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    #[must_use]
    pub fn local_shared(&self) -> SharedSlice<'_, T> {
        SharedSlice::own(&self.memory.raw, self.memory.len)
    }
}

/// A passive-target epoch: the operations of [`Epoch`], flushes, blocking (`*_blocking`) and request-based operations.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let (window, data) = (LockWindow::<u64>::allocate(&team, 2)?, [1, 2]);
///     window.lock_all(Assert::empty(), |epoch| {
///         let peer = 1 - team.rank();
///         // Complete with a flush, ...
///         epoch.put(&data, peer, 0)?;
///         epoch.flush(peer)?;
///         // ... or on return.
///         assert_eq!(epoch.fetch_and_op_blocking(Op::Sum, 5, peer, 1)?, 2);
///         assert_eq!(epoch.compare_and_swap_blocking(7, 8, peer, 1)?, 7);
///         assert_eq!(epoch.get_blocking(peer, 1)?, 8);
///         Ok::<(), Error>(())
///     })?;
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
pub struct PassiveEpoch<'scope, 'env, T> {
    epoch: Epoch<'scope, 'env, T>,
    pub(crate) only: Option<usize>, // the target, of an epoch of one lock
}

impl<'scope, 'env, T> Deref for PassiveEpoch<'scope, 'env, T> {
    type Target = Epoch<'scope, 'env, T>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.epoch
    }
}

impl<'scope, T: Pod> PassiveEpoch<'scope, '_, T> {
    /// Completes this rank's operations on `target`, at origin and target. No message if operations are complete when
    /// issued.
    ///
    /// # Errors
    /// `PeerLost`; the first error of an operation.
    #[inline]
    #[track_caller]
    pub fn flush(&self, target: usize) -> Result<()> {
        located(|| self.epoch.raw.flush(target))
    }

    /// Completes this rank's operations on all targets, at origin and targets.
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush).
    #[track_caller]
    pub fn flush_all(&self) -> Result<()> {
        located(|| self.epoch.raw.flush_all())
    }

    /// Completes this rank's operations on `target` locally: buffers may be reused and gets have arrived.
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush).
    #[track_caller]
    pub fn flush_local(&self, target: usize) -> Result<()> {
        located(|| self.epoch.raw.flush_local(target))
    }

    /// Completes this rank's operations on all targets locally.
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush).
    #[track_caller]
    pub fn flush_local_all(&self) -> Result<()> {
        located(|| self.epoch.raw.flush_local_all())
    }

    /// Orders this rank's accesses to its own memory before and after the call.
    ///
    /// # Errors
    /// `Freed`.
    #[track_caller]
    pub fn sync(&self) -> Result<()> {
        located(|| self.epoch.raw.sync())
    }

    /// Gets one element; complete on return.
    ///
    /// # Errors
    /// Those of [`Epoch::get`] and [`flush`](Self::flush).
    #[inline]
    #[track_caller]
    pub fn get_blocking(&self, target: usize, displacement: usize) -> Result<T> {
        let mut value = T::zeroed();
        let (into, offset) = ((&raw mut value).cast(), bytes::<T>(displacement)?);
        // SAFETY: `blocking` completes or abandons the operation before `value` is dropped.
        self.epoch.raw.blocking(target, |raw| unsafe { raw.get(into, size_of::<T>(), target, offset) }).located()?;
        Ok(value)
    }

    /// Applies `op` to one element and returns its previous value; complete on return.
    ///
    /// # Errors
    /// Those of [`Epoch::fetch_and_op`] and [`flush`](Self::flush).
    #[inline]
    #[track_caller]
    pub fn fetch_and_op_blocking(&self, op: Op, operand: T, target: usize, displacement: usize) -> Result<T>
    where
        T: Element,
    {
        let mut old = T::zeroed();
        let (from, into, offset) = (&raw const operand, &raw mut old, bytes::<T>(displacement)?);
        let raw = self.epoch.raw;
        // SAFETY: `blocking` completes or abandons the operation before `operand` and `old` are dropped.
        raw.blocking(target, |raw| unsafe { raw.accumulate(op, from, into, 1, target, offset) }).located()?;
        Ok(old)
    }

    /// Sets one element to `desired` if it is `expected` and returns its previous value; complete on return.
    ///
    /// # Errors
    /// Those of [`Epoch::compare_and_swap`] and [`flush`](Self::flush).
    #[inline]
    #[track_caller]
    pub fn compare_and_swap_blocking(&self, expected: T, desired: T, target: usize, displacement: usize) -> Result<T>
    where
        T: CasElement,
    {
        let mut old = T::zeroed();
        let (raw, into, offset) = (self.epoch.raw, &raw mut old, bytes::<T>(displacement)?);
        // SAFETY: `blocking` completes or abandons the operation before `old` is dropped.
        raw.blocking(target, |raw| unsafe { raw.compare_and_swap(expected, desired, into, target, offset) })
            .located()?;
        Ok(old)
    }

    /// Puts `from` to `target` at `displacement`; complete at the target on return.
    ///
    /// # Errors
    /// Those of [`Epoch::put`] and [`flush`](Self::flush).
    #[inline]
    #[track_caller]
    pub fn put_blocking(&self, from: &[T], target: usize, displacement: usize) -> Result<()> {
        let (data, len, offset) = (from.as_ptr().cast(), size_of_val(from), bytes::<T>(displacement)?);
        // SAFETY: `blocking` completes or abandons the operation before the borrow of `from` ends.
        self.epoch.raw.blocking(target, |raw| unsafe { raw.put(data, len, target, offset) }).located()
    }

    /// Gets elements of `target` from `displacement` on into `into`; complete on return.
    ///
    /// # Errors
    /// Those of [`Epoch::get`] and [`flush`](Self::flush).
    #[inline]
    #[track_caller]
    pub fn get_into_blocking(&self, into: &mut [T], target: usize, displacement: usize) -> Result<()> {
        let (to, len, offset) = (into.as_mut_ptr().cast(), size_of_val(into), bytes::<T>(displacement)?);
        // SAFETY: `blocking` completes or abandons the operation before the borrow of `into` ends.
        self.epoch.raw.blocking(target, |raw| unsafe { raw.get(to, len, target, offset) }).located()
    }
}
