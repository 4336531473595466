//! Counters of every operation: number and bytes. Always on; tests assert message counts with them.
//!
//! A counter costs a load, an add and a store: one rank is one thread, so its counters have one writer. The agent
//! thread of a device has counters of its own, merged when they are read. Other threads of the rank, which operate on
//! mapped memory, also have separate counters: they are spread over a few sets, to which they add by atomics.

use std::fmt;
use std::ops::Sub;
use std::sync::OnceLock;
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

            /// The name that tables print.
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
    /// Signal cells set at a peer by a separate message.
    Signal = "signal";
    /// Notifications that were sent with a write, without a separate message.
    Notify = "notify";
    /// Requests to the in-switch barrier of the network.
    Switch = "switch";
    /// Packets of active messages.
    Send = "send";
    /// Questions of a waiting rank to the ranks for which it waits, and their answers. The number of these packets
    /// depends on time, so they are not counted among the sends.
    Question = "question";
    /// Lists of blocks sent as one message to a scatter list of the peer.
    Gather = "gather";
    /// Lists of blocks posted to receive one gather list of the peer, without a separate message.
    Scatter = "scatter";
    /// Layouts sent to a peer, for lists on both sides: part of a packet.
    Layout = "layout";
    /// Registrations made with an HCA for transfers from and to memory of the user.
    Register = "register";
    /// Requests to the target's side for memory that is not mapped.
    Request = "request";
    /// Work requests posted to an HCA, which sends at least one message for each.
    Post = "post";
    /// Bytes copied by this rank's processor for transfers (each pass counts).
    Copy = "copy";
    /// System calls made for transfers (`process_vm_readv` and the like).
    SystemCall = "system-call";
    /// Pages of the program's memory moved onto shared memory, so that peers can map them.
    Remap = "remap";
    /// Mappings of memory exported by peers that were evicted for others.
    Evict = "evict";
    /// Wake-ups sent to a sleeping peer.
    Wake = "wake";
    /// Times that this rank went to sleep.
    Park = "park";
    /// Requests served for other ranks.
    Served = "served";
    /// Bytes relayed between two other ranks.
    Relay = "relay";
    /// Operations into which `FARSIDE_TEST_FAULT` has injected a fault.
    Damage = "damage";
}

/// One pair of counters.
#[derive(Default, Debug)]
struct Counter {
    count: AtomicU64,
    bytes: AtomicU64,
}

type Counters = [Counter; KINDS];

/// Number of sets of counters over which threads are spread, as bits.
const SET_BITS: u32 = 4;

/// A set of counters of some threads, in separate cache lines, also on processors that fetch lines in pairs.
#[derive(Default, Debug)]
#[repr(align(128))]
struct ThreadCounters([ThreadCounter; KINDS]);

/// The bits of [`ThreadCounter::recent`] that count operations.
const COUNT_BITS: u32 = 20;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// One pair of counters of some threads, to which they add by one atomic.
#[derive(Default, Debug)]
struct ThreadCounter {
    /// The number of recent operations in the lower bits, and the number of their bytes above.
    recent: AtomicU64,
    total: Counter,
}

impl ThreadCounter {
    /// Counts an operation; returns the previous number of recent ones.
    #[inline]
    fn add(&self, bytes: u64) -> u64 {
        // Relaxed, here and below: as in `Stats::add`, pairs with nothing.
        if bytes > COUNT {
            self.keep(1, bytes);
            return 0;
        }
        let before = self.recent.fetch_add(bytes << COUNT_BITS | 1, Ordering::Relaxed) & COUNT;
        if before > COUNT / 2 {
            // Before the number overflows, or the sum of as many times `COUNT` bytes.
            let recent = self.recent.swap(0, Ordering::Relaxed);
            self.keep(recent & COUNT, recent >> COUNT_BITS);
        }
        before
    }

    #[cold]
    fn keep(&self, count: u64, bytes: u64) {
        self.total.count.fetch_add(count, Ordering::Relaxed);
        self.total.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn values(&self) -> (u64, u64) {
        let (recent, (count, bytes)) = (self.recent.load(Ordering::Relaxed), self.total.values());
        (count + (recent & COUNT), bytes + (recent >> COUNT_BITS))
    }
}

impl Counter {
    fn values(&self) -> (u64, u64) {
        // Relaxed: as in `Stats::add`, pairs with nothing.
        (self.count.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// The counters of one rank on one device.
#[derive(Default, Debug)]
pub struct Stats {
    counters: Counters,
    /// The counters of other threads, once they have counted an operation.
    threads: OnceLock<Box<[ThreadCounters]>>,
}

impl Stats {
    /// Counts one operation of `bytes` bytes.
    #[inline(always)]
    pub fn add(&self, kind: Kind, bytes: usize) {
        let c = &self.counters[kind as usize];
        // Relaxed, and no read-modify-write: one thread writes each set of counters; a reader in another thread needs
        // only a recent value and pairs with nothing.
        c.count.store(c.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        c.bytes.store(c.bytes.load(Ordering::Relaxed) + bytes as u64, Ordering::Relaxed);
    }

    /// Counts one operation of `bytes` bytes, in any thread; returns how many recent operations of the kind the
    /// thread's set of counters had before: a number that grows by one, and is sometimes reset.
    #[inline]
    pub fn add_in_any_thread(&self, kind: Kind, bytes: usize) -> u64 {
        let sets = self.threads.get_or_init(|| (0..1 << SET_BITS).map(|_| ThreadCounters::default()).collect());
        // The stacks of threads are at least a megabyte apart. A thread that uses two sets does no harm.
        let here = 0u8;
        let stack = ((&raw const here).addr() >> 20) as u64;
        // The upper bits of a product with the golden ratio, which spreads neighbouring numbers.
        let set = stack.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SET_BITS);
        sets[set as usize].0[kind as usize].add(bytes as u64)
    }

    /// The current values.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut s = Snapshot::default();
        let threads = self
            .threads
            .get()
            .into_iter()
            .flatten()
            .flat_map(|set| set.0.iter().map(ThreadCounter::values).enumerate());
        for (kind, (count, bytes)) in threads.chain(self.counters.iter().map(Counter::values).enumerate()) {
            s.values[kind].0 += count;
            s.values[kind].1 += bytes;
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

    /// Number of messages: operations that a network would transfer as separate messages, without questions.
    #[must_use]
    pub fn messages(&self) -> u64 {
        use Kind::*;
        [Write, Read, Accumulate, FetchAdd, CompareSwap, Signal, Send, Gather].iter().map(|k| self.count(*k)).sum()
    }

    /// The sum of two sets of counters.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_every_operation() {
        const EACH: u64 = 600_000;
        let stats = Stats::default();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..EACH).for_each(|_| _ = stats.add_in_any_thread(Kind::Write, 8)));
            }
        });
        stats.add_in_any_thread(Kind::Write, 1 << 30);
        stats.add(Kind::Write, 2);
        let counted = stats.snapshot();
        assert_eq!((counted.count(Kind::Write), counted.bytes(Kind::Write)), (3 * EACH + 2, 24 * EACH + (1 << 30) + 2));
        assert_eq!(counted.count(Kind::Read), 0);
    }
}
