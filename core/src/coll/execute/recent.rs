//! The most recently used values, each with its key, so that a repeated call finds its value and allocates nothing.

use std::cell::{Cell, RefCell};

/// At most `CAPACITY` values. A value in use is absent from its slot, to which it returns.
pub(crate) struct Recent<K, V, const CAPACITY: usize> {
    places: RefCell<Vec<Place<K, V>>>,
    /// Index of the slot that was used last.
    last: Cell<usize>,
    uses: Cell<u64>,
}

struct Place<K, V> {
    key: K,
    value: Option<V>,
    /// Number of its last use.
    used: u64,
    /// Index of the slot that was used next after this one, where the next search after a use of this one starts.
    next: usize,
}

/// The slot from which a value was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    at: usize,
    /// Number of the value's last use, which the slot keeps until it gets another value.
    used: u64,
}

impl<K, V, const CAPACITY: usize> Default for Recent<K, V, CAPACITY> {
    fn default() -> Self {
        Self { places: RefCell::default(), last: Cell::new(0), uses: Cell::new(0) }
    }
}

impl<K: Copy + PartialEq, V, const CAPACITY: usize> Recent<K, V, CAPACITY> {
    /// Removes and returns a value with this key that `fits`, with its slot.
    #[inline]
    pub(crate) fn take(&self, key: &K, fits: impl Fn(&V) -> bool) -> Option<(Taken, V)> {
        let mut places = self.places.borrow_mut();
        let last = self.last.get();
        let first = places.get(last).map_or(0, |place| place.next).min(places.len());
        let is_it = |at: &usize| places[*at].key == *key && places[*at].value.as_ref().is_some_and(&fits);
        let at = (first..places.len()).chain(0..first).find(is_it)?;
        if let Some(last) = places.get_mut(last).filter(|last| last.next != at) {
            last.next = at;
        }
        self.last.set(at);
        let place = &mut places[at];
        Some((Taken { at, used: place.used }, place.value.take()?))
    }

    /// Returns a value to its slot, or stores a new value: in a free slot of its key, in a new slot, or in place of the
    /// least recently used value.
    #[inline]
    pub(crate) fn put(&self, taken: Option<Taken>, key: &K, value: V) {
        let used = self.uses.get() + 1;
        self.uses.set(used);
        let mut places = self.places.borrow_mut();
        let is_it = |taken: &Taken, place: &Place<K, V>| place.value.is_none() && place.used == taken.used;
        let place = taken.and_then(|taken| places.get_mut(taken.at).filter(|place| is_it(&taken, place)));
        if let Some(place) = place {
            (place.value, place.used) = (Some(value), used);
            return;
        }
        drop(places);
        self.store(Place { key: *key, value: Some(value), used, next: 0 });
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

    /// The value that `take` finds, without its slot.
    fn found<const N: usize>(recent: &Recent<char, u32, N>, key: char, fits: impl Fn(&u32) -> bool) -> Option<u32> {
        recent.take(&key, fits).map(|(_, value)| value)
    }

    #[test]
    fn a_value_returns_to_its_place_and_the_one_unused_for_longest_makes_room() {
        let recent = Recent::<char, u32, 2>::default();
        recent.put(None, &'a', 1);
        recent.put(None, &'b', 2);
        let (at, a) = recent.take(&'a', |_| true).unwrap();
        assert_eq!(found(&recent, 'a', |_| true), None);
        recent.put(Some(at), &'a', a);
        recent.put(None, &'c', 3);
        assert_eq!((found(&recent, 'b', |_| true), found(&recent, 'c', |c| *c != 3)), (None, None));
        let (again, one) = recent.take(&'a', |_| true).unwrap();
        assert_eq!((again.at, one), (at.at, 1));
        recent.retain(|_| false);
        assert_eq!(found(&recent, 'c', |_| true), None);
        // While a value is in use, its slot may be given to another value.
        recent.put(Some(Taken { at: 7, used: 1 }), &'a', 4);
        recent.put(Some(at), &'a', 5);
        assert_eq!(found(&recent, 'a', |_| true), Some(4));
        assert_eq!(found(&recent, 'a', |_| true), Some(5));
    }

    #[test]
    fn a_value_in_use_keeps_its_place_and_a_further_one_is_dropped() {
        let recent = Recent::<char, u32, 1>::default();
        recent.put(None, &'a', 1);
        let (at, a) = recent.take(&'a', |_| true).unwrap();
        recent.put(None, &'b', 2);
        assert_eq!(found(&recent, 'b', |_| true), None);
        recent.put(Some(at), &'a', a);
        assert_eq!(found(&recent, 'a', |_| true), Some(1));
    }
}
