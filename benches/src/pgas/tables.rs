//! A table of words over all ranks: every rank adds to random elements ("histogram") and reads random elements
//! ("index-gather"). An operation is a batch of indices.

use farside_core::error::Result;
use farside_rma::prelude::*;

use super::{Meter, numbers, wrong_data};

/// The number of indices in a batch.
pub(crate) const BATCH: usize = 1 << 14;
/// The number of different batches of a rank.
const BATCHES: usize = 16;

/// Measures additions and reads of a table with `words` elements a rank, a power of two.
///
/// # Errors
/// Those of the calls; `Protocol` for wrong data.
pub(crate) fn measure(meter: &Meter<'_>, words: usize) -> Result<()> {
    let team = meter.team;
    let all = words * team.size();
    let bits = words.trailing_zeros();
    let mut random = numbers(team.rank()).map(|number| (number % all as u64) as usize);
    let batches: Vec<Vec<usize>> = (0..BATCHES).map(|_| random.by_ref().take(BATCH).collect()).collect();
    let place = |index: usize| (index >> bits, index & (words - 1));
    let each = team.size() * BATCH;

    let table = Symmetric::<u64>::allocate(team, words)?;
    let mut added = 0;
    meter.millions("histogram_loop", 8, each, |count| {
        for batch in batches.iter().cycle().take(count as usize) {
            for index in batch {
                let (rank, at) = place(*index);
                table.atomic(rank, at)?.add(1)?;
            }
        }
        added += count;
        table.quiet()
    })?;
    table.barrier()?;
    let sum = table.local().to_vec()?.iter().sum::<u64>();
    let mut sums = [sum];
    team.allreduce(&mut sums, Op::Sum)?;
    if sums[0] != added * each as u64 {
        return Err(wrong_data("the sum of the table"));
    }

    let array = GlobalArray::<u64, 1>::new(team, [all])?;
    let indices: Vec<Vec<[usize; 1]>> = batches.iter().map(|batch| batch.iter().map(|i| [*i]).collect()).collect();
    let ones = vec![1; BATCH];
    let mut added = 0;
    meter.millions("histogram_batch", 8, each, |count| {
        added += count;
        let mut all = indices.iter().cycle().take(count as usize);
        all.try_for_each(|batch| array.accumulate_at(Op::Sum, batch, &ones))
    })?;
    if array.reduce(Op::Sum)? != Some(added * each as u64) {
        return Err(wrong_data("the sum of the array"));
    }

    table.exclusive(|own| {
        own.iter_mut().zip(team.rank() * words..).for_each(|(word, index)| *word = index as u64);
        Ok::<(), Error>(())
    })?;
    array.for_each(|[index], element| *element = index as u64)?;
    array.sync()?;
    let mut values = vec![0; BATCH];
    let is_right = |batch: &[usize], values: &[u64]| batch.iter().zip(values).all(|(i, value)| *i as u64 == *value);
    meter.millions("gather_loop", 8, each, |count| {
        for batch in batches.iter().cycle().take(count as usize) {
            for (value, index) in values.iter_mut().zip(batch) {
                let (rank, at) = place(*index);
                *value = table.get_value(rank, at)?;
            }
        }
        Ok(())
    })?;
    let mut right = true;
    meter.millions("gather_batch", 8, each, |count| {
        for (batch, indices) in batches.iter().zip(&indices).cycle().take(count as usize) {
            let gathered = array.gather(indices)?;
            right &= gathered[0] == batch[0] as u64 && gathered[BATCH - 1] == batch[BATCH - 1] as u64;
        }
        Ok(())
    })?;
    let mut places = vec![Vec::new(); team.size()];
    meter.millions("gather_indexed", 8, each, |count| {
        for batch in batches.iter().cycle().take(count as usize) {
            places.iter_mut().for_each(Vec::clear);
            for index in batch {
                let (rank, at) = place(*index);
                places[rank].push(at);
            }
            // The values are in rank order, not in the order of the batch.
            let mut rest = &mut values[..];
            for (rank, places) in places.iter().enumerate() {
                let (own, others) = rest.split_at_mut(places.len());
                table.get_indexed(own, rank, places)?;
                rest = others;
            }
        }
        Ok(())
    })?;
    if !right || !is_right(&batches[3], &array.gather(&indices[3])?) {
        return Err(wrong_data("a gathered value"));
    }
    table.barrier()?;
    table.free()?;
    array.free()
}
