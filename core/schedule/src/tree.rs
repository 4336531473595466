//! Trees over the ranks, counted from the root: every subtree is a run of consecutive numbers, and its root is the
//! first of them. So a scatter or a gather sends the blocks of a subtree as one run.

use std::ops::Range;

/// The position of one rank in a tree. All numbers count from the root of the collective, whose number is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The parent; the root has none.
    pub parent: Option<u32>,
    /// The rank's own subtree, itself first.
    pub subtree: Range<u32>,
    /// Subtrees of the children, in the order in which they are served.
    pub children: Vec<Range<u32>>,
}

impl Place {
    /// Position in a flat tree: all others are children of the root.
    #[must_use]
    pub fn flat(number: u32, size: u32) -> Self {
        let one = |n: u32| n..n + 1;
        if number > 0 {
            return Self { parent: Some(0), subtree: one(number), children: Vec::new() };
        }
        Self { parent: None, subtree: 0..size, children: (1..size).map(one).collect() }
    }

    /// Position in a chain: every rank has one child, the next.
    #[must_use]
    pub fn chain(number: u32, size: u32) -> Self {
        let children = Some(number + 1..size).filter(|c| !c.is_empty()).into_iter().collect();
        Self { parent: number.checked_sub(1), subtree: number..size, children }
    }

    /// Position in a balanced `k`-ary tree: the ranks below a rank are divided evenly among its children.
    /// So P ranks have ⌊log2 P⌋ levels below the root for k = 2, as few as in any k-ary tree.
    #[must_use]
    pub fn k_ary(k: u32, number: u32, size: u32) -> Self {
        let children = |of: &Range<u32>| -> Vec<Range<u32>> {
            let below = u64::from(of.end - of.start - 1);
            let at = |i: u32| of.start + 1 + (below * u64::from(i)).div_ceil(u64::from(k)) as u32;
            (0..k).map(|i| at(i)..at(i + 1)).filter(|c| !c.is_empty()).collect()
        };
        let (mut parent, mut subtree) = (None, 0..size);
        while subtree.start != number {
            parent = Some(subtree.start);
            let below = children(&subtree).into_iter().find(|c| c.contains(&number));
            subtree = below.expect("the subtrees of the children have all ranks below");
        }
        let children = children(&subtree);
        Self { parent, subtree, children }
    }

    /// Position in a k-nomial tree, binomial for k = 2: the parent of number n is n with its lowest non-zero digit in
    /// base k set to 0. The largest subtrees come first.
    #[must_use]
    pub fn k_nomial(k: u32, number: u32, size: u32) -> Self {
        let (k, n, p) = (u64::from(k), u64::from(number), u64::from(size));
        let mut span = 1;
        while span < p && n % (span * k) == 0 {
            span *= k;
        }
        let parent = (n > 0).then(|| (n - n % (span * k)) as u32);
        let run = |from: u64, span: u64| from as u32..(from + span).min(p) as u32;
        let subtree = run(n, span);
        let mut children = Vec::new();
        while span > 1 {
            span /= k;
            children.extend((1..k).map(|i| n + i * span).take_while(|c| *c < p).map(|c| run(c, span)));
        }
        Self { parent, subtree, children }
    }
}
