//! Disjoint ranges of addresses, each with a mark.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint ranges: a map from each start to the end and the mark. Adjacent ranges with equal marks are merged.
#[derive(Default)]
pub(super) struct Extents<M = bool>(BTreeMap<usize, (usize, M)>);

impl<M: Copy + PartialEq> Extents<M> {
    /// Number of ranges.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Sum of the lengths of the ranges with this mark.
    pub(super) fn bytes(&self, mark: M) -> usize {
        self.0.iter().filter(|(_, (_, of))| *of == mark).map(|(start, (end, _))| end - start).sum()
    }

    /// The parts of `range` that this set contains, with their marks, in order.
    pub(super) fn within(&self, range: &Range<usize>) -> impl Iterator<Item = (Range<usize>, M)> + use<'_, M> {
        let Range { start, end } = *range;
        let before = self.0.range(..start).next_back();
        let inside = self.0.range(start..end.max(start));
        before.into_iter().chain(inside).filter_map(move |(from, (to, mark))| {
            let part = start.max(*from)..end.min(*to);
            (part.start < part.end).then_some((part, *mark))
        })
    }

    /// The parts of `range` that this set does not contain, in order.
    pub(super) fn missing(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        without(range, self.within(range).map(|(part, _)| part))
    }

    /// The first consecutive part of `range` that this set contains, whatever its marks.
    pub(super) fn first(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let mut parts = self.within(range).map(|(part, _)| part);
        let first = parts.next()?;
        let end = parts.try_fold(first.end, |end, part| if part.start == end { Ok(part.end) } else { Err(end) });
        let (Ok(end) | Err(end)) = end;
        Some(first.start..end)
    }

    /// Adds `range` with this mark, which replaces earlier marks.
    pub(super) fn insert(&mut self, range: Range<usize>, mark: M) {
        self.remove(&range);
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        if let Some((from, (to, of))) = self.0.range(..start).next_back()
            && (*to, *of) == (start, mark)
        {
            start = *from;
        }
        if let Some((to, of)) = self.0.get(&end).copied()
            && of == mark
        {
            self.0.remove(&end);
            end = to;
        }
        self.0.insert(start, (end, mark));
    }

    /// Removes the parts of `range` that this set contains.
    pub(super) fn remove(&mut self, range: &Range<usize>) {
        let parts: Vec<_> = self.within(range).collect();
        for (part, mark) in parts {
            let Some((from, (to, _))) = self.0.range(..=part.start).next_back().map(|(from, to)| (*from, *to)) else {
                continue;
            };
            self.0.remove(&from);
            for rest in [from..part.start, part.end..to] {
                if rest.start < rest.end {
                    self.0.insert(rest.start, (rest.end, mark));
                }
            }
        }
    }
}

/// Counts, for each address, how many of some ranges cover it; the ranges may overlap.
impl Extents<u32> {
    /// Adds a range to the counts.
    pub(super) fn count(&mut self, range: &Range<usize>) {
        let missing = self.missing(range);
        let covered: Vec<_> = self.within(range).collect();
        missing.into_iter().for_each(|part| self.insert(part, 1));
        covered.into_iter().for_each(|(part, count)| self.insert(part, count + 1));
    }

    /// Removes a counted range.
    pub(super) fn discount(&mut self, range: &Range<usize>) {
        let covered: Vec<_> = self.within(range).collect();
        for (part, count) in covered {
            if count == 1 { self.remove(&part) } else { self.insert(part, count - 1) }
        }
    }
}

/// The parts of `range` that are in none of `others`, which are in order of their starts.
pub(super) fn without(range: &Range<usize>, others: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let (mut parts, mut at) = (Vec::new(), range.start);
    for other in others {
        let end = other.start.min(range.end);
        parts.extend((at < end).then_some(at..end));
        at = at.max(other.end);
    }
    parts.extend((at < range.end).then_some(at..range.end));
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The runs of equal values of `pages` in `range`.
    fn runs<T: PartialEq + Copy>(pages: &[T], range: &Range<usize>) -> Vec<(Range<usize>, T)> {
        let mut runs: Vec<(Range<usize>, T)> = Vec::new();
        for at in range.clone() {
            match runs.last_mut() {
                Some((run, value)) if *value == pages[at] => run.end += 1,
                _ => runs.push((at..at + 1, pages[at])),
            }
        }
        runs
    }

    proptest! {
        /// The reference model records the mark of each page.
        #[test]
        fn extents_agree_with_a_map_of_pages(ops in prop::collection::vec((0u8..3, 0usize..40, 0usize..20), 1..60)) {
            let (mut extents, mut pages) = (Extents::default(), [None; 60]);
            for (what, start, len) in ops {
                let range = start..start + len;
                match what {
                    2 => extents.remove(&range),
                    mark => extents.insert(range.clone(), mark == 1),
                }
                pages[range.clone()].fill((what < 2).then_some(what == 1));
                let all = runs(&pages, &(0..60));
                prop_assert_eq!(extents.len(), all.iter().filter(|(_, mark)| mark.is_some()).count());
                for mark in [false, true] {
                    let bytes = pages.iter().filter(|page| **page == Some(mark)).count();
                    prop_assert_eq!(extents.bytes(mark), bytes);
                }
                let look = start.saturating_sub(3)..(start + len + 3).min(60);
                let here: Vec<_> = runs(&pages, &look).into_iter().filter_map(|(r, mark)| Some((r, mark?))).collect();
                prop_assert_eq!(extents.within(&look).collect::<Vec<_>>(), here);
                let is_here = pages.map(|page| page.is_some());
                let split = |here: bool| runs(&is_here, &look).into_iter().filter(move |run| run.1 == here).map(|run| run.0);
                prop_assert_eq!(extents.missing(&look), split(false).collect::<Vec<_>>());
                prop_assert_eq!(extents.first(&look), split(true).next());
            }
        }

        /// The reference model has a counter for each page, and removes ranges in another order than they were added.
        #[test]
        fn counted_ranges_agree_with_counts_of_pages(ops in prop::collection::vec((0usize..40, 0usize..20, 0usize..4), 1..40)) {
            let (mut extents, mut pages, mut counted) = (Extents::<u32>::default(), [0; 60], Vec::new());
            for (start, len, removed) in ops {
                let range = start..start + len;
                extents.count(&range);
                pages[range.clone()].iter_mut().for_each(|count| *count += 1);
                counted.push(range);
                if removed < counted.len() {
                    let range = counted.swap_remove(removed);
                    extents.discount(&range);
                    pages[range].iter_mut().for_each(|count| *count -= 1);
                }
                let here: Vec<_> = runs(&pages, &(0..60)).into_iter().filter(|(_, count)| *count > 0).collect();
                prop_assert_eq!(extents.within(&(0..60)).collect::<Vec<_>>(), here);
            }
            counted.iter().for_each(|range| extents.discount(range));
            prop_assert_eq!(extents.len(), 0);
        }
    }
}
