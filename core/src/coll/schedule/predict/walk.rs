//! The event loop: steps of all ranks in the order of time.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::Model;
use super::program::{Kind, Program};

/// What was predicted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prediction {
    /// When the last rank is done.
    pub time: f64,
    /// When each rank is done.
    pub ends: Vec<f64>,
    /// Messages and signals.
    pub messages: u64,
    /// Most steps that were decoded at once, of all ranks.
    pub steps: usize,
    /// Bytes of all schedules as they were kept.
    pub bytes: usize,
}

/// A step that ran: of one that receives and reduces a message there are two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// The rank.
    pub rank: u32,
    /// The number of the step in its schedule.
    pub step: u32,
    /// When processor and port were free for it, and what it waits for was there.
    pub start: f64,
    /// When its processor or, in models without overhead, its port was free again; of a receive, when its data was there.
    pub end: f64,
    /// Whether it reduces, instead of sending or receiving.
    pub reduces: bool,
}

/// No step.
const NONE: u32 = u32::MAX;

/// In the number of a step of an event: its message is there and is to be reduced.
const ARRIVED: u32 = 1 << 31;

/// A step that may start before all steps of its rank's stretch are complete.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: Kind,
    peer: u32,
    tag: u32,
    /// Steps that it still waits for.
    missing: u32,
    bytes: u64,
    /// When those that it waited for were complete.
    ready: f64,
    /// Where the steps that wait for it begin in the stretch's list.
    dependents: u32,
    /// The step behind it in the queue for its port.
    behind: u32,
    /// Messages of the sender of a message that it receives.
    from: u32,
}

/// One side of a network interface, and the steps that queue for it.
#[derive(Clone, Copy, Debug)]
struct Port {
    free: f64,
    first: u32,
    last: u32,
}

impl Default for Port {
    fn default() -> Self {
        Self { free: 0.0, first: NONE, last: NONE }
    }
}

#[derive(Debug, Default)]
struct Rank {
    program: Program,
    /// The steps of the stretch, the number of the first, and how many are not complete.
    stretch: Vec<Step>,
    first: u32,
    open: u32,
    dependents: Vec<u32>,
    /// When the processor is free.
    processor: f64,
    ports: [Port; 2],
    end: f64,
}

/// A message of which only one side has come.
#[derive(Clone, Copy, Debug)]
enum Side {
    /// It is there from a time on, of a sender with so many messages.
    Sent(f64, u32),
    /// The step that receives it.
    Receives(u32),
}

pub struct Walk<'a, M, F> {
    model: &'a M,
    told: F,
    ranks: Vec<Rank>,
    /// Events by time, which is never negative, so that its bits are in its order. Each is a rank and the step of its stretch.
    events: BTreeMap<u64, Vec<(u32, u32)>>,
    /// Lists of events without any, for reuse.
    spare: Vec<Vec<(u32, u32)>>,
    messages: FxHashMap<(u32, u32, u32), Side>,
    decoded: usize,
    result: Prediction,
}

impl<'a, M: Model, F: FnMut(Moment)> Walk<'a, M, F> {
    pub fn new(size: u32, model: &'a M, told: F) -> Self {
        let (events, spare, messages, result) = Default::default();
        Self { model, told, ranks: Vec::with_capacity(size as usize), events, spare, messages, decoded: 0, result }
    }

    /// Adds the next rank.
    pub fn add(&mut self, program: Program) {
        self.result.bytes += program.len();
        self.result.messages += u64::from(program.sends);
        self.ranks.push(Rank { program, ..Rank::default() });
    }

    /// Runs all ranks.
    pub fn run(mut self) -> Result<Prediction, (u32, u32)> {
        for r in 0..self.ranks.len() as u32 {
            self.decode(r, 0.0);
        }
        while let Some((at, mut events)) = self.events.pop_first() {
            // Of events at the same time those come first whose steps do.
            events.sort_unstable();
            for (r, i) in events.drain(..) {
                self.event(f64::from_bits(at), r, i);
            }
            self.spare.push(events);
        }
        if let Some((r, rank)) = self.ranks.iter().enumerate().find(|(_, rank)| rank.open > 0) {
            let stuck = rank.stretch.iter().position(|s| s.missing == 0 && s.kind != Kind::Send).unwrap_or(0);
            return Err((r as u32, rank.first + stuck as u32));
        }
        self.result.ends = self.ranks.iter().map(|r| r.end).collect();
        self.result.time = self.result.ends.iter().copied().fold(0.0, f64::max);
        Ok(self.result)
    }

    fn push(&mut self, time: f64, r: u32, i: u32) {
        let spare = &mut self.spare;
        self.events.entry(time.to_bits()).or_insert_with(|| spare.pop().unwrap_or_default()).push((r, i));
    }

    /// Takes the next stretch of a rank, whose steps may start from `time` on.
    fn decode(&mut self, r: u32, time: f64) {
        let rank = &mut self.ranks[r as usize];
        rank.end = rank.end.max(time);
        rank.first += rank.stretch.len() as u32;
        self.decoded -= rank.stretch.len();
        rank.stretch.clear();
        if rank.program.is_done() {
            *rank = Rank { end: rank.end, ..Rank::default() };
            return;
        }
        let len = rank.program.number();
        // Pairs of a step and one that waits for it, then the list of the latter by the former.
        let mut pairs = Vec::new();
        for i in 0..len {
            let d = rank.program.step();
            let after = (0..d.after).map(|_| i - rank.program.number());
            pairs.extend(after.map(|before| (before, i)));
            rank.stretch.push(Step {
                kind: d.kind,
                peer: d.peer,
                tag: d.tag,
                missing: d.after,
                bytes: d.bytes,
                ready: time,
                dependents: 0,
                behind: NONE,
                from: 0,
            });
        }
        pairs.sort_unstable();
        let mut at = 0;
        for (i, step) in (0u32..).zip(&mut rank.stretch) {
            step.dependents = at as u32;
            at += pairs[at..].iter().take_while(|(before, _)| *before == i).count();
        }
        rank.dependents.clear();
        rank.dependents.extend(pairs.into_iter().map(|(_, i)| i));
        rank.open = len;
        self.decoded += len as usize;
        self.result.steps = self.result.steps.max(self.decoded);
        for i in 0..len {
            if self.ranks[r as usize].stretch[i as usize].missing == 0 {
                self.ready(r, i);
            }
        }
    }

    /// What a step waits for within its rank is complete.
    fn ready(&mut self, r: u32, i: u32) {
        let step = self.ranks[r as usize].stretch[i as usize];
        if !matches!(step.kind, Kind::Receive | Kind::ReceiveReduce) {
            self.push(step.ready, r, i);
            return;
        }
        let key = (step.peer, r, step.tag);
        match self.messages.remove(&key) {
            Some(Side::Sent(time, from)) => self.arrives(time, from, r, i),
            _ => {
                self.messages.insert(key, Side::Receives(i));
            }
        }
    }

    /// Both sides of a message are there.
    fn arrives(&mut self, time: f64, from: u32, r: u32, i: u32) {
        let step = &mut self.ranks[r as usize].stretch[i as usize];
        step.from = from;
        let start = time.max(step.ready);
        self.push(start, r, i);
    }

    fn event(&mut self, now: f64, r: u32, event: u32) {
        let i = event & !ARRIVED;
        let step = self.ranks[r as usize].stretch[i as usize];
        match step.kind {
            Kind::Send => {
                if self.takes_port(now, r, i, 0) {
                    self.send(now, r, i, step);
                }
            }
            Kind::Receive | Kind::ReceiveReduce if event & ARRIVED == 0 => {
                if self.takes_port(now, r, i, 1) {
                    self.receive(now, r, i, step);
                }
            }
            Kind::Reduce | Kind::ReceiveReduce => {
                let cost = self.model.reduce(step.bytes);
                let start = processor(&mut self.ranks[r as usize], now, cost);
                self.tell(r, i, start, start + cost, true);
                self.complete(r, i, start + cost);
            }
            Kind::Receive | Kind::Copy => self.complete(r, i, now),
        }
    }

    fn tell(&mut self, r: u32, i: u32, start: f64, end: f64, reduces: bool) {
        (self.told)(Moment { rank: r, step: self.ranks[r as usize].first + i, start, end, reduces });
    }

    /// Whether a step has its port now. If not it queues: only the first in a queue has an event, when the port is free.
    fn takes_port(&mut self, now: f64, r: u32, i: u32, port: usize) -> bool {
        let rank = &mut self.ranks[r as usize];
        let queue = &mut rank.ports[port];
        if queue.first == i && queue.free <= now {
            return true;
        }
        if queue.first == NONE {
            if queue.free <= now {
                return true;
            }
            (queue.first, queue.last) = (i, i);
            let free = queue.free;
            self.push(free, r, i);
        } else {
            rank.stretch[queue.last as usize].behind = i;
            queue.last = i;
        }
        false
    }

    /// The step uses its port until `free`, and the next in the queue has it then.
    fn leaves_port(&mut self, r: u32, i: u32, port: usize, free: f64) {
        let rank = &mut self.ranks[r as usize];
        let queue = &mut rank.ports[port];
        queue.free = free;
        if queue.first == i {
            queue.first = rank.stretch[i as usize].behind;
        }
        let next = queue.first;
        if next != NONE {
            self.push(free, r, next);
        }
    }

    fn send(&mut self, now: f64, r: u32, i: u32, step: Step) {
        let rank = &mut self.ranks[r as usize];
        let cost = self.model.send(step.bytes, rank.program.sends);
        let start = processor(rank, now, cost.overhead);
        let fan = rank.program.sends;
        self.leaves_port(r, i, 0, start + cost.port);
        let key = (r, step.peer, step.tag);
        let there = start + cost.transit;
        match self.messages.remove(&key) {
            Some(Side::Receives(receive)) => self.arrives(there, fan, step.peer, receive),
            _ => {
                self.messages.insert(key, Side::Sent(there, fan));
            }
        }
        let busy = if cost.overhead > 0.0 { cost.overhead } else { cost.port };
        self.tell(r, i, start, start + busy, false);
        self.complete(r, i, start + cost.done);
    }

    fn receive(&mut self, now: f64, r: u32, i: u32, step: Step) {
        let rank = &mut self.ranks[r as usize];
        let cost = self.model.receive(step.bytes, step.from, rank.program.receives);
        let start = processor(rank, now, cost.overhead);
        let end = start + cost.done;
        self.leaves_port(r, i, 1, start + cost.port);
        self.tell(r, i, start, end, false);
        if step.kind == Kind::ReceiveReduce && self.model.reduce(step.bytes) > 0.0 {
            self.push(end, r, i | ARRIVED);
        } else {
            self.complete(r, i, end);
        }
    }

    /// Steps that wait for a step may start at `done`.
    fn complete(&mut self, r: u32, i: u32, done: f64) {
        let rank = &mut self.ranks[r as usize];
        rank.end = rank.end.max(done);
        rank.open -= 1;
        let all = rank.stretch.get(i as usize + 1).map_or(rank.dependents.len(), |s| s.dependents as usize);
        for at in rank.stretch[i as usize].dependents as usize..all {
            let rank = &mut self.ranks[r as usize];
            let d = rank.dependents[at];
            let dependent = &mut rank.stretch[d as usize];
            dependent.ready = dependent.ready.max(done);
            dependent.missing -= 1;
            if dependent.missing == 0 {
                self.ready(r, d);
            }
        }
        let rank = &self.ranks[r as usize];
        if rank.open == 0 {
            self.decode(r, rank.end);
        }
    }
}

/// Takes the processor for `overhead` from `now` or when it is free; what has no overhead needs no processor.
fn processor(rank: &mut Rank, now: f64, overhead: f64) -> f64 {
    if overhead == 0.0 {
        return now;
    }
    let start = now.max(rank.processor);
    rank.processor = start + overhead;
    start
}
