//! Runs the schedules of all ranks symbolically: each block carries whose contributions it holds, in which order, so an
//! algorithm is shown to be right for a number of ranks without a device.
//!
//! Found are: a step that reads a block without content, a result that is not what the operation promises, contributions
//! that are lost, doubled or out of the order of the ranks, messages of unequal shape, messages that nobody sends or
//! receives, tags used twice, steps that touch the same block in no order, and steps that wait for each other for ever, also
//! where a send is complete only when its receive has begun.

use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::{Action, Buffer, Schedule, Side, Slice};
use crate::coll::operation::{Call, Operation};

/// What is wrong with the schedules of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rank at which it shows.
    pub rank: u32,
    /// Its step, if it is one.
    pub step: Option<usize>,
    /// What kind of mistake.
    pub kind: FaultKind,
    /// In words.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)?;
        if let Some(step) = self.step {
            write!(f, ", step {step}")?;
        }
        write!(f, ": {:?}: {}", self.kind, self.what)
    }
}

/// Kinds of mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// A step reads a block that has no content.
    Empty,
    /// A block of the result is not what the operation promises.
    Result,
    /// Contributions of the same rank, or of different blocks, are reduced together.
    Doubled,
    /// Contributions are reduced out of the order of the ranks, and the algorithm does not say so.
    Order,
    /// Two ranks, or two blocks, have results that were put together differently.
    Bracketing,
    /// Blocks of different sizes meet.
    Shape,
    /// A message that only one side knows.
    Unmatched,
    /// A rank leaves a barrier although another may not have come.
    Early,
    /// Two messages between two ranks with the same tag.
    Tag,
    /// Two steps touch a block, one of them writes it, and neither waits for the other.
    Race,
    /// Ranks wait for each other for ever.
    Deadlock,
}

/// What the schedules of a call cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Messages and signals that each rank sends.
    pub messages: Vec<u32>,
    /// Elements that each rank sends, by the given sizes.
    pub elements: Vec<u64>,
    /// Elements that each rank reduces.
    pub reduced: Vec<u64>,
    /// Messages in the longest chain of which each waits for the one before. (The rounds where a rank sends or receives one
    /// message at a time are a prediction: see the predictor.)
    pub chain: u32,
    /// Blocks of scratch of the rank that has most.
    pub scratch: u32,
}

/// Whose contributions a block holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Value {
    /// The block of the input that they are of.
    block: u32,
    /// The ranks: those from `lo` to `hi - 1`, or a set.
    ranks: Ranks,
    /// Of how they were put together.
    tree: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Ranks {
    /// `lo` to `hi - 1`, in order.
    Run(u32, u32),
    /// A set, sorted, reduced in any order.
    Set(Rc<[u32]>),
}

impl Ranks {
    fn to_set(&self) -> Vec<u32> {
        match self {
            Self::Run(lo, hi) => (*lo..*hi).collect(),
            Self::Set(set) => set.to_vec(),
        }
    }
}

fn join(bits: &mut [u64], others: &[u64]) {
    bits.iter_mut().zip(others).for_each(|(b, o)| *b |= o);
}

fn mixed(a: u64, b: u64) -> u64 {
    (a ^ b.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (b >> 7).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

impl Value {
    fn of(block: u32, rank: u32) -> Self {
        Self { block, ranks: Ranks::Run(rank, rank + 1), tree: mixed(1, u64::from(rank)) }
    }

    /// `left ∘ right`.
    fn reduced(left: &Self, right: &Self, commutative: bool) -> Result<Self, FaultKind> {
        if left.block != right.block {
            return Err(FaultKind::Doubled);
        }
        let tree = if commutative {
            mixed(left.tree.min(right.tree), left.tree.max(right.tree))
        } else {
            mixed(left.tree, right.tree)
        };
        let ranks = match (&left.ranks, &right.ranks) {
            (Ranks::Run(lo, at), Ranks::Run(also, hi)) if at == also => Ranks::Run(*lo, *hi),
            (Ranks::Run(at, hi), Ranks::Run(lo, also)) if at == also && commutative => Ranks::Run(*lo, *hi),
            (a, b) => {
                let mut all = a.to_set();
                all.extend(b.to_set());
                all.sort_unstable();
                if all.windows(2).any(|w| w[0] == w[1]) {
                    return Err(FaultKind::Doubled);
                }
                if !commutative {
                    return Err(FaultKind::Order);
                }
                let (lo, hi) = (all[0], all[all.len() - 1] + 1);
                if (hi - lo) as usize == all.len() { Ranks::Run(lo, hi) } else { Ranks::Set(all.into()) }
            }
        };
        Ok(Self { block: left.block, ranks, tree })
    }
}

type Blocks = Vec<Option<Value>>;

/// What a rank has.
struct Memory {
    buffers: [Blocks; 3],
}

impl Memory {
    fn of(&self, buffer: Buffer, block: u32) -> &Option<Value> {
        &self.buffers[buffer as usize][block as usize]
    }

    fn at(&mut self, buffer: Buffer, block: u32) -> &mut Option<Value> {
        &mut self.buffers[buffer as usize][block as usize]
    }
}

/// A message under way.
struct Sent {
    values: Vec<(u64, Option<Value>)>,
    step: usize,
    chain: u32,
    come: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    /// A send whose receive has not begun.
    Started,
    Done,
}

struct Rank {
    state: Vec<State>,
    /// Steps that a step still waits for.
    missing: Vec<u32>,
    /// Steps that wait for a step.
    dependents: Vec<Vec<u32>>,
    chain: Vec<u32>,
    /// By step, of a barrier: the ranks that have come before it is complete, a bit for each.
    come: Vec<Vec<u64>>,
    memory: Memory,
}

struct Run<'a> {
    schedules: &'a [Schedule],
    commutative: bool,
    synchronous: bool,
    barrier: bool,
    sizes: &'a [Vec<u64>],
    ranks: Vec<Rank>,
    ready: VecDeque<(u32, u32)>,
    sent: FxHashMap<(u32, u32, u32), Sent>,
    /// Receives that have begun before their message.
    begun: FxHashMap<(u32, u32, u32), usize>,
    cost: Cost,
}

/// Checks the schedules of all ranks, `schedules[r]` that of rank `r`, for the calls that they were made from. `sizes[r]` has
/// the elements of each size number at rank `r`, or is empty where all blocks have one. `commutative` is that of the
/// algorithm.
///
/// # Errors
/// The first fault that was found.
pub fn check(calls: &[Call<'_>], schedules: &[Schedule], commutative: bool, sizes: &[Vec<u64>]) -> Result<Cost, Fault> {
    for schedule in schedules {
        ordered(schedule)?;
    }
    // Sends that wait for their receives find deadlocks; the values are the same either way.
    Run::new(calls, schedules, commutative, sizes, true).run(calls)?;
    Run::new(calls, schedules, commutative, sizes, false).run(calls)
}

/// Whether steps that touch a block are ordered.
fn ordered(schedule: &Schedule) -> Result<(), Fault> {
    let n = schedule.len();
    let words = n.div_ceil(64);
    let mut before = vec![0u64; n * words];
    // By block: the last writer, and readers since.
    let of = |b: Buffer| vec![(None::<usize>, Vec::<usize>::new()); schedule.blocks_of(b) as usize];
    let mut touched = [of(Buffer::Input), of(Buffer::Output), of(Buffer::Scratch)];
    for (i, step) in schedule.steps().enumerate() {
        for dep in step.after {
            let dep = *dep as usize;
            let fault = |what: String| Fault { rank: schedule.rank(), step: Some(i), kind: FaultKind::Deadlock, what };
            if dep >= i {
                return Err(fault(format!("waits for step {dep}")));
            }
            let (earlier, own) = before.split_at_mut(i * words);
            own[..words].iter_mut().zip(&earlier[dep * words..][..words]).for_each(|(o, e)| *o |= e);
            own[dep / 64] |= 1 << (dep % 64);
        }
        let own = &before[i * words..][..words];
        let race = |other: usize, slice: &Slice, block: u32| Fault {
            rank: schedule.rank(),
            step: Some(i),
            kind: FaultKind::Race,
            what: format!("and step {other} touch block {block} of the {:?}, in no order", slice.buffer),
        };
        let is_before = |other: usize| other == i || own[other / 64] >> (other % 64) & 1 == 1;
        for slice in step.from {
            for block in slice.blocks() {
                let (writer, readers) = &mut touched[slice.buffer as usize][block as usize];
                if let Some(w) = writer.filter(|w| !is_before(*w)) {
                    return Err(race(w, slice, block));
                }
                readers.push(i);
            }
        }
        for slice in step.into {
            for block in slice.blocks() {
                let (writer, readers) = &mut touched[slice.buffer as usize][block as usize];
                if let Some(other) = writer.iter().chain(&*readers).find(|o| !is_before(**o)) {
                    return Err(race(*other, slice, block));
                }
                *writer = Some(i);
                readers.clear();
            }
        }
    }
    Ok(())
}

impl<'a> Run<'a> {
    fn new(
        calls: &[Call<'_>],
        schedules: &'a [Schedule],
        commutative: bool,
        sizes: &'a [Vec<u64>],
        synchronous: bool,
    ) -> Self {
        let p = schedules.len();
        let rank = |(s, call): (&Schedule, &Call<'_>)| {
            let mut dependents = vec![Vec::new(); s.len()];
            let mut missing = vec![0; s.len()];
            for (i, step) in s.steps().enumerate() {
                missing[i] = step.after.len() as u32;
                step.after.iter().for_each(|d| dependents[*d as usize].push(i as u32));
            }
            let empty = |b: Buffer| vec![None; s.blocks_of(b) as usize];
            let mut memory = Memory { buffers: [empty(Buffer::Input), empty(Buffer::Output), empty(Buffer::Scratch)] };
            initial(call, &mut memory);
            let come = vec![Vec::new(); s.len()];
            Rank { state: vec![State::Waiting; s.len()], missing, dependents, chain: vec![0; s.len()], come, memory }
        };
        let cost = Cost {
            messages: vec![0; p],
            elements: vec![0; p],
            reduced: vec![0; p],
            chain: 0,
            scratch: schedules.iter().map(|s| s.scratch().len() as u32).max().unwrap_or(0),
        };
        let ranks: Vec<Rank> = schedules.iter().zip(calls).map(rank).collect();
        let (ready, sent, begun) = Default::default();
        let barrier = calls.first().is_some_and(|c| c.operation == Operation::Barrier);
        Self { schedules, commutative, synchronous, barrier, sizes, ranks, ready, sent, begun, cost }
    }

    fn run(mut self, calls: &[Call<'_>]) -> Result<Cost, Fault> {
        for r in 0..self.ranks.len() {
            let free = (0..self.ranks[r].missing.len()).filter(|i| self.ranks[r].missing[*i] == 0);
            self.ready.extend(free.map(|i| (r as u32, i as u32)));
        }
        while let Some((r, i)) = self.ready.pop_front() {
            self.start(r as usize, i as usize)?;
        }
        self.ended()?;
        for (r, call) in calls.iter().enumerate() {
            self.promised(r, calls)?;
            if call.operation == Operation::Barrier {
                self.all_have_come(r)?;
            }
        }
        self.alike(calls)?;
        Ok(self.cost)
    }

    fn fault(&self, rank: usize, step: usize, kind: FaultKind, what: String) -> Fault {
        Fault {
            rank: rank as u32,
            step: Some(step),
            kind,
            what: format!("{what} ({:?})", self.schedules[rank].step(step)),
        }
    }

    /// Contents of blocks, and their size numbers.
    /// Elements of a block of size number `number` at rank `r`, or 1 where sizes are not known.
    fn count(&self, r: usize, number: u32) -> u64 {
        self.sizes.get(r).and_then(|s| s.get(number as usize)).copied().unwrap_or(1)
    }

    /// Elements and content of blocks.
    fn values(&self, r: usize, slices: &[Slice]) -> Vec<(u64, Option<Value>)> {
        let s = &self.schedules[r];
        let blocks = slices.iter().flat_map(|slice| slice.blocks().map(|b| (slice.buffer, b)));
        let of = |(buffer, b)| (self.count(r, s.size_of(buffer, b)), self.ranks[r].memory.of(buffer, b).clone());
        blocks.map(of).collect()
    }

    fn elements(&self, r: usize, slices: &[Slice]) -> u64 {
        let s = &self.schedules[r];
        slices.iter().flat_map(|slice| slice.blocks().map(|b| self.count(r, s.size_of(slice.buffer, b)))).sum()
    }

    fn start(&mut self, r: usize, i: usize) -> Result<(), Fault> {
        let step = self.schedules[r].step(i);
        let chain = step.after.iter().map(|d| self.ranks[r].chain[*d as usize]).max().unwrap_or(0);
        self.ranks[r].chain[i] = chain;
        let mut come = Vec::new();
        if self.barrier {
            come = vec![0; self.ranks.len().div_ceil(64)];
            come[r / 64] |= 1 << (r % 64);
            step.after.iter().for_each(|d| join(&mut come, &self.ranks[r].come[*d as usize]));
            self.ranks[r].come[i].clone_from(&come);
        }
        match step.action {
            Action::Send { to, tag } | Action::Signal { to, tag } => {
                let values = self.values(r, step.from);
                if values.iter().any(|(n, v)| *n > 0 && v.is_none()) {
                    return Err(self.fault(r, i, FaultKind::Empty, "sends a block without content".into()));
                }
                self.cost.messages[r] += 1;
                self.cost.elements[r] += self.elements(r, step.from);
                let key = (r as u32, to, tag);
                let sent = Sent { values, step: i, chain: chain + 1, come };
                if self.sent.insert(key, sent).is_some() {
                    return Err(self.fault(r, i, FaultKind::Tag, format!("a second message with tag {tag} to {to}")));
                }
                // A signal is complete when it is set.
                if !self.synchronous || matches!(step.action, Action::Signal { .. }) {
                    self.complete(r, i);
                } else {
                    self.ranks[r].state[i] = State::Started;
                }
                if let Some(receive) = self.begun.remove(&key) {
                    self.receive(to as usize, receive, key)?;
                }
            }
            Action::Receive { source, tag }
            | Action::ReceiveReduce { source, tag, .. }
            | Action::Await { source, tag } => {
                let key = (source, r as u32, tag);
                if self.sent.contains_key(&key) {
                    self.receive(r, i, key)?;
                } else if self.begun.insert(key, i).is_some() {
                    return Err(self.fault(r, i, FaultKind::Tag, format!("a second receive of tag {tag}")));
                }
            }
            Action::Reduce { side } => {
                let operands = self.values(r, step.from);
                self.reduce(r, i, &operands, side)?;
                self.complete(r, i);
            }
            Action::Copy => {
                let values = self.values(r, step.from);
                self.store(r, i, values)?;
                self.complete(r, i);
            }
        }
        Ok(())
    }

    /// A message meets its receive.
    fn receive(&mut self, r: usize, i: usize, key: (u32, u32, u32)) -> Result<(), Fault> {
        let Some(sent) = self.sent.get_mut(&key) else {
            return Err(self.fault(r, i, FaultKind::Unmatched, "no message".into()));
        };
        let values = std::mem::take(&mut sent.values);
        let (send, chain, come) = (sent.step, sent.chain, std::mem::take(&mut sent.come));
        let source = key.0 as usize;
        if sent.step == usize::MAX {
            return Err(self.fault(r, i, FaultKind::Tag, format!("a second receive of tag {}", key.2)));
        }
        sent.step = usize::MAX;
        let step = self.schedules[r].step(i);
        let is_signal = matches!(self.schedules[source].step(send).action, Action::Signal { .. });
        if is_signal != matches!(step.action, Action::Await { .. }) {
            return Err(self.fault(
                r,
                i,
                FaultKind::Unmatched,
                "a signal meets a receive, or a message an await".into(),
            ));
        }
        let at = &mut self.ranks[r].chain[i];
        *at = (*at).max(chain);
        join(&mut self.ranks[r].come[i], &come);
        self.cost.chain = self.cost.chain.max(chain);
        match step.action {
            Action::Receive { .. } => self.store(r, i, values)?,
            Action::ReceiveReduce { side, .. } => self.reduce(r, i, &values, side)?,
            _ => {}
        }
        self.complete(r, i);
        if self.ranks[source].state[send] == State::Started {
            self.complete(source, send);
        }
        Ok(())
    }

    fn blocks_into(&self, r: usize, i: usize, n: usize) -> Result<Vec<(Buffer, u32)>, Fault> {
        let step = self.schedules[r].step(i);
        let blocks: Vec<_> = step.into.iter().flat_map(|s| s.blocks().map(|b| (s.buffer, b))).collect();
        if blocks.len() == n {
            Ok(blocks)
        } else {
            Err(self.fault(r, i, FaultKind::Shape, format!("{n} blocks come for {}", blocks.len())))
        }
    }

    /// Whether a block has as many elements as what comes for it.
    fn fits(&self, r: usize, i: usize, elements: u64, buffer: Buffer, block: u32) -> Result<(), Fault> {
        let own = self.count(r, self.schedules[r].size_of(buffer, block));
        if own == elements {
            return Ok(());
        }
        Err(self.fault(r, i, FaultKind::Shape, format!("{elements} elements for block {block} of {own}")))
    }

    fn store(&mut self, r: usize, i: usize, values: Vec<(u64, Option<Value>)>) -> Result<(), Fault> {
        for ((buffer, block), (n, value)) in self.blocks_into(r, i, values.len())?.into_iter().zip(values) {
            if n > 0 && value.is_none() {
                return Err(self.fault(r, i, FaultKind::Empty, "reads a block without content".into()));
            }
            self.fits(r, i, n, buffer, block)?;
            *self.ranks[r].memory.at(buffer, block) = value;
        }
        Ok(())
    }

    fn reduce(&mut self, r: usize, i: usize, operands: &[(u64, Option<Value>)], side: Side) -> Result<(), Fault> {
        self.cost.reduced[r] += self.elements(r, self.schedules[r].step(i).into);
        for ((buffer, block), (n, operand)) in self.blocks_into(r, i, operands.len())?.into_iter().zip(operands) {
            self.fits(r, i, *n, buffer, block)?;
            if *n == 0 {
                continue;
            }
            let own = self.ranks[r].memory.at(buffer, block).clone();
            let (Some(operand), Some(own)) = (operand, own) else {
                return Err(self.fault(r, i, FaultKind::Empty, "reduces a block without content".into()));
            };
            let (left, right) = if side == Side::Left { (operand, &own) } else { (&own, operand) };
            let reduced = Value::reduced(left, right, self.commutative);
            let reduced = reduced.map_err(|kind| self.fault(r, i, kind, format!("{left:?} and {right:?}")))?;
            *self.ranks[r].memory.at(buffer, block) = Some(reduced);
        }
        Ok(())
    }

    fn complete(&mut self, r: usize, i: usize) {
        let rank = &mut self.ranks[r];
        rank.state[i] = State::Done;
        for d in std::mem::take(&mut rank.dependents[i]) {
            rank.missing[d as usize] -= 1;
            if rank.missing[d as usize] == 0 {
                self.ready.push_back((r as u32, d));
            }
        }
    }

    /// All steps are done, and all messages were received.
    fn ended(&self) -> Result<(), Fault> {
        let key = |r: usize, i: usize| match self.schedules[r].step(i).action {
            Action::Send { to, tag } | Action::Signal { to, tag } => Some((r as u32, to, tag)),
            Action::Receive { source, tag }
            | Action::ReceiveReduce { source, tag, .. }
            | Action::Await { source, tag } => Some((source, r as u32, tag)),
            _ => None,
        };
        // A message of which the other side has no step at all is a clearer fault than what waits for it.
        let mut sides: FxHashMap<(u32, u32, u32), (usize, usize, u32)> = FxHashMap::default();
        for r in 0..self.ranks.len() {
            for i in 0..self.ranks[r].state.len() {
                if let Some(key) = key(r, i) {
                    sides.entry(key).or_insert((r, i, 0)).2 += 1;
                }
            }
        }
        if let Some((_, (r, i, _))) = sides.iter().filter(|(_, (.., n))| *n != 2).min_by_key(|(key, _)| **key) {
            return Err(self.fault(*r, *i, FaultKind::Unmatched, "only one side has this message".into()));
        }
        for (r, rank) in self.ranks.iter().enumerate() {
            if let Some(i) = rank.state.iter().position(|s| *s != State::Done) {
                return Err(self.fault(r, i, FaultKind::Deadlock, "never ends".into()));
            }
        }
        Ok(())
    }

    /// Whether the output is what the operation promises. Blocks without elements may be left out.
    fn promised(&self, r: usize, calls: &[Call<'_>]) -> Result<(), Fault> {
        use Operation as O;
        let call = &calls[r];
        let (p, rank, root) = (call.size, call.rank, call.root);
        let whole = |value: &Value, b: u32, hi: u32| value.block == b && value.ranks == Ranks::Run(0, hi);
        let own =
            |value: &Value, block: u32, rank: u32| value.block == block && value.ranks == Ranks::Run(rank, rank + 1);
        // Equal edges of a graph keep their order: of those from a source, the nth here is the nth there to this rank.
        let edge = |i: usize| {
            let source = call.neighbors.sources[i];
            let earlier = call.neighbors.sources[..i].iter().filter(|s| **s == source).count();
            let there = calls[source as usize].neighbors.destinations.iter().enumerate();
            let (block, _) = there.filter(|(_, d)| **d == rank).nth(earlier).unwrap_or((usize::MAX, &0));
            (source, block as u32)
        };
        for (b, value) in self.ranks[r].memory.buffers[Buffer::Output as usize].iter().enumerate() {
            let b32 = b as u32;
            if self.count(r, self.schedules[r].size_of(Buffer::Output, b32)) == 0 {
                continue;
            }
            let right = |v: &Value| match call.operation {
                O::Barrier => true,
                O::Broadcast => own(v, b32, root),
                O::Scatter => call.in_place && rank == root || own(v, rank, root),
                O::Gather | O::Allgather => own(v, b32, b32),
                O::Alltoall => own(v, rank, b32),
                O::Reduce | O::Allreduce => whole(v, b32, p),
                O::ReduceScatter => whole(v, rank, p),
                O::Scan => whole(v, b32, rank + 1),
                O::Exscan => rank == 0 || whole(v, b32, rank),
                O::NeighborAllgather => own(v, 0, edge(b).0),
                O::NeighborAlltoall => own(v, edge(b).1, edge(b).0),
            };
            let idle = call.operation == O::Exscan && rank == 0
                || call.operation == O::Scatter && call.in_place && rank == root;
            if value.as_ref().map_or(!idle, |v| !right(v)) {
                let what = format!("block {b} of the output of {} is {value:?}", call.operation.name());
                return Err(Fault { rank, step: None, kind: FaultKind::Result, what });
            }
        }
        Ok(())
    }

    /// A rank that has done all its steps knows that every rank has come.
    fn all_have_come(&self, r: usize) -> Result<(), Fault> {
        let mut come = vec![0; self.ranks.len().div_ceil(64)];
        come[r / 64] |= 1 << (r % 64);
        self.ranks[r].come.iter().for_each(|c| join(&mut come, c));
        match (0..self.ranks.len()).find(|other| come[other / 64] >> (other % 64) & 1 == 0) {
            None => Ok(()),
            Some(other) => {
                let what = format!("leaves although rank {other} may not have come");
                Err(Fault { rank: r as u32, step: None, kind: FaultKind::Early, what })
            }
        }
    }

    /// Results that must have the same bits were put together alike.
    fn alike(&mut self, calls: &[Call<'_>]) -> Result<(), Fault> {
        if calls.first().is_none_or(|c| c.operation != Operation::Allreduce) {
            return Ok(());
        }
        let first = self.ranks[0].memory.buffers[Buffer::Output as usize].clone();
        for r in 1..self.ranks.len() {
            let own = &self.ranks[r].memory.buffers[Buffer::Output as usize];
            let differs =
                first.iter().zip(own).position(|(a, b)| a.as_ref().map(|v| v.tree) != b.as_ref().map(|v| v.tree));
            if let Some(block) = differs {
                let what = format!("block {block} was put together in another way than at rank 0");
                return Err(Fault { rank: r as u32, step: None, kind: FaultKind::Bracketing, what });
            }
        }
        Ok(())
    }
}

/// The content of the buffers at the start.
fn initial(call: &Call<'_>, memory: &mut Memory) {
    use Operation as O;
    let [input, output, _] = &mut memory.buffers;
    let (rank, root) = (call.rank, call.root);
    let fill = |blocks: &mut Blocks| {
        for (b, at) in blocks.iter_mut().enumerate() {
            *at = Some(Value::of(b as u32, rank));
        }
    };
    match call.operation {
        O::Broadcast if rank == root => fill(output),
        O::Gather | O::Allgather => {
            input[0] = Some(Value::of(rank, rank));
            if call.in_place && (call.operation == O::Allgather || rank == root) {
                output[rank as usize] = Some(Value::of(rank, rank));
            }
        }
        O::Reduce | O::Allreduce | O::Scan | O::Exscan => {
            fill(input);
            if call.in_place && (call.operation != O::Reduce || rank == root) {
                fill(output);
            }
        }
        _ => fill(input),
    }
    if call.in_place && !matches!(call.operation, O::Broadcast | O::Scatter) {
        // What stands in the output is not read by another name.
        if memory.buffers[Buffer::Output as usize].iter().any(Option::is_some) {
            memory.buffers[Buffer::Input as usize].iter_mut().for_each(|b| *b = None);
        }
    }
}

/// Builds and checks an algorithm for one call, given as `of(rank)`.
///
/// # Errors
/// The first fault that was found.
pub fn check_algorithm<'a>(
    algorithm: &crate::coll::operation::Algorithm,
    of: impl Fn(u32) -> Call<'a>,
    sizes: &[Vec<u64>],
) -> Result<Cost, Fault> {
    let calls: Vec<Call<'_>> = (0..of(0).size).map(of).collect();
    let schedules: Vec<Schedule> = calls.iter().map(algorithm.build).collect();
    check(&calls, &schedules, algorithm.commutative, sizes)
}
