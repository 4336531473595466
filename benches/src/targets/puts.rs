//! The targets of the suite "put".

use std::collections::BTreeMap;

use super::{Bound, Target, Times};
use crate::record::{Key, Library, Op, Record, Shape, Suite, Sync, Window};
use crate::shapes::blocks;
use crate::table::number;

/// Of each layout and kind of window the worst size: of a put beside the copy by hand, where memory is mapped; of a put, a
/// burst of puts and the exchange beside the best peer, which for the exchange is the best of its puts and of MPI's own.
#[must_use]
pub fn put_targets(records: &[Record]) -> Vec<Target> {
    let times = Times::new(records);
    let own = wanted(&times);
    let mut groups: Vec<Key> = own.iter().copied().map(group).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut targets = Vec::new();
    for of in groups {
        // The largest ratio, and where it is.
        let worst = |ratio: Ratio| {
            let all = own.iter().filter(|key| group(**key) == of);
            all.filter_map(|key| Some((ratio(&times, *key)?, *key))).max_by(|a, b| a.0.total_cmp(&b.0))
        };
        let mut add = |what: &str, worst: Option<(f64, Key)>, bound| {
            let name = if blocks(of.shape).is_some() { "blocks" } else { of.shape.name() };
            let at = worst.map_or(String::new(), |(_, key)| match blocks(key.shape) {
                Some(blocks) => format!(" ({} B in {blocks})", key.bytes),
                None => format!(" ({} B)", key.bytes),
            });
            let what = format!("{} of {name}, {} window, {} ranks: {what}, worst size{at}", of.op, of.window, of.ranks);
            targets.push(Target { what, ratio: worst.map(|(ratio, _)| ratio), bound });
        };
        if of.op == Op::Put && of.window != Window::Unmapped {
            add("Farside / copy by hand", worst(to_hand), Bound::AtMost(HAND));
        }
        add("Farside / best peer", worst(to_peer), Bound::Below(1.0));
    }
    targets
}

/// Where Farside stands, size by size: for each operation and kind of window a line that names the sizes at which it is
/// behind.
#[must_use]
pub fn standing(records: &[Record]) -> String {
    let times = Times::new(records);
    type Line = (Op, Window, u32, bool);
    let mut lines: BTreeMap<Line, (usize, Vec<String>)> = BTreeMap::new();
    for key in wanted(&times) {
        for (by_hand, ratio, bound) in [(true, to_hand as Ratio, HAND), (false, to_peer, 1.0)] {
            let Some(ratio) = ratio(&times, key) else { continue };
            let (all, behind) = lines.entry((key.op, key.window, key.ranks, by_hand)).or_default();
            *all += 1;
            if ratio > bound {
                behind.push(format!("{}:{} ({})", key.shape, key.bytes, number(Some(ratio))));
            }
        }
    }
    let mut text = String::new();
    for ((op, window, ranks, by_hand), (all, behind)) in lines {
        let of =
            if by_hand { format!("within {HAND} of the copy by hand") } else { "ahead of the best peer".to_owned() };
        let but = if behind.is_empty() { String::new() } else { format!("; behind: {}", behind.join(", ")) };
        let met = all - behind.len();
        text += &format!("{op}, {window} window, {ranks} ranks: {of} at {met} of {all} sizes{but}\n");
    }
    text
}

/// What an operation may take, as a multiple of the copy by hand.
const HAND: f64 = 1.1;

/// Farside's time over another.
type Ratio = fn(&Times, Key) -> Option<f64>;

fn to_hand(times: &Times, key: Key) -> Option<f64> {
    Some(times.farside(key)? / times.0.get(&(Library::Loop, key))?)
}

fn to_peer(times: &Times, key: Key) -> Option<f64> {
    let of_mpi = Key { window: Window::None, sync: Sync::Twosided, ..key };
    let both = if key.op == Op::Alltoall { vec![key, of_mpi] } else { vec![key] };
    let peers = both.iter().flat_map(|key| Library::PEERS.iter().map(|peer| (*peer, *key)));
    let best = peers.filter_map(|peer| times.0.get(&peer).copied()).min_by(f64::total_cmp)?;
    Some(times.farside(key)? / best)
}

/// What Farside has measured and is compared.
fn wanted(times: &Times) -> Vec<Key> {
    let is_wanted = |key: &Key| {
        let op = matches!(key.op, Op::Put | Op::PutBandwidth | Op::Alltoall);
        key.suite == Suite::Put && key.shape != Shape::None && op
    };
    let own = times.0.keys().filter(|(of, key)| *of == Library::Farside && is_wanted(key));
    own.map(|(_, key)| *key).collect()
}

/// What is one target: all sizes and numbers of blocks.
fn group(key: Key) -> Key {
    let shape = if blocks(key.shape).is_some() { Shape::Blocks4 } else { key.shape };
    Key { shape, bytes: 0, ..key }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn put_targets_take_the_worst_size_and_the_best_peer() {
        let at = |window, sync, op, shape, bytes| Key { suite: Suite::Put, window, sync, op, shape, bytes, ranks: 2 };
        let put = |shape, bytes| at(Window::Allocated, Sync::Flush, Op::Put, shape, bytes);
        let exchange = |window, sync| at(window, sync, Op::Alltoall, Shape::Columns64, 1024);
        let record = |library, key, us: f64| Record::from_blocks(library, "0", key, 1, &[us]).unwrap();
        let records = [
            record(Library::Farside, put(Shape::Columns64, 1024), 1.2),
            record(Library::Loop, put(Shape::Columns64, 1024), 1.0),
            record(Library::Mpich, put(Shape::Columns64, 1024), 2.4),
            record(Library::Farside, put(Shape::Columns64, 8192), 1.0),
            record(Library::Loop, put(Shape::Columns64, 8192), 1.0),
            record(Library::Mpich, put(Shape::Columns64, 8192), 3.0),
            record(Library::OpenMpi, put(Shape::Columns64, 8192), 0.5),
            record(Library::Farside, put(Shape::Blocks16, 4096), 1.0),
            record(Library::Loop, put(Shape::Blocks16, 4096), 1.0),
            record(Library::Farside, exchange(Window::Allocated, Sync::Fence), 1.0),
            record(Library::Mpich, exchange(Window::Allocated, Sync::Fence), 4.0),
            record(Library::Mpich, exchange(Window::None, Sync::Twosided), 2.0),
        ];
        let targets = put_targets(&records);
        let find = |text: &str| {
            let found: Vec<_> = targets.iter().filter(|target| target.what.contains(text)).collect();
            assert_eq!(found.len(), 1, "{text}: {targets:?}");
            (found[0].ratio, found[0].met())
        };
        let columns = "put of columns_64, allocated window, 2 ranks: Farside / ";
        assert_eq!(find(&format!("{columns}copy by hand, worst size (1024 B)")), (Some(1.2), Some(false)));
        assert_eq!(find(&format!("{columns}best peer, worst size (8192 B)")), (Some(2.0), Some(false)));
        assert_eq!(find("put of blocks, allocated window, 2 ranks: Farside / copy by hand"), (Some(1.0), Some(true)));
        assert_eq!(find("blocks, allocated window, 2 ranks: Farside / best peer"), (None, None));
        assert_eq!(find("alltoall of columns_64"), (Some(0.5), Some(true)));
        assert_eq!(targets.len(), 5);
        assert_eq!(
            standing(&records),
            "put, allocated window, 2 ranks: ahead of the best peer at 1 of 2 sizes; behind: columns_64:8192 (2.00)\n\
             put, allocated window, 2 ranks: within 1.1 of the copy by hand at 2 of 3 sizes; behind: columns_64:1024 (1.20)\n\
             alltoall, allocated window, 2 ranks: ahead of the best peer at 1 of 1 sizes\n"
        );
    }
}
