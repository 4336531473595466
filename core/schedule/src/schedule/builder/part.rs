//! Composition of schedules: the schedule of a collective of some of the ranks as steps of a schedule of all of them.

use super::{Builder, Order};
use crate::schedule::{Action, Buffer, Schedule, Slice};

/// The mapping of a part's ranks, tags and blocks to the whole schedule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part<'a> {
    /// The rank in the whole schedule of each rank of the part.
    pub(crate) ranks: &'a [u32],
    /// The number that is added to the tags, which differs between parts that have two ranks in common.
    pub(crate) tags: u32,
    /// The blocks that make up each block of the part's input.
    pub(crate) input: Vec<Vec<Slice>>,
    /// The blocks that make up each block of the part's output.
    pub(crate) output: Vec<Vec<Slice>>,
    /// The size numbers of the blocks that make up a block of the part, for each size number of the part.
    pub(crate) sizes: Vec<Vec<u32>>,
}

impl Part<'_> {
    /// Translates an action of the part into one of the whole schedule.
    ///
    /// # Panics
    /// If the part lends memory or enters the in-switch barrier: a mistake of the algorithm.
    fn action(&self, action: Action) -> Action {
        let (rank, tag) = (|rank: u32| self.ranks[rank as usize], |tag: u32| self.tags + tag);
        match action {
            Action::Send { to, tag: t } => Action::Send { to: rank(to), tag: tag(t) },
            Action::Signal { to, tag: t } => Action::Signal { to: rank(to), tag: tag(t) },
            Action::Receive { source, tag: t } => Action::Receive { source: rank(source), tag: tag(t) },
            Action::Await { source, tag: t } => Action::Await { source: rank(source), tag: tag(t) },
            Action::ReceiveReduce { source, tag: t, side } => {
                Action::ReceiveReduce { source: rank(source), tag: tag(t), side }
            }
            Action::Reduce { .. } | Action::Copy => action,
            other => panic!("a part of a schedule has the action {other:?}"),
        }
    }
}

impl Builder {
    /// Adds the steps of this rank's schedule of a collective of some of the ranks, with separate scratch.
    ///
    /// # Panics
    /// If a block of the part is mapped to no block: a mistake of the algorithm.
    pub(crate) fn add_part(&mut self, schedule: &Schedule, part: &Part<'_>) {
        let sizes = schedule.scratch().iter().map(|size| part.sizes[*size as usize].iter().copied());
        let scratch: Vec<Vec<Slice>> = sizes.map(|sizes| vec![self.scratch(sizes)]).collect();
        let place = |slices: &[Slice]| -> Vec<Slice> {
            let of = |buffer: Buffer| match buffer {
                Buffer::Input => &part.input,
                Buffer::Output => &part.output,
                Buffer::Scratch => &scratch,
            };
            joined(slices.iter().flat_map(|s| s.blocks().flat_map(|b| of(s.buffer)[b as usize].iter().copied())))
        };
        // The steps that represent each step of the part. A copy that is omitted is represented by the steps for which
        // it waits.
        let mut numbers: Vec<Vec<u32>> = Vec::with_capacity(schedule.len());
        let mut waited = Vec::new();
        for step in schedule.steps() {
            let mut after: Vec<u32> = step.after.iter().flat_map(|d| numbers[*d as usize].iter().copied()).collect();
            after.sort_unstable();
            after.dedup();
            let number = self.schedule.len() as u32;
            self.add_step(part.action(step.action), &place(step.from), &place(step.into), Order::After(&after));
            if self.schedule.len() as u32 > number {
                waited.extend(after);
                numbers.push(vec![number]);
            } else {
                numbers.push(after);
            }
        }
        // Later steps that wait for all of these need only wait for the last ones.
        waited.sort_unstable();
        self.open.retain(|step| waited.binary_search(step).is_err());
    }
}

/// Slices after merging those that follow each other in a buffer.
fn joined(slices: impl Iterator<Item = Slice>) -> Vec<Slice> {
    let mut all: Vec<Slice> = Vec::new();
    for slice in slices {
        match all.last_mut() {
            Some(last) if last.buffer == slice.buffer && last.first + last.count == slice.first => {
                last.count += slice.count;
            }
            _ => all.push(slice),
        }
    }
    all
}
