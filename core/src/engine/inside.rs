//! Calls that are refused: after the end of the job, and inside callbacks that may not communicate.

use super::Engine;
use crate::callback::Callback;
use crate::error::{Error, ErrorKind, Result};

/// Marks that a callback runs, until this is dropped, even when a panic unwinds ([`Engine::inside`]).
#[derive(Debug)]
#[must_use]
pub struct Inside<'a> {
    engine: &'a Engine,
    around: Option<Callback>,
    /// Whether calls were refused before.
    refused: bool,
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.engine.inside.set(self.around);
        if !self.refused {
            self.engine.order.refuse(false);
        }
    }
}

impl Engine {
    /// Whether the job has ended for this rank.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// Records that the job has ended for this rank.
    pub(crate) fn end(&self) {
        self.ended.set(true);
        self.order.refuse(true);
    }

    /// Whether calls may take their fast path: no call is refused, and no bill is recorded.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.order.is_plain()
    }

    /// Checks that `operation`, a call that communicates, is allowed now.
    ///
    /// # Errors
    /// `Freed` once the job has ended, since other ranks no longer answer; `InCallback` inside a [callback](Callback)
    /// that may not communicate.
    #[inline]
    pub fn running(&self, operation: &'static str) -> Result<()> {
        if self.order.refuses() { Err(self.refuse(operation)) } else { Ok(()) }
    }

    #[cold]
    fn refuse(&self, operation: &'static str) -> Error {
        if let Some(callback) = self.inside.get() {
            return callback.refuse(operation).rank(self.rank);
        }
        let e = Error::new(ErrorKind::Freed, operation).rank(self.rank);
        e.cause("the job has been finalized").remedy("finalize the job after all other calls")
    }

    /// Checks only that no callback runs that may not wait.
    ///
    /// # Errors
    /// `InCallback`.
    #[inline]
    pub(crate) fn outside(&self, operation: &'static str) -> Result<()> {
        if self.order.refuses() && self.inside.get().is_some() { Err(self.refuse(operation)) } else { Ok(()) }
    }

    /// Refuses calls that a callback may not make, until the guard is dropped.
    #[inline]
    pub fn inside(&self, callback: Callback) -> Inside<'_> {
        let refused = self.order.refuses();
        self.order.refuse(true);
        Inside { engine: self, around: self.inside.replace(Some(callback)), refused }
    }
}
