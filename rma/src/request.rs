#![allow(unsafe_code)]
//! Request-based operations: wait, test, or await them.

use std::future::Future;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};

use farside_core::{Error, ErrorKind, Result, located};

use crate::collectives::poll_of;
use crate::raw::{self, RawWindow};

/// A request-based operation, which is complete once it is complete at origin and target. It holds the borrow of its
/// buffer and returns the buffer on completion, so that it can be used again inside the epoch. Dropping the request has
/// no effect on the operation, which is complete at the latest when the epoch is closed.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let window = LockWindow::<u64>::allocate(&team, 4)?;
///     let mut buffer = [team.rank() as u64; 2];
///     window.lock_all(Assert::default(), |epoch| {
///         // Put, change the buffer, put again.
///         let buffer = epoch.rput(&mut buffer, 1 - team.rank(), 0)?.wait()?;
///         buffer[0] += 10;
///         let buffer = epoch.rput(buffer, 1 - team.rank(), 2)?.wait()?;
///         let buffer: &mut [u64] = epoch.rget(buffer, 1 - team.rank(), 2)?.wait()?;
///         assert_eq!(buffer[0], 10 + team.rank() as u64);
///         Ok::<(), Error>(())
///     })?;
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "wait, await, or let the epoch complete it"]
pub struct Request<'scope, B = ()> {
    window: &'scope RawWindow,
    inner: raw::Request,
    target: usize,
    /// The borrow of the buffer. Not a `B`, since moving an exclusive reference asserts unique access to the buffer,
    /// which the operation accesses too.
    buffer: MaybeUninit<B>,
    returned: bool,
}

impl<'scope, B> Request<'scope, B> {
    /// Starts an operation by `start`; returns a request that holds the borrow `buffer`.
    pub(crate) fn new(
        window: &'scope RawWindow,
        target: usize,
        buffer: B,
        start: impl FnOnce(&mut B, &raw::Request) -> Result<()>,
    ) -> Result<Self> {
        const { assert!(!std::mem::needs_drop::<B>(), "a request holds borrows only") };
        let buffer = MaybeUninit::new(buffer);
        let mut request = Self { window, inner: raw::Request::new(), target, buffer, returned: false };
        // SAFETY: initialized above.
        start(unsafe { request.buffer.assume_init_mut() }, &request.inner)?;
        Ok(request)
    }

    /// Waits until the operation is complete, and returns its buffer.
    ///
    /// # Errors
    /// `PeerLost`; the operation's own error; `BadArgument` if [`test`](Self::test) has returned the buffer.
    #[track_caller]
    pub fn wait(mut self) -> Result<B> {
        located(|| {
            self.window.wait_request(&self.inner, self.target)?;
            self.take()
        })
    }

    /// Makes progress once; returns the buffer if the operation is complete, `None` if it is in progress.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    #[track_caller]
    pub fn test(&mut self) -> Result<Option<B>> {
        located(|| if self.window.test_request(&self.inner, self.target)? { self.take().map(Some) } else { Ok(None) })
    }

    /// The buffer of an operation that is complete.
    fn take(&mut self) -> Result<B> {
        if std::mem::replace(&mut self.returned, true) {
            return Err(Error::new(ErrorKind::BadArgument, "complete a request")
                .cause("its buffer has already been returned")
                .remedy("drop the request once `test` has returned its buffer"));
        }
        // SAFETY: initialized by `new`, and returned only once.
        Ok(unsafe { self.buffer.assume_init_read() })
    }
}

impl<B: Unpin> Future for Request<'_, B> {
    type Output = Result<B>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = self.test();
        poll_of(self.window.job(), context, outcome)
    }
}

/// A borrow of an operation's data that the operation's request returns: a slice, an array or a vector, shared or
/// exclusive.
pub trait DataRef<'scope, T: 'scope>: Unpin + sealed::Sealed {
    /// The data.
    fn data(&self) -> &[T];
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! data_ref {
    ($([$($n:tt)*] $t:ty),*) => {$(
        impl<'scope, T: 'scope, $($n)*> sealed::Sealed for &'scope $t {}
        impl<'scope, T: 'scope, $($n)*> sealed::Sealed for &'scope mut $t {}
        impl<'scope, T: 'scope, $($n)*> DataRef<'scope, T> for &'scope $t {
            fn data(&self) -> &[T] {
                &self[..]
            }
        }
        impl<'scope, T: 'scope, $($n)*> DataRef<'scope, T> for &'scope mut $t {
            fn data(&self) -> &[T] {
                &self[..]
            }
        }
    )*};
}

data_ref!([] [T], [const N: usize] [T; N], [] Vec<T>);

/// Runs a future, and the tasks that it spawns with `tokio::task::spawn_local`, on this thread. The body of an epoch is
/// a closure and cannot await; it can call this function instead:
///
/// ```
/// use farside_rma::{block_on, prelude::*};
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let window = LockWindow::<u64>::allocate(&team, 1)?;
///     let (mine, mut first) = ([7], [0]);
///     window.lock_all(Assert::empty(), |epoch| {
///         block_on(async {
///             epoch.rput(&mine, 0, 0)?.await?;
///             epoch.rget(&mut first, 0, 0)?.await?;
///             Ok(())
///         })?
///     })?;
///     assert_eq!(first, [7]);
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
///
/// # Errors
/// `Unsupported` on a thread that already runs a tokio runtime: use
/// [`lock_all_async`](crate::LockWindow::lock_all_async) there, or call [`Request::wait`]. `System` if the tokio
/// runtime cannot be created.
#[cfg(feature = "async")]
pub fn block_on<F: Future>(future: F) -> Result<F::Output> {
    const OPERATION: &str = "start an async runtime";
    if tokio::runtime::Handle::try_current().is_ok() {
        return Err(Error::new(ErrorKind::Unsupported, OPERATION)
            .cause("this thread already runs a tokio runtime, and nothing can be awaited inside an epoch's closure")
            .remedy("use `LockWindow::lock_all_async`, whose body is async, or call `Request::wait`"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|e| Error::system(OPERATION, e))?;
    Ok(tokio::task::LocalSet::new().block_on(&runtime, future))
}

#[cfg(all(test, feature = "async"))]
mod tests {
    use super::*;

    #[test]
    fn block_on_inside_a_runtime_is_an_error() {
        let inner = block_on(async { block_on(async {}) }).unwrap();
        assert_eq!(inner.unwrap_err().kind(), ErrorKind::Unsupported);
        block_on(async {}).unwrap();
    }
}
