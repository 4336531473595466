#![allow(unsafe_code)]
//! Collective calls as values: operation, buffers, counts, operator. The method of the same name in
//! [`Collectives`](super::Collectives) makes the call directly, and has an example.

use std::marker::PhantomData;

use bytemuck::Pod;
use farside_core::coll::execute::{Arguments, Memory, Shape};
use farside_core::coll::operation::{Neighbors, Operation};
use farside_core::coll::selection::Choice;
use farside_core::{Result, Team};

use super::operator::{NoOperator, Operator, reduction};

/// A collective call with its buffers. It can be made blocking, nonblocking or persistent.
///
/// ```
/// use farside_rma::collectives::call;
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let (mut data, mut again) = ([team.rank() as u32], [1u32]);
///     // The same call, made blocking and started.
///     team.make(call::allreduce(&mut data, Op::Max))?;
///     team.overlap(|calls| calls.start(call::allreduce(&mut again, Op::Max))?.wait().map(drop))?;
///     assert_eq!((data, again), ([2], [1]));
///     Ok(())
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[must_use = "a call does nothing until it is made"]
#[derive(Debug)]
pub struct Call<'b, T, O = NoOperator> {
    /// The arguments, except those that depend on the team and the operator.
    arguments: Arguments<'b>,
    /// Address and length; empty if the call is in place.
    input: (*const T, usize),
    output: (*mut T, usize),
    pub(super) operator: O,
    buffers: PhantomData<(&'b [T], &'b mut [T])>,
}

/// Waits until every rank has started the barrier.
///
/// ```
/// use farside_rma::collectives::call;
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     team.overlap(|calls| {
///         let barrier = calls.start(call::barrier())?;
///         // Other work, until all ranks have started the barrier.
///         barrier.wait().map(drop)
///     })
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
pub fn barrier<'b>() -> Call<'b, u8> {
    Call::new(Operation::Barrier, Shape::Equal(0), &[], &mut [])
}

/// Broadcasts the root's elements to every rank. The length is the same at every rank.
pub fn broadcast<T: Pod>(data: &mut [T], root: usize) -> Call<'_, T> {
    Call::new(Operation::Broadcast, vector(data), &[], data).root(root)
}

/// Scatters: rank `i` receives block `i` of the root's `from`, which is read only at the root. All blocks are as long
/// as `into`.
pub fn scatter<'b, T: Pod>(from: &'b [T], into: &'b mut [T], root: usize) -> Call<'b, T> {
    Call::new(Operation::Scatter, equal(into), from, into).root(root)
}

/// Scatters: rank `i` receives the next `counts[i]` elements of the root's `from`. `from` and `counts` are read only at
/// the root.
pub fn scatterv<'b, T: Pod>(from: &'b [T], counts: &'b [usize], into: &'b mut [T], root: usize) -> Call<'b, T> {
    Call::new(Operation::Scatter, each(counts, &[]), from, into).root(root).known_at_root()
}

/// Gathers the elements of all ranks, in rank order, into the root's `into`, which is written only at the root.
pub fn gather<'b, T: Pod>(from: &'b [T], into: &'b mut [T], root: usize) -> Call<'b, T> {
    Call::new(Operation::Gather, equal(from), from, into).root(root)
}

/// Gathers `counts[i]` elements of each rank `i` at the root, like [`gather`]. `counts` is read only at the root.
pub fn gatherv<'b, T: Pod>(from: &'b [T], into: &'b mut [T], counts: &'b [usize], root: usize) -> Call<'b, T> {
    Call::new(Operation::Gather, each(counts, &[]), from, into).root(root).known_at_root()
}

/// Gathers the elements of all ranks, in rank order, at every rank. The length is the same at every rank.
pub fn allgather<'b, T: Pod>(from: &'b [T], into: &'b mut [T]) -> Call<'b, T> {
    Call::new(Operation::Allgather, equal(from), from, into)
}

/// Gathers `counts[i]` elements of each rank `i` at every rank, like [`allgather`]. `counts` is the same at every rank.
pub fn allgatherv<'b, T: Pod>(from: &'b [T], into: &'b mut [T], counts: &'b [usize]) -> Call<'b, T> {
    Call::new(Operation::Allgather, each(counts, &[]), from, into)
}

/// Sends block `i` of `from` to rank `i`, and receives a block from each rank into `into`, in rank order. All blocks
/// have the same length.
pub fn alltoall<'b, T: Pod>(from: &'b [T], into: &'b mut [T]) -> Call<'b, T> {
    // The total length: `with_arguments` divides it by the number of ranks, which is not known yet.
    Call::new(Operation::Alltoall, equal(from), from, into)
}

/// Sends the next `to[i]` elements of `from` to rank `i`, and receives `of[i]` elements from each rank `i`, like
/// [`alltoall`].
pub fn alltoallv<'b, T: Pod>(from: &'b [T], to: &[usize], into: &'b mut [T], of: &[usize]) -> Call<'b, T> {
    Call::new(Operation::Alltoall, each(to, of), from, into)
}

/// Reduces the elements of all ranks, element by element, into `data` at the root; at other ranks `data` is only read.
pub fn reduce<T: Pod, O: Operator<T>>(data: &mut [T], operator: O, root: usize) -> Call<'_, T, O> {
    Call::new(Operation::Reduce, vector(data), &[], data).root(root).with(operator)
}

/// Reduces the elements of all ranks, element by element, into `data` at every rank, with bitwise equal results.
pub fn allreduce<T: Pod, O: Operator<T>>(data: &mut [T], operator: O) -> Call<'_, T, O> {
    Call::new(Operation::Allreduce, vector(data), &[], data).with(operator)
}

/// Reduces block `i` of all ranks into rank `i`'s `into`. All blocks are as long as `into`.
pub fn reduce_scatter<'b, T: Pod, O: Operator<T>>(from: &'b [T], into: &'b mut [T], operator: O) -> Call<'b, T, O> {
    Call::new(Operation::ReduceScatter, equal(into), from, into).with(operator)
}

/// Reduces block `i`, of `counts[i]` elements, of all ranks into rank `i`'s `into`. `counts` is the same at every rank.
pub fn reduce_scatterv<'b, T: Pod, O: Operator<T>>(
    from: &'b [T],
    into: &'b mut [T],
    counts: &'b [usize],
    operator: O,
) -> Call<'b, T, O> {
    Call::new(Operation::ReduceScatter, each(counts, &[]), from, into).with(operator)
}

/// Reduces the elements of the ranks up to and including this one into `data`.
pub fn scan<T: Pod, O: Operator<T>>(data: &mut [T], operator: O) -> Call<'_, T, O> {
    Call::new(Operation::Scan, vector(data), &[], data).with(operator)
}

/// Reduces the elements of the ranks before this one into `data`, which is unchanged at rank 0.
pub fn exscan<T: Pod, O: Operator<T>>(data: &mut [T], operator: O) -> Call<'_, T, O> {
    Call::new(Operation::Exscan, vector(data), &[], data).with(operator)
}

/// Sends `from` to all destinations of this rank, and receives a block from each source into `into`, in the order of
/// the sources. All blocks are as long as `from`.
pub fn neighbor_allgather<'b, T: Pod>(from: &'b [T], into: &'b mut [T], graph: Neighbors<'b>) -> Call<'b, T> {
    Call::new(Operation::NeighborAllgather, equal(from), from, into).on(graph)
}

/// Sends `from` to all destinations and receives `of[i]` elements from each source `i`, like [`neighbor_allgather`].
pub fn neighbor_allgatherv<'b, T: Pod>(
    from: &'b [T],
    into: &'b mut [T],
    of: &[usize],
    graph: Neighbors<'b>,
) -> Call<'b, T> {
    Call::new(Operation::NeighborAllgather, each(&[from.len()], of), from, into).on(graph)
}

/// Sends block `i` of `from` to destination `i`, and receives a block from each source into `into`, in the order of the
/// sources. All blocks have `count` elements.
pub fn neighbor_alltoall<'b, T: Pod>(
    from: &'b [T],
    into: &'b mut [T],
    count: usize,
    graph: Neighbors<'b>,
) -> Call<'b, T> {
    Call::new(Operation::NeighborAlltoall, Shape::Equal(count as u64), from, into).on(graph)
}

/// Sends the next `to[i]` elements of `from` to destination `i` and receives `of[i]` elements from each source `i`,
/// like [`neighbor_alltoall`].
pub fn neighbor_alltoallv<'b, T: Pod>(
    from: &'b [T],
    to: &[usize],
    into: &'b mut [T],
    of: &[usize],
    graph: Neighbors<'b>,
) -> Call<'b, T> {
    Call::new(Operation::NeighborAlltoall, each(to, of), from, into).on(graph)
}

/// The shapes of a vector, of equal blocks of this length, and of blocks with these counts.
fn vector<'b, T>(data: &[T]) -> Shape<'b> {
    Shape::Vector(data.len() as u64)
}

fn equal<'b, T>(block: &[T]) -> Shape<'b> {
    Shape::Equal(block.len() as u64)
}

fn each<'b>(counts: &[usize], more: &[usize]) -> Shape<'b> {
    Shape::Each(counts.iter().chain(more).map(|n| *n as u64).collect())
}

impl<'b, T: Pod> Call<'b, T> {
    #[inline(always)]
    fn new(operation: Operation, shape: Shape<'b>, from: &'b [T], into: &'b mut [T]) -> Self {
        let in_place = operation.is_reduction() && operation.is_of_a_vector();
        let arguments = Arguments { shape, in_place, element: size_of::<T>(), ..Arguments::new(operation) };
        let (input, output) = ((from.as_ptr(), from.len()), (into.as_mut_ptr(), into.len()));
        Self { arguments, input, output, operator: NoOperator, buffers: PhantomData }
    }

    #[inline(always)]
    fn root(mut self, root: usize) -> Self {
        self.arguments.root = root;
        self
    }

    /// Marks the counts as significant only at the root.
    fn known_at_root(mut self) -> Self {
        self.arguments.sizes_known = false;
        self
    }

    fn on(mut self, graph: Neighbors<'b>) -> Self {
        self.arguments.neighbors = graph;
        self
    }
}

impl<'b, T: Pod, O> Call<'b, T, O> {
    #[inline(always)]
    fn with<P>(self, operator: P) -> Call<'b, T, P> {
        self.replace(operator).0
    }

    /// Replaces the operator; returns the call and its former operator.
    #[inline(always)]
    pub(super) fn replace<P>(self, new: P) -> (Call<'b, T, P>, O) {
        let Self { arguments, input, output, operator: was, buffers } = self;
        (Call { arguments, input, output, operator: new, buffers }, was)
    }

    /// Overrides the algorithm selection; all ranks must pass the same algorithm. The call fails with `Unsupported` if
    /// the algorithm does not implement it.
    pub fn by(mut self, algorithm: &'b Choice) -> Self {
        self.arguments.algorithm = Some((algorithm.algorithm, &algorithm.parameters));
        self
    }

    /// The input.
    pub(super) fn input(&self) -> &[T] {
        // SAFETY: the input is borrowed for as long as the call exists.
        unsafe { std::slice::from_raw_parts(self.input.0, self.input.1) }
    }

    /// Replaces the address of the input. The same number of elements stays valid there while the call is in progress.
    pub(super) fn set_input(&mut self, from: *const T) {
        self.input.0 = from;
    }

    /// The output.
    pub(super) fn output(&self) -> (*mut T, usize) {
        self.output
    }

    /// Calls `f` with all arguments.
    ///
    /// # Errors
    /// `Unsupported` if the operator is not defined on the elements: the call has not been made. Any error of `f`.
    #[inline]
    pub(super) fn with_arguments<P: Operator<T>, R>(
        &mut self,
        team: &Team,
        operator: &P,
        f: impl FnOnce(&Arguments<'_>) -> Result<R>,
    ) -> Result<R> {
        complete(&mut self.arguments, (self.input, self.output), team, operator, f)
    }

    /// Makes the call, with its own operator.
    ///
    /// # Errors
    /// Those of [`with_arguments`](Self::with_arguments).
    #[inline]
    pub(super) fn make(mut self, team: &Team, f: impl FnOnce(&Arguments<'_>) -> Result<()>) -> Result<()>
    where
        O: Operator<T>,
    {
        complete(&mut self.arguments, (self.input, self.output), team, &self.operator, f)
    }
}

/// Completes the arguments of a call by its buffers, the team and the operator, and calls `f` with them.
#[inline]
fn complete<T: Pod, P: Operator<T>, R>(
    arguments: &mut Arguments<'_>,
    (input, output): ((*const T, usize), (*mut T, usize)),
    team: &Team,
    operator: &P,
    f: impl FnOnce(&Arguments<'_>) -> Result<R>,
) -> Result<R> {
    let operation = arguments.operation;
    if operation.is_reduction() {
        operator.check()?;
        arguments.reduction = Some(reduction(operator));
    }
    let is_root = arguments.root == team.rank();
    match &mut arguments.shape {
        Shape::Equal(n) if operation == Operation::Alltoall => *n /= team.size() as u64,
        shape if !arguments.sizes_known && !is_root => {
            *shape = Shape::Own(if operation == Operation::Scatter { output.1 } else { input.1 } as u64);
        }
        _ => {}
    }
    arguments.input = Memory::Contiguous(input.0.cast_mut().cast());
    arguments.output = Memory::Contiguous(output.0.cast());
    arguments.lengths = Some([input.1, output.1]);
    if operation == Operation::Reduce && !is_root {
        // The data is only read.
        (arguments.input, arguments.output) = (Memory::Contiguous(output.0.cast()), Memory::None);
        arguments.lengths = Some([output.1, 0]);
    }
    f(arguments)
}
