//! The results of calls in progress.

use std::any::type_name;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use farside_core::{Error, ErrorKind, Result, located};
use serde::de::DeserializeOwned;

use super::state::{Calls, Outcome, Shared};
use super::wire::{self, CALL};
use crate::collectives::poll_of;

/// The result of a remote call, by wait, test or `.await`. Dropping it has no effect on the call.
///
/// ```
/// use farside_rma::calls::{Caller, Calls};
/// use farside_rma::prelude::*;
///
/// fn square(_: &Caller<'_>, x: u64) -> u64 {
///     x * x
/// }
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let calls = Calls::new(&team)?;
///     calls.register(square)?;
///     let mut calling = calls.call(1 - team.rank(), square, 12);
///     let result = loop {
///         // Other work, until the result has arrived.
///         if let Some(result) = calling.test()? {
///             break result;
///         }
///     };
///     assert_eq!(result, 144);
///     calls.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[must_use = "wait or await it, or use `cast`"]
pub struct Calling<R> {
    shared: Rc<Shared>,
    rank: usize,
    /// `None` once the result was returned.
    outcome: Option<Result<Rc<Outcome>>>,
    result: PhantomData<fn() -> R>,
}

impl<R> fmt::Debug for Calling<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calling").field("result", &type_name::<R>()).finish_non_exhaustive()
    }
}

impl<R: DeserializeOwned> Calling<R> {
    pub(super) fn new(calls: &Calls, rank: usize, outcome: Result<Rc<Outcome>>) -> Self {
        Self { shared: Rc::clone(&calls.shared), rank, outcome: Some(outcome), result: PhantomData }
    }

    /// The result, if it has arrived.
    fn take(&mut self) -> Result<Option<R>> {
        let returned = || Error::new(ErrorKind::BadArgument, CALL).cause("the result has already been returned");
        let bytes = match self.outcome.as_ref().ok_or_else(returned)? {
            Ok(outcome) => outcome.result.borrow_mut().take(),
            Err(e) => Some(Err(e.again())),
        };
        let Some(bytes) = bytes else { return Ok(None) };
        self.outcome = None;
        let bytes: Vec<u8> = bytes?;
        postcard::from_bytes(&bytes).map(Some).map_err(|e| wire::codec_error("a result", &e))
    }

    /// Waits for the result. Functions that other ranks call run meanwhile.
    ///
    /// # Errors
    /// Those of [`Calls::call`]; `BadArgument` if [`test`](Self::test) has returned the result.
    #[track_caller]
    pub fn wait(mut self) -> Result<R> {
        located(|| {
            let (shared, rank) = (Rc::clone(&self.shared), self.rank);
            if let Some(result) = self.take()? {
                return Ok(result);
            }
            shared.may_wait()?;
            shared.job().wait(|| shared.awaited(Some(rank)), || self.take())
        })
    }

    /// Makes progress once; returns the result if it has arrived. Not allowed inside a function, where no other
    /// function would run.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait); `InCallback` inside a function.
    #[track_caller]
    pub fn test(&mut self) -> Result<Option<R>> {
        located(|| {
            if let Some(result) = self.take()? {
                return Ok(Some(result));
            }
            self.shared.check_outside_function(CALL)?;
            self.shared.job().progress_of_test()?;
            self.take()
        })
    }
}

impl<R: DeserializeOwned> Future for Calling<R> {
    type Output = Result<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.shared.in_async.get() {
            let outcome = self.test();
            return poll_of(self.shared.job(), context, outcome);
        }
        match self.take().map_err(Error::without_caller).transpose() {
            Some(result) => Poll::Ready(result),
            None => {
                if let Some(Ok(outcome)) = &self.outcome {
                    *outcome.waker.borrow_mut() = Some(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

/// The results of several calls, in their order: of [`Calls::call_all`], or of calls that are collected.
///
/// ```
/// use farside_rma::calls::{Calls, CallingAll};
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let (calls, me) = (Calls::new(&team)?, team.rank() as u32);
///     let times = calls.register(move |_, factor: u32| factor * me)?;
///     assert_eq!(calls.call_all(times, 10).wait()?, [0, 10, 20]);
///     let some: CallingAll<u32> = [2, 1].into_iter().map(|rank| calls.call(rank, times, 3)).collect();
///     assert_eq!(some.wait()?, [6, 3]);
///     calls.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "wait or await it, or use `cast_all`"]
pub struct CallingAll<R> {
    calls: Vec<Calling<R>>,
    results: Vec<R>,
}

// `Unpin`: no pinned reference to the results is ever made.
impl<R> Unpin for CallingAll<R> {}

impl<R> FromIterator<Calling<R>> for CallingAll<R> {
    fn from_iter<I: IntoIterator<Item = Calling<R>>>(calls: I) -> Self {
        Self { calls: calls.into_iter().collect(), results: Vec::new() }
    }
}

impl<R: DeserializeOwned> CallingAll<R> {
    /// Waits for the results.
    ///
    /// # Errors
    /// Those of [`Calls::call`], of the first call that has one.
    #[track_caller]
    pub fn wait(self) -> Result<Vec<R>> {
        located(|| {
            let Self { calls, mut results } = self;
            for call in calls.into_iter().skip(results.len()) {
                results.push(call.wait()?);
            }
            Ok(results)
        })
    }
}

impl<R: DeserializeOwned> Future for CallingAll<R> {
    type Output = Result<Vec<R>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        while let Some(next) = this.calls.get_mut(this.results.len()) {
            match Pin::new(next).poll(context) {
                Poll::Ready(Ok(result)) => this.results.push(result),
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(std::mem::take(&mut this.results)))
    }
}
