#![allow(unsafe_code)]
//! Bodies of calls in which ranks may wait for each other. If a body fails at one rank, that rank will not make the
//! calls for which ranks wait inside their bodies, so their waits fail.

use std::cell::Cell;
use std::ptr::NonNull;

use super::Engine;
use crate::error::{Error, Result};

/// Returns the error if a body has failed at another rank.
type Failed = dyn Fn() -> Option<Error>;

/// A body that this rank is running. It is in the stack frame of [`Engine::in_body`].
struct OpenBody {
    failed: NonNull<Failed>,
    outer: Option<NonNull<OpenBody>>,
}

/// The bodies in which a rank is.
#[derive(Default)]
pub(super) struct OpenBodies {
    innermost: Cell<Option<NonNull<OpenBody>>>,
    /// Number of consecutive checks that have found a failure.
    found: Cell<u32>,
}

/// Number of consecutive peer checks that must find a failure before a wait fails, so that messages and signals that
/// the other rank sent earlier are handled.
const CHECKS_BEFORE_ERROR: u32 = 2;

impl OpenBodies {
    /// Called for each check of the peers in a wait.
    ///
    /// # Errors
    /// Those of [`check`](Self::check), the second time that it finds one.
    pub(super) fn check_in_wait(&self) -> Result<()> {
        let checked = self.check();
        self.found.set(if checked.is_err() { self.found.get() + 1 } else { 0 });
        if self.found.get() < CHECKS_BEFORE_ERROR { Ok(()) } else { checked }
    }

    /// Checks that no body in which this rank is has failed at another rank.
    ///
    /// # Errors
    /// The error of the outermost body that has failed: failures of inner bodies may follow from it.
    fn check(&self) -> Result<()> {
        let (mut next, mut outermost) = (self.innermost.get(), Ok(()));
        while let Some(at) = next {
            // SAFETY: the frame of `in_body` that has inserted it removes it before it ends, and so does the borrow of
            // `failed`.
            let (failed, outer) = unsafe { (at.as_ref().failed.as_ref(), at.as_ref().outer) };
            if let Some(e) = failed() {
                outermost = Err(e);
            }
            next = outer;
        }
        outermost
    }
}

/// Removes a body on drop, even when a panic unwinds.
struct Leaves<'a>(&'a OpenBodies, Option<NonNull<OpenBody>>);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.innermost.set(self.1);
    }
}

impl Engine {
    /// Checks that no body in which this rank is has failed at another rank, as waits inside the body do.
    ///
    /// # Errors
    /// The error of the outermost body that has failed.
    pub fn check_bodies(&self) -> Result<()> {
        self.bodies.check()
    }

    /// Runs a body of a call in which other ranks may wait for this rank, and this rank for them. `failed` is called at
    /// each check of the peers in waits inside `body`, which then fail with its error; it makes no call of the job.
    #[inline]
    pub fn in_body<R>(&self, failed: &dyn Fn() -> Option<Error>, body: impl FnOnce() -> R) -> R {
        let outer = self.bodies.innermost.get();
        // SAFETY: only the lifetime changes. The borrow lasts as long as this call, which removes the body at its end.
        let failed =
            unsafe { std::mem::transmute::<NonNull<dyn Fn() -> Option<Error> + '_>, NonNull<Failed>>(failed.into()) };
        let here = OpenBody { failed, outer };
        self.bodies.innermost.set(Some(NonNull::from(&here)));
        let _leaves = Leaves(&self.bodies, outer);
        body()
    }
}
