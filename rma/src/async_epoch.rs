//! Passive-target epochs with async bodies.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytemuck::Pod;
use farside_core::{Error, Result};

use crate::assert::Assert;
use crate::collectives::poll_of;
use crate::elements::bytes;
use crate::lock_window::LockWindow;
use crate::op::{CasElement, Element, Op};
use crate::pending::{Buffer, Fetched, Pending, Transfer};
use crate::raw::RawWindow;
use crate::raw::lock::LockKind;

/// A passive-target epoch with an async body ([`LockWindow::lock_all_async`], [`LockWindow::lock_async`]). Operations are
/// started and own their buffers, which wait, test or `.await` returns; all are complete when the epoch has closed.
///
/// An async function may be dropped or leaked at any `.await`, and its borrows then end. So operations take no slices:
/// they own a [`Buffer`](crate::symmetric::Buffer), and no borrow is in use between two polls.
///
/// ```
/// # #[cfg(feature = "async")] {
/// use farside_rma::{block_on, prelude::*};
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let window = LockWindow::<u64>::allocate(&team, 2)?;
///     block_on(window.lock_all_async(Assert::empty(), async |epoch| {
///         let ticket = epoch.rfetch_and_op(Op::Sum, 1, 0, 0)?.await?;
///         // A handle that is dropped leaves its operation to the flush.
///         let _ = epoch.raccumulate(Op::Max, [10 * ticket], 0, 1)?;
///         epoch.flush_all().await
///     }))??;
///     team.barrier()?;
///     let both = window.lock(LockKind::Shared, 0, Assert::empty(), |epoch| {
///         Ok::<_, Error>([epoch.get_blocking(0, 0)?, epoch.get_blocking(0, 1)?])
///     })?;
///     assert_eq!(both, [3, 20]);
///     window.free()
/// })?;
/// # }
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
pub struct AsyncEpoch<T> {
    window: Rc<RawWindow>,
    element: std::marker::PhantomData<T>,
}

/// Closes the epoch on drop, also when the future is dropped before it has completed.
struct Open<'a> {
    window: &'a RawWindow,
    /// The locked rank; `None` for all ranks.
    target: Option<usize>,
}

impl Open<'_> {
    fn close(&self) -> Result<()> {
        self.window.close_by(|| match self.target {
            Some(target) => self.window.unlock(target),
            None => self.window.unlock_all(),
        })
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if let Err(e) = self.close() {
            tracing::error!("failed to close an epoch on drop: {e}");
        }
    }
}

/// Waits until operations are complete.
struct Flush<'a> {
    window: &'a RawWindow,
    target: Option<usize>,
}

impl Future for Flush<'_> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let outcome = self.window.try_flush(self.target).map(|done| done.then_some(()));
        poll_of(self.window.job(), context, outcome)
    }
}

impl<T: Pod> LockWindow<T> {
    /// One epoch under shared locks of all ranks, with an async body: while it waits, other tasks of the thread and the
    /// timers of its runtime run. The lock of a rank is taken at the first access to that rank. Messages: those of
    /// [`lock_all`](Self::lock_all).
    ///
    /// A future that is dropped early completes the operations in progress and closes the epoch in its drop, which may
    /// block. If it is leaked, the epoch stays open, and other epochs of this window are refused.
    ///
    /// ```
    /// # #[cfg(feature = "async")] {
    /// use std::time::Duration;
    ///
    /// use farside_rma::prelude::*;
    ///
    /// #[tokio::main(flavor = "current_thread")]
    /// async fn rank(team: &Team) -> Result<()> {
    ///     let window = LockWindow::<u64>::allocate(team, 4)?;
    ///     let peer = 1 - team.rank();
    ///     window
    ///         .lock_all_async(Assert::default(), async |epoch| {
    ///             let put = epoch.rput(vec![team.rank() as u64; 4], peer, 0)?;
    ///             let (buffer, ()) = tokio::join!(put, tokio::time::sleep(Duration::from_millis(1)));
    ///             let buffer = epoch.rget(buffer?, peer, 0)?.await?;
    ///             assert_eq!(buffer, [team.rank() as u64; 4]);
    ///             Ok::<(), Error>(())
    ///         })
    ///         .await?;
    ///     window.free()
    /// }
    ///
    /// Job::threads(2, |job| rank(&job.world()?))?;
    /// # }
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`lock_all`](Self::lock_all).
    pub async fn lock_all_async<R, E: From<Error>>(
        &self,
        asserts: Assert,
        body: impl AsyncFnOnce(&AsyncEpoch<T>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.raw().lock_all(asserts - Assert::NOCHECK)?;
        self.run_async(None, body).await
    }

    /// One epoch under a lock of `target`, with an async body: see [`lock_all_async`](Self::lock_all_async). Messages:
    /// those of [`lock`](Self::lock).
    ///
    /// ```
    /// # #[cfg(feature = "async")] {
    /// use farside_rma::{block_on, prelude::*};
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let window = LockWindow::<u64>::allocate(&team, 2)?;
    ///     block_on(window.lock_async(LockKind::Exclusive, 0, Assert::empty(), async |epoch| {
    ///         let [count, sum] = epoch.rget([0; 2], 0, 0)?.await?;
    ///         epoch.rput([count + 1, sum + team.rank() as u64], 0, 0)?.await
    ///     }))??;
    ///     team.barrier()?;
    ///     assert!(team.rank() != 0 || window.local_shared().to_vec()? == [3, 3]);
    ///     window.free()
    /// })?;
    /// # }
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    pub async fn lock_async<R, E: From<Error>>(
        &self,
        kind: LockKind,
        target: usize,
        asserts: Assert,
        body: impl AsyncFnOnce(&AsyncEpoch<T>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.raw().lock(kind, target, asserts - Assert::NOCHECK)?;
        self.run_async(Some(target), body).await
    }

    async fn run_async<R, E: From<Error>>(
        &self,
        target: Option<usize>,
        body: impl AsyncFnOnce(&AsyncEpoch<T>) -> Result<R, E>,
    ) -> Result<R, E> {
        let epoch = AsyncEpoch { window: Rc::clone(self.raw()), element: std::marker::PhantomData };
        let open = Open { window: &epoch.window, target };
        let result = body(&epoch).await;
        // The flush completes the operations without blocking the thread, so closing the epoch need not wait.
        let completed = Flush { window: &epoch.window, target }.await;
        let closed = open.close();
        std::mem::forget(open);
        let result = result?;
        completed?;
        closed?;
        Ok(result)
    }
}

impl<T: Pod> AsyncEpoch<T> {
    fn transfer<B: Buffer<T>>(
        &self,
        transfer: Transfer,
        buffer: B,
        target: usize,
        displacement: usize,
    ) -> Result<Pending<B>> {
        Pending::start(&self.window, transfer, buffer, (target, bytes::<T>(displacement)?), |_| ())
    }

    /// Starts a put of a buffer to `target` at `displacement`.
    ///
    /// # Errors
    /// Those of [`Epoch::put`](crate::Epoch::put); the buffer is then dropped.
    pub fn rput<B: Buffer<T>>(&self, from: B, target: usize, displacement: usize) -> Result<Pending<B>> {
        self.transfer(Transfer::Put, from, target, displacement)
    }

    /// Starts a get of as many elements of `target` from `displacement` on as the buffer has.
    ///
    /// # Errors
    /// Those of [`rput`](Self::rput).
    pub fn rget<B: Buffer<T>>(&self, into: B, target: usize, displacement: usize) -> Result<Pending<B>> {
        self.transfer(Transfer::Get, into, target, displacement)
    }

    /// Starts an accumulate of a buffer, each element atomically.
    ///
    /// # Errors
    /// Those of [`rput`](Self::rput); `Unsupported` for a logical or bitwise operation on floats.
    pub fn raccumulate<B: Buffer<T>>(
        &self,
        op: Op,
        operand: B,
        target: usize,
        displacement: usize,
    ) -> Result<Pending<B>>
    where
        T: Element,
    {
        self.transfer(Transfer::Accumulate(op, T::TYPE), operand, target, displacement)
    }

    /// Starts to apply `op` to one element; the handle returns its previous value.
    ///
    /// # Errors
    /// Those of [`raccumulate`](Self::raccumulate).
    pub fn rfetch_and_op(&self, op: Op, operand: T, target: usize, displacement: usize) -> Result<Pending<Fetched<T>>>
    where
        T: Element,
    {
        Pending::fetch(&self.window, op, operand, (target, bytes::<T>(displacement)?), |_| ())
    }

    /// Starts to set one element to `desired` if it equals `expected`; the handle returns its previous value.
    ///
    /// # Errors
    /// Those of [`rput`](Self::rput).
    pub fn rcompare_and_swap(
        &self,
        expected: T,
        desired: T,
        target: usize,
        displacement: usize,
    ) -> Result<Pending<Fetched<T>>>
    where
        T: CasElement,
    {
        Pending::compare_and_swap(&self.window, (expected, desired), (target, bytes::<T>(displacement)?), |_| ())
    }

    /// Completes this rank's operations on `target`, at origin and target.
    ///
    /// # Errors
    /// Those of [`PassiveEpoch::flush`](crate::PassiveEpoch::flush).
    pub async fn flush(&self, target: usize) -> Result<()> {
        self.window.check_element("flush", target, 0, 1)?;
        Flush { window: &self.window, target: Some(target) }.await
    }

    /// Completes this rank's operations on all targets.
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush).
    pub async fn flush_all(&self) -> Result<()> {
        Flush { window: &self.window, target: None }.await
    }
}
