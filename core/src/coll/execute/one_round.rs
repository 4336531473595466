//! A call of one round as every rank makes it through [short data](crate::signal::short), derived from its schedule:
//! the data that the rank publishes, the ranks whose data it reads, and the steps on the data read.

use crate::coll::operation::Operation;
use crate::coll::schedule::{Action, Schedule, Slice};

/// A call of one round.
pub(super) struct OneRound {
    /// The data that this rank publishes, and its length in bytes.
    pub(super) own: Option<Slice>,
    pub(super) given: usize,
    /// Length in bytes of the data that this rank reads of each other rank, and its offset in that rank's published
    /// data.
    pub(super) len: usize,
    pub(super) begin: usize,
    /// Bit sets of the team ranks whose data this rank reads, and of those that read the data of this rank.
    pub(super) reads: u64,
    pub(super) readers: u64,
    /// The steps after all data has been read, in an order in which they can be executed.
    pub(super) steps: Vec<u32>,
}

impl OneRound {
    /// Derives the call from `schedule`, for at most 64 ranks, with blocks of `len` bytes.
    ///
    /// # Errors
    /// The reason why the schedule has more than one round.
    pub(super) fn of(schedule: &Schedule, operation: Operation, len: usize) -> Result<Self, String> {
        let (me, size) = (schedule.rank(), schedule.size());
        let for_each = operation.has_block_for_each();
        let (mut own, mut reads, mut readers, mut steps) = (None, 0u64, 0u64, Vec::new());
        for (number, step) in schedule.steps().enumerate() {
            if let Action::Send { to, .. } | Action::Signal { to, .. } = step.action {
                readers |= 1 << to;
            }
            let fits = match step.action {
                Action::Send { to, .. } => {
                    let sent = if for_each {
                        Slice::input(to, 1)
                    } else {
                        own.or(step.from.first().copied()).unwrap_or(Slice::input(0, 1))
                    };
                    own = Some(if for_each { Slice::input(0, size) } else { sent });
                    step.after.is_empty() && step.from == [sent]
                }
                Action::Receive { source, .. }
                | Action::ReceiveReduce { source, .. }
                | Action::Await { source, .. } => {
                    let others = reads;
                    reads |= 1 << source;
                    reads != others
                }
                Action::Signal { .. } | Action::Reduce { .. } | Action::Copy => true,
                _ => false,
            };
            if !fits {
                return Err(format!("step {number} of the schedule does not fit a single round: {:?}", step.action));
            }
            if !matches!(step.action, Action::Send { .. } | Action::Signal { .. } | Action::Await { .. }) {
                steps.push(number as u32);
            }
        }
        let blocks = if for_each { size as usize } else { 1 };
        let begin = if for_each { me as usize * len } else { 0 };
        Ok(Self { own, given: own.map_or(0, |_| blocks * len), len, begin, reads, readers, steps })
    }

    /// Number of words of the data that this rank reads, from the word in which that of each rank begins.
    pub(super) fn words(&self) -> usize {
        (self.begin % 8 + self.len).div_ceil(8) * self.reads.count_ones() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coll::operation::Call;
    use crate::coll::table;

    #[test]
    fn schedules_of_one_round_send_to_the_ranks_that_read() {
        let mut found = 0;
        for (algorithm, size) in
            Operation::ALL.into_iter().flat_map(table::of).flat_map(|a| (2..17).map(move |p| (a, p)))
        {
            let parameters = match algorithm.operation {
                Operation::Barrier => algorithm.within_limits(&[size - 1]),
                _ => algorithm.defaults(),
            };
            let call = |rank| Call {
                elements: 5,
                root: size / 2,
                parameters: &parameters,
                ..Call::new(algorithm.operation, rank, size)
            };
            if !(0..size).all(|rank| (algorithm.one_round)(&call(rank))) {
                continue;
            }
            found += 1;
            let schedules: Vec<Schedule> = (0..size).map(|rank| (algorithm.build)(&call(rank))).collect();
            for reader in &schedules {
                let one =
                    OneRound::of(reader, algorithm.operation, 5).unwrap_or_else(|e| panic!("{}: {e}", algorithm.name));
                let sends = |from: &Schedule| {
                    from.steps()
                        .filter(|s| s.action.peer(from.rank()) == Some(reader.rank()))
                        .any(|s| matches!(s.action, Action::Send { .. } | Action::Signal { .. }))
                };
                let sent = schedules.iter().rev().fold(0, |ranks, from| ranks << 1 | u64::from(sends(from)));
                assert_eq!(
                    one.reads,
                    sent,
                    "{} of {} at rank {} of {size}",
                    algorithm.name,
                    algorithm.operation.name(),
                    reader.rank()
                );
                let read = |by: &Schedule| {
                    let one = OneRound::of(by, algorithm.operation, 5).unwrap();
                    one.reads & 1 << reader.rank() != 0
                };
                let readers = schedules.iter().rev().fold(0, |ranks, by| ranks << 1 | u64::from(read(by)));
                assert_eq!(one.readers, readers, "{} of {size}", algorithm.name);
            }
        }
        assert_eq!(found, 11 * 15);
    }
}
