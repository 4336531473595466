//! The targets of the suite "put".

use super::{Bound, Target, Times};
use crate::record::{Key, Library, Op, Record, Shape, Suite, Sync, Window};
use crate::shapes::blocks;

/// Of each layout and kind of window the worst size: of a put beside the copy by hand, where memory is mapped; of a put, a
/// burst of puts and the exchange beside the best peer, which for the exchange is the best of its puts and of MPI's own.
#[must_use]
pub fn put_targets(records: &[Record]) -> Vec<Target> {
    let times = Times::new(records);
    let is_wanted = |key: &Key| {
        let op = matches!(key.op, Op::Put | Op::PutBandwidth | Op::Alltoall);
        key.suite == Suite::Put && key.shape != Shape::None && op
    };
    let own = || times.0.keys().filter(|(of, key)| *of == Library::Farside && is_wanted(key)).map(|(_, key)| *key);
    let mut groups: Vec<Key> = own().map(group).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut targets = Vec::new();
    for of in groups {
        // The largest ratio, and where it is.
        let worst = |ratio: &dyn Fn(Key) -> Option<f64>| {
            let all = own().filter(|key| group(*key) == of).filter_map(|key| Some((ratio(key)?, key)));
            all.max_by(|a, b| a.0.total_cmp(&b.0))
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
            let to_hand = |key| Some(times.farside(key)? / times.0.get(&(Library::Loop, key))?);
            add("Farside / copy by hand", worst(&to_hand), Bound::AtMost(1.1));
        }
        let to_peer = |key: Key| {
            let of_mpi = Key { window: Window::None, sync: Sync::Twosided, ..key };
            let both = if key.op == Op::Alltoall { vec![key, of_mpi] } else { vec![key] };
            let peers = both.iter().flat_map(|key| Library::PEERS.iter().map(|peer| (*peer, *key)));
            let best = peers.filter_map(|peer| times.0.get(&peer).copied()).min_by(f64::total_cmp)?;
            Some(times.farside(key)? / best)
        };
        add("Farside / best peer", worst(&to_peer), Bound::Below(1.0));
    }
    targets
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
        let targets = put_targets(&[
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
        ]);
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
    }
}
