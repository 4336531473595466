//! Farside's performance targets, each a ratio of times that were measured in the same run.

use std::collections::BTreeMap;

use farside_core::plot::size;

use crate::record::{Key, Library, Op, Record, Shape, Suite, Sync, Window};
use crate::table::{number, text};

/// One target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// The two sides of the comparison.
    pub(crate) what: String,
    /// The measured ratio; `None` if one of the two times was not measured.
    pub(crate) ratio: Option<f64>,
    /// The largest ratio that meets the target; `None` if the ratio is informative only: to a limit of the machine, or
    /// of one limit to another.
    pub(crate) most: Option<f64>,
}

impl Target {
    /// Whether the target is met, if that is known.
    pub(crate) fn met(&self) -> Option<bool> {
        Some(self.ratio? <= self.most?)
    }

    fn verdict(&self) -> &'static str {
        match (self.most, self.met()) {
            (None, _) => "no target",
            (_, None) => "not measured",
            (_, Some(true)) => "met",
            (_, Some(false)) => "not met",
        }
    }
}

/// Times by library and key.
struct Times(BTreeMap<(Library, Key), f64>);

impl Times {
    fn new(records: &[Record]) -> Self {
        Self(records.iter().map(|record| ((record.library, record.key), record.us())).collect())
    }

    fn of(&self, library: Library, key: Key) -> Option<f64> {
        self.0.get(&(library, key)).copied()
    }

    fn farside(&self, key: Key) -> Option<f64> {
        self.of(Library::Farside, key)
    }

    fn best_peer(&self, key: Key) -> Option<f64> {
        Library::PEERS.iter().filter_map(|peer| self.of(*peer, key)).min_by(f64::total_cmp)
    }

    /// A limit that was measured separately.
    fn limit(&self, op: Op, bytes: u64) -> Option<f64> {
        let is_it = |key: &Key| (key.suite, key.op, key.bytes) == (Suite::Limit, op, bytes);
        self.0.iter().find(|((library, key), _)| *library == Library::Limit && is_it(key)).map(|(_, us)| *us)
    }

    /// The limit that the ranks have measured alternating with `key`, recorded under `op`.
    fn alternated_limit(&self, key: Key, op: Op) -> Option<f64> {
        self.of(Library::Limit, Key { op, ..key })
    }
}

fn over(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b?)
}

const EPOCHS: [Sync; 4] = [Sync::Fence, Sync::Pscw, Sync::Lock, Sync::LockExclusive];
const OPERATIONS: [Op; 5] = [Op::Put, Op::Get, Op::FetchOp, Op::Cas, Op::Accumulate];
const MIB: u64 = 1 << 20;

fn epoch(window: Window, sync: Sync, bytes: u64, ranks: u32) -> Key {
    Key { suite: Suite::Epoch, window, sync, bytes, ranks, ..Key::default() }
}

fn operation(window: Window, op: Op, bytes: u64) -> Key {
    Key { suite: Suite::Op, window, sync: Sync::Flush, op, bytes, ranks: 2, ..Key::default() }
}

/// All targets for 2 ranks on shared memory, and for 8 ranks if those were measured.
pub(crate) fn targets(records: &[Record]) -> Vec<Target> {
    let times = Times::new(records);
    let mut targets = Vec::new();
    let mut add = |what: String, ratio, most| targets.push(Target { what, ratio, most });
    // Ratios to the best peer, of epochs and of operations with their flush.
    for (window, bytes, epochs, operations, most) in [
        (Window::Allocated, 8, &EPOCHS[..], &OPERATIONS[..], [0.5, 0.4]),
        (Window::User, 8, &EPOCHS, &OPERATIONS[..1], [0.7, 0.7]),
        (Window::User, 65536, &EPOCHS, &OPERATIONS[..1], [0.7, 0.7]),
        (Window::User, MIB, &[], &OPERATIONS[..1], [0.7, 1.0]),
    ] {
        let epochs = epochs.iter().map(|sync| (epoch(window, *sync, bytes, 2), sync.label(), "epoch", most[0]));
        let operations = operations.iter().map(|op| (operation(window, *op, bytes), op.label(), "+ flush", most[1]));
        for (key, name, rest, most) in epochs.chain(operations) {
            let ratio = over(times.farside(key), times.best_peer(key));
            add(format!("{}, {}: {name} {rest} / best peer", window.label(), size(bytes)), ratio, Some(most));
        }
    }
    let large = operation(Window::Allocated, Op::Put, MIB);
    let message = Key { suite: Suite::Am, op: Op::Pingpong, bytes: 8, ranks: 2, ..Key::default() };
    let barrier = Key { suite: Suite::Barrier, op: Op::Barrier, ranks: 2, ..Key::default() };
    // Ratios to limits that the same ranks have measured in alternation.
    for (what, key, op, most) in [
        ("allocated window, 1 MiB: put + flush / memcpy", large, Op::Put, Some(1.05)),
        ("active message round trip, 8 B / round trip of one cache line", message, Op::Pingpong, Some(1.8)),
        ("active message round trip, 8 B / round trip of two cache lines", message, Op::TwoLinesRoundTrip, None),
        (
            "active message round trip, 8 B / round trip with 40 ns of work at each end, of one cache line",
            message,
            Op::WorkedRoundTrip,
            None,
        ),
        ("barrier of 2 ranks / cache line one way", barrier, Op::Barrier, Some(1.6)),
        ("barrier of 2 ranks / bare meeting of 2 ranks", barrier, Op::BareMeeting, None),
    ] {
        add(what.to_owned(), over(times.farside(key), times.alternated_limit(key, op)), most);
    }
    for (what, op) in [
        ("round trip of two cache lines / round trip of one", Op::TwoLinesRoundTrip),
        ("round trip with 40 ns of work at each end, of one cache line / the same without work", Op::WorkedRoundTrip),
    ] {
        add(
            what.to_owned(),
            over(times.alternated_limit(message, op), times.alternated_limit(message, Op::Pingpong)),
            None,
        );
    }
    if records.iter().any(|record| record.library == Library::Farside && record.key.ranks == 8) {
        let of = |sync, ranks| times.farside(epoch(Window::Allocated, sync, 8, ranks));
        let scaled = |a: Option<f64>, by: f64, b| over(a.map(|us| us / by), b);
        for sync in EPOCHS {
            // Eight ranks form four pairs, which share the two cores that a single pair has otherwise.
            let what = format!(
                "allocated window, 8 B: {} epoch: (time with 8 ranks / 4 pairs) / time with 2 ranks",
                sync.label()
            );
            add(what, scaled(of(sync, 8), 4.0, of(sync, 2)), Some(4.0));
        }
        // A fence synchronizes every pair of ranks.
        let [two, eight] = [2, 8].map(|ranks| of(Sync::Fence, ranks));
        let what = "allocated window, 8 B: fence epoch: (time with 8 ranks / 28 pairs) / time with 2 ranks";
        add(what.to_owned(), scaled(eight, 28.0, two), Some(4.0));
        // Each of the four processes of a core must run once between two fences, so no fence is shorter than a turn.
        let turn = times.limit(Op::YieldTurn, 0);
        let what = "(turn of four processes on each of two cores / 4 pairs) / fence epoch of 2 ranks";
        add(what.to_owned(), scaled(turn, 4.0, two), None);
        let what = "fence epoch of 8 ranks / turn of four processes on each of two cores";
        add(what.to_owned(), over(eight, turn), None);
    }
    targets
}

/// All targets for 2 ranks over verbs: ratios to perftest's raw operations and to the best peer of the same run.
pub(crate) fn verbs_targets(records: &[Record]) -> Vec<Target> {
    let times = Times::new(records);
    let mut targets = Vec::new();
    let mut add = |what: String, ratio, most| targets.push(Target { what, ratio, most });
    let key = |op, bytes| operation(Window::Allocated, op, bytes);
    let put = key(Op::Put, 8);
    for (what, key, raw, tool, most) in [
        ("8 B: put + flush", put, Op::RawWrite, "ib_write_lat", Some(1.3)),
        ("8 B: put + flush", put, Op::RawWriteDone, "ib_write_bw -t 1", None),
        ("8 B: get + flush", key(Op::Get, 8), Op::RawRead, "ib_read_lat", Some(1.3)),
        ("fetch-and-op + flush", key(Op::FetchOp, 8), Op::RawAtomic, "ib_atomic_lat", Some(1.3)),
        ("1 MiB: time of a put among 64", key(Op::PutBandwidth, MIB), Op::RawWriteBandwidth, "ib_write_bw", Some(1.11)),
    ] {
        let (ours, beside, perftest) =
            (times.farside(key), times.alternated_limit(key, raw), times.limit(raw, key.bytes));
        add(format!("{what} / {tool}"), over(ours, perftest), most);
        // perftest measures separately, at another time; these alternate.
        add(format!("{what} / {}", raw.label()), over(ours, beside), None);
        add(format!("{} / {tool}", raw.label()), over(beside, perftest), None);
    }
    let ratio = over(times.alternated_limit(put, Op::RawWriteDone), times.alternated_limit(put, Op::RawWrite));
    add("8 B: bare write, completed / bare write, one way".to_owned(), ratio, None);
    // Each library's time is divided by that of a bare request, which its own process measures alternately: on an emulated
    // machine, bare times of different processes differ by more than the libraries.
    for (op, raw, bytes) in [
        (Op::Put, Op::RawWriteDone, 8),
        (Op::Get, Op::RawRead, 8),
        (Op::FetchOp, Op::RawAtomic, 8),
        (Op::Put, Op::RawWriteDone, MIB),
        (Op::Get, Op::RawRead, MIB),
        (Op::PutBandwidth, Op::RawWriteBandwidth, MIB),
        (Op::GetBandwidth, Op::RawReadBandwidth, MIB),
    ] {
        let to_bare = |library, bare| over(times.of(library, key(op, bytes)), times.of(bare, key(raw, bytes)));
        let peers = Library::PEERS.iter().filter_map(|peer| to_bare(*peer, *peer)).min_by(f64::total_cmp);
        let what = format!(
            "{}: ({} / bare request of its process) / the same quotient of the best peer",
            size(bytes),
            op.label()
        );
        add(what, over(to_bare(Library::Farside, Library::Limit), peers), None);
    }
    let long = [(Op::PutBandwidth, MIB), (Op::GetBandwidth, MIB)];
    for (op, bytes) in OPERATIONS.map(|op| (op, 8)).into_iter().chain(long) {
        let ratio = over(times.farside(key(op, bytes)), times.best_peer(key(op, bytes)));
        add(format!("{}: {} / best peer", size(bytes), op.label()), ratio, Some(1.0));
    }
    targets
}

/// The references of a comparison in the suites "pack" and "put": name, time, and the largest ratio that meets the
/// target.
fn comparisons(times: &Times, key: Key) -> Vec<(&'static str, Option<f64>, f64)> {
    let pack = key.suite == Suite::Pack;
    let mut all = Vec::new();
    if pack || key.op == Op::Put && key.window != Window::Unmapped {
        let most = if matches!(key.op, Op::Pack | Op::Unpack) { 1.11 } else { 1.1 };
        all.push((if pack { "loop by hand" } else { "copy by hand" }, times.of(Library::Loop, key), most));
    }
    if key.shape == Shape::Vector4096 && key.op != Op::Copy {
        all.push(("memcpy", times.of(Library::Limit, key), 1.11));
    }
    if key.op != Op::Copy {
        // An exchange is compared with the best of a peer's puts and MPI's own exchange.
        let own = Key { window: Window::None, sync: Sync::Twosided, ..key };
        let own = if key.op == Op::Alltoall { times.best_peer(own) } else { None };
        let best = times.best_peer(key).into_iter().chain(own).min_by(f64::total_cmp);
        all.push(("best peer", best, 1.0));
    }
    all
}

/// One comparison of one layout of one size.
struct Comparison {
    key: Key,
    with: &'static str,
    ratio: Option<f64>,
    most: f64,
}

/// Every comparison of every layout that Farside has measured, except layouts without gaps.
fn compared(times: &Times) -> Vec<Comparison> {
    let wanted = |key: &Key| match key.suite {
        Suite::Pack => true,
        Suite::Put => key.shape != Shape::None && matches!(key.op, Op::Put | Op::PutBandwidth | Op::Alltoall),
        _ => false,
    };
    let own = times.0.iter().filter(|((library, key), _)| *library == Library::Farside && wanted(key));
    let all = own.flat_map(|(&(_, key), us)| {
        let all = comparisons(times, key).into_iter();
        all.map(move |(with, other, most)| Comparison { key, with, ratio: over(Some(*us), other), most })
    });
    all.collect()
}

/// The targets of the suites "pack" and "put": the worst size of each operation, layout and kind of window.
pub(crate) fn layout_targets(records: &[Record]) -> Vec<Target> {
    let all = compared(&Times::new(records));
    let mut groups: BTreeMap<(Key, &str), Vec<&Comparison>> = BTreeMap::new();
    for one in &all {
        groups.entry((Key { shape: one.key.shape.kind(), bytes: 0, ..one.key }, one.with)).or_default().push(one);
    }
    let mut targets = Vec::new();
    for ((of, with), group) in groups {
        let measured = group.iter().filter_map(|one| Some((one.ratio?, one.key)));
        let worst = measured.max_by(|a, b| a.0.total_cmp(&b.0));
        let shape = if of.shape.number_of("blocks").is_some() { "blocks" } else { of.shape.label() };
        let at = worst.map_or(String::new(), |(_, key)| match key.shape.number_of("blocks") {
            Some(blocks) => format!(" ({} in {blocks})", size(key.bytes)),
            None => format!(" ({})", size(key.bytes)),
        });
        let window = match of.suite {
            Suite::Put => format!(", {}, {} ranks", of.window.label(), of.ranks),
            _ => String::new(),
        };
        let what = format!("{} of {shape}{window}: Farside / {with}, worst size{at}", of.op.label());
        targets.push(Target { what, ratio: worst.map(|(ratio, _)| ratio), most: Some(group[0].most) });
    }
    targets
}

/// Farside's results with layouts, size by size: for each operation, kind of window and comparison a line with the
/// sizes at which it is slower.
pub(crate) fn layout_results(records: &[Record]) -> String {
    let all = compared(&Times::new(records));
    type Line = (Op, Window, u32, &'static str);
    let mut groups: BTreeMap<Line, Vec<(&Comparison, f64)>> = BTreeMap::new();
    for (one, ratio) in all.iter().filter_map(|one| Some((one, one.ratio?))) {
        groups.entry((one.key.op, one.key.window, one.key.ranks, one.with)).or_default().push((one, ratio));
    }
    let mut text = String::new();
    for ((op, window, ranks, with), group) in groups {
        let behind = group.iter().filter(|(one, ratio)| *ratio > one.most);
        let name = |(one, ratio): &(&Comparison, f64)| {
            format!("{}:{} ({})", one.key.shape, one.key.bytes, number(Some(*ratio)))
        };
        let behind: Vec<_> = behind.map(name).collect();
        let but = if behind.is_empty() { String::new() } else { format!("; behind: {}", behind.join(", ")) };
        let (all, met, most) = (group.len(), group.len() - behind.len(), group[0].0.most);
        let window = if window == Window::None { "no window" } else { window.label() };
        let op = op.label();
        text +=
            &format!("{op}, {window}, {ranks} ranks: at most {most} times the {with} at {met} of {all} sizes{but}\n");
    }
    text
}

/// The targets of several rounds, each with the median of the rounds' ratios: a change of the machine's speed, or of
/// the placement of its cores, affects both sides of a ratio.
pub(crate) fn of_rounds(rounds: &[Vec<Record>], targets: impl Fn(&[Record]) -> Vec<Target>) -> Vec<Target> {
    let each: Vec<Vec<Target>> = rounds.iter().map(|round| targets(round)).collect();
    let mut merged = targets(&rounds.concat());
    for target in &mut merged {
        let same = each.iter().flatten().filter(|other| other.what == target.what);
        let mut ratios: Vec<f64> = same.filter_map(|other| other.ratio).collect();
        ratios.sort_by(f64::total_cmp);
        target.ratio = ratios.get(ratios.len() / 2).copied();
    }
    merged
}

/// The targets as text for a terminal: those that were measured, and the number of unmeasured ones.
pub(crate) fn display(targets: &[Target]) -> String {
    let count = |met| targets.iter().filter(|target| target.most.is_some() && target.met() == met).count();
    let mut summary = format!("Targets: {} met, {} not met", count(Some(true)), count(Some(false)));
    if count(None) > 0 {
        summary += &format!(", {} not in this run", count(None));
    }
    let measured = targets.iter().filter(|target| target.ratio.is_some());
    let row = |t: &Target| {
        let most = t.most.map_or(String::new(), |most| most.to_string());
        vec![t.verdict().to_owned(), t.what.clone(), number(t.ratio), most]
    };
    summary += ". Below 1, the first of the two took less time; without a target, the second is a bare loop";
    format!("{summary}\n{}", text(&["", "target", "measured", "at most"], 2, measured.map(row)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::record::tests::record;

    /// A record with the same time for every planned measurement of a library.
    fn all(library: Library, us: f64) -> Vec<Record> {
        let keys = [2, 8].into_iter().flat_map(|ranks| Plan::new(true).farside_keys(ranks));
        keys.map(|key| of(library, key, us)).collect()
    }

    fn of(library: Library, key: Key, us: f64) -> Record {
        Record::from_blocks(library, key, 1, &[us]).unwrap()
    }

    /// A limit that two ranks have measured alternating with their operations.
    fn alternated_record(suite: Suite, op: Op, bytes: u64, us: f64) -> Record {
        let key = Key { suite, op, bytes, ranks: 2, ..Key::default() };
        of(Library::Limit, if suite == Suite::Op { operation(Window::Allocated, op, bytes) } else { key }, us)
    }

    /// The ratio of the only target whose text contains `text`, and whether it is met.
    fn find(targets: &[Target], text: &str) -> (Option<f64>, Option<bool>) {
        let found: Vec<_> = targets.iter().filter(|target| target.what.contains(text)).collect();
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        (found[0].ratio, found[0].met())
    }

    #[test]
    fn targets_without_records_are_not_measured() {
        let targets = targets(&[]);
        assert!(!targets.is_empty() && targets.iter().all(|target| target.met().is_none()));
        assert!(display(&targets).contains("0 met, 0 not met, 23 not in this run"), "{}", display(&targets));
    }

    #[test]
    fn targets_of_rounds_are_medians_of_ratios_within_a_round() {
        let round = |line: f64, barrier: f64| {
            let mut records = all(Library::Farside, barrier);
            records.push(alternated_record(Suite::Barrier, Op::Barrier, 0, line));
            records
        };
        // The fastest line and the fastest barrier are from different rounds.
        let merged = of_rounds(&[round(0.5, 2.0), round(1.0, 1.5), round(2.0, 2.5)], targets);
        assert_eq!(find(&merged, "barrier of 2 ranks / cache").0, Some(1.5));
        assert_eq!(find(&merged, "allocated window, 8 B: fence epoch / best peer").0, None);
    }

    #[test]
    fn verbs_targets_compare_with_bare_requests_of_the_same_process() {
        let on = |library, op, us| of(library, operation(Window::Allocated, op, 8), us);
        let targets = verbs_targets(&[
            on(Library::Limit, Op::RawWriteDone, 2.0),
            on(Library::Limit, Op::RawWrite, 1.0),
            on(Library::Farside, Op::Put, 3.0),
            on(Library::Mpich, Op::Put, 6.0),
            on(Library::Mpich, Op::RawWriteDone, 3.0),
            record(Library::Limit, Op::RawWrite, 8, 1.5),
        ]);
        assert_eq!(find(&targets, "put + flush / ib_write_lat"), (Some(2.0), Some(false)));
        assert_eq!(find(&targets, "put + flush / bare write, one way").0, Some(3.0));
        assert_eq!(find(&targets, "put + flush / bare write, completed").0, Some(1.5));
        assert_eq!(find(&targets, "8 B: (put / bare request of its process)").0, Some(0.75));
        assert_eq!(find(&targets, "8 B: put / best peer").0, Some(0.5));
        assert_eq!(find(&targets, "get + flush / bare read").0, None);
    }

    #[test]
    fn targets_compare_with_the_best_peer_and_the_limit() {
        let mut records = all(Library::Farside, 1.0);
        records.extend(all(Library::Mpich, 3.0));
        records.extend(all(Library::OpenMpi, 2.0));
        records.extend([
            alternated_record(Suite::Op, Op::Put, MIB, 0.8),
            alternated_record(Suite::Op, Op::Put, 8, 0.1),
            alternated_record(Suite::Am, Op::Pingpong, 8, 0.5),
            alternated_record(Suite::Am, Op::TwoLinesRoundTrip, 8, 0.8),
            alternated_record(Suite::Am, Op::WorkedRoundTrip, 8, 1.0),
            alternated_record(Suite::Barrier, Op::Barrier, 0, 0.8),
            alternated_record(Suite::Barrier, Op::BareMeeting, 0, 0.8),
            record(Library::Limit, Op::YieldTurn, 0, 4.0),
        ]);
        let targets = targets(&records);
        for (text, ratio, met) in [
            ("allocated window, 8 B: fence epoch / best peer", 0.5, Some(true)),
            ("allocated window, 8 B: get + flush", 0.5, Some(false)),
            ("user window, 64 KiB: exclusive lock", 0.5, Some(true)),
            ("put + flush / memcpy", 1.25, Some(false)),
            ("user window, 1 MiB", 0.5, Some(true)),
            ("8 B / round trip of one cache line", 2.0, Some(false)),
            ("8 B / round trip of two cache lines", 1.25, None),
            ("barrier of 2 ranks / cache", 1.25, Some(true)),
            ("shared lock epoch: (time with 8 ranks", 0.25, Some(true)),
            ("8 ranks / 28 pairs", 1.0 / 28.0, Some(true)),
            ("fence epoch of 8 ranks", 0.25, None),
        ] {
            assert_eq!(find(&targets, text), (Some(ratio), met), "{text}");
        }
        let limits: Vec<_> = targets.iter().filter(|target| target.most.is_none()).map(|limit| limit.ratio).collect();
        assert_eq!(limits, [1.25, 1.0, 1.25, 1.6, 2.0, 1.0, 0.25].map(Some));
        assert!(targets.iter().all(|target| target.ratio.is_some()), "{}", display(&targets));
    }

    #[test]
    fn layout_targets_take_the_worst_size_and_the_best_peer() {
        let suite = Suite::Put;
        let at = |window, sync, op, shape, bytes| Key { suite, window, sync, op, shape, bytes, ranks: 2 };
        let put = |shape, bytes| at(Window::Allocated, Sync::Flush, Op::Put, shape, bytes);
        let exchange = |window, sync| at(window, sync, Op::Alltoall, Shape::Columns64, 1024);
        let records = [
            of(Library::Farside, put(Shape::Columns64, 1024), 1.2),
            of(Library::Loop, put(Shape::Columns64, 1024), 1.0),
            of(Library::Mpich, put(Shape::Columns64, 1024), 2.4),
            of(Library::Farside, put(Shape::Columns64, 8192), 1.0),
            of(Library::Loop, put(Shape::Columns64, 8192), 1.0),
            of(Library::Mpich, put(Shape::Columns64, 8192), 3.0),
            of(Library::OpenMpi, put(Shape::Columns64, 8192), 0.5),
            of(Library::Farside, put(Shape::Blocks16, 4096), 1.0),
            of(Library::Loop, put(Shape::Blocks16, 4096), 1.0),
            of(Library::Farside, exchange(Window::Allocated, Sync::Fence), 1.0),
            of(Library::Mpich, exchange(Window::Allocated, Sync::Fence), 4.0),
            of(Library::Mpich, exchange(Window::None, Sync::Twosided), 2.0),
        ];
        let targets = layout_targets(&records);
        let columns = "put of columns, 64 rows, allocated window, 2 ranks: Farside / ";
        let by_hand = format!("{columns}copy by hand, worst size (1 KiB)");
        assert_eq!(find(&targets, &by_hand), (Some(1.2), Some(false)));
        assert_eq!(find(&targets, &format!("{columns}best peer, worst size (8 KiB)")), (Some(2.0), Some(false)));
        let blocks = "put of blocks, allocated window, 2 ranks: Farside / ";
        assert_eq!(find(&targets, &format!("{blocks}copy by hand")), (Some(1.0), Some(true)));
        assert_eq!(find(&targets, &format!("{blocks}best peer")), (None, None));
        assert_eq!(find(&targets, "all-to-all of columns"), (Some(0.5), Some(true)));
        assert_eq!(targets.len(), 5);
        assert_eq!(
            layout_results(&records),
            "put, allocated window, 2 ranks: at most 1 times the best peer at 1 of 2 sizes; behind: columns_64:8192 (2.00)\n\
             put, allocated window, 2 ranks: at most 1.1 times the copy by hand at 2 of 3 sizes; behind: columns_64:1024 (1.20)\n\
             all-to-all, allocated window, 2 ranks: at most 1 times the best peer at 1 of 1 sizes\n"
        );
    }
}
