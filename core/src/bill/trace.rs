//! The events of a rank for the timeline (`FARSIDE_TRACE`), in a ring of bounded length: calls, waits, signals, messages
//! that arrive, and functions that run for other ranks.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::{Account, Awaited};

/// Maximum number of events of all ranks together, because rank 0 holds them all at the end of the job.
const MAX_EVENTS: usize = 1 << 20;
const MIN_EVENTS_PER_RANK: usize = 1 << 10;
/// Maximum number of events of a rank. Older events are dropped.
const MAX_EVENTS_PER_RANK: usize = 1 << 16;

/// An event; `N` is the type of names. Ranks are those of the job, times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum TraceEvent<N> {
    /// A call started: call `number` of this operation on the account, at `peer` if it concerns one rank.
    Called { operation: N, number: u64, peer: Option<u32> },
    /// The rank has waited for rank `from` for this time, until the event; if `is_collective`, in a call of all ranks.
    Waited { operation: N, from: Option<u32>, is_collective: bool, ns: u64 },
    /// The call that has started closes or opens an epoch with this name.
    Epoch { name: N, opens: bool },
    /// Signal `number` of this kind from this rank to `to`, of those that are numbered. `value` is that of the flag,
    /// the length of the message, or the number of the remote call.
    Signalled { kind: Kind, to: u32, number: u64, value: u64 },
    /// Message `number` of those from rank `from` to this rank arrived.
    Arrived { tag: i32, from: u32, number: u64, len: u64 },
    /// The function of remote call `call` of rank `from` has run for this time, until the event.
    Ran { name: N, from: u32, call: u64, ns: u64 },
}

/// The purpose of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// An exposure, to its origin.
    Post,
    /// The end of an access, to its target.
    Complete,
    /// The flag with this index.
    Flag(usize),
    /// A message with this tag.
    Message(i32),
    /// A remote call.
    Call,
}

/// An event, its time in nanoseconds since the start of the trace, and its account: context and window.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Event<N> {
    pub(super) at: u64,
    pub(super) account: Option<(u32, u32)>,
    pub(super) what: TraceEvent<N>,
}

/// The nanoseconds of a time.
pub(super) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A series of numbered signals: account, whether this rank sends them, kind and the other rank. All messages of a team
/// are of one kind, since the messages of a pair of ranks arrive in the order in which they are sent.
type Key = (Option<Account>, bool, Kind, u32);

/// The trace of a rank.
pub(crate) struct Trace {
    since: Instant,
    /// Whether all ranks have one clock, of virtual time, on which their traces started at the same time.
    is_virtual: bool,
    clock: OnceCell<Box<dyn Fn() -> Instant>>,
    max_events: usize,
    events: RefCell<VecDeque<Event<&'static str>>>,
    dropped: Cell<u64>,
    numbers: RefCell<FxHashMap<Key, u64>>,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("dropped", &self.dropped).finish_non_exhaustive()
    }
}

impl Trace {
    /// The trace of one of `size` ranks. `is_virtual` marks a simulation, in which all ranks start their traces at the
    /// same time.
    pub(crate) fn new(size: u32, now: Instant, is_virtual: bool) -> Rc<Self> {
        let max_events = (MAX_EVENTS / size.max(1) as usize).clamp(MIN_EVENTS_PER_RANK, MAX_EVENTS_PER_RANK);
        let (events, numbers) = Default::default();
        Rc::new(Self {
            since: now,
            is_virtual,
            clock: OnceCell::new(),
            max_events,
            events,
            dropped: Cell::new(0),
            numbers,
        })
    }

    /// Sets the clock, once the device runs.
    pub(crate) fn set_clock(&self, clock: Box<dyn Fn() -> Instant>) {
        let _ = self.clock.set(clock);
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.get().map_or(self.since, |clock| clock())
    }

    pub(super) fn add(&self, account: Option<Account>, what: TraceEvent<&'static str>, now: Instant) {
        let at = ns(now.saturating_duration_since(self.since));
        let mut events = self.events.borrow_mut();
        if events.len() >= self.max_events {
            events.pop_front();
            self.dropped.set(self.dropped.get() + 1);
        }
        events.push_back(Event { at, account: account.map(|a| (a.context, a.window)), what });
    }

    fn next(&self, key: Key) -> u64 {
        let mut numbers = self.numbers.borrow_mut();
        let number = numbers.entry(key).or_default();
        *number += 1;
        *number
    }

    /// Records a wait of this duration until `now`.
    pub(super) fn waited(&self, awaited: Awaited, time: Duration, now: Instant) {
        let Awaited { account, operation, from, call } = awaited;
        self.add(account, TraceEvent::Waited { operation, from, is_collective: call != 0, ns: ns(time) }, now);
    }

    /// Records a signal from this rank to rank `to` of the job.
    pub(super) fn signalled(&self, account: Account, kind: Kind, to: u32, value: u64) {
        let number = match kind {
            Kind::Post | Kind::Complete => self.next((Some(account), true, kind, to)),
            Kind::Message(_) => self.next((Some(account), true, Kind::Message(0), to)),
            Kind::Flag(_) | Kind::Call => 0,
        };
        self.add(Some(account), TraceEvent::Signalled { kind, to, number, value }, self.now());
    }

    /// Records the arrival of a message of `len` bytes.
    pub(crate) fn arrived(&self, context: u32, tag: i32, from: u32, len: usize) {
        let account = Some(Account::team(context));
        let number = self.next((account, false, Kind::Message(0), from));
        self.add(account, TraceEvent::Arrived { tag, from, number, len: len as u64 }, self.now());
    }

    /// The events so far, and the number of older ones that were dropped.
    pub(super) fn events(&self) -> (Vec<Event<&'static str>>, u64) {
        (self.events.borrow().iter().copied().collect(), self.dropped.get())
    }

    /// Whether the trace is of a simulation.
    pub(super) fn is_virtual(&self) -> bool {
        self.is_virtual
    }

    /// The time at which the trace started.
    pub(super) fn since(&self) -> Instant {
        self.since
    }
}
