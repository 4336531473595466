#![allow(unsafe_code)]
//! Access by several threads of a rank to elements at all ranks.

use std::marker::PhantomData;
use std::ptr::null_mut;
use std::slice::{from_mut, from_ref};
use std::sync::atomic::{Ordering, fence};

use bytemuck::Pod;
use farside_core::{Error, ErrorKind, Located, Result, located};

use crate::elements::bytes;
use crate::lock_window::PassiveEpoch;
use crate::op::{CasElement, Element, Op};
use crate::raw::{MappedWindow, RawWindow};
use crate::symmetric::Symmetric;
use crate::symmetric::atomic::{Atomic, AtomicMemory};

/// Number of attempts to update elements that another rank is updating under the element lock; longer than any update
/// takes.
const ATTEMPTS: u32 = 1 << 22;

/// A handle by which any thread of this rank accesses elements at all ranks of a team
/// ([`Symmetric::shared`](crate::Symmetric::shared), [`PassiveEpoch::shared`](crate::PassiveEpoch::shared)). The
/// threads of `std::thread::scope` use it by reference.
///
/// All memory is mapped, so each operation is a copy or CPU atomics without a lock or a message, and is complete at the
/// target on return. The operations of one thread are ordered; the program orders the operations of several threads
/// among each other and with the calls of the rank's own thread. Operations of threads are atomic with respect to each
/// other where operations of ranks are.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let table = Symmetric::<u64>::allocate(&team, 9)?;
///     let shared = table.shared()?;
///     std::thread::scope(|scope| {
///         for thread in 0..4 {
///             let shared = &shared;
///             scope.spawn(move || {
///                 shared.put(&[thread, 1], 1 - team_rank(shared), 2 * thread as usize)?;
///                 shared.atomic(0, 8)?.add(1)
///             });
///         }
///     });
///     drop(shared);
///     table.barrier()?;
///     assert_eq!(table.local().load(6)?, 3);
///     assert_eq!(table.get_value(0, 8)?, 8);
///     table.free()
/// })?;
///
/// fn team_rank(shared: &SharedElements<'_, u64>) -> usize {
///     shared.rank()
/// }
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
pub struct SharedElements<'a, T: Pod> {
    window: MappedWindow<'a>,
    /// The only target, in an epoch with a single lock.
    only: Option<usize>,
    // Elements are copied, and never owned.
    element: PhantomData<fn(T) -> T>,
}

impl<T: Pod> Drop for SharedElements<'_, T> {
    fn drop(&mut self) {
        self.window.handles().remove();
    }
}

impl<'a, T: Pod> SharedElements<'a, T> {
    /// The elements of a window, at all ranks or at one.
    ///
    /// # Errors
    /// `Unsupported` if some rank's memory is not mapped.
    pub(crate) fn new(raw: &'a RawWindow, only: Option<usize>) -> Result<Self> {
        let Some(window) = raw.mapped() else {
            return Err(Error::new(ErrorKind::Unsupported, "share a window with threads")
                .rank(raw.job().rank())
                .device(raw.job().device().capabilities().name)
                .cause("the memory of some rank is not mapped here, and only the rank's own thread sends messages")
                .remedy("use a team of ranks of one node, or make the operations in the rank's own thread"));
        };
        window.handles().add();
        Ok(Self { window, only, element: PhantomData })
    }

    /// This rank in the team.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.window.rank()
    }

    /// The error of an operation on `len` bytes from element `at` of `rank` that was not executed; `Ok` if it failed
    /// only because another rank is updating the elements.
    #[cold]
    fn check(&self, name: &'static str, rank: usize, at: usize, len: usize) -> Result<()> {
        self.window.check(name, rank, bytes::<T>(at)?, len)?;
        match self.only {
            Some(only) if only != rank => Err(self.window.not_ready(name, rank)),
            _ => Ok(()),
        }
    }

    /// Whether `rank` is a target.
    #[inline]
    fn is_target(&self, rank: usize) -> bool {
        self.only.is_none_or(|only| only == rank)
    }

    /// Repeats `attempt` while another rank updates elements of `rank`.
    #[inline]
    fn update<R>(
        &self,
        name: &'static str,
        (rank, at, len): (usize, usize, usize),
        mut attempt: impl FnMut(usize) -> Option<R>,
    ) -> Result<R> {
        let offset = bytes::<T>(at)?;
        for _ in 0..ATTEMPTS {
            if let Some(done) = Some(offset).filter(|_| self.is_target(rank)).and_then(&mut attempt) {
                return Ok(done);
            }
            self.check(name, rank, at, len)?;
            std::thread::yield_now();
        }
        let e = Error::new(ErrorKind::Timeout, name).rank(self.rank()).peer(rank);
        Err(e
            .cause("another rank holds the lock of the elements")
            .remedy("check whether the other ranks are still running"))
    }

    /// Puts `from` to `rank` at element `at`; complete at the target on return.
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`; `WrongEpoch` for a rank that is not locked, or after the end of the job.
    #[inline]
    #[track_caller]
    pub fn put(&self, from: &[T], rank: usize, at: usize) -> Result<()> {
        let (data, len, offset) = (from.as_ptr().cast(), size_of_val(from), bytes::<T>(at).located()?);
        // SAFETY: `from` is valid during the call. The epoch is open as long as `self` lives, which borrows it.
        if self.is_target(rank) && unsafe { self.window.try_put(data, len, rank, offset) } {
            // Keeps a later get of this thread from overtaking the put.
            fence(Ordering::SeqCst);
            return Ok(());
        }
        self.check("put", rank, at, len).and_then(|()| Err(self.window.not_ready("put", rank))).located()
    }

    /// Puts one element; complete at the target on return.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    #[inline]
    #[track_caller]
    pub fn put_value(&self, value: T, rank: usize, at: usize) -> Result<()> {
        self.put(from_ref(&value), rank, at)
    }

    /// Gets as many elements of `rank` from element `at` on as `into` has.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    #[inline]
    #[track_caller]
    pub fn get(&self, into: &mut [T], rank: usize, at: usize) -> Result<()> {
        let (data, len, offset) = (into.as_mut_ptr().cast(), size_of_val(into), bytes::<T>(at).located()?);
        // SAFETY: as in `put`.
        if self.is_target(rank) && unsafe { self.window.try_get(data, len, rank, offset) } {
            return Ok(());
        }
        self.check("get", rank, at, len).and_then(|()| Err(self.window.not_ready("get", rank))).located()
    }

    /// Gets one element.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    #[inline]
    #[track_caller]
    pub fn get_value(&self, rank: usize, at: usize) -> Result<T> {
        let mut value = T::zeroed();
        self.get(from_mut(&mut value), rank, at)?;
        Ok(value)
    }

    /// Accumulates `operand` into elements of `rank` from `at` on, each atomically; complete at the target on return.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); `Unsupported` for a logical or bitwise operation on floats; `Timeout` if another
    /// rank does not finish its update of the elements.
    #[track_caller]
    pub fn accumulate(&self, op: Op, operand: &[T], rank: usize, at: usize) -> Result<()>
    where
        T: Element,
    {
        op.check(T::TYPE, "accumulate").located()?;
        let (from, len) = (operand.as_ptr().cast(), size_of_val(operand));
        let attempt = |offset| {
            // SAFETY: as in `put`; there are no results.
            unsafe { self.window.try_accumulate(op, T::TYPE, from, null_mut(), len, rank, offset) }.then_some(())
        };
        self.update("accumulate", (rank, at, len), attempt).located()
    }

    /// Element `at` of `rank` as an atomic. Each of its operations is complete at the target on return.
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`.
    #[inline]
    #[track_caller]
    pub fn atomic(&self, rank: usize, at: usize) -> Result<Atomic<'_, T, Self>>
    where
        T: Element,
    {
        Atomic::new(self, rank, at).located()
    }

    /// Orders this thread's operations before its later loads of memory.
    pub fn quiet(&self) {
        fence(Ordering::SeqCst);
    }
}

impl<T: Pod> Symmetric<T> {
    /// A handle of the array for the threads of this rank. Sends nothing. While the handle exists,
    /// [`exclusive`](Symmetric::exclusive) fails.
    ///
    /// # Errors
    /// `Unsupported` if the memory of some rank is not mapped, so that operations on it are messages; `Freed` after the end of
    /// the job; `WrongEpoch` inside [`exclusive`](Symmetric::exclusive).
    #[track_caller]
    pub fn shared(&self) -> Result<SharedElements<'_, T>> {
        located(|| {
            self.raw().usable("share memory with threads")?;
            self.raw().check_not_borrowed("share memory with threads")?;
            SharedElements::new(self.raw(), None)
        })
    }
}

impl<'scope, T: Pod> PassiveEpoch<'scope, '_, T> {
    /// A handle of the elements of the locked ranks for the threads of this rank, valid until the closure returns.
    /// Waits for the lock, or for the locks of all ranks. Requires mapped memory, so it sends no messages.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let window = LockWindow::<u64>::allocate(&team, 4)?;
    ///     window.lock(LockKind::Exclusive, 0, Assert::empty(), |epoch| {
    ///         let shared = epoch.shared()?;
    ///         std::thread::scope(|scope| {
    ///             let threads = [0, 1].map(|at| scope.spawn({
    ///                 let shared = &shared;
    ///                 move || shared.put_value(shared.get_value(0, at)? + 1, 0, at)
    ///             }));
    ///             threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    ///         })
    ///     })?;
    ///     team.barrier()?;
    ///     window.lock(LockKind::Shared, 0, Assert::empty(), |epoch| {
    ///         assert_eq!((epoch.get_blocking(0, 0)?, epoch.get_blocking(0, 1)?), (2, 2));
    ///         Ok::<_, Error>(())
    ///     })?;
    ///     window.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Unsupported` if the memory of some rank is not mapped, so that operations on it are messages; `PeerLost`.
    #[track_caller]
    pub fn shared(&'scope self) -> Result<SharedElements<'scope, T>> {
        located(|| {
            let raw = self.raw;
            let shared = SharedElements::new(raw, self.only)?;
            self.only.map_or(0..raw.team().size(), |only| only..only + 1).try_for_each(|target| raw.hold(target))?;
            Ok(shared)
        })
    }
}

impl<T: Element> AtomicMemory<T> for SharedElements<'_, T> {
    fn check_element(&self, name: &'static str, rank: usize, at: usize) -> Result<()> {
        self.check(name, rank, at, size_of::<T>())
    }

    #[inline]
    fn fetch(&self, op: Op, operand: T, rank: usize, at: usize) -> Result<T> {
        op.check(T::TYPE, "fetch and update")?;
        let (mut old, len) = (T::zeroed(), size_of::<T>());
        let (from, into) = ((&raw const operand).cast(), (&raw mut old).cast());
        self.update("fetch and update", (rank, at, len), |offset| {
            // SAFETY: both are live during the call, and distinct.
            unsafe { self.window.try_accumulate(op, T::TYPE, from, into, len, rank, offset) }.then_some(())
        })?;
        Ok(old)
    }

    #[inline]
    fn update(&self, op: Op, operand: T, rank: usize, at: usize) -> Result<()> {
        self.accumulate(op, from_ref(&operand), rank, at)
    }

    #[inline]
    fn compare_and_swap(&self, current: T, new: T, rank: usize, at: usize) -> Result<T>
    where
        T: CasElement,
    {
        let attempt = |offset| self.window.try_compare_and_swap(current, new, rank, offset);
        Self::update(self, "compare and swap", (rank, at, size_of::<T>()), attempt)
    }
}
