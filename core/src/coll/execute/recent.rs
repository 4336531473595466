//! The most recently used values, each with its key, so that a repeated call finds its value and allocates nothing.

use std::cell::{Cell, RefCell};

/// At most `CAPACITY` values. A value in use is absent from its slot, to which it returns.
pub(crate) struct Recent<K, V, const CAPACITY: usize> {
    places: RefCell<Vec<Place<K, V>>>,
    /// Index of the slot that was used last, where the next search starts.
    last: Cell<usize>,
    uses: Cell<u64>,
}

struct Place<K, V> {
    key: K,
    value: Option<V>,
    /// Number of its last use.
    used: u64,
}

impl<K, V, const CAPACITY: usize> Default for Recent<K, V, CAPACITY> {
    fn default() -> Self {
        Self { places: RefCell::default(), last: Cell::new(0), uses: Cell::new(0) }
    }
}

impl<K: PartialEq, V, const CAPACITY: usize> Recent<K, V, CAPACITY> {
    /// Removes and returns a value with this key that `fits`, with the index of its slot.
    #[inline]
    pub(crate) fn take(&self, key: &K, fits: impl Fn(&V) -> bool) -> Option<(usize, V)> {
        let mut places = self.places.borrow_mut();
        let last = self.last.get().min(places.len());
        let is_it = |at: &usize| places[*at].key == *key && places[*at].value.as_ref().is_some_and(&fits);
        let at = (last..places.len()).chain(0..last).find(is_it)?;
        self.last.set(at);
        Some((at, places[at].value.take()?))
    }

    /// Returns a value to its slot, or stores a new value: in a free slot of its key, in a new slot, or in place of the
    /// least recently used value.
    #[inline]
    pub(crate) fn put(&self, at: Option<usize>, key: K, value: V) {
        let used = self.uses.get() + 1;
        self.uses.set(used);
        let mut places = self.places.borrow_mut();
        match at.and_then(|at| places.get_mut(at)) {
            Some(place) if place.value.is_none() && place.key == key => {
                (place.value, place.used) = (Some(value), used);
            }
            _ => {
                drop(places);
                self.store(Place { key, value: Some(value), used });
            }
        }
    }

    fn store(&self, place: Place<K, V>) {
        let mut places = self.places.borrow_mut();
        let free = places.iter().position(|known| known.value.is_none() && known.key == place.key);
        if free.is_none() && places.len() < CAPACITY {
            places.push(place);
            return;
        }
        let idle = (0..places.len()).filter(|at| places[*at].value.is_some());
        let old = free.or(idle.min_by_key(|at| places[*at].used)).map(|at| std::mem::replace(&mut places[at], place));
        // Dropping `old` may call this function again, so `places` is no longer borrowed.
        drop(places);
        drop(old);
    }

    /// Drops the idle values that `keep` does not select.
    pub(crate) fn retain(&self, keep: impl Fn(&V) -> bool) {
        let is_removed = |place: &mut Place<K, V>| !place.value.as_ref().is_none_or(&keep);
        let removed = self.places.borrow_mut().extract_if(.., is_removed).collect::<Vec<_>>();
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_returns_to_its_place_and_the_one_unused_for_longest_makes_room() {
        let recent = Recent::<char, u32, 2>::default();
        recent.put(None, 'a', 1);
        recent.put(None, 'b', 2);
        let (at, a) = recent.take(&'a', |_| true).unwrap();
        assert_eq!(recent.take(&'a', |_| true), None);
        recent.put(Some(at), 'a', a);
        recent.put(None, 'c', 3);
        assert_eq!((recent.take(&'b', |_| true), recent.take(&'c', |c| *c != 3)), (None, None));
        assert_eq!(recent.take(&'a', |_| true), Some((0, 1)));
        recent.retain(|_| false);
        assert_eq!(recent.take(&'c', |_| true), None);
        // While a value is in use, its slot may be given to another value.
        recent.put(Some(7), 'a', 4);
        assert_eq!(recent.take(&'a', |_| true), Some((0, 4)));
    }

    #[test]
    fn a_value_in_use_keeps_its_place_and_a_further_one_is_dropped() {
        let recent = Recent::<char, u32, 1>::default();
        recent.put(None, 'a', 1);
        let (at, a) = recent.take(&'a', |_| true).unwrap();
        recent.put(None, 'b', 2);
        assert_eq!(recent.take(&'b', |_| true), None);
        recent.put(Some(at), 'a', a);
        assert_eq!(recent.take(&'a', |_| true), Some((0, 1)));
    }
}
