//! Collectives as schedules: an algorithm is a pure function from (rank, P, root, parameters) to the steps of that
//! rank.
//!
//! A step sends, receives, reduces or copies named blocks of named buffers, never bytes or pointers; so one description
//! is executed, checked for every P without a device ([`check`]), and predicted. The dependencies of a step follow from
//! the blocks that it reads and writes, in the order in which the algorithm adds its steps ([`Builder`]).
//!
//! Ranks of a node may lend blocks instead of sending them ([`Action::Lend`]): the borrower accesses them in place, and
//! returns the loan.
//!
//! After Hoefler, Siebert, Lumsdaine, "Group Operation Assembly Language" (2009), and Cowan et al., "MSCCLang" (2023).

mod builder;
pub mod check;
pub mod goal;
pub mod picture;
pub mod predict;

use std::borrow::Cow;
use std::fmt;

pub use builder::Builder;
pub(crate) use builder::Part;

/// A buffer of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Buffer {
    /// The rank's contribution, which is only read. In an in-place call it may be the same memory as the output, if the
    /// operation permits it ([`Operation`](super::operation::Operation)).
    Input,
    /// The rank's result. The root of a broadcast has its data here.
    Output,
    /// Memory of the schedule itself, initially without content.
    Scratch,
}

/// Consecutive blocks of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// The buffer.
    pub buffer: Buffer,
    /// First block.
    pub first: u32,
    /// Number of blocks.
    pub count: u32,
}

impl Slice {
    /// Blocks `first`, `first + 1`, ..: `count` of them.
    #[inline]
    #[must_use]
    pub const fn new(buffer: Buffer, first: u32, count: u32) -> Self {
        Self { buffer, first, count }
    }

    /// Blocks of the input.
    #[must_use]
    pub const fn input(first: u32, count: u32) -> Self {
        Self::new(Buffer::Input, first, count)
    }

    /// Blocks of the output.
    #[must_use]
    pub const fn output(first: u32, count: u32) -> Self {
        Self::new(Buffer::Output, first, count)
    }

    /// `count` blocks from `first` on, modulo `of`: after the last block comes the first. The second slice has the
    /// blocks that wrap around, and is empty if none does.
    pub(crate) const fn wrapped(buffer: Buffer, first: u32, count: u32, of: u32) -> [Self; 2] {
        let to_the_end = if count < of - first { count } else { of - first };
        [Self::new(buffer, first, to_the_end), Self::new(buffer, 0, count - to_the_end)]
    }

    /// Blocks `first` to `first + count - 1` of this slice.
    ///
    /// # Panics
    /// If the slice has fewer blocks.
    #[must_use]
    pub fn part(self, first: u32, count: u32) -> Self {
        assert!(first + count <= self.count, "blocks {first} to {} of {}", first + count, self.count);
        Self::new(self.buffer, self.first + first, count)
    }

    /// `count` blocks of a list of slices, from block `first` on; fewer if the list has fewer.
    pub(crate) fn part_of(list: &[Self], first: u32, count: u32) -> Vec<Self> {
        let (mut skip, mut left, mut part) = (first, count, Vec::new());
        for slice in list {
            let from = skip.min(slice.count);
            let now = left.min(slice.count - from);
            (skip, left) = (skip - from, left - now);
            part.extend((now > 0).then(|| slice.part(from, now)));
        }
        part
    }

    /// The block numbers of the slice.
    #[inline]
    pub fn blocks(self) -> impl Iterator<Item = u32> + Clone {
        self.first..self.first + self.count
    }
}

/// The side of the operator on which the operand is: `into` becomes `operand ∘ into` or `into ∘ operand`. An operator
/// need not be commutative; contributions of lower ranks are left of those of higher ranks.
///
/// ```
/// use farside_schedule::schedule::Side;
///
/// fn concatenate(operand: &str, into: &mut String, side: Side) {
///     *into = match side {
///         Side::Left => format!("{operand}{into}"),
///         Side::Right => format!("{into}{operand}"),
///     };
/// }
///
/// let mut into = "b".to_owned();
/// concatenate("a", &mut into, Side::Left);
/// concatenate("c", &mut into, Side::Right);
/// assert_eq!(into, "abc");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// `into = operand ∘ into`: the operand has contributions of lower ranks.
    Left,
    /// `into = into ∘ operand`: the operand has contributions of higher ranks.
    Right,
}

/// The action of a step. A message is matched by its tag, which is unique among the messages from one rank to another
/// in a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends the blocks of `from` as one message.
    Send {
        /// The receiving rank.
        to: u32,
        /// The message's tag.
        tag: u32,
    },
    /// Receives one message into the blocks of `into`.
    Receive {
        /// The sending rank.
        source: u32,
        /// The message's tag.
        tag: u32,
    },
    /// Receives one message as an operand for the blocks of `into`.
    ReceiveReduce {
        /// The sending rank.
        source: u32,
        /// The message's tag.
        tag: u32,
        /// The side of the operator on which the operand is.
        side: Side,
    },
    /// Reduces the blocks of `from`, as operands, into those of `into`.
    Reduce {
        /// The side of the operator on which the operands are.
        side: Side,
    },
    /// Copies the blocks of `from` to those of `into`. No operation if both are the same memory.
    Copy,
    /// Signals to a rank that this rank has reached this step: a message without data.
    Signal {
        /// The rank that receives the signal.
        to: u32,
        /// The signal's tag.
        tag: u32,
    },
    /// Waits for a signal.
    Await {
        /// The rank that sends the signal.
        source: u32,
        /// The signal's tag.
        tag: u32,
    },
    /// Lends memory to a rank until the loan is [reclaimed](Self::Reclaim): the blocks of `from` for reading, those of
    /// `into` for writing. A message without data.
    Lend {
        /// The borrowing rank.
        to: u32,
        /// The loan's tag, which is also that of its message.
        tag: u32,
    },
    /// Waits for a loan.
    Borrow {
        /// The lending rank.
        source: u32,
        /// The loan's tag.
        tag: u32,
    },
    /// Reads blocks that are lent for reading into the blocks of `into`.
    Read {
        /// The lending rank.
        source: u32,
        /// The loan's tag.
        tag: u32,
        /// The first block, counted in the loan.
        first: u32,
    },
    /// Reduces blocks that are lent for reading, as operands, into the blocks of `into`.
    ReadReduce {
        /// The lending rank.
        source: u32,
        /// The loan's tag.
        tag: u32,
        /// The first block, counted in the loan.
        first: u32,
        /// The side of the operator on which the operands are.
        side: Side,
    },
    /// Writes the blocks of `from` into blocks that are lent for writing.
    Write {
        /// The lending rank.
        to: u32,
        /// The loan's tag.
        tag: u32,
        /// The first block, counted in the loan.
        first: u32,
    },
    /// Returns a loan: this rank no longer accesses its blocks. A message without data.
    Return {
        /// The lending rank.
        to: u32,
        /// The loan's tag.
        tag: u32,
    },
    /// Enters the in-switch barrier of the network, and waits until all ranks have: a message to the switch, and one
    /// back.
    EnterSwitch,
    /// Waits until a loan has been returned. `from` and `into` are the blocks of the loan.
    Reclaim {
        /// The borrowing rank.
        source: u32,
        /// The loan's tag.
        tag: u32,
    },
}

/// Set in the tag of a message that lends memory, so that no other message is mistaken for a loan. Tags of schedules
/// are lower.
pub const LENT: u32 = 1 << 29;
/// Set in the tag of a message that returns a loan, like [`LENT`] in that of a message that lends memory.
pub const RETURNED: u32 = 1 << 30;

/// Whether a step sends or receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// The step sends.
    Out,
    /// The step receives.
    In,
}

impl Action {
    /// The port that the action uses and its message, as (from, to, tag), at rank `own`.
    #[inline]
    #[must_use]
    pub fn message(self, own: u32) -> Option<(Port, (u32, u32, u32))> {
        match self {
            Self::Send { to, tag } | Self::Signal { to, tag } => Some((Port::Out, (own, to, tag))),
            Self::Receive { source, tag } | Self::ReceiveReduce { source, tag, .. } | Self::Await { source, tag } => {
                Some((Port::In, (source, own, tag)))
            }
            Self::Lend { to, tag } => Some((Port::Out, (own, to, LENT | tag))),
            Self::Borrow { source, tag } => Some((Port::In, (source, own, LENT | tag))),
            Self::Return { to, tag } => Some((Port::Out, (own, to, RETURNED | tag))),
            Self::Reclaim { source, tag } => Some((Port::In, (source, own, RETURNED | tag))),
            Self::Reduce { .. }
            | Self::Copy
            | Self::EnterSwitch
            | Self::Read { .. }
            | Self::ReadReduce { .. }
            | Self::Write { .. } => None,
        }
    }

    /// The loan whose memory the step accesses, as lending rank and tag, and the first block.
    #[inline]
    #[must_use]
    pub fn loan(self) -> Option<((u32, u32), u32)> {
        match self {
            Self::Read { source, tag, first } | Self::ReadReduce { source, tag, first, .. } => {
                Some(((source, tag), first))
            }
            Self::Write { to, tag, first } => Some(((to, tag), first)),
            _ => None,
        }
    }

    /// The tag of the action in the schedule.
    pub(crate) fn tag(self) -> Option<u32> {
        match self {
            Self::Send { tag, .. }
            | Self::Receive { tag, .. }
            | Self::ReceiveReduce { tag, .. }
            | Self::Signal { tag, .. }
            | Self::Await { tag, .. }
            | Self::Lend { tag, .. }
            | Self::Borrow { tag, .. }
            | Self::Read { tag, .. }
            | Self::ReadReduce { tag, .. }
            | Self::Write { tag, .. }
            | Self::Return { tag, .. }
            | Self::Reclaim { tag, .. } => Some(tag),
            Self::Reduce { .. } | Self::Copy | Self::EnterSwitch => None,
        }
    }

    /// The rank that the action names.
    #[inline]
    #[must_use]
    pub fn peer(self, own: u32) -> Option<u32> {
        let peer_of_message = |(port, (from, to, _))| if port == Port::Out { to } else { from };
        self.message(own).map(peer_of_message).or(self.loan().map(|((lender, _), _)| lender))
    }
}

/// A list in a table of the schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct List {
    start: u32,
    len: u32,
}

impl List {
    #[inline]
    fn of<T>(self, table: &[T]) -> &[T] {
        &table[self.start as usize..][..self.len as usize]
    }
}

/// A step as a schedule stores it; [`Schedule::step`] gives a view of it.
#[derive(Clone, Copy, Debug)]
struct Stored {
    action: Action,
    from: List,
    into: List,
    after: List,
}

/// One step of a rank.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The action.
    pub action: Action,
    /// Blocks that the step reads.
    pub from: &'a [Slice],
    /// Blocks that the step writes, or reduces into.
    pub into: &'a [Slice],
    /// Earlier steps that must be complete before this one starts. A send is complete when its blocks may be changed, a
    /// receive when its blocks have the data.
    pub after: &'a [u32],
}

/// Sizes of the blocks of a buffer. Sizes are numbered; the caller of a collective has a table of them, in elements.
/// Block `b` of a buffer has size number `first + b`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Size number of block 0.
    pub first: u32,
    /// Number of blocks.
    pub count: u32,
}

impl Sizes {
    /// Sizes of `count` blocks, from size number `first` on.
    #[must_use]
    pub const fn new(first: u32, count: u32) -> Self {
        Self { first, count }
    }

    /// Sizes of a buffer without blocks.
    pub const NONE: Self = Self::new(0, 0);
}

/// The steps of one rank. To execute the schedule, start every step as soon as the steps in [`Step::after`] are
/// complete, and otherwise in the order of their numbers.
#[derive(Clone)]
pub struct Schedule {
    rank: u32,
    size: u32,
    input: Sizes,
    output: Sizes,
    scratch: Vec<u32>,
    steps: Vec<Stored>,
    slices: Vec<Slice>,
    after: Vec<u32>,
    /// Whether a [`Builder`] has checked the steps.
    is_checked: bool,
}

impl Schedule {
    /// The rank whose steps these are.
    #[inline]
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of ranks.
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Sizes of the blocks of the input.
    #[inline]
    #[must_use]
    pub fn input(&self) -> Sizes {
        self.input
    }

    /// Sizes of the blocks of the output.
    #[inline]
    #[must_use]
    pub fn output(&self) -> Sizes {
        self.output
    }

    /// Size numbers of the blocks of scratch.
    #[must_use]
    pub fn scratch(&self) -> &[u32] {
        &self.scratch
    }

    /// Number of steps.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether the schedule has no steps.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Step number `index`.
    ///
    /// # Panics
    /// If the schedule has no such step.
    #[inline]
    #[must_use]
    pub fn step(&self, index: usize) -> Step<'_> {
        let s = self.steps[index];
        Step {
            action: s.action,
            from: s.from.of(&self.slices),
            into: s.into.of(&self.slices),
            after: s.after.of(&self.after),
        }
    }

    /// All steps, in order.
    #[inline]
    pub fn steps(&self) -> impl ExactSizeIterator<Item = Step<'_>> {
        (0..self.steps.len()).map(|i| self.step(i))
    }

    /// A schedule with the same buffers and other steps. Nothing is derived or checked: this is for tests of the
    /// checker, and such a schedule cannot be executed.
    #[must_use]
    pub fn with_steps<'s>(&self, steps: impl IntoIterator<Item = Step<'s>>) -> Self {
        fn listed<T: Copy>(table: &mut Vec<T>, of: &[T]) -> List {
            table.extend_from_slice(of);
            List { start: (table.len() - of.len()) as u32, len: of.len() as u32 }
        }
        let (mut slices, mut after) = (Vec::new(), Vec::new());
        let stored = |step: Step<'_>| Stored {
            action: step.action,
            from: listed(&mut slices, step.from),
            into: listed(&mut slices, step.into),
            after: listed(&mut after, step.after),
        };
        let steps = steps.into_iter().map(stored).collect();
        Self { scratch: self.scratch.clone(), steps, slices, after, is_checked: false, ..*self }
    }

    /// Whether all steps came through a [`Builder`]: their slices lie inside their buffers, the input is not written,
    /// no step reduces a block into itself, steps that touch the same block are ordered, and no step touches a block
    /// that is lent to be written, or writes one that is lent to be read.
    #[inline]
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// Size number of a block.
    #[inline]
    #[must_use]
    pub fn size_of(&self, buffer: Buffer, block: u32) -> u32 {
        match buffer {
            Buffer::Input => self.input.first + block,
            Buffer::Output => self.output.first + block,
            Buffer::Scratch => self.scratch[block as usize],
        }
    }

    /// Number of blocks of a buffer.
    #[inline]
    #[must_use]
    pub fn blocks_of(&self, buffer: Buffer) -> u32 {
        match buffer {
            Buffer::Input => self.input.count,
            Buffer::Output => self.output.count,
            Buffer::Scratch => self.scratch.len() as u32,
        }
    }

    /// The blocks that a step moves if messages contain all data: lent blocks are sent with their loan, and written
    /// ones with its return.
    pub(crate) fn carried<'a>(&self, step: Step<'a>) -> Cow<'a, [Slice]> {
        let loan_of = |lender: u32, tag: u32, reads: bool| {
            let is_it = move |s: &Step<'_>| {
                s.action.loan().is_some_and(|(loan, _)| loan == (lender, tag))
                    && reads != matches!(s.action, Action::Write { .. })
            };
            let slices = |s: Step<'_>| if reads { s.into.to_vec() } else { s.from.to_vec() };
            self.steps().filter(is_it).flat_map(slices).collect::<Vec<_>>()
        };
        match step.action {
            Action::Send { .. } | Action::Lend { .. } => step.from.into(),
            Action::Borrow { source, tag } => loan_of(source, tag, true).into(),
            Action::Return { to, tag } => loan_of(to, tag, false).into(),
            _ => step.into.into(),
        }
    }

    /// Elements of the blocks of some slices, with `sizes` by size number.
    pub(crate) fn elements(&self, slices: &[Slice], sizes: &[u64]) -> u64 {
        let of = |s: &Slice| s.blocks().map(|b| sizes[self.size_of(s.buffer, b) as usize]).sum::<u64>();
        slices.iter().map(of).sum()
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rank {} of {}, scratch {:?}", self.rank, self.size, self.scratch)?;
        self.steps().enumerate().try_for_each(|(i, s)| {
            writeln!(f, "{i}: {:?} from {:?} into {:?} after {:?}", s.action, s.from, s.into, s.after)
        })
    }
}
