//! The device seam: one trait, shaped like verbs, because verbs is the contract that every RDMA network has.
//!
//! A device registers memory, posts work requests, polls completions and parks. Operations are values, so all
//! of them share one [`Device::post`]; limits and guarantees are data ([`Capabilities`]).

/// Methods of a wrapper that are those of the device inside.
macro_rules! forward {
    ($inner:ident: $($method:ident),*) => { $(crate::device::forward!(@$method $inner);)* };
    (@sealed $i:ident) => { fn sealed(&self, handle: u64) { self.$i.sealed(handle); } };
    (@wake $i:ident) => { fn wake(&self, peer: u32) { self.$i.wake(peer); } };
    (@waker $i:ident) => { fn waker(&self) -> Result<Waker> { self.$i.waker() } };
    (@now $i:ident) => { fn now(&self) -> Instant { self.$i.now() } };
    (@stats $i:ident) => {
        fn stats<'a>(&'a self, each: &mut dyn FnMut(&'static str, &'a Stats)) { self.$i.stats(each); }
    };
    (@check_peers $i:ident) => {
        fn check_peers(&self, about: crate::device::PeerCheck<'_>) -> Result<Option<u32>> { self.$i.check_peers(about) }
    };
    (@leave $i:ident) => { fn leave(&self, how: Leave) -> Result<bool> { self.$i.leave(how) } };
    (@cancel $i:ident) => { fn cancel(&self, which: &dyn Fn(u64) -> bool) { self.$i.cancel(which); } };
}
pub(crate) use forward;

mod capabilities;
pub mod cell;
pub mod code;
pub mod fault;
pub mod loopback;
pub mod report;
pub mod route;
pub mod shm;
pub(crate) mod target;
mod unread;
#[cfg(feature = "verbs")]
pub mod verbs;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};
pub use crate::memory::Block;
use crate::memory::keys::AccumulateFn;
use crate::stats::{Snapshot, Stats};
pub use capabilities::{Capabilities, CutOffs, Lists, MessageCutOffs};
pub use unread::Unread;

/// The error of a device that has no lists.
#[cold]
pub(crate) fn no_lists(peer: u32, device: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, "post a scatter or gather list")
        .peer(peer)
        .device(device)
        .cause("lists on both sides of a message need an HCA")
        .remedy("ask `Capabilities::lists` first, and pack, or write block by block, where it is `None`")
}

/// Memory to be registered.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// First byte; null for memory that the device is to allocate.
    pub base: *mut u8,
    /// Length in bytes.
    pub len: usize,
    /// How accumulates on it are applied.
    pub accumulate: Option<AccumulateFn>,
    /// Whether peers may reach it while this rank computes (passive target), so that memory that needs the
    /// target's help must be served by an agent.
    pub passive: bool,
    /// Whether the memory may be released while peers still use it: then every access is one that the owner
    /// can refuse.
    pub revocable: bool,
    /// Whether all ranks that will use it share memory with this one. In a job whose ranks do so in part this
    /// decides which device the memory belongs to, for all who use it.
    pub one_node: bool,
    /// Whether nobody but the device and peers accesses the memory from `register` to the return of `release`, as the type
    /// system says of a borrow or of a vector that the window owns. Memory that another thread, or the kernel for it, may
    /// write at any time is not exclusive: its pages may be exchanged only while the process has no such thread.
    pub exclusive: bool,
    /// Whether the memory is lent to one peer for one [`Operation::ReadBlocks`]: nothing is done that pays only when the
    /// region is used again. [`Device::sealed`] says that the peer has read it. A release without that takes the memory
    /// back: a read that is under way then ends with an error, whatever it has read.
    pub brief: bool,
    /// A power of two that the address of memory which the device allocates is a multiple of, as this rank sees it.
    pub align: usize,
}

impl Region {
    /// `len` bytes that the device allocates, zeroed, where peers reach them in the best way that it has.
    #[must_use]
    pub fn allocated(len: usize) -> Self {
        Self::of(std::ptr::null_mut(), len)
    }

    /// `len` bytes at `base`.
    #[must_use]
    pub fn of(base: *mut u8, len: usize) -> Self {
        Self {
            base,
            len,
            accumulate: None,
            passive: false,
            revocable: false,
            one_node: false,
            exclusive: false,
            brief: false,
            align: 1,
        }
    }
}

/// Memory that the device allocated or registered, and its name for peers.
#[derive(Clone, Debug)]
pub struct Registration {
    /// First byte as this rank sees it.
    pub base: *mut u8,
    /// Length in bytes.
    pub len: usize,
    /// The remote key, opaque, of at most [`MAX_KEY`] bytes.
    pub key: Vec<u8>,
    /// The device's own number for it.
    pub handle: u64,
}

/// Longest remote key in bytes.
pub const MAX_KEY: usize = 96;

/// A peer's region as this rank reaches it.
#[derive(Clone, Copy, Debug)]
pub struct RemoteRegion {
    /// Whose (rank of the job).
    pub peer: u32,
    /// Length in bytes.
    pub len: usize,
    /// The device's own number for it.
    pub handle: u64,
    /// The part that is mapped here, if any.
    pub mapped: Option<Mapped>,
    /// Whether one request takes blocks on this side and ranges of the region too ([`Operation::WriteBlocks`] and
    /// [`Operation::ReadBlocks`]), and the bytes of the shortest block for which that is better than to pack here and to
    /// unpack there, where the other rank does so; 0 where any of it is mapped.
    pub lists: Option<u64>,
    /// Whether accumulates on it are made of steps in which its rank takes no part ([`service::steps`](crate::service::steps)):
    /// where it does take part, the processor of that rank needs fewer messages.
    pub steps: bool,
}

/// The directly mapped part of a peer's region: byte `i` of the region is at `base + i` for `lo <= i < hi`.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    /// Where byte 0 of the region is, or would be.
    pub base: *mut u8,
    /// First mapped byte.
    pub lo: usize,
    /// One past the last mapped byte.
    pub hi: usize,
}

/// A place in a peer's region.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// [`RemoteRegion::handle`].
    pub region: u64,
    /// Byte offset.
    pub offset: usize,
}

/// Consecutive bytes of a peer's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Where they start.
    pub offset: usize,
    /// Their number.
    pub len: usize,
}

/// A remote I/O vector: ranges of one region of a peer.
#[derive(Clone, Copy, Debug)]
pub struct RemoteVector<'a> {
    /// [`RemoteRegion::handle`].
    pub region: u64,
    /// Ranges of it, in the order of the bytes.
    pub ranges: &'a [Range],
}

/// What a work request does. Pointers must stay valid until it has completed.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Gathers local blocks and writes them to consecutive remote bytes.
    Write {
        /// Where the bytes come from.
        from: &'a [Block],
        /// Where they go.
        to: Place,
    },
    /// Reads consecutive remote bytes and scatters them over local blocks.
    Read {
        /// Where the bytes go.
        into: &'a [Block],
        /// Where they come from.
        from: Place,
    },
    /// Writes local blocks to ranges of a region, equal in their sum, where [`RemoteRegion::lists`]. Ranges that share
    /// bytes are written in their order.
    WriteBlocks {
        /// Where the bytes come from.
        from: &'a [Block],
        /// Where they go.
        to: RemoteVector<'a>,
    },
    /// Reads ranges of a region into local blocks, equal in their sum, where [`RemoteRegion::lists`].
    ReadBlocks {
        /// Where the bytes go.
        into: &'a [Block],
        /// Where they come from.
        from: RemoteVector<'a>,
    },
    /// Adds to a remote word and stores its former value at `old`.
    FetchAdd {
        /// The word, 8-byte aligned.
        at: Place,
        /// What is added, wrapping.
        add: u64,
        /// Where the former value goes, or null.
        old: *mut u64,
    },
    /// Swaps a remote integer if it has the expected value, and stores its former value at `old`.
    CompareSwap {
        /// The integer, aligned to its size.
        at: Place,
        /// Its size in bytes: 1, 2, 4 or 8.
        len: usize,
        /// The value that it must have.
        expected: u64,
        /// The value that it gets.
        desired: u64,
        /// Where the former value goes: `len` bytes.
        old: *mut u8,
    },
    /// Applies an accumulate to consecutive remote elements by the region's own function.
    Accumulate {
        /// First element.
        at: Place,
        /// Operation and element type, as the region's function reads them, and what devices may know of them
        /// ([`code`]).
        code: u32,
        /// The operands.
        operand: Block,
        /// Where the former values go, of the operand's length, or null.
        old: *mut u8,
    },
    /// Sets a signal cell and wakes its rank if that sleeps.
    Signal {
        /// The cell.
        at: Place,
        /// Its new value.
        value: u64,
    },
    /// Receives one [`Gather`](Operation::Gather) of the peer into local blocks: the first that no scatter before this
    /// one got. Complete when the bytes are here. One that is longer than the blocks ends this and all lists that are
    /// under way between the two ranks with errors; one that is shorter leaves the rest as it was.
    Scatter {
        /// Where the bytes go: at most [`Lists::blocks`].
        into: &'a [Block],
    },
    /// Sends local blocks as one message to the peer's next [`Scatter`](Operation::Scatter). Complete when the bytes are
    /// there. If the peer has posted none it waits for some seconds, and then ends with `Timeout`.
    Gather {
        /// Where the bytes come from: at most [`Lists::blocks`], together at most [`Lists::bytes`].
        from: &'a [Block],
    },
    /// Sends a packet whose bytes travel in registers.
    SendShort(&'a ShortPacket),
    /// Sends a packet: `header` and then the blocks, together at most [`Capabilities::max_packet`].
    Send {
        /// First bytes of the packet.
        header: &'a [u8],
        /// The rest, gathered.
        body: &'a [Block],
    },
}

impl Operation<'_> {
    /// The region of a peer that it is about, if any.
    #[must_use]
    pub fn region(&self) -> Option<u64> {
        match self {
            Operation::Write { to: at, .. }
            | Operation::Read { from: at, .. }
            | Operation::FetchAdd { at, .. }
            | Operation::CompareSwap { at, .. }
            | Operation::Accumulate { at, .. }
            | Operation::Signal { at, .. } => Some(at.region),
            Operation::WriteBlocks { to: at, .. } | Operation::ReadBlocks { from: at, .. } => Some(at.region),
            Operation::SendShort(_) | Operation::Send { .. } | Operation::Scatter { .. } | Operation::Gather { .. } => {
                None
            }
        }
    }
}

/// A work request.
#[derive(Clone, Copy, Debug)]
pub struct WorkRequest<'a> {
    /// The peer (rank of the job).
    pub peer: u32,
    /// What to do.
    pub operation: Operation<'a>,
    /// A signal cell set at the peer after the operation is visible there: part of the same message.
    pub notify: Option<(Place, u64)>,
    /// Comes back in the completion.
    pub id: u64,
}

/// Words of the longest short packet.
pub const SHORT_WORDS: usize = 6;

/// A packet of so few bytes that it goes by registers: eight to a word, the first lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortPacket {
    words: [u64; SHORT_WORDS],
    len: usize,
}

impl ShortPacket {
    /// A packet of the first `len` bytes of these words.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    #[inline(always)]
    pub fn new(words: [u64; SHORT_WORDS], len: usize) -> Self {
        assert!(len <= 8 * SHORT_WORDS, "a short packet of {len} bytes");
        Self { words, len }
    }

    /// Length in bytes.
    #[must_use]
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The words, whose first [`len`](Self::len) bytes count.
    #[must_use]
    #[inline(always)]
    pub fn words(&self) -> [u64; SHORT_WORDS] {
        self.words
    }

    /// The words as bytes, of which the first [`len`](Self::len) count.
    #[must_use]
    #[inline(always)]
    pub fn bytes(&self) -> [u8; 8 * SHORT_WORDS] {
        let mut bytes = [0; 8 * SHORT_WORDS];
        for (at, word) in bytes.chunks_exact_mut(8).zip(self.words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// What became of a work request when it was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It is complete, locally and remotely, or it is a signal or a packet, which nobody waits for but the peer;
    /// no completion follows.
    Done,
    /// A completion with its id follows.
    Pending,
    /// There was no room; nothing happened. Poll, then post it again.
    Busy,
}

/// What a poll found.
#[derive(Debug)]
pub enum Event<'a> {
    /// A work request is complete, locally and remotely.
    Completed {
        /// Its id.
        id: u64,
        /// Whether it worked.
        result: Result<()>,
    },
    /// A packet has come.
    Packet {
        /// From which rank of the job.
        source: u32,
        /// Its bytes, private to the receiver.
        bytes: &'a [u8],
    },
    /// A packet has come that is long enough to be taken from where it lies.
    LongPacket {
        /// From which rank of the job.
        source: u32,
        /// Its bytes, which are not private yet.
        packet: Unread<'a>,
    },
}

/// What a check of the peers is about.
#[derive(Clone, Copy, Debug)]
pub enum PeerCheck<'a> {
    /// Whether all are alive.
    Alive,
    /// That, and whether the process of one is stopped, by a signal or a debugger.
    Stopped,
    /// Whether the others are alive after this loss, which was noticed elsewhere: what is under way to that rank fails.
    Met(&'a Error),
}

/// How a rank ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// In order, after all others have come to the end too: its end is not an error to them.
    InOrder,
    /// In order, before others come to the end: they go on, and its end is not an error to them.
    Early,
    /// Out of order: the others get `PeerLost` when they next wait.
    Lost,
}

/// A communication device of one rank. Not `Sync`: one thread drives it. Peers are ranks of the job.
///
/// [`loopback`] is the reference: what its few hundred lines do is what a device has to do.
#[allow(unsafe_code)]
pub trait Device: fmt::Debug {
    /// What it can do.
    fn capabilities(&self) -> &Capabilities;
    /// Registers memory, so that peers that [import](Self::import) its key reach it; where [`Region::base`] is null,
    /// allocates it first, zeroed. [`allocate`](#method.allocate) is the safe form of that.
    ///
    /// # Safety
    /// Memory of the caller stays valid, and nobody assumes exclusive access to it while peers may use it, until
    /// `release` has returned.
    ///
    /// # Errors
    /// `SharedMemoryFull`, `Limit`, `Forbidden`.
    unsafe fn register(&self, region: Region) -> Result<Registration>;
    /// Every peer that will use the registration has imported it, or has read it if it is [brief](Region::brief): what was
    /// only needed for that can go.
    fn sealed(&self, _handle: u64) {}
    /// Takes memory back: allocated memory is unmapped here, registered memory is the caller's own again. No transfer of
    /// a peer touches it after the return; those that peers begin later get an error (or reach pages that nobody else
    /// sees, or, of memory that was not [exclusive](Region::exclusive), the memory).
    ///
    /// # Safety
    /// `handle` is that of a registration of this device, and allocated memory is not used after the call.
    ///
    /// # Errors
    /// `Freed` for a handle that is not known; `System` if the memory cannot be given back: it is then leaked.
    unsafe fn release(&self, handle: u64) -> Result<()>;
    /// Makes a peer's region usable here; `accumulate` is how accumulates are applied to a mapped part, or by steps.
    ///
    /// # Errors
    /// `Protocol` for a key that makes no sense, `NoSuchRank`, `PeerLost`, `Forbidden`.
    fn import(&self, peer: u32, key: &[u8], accumulate: Option<AccumulateFn>) -> Result<RemoteRegion>;
    /// Forgets an imported region.
    ///
    /// # Safety
    /// [`RemoteRegion::mapped`] of that region is not used after the call.
    unsafe fn forget(&self, handle: u64);
    /// Posts a work request. A write is visible at the target before any atomic or signal that this rank posts to it later.
    ///
    /// # Safety
    /// All local pointers stay valid (and exclusive where written) until the request has completed.
    ///
    /// # Errors
    /// `BadKey`, `OutOfRange`, `Misaligned`, `NoSuchRank`, `PeerLost`; `BadArgument` for a region of another peer
    /// or a packet or list that is too long; `Unsupported` for what the device does not have; for lists `Limit` too,
    /// since their memory is registered.
    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted>;
    /// Forgets pending requests whose id satisfies `which`: no local pointer of theirs is used after it.
    fn cancel(&self, which: &dyn Fn(u64) -> bool);
    /// Delivers what has happened; returns whether anything had. A handler that polls finds nothing.
    ///
    /// # Errors
    /// `Protocol`, `PeerLost`.
    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool>;
    /// Sleeps until something happens, a peer wakes this rank, or the time is over; not if there is something to poll, or
    /// `ready` is true once peers know that this rank is about to sleep: returns whether that was so.
    fn park(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool;
    /// Wakes a peer that may sleep, after a store to its mapped memory.
    fn wake(&self, _peer: u32) {}
    /// What ends the [`park`](Self::park) of this rank, from any thread: for a device that is joined with another, and for a
    /// program of several threads.
    ///
    /// # Errors
    /// `Unsupported` for a device that has none.
    fn waker(&self) -> Result<Waker> {
        Err(Error::new(ErrorKind::Unsupported, "join two devices").device(self.capabilities().name))
    }
    /// Checks that all peers are alive. Returns a rank of the job whose process is stopped, if that is asked for and this
    /// device watches its process.
    ///
    /// # Errors
    /// `PeerLost`, naming one that is not alive.
    fn check_peers(&self, about: PeerCheck<'_>) -> Result<Option<u32>>;
    /// The clock of the job: the only one that job code reads.
    fn now(&self) -> Instant {
        Instant::now()
    }
    /// Shows its counters, each with the name of the device: more than one where threads count apart, or this device is made of
    /// others. To the first, of which there is always one, operations are added that bypass `post` (stores to mapped memory).
    fn stats<'a>(&'a self, each: &mut dyn FnMut(&'static str, &'a Stats));
    /// Says that this rank ends. In order: returns whether all requests are complete, those too whose completion nobody gets
    /// (signals and packets); if not, poll and call again.
    ///
    /// # Errors
    /// `System`.
    fn leave(&self, how: Leave) -> Result<bool>;
}

/// Ends the [`park`](Device::park) of a rank, from any thread.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// How a rank sleeps in [`Device::park`].
#[derive(Clone)]
pub enum Sleep<'a> {
    /// At most this long.
    For(Duration),
    /// On another device: this one returns at once, and calls the waker when something happens. Every call of a rank names
    /// the same waker.
    Elsewhere(&'a Waker),
}

impl dyn Device + '_ {
    /// Allocates memory that peers can reach: [`register`](Device::register) of a region without a base.
    ///
    /// # Errors
    /// `SharedMemoryFull`, `Limit`, `Forbidden`.
    #[allow(unsafe_code)]
    pub fn allocate(&self, region: Region) -> Result<Registration> {
        // SAFETY: no memory of the caller.
        unsafe { self.register(Region { base: std::ptr::null_mut(), ..region }) }
    }

    /// The counters to which operations are added that bypass [`post`](Device::post).
    ///
    /// # Panics
    /// If the device has none, against its contract.
    #[must_use]
    pub fn own_stats(&self) -> &Stats {
        let mut first = None;
        self.stats(&mut |_, stats| _ = first.get_or_insert(stats));
        first.expect("a device has counters")
    }

    /// The counters by device: more than one where this one is made of others.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, Snapshot)> {
        let mut all: Vec<(&'static str, Snapshot)> = Vec::new();
        self.stats(&mut |name, stats| match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum = sum.merged(&stats.snapshot()),
            None => all.push((name, stats.snapshot())),
        });
        all
    }

    /// Whether this rank and `peer` can map each other's memory.
    #[must_use]
    pub fn shares_memory(&self, peer: u32) -> bool {
        self.capabilities().node.contains(&peer)
    }
}
