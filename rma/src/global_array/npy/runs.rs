//! The positions of a rank's elements in the row-major order of the whole array.

use super::super::distribution::Distribution;

/// Calls `f` with the position in the whole array and the length of each run of consecutive elements of `rank`, in the order
/// of the rank's elements. Runs are maximal.
pub(super) fn for_each_run<const D: usize, E>(
    distribution: &Distribution<D>,
    rank: usize,
    mut f: impl FnMut(usize, usize) -> Result<(), E>,
) -> Result<(), E> {
    let (shape, place, local) = (distribution.shape, distribution.place(rank), distribution.local_shape(rank));
    if local.contains(&0) {
        return Ok(());
    }
    // A run is a segment of the last dimension of which the rank does not own all indices, and spans all dimensions
    // after it.
    let Some(last) = (0..D).rev().find(|d| local[*d] < shape[*d]) else { return f(0, shape.iter().product()) };
    let after: usize = shape[last + 1..].iter().product();
    let segments = distribution.indices(last, place[last]);
    // The last run of a row and the first run of the next row may be consecutive.
    let mut run = (0, 0);
    for number in 0..local[..last].iter().product() {
        // The position of the indices in the dimensions before that one.
        let (mut rest, mut before, mut pitch) = (number, 0, 1);
        for d in (0..last).rev() {
            before += distribution.global(d, place[d], rest % local[d]) * pitch;
            rest /= local[d];
            pitch *= shape[d];
        }
        for segment in segments.iter().flat_map(|family| (0..family.count).map(|i| family.at(i))) {
            let (at, len) = ((before * shape[last] + segment.first) * after, segment.len * after);
            if run.0 + run.1 == at {
                run.1 += len;
                continue;
            }
            if run.1 > 0 {
                f(run.0, run.1)?;
            }
            run = (at, len);
        }
    }
    f(run.0, run.1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::distribution::{Format, near_aspect};
    use super::*;

    fn format() -> impl Strategy<Value = Format> {
        prop_oneof![Just(Format::Block), (1..5usize).prop_map(Format::Cyclic), Just(Format::Whole)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 500 }, failure_persistence: None, ..ProptestConfig::default() })]

        /// Each element of each rank is in one run, at its position, and no two runs of a rank could be merged.
        #[test]
        fn runs_are_the_elements_in_order(
            shape in [0..6usize, 1..6usize, 1..6usize],
            formats in [format(), format(), format()],
            ranks in 1..7usize,
        ) {
            let grid = near_aspect(shape, formats, ranks);
            let Ok(distribution) = Distribution::new(shape, formats, grid, ranks, 8) else { return Ok(()) };
            let mut seen = vec![false; shape.iter().product()];
            for rank in 0..ranks {
                let (mut own, mut end) = (0, None);
                for_each_run(&distribution, rank, |at, len| {
                    assert!(len > 0 && Some(at) != end);
                    end = Some(at + len);
                    for (position, seen) in seen.iter_mut().enumerate().skip(at).take(len) {
                        let index = [position / (shape[1] * shape[2]), position / shape[2] % shape[1], position % shape[2]];
                        assert_eq!(distribution.locate(index), (rank, own));
                        assert!(!std::mem::replace(seen, true));
                        own += 1;
                    }
                    Ok::<(), ()>(())
                }).unwrap();
                prop_assert_eq!(own, distribution.local_shape(rank).iter().product::<usize>());
            }
            prop_assert!(seen.iter().all(|seen| *seen));
        }
    }
}
