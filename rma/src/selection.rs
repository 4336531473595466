//! Selections: the elements of an array that an operation reads or writes, and their order.

use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::Pod;
use farside_core::{Error, ErrorKind, Result, located};
use farside_datatype::{Datatype, DatatypeError, Named, Order, Subarray, TypeMap};

use crate::elements::{datatype_of, element_type_of, named};

/// An ordered set of elements of an array of `T`: every row of a block, every other element, a face of a cuboid. A
/// selection takes a few words of memory, whatever its counts, but a list of ranges takes memory proportional to its
/// length.
///
/// Two selections match if they have the same number of elements: element `i` of one goes to element `i` of the other.
///
/// ```
/// use farside_rma::Selection;
///
/// // The last column of a matrix of 8 rows and 5 columns.
/// let column = Selection::<f64>::subarray([8, 5], [0..8, 4..5])?;
/// assert_eq!((column.len(), column.reach()), (8, 40));
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection<T> {
    map: TypeMap,
    element: PhantomData<fn() -> T>,
}

impl<T: Pod> Selection<T> {
    fn of(datatype: std::result::Result<Datatype, DatatypeError>) -> Result<Self> {
        let map = datatype.and_then(|d| d.message(1)).map_err(bad)?;
        Ok(Self { map, element: PhantomData })
    }

    fn one() -> Datatype {
        datatype_of::<T>()
    }

    /// The first `count` elements.
    ///
    /// # Errors
    /// `BadArgument` for more bytes than 2^63.
    #[track_caller]
    pub fn contiguous(count: usize) -> Result<Self> {
        located(|| Self::of(Datatype::contiguous(count as u64, &Self::one())))
    }

    /// `count` blocks of `block` elements, with starts `stride` elements apart.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let table = Symmetric::<u8>::allocate(&team, 6)?;
    ///     // The same elements as a vector, as ranges, and as indices.
    ///     let pairs = Selection::vector(2, 2, 4)?;
    ///     assert_eq!(pairs, Selection::ranges(&[0..2, 4..6])?);
    ///     assert_eq!(pairs.len(), Selection::<u8>::indices(&[0, 1, 4, 5])?.len());
    ///     table.put_selected(&[1, 2, 3, 4], &Selection::contiguous(4)?, 1 - team.rank(), 0, &pairs)?;
    ///     table.barrier()?;
    ///     assert_eq!(table.local().to_vec()?, [1, 2, 0, 0, 3, 4]);
    ///     table.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`contiguous`](Self::contiguous).
    #[track_caller]
    pub fn vector(count: usize, block: usize, stride: usize) -> Result<Self> {
        located(|| {
            let stride = i64::try_from(stride).unwrap_or(i64::MAX);
            Self::of(Datatype::vector(count as u64, block as u64, stride, &Self::one()))
        })
    }

    /// The elements of `ranges`, in the order of the list.
    ///
    /// # Errors
    /// Those of [`contiguous`](Self::contiguous).
    #[track_caller]
    pub fn ranges(ranges: &[Range<usize>]) -> Result<Self> {
        located(|| {
            let lens: Vec<u64> = ranges.iter().map(|r| r.len() as u64).collect();
            let starts: Vec<i64> = ranges.iter().map(|r| i64::try_from(r.start).unwrap_or(i64::MAX)).collect();
            Self::of(Datatype::indexed(&lens, &starts, &Self::one()))
        })
    }

    /// The elements with these indices, in the order of the list.
    ///
    /// # Errors
    /// Those of [`contiguous`](Self::contiguous).
    #[track_caller]
    pub fn indices(indices: &[usize]) -> Result<Self> {
        located(|| {
            let starts: Vec<i64> = indices.iter().map(|at| i64::try_from(*at).unwrap_or(i64::MAX)).collect();
            Self::of(Datatype::indexed_block(1, &starts, &Self::one()))
        })
    }

    /// The part of a row-major array of `shape` with the given range of indices in each dimension.
    ///
    /// # Errors
    /// `BadArgument` for ranges outside the shape, and as [`contiguous`](Self::contiguous).
    #[track_caller]
    pub fn subarray<const D: usize>(shape: [usize; D], part: [Range<usize>; D]) -> Result<Self> {
        located(|| {
            if part.iter().any(Range::is_empty) && part.iter().zip(shape).all(|(r, n)| r.end <= n) {
                return Self::contiguous(0);
            }
            let all = |each: &dyn Fn(usize) -> usize| (0..D).map(|d| each(d) as u64).collect::<Vec<u64>>();
            let array = Subarray {
                sizes: all(&|d| shape[d]),
                subsizes: all(&|d| part[d].len()),
                starts: all(&|d| part[d].start),
                order: Order::C,
                old: Self::one(),
            };
            Self::of(Datatype::subarray(&array))
        })
    }

    /// The elements of a datatype that is built by any of MPI's constructors from the predefined type of `T`
    /// ([`Self::element`]), or from `MPI_BYTE` for another `T`. Elements may be in any order, and at negative
    /// displacements.
    ///
    /// ```
    /// use farside_rma::Selection;
    /// use farside_rma::datatype::Datatype;
    ///
    /// // The diagonal of a 4 x 4 matrix, from the last element to the first.
    /// let diagonal = Datatype::hvector(4, 1, -5 * 8, &Selection::<f64>::element())?;
    /// let selection = Selection::<f64>::from_type_map(diagonal.message(1)?)?;
    /// assert_eq!(selection.len(), 4);
    /// assert_eq!(selection.type_map().true_lb(), -15 * 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `BadArgument` if the datatype has elements of another predefined type, or a part of an element.
    #[track_caller]
    pub fn from_type_map(map: TypeMap) -> Result<Self> {
        located(|| {
            let own = element_type_of::<T>().map_or(Named::Byte, named);
            if map.size() > 0 && (map.element() != Some(own) || !map.size().is_multiple_of(size_of::<T>() as u64)) {
                return Err(Error::new(ErrorKind::BadArgument, "build a selection").cause(format!(
                    "the datatype has {} bytes of {}, not a whole number of elements of {}",
                    map.size(),
                    map.element().map_or("several types", |n| n.mpi_name()),
                    own.mpi_name()
                )));
            }
            Ok(Self { map, element: PhantomData })
        })
    }

    /// The predefined datatype of `T`, or the bytes of a `T` that has none.
    #[must_use]
    pub fn element() -> Datatype {
        Self::one()
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.map.size() / size_of::<T>() as u64) as usize
    }

    /// Whether the selection has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.size() == 0
    }

    /// One past the index of the last element: the shortest length of an array that holds the selection.
    #[must_use]
    pub fn reach(&self) -> usize {
        usize::try_from(self.map.true_ub()).unwrap_or(0).div_ceil(size_of::<T>())
    }

    /// The type map of the selection.
    #[must_use]
    pub fn type_map(&self) -> &TypeMap {
        &self.map
    }

    /// Checks that all selected elements are inside `len` bytes.
    #[inline]
    pub(crate) fn check_inside(&self, len: usize) -> Result<()> {
        if self.map.true_lb() >= 0 && usize::try_from(self.map.true_ub()).is_ok_and(|end| end <= len) {
            return Ok(());
        }
        Err(self.outside(len))
    }

    #[cold]
    fn outside(&self, len: usize) -> Error {
        let (low, high) = (self.map.true_lb(), self.map.true_ub());
        Error::new(ErrorKind::BadArgument, "check buffers")
            .cause(format!("the selection takes bytes {low} to {high}, but the buffer has {len}"))
            .remedy("pass a buffer that holds all elements of the selection")
    }
}

#[cold]
fn bad(e: DatatypeError) -> Error {
    Error::new(ErrorKind::BadArgument, "build a selection").cause(e.cause().to_owned()).remedy(e.kind().remedy())
}
