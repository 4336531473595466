//! What is to be measured: the same list for Farside and for the peers.

use crate::record::{Key, Op, Shape, Suite, Sync, Window};
use crate::shapes::{is_exchanged, put_ops};

/// How much time a run may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Every size, long blocks: about half a minute per library.
    Full,
    /// Three sizes, short blocks: a few seconds per library.
    Quick,
}

/// Sizes, windows and suites of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How much time.
    pub effort: Effort,
    /// The suites; [`Suite::Limit`] is no part of a plan.
    pub suites: Vec<Suite>,
    /// The kinds of window; [`Window::Unmapped`] for [`Suite::Put`] only.
    pub windows: Vec<Window>,
    /// Bytes of puts and gets, ascending.
    pub sizes: Vec<u64>,
    /// 32-bit integers to each neighbour in the ghost-area exchange, ascending.
    pub counts: Vec<u64>,
    /// Messages of [`Suite::Put`], shape and bytes; see [`crate::shapes::puts`].
    pub layouts: Vec<(Shape, u64)>,
    /// Numbers of ranks, each even; every one is a run of its own.
    pub ranks: Vec<u32>,
}

impl Plan {
    /// Everything but [`Suite::Put`], for these numbers of ranks.
    #[must_use]
    pub fn new(effort: Effort, ranks: &[u32]) -> Self {
        let (sizes, counts) = match effort {
            Effort::Full => (vec![8, 64, 1024, 8192, 65536, 1 << 20], (0..9).map(|i| 1 << (2 * i)).collect()),
            Effort::Quick => (vec![8, 65536, 1 << 20], vec![1, 256, 16384]),
        };
        Self {
            effort,
            suites: vec![Suite::Epoch, Suite::Op, Suite::Am, Suite::Barrier, Suite::Ghost],
            windows: vec![Window::Allocated, Window::User],
            sizes,
            counts,
            layouts: Vec::new(),
            ranks: ranks.to_vec(),
        }
    }

    /// [`Suite::Put`] alone, of these messages.
    #[must_use]
    pub fn of_layouts(effort: Effort, ranks: u32, windows: &[Window], layouts: &[(Shape, u64)]) -> Self {
        let (suites, windows, layouts) = (vec![Suite::Put], windows.to_vec(), layouts.to_vec());
        Self { suites, windows, layouts, ..Self::new(effort, &[ranks]) }
    }

    /// Every measurement of one library with `ranks` ranks, suite by suite.
    #[must_use]
    pub fn keys(&self, ranks: u32) -> Vec<Key> {
        let key = |suite, window, sync, op, bytes| Key { suite, window, sync, op, shape: Shape::None, bytes, ranks };
        let mut keys = Vec::new();
        if self.suites.contains(&Suite::Am) {
            keys.push(key(Suite::Am, Window::None, Sync::None, Op::Pingpong, 8));
        }
        if self.suites.contains(&Suite::Barrier) {
            keys.push(key(Suite::Barrier, Window::None, Sync::None, Op::Barrier, 0));
        }
        if self.suites.contains(&Suite::Ghost) {
            keys.extend(self.counts.iter().map(|n| key(Suite::Ghost, Window::None, Sync::Twosided, Op::Ghost, 4 * n)));
        }
        for &window in &self.windows {
            for &(shape, bytes) in self.layouts.iter().filter(|_| self.suites.contains(&Suite::Put)) {
                let key = |sync, op| Key { suite: Suite::Put, window, sync, op, shape, bytes, ranks };
                // Between two ranks, of which one only waits.
                keys.extend(put_ops(shape).iter().filter(|_| ranks == 2).map(|op| key(Sync::Flush, *op)));
                keys.extend(is_exchanged(shape, bytes, ranks).then(|| key(Sync::Fence, Op::Alltoall)));
            }
            if self.suites.contains(&Suite::Epoch) {
                for &bytes in &self.sizes {
                    for (sync, op) in EPOCHS {
                        keys.push(key(Suite::Epoch, window, sync, op, bytes));
                    }
                }
            }
            if self.suites.contains(&Suite::Op) {
                for &bytes in &self.sizes {
                    for op in [Op::Put, Op::Get, Op::PutBandwidth, Op::GetBandwidth] {
                        keys.push(key(Suite::Op, window, Sync::Flush, op, bytes));
                    }
                }
                for op in [Op::FetchOp, Op::Cas, Op::Accumulate] {
                    keys.push(key(Suite::Op, window, Sync::Flush, op, 8));
                }
            }
            if self.suites.contains(&Suite::Ghost) {
                for &n in &self.counts {
                    for sync in [Sync::Fence, Sync::Pscw, Sync::Lock] {
                        keys.push(key(Suite::Ghost, window, sync, Op::Ghost, 4 * n));
                    }
                }
            }
        }
        keys
    }

    /// Every measurement of Farside with `ranks` ranks: those of all libraries, and its self-contained fence epoch.
    #[must_use]
    pub fn farside_keys(&self, ranks: u32) -> Vec<Key> {
        let mut keys = self.keys(ranks);
        if self.suites.contains(&Suite::Epoch) && self.windows.contains(&Window::Allocated) {
            let (suite, window, sync, op) = (Suite::Epoch, Window::Allocated, Sync::FenceClosure, Op::Put);
            keys.extend(self.sizes.iter().map(|&bytes| Key {
                suite,
                window,
                sync,
                op,
                shape: Shape::None,
                bytes,
                ranks,
            }));
        }
        keys
    }

    /// Every measurement of a peer with `ranks` ranks: those of all libraries, and MPI's own exchange.
    #[must_use]
    pub fn peer_keys(&self, ranks: u32) -> Vec<Key> {
        let mut keys = self.keys(ranks);
        let puts = self
            .layouts
            .iter()
            .filter(|(shape, bytes)| self.suites.contains(&Suite::Put) && is_exchanged(*shape, *bytes, ranks));
        let (suite, window, sync, op) = (Suite::Put, Window::None, Sync::Twosided, Op::Alltoall);
        keys.extend(puts.map(|&(shape, bytes)| Key { suite, window, sync, op, shape, bytes, ranks }));
        keys
    }

    /// The sizes of all transfers, for which [`crate::limits::measure`] is to measure a copy.
    #[must_use]
    pub fn copy_sizes(&self) -> Vec<u64> {
        let mut sizes = self.sizes.clone();
        sizes.extend(self.counts.iter().map(|n| 4 * n));
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The arguments that make the peers' program measure the same (`benches/peers/main.c`).
    #[must_use]
    pub fn peer_arguments(&self) -> Vec<String> {
        fn list<T>(values: &[T], text: impl Fn(&T) -> String) -> String {
            values.iter().map(text).collect::<Vec<_>>().join(",")
        }
        let mut arguments = Vec::new();
        if self.effort == Effort::Quick {
            arguments.push("--quick".to_owned());
        }
        let mut lists = vec![
            ("--suites", list(&self.suites, |suite| suite.name().to_owned())),
            ("--windows", list(&self.windows, |window| window.name().to_owned())),
        ];
        if self.suites[..] == [Suite::Put] {
            lists.push(("--messages", list(&self.layouts, |(shape, bytes)| format!("{shape}:{bytes}"))));
        } else {
            lists.push(("--sizes", list(&self.sizes, u64::to_string)));
            lists.push(("--counts", list(&self.counts, u64::to_string)));
        }
        arguments.extend(lists.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
        arguments
    }
}

/// The epochs with one put each.
const EPOCHS: [(Sync, Op); 5] = [
    (Sync::Fence, Op::Put),
    (Sync::Fence, Op::Put1),
    (Sync::Pscw, Op::Put),
    (Sync::Lock, Op::Put),
    (Sync::LockExclusive, Op::Put),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_plan_are_all_different() {
        for effort in [Effort::Full, Effort::Quick] {
            let keys = Plan::new(effort, &[2]).keys(2);
            let different: std::collections::BTreeSet<_> = keys.iter().collect();
            assert_eq!(different.len(), keys.len());
            // 2 single ones, n two-sided, 2 windows x (5 + 4 per size, 3 atomics, 3 per count)
            let (sizes, counts) = if effort == Effort::Full { (6, 9) } else { (3, 3) };
            assert_eq!(keys.len(), 2 + counts + 2 * (9 * sizes + 3 + 3 * counts));
        }
    }

    #[test]
    fn keys_of_one_suite_hold_no_other() {
        let plan = Plan {
            suites: vec![Suite::Op],
            windows: vec![Window::User],
            sizes: vec![16],
            ..Plan::new(Effort::Quick, &[4])
        };
        let keys = plan.keys(4);
        assert_eq!(keys.len(), 7);
        assert!(keys.iter().all(|key| key.suite == Suite::Op && key.window == Window::User && key.ranks == 4));
    }

    #[test]
    fn copy_sizes_hold_every_size_of_a_transfer() {
        let plan = Plan::new(Effort::Full, &[2]);
        let sizes = plan.copy_sizes();
        assert!(sizes.is_sorted());
        for key in plan.keys(2).iter().filter(|key| matches!(key.suite, Suite::Epoch | Suite::Op | Suite::Ghost)) {
            assert!(sizes.contains(&key.bytes), "{key:?}");
        }
    }

    #[test]
    fn peer_arguments_name_sizes_and_suites() {
        let plan = Plan { suites: vec![Suite::Am, Suite::Ghost], ..Plan::new(Effort::Quick, &[2]) };
        assert_eq!(
            plan.peer_arguments().join(" "),
            "--quick --suites am,ghost --windows allocated,user --sizes 8,65536,1048576 --counts 1,256,16384"
        );
        let plan = Plan::of_layouts(Effort::Full, 2, &[Window::User], &[(Shape::None, 8), (Shape::Columns64, 1024)]);
        assert_eq!(plan.peer_arguments().join(" "), "--suites put --windows user --messages none:8,columns_64:1024");
    }

    #[test]
    fn keys_of_layouts_are_puts_between_two_and_exchanges_of_all() {
        let layouts = [(Shape::None, 1024), (Shape::Columns64, 1024), (Shape::Blocks4, 1024)];
        let plan = Plan::of_layouts(Effort::Quick, 2, &[Window::Allocated, Window::Unmapped], &layouts);
        assert_eq!(plan.keys(2).len(), 2 * (4 + 4 + 1 + 1));
        assert_eq!(plan.keys(4).len(), 2);
        assert_eq!(plan.peer_keys(4).len(), 3);
    }
}
