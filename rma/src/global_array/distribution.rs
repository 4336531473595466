//! The distribution of elements over ranks, and their positions at their ranks: arithmetic only.

use bytemuck::Pod;
use farside_core::{Error, ErrorKind, Result};
use farside_datatype::Datatype;

use super::falls::{Falls, intersection};
use super::section::Section;
use crate::elements::datatype_of;
use crate::selection::Selection;

/// The distribution format of one dimension, as named in HPF.
///
/// ```
/// use farside_rma::global_array::Format;
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let array = GlobalArray::<u8, 1>::distributed(&team, [7], [Format::Cyclic(2)])?;
///     let owners: Vec<usize> = (0..7).map(|i| Ok(array.locate([i])?.0)).collect::<Result<_>>()?;
///     assert_eq!(owners, [0, 0, 1, 1, 0, 0, 1]);
///     array.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `BLOCK`: each rank of the dimension has the next ⌈n / ranks⌉ indices.
    Block,
    /// `CYCLIC(k)`: blocks of k indices go to the ranks of the dimension in turn. `CYCLIC` is `Cyclic(1)`.
    Cyclic(usize),
    /// `*`: every rank has all indices of the dimension, which is not distributed.
    Whole,
}

impl Format {
    /// The wire form of the format.
    pub(super) fn code(self) -> u64 {
        match self {
            Format::Block => 0,
            Format::Cyclic(k) => (k.min(usize::MAX >> 1) as u64) << 1 | 1,
            Format::Whole => 2,
        }
    }

    /// The format with this wire form.
    pub(super) fn of_code(code: u64) -> Self {
        match code {
            0 => Format::Block,
            odd if odd % 2 == 1 => Format::Cyclic(usize::try_from(odd / 2).unwrap_or(usize::MAX)),
            _ => Format::Whole,
        }
    }
}

/// The distribution of an array of `shape` over a grid of ranks. In every dimension, blocks of indices are assigned to
/// the ranks in turn; with `BLOCK`, each rank has one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Distribution<const D: usize> {
    pub(super) shape: [usize; D],
    pub(super) formats: [Format; D],
    /// Ranks in each dimension; rank numbers are row-major in the grid.
    pub(super) grid: [usize; D],
    /// Indices of a full block in each dimension; at least 1.
    block: [usize; D],
}

const OP: &str = "distribute a global array";

/// The parts of a section along one dimension that the ranks at one grid coordinate own.
type AxisPart = (usize, Vec<Falls>, Vec<Falls>);

impl<const D: usize> Distribution<D> {
    /// # Errors
    /// `BadArgument` if the product of the grid is not `ranks`, a dimension that is not distributed has several ranks, a
    /// block has no indices, or the array, whose elements have `element` bytes, is longer than an address space.
    pub(super) fn new(
        shape: [usize; D],
        formats: [Format; D],
        grid: [usize; D],
        ranks: usize,
        element: usize,
    ) -> Result<Self> {
        let bad = |cause: String| Error::new(ErrorKind::BadArgument, OP).cause(cause);
        if grid.contains(&0) || grid.iter().try_fold(1usize, |n, g| n.checked_mul(*g)) != Some(ranks) {
            return Err(bad(format!("the product of the grid {grid:?} is not {ranks}, the number of ranks")));
        }
        // Dimensions without indices are ignored, so that arithmetic on indices does not overflow.
        let elements = shape.iter().try_fold(1usize, |n, s| n.checked_mul((*s).max(1)));
        if elements.is_none_or(|n| n > isize::MAX as usize / element.max(size_of::<u64>())) {
            return Err(bad(format!("an array of shape {shape:?} exceeds the address space")));
        }
        let mut block = [1; D];
        for d in 0..D {
            block[d] = match formats[d] {
                Format::Block => shape[d].div_ceil(grid[d]).max(1),
                Format::Cyclic(0) => return Err(bad(format!("the block size of dimension {d} is 0"))),
                Format::Cyclic(k) => k.min(shape[d].max(1)),
                Format::Whole if grid[d] > 1 => {
                    let e = bad(format!("dimension {d} is not distributed, but the grid gives it {} ranks", grid[d]));
                    return Err(e.remedy("set the grid's extent in that dimension to 1"));
                }
                Format::Whole => shape[d].max(1),
            };
        }
        Ok(Self { shape, formats, grid, block })
    }

    /// Whether every rank owns the same elements in both distributions.
    pub(super) fn has_same_elements(&self, other: &Self) -> bool {
        (self.shape, self.grid, self.block) == (other.shape, other.grid, other.block)
    }

    /// The coordinates of `rank` in the grid.
    pub(super) fn place(&self, rank: usize) -> [usize; D] {
        let mut place = [0; D];
        let mut rest = rank;
        for d in (0..D).rev() {
            place[d] = rest % self.grid[d];
            rest /= self.grid[d];
        }
        place
    }

    /// The rank at the given coordinates of the grid.
    fn rank_at(&self, place: [usize; D]) -> usize {
        (0..D).fold(0, |rank, d| rank * self.grid[d] + place[d])
    }

    /// The indices of dimension `d` that the ranks at coordinate `place` own: full blocks, and possibly a shorter last
    /// one.
    pub(super) fn indices(&self, d: usize, place: usize) -> Vec<Falls> {
        let (n, len) = (self.shape[d], self.block[d]);
        let (first, stride) = (place.saturating_mul(len), len.saturating_mul(self.grid[d]));
        if first >= n {
            return Vec::new();
        }
        let whole = if first + len <= n { (n - first - len) / stride + 1 } else { 0 };
        let mut all = Vec::new();
        if whole > 0 {
            all.push(Falls { first, len, stride, count: whole });
        }
        let last = first + whole * stride;
        if last < n {
            all.push(Falls::segment(last, len.min(n - last)));
        }
        all
    }

    /// Number of indices of each dimension that `rank` owns.
    pub(super) fn local_shape(&self, rank: usize) -> [usize; D] {
        let place = self.place(rank);
        std::array::from_fn(|d| self.local_len(d, place[d]))
    }

    /// Number of indices of dimension `d` that the ranks at coordinate `place` own.
    fn local_len(&self, d: usize, place: usize) -> usize {
        let (n, block) = (self.shape[d], self.block[d]);
        let round = block.saturating_mul(self.grid[d]);
        n / round * block + (n % round).saturating_sub(place.saturating_mul(block)).min(block)
    }

    /// The local index, at its owner, of global index `i` of dimension `d`.
    fn local(&self, d: usize, i: usize) -> usize {
        let round = self.block[d].saturating_mul(self.grid[d]);
        i / round * self.block[d] + i % self.block[d]
    }

    /// The global index, in dimension `d`, of local index `local` at the ranks with grid coordinate `place`.
    pub(super) fn global(&self, d: usize, place: usize, local: usize) -> usize {
        let block = self.block[d];
        (local / block * self.grid[d] + place) * block + local % block
    }

    /// Converts a family of global indices of one owner to its local indices.
    fn localized(&self, d: usize, family: &Falls) -> Falls {
        let first = self.local(d, family.first);
        // The segments of a family are all in one block, or a whole number of cyclic rounds apart.
        let stride = if family.count > 1 { self.local(d, family.first + family.stride) - first } else { family.len };
        Falls { first, stride, ..*family }
    }

    /// The smallest section that contains all elements of `rank`; it contains no others if they are consecutive in
    /// every dimension.
    pub(super) fn owned(&self, rank: usize) -> Section<D> {
        let place = self.place(rank);
        let all: [Vec<Falls>; D] = std::array::from_fn(|d| self.indices(d, place[d]));
        // A rank that owns no indices gets an empty section at the end of the array.
        let end_of = |d: usize| place[d].saturating_mul(self.block[d]).min(self.shape[d]);
        Section {
            start: std::array::from_fn(|d| all[d].first().map_or(end_of(d), |f| f.first)),
            end: std::array::from_fn(|d| all[d].last().map_or(end_of(d), Falls::end)),
        }
    }

    /// The owner of an element, and its index in the owner's row-major elements.
    #[inline]
    pub(super) fn locate(&self, index: [usize; D]) -> (usize, usize) {
        let (mut rank, mut at) = (0, 0);
        for (d, i) in index.into_iter().enumerate() {
            let place = i / self.block[d] % self.grid[d];
            rank = rank * self.grid[d] + place;
            // The length of the first dimension is not needed.
            at = if d == 0 { 0 } else { at * self.local_len(d, place) } + self.local(d, i);
        }
        (rank, at)
    }

    /// For each rank that owns elements of a section: their positions in the section's row-major buffer, and among the
    /// rank's own elements.
    pub(super) fn parts<T: Pod>(&self, section: &Section<D>) -> Result<Vec<Part<T>>> {
        if section.is_empty() {
            return Ok(Vec::new());
        }
        let axes: [Vec<AxisPart>; D] = std::array::from_fn(|d| {
            let (start, range) =
                (section.start[d], Falls::segment(section.start[d], section.end[d] - section.start[d]));
            let part = |place| {
                let common = intersection(&[range], &self.indices(d, place));
                let buffer = common.iter().map(|f| Falls { first: f.first - start, ..*f }).collect();
                (place, buffer, common.iter().map(|f| self.localized(d, f)).collect())
            };
            self.places(d, section).map(part).filter(|(_, common, _): &AxisPart| !common.is_empty()).collect()
        });
        let buffer = section.shape();
        self.combined(&axes, |_| buffer, |place| self.local_shape(self.rank_at(place)), |place| self.rank_at(place))
    }

    /// The coordinates in dimension `d` that may have indices of a nonempty section.
    fn places(&self, d: usize, section: &Section<D>) -> std::ops::Range<usize> {
        let (first, last) = (section.start[d] / self.block[d], (section.end[d] - 1) / self.block[d]);
        if last < self.grid[d] { first..last + 1 } else { 0..self.grid[d] }
    }

    /// For each rank of `to`, a distribution of the same shape, that shares elements with `rank` (or for rank `only`
    /// alone): the positions of the shared elements among those of `rank`, and among those of the other rank.
    pub(super) fn shared_with<T: Pod>(&self, rank: usize, to: &Self, only: Option<usize>) -> Result<Vec<Part<T>>> {
        let (place, only) = (self.place(rank), only.map(|only| to.place(only)));
        let axes: [Vec<AxisPart>; D] = std::array::from_fn(|d| {
            let own = self.indices(d, place[d]);
            let part = |other| {
                let common = intersection(&own, &to.indices(d, other));
                let ours = common.iter().map(|f| self.localized(d, f)).collect();
                (other, ours, common.iter().map(|f| to.localized(d, f)).collect())
            };
            let places = only.map_or(0..to.grid[d], |only| only[d]..only[d] + 1);
            places.map(part).filter(|(_, common, _): &AxisPart| !common.is_empty()).collect()
        });
        let ours = self.local_shape(rank);
        self.combined(&axes, |_| ours, |place| to.local_shape(to.rank_at(place)), |place| to.rank_at(place))
    }

    /// The number of pairs of ranks, one in this distribution and one in another distribution of the same shape, that
    /// share elements.
    pub(super) fn pairs(&self, other: &Self) -> usize {
        let in_dimension = |d: usize| {
            let pairs = (0..self.grid[d]).flat_map(|one| (0..other.grid[d]).map(move |two| (one, two)));
            let meet =
                |(one, two): &(usize, usize)| !intersection(&self.indices(d, *one), &other.indices(d, *two)).is_empty();
            pairs.filter(meet).count()
        };
        (0..D).map(in_dimension).product()
    }

    /// Combines the parts of all dimensions, for each combination of coordinates.
    fn combined<T: Pod>(
        &self,
        axes: &[Vec<AxisPart>; D],
        from: impl Fn([usize; D]) -> [usize; D],
        to: impl Fn([usize; D]) -> [usize; D],
        rank: impl Fn([usize; D]) -> usize,
    ) -> Result<Vec<Part<T>>> {
        let number = axes.iter().map(Vec::len).product();
        let part = |number: usize| {
            let (mut rest, mut chosen) = (number, [0; D]);
            for d in (0..D).rev() {
                chosen[d] = rest % axes[d].len();
                rest /= axes[d].len();
            }
            let place = std::array::from_fn(|d| axes[d][chosen[d]].0);
            let one = |shape: [usize; D], families: &dyn Fn(&AxisPart) -> Vec<Falls>| {
                nested(shape, std::array::from_fn(|d| families(&axes[d][chosen[d]])))
            };
            let buffer = one(from(place), &|part| part.1.clone())?;
            Ok(Part { rank: rank(place), buffer, block: one(to(place), &|part| part.2.clone())? })
        };
        (0..number).map(part).collect()
    }
}

/// The elements of a section, or of another rank's elements, that one rank owns.
pub(super) struct Part<T> {
    pub(super) rank: usize,
    /// Their positions in the buffer, or among the elements of the other rank.
    pub(super) buffer: Selection<T>,
    /// Their positions among the rank's own elements.
    pub(super) block: Selection<T>,
}

/// The elements of a row-major array of `shape` at all combinations of the given indices.
fn nested<T: Pod, const D: usize>(shape: [usize; D], families: [Vec<Falls>; D]) -> Result<Selection<T>> {
    let bad = |e: farside_datatype::DatatypeError| Error::new(ErrorKind::BadArgument, OP).cause(e.cause().to_owned());
    let (mut datatype, mut pitch) = (datatype_of::<T>(), size_of::<T>());
    for d in (0..D).rev() {
        let bytes = |indices: usize| (indices * pitch) as i64;
        let mut types = Vec::new();
        for f in &families[d] {
            let mut one = Datatype::hvector(f.len as u64, 1, bytes(1), &datatype).map_err(bad)?;
            if f.count > 1 {
                one = Datatype::hvector(f.count as u64, 1, bytes(f.stride), &one).map_err(bad)?;
            }
            types.push(one);
        }
        let at: Vec<i64> = families[d].iter().map(|f| bytes(f.first)).collect();
        datatype = Datatype::structure(&vec![1; types.len()], &at, &types).map_err(bad)?;
        pitch *= shape[d];
    }
    Selection::from_type_map(datatype.message(1).map_err(bad)?)
}

/// The grid of `ranks` ranks for an array of `shape` whose blocks have the smallest sum of sides, so that block and array
/// have about the same aspect ratio. Ties go to the grid with the most ranks in the first dimensions: its blocks have
/// the longest rows, so transfers need the fewest messages. Dimensions that are not distributed have one rank.
pub(super) fn near_aspect<const D: usize>(shape: [usize; D], formats: [Format; D], ranks: usize) -> [usize; D] {
    let mut best: Option<(usize, [usize; D])> = None;
    search(&shape, &formats, ranks, 0, &mut [1; D], &mut best);
    best.map_or_else(|| std::array::from_fn(|d| if d == 0 { ranks } else { 1 }), |(_, grid)| grid)
}

fn search<const D: usize>(
    shape: &[usize; D],
    formats: &[Format; D],
    ranks: usize,
    d: usize,
    grid: &mut [usize; D],
    best: &mut Option<(usize, [usize; D])>,
) {
    if d == D {
        let sides = (0..D).fold(0usize, |sum, d| sum.saturating_add(shape[d].div_ceil(grid[d])));
        // Ties keep the grid that was found first.
        if ranks == 1 && best.is_none_or(|(least, _)| sides < least) {
            *best = Some((sides, *grid));
        }
        return;
    }
    let most = if formats[d] == Format::Whole { 1 } else { ranks };
    for here in (1..=most).rev().filter(|here| ranks.is_multiple_of(*here)) {
        grid[d] = here;
        search(shape, formats, ranks / here, d + 1, grid, best);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLOCKS: [Format; 2] = [Format::Block; 2];

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
            assert_eq!(near_aspect(shape, BLOCKS, ranks), grid, "{shape:?} over {ranks}");
        }
        assert_eq!(near_aspect([100, 100], [Format::Whole, Format::Cyclic(2)], 6), [1, 6]);
        assert_eq!(near_aspect([64, 64, 64], [Format::Block; 3], 8), [2, 2, 2]);
    }

    fn format() -> impl Strategy<Value = Format> {
        prop_oneof![Just(Format::Block), (1..5usize).prop_map(Format::Cyclic)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 200 }, failure_persistence: None, ..ProptestConfig::default() })]

        /// Each element has exactly one owner and a unique position there, from which the inverse function computes its
        /// index.
        #[test]
        fn elements_have_one_place_each(
            shape in [0..9usize, 1..9usize],
            grid in [1..4usize, 1..4usize],
            formats in [format(), format()],
        ) {
            let ranks = grid[0] * grid[1];
            let distribution = Distribution::new(shape, formats, grid, ranks, 8).unwrap();
            for (d, place) in (0..2).flat_map(|d| (0..grid[d]).map(move |place| (d, place))) {
                let counted: usize = distribution.indices(d, place).iter().map(|f| f.len * f.count).sum();
                prop_assert_eq!(distribution.local_len(d, place), counted);
            }
            let mut seen: Vec<Vec<bool>> =
                (0..ranks).map(|rank| vec![false; distribution.local_shape(rank).iter().product()]).collect();
            for (r, c) in (0..shape[0]).flat_map(|r| (0..shape[1]).map(move |c| (r, c))) {
                let (rank, at) = distribution.locate([r, c]);
                prop_assert!(!std::mem::replace(&mut seen[rank][at], true));
                let (place, local) = (distribution.place(rank), distribution.local_shape(rank));
                let back = [at / local[1], at % local[1]];
                prop_assert_eq!([0, 1].map(|d| distribution.global(d, place[d], back[d])), [r, c]);
                prop_assert!(distribution.owned(rank).contains([r, c]));
            }
            prop_assert!(seen.iter().flatten().all(|seen| *seen));
        }

        /// For every pair of distributions over 1 to 12 ranks each, copying the shared parts puts each element where
        /// its new owner expects it.
        #[test]
        fn shared_parts_are_an_assignment_element_by_element(
            n in 0..60usize,
            ranks in [1..13usize, 1..13usize],
            formats in [format(), format()],
        ) {
            let of = |side: usize| Distribution::new([n], [formats[side]], [ranks[side]], ranks[side], 1).unwrap();
            let (from, to) = (of(0), of(1));
            let mut moved = vec![None; n];
            for rank in 0..ranks[0] {
                for part in from.shared_with::<u8>(rank, &to, None).unwrap() {
                    let (ours, theirs) = (positions(&part.buffer), positions(&part.block));
                    prop_assert_eq!(ours.len(), theirs.len());
                    for (a, b) in ours.into_iter().zip(theirs) {
                        let index = from.global(0, rank, a);
                        prop_assert_eq!(to.global(0, part.rank, b), index);
                        prop_assert!(moved[index].replace(part.rank).is_none(), "index {} twice", index);
                    }
                }
            }
            prop_assert!(moved.iter().enumerate().all(|(i, rank)| *rank == Some(to.locate([i]).0)));
        }
    }

    /// The positions of a selection of bytes, in its order.
    fn positions(selection: &Selection<u8>) -> Vec<usize> {
        let all: Vec<u8> = (0..=255).collect();
        let mut packed = vec![0; selection.len()];
        selection.type_map().pack(&all, 0, 0, &mut packed).unwrap();
        packed.into_iter().map(usize::from).collect()
    }

    #[test]
    fn new_grid_of_another_size() {
        for grid in [[2, 2], [0, 3], [usize::MAX, 2]] {
            let error = Distribution::new([4, 4], BLOCKS, grid, 3, 8).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadArgument);
        }
        let refused = |formats, grid| Distribution::new([4, 4], formats, grid, 4, 8).unwrap_err().to_string();
        assert!(refused([Format::Whole, Format::Block], [2, 2]).contains("dimension 0"));
        assert!(refused([Format::Block, Format::Cyclic(0)], [2, 2]).contains("dimension 1"));
        for (shape, element) in [([usize::MAX, 2], 8), ([0, usize::MAX], 8), ([1 << 31, 1 << 27], 64)] {
            let error = Distribution::new(shape, BLOCKS, [1, 1], 1, element).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadArgument);
        }
        assert_eq!(Distribution::new([4, 4], BLOCKS, [0, 4], 0, 8).unwrap_err().kind(), ErrorKind::BadArgument);
    }
}
