//! Request-based operations: wait, test, or await them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use farside_core::Result;
#[cfg(feature = "async")]
use farside_core::{Error, ErrorKind};

use crate::raw::{self, RawWindow};

/// A request-based operation, which is complete when it is complete at origin and target. Dropping the request has no
/// effect on the operation, which is complete at the latest when the epoch is closed.
#[derive(Debug)]
#[must_use = "wait, await, or let the epoch complete it"]
pub struct Request<'scope> {
    window: &'scope RawWindow,
    pub(crate) inner: raw::Request,
    target: usize,
}

impl<'scope> Request<'scope> {
    pub(crate) fn new(window: &'scope RawWindow, target: usize) -> Self {
        Self { window, inner: raw::Request::new(), target }
    }

    /// Waits until the operation is complete.
    ///
    /// # Errors
    /// `PeerLost`; the operation's own error.
    pub fn wait(self) -> Result<()> {
        self.window.wait_request(&self.inner, self.target)
    }

    /// Whether the operation is complete, making progress once.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    pub fn test(&mut self) -> Result<bool> {
        self.window.test_request(&self.inner, self.target)
    }
}

impl Future for Request<'_> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.window.test_request(&self.inner, self.target) {
            Ok(false) => {
                // Only polling makes progress, so the task asks to be polled again after the other tasks.
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(true) => Poll::Ready(Ok(())),
            Err(e) => Poll::Ready(Err(e)),
        }
    }
}

/// Runs a future, and the tasks that it spawns with `tokio::task::spawn_local`, on this thread. An epoch is a closure
/// and cannot await, so it calls this:
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
///             epoch.rget(&mut first, 0, 0)?.await
///         })?
///     })?;
///     assert_eq!(first, [7]);
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
///
/// # Errors
/// `Unsupported` on a thread that already runs a tokio runtime: call [`Request::wait`] there, or start the job on
/// another thread. `System` if the runtime cannot be made.
#[cfg(feature = "async")]
pub fn block_on<F: Future>(future: F) -> Result<F::Output> {
    const OPERATION: &str = "start an async runtime";
    if tokio::runtime::Handle::try_current().is_ok() {
        return Err(Error::new(ErrorKind::Unsupported, OPERATION)
            .cause("this thread already runs a tokio runtime, and nothing can be awaited inside an epoch's closure")
            .remedy("call `Request::wait`, or start the job on a thread that runs no runtime"));
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
