//! The plan of a run: the same list of measurements for Farside and for the peers.

use std::fmt;

use clap::Args;

use crate::record::{Op, Shape, Suite, Sync, Window};

/// Sizes, windows and suites of a run.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Fewer sizes and shorter blocks: a few seconds per library instead of half a minute.
    #[arg(long)]
    pub(crate) quick: bool,
    /// The suites; [`Suite::Limit`] is never part of a plan.
    #[arg(long, value_delimiter = ',')]
    pub(crate) suites: Vec<Suite>,
    /// The kinds of window; [`Window::Unmapped`] for [`Suite::Put`] only.
    #[arg(long, value_delimiter = ',')]
    pub(crate) windows: Vec<Window>,
    /// Bytes of puts and gets, ascending.
    #[arg(long, value_delimiter = ',')]
    pub(crate) sizes: Vec<u64>,
    /// The numbers of 32-bit integers sent to each neighbour in the ghost-area exchange, ascending.
    #[arg(long, value_delimiter = ',')]
    pub(crate) counts: Vec<u64>,
    /// Messages of [`Suite::Pack`] and [`Suite::Put`], shape and bytes; see [`crate::shapes`].
    #[arg(long = "messages", value_delimiter = ',', value_parser = message)]
    pub(crate) layouts: Vec<(Shape, u64)>,
    /// Operations of [`Suite::Coll`].
    #[arg(long, value_delimiter = ',')]
    pub(crate) operations: Vec<Op>,
    /// The algorithms of collectives that are measured, all if empty; only for Farside.
    #[arg(long, value_delimiter = ';')]
    pub(crate) algorithms: Vec<String>,
    /// Count packets instead of taking times.
    #[arg(long)]
    pub(crate) packets: bool,
    /// The number of ranks, even except for [`Suite::Pack`].
    #[arg(skip)]
    pub(crate) ranks: u32,
}

fn message(text: &str) -> Result<(Shape, u64), String> {
    let (shape, bytes) = text.split_once(':').ok_or("not SHAPE:BYTES")?;
    Ok((shape.parse()?, bytes.parse().map_err(|_| "not a number of bytes")?))
}

/// The epochs with one put each: synchronization, operation, and the number of epochs in an iteration.
pub(crate) const EPOCHS: [(Sync, Op, u32); 5] = [
    (Sync::Fence, Op::Put, 1),
    (Sync::Fence, Op::Put1, 1),
    (Sync::Pscw, Op::Put, 2),
    (Sync::Lock, Op::Put, 1),
    (Sync::LockExclusive, Op::Put, 1),
];
/// Farside's self-contained fence epoch.
pub(crate) const FENCE_CLOSURE: (Sync, Op, u32) = (Sync::FenceClosure, Op::Put, 1);

impl Plan {
    /// A plan of everything except layouts.
    pub(crate) fn new(quick: bool) -> Self {
        let (sizes, counts) = match quick {
            false => (vec![8, 64, 1024, 8192, 65536, 1 << 20], (0..9).map(|i| 1 << (2 * i)).collect()),
            true => (vec![8, 65536, 1 << 20], vec![1, 256, 16384]),
        };
        let suites = vec![Suite::Epoch, Suite::Op, Suite::Am, Suite::Barrier, Suite::Ghost];
        let windows = vec![Window::Allocated, Window::User];
        Self { quick, suites, windows, sizes, counts, ..Self::default() }
    }

    /// A plan of [`Suite::Pack`] or [`Suite::Put`] only, with these messages.
    pub(crate) fn of_layouts(
        quick: bool,
        suite: Suite,
        ranks: u32,
        windows: &[Window],
        layouts: &[(Shape, u64)],
    ) -> Self {
        let (windows, layouts) = (windows.to_vec(), layouts.to_vec());
        Self { quick, suites: vec![suite], windows, layouts, ranks, ..Self::default() }
    }

    /// A plan of one collective, with vectors or blocks of these sizes; [`Op::Pingpong`] is a message, for predictions.
    pub(crate) fn of_collective(quick: bool, operation: Op, ranks: u32, sizes: &[u64]) -> Self {
        let (suites, operations) = (vec![Suite::Coll], vec![operation]);
        Self { quick, suites, sizes: sizes.to_vec(), operations, ranks, ..Self::default() }
    }

    /// The sizes of all transfers, for which [`crate::limits::measure`] is to measure a copy.
    pub(crate) fn copy_sizes(&self) -> Vec<u64> {
        sorted(self.sizes.iter().copied().chain(self.counts.iter().map(|n| 4 * n)))
    }

    /// The arguments that make the peers' program (`benches/peers/main.c`) and a rank of Farside measure the same.
    pub(crate) fn arguments(&self) -> Vec<String> {
        fn list<T>(values: &[T], text: impl Fn(&T) -> String) -> String {
            values.iter().map(text).collect::<Vec<_>>().join(",")
        }
        let lists = [
            ("--suites", list(&self.suites, ToString::to_string)),
            ("--windows", list(&self.windows, ToString::to_string)),
            ("--messages", list(&self.layouts, |(shape, bytes)| format!("{shape}:{bytes}"))),
            ("--sizes", list(&self.sizes, u64::to_string)),
            ("--counts", list(&self.counts, u64::to_string)),
            ("--operations", list(&self.operations, ToString::to_string)),
        ];
        let given = lists.into_iter().filter(|(_, values)| !values.is_empty());
        let flags = [("--quick", self.quick), ("--packets", self.packets)].into_iter();
        let flags = flags.filter(|(_, given)| *given).map(|(name, _)| name.to_owned());
        flags.chain(given.flat_map(|(name, values)| [name.to_owned(), values])).collect()
    }
}

impl fmt::Display for Plan {
    /// The ranks, suites and operations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ranks", self.ranks)?;
        self.suites.iter().try_for_each(|suite| write!(f, ", {suite}"))?;
        self.operations.iter().try_for_each(|op| write!(f, ", {op}"))
    }
}

/// The distinct values, ascending.
pub(crate) fn sorted<T: Ord>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    values.into_iter().collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::Key;
    use crate::shapes::{is_exchanged, put_ops};

    impl Plan {
        /// Every measurement of all libraries with `ranks` ranks.
        pub(crate) fn keys(&self, ranks: u32) -> Vec<Key> {
            let mut keys = Vec::new();
            for &suite in &self.suites {
                let mut add =
                    |window, sync, op, shape, bytes| keys.push(Key { suite, window, sync, op, shape, bytes, ranks });
                let (no_window, none) = (Window::None, Shape::None);
                match suite {
                    Suite::Am => add(no_window, Sync::None, Op::Pingpong, none, 8),
                    Suite::Barrier => add(no_window, Sync::None, Op::Barrier, none, 0),
                    Suite::Coll => self.operations.iter().for_each(|op| {
                        let sizes = if *op == Op::Barrier { &[0][..] } else { &self.sizes };
                        sizes.iter().for_each(|bytes| add(no_window, Sync::None, *op, none, *bytes));
                    }),
                    Suite::Ghost => {
                        self.counts.iter().for_each(|n| add(no_window, Sync::Twosided, Op::Ghost, none, 4 * n))
                    }
                    Suite::Pack => self.layouts.iter().for_each(|(shape, bytes)| {
                        add(no_window, Sync::None, Op::Pack, *shape, *bytes);
                        add(no_window, Sync::None, Op::Unpack, *shape, *bytes);
                    }),
                    _ => {}
                }
                for &window in &self.windows {
                    match suite {
                        Suite::Epoch => self.sizes.iter().for_each(|bytes| {
                            EPOCHS.iter().for_each(|(sync, op, _)| add(window, *sync, *op, none, *bytes));
                        }),
                        Suite::Op => {
                            for (op, bytes) in [Op::FetchOp, Op::Cas, Op::Accumulate]
                                .map(|op| (op, 8))
                                .into_iter()
                                .chain(self.sizes.iter().flat_map(|bytes| {
                                    [Op::Put, Op::Get, Op::PutBandwidth, Op::GetBandwidth].map(|op| (op, *bytes))
                                }))
                            {
                                add(window, Sync::Flush, op, none, bytes);
                            }
                        }
                        Suite::Ghost => self.counts.iter().for_each(|n| {
                            for sync in [Sync::Fence, Sync::Pscw, Sync::Lock] {
                                add(window, sync, Op::Ghost, none, 4 * n);
                            }
                        }),
                        Suite::Put => self.layouts.iter().for_each(|&(shape, bytes)| {
                            // Operations that end with a flush are measured between two ranks; rank 1 only waits.
                            let ops = put_ops(shape).iter().filter(|_| ranks == 2);
                            ops.for_each(|op| add(window, Sync::Flush, *op, shape, bytes));
                            if is_exchanged(shape, bytes, ranks) {
                                add(window, Sync::Fence, Op::Alltoall, shape, bytes);
                            }
                        }),
                        _ => {}
                    }
                }
            }
            keys
        }

        /// Every measurement of Farside with `ranks` ranks: those of all libraries, its self-contained fence epoch, and
        /// copies between layouts.
        pub(crate) fn farside_keys(&self, ranks: u32) -> Vec<Key> {
            let mut keys = self.keys(ranks);
            let copies: Vec<_> =
                keys.iter().filter(|key| key.op == Op::Pack).map(|key| Key { op: Op::Copy, ..*key }).collect();
            let of_window =
                |key: &&Key| (key.suite, key.window, key.sync) == (Suite::Epoch, Window::Allocated, Sync::Pscw);
            let closures: Vec<_> =
                keys.iter().filter(of_window).map(|key| Key { sync: FENCE_CLOSURE.0, ..*key }).collect();
            keys.extend(copies.into_iter().chain(closures));
            keys
        }

        /// Every measurement of a peer with `ranks` ranks: those of all libraries, and MPI's own exchange.
        pub(crate) fn peer_keys(&self, ranks: u32) -> Vec<Key> {
            let mut keys = self.keys(ranks);
            let puts = self
                .layouts
                .iter()
                .filter(|(shape, bytes)| self.suites.contains(&Suite::Put) && is_exchanged(*shape, *bytes, ranks));
            let (suite, window, sync, op) = (Suite::Put, Window::None, Sync::Twosided, Op::Alltoall);
            keys.extend(puts.map(|&(shape, bytes)| Key { suite, window, sync, op, shape, bytes, ranks }));
            keys
        }
    }

    #[test]
    fn keys_of_a_plan_are_all_different() {
        for quick in [false, true] {
            let plan = Plan::new(quick);
            let keys = plan.keys(2);
            assert_eq!(sorted(&keys).len(), keys.len());
            // There are 2 single measurements, n two-sided ones, and for each of 2 windows 5 + 4 per size, 3 atomics,
            // and 3 per count.
            let (sizes, counts) = if quick { (3, 3) } else { (6, 9) };
            assert_eq!(keys.len(), 2 + counts + 2 * (9 * sizes + 3 + 3 * counts));
            assert_eq!(plan.farside_keys(2).len(), keys.len() + sizes);
            let sizes = plan.copy_sizes();
            assert!(sizes.is_sorted());
            for key in keys.iter().filter(|key| matches!(key.suite, Suite::Epoch | Suite::Op | Suite::Ghost)) {
                assert!(sizes.contains(&key.bytes), "{key:?}");
            }
        }
    }

    #[test]
    fn keys_of_one_suite_hold_no_other() {
        let (suites, windows, sizes) = (vec![Suite::Op], vec![Window::User], vec![16]);
        let keys = Plan { suites, windows, sizes, ..Plan::new(true) }.keys(4);
        assert_eq!(keys.len(), 7);
        assert!(keys.iter().all(|key| key.suite == Suite::Op && key.window == Window::User && key.ranks == 4));
    }

    #[test]
    fn arguments_name_sizes_and_suites() {
        let plan = Plan { suites: vec![Suite::Am, Suite::Ghost], ..Plan::new(true) };
        assert_eq!(
            plan.arguments().join(" "),
            "--quick --suites am,ghost --windows allocated,user --sizes 8,65536,1048576 --counts 1,256,16384"
        );
        let layouts = [(Shape::None, 8), (Shape::Columns64, 1024)];
        let plan = Plan::of_layouts(false, Suite::Put, 2, &[Window::User], &layouts);
        assert_eq!(plan.arguments().join(" "), "--suites put --windows user --messages none:8,columns_64:1024");
    }

    #[test]
    fn keys_of_layouts_are_puts_between_two_and_exchanges_of_all() {
        let layouts = [(Shape::None, 1024), (Shape::Columns64, 1024), (Shape::Blocks4, 1024)];
        let windows = [Window::Allocated, Window::Unmapped];
        let plan = Plan::of_layouts(true, Suite::Put, 2, &windows, &layouts);
        assert_eq!(plan.keys(2).len(), 2 * (4 + 4 + 1 + 1));
        assert_eq!(plan.keys(4).len(), 2);
        assert_eq!(plan.peer_keys(4).len(), 3);
        let plan = Plan::of_layouts(true, Suite::Pack, 1, &[], &layouts);
        assert_eq!((plan.farside_keys(1).len(), plan.peer_keys(1).len()), (9, 6));
    }
}
