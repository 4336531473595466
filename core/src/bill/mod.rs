//! The synchronization bill (`FARSIDE_BILL`): calls, messages and waiting times of each window and each team, with the
//! rank that was waited for; and the report of what a rank waits for after a long wait (`FARSIDE_STALL_S`).
//!
//! A wait whose reason the caller gives ([`Awaited`]) is charged to the rank that is missing at each time. In a fence
//! or a collective, that rank may itself wait for another rank: the report follows such waits of the same call to the
//! rank that did not wait. Waits that end before the rank turns to other work (some hundred nanoseconds) are not timed.
//! When switched off, the bill costs one branch in each synchronizing call, in each operation that sends a message, and
//! in each send or receive. The trace (`FARSIDE_TRACE`) records the same calls and waits one by one, and costs nothing
//! more when switched off.

mod page;
pub(crate) mod report;
pub(crate) mod timeline;
pub(crate) mod trace;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::stats::{Snapshot, Stats};
pub use trace::Kind as SignalKind;
use trace::{Trace, TraceEvent};

/// Key of a bill: a team, by its context, or the `window`th window on that team, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    /// Context of the team.
    pub(crate) context: u32,
    /// Number of the window; 0 for the team itself.
    pub(crate) window: u32,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.window {
            0 => write!(f, "team {}", self.context),
            window => write!(f, "window {window} of team {}", self.context),
        }
    }
}

impl Account {
    /// The account of the team with this context.
    #[must_use]
    pub const fn team(context: u32) -> Self {
        Self { context, window: 0 }
    }
}

/// The reason for a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The account to charge; `None` for a wait that belongs to no window and no team.
    pub account: Option<Account>,
    /// The operation.
    pub operation: &'static str,
    /// Number of the collective call, the same at all its ranks; 0 if the call is not collective.
    pub call: u64,
    /// The rank of the job that is missing, if known. If it is unknown and `call` is set, the wait needs all ranks of
    /// the team.
    pub from: Option<u32>,
}

impl Awaited {
    /// A wait of `operation` without further information.
    #[must_use]
    pub const fn unknown(operation: &'static str) -> Self {
        Self { account: None, operation, call: 0, from: None }
    }
}

/// Shorter waits are added to the sums only and not recorded individually.
const MIN_RECORDED_WAIT: Duration = Duration::from_micros(10);
/// Maximum number of longer waits that an account records individually.
const KEPT: usize = 1 << 16;

/// Number and total duration of waits.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    waits: u64,
    time: Duration,
}

/// A wait in a collective call.
#[derive(Clone, Copy, Debug)]
struct Wait {
    operation: &'static str,
    call: u64,
    from: u32,
    time: Duration,
}

/// The records of one account at this rank.
#[derive(Debug, Default)]
struct Entry {
    name: RefCell<Option<String>>,
    /// Ranks of the job.
    members: RefCell<Rc<[u32]>>,
    calls: RefCell<BTreeMap<&'static str, u64>>,
    /// Counters of operations by direct copy, which no device counts, and of operations that a device counts too.
    direct: Stats,
    posted: Stats,
    /// Number and duration of waits, by operation and awaited rank.
    sums: RefCell<BTreeMap<(&'static str, Option<u32>), Sum>>,
    waits: RefCell<Vec<Wait>>,
}

/// The bill of a rank.
#[derive(Debug)]
pub struct Bill {
    since: Instant,
    /// Entries stay until the end, because windows keep pointers to their counters.
    entries: RefCell<BTreeMap<Option<Account>, Rc<Entry>>>,
    /// Number of the last window of each team.
    windows: RefCell<BTreeMap<u32, u32>>,
    trace: Option<Rc<Trace>>,
}

impl Bill {
    pub(crate) fn new(now: Instant, trace: Option<Rc<Trace>>) -> Self {
        Self { since: now, entries: RefCell::default(), windows: RefCell::default(), trace }
    }

    /// The trace, if one is recorded.
    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.trace.as_deref()
    }

    /// Whether a trace is recorded: then callers report signals with [`signalled`](Self::signalled).
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    fn entry(&self, account: Option<Account>) -> Rc<Entry> {
        Rc::clone(self.entries.borrow_mut().entry(account).or_default())
    }

    /// The account of the next window of the team with this context. All ranks of the team call this in the same order.
    pub fn window(&self, context: u32, members: &[u32]) -> Account {
        let window = *self.windows.borrow_mut().entry(context).and_modify(|last| *last += 1).or_insert(1);
        let account = Account { context, window };
        self.members(account, members);
        account
    }

    /// Sets the members of an account, as ranks of the job.
    pub(crate) fn members(&self, account: Account, members: &[u32]) {
        *self.entry(Some(account)).members.borrow_mut() = members.into();
    }

    /// Names an account.
    pub fn name(&self, account: Account, name: &str) {
        *self.entry(Some(account)).name.borrow_mut() = Some(name.to_owned());
    }

    /// The account's name, if it has one.
    pub(crate) fn named(&self, account: Account) -> Option<String> {
        self.entry(Some(account)).name.borrow().clone()
    }

    /// Counts a call.
    pub fn called(&self, account: Account, operation: &'static str) {
        self.called_for(account, operation, None);
    }

    /// Counts a call that concerns rank `peer` of the job.
    pub fn called_for(&self, account: Account, operation: &'static str, peer: Option<u32>) {
        let entry = self.entry(Some(account));
        let mut calls = entry.calls.borrow_mut();
        let number = calls.entry(operation).or_default();
        *number += 1;
        if let Some(trace) = &self.trace {
            trace.add(Some(account), TraceEvent::Called { operation, number: *number, peer }, trace.now());
        }
    }

    /// Records for the trace that the call that was counted last closes or opens an epoch.
    pub fn epoch(&self, account: Account, name: &'static str, opens: bool) {
        if let Some(trace) = &self.trace {
            trace.add(Some(account), TraceEvent::Epoch { name, opens }, trace.now());
        }
    }

    /// Records for the trace that this rank signals rank `to` of the job, with the value of a flag or the length of a
    /// message.
    pub fn signalled(&self, account: Account, kind: SignalKind, to: u32, value: u64) {
        if let Some(trace) = &self.trace {
            trace.signalled(account, kind, to, value);
        }
    }

    /// Runs a function, for remote call `call` of rank `from` of the job, and records it for the trace.
    pub fn run<R>(
        &self,
        account: Account,
        name: &'static str,
        (from, call): (u32, u64),
        function: impl FnOnce() -> R,
    ) -> R {
        let Some(trace) = &self.trace else { return function() };
        let begun = trace.now();
        let result = function();
        let now = trace.now();
        let ns = trace::ns(now.saturating_duration_since(begun));
        trace.add(Some(account), TraceEvent::Ran { name, from, call, ns }, now);
        result
    }

    /// Runs `count` with the counters of an account's posted operations.
    pub fn posted(&self, account: Account, count: impl FnOnce(&Stats)) {
        count(&self.entry(Some(account)).posted);
    }

    /// The counters of an account's operations by direct copy. The pointer is valid as long as the bill.
    pub(crate) fn direct(&self, account: Account) -> *const Stats {
        &raw const self.entry(Some(account)).direct
    }

    /// The counters of all operations that only the bill counts.
    pub(crate) fn uncounted(&self) -> Snapshot {
        let entries = self.entries.borrow();
        entries.values().fold(Snapshot::default(), |all, entry| all.merged(&entry.direct.snapshot()))
    }

    /// Charges a wait from `since` to `now`.
    fn charge(&self, awaited: Awaited, since: Instant, now: Instant) {
        let time = now.duration_since(since);
        if let Some(trace) = &self.trace {
            trace.waited(awaited, time, now);
        }
        let entry = self.entry(awaited.account);
        let mut sums = entry.sums.borrow_mut();
        let sum = sums.entry((awaited.operation, awaited.from)).or_default();
        sum.waits += 1;
        sum.time += time;
        let mut kept = entry.waits.borrow_mut();
        if let Awaited { operation, call: call @ 1.., from: Some(from), .. } = awaited
            && time >= MIN_RECORDED_WAIT
            && kept.len() < KEPT
        {
            kept.push(Wait { operation, call, from, time });
        }
    }
}

/// The observer of a rank's waits.
pub(crate) struct Watch {
    bill: Bill,
    stall: Option<Duration>,
    /// Whether a wait is being timed; waits nested in it are not timed.
    inside: Cell<bool>,
}

impl Watch {
    /// `None` if neither the bill, the trace nor the stall report is on.
    pub(crate) fn new(bill: bool, trace: Option<Rc<Trace>>, stall: Option<Duration>, now: Instant) -> Option<Self> {
        let on = bill || trace.is_some() || stall.is_some();
        on.then(|| Self { bill: Bill::new(now, trace), stall, inside: Cell::new(false) })
    }

    #[inline]
    pub(crate) fn bill(&self) -> &Bill {
        &self.bill
    }

    /// Runs `wait` and times it by `now`; `wait` calls its argument after each turn. `report` is called once if the
    /// wait lasts for the stall limit.
    pub(crate) fn over<R>(
        &self,
        awaited: &dyn Fn() -> Awaited,
        now: &dyn Fn() -> Instant,
        report: &dyn Fn(Awaited, Duration),
        wait: impl FnOnce(&dyn Fn()) -> Result<R>,
    ) -> Result<R> {
        if self.inside.replace(true) {
            return wait(&|| ());
        }
        let begun = now();
        let (present, since, reported) = (Cell::new(awaited()), Cell::new(begun), Cell::new(false));
        let look = || {
            let (now, next) = (now(), awaited());
            if next != present.get() {
                self.bill.charge(present.replace(next), since.replace(now), now);
            }
            if let Some(limit) = self.stall
                && !reported.get()
                && now.duration_since(begun) >= limit
            {
                reported.set(true);
                report(next, now.duration_since(begun));
            }
        };
        let _inside = Inside(&self.inside);
        let ended = wait(&look);
        self.bill.charge(present.get(), since.get(), now());
        ended
    }
}

/// Clears the flag when dropped, also during a panic.
struct Inside<'a>(&'a Cell<bool>);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
