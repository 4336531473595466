//! Symbolic execution of the steps of all ranks.

use std::collections::VecDeque;
use std::fmt;

use super::graph::{Graph, Node};
use super::results::{self, Memory};
use super::value::{Sets, Value};
use super::{Cost, Fault, FaultKind};
use crate::operation::{Call, Operation};
use crate::schedule::{Action, Buffer, Port, Side, Slice, Step};

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    /// A side of a message whose other side may not have begun.
    Begun,
    Done,
}

/// A block that a step moves. A block without elements needs no content.
#[derive(Clone, Copy)]
struct Moved {
    size: u32,
    elements: u64,
    value: Option<Value>,
}

/// A send completes only when its receive has begun, so that the check finds deadlocks that buffers would hide; a
/// signal completes when it is set. Schedules that end in this model also end if sends complete sooner, with the same
/// values, since steps that access the same block are ordered.
pub(crate) struct Run<'a> {
    calls: &'a [Call<'a>],
    graph: &'a Graph<'a>,
    commutative: bool,
    sizes: &'a [Vec<u64>],
    /// Whether size numbers have the same meaning at all ranks.
    numbered_alike: bool,
    state: Vec<State>,
    /// For each step: the number of steps that it still waits for.
    missing: Vec<u32>,
    /// For each step: messages in the longest chain up to it.
    chain: Vec<u32>,
    /// In a barrier, for each step: the ranks that have arrived before it is complete, one bit each in `words` words.
    arrived: Vec<u64>,
    words: usize,
    memories: Vec<Memory>,
    sets: Sets,
    ready: VecDeque<Node>,
    /// The steps in which ranks wait in the in-switch barrier.
    in_switch: Vec<Node>,
    moved: Vec<Moved>,
    cost: Cost,
}

impl<'a> Run<'a> {
    pub(crate) fn new(calls: &'a [Call<'a>], graph: &'a Graph<'a>, commutative: bool, sizes: &'a [Vec<u64>]) -> Self {
        let p = graph.schedules.len();
        let operation = calls.first().map_or(Operation::Barrier, |c| c.operation);
        let own = matches!(operation, Operation::Alltoall | Operation::NeighborAllgather | Operation::NeighborAlltoall);
        let words = if operation == Operation::Barrier { p.div_ceil(64) } else { 0 };
        let cost = Cost {
            messages: vec![0; p],
            elements: vec![0; p],
            reduced: vec![0; p],
            scratch: graph.schedules.iter().map(|s| s.scratch().len() as u32).max().unwrap_or(0),
            ..Cost::default()
        };
        let missing = graph.schedules.iter().flat_map(|s| s.steps().map(|step| step.after.len() as u32)).collect();
        Self {
            calls,
            graph,
            commutative,
            sizes,
            numbered_alike: !own,
            state: vec![State::Waiting; graph.len()],
            missing,
            chain: vec![0; graph.len()],
            arrived: vec![0; graph.len() * words],
            words,
            memories: graph.schedules.iter().zip(calls).map(|(s, call)| Memory::new(call, s)).collect(),
            sets: Sets::default(),
            ready: graph
                .nodes()
                .filter(|(r, i)| graph.schedules[*r as usize].step(*i as usize).after.is_empty())
                .collect(),
            in_switch: Vec::new(),
            moved: Vec::new(),
            cost,
        }
    }

    pub(crate) fn run(mut self) -> Result<Cost, Fault> {
        let mut done = 0;
        while let Some(node) = self.ready.pop_front() {
            done += self.start(node)?;
        }
        if done < self.graph.len() {
            // The fault is reported at a step that waits only for the other side of its message, if there is one.
            let stuck = |n: &Node| self.state[self.graph.index(*n)] != State::Done;
            let begun = |n: &Node| self.state[self.graph.index(*n)] == State::Begun;
            let node = self.graph.nodes().find(begun).or_else(|| self.graph.nodes().find(stuck));
            return Err(self.fault(node.unwrap_or_default(), FaultKind::Deadlock, "never ends"));
        }
        for r in 0..self.words.min(1) * self.calls.len() {
            self.check_barrier(r)?;
        }
        let has_elements =
            |r: u32, b: u32| self.count(r, self.graph.schedules[r as usize].size_of(Buffer::Output, b)) > 0;
        self.cost.same_bracketing = results::check_results(self.calls, &self.memories, has_elements)?;
        Ok(self.cost)
    }

    fn fault(&self, (r, i): Node, kind: FaultKind, what: impl fmt::Display) -> Fault {
        Fault::at(&self.graph.schedules[r as usize], i as usize, kind, what)
    }

    /// Elements of a block of size number `size` at a rank, or 1 if sizes are not known.
    fn count(&self, r: u32, size: u32) -> u64 {
        self.sizes.get(r as usize).and_then(|s| s.get(size as usize)).copied().unwrap_or(1)
    }

    /// Starts a step. Returns the number of steps that this completes.
    fn start(&mut self, node: Node) -> Result<usize, Fault> {
        let (graph, at) = (self.graph, self.graph.index(node));
        let step = graph.schedules[node.0 as usize].step(node.1 as usize);
        self.follow(node, step.after);
        if step.action == Action::EnterSwitch {
            return self.enter_switch(node);
        }
        let Some((port, _)) = step.action.message(node.0) else {
            self.access(node, step)?;
            self.complete(node);
            return Ok(1);
        };
        self.state[at] = State::Begun;
        let mut done = 0;
        if port == Port::Out {
            self.cost.messages[node.0 as usize] += 1;
            if matches!(step.action, Action::Signal { .. } | Action::Lend { .. } | Action::Return { .. }) {
                self.complete(node);
                done += 1;
            }
        }
        let partner = graph.partner(node);
        if self.state[graph.index(partner)] == State::Waiting {
            return Ok(done);
        }
        let (out, into) = if port == Port::Out { (node, partner) } else { (partner, node) };
        self.arrive(out, into);
        if let Action::Send { .. } = graph.action(out) {
            self.load(out, graph.schedules[out.0 as usize].step(out.1 as usize).from)?;
            self.send_moved(out.0);
            self.apply(into, into, graph.schedules[into.0 as usize].step(into.1 as usize).into)?;
        }
        self.complete(into);
        if self.state[graph.index(out)] == State::Begun {
            self.complete(out);
            done += 1;
        }
        Ok(done + 1)
    }

    /// Enters the in-switch barrier. The last rank lets all ranks continue. Returns the number of steps that this
    /// completes.
    fn enter_switch(&mut self, node: Node) -> Result<usize, Fault> {
        if self.in_switch.iter().any(|other| other.0 == node.0) {
            return Err(self.fault(node, FaultKind::Tag, "the rank is in the barrier of the switch already"));
        }
        self.state[self.graph.index(node)] = State::Begun;
        self.cost.messages[node.0 as usize] += 1;
        self.in_switch.push(node);
        if self.in_switch.len() < self.graph.schedules.len() {
            return Ok(0);
        }
        let all = std::mem::take(&mut self.in_switch);
        let (last, at) = (self.graph.index(node), all.iter().map(|other| self.graph.index(*other)));
        for other in at.clone() {
            self.join(last, other);
        }
        let chain = at.clone().map(|other| self.chain[other] + 2).max().unwrap_or(0);
        self.cost.chain = self.cost.chain.max(chain);
        for other in at {
            self.join(other, last);
            self.chain[other] = chain;
        }
        all.iter().for_each(|other| self.complete(*other));
        Ok(all.len())
    }

    /// Moves the data of a step without a message: within its rank, or between its rank and memory that is lent to it.
    fn access(&mut self, node: Node, step: Step<'_>) -> Result<(), Fault> {
        let graph = self.graph;
        let Some(lend) = graph.lend(node)? else {
            self.load(node, step.from)?;
            return self.apply(node, node, step.into);
        };
        let lent = graph.schedules[lend.0 as usize].step(lend.1 as usize);
        let first = step.action.loan().map_or(0, |(_, first)| first);
        let part = |lent: &[Slice], own: &[Slice]| Slice::part_of(lent, first, own.iter().map(|s| s.count).sum());
        if let Action::Write { .. } = step.action {
            self.load(node, step.from)?;
            self.send_moved(node.0);
            return self.apply(node, lend, &part(lent.into, step.from));
        }
        self.load(lend, &part(lent.from, step.into))?;
        self.send_moved(lend.0);
        self.apply(node, node, step.into)
    }

    /// Counts the blocks in `moved` as sent by a rank.
    fn send_moved(&mut self, rank: u32) {
        self.cost.elements[rank as usize] += self.moved.iter().map(|m| m.elements).sum::<u64>();
    }

    /// Adds to a step the knowledge of the steps in `after`, which precede it.
    fn follow(&mut self, node: Node, after: &[u32]) {
        let at = self.graph.index(node);
        for dep in after {
            let before = self.graph.index((node.0, *dep));
            self.chain[at] = self.chain[at].max(self.chain[before]);
            self.join(at, before);
        }
        if self.words > 0 {
            self.arrived[at * self.words + node.0 as usize / 64] |= 1 << (node.0 % 64);
        }
    }

    /// Adds the knowledge of the sending step to the receiving step.
    fn arrive(&mut self, out: Node, into: Node) {
        let (from, at) = (self.graph.index(out), self.graph.index(into));
        self.chain[at] = self.chain[at].max(self.chain[from] + 1);
        self.cost.chain = self.cost.chain.max(self.chain[at]);
        self.join(at, from);
    }

    fn join(&mut self, at: usize, before: usize) {
        for w in 0..self.words {
            self.arrived[at * self.words + w] |= self.arrived[before * self.words + w];
        }
    }

    /// Loads the contents of blocks into `moved`.
    fn load(&mut self, node: Node, from: &[Slice]) -> Result<(), Fault> {
        let schedule = &self.graph.schedules[node.0 as usize];
        self.moved.clear();
        for (buffer, b) in from.iter().flat_map(|s| s.blocks().map(|b| (s.buffer, b))) {
            let size = schedule.size_of(buffer, b);
            let elements = self.count(node.0, size);
            let value = *self.memories[node.0 as usize].at(buffer, b);
            if value.is_none() && elements > 0 {
                let what = format!("reads block {b} of the {buffer:?}, which has no content");
                return Err(self.fault(node, FaultKind::Empty, what));
            }
            self.moved.push(Moved { size, elements, value });
        }
        Ok(())
    }

    /// Stores or reduces the contents in `moved` into blocks of the rank of step `at`; `node` is the step that does so.
    fn apply(&mut self, node: Node, at: Node, into: &[Slice]) -> Result<(), Fault> {
        let wanted = into.iter().map(|s| s.count as usize).sum::<usize>();
        if wanted != self.moved.len() {
            let what = format!("{} blocks arrive for {wanted}", self.moved.len());
            return Err(self.fault(node, FaultKind::Shape, what));
        }
        let side = match self.graph.action(node) {
            Action::ReceiveReduce { side, .. } | Action::Reduce { side } | Action::ReadReduce { side, .. } => {
                Some(side)
            }
            _ => None,
        };
        let blocks = into.iter().flat_map(|s| s.blocks().map(|b| (s.buffer, b)));
        for (place, (buffer, b)) in blocks.enumerate() {
            let moved = self.moved[place];
            self.fits(at, moved, buffer, b)?;
            let own = *self.memories[at.0 as usize].at(buffer, b);
            let value = match side {
                Some(side) if moved.elements > 0 => {
                    self.cost.reduced[node.0 as usize] += moved.elements;
                    Some(self.reduced(node, moved.value, own, side)?)
                }
                _ => moved.value,
            };
            *self.memories[at.0 as usize].at(buffer, b) = value;
        }
        Ok(())
    }

    fn reduced(&mut self, node: Node, operand: Option<Value>, own: Option<Value>, side: Side) -> Result<Value, Fault> {
        let Some((operand, own)) = operand.zip(own) else {
            return Err(self.fault(node, FaultKind::Empty, "reduces into a block without content"));
        };
        let (left, right) = if side == Side::Left { (operand, own) } else { (own, operand) };
        Value::reduced(left, right, self.commutative, &mut self.sets)
            .map_err(|kind| self.fault(node, kind, format_args!("{left:?} and {right:?}")))
    }

    /// Checks that a block has as many elements as another, or, if sizes are not known and all ranks number them in the
    /// same way, the same size number.
    fn fits(&self, node: Node, moved: Moved, buffer: Buffer, block: u32) -> Result<(), Fault> {
        let size = self.graph.schedules[node.0 as usize].size_of(buffer, block);
        let elements = self.count(node.0, size);
        let alike = !self.sizes.is_empty() || !self.numbered_alike || size == moved.size;
        if alike && elements == moved.elements {
            return Ok(());
        }
        let Moved { size: from, elements: arrived, .. } = moved;
        let what = format!("size {from}, {arrived} elements, for block {block} of size {size}, {elements} elements");
        Err(self.fault(node, FaultKind::Shape, what))
    }

    fn complete(&mut self, node: Node) {
        let graph = self.graph;
        self.state[graph.index(node)] = State::Done;
        for d in graph.dependents(node) {
            let missing = &mut self.missing[graph.index((node.0, *d))];
            *missing -= 1;
            if *missing == 0 {
                self.ready.push_back((node.0, *d));
            }
        }
    }

    /// Checks that a rank that has executed all its steps knows that every rank has arrived.
    fn check_barrier(&self, r: usize) -> Result<(), Fault> {
        let mut arrived = vec![0; self.words];
        arrived[r / 64] |= 1u64 << (r % 64);
        for i in 0..self.graph.schedules[r].len() {
            let own = &self.arrived[self.graph.index((r as u32, i as u32)) * self.words..][..self.words];
            arrived.iter_mut().zip(own).for_each(|(c, o)| *c |= o);
        }
        match (0..self.calls.len()).find(|other| arrived[other / 64] >> (other % 64) & 1 == 0) {
            None => Ok(()),
            Some(other) => {
                let what = format!("leaves although rank {other} may not have arrived");
                Err(Fault { rank: r as u32, step: None, kind: FaultKind::Early, description: what })
            }
        }
    }
}
