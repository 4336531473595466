//! What Farside sets itself as targets, each a ratio of times that were measured in the same run.

mod puts;

use std::collections::BTreeMap;
use std::fmt;

use comfy_table::CellAlignment;
use serde::Serialize;

use crate::record::{Key, Library, Op, Record, Shape, Suite, Sync, Window};
use crate::table::{narrow, number};
pub use puts::{put_targets, standing};

/// One target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// What is compared with what.
    pub what: String,
    /// The ratio that was measured; `None` if one of the two was not.
    pub ratio: Option<f64>,
    /// What it is to be.
    pub bound: Bound,
}

/// A bound of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Not above.
    AtMost(f64),
    /// Not below.
    AtLeast(f64),
    /// Below.
    Below(f64),
    /// Whatever it is: beside a limit of the machine, or of one to another, which says what a target can be.
    Fact,
}

impl Target {
    /// Whether the target is met, if that is known.
    #[must_use]
    pub fn met(&self) -> Option<bool> {
        let ratio = self.ratio?;
        match self.bound {
            Bound::AtMost(bound) => Some(ratio <= bound),
            Bound::AtLeast(bound) => Some(ratio >= bound),
            Bound::Below(bound) => Some(ratio < bound),
            Bound::Fact => None,
        }
    }

    /// "met", "not met", "not measured", or "limit" of a fact.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        if self.bound == Bound::Fact {
            return "limit";
        }
        self.met().map_or("not measured", |met| if met { "met" } else { "not met" })
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::AtMost(bound) => write!(f, "at most {bound}"),
            Bound::AtLeast(bound) => write!(f, "at least {bound}"),
            Bound::Below(bound) => write!(f, "below {bound}"),
            Bound::Fact => Ok(()),
        }
    }
}

/// The epochs of a window, by name.
const EPOCHS: [(&str, Sync); 4] = [
    ("fence", Sync::Fence),
    ("PSCW", Sync::Pscw),
    ("shared lock", Sync::Lock),
    ("exclusive lock", Sync::LockExclusive),
];

const OPERATIONS: [(&str, Op); 5] = [
    ("put", Op::Put),
    ("get", Op::Get),
    ("fetch-op", Op::FetchOp),
    ("compare-and-swap", Op::Cas),
    ("accumulate", Op::Accumulate),
];

/// All targets for 2 ranks on shared memory, and for 8 ranks if those were measured.
#[must_use]
pub fn targets(records: &[Record]) -> Vec<Target> {
    let times = Times::new(records);
    let mut targets = Vec::new();
    let mut add = |what: String, ratio, bound| targets.push(Target { what, ratio, bound });
    let epoch = |window, sync, bytes, ranks| Key {
        suite: Suite::Epoch,
        window,
        sync,
        op: Op::Put,
        shape: Shape::None,
        bytes,
        ranks,
    };
    let op = |window, op, bytes| Key {
        suite: Suite::Op,
        window,
        sync: Sync::Flush,
        op,
        shape: Shape::None,
        bytes,
        ranks: 2,
    };
    for (name, sync) in EPOCHS {
        let ratio = times.to_best_peer(epoch(Window::Allocated, sync, 8, 2));
        add(format!("allocated window, 8 B: {name} epoch / best peer"), ratio, Bound::AtMost(0.5));
    }
    for (name, operation) in OPERATIONS {
        let ratio = times.to_best_peer(op(Window::Allocated, operation, 8));
        add(format!("allocated window, 8 B: {name} + flush / best peer"), ratio, Bound::AtMost(0.4));
    }
    for (size, bytes) in [("8 B", 8), ("64 KiB", 65536)] {
        for (name, sync) in EPOCHS {
            let ratio = times.to_best_peer(epoch(Window::User, sync, bytes, 2));
            add(format!("user window, {size}: {name} epoch / best peer"), ratio, Bound::AtMost(0.7));
        }
        let ratio = times.to_best_peer(op(Window::User, Op::Put, bytes));
        add(format!("user window, {size}: put + flush / best peer"), ratio, Bound::AtMost(0.7));
    }
    let large = op(Window::Allocated, Op::Put, 1 << 20);
    let ratio = times.beside(large, Op::Put).zip(times.farside(large)).map(|(copy, put)| copy / put);
    add("allocated window, 1 MiB: memcpy / put + flush".to_owned(), ratio, Bound::AtLeast(0.95));
    let ratio = times.to_best_peer(op(Window::User, Op::Put, 1 << 20));
    add("user window, 1 MiB: put + flush / best peer".to_owned(), ratio, Bound::Below(1.0));
    let single = |suite, op, bytes| Key {
        suite,
        window: Window::None,
        sync: Sync::None,
        op,
        shape: Shape::None,
        bytes,
        ranks: 2,
    };
    let (message, barrier) = (single(Suite::Am, Op::Pingpong, 8), single(Suite::Barrier, Op::Barrier, 0));
    for (what, key, op, bound) in [
        ("active message round trip, 8 B / cache line's", message, Op::Pingpong, Bound::AtMost(1.8)),
        ("active message round trip, 8 B / two lines'", message, Op::TwoLinesRoundTrip, Bound::Fact),
        ("the same / cache line's with 40 ns of work at each end", message, Op::WorkedRoundTrip, Bound::Fact),
        ("barrier of 2 / cache line one way", barrier, Op::Barrier, Bound::AtMost(1.6)),
        ("barrier of 2 / bare meeting of two ranks", barrier, Op::BareMeeting, Bound::Fact),
    ] {
        let ratio = times.farside(key).zip(times.beside(key, op)).map(|(us, limit)| us / limit);
        add(what.to_owned(), ratio, bound);
    }
    for (what, op) in [
        ("round trip by a line for each way / by one line", Op::TwoLinesRoundTrip),
        ("round trip by one line with 40 ns of work at each end / without", Op::WorkedRoundTrip),
    ] {
        let ratio = times.beside(message, op).zip(times.beside(message, Op::Pingpong)).map(|(us, one)| us / one);
        add(what.to_owned(), ratio, Bound::Fact);
    }
    if records.iter().any(|record| record.library == Library::Farside && record.ranks == 8) {
        for (name, sync) in EPOCHS {
            let of = |ranks| times.farside(epoch(Window::Allocated, sync, 8, ranks));
            // Eight ranks are four pairs, which share what two had.
            let ratio = of(8).zip(of(2)).map(|(eight, two)| eight / 4.0 / two);
            add(format!("allocated window, 8 B: {name} epoch, 8 ranks per pair / 2 ranks"), ratio, Bound::AtMost(4.0));
        }
        // A fence joins each rank with each.
        let fence = |ranks| times.farside(epoch(Window::Allocated, Sync::Fence, 8, ranks));
        let ratio = fence(8).zip(fence(2)).map(|(eight, two)| eight / 28.0 / two);
        let what = "allocated window, 8 B: fence epoch, 8 ranks for each of 28 pairs / 2 ranks".to_owned();
        add(what, ratio, Bound::AtMost(4.0));
        // Each of the four processes of a core has to run once between two fences: no fence is shorter than a turn.
        let turn = times.limit(Op::YieldTurn, 0);
        let ratio = turn.zip(fence(2)).map(|(turn, two)| turn / 4.0 / two);
        add(
            "a turn of four processes on each of two cores, per pair / fence epoch of 2 ranks".to_owned(),
            ratio,
            Bound::Fact,
        );
        let ratio = fence(8).zip(turn).map(|(eight, turn)| eight / turn);
        add("fence epoch of 8 ranks / a turn of four processes on each of two cores".to_owned(), ratio, Bound::Fact);
    }
    targets
}

/// All targets for 2 ranks over verbs: beside perftest's raw operations and the best peer of the same run.
#[must_use]
pub fn verbs_targets(records: &[Record]) -> Vec<Target> {
    let times = Times::new(records);
    let mut targets = Vec::new();
    let op = |op, bytes| Key {
        suite: Suite::Op,
        window: Window::Allocated,
        sync: Sync::Flush,
        op,
        shape: Shape::None,
        bytes,
        ranks: 2,
    };
    let put = op(Op::Put, 8);
    let burst = op(Op::PutBandwidth, 1 << 20);
    let times_of = [
        ("8 B: put + flush", put, Op::RawWrite, "bare write, one way", "ib_write_lat"),
        ("8 B: put + flush", put, Op::RawWriteDone, "bare write and its completion", "ib_write_bw -t 1"),
        ("8 B: get + flush", op(Op::Get, 8), Op::RawRead, "bare read", "ib_read_lat"),
        ("fetch-op + flush", op(Op::FetchOp, 8), Op::RawAtomic, "bare fetch-add", "ib_atomic_lat"),
        ("1 MiB: time of a put among 64", burst, Op::RawWriteBandwidth, "bare write among 64", "ib_write_bw"),
    ];
    for (what, key, raw, bare, tool) in times_of {
        let over = |us: Option<f64>, floor: Option<f64>| us.zip(floor).map(|(us, floor)| us / floor);
        let (ours, beside, perftest) = (times.farside(key), times.beside(key, raw), times.limit(raw, key.bytes));
        let bound = match raw {
            Op::RawWriteDone => Bound::Fact,
            Op::RawWriteBandwidth => Bound::AtMost(1.11),
            _ => Bound::AtMost(1.3),
        };
        targets.push(Target { what: format!("{what} / {tool}"), ratio: over(ours, perftest), bound });
        // perftest measures for itself, at another time; these take turns.
        targets.push(Target { what: format!("{what} / {bare}"), ratio: over(ours, beside), bound: Bound::Fact });
        targets.push(Target { what: format!("{bare} / {tool}"), ratio: over(beside, perftest), bound: Bound::Fact });
    }
    let ratio =
        times.beside(put, Op::RawWriteDone).zip(times.beside(put, Op::RawWrite)).map(|(us, one_way)| us / one_way);
    let what = "8 B: bare write and its completion / bare write, one way".to_owned();
    targets.push(Target { what, ratio, bound: Bound::Fact });
    // What each adds to a bare request of its own process, in turns with it: processes of an emulated machine differ by more.
    let long = 1 << 20;
    for (name, operation, raw, bytes) in [
        ("put + flush", Op::Put, Op::RawWriteDone, 8),
        ("get + flush", Op::Get, Op::RawRead, 8),
        ("fetch-op + flush", Op::FetchOp, Op::RawAtomic, 8),
        ("put + flush", Op::Put, Op::RawWriteDone, long),
        ("get + flush", Op::Get, Op::RawRead, long),
        ("put of a burst of 64", Op::PutBandwidth, Op::RawWriteBandwidth, long),
        ("get of a burst of 64", Op::GetBandwidth, Op::RawReadBandwidth, long),
    ] {
        let key = op(operation, bytes);
        let bare = Key { op: raw, ..key };
        let over = |library, limit| Some(times.of(library, key)? / times.of(limit, bare)?);
        let peers = Library::PEERS.iter().filter_map(|library| over(*library, *library)).min_by(f64::total_cmp);
        let ratio = over(Library::Farside, Library::Limit).zip(peers).map(|(farside, peer)| farside / peer);
        let what = format!("{bytes} B: {name} in bare requests of its process / best peer's the same");
        targets.push(Target { what, ratio, bound: Bound::Fact });
    }
    let bursts = [("put of a burst of 64", Op::PutBandwidth), ("get of a burst of 64", Op::GetBandwidth)];
    let long = bursts.map(|(name, op)| (name, op, 1 << 20));
    for (name, operation, bytes) in OPERATIONS.map(|(name, op)| (name, op, 8)).into_iter().chain(long) {
        let ratio = times.to_best_peer(op(operation, bytes));
        targets.push(Target { what: format!("{bytes} B: {name} / best peer"), ratio, bound: Bound::AtMost(1.0) });
    }
    targets
}

/// All targets of the suite "pack": of each shape the worst size.
#[must_use]
pub fn pack_targets(records: &[Record]) -> Vec<Target> {
    let times = Times::new(records);
    let keys = || times.0.keys().filter(|(library, key)| *library == Library::Farside && key.suite == Suite::Pack);
    let mut targets = Vec::new();
    for &op in &[Op::Pack, Op::Unpack, Op::Copy] {
        for &shape in Shape::ALL {
            let keys: Vec<Key> = keys().map(|(_, key)| *key).filter(|key| (key.op, key.shape) == (op, shape)).collect();
            let over = |floor: Library| {
                let of = |key: &Key| Some(times.0.get(&(floor, *key))? / times.farside(*key)?);
                keys.iter().filter_map(of).min_by(f64::total_cmp)
            };
            let peer = keys.iter().filter_map(|key| times.to_best_peer(*key)).max_by(f64::total_cmp);
            let mut add = |what: &str, ratio, bound| {
                targets.push(Target { what: format!("{op}, {shape}: {what}"), ratio, bound });
            };
            if keys.is_empty() {
                continue;
            }
            // A copy may take 1.1 times as long.
            let bound = if op == Op::Copy { 0.91 } else { 0.9 };
            add("loop by hand / Farside, worst size", over(Library::Loop), Bound::AtLeast(bound));
            if op == Op::Copy {
                continue;
            }
            if shape == Shape::Vector4096 {
                add("memcpy / Farside, worst size", over(Library::Limit), Bound::AtLeast(0.9));
            }
            add("Farside / best peer, worst size", peer, Bound::Below(1.0));
        }
    }
    targets
}

/// Times by library and key.
struct Times(BTreeMap<(Library, Key), f64>);

impl Times {
    fn new(records: &[Record]) -> Self {
        Self(records.iter().map(|record| ((record.library, record.key()), record.us())).collect())
    }

    fn farside(&self, key: Key) -> Option<f64> {
        self.0.get(&(Library::Farside, key)).copied()
    }

    fn to_best_peer(&self, key: Key) -> Option<f64> {
        let peers = Library::PEERS.iter().filter_map(|peer| self.0.get(&(*peer, key)).copied());
        Some(self.farside(key)? / peers.min_by(f64::total_cmp)?)
    }

    fn limit(&self, op: Op, bytes: u64) -> Option<f64> {
        let is_it = |key: &Key| key.suite == Suite::Limit && key.op == op && key.bytes == bytes;
        self.0.iter().find(|((library, key), _)| *library == Library::Limit && is_it(key)).map(|(_, us)| *us)
    }

    fn of(&self, library: Library, key: Key) -> Option<f64> {
        self.0.get(&(library, key)).copied()
    }

    /// The limit that the ranks have measured in turns with `key`, under the name of `op`.
    fn beside(&self, key: Key, op: Op) -> Option<f64> {
        self.0.get(&(Library::Limit, Key { op, ..key })).copied()
    }
}

/// The targets of several rounds, each with the median of the ratios that were measured in one round: a machine that is
/// slow for a while, or whose cores stand closer together, is so for both sides of a ratio.
#[must_use]
pub fn of_rounds(rounds: &[Vec<Record>], targets: impl Fn(&[Record]) -> Vec<Target>) -> Vec<Target> {
    let all: Vec<Record> = rounds.iter().flatten().cloned().collect();
    let each: Vec<Vec<Target>> = rounds.iter().map(|round| targets(round)).collect();
    let mut merged = targets(&all);
    for target in &mut merged {
        let same = each.iter().flatten().filter(|other| other.what == target.what);
        let mut ratios: Vec<f64> = same.filter_map(|other| other.ratio).collect();
        ratios.sort_by(f64::total_cmp);
        target.ratio = ratios.get(ratios.len() / 2).copied();
    }
    merged
}

/// The targets as text for a terminal: those that were measured, and how many were not.
#[must_use]
pub fn display(targets: &[Target]) -> String {
    let asked = |target: &&Target| target.bound != Bound::Fact;
    let count = |met| targets.iter().filter(asked).filter(|target| target.met() == met).count();
    let mut text = format!("Targets: {} met, {} not met", count(Some(true)), count(Some(false)));
    if count(None) > 0 {
        text += &format!(", {} not measured (most need --peers)", count(None));
    }
    let measured: Vec<_> = targets.iter().filter(|target| target.ratio.is_some()).collect();
    if measured.is_empty() {
        return text;
    }
    let mut table = comfy_table::Table::new();
    table.set_header(["", "measured", "wanted", "target"]);
    for target in measured {
        table.add_row([
            target.verdict().to_owned(),
            number(target.ratio),
            target.bound.to_string(),
            target.what.clone(),
        ]);
    }
    narrow(&mut table);
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{text}\n{table}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Effort, Plan};

    /// Every planned time of a library, all the same.
    fn all(library: Library, us: f64) -> Vec<Record> {
        let plan = Plan::new(Effort::Quick, &[2, 8]);
        let keys = plan.ranks.iter().flat_map(|ranks| plan.farside_keys(*ranks));
        keys.map(|key| Record::from_blocks(library, "0", key, 1, &[us]).unwrap()).collect()
    }

    /// What two ranks have measured in turns with what they do.
    fn beside(suite: Suite, op: Op, bytes: u64, us: f64) -> Record {
        let (window, sync) =
            if suite == Suite::Op { (Window::Allocated, Sync::Flush) } else { (Window::None, Sync::None) };
        let key = Key { suite, window, sync, op, shape: Shape::None, bytes, ranks: 2 };
        Record::from_blocks(Library::Limit, "0", key, 1, &[us]).unwrap()
    }

    fn limit(op: Op, bytes: u64, us: f64) -> Record {
        let key = Key {
            suite: Suite::Limit,
            window: Window::None,
            sync: Sync::None,
            op,
            shape: Shape::None,
            bytes,
            ranks: 1,
        };
        Record::from_blocks(Library::Limit, "0", key, 1, &[us]).unwrap()
    }

    #[test]
    fn targets_without_records_are_not_measured() {
        let targets = targets(&[]);
        assert!(!targets.is_empty() && targets.iter().all(|target| target.met().is_none()));
        assert!(display(&targets).contains("0 met, 0 not met, 23 not measured"), "{}", display(&targets));
    }

    #[test]
    fn targets_of_rounds_are_medians_of_ratios_within_a_round() {
        let round = |line: f64, barrier: f64| {
            let mut records = all(Library::Farside, barrier);
            records.push(beside(Suite::Barrier, Op::Barrier, 0, line));
            records
        };
        // The fastest line is not that of the fastest barrier.
        let rounds = [round(0.5, 2.0), round(1.0, 1.5), round(2.0, 2.5)];
        let merged = of_rounds(&rounds, targets);
        let found = merged.iter().find(|target| target.what.contains("barrier of 2 / cache")).unwrap();
        assert_eq!(found.ratio, Some(1.5));
        let of_peers = merged.iter().find(|target| target.what.contains("fence epoch / best peer")).unwrap();
        assert_eq!(of_peers.ratio, None);
    }

    #[test]
    fn verbs_targets_compare_with_bare_requests_of_the_same_process() {
        let mut records = vec![beside(Suite::Op, Op::RawWriteDone, 8, 2.0), beside(Suite::Op, Op::RawWrite, 8, 1.0)];
        let of = |library, op, us| Record { library, ..beside(Suite::Op, op, 8, us) };
        records.extend([of(Library::Farside, Op::Put, 3.0), of(Library::Mpich, Op::Put, 6.0)]);
        records.extend([of(Library::Mpich, Op::RawWriteDone, 3.0), limit(Op::RawWrite, 8, 1.5)]);
        let targets = verbs_targets(&records);
        let find = |text: &str| targets.iter().find(|target| target.what.contains(text)).unwrap().ratio;
        assert_eq!(find("put + flush / ib_write_lat"), Some(2.0));
        assert!(targets.iter().any(|target| target.what.ends_with("/ ib_write_lat") && target.met() == Some(false)));
        assert_eq!(find("put + flush / bare write, one way"), Some(3.0));
        assert_eq!(find("put + flush / bare write and its completion"), Some(1.5));
        assert_eq!(find("put + flush in bare requests of its process"), Some(0.75));
        assert_eq!(find("8 B: put / best peer"), Some(0.5));
        assert_eq!(find("get + flush / bare read"), None);
    }

    #[test]
    fn targets_compare_with_the_best_peer_and_the_limit() {
        let mut records = all(Library::Farside, 1.0);
        records.extend(all(Library::Mpich, 3.0));
        records.extend(all(Library::OpenMpi, 2.0));
        records.extend([
            beside(Suite::Op, Op::Put, 1 << 20, 0.9),
            beside(Suite::Op, Op::Put, 8, 0.1),
            beside(Suite::Am, Op::Pingpong, 8, 0.5),
            beside(Suite::Am, Op::TwoLinesRoundTrip, 8, 0.8),
            beside(Suite::Am, Op::WorkedRoundTrip, 8, 1.0),
            beside(Suite::Barrier, Op::Barrier, 0, 0.8),
            beside(Suite::Barrier, Op::BareMeeting, 0, 0.8),
            limit(Op::YieldTurn, 0, 4.0),
        ]);
        let targets = targets(&records);
        let find = |text: &str| {
            let found: Vec<_> = targets.iter().filter(|target| target.what.contains(text)).collect();
            assert_eq!(found.len(), 1, "{text}");
            (found[0].ratio.unwrap(), found[0].met().unwrap_or(true))
        };
        assert_eq!(find("allocated window, 8 B: fence epoch / best peer"), (0.5, true));
        assert_eq!(find("allocated window, 8 B: get + flush"), (0.5, false));
        assert_eq!(find("user window, 64 KiB: exclusive lock"), (0.5, true));
        assert_eq!(find("memcpy / put"), (0.9, false));
        assert_eq!(find("user window, 1 MiB"), (0.5, true));
        assert_eq!(find("8 B / cache line's"), (2.0, false));
        assert_eq!(find("8 B / two lines'"), (1.25, true));
        assert_eq!(find("barrier of 2 / cache"), (1.25, true));
        assert_eq!(find("shared lock epoch, 8 ranks"), (0.25, true));
        assert_eq!(find("8 ranks for each of 28 pairs"), (1.0 / 28.0, true));
        assert_eq!(find("fence epoch of 8 ranks"), (0.25, true));
        let facts: Vec<_> =
            targets.iter().filter(|target| target.bound == Bound::Fact).map(|fact| fact.ratio).collect();
        assert_eq!(facts, [1.25, 1.0, 1.25, 1.6, 2.0, 1.0, 0.25].map(Some));
        let asked = |target: &&Target| target.bound != Bound::Fact;
        assert!(targets.iter().filter(asked).all(|target| target.met().is_some()), "{}", display(&targets));
    }
}
