//! The requests of a rank that are under way, and who counts each of them.

use std::rc::Rc;

use smallvec::SmallVec;

use crate::job::Track;

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

/// The requests under way, by number, and who counts them. A number is a slot, below, and how often it was used.
#[derive(Default)]
pub(crate) struct Tracked {
    slots: Vec<(u32, Option<Tracks>)>,
    free: Vec<u32>,
}

impl Tracked {
    /// The number of the request that is added next.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> u64 {
        let slot = match self.free.last() {
            Some(slot) => *slot,
            None => {
                self.slots.push((0, None));
                self.free.push(self.slots.len() as u32 - 1);
                self.slots.len() as u32 - 1
            }
        };
        u64::from(self.slots[slot as usize].0) << 32 | u64::from(slot)
    }

    #[inline]
    pub(crate) fn add(&mut self, tracks: &[&Rc<Track>]) {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize].1 = Some(Tracks::of(tracks));
        }
    }

    /// As [`add`](Self::add), of a request that one counts.
    #[inline(always)]
    pub(crate) fn add_one(&mut self, track: &Rc<Track>) {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize].1 = Some(Tracks::One(Rc::clone(track)));
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: u64) -> Option<Tracks> {
        let slot = id as u32;
        match self.slots.get_mut(slot as usize) {
            Some((uses, tracks)) if u64::from(*uses) == id >> 32 && tracks.is_some() => {
                *uses = uses.wrapping_add(1);
                self.free.push(slot);
                tracks.take()
            }
            _ => None,
        }
    }

    /// The requests that `track` counts.
    pub(crate) fn of(&self, track: &Rc<Track>) -> Vec<u64> {
        let counts = |tracks: &Tracks| tracks.each().iter().any(|t| Rc::ptr_eq(t, track));
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, (_, tracks))| tracks.as_ref().is_some_and(counts))
            .map(|(slot, (uses, _))| u64::from(*uses) << 32 | slot as u64)
            .collect()
    }
}
