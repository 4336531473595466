//! Elements at lists of indices, in one batch.

use std::slice::{from_mut, from_ref};

use bytemuck::Pod;
use farside_core::{Result, located};

use super::GlobalArray;
use crate::assert::Assert;
use crate::elements::same_length;
use crate::op::{Element, Op};

impl<T: Pod, const D: usize> GlobalArray<T, D> {
    /// Gets the elements at a list of indices, in one batch. Messages: one get for each; none if memory is mapped.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let array = GlobalArray::<u64, 1>::new(&team, [9])?;
    ///     array.accumulate_at(Op::Sum, &[[8], [0], [8]], &[5, 1, 2])?;
    ///     array.sync()?;
    ///     assert_eq!(array.gather(&[[0], [8], [4]])?, [3, 21, 0]);
    ///     array.free()
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`locate`](Self::locate); `WrongEpoch` inside [`with_local`](Self::with_local); `PeerLost`.
    #[track_caller]
    pub fn gather(&self, indices: &[[usize; D]]) -> Result<Vec<T>> {
        located(|| {
            self.check_not_borrowed("gather elements of a global array")?;
            self.check_inside(indices)?;
            let mut values = vec![T::zeroed(); indices.len()];
            let mut slots = values.iter_mut().zip(indices);
            self.window.lock_all(Assert::empty(), |epoch| {
                slots.try_for_each(|(slot, index)| {
                    let (rank, at) = self.distribution.locate(*index);
                    epoch.get(from_mut(slot), rank, at)
                })
            })?;
            Ok(values)
        })
    }

    /// Puts values to the elements at a list of indices, in one batch. If an index occurs twice, its element gets
    /// either of the values. On return the values are complete at the owners. Messages: one put for each; none if
    /// memory is mapped.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let array = GlobalArray::<u8, 2>::new(&team, [4, 4])?;
    ///     // Each rank writes half of the diagonal.
    ///     let first = 2 * team.rank();
    ///     array.scatter(&[[first, first], [first + 1, first + 1]], &[1, 2])?;
    ///     array.sync()?;
    ///     assert_eq!(array.gather(&[[0, 0], [1, 1], [2, 2], [3, 3], [0, 1]])?, [1, 2, 1, 2, 0]);
    ///     array.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`gather`](Self::gather); `BadArgument` for lists of different lengths.
    #[track_caller]
    pub fn scatter(&self, indices: &[[usize; D]], values: &[T]) -> Result<()> {
        located(|| {
            self.check_not_borrowed("scatter elements of a global array")?;
            same_length(indices.len(), values.len())?;
            self.check_inside(indices)?;
            self.window.lock_all(Assert::empty(), |epoch| {
                values.iter().zip(indices).try_for_each(|(value, index)| {
                    let (rank, at) = self.distribution.locate(*index);
                    epoch.put(from_ref(value), rank, at)
                })
            })
        })
    }

    /// Accumulates values into the elements at a list of indices, each atomically, in one batch; several values for the
    /// same element are all accumulated. On return the accumulates are complete at the owners. Each index is a separate
    /// accumulate, even if several have the same owner. If memory is mapped, it is a CPU atomic and no message; over
    /// tcp, one message; over verbs, one request for a sum of 8-byte integers, two for other operations on 8 bytes, and
    /// four for shorter elements, or more under contention.
    ///
    /// # Errors
    /// Those of [`scatter`](Self::scatter); `Unsupported` for a logical or bitwise operation on floats.
    #[track_caller]
    pub fn accumulate_at(&self, op: Op, indices: &[[usize; D]], values: &[T]) -> Result<()>
    where
        T: Element,
    {
        located(|| {
            const OP: &str = "accumulate into elements of a global array";
            self.check_not_borrowed(OP)?;
            op.check(T::TYPE, OP)?;
            same_length(indices.len(), values.len())?;
            self.check_inside(indices)?;
            self.window.lock_all(Assert::empty(), |epoch| {
                values.iter().zip(indices).try_for_each(|(value, index)| {
                    let (rank, at) = self.distribution.locate(*index);
                    epoch.accumulate(op, from_ref(value), rank, at)
                })
            })
        })
    }

    /// Checks that all indices are inside of the array.
    fn check_inside(&self, indices: &[[usize; D]]) -> Result<()> {
        indices.iter().try_for_each(|index| self.check_index(index))
    }
}
