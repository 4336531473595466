//! Counters of every operation: number and bytes. Always on; tests assert message counts with them.
//!
//! A counter costs a load, an add and a store: one rank is one thread, so its counters have one writer. The agent
//! thread of a device has counters of its own, merged when they are read.

use std::fmt;
use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// The kind of a counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(usize)]
        pub enum Kind { $($(#[$doc])* $name,)* }

        impl Kind {
            /// Every kind, in order.
            pub const ALL: &'static [Kind] = &[$(Kind::$name),*];

            /// The name, as tables print it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Kind::$name => $text,)* }
            }
        }

        const KINDS: usize = [$(Kind::$name),*].len();
    };
}

kinds! {
    /// Writes of remote memory (a put).
    Write = "write";
    /// Reads of remote memory (a get).
    Read = "read";
    /// Accumulates and fetching accumulates, of any element count.
    Accumulate = "accumulate";
    /// Remote fetch-and-add of a word, for example by locks.
    FetchAdd = "fetch-add";
    /// Remote compare-and-swap of a word.
    CompareSwap = "compare-swap";
    /// Signal cells set at a peer by a message of their own.
    Signal = "signal";
    /// Notifications that travelled with a write: no message of their own.
    Notify = "notify";
    /// Requests to the barrier in the switch of the network.
    Switch = "switch";
    /// Packets of active messages.
    Send = "send";
    /// Questions of a waiting rank to the ranks for which it waits, and their answers. The number of these packets
    /// depends on time, so they are not counted among the sends.
    Question = "question";
    /// Lists of blocks sent as one message to a scatter list of the peer.
    Gather = "gather";
    /// Lists of blocks posted to receive one gather list of the peer: no message of their own.
    Scatter = "scatter";
    /// Layouts sent to a peer, for lists on both sides: part of a packet.
    Layout = "layout";
    /// Registrations made with an HCA for transfers from and to memory of the user.
    Register = "register";
    /// Requests to the target's side for memory that is not mapped.
    Request = "request";
    /// Work requests posted to an HCA, each of which makes it send messages.
    Post = "post";
    /// Bytes copied by this rank's processor for transfers (each pass counts).
    Copy = "copy";
    /// System calls made for transfers (`process_vm_readv` and the like).
    SystemCall = "system-call";
    /// Pages of the program's memory moved onto shared memory, so that peers can map them.
    Remap = "remap";
    /// Mappings of peers' lent memory that were dropped to make room for others.
    Evict = "evict";
    /// Wake-ups sent to a sleeping peer.
    Wake = "wake";
    /// Times that this rank went to sleep.
    Park = "park";
    /// Requests served for others.
    Served = "served";
    /// Bytes passed on between two other ranks.
    Relay = "relay";
    /// Operations that `FARSIDE_TEST_FAULT` has damaged.
    Damage = "damage";
}

/// One pair of counters.
#[derive(Default, Debug)]
struct Counter {
    count: AtomicU64,
    bytes: AtomicU64,
}

/// The counters of one rank on one device.
#[derive(Debug)]
pub struct Stats {
    counters: [Counter; KINDS],
}

impl Default for Stats {
    fn default() -> Self {
        Self { counters: std::array::from_fn(|_| Counter::default()) }
    }
}

impl Stats {
    /// Counts one operation of `bytes` bytes.
    #[inline(always)]
    pub fn add(&self, kind: Kind, bytes: usize) {
        let c = &self.counters[kind as usize];
        // Relaxed, and no read-modify-write: one thread writes each set of counters; a reader elsewhere needs only a
        // recent value and pairs with nothing.
        c.count.store(c.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        c.bytes.store(c.bytes.load(Ordering::Relaxed) + bytes as u64, Ordering::Relaxed);
    }

    /// The values now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut s = Snapshot::default();
        for (kind, c) in self.counters.iter().enumerate() {
            // Relaxed: as in `add`, pairs with nothing.
            s.values[kind] = (c.count.load(Ordering::Relaxed), c.bytes.load(Ordering::Relaxed));
        }
        s
    }
}

/// Counter values at one time; the difference of two snapshots covers the time between them.
///
/// ```
/// use farside_core::{Job, coll};
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let before = job.stats();
///     coll::allgather(&team, &[1; 4000])?;
///     let used = job.stats() - before;
///     assert!(used.messages() > 0);
///     Ok(())
/// })?;
/// # Ok::<(), farside_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Snapshot {
    values: [(u64, u64); KINDS],
}

impl Snapshot {
    /// Number of operations of a kind.
    #[must_use]
    pub fn count(&self, kind: Kind) -> u64 {
        let of = |kind: Kind| self.values[kind as usize].0;
        // A device counts the packet of a question like any other.
        if kind == Kind::Send { of(Kind::Send).saturating_sub(of(Kind::Question)) } else { of(kind) }
    }

    /// Number of bytes of a kind.
    #[must_use]
    pub fn bytes(&self, kind: Kind) -> u64 {
        self.values[kind as usize].1
    }

    /// Number of messages: operations that a network would carry as messages of their own, without questions.
    #[must_use]
    pub fn messages(&self) -> u64 {
        use Kind::*;
        [Write, Read, Accumulate, FetchAdd, CompareSwap, Signal, Send, Gather].iter().map(|k| self.count(*k)).sum()
    }

    /// The sum of two sets of counters.
    #[must_use]
    pub(crate) fn merged(mut self, other: &Snapshot) -> Snapshot {
        for (a, b) in self.values.iter_mut().zip(&other.values) {
            a.0 += b.0;
            a.1 += b.1;
        }
        self
    }
}

impl Sub for Snapshot {
    type Output = Snapshot;

    fn sub(mut self, before: Snapshot) -> Snapshot {
        for (a, b) in self.values.iter_mut().zip(&before.values) {
            a.0 = a.0.wrapping_sub(b.0);
            a.1 = a.1.wrapping_sub(b.1);
        }
        self
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for kind in Kind::ALL {
            if self.values[*kind as usize] != (0, 0) {
                map.entry(&kind.name(), &self.values[*kind as usize]);
            }
        }
        map.finish()
    }
}
