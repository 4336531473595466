//! Global arrays: arrays of 1 or 2 dimensions that are distributed over the memory of a team and have global indices.
//!
//! Each rank owns one block of the array ([`GlobalArray::owned`]). Every operation is one-sided and blocking: the
//! owners of the elements take no part, and on return it is complete at the owners. The array is a [`LockWindow`], and
//! an operation holds shared locks, so it excludes only [`GlobalArray::with_local`] of the owners. Messages for a
//! section with k owners:
//!
//! | call | operations | locks and unlocks (atomics on mapped windows) |
//! |---|---|---|
//! | `put`, `get`, `accumulate` | k where memory is mapped, each a copy between two subarrays; else those of [`put_typed`](crate::raw::RawWindow::put_typed) for each owner, at most one for each row of its part | 2 for each of the k owners |
//! | `get_element`, `fetch_and_op` | 1 | 2 |
//! | `with_local` | none | 2 on this rank's own lock |
//! | `sync` | none | none; a barrier, ⌈log2 P⌉ |
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

mod distribution;
mod local_view;
mod section;

use std::cell::Cell;

use farside_core::wire::Writer;
use farside_core::{Error, ErrorKind, Result, Team, coll};

use crate::assert::Assert;
use crate::lock_window::{LockWindow, PassiveEpoch};
use crate::op::{Element, Op};
use crate::raw::lock::LockKind;
use crate::selection::Selection;
use distribution::{Distribution, near_aspect};
pub use local_view::LocalView;
pub use section::Section;

/// An array of `D` dimensions (1 or 2), block-distributed over a team.
///
/// Memory: each rank's block, and that of a [`LockWindow`].
#[derive(Debug)]
pub struct GlobalArray<T: Element, const D: usize> {
    window: LockWindow<T>,
    distribution: Distribution<D>,
    /// Whether `with_local` has borrowed this rank's block.
    lent: Cell<bool>,
}

/// The part of a section that one rank owns.
struct Part<T> {
    rank: usize,
    /// The elements of the part in the section's buffer.
    buffer: Selection<T>,
    /// The elements of the part in the owner's block.
    block: Selection<T>,
}

impl<T: Element> GlobalArray<T, 1> {
    /// Allocates an array of zeros, in blocks of ⌈n / P⌉. Collective; the same shape on all ranks.
    ///
    /// # Errors
    /// `Mismatch` for shapes that differ, `BadArgument` for a shape above the address space; those of
    /// [`LockWindow::allocate`].
    pub fn new(team: &Team, shape: [usize; 1]) -> Result<Self> {
        Self::make(team, shape, [team.size()])
    }
}

impl<T: Element> GlobalArray<T, 2> {
    /// Allocates an array of zeros (rows, columns), over a grid of ranks near its aspect ratio. Collective; the same
    /// shape on all ranks.
    ///
    /// # Errors
    /// Those of the one-dimensional `new`.
    pub fn new(team: &Team, shape: [usize; 2]) -> Result<Self> {
        Self::make(team, shape, near_aspect(shape, team.size()))
    }

    /// Allocates an array of zeros over a given grid: `grid[0]` x `grid[1]` ranks, numbered row-major. Collective.
    ///
    /// # Errors
    /// Those of [`new`](Self::new); `BadArgument` if the product of the grid is not the size of the team, `Mismatch`
    /// for grids that differ.
    pub fn with_grid(team: &Team, shape: [usize; 2], grid: [usize; 2]) -> Result<Self> {
        Self::make(team, shape, grid)
    }
}

impl<T: Element, const D: usize> GlobalArray<T, D> {
    fn make(team: &Team, shape: [usize; D], grid: [usize; D]) -> Result<Self> {
        // Compared before it is checked: after the comparison all ranks have the same arguments, so the checks fail at
        // all ranks or at none and no rank waits for another.
        let mine = shape.iter().chain(&grid).fold(Writer::new(), |w, n| w.u64(*n as u64)).done();
        let others = coll::allgather(team, &mine)?;
        if let Some(other) = others.iter().position(|o| *o != others[0]) {
            return Err(Error::new(ErrorKind::Mismatch, "make a global array")
                .peer(team.members()[other])
                .cause("its shape or grid differs from that of the team's first rank"));
        }
        let distribution = Distribution::new(shape, grid, team.size())?;
        let window = LockWindow::allocate(team, distribution.owned(team.rank()).len())?;
        Ok(Self { window, distribution, lent: Cell::new(false) })
    }

    /// Frees the array. Collective, with a barrier.
    ///
    /// # Errors
    /// Those of [`LockWindow::free`].
    pub fn free(self) -> Result<()> {
        self.window.free()
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

    /// The elements that `rank` owns. The last ranks of a dimension may own no elements.
    ///
    /// # Errors
    /// `NoSuchRank`.
    pub fn owned(&self, rank: usize) -> Result<Section<D>> {
        self.team().job_rank(rank)?;
        Ok(self.distribution.owned(rank))
    }

    /// The rank that owns the element at `index`, and the element's row-major index in that rank's block.
    ///
    /// # Errors
    /// `OutOfRange`, naming the dimension.
    pub fn locate(&self, index: [usize; D]) -> Result<(usize, usize)> {
        const OP: &str = "locate an element";
        match (0..D).find(|d| index[*d] >= self.shape()[*d]) {
            None => Ok(self.distribution.locate(index)),
            Some(d) => Err(Error::new(ErrorKind::OutOfRange, OP)
                .cause(format!("index {} in dimension {d}, which has {} indices", index[d], self.shape()[d]))
                .remedy("use an index inside the array's shape")),
        }
    }

    /// Puts a row-major buffer into a section. On return it is complete at the owners. Not atomic: other ranks may see
    /// parts of it earlier, and concurrent puts to one element may complete in any order. Messages: see the module.
    ///
    /// # Errors
    /// `OutOfRange`, naming the dimension; `BadArgument` for a buffer whose length is not that of the section;
    /// `WrongEpoch` inside [`with_local`](Self::with_local); `PeerLost`.
    pub fn put(&self, section: impl Into<Section<D>>, from: &[T]) -> Result<()> {
        const OP: &str = "put into a global array";
        let section = self.check(OP, section.into(), from.len())?;
        let parts = self.parts(&section)?;
        self.over_owners(&section, |epoch| {
            parts.iter().try_for_each(|p| epoch.put_selected(from, &p.buffer, p.rank, 0, &p.block))
        })
    }

    /// Gets a section into a row-major buffer; complete on return. Not atomic. Messages: see the module.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn get(&self, section: impl Into<Section<D>>, into: &mut [T]) -> Result<()> {
        const OP: &str = "get from a global array";
        let section = self.check(OP, section.into(), into.len())?;
        let parts = self.parts(&section)?;
        self.over_owners(&section, |epoch| {
            epoch.get_all_selected(into, parts.iter().map(|p| (&p.buffer, p.rank, 0, &p.block)))
        })
    }

    /// Accumulates a row-major buffer into a section: each element atomically with respect to other accumulates and
    /// to `fetch_and_op`. On return it is complete at the owners. Messages: see the module.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); `Unsupported` for a logical or bitwise operation on floats.
    pub fn accumulate(&self, op: Op, section: impl Into<Section<D>>, operand: &[T]) -> Result<()> {
        const OP: &str = "accumulate into a global array";
        op.check(T::TYPE, OP)?;
        let section = self.check(OP, section.into(), operand.len())?;
        let parts = self.parts(&section)?;
        self.over_owners(&section, |epoch| {
            parts.iter().try_for_each(|p| epoch.accumulate_selected(op, operand, &p.buffer, p.rank, 0, &p.block))
        })
    }

    /// Gets the element at `index`. Messages: one get, its lock and unlock.
    ///
    /// # Errors
    /// Those of [`locate`](Self::locate); `WrongEpoch` inside [`with_local`](Self::with_local); `PeerLost`.
    pub fn get_element(&self, index: [usize; D]) -> Result<T> {
        let (rank, at) = self.locate(index)?;
        self.not_lent("get an element of a global array")?;
        self.window.lock(LockKind::Shared, rank, Assert::empty(), |epoch| epoch.get_now(rank, at))
    }

    /// Applies `op` to the element at `index` atomically, and returns its former value. Messages: one fetching
    /// accumulate, its lock and unlock.
    ///
    /// # Errors
    /// Those of [`get_element`](Self::get_element); `Unsupported` for a logical or bitwise operation on floats.
    pub fn fetch_and_op(&self, op: Op, operand: T, index: [usize; D]) -> Result<T> {
        let (rank, at) = self.locate(index)?;
        self.not_lent("fetch and op on a global array")?;
        self.window.lock(LockKind::Shared, rank, Assert::empty(), |epoch| epoch.fetch_and_op_now(op, operand, rank, at))
    }

    /// Runs `body` with this rank's own block under an exclusive lock: operations of other ranks on it wait until
    /// `body` has returned. Inside `body` this rank's own operations on the array are refused, since two ranks that
    /// hold their blocks could deadlock.
    ///
    /// # Errors
    /// Any error of `body`; `WrongEpoch` inside another `with_local` of this array; `PeerLost`.
    pub fn with_local<R, E: From<Error>>(
        &self,
        body: impl FnOnce(LocalView<'_, T, D>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.not_lent("lend the own block of a global array")?;
        let section = self.distribution.owned(self.team().rank());
        let _lent = Lent::new(&self.lent);
        self.window.with_local(|elements| body(LocalView { section, elements }))
    }

    /// Waits until all ranks have called it: earlier operations of any rank on the array are then visible to all ranks.
    /// Collective; ⌈log2 P⌉ messages per rank.
    ///
    /// # Errors
    /// `PeerLost`.
    pub fn sync(&self) -> Result<()> {
        // Operations are complete when they return, so a barrier is enough.
        self.team().barrier()
    }

    fn not_lent(&self, operation: &'static str) -> Result<()> {
        if !self.lent.get() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::WrongEpoch, operation)
            .rank(self.team().job().rank())
            .cause("this rank's block is lent to with_local")
            .remedy("use the array after with_local has returned"))
    }

    fn check(&self, operation: &'static str, section: Section<D>, elements: usize) -> Result<Section<D>> {
        section.check(self.shape(), operation)?;
        if section.len() != elements {
            return Err(Error::new(ErrorKind::BadArgument, operation)
                .cause(format!("a buffer of {elements} elements for the {} of section {section}", section.len()))
                .remedy("pass a buffer of as many elements as the section has"));
        }
        self.not_lent(operation)?;
        Ok(section)
    }

    /// Runs `body` in an epoch that allows all owners of a section; its operations are complete on return.
    fn over_owners<'env>(
        &self,
        section: &Section<D>,
        body: impl for<'scope> FnOnce(&'scope PassiveEpoch<'scope, 'env, T>) -> Result<()>,
    ) -> Result<()> {
        if section.is_empty() {
            return Ok(());
        }
        let places = self.distribution.places(section);
        if places.len() == 1 {
            let rank = self.distribution.rank_at(places.start);
            self.window.lock(LockKind::Shared, rank, Assert::empty(), body)
        } else {
            // `lock_all` takes the lock of a rank at the first operation on it, so only those of the owners.
            self.window.lock_all(Assert::empty(), body)
        }
    }

    /// The parts of a section, one for each owner.
    fn parts(&self, section: &Section<D>) -> Result<Vec<Part<T>>> {
        if section.is_empty() {
            return Ok(Vec::new());
        }
        let places = self.distribution.places(section);
        let grid: [usize; D] = places.shape();
        (0..places.len())
            .map(|mut number| {
                let mut place = places.start;
                for d in (0..D).rev() {
                    place[d] += number % grid[d];
                    number /= grid[d];
                }
                let rank = self.distribution.rank_at(place);
                let block = self.distribution.owned(rank);
                let common = section.intersection(&block);
                let within = |of: &Section<D>| {
                    let ranges = |d: usize| common.start[d] - of.start[d]..common.end[d] - of.start[d];
                    Selection::subarray(of.shape(), std::array::from_fn(ranges))
                };
                Ok(Part { rank, buffer: within(section)?, block: within(&block)? })
            })
            .collect()
    }
}

/// Marks this rank's block as borrowed until it is dropped, by a return or a panic.
struct Lent<'a>(&'a Cell<bool>);

impl<'a> Lent<'a> {
    fn new(lent: &'a Cell<bool>) -> Self {
        lent.set(true);
        Self(lent)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
