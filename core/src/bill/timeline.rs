//! The timeline of a job (`FARSIDE_TRACE`), which rank 0 writes at the end: the events of all ranks in the JSON format of
//! chrome://tracing, which Perfetto reads too.
//!
//! Each rank is a process of the format. Its row of calls has a slice for each call, as long as its last wait, or
//! [`MOMENT`] if it did not wait; inside it are slices of its waits, and of functions that ran for other ranks. Epochs
//! have rows of their own, since they overlap. Arrows go from the call or the signal that was waited for to the end of
//! the wait.

mod picture;

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Account;
use super::trace::{Event, Kind, Trace, TraceEvent};
use crate::error::{Error, ErrorKind, Result};

/// Length in the picture of a call that does not wait, in nanoseconds.
const MOMENT: u64 = 100;

/// The trace of one rank.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Part<N> {
    /// Number of events that were dropped before the first one.
    dropped: u64,
    events: Vec<Event<N>>,
    /// Identifies the machine's clock. `began` is the time on that clock when the trace began, in nanoseconds.
    machine: String,
    began: u64,
    /// Times at which the rank left barriers, in nanoseconds since the trace began.
    barriers: Vec<u64>,
}

impl Trace {
    /// This rank's part, with the time at which each call of `barrier` returned.
    ///
    /// # Errors
    /// Those of `barrier`; `Protocol`.
    pub(crate) fn part(&self, barrier: &dyn Fn() -> Result<()>) -> Result<Vec<u8>> {
        /// Number of barriers; the median of their results is taken.
        const BARRIERS: usize = 9;
        let (events, dropped) = self.events();
        let since = |now: Instant| super::trace::ns(now.saturating_duration_since(self.since()));
        let barriers = (0..BARRIERS).map(|_| barrier().map(|()| since(self.now()))).collect::<Result<_>>()?;
        if self.is_virtual() {
            // All ranks have the same clock.
            let machine = "simulation".to_owned();
            return encoded(&Part { dropped, events, machine, began: since(self.since()), barriers });
        }
        // The pair of readings with the smallest difference is used, since the rank may lose its processor between two
        // readings.
        let pair = |_| {
            let (before, now, after) = (self.now(), monotonic(), self.now());
            (after.saturating_duration_since(before), now.saturating_sub(since(after)))
        };
        let began = (0..BARRIERS).map(pair).min().map_or(0, |(_, began)| began);
        let machine = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        encoded(&Part { dropped, events, machine, began, barriers })
    }
}

fn encoded(part: &Part<&'static str>) -> Result<Vec<u8>> {
    serde_json::to_vec(part).map_err(|e| Error::new(ErrorKind::Protocol, "gather the trace").cause(e.to_string()))
}

/// An account, as in [`Event`].
type Owner = Option<(u32, u32)>;

/// The machine's clock, in nanoseconds.
fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

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
    /// `Protocol` for a part that cannot be read.
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
            let slices = events.iter().zip(&ends).filter_map(|(event, end)| slice(rank, event, *end));
            slices.into_iter().try_for_each(|slice| out.put(&slice))?;
            epochs(rank, events, &ends).iter().try_for_each(|epoch| out.put(epoch))?;
        }
        for (id, (name, from, to)) in self.arrows().iter().enumerate() {
            // A viewer binds the end of an arrow to a slice that begins there. The slice of a wait begins earlier, so a
            // short slice is added at the end of the arrow.
            let end =
                json!({"ph": "X", "pid": to.0, "tid": 0, "ts": us(to.1), "dur": us(1), "cat": "arrow", "name": name});
            out.put(&end)?;
            let end = |ph: &str, (rank, at): Moment| json!({"ph": ph, "bp": "e", "cat": "arrow", "id": id, "pid": rank, "tid": 0, "ts": us(at), "name": name});
            out.put(&end("s", *from))?;
            out.put(&end("f", *to))?;
        }
        let dropped = json!(self.dropped);
        write!(out.to, "\n],\"otherData\":{{\"dropped events by rank\":{dropped}}}}}\n")?;
        out.to.flush()
    }

    /// The arrows: name, start and end.
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

/// Nanoseconds that convert the times of `part` to the clock of `first`: exact on one machine, otherwise estimated from
/// the barriers that both have left.
fn offset(first: &Part<String>, part: &Part<String>) -> i64 {
    if part.machine == first.machine && !part.machine.is_empty() {
        return part.began.wrapping_sub(first.began).cast_signed();
    }
    let mut offsets: Vec<i64> =
        first.barriers.iter().zip(&part.barriers).map(|(first, own)| first.wrapping_sub(*own).cast_signed()).collect();
    offsets.sort_unstable();
    offsets.get(offsets.len() / 2).copied().unwrap_or(0)
}

/// Converts to microseconds, the unit of the format.
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn account((context, window): (u32, u32)) -> String {
    Account { context, window }.to_string()
}

/// The start of an event's slice.
fn begin(event: &Event<String>) -> u64 {
    match event.what {
        TraceEvent::Waited { ns, .. } | TraceEvent::Ran { ns, .. } => event.at.saturating_sub(ns),
        _ => event.at,
    }
}

/// The time at which each event's slice ends. A wait belongs to the last call of its account that started before it, if
/// it starts within [`GAP`] of the start of the call or of the previous wait; the call ends with its last wait. A slice
/// that starts inside another one ends no later than that one.
fn ends(events: &[Event<String>]) -> Vec<u64> {
    /// Time in nanoseconds: a wait that begins later than this after a call belongs to a later call, which completes
    /// operations that the earlier one has started.
    const GAP: u64 = 100_000;
    let mut ends: Vec<u64> = events.iter().map(|event| event.at).collect();
    let mut order: Vec<usize> = (0..events.len()).collect();
    order.sort_by_key(|i| (begin(&events[*i]), matches!(events[*i].what, TraceEvent::Waited { .. })));
    let mut last: HashMap<Owner, usize> = HashMap::new();
    for i in &order {
        let event = &events[*i];
        match event.what {
            TraceEvent::Called { .. } => {
                ends[*i] = event.at + MOMENT;
                last.insert(event.account, *i);
            }
            TraceEvent::Signalled { .. } | TraceEvent::Arrived { .. } | TraceEvent::Epoch { .. } => {
                ends[*i] = event.at + 1
            }
            TraceEvent::Waited { .. } => {
                if let Some(call) = last.get(&event.account)
                    && begin(event) <= ends[*call] + GAP
                {
                    ends[*call] = ends[*call].max(event.at);
                }
            }
            TraceEvent::Ran { .. } => {}
        }
    }
    order.sort_by_key(|i| (begin(&events[*i]), std::cmp::Reverse(ends[*i])));
    let mut open: Vec<u64> = Vec::new();
    for i in order {
        open.retain(|end| *end > begin(&events[i]));
        if let Some(inner) = open.last() {
            ends[i] = ends[i].min(*inner);
        }
        open.push(ends[i]);
    }
    ends
}

fn slice(rank: u32, event: &Event<String>, end: u64) -> Option<Value> {
    let whose = event.account.map_or("no window, no team".to_owned(), account);
    let (category, name, args) = match &event.what {
        TraceEvent::Epoch { .. } => return None,
        TraceEvent::Called { operation, number, peer } => {
            ("call", operation.clone(), json!({"of": whose, "call": number, "peer": peer}))
        }
        TraceEvent::Waited { operation, from, .. } => {
            let name =
                from.map_or_else(|| format!("{operation}: waits"), |from| format!("{operation}: waits for {from}"));
            ("wait", name, json!({"of": whose, "rank": from}))
        }
        TraceEvent::Signalled { kind, to, value, .. } => {
            let (name, value) = match kind {
                Kind::Post => (format!("post to {to}"), Value::Null),
                Kind::Complete => (format!("complete to {to}"), Value::Null),
                Kind::Flag(index) => (format!("flag {index} of {to}"), json!(value)),
                Kind::Message(tag) => (format!("message to {to}"), json!({"bytes": value, "tag": tag})),
                Kind::Call => (format!("remote call to {to}"), Value::Null),
            };
            ("signal", name, json!({"of": whose, "value": value}))
        }
        TraceEvent::Arrived { tag, from, len, .. } => {
            ("message", format!("message from {from}"), json!({"of": whose, "bytes": len, "tag": tag}))
        }
        TraceEvent::Ran { name, from, .. } => ("function", name.clone(), json!({"of": whose, "called by": from})),
    };
    let begin = begin(event);
    let dur = us(end.saturating_sub(begin));
    let (ts, cat) = (us(begin), category);
    Some(json!({"ph": "X", "pid": rank, "tid": 0, "ts": ts, "dur": dur, "cat": cat, "name": name, "args": args}))
}

/// The epochs of a rank: from the end of the call that opens the epoch to the end of the call that closes it.
fn epochs(rank: u32, events: &[Event<String>], ends: &[u64]) -> Vec<Value> {
    /// Operations that always open an epoch, with the operations that close it.
    const PAIRS: [(&str, &str, &str); 4] = [
        ("start", "complete", "access epoch"),
        ("post", "wait", "exposure epoch"),
        ("lock", "unlock", "lock epoch"),
        ("lock_all", "unlock_all", "lock_all epoch"),
    ];
    let mut open: HashMap<(Owner, &str, Option<u32>), u64> = HashMap::new();
    let mut all = Vec::new();
    let mut called = 0;
    for (event, end) in events.iter().zip(ends) {
        let (name, opens, peer) = match &event.what {
            TraceEvent::Called { operation, peer, .. } => {
                called = *end;
                let pair = PAIRS.iter().find(|(opening, closing, _)| opening == operation || closing == operation);
                let Some((opening, _, name)) = pair else { continue };
                (*name, opening == operation, *peer)
            }
            TraceEvent::Epoch { name, opens } => (name.as_str(), *opens, None),
            _ => continue,
        };
        let key = (event.account, name, peer);
        if opens {
            open.insert(key, called);
        } else if let Some(begin) = open.remove(&key) {
            let whose = event.account.map_or_else(String::new, account);
            let name =
                peer.map_or_else(|| format!("{name} of {whose}"), |peer| format!("{name} of {whose}, target {peer}"));
            for (ph, at) in [("b", begin), ("e", called)] {
                let id = format!("{rank} {begin} {name}");
                all.push(
                    json!({"ph": ph, "pid": rank, "tid": 0, "ts": us(at), "cat": "epoch", "id": id, "name": name}),
                );
            }
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
    /// Remote calls by caller, target, account and number: the time of the last one.
    calls_made: HashMap<(u32, u32, Owner, u64), u64>,
}

impl<'a> Sources<'a> {
    fn new(ranks: &'a [Rank]) -> Self {
        let (calls, signals, flags, functions, calls_made) = Default::default();
        let mut all = Self { calls, signals, flags, functions, calls_made };
        for (rank, event) in (0..).zip(ranks).flat_map(|(rank, events)| events.iter().map(move |event| (rank, event))) {
            let (account, at) = (event.account, event.at);
            match &event.what {
                TraceEvent::Called { operation, number, .. } => {
                    all.calls.entry((rank, account, operation)).or_default().push((*number, at));
                }
                TraceEvent::Signalled { kind, to, number, value } => {
                    let kind = if let Kind::Message(_) = kind { Kind::Message(0) } else { *kind };
                    all.signals.entry((rank, *to, account, kind)).or_default().push((*number, *value, at));
                    if kind == Kind::Call {
                        all.calls_made.insert((rank, *to, account, *value), at);
                    } else if matches!(kind, Kind::Flag(_)) {
                        all.flags.entry((*to, account)).or_default().push((rank, at));
                    }
                }
                TraceEvent::Ran { from, .. } => all.functions.entry((rank, account, *from)).or_default().push(at),
                TraceEvent::Waited { .. } | TraceEvent::Arrived { .. } | TraceEvent::Epoch { .. } => {}
            }
        }
        all.flags.values_mut().for_each(|flags| flags.sort_by_key(|(_, at)| *at));
        all
    }

    fn arrows(&self, rank: u32, events: &[Event<String>]) -> Vec<(String, Moment, Moment)> {
        // The last call of each operation, and the last signal of this rank to each other rank.
        let mut called: HashMap<(Owner, &str), u64> = HashMap::new();
        let mut signalled: HashMap<(Owner, Kind, u32), u64> = HashMap::new();
        let mut all = Vec::new();
        for event in events {
            let (account, at) = (event.account, event.at);
            let source = match &event.what {
                TraceEvent::Called { operation, number, .. } => {
                    called.insert((account, operation), *number);
                    None
                }
                TraceEvent::Signalled { kind, to, number, .. } => {
                    signalled.insert((account, *kind, *to), *number);
                    None
                }
                TraceEvent::Epoch { .. } => None,
                TraceEvent::Arrived { from, number, .. } => {
                    self.signal((*from, rank), account, Kind::Message(0), *number).map(|at| ("message", (*from, at)))
                }
                TraceEvent::Ran { from, call, .. } => {
                    let begun = begin(event);
                    let made = self.calls_made.get(&(*from, rank, account, *call));
                    if let Some(made) = made.filter(|made| **made <= begun) {
                        all.push(("remote call".to_owned(), (*from, *made), (rank, begun)));
                    }
                    None
                }
                TraceEvent::Waited { operation, from: Some(from), is_collective, .. } => {
                    let last = |kind| signalled.get(&(account, kind, *from)).copied();
                    let source = match operation.as_str() {
                        "wait" => last(Kind::Post).and_then(|n| self.signal((*from, rank), account, Kind::Complete, n)),
                        "complete" => {
                            last(Kind::Complete).and_then(|n| self.signal((*from, rank), account, Kind::Post, n))
                        }
                        "receive" => None,
                        "lock" | "flush" | "unlock" => self.unlocked(*from, account, begin(event), at),
                        "call a remote function" => {
                            last_before(self.functions.get(&(*from, account, rank)), at, |end| *end).copied()
                        }
                        _ if !is_collective => None,
                        _ => called.get(&(account, operation)).and_then(|number| {
                            let calls = self.calls.get(&(*from, account, operation.as_str()))?;
                            calls.binary_search_by_key(number, |(n, _)| *n).ok().map(|found| calls[found].1)
                        }),
                    };
                    source.map(|at| (operation.as_str(), (*from, at)))
                }
                TraceEvent::Waited { from: None, .. } => {
                    // A flag is reported before it is set.
                    let last = last_before(self.flags.get(&(rank, account)), at, |(_, set)| *set);
                    last.filter(|(_, set)| *set >= begin(event)).map(|from| ("flag", *from))
                }
            };
            // The clocks of machines differ by some microseconds; an arrow that would go back in time is left out. An
            // arrow ends just before the slice that it explains, except for an arrival, which has a slice of its own.
            let end = if let TraceEvent::Waited { .. } = event.what { at.saturating_sub(1) } else { at };
            if let Some((name, from)) = source.filter(|(_, (_, begun))| *begun <= end) {
                all.push((name.to_owned(), from, (rank, end)));
            }
        }
        all
    }

    fn signal(&self, (from, to): (u32, u32), account: Owner, kind: Kind, number: u64) -> Option<u64> {
        let signals = self.signals.get(&(from, to, account, kind))?;
        signals.binary_search_by_key(&number, |(n, ..)| *n).ok().map(|found| signals[found].2)
    }

    /// The time of the last unlock of rank `from` between `begin` and `at`.
    fn unlocked(&self, from: u32, account: Owner, begin: u64, at: u64) -> Option<u64> {
        let calls = ["unlock", "unlock_all"].into_iter().map(|name| self.calls.get(&(from, account, name)));
        let last = calls.filter_map(|calls| last_before(calls, at, |(_, at)| *at)).map(|(_, at)| *at).max();
        last.filter(|last| *last >= begin)
    }
}

/// The last element, in the order of times, that is not later than `at`.
fn last_before<E>(all: Option<&Vec<E>>, at: u64, time: impl Fn(&E) -> u64) -> Option<&E> {
    let all = all?;
    all[..all.partition_point(|one| time(one) <= at)].last()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(machine: &str, began: u64, barriers: &[u64]) -> Part<String> {
        Part { dropped: 0, events: Vec::new(), machine: machine.into(), began, barriers: barriers.to_vec() }
    }

    #[test]
    fn clocks_of_one_machine_are_equal_and_others_are_aligned_at_barriers() {
        let first = part("a", 1_000, &[500, 600, 700]);
        assert_eq!(offset(&first, &part("a", 400, &[9, 9, 9])), -600);
        // The second barrier delayed one rank.
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
