//! The timeline of a job (`FARSIDE_TRACE`), which rank 0 writes at the end: the events of all ranks in the JSON format of
//! chrome://tracing, which Perfetto reads too.
//!
//! Each rank is a process of the format. Its row of calls has a slice for each call, as long as its last wait, or
//! [`MOMENT`] if it did not wait; inside of it slices of its waits, and of functions that ran for other ranks. Epochs have
//! rows of their own, since they overlap. Arrows go from the call or the signal that was waited for to the end of the wait.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Account;
use super::trace::{Event, Kind, Trace, What};
use crate::error::{Error, ErrorKind, Result};

/// Duration of what takes a moment in the picture, in nanoseconds.
const MOMENT: u64 = 100;

/// The trace of one rank.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Part<N> {
    /// Number of events that were dropped before the first one.
    dropped: u64,
    events: Vec<Event<N>>,
    /// Identifies the machine's clock. `began`: the time on it when the trace began, in nanoseconds.
    machine: String,
    began: u64,
    /// Times at which the rank left barriers, in nanoseconds since the trace began.
    meetings: Vec<u64>,
}

impl Trace {
    /// This rank's part, with the time of each call of `meet`, a barrier.
    ///
    /// # Errors
    /// Those of `meet`; `Protocol`.
    pub(crate) fn part(&self, meet: &dyn Fn() -> Result<()>) -> Result<Vec<u8>> {
        /// Number of barriers, the median of which is taken.
        const MEETINGS: usize = 9;
        let (events, dropped) = self.events();
        let since = |now: Instant| super::trace::ns(now.saturating_duration_since(self.since()));
        let meetings = (0..MEETINGS).map(|_| meet().map(|()| since(self.now()))).collect::<Result<_>>()?;
        let clock = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = u64::try_from(clock.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(clock.tv_nsec).unwrap_or(0);
        let began = now.saturating_sub(since(self.now()));
        let machine = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let part = Part { dropped, events, machine, began, meetings };
        serde_json::to_vec(&part).map_err(|e| Error::new(ErrorKind::Protocol, "gather the trace").cause(e.to_string()))
    }
}

/// An account, as in [`Event`].
type Owner = Option<(u32, u32)>;

/// A rank's part, whose times are on the clock of rank 0.
type Rank = Vec<Event<String>>;

/// A rank and a time in nanoseconds.
type Moment = (u32, u64);

/// The timeline.
#[derive(Debug)]
pub(crate) struct Timeline {
    ranks: Vec<Rank>,
    dropped: Vec<u64>,
}

impl Timeline {
    /// Reads the parts of all ranks.
    ///
    /// # Errors
    /// `Protocol` if a rank keeps no trace.
    pub(crate) fn read(parts: &[Vec<u8>]) -> Result<Self> {
        let read = |(rank, bytes): (u32, &Vec<u8>)| {
            serde_json::from_slice(bytes)
                .map_err(|e| Error::new(ErrorKind::Protocol, "gather the trace").peer(rank).cause(e.to_string()))
        };
        let parts: Vec<Part<String>> = (0..).zip(parts).map(read).collect::<Result<_>>()?;
        let offsets: Vec<i64> = parts.iter().map(|part| offset(&parts[0], part)).collect();
        let least = offsets.iter().copied().min().unwrap_or(0);
        let dropped = parts.iter().map(|part| part.dropped).collect();
        let move_by = |(part, offset): (Part<String>, i64)| {
            let mut events = part.events;
            events.iter_mut().for_each(|event| event.at = event.at.saturating_add_signed(offset - least));
            events
        };
        Ok(Self { ranks: parts.into_iter().zip(offsets).map(move_by).collect(), dropped })
    }

    /// Writes the timeline.
    ///
    /// # Errors
    /// Those of the writer.
    pub(crate) fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut out = Output { to, first: true };
        out.to.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
        for (rank, events) in (0..).zip(&self.ranks) {
            let named = |name: &str, args: Value| json!({"ph": "M", "pid": rank, "tid": 0, "name": name, "args": args});
            out.put(&named("process_name", json!({"name": format!("rank {rank}")})))?;
            out.put(&named("process_sort_index", json!({"sort_index": rank})))?;
            out.put(&named("thread_name", json!({"name": "calls"})))?;
            let ends = ends(events);
            events.iter().zip(&ends).try_for_each(|(event, end)| out.put(&slice(rank, event, *end)))?;
            epochs(rank, events, &ends).iter().try_for_each(|epoch| out.put(epoch))?;
        }
        for (id, (name, from, to)) in self.arrows().iter().enumerate() {
            let end = |ph: &str, (rank, at): Moment| json!({"ph": ph, "bp": "e", "cat": "arrow", "id": id, "pid": rank, "tid": 0, "ts": us(at), "name": name});
            out.put(&end("s", *from))?;
            out.put(&end("f", *to))?;
        }
        let dropped = json!(self.dropped);
        write!(out.to, "\n],\"otherData\":{{\"dropped events by rank\":{dropped}}}}}\n")?;
        out.to.flush()
    }

    /// The arrows: name, where from, where to.
    fn arrows(&self) -> Vec<(String, Moment, Moment)> {
        let sources = Sources::new(&self.ranks);
        (0..).zip(&self.ranks).flat_map(|(rank, events)| sources.arrows(rank, events)).collect()
    }
}

struct Output<'a> {
    to: &'a mut dyn Write,
    first: bool,
}

impl Output<'_> {
    fn put(&mut self, event: &Value) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.first) { "" } else { ",\n" };
        write!(self.to, "{comma}{event}")
    }
}

/// Nanoseconds to add to the times of `part` for the clock of `first`: exact on one machine, else from the barriers that both
/// have left.
fn offset(first: &Part<String>, part: &Part<String>) -> i64 {
    if part.machine == first.machine && !part.machine.is_empty() {
        return part.began.wrapping_sub(first.began).cast_signed();
    }
    let mut offsets: Vec<i64> =
        first.meetings.iter().zip(&part.meetings).map(|(first, own)| first.wrapping_sub(*own).cast_signed()).collect();
    offsets.sort_unstable();
    offsets.get(offsets.len() / 2).copied().unwrap_or(0)
}

/// Microseconds, as the format wants times.
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn account((context, window): (u32, u32)) -> String {
    Account { context, window }.to_string()
}

/// The time at which each event's slice ends. A call ends with its last wait before the next call.
fn ends(events: &[Event<String>]) -> Vec<u64> {
    let mut ends: Vec<u64> = events.iter().map(|event| event.at).collect();
    let mut next = u64::MAX;
    let mut waits: Vec<(&str, Owner, u64)> = Vec::new();
    for (event, end) in events.iter().zip(&mut ends).rev() {
        match &event.what {
            What::Waited { operation, .. } => waits.push((operation, event.account, event.at)),
            What::Called { operation, .. } => {
                let own = waits.iter().filter(|(name, account, _)| name == operation && *account == event.account);
                let last = own.map(|(_, _, at)| *at).max();
                *end = last.unwrap_or(event.at + MOMENT).min(next.max(event.at + 1));
                waits.clear();
                next = event.at;
            }
            What::Signalled { .. } | What::Arrived { .. } => *end = event.at + 1,
            What::Ran { .. } => {}
        }
    }
    ends
}

fn slice(rank: u32, event: &Event<String>, end: u64) -> Value {
    let whose = event.account.map_or("no window, no team".to_owned(), account);
    let (begin, category, name, args) = match &event.what {
        What::Called { operation, number, peer } => {
            (event.at, "call", operation.clone(), json!({"of": whose, "call": number, "peer": peer}))
        }
        What::Waited { operation, from, ns } => {
            let name =
                from.map_or_else(|| format!("{operation}: waits"), |from| format!("{operation}: waits for {from}"));
            (end.saturating_sub(*ns), "wait", name, json!({"of": whose, "rank": from}))
        }
        What::Signalled { kind, to, value, .. } => {
            let (name, value) = match kind {
                Kind::Post => (format!("post to {to}"), Value::Null),
                Kind::Complete => (format!("complete to {to}"), Value::Null),
                Kind::Flag(index) => (format!("flag {index} of {to}"), json!(value)),
                Kind::Message(tag) => (format!("message to {to}"), json!({"bytes": value, "tag": tag})),
                Kind::Call => (format!("remote call to {to}"), Value::Null),
            };
            (event.at, "signal", name, json!({"of": whose, "value": value}))
        }
        What::Arrived { tag, from, len, .. } => {
            (event.at, "message", format!("message from {from}"), json!({"of": whose, "bytes": len, "tag": tag}))
        }
        What::Ran { name, from, ns, .. } => {
            (end.saturating_sub(*ns), "function", name.clone(), json!({"of": whose, "called by": from}))
        }
    };
    let dur = us(end) - us(begin);
    json!({"ph": "X", "pid": rank, "tid": 0, "ts": us(begin), "dur": dur, "cat": category, "name": name, "args": args})
}

/// The epochs of a rank: from the end of the call that opens one to the end of the call that closes it.
fn epochs(rank: u32, events: &[Event<String>], ends: &[u64]) -> Vec<Value> {
    /// Operations that open epochs, with those that close them.
    const PAIRS: [(&str, &str, &str); 6] = [
        ("fence", "fence", "fence epoch"),
        ("start", "complete", "access epoch"),
        ("post", "wait", "exposure epoch"),
        ("post", "test", "exposure epoch"),
        ("lock", "unlock", "lock epoch"),
        ("lock_all", "unlock_all", "lock_all epoch"),
    ];
    let mut open: HashMap<(Owner, &str, Option<u32>), u64> = HashMap::new();
    let mut all = Vec::new();
    for (event, end) in events.iter().zip(ends) {
        let What::Called { operation, peer, .. } = &event.what else { continue };
        for (_, _, name) in PAIRS.iter().filter(|(_, closing, _)| closing == operation) {
            if let Some(begin) = open.remove(&(event.account, *name, *peer)) {
                let whose = event.account.map_or_else(String::new, account);
                let name =
                    peer.map_or_else(|| format!("{name} of {whose}"), |peer| format!("{name} of {whose} at {peer}"));
                for (ph, at) in [("b", begin), ("e", *end)] {
                    let id = format!("{rank} {begin} {name}");
                    all.push(
                        json!({"ph": ph, "pid": rank, "tid": 0, "ts": us(at), "cat": "epoch", "id": id, "name": name}),
                    );
                }
            }
        }
        if let Some((_, _, name)) = PAIRS.iter().find(|(opening, ..)| opening == operation) {
            open.insert((event.account, *name, *peer), *end);
        }
    }
    all
}

/// A signal: its number, its value and its time.
type Signal = (u64, u64, u64);

type Calls<'a> = HashMap<(u32, Owner, &'a str), Vec<(u64, u64)>>;

/// Where arrows begin.
struct Sources<'a> {
    /// Calls by rank, account and operation: number and time.
    calls: Calls<'a>,
    /// Signals by origin, target, account and kind.
    signals: HashMap<(u32, u32, Owner, Kind), Vec<Signal>>,
    /// Flags by target and account: origin and time.
    flags: HashMap<(u32, Owner), Vec<Moment>>,
    /// Functions by rank, account and caller: the time of their end.
    functions: HashMap<(u32, Owner, u32), Vec<u64>>,
}

impl<'a> Sources<'a> {
    fn new(ranks: &'a [Rank]) -> Self {
        let (calls, signals, flags, functions) = Default::default();
        let mut all = Self { calls, signals, flags, functions };
        for (rank, event) in (0..).zip(ranks).flat_map(|(rank, events)| events.iter().map(move |event| (rank, event))) {
            let (account, at) = (event.account, event.at);
            match &event.what {
                What::Called { operation, number, .. } => {
                    all.calls.entry((rank, account, operation)).or_default().push((*number, at));
                }
                What::Signalled { kind, to, number, value } => {
                    all.signals.entry((rank, *to, account, *kind)).or_default().push((*number, *value, at));
                    if matches!(kind, Kind::Flag(_)) {
                        all.flags.entry((*to, account)).or_default().push((rank, at));
                    }
                }
                What::Ran { from, .. } => all.functions.entry((rank, account, *from)).or_default().push(at),
                What::Waited { .. } | What::Arrived { .. } => {}
            }
        }
        all.flags.values_mut().for_each(|flags| flags.sort_by_key(|(_, at)| *at));
        all
    }

    fn arrows(&self, rank: u32, events: &[Event<String>]) -> Vec<(String, Moment, Moment)> {
        // The last call of each operation, and the last signal of this rank to each other one.
        let mut called: HashMap<(Owner, &str), u64> = HashMap::new();
        let mut signalled: HashMap<(Owner, Kind, u32), u64> = HashMap::new();
        let mut all = Vec::new();
        for event in events {
            let (account, at) = (event.account, event.at);
            let source = match &event.what {
                What::Called { operation, number, .. } => {
                    called.insert((account, operation), *number);
                    None
                }
                What::Signalled { kind, to, number, .. } => {
                    signalled.insert((account, *kind, *to), *number);
                    None
                }
                What::Arrived { tag, from, number, .. } => {
                    self.signal((*from, rank), account, Kind::Message(*tag), *number).map(|at| ("message", (*from, at)))
                }
                What::Ran { from, call, ns, .. } => {
                    let made = self.signals.get(&(*from, rank, account, Kind::Call));
                    let made = made.and_then(|made| made.iter().find(|(_, value, _)| value == call));
                    if let Some((_, _, begun)) = made {
                        all.push(("remote call".to_owned(), (*from, *begun), (rank, at.saturating_sub(*ns))));
                    }
                    None
                }
                What::Waited { operation, from: Some(from), .. } => {
                    let last = |kind| signalled.get(&(account, kind, *from)).copied();
                    let source = match operation.as_str() {
                        "wait" => last(Kind::Post).and_then(|n| self.signal((*from, rank), account, Kind::Complete, n)),
                        "complete" => {
                            last(Kind::Complete).and_then(|n| self.signal((*from, rank), account, Kind::Post, n))
                        }
                        "receive" => None,
                        "lock" | "flush" | "unlock" => self.unlocked(*from, account, at),
                        "call a remote function" => {
                            let ends = self.functions.get(&(*from, account, rank));
                            ends.and_then(|ends| ends.iter().copied().rfind(|end| *end <= at))
                        }
                        _ => called.get(&(account, operation)).and_then(|number| {
                            let calls = self.calls.get(&(*from, account, operation.as_str()))?;
                            calls.iter().find(|(n, _)| n == number).map(|(_, at)| *at)
                        }),
                    };
                    source.map(|at| (operation.as_str(), (*from, at)))
                }
                What::Waited { from: None, .. } => {
                    // A flag is noted before it is set.
                    let flags = self.flags.get(&(rank, account));
                    flags.and_then(|flags| flags.iter().rfind(|(_, set)| *set <= at)).map(|from| ("flag", *from))
                }
            };
            // The clocks of machines differ by some microseconds; no arrow goes back.
            if let Some((name, from)) = source.filter(|(_, (_, begun))| *begun <= at) {
                all.push((name.to_owned(), from, (rank, at)));
            }
        }
        all
    }

    fn signal(&self, (from, to): (u32, u32), account: Owner, kind: Kind, number: u64) -> Option<u64> {
        let signals = self.signals.get(&(from, to, account, kind))?;
        signals.binary_search_by_key(&number, |(n, ..)| *n).ok().map(|found| signals[found].2)
    }

    /// The time at which rank `from` has last called unlock before `at`.
    fn unlocked(&self, from: u32, account: Owner, at: u64) -> Option<u64> {
        let calls = ["unlock", "unlock_all"].into_iter().filter_map(|name| self.calls.get(&(from, account, name)));
        calls.filter_map(|calls| calls.iter().map(|(_, at)| *at).rfind(|unlocked| *unlocked <= at)).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(machine: &str, began: u64, meetings: &[u64]) -> Part<String> {
        Part { dropped: 0, events: Vec::new(), machine: machine.into(), began, meetings: meetings.to_vec() }
    }

    #[test]
    fn clocks_of_one_machine_are_one_and_of_others_meet_at_barriers() {
        let first = part("a", 1_000, &[500, 600, 700]);
        assert_eq!(offset(&first, &part("a", 400, &[9, 9, 9])), -600);
        // The second barrier held one rank up.
        assert_eq!(offset(&first, &part("b", 7, &[5_500, 9_999, 5_702])), -5_002);
        assert_eq!(offset(&first, &part("b", 7, &[])), 0);
        assert_eq!(offset(&part("", 1, &[5]), &part("", 7, &[4])), 1);
    }

    #[test]
    fn part_of_another_program_is_refused() {
        let good = serde_json::to_vec(&part("a", 1, &[])).unwrap();
        assert!(Timeline::read(&[good.clone(), good.clone()]).is_ok());
        let e = Timeline::read(&[good, b"{}".to_vec()]).unwrap_err();
        assert_eq!((e.kind(), e.to_string().contains("rank 1")), (ErrorKind::Protocol, true), "{e}");
    }
}
