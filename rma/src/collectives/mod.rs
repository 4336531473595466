#![allow(unsafe_code)]
//! Collectives on plain elements: the methods of [`Collectives`] block, and [`Overlap`] starts nonblocking and
//! persistent [calls](call).
//!
//! All ranks of a team make the same calls in the same order. Buffers are slices of any [`Pod`] type; reductions take
//! an [`Op`](crate::Op), or a closure as [`Commutative`] or [`Ordered`].
//!
//! Errors of all collectives:
//! - `NoSuchRank` for a root outside of the team, `BadArgument` for buffers whose lengths do not match the counts,
//!   `Unsupported` for an operation that is not defined on the elements. The call has then not been made: this rank may
//!   repeat it, and the others wait for it. If this rank makes another call on the team, they get `Mismatch`; if it
//!   ends, `PeerLost`.
//! - `Mismatch` if the messages of a call show that the ranks make different calls.
//! - `Aborted` if an operator has panicked, or another rank has dropped the call; `PeerLost`.

pub mod call;
mod operator;
mod scope;

use bytemuck::Pod;
use farside_core::coll::{execute, operation::Neighbors};
use farside_core::{Error, Located, Result, Team};

pub use call::Call;
pub use operator::{Commutative, NoOperator, Operator, Ordered, Side};
pub use scope::{Overlap, Persistent, Started};
pub(crate) use scope::{Pending, poll_of};

/// Collectives of a team.
pub trait Collectives {
    /// Makes a call, and waits until it is complete at this rank.
    ///
    /// ```
    /// use farside_rma::collectives::call;
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(4, |job| {
    ///     let team = job.world()?;
    ///     let mut data = [1.0f64; 3];
    ///     team.make(call::allreduce(&mut data, Op::Sum))?;
    ///     assert_eq!(data, [4.0; 3]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn make<T: Pod, O: Operator<T>>(&self, call: Call<'_, T, O>) -> Result<()>;

    /// Runs `body`, which may start calls and [messages](crate::messages) that overlap with each other and with other
    /// work, and then completes all of them.
    ///
    /// ```
    /// use farside_rma::collectives::call;
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(4, |job| {
    ///     let team = job.world()?;
    ///     let (mut sums, mut most) = ([1u64; 1000], [team.rank() as u32]);
    ///     team.overlap(|calls| {
    ///         let sums = calls.start(call::allreduce(&mut sums, Op::Sum))?;
    ///         let most = calls.start(call::allreduce(&mut most, Op::Max))?;
    ///         // Other work, and then the results, in any order.
    ///         assert_eq!(most.wait()?, &[3]);
    ///         assert_eq!(sums.wait()?, &[4; 1000]);
    ///         Ok(())
    ///     })
    /// })
    /// .unwrap();
    /// ```
    ///
    /// Handles are futures:
    ///
    /// ```
    /// # #[cfg(feature = "async")] {
    /// use farside_rma::block_on;
    /// use farside_rma::collectives::call;
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let mut data = [1u64];
    ///     job.world()?.overlap(|calls| {
    ///         block_on(async { assert_eq!(calls.start(call::allreduce(&mut data, Op::Sum))?.await?, &[2]); Ok(()) })?
    ///     })
    /// })
    /// .unwrap();
    /// # }
    /// ```
    ///
    /// A repeated call is made persistent once and then started each time:
    ///
    /// ```
    /// use farside_rma::collectives::call;
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let mut data = [0u64];
    ///     job.world()?.overlap(|calls| {
    ///         let mut sum = calls.persistent(call::allreduce(&mut data, Op::Sum))?;
    ///         for round in 0..5 {
    ///             sum.output()?[0] = round;
    ///             sum.start()?;
    ///             sum.wait()?;
    ///             assert_eq!(sum.output()?, [3 * round]);
    ///         }
    ///         Ok(())
    ///     })
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Any error of `body`; operations in progress are then cancelled, and fail at the other ranks. Else the first
    /// error of an operation that was not waited for.
    fn overlap<'env, R, E: From<Error>>(
        &self,
        body: impl for<'scope> FnOnce(&'scope Overlap<'scope, 'env>) -> Result<R, E>,
    ) -> Result<R, E>;

    /// Broadcasts the root's elements to every rank.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(4, |job| {
    ///     let team = job.world()?;
    ///     let mut data = if team.rank() == 2 { [1.5, 2.5] } else { [0.0; 2] };
    ///     team.broadcast(&mut data, 2)?;
    ///     assert_eq!(data, [1.5, 2.5]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn broadcast<T: Pod>(&self, data: &mut [T], root: usize) -> Result<()> {
        self.make(call::broadcast(data, root))
    }

    /// Scatters: rank `i` receives block `i` of the root's `from` ([`call::scatter`]).
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let all = [10, 11, 20, 21, 30, 31];
    ///     let mut own = [0; 2];
    ///     team.scatter(if team.rank() == 0 { &all } else { &[] }, &mut own, 0)?;
    ///     assert_eq!(own, all[2 * team.rank()..][..2]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn scatter<T: Pod>(&self, from: &[T], into: &mut [T], root: usize) -> Result<()> {
        self.make(call::scatter(from, into, root))
    }

    /// Scatters: rank `i` receives the next `counts[i]` elements of the root's `from` ([`call::scatterv`]).
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let (all, counts) = ([0, 1, 1, 2, 2, 2], [1, 2, 3]);
    ///     let mut own = vec![9; team.rank() + 1];
    ///     team.scatterv(&all, &counts, &mut own, 0)?;
    ///     assert!(own.iter().all(|n| *n == team.rank()));
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn scatterv<T: Pod>(&self, from: &[T], counts: &[usize], into: &mut [T], root: usize) -> Result<()> {
        self.make(call::scatterv(from, counts, into, root))
    }

    /// Gathers the elements of all ranks at the root, in rank order ([`call::gather`]).
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let mut all = vec![0; if team.rank() == 1 { 3 } else { 0 }];
    ///     team.gather(&[team.rank()], &mut all, 1)?;
    ///     assert!(team.rank() != 1 || all == [0, 1, 2]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn gather<T: Pod>(&self, from: &[T], into: &mut [T], root: usize) -> Result<()> {
        self.make(call::gather(from, into, root))
    }

    /// Gathers `counts[i]` elements of each rank `i` at the root ([`call::gatherv`]).
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let mut all = vec![0; if team.rank() == 0 { 6 } else { 0 }];
    ///     team.gatherv(&vec![team.rank(); team.rank() + 1], &mut all, &[1, 2, 3], 0)?;
    ///     assert!(team.rank() != 0 || all == [0, 1, 1, 2, 2, 2]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn gatherv<T: Pod>(&self, from: &[T], into: &mut [T], counts: &[usize], root: usize) -> Result<()> {
        self.make(call::gatherv(from, into, counts, root))
    }

    /// Gathers the elements of all ranks at every rank, in rank order.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(4, |job| {
    ///     let team = job.world()?;
    ///     let mut all = [0; 4];
    ///     team.allgather(&[10 * team.rank()], &mut all)?;
    ///     assert_eq!(all, [0, 10, 20, 30]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn allgather<T: Pod>(&self, from: &[T], into: &mut [T]) -> Result<()> {
        self.make(call::allgather(from, into))
    }

    /// Gathers `counts[i]` elements of each rank `i` at every rank ([`call::allgatherv`]).
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let mut all = [9; 3];
    ///     team.allgatherv(&vec![team.rank(); team.rank()], &mut all, &[0, 1, 2])?;
    ///     assert_eq!(all, [1, 2, 2]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn allgatherv<T: Pod>(&self, from: &[T], into: &mut [T], counts: &[usize]) -> Result<()> {
        self.make(call::allgatherv(from, into, counts))
    }

    /// Sends block `i` of `from` to rank `i`, and receives a block from each rank.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let me = 10 * team.rank();
    ///     let mut into = [0; 3];
    ///     team.alltoall(&[me, me + 1, me + 2], &mut into)?;
    ///     assert_eq!(into, [0, 10, 20].map(|from| from + team.rank()));
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn alltoall<T: Pod>(&self, from: &[T], into: &mut [T]) -> Result<()> {
        self.make(call::alltoall(from, into))
    }

    /// Sends the next `to[i]` elements of `from` to rank `i`, and receives `of[i]` from it ([`call::alltoallv`]).
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     // Rank `i` receives `i` elements from each rank.
    ///     let me = team.rank();
    ///     let mut into = vec![9; 3 * me];
    ///     team.alltoallv(&[me; 3], &[0, 1, 2], &mut into, &[me; 3])?;
    ///     assert!(into.chunks(me.max(1)).enumerate().all(|(from, block)| block.iter().all(|n| *n == from)));
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn alltoallv<T: Pod>(&self, from: &[T], to: &[usize], into: &mut [T], of: &[usize]) -> Result<()> {
        self.make(call::alltoallv(from, to, into, of))
    }

    /// Reduces the elements of all ranks, element by element, into `data` at the root ([`call::reduce`]).
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(4, |job| {
    ///     let team = job.world()?;
    ///     let mut data = [team.rank() as u64, 1];
    ///     team.reduce(&mut data, Op::Sum, 3)?;
    ///     assert!(team.rank() != 3 || data == [6, 4]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn reduce<T: Pod, O: Operator<T>>(&self, data: &mut [T], operator: O, root: usize) -> Result<()> {
        self.make(call::reduce(data, operator, root))
    }

    /// Reduces the elements of all ranks, element by element, into `data` at every rank, with bitwise equal results.
    ///
    /// ```
    /// use farside_rma::collectives::Ordered;
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(4, |job| {
    ///     let team = job.world()?;
    ///     let me = team.rank() as f64;
    ///     let mut data = [me, 1.0];
    ///     team.allreduce(&mut data, Op::Sum)?;
    ///     assert_eq!(data, [6.0, 4.0]);
    ///     // The first argument comes from lower ranks, so the digits are in rank order.
    ///     let mut digits = [team.rank() as u64 + 1];
    ///     team.allreduce(&mut digits, Ordered(|low: u64, high: u64| low * 10u64.pow(high.ilog10() + 1) + high))?;
    ///     assert_eq!(digits, [1234]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn allreduce<T: Pod, O: Operator<T>>(&self, data: &mut [T], operator: O) -> Result<()> {
        self.make(call::allreduce(data, operator))
    }

    /// Reduces block `i` of all ranks into rank `i`'s `into`.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let mut own = [0u32];
    ///     team.reduce_scatter(&[1, 2, 3], &mut own, Op::Prod)?;
    ///     assert_eq!(own, [[1, 8, 27][team.rank()]]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn reduce_scatter<T: Pod, O: Operator<T>>(&self, from: &[T], into: &mut [T], operator: O) -> Result<()> {
        self.make(call::reduce_scatter(from, into, operator))
    }

    /// Reduces block `i`, of `counts[i]` elements, of all ranks into rank `i`'s `into` ([`call::reduce_scatterv`]).
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let mut own = vec![0u32; team.rank()];
    ///     team.reduce_scatterv(&[1, 2, 3], &mut own, &[0, 1, 2], Op::Sum)?;
    ///     assert_eq!(own, [&[][..], &[3], &[6, 9]][team.rank()]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn reduce_scatterv<T: Pod, O: Operator<T>>(
        &self,
        from: &[T],
        into: &mut [T],
        counts: &[usize],
        operator: O,
    ) -> Result<()> {
        self.make(call::reduce_scatterv(from, into, counts, operator))
    }

    /// Reduces the elements of the ranks up to and including this one into `data`.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(4, |job| {
    ///     let team = job.world()?;
    ///     let mut data = [1u64];
    ///     team.scan(&mut data, Op::Sum)?;
    ///     assert_eq!(data, [team.rank() as u64 + 1]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn scan<T: Pod, O: Operator<T>>(&self, data: &mut [T], operator: O) -> Result<()> {
        self.make(call::scan(data, operator))
    }

    /// Reduces the elements of the ranks before this one into `data`, which is unchanged at rank 0.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(4, |job| {
    ///     let team = job.world()?;
    ///     let mut before = [1u64];
    ///     team.exscan(&mut before, Op::Sum)?;
    ///     assert!(team.rank() == 0 || before == [team.rank() as u64]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn exscan<T: Pod, O: Operator<T>>(&self, data: &mut [T], operator: O) -> Result<()> {
        self.make(call::exscan(data, operator))
    }

    /// Sends `from` to all destinations of this rank in `graph`, and receives a block from each source
    /// ([`call::neighbor_allgather`]).
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(4, |job| {
    ///     let team = job.world()?;
    ///     let me = team.rank() as u32;
    ///     let both = [(me + 3) % 4, (me + 1) % 4];
    ///     let mut of = [0; 2];
    ///     team.neighbor_allgather(&[me], &mut of, Neighbors { sources: &both, destinations: &both })?;
    ///     assert_eq!(of, both);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn neighbor_allgather<T: Pod>(&self, from: &[T], into: &mut [T], graph: Neighbors<'_>) -> Result<()> {
        self.make(call::neighbor_allgather(from, into, graph))
    }

    /// Sends `from` to all destinations of this rank in `graph`, and receives `of[i]` elements from each source `i`
    /// ([`call::neighbor_allgatherv`]).
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let me = team.rank();
    ///     let left = (me + 2) % 3;
    ///     let mut of = vec![9; left + 1];
    ///     let graph = Neighbors { sources: &[left as u32], destinations: &[(me as u32 + 1) % 3] };
    ///     team.neighbor_allgatherv(&vec![me; me + 1], &mut of, &[left + 1], graph)?;
    ///     assert_eq!(of, vec![left; left + 1]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn neighbor_allgatherv<T: Pod>(
        &self,
        from: &[T],
        into: &mut [T],
        of: &[usize],
        graph: Neighbors<'_>,
    ) -> Result<()> {
        self.make(call::neighbor_allgatherv(from, into, of, graph))
    }

    /// Sends block `i` of `from` to destination `i` of this rank in `graph`, and receives a block from each source. All
    /// blocks have `count` elements.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(4, |job| {
    ///     let team = job.world()?;
    ///     let me = team.rank() as u32;
    ///     let both = [(me + 3) % 4, (me + 1) % 4];
    ///     let mut of = [0; 2];
    ///     let graph = Neighbors { sources: &both, destinations: &both };
    ///     team.neighbor_alltoall(&[10 * me, 10 * me + 1], &mut of, 1, graph)?;
    ///     assert_eq!(of, [10 * both[0] + 1, 10 * both[1]]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn neighbor_alltoall<T: Pod>(&self, from: &[T], into: &mut [T], count: usize, graph: Neighbors<'_>) -> Result<()> {
        self.make(call::neighbor_alltoall(from, into, count, graph))
    }

    /// Sends the next `to[i]` elements of `from` to destination `i` of this rank in `graph`, and receives `of[i]`
    /// elements from each source `i` ([`call::neighbor_alltoallv`]).
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let me = team.rank();
    ///     let (left, right) = ((me + 2) % 3, (me + 1) % 3);
    ///     let mut of = vec![9; me];
    ///     let graph = Neighbors { sources: &[left as u32], destinations: &[right as u32] };
    ///     team.neighbor_alltoallv(&vec![me; right], &[right], &mut of, &[me], graph)?;
    ///     assert_eq!(of, vec![left; me]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [collectives](crate::collectives).
    #[track_caller]
    fn neighbor_alltoallv<T: Pod>(
        &self,
        from: &[T],
        to: &[usize],
        into: &mut [T],
        of: &[usize],
        graph: Neighbors<'_>,
    ) -> Result<()> {
        self.make(call::neighbor_alltoallv(from, to, into, of, graph))
    }
}

impl Collectives for Team {
    #[inline]
    #[track_caller]
    fn make<T: Pod, O: Operator<T>>(&self, call: Call<'_, T, O>) -> Result<()> {
        // SAFETY: the buffers are borrowed, and the operator lives, until the call has ended; `run` returns only then.
        call.make(self, |arguments| unsafe { execute::run(self, arguments) }).located()
    }

    fn overlap<'env, R, E: From<Error>>(
        &self,
        body: impl for<'scope> FnOnce(&'scope Overlap<'scope, 'env>) -> Result<R, E>,
    ) -> Result<R, E> {
        scope::overlap(self, body)
    }
}
