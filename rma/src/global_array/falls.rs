//! Families of line segments (FALLS; Ramaswamy and Banerjee 1995, "Automatic generation of efficient array redistribution
//! routines for distributed memory multicomputers"): the indices of one dimension that a rank owns, and the
//! intersection of two such sets. Arithmetic only.

/// `count` segments of `len` indices, whose starts are `stride` apart. Segments do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Falls {
    pub(crate) first: usize,
    pub(crate) len: usize,
    pub(crate) stride: usize,
    pub(crate) count: usize,
}

impl Falls {
    /// A family of one segment.
    pub(crate) fn segment(first: usize, len: usize) -> Self {
        Self { first, len, stride: len, count: 1 }
    }

    /// Segment number `i`.
    pub(crate) fn at(&self, number: usize) -> Self {
        Self::segment(self.first + number * self.stride, self.len)
    }

    /// One past the last index.
    pub(crate) fn end(&self) -> usize {
        self.first + (self.count - 1) * self.stride + self.len
    }
}

/// The indices that are in both lists of families, as families in no particular order.
pub(crate) fn intersection(a: &[Falls], b: &[Falls]) -> Vec<Falls> {
    let mut all = Vec::new();
    for a in a {
        for b in b {
            match (a.count, b.count) {
                (1, _) => within(a, b, &mut all),
                (_, 1) => within(b, a, &mut all),
                _ => periodic(a, b, &mut all),
            }
        }
    }
    all
}

/// The part of a family that is inside one segment: its whole segments as one family, and a truncated segment at each
/// end.
fn within(segment: &Falls, family: &Falls, all: &mut Vec<Falls>) {
    let (start, end) = (segment.first, segment.first + segment.len);
    if segment.len == 0 || family.len == 0 || family.count == 0 || start >= family.end() || end <= family.first {
        return;
    }
    // The segments from `low` up to, but not including, `high` have an index in common with the segment.
    let low = start.saturating_sub(family.first + family.len - 1).div_ceil(family.stride);
    let high = ((end - 1).saturating_sub(family.first) / family.stride + 1).min(family.count);
    if low >= high {
        return;
    }
    let cut = |number: usize| {
        let one = family.at(number);
        let (lo, hi) = (one.first.max(start), (one.first + one.len).min(end));
        Falls::segment(lo, hi - lo)
    };
    let whole = |number: usize| cut(number).len == family.len;
    let (mut from, mut to) = (low, high);
    if !whole(from) {
        all.push(cut(from));
        from += 1;
    }
    if from < to && !whole(to - 1) {
        all.push(cut(to - 1));
        to -= 1;
    }
    if from < to {
        all.push(Falls { first: family.at(from).first, count: to - from, ..*family });
    }
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The common indices of two families of several segments each. They repeat with the least common multiple of the strides,
/// so each pair of segments within it gives at most two families.
fn periodic(a: &Falls, b: &Falls, all: &mut Vec<Falls>) {
    if a.len == 0 || b.len == 0 {
        return;
    }
    // A period that saturates exceeds every index, so nothing repeats.
    let period = (a.stride / greatest_common_divisor(a.stride, b.stride)).saturating_mul(b.stride);
    let (per_a, per_b) = (period / a.stride, period / b.stride);
    let signed = |n: usize| n as i128;
    for i in 0..a.count.min(per_a) {
        let (one, repeats_a) = (a.at(i), signed((a.count - i).div_ceil(per_a)));
        for j in 0..b.count.min(per_b) {
            let (other, repeats_b) = (b.at(j), signed((b.count - j).div_ceil(per_b)));
            let ahead = signed(one.first) - signed(other.first);
            // Segment m of the first family is intersected with segment m + shift of the second.
            let least = (ahead - signed(b.len) + 1).div_euclid(signed(period));
            let most = (ahead + signed(a.len) - 1).div_euclid(signed(period));
            for shift in least..=most {
                let second = signed(other.first) + shift * signed(period);
                let lo = signed(one.first).max(second);
                let hi = (signed(one.first) + signed(a.len)).min(second + signed(b.len));
                let (from, to) = (0.max(-shift), repeats_a.min(repeats_b - shift));
                if lo < hi && from < to {
                    let (first, len) = ((lo + from * signed(period)) as usize, (hi - lo) as usize);
                    all.push(Falls { first, len, stride: period, count: (to - from) as usize });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn indices(families: &[Falls]) -> Vec<usize> {
        let of = |f: &Falls| {
            let f = *f;
            (0..f.count).flat_map(move |i| (0..f.len).map(move |k| f.first + i * f.stride + k))
        };
        families.iter().flat_map(of).collect()
    }

    fn family() -> impl Strategy<Value = Falls> {
        (0..40usize, 1..9usize, 0..12usize, 1..8usize).prop_map(|(first, len, gap, count)| Falls {
            first,
            len,
            stride: len + gap,
            count,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 3000 }, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn common_indices_are_found_once_each(a in family(), b in family()) {
            let found = indices(&intersection(&[a], &[b]));
            let set: BTreeSet<usize> = found.iter().copied().collect();
            prop_assert_eq!(set.len(), found.len(), "no index twice");
            let (a, b): (BTreeSet<_>, BTreeSet<_>) = (indices(&[a]).into_iter().collect(), indices(&[b]).into_iter().collect());
            prop_assert_eq!(set, a.intersection(&b).copied().collect::<BTreeSet<_>>());
        }
    }
}
