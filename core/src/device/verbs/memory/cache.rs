//! The registration cache: memory of the program that was registered for a transfer stays registered for the next one.
//!
//! The index is by address and holds the parts that contain blocks. Gaps pinned with them ([`super::group`]) are not in
//! it, so that a page that comes into use later is never accessed through an old registration. The bytes and the number
//! of registrations are limited; the least recently used one is dropped first, but never one in use. An operation holds
//! an `Rc` of its registration; a registration that the cache drops meanwhile is deregistered when the last `Rc` is
//! dropped.
//!
//! Only the rank accesses the cache, so it needs no lock. The thread of [`watch`](crate::device::watch) only records
//! ranges; the rank invalidates their registrations before its next lookup.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::group::{Group, groups};

/// Limits of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Maximum number of registered bytes.
    pub(crate) bytes: usize,
    /// Maximum number of registrations.
    pub(crate) entries: usize,
}

struct Kept<R> {
    registration: Rc<R>,
    group: Group,
    /// Time of the last use, on the cache's clock.
    used: Cell<u64>,
}

/// Registrations, indexed by address.
pub(super) struct Cache<R> {
    /// For each start address of a part: its end and its registration.
    parts: BTreeMap<usize, (usize, Rc<Kept<R>>)>,
    bytes: usize,
    entries: usize,
    limits: Limits,
    clock: u64,
}

impl<R> Cache<R> {
    pub(super) fn new(limits: Limits) -> Self {
        Self { parts: BTreeMap::new(), bytes: 0, entries: 0, limits, clock: 0 }
    }

    /// Whether a registration of this many bytes would be cached.
    pub(super) fn admits(&self, bytes: usize) -> bool {
        bytes <= self.limits.bytes && self.limits.entries > 0
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Returns the registration that covers `len` bytes at `start`.
    pub(super) fn find(&mut self, start: usize, len: usize) -> Option<Rc<R>> {
        let now = self.tick();
        let (_, (end, kept)) = self.parts.range(..=start).next_back()?;
        if start.checked_add(len)? > *end {
            return None;
        }
        kept.used.set(now);
        Some(Rc::clone(&kept.registration))
    }

    /// `group` extended by the cached registrations that overlap it, so that one registration can replace all of them;
    /// `None` if the result is `group` itself, or exceeds half of the limit.
    pub(super) fn widened(&self, group: &Group) -> Option<Group> {
        let overlapping = self.overlapping(group);
        let parts = overlapping.iter().flat_map(|kept| &kept.group.parts).chain(&group.parts);
        let wide = groups(parts.map(|(start, end)| (*start, end - start)), usize::MAX).pop()?;
        (wide != *group && wide.len() <= self.limits.bytes / 2).then_some(wide)
    }

    /// Caches a registration of `group`, which replaces those that it overlaps, then evicts until the limits hold.
    pub(super) fn insert(&mut self, group: Group, registration: R) -> Rc<R> {
        self.forget(&group);
        let (registration, used) = (Rc::new(registration), Cell::new(self.tick()));
        self.bytes += group.len();
        self.entries += 1;
        let kept = Rc::new(Kept { registration: Rc::clone(&registration), group, used });
        self.parts.extend(kept.group.parts.iter().map(|(start, end)| (*start, (*end, Rc::clone(&kept)))));
        while (self.bytes > self.limits.bytes || self.entries > self.limits.entries) && self.evict() {}
        registration
    }

    /// Drops the least recently used registration that no operation uses; returns whether there was one.
    pub(super) fn evict(&mut self) -> bool {
        let idle = self.parts.values().filter(|(_, kept)| Rc::strong_count(&kept.registration) == 1);
        let oldest = idle.min_by_key(|(_, kept)| kept.used.get()).map(|(_, kept)| Rc::clone(kept));
        oldest.inspect(|kept| self.remove(kept)).is_some()
    }

    /// Drops all registrations of memory in `group`, whose pages have changed. Returns their number.
    pub(super) fn forget(&mut self, group: &Group) -> usize {
        let gone = self.overlapping(group);
        gone.iter().for_each(|kept| self.remove(kept));
        gone.len()
    }

    fn overlapping(&self, group: &Group) -> Vec<Rc<Kept<R>>> {
        let mut found = Vec::new();
        for &(start, end) in &group.parts {
            // Parts are disjoint, so at most one begins before this one and reaches into it.
            let before = self.parts.range(..start).next_back().filter(|(_, (e, _))| *e > start);
            let inside = self.parts.range(start..end.max(start));
            found.extend(before.into_iter().chain(inside).map(|(_, (_, kept))| Rc::clone(kept)));
        }
        found.sort_unstable_by_key(|kept| kept.group.start);
        found.dedup_by_key(|kept| kept.group.start);
        found
    }

    fn remove(&mut self, kept: &Kept<R>) {
        self.bytes -= kept.group.len();
        self.entries -= 1;
        for (start, _) in &kept.group.parts {
            self.parts.remove(start);
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::memory::segment::PAGE;
    use proptest::prelude::*;

    fn group(parts: &[(usize, usize)]) -> Group {
        groups(parts.iter().map(|(s, e)| (s * PAGE, (e - s) * PAGE)), usize::MAX).pop().unwrap()
    }

    fn bytes(start: usize, end: usize) -> Group {
        Group { start, end, parts: vec![(start, end)] }
    }

    fn cache(pages: usize, entries: usize) -> Cache<&'static str> {
        Cache::new(Limits { bytes: pages * PAGE, entries })
    }

    #[test]
    fn block_inside_a_stretch_is_found_and_one_in_a_gap_is_not() {
        let mut c = cache(100, 10);
        c.insert(group(&[(10, 12), (14, 15)]), "a");
        let mut find = |at: usize, len| c.find(at, len).map(|r| *r);
        assert_eq!(find(10 * PAGE + 7, PAGE), Some("a"));
        assert_eq!(find(14 * PAGE, PAGE), Some("a"));
        assert_eq!(find(12 * PAGE - 1, 2), None);
        assert_eq!(find(13 * PAGE, 1), None);
        assert_eq!(find(9 * PAGE, 2 * PAGE), None);
        assert_eq!(find(10 * PAGE, usize::MAX), None);
    }

    #[test]
    fn least_recently_used_is_evicted_first_and_used_entries_stay() {
        let mut c = cache(3, 10);
        for (i, name) in ["a", "b", "c"].into_iter().enumerate() {
            c.insert(group(&[(2 * i, 2 * i + 1)]), name);
        }
        let a = c.find(0, 1);
        c.find(2 * PAGE, 1);
        c.insert(group(&[(10, 11)]), "d");
        assert!(c.find(4 * PAGE, 1).is_none(), "c was the oldest");
        c.insert(group(&[(20, 22)]), "e");
        assert!(c.find(2 * PAGE, 1).is_none() && c.find(10 * PAGE, 1).is_none());
        assert_eq!((c.bytes, c.entries), (3 * PAGE, 2));
        c.insert(group(&[(30, 33)]), "f");
        assert_eq!(c.find(0, 1), a, "in use");
        assert_eq!(Rc::strong_count(&a.unwrap()), 2);
    }

    #[test]
    fn entries_are_limited_too_and_a_limit_of_nothing_keeps_nothing() {
        let mut c = cache(100, 2);
        for i in 0..5 {
            c.insert(group(&[(2 * i, 2 * i + 1)]), "x");
        }
        assert_eq!(c.entries, 2);
        assert!(c.admits(100 * PAGE) && !c.admits(100 * PAGE + 1));
        assert!(!cache(0, 2).admits(1) && !cache(1, 0).admits(1));
    }

    #[test]
    fn unmapped_memory_is_dropped_with_all_that_was_registered_with_it() {
        let mut c = cache(100, 10);
        c.insert(group(&[(10, 12), (14, 15)]), "a");
        c.insert(group(&[(20, 21)]), "b");
        assert_eq!(c.forget(&bytes(12 * PAGE, 14 * PAGE)), 0, "the gap belongs to none");
        assert_eq!(c.forget(&bytes(11 * PAGE, 11 * PAGE + 1)), 1);
        assert!(c.find(10 * PAGE, 1).is_none() && c.find(14 * PAGE, 1).is_none() && c.find(20 * PAGE, 1).is_some());
        assert_eq!(c.forget(&bytes(0, usize::MAX)), 1);
        assert_eq!((c.bytes, c.entries), (0, 0));
    }

    #[test]
    fn overlapping_registrations_become_one() {
        let mut c = cache(100, 10);
        c.insert(group(&[(10, 12)]), "a");
        c.insert(group(&[(14, 16)]), "b");
        let wanted = group(&[(11, 15)]);
        let wide = c.widened(&wanted).unwrap();
        assert_eq!((wide.start, wide.end), (10 * PAGE, 16 * PAGE));
        c.insert(wide, "c");
        assert_eq!((c.bytes, c.entries), (6 * PAGE, 1));
        assert_eq!(c.find(10 * PAGE, 6 * PAGE).as_deref(), Some(&"c"));
        assert!(c.widened(&group(&[(10, 16)])).is_none() && c.widened(&group(&[(50, 51)])).is_none());
        assert!(c.widened(&group(&[(15, 80)])).is_none(), "more than half of the limit");
    }

    proptest! {
        /// The reference model records the registration that each page was given last.
        #[test]
        fn index_agrees_with_a_map_of_pages(ops in prop::collection::vec((0u8..3, 0usize..60, 1usize..8), 1..80)) {
            let mut c = Cache::new(Limits { bytes: usize::MAX / 4, entries: 1000 });
            let mut pages: Vec<Option<usize>> = vec![None; 80];
            let drop_of = |pages: &mut Vec<Option<usize>>, from: usize, to: usize| {
                let gone: Vec<usize> = pages[from..to].iter().flatten().copied().collect();
                pages.iter_mut().filter(|p| p.is_some_and(|n| gone.contains(&n))).for_each(|p| *p = None);
            };
            for (n, (what, at, len)) in ops.into_iter().enumerate() {
                match what {
                    0 => {
                        drop_of(&mut pages, at, at + len);
                        c.insert(group(&[(at, at + len)]), n);
                        pages[at..at + len].fill(Some(n));
                    }
                    1 => {
                        c.forget(&bytes(at * PAGE, (at + len) * PAGE));
                        drop_of(&mut pages, at, at + len);
                    }
                    _ => {
                        let all = pages[at].filter(|n| pages[at..at + len].iter().all(|p| *p == Some(*n)));
                        prop_assert_eq!(c.find(at * PAGE, len * PAGE).map(|r| *r), all);
                    }
                }
            }
        }
    }
}
