//! Which rank owns which block: arithmetic only.

use farside_core::{Error, ErrorKind, Result};

use super::section::Section;

/// A block distribution of an array of `shape` over a grid of ranks. In every dimension each rank has the next
/// ⌈shape / grid⌉ indices; the last rank with any index may have fewer, and the ranks after it have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Distribution<const D: usize> {
    pub(crate) shape: [usize; D],
    /// Ranks in each dimension; rank numbers are row-major in it.
    pub(crate) grid: [usize; D],
    /// Indices of a full block in each dimension.
    block: [usize; D],
}

impl<const D: usize> Distribution<D> {
    /// # Errors
    /// `BadArgument` if the product of the grid is not `ranks`, or the array has more elements than an address space.
    pub(crate) fn new(shape: [usize; D], grid: [usize; D], ranks: usize) -> Result<Self> {
        const OP: &str = "distribute a global array";
        if grid.iter().try_fold(1usize, |n, g| n.checked_mul(*g)) != Some(ranks) {
            return Err(Error::new(ErrorKind::BadArgument, OP).cause(format!("a grid of {grid:?} for {ranks} ranks")));
        }
        let elements = shape.iter().try_fold(1usize, |n, s| n.checked_mul(*s));
        if elements.is_none_or(|n| n > isize::MAX as usize / size_of::<u64>()) {
            return Err(Error::new(ErrorKind::BadArgument, OP).cause(format!("a shape of {shape:?}")));
        }
        Ok(Self { shape, grid, block: std::array::from_fn(|d| shape[d].div_ceil(grid[d])) })
    }

    /// The coordinates of `rank` in the grid.
    fn place(&self, rank: usize) -> [usize; D] {
        let mut place = [0; D];
        let mut rest = rank;
        for d in (0..D).rev() {
            place[d] = rest % self.grid[d];
            rest /= self.grid[d];
        }
        place
    }

    /// The rank at the given coordinates of the grid.
    pub(crate) fn rank_at(&self, place: [usize; D]) -> usize {
        (0..D).fold(0, |rank, d| rank * self.grid[d] + place[d])
    }

    /// The elements of `rank`.
    pub(crate) fn owned(&self, rank: usize) -> Section<D> {
        let place = self.place(rank);
        let bound = |d: usize, place: usize| place.saturating_mul(self.block[d]).min(self.shape[d]);
        Section {
            start: std::array::from_fn(|d| bound(d, place[d])),
            end: std::array::from_fn(|d| bound(d, place[d] + 1)),
        }
    }

    /// The owner of an element, and the index of the element in the owner's row-major block.
    pub(crate) fn locate(&self, index: [usize; D]) -> (usize, usize) {
        let rank = self.rank_at(std::array::from_fn(|d| index[d] / self.block[d]));
        (rank, self.owned(rank).offset_of(index))
    }

    /// The grid coordinates of the owners of a nonempty section.
    pub(crate) fn places(&self, section: &Section<D>) -> Section<D> {
        Section {
            start: std::array::from_fn(|d| section.start[d] / self.block[d]),
            end: std::array::from_fn(|d| (section.end[d] - 1) / self.block[d] + 1),
        }
    }
}

/// The grid of `ranks` ranks for an array of `shape` whose blocks have the smallest half perimeter, so that block and
/// array have about the same aspect ratio. Among equal grids it is the one with the longest rows, which needs the
/// fewest messages.
pub(crate) fn near_aspect(shape: [usize; 2], ranks: usize) -> [usize; 2] {
    let grids = (1..=ranks).rev().filter(|rows| ranks.is_multiple_of(*rows)).map(|rows| [rows, ranks / rows]);
    let half_perimeter = |grid: &[usize; 2]| shape[0].div_ceil(grid[0]).saturating_add(shape[1].div_ceil(grid[1]));
    // `min_by_key` returns the first of equal grids.
    grids.min_by_key(half_perimeter).unwrap_or([ranks, 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_aspect_follows_the_array() {
        for (shape, ranks, grid) in [
            ([100, 100], 1, [1, 1]),
            ([100, 100], 4, [2, 2]),
            ([100, 100], 6, [3, 2]),
            ([100, 100], 7, [7, 1]),
            ([1, 100], 4, [1, 4]),
            ([400, 100], 4, [4, 1]),
            ([100, 400], 8, [2, 4]),
            ([100, 200], 8, [2, 4]),
            ([0, 0], 4, [4, 1]),
        ] {
            assert_eq!(near_aspect(shape, ranks), grid, "{shape:?} over {ranks}");
        }
    }

    #[test]
    fn owned_blocks_partition_the_array() {
        for shape in [[0, 5], [1, 1], [5, 7], [6, 6], [2, 9]] {
            for grid in [[1, 1], [2, 3], [4, 1], [1, 5]] {
                let ranks = grid[0] * grid[1];
                let distribution = Distribution::new(shape, grid, ranks).unwrap();
                for (r, c) in (0..shape[0]).flat_map(|r| (0..shape[1]).map(move |c| (r, c))) {
                    let owners: Vec<_> = (0..ranks).filter(|rank| distribution.owned(*rank).contains([r, c])).collect();
                    assert_eq!(owners, [distribution.locate([r, c]).0], "{shape:?} over {grid:?} at {r}, {c}");
                }
                let sizes: usize = (0..ranks).map(|rank| distribution.owned(rank).len()).sum();
                assert_eq!(sizes, shape[0] * shape[1]);
            }
        }
    }

    #[test]
    fn new_grid_of_another_size() {
        for grid in [[2, 2], [0, 3], [usize::MAX, 2]] {
            let error = Distribution::new([4, 4], grid, 3).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadArgument);
        }
        assert_eq!(Distribution::new([usize::MAX, 2], [1, 1], 1).unwrap_err().kind(), ErrorKind::BadArgument);
    }
}
