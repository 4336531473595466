#![allow(unsafe_code)]
//! Arguments of a collective call.

use std::any::Any;
use std::borrow::Cow;
use std::rc::Rc;

use super::memory::Memory;
use crate::coll::operation::{Algorithm, Call, Neighbors, Operation};
use crate::coll::schedule::{Side, Sizes};
use crate::coll::selection::{Facts, Placement};
use crate::coll::team::members::Members;
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;

/// Combines elements: `into[i]` becomes `operand[i] ∘ into[i]` or `into[i] ∘ operand[i]`, by the side. The arguments
/// are the context, the operand, `into`, the number of elements, and the side. It does not unwind, and its error, with a
/// cause, fails the call at every rank. While it runs, calls that communicate are refused
/// ([`Callback::Operator`](crate::callback::Callback)).
pub type ReduceFn = unsafe fn(*const (), *const u8, *mut u8, usize, Side) -> Result<()>;

/// A reduction, as a function over the memory of elements.
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    /// The function. Its pointers are aligned, and do not overlap.
    pub function: ReduceFn,
    /// The first argument of the function.
    pub context: *const (),
    /// Identifies the reduction, so that ranks that pass different reductions to a call get a `Mismatch`; 0 if the
    /// reduction has no value that is the same on every rank.
    pub code: u32,
    /// Whether the operation is commutative.
    pub commutative: bool,
    /// Alignment of an element.
    pub align: usize,
}

/// Number of elements of the blocks of a call.
#[derive(Clone, Debug)]
pub enum Shape<'a> {
    /// One vector of this many elements, which the algorithm divides into segments ([`Operation::is_of_a_vector`]).
    Vector(u64),
    /// Each block, by rank or by neighbour, has this many elements.
    Equal(u64),
    /// Numbers of elements by size index, as the table of [`Operation`] defines it.
    Each(Cow<'a, [u64]>),
    /// Number of elements of this rank's own block, in a scatter or gather whose sizes only the root knows; used by the
    /// other ranks.
    Own(u64),
}

/// Identifies calls that differ only in the memory of their buffers, and so have the same schedule: by the operation,
/// and by words that determine all other arguments.
#[derive(Clone, Copy, Debug, Eq)]
pub struct Key([u64; 8]);

impl PartialEq for Key {
    /// Compares word by word: wider loads would wait for the stores of a key that was just made, a tenth of the time of a
    /// short collective.
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        (0..self.0.len()).all(|i| self.0[i] == other.0[i])
    }
}

impl Key {
    /// Marks the keys whose words the caller chooses, so that they differ from all keys that [`of`](Self::of) makes.
    const OF_CALLER: u64 = 1 << 63;

    /// A key of words that the caller chooses. Calls on a team that have equal words have the same arguments except for
    /// their buffers, each of which is contiguous or absent.
    #[inline]
    #[must_use]
    pub const fn new(operation: Operation, words: [u64; 7]) -> Self {
        let [a, b, c, d, e, f, g] = words;
        Self([Self::OF_CALLER | operation as u64, a, b, c, d, e, f, g])
    }

    pub(super) const fn is_of_caller(&self) -> bool {
        self.0[0] & Self::OF_CALLER != 0
    }

    /// The key of a call that has equal blocks and few parameters; `None` for other calls. Calls with one key may
    /// differ in their neighbours.
    #[inline]
    pub(super) fn of(arguments: &Arguments<'_>) -> Option<Self> {
        let (Shape::Vector(elements) | Shape::Equal(elements)) = arguments.shape else { return None };
        let (algorithm, given) = arguments.algorithm.map_or((0, &[][..]), |(a, p)| (std::ptr::from_ref(a).addr(), p));
        let mut parameters = [u32::MAX; 2];
        parameters.get_mut(..given.len())?.copy_from_slice(given);
        // By the address of the name: equal names at two addresses have different keys.
        let purpose = if arguments.purpose.is_empty() { 0 } else { arguments.purpose.as_ptr().addr() };
        let (code, commutative, align) =
            arguments.reduction.map_or((0, false, 1), |r| (r.code, r.commutative, r.align));
        let flags = u64::from(arguments.in_place) << 8 | u64::from(commutative) << 9;
        Some(Self([
            arguments.operation as u64 | flags | (arguments.purpose.len() as u64) << 16,
            arguments.root as u64,
            elements,
            arguments.element as u64,
            algorithm as u64,
            purpose as u64,
            u64::from(parameters[0]) << 32 | u64::from(parameters[1]),
            u64::from(code) << 32 | align as u64,
        ]))
    }
}

/// A call of a collective.
#[derive(Clone, Debug)]
pub struct Arguments<'a> {
    /// The operation.
    pub operation: Operation,
    /// The root, for rooted operations.
    pub root: usize,
    /// Number of elements of the blocks.
    pub shape: Shape<'a>,
    /// Whether every rank knows all sizes of a scatter or gather with [`Each`](Shape::Each); the same at every rank.
    pub sizes_known: bool,
    /// Whether a message may be shorter than the block that receives it; the remainder of the block is then not
    /// written.
    pub may_be_shorter: bool,
    /// Bytes of an element. If the operation does not reduce, an element may be one byte of a packed layout.
    pub element: usize,
    /// The input buffer, which is only read.
    pub input: Memory,
    /// The output buffer.
    pub output: Memory,
    /// Number of elements of the input and of the output buffer, which are checked against the shape if given.
    pub lengths: Option<[usize; 2]>,
    /// Whether the call is in place, as defined by the table of [`Operation`]; it then has no input.
    pub in_place: bool,
    /// The reduction, for operations that reduce.
    pub reduction: Option<Reduction>,
    /// The owner of the reduction's context, if the call has to keep it alive.
    pub owner: Option<Rc<dyn Any>>,
    /// The neighbours, for operations on a graph.
    pub neighbors: Neighbors<'a>,
    /// The library call of which this call is a part; empty for a call of the program. Ranks that pass different
    /// purposes get a `Mismatch`, so that a call which happens to have the same data is not matched with it.
    pub purpose: &'static str,
    /// The algorithm and its parameters; `None` leaves the choice to the selection.
    pub algorithm: Option<(&'static Algorithm, &'a [u32])>,
    /// The caller's key of the call, and its addresses of input and output, for [`recall`](super::Prepared::recall).
    pub key: Option<(Key, [*mut u8; 2])>,
}

impl<'a> Arguments<'a> {
    /// The call in the form that algorithms take, without parameters, and the inputs of the selection. `sizes` is empty
    /// for equal blocks.
    pub(super) fn call<'c>(&self, job: &Job, team: &'c Members, sizes: &'c [u64], elements: u64) -> (Call<'c>, Facts)
    where
        'a: 'c,
    {
        let call = Call {
            root: self.root as u32,
            sizes,
            sizes_known: self.sizes_known,
            elements,
            neighbors: self.neighbors,
            in_place: self.in_place,
            lends: team.one_node,
            nodes: &team.nodes,
            ..Call::new(self.operation, team.me as u32, team.size() as u32)
        };
        let placement = Placement::of(team.one_node, job.is_on_oversubscribed_node());
        let facts = Facts::new(&call, self.element as u64, self.reduction.is_none_or(|r| r.commutative), placement);
        (call, facts)
    }
}

impl Arguments<'_> {
    /// Arguments of an operation without data: root 0, no input and no output.
    #[must_use]
    pub fn new(operation: Operation) -> Self {
        Self {
            operation,
            root: 0,
            shape: if operation.is_of_a_vector() { Shape::Vector(0) } else { Shape::Equal(0) },
            sizes_known: true,
            may_be_shorter: false,
            element: 1,
            input: Memory::None,
            output: Memory::None,
            lengths: None,
            in_place: false,
            reduction: None,
            owner: None,
            neighbors: Neighbors::default(),
            purpose: "",
            algorithm: None,
            key: None,
        }
    }

    /// Number of sizes in a call with blocks by rank or neighbour.
    pub(super) fn sizes(&self, team: &Members) -> usize {
        use Operation as O;
        let (sources, destinations) = (self.neighbors.sources.len(), self.neighbors.destinations.len());
        match self.operation {
            O::Barrier | O::Broadcast | O::Reduce | O::Allreduce | O::Scan | O::Exscan => 0,
            O::Scatter | O::Gather | O::Allgather | O::ReduceScatter => team.size(),
            O::Alltoall => 2 * team.size(),
            O::NeighborAllgather => 1 + sources,
            O::NeighborAlltoall => destinations + sources,
        }
    }

    /// Checks the lengths of the buffers that the rank has, if they are given.
    ///
    /// # Errors
    /// `BadArgument`.
    #[inline]
    pub(super) fn check_lengths(&self, team: &Members) -> Result<()> {
        let Some([input, output]) = self.lengths else { return Ok(()) };
        let (root, neighbors, in_place) = (self.root as u32, self.neighbors, self.in_place);
        let call = Call { root, neighbors, in_place, ..Call::new(self.operation, team.me as u32, team.size() as u32) };
        let (of_input, of_output, in_place) = call.buffers(1);
        let right = |have: usize, sizes: Sizes| {
            let is_of_root = self.operation.is_rooted() && self.root != team.me && sizes == Sizes::NONE;
            is_of_root || self.elements(sizes).is_none_or(|need| need == have as u64)
        };
        match (in_place.is_some() || right(input, of_input), right(output, of_output)) {
            (true, true) => Ok(()),
            (true, false) => Err(self.wrong_length(team, "output", output, of_output)),
            (false, _) => Err(self.wrong_length(team, "input", input, of_input)),
        }
    }

    /// Number of elements of a buffer; `None` for a shape that [`check`](Self::check) refuses.
    fn elements(&self, sizes: Sizes) -> Option<u64> {
        match &self.shape {
            Shape::Vector(n) | Shape::Equal(n) | Shape::Own(n) => n.checked_mul(u64::from(sizes.count)),
            Shape::Each(all) => {
                let first = sizes.first as usize;
                let of_buffer = all.get(first..first.checked_add(sizes.count as usize)?)?;
                of_buffer.iter().try_fold(0u64, |sum, n| sum.checked_add(*n))
            }
        }
    }

    #[cold]
    fn wrong_length(&self, team: &Members, buffer: &str, have: usize, sizes: Sizes) -> Error {
        let need = self.elements(sizes).unwrap_or_default();
        let e = Error::new(ErrorKind::BadArgument, self.operation.name()).rank(team.job_rank());
        e.cause(format!("the {buffer} has {have} elements, but the counts need {need}"))
    }

    /// Checks the arguments as far as one rank can. A refused call counts as not made.
    ///
    /// # Errors
    /// `NoSuchRank` for a root or neighbour that is not in the team; `BadArgument`.
    pub(super) fn check(&self, team: &Members) -> Result<()> {
        use Operation as O;
        let name = self.operation.name();
        let bad = |cause: String| Err(Error::new(ErrorKind::BadArgument, name).rank(team.job_rank()).cause(cause));
        let outside = |rank: usize| {
            let e = Error::new(ErrorKind::NoSuchRank, name).rank(team.job_rank()).peer(rank as u32);
            Err(e.cause(format!("the team has {} ranks", team.size())))
        };
        if self.operation.is_rooted() && self.root >= team.size() {
            return outside(self.root);
        }
        let neighbors = self.neighbors.sources.iter().chain(self.neighbors.destinations);
        if let Some(rank) = neighbors.copied().find(|rank| *rank as usize >= team.size()) {
            return outside(rank as usize);
        }
        if let Some((algorithm, _)) = self.algorithm.filter(|(algorithm, _)| algorithm.operation != self.operation) {
            return bad(format!("algorithm {} implements {}, not {name}", algorithm.name, algorithm.operation.name()));
        }
        if self.operation.is_reduction() != self.reduction.is_some() {
            return bad(if self.reduction.is_some() {
                "the operation takes no reduction operator, but one was given"
            } else {
                "the operation needs a reduction operator, but none was given"
            }
            .to_owned());
        }
        if self.in_place
            && matches!(
                self.operation,
                O::Barrier | O::Alltoall | O::ReduceScatter | O::NeighborAllgather | O::NeighborAlltoall
            )
        {
            return bad("the operation cannot be done in place".to_owned());
        }
        let layout = |memory: &Memory| matches!(memory, Memory::Layout(_));
        if self.operation.is_reduction() && (layout(&self.input) || layout(&self.output)) {
            return bad("a reduction does not support buffers with layouts".to_owned());
        }
        let right = match (&self.shape, self.operation.is_of_a_vector()) {
            (Shape::Vector(_), true) => true,
            (Shape::Equal(_), false) => true,
            (Shape::Each(sizes), false) if sizes.len() == self.sizes(team) => true,
            (Shape::Each(sizes), false) => {
                return bad(format!(
                    "{} block sizes are given, but the operation has {} blocks",
                    sizes.len(),
                    self.sizes(team)
                ));
            }
            (Shape::Own(_), false) => !self.sizes_known && self.operation.is_rooted() && self.root != team.me,
            _ => false,
        };
        if !right {
            return bad(format!("the operation does not accept the shape {:?}", self.shape));
        }
        let elements = match &self.shape {
            Shape::Vector(n) | Shape::Own(n) => Some(*n),
            Shape::Equal(n) => n.checked_mul(self.sizes(team) as u64),
            Shape::Each(sizes) => sizes.iter().try_fold(0u64, |sum, n| sum.checked_add(*n)),
        };
        let bytes = elements.and_then(|n| n.checked_mul(self.element as u64));
        if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return bad("the operation moves more bytes than the address space holds".to_owned());
        }
        Ok(())
    }
}
