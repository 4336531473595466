//! Updates of elements, applied by their owners in blocks.

use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use farside_core::job::OneThread;
use farside_core::{Located, Result, located};

use super::Options;
use super::state::{AGGREGATE, Aggregator, Lengths};
use crate::assert::Assert;
use crate::elements::WindowElement;
use crate::global_array::GlobalArray;
use crate::op::{Element, Op};
use crate::raw::RawWindow;
use crate::symmetric::Symmetric;

/// Bytes of the index before the value of an update.
const INDEX: usize = 8;

/// Updates of the memory of a window.
struct WindowUpdates<T: Element> {
    _thread: OneThread,
    raw: Rc<RawWindow>,
    op: Op,
    /// Whether the updates hold the shared locks of their targets.
    has_locks: bool,
    /// `None` if all memory is mapped, so that each update is a CPU atomic.
    blocks: Option<Rc<Aggregator>>,
    element: PhantomData<T>,
}

impl<T: Element> WindowUpdates<T> {
    fn new(raw: &Rc<RawWindow>, op: Op, options: Options, has_locks: bool) -> Result<Self> {
        op.check(T::TYPE, AGGREGATE)?;
        raw.usable(AGGREGATE)?;
        raw.check_not_borrowed(AGGREGATE)?;
        if has_locks {
            raw.lock_all(Assert::empty())?;
        }
        let mut updates =
            Self { _thread: PhantomData, raw: Rc::clone(raw), op, has_locks, blocks: None, element: PhantomData };
        if !raw.is_mapped() {
            let code = WindowElement::of::<T>("updates").code().wrapping_add(op as u64);
            let own = Rc::clone(raw);
            let len = raw.len_at(raw.team().rank())? / size_of::<T>();
            raw.aggregate_updates(true)?;
            let apply = move |_, records: &[u8], lengths: Lengths| apply::<T>(&own, len, op, records, lengths);
            let made = Aggregator::new(raw.team(), options, (INDEX + size_of::<T>(), code), Some(Box::new(apply)));
            if made.is_err() {
                raw.aggregate_updates(false)?;
            }
            updates.blocks = Some(made?);
            raw.handles().add();
        }
        Ok(updates)
    }

    #[inline(always)]
    fn update(&self, rank: usize, at: usize, value: T) -> Result<()> {
        let offset = at * size_of::<T>();
        let Some(blocks) = &self.blocks else { return self.raw.accumulate_value(self.op, value, rank, offset) };
        if self.raw.try_accumulate_value(self.op, value, rank, offset) {
            return Ok(());
        }
        blocks.push_waiting(rank, |buffer| {
            buffer.extend_from_slice(&(at as u64).to_le_bytes());
            buffer.extend_from_slice(bytemuck::bytes_of(&value));
        })
    }

    fn flush(&self, rank: usize) -> Result<()> {
        self.raw.team().job_rank(rank)?;
        if let Some(blocks) = &self.blocks {
            blocks.flush(rank)?;
        }
        if self.has_locks { self.raw.flush_all() } else { self.raw.quiet() }
    }

    fn finish(self) -> Result<()> {
        if self.has_locks {
            self.raw.flush_all()?;
        } else {
            self.raw.quiet()?;
            self.raw.end_shares();
        }
        match &self.blocks {
            None => {
                drop(self.unlocked()?);
                return Ok(());
            }
            Some(blocks) => {
                blocks.finish()?;
                blocks.end();
                self.raw.aggregate_updates(false)?;
            }
        }
        self.unlocked().map(drop)
    }

    /// Releases the locks; where no block has been sent, also waits for all ranks.
    fn unlocked(mut self) -> Result<Self> {
        if std::mem::take(&mut self.has_locks) {
            self.raw.unlock_all()?;
        }
        if self.blocks.is_none() {
            self.raw.team().barrier()?;
        }
        Ok(self)
    }
}

impl<T: Element> Drop for WindowUpdates<T> {
    fn drop(&mut self) {
        if let Some(blocks) = self.blocks.take() {
            blocks.abandon();
            self.raw.handles().remove();
        }
        if self.has_locks
            && let Err(e) = self.raw.unlock_all()
        {
            tracing::error!("failed to release the locks of updates that were not finished: {e}");
        }
    }
}

/// Applies the updates of a block to this rank's own memory.
fn apply<T: Element>(raw: &RawWindow, len: usize, op: Op, records: &[u8], lengths: Lengths) -> Result<()> {
    for record in records.chunks_exact(lengths.record) {
        let Some((at, value)) = record[lengths.item..].split_first_chunk::<INDEX>() else { continue };
        let at = usize::try_from(u64::from_le_bytes(*at)).unwrap_or(usize::MAX);
        if at >= len {
            tracing::error!("dropped an update of element {at} of {len}");
            continue;
        }
        let (value, offset) = (bytemuck::pod_read_unaligned::<T>(value), at * size_of::<T>());
        raw.update_own(op, value, offset)?;
    }
    Ok(())
}

/// Updates of symmetric memory that travel in blocks ([`Symmetric::aggregated`]).
///
/// ```
/// use farside_rma::aggregate::Updates;
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let most = Symmetric::<u64>::allocate(&team, 4)?;
///     let mut updates: Updates<'_, u64> = most.aggregated(Op::Max)?;
///     for at in 0..4 {
///         updates.add(at % 3, at, 10 * team.rank() as u64)?;
///     }
///     updates.flush(1)?;
///     assert!(most.get_value(1, 1)? >= 10 * team.rank() as u64);
///     updates.finish()?;
///     assert_eq!(most.get_value(0, 3)?, 20);
///     most.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
///
/// Dropped without [`finish`](Self::finish), updates that have not been applied are lost.
pub struct Updates<'a, T: Element> {
    updates: WindowUpdates<T>,
    len: usize,
    table: PhantomData<&'a Symmetric<T>>,
}

impl<T: Element> fmt::Debug for Updates<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Updates").field("op", &self.updates.op).finish_non_exhaustive()
    }
}

impl<T: Element> Symmetric<T> {
    /// Begins updates by `op` that travel in blocks and are applied by their owners. Collective, with the same operation
    /// at all ranks; one allgather and a barrier, or nothing where all memory is mapped. Each update is atomic; with
    /// [`Op::Replace`], the last value of a rank for an element replaces its earlier ones, and of several ranks one of the
    /// last. Until [`finish`](Updates::finish), [`exclusive`](Self::exclusive) is refused where memory is not mapped, and so
    /// are other atomics of the memory where those of the device are not coherent with the processor's, as over verbs.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(4, |job| {
    ///     let team = job.world()?;
    ///     let bins = Symmetric::<u64>::allocate(&team, 10)?;
    ///     let mut sums = bins.aggregated(Op::Sum)?;
    ///     for number in 0..1000 {
    ///         sums.add(number % 4, number / 4 % 10, 1)?;
    ///     }
    ///     sums.finish()?;
    ///     assert_eq!(bins.local().to_vec()?, [100; 10]);
    ///     bins.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Unsupported` for a logical or bitwise operation on floats; `Mismatch` for operations that differ; `Limit` if no
    /// handler number is free; `WrongEpoch` inside [`exclusive`](Self::exclusive); `PeerLost`.
    #[track_caller]
    pub fn aggregated(&self, op: Op) -> Result<Updates<'_, T>> {
        located(|| self.aggregated_with(op, Options::default()))
    }

    /// Like [`aggregated`](Self::aggregated), with this memory for blocks.
    ///
    /// # Errors
    /// Those of [`aggregated`](Self::aggregated); `Mismatch` for options that differ; `BadArgument` for a number of hops
    /// that does not exist, or too little memory for an update in each block.
    #[track_caller]
    pub fn aggregated_with(&self, op: Op, options: Options) -> Result<Updates<'_, T>> {
        located(|| {
            let updates = WindowUpdates::new(self.raw_handle(), op, options, false)?;
            Ok(Updates { updates, len: self.len(), table: PhantomData })
        })
    }
}

impl<T: Element> Updates<'_, T> {
    /// Updates element `at` of `rank` with `value`. Waits while the blocks to `rank` are full. Visible at the owner after
    /// [`flush`](Self::flush), everywhere after [`finish`](Self::finish). A CPU atomic if the element is mapped.
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`; `PeerLost`; `InCallback`.
    #[inline]
    #[track_caller]
    pub fn add(&mut self, rank: usize, at: usize, value: T) -> Result<()> {
        self.updates.raw.check_element("aggregated update", rank, at, self.len).located()?;
        self.updates.update(rank, at, value).located()
    }

    /// Waits until all updates of this rank to `rank` have been applied. Not collective, but `rank`, and those over which
    /// blocks travel, must enter the runtime.
    ///
    /// # Errors
    /// `NoSuchRank`; `PeerLost`.
    #[track_caller]
    pub fn flush(&mut self, rank: usize) -> Result<()> {
        located(|| self.updates.flush(rank))
    }

    /// Waits until all updates of all ranks have been applied, and are visible to every rank. Collective; two messages a
    /// rank for each round of the termination detection, of which there are two or more. Where all memory is mapped, a
    /// barrier.
    ///
    /// # Errors
    /// `PeerLost`.
    #[track_caller]
    pub fn finish(self) -> Result<()> {
        located(|| self.updates.finish())
    }
}

/// Updates of a global array that travel in blocks ([`GlobalArray::aggregated`]).
///
/// ```
/// use farside_rma::aggregate::ArrayUpdates;
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let array = GlobalArray::<f64, 2>::new(&team, [6, 6])?;
///     let mut updates: ArrayUpdates<'_, f64, 2> = array.aggregated(Op::Min)?;
///     for i in 0..6 {
///         updates.add([i, i], -(team.rank() as f64))?;
///     }
///     updates.finish()?;
///     assert_eq!(array.get_element([5, 5])?, -2.0);
///     array.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
///
/// Dropped without [`finish`](Self::finish), updates that have not been applied are lost.
pub struct ArrayUpdates<'a, T: Element, const D: usize> {
    updates: WindowUpdates<T>,
    array: &'a GlobalArray<T, D>,
}

impl<T: Element, const D: usize> fmt::Debug for ArrayUpdates<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayUpdates").field("op", &self.updates.op).finish_non_exhaustive()
    }
}

impl<T: Element, const D: usize> GlobalArray<T, D> {
    /// Begins updates by `op` that travel in blocks, like [`Symmetric::aggregated`]. Collective. Until
    /// [`finish`](ArrayUpdates::finish), this rank's other operations on the array get `WrongEpoch`.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(4, |job| {
    ///     let team = job.world()?;
    ///     let bins = GlobalArray::<u64, 1>::new(&team, [100])?;
    ///     let mut sums = bins.aggregated(Op::Sum)?;
    ///     for number in 0..1000 {
    ///         sums.add([number % 100], 1)?;
    ///     }
    ///     sums.finish()?;
    ///     assert_eq!(bins.gather(&[[0], [99]])?, [40, 40]);
    ///     bins.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Symmetric::aggregated`]; `WrongEpoch` inside [`with_local`](Self::with_local), or while other updates
    /// of the array have not been finished.
    #[track_caller]
    pub fn aggregated(&self, op: Op) -> Result<ArrayUpdates<'_, T, D>> {
        located(|| self.aggregated_with(op, Options::default()))
    }

    /// Like [`aggregated`](Self::aggregated), with this memory for blocks.
    ///
    /// # Errors
    /// Those of [`aggregated`](Self::aggregated) and of [`Symmetric::aggregated_with`].
    #[track_caller]
    pub fn aggregated_with(&self, op: Op, options: Options) -> Result<ArrayUpdates<'_, T, D>> {
        located(|| Ok(ArrayUpdates { updates: WindowUpdates::new(self.raw(), op, options, true)?, array: self }))
    }
}

impl<T: Element, const D: usize> ArrayUpdates<'_, T, D> {
    /// Updates the element at `index` with `value`, like [`Updates::add`].
    ///
    /// # Errors
    /// `OutOfRange`, naming the dimension; `PeerLost`; `InCallback`.
    #[inline]
    #[track_caller]
    pub fn add(&mut self, index: [usize; D], value: T) -> Result<()> {
        let (rank, at) = self.array.locate(index)?;
        self.updates.update(rank, at, value).located()
    }

    /// Waits until all updates of this rank to elements of `rank` have been applied, like [`Updates::flush`].
    ///
    /// # Errors
    /// Those of [`Updates::flush`].
    #[track_caller]
    pub fn flush(&mut self, rank: usize) -> Result<()> {
        located(|| self.updates.flush(rank))
    }

    /// Waits until all updates of all ranks have been applied, like [`Updates::finish`]. Collective.
    ///
    /// # Errors
    /// Those of [`Updates::finish`].
    #[track_caller]
    pub fn finish(self) -> Result<()> {
        located(|| self.updates.finish())
    }
}
