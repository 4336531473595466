#![allow(unsafe_code)]
//! Calls of collectives as values: operation, buffers, counts, operator.

use std::borrow::Cow;
use std::marker::PhantomData;

use bytemuck::Pod;
use farside_core::coll::execute::{Arguments, Memory, Shape, refuse};
use farside_core::coll::operation::{Neighbors, Operation};
use farside_core::coll::selection::Choice;
use farside_core::{Error, ErrorKind, Result, Team};

use super::operator::{NoOperator, Operator, reduction};

/// Elements of the blocks.
#[derive(Clone, Debug)]
enum Counts<'b> {
    Vector(usize),
    Equal(usize),
    /// By size number, known at every rank that needs them.
    Each(Cow<'b, [usize]>),
    /// Known at the root; at another rank its own.
    AtRoot(&'b [usize], usize),
}

/// A call of a collective with its buffers, to be made at once, started, or made persistent.
#[must_use = "a call does nothing until it is made"]
#[derive(Debug)]
pub struct Call<'b, T, O = NoOperator> {
    operation: Operation,
    root: usize,
    counts: Counts<'b>,
    /// Address and length; of no elements where the call is in place.
    input: (*const T, usize),
    output: (*mut T, usize),
    in_place: bool,
    pub(super) operator: O,
    neighbors: Neighbors<'b>,
    algorithm: Option<&'b Choice>,
    buffers: PhantomData<(&'b [T], &'b mut [T])>,
}

/// Waits until every rank has started it.
pub fn barrier<'b>() -> Call<'b, u8> {
    Call::new(Operation::Barrier, Counts::Equal(0), &[], &mut [])
}

/// Gives every rank the root's elements. All give the same number.
pub fn broadcast<T: Pod>(data: &mut [T], root: usize) -> Call<'_, T> {
    Call { root, ..Call::new(Operation::Broadcast, Counts::Vector(data.len()), &[], data) }
}

/// Gives rank `i` block `i` of the root's `from`, which is not looked at elsewhere; each is as long as `into`.
pub fn scatter<'b, T: Pod>(from: &'b [T], into: &'b mut [T], root: usize) -> Call<'b, T> {
    Call { root, ..Call::new(Operation::Scatter, Counts::Equal(into.len()), from, into) }
}

/// Gives rank `i` the next `counts[i]` elements of the root's `from`. `from` and `counts` are looked at only there.
pub fn scatterv<'b, T: Pod>(from: &'b [T], counts: &'b [usize], into: &'b mut [T], root: usize) -> Call<'b, T> {
    Call { root, ..Call::new(Operation::Scatter, Counts::AtRoot(counts, into.len()), from, into) }
}

/// Gives the root the elements of all ranks, in their order, in `into`, which is not touched elsewhere.
pub fn gather<'b, T: Pod>(from: &'b [T], into: &'b mut [T], root: usize) -> Call<'b, T> {
    Call { root, ..Call::new(Operation::Gather, Counts::Equal(from.len()), from, into) }
}

/// As [`gather`], with `counts[i]` elements of rank `i`; `counts` is looked at only at the root.
pub fn gatherv<'b, T: Pod>(from: &'b [T], into: &'b mut [T], counts: &'b [usize], root: usize) -> Call<'b, T> {
    Call { root, ..Call::new(Operation::Gather, Counts::AtRoot(counts, from.len()), from, into) }
}

/// Gives every rank the elements of all, in the order of the ranks. All give the same number.
pub fn allgather<'b, T: Pod>(from: &'b [T], into: &'b mut [T]) -> Call<'b, T> {
    Call::new(Operation::Allgather, Counts::Equal(from.len()), from, into)
}

/// As [`allgather`], with `counts[i]` elements of rank `i`: the same counts at every rank.
pub fn allgatherv<'b, T: Pod>(from: &'b [T], into: &'b mut [T], counts: &'b [usize]) -> Call<'b, T> {
    Call::new(Operation::Allgather, Counts::Each(counts.into()), from, into)
}

/// Gives rank `i` block `i` of `from`, and gets a block of each rank into `into`, in their order. All blocks are equal.
pub fn alltoall<'b, T: Pod>(from: &'b [T], into: &'b mut [T]) -> Call<'b, T> {
    // The number of ranks is not known yet.
    Call::new(Operation::Alltoall, Counts::Equal(from.len()), from, into)
}

/// As [`alltoall`], with `to[i]` elements to and `of[i]` elements of rank `i`.
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

/// Reduces block `i` of all ranks into rank `i`'s `into`; each is as long as that.
pub fn reduce_scatter<'b, T: Pod, O: Operator<T>>(from: &'b [T], into: &'b mut [T], operator: O) -> Call<'b, T, O> {
    Call::new(Operation::ReduceScatter, Counts::Equal(into.len()), from, into).with(operator)
}

/// As [`reduce_scatter`], with `counts[i]` elements in block `i`: the same counts at every rank.
pub fn reduce_scatterv<'b, T: Pod, O: Operator<T>>(
    from: &'b [T],
    into: &'b mut [T],
    counts: &'b [usize],
    operator: O,
) -> Call<'b, T, O> {
    Call::new(Operation::ReduceScatter, Counts::Each(counts.into()), from, into).with(operator)
}

/// Reduces the elements of the ranks up to this one into `data`.
pub fn scan<T: Pod, O: Operator<T>>(data: &mut [T], operator: O) -> Call<'_, T, O> {
    Call::new(Operation::Scan, Counts::Vector(data.len()), &[], data).with(operator)
}

/// Reduces the elements of the ranks before this one into `data`, which rank 0 keeps as it is.
pub fn exscan<T: Pod, O: Operator<T>>(data: &mut [T], operator: O) -> Call<'_, T, O> {
    Call::new(Operation::Exscan, Counts::Vector(data.len()), &[], data).with(operator)
}

/// Gives all destinations of this rank `from`, and gets a block of each source into `into`, in their order. All blocks are as
/// long as `from`.
pub fn neighbor_allgather<'b, T: Pod>(from: &'b [T], into: &'b mut [T], graph: Neighbors<'b>) -> Call<'b, T> {
    let neighbors = graph;
    Call { neighbors, ..Call::new(Operation::NeighborAllgather, Counts::Equal(from.len()), from, into) }
}

/// As [`neighbor_allgather`], with `of[i]` elements of source `i`.
pub fn neighbor_allgatherv<'b, T: Pod>(
    from: &'b [T],
    into: &'b mut [T],
    of: &[usize],
    graph: Neighbors<'b>,
) -> Call<'b, T> {
    let counts = [&[from.len()], of].concat().into();
    Call { neighbors: graph, ..Call::new(Operation::NeighborAllgather, Counts::Each(counts), from, into) }
}

/// Gives destination `i` block `i` of `from`, and gets a block of each source into `into`, in their order. All blocks have
/// `count` elements.
pub fn neighbor_alltoall<'b, T: Pod>(
    from: &'b [T],
    into: &'b mut [T],
    count: usize,
    graph: Neighbors<'b>,
) -> Call<'b, T> {
    Call { neighbors: graph, ..Call::new(Operation::NeighborAlltoall, Counts::Equal(count), from, into) }
}

/// As [`neighbor_alltoall`], with `to[i]` elements to destination `i` and `of[i]` elements of source `i`.
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

    /// The same call with another operator, and the one that it had.
    pub(super) fn replace<P>(self, new: P) -> (Call<'b, T, P>, O) {
        let Self { operation, root, counts, input, output, in_place, operator, neighbors, algorithm, buffers } = self;
        let (operator, was) = (new, operator);
        (Call { operation, root, counts, input, output, in_place, operator, neighbors, algorithm, buffers }, was)
    }

    /// Makes it by this algorithm, the same at every rank, whatever the selection would choose. A call that it is not for is
    /// `Unsupported`.
    pub fn by(self, algorithm: &'b Choice) -> Self {
        Self { algorithm: Some(algorithm), ..self }
    }

    /// The input.
    pub(super) fn input(&self) -> &[T] {
        // SAFETY: borrowed for as long as the call has it.
        unsafe { std::slice::from_raw_parts(self.input.0, self.input.1) }
    }

    /// Takes its input from elsewhere, where as many elements are for as long as it is in progress.
    pub(super) fn set_input(&mut self, from: *const T) {
        self.input.0 = from;
    }

    /// The output.
    pub(super) fn output(&self) -> (*mut T, usize) {
        self.output
    }

    /// Calls `f` with the call as the untyped layer has it. The buffers are long enough for its shape.
    ///
    /// # Errors
    /// `BadArgument` for a buffer of another length than the counts say, which the other ranks get too; what `f` fails with.
    #[inline]
    pub(super) fn with_arguments<P: Operator<T>, R>(
        &self,
        team: &Team,
        operator: &P,
        f: impl FnOnce(&Arguments<'_>) -> Result<R>,
    ) -> Result<R> {
        let reduces = self.operation.is_reduction();
        let checked = if reduces { operator.check() } else { Ok(()) };
        let counts = match &self.counts {
            Counts::Each(counts) => counts,
            // Looked at there alone.
            Counts::AtRoot(counts, _) if self.root == team.rank() => *counts,
            _ => &[],
        };
        let sizes = if counts.is_empty() { Vec::new() } else { counts.iter().map(|n| *n as u64).collect() };
        let shape = checked.and_then(|()| self.shape(team, &sizes)).map_err(|e| refuse(team, e))?;
        // A rank that is not the root of a reduce has only input.
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

    /// The shape, for which the buffers are as long as they must be.
    fn shape<'s>(&self, team: &Team, sizes: &'s [u64]) -> Result<Shape<'s>> {
        use Operation as O;
        let p = team.size();
        let is_root = self.root == team.rank();
        let (sources, destinations) = (self.neighbors.sources.len(), self.neighbors.destinations.len());
        let sum = |counts: &[u64]| counts.iter().try_fold(0u64, |sum, n| sum.checked_add(*n));
        let times = |n: usize, blocks: usize| (n as u64).checked_mul(blocks as u64);
        // What input and output must have; `None` for more than there can be.
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
            Err(e.cause(format!("{what} of {have} elements, {want} by the counts")))
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
