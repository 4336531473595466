//! The requests of a rank that are under way, and who counts each of them.

use std::rc::Rc;

use smallvec::SmallVec;

use crate::job::Track;
use crate::slots::Slots;

/// Who counts a request.
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

/// The number of a request that nobody counts.
pub(crate) const UNTRACKED: u64 = u64::MAX;

/// The requests under way, by number, and who counts them.
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
