//! The event loop: the steps of all ranks in the order of time.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use super::program::{Kind, Program};
use super::{Model, OnNodes, Receiving, Sending};

/// A prediction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Time at which the last rank has finished.
    pub time: f64,
    /// Time at which each rank has finished.
    pub ends: Vec<f64>,
    /// Number of messages and signals.
    pub messages: u64,
    /// Maximum number of steps, of all ranks, that were decoded at the same time.
    pub steps: usize,
    /// Bytes of all encoded schedules.
    pub bytes: usize,
}

/// A step that ran. A step that receives and reduces a message has two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// The rank.
    pub(crate) rank: u32,
    /// The number of the step in its schedule.
    pub(crate) step: u32,
    /// Time at which processor and port were free for the step and its dependencies were complete.
    pub(crate) start: f64,
    /// Time at which its processor or, in models without overhead, its port was free again; for a receive, at which its
    /// data had arrived.
    pub(crate) end: f64,
    /// Whether the step reduces, instead of sending or receiving.
    pub(crate) reduces: bool,
}

/// The number that stands for no step.
const NONE: u32 = u32::MAX;

/// Flag in the second number of an event: a message is at the receiver's port.
const ARRIVES: u32 = 1 << 31;

/// A rank; its step, or [`ARRIVES`] with a number that orders messages; and the index of the message. Of events at the
/// same time, those of earlier steps come first.
type Event = (u32, u32, u32);

/// A step that may start before all steps of its rank's stretch are complete.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: Kind,
    peer: u32,
    tag: u32,
    /// Number of steps for which the step still waits.
    missing: u32,
    bytes: u64,
    /// Maximum completion time of the step's completed dependencies.
    ready: f64,
    /// Start of the steps that wait for it in the stretch's list.
    dependents: u32,
}

/// The sending side of a network interface, and the steps that queue for it.
#[derive(Clone, Debug, Default)]
struct Out {
    free: f64,
    /// The queued steps, with their ranks.
    queue: VecDeque<(u32, u32)>,
}

#[derive(Debug, Default)]
struct Rank {
    program: Program,
    /// The steps of the stretch, the number of the first one, and the number of those that are not complete.
    stretch: Vec<Step>,
    first: u32,
    open: u32,
    dependents: Vec<u32>,
    /// Time at which the processor is free.
    processor: f64,
    end: f64,
}

/// A message in transit.
#[derive(Clone, Copy, Debug, Default)]
struct Message {
    key: (u32, u32, u32),
    bytes: u64,
    /// Number of messages that the message's sender sends.
    fan: u32,
}

/// State of a message that is not received.
#[derive(Clone, Copy, Debug)]
enum Side {
    /// The message can be at the receiver's port from this time on, and waits for the receive.
    Sent(f64, u32),
    /// The message has passed the receiver's port at this time.
    Through(f64),
    /// This step of the receiver has begun the receive.
    Receives(u32),
}

pub(crate) struct Walk<'a, M, F> {
    model: &'a M,
    nodes: Option<OnNodes<'a>>,
    observe: F,
    ranks: Vec<Rank>,
    /// Indexed by [port](Self::port).
    out: Vec<Out>,
    /// Times at which the receiving sides of the network interfaces are free.
    into: Vec<f64>,
    /// Events by the bits of their time, which have the order of the times since these are never negative.
    events: BTreeMap<u64, Vec<Event>>,
    /// Empty lists of events, for reuse.
    spare: Vec<Vec<Event>>,
    sides: FxHashMap<(u32, u32, u32), Side>,
    messages: Vec<Message>,
    /// Steps of ranks in the in-switch barrier, and the time at which the last of them has sent its message.
    in_switch: (Vec<(u32, u32)>, f64),
    /// Free indices of `messages`.
    places: Vec<u32>,
    decoded: usize,
    result: Prediction,
}

impl<'a, M: Model, F: FnMut(Moment)> Walk<'a, M, F> {
    pub(crate) fn new(size: u32, model: &'a M, nodes: Option<OnNodes<'a>>, observe: F) -> Self {
        let ports = if nodes.is_some() { 2 * size as usize } else { size as usize };
        let (out, into) = (vec![Out::default(); ports], vec![0.0; ports]);
        let (events, spare, sides, messages, in_switch, places, result) = Default::default();
        let ranks = Vec::with_capacity(size as usize);
        Self {
            model,
            nodes,
            observe,
            ranks,
            out,
            into,
            events,
            spare,
            sides,
            messages,
            in_switch,
            places,
            decoded: 0,
            result,
        }
    }

    /// Runs the programs of all ranks, in their order.
    pub(crate) fn over(mut self, programs: impl Iterator<Item = Program>) -> Result<Prediction, (u32, u32)> {
        programs.for_each(|program| self.add(program));
        self.run()
    }

    /// Adds the next rank.
    fn add(&mut self, program: Program) {
        self.result.bytes += program.len();
        self.result.messages += u64::from(program.sends);
        self.ranks.push(Rank { program, ..Rank::default() });
    }

    /// Runs all ranks.
    fn run(mut self) -> Result<Prediction, (u32, u32)> {
        for r in 0..self.ranks.len() as u32 {
            self.decode(r, 0.0);
        }
        while let Some((at, mut events)) = self.events.pop_first() {
            events.sort_unstable();
            for event in events.drain(..) {
                self.event(f64::from_bits(at), event);
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

    /// The nodes, if both ranks are on the same node.
    fn within(&self, rank: u32, peer: u32) -> Option<&OnNodes<'a>> {
        self.nodes.as_ref().filter(|on| on.nodes[rank as usize] == on.nodes[peer as usize])
    }

    /// The network interface of `rank` for messages between it and `peer`. Ranks of a node share one; in addition, each
    /// has one for messages within the node.
    fn port(&self, rank: u32, peer: u32) -> usize {
        match (&self.nodes, self.within(rank, peer)) {
            (_, Some(on)) => on.nodes.len() + rank as usize,
            (Some(on), None) => on.nodes[rank as usize] as usize,
            (None, None) => rank as usize,
        }
    }

    /// Costs of sending to `peer`.
    fn sending(&self, rank: u32, peer: u32, bytes: u64, fan: u32) -> Sending {
        self.within(rank, peer).map_or_else(|| self.model.send(bytes, fan), |on| on.within.send(bytes, fan))
    }

    /// Costs of receiving from `peer`, which sends `from` messages.
    fn receiving(&self, rank: u32, peer: u32, bytes: u64, [from, fan]: [u32; 2]) -> Receiving {
        let within = self.within(rank, peer).map(|on| on.within.receive(bytes, from, fan));
        within.unwrap_or_else(|| self.model.receive(bytes, from, fan))
    }

    fn push(&mut self, time: f64, event: Event) {
        let spare = &mut self.spare;
        self.events.entry(time.to_bits()).or_insert_with(|| spare.pop().unwrap_or_default()).push(event);
    }

    /// Decodes the next stretch of a rank, whose steps may start from `time` on.
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
        // Pairs of a step and a step that waits for it, sorted by the former; then the latter are stored in this order.
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

    /// Handles a step whose dependencies within its rank are complete.
    fn ready(&mut self, r: u32, i: u32) {
        let step = self.ranks[r as usize].stretch[i as usize];
        if !matches!(step.kind, Kind::Receive | Kind::ReceiveReduce) {
            self.push(step.ready, (r, i, NONE));
            return;
        }
        let key = (step.peer, r, step.tag);
        match self.sides.remove(&key) {
            Some(Side::Through(time)) => self.push(time.max(step.ready), (r, i, NONE)),
            side => {
                self.sides.insert(key, Side::Receives(i));
                if let Some(Side::Sent(time, place)) = side {
                    self.push(time.max(step.ready), (r, ARRIVES | i, place));
                }
            }
        }
    }

    fn event(&mut self, now: f64, (r, i, place): Event) {
        if i & ARRIVES != 0 {
            self.arrives(now, place);
            return;
        }
        let step = self.ranks[r as usize].stretch[i as usize];
        match step.kind {
            Kind::Send => {
                if self.takes_port(now, (r, i), step.peer) {
                    self.send(now, r, i, step);
                }
            }
            Kind::Receive | Kind::ReceiveReduce => self.process(now, r, i, step),
            Kind::Reduce => {
                let cost = self.model.reduce(step.bytes);
                let start = processor(&mut self.ranks[r as usize], now, cost);
                self.tell(r, i, start, start + cost, true);
                self.complete(r, i, start + cost);
            }
            Kind::Copy => self.complete(r, i, now),
            Kind::EnterSwitch if place == NONE => self.enter_switch(now, r, i),
            Kind::EnterSwitch => self.process(now, r, i, step),
        }
    }

    fn tell(&mut self, r: u32, i: u32, start: f64, end: f64, reduces: bool) {
        (self.observe)(Moment { rank: r, step: self.ranks[r as usize].first + i, start, end, reduces });
    }

    /// Returns whether a send gets the port now. If not, queues it; only the first send of the queue has an event, at
    /// the time at which the port is free.
    fn takes_port(&mut self, now: f64, step: (u32, u32), peer: u32) -> bool {
        let port = self.port(step.0, peer);
        let out = &mut self.out[port];
        if out.free <= now && out.queue.front().is_none_or(|first| *first == step) {
            return true;
        }
        out.queue.push_back(step);
        if out.queue.len() == 1 {
            let free = out.free;
            self.push(free, (step.0, step.1, NONE));
        }
        false
    }

    fn send(&mut self, now: f64, r: u32, i: u32, step: Step) {
        let (fan, port) = (self.ranks[r as usize].program.sends, self.port(r, step.peer));
        let cost = self.sending(r, step.peer, step.bytes, fan);
        let start = processor(&mut self.ranks[r as usize], now, cost.overhead);
        let out = &mut self.out[port];
        out.free = start + cost.port;
        if out.queue.front() == Some(&(r, i)) {
            out.queue.pop_front();
        }
        // The next send of the queue gets the port when it is free.
        if let Some(next) = out.queue.front().copied() {
            self.push(start + cost.port, (next.0, next.1, NONE));
        }
        let key = (r, step.peer, step.tag);
        let message = Message { key, bytes: step.bytes, fan };
        let place = self.places.pop().unwrap_or(self.messages.len() as u32);
        match self.messages.get_mut(place as usize) {
            Some(at) => *at = message,
            None => self.messages.push(message),
        }
        let there = start + cost.transit;
        let within = self.within(r, step.peer);
        let is_eager = within.map_or_else(|| self.model.is_eager(step.bytes), |on| on.within.is_eager(step.bytes));
        match self.sides.get(&key) {
            _ if is_eager => self.push(there, (step.peer, ARRIVES | r, place)),
            Some(Side::Receives(receive)) => {
                let receive = *receive;
                let ready = self.ranks[step.peer as usize].stretch[receive as usize].ready;
                self.push(there.max(ready), (step.peer, ARRIVES | receive, place));
            }
            _ => {
                self.sides.insert(key, Side::Sent(there, place));
            }
        }
        let busy = if cost.overhead > 0.0 { cost.overhead } else { cost.port };
        self.tell(r, i, start, start + busy, false);
        self.complete(r, i, start + cost.done);
    }

    /// Sends a rank's message to the switch. When all ranks have done so, all get an answer, as an event with a number
    /// that no other step without a message has.
    fn enter_switch(&mut self, now: f64, r: u32, i: u32) {
        let sending = self.model.send(0, 1);
        let start = processor(&mut self.ranks[r as usize], now, sending.overhead);
        self.tell(r, i, start, start + sending.overhead, false);
        let (entered, latest) = &mut self.in_switch;
        entered.push((r, i));
        *latest = latest.max(start + sending.overhead);
        if entered.len() < self.ranks.len() {
            return;
        }
        let (entered, latest) = std::mem::take(&mut self.in_switch);
        // The time to the switch or from it, without the overheads of processors.
        let way = sending.transit - sending.overhead + self.model.receive(0, 1, 1).transfer;
        let answered = latest + 2.0 * way + self.model.switch_barrier_time(self.ranks.len() as u32);
        entered.into_iter().for_each(|(r, i)| self.push(answered, (r, i, 0)));
    }

    /// Handles the arrival of a message at the port.
    fn arrives(&mut self, now: f64, place: u32) {
        let message = self.messages[place as usize];
        self.places.push(place);
        let (from, r, _) = message.key;
        let fans = [message.fan, self.ranks[r as usize].program.receives];
        let (cost, port) = (self.receiving(r, from, message.bytes, fans), self.port(r, from));
        let start = now.max(self.into[port]);
        self.into[port] = start + cost.port;
        let through = start + cost.transfer;
        match self.sides.remove(&message.key) {
            Some(Side::Receives(i)) => self.through(now, through, r, i),
            _ => {
                self.sides.insert(message.key, Side::Through(through));
            }
        }
    }

    /// Handles a message of a step that has passed the port at `time`.
    fn through(&mut self, now: f64, time: f64, r: u32, i: u32) {
        let step = self.ranks[r as usize].stretch[i as usize];
        let time = time.max(step.ready);
        if self.overhead(r, step) + self.reduction(step) == 0.0 {
            self.tell(r, i, time, time, false);
            self.complete(r, i, time);
        } else if time > now {
            self.push(time, (r, i, NONE));
        } else {
            self.process(now, r, i, step);
        }
    }

    /// Occupies the processor to receive a message and reduce it.
    fn process(&mut self, now: f64, r: u32, i: u32, step: Step) {
        let (overhead, reduction) = (self.overhead(r, step), self.reduction(step));
        let start = processor(&mut self.ranks[r as usize], now, overhead + reduction);
        let there = start + overhead;
        self.tell(r, i, start, there, false);
        if reduction > 0.0 {
            self.tell(r, i, there, there + reduction, true);
        }
        self.complete(r, i, there + reduction);
    }

    fn overhead(&self, r: u32, step: Step) -> f64 {
        let fan = self.ranks[r as usize].program.receives;
        match step.kind {
            Kind::Receive | Kind::ReceiveReduce => self.receiving(r, step.peer, step.bytes, [fan, fan]).overhead,
            _ => self.model.receive(step.bytes, fan, fan).overhead,
        }
    }

    fn reduction(&self, step: Step) -> f64 {
        if step.kind == Kind::ReceiveReduce { self.model.reduce(step.bytes) } else { 0.0 }
    }

    /// Records that a step completes at `done`, and starts the steps that wait for it.
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

/// Occupies the processor for `overhead`, from `now` or from the time at which it is free. A step without overhead
/// needs no processor.
fn processor(rank: &mut Rank, now: f64, overhead: f64) -> f64 {
    if overhead == 0.0 {
        return now;
    }
    let start = now.max(rank.processor);
    rank.processor = start + overhead;
    start
}
