//! Gets of elements anywhere: requests travel to the owners in blocks, and the values back.

use std::rc::Rc;

use bytemuck::Pod;
use farside_core::{Result, located};

use super::Options;
use super::conveyor::Conveyor;
use super::finish::wait_for_any;
use super::state::{AGGREGATE, Aggregator};
use super::wire::number;
use crate::assert::Assert;
use crate::elements::WindowElement;
use crate::global_array::GlobalArray;
use crate::raw::RawWindow;
use crate::shared_window::SharedSlice;
use crate::symmetric::Symmetric;

/// Calls `f` with the position and the value of each of `count` elements, whose owners and indices there are `place`.
fn gather<T: Pod>(
    raw: &Rc<RawWindow>,
    options: Options,
    count: usize,
    place: impl Fn(usize) -> (usize, usize),
    mut f: impl FnMut(usize, T),
) -> Result<()> {
    let me = raw.team().rank();
    if raw.is_mapped() {
        for i in 0..count {
            let (rank, at) = place(i);
            let offset = at * size_of::<T>();
            f(i, raw.try_get_value(rank, offset).map_or_else(|| raw.get_value(rank, offset), Ok)?);
        }
        return Ok(());
    }
    let code = WindowElement::of::<T>("gathered elements").code();
    let half = Options { bytes: options.bytes / 2, ..options };
    let conveyor = |item| Aggregator::new(raw.team(), half, (item, code), None);
    // A request is an index and a position; an answer is that position and a value.
    let mut requests = Conveyor::<[u64; 2]>::over(conveyor(16)?);
    let mut answers = Conveyor::<u64>::over(conveyor(8 + size_of::<T>())?);
    let own = raw.len_at(me)? / size_of::<T>();
    let (mut next, mut is_requesting) = (0, true);
    let mut answer = vec![0; 8 + size_of::<T>()];
    let own = SharedSlice::<T>::own(raw, own);
    loop {
        let before = (next, is_requesting);
        is_requesting = is_requesting && requests.advance(next == count)?;
        if !answers.advance(!is_requesting)? {
            break;
        }
        while next < count {
            let (rank, at) = place(next);
            if let Some(value) = raw.try_get_value(rank, at * size_of::<T>()) {
                f(next, value);
            } else if !requests.push(rank, [at as u64, next as u64])? {
                break;
            }
            next += 1;
        }
        let mut has_pulled = false;
        while let Some((from, [at, position])) = requests.pull()? {
            let value = own.load(usize::try_from(at).unwrap_or(usize::MAX))?;
            answer[..8].copy_from_slice(&position.to_le_bytes());
            answer[8..].copy_from_slice(bytemuck::bytes_of(&value));
            if !answers.push_bytes(from, &answer)? {
                requests.unpull();
                break;
            }
            has_pulled = true;
        }
        let read = |from: usize, item: &[u8]| (from, number(item), bytemuck::pod_read_unaligned(&item[8..]));
        while let Some((from, position, value)) = answers.pull_with(read)? {
            let position = usize::try_from(position).ok().filter(|position| *position < count);
            match position {
                Some(position) => f(position, value),
                None => {
                    answers.blocks.malformed(raw.team().members()[from], "an answer to a request that was not made");
                    answers.blocks.check()?;
                }
            }
            has_pulled = true;
        }
        if !has_pulled && before == (next, is_requesting) {
            wait_for_any(&[&requests.blocks, &answers.blocks])?;
        }
    }
    requests.blocks.end();
    answers.blocks.end();
    Ok(())
}

impl<T: Pod> Symmetric<T> {
    /// Gets elements, given by rank and index, and calls `f` with the position in `places` and the value of each, in any
    /// order. Requests travel in blocks, which their owners answer in blocks. Collective: all ranks make the call, each with
    /// places of its own. Loads where all memory is mapped; an element that other ranks change meanwhile is read before or
    /// after the change.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let table = Symmetric::<u32>::allocate(&team, 10)?;
    ///     table.local().store(7, 70 + team.rank() as u32)?;
    ///     table.barrier()?;
    ///     let mut values = [0; 3];
    ///     table.gather_aggregated(&[(2, 7), (0, 7), (1, 0)], |i, value| values[i] = value)?;
    ///     assert_eq!(values, [72, 70, 0]);
    ///     table.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`, at the rank alone that gives such a place, after all ranks have made the call;
    /// `Mismatch` for elements that differ; `Limit` if no handler number is free; `PeerLost`.
    #[track_caller]
    pub fn gather_aggregated(&self, places: &[(usize, usize)], f: impl FnMut(usize, T)) -> Result<()> {
        located(|| self.gather_aggregated_with(Options::default(), places, f))
    }

    /// Like [`gather_aggregated`](Self::gather_aggregated), with this memory for blocks.
    ///
    /// # Errors
    /// Those of [`gather_aggregated`](Self::gather_aggregated); `Mismatch` for options that differ; `BadArgument` for a
    /// number of hops that does not exist, or too little memory for an item in each block.
    #[track_caller]
    pub fn gather_aggregated_with(
        &self,
        options: Options,
        places: &[(usize, usize)],
        f: impl FnMut(usize, T),
    ) -> Result<()> {
        located(|| {
            let raw = self.raw_handle();
            let check = |(rank, at): &(usize, usize)| raw.check_element(AGGREGATE, *rank, *at, self.len());
            checked(places.iter().try_for_each(check), places.len(), |count| {
                gather(raw, options, count, |i| places[i], f)
            })
        })
    }
}

impl<T: Pod, const D: usize> GlobalArray<T, D> {
    /// Gets the elements at a list of indices, and calls `f` with the position in the list and the value of each, in any
    /// order, like [`Symmetric::gather_aggregated`]. Collective: all ranks make the call, each with indices of its own.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let array = GlobalArray::<u32, 1>::new(&team, [100])?;
    ///     array.for_each(|[i], element| *element = i as u32)?;
    ///     array.sync()?;
    ///     let (mut sum, indices) = (0, [[99], [team.rank()], [50]]);
    ///     array.gather_aggregated(&indices, |i, value| {
    ///         assert_eq!(value as usize, indices[i][0]);
    ///         sum += value;
    ///     })?;
    ///     assert_eq!(sum, 149 + team.rank() as u32);
    ///     array.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Symmetric::gather_aggregated`], with `OutOfRange` for an index; `WrongEpoch` inside
    /// [`with_local`](Self::with_local).
    #[track_caller]
    pub fn gather_aggregated(&self, indices: &[[usize; D]], f: impl FnMut(usize, T)) -> Result<()> {
        located(|| self.gather_aggregated_with(Options::default(), indices, f))
    }

    /// Like [`gather_aggregated`](Self::gather_aggregated), with this memory for blocks.
    ///
    /// # Errors
    /// Those of [`gather_aggregated`](Self::gather_aggregated) and [`Symmetric::gather_aggregated_with`].
    #[track_caller]
    pub fn gather_aggregated_with(
        &self,
        options: Options,
        indices: &[[usize; D]],
        f: impl FnMut(usize, T),
    ) -> Result<()> {
        located(|| {
            let raw = self.raw();
            raw.check_not_borrowed(AGGREGATE)?;
            raw.lock_all(Assert::empty())?;
            let inside = indices.iter().try_for_each(|index| self.locate(*index).map(drop));
            let gathered = checked(inside, indices.len(), |count| {
                gather(raw, options, count, |i| self.locate_inside(indices[i]), f)
            });
            gathered.and(raw.unlock_all())
        })
    }
}

/// Runs `gather` for all elements, or for none if their places are wrong: the other ranks count on this one.
fn checked(places: Result<()>, count: usize, gather: impl FnOnce(usize) -> Result<()>) -> Result<()> {
    let gathered = gather(if places.is_ok() { count } else { 0 });
    places.and(gathered)
}
