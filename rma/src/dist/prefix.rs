//! Prefix sums, by any operation, of the elements of distributed arrays.

use std::slice::from_mut;

use farside_core::{Error, Result, Team, located};

use crate::global_array::agreement::agree;
use crate::global_array::{Format, GlobalArray};
use crate::op::{Element, Op, combine};
use crate::symmetric::Symmetric;

const PREFIX: &str = "prefix sums";

/// Replaces each element by the reduction of those up to it, or of `first` and those before it. Collective, also for a
/// rank whose elements are missing for the given reason; one allgather.
fn prefix<T: Element>(team: &Team, own: Result<&mut [T]>, op: Op, first: Option<T>) -> Result<()> {
    let own = own.and_then(|own| op.check(T::TYPE, PREFIX).map(|()| own));
    let total = own.as_ref().ok().and_then(|own| {
        let (first, rest) = own.split_first()?;
        let mut total = *first;
        rest.iter().try_for_each(|one| combine(op, from_mut(&mut total), &[*one])).ok()?;
        Some(total)
    });
    let all = agree(team, PREFIX, own.is_ok(), total.as_ref().map_or(&[], bytemuck::bytes_of));
    let (own, all) = (own?, all?);
    let mut sum = first;
    let mut add = |one: T| -> Result<Option<T>> {
        let before = sum;
        match &mut sum {
            Some(sum) => combine(op, from_mut(sum), &[one])?,
            None => sum = Some(one),
        }
        Ok(if first.is_some() { before } else { sum })
    };
    for one in all[..team.rank()].iter().filter(|one| one.len() == size_of::<T>()) {
        add(bytemuck::pod_read_unaligned(one))?;
    }
    for element in own {
        *element = add(*element)?.unwrap_or(*element);
    }
    Ok(())
}

impl<T: Element> Symmetric<T> {
    /// Replaces each element by the reduction, by `op`, of those up to it, where the elements of all ranks, in the order of
    /// the ranks, are one sequence. Collective; [`exclusive`](Self::exclusive) and an allgather. Floats are added in order,
    /// those of each rank first.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let counts = Symmetric::<u64>::allocate(&team, 2)?;
    ///     counts.local().store(1, 10)?;
    ///     counts.prefix(Op::Sum)?;
    ///     assert_eq!(counts.get_value(1, 1)?, 20);
    ///     counts.prefix_exclusive(Op::Sum, 0)?;
    ///     assert_eq!(counts.get_value(1, 1)?, 20);
    ///     counts.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`exclusive`](Self::exclusive); `Unsupported` for a logical or bitwise operation on floats; `Aborted` if
    /// another rank has an error.
    #[track_caller]
    pub fn prefix(&self, op: Op) -> Result<()> {
        located(|| self.exclusive(|own| prefix(self.team(), Ok(own), op, None)))
    }

    /// Replaces each element by the reduction of `first` and the elements before it, like [`prefix`](Self::prefix).
    ///
    /// # Errors
    /// Those of [`prefix`](Self::prefix).
    #[track_caller]
    pub fn prefix_exclusive(&self, op: Op, first: T) -> Result<()> {
        located(|| self.exclusive(|own| prefix(self.team(), Ok(own), op, Some(first))))
    }
}

impl<T: Element> GlobalArray<T, 1> {
    /// Replaces each element by the reduction, by `op`, of those up to it. Collective, and complete at all ranks on return;
    /// two barriers and an allgather. An array that is not in blocks is redistributed into one that is, and back.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let array = GlobalArray::<u64, 1>::new(&job.world()?, [100])?;
    ///     array.for_each(|[i], element| *element = i as u64)?;
    ///     array.prefix(Op::Sum)?;
    ///     assert_eq!(array.get_element([99])?, 4950);
    ///     array.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`with_local`](Self::with_local); `Unsupported` for a logical or bitwise operation on floats; `Aborted` if
    /// another rank has an error.
    #[track_caller]
    pub fn prefix(&self, op: Op) -> Result<()> {
        located(|| self.prefix_from(op, None))
    }

    /// Replaces each element by the reduction of `first` and the elements before it, like [`prefix`](Self::prefix).
    ///
    /// # Errors
    /// Those of [`prefix`](Self::prefix).
    #[track_caller]
    pub fn prefix_exclusive(&self, op: Op, first: T) -> Result<()> {
        located(|| self.prefix_from(op, Some(first)))
    }

    fn prefix_from(&self, op: Op, first: Option<T>) -> Result<()> {
        if self.formats() != [Format::Block] {
            let blocks = Self::new(self.team(), self.shape())?;
            self.redistribute_into(&blocks)?;
            let done = blocks.prefix_from(op, first).and_then(|()| blocks.redistribute_into(self));
            return done.and(blocks.free());
        }
        self.sync()?;
        let mut is_called = false;
        let done = self.with_local(|mut own| {
            is_called = true;
            prefix(self.team(), Ok(own.elements_mut()), op, first)
        });
        match done {
            Err(e) if !is_called => prefix(self.team(), Err(e), op, first),
            Err(e) => Err::<(), Error>(e),
            Ok(()) => self.sync(),
        }
    }
}
