//! Schedules of transfers between tasks: the messages of a rank, and their order. Arithmetic only.

use bytemuck::Pod;
use farside_core::Result;
use farside_datatype::TypeMap;

use crate::global_array::distribution::{Distribution, Format};

/// How an array is transferred from one task to another.
///
/// | | messages | each element is sent |
/// |---|---|---|
/// | `Parallel` | one for each pair of ranks that share elements, all at the same time | once, from array to array |
/// | `Centralized` | one for each rank with elements of either task, and one between the tasks, in three steps | three times, through memory for the whole array at both first ranks, which a link keeps |
///
/// The first ranks execute the later steps of a centralized transfer inside [`Transfer::wait`](super::Transfer::wait)
/// and [`test`](super::Transfer::test). So both tasks must wait for concurrent transfers in the same order, and until a
/// started transfer is complete at the first rank of its task, no rank of the task may access the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Every rank sends directly to every rank that receives some of its elements.
    Parallel,
    /// The first rank of the sending task gathers the array and sends it to the first rank of the other task, which
    /// scatters it.
    Centralized,
}

/// The strategy that a task requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// No strategy is requested, for a link: its transfers may be started and awaited in any order.
    Link,
    /// No strategy is requested, for a single blocking transfer, which this task sends or receives.
    Once { sends: bool },
    /// A strategy that the program requests.
    Given(Strategy),
}

impl Request {
    /// The wire form of the request.
    pub(super) fn code(self) -> u64 {
        match self {
            Self::Link => 0,
            Self::Given(Strategy::Parallel) => 1,
            Self::Given(Strategy::Centralized) => 2,
            Self::Once { sends } => 3 + u64::from(sends),
        }
    }

    pub(super) fn of_code(code: u64) -> Self {
        match code {
            1 => Self::Given(Strategy::Parallel),
            2 => Self::Given(Strategy::Centralized),
            3 | 4 => Self::Once { sends: code == 4 },
            _ => Self::Link,
        }
    }
}

/// The memory that contains the elements of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// This rank's elements.
    Own,
    /// Memory for the whole array, in row-major order.
    Whole,
}

pub(super) struct Message {
    pub(super) is_send: bool,
    /// The other rank, in the team of both tasks.
    pub(super) peer: usize,
    pub(super) place: Place,
    pub(super) map: TypeMap,
}

/// The messages of one rank for a transfer in one direction. The messages of a step start when those of all earlier
/// steps are complete.
pub(super) type Schedule = Vec<Vec<Message>>;

/// A task: its ranks in the team of both tasks, and the distribution of its array.
pub(super) struct Task<const D: usize> {
    pub(super) ranks: Vec<usize>,
    pub(super) distribution: Distribution<D>,
}

impl<const D: usize> Task<D> {
    /// The schedule by which `rank` sends its part of the array to another task.
    pub(super) fn sending<T: Pod>(&self, rank: usize, to: &Self, strategy: Strategy) -> Result<Schedule> {
        if strategy == Strategy::Centralized {
            let mut steps = vec![self.with_first::<T>(rank, true)?];
            if rank == 0 {
                steps.push(self.whole::<T>(to.ranks[0], true)?);
            }
            return Ok(steps);
        }
        let parts = self.distribution.shared_with::<T>(rank, &to.distribution, None)?.into_iter();
        let message = |peer, map: &TypeMap| Message { is_send: true, peer, place: Place::Own, map: map.clone() };
        Ok(vec![parts.map(|part| message(to.ranks[part.rank], part.buffer.type_map())).collect()])
    }

    /// The schedule by which `rank` receives its part of the array from another task.
    pub(super) fn receiving<T: Pod>(&self, rank: usize, from: &Self, strategy: Strategy) -> Result<Schedule> {
        if strategy == Strategy::Centralized {
            let mut steps = vec![self.with_first::<T>(rank, false)?];
            if rank == 0 {
                steps.insert(0, self.whole::<T>(from.ranks[0], false)?);
            }
            return Ok(steps);
        }
        let mut step = Vec::new();
        for (sender, peer) in from.ranks.iter().enumerate() {
            // Computed from the sender's point of view, so that both sides have the same order of elements.
            let parts = from.distribution.shared_with::<T>(sender, &self.distribution, Some(rank))?.into_iter();
            let message = |map: &TypeMap| Message { is_send: false, peer: *peer, place: Place::Own, map: map.clone() };
            step.extend(parts.map(|part| message(part.block.type_map())));
        }
        Ok(vec![step])
    }

    /// The distribution that places the whole array at one rank.
    fn at_one(&self) -> Result<Distribution<D>> {
        Distribution::new(self.distribution.shape, [Format::Whole; D], [1; D], 1, 1)
    }

    /// The message of the whole array to or from `peer`.
    fn whole<T: Pod>(&self, peer: usize, is_send: bool) -> Result<Vec<Message>> {
        let at_one = self.at_one()?;
        let parts = at_one.shared_with::<T>(0, &at_one, None)?.into_iter();
        let message = |map: &TypeMap| Message { is_send, peer, place: Place::Whole, map: map.clone() };
        Ok(parts.map(|part| message(part.block.type_map())).collect())
    }

    /// The messages of `rank` in which the first rank gathers the array (`to_first`) or scatters it.
    fn with_first<T: Pod>(&self, rank: usize, to_first: bool) -> Result<Vec<Message>> {
        let at_one = self.at_one()?;
        let mut step = Vec::new();
        let others = if rank == 0 { 0..self.ranks.len() } else { rank..rank + 1 };
        for other in others {
            for part in self.distribution.shared_with::<T>(other, &at_one, None)? {
                let (own, whole) = (part.buffer.type_map().clone(), part.block.type_map().clone());
                if rank == 0 {
                    step.push(Message { is_send: !to_first, peer: self.ranks[other], place: Place::Whole, map: whole });
                }
                if rank == other {
                    step.push(Message { is_send: to_first, peer: self.ranks[0], place: Place::Own, map: own });
                }
            }
        }
        // The first rank's message to itself is already one of its receives.
        step.sort_by_key(|message| message.is_send);
        Ok(step)
    }

    /// The cheaper strategy for a transfer in either direction, for an array of `packets` packets, if the ranks of both
    /// tasks share processors. Costs are in sequential packets: each step transfers the whole array, in at least as
    /// many packets as messages, and the ranks run one after the other, since a waiting rank yields its processor.
    pub(super) fn cheaper_on_shared_processors(&self, to: &Self, packets: usize) -> Strategy {
        let ranks = self.ranks.len() + to.ranks.len();
        let cost = |steps: &[usize]| steps.iter().map(|messages| packets.max(*messages) + ranks).sum::<usize>();
        let pairs = self.distribution.pairs(&to.distribution);
        let with_elements = [self, to].map(|task| task.distribution.pairs(&task.distribution));
        if cost(&[with_elements[0], 1, with_elements[1]]) < cost(&[pairs]) {
            Strategy::Centralized
        } else {
            Strategy::Parallel
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task of this many ranks with a matrix in rows or in columns.
    fn task(ranks: usize, shape: [usize; 2], rows: bool) -> Task<2> {
        let (formats, grid) = if rows {
            ([Format::Block, Format::Whole], [ranks, 1])
        } else {
            ([Format::Whole, Format::Block], [1, ranks])
        };
        Task { ranks: (0..ranks).collect(), distribution: Distribution::new(shape, formats, grid, ranks, 8).unwrap() }
    }

    #[test]
    fn strategy_follows_ranks_and_packets() {
        let chosen = |ranks: [usize; 2], shape, columns, packets| {
            let (one, two) = (task(ranks[0], shape, true), task(ranks[1], shape, columns));
            let chosen = one.cheaper_on_shared_processors(&two, packets);
            assert_eq!(chosen, two.cheaper_on_shared_processors(&one, packets), "both directions agree");
            chosen
        };
        use Strategy::{Centralized, Parallel};
        // Every rank of one task shares elements with every rank of the other.
        assert_eq!(chosen([1, 1], [64, 64], false, 1), Parallel);
        assert_eq!(chosen([4, 4], [64, 64], false, 1), Parallel);
        assert_eq!(chosen([8, 8], [64, 64], false, 1), Centralized);
        assert_eq!(chosen([32, 32], [64, 64], false, 1), Centralized);
        assert_eq!(chosen([32, 1], [64, 64], false, 1), Parallel);
        // With many packets `Parallel` is cheaper: each element is sent once, without a gather and a scatter.
        assert_eq!(chosen([8, 8], [64, 64], false, 30), Parallel);
        assert_eq!(chosen([32, 32], [64, 64], false, 2000), Parallel);
        // With equal distributions there are only as many communicating pairs as ranks.
        assert_eq!(chosen([32, 32], [64, 64], true, 1), Parallel);
        assert_eq!(chosen([32, 32], [0, 64], false, 0), Parallel);
    }

    /// Each message has one counterpart at its peer, in the same step or a later one, and of the same length.
    #[test]
    fn messages_have_counterparts() {
        for strategy in [Strategy::Parallel, Strategy::Centralized] {
            for sides in [[1, 1], [3, 2], [2, 5]] {
                let (mut from, mut to) = (task(sides[0], [4, 3], true), task(sides[1], [4, 3], false));
                to.ranks.iter_mut().for_each(|rank| *rank += 10);
                from.ranks.reverse();
                let mut sent = Vec::new();
                let mut received = Vec::new();
                let mut sort = |own: usize, schedule: Schedule| {
                    for message in schedule.iter().flatten() {
                        let (list, pair) = if message.is_send {
                            (&mut sent, (own, message.peer))
                        } else {
                            (&mut received, (message.peer, own))
                        };
                        list.push((pair, message.map.size()));
                    }
                };
                for (rank, own) in from.ranks.iter().enumerate() {
                    sort(*own, from.sending::<u64>(rank, &to, strategy).unwrap());
                }
                for (rank, own) in to.ranks.iter().enumerate() {
                    sort(*own, to.receiving::<u64>(rank, &from, strategy).unwrap());
                }
                sent.sort_unstable();
                received.sort_unstable();
                assert_eq!(sent, received, "{strategy:?}, {sides:?}");
                let bytes: u64 = sent.iter().map(|(_, bytes)| bytes).sum();
                assert_eq!(bytes, if strategy == Strategy::Parallel { 96 } else { 3 * 96 });
            }
        }
    }
}
