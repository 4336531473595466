//! The device seam: one trait, shaped like verbs, because verbs is the contract that every RDMA network has.
//!
//! A device registers memory, posts work requests, polls completions and parks. Operations are values, so all
//! of them share one [`Device::post`]; limits and guarantees are data ([`Capabilities`]).

pub mod code;
pub mod fault;
pub(crate) mod open;
pub mod report;
pub mod route;
pub mod shm;
#[cfg(feature = "verbs")]
pub mod verbs;

use std::fmt;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::memory::keys::AccumulateFn;
use crate::stats::Snapshot;

/// What a device can do and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Most blocks in one gather or scatter list.
    pub max_blocks: usize,
    /// Largest write whose bytes are taken when it is posted, so that the buffer is free at once.
    pub inline_bytes: usize,
    /// Largest packet of [`Operation::Send`], header and body.
    pub max_packet: usize,
    /// Remote 64-bit atomics, and whether they are atomic with respect to the target's processor.
    pub atomics: Atomics,
    /// Whether two operations on the same bytes of one peer take effect there in the order in which they were
    /// posted.
    pub ordered: bool,
    /// Whether remote memory can be mapped: then a put is a store.
    pub mappable: bool,
    /// Whether [`Operation::Accumulate`] is done by the device, without a handler above it.
    pub accumulate: bool,
    /// Limits of [`Operation::Scatter`] and [`Operation::Gather`]; `None` where the device does not have them.
    pub lists: Option<Lists>,
    /// Where one way of a transfer between two layouts becomes better than another.
    pub cut_offs: CutOffs,
    /// Whether a store to mapped memory may be followed, without a fence, by a look whether somebody sleeps who waits
    /// for it: who sleeps pays for both.
    pub sleepers_fence: bool,
    /// Whether a rank may read and write its own region, and set its own cells, by loads and stores although it is not
    /// mapped, beside what goes through the device; atomics and accumulates still do.
    pub own_by_copy: bool,
}

/// Limits of one scatter or gather list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lists {
    /// Most blocks.
    pub blocks: usize,
    /// Most bytes.
    pub bytes: usize,
}

/// Where one way to move blocks becomes better than another, as measured on a device; in bytes. The meaning of each is
/// that of `farside_datatype::CutOffs`, which plans with them; the device knows no layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutOffs {
    /// Shortest block for which a write gathers or a read scatters, when the target could help instead.
    pub gather_block: u64,
    /// Shortest block for which one request a block is better than every way with the target's help.
    pub multi_w_block: u64,
    /// Shortest block for which lists on both sides are better than packing.
    pub sgrs_block: u64,
    /// Shortest message for which lists on both sides pay.
    pub sgrs_bytes: u64,
    /// Packed bytes of a piece, so that packing, sending and unpacking overlap.
    pub segment: u64,
}

impl CutOffs {
    /// What a device has for which nothing was measured: packing for blocks below 128 bytes in messages below 64 KiB.
    pub const UNMEASURED: Self =
        Self { gather_block: 256, multi_w_block: 32 << 10, sgrs_block: 128, sgrs_bytes: 64 << 10, segment: 64 << 10 };
}

/// Remote atomics of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomics {
    /// None.
    None,
    /// Atomic among operations of this device only.
    Device,
    /// Atomic with respect to the target's processor too.
    Coherent,
}

/// A piece of this rank's memory.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// First byte.
    pub base: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

/// The error of a device that has no lists.
#[cold]
pub(crate) fn no_lists(peer: u32, device: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, "post a scatter or gather list")
        .peer(peer)
        .device(device)
        .cause("lists on both sides of a message go by an RDMA card")
        .remedy("ask `Capabilities::lists` first, and pack, or write block by block, where it is none")
}

impl Block {
    /// A block that is only read.
    #[must_use]
    pub fn of(base: *const u8, len: usize) -> Self {
        Self { base: base.cast_mut(), len }
    }
}

/// Memory to be registered.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// First byte.
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

/// Places in a peer's region.
#[derive(Clone, Copy, Debug)]
pub struct Spread<'a> {
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
        to: Spread<'a>,
    },
    /// Reads ranges of a region into local blocks, equal in their sum, where [`RemoteRegion::lists`].
    ReadBlocks {
        /// Where the bytes go.
        into: &'a [Block],
        /// Where they come from.
        from: Spread<'a>,
    },
    /// Adds to a remote word and stores its former value at `old`.
    FetchAdd {
        /// The word, 8-byte aligned.
        at: Place,
        /// What is added, wrapping.
        add: u64,
        /// Where the former value goes.
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
    /// Sends a packet: `header` and then the blocks, together at most [`Capabilities::max_packet`].
    Send {
        /// First bytes of the packet.
        header: &'a [u8],
        /// The rest, gathered.
        body: &'a [Block],
    },
}

/// An atomic operation on a remote word, 8-byte aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// An accumulate that adds, wrapping.
    Add(u64),
    /// Swaps the word if it has the expected value.
    CompareSwap {
        /// The value that it must have.
        expected: u64,
        /// The value that it gets.
        desired: u64,
    },
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
}

/// A communication device of one rank. Not `Sync`: one thread drives it.
#[allow(unsafe_code)]
pub trait Device: fmt::Debug {
    /// Its name, for messages and statistics.
    fn name(&self) -> &'static str;
    /// What it can do.
    fn capabilities(&self) -> &Capabilities;
    /// Allocates zeroed memory that peers can reach in the best way that the device has.
    ///
    /// # Errors
    /// `SharedMemoryFull`, `Limit`.
    fn allocate(&self, len: usize, region: Region) -> Result<Registration>;
    /// Registers memory of the user.
    ///
    /// # Safety
    /// The memory stays valid, and nobody assumes exclusive access to it while peers may use it, until
    /// `release` has returned.
    ///
    /// # Errors
    /// `Limit`, `Forbidden`.
    unsafe fn register(&self, region: Region) -> Result<Registration>;
    /// Takes memory back: allocated memory is unmapped here, registered memory is the user's own again. From
    /// then on no peer can touch it; those that try get an error (or reach pages that nobody else sees). Transfers
    /// that a peer has begun before may still be going on: they are ended first, as the close of a window does.
    ///
    /// # Errors
    /// `System` if the memory cannot be given back; it is then leaked and not freed.
    fn release(&self, handle: u64) -> Result<()>;
    /// Called once every peer that will use an allocation or registration has imported it: what was only
    /// needed for that can go.
    fn settled(&self, handle: u64);
    /// Makes a peer's region usable here; `accumulate` is how accumulates are applied to a mapped part.
    ///
    /// # Errors
    /// `Protocol` for a key that makes no sense, `NoSuchRank`, `PeerLost`, `Forbidden`.
    fn import(&self, peer: u32, key: &[u8], accumulate: Option<AccumulateFn>) -> Result<RemoteRegion>;
    /// Forgets an imported region.
    fn forget(&self, handle: u64);
    /// Posts a work request.
    ///
    /// # Safety
    /// All local pointers stay valid (and exclusive where written) until the request has completed.
    ///
    /// # Errors
    /// `BadKey`, `OutOfRange`, `Misaligned`, `NoSuchRank`, `PeerLost`; `BadArgument` for a region of another peer
    /// or a packet or list that is too long; `Unsupported` for lists where the device has none; for them `Limit` too,
    /// since their memory is registered.
    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted>;
    /// Writes one block, as [`post`](Self::post) does with [`Operation::Write`].
    ///
    /// # Safety
    /// As [`post`](Self::post).
    ///
    /// # Errors
    /// As [`post`](Self::post).
    unsafe fn write(&self, peer: u32, from: Block, to: Place, id: u64) -> Result<Posted> {
        let operation = Operation::Write { from: &[from], to };
        // SAFETY: the same contract.
        unsafe { self.post(&WorkRequest { peer, operation, notify: None, id }) }
    }
    /// Reads into one block, as [`post`](Self::post) does with [`Operation::Read`].
    ///
    /// # Safety
    /// As [`post`](Self::post).
    ///
    /// # Errors
    /// As [`post`](Self::post).
    unsafe fn read(&self, peer: u32, into: Block, from: Place, id: u64) -> Result<Posted> {
        let operation = Operation::Read { into: &[into], from };
        // SAFETY: the same contract.
        unsafe { self.post(&WorkRequest { peer, operation, notify: None, id }) }
    }
    /// An atomic on a word, whose former value goes to `old` unless that is null, by a shorter way than that of
    /// [`post`](Self::post) with [`Operation::Accumulate`] or [`Operation::CompareSwap`]. `Busy` where there is none, or not
    /// just now: then `post` will do, which also says what may be wrong with the request.
    ///
    /// # Safety
    /// As [`post`](Self::post).
    unsafe fn atomic(&self, _peer: u32, _at: Place, _what: Atomic, _old: *mut u8, _id: u64) -> Posted {
        Posted::Busy
    }
    /// Sends a short packet, as [`post`](Self::post) does with [`Operation::Send`].
    ///
    /// # Errors
    /// `NoSuchRank`, `PeerLost`.
    fn send_short(&self, peer: u32, packet: &ShortPacket) -> Result<Posted> {
        let operation = Operation::Send { header: &packet.bytes()[..packet.len()], body: &[] };
        // SAFETY: packets are copied when they are posted.
        unsafe { self.post(&WorkRequest { peer, operation, notify: None, id: u64::MAX }) }
    }
    /// Forgets pending requests whose id satisfies `which`: no local pointer of theirs is used after it.
    fn cancel(&self, which: &dyn Fn(u64) -> bool);
    /// Delivers what has happened; returns whether anything had.
    ///
    /// # Errors
    /// `Protocol`, `PeerLost`.
    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool>;
    /// Whether a poll would find a packet, as far as a glance tells: for a rank that is looking at a signal cell and
    /// would miss it during a poll that finds nothing.
    fn pending(&self) -> bool;
    /// What a rank that spins does between two turns that found nothing.
    fn relax(&self) {
        std::hint::spin_loop();
    }
    /// Sleeps until a peer wakes this rank or the time is over, unless `ready` is true once peers know that
    /// this rank is about to sleep.
    fn park(&self, limit: Duration, ready: &mut dyn FnMut() -> bool);
    /// Wakes a peer that may sleep.
    fn wake(&self, peer: u32);
    /// Says whether this rank is inside the runtime, where it serves requests, or computes.
    fn attending(&self, inside: bool);
    /// Checks that all peers are alive.
    ///
    /// # Errors
    /// `PeerLost`, naming one that is not.
    fn check_peers(&self) -> Result<()>;
    /// Whether this rank and `peer` (rank of the job) reach each other's memory as ranks of one node do.
    fn shares_memory(&self, peer: u32) -> bool;
    /// The counters of this device. [`Device::stats`] has the cheap way to add to them.
    fn counters(&self) -> Snapshot;
    /// The counters by device: more than one where this one is made of others.
    fn counters_by_device(&self) -> Vec<(&'static str, Snapshot)> {
        vec![(self.name(), self.counters())]
    }
    /// The counters, to add operations that bypass `post` (stores to mapped memory).
    fn stats(&self) -> &crate::stats::Stats;
    /// Whether all requests are complete, those too of which nobody hears (signals and packets).
    ///
    /// # Errors
    /// `System`.
    fn is_idle(&self) -> Result<bool> {
        Ok(true)
    }
    /// Says that this rank ends in order, so that its end is not an error to others.
    fn leave(&self);
    /// Says that this rank ends out of order: the others get `PeerLost` when they next wait.
    fn abandon(&self);
}
