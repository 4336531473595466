//! Parts of arrays: subarray and distributed array (MPI-4.1 §5.1.3, §5.1.4).

use crate::datatype::{Datatype, Draft, Join, scaled};
use crate::error::{DatatypeError, Result};

/// The index of an array that varies fastest in memory.
///
/// ```
/// use farside_datatype::{Datatype, Named, Order, Subarray};
///
/// // Index 1 of the first dimension, of 2 x 3 elements.
/// let part = |order| {
///     let (sizes, subsizes, starts) = (vec![2, 3], vec![1, 3], vec![1, 0]);
///     Datatype::subarray(&Subarray { sizes, subsizes, starts, order, old: Named::Byte.into() })?.message(1)
/// };
/// assert!(part(Order::C)?.blocks(0).eq([(3, 3)]));
/// assert!(part(Order::Fortran)?.blocks(0).eq([(1, 1), (3, 1), (5, 1)]));
/// # Ok::<(), farside_datatype::DatatypeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// The last index, as in C.
    C,
    /// The first index, as in Fortran.
    Fortran,
}

/// Distribution of one dimension of an array among the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Not distributed: the process grid has length 1 in this dimension.
    None,
    /// One block for each process, of the given length or as even as possible (`MPI_DISTRIBUTE_DFLT_DARG`).
    Block(Option<u64>),
    /// Blocks of the given length (1 if none is given), assigned to the processes in turn.
    Cyclic(Option<u64>),
}

/// The arguments of [`Datatype::subarray`]. One entry per dimension, lengths in elements.
#[derive(Clone, Debug)]
pub struct Subarray {
    /// Lengths of the whole array, at least 1.
    pub sizes: Vec<u64>,
    /// Lengths of the part, at least 1.
    pub subsizes: Vec<u64>,
    /// Start of the part, counted from 0 in both orders.
    pub starts: Vec<u64>,
    /// The index that varies fastest.
    pub order: Order,
    /// The element.
    pub old: Datatype,
}

/// The arguments of [`Datatype::darray`]. One entry per dimension.
#[derive(Clone, Debug)]
pub struct Darray {
    /// The number of processes: the product of `psizes`.
    pub size: u64,
    /// The process that owns the part; the order of processes in the grid is always row-major, independent of `order`.
    pub rank: u64,
    /// Lengths of the whole array in elements, at least 1.
    pub gsizes: Vec<u64>,
    /// Distribution of each dimension.
    pub distributions: Vec<Distribution>,
    /// Lengths of the process grid.
    pub psizes: Vec<u64>,
    /// The index that varies fastest.
    pub order: Order,
    /// The element.
    pub old: Datatype,
}

/// Dimensions from the fastest to the slowest.
fn fastest_first(dims: usize, order: Order) -> Box<dyn Iterator<Item = usize>> {
    match order {
        Order::C => Box::new((0..dims).rev()),
        Order::Fortran => Box::new(0..dims),
    }
}

fn signed(value: u64, call: &'static str) -> Result<i64> {
    i64::try_from(value).map_err(|_| DatatypeError::overflow(call, "a length"))
}

fn check_dims(call: &'static str, dims: usize, others: &[usize]) -> Result<()> {
    if dims == 0 || others.iter().any(|other| *other != dims) {
        let cause = format!(
            "every list needs one entry per dimension, and there must be at least one dimension: the lists have \
             {dims} and {others:?} entries"
        );
        return Err(DatatypeError::argument(call, cause));
    }
    Ok(())
}

impl Datatype {
    /// A rectangular part of an array. Its extent is that of the whole array, so consecutive elements of this type are
    /// parts of consecutive arrays.
    ///
    /// ```
    /// use farside_datatype::{Datatype, Named, Order, Subarray};
    ///
    /// // Rows 1 and 2, columns 2 to 4, of a matrix of 4 rows and 6 columns.
    /// let part = Datatype::subarray(&Subarray {
    ///     sizes: vec![4, 6],
    ///     subsizes: vec![2, 3],
    ///     starts: vec![1, 2],
    ///     order: Order::C,
    ///     old: Named::Byte.into(),
    /// })?;
    /// assert!(part.message(1)?.blocks(0).eq([(8, 3), (14, 3)]));
    /// assert_eq!(part.extent(), 24);
    /// # Ok::<(), farside_datatype::DatatypeError>(())
    /// ```
    ///
    /// # Errors
    /// `BadArgument` if lists differ in length or are empty, a size or subsize is 0, or the part is not inside the
    /// array; otherwise see [`Datatype`].
    pub fn subarray(array: &Subarray) -> Result<Self> {
        let call = "Datatype::subarray";
        let Subarray { sizes, subsizes, starts, order, old } = array;
        check_dims(call, sizes.len(), &[subsizes.len(), starts.len()])?;
        let mut draft = old.draft(call)?;
        let (mut stride, mut start) = (old.extent(), 0_i64);
        for dim in fastest_first(sizes.len(), *order) {
            let (size, sub, from) = (sizes[dim], subsizes[dim], starts[dim]);
            if sub == 0 || from.checked_add(sub).is_none_or(|end| end > size) {
                let cause = format!(
                    "dimension {dim}: the {sub} elements starting at {from} are not inside the {size} elements of the \
                     array"
                );
                return Err(DatatypeError::argument(call, cause));
            }
            draft = draft.repeat(sub, stride, call)?;
            let by = scaled(signed(from, call)?, stride, call)?;
            start = start.checked_add(by).ok_or_else(|| DatatypeError::overflow(call, "the start"))?;
            stride = scaled(signed(size, call)?, stride, call)?;
        }
        draft = draft.shift(start, call)?;
        draft.mark(0, stride, call)?;
        draft.finish(call, old)
    }

    /// The part of a distributed array that one process owns. Its extent is that of the whole array.
    ///
    /// ```
    /// use farside_datatype::{Darray, Datatype, Distribution, Named, Order};
    ///
    /// // The elements of process 1 of 2, with blocks of two assigned in turn.
    /// let part = Datatype::darray(&Darray {
    ///     size: 2,
    ///     rank: 1,
    ///     gsizes: vec![7],
    ///     distributions: vec![Distribution::Cyclic(Some(2))],
    ///     psizes: vec![2],
    ///     order: Order::C,
    ///     old: Named::Byte.into(),
    /// })?;
    /// assert!(part.message(1)?.blocks(0).eq([(2, 2), (6, 1)]));
    /// # Ok::<(), farside_datatype::DatatypeError>(())
    /// ```
    ///
    /// # Errors
    /// `BadArgument` if lists differ in length or are empty, the grid does not have `size` processes, `rank` is not
    /// below `size`, a length is 0, a dimension that is not distributed has several processes, or blocks of the given
    /// length do not cover a dimension; else see [`Datatype`].
    pub fn darray(array: &Darray) -> Result<Self> {
        let call = "Datatype::darray";
        let Darray { size, rank, gsizes, distributions, psizes, order, old } = array;
        check_dims(call, gsizes.len(), &[distributions.len(), psizes.len()])?;
        let grid = psizes.iter().try_fold(1_u64, |product, p| product.checked_mul(*p));
        if grid != Some(*size) || rank >= size {
            let cause = format!(
                "the product of the grid {psizes:?} is not {size}, the number of processes, or rank {rank} is not one \
                 of them"
            );
            return Err(DatatypeError::argument(call, cause));
        }
        let mut coords = vec![0; psizes.len()];
        let mut rest = *rank;
        for (coord, p) in coords.iter_mut().zip(psizes).rev() {
            (*coord, rest) = (rest % p, rest / p);
        }
        let mut draft = old.draft(call)?;
        let mut stride = old.extent();
        for dim in fastest_first(gsizes.len(), *order) {
            let part = Part::new(gsizes[dim], distributions[dim], psizes[dim], coords[dim], dim, call)?;
            draft = part.apply(&draft, stride, call)?;
            stride = scaled(signed(gsizes[dim], call)?, stride, call)?;
        }
        draft.mark(0, stride, call)?;
        draft.finish(call, old)
    }
}

/// The elements of one dimension that a process owns: `full` blocks of length `block` from `start` on, `step` apart,
/// and a last block of length `tail`.
struct Part {
    start: u64,
    block: u64,
    step: u64,
    full: u64,
    tail: u64,
}

impl Part {
    fn new(size: u64, how: Distribution, p: u64, coord: u64, dim: usize, call: &'static str) -> Result<Self> {
        let bad = |cause: &str| Err(DatatypeError::argument(call, format!("dimension {dim}: {cause}")));
        if size == 0 {
            return bad("its length is 0");
        }
        let block = match how {
            Distribution::None if p != 1 => {
                return bad("it is not distributed, but the grid has several processes in it");
            }
            Distribution::None => size,
            Distribution::Block(None) => size.div_ceil(p),
            Distribution::Block(Some(block)) => {
                if block.checked_mul(p).is_some_and(|covered| covered < size) {
                    return bad("one block of the given length for each process does not cover it");
                }
                block
            }
            Distribution::Cyclic(block) => block.unwrap_or(1),
        };
        let Some(step) = block.checked_mul(p).filter(|step| *step > 0) else {
            return bad(
                "the block length must be at least 1, and the total length of one block per process must fit 64 bits",
            );
        };
        let start = coord * block;
        // Elements from the first one of this process on: whole rounds, and the rest of the last round.
        let rest = size.saturating_sub(start);
        let (turns, last) = (rest / step, rest % step);
        let (full, tail) = if last >= block { (turns + 1, 0) } else { (turns, last) };
        Ok(Self { start, block, step, full, tail })
    }

    fn apply(&self, inner: &Draft, stride: i64, call: &'static str) -> Result<Draft> {
        let at = |element: u64| scaled(signed(element, call)?, stride, call);
        let mut joined = Join::new(call);
        if self.full > 0 {
            // The length of a single block times the number of processes may exceed 64 bits.
            let step = if self.full > 1 { at(self.step)? } else { 0 };
            joined.push(
                &inner.repeat(self.block, stride, call)?.repeat(self.full, step, call)?.shift(at(self.start)?, call)?,
            )?;
        }
        if self.tail > 0 {
            let start = self.start + self.full * self.step;
            joined.push(&inner.repeat(self.tail, stride, call)?.shift(at(start)?, call)?)?;
        }
        let mut draft = joined.finish()?;
        draft.keep_depth(inner);
        Ok(draft)
    }
}
