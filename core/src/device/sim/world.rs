#![allow(unsafe_code)]
//! The world of a simulation: its ranks, each a coroutine with its own clock, and the future events.
//!
//! All ranks run on one thread. A rank runs until it calls its device while earlier events are pending; then it yields
//! until they have happened. So ranks affect each other in the order of virtual time, and events of the same time
//! happen in an order that the seed decides. Every event is a switch between ranks, which takes tens of nanoseconds
//! with coroutines, but microseconds with threads.

mod atomics;
mod barrier;
mod exchange;
pub(super) mod lists;
mod placing;
mod receives;

use std::cell::{Cell, RefCell};
use std::collections::{BinaryHeap, VecDeque};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use rustc_hash::FxHashMap;

use super::events::{Event, Happens};
use super::flight::{Buffers, Flight, Incoming};
use super::network::{Network, Place, Time, Traffic};
use super::trace::Trace;
use crate::bootstrap::Directory;
use crate::device::loopback::{Hub, MAX_PACKETS};
use crate::device::owned::Owned;
use crate::device::{Leave, Placement};
use crate::error::{Error, ErrorKind, Result};
use atomics::KeptWord;
use barrier::SwitchBarrier;
use exchange::Exchange;
use lists::Unmatched;
use receives::{Admission, Receives};

/// A rank as a coroutine.
pub(crate) type Fiber = Coroutine<(), (), (), DefaultStack>;

/// Number of consecutive polls at one virtual time that find nothing, after which a rank waits for the next event, so
/// that a program that polls makes progress.
const IDLE_CALLS: u32 = 16;

/// Number of calls at one virtual time after which a rank waits too, even if the calls had an effect: it may depend on
/// other ranks.
const CALLS: u32 = 1000;

/// Time in picoseconds for which a rank waits after a poll that found nothing, if no later event is known.
const IDLE_TIME: Time = 100_000;

/// Maximum of that time in picoseconds, after repeated polls that found nothing.
const MAX_IDLE_TIME: Time = 1_000_000_000;

/// Time in picoseconds without an event of the network or work of a rank after which the simulation counts as
/// deadlocked.
const STILL: Time = 100_000_000_000_000;

/// The reason why a rank does not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sleeping {
    #[default]
    No,
    /// The rank sleeps until an event wakes it or its time has elapsed.
    Parked,
    /// An event has woken the rank; it runs again at this time.
    Waking(Time),
    /// The rank waits until all ranks have reached a fence.
    AtFence,
}

#[derive(Default)]
pub(crate) struct Rank {
    clock: Cell<Time>,
    /// The last clock value at which all earlier events had happened.
    seen: Cell<Time>,
    yielder: Cell<Option<NonNull<Yielder<(), ()>>>>,
    sleeping: Cell<Sleeping>,
    /// Number of times that the rank has yielded; an event of an earlier yield does not resume it.
    yields: Cell<u64>,
    idle_calls: Cell<u32>,
    /// Number of calls at the present clock.
    calls: Cell<u32>,
    /// Time for which the rank waits after the next polls that find nothing.
    idle_time: Cell<Time>,
    /// The time at which the rank's park ends.
    deadline: Cell<Time>,
    /// The time of the rank's timer. All parks share one timer, so that parks that end early leave no events.
    timer: Cell<Option<Time>>,
    pub(super) inbox: RefCell<VecDeque<Incoming>>,
    /// Whether a peer has changed this rank's memory since its last poll.
    pub(super) woken: Cell<bool>,
    /// Number of packets to each peer that the peer has not received.
    pub(super) untaken: Rc<RefCell<FxHashMap<u32, usize>>>,
    /// Number of messages of this rank that have not arrived.
    pub(super) flying: Cell<u32>,
    pub(super) ended: Cell<Option<Leave>>,
    /// Number of messages that wait to enter the network at its interface.
    entering: Cell<u32>,
    /// Time at which the rank dies, and whether it has died.
    pub(crate) dies: Cell<Option<Time>>,
    pub(crate) died: Cell<bool>,
    /// Factor by which the times of the rank's processor are multiplied.
    pub(crate) slowness: Cell<f64>,
    /// Words that the rank's interface has changed and not written back.
    pub(super) kept: RefCell<Vec<KeptWord>>,
    /// Writes that have arrived at its interface and are not placed.
    unplaced: RefCell<Vec<placing::Numbered>>,
}

/// Counters of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) events: u64,
    /// Digest of all events, in their order.
    pub(crate) digest: u64,
}

pub(crate) struct World {
    pub(super) hub: Arc<Hub>,
    pub(super) buffers: Buffers,
    pub(super) seed: u64,
    epoch: Instant,
    pub(crate) ranks: Vec<Rank>,
    pub(super) traffic: RefCell<Traffic>,
    pub(super) switch: Option<RefCell<SwitchBarrier>>,
    pub(crate) receives: Receives,
    /// Lists that are not yet matched, by sender and receiver.
    pub(super) lists: RefCell<FxHashMap<(u32, u32), Unmatched>>,
    events: RefCell<BinaryHeap<Event>>,
    number: Cell<u64>,
    exchange: RefCell<Exchange>,
    /// Values that ranks publish for each other; publishing takes no virtual time.
    pub(crate) directory: Directory,
    pub(crate) counters: Cell<Counters>,
    /// The first rank that was lost.
    pub(super) lost: Cell<Option<u32>>,
    /// The time of the last event of the network or of the last work of a rank.
    last_event: Cell<Time>,
    /// Number of future events of messages.
    under_way: Cell<u64>,
    /// Whether the simulation is deadlocked.
    still: Cell<bool>,
    /// Whether interfaces hold back the words that their atomics change.
    pub(crate) incoherent: Cell<bool>,
    pub(crate) trace: RefCell<Option<Trace>>,
}

impl World {
    pub(crate) fn new(ranks: u32, seed: u64, network: Network) -> Self {
        let new = || Rank { slowness: Cell::new(1.0), ..Rank::default() };
        Self {
            hub: Hub::new(ranks),
            buffers: Buffers::default(),
            seed,
            epoch: Instant::now(),
            ranks: (0..ranks).map(|_| new()).collect(),
            switch: network.switch.map(|switch| RefCell::new(SwitchBarrier::new(&switch, &network, ranks))),
            receives: Receives::new(&network, ranks),
            lists: RefCell::default(),
            traffic: RefCell::new(Traffic::new(network, ranks, seed)),
            events: RefCell::default(),
            number: Cell::new(0),
            exchange: RefCell::default(),
            directory: Directory::default(),
            counters: Cell::default(),
            lost: Cell::new(None),
            last_event: Cell::new(0),
            under_way: Cell::new(0),
            still: Cell::new(false),
            incoherent: Cell::new(false),
            trace: RefCell::default(),
        }
    }

    pub(super) fn rank(&self, rank: u32) -> &Rank {
        &self.ranks[rank as usize]
    }

    pub(crate) fn clock(&self, rank: u32) -> Time {
        self.rank(rank).clock.get()
    }

    /// The clock of a rank as an instant.
    pub(super) fn now(&self, rank: u32) -> Instant {
        self.epoch + Duration::from_nanos(self.clock(rank) / 1000)
    }

    /// Advances the clock of a rank by `time` of work of its processor.
    pub(super) fn work(&self, rank: u32, time: Time) {
        let r = self.rank(rank);
        let factor = r.slowness.get();
        let time = if factor == 1.0 { time } else { (time as f64 * factor) as Time };
        r.clock.set(r.clock.get() + time);
        self.last_event.set(self.last_event.get().max(r.clock.get()));
    }

    pub(super) fn push(&self, place: Place, happens: Happens) {
        self.number.set(self.number.get() + 1);
        if !matches!(happens, Happens::Resume { .. } | Happens::Timer { .. } | Happens::Again(..)) {
            self.under_way.set(self.under_way.get() + 1);
        }
        self.events.borrow_mut().push(Event { place, number: self.number.get(), happens });
    }

    /// A random time up to `longest`.
    pub(super) fn delay(&self, longest: Time) -> Time {
        self.traffic.borrow_mut().tie() % longest
    }

    /// Resumes a rank at `time`, unless it is resumed earlier.
    fn resume_at(&self, rank: u32, time: Time) {
        let tie = self.traffic.borrow_mut().tie();
        self.push((time, tie), Happens::Resume { rank, yields: self.rank(rank).yields.get() });
    }

    /// Runs other ranks until an event resumes this rank.
    fn switch(&self, rank: u32) {
        let yielder = self.rank(rank).yielder.get();
        if let Some(yielder) = yielder {
            // SAFETY: a rank's device and bootstrap are used only inside its coroutine, which lives as long as its
            // yielder.
            unsafe { yielder.as_ref() }.suspend(());
        }
    }

    /// Runs other ranks until `time`.
    fn yield_until(&self, rank: u32, time: Time) {
        let r = self.rank(rank);
        r.yields.set(r.yields.get() + 1);
        self.resume_at(rank, time);
        self.switch(rank);
        r.seen.set(r.clock.get());
    }

    /// Waits until all events before the clock of a rank have happened, unless the rank has died.
    pub(super) fn catch_up(&self, rank: u32) -> Result<()> {
        let r = self.rank(rank);
        let clock = r.clock.get();
        if r.seen.get() != clock {
            let earlier = self.events.borrow().peek().is_some_and(|event| event.place.0 <= clock);
            if earlier {
                self.yield_until(rank, clock);
            }
            r.seen.set(r.clock.get());
            r.calls.set(0);
        } else {
            r.calls.set(r.calls.get() + 1);
            if r.calls.get() > CALLS {
                self.wait_for_next(rank);
            }
        }
        if r.dies.get().is_some_and(|at| at <= clock) {
            r.died.set(true);
            return Err(self
                .fail(ErrorKind::PeerLost, rank)
                .peer(rank)
                .cause("the simulation ends this rank at this time (`dies=`)"));
        }
        self.check_still(rank)
    }

    pub(super) fn check_still(&self, rank: u32) -> Result<()> {
        if self.still.get() {
            let cause = "deadlock: no event for 100 s of simulated time";
            return Err(self.fail(ErrorKind::Timeout, rank).cause(cause).remedy(format!("replay seed {}", self.seed)));
        }
        Ok(())
    }

    pub(super) fn fail(&self, kind: ErrorKind, rank: u32) -> Error {
        Error::new(kind, "simulate").rank(rank).device("sim")
    }

    /// Counts a poll that finds nothing. After many of them at one virtual time, the rank waits for the next event.
    pub(super) fn idle(&self, rank: u32) {
        let r = self.rank(rank);
        r.idle_calls.set(r.idle_calls.get() + 1);
        if r.idle_calls.get().is_multiple_of(IDLE_CALLS) {
            self.wait_for_next(rank);
        }
    }

    /// Waits for the next event, or a short time.
    fn wait_for_next(&self, rank: u32) {
        let clock = self.clock(rank);
        let next = self.events.borrow().peek().map(|event| event.place.0).filter(|next| *next > clock);
        let r = self.rank(rank);
        let idle = r.idle_time.get().max(IDLE_TIME);
        self.yield_until(rank, next.unwrap_or(clock + idle).min(clock + idle));
        r.idle_time.set((2 * idle).min(MAX_IDLE_TIME));
        r.calls.set(0);
    }

    pub(super) fn reset_idle_calls(&self, rank: u32) {
        self.rank(rank).idle_calls.set(0);
        self.rank(rank).idle_time.set(IDLE_TIME);
    }

    /// Sleeps until an event for this rank, or for `time`.
    pub(super) fn park(&self, rank: u32, time: Time) {
        let r = self.rank(rank);
        let deadline = r.clock.get().saturating_add(time);
        r.sleeping.set(Sleeping::Parked);
        r.deadline.set(deadline);
        if r.timer.get().is_none_or(|timer| timer > deadline) {
            self.arm(rank, deadline);
        }
        r.yields.set(r.yields.get() + 1);
        self.switch(rank);
        r.sleeping.set(Sleeping::No);
        r.seen.set(r.clock.get());
    }

    fn arm(&self, rank: u32, time: Time) {
        self.rank(rank).timer.set(Some(time));
        let tie = self.traffic.borrow_mut().tie();
        self.push((time, tie), Happens::Timer { rank });
    }

    /// Handles the timer of a rank; returns whether the rank's sleep has ended.
    fn ring(&self, rank: u32, time: Time) -> bool {
        let r = self.rank(rank);
        if r.timer.get() != Some(time) {
            return false;
        }
        r.timer.set(None);
        let parked = matches!(r.sleeping.get(), Sleeping::Parked | Sleeping::Waking(_));
        if parked && r.deadline.get() > time {
            self.arm(rank, r.deadline.get());
            return false;
        }
        parked
    }

    /// Marks an event for a rank at `time`, and wakes it if it sleeps.
    pub(super) fn wake(&self, rank: u32, time: Time) {
        let r = self.rank(rank);
        r.woken.set(true);
        let time = time.max(r.clock.get());
        let wakes = match r.sleeping.get() {
            Sleeping::Parked => true,
            // After the earlier event the rank yields again, so the later event has no effect.
            Sleeping::Waking(planned) => time < planned,
            Sleeping::No | Sleeping::AtFence => false,
        };
        if wakes {
            r.sleeping.set(Sleeping::Waking(time));
            self.resume_at(rank, time);
        }
    }

    /// Records that `rank` has received a packet of `source`, which frees queue space for another one.
    pub(super) fn taken(&self, source: u32, rank: u32) {
        self.receives.taken(source, rank);
        let mut untaken = self.rank(source).untaken.borrow_mut();
        let count = untaken.entry(rank).or_default();
        let was_full = *count >= MAX_PACKETS;
        *count = count.saturating_sub(1);
        drop(untaken);
        if was_full {
            self.wake(source, self.clock(rank));
        }
    }

    /// Records that a rank has ended out of order.
    pub(crate) fn lose(&self, rank: u32) {
        if self.lost.get().is_none() {
            self.lost.set(Some(rank));
        }
        let time = self.clock(rank);
        (0..self.ranks.len() as u32).for_each(|other| self.wake(other, time));
    }

    /// Counts a message.
    pub(super) fn count(&self, bytes: usize) {
        let mut counters = self.counters.get();
        (counters.messages, counters.bytes) = (counters.messages + 1, counters.bytes + bytes as u64);
        self.counters.set(counters);
    }

    /// Starts the transit of a message, or of its answer.
    pub(super) fn launch(&self, flight: &Rc<Flight>, ready: Time) {
        let passage = flight.passage();
        self.count(passage.bytes);
        flight.times.set([ready; 3]);
        if passage.from == passage.to {
            return self.push((ready, 0), Happens::Landed(Rc::clone(flight)));
        }
        let enters = self.traffic.borrow_mut().enter(passage, ready);
        // Links are assigned in the order in which messages enter. The clock of a sending rank may be ahead of the
        // events, so even a message that need not wait queues behind those that wait at its interface.
        let entering = self.entering(passage.from);
        if enters > ready || entering.get() > 0 {
            entering.set(entering.get() + 1);
            self.push((enters, 0), Happens::Enters(Rc::clone(flight)));
        } else {
            self.cross(flight, enters);
        }
    }

    fn cross(&self, flight: &Rc<Flight>, enters: Time) {
        flight.pass(1, enters);
        let place = self.traffic.borrow_mut().cross(flight.passage(), enters);
        self.push(place, Happens::AtPort(Rc::clone(flight)));
    }

    /// Number of messages that wait to enter the network at the interface of a rank.
    fn entering(&self, rank: u32) -> &Cell<u32> {
        &self.rank(self.traffic.borrow().endpoint(rank)).entering
    }

    /// Costs of messages between two ranks.
    pub(super) fn costs(&self, from: u32, to: u32) -> super::network::Costs {
        self.traffic.borrow().costs(from, to)
    }

    /// Executes an event of the network.
    fn happen(&self, time: Time, happens: Happens) {
        self.last_event.set(self.last_event.get().max(time));
        self.under_way.set(self.under_way.get() - 1);
        match happens {
            Happens::Enters(flight) => {
                let entering = self.entering(flight.passage().from);
                entering.set(entering.get() - 1);
                self.cross(&flight, time);
            }
            Happens::AtPort(flight) => {
                flight.pass(2, time);
                let landed = self.traffic.borrow_mut().receive(flight.passage(), time);
                if landed == time {
                    self.land(flight, time);
                } else {
                    self.push((landed, 0), Happens::Landed(flight));
                }
            }
            Happens::Landed(flight) => self.land(flight, time),
            Happens::Complete(flight) => self.complete(flight, time),
            Happens::WriteBack { rank } => self.write_back(rank),
            Happens::Place { rank, number } => self.place(rank, number, time),
            Happens::Unmatched(flight) => self.give_up(&flight, time),
            Happens::Barrier { rank, packet, hop } => self.hop(rank, packet, hop, time),
            Happens::Resume { .. } | Happens::Timer { .. } | Happens::Again(..) => {}
        }
    }

    fn land(&self, flight: Rc<Flight>, time: Time) {
        if flight.is_back() {
            self.note(&flight, time);
            self.write_back(flight.origin);
            return self.complete(flight, time);
        }
        match self.receives.admit(&flight, self.is_lost(flight.target)) {
            Admission::Lands => self.arrive(&flight, time),
            Admission::Behind => {}
            Admission::Refused => self.refuse(&flight, time),
        }
    }

    /// Records a message that has arrived in the trace.
    fn note(&self, flight: &Flight, time: Time) {
        if let Some(trace) = &*self.trace.borrow() {
            trace.landed(flight.line(time));
        }
    }

    /// Whether a rank has ended out of order.
    fn is_lost(&self, rank: u32) -> bool {
        self.rank(rank).ended.get() == Some(Leave::Lost)
    }

    /// Applies a message to its target.
    fn arrive(&self, flight: &Rc<Flight>, time: Time) {
        let (origin, target) = (flight.origin, flight.target);
        // The line of the trace is made before `act` takes a packet's bytes out of the flight.
        self.note(flight, time);
        if flight.is_placed(Placement::AtRead) {
            self.hold(flight, time);
        } else {
            if flight.pushes() {
                self.place_all(target);
            }
            if let Some(packet) = self.act(flight, time) {
                self.rank(target).inbox.borrow_mut().push_back(packet);
            }
            self.wake(target, time);
        }
        let flying = &self.rank(origin).flying;
        flying.set(flying.get() - 1);
        if matches!(flight.operation, Owned::List { send: true, .. }) && !self.is_lost(target) {
            self.gather(Rc::clone(flight), time);
        } else if !flight.completes() {
            if flying.get() == 0 && self.rank(origin).ended.get().is_none() {
                self.wake(origin, time);
            }
        } else if flight.turn_back() {
            self.launch(flight, time);
        } else {
            // The acknowledgement occupies no interface.
            let latency = if origin == target { 0 } else { self.costs(origin, target).latency };
            self.push((time + latency, 0), Happens::Complete(Rc::clone(flight)));
        }
    }

    fn complete(&self, flight: Rc<Flight>, time: Time) {
        let origin = flight.origin;
        let result = flight.take_result();
        self.rank(origin).inbox.borrow_mut().push_back(Incoming::Completed { flight, result });
        self.wake(origin, time);
    }

    /// Runs the ranks until all have ended.
    pub(crate) fn run(&self, mut fibers: Vec<Option<Fiber>>) {
        let mut left = fibers.len();
        (0..left as u32).for_each(|rank| self.resume_at(rank, 0));
        while left > 0 {
            let event = self.events.borrow_mut().pop();
            let Some(Event { place: (time, tie), happens, .. }) = event else {
                // Every remaining rank waits in a fence.
                self.end_exchange(None);
                continue;
            };
            let mut counters = self.counters.get();
            counters.events += 1;
            counters.digest = digest(counters.digest, [time, tie, self.number.get()]);
            self.counters.set(counters);
            let rank = match happens {
                Happens::Resume { rank, yields } if self.rank(rank).yields.get() == yields => rank,
                Happens::Timer { rank } if self.ring(rank, time) => rank,
                Happens::Resume { .. } | Happens::Timer { .. } => continue,
                Happens::Again(origin, target) => {
                    self.again((origin, target), time);
                    continue;
                }
                happens => {
                    self.happen(time, happens);
                    continue;
                }
            };
            let r = self.rank(rank);
            if self.under_way.get() == 0 && time.saturating_sub(self.last_event.get()) > STILL {
                self.still.set(true);
            }
            r.clock.set(time.max(r.clock.get()));
            let Some(fiber) = &mut fibers[rank as usize] else { continue };
            if let CoroutineResult::Return(()) = fiber.resume(()) {
                fibers[rank as usize] = None;
                r.yielder.set(None);
                left -= 1;
            }
        }
    }

    /// Passes a rank's coroutine to the rank's state.
    pub(crate) fn begin(&self, rank: u32, yielder: &Yielder<(), ()>) {
        self.rank(rank).yielder.set(Some(NonNull::from(yielder)));
    }
}

/// Adds words to a digest.
fn digest(digest: u64, words: [u64; 3]) -> u64 {
    words.iter().fold(digest, |sum, word| (sum.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95))
}
