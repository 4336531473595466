//! The synchronization bill (`FARSIDE_BILL`): what each window and each team was called for and sent, and how long this rank
//! waited in it, for which other rank; and what a rank waits for when it has waited for long (`FARSIDE_STALL_S`).
//!
//! A wait whose reason the caller gives ([`Awaited`]) is charged to the rank that it waits for at each time. In a fence or a
//! collective that rank may itself wait for another one: the [report] follows such waits of the same call to the rank
//! that waited for nobody. Waits that are over before a rank would turn to other work (some hundred nanoseconds) are not
//! timed. Off, all this costs one branch of a synchronizing call, of an operation that is a message, and of a send or receive.

pub(crate) mod report;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::stats::{Snapshot, Stats};

/// Whose bill it is: a team's, by its context, or that of the `window`th window on it, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    /// Context of the team.
    pub context: u32,
    /// Number of the window, or 0.
    pub window: u32,
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
    /// Of the team with this context.
    #[must_use]
    pub const fn team(context: u32) -> Self {
        Self { context, window: 0 }
    }
}

/// What a rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// Who pays for it; `None`: neither window nor team.
    pub account: Option<Account>,
    /// The operation.
    pub operation: &'static str,
    /// The call, if ranks make such calls together: the same number at all of them. Else 0.
    pub call: u64,
    /// The rank of the job that is missing, if it is known. If not, and there is a number of a call, all ranks of the team are
    /// needed.
    pub from: Option<u32>,
}

impl Awaited {
    /// A wait of `operation` of which no more is known.
    #[must_use]
    pub const fn unknown(operation: &'static str) -> Self {
        Self { account: None, operation, call: 0, from: None }
    }
}

/// Waits shorter than this are summed up without the call that they belong to.
const SHORT: Duration = Duration::from_micros(10);
/// Longer ones of an account that are kept one by one.
const KEPT: usize = 1 << 16;

/// How often and how long.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    waits: u64,
    time: Duration,
}

/// A wait of a call that ranks make together.
#[derive(Clone, Copy, Debug)]
struct Wait {
    operation: &'static str,
    call: u64,
    from: u32,
    time: Duration,
}

/// One account, at this rank.
#[derive(Debug, Default)]
struct Entry {
    name: RefCell<Option<String>>,
    /// Ranks of the job.
    members: RefCell<Rc<[u32]>>,
    calls: RefCell<BTreeMap<&'static str, u64>>,
    /// Operations that no device counts, since they are copies, and those that one counts too.
    direct: Stats,
    posted: Stats,
    /// How often and how long, by operation and the rank that was waited for.
    sums: RefCell<BTreeMap<(&'static str, Option<u32>), Sum>>,
    waits: RefCell<Vec<Wait>>,
}

/// The bill of a rank.
#[derive(Debug)]
pub struct Bill {
    since: Instant,
    /// Entries stay until the end: windows keep the place of their counters.
    entries: RefCell<BTreeMap<Option<Account>, Rc<Entry>>>,
    /// The last window of each team.
    windows: RefCell<BTreeMap<u32, u32>>,
}

impl Bill {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, entries: RefCell::default(), windows: RefCell::default() }
    }

    fn entry(&self, account: Option<Account>) -> Rc<Entry> {
        Rc::clone(self.entries.borrow_mut().entry(account).or_default())
    }

    /// An account for the next window of the team with this context, which all its ranks make alike.
    pub fn window(&self, context: u32, members: &[u32]) -> Account {
        let window = *self.windows.borrow_mut().entry(context).and_modify(|last| *last += 1).or_insert(1);
        let account = Account { context, window };
        self.members(account, members);
        account
    }

    /// Says which ranks of the job an account is of.
    pub(crate) fn members(&self, account: Account, members: &[u32]) {
        *self.entry(Some(account)).members.borrow_mut() = members.into();
    }

    /// Gives an account a name.
    pub fn name(&self, account: Account, name: &str) {
        *self.entry(Some(account)).name.borrow_mut() = Some(name.to_owned());
    }

    /// Its name, if it has been given one.
    pub(crate) fn named(&self, account: Account) -> Option<String> {
        self.entry(Some(account)).name.borrow().clone()
    }

    /// Counts a call.
    pub fn called(&self, account: Account, operation: &'static str) {
        *self.entry(Some(account)).calls.borrow_mut().entry(operation).or_default() += 1;
    }

    /// Runs `count` with the counters of what an account posts.
    pub fn posted(&self, account: Account, count: impl FnOnce(&Stats)) {
        count(&self.entry(Some(account)).posted);
    }

    /// The counters of an account's operations that are copies. They stay in place as long as the bill.
    pub(crate) fn direct(&self, account: Account) -> *const Stats {
        &raw const self.entry(Some(account)).direct
    }

    /// All that only the bill counts.
    pub(crate) fn uncounted(&self) -> Snapshot {
        let entries = self.entries.borrow();
        entries.values().fold(Snapshot::default(), |all, entry| all.merged(&entry.direct.snapshot()))
    }

    /// Charges a time that was waited.
    fn charge(&self, awaited: Awaited, time: Duration) {
        let entry = self.entry(awaited.account);
        let mut sums = entry.sums.borrow_mut();
        let sum = sums.entry((awaited.operation, awaited.from)).or_default();
        sum.waits += 1;
        sum.time += time;
        let mut kept = entry.waits.borrow_mut();
        if let Awaited { operation, call: call @ 1.., from: Some(from), .. } = awaited
            && time >= SHORT
            && kept.len() < KEPT
        {
            kept.push(Wait { operation, call, from, time });
        }
    }
}

/// What is watched of waits.
#[derive(Debug)]
pub(crate) struct Watch {
    bill: Bill,
    stall: Option<Duration>,
    /// Whether a wait is timed: one inside it is not.
    inside: Cell<bool>,
}

impl Watch {
    /// `None` if nothing is.
    pub(crate) fn new(bill: bool, stall: Option<Duration>, now: Instant) -> Option<Self> {
        (bill || stall.is_some()).then(|| Self { bill: Bill::new(now), stall, inside: Cell::new(false) })
    }

    #[inline]
    pub(crate) fn bill(&self) -> &Bill {
        &self.bill
    }

    /// Runs `wait`, which calls the function that it gets after each turn, with the time as `now` gives it. `report` is called
    /// once of a wait that has lasted for long.
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
                self.bill.charge(present.replace(next), now.duration_since(since.replace(now)));
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
        self.bill.charge(present.get(), now().duration_since(since.get()));
        ended
    }
}

/// Ends by a panic too.
struct Inside<'a>(&'a Cell<bool>);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
