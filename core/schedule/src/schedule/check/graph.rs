//! The steps of all ranks as one graph: the dependents of each step, and the two sides of each message.

use rustc_hash::FxHashMap;

use super::{Fault, FaultKind};
use crate::schedule::{Action, Schedule};

/// A step: its rank, and its number in the rank's schedule.
pub(crate) type Node = (u32, u32);

impl Action {
    /// Whether `into` receives the message of this action.
    fn meets(self, into: Self) -> bool {
        use Action as A;
        match self {
            A::Send { .. } => matches!(into, A::Receive { .. } | A::ReceiveReduce { .. }),
            A::Signal { .. } => matches!(into, A::Await { .. }),
            A::Lend { .. } => matches!(into, A::Borrow { .. }),
            A::Return { .. } => matches!(into, A::Reclaim { .. }),
            _ => false,
        }
    }
}

/// The graph of all ranks' steps. Tables are indexed by [`Graph::index`].
pub(crate) struct Graph<'a> {
    pub(crate) schedules: &'a [Schedule],
    /// Index of step 0 of each rank, and the number of all steps.
    first: Vec<u32>,
    /// For each step of a message: its other side.
    partner: Vec<Node>,
    /// The step that lends, by lending rank, borrowing rank and tag.
    loans: FxHashMap<(u32, u32, u32), Node>,
    /// For each step: the start of the steps that wait for it in `dependents`.
    start: Vec<u32>,
    dependents: Vec<u32>,
}

impl<'a> Graph<'a> {
    pub(crate) fn new(schedules: &'a [Schedule]) -> Result<Self, Fault> {
        let mut first = vec![0];
        for s in schedules {
            first.push(first[first.len() - 1] + s.len() as u32);
        }
        let all = first[schedules.len()] as usize;
        let mut graph = Self {
            schedules,
            first,
            partner: vec![(0, 0); all],
            loans: FxHashMap::default(),
            start: vec![0; all + 1],
            dependents: Vec::new(),
        };
        graph.connect()?;
        graph.find_dependents();
        Ok(graph)
    }

    /// Number of all steps.
    pub(crate) fn len(&self) -> usize {
        self.partner.len()
    }

    /// The index of a step in tables of all steps.
    pub(crate) fn index(&self, (r, i): Node) -> usize {
        (self.first[r as usize] + i) as usize
    }

    pub(crate) fn action(&self, (r, i): Node) -> Action {
        self.schedules[r as usize].step(i as usize).action
    }

    /// The other side of a message.
    pub(crate) fn partner(&self, node: Node) -> Node {
        self.partner[self.index(node)]
    }

    /// The step that lends the memory that a step of a rank accesses.
    pub(crate) fn lend(&self, node: Node) -> Result<Option<Node>, Fault> {
        let Some(((lender, tag), _)) = self.action(node).loan() else { return Ok(None) };
        let lend = self.loans.get(&(lender, node.0, tag)).copied();
        lend.map(Some).ok_or_else(|| self.fault(node, FaultKind::Unmatched, "there is no such loan"))
    }

    /// Steps of the same rank that wait for a step.
    pub(crate) fn dependents(&self, node: Node) -> &[u32] {
        let at = self.index(node);
        &self.dependents[self.start[at] as usize..self.start[at + 1] as usize]
    }

    /// All steps, rank by rank.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = Node> {
        self.schedules.iter().zip(0..).flat_map(|(s, r)| (0..s.len() as u32).map(move |i| (r, i)))
    }

    fn fault(&self, (r, i): Node, kind: FaultKind, what: &str) -> Fault {
        Fault::at(&self.schedules[r as usize], i as usize, kind, what)
    }

    /// Finds the two sides of every message.
    fn connect(&mut self) -> Result<(), Fault> {
        let mut sides: FxHashMap<(u32, u32, u32), [Option<Node>; 2]> = FxHashMap::default();
        sides.reserve(self.len() / 2);
        for node in self.nodes() {
            let Some((port, key)) = self.action(node).message(node.0) else { continue };
            let sides = sides.entry(key).or_default();
            if sides[port as usize].replace(node).is_some() {
                return Err(self.fault(node, FaultKind::Tag, "the tag was used before"));
            }
        }
        let one_side = |sides: &[Option<Node>; 2]| match sides {
            [Some(node), None] | [None, Some(node)] => Some(*node),
            _ => None,
        };
        if let Some(node) = sides.values().filter_map(one_side).min() {
            return Err(self.fault(node, FaultKind::Unmatched, "only one side has this message"));
        }
        for (out, into) in sides.into_values().filter_map(|[out, into]| out.zip(into)) {
            if !self.action(out).meets(self.action(into)) {
                let what = "takes a message of another kind: a signal as data, or a loan as a signal";
                return Err(self.fault(into, FaultKind::Unmatched, what));
            }
            if let Action::Lend { to, tag } = self.action(out) {
                self.loans.insert((out.0, to, tag), out);
            }
            let (a, b) = (self.index(out), self.index(into));
            (self.partner[a], self.partner[b]) = (into, out);
        }
        Ok(())
    }

    fn find_dependents(&mut self) {
        // The dependents are first counted, then stored.
        for (r, schedule) in self.schedules.iter().enumerate() {
            let first = self.first[r] as usize;
            schedule.steps().flat_map(|s| s.after).for_each(|d| self.start[first + *d as usize + 1] += 1);
        }
        for at in 1..self.start.len() {
            self.start[at] += self.start[at - 1];
        }
        self.dependents = vec![0; self.start[self.len()] as usize];
        let mut next = self.start.clone();
        for (r, schedule) in self.schedules.iter().enumerate() {
            let first = self.first[r] as usize;
            for (i, step) in (0..).zip(schedule.steps()) {
                for d in step.after {
                    let at = &mut next[first + *d as usize];
                    self.dependents[*at as usize] = i;
                    *at += 1;
                }
            }
        }
    }
}
