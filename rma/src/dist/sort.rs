//! Sorting and shuffling of elements that are spread over a team. Every rank keeps the number of elements that it gave.
//!
//! The elements of each rank are sorted, and split where the parts of the ranks begin in the sorted whole. These places are
//! exact: the order is that of the elements, then of their ranks, then of their places there, so no two are equal, and
//! each place is found by selection from several sorted lists. In a round, the ranks propose the medians of what is left
//! of their lists, and the rank whose part ends at the place chooses the median of these, weighted by the lengths; all
//! count the elements below it, and leave out those on its wrong side, at least a quarter of them (Saukas, Song 1998, "A
//! note on parallel selection on coarse-grained multicomputers").

use std::cmp::Ordering;

use bytemuck::Pod;
use farside_core::{Error, ErrorKind, Result, Team, located};

use super::random::Random;
use crate::collectives::Collectives;
use crate::op::Op;

const SORT: &str = "sort";
/// The rank of a place for which nothing is left.
const NONE: u64 = u64::MAX;

/// Changes of the order of elements that are spread over a team: the elements of the ranks, in the order of the ranks, are
/// one sequence, and every rank keeps the number of elements that it gave.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let mut data = [&[5, 9][..], &[4], &[1, 7, 8]][team.rank()].to_vec();
///     team.sort(&mut data)?;
///     assert_eq!(data, [&[1, 4][..], &[5], &[7, 8, 9]][team.rank()]);
///     team.shuffle(&mut data, 42)?;
///     assert_eq!(data.len(), [2, 1, 3][team.rank()]);
///     Ok(())
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
///
/// All methods are collective, and take, in the memory of a rank, as much again as its elements. Messages: for each of some
/// log(n) rounds, with n elements of the longest rank, an alltoall and an allgather of an element for each rank, and an
/// allreduce of a word for each rank; then an alltoall and an allreduce of a word, and an alltoallv of the elements.
pub trait Reorder {
    /// Sorts the elements. The sort is stable: equal elements remain in their order.
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives); `BadArgument` if the order is not that of a total order, so that some
    /// rank would not keep its number of elements. The elements are then those that the rank had, in its own order.
    #[track_caller]
    fn sort<T: Pod + Ord>(&self, data: &mut [T]) -> Result<()> {
        located(|| self.sort_by(data, T::cmp))
    }

    /// Sorts the elements in an order of the program, such as `f64::total_cmp`; stable.
    ///
    /// # Errors
    /// Those of [`sort`](Self::sort).
    fn sort_by<T: Pod>(&self, data: &mut [T], compare: impl Fn(&T, &T) -> Ordering) -> Result<()>;

    /// Sorts the elements in the order of their keys; stable.
    ///
    /// # Errors
    /// Those of [`sort`](Self::sort).
    #[track_caller]
    fn sort_by_key<T: Pod, K: Ord>(&self, data: &mut [T], key: impl Fn(&T) -> K) -> Result<()> {
        located(|| self.sort_by(data, |a, b| key(a).cmp(&key(b))))
    }

    /// Sorts the elements, without memory for the sorts at each rank. Equal elements may change places.
    ///
    /// # Errors
    /// Those of [`sort`](Self::sort).
    fn sort_unstable<T: Pod + Ord>(&self, data: &mut [T]) -> Result<()>;

    /// Brings the elements into a random order, in which each is equally likely. It depends on `seed`, the same at all
    /// ranks, and on the numbers of elements. Random keys of 64 bits decide to which rank an element goes.
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    fn shuffle<T: Pod>(&self, data: &mut [T], seed: u64) -> Result<()>;
}

impl Reorder for Team {
    #[track_caller]
    fn sort_by<T: Pod>(&self, data: &mut [T], compare: impl Fn(&T, &T) -> Ordering) -> Result<()> {
        located(|| {
            data.sort_by(&compare);
            exchange(self, data, &splits(self, data, &compare)?, |received| received.sort_by(&compare))
        })
    }

    #[track_caller]
    fn sort_unstable<T: Pod + Ord>(&self, data: &mut [T]) -> Result<()> {
        located(|| {
            data.sort_unstable();
            exchange(self, data, &splits(self, data, &T::cmp)?, <[T]>::sort_unstable)
        })
    }

    #[track_caller]
    fn shuffle<T: Pod>(&self, data: &mut [T], seed: u64) -> Result<()> {
        located(|| {
            let mut random = Random::new(seed, self.rank());
            random.shuffle(data);
            // With the keys in order, the elements at these places have random keys.
            let mut keys: Vec<u64> = data.iter().map(|_| random.next()).collect();
            keys.sort_unstable();
            exchange(self, data, &splits(self, &keys, &u64::cmp)?, |received| random.shuffle(received))
        })
    }
}

/// Sends each rank its part of the elements, and orders what arrives.
fn exchange<T: Pod>(team: &Team, data: &mut [T], to: &[usize], order: impl FnOnce(&mut [T])) -> Result<()> {
    const { assert!(size_of::<T>() > 0, "zero-sized elements are not supported") };
    let mut of = vec![0; to.len()];
    team.alltoall(to, &mut of)?;
    let kept = of.iter().try_fold(0, |sum: usize, count| sum.checked_add(*count)) == Some(data.len());
    let mut all_kept = [u64::from(kept)];
    team.allreduce(&mut all_kept, Op::Min)?;
    if all_kept == [0] {
        return Err(Error::new(ErrorKind::BadArgument, SORT)
            .rank(team.job().rank())
            .cause("the elements have no total order, the same at all ranks")
            .remedy(
                "compare so that of each two elements one is less or both are equal, and never depend on the rank",
            ));
    }
    let mut received = data.to_vec();
    team.alltoallv(data, to, &mut received, &of)?;
    order(&mut received);
    data.copy_from_slice(&received);
    Ok(())
}

/// An element that a rank proposes, or that is chosen.
struct Candidate<T> {
    rank: u64,
    at: u64,
    weight: u64,
    element: T,
}

impl<T: Pod> Candidate<T> {
    const LEN: usize = 24 + size_of::<T>();

    fn write(&self, into: &mut [u8]) {
        for (word, into) in [self.rank, self.at, self.weight].iter().zip(into.chunks_exact_mut(8)) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        into[24..].copy_from_slice(bytemuck::bytes_of(&self.element));
    }

    fn read(bytes: &[u8]) -> Self {
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        Self { rank: word(0), at: word(8), weight: word(16), element: bytemuck::pod_read_unaligned(&bytes[24..]) }
    }
}

/// The number of this rank's sorted elements that belong to each rank.
fn splits<T: Pod>(team: &Team, sorted: &[T], compare: &impl Fn(&T, &T) -> Ordering) -> Result<Vec<usize>> {
    let (p, me, len) = (team.size(), team.rank(), sorted.len());
    let mut ends = vec![0u64; p];
    team.allgather(&[len as u64], &mut ends)?;
    (1..p).for_each(|rank| ends[rank] = ends[rank].wrapping_add(ends[rank - 1]));
    let all = ends[p - 1];
    // For the end of each rank's part, the places in `sorted` among which it is. All ranks have the same ends open.
    let mut places: Vec<_> =
        ends.iter().map(|end| (if *end == all { len } else { 0 }, if *end == 0 { 0 } else { len })).collect();
    let mut is_open: Vec<bool> = ends.iter().map(|end| (1..all).contains(end)).collect();
    let record = Candidate::<T>::LEN;
    while is_open.contains(&true) {
        let (mut mine, mut proposed) = (vec![0; p * record], vec![0; p * record]);
        for ((from, to), bytes) in places.iter().zip(mine.chunks_exact_mut(record)) {
            if let Some(element) = sorted[*from..*to].get((to - from) / 2) {
                let at = (from + (to - from) / 2) as u64;
                let weight = (to - from) as u64;
                Candidate { rank: me as u64, at, weight, element: *element }.write(bytes);
            }
        }
        team.alltoall(&mine, &mut proposed)?;
        let chosen = weighted_median(proposed.chunks_exact(record).map(Candidate::read).collect(), compare);
        let mut pivots = vec![0; p * record];
        let mut pivot = vec![0; record];
        chosen.unwrap_or(Candidate { rank: NONE, at: 0, weight: 0, element: T::zeroed() }).write(&mut pivot);
        team.allgather(&pivot, &mut pivots)?;
        let pivots: Vec<_> = pivots.chunks_exact(record).map(Candidate::<T>::read).collect();

        // The number of elements that precede the pivot.
        let count = |pivot: &Candidate<T>| match (me as u64).cmp(&pivot.rank) {
            _ if pivot.rank == NONE => 0,
            Ordering::Less => sorted.partition_point(|one| compare(one, &pivot.element) != Ordering::Greater),
            Ordering::Equal => usize::try_from(pivot.at).unwrap_or(len).min(len),
            Ordering::Greater => sorted.partition_point(|one| compare(one, &pivot.element) == Ordering::Less),
        };
        let own: Vec<_> =
            pivots.iter().zip(&is_open).map(|(pivot, open)| if *open { count(pivot) } else { 0 }).collect();
        let mut below: Vec<u64> = own.iter().map(|count| *count as u64).collect();
        team.allreduce(&mut below, Op::Sum)?;
        for (end, open) in is_open.iter_mut().enumerate().filter(|(_, open)| **open) {
            let (from, to) = &mut places[end];
            let (pivot, own) = (&pivots[end], own[end]);
            let is_mine = usize::from(pivot.rank == me as u64);
            match below[end].cmp(&ends[end]) {
                _ if pivot.rank == NONE => *open = false,
                Ordering::Less => *from = (own + is_mine).clamp(*from, *to),
                Ordering::Equal => (*from, *open) = (own, false),
                Ordering::Greater => *to = own.clamp(*from, *to),
            }
        }
    }
    let mut before = 0;
    let part = |(from, _): &(usize, usize)| {
        let next = (*from).max(before);
        next - std::mem::replace(&mut before, next)
    };
    Ok(places.iter().map(part).collect())
}

/// The first candidate up to which half of the weight is.
fn weighted_median<T>(
    mut candidates: Vec<Candidate<T>>,
    compare: &impl Fn(&T, &T) -> Ordering,
) -> Option<Candidate<T>> {
    candidates.retain(|one| one.weight > 0);
    candidates.sort_by(|a, b| compare(&a.element, &b.element).then(a.rank.cmp(&b.rank)));
    let half = candidates.iter().map(|one| u128::from(one.weight)).sum::<u128>().div_ceil(2);
    let mut sum = 0;
    candidates.into_iter().find(|one| {
        sum += u128::from(one.weight);
        sum >= half
    })
}
