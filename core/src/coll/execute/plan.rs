//! A schedule prepared for execution: dependency counts of the steps, expected messages, offsets of blocks.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use rustc_hash::FxHasher;

use super::arguments::{Arguments, Shape};
use super::checks;
use super::one_round::OneRound;
use crate::coll::operation::{Algorithm, Call, Operation};
use crate::coll::schedule::{Action, Buffer, Port, Schedule, Slice, Step};
use crate::coll::selection::Choice;
use crate::coll::team::members::Members;
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::signal::short;

/// Tags of a question about a message, and of the answer that the call has ended. Tags of steps are lower.
pub(super) const QUESTION: u32 = u32::MAX - 1;
pub(super) const OVER: u32 = u32::MAX - 2;
/// Tags of the question whether a rank has reached the end of the job, and of the answer that it has.
pub(super) const ENDS: u32 = OVER - 1;
pub(super) const ENDED: u32 = OVER - 2;
/// Tag of the message that a rank has made another call after it refused a call of a subgroup.
pub(super) const MOVED_ON: u32 = OVER - 3;
/// Maximum number of bytes of the properties in a question, which the message's header leaves.
const PROPERTIES: usize = 92;
/// Checks of the peers in a wait before the first question; the number doubles before each further question.
pub(super) const CHECKS_BEFORE_QUESTION: u32 = 5;

/// A message that a schedule receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Expected {
    /// Rank of the job.
    pub(super) source: u32,
    pub(super) tag: u32,
    pub(super) step: u32,
}

/// A schedule prepared for execution.
pub(super) struct Plan {
    pub(super) schedule: Schedule,
    pub(super) operation: Operation,
    /// Bytes of an element.
    pub(super) element: usize,
    /// Alignment of the elements that are reduced; else 1.
    pub(super) align: usize,
    /// For each buffer: the start of each block and the end of the last one, in bytes.
    pub(super) starts: [Vec<usize>; 3],
    /// For each step: the number of steps that it waits for.
    pub(super) degrees: Vec<u32>,
    /// For each step: the start of its followers, the steps that wait for it, in `followers`.
    follower_starts: Vec<u32>,
    followers: Vec<u32>,
    /// For each step: bytes of its message.
    pub(super) bytes: Vec<usize>,
    /// Sorted by source and tag.
    pub(super) expected: Vec<Expected>,
    /// For each step: its index in `expected`.
    pub(super) slots: Vec<u32>,
    /// The form of the call for short data, if it has one.
    pub(super) short: Option<OneRound>,
    pub(super) may_be_shorter: bool,
    /// Whether the rank lends or borrows memory.
    pub(super) lends: bool,
    /// Ranks of the job, by team rank.
    pub(super) peers: Rc<[u32]>,
    /// Sources and destinations on a graph, by team rank.
    pub(super) neighbors: [Vec<u32>; 2],
    /// The check value in the messages of this call.
    pub(super) check: Check,
    pub(super) agreed: Agreed,
}

/// Properties on which the ranks of a call agree, besides operation and root.
pub(super) struct Agreed {
    /// Bytes of the vector or of each block, if all are equal.
    bytes: Option<usize>,
    /// The blocks that all ranks know, if they differ.
    blocks: Vec<u64>,
    /// Code of the reduction.
    reduction: u32,
    /// The library call of which the call is a part, or its own name.
    call: &'static str,
    algorithm: Choice,
    ranks: usize,
}

impl fmt::Display for Agreed {
    /// Writes a line for each property: `name: value`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, blocks, reduction, call, algorithm, ranks } = self;
        writeln!(f, "call: {call}")?;
        match bytes {
            Some(bytes) => write!(f, "data: {bytes} bytes")?,
            None => write!(f, "data: blocks of {:?} elements", &blocks[..blocks.len().min(8)])?,
        }
        write!(f, "\nreduction: {reduction:x}\nalgorithm: {algorithm}\nteam: {ranks} ranks")
    }
}

/// Properties on which the ranks of one call agree, in 32 bits: operation (4), root (10), and a hash of the others
/// (18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Check(pub(super) u32);

impl Check {
    pub(super) fn new(operation: Operation, root: usize, rest: impl Hash) -> Self {
        let mut hasher = FxHasher::default();
        (root, rest).hash(&mut hasher);
        let hash = hasher.finish();
        let hash = (hash >> 46) as u32 ^ (hash & 0x3ffff) as u32;
        Self(operation as u32 | (root as u32 & 0x3ff) << 4 | (hash & 0x3ffff) << 14)
    }

    /// The operation's name.
    pub(super) fn name(self) -> &'static str {
        Operation::ALL.get((self.0 & 15) as usize).map_or("no operation", |operation| operation.name())
    }

    fn root(self) -> u32 {
        self.0 >> 4 & 0x3ff
    }
}

impl Plan {
    pub(super) fn new(job: &Job, team: &Members, arguments: &Arguments<'_>) -> Result<Self> {
        let rank = team.me;
        let count = arguments.sizes(team);
        let (mut sizes, elements) = match &arguments.shape {
            Shape::Vector(elements) => (Vec::new(), *elements),
            Shape::Equal(each) => (vec![*each; count], *each),
            Shape::Each(sizes) => (sizes.to_vec(), 0),
            Shape::Own(own) => {
                let mut sizes = vec![0; count];
                sizes[rank] = *own;
                (sizes, *own)
            }
        };
        let by_rank = matches!(arguments.shape, Shape::Each(_) | Shape::Own(_));
        let known = if by_rank { &sizes[..] } else { &[] };
        let (call, facts) = arguments.call(job, team, known, elements);
        let Choice { algorithm, parameters } = match arguments.algorithm {
            Some((algorithm, parameters)) => Choice { algorithm, parameters: algorithm.within_limits(parameters) },
            None => job.calls().tuning.selection().select(&call, &facts).0,
        };
        let wrong = |cause: String| {
            let e = Error::new(ErrorKind::BadArgument, arguments.operation.name()).rank(team.job_rank());
            e.cause(format!("algorithm {}: {cause}", algorithm.name))
        };
        let call = Call { parameters: &parameters, ..call };
        let commutes = !algorithm.commutative || arguments.reduction.is_none_or(|r| r.commutative);
        if !checks::applies(algorithm, &call).map_err(wrong)? || !commutes {
            return Err(Error::new(ErrorKind::Unsupported, arguments.operation.name())
                .cause(format!("algorithm {} does not support this call", algorithm.name)));
        }
        let schedule = checks::build(algorithm, &call).map_err(wrong)?;
        let few = team.one_node && team.size() <= short::MAX_RANKS;
        let one_round = few && checks::has_one_round(algorithm, &call).map_err(wrong)?;
        if let Shape::Vector(elements) = arguments.shape {
            let parts = u64::from(schedule.input().count.max(schedule.output().count));
            sizes = (0..parts).map(|b| elements / parts + u64::from(b < elements % parts)).collect();
        }
        let check = Self::check(team, arguments, algorithm, &parameters);
        // Bytes of a block, if all ranks know them.
        let each = match arguments.shape {
            Shape::Vector(n) | Shape::Equal(n) => {
                usize::try_from(n).ok().and_then(|n| n.checked_mul(arguments.element))
            }
            Shape::Each(_) | Shape::Own(_) => None,
        };
        // If ranks share processors, the root of a scatter does not wait for the others.
        let shared = job.is_on_oversubscribed_node();
        let waits = !(shared && arguments.operation == Operation::Scatter);
        let aligned = arguments.reduction.is_none_or(|reduction| reduction.align <= align_of::<u64>());
        let blocks = if arguments.operation.has_block_for_each() { team.size() } else { 1 };
        let is_short = |each: usize| each.checked_mul(blocks).is_some_and(|given| given <= short::max_bytes(shared));
        let short = each.filter(|each| one_round && waits && aligned && is_short(*each));
        let short = short.map(|each| OneRound::of(&schedule, arguments.operation, each)).transpose().map_err(wrong)?;
        let agreed = Agreed {
            bytes: each,
            blocks: if let Shape::Each(sizes) = &arguments.shape { sizes.to_vec() } else { Vec::new() },
            reduction: arguments.reduction.map_or(0, |reduction| reduction.code),
            call: if arguments.purpose.is_empty() { arguments.operation.name() } else { arguments.purpose },
            algorithm: Choice { algorithm, parameters },
            ranks: team.size(),
        };
        Self::prepared(team, arguments, schedule, &sizes, (check, agreed), short).map_err(wrong)
    }

    fn check(team: &Members, arguments: &Arguments<'_>, algorithm: &Algorithm, parameters: &[u32]) -> Check {
        use Operation as O;
        // Sizes that not every rank knows are left out: those of neighbour collectives, and of alltoall, scatter and
        // gather if the blocks differ.
        let element = arguments.element as u64;
        let (bytes, each) = match (&arguments.shape, arguments.operation) {
            (_, O::NeighborAllgather | O::NeighborAlltoall) => (0, &[][..]),
            (Shape::Vector(n) | Shape::Equal(n), _) => (n.wrapping_mul(element), &[][..]),
            (Shape::Each(sizes), O::Allgather | O::ReduceScatter) => (element, &sizes[..]),
            _ => (0, &[][..]),
        };
        let reduction = arguments.reduction.map_or(0, |r| r.code);
        let rest = (&*team.ranks, bytes, each, reduction, arguments.purpose, algorithm.name, parameters);
        Check::new(arguments.operation, arguments.root, rest)
    }

    fn prepared(
        team: &Members,
        arguments: &Arguments<'_>,
        schedule: Schedule,
        sizes: &[u64],
        (check, agreed): (Check, Agreed),
        short: Option<OneRound>,
    ) -> std::result::Result<Self, String> {
        let element = arguments.element;
        let peers = Rc::clone(&team.ranks);
        let starts = |buffer: Buffer| {
            let mut at = 0usize;
            let ends = (0..schedule.blocks_of(buffer)).map(|b| {
                let size = usize::try_from(*sizes.get(schedule.size_of(buffer, b) as usize)?).ok()?;
                at = at.checked_add(size.checked_mul(element)?).filter(|at| isize::try_from(*at).is_ok())?;
                Some(at)
            });
            let starts = std::iter::once(Some(0)).chain(ends).collect::<Option<Vec<_>>>();
            starts.ok_or("the schedule moves more bytes than the address space holds, or has a block without a size")
        };
        let starts = [starts(Buffer::Input)?, starts(Buffer::Output)?, starts(Buffer::Scratch)?];
        let steps: Vec<Step<'_>> = schedule.steps().collect();
        let degrees = steps.iter().map(|s| s.after.len() as u32).collect();
        let mut follower_starts = vec![0u32; steps.len() + 1];
        steps.iter().flat_map(|s| s.after).for_each(|before| follower_starts[*before as usize + 1] += 1);
        for i in 0..steps.len() {
            follower_starts[i + 1] += follower_starts[i];
        }
        let mut next = follower_starts.clone();
        let mut followers = vec![0; follower_starts[steps.len()] as usize];
        for (number, step) in steps.iter().enumerate() {
            for before in step.after {
                let at = &mut next[*before as usize];
                followers[*at as usize] = number as u32;
                *at += 1;
            }
        }
        let bytes = checks::lengths(&schedule, &starts, arguments.may_be_shorter)?;
        let mut expected: Vec<Expected> = steps
            .iter()
            .enumerate()
            .filter_map(|(number, s)| match s.action.message(schedule.rank())? {
                (Port::In, (source, _, tag)) => {
                    Some(Expected { source: peers[source as usize], tag, step: number as u32 })
                }
                (Port::Out, _) => None,
            })
            .collect();
        let lends = steps.iter().any(|s| matches!(s.action, Action::Lend { .. } | Action::Borrow { .. }));
        expected.sort_unstable();
        let mut slots = vec![u32::MAX; steps.len()];
        expected.iter().enumerate().for_each(|(slot, e)| slots[e.step as usize] = slot as u32);
        drop(steps);
        Ok(Self {
            schedule,
            operation: arguments.operation,
            element,
            align: arguments.reduction.map_or(1, |reduction| reduction.align.max(1)),
            starts,
            degrees,
            follower_starts,
            followers,
            bytes,
            expected,
            slots,
            short,
            may_be_shorter: arguments.may_be_shorter,
            lends,
            peers,
            neighbors: [arguments.neighbors.sources, arguments.neighbors.destinations].map(<[u32]>::to_vec),
            check,
            agreed,
        })
    }

    /// Describes a peer's call with another check value, if its operation or root differs.
    pub(super) fn other_call(&self, other: Check) -> Option<String> {
        let (own, name) = (self.check, self.name());
        if own.name() != other.name() {
            return Some(format!("the peer called {} while this rank called {name}", other.name()));
        }
        (own.root() != other.root())
            .then(|| format!("the peer called {name} with root {}, this rank with root {}", other.root(), own.root()))
    }

    /// The properties of the call in the form that another rank compares, truncated to the space that a header leaves.
    pub(super) fn properties(&self) -> String {
        let mut text = self.agreed.to_string();
        text.truncate(PROPERTIES);
        text
    }

    /// Describes how the call of rank `peer` differs from this call of rank `me`. `theirs` are the properties of that
    /// call, or empty if rank `peer` no longer knows them.
    pub(super) fn difference(&self, me: u32, peer: u32, theirs: &str) -> String {
        let own = self.properties();
        let differs = own.lines().zip(theirs.lines()).find(|(own, theirs)| own != theirs);
        match differs.and_then(|(own, theirs)| Some((own.split_once(": ")?, theirs.split_once(": ")?.1))) {
            Some(((name, own), theirs)) => format!("{name}: {theirs} at rank {peer}, {own} at rank {me}"),
            None => format!("the peer's {} does not match this rank's: {}", self.name(), own.replace('\n', ", ")),
        }
    }

    /// Bytes of some slices.
    pub(super) fn bytes_of(&self, slices: &[Slice]) -> usize {
        let bytes = |s: &Slice| {
            let starts = &self.starts[s.buffer as usize];
            starts[(s.first + s.count) as usize] - starts[s.first as usize]
        };
        slices.iter().map(bytes).sum()
    }

    /// The steps that wait for `step`.
    #[inline]
    pub(super) fn followers(&self, step: u32) -> &[u32] {
        let of = |step: u32| self.follower_starts[step as usize] as usize;
        &self.followers[of(step)..of(step + 1)]
    }

    /// The index of an expected message.
    #[inline]
    pub(super) fn slot(&self, source: u32, tag: u32) -> Option<usize> {
        self.expected.binary_search_by_key(&(source, tag), |e| (e.source, e.tag)).ok()
    }

    /// The operation's name, for errors.
    #[inline]
    pub(super) fn name(&self) -> &'static str {
        self.operation.name()
    }
}
