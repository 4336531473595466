//! Optimistic group registration: decides which ranges to register for a list of blocks. A gap is pinned too if that
//! costs less than a further registration (Wu, Wyckoff, Panda: Supporting efficient noncontiguous access in PVFS over
//! InfiniBand, 2003).

use crate::memory::segment::PAGE;

/// A range of whole pages for one registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// First byte.
    pub(super) start: usize,
    /// One past the last byte.
    pub(super) end: usize,
    /// The disjoint parts that contain blocks, as (start, end), in order.
    pub(super) parts: Vec<(usize, usize)>,
}

impl Group {
    /// Bytes to be pinned.
    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }

    /// The group without its gaps: one group per part.
    pub(super) fn split(&self) -> impl Iterator<Item = Group> + '_ {
        self.parts.iter().map(|&(start, end)| Group { start, end, parts: vec![(start, end)] })
    }
}

/// The groups for blocks given as (address, length), disjoint and ordered by address; gaps of at most `gap` bytes are
/// included. Empty blocks are ignored.
pub(super) fn groups(blocks: impl IntoIterator<Item = (usize, usize)>, gap: usize) -> Vec<Group> {
    let page = |at: usize| at / PAGE * PAGE;
    let mut parts: Vec<(usize, usize)> = blocks
        .into_iter()
        .filter(|(_, len)| *len > 0)
        .map(|(at, len)| (page(at), page(at.saturating_add(len - 1)).saturating_add(PAGE)))
        .collect();
    parts.sort_unstable();
    let mut out: Vec<Group> = Vec::new();
    for (start, end) in parts {
        match out.last_mut() {
            Some(group) if start <= group.end.saturating_add(gap) => {
                match group.parts.last_mut() {
                    Some(last) if start <= last.1 => last.1 = last.1.max(end),
                    _ => group.parts.push((start, end)),
                }
                group.end = group.end.max(end);
            }
            _ => out.push(Group { start, end, parts: vec![(start, end)] }),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn gap_up_to_the_limit_is_pinned_and_a_longer_one_is_not() {
        let blocks = [(10 * PAGE + 5, 100), (13 * PAGE, PAGE), (20 * PAGE, 1)];
        let of = |gap| -> Vec<_> { groups(blocks, gap).iter().map(|g| (g.start / PAGE, g.end / PAGE)).collect() };
        assert_eq!(of(0), [(10, 11), (13, 14), (20, 21)]);
        assert_eq!(of(2 * PAGE - 1), of(0));
        assert_eq!(of(2 * PAGE), [(10, 14), (20, 21)]);
        assert_eq!(of(6 * PAGE), [(10, 21)]);
        assert_eq!(groups(blocks, 6 * PAGE)[0].split().collect::<Vec<_>>(), groups(blocks, 0));
    }

    #[test]
    fn blocks_on_one_page_are_one_part_and_empty_ones_none() {
        let all = groups([(4100, 8), (4096, 0), (8190, 4), (4200, 8), (usize::MAX, 0)], 0);
        assert_eq!(all, [Group { start: 4096, end: 12288, parts: vec![(4096, 12288)] }]);
        assert!(groups([(77, 0)], 100).is_empty());
    }

    #[test]
    fn block_at_the_end_of_the_address_space_does_not_wrap() {
        let g = groups([(usize::MAX - 10, 100)], PAGE);
        assert!(g.len() == 1 && g[0].end > g[0].start);
    }

    proptest! {
        #[test]
        fn every_block_is_in_a_part_of_one_group_and_groups_are_apart(
            blocks in prop::collection::vec((0usize..1 << 20, 0usize..20_000), 0..40),
            gap in 0usize..100_000,
        ) {
            let all = groups(blocks.iter().copied(), gap);
            for (at, len) in blocks.iter().filter(|b| b.1 > 0) {
                let holds = |g: &&Group| g.parts.iter().any(|p| p.0 <= *at && at + len <= p.1);
                prop_assert_eq!(all.iter().filter(holds).count(), 1);
            }
            prop_assert!(all.windows(2).all(|w| w[0].end + gap < w[1].start));
            for g in &all {
                prop_assert!(g.parts.windows(2).all(|w| w[0].1 < w[1].0 && w[1].0 - w[0].1 <= gap));
                prop_assert_eq!((g.start, g.end), (g.parts[0].0, g.parts.last().unwrap().1));
                prop_assert!(g.start % PAGE == 0 && g.end % PAGE == 0);
                prop_assert_eq!(g.split().map(|p| p.len()).sum::<usize>(), g.parts.iter().map(|p| p.1 - p.0).sum::<usize>());
            }
        }
    }
}
