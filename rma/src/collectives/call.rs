#![allow(unsafe_code)]
//! Calls of collectives as values: operation, buffers, counts, operator. The method of the same name of
//! [`Collectives`](super::Collectives) makes the call, and has an example.

use std::borrow::Cow;
use std::marker::PhantomData;

use bytemuck::Pod;
use farside_core::coll::execute::{Arguments, Memory, Shape};
use farside_core::coll::operation::{Neighbors, Operation};
use farside_core::coll::selection::Choice;
use farside_core::{Error, ErrorKind, Result, Team};

use super::operator::{NoOperator, Operator, reduction};

/// Block lengths of a call, in elements.
#[derive(Clone, Debug)]
enum Counts<'b> {
    Vector(usize),
    Equal(usize),
    /// One count per block, known at every rank that needs it.
    Each(Cow<'b, [usize]>),
    /// The counts, read at the root only, and the length of this rank's block.
    AtRoot(&'b [usize], usize),
}

/// A call of a collective with its buffers. It can be made blocking, nonblocking or persistent.
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
    operation: Operation,
    root: usize,
    counts: Counts<'b>,
    /// Address and length; empty if the call is in place.
    input: (*const T, usize),
    output: (*mut T, usize),
    in_place: bool,
    pub(super) operator: O,
    neighbors: Neighbors<'b>,
    algorithm: Option<&'b Choice>,
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
///         // Other work, while the other ranks come.
///         barrier.wait().map(drop)
///     })
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
pub fn barrier<'b>() -> Call<'b, u8> {
    Call::new(Operation::Barrier, Counts::Equal(0), &[], &mut [])
}

/// Gives every rank the root's elements. The length is the same at every rank.
pub fn broadcast<T: Pod>(data: &mut [T], root: usize) -> Call<'_, T> {
    Call { root, ..Call::new(Operation::Broadcast, Counts::Vector(data.len()), &[], data) }
}

/// Gives rank `i` block `i` of the root's `from`, which is read only at the root. All blocks are as long as `into`.
pub fn scatter<'b, T: Pod>(from: &'b [T], into: &'b mut [T], root: usize) -> Call<'b, T> {
    Call { root, ..Call::new(Operation::Scatter, Counts::Equal(into.len()), from, into) }
}

/// Gives rank `i` the next `counts[i]` elements of the root's `from`. `from` and `counts` are read only at the root.
pub fn scatterv<'b, T: Pod>(from: &'b [T], counts: &'b [usize], into: &'b mut [T], root: usize) -> Call<'b, T> {
    Call { root, ..Call::new(Operation::Scatter, Counts::AtRoot(counts, into.len()), from, into) }
}

/// Gives the root the elements of all ranks, in rank order, in `into`, which is written only at the root.
pub fn gather<'b, T: Pod>(from: &'b [T], into: &'b mut [T], root: usize) -> Call<'b, T> {
    Call { root, ..Call::new(Operation::Gather, Counts::Equal(from.len()), from, into) }
}

/// Gives the root `counts[i]` elements of each rank `i`, like [`gather`]. `counts` is read only at the root.
pub fn gatherv<'b, T: Pod>(from: &'b [T], into: &'b mut [T], counts: &'b [usize], root: usize) -> Call<'b, T> {
    Call { root, ..Call::new(Operation::Gather, Counts::AtRoot(counts, from.len()), from, into) }
}

/// Gives every rank the elements of all ranks, in rank order. The length is the same at every rank.
pub fn allgather<'b, T: Pod>(from: &'b [T], into: &'b mut [T]) -> Call<'b, T> {
    Call::new(Operation::Allgather, Counts::Equal(from.len()), from, into)
}

/// Gives every rank `counts[i]` elements of each rank `i`, like [`allgather`]. `counts` is the same at every rank.
pub fn allgatherv<'b, T: Pod>(from: &'b [T], into: &'b mut [T], counts: &'b [usize]) -> Call<'b, T> {
    Call::new(Operation::Allgather, Counts::Each(counts.into()), from, into)
}

/// Gives rank `i` block `i` of `from`, and gets a block of each rank into `into`, in rank order. All blocks have the
/// same length.
pub fn alltoall<'b, T: Pod>(from: &'b [T], into: &'b mut [T]) -> Call<'b, T> {
    // `shape` divides this by the number of ranks, which is not known yet.
    Call::new(Operation::Alltoall, Counts::Equal(from.len()), from, into)
}

/// Gives rank `i` the next `to[i]` elements of `from`, and gets `of[i]` elements of each rank `i`, like [`alltoall`].
pub fn alltoallv<'b, T: Pod>(from: &'b [T], to: &[usize], into: &'b mut [T], of: &[usize]) -> Call<'b, T> {
    Call::new(Operation::Alltoall, Counts::Each([to, of].concat().into()), from, into)
}

/// Reduces the elements of all ranks, one by one, into `data` at the root; at other ranks `data` is only read.
pub fn reduce<T: Pod, O: Operator<T>>(data: &mut [T], operator: O, root: usize) -> Call<'_, T, O> {
    Call { root, ..Call::new(Operation::Reduce, Counts::Vector(data.len()), &[], data) }.with(operator)
}

/// Reduces the elements of all ranks, one by one, into `data` at every rank: the same bits everywhere.
pub fn allreduce<T: Pod, O: Operator<T>>(data: &mut [T], operator: O) -> Call<'_, T, O> {
    Call::new(Operation::Allreduce, Counts::Vector(data.len()), &[], data).with(operator)
}

/// Reduces block `i` of all ranks into rank `i`'s `into`. All blocks are as long as `into`.
pub fn reduce_scatter<'b, T: Pod, O: Operator<T>>(from: &'b [T], into: &'b mut [T], operator: O) -> Call<'b, T, O> {
    Call::new(Operation::ReduceScatter, Counts::Equal(into.len()), from, into).with(operator)
}

/// Reduces block `i`, of `counts[i]` elements, of all ranks into rank `i`'s `into`. `counts` is the same at every rank.
pub fn reduce_scatterv<'b, T: Pod, O: Operator<T>>(
    from: &'b [T],
    into: &'b mut [T],
    counts: &'b [usize],
    operator: O,
) -> Call<'b, T, O> {
    Call::new(Operation::ReduceScatter, Counts::Each(counts.into()), from, into).with(operator)
}

/// Reduces the elements of the ranks up to and including this one into `data`.
pub fn scan<T: Pod, O: Operator<T>>(data: &mut [T], operator: O) -> Call<'_, T, O> {
    Call::new(Operation::Scan, Counts::Vector(data.len()), &[], data).with(operator)
}

/// Reduces the elements of the ranks before this one into `data`, which is unchanged at rank 0.
pub fn exscan<T: Pod, O: Operator<T>>(data: &mut [T], operator: O) -> Call<'_, T, O> {
    Call::new(Operation::Exscan, Counts::Vector(data.len()), &[], data).with(operator)
}

/// Gives `from` to all destinations of this rank, and gets a block of each source into `into`, in the order of the
/// sources. All blocks are as long as `from`.
pub fn neighbor_allgather<'b, T: Pod>(from: &'b [T], into: &'b mut [T], graph: Neighbors<'b>) -> Call<'b, T> {
    let neighbors = graph;
    Call { neighbors, ..Call::new(Operation::NeighborAllgather, Counts::Equal(from.len()), from, into) }
}

/// Gives `from` to all destinations and gets `of[i]` elements of each source `i`, like [`neighbor_allgather`].
pub fn neighbor_allgatherv<'b, T: Pod>(
    from: &'b [T],
    into: &'b mut [T],
    of: &[usize],
    graph: Neighbors<'b>,
) -> Call<'b, T> {
    let counts = [&[from.len()], of].concat().into();
    Call { neighbors: graph, ..Call::new(Operation::NeighborAllgather, Counts::Each(counts), from, into) }
}

/// Gives destination `i` block `i` of `from`, and gets a block of each source into `into`, in the order of the sources.
/// All blocks have `count` elements.
pub fn neighbor_alltoall<'b, T: Pod>(
    from: &'b [T],
    into: &'b mut [T],
    count: usize,
    graph: Neighbors<'b>,
) -> Call<'b, T> {
    Call { neighbors: graph, ..Call::new(Operation::NeighborAlltoall, Counts::Equal(count), from, into) }
}

/// Gives destination `i` the next `to[i]` elements of `from` and gets `of[i]` elements of each source `i`, like
/// [`neighbor_alltoall`].
pub fn neighbor_alltoallv<'b, T: Pod>(
    from: &'b [T],
    to: &[usize],
    into: &'b mut [T],
    of: &[usize],
    graph: Neighbors<'b>,
) -> Call<'b, T> {
    let counts = Counts::Each([to, of].concat().into());
    Call { neighbors: graph, ..Call::new(Operation::NeighborAlltoall, counts, from, into) }
}

impl<'b, T: Pod> Call<'b, T> {
    fn new(operation: Operation, counts: Counts<'b>, from: &'b [T], into: &'b mut [T]) -> Self {
        Self {
            operation,
            root: 0,
            counts,
            input: (from.as_ptr(), from.len()),
            output: (into.as_mut_ptr(), into.len()),
            in_place: operation.is_reduction() && operation.is_of_a_vector(),
            operator: NoOperator,
            neighbors: Neighbors::default(),
            algorithm: None,
            buffers: PhantomData,
        }
    }
}

impl<'b, T: Pod, O> Call<'b, T, O> {
    fn with<P>(self, operator: P) -> Call<'b, T, P> {
        self.replace(operator).0
    }

    /// Replaces the operator; returns the call and its former operator.
    pub(super) fn replace<P>(self, new: P) -> (Call<'b, T, P>, O) {
        let Self { operation, root, counts, input, output, in_place, operator, neighbors, algorithm, buffers } = self;
        let (operator, was) = (new, operator);
        (Call { operation, root, counts, input, output, in_place, operator, neighbors, algorithm, buffers }, was)
    }

    /// Overrides the algorithm selection; all ranks give the same algorithm. The call fails with `Unsupported` if the
    /// algorithm does not implement it.
    pub fn by(self, algorithm: &'b Choice) -> Self {
        Self { algorithm: Some(algorithm), ..self }
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

    /// Calls `f` with the arguments for the untyped layer, after checking that the buffers fit the shape.
    ///
    /// # Errors
    /// `BadArgument` if a buffer's length does not match the counts, `Unsupported` by the operator: the call has not been
    /// made. Any error of `f`.
    #[inline]
    pub(super) fn with_arguments<P: Operator<T>, R>(
        &self,
        team: &Team,
        operator: &P,
        f: impl FnOnce(&Arguments<'_>) -> Result<R>,
    ) -> Result<R> {
        let reduces = self.operation.is_reduction();
        if reduces {
            operator.check()?;
        }
        let counts = match &self.counts {
            Counts::Each(counts) => counts,
            // `counts` is read at the root only.
            Counts::AtRoot(counts, _) if self.root == team.rank() => *counts,
            _ => &[],
        };
        let sizes = if counts.is_empty() { Vec::new() } else { counts.iter().map(|n| *n as u64).collect() };
        let shape = self.shape(team, &sizes)?;
        // At a rank that is not the root of a reduce, `data` is input only.
        let reads_output = self.operation == Operation::Reduce && self.root != team.rank();
        let output = Memory::Contiguous(self.output.0.cast());
        let input = Memory::Contiguous(self.input.0.cast_mut().cast());
        f(&Arguments {
            root: self.root,
            shape,
            sizes_known: !matches!(self.counts, Counts::AtRoot(..)),
            element: size_of::<T>(),
            input: if reads_output { output.clone() } else { input },
            output: if reads_output { Memory::None } else { output },
            in_place: self.in_place,
            reduction: reduces.then(|| reduction(operator)),
            neighbors: self.neighbors,
            algorithm: self.algorithm.map(|choice| (choice.algorithm, &choice.parameters[..])),
            ..Arguments::new(self.operation)
        })
    }

    /// The shape, after checking the lengths of the buffers against it.
    fn shape<'s>(&self, team: &Team, sizes: &'s [u64]) -> Result<Shape<'s>> {
        use Operation as O;
        let p = team.size();
        let is_root = self.root == team.rank();
        let (sources, destinations) = (self.neighbors.sources.len(), self.neighbors.destinations.len());
        let sum = |counts: &[u64]| counts.iter().try_fold(0u64, |sum, n| sum.checked_add(*n));
        let times = |n: usize, blocks: usize| (n as u64).checked_mul(blocks as u64);
        // The shape, and the required lengths of input and output; `None` on overflow.
        let (shape, input, output) = match (&self.counts, self.operation) {
            (Counts::Vector(n), _) => (Shape::Vector(*n as u64), Some(0), Some(*n as u64)),
            (Counts::AtRoot(_, own), O::Scatter | O::Gather) => {
                let shape = if is_root { Shape::Each(sizes) } else { Shape::Own(*own as u64) };
                let (all, own) = (sum(sizes), if is_root { sizes.get(self.root).copied() } else { Some(*own as u64) });
                if self.operation == O::Scatter { (shape, all, own) } else { (shape, own, all) }
            }
            (Counts::Equal(n), O::Scatter) => (Shape::Equal(*n as u64), times(*n, p), Some(*n as u64)),
            (Counts::Equal(n), O::Gather | O::Allgather) => (Shape::Equal(*n as u64), Some(*n as u64), times(*n, p)),
            (Counts::Equal(n), O::Alltoall) => (Shape::Equal((*n / p) as u64), times(*n / p, p), times(*n / p, p)),
            (Counts::Equal(n), O::ReduceScatter) => (Shape::Equal(*n as u64), times(*n, p), Some(*n as u64)),
            (Counts::Equal(n), O::NeighborAllgather) => (Shape::Equal(*n as u64), Some(*n as u64), times(*n, sources)),
            (Counts::Equal(n), O::NeighborAlltoall) => {
                (Shape::Equal(*n as u64), times(*n, destinations), times(*n, sources))
            }
            (Counts::Equal(_), _) => (Shape::Equal(0), Some(0), Some(0)),
            (Counts::Each(_), operation) => {
                let own = sizes.get(team.rank()).copied();
                let cut = |at: usize| {
                    let (a, b) = sizes.split_at_checked(at).unwrap_or((sizes, &[]));
                    (sum(a), sum(b))
                };
                let (input, output) = match operation {
                    O::Allgather => (own, sum(sizes)),
                    O::ReduceScatter => (sum(sizes), own),
                    O::Alltoall => cut(p),
                    O::NeighborAllgather => cut(1),
                    _ => cut(destinations),
                };
                (Shape::Each(sizes), input, output)
            }
            (Counts::AtRoot(..), _) => (Shape::Each(sizes), None, None),
        };
        let of_root = matches!(self.operation, O::Scatter | O::Gather) && !is_root;
        let right = |have: usize, want: Option<u64>, at_root: bool| {
            at_root && of_root || want.is_some_and(|want| want == have as u64)
        };
        let name = self.operation.name();
        let wrong = |what: &str, have: usize, want: Option<u64>| {
            let want = want.map_or_else(|| "another number".to_owned(), |n| n.to_string());
            let e = Error::new(ErrorKind::BadArgument, name).rank(team.job().rank());
            Err(e.cause(format!("{what} of {have} elements, but the counts need {want}")))
        };
        if !right(self.input.1, input, self.operation == O::Scatter) {
            return wrong("an input", self.input.1, input);
        }
        if !right(self.output.1, output, self.operation == O::Gather) {
            return wrong("an output", self.output.1, output);
        }
        Ok(shape)
    }
}
