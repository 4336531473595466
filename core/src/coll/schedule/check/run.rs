//! Moves symbols through the steps of all ranks.

use std::collections::VecDeque;
use std::fmt;

use super::graph::{Graph, Node, Port};
use super::results::{self, Memory};
use super::value::{Sets, Value};
use super::{Cost, Fault, FaultKind};
use crate::coll::operation::{Call, Operation};
use crate::coll::schedule::{Action, Side, Slice};

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    /// A side of a message whose other side may not have begun.
    Begun,
    Done,
}

/// A send is complete only when its receive has begun, so that a deadlock shows that would be hidden by buffers; a signal
/// when it is set. What ends so ends where sends complete sooner, with the same values: steps that touch a block are ordered.
pub struct Run<'a> {
    calls: &'a [Call<'a>],
    graph: &'a Graph<'a>,
    commutative: bool,
    sizes: &'a [Vec<u64>],
    /// Whether size numbers are counted alike at all ranks.
    numbered_alike: bool,
    state: Vec<State>,
    /// Steps that a step still waits for.
    missing: Vec<u32>,
    /// Messages in the longest chain up to a step.
    chain: Vec<u32>,
    /// Of a barrier: the ranks that have come before a step is complete, a bit for each, `words` for a step.
    come: Vec<u64>,
    words: usize,
    memories: Vec<Memory>,
    sets: Sets,
    ready: VecDeque<Node>,
    /// Blocks that a step moves: their size numbers and contents.
    moved: Vec<(u32, Value)>,
    cost: Cost,
}

impl<'a> Run<'a> {
    pub fn new(calls: &'a [Call<'a>], graph: &'a Graph<'a>, commutative: bool, sizes: &'a [Vec<u64>]) -> Self {
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
            come: vec![0; graph.len() * words],
            words,
            memories: graph.schedules.iter().zip(calls).map(|(s, call)| Memory::new(call, s)).collect(),
            sets: Sets::default(),
            ready: graph
                .nodes()
                .filter(|(r, i)| graph.schedules[*r as usize].step(*i as usize).after.is_empty())
                .collect(),
            moved: Vec::new(),
            cost,
        }
    }

    pub fn run(mut self) -> Result<Cost, Fault> {
        let mut done = 0;
        while let Some(node) = self.ready.pop_front() {
            done += self.start(node)?;
        }
        if done < self.graph.len() {
            // The step that others wait for is one of which nothing is missing.
            let stuck = |n: &Node| self.state[self.graph.index(*n)] != State::Done;
            let begun = |n: &Node| self.state[self.graph.index(*n)] == State::Begun;
            let node = self.graph.nodes().find(begun).or_else(|| self.graph.nodes().find(stuck));
            return Err(self.fault(node.unwrap_or_default(), FaultKind::Deadlock, "never ends"));
        }
        for r in 0..self.words.min(1) * self.calls.len() {
            self.all_have_come(r)?;
        }
        self.cost.same_bracketing = results::promised(self.calls, &self.memories)?;
        Ok(self.cost)
    }

    fn fault(&self, (r, i): Node, kind: FaultKind, what: impl fmt::Display) -> Fault {
        Fault::at(&self.graph.schedules[r as usize], i as usize, kind, what)
    }

    fn elements(&self, r: u32, slices: &[Slice]) -> u64 {
        match self.sizes.get(r as usize) {
            Some(sizes) if !sizes.is_empty() => self.graph.schedules[r as usize].elements(slices, sizes),
            _ => slices.iter().map(|s| u64::from(s.count)).sum(),
        }
    }

    /// Starts a step: gives the number of steps that are complete by this.
    fn start(&mut self, node: Node) -> Result<usize, Fault> {
        let (graph, at) = (self.graph, self.graph.index(node));
        let step = graph.schedules[node.0 as usize].step(node.1 as usize);
        self.follow(node, step.after);
        let Some((port, _)) = step.action.message(node.0) else {
            self.load(node, step.from)?;
            self.apply(node)?;
            self.complete(node);
            return Ok(1);
        };
        self.state[at] = State::Begun;
        let mut done = 0;
        if port == Port::Out {
            self.cost.messages[node.0 as usize] += 1;
            self.cost.elements[node.0 as usize] += self.elements(node.0, step.from);
            if matches!(step.action, Action::Signal { .. }) {
                self.complete(node);
                done += 1;
            }
        }
        let partner = graph.partner(node);
        if self.state[graph.index(partner)] == State::Waiting {
            return Ok(done);
        }
        let (out, into) = if port == Port::Out { (node, partner) } else { (partner, node) };
        self.load(out, graph.schedules[out.0 as usize].step(out.1 as usize).from)?;
        self.arrive(out, into);
        self.apply(into)?;
        self.complete(into);
        if self.state[graph.index(out)] == State::Begun {
            self.complete(out);
            done += 1;
        }
        Ok(done + 1)
    }

    /// A step knows what the steps before it know.
    fn follow(&mut self, node: Node, after: &[u32]) {
        let at = self.graph.index(node);
        for dep in after {
            let before = self.graph.index((node.0, *dep));
            self.chain[at] = self.chain[at].max(self.chain[before]);
            self.join(at, before);
        }
        if self.words > 0 {
            self.come[at * self.words + node.0 as usize / 64] |= 1 << (node.0 % 64);
        }
    }

    /// A receiving step knows what its sender knew.
    fn arrive(&mut self, out: Node, into: Node) {
        let (from, at) = (self.graph.index(out), self.graph.index(into));
        self.chain[at] = self.chain[at].max(self.chain[from] + 1);
        self.cost.chain = self.cost.chain.max(self.chain[at]);
        self.join(at, from);
    }

    fn join(&mut self, at: usize, before: usize) {
        for w in 0..self.words {
            self.come[at * self.words + w] |= self.come[before * self.words + w];
        }
    }

    /// Takes the contents of blocks to `moved`.
    fn load(&mut self, node: Node, from: &[Slice]) -> Result<(), Fault> {
        let schedule = &self.graph.schedules[node.0 as usize];
        self.moved.clear();
        for (buffer, b) in from.iter().flat_map(|s| s.blocks().map(|b| (s.buffer, b))) {
            let Some(value) = *self.memories[node.0 as usize].at(buffer, b) else {
                let what = format_args!("reads block {b} of the {buffer:?}, which has no content").to_string();
                return Err(self.fault(node, FaultKind::Empty, what));
            };
            self.moved.push((schedule.size_of(buffer, b), value));
        }
        Ok(())
    }

    /// Stores or reduces what is in `moved`.
    fn apply(&mut self, node: Node) -> Result<(), Fault> {
        let schedule = &self.graph.schedules[node.0 as usize];
        let step = schedule.step(node.1 as usize);
        let wanted = step.into.iter().map(|s| s.count as usize).sum::<usize>();
        if wanted != self.moved.len() {
            let what = format!("{} blocks come for {wanted}", self.moved.len());
            return Err(self.fault(node, FaultKind::Shape, what));
        }
        let side = match step.action {
            Action::ReceiveReduce { side, .. } | Action::Reduce { side } => Some(side),
            _ => None,
        };
        if side.is_some() {
            self.cost.reduced[node.0 as usize] += self.elements(node.0, step.into);
        }
        let blocks = step.into.iter().flat_map(|s| s.blocks().map(|b| (s.buffer, b)));
        for (place, (buffer, b)) in blocks.enumerate() {
            let (size, value) = self.moved[place];
            if !self.fits(node.0, size, schedule.size_of(buffer, b)) {
                let what = format!("a block of size number {size} comes for block {b} of the {buffer:?}");
                return Err(self.fault(node, FaultKind::Shape, what));
            }
            let own = *self.memories[node.0 as usize].at(buffer, b);
            let value = side.map_or(Ok(value), |side| self.reduced(node, value, own, side))?;
            *self.memories[node.0 as usize].at(buffer, b) = Some(value);
        }
        Ok(())
    }

    fn reduced(&mut self, node: Node, operand: Value, own: Option<Value>, side: Side) -> Result<Value, Fault> {
        let Some(own) = own else {
            return Err(self.fault(node, FaultKind::Empty, "reduces into a block without content"));
        };
        let (left, right) = if side == Side::Left { (operand, own) } else { (own, operand) };
        Value::reduced(left, right, self.commutative, &mut self.sets)
            .map_err(|kind| self.fault(node, kind, format_args!("{left:?} and {right:?}")))
    }

    /// Whether a block of size number `from` of any rank fits one of size number `into` of rank `r`: the numbers are the
    /// same, or the elements are, or the numbers are counted differently and the elements not known.
    fn fits(&self, r: u32, from: u32, into: u32) -> bool {
        let by_number = |n: u32| self.sizes.get(r as usize).and_then(|s| s.get(n as usize));
        from == into
            || self.sizes.is_empty() && !self.numbered_alike
            || by_number(from).is_some() && by_number(from) == by_number(into)
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

    /// A rank that has done all its steps knows that every rank has come.
    fn all_have_come(&self, r: usize) -> Result<(), Fault> {
        let mut come = vec![0; self.words];
        come[r / 64] |= 1u64 << (r % 64);
        for i in 0..self.graph.schedules[r].len() {
            let own = &self.come[self.graph.index((r as u32, i as u32)) * self.words..][..self.words];
            come.iter_mut().zip(own).for_each(|(c, o)| *c |= o);
        }
        match (0..self.calls.len()).find(|other| come[other / 64] >> (other % 64) & 1 == 0) {
            None => Ok(()),
            Some(other) => {
                let what = format!("leaves although rank {other} may not have come");
                Err(Fault { rank: r as u32, step: None, kind: FaultKind::Early, what })
            }
        }
    }
}
