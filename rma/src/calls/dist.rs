//! One value at each rank, fetched by rank.

use std::cell::{Ref, RefCell, RefMut};
use std::fmt;
use std::rc::Rc;

use farside_core::{Error, ErrorKind, Result, located};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::calling::Calling;
use super::function::Function;
use super::state::Calls;

/// A value of type `T` at every rank of a team, like UPC++'s `dist_object`: each rank has its own value and can fetch
/// that of any other rank.
///
/// ```
/// use farside_rma::calls::{Calls, Dist};
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let calls = Calls::new(&team)?;
///     let names = Dist::new(&calls, format!("rank {}", team.rank()))?;
///     names.local_mut()?.push('!');
///     team.barrier()?;
///     assert_eq!(names.fetch(2).wait()?, "rank 2!");
///     drop(names);
///     calls.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
pub struct Dist<'c, T> {
    calls: &'c Calls,
    value: Rc<RefCell<T>>,
    fetch: Function<(), Option<T>>,
}

impl<T: fmt::Debug> fmt::Debug for Dist<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dist").field("value", &self.value).finish_non_exhaustive()
    }
}

impl<'c, T: Serialize + DeserializeOwned + Clone + 'static> Dist<'c, T> {
    /// Creates the distributed value from this rank's `value`. Collective; one allgather.
    ///
    /// # Errors
    /// Those of [`Calls::register`].
    #[track_caller]
    pub fn new(calls: &'c Calls, value: T) -> Result<Self> {
        located(|| {
            let value = Rc::new(RefCell::new(value));
            let own = Rc::clone(&value);
            let fetch = calls.register(move |_, ()| own.try_borrow().ok().map(|value| value.clone()))?;
            Ok(Self { calls, value, fetch })
        })
    }

    /// This rank's value.
    ///
    /// # Errors
    /// `WrongEpoch` while it is borrowed mutably.
    #[track_caller]
    pub fn local(&self) -> Result<Ref<'_, T>> {
        located(|| self.value.try_borrow().map_err(|_| borrowed()))
    }

    /// This rank's value, mutably. A rank that fetches the value during the borrow gets an error.
    ///
    /// # Errors
    /// `WrongEpoch` while it is borrowed.
    #[track_caller]
    pub fn local_mut(&self) -> Result<RefMut<'_, T>> {
        located(|| self.value.try_borrow_mut().map_err(|_| borrowed()))
    }

    /// Fetches the value of `rank`. One message and its answer.
    ///
    /// Errors, returned by the handle: those of [`Calls::call`].
    pub fn fetch(&self, rank: usize) -> Fetching<T> {
        Fetching(self.calls.call(rank, self.fetch, ()))
    }
}

#[cold]
fn borrowed() -> Error {
    Error::new(ErrorKind::WrongEpoch, "access a distributed value").cause("it is borrowed")
}

/// A fetch in progress; wait or `.await` returns the value.
///
/// ```
/// # #[cfg(feature = "async")] {
/// use farside_rma::calls::{Calls, Dist};
/// use farside_rma::{block_on, prelude::*};
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let calls = Calls::new(&team)?;
///     let squares = Dist::new(&calls, team.rank() * team.rank())?;
///     // Both fetches are in progress at the same time.
///     let (one, two) = (squares.fetch(1), squares.fetch(2));
///     let both = block_on(async { Ok::<_, Error>((one.await?, two.await?)) })??;
///     assert_eq!(both, (1, 4));
///     drop(squares);
///     calls.free()
/// })?;
/// # }
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "wait or await it"]
pub struct Fetching<T>(Calling<Option<T>>);

impl<T: DeserializeOwned> Fetching<T> {
    /// Waits for the value.
    ///
    /// # Errors
    /// Those of [`Calls::call`]; `WrongEpoch` if the value was mutably borrowed at its rank.
    #[track_caller]
    pub fn wait(self) -> Result<T> {
        located(|| self.0.wait()?.ok_or_else(borrowed))
    }
}

impl<T: DeserializeOwned> Future for Fetching<T> {
    type Output = Result<T>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        let fetched = std::pin::Pin::new(&mut self.0).poll(context);
        fetched.map(|value| value?.ok_or_else(borrowed))
    }
}
