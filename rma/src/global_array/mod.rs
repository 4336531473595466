//! Global arrays: arrays of one or more dimensions that are distributed over the memory of a team and have global
//! indices.
//!
//! The indices of each dimension are distributed as in HPF: in blocks, cyclically, cyclically in blocks of k, or not at
//! all ([`Format`]). Every operation is one-sided and blocking: the owners of the elements do not participate, and on
//! return it is complete at the owners. The array is a [`LockWindow`], and an operation holds shared locks, so it
//! excludes only [`GlobalArray::with_local`] at the owners. Messages for a section with k owners:
//!
//! | call | operations | locks and unlocks (atomics on mapped windows) |
//! |---|---|---|
//! | `put`, `get`, `accumulate` | k if memory is mapped, each a copy between two layouts; otherwise those of
//! [`put_typed`](crate::raw::RawWindow::put_typed) for each owner, at most one for each block of its part | 2 for each
//! of the k owners |
//! | `get_element`, `fetch_and_op` | 1 | 2 |
//! | `gather`, `scatter` | one for each index; where memory is mapped, a copy | 2 for each owner |
//! | `accumulate_at` | one for each index; where memory is mapped, an atomic | 2 for each owner |
//! | `redistribute_into` | as `put`, for each rank that gets elements of this one | 2 for each of them, and 2 on this rank's own lock |
//! | `with_local`, `for_each`, `map` | none | 2 on this rank's own lock |
//! | `map_into`, `for_each_with` | none | 2 on this rank's own lock of each array |
//! | `save`, `load` | none; the file is written and read by each rank | 2 on this rank's own lock; 3 and 4 allgathers |
//! | `send_to`, `recv_from` | see [`Strategy`] | 2 on this rank's own lock |
//! | `sync`, `reduce` | none | none; a barrier, ⌈log2 P⌉; an allgather |
//!
//! ```
//! use farside_rma::prelude::*;
//!
//! Job::threads(3, |job| {
//!     let team = job.world()?;
//!     let array = GlobalArray::<u64, 2>::new(&team, [4, 5])?;
//!     array.accumulate(Op::Sum, (1..3, 0..5), &[1; 10])?;
//!     array.sync()?;
//!     assert_eq!(array.get_element([2, 4])?, 3);
//!     array.free()
//! })
//! .unwrap();
//! ```

pub(crate) mod agreement;
mod distribution;
mod exchange;
mod falls;
mod lists;
mod local_view;
mod map;
#[cfg(feature = "ndarray")]
mod ndarray_view;
mod npy;
mod section;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::slice::from_mut;

use bytemuck::Pod;
use farside_core::wire::{Reader, Writer};
use farside_core::{Error, ErrorKind, Result, Team, coll, located};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::assert::Assert;
use crate::dist::Values;
use crate::lock_window::{LockWindow, PassiveEpoch};
use crate::op::{Element, Op, combine};
use crate::raw::RawWindow;
use crate::raw::lock::LockKind;
use agreement::{agree, agree_on_outcome};
pub use distribution::Format;
use distribution::{Distribution, Part, near_aspect};
use exchange::InProgress;
pub use exchange::{Link, Strategy, Transfer};
pub use local_view::LocalView;
pub use npy::NpyElement;
pub use section::Section;

/// An array of `D` dimensions, distributed over a team.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(4, |job| {
///     let team = job.world()?;
///     let array = GlobalArray::<f64, 2>::new(&team, [8, 6])?;
///     if team.rank() == 0 {
///         array.put((2..6, 0..2), &[1.5; 8])?;
///     }
///     array.sync()?;
///     let mut row = [9.0; 6];
///     array.get((3..4, 0..6), &mut row)?;
///     assert_eq!(row, [1.5, 1.5, 0.0, 0.0, 0.0, 0.0]);
///     assert_eq!(array.reduce(Op::Sum)?, Some(12.0));
///     array.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
///
/// Memory: each rank's elements, and that of a [`LockWindow`].
#[derive(Debug)]
pub struct GlobalArray<T: Pod, const D: usize> {
    /// The messages of a transfer between tasks. Dropped before the memory that they access.
    in_progress: RefCell<InProgress<T>>,
    window: LockWindow<T>,
    distribution: Distribution<D>,
    /// Whether `with_local` has borrowed this rank's block.
    borrowed: Cell<bool>,
}

impl<T: Pod, const D: usize> GlobalArray<T, D> {
    /// Allocates an array of zeros in blocks, over a grid of ranks near its aspect ratio. Collective; the same shape on
    /// all ranks.
    ///
    /// # Errors
    /// `Mismatch` for shapes that differ, `BadArgument` for a shape above the address space; those of
    /// [`LockWindow::allocate`].
    #[track_caller]
    pub fn new(team: &Team, shape: [usize; D]) -> Result<Self> {
        located(|| Self::distributed(team, shape, [Format::Block; D]))
    }

    /// Allocates an array of zeros in blocks over a given grid of ranks, numbered row-major. Collective.
    ///
    /// # Errors
    /// Those of [`new`](Self::new); `BadArgument` if the product of the grid is not the size of the team, `Mismatch`
    /// for grids that differ.
    #[track_caller]
    pub fn with_grid(team: &Team, shape: [usize; D], grid: [usize; D]) -> Result<Self> {
        located(|| Self::on_grid(team, shape, [Format::Block; D], grid))
    }

    /// Allocates an array of zeros whose dimensions are distributed in the given formats, over a grid of ranks near its
    /// aspect ratio. Collective.
    ///
    /// ```
    /// use farside_rma::global_array::Format;
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(4, |job| {
    ///     let team = job.world()?;
    ///     // (BLOCK, *): whole rows; and (*, CYCLIC): columns in turn.
    ///     let rows = GlobalArray::<f64, 2>::distributed(&team, [8, 6], [Format::Block, Format::Whole])?;
    ///     let columns = GlobalArray::<f64, 2>::distributed(&team, [8, 6], [Format::Whole, Format::Cyclic(1)])?;
    ///     rows.for_each(|[i, j], element| *element = (10 * i + j) as f64)?;
    ///     rows.redistribute_into(&columns)?;
    ///     columns.with_local(|view| {
    ///         assert!(view.iter().all(|([i, j], element)| *element == (10 * i + j) as f64 && j % 4 == team.rank()));
    ///         Ok::<(), Error>(())
    ///     })?;
    ///     columns.free()?;
    ///     rows.free()
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`on_grid`](Self::on_grid).
    #[track_caller]
    pub fn distributed(team: &Team, shape: [usize; D], formats: [Format; D]) -> Result<Self> {
        located(|| Self::on_grid(team, shape, formats, near_aspect(shape, formats, team.size())))
    }

    /// Allocates an array of zeros whose dimensions are distributed in the given formats over a given grid of ranks,
    /// numbered row-major. Collective.
    ///
    /// # Errors
    /// Those of [`with_grid`](Self::with_grid); `BadArgument` for several ranks in a dimension that is not distributed,
    /// and for `Cyclic(0)`; `Mismatch` for formats that differ.
    #[track_caller]
    pub fn on_grid(team: &Team, shape: [usize; D], formats: [Format; D], grid: [usize; D]) -> Result<Self> {
        located(|| {
            // The arguments are compared before they are checked: after the comparison all ranks have the same
            // arguments, so the checks fail at all ranks or at none, and no rank waits for another.
            let numbers = shape.into_iter().chain(grid).map(|n| n as u64).chain(formats.map(Format::code));
            let mine = numbers.fold(Writer::new(), Writer::u64).done();
            let others = coll::allgather(team, &mine)?;
            if let Some(other) = others.iter().position(|o| *o != others[0]) {
                let by = if other == team.rank() { 0 } else { other };
                let described = |bytes: &[u8]| {
                    let mut reader = Reader::new(bytes);
                    let mut numbers = || std::array::from_fn::<_, D, _>(|_| reader.u64().unwrap_or(0));
                    let (shape, grid, formats) = (numbers(), numbers(), numbers().map(Format::of_code));
                    format!("shape {shape:?} in formats {formats:?} over a grid of {grid:?}")
                };
                let cause = format!("the peer has {}, but this rank has {}", described(&others[by]), described(&mine));
                let e = Error::new(ErrorKind::Mismatch, "create a global array").rank(team.job().rank());
                return Err(e.peer(team.members()[by]).cause(cause));
            }
            let distribution = Distribution::new(shape, formats, grid, team.size(), size_of::<T>())?;
            let len = distribution.local_shape(team.rank()).iter().product();
            let window = LockWindow::allocate_for(team, len, "a global array")?;
            Ok(Self { in_progress: RefCell::default(), window, distribution, borrowed: Cell::new(false) })
        })
    }

    /// Frees the array. Collective, with a barrier.
    ///
    /// # Errors
    /// Those of [`LockWindow::free`].
    #[track_caller]
    pub fn free(self) -> Result<()> {
        located(|| {
            // Cancels the messages of transfers whose handles were leaked, before the memory is freed.
            drop(self.in_progress.take());
            self.window.free()
        })
    }

    /// The team.
    #[must_use]
    pub fn team(&self) -> &Team {
        self.window.team()
    }

    /// Indices in each dimension.
    #[must_use]
    pub fn shape(&self) -> [usize; D] {
        self.distribution.shape
    }

    /// Ranks in each dimension. Rank numbers are row-major in the grid.
    #[must_use]
    pub fn grid(&self) -> [usize; D] {
        self.distribution.grid
    }

    /// How each dimension is distributed.
    #[must_use]
    pub fn formats(&self) -> [Format; D] {
        self.distribution.formats
    }

    /// The section that `rank` owns, or the smallest section that contains all of its elements, if they are not
    /// consecutive. The last ranks of a dimension may own no elements.
    ///
    /// # Errors
    /// `NoSuchRank`.
    #[track_caller]
    pub fn owned(&self, rank: usize) -> Result<Section<D>> {
        located(|| {
            self.team().job_rank(rank)?;
            Ok(self.distribution.owned(rank))
        })
    }

    /// The rank that owns the element at `index`, and the element's row-major index among that rank's elements.
    ///
    /// # Errors
    /// `OutOfRange`, naming the dimension.
    #[track_caller]
    pub fn locate(&self, index: [usize; D]) -> Result<(usize, usize)> {
        located(|| {
            self.check_index(&index)?;
            Ok(self.distribution.locate(index))
        })
    }

    /// Puts a row-major buffer into a section. On return it is complete at the owners. Not atomic: other ranks may see
    /// parts of it earlier, and concurrent puts to one element may complete in any order. Messages: see
    /// [`global_array`](self).
    ///
    /// # Errors
    /// `OutOfRange`, naming the dimension; `BadArgument` for a buffer whose length is not that of the section;
    /// `WrongEpoch` inside [`with_local`](Self::with_local); `PeerLost`.
    #[track_caller]
    pub fn put(&self, section: impl Into<Section<D>>, from: &[T]) -> Result<()> {
        located(|| {
            const OP: &str = "put into a global array";
            let section = self.check(OP, section.into(), from.len())?;
            let parts = self.distribution.parts(&section)?;
            self.in_epoch_of_owners(&parts, |epoch| {
                parts.iter().try_for_each(|p| epoch.put_selected(from, &p.buffer, p.rank, 0, &p.block))
            })
        })
    }

    /// Gets a section into a row-major buffer; complete on return. Not atomic. Messages: see [`global_array`](self).
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    #[track_caller]
    pub fn get(&self, section: impl Into<Section<D>>, into: &mut [T]) -> Result<()> {
        located(|| {
            const OP: &str = "get from a global array";
            let section = self.check(OP, section.into(), into.len())?;
            let parts = self.distribution.parts(&section)?;
            self.in_epoch_of_owners(&parts, |epoch| {
                epoch.get_all_selected(into, parts.iter().map(|p| (&p.buffer, p.rank, 0, &p.block)))
            })
        })
    }

    /// Accumulates a row-major buffer into a section: each element atomically with respect to other accumulates and
    /// to `fetch_and_op`. On return it is complete at the owners. Messages: see [`global_array`](self).
    ///
    /// # Errors
    /// Those of [`put`](Self::put); `Unsupported` for a logical or bitwise operation on floats.
    #[track_caller]
    pub fn accumulate(&self, op: Op, section: impl Into<Section<D>>, operand: &[T]) -> Result<()>
    where
        T: Element,
    {
        located(|| {
            const OP: &str = "accumulate into a global array";
            op.check(T::TYPE, OP)?;
            let section = self.check(OP, section.into(), operand.len())?;
            let parts = self.distribution.parts(&section)?;
            self.in_epoch_of_owners(&parts, |epoch| {
                parts.iter().try_for_each(|p| epoch.accumulate_selected(op, operand, &p.buffer, p.rank, 0, &p.block))
            })
        })
    }

    /// Gets the element at `index`. Messages: one get, its lock and unlock.
    ///
    /// # Errors
    /// Those of [`locate`](Self::locate); `WrongEpoch` inside [`with_local`](Self::with_local); `PeerLost`.
    #[track_caller]
    pub fn get_element(&self, index: [usize; D]) -> Result<T> {
        located(|| {
            let (rank, at) = self.locate(index)?;
            self.check_not_borrowed("get an element of a global array")?;
            self.window.lock(LockKind::Shared, rank, Assert::empty(), |epoch| epoch.get_blocking(rank, at))
        })
    }

    /// Applies `op` to the element at `index` atomically, and returns its previous value. Messages: one fetching
    /// accumulate, its lock and unlock.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let array = GlobalArray::<u32, 1>::new(&team, [10])?;
    ///     let ticket = array.fetch_and_op(Op::Sum, 1, [9])?;
    ///     array.sync()?;
    ///     assert!(ticket < 3 && array.get_element([9])? == 3);
    ///     array.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`get_element`](Self::get_element); `Unsupported` for a logical or bitwise operation on floats.
    #[track_caller]
    pub fn fetch_and_op(&self, op: Op, operand: T, index: [usize; D]) -> Result<T>
    where
        T: Element,
    {
        located(|| {
            let (rank, at) = self.locate(index)?;
            self.check_not_borrowed("fetch and op on a global array")?;
            self.window.lock(LockKind::Shared, rank, Assert::empty(), |epoch| {
                epoch.fetch_and_op_blocking(op, operand, rank, at)
            })
        })
    }

    /// Runs `body` with this rank's own block under an exclusive lock: operations of other ranks on it wait until
    /// `body` has returned. Inside `body` this rank's own operations on the array fail, since two ranks that have
    /// locked their blocks could deadlock.
    ///
    /// # Errors
    /// Any error of `body`; `WrongEpoch` inside another `with_local` of this array; `PeerLost`.
    #[track_caller]
    pub fn with_local<R, E: From<Error>>(
        &self,
        body: impl FnOnce(LocalView<'_, T, D>) -> Result<R, E>,
    ) -> Result<R, E> {
        located(|| self.check_not_borrowed("access the local block of a global array"))?;
        let _lent = BorrowedBlock::new(&self.borrowed);
        self.window.with_local(|elements| body(LocalView::new(&self.distribution, self.team().rank(), elements)))
    }

    /// Calls `f` with the global index and the element of each of this rank's elements, in row-major order, under an
    /// exclusive lock like [`with_local`](Self::with_local). Local.
    ///
    /// # Errors
    /// Those of [`with_local`](Self::with_local).
    #[track_caller]
    pub fn for_each(&self, mut f: impl FnMut([usize; D], &mut T)) -> Result<()> {
        located(|| {
            self.with_local(|mut view| {
                view.for_each(&mut f);
                Ok(())
            })
        })
    }

    /// Reduces all elements of the array by `op` and returns the result at every rank; `None` for an array without
    /// elements. Collective, one allgather. Elements that other ranks change concurrently are read before or after the
    /// change.
    ///
    /// # Errors
    /// Those of [`with_local`](Self::with_local); `Unsupported` for a logical or bitwise operation on floats.
    #[track_caller]
    pub fn reduce(&self, op: Op) -> Result<Option<T>>
    where
        T: Element,
    {
        located(|| {
            const REDUCE: &str = "reduce a global array";
            op.check(T::TYPE, REDUCE)?;
            let own = self.with_local(|view| {
                let mut all = view.elements().iter().copied();
                let Some(mut sum) = all.next() else { return Ok(None) };
                all.try_for_each(|one| combine(op, from_mut(&mut sum), &[one]))?;
                Ok::<_, Error>(Some(sum))
            });
            // Ranks without elements contribute nothing, since the operation may have no identity element.
            let bytes = own.as_ref().map_or(&[][..], |own| own.as_ref().map_or(&[], bytemuck::bytes_of));
            let all = agree(self.team(), REDUCE, own.is_ok(), bytes);
            own?;
            let all = all?;
            let mut all = all.iter().filter(|one| !one.is_empty()).map(|one| bytemuck::pod_read_unaligned::<T>(one));
            let Some(mut sum) = all.next() else { return Ok(None) };
            all.try_for_each(|one| combine(op, from_mut(&mut sum), &[one]))?;
            Ok(Some(sum))
        })
    }

    /// Folds the elements of each rank, with their global indices and in row-major order, from `init`, and merges the
    /// results of all ranks in their order; every rank gets the same result. Collective, one allgather of the encoded
    /// results. Elements that other ranks change concurrently are read before or after the change.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let array = GlobalArray::<u64, 2>::new(&job.world()?, [4, 3])?;
    ///     array.for_each(|[i, j], element| *element = (10 * i + j) as u64)?;
    ///     let odd = array.fold(vec![], |mut odd, index, element| {
    ///         odd.extend((element % 2 == 1).then_some(index));
    ///         odd
    ///     }, |a, b| [a, b].concat())?;
    ///     assert_eq!(odd, [[0, 1], [1, 1], [2, 1], [3, 1]]);
    ///     array.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`with_local`](Self::with_local), and of [`allgather_values`](crate::dist::Values::allgather_values).
    #[track_caller]
    pub fn fold<R: Serialize + DeserializeOwned>(
        &self,
        init: R,
        mut f: impl FnMut(R, [usize; D], T) -> R,
        merge: impl Fn(R, R) -> R,
    ) -> Result<R> {
        const FOLD: &str = "fold a global array";
        located(|| {
            let mut folded = Some(init);
            let own = self.for_each(|index, element| folded = folded.take().map(|all| f(all, index, *element)));
            // A rank that cannot read its elements takes part without a result.
            let given = folded.filter(|_| own.is_ok());
            let all = self.team().allgather_values(&given);
            own?;
            let all = all?;
            if let Some(failed) = all.iter().position(Option::is_none) {
                let e = Error::new(ErrorKind::Aborted, FOLD).peer(self.team().members()[failed]);
                return Err(e.cause("the peer cannot read its elements").remedy("see the error of the peer rank"));
            }
            let merged = all.into_iter().flatten().reduce(merge);
            merged.ok_or_else(|| Error::new(ErrorKind::Protocol, FOLD).cause("no rank has sent a result"))
        })
    }

    #[inline]
    fn check_index(&self, index: &[usize; D]) -> Result<()> {
        match (0..D).find(|d| index[*d] >= self.distribution.shape[*d]) {
            None => Ok(()),
            Some(d) => Err(Error::new(ErrorKind::OutOfRange, "locate an element")
                .cause(format!("index {} is outside dimension {d}, which has {} indices", index[d], self.shape()[d]))
                .remedy("use an index inside the array's shape")),
        }
    }

    /// Copies the array into another array of the same shape and team but of any distribution: each rank puts its
    /// elements directly to their new owners, with layouts computed from the two distributions and without an
    /// intermediate copy. Collective; on return it is complete at all ranks.
    ///
    /// # Errors
    /// `BadArgument` for an array of another shape or team; `WrongEpoch` inside [`with_local`](Self::with_local) of
    /// either; `PeerLost`.
    #[track_caller]
    pub fn redistribute_into(&self, to: &Self) -> Result<()> {
        located(|| {
            const OP: &str = "redistribute a global array";
            if self.shape() != to.shape() || self.team().context() != to.team().context() {
                return Err(Error::new(ErrorKind::BadArgument, OP).rank(self.team().job().rank()).cause(format!(
                    "the arrays have different teams or shapes ({:?} and {:?})",
                    self.shape(),
                    to.shape()
                )));
            }
            if std::ptr::eq(self, to) {
                return self.sync();
            }
            // The barrier also waits for puts of other ranks into this array.
            agree_on_outcome(self.team(), OP, self.check_not_borrowed(OP).and_then(|()| to.check_not_borrowed(OP)))?;
            let parts = self.distribution.shared_with(self.team().rank(), &to.distribution, None)?;
            self.window.with_local(|own| {
                let own = &*own;
                to.in_epoch_of_owners(&parts, |epoch| {
                    parts.iter().try_for_each(|p| epoch.put_selected(own, &p.buffer, p.rank, 0, &p.block))
                })
            })?;
            to.sync()
        })
    }

    /// Waits until all ranks have called it: earlier operations of any rank on the array are then visible to all ranks.
    /// Collective; ⌈log2 P⌉ messages per rank.
    ///
    /// # Errors
    /// `PeerLost`.
    #[track_caller]
    pub fn sync(&self) -> Result<()> {
        located(|| {
            // Operations are complete when they return, so a barrier suffices.
            self.team().barrier()
        })
    }

    pub(crate) fn raw(&self) -> &Rc<RawWindow> {
        self.window.raw()
    }

    /// [`locate`](Self::locate) for an index inside of the array.
    #[inline]
    pub(crate) fn locate_inside(&self, index: [usize; D]) -> (usize, usize) {
        self.distribution.locate(index)
    }

    fn check_not_borrowed(&self, operation: &'static str) -> Result<()> {
        if !self.borrowed.get() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::WrongEpoch, operation)
            .rank(self.team().job().rank())
            .cause("this rank's block is in use by with_local")
            .remedy("use the array after with_local has returned"))
    }

    fn check(&self, operation: &'static str, section: Section<D>, elements: usize) -> Result<Section<D>> {
        section.check(self.shape(), operation)?;
        if section.len() != elements {
            return Err(Error::new(ErrorKind::BadArgument, operation)
                .cause(format!("the buffer has {elements} elements, but section {section} has {}", section.len()))
                .remedy("pass a buffer of as many elements as the section has"));
        }
        self.check_not_borrowed(operation)?;
        Ok(section)
    }

    /// Runs `body` in an epoch whose targets are the owners of all parts; its operations are complete on return.
    fn in_epoch_of_owners<'env>(
        &self,
        parts: &[Part<T>],
        body: impl for<'scope> FnOnce(&'scope PassiveEpoch<'scope, 'env, T>) -> Result<()>,
    ) -> Result<()> {
        match parts {
            [] => Ok(()),
            [one] => self.window.lock(LockKind::Shared, one.rank, Assert::empty(), body),
            // `lock_all` takes the lock of a rank at the first operation on it, so only the locks of the owners are
            // taken.
            _ => self.window.lock_all(Assert::empty(), body),
        }
    }
}

/// Marks this rank's block as borrowed until this value is dropped, on return or on panic.
struct BorrowedBlock<'a>(&'a Cell<bool>);

impl<'a> BorrowedBlock<'a> {
    fn new(borrowed: &'a Cell<bool>) -> Self {
        borrowed.set(true);
        Self(borrowed)
    }
}

impl Drop for BorrowedBlock<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
