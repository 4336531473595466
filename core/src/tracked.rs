//! The work requests of a rank in progress, and the tracks that count each of them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::slots::Slots;

/// Counts work requests until they are complete, and records the first error.
#[derive(Debug, Default)]
pub struct Track {
    open: Cell<usize>,
    error: RefCell<Option<Error>>,
}

impl Track {
    /// A track that counts no request.
    #[must_use]
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// Number of requests in progress.
    #[must_use]
    #[inline]
    pub fn open(&self) -> usize {
        self.open.get()
    }

    /// Whether a request has failed since the last [`check`](Self::check).
    #[must_use]
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.error.borrow().is_some()
    }

    /// Returns and removes the first error.
    ///
    /// # Errors
    /// The first failure since the last call.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.has_failed() { self.error.borrow_mut().take().map_or(Ok(()), Err) } else { Ok(()) }
    }

    /// The first error, which is not removed.
    ///
    /// # Errors
    /// The first failure since the last [`check`](Self::check).
    pub fn outcome(&self) -> Result<()> {
        self.error.borrow().as_ref().map_or(Ok(()), |e| Err(e.again()))
    }

    /// Records the error of a request that could not be posted, unless there is an earlier error.
    #[cold]
    pub fn fail(&self, e: &Error) {
        self.error.borrow_mut().get_or_insert_with(|| e.again());
    }

    /// Counts one more request.
    #[inline]
    pub(crate) fn open_one(&self) {
        self.open.set(self.open.get() + 1);
    }

    /// Ends a request that succeeded or was cancelled.
    #[inline]
    pub(crate) fn close(&self) {
        self.open.set(self.open.get() - 1);
    }

    /// Ends a request; records its error, unless there is an earlier error.
    #[cold]
    pub(crate) fn end(&self, result: &Result<()>) {
        self.close();
        if let Err(e) = result {
            self.fail(e);
        }
    }
}

/// The tracks that count a request.
pub(crate) enum Tracks {
    One(Rc<Track>),
    More(SmallVec<[Rc<Track>; 2]>),
}

impl Tracks {
    #[inline]
    fn of(tracks: &[&Rc<Track>]) -> Self {
        match tracks {
            [one] => Tracks::One(Rc::clone(one)),
            more => Tracks::More(more.iter().map(|t| Rc::clone(t)).collect()),
        }
    }

    pub(crate) fn each(&self) -> &[Rc<Track>] {
        match self {
            Tracks::One(one) => std::slice::from_ref(one),
            Tracks::More(more) => more,
        }
    }
}

/// The number of a request that no track counts.
pub(crate) const UNTRACKED: u64 = u64::MAX;

/// The requests in progress, by number, and the tracks that count them.
#[derive(Default)]
pub(crate) struct Tracked(Slots<Tracks>);

impl Tracked {
    /// The number of the request that is added next.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> u64 {
        self.0.next()
    }

    #[inline]
    pub(crate) fn add(&mut self, tracks: &[&Rc<Track>]) {
        tracks.iter().for_each(|t| t.open_one());
        self.0.add(Tracks::of(tracks));
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: u64) -> Option<Tracks> {
        self.0.remove(id)
    }

    /// The requests that `track` counts.
    pub(crate) fn of(&self, track: &Rc<Track>) -> Vec<u64> {
        let counts = |tracks: &Tracks| tracks.each().iter().any(|t| Rc::ptr_eq(t, track));
        self.0.iter().filter(|(_, tracks)| counts(tracks)).map(|(id, _)| id).collect()
    }
}
