#![allow(unsafe_code)]
//! Typed windows with active-target epochs: fence and post-start-complete-wait.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use bytemuck::Pod;
use farside_core::settings::TransferScheme;
use farside_core::{Error, Result, Team, located};

use crate::assert::Assert;
use crate::epoch::{Epoch, closing};
use crate::memory::{WINDOW, WindowMemory};
use crate::raw::{Body, RawWindow};

/// A window of elements of type `T`, with active-target epochs: fence and post-start-complete-wait.
/// [`LockWindow`](crate::LockWindow) has passive-target epochs.
///
/// Between epochs only this rank accesses the memory, through [`local`](Self::local) and
/// [`local_mut`](Self::local_mut). Inside an epoch peers may write it, so the epoch borrows the window and no slice of
/// it can exist. `'m` is the lifetime of the borrowed memory; windows that own their memory are `'static`.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let (me, right) = (team.rank(), (team.rank() + 1) % 3);
///     let mut window = Window::<u32>::allocate(&team, 4)?;
///     window.local_mut()?[0] = 10 * me as u32;
///
///     // A fence epoch of all ranks: buffers are borrowed until it is closed.
///     let (mine, mut theirs) = ([me as u32], [0]);
///     window.fence(Assert::empty(), |epoch| {
///         epoch.get(&mut theirs, right, 0)?;
///         epoch.put(&mine, right, 1)
///     })?;
///     assert_eq!(theirs, [10 * right as u32]);
///     assert_eq!(window.local()?[1] as usize, (me + 2) % 3);
///
///     // Ranks 0 and 1 alone: rank 1 exposes its memory to rank 0.
///     match me {
///         0 => window.start(&[1], Assert::empty(), |epoch| epoch.put_value(7, 1, 2))?,
///         1 => window.expose(&[0], Assert::empty(), |_| Ok(()))?,
///         _ => {}
///     }
///     assert_eq!(window.local()?[2], if me == 1 { 7 } else { 0 });
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
///
/// Memory: the elements, and a few cache lines for each rank of the team.
#[derive(Debug)]
pub struct Window<'m, T: Pod> {
    memory: WindowMemory<T>,
    // Invariant in `'m`, so that a window over borrowed memory cannot be swapped with one that lives longer.
    lifetime: PhantomData<fn(&'m ()) -> &'m ()>,
}

impl<T: Pod> Window<'static, T> {
    /// Allocates a window of `len` zeroed elements at this rank; the ranks of one node map each other's memory.
    /// Collective; lengths may differ.
    ///
    /// # Errors
    /// `SharedMemoryFull`, `PeerLost`; the same on every rank, naming the one that failed. `Mismatch` on every rank if
    /// element types differ. `Freed` once the job has been finalized.
    #[track_caller]
    pub fn allocate(team: &Team, len: usize) -> Result<Self> {
        located(|| Ok(Self { memory: WindowMemory::allocate(team, len, WINDOW)?, lifetime: PhantomData }))
    }

    /// Makes a window over the elements of a vector, which stay at their address. Collective; lengths may differ.
    /// [`into_vec`](Self::into_vec) returns the vector. Dropping the window drops the vector, or leaks it if the device
    /// cannot deregister its memory.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let mut window = Window::from_vec(&team, vec![team.rank(); 3])?;
    ///     window.fence(Assert::empty(), |epoch| epoch.put_value(8, 1 - team.rank(), 2))?;
    ///     assert_eq!(window.into_vec()?, [team.rank(), team.rank(), 8]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`allocate`](Self::allocate), and `Limit`, `Forbidden`.
    #[track_caller]
    pub fn from_vec(team: &Team, vec: Vec<T>) -> Result<Self> {
        located(|| Ok(Self { memory: WindowMemory::from_vec(team, vec, WINDOW)?, lifetime: PhantomData }))
    }

    /// Frees the window and returns the vector; empty if the window was not made from one. Collective.
    ///
    /// # Errors
    /// Those of [`free`](Self::free); the vector is then leaked.
    #[track_caller]
    pub fn into_vec(self) -> Result<Vec<T>> {
        located(|| self.memory.into_vec())
    }

    /// Frees the window. Collective, with a barrier: when it returns, no rank uses the window.
    ///
    /// # Errors
    /// `PeerLost`; `System` if memory could not be deregistered or unmapped.
    #[track_caller]
    pub fn free(self) -> Result<()> {
        located(|| self.memory.raw.free())
    }
}

impl<T: Pod> Window<'_, T> {
    /// Creates a window over borrowed memory, which stays at its address, runs `body` with the window and frees it.
    /// Collective; lengths may differ.
    ///
    /// During the call, whole pages of the buffer may be shared memory: a child made by `fork` would share them.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let mut mine = [0u32; 4];
    ///     Window::over(&team, &mut mine, |window| {
    ///         window.fence(Assert::empty(), |epoch| epoch.put_value(8, 1 - team.rank(), 2))
    ///     })?;
    ///     assert_eq!(mine, [0, 0, 8, 0]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Window::from_vec`] and [`Window::free`]; any error of `body`. If the body fails at one rank, by an
    /// error or a panic, `over` fails at all ranks: waits in the bodies of the other ranks, and their wait for the end
    /// of the window, fail with `Mismatch`, which names that rank.
    ///
    /// # Aborts
    /// If the device cannot deregister the memory: the borrow ends with this call, and peers could still write there.
    #[track_caller]
    pub fn over<R, E: From<Error>>(
        team: &Team,
        memory: &mut [T],
        body: impl for<'s> FnOnce(&mut Window<'s, T>) -> Result<R, E>,
    ) -> Result<R, E> {
        // SAFETY: borrowed exclusively for the call, which ends only after `release` has succeeded.
        let memory = located(|| unsafe { WindowMemory::create(team, memory.as_mut_ptr(), memory.len(), WINDOW) })?;
        // `body` cannot swap the window for another one, since no other window has the lifetime `'s`.
        let raw = Rc::clone(&memory.raw);
        let mut window = Window { memory, lifetime: PhantomData };
        let _end = ReleaseOrAbort(&raw);
        // The barrier is part of the body, so a rank whose body fails does not enter it.
        let ended = raw.in_body(Body::Window, || {
            catch_unwind(AssertUnwindSafe(|| {
                body(&mut window).and_then(|r| {
                    Ok(located(|| raw.barrier_at_end().map_err(|e| raw.naming_failed_rank(Body::Window, e)))
                        .map(|()| r)?)
                })
            }))
        });
        raw.report_if_failed(Body::Window, &ended);
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// This rank's elements. Between epochs no other rank accesses them.
    ///
    /// # Errors
    /// `WrongEpoch` after a call on this window that panicked or failed to synchronize, since peers may still write to
    /// the memory.
    #[track_caller]
    pub fn local(&self) -> Result<&[T]> {
        located(|| {
            self.memory.raw.keep()?;
            // SAFETY: `len` elements that live as long as the window. No exposure is open: epochs borrow the window
            // exclusively and close the exposure before they end, and a window whose closing call failed is refused. A
            // message that arrives outside an exposure is dropped.
            Ok(unsafe { std::slice::from_raw_parts(self.memory.base(), self.memory.len) })
        })
    }

    /// This rank's elements, mutably.
    ///
    /// # Errors
    /// Those of [`local`](Self::local).
    #[track_caller]
    pub fn local_mut(&mut self) -> Result<&mut [T]> {
        located(|| {
            self.memory.raw.keep()?;
            // SAFETY: as in `local`; `self` is borrowed exclusively.
            Ok(unsafe { std::slice::from_raw_parts_mut(self.memory.base(), self.memory.len) })
        })
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

    /// One fence epoch: opens, runs `body`, closes with `asserts`. Collective; asserts agree on all ranks.
    /// Opening sends nothing. Messages of closing: see [`crate::raw::fence`]; ⌈log2 P⌉ on a mapped window, none
    /// with `NOPRECEDE`. Afterwards all operations of all ranks in the epoch are complete, and only this rank accesses
    /// its memory.
    ///
    /// # Errors
    /// Any error of `body`, after the epoch is closed; `PeerLost`; the first error of an operation; `Mismatch` on every
    /// rank if some ranks are in a run of [`fences`](Self::fences) that continues. If the body fails at one rank, waits
    /// inside the bodies of the other ranks fail with `Mismatch`, which names that rank; bodies that do not wait are
    /// not affected.
    #[track_caller]
    pub fn fence<'env, R, E: From<Error>>(
        &mut self,
        asserts: Assert,
        body: impl for<'scope> FnOnce(&'scope Epoch<'scope, 'env, T>) -> Result<R, E>,
    ) -> Result<R, E> {
        // With `NOPRECEDE` no rank issues operations in this epoch, so no exposure is opened: an operation is then an
        // error at its origin, and cannot access memory that its owner uses locally.
        let opening = if asserts.contains(Assert::NOPRECEDE) { Assert::NOSUCCEED } else { Assert::empty() };
        located(|| self.memory.raw.fence(opening | Assert::NOPRECEDE))?;
        let epoch = Epoch::new(&self.memory.raw);
        let (raw, number) = (&self.memory.raw, self.memory.raw.fences());
        closing(raw, Body::Fence(number), || body(&epoch), || raw.fence(asserts | Assert::NOSUCCEED))
    }

    /// Runs consecutive fence epochs without local access between them: each fence closes one epoch and opens the next,
    /// so from the second epoch on operations start when they are issued. The run ends with one more fence, which has
    /// the same messages.
    ///
    /// # Errors
    /// Those of [`fence`](Self::fence); `Mismatch` on every rank if runs have different lengths.
    #[track_caller]
    pub fn fences<R, E: From<Error>>(
        &mut self,
        body: impl for<'c> FnOnce(&mut Fences<'c, T>) -> Result<R, E>,
    ) -> Result<R, E> {
        located(|| self.memory.raw.fence(Assert::NOPRECEDE))?;
        let mut fences = Fences { raw: &self.memory.raw, element: PhantomData };
        let (raw, number) = (&self.memory.raw, self.memory.raw.fences());
        closing(raw, Body::Fences(number), || body(&mut fences), || raw.fence(Assert::NOSUCCEED))
    }

    /// One access epoch to `targets`: start, `body`, complete. Messages: one for each target, unless an operation
    /// carries it. On return the buffers may be reused; the operations are complete at a target when it has closed its
    /// exposure.
    ///
    /// # Errors
    /// Those of [`fence`](Self::fence); `NoSuchRank`, `BadArgument` for the group.
    #[track_caller]
    pub fn start<'env, R, E: From<Error>>(
        &mut self,
        targets: &[usize],
        asserts: Assert,
        body: impl for<'scope> FnOnce(&'scope Epoch<'scope, 'env, T>) -> Result<R, E>,
    ) -> Result<R, E> {
        access(&self.memory.raw, targets, asserts, body)
    }

    /// One exposure epoch to `origins`: post, `body`, wait. Messages: one for each origin.
    /// `body` may open access epochs. On return the operations of all origins are complete at this rank, and only this
    /// rank accesses its memory.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    #[track_caller]
    pub fn expose<R, E: From<Error>>(
        &mut self,
        origins: &[usize],
        asserts: Assert,
        body: impl for<'x> FnOnce(&Exposure<'x, T>) -> Result<R, E>,
    ) -> Result<R, E> {
        located(|| self.memory.raw.post(origins, asserts - Assert::NOCHECK))?;
        let exposure = Exposure { raw: &self.memory.raw, closed: std::cell::Cell::new(false), element: PhantomData };
        closing(
            &self.memory.raw,
            Body::Exposure,
            || body(&exposure),
            || if exposure.closed.get() { Ok(()) } else { self.memory.raw.wait() },
        )
    }
}

#[track_caller]
fn access<'env, T: Pod, R, E: From<Error>>(
    raw: &RawWindow,
    targets: &[usize],
    asserts: Assert,
    body: impl for<'scope> FnOnce(&'scope Epoch<'scope, 'env, T>) -> Result<R, E>,
) -> Result<R, E> {
    located(|| raw.start(targets, asserts - Assert::NOCHECK))?;
    let epoch = Epoch::new(raw);
    closing(raw, Body::Access, || body(&epoch), || raw.complete())
}

/// Deregisters borrowed memory on drop, or aborts, so that this happens even if the collective free panics.
struct ReleaseOrAbort<'a>(&'a RawWindow);

impl Drop for ReleaseOrAbort<'_> {
    fn drop(&mut self) {
        if let Err(e) = self.0.release() {
            farside_core::say(format_args!("cannot deregister memory that a window has borrowed: {e}"));
            std::process::abort();
        }
    }
}

/// Consecutive fence epochs ([`Window::fences`]).
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let (me, right) = (team.rank(), (team.rank() + 1) % 3);
///     let mut window = Window::<usize>::allocate(&team, 2)?;
///     window.local_mut()?[0] = me;
///     // In each epoch every rank passes a number on to its right neighbour.
///     window.fences(|fences| {
///         fences.epoch(Assert::empty(), |epoch| epoch.put_own(0..1, right, 1))?;
///         fences.epoch(Assert::empty(), |epoch| epoch.put_own(1..2, right, 0))
///     })?;
///     assert_eq!(window.local()?, [(me + 1) % 3, (me + 2) % 3]);
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
pub struct Fences<'c, T> {
    raw: &'c RawWindow,
    element: PhantomData<T>,
}

impl<T: Pod> Fences<'_, T> {
    /// One epoch of the run: `body`, then a fence that closes it and opens the next. Collective.
    ///
    /// # Errors
    /// Those of [`Window::fence`].
    #[track_caller]
    pub fn epoch<'env, R, E: From<Error>>(
        &mut self,
        asserts: Assert,
        body: impl for<'scope> FnOnce(&'scope Epoch<'scope, 'env, T>) -> Result<R, E>,
    ) -> Result<R, E> {
        let epoch = Epoch::new(self.raw);
        let fence = Body::FenceOfRun(self.raw.fences());
        closing(self.raw, fence, || body(&epoch), || self.raw.fence(asserts - Assert::NOSUCCEED))
    }
}

/// An open exposure epoch ([`Window::expose`]).
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let (me, peer) = (team.rank(), 1 - team.rank());
///     let mut window = Window::<usize>::allocate(&team, 1)?;
///     window.expose(&[peer], Assert::empty(), |exposure| {
///         // Each rank is an origin and a target at the same time.
///         exposure.start(&[peer], Assert::empty(), |epoch| epoch.put_value(7 + me, peer, 0))?;
///         while !exposure.test()? {
///             // Other work, until the peer has completed its operations.
///         }
///         Ok::<(), Error>(())
///     })?;
///     assert_eq!(window.local()?, [7 + peer]);
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
pub struct Exposure<'x, T> {
    raw: &'x RawWindow,
    closed: std::cell::Cell<bool>,
    element: PhantomData<T>,
}

impl<T: Pod> Exposure<'_, T> {
    /// One access epoch inside the exposure epoch, with the contract of [`Window::start`].
    ///
    /// # Errors
    /// Those of [`Window::start`].
    #[track_caller]
    pub fn start<'env, R, E: From<Error>>(
        &self,
        targets: &[usize],
        asserts: Assert,
        body: impl for<'scope> FnOnce(&'scope Epoch<'scope, 'env, T>) -> Result<R, E>,
    ) -> Result<R, E> {
        access(self.raw, targets, asserts, body)
    }

    /// Whether all origins have completed, without blocking. Stays true once it has been true.
    ///
    /// # Errors
    /// `PeerLost`.
    #[track_caller]
    pub fn test(&self) -> Result<bool> {
        located(|| {
            if !self.closed.get() {
                let closed = self.raw.test();
                // Even a failed test may have closed the exposure.
                self.closed.set(!self.raw.is_posted());
                return closed;
            }
            Ok(true)
        })
    }
}
