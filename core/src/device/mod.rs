//! The device seam: one trait, shaped like the verbs API, because every RDMA network offers what verbs offers.
//!
//! A device registers memory, posts work requests, polls completions and parks. Operations are values, so all of them
//! share one [`Device::post`]; limits and guarantees are data ([`Capabilities`]).

mod barrier;
mod capabilities;
pub(crate) mod cell;
pub mod code;
pub(crate) mod fault;
mod forward;
pub mod imports;
pub mod loopback;
pub(crate) mod ofi;
pub(crate) mod owned;
mod packet;
pub(crate) mod parts;
pub mod report;
pub(crate) mod request;
pub(crate) mod route;
pub(crate) mod routing;
pub(crate) mod shm;
pub(crate) mod sim;
pub(crate) mod target;
pub(crate) mod tcp;
mod unread;
#[cfg(feature = "verbs")]
pub mod verbs;
pub(crate) mod wait;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};
pub use crate::memory::Block;
use crate::memory::keys::AccumulateFn;
use crate::stats::{Snapshot, Stats};
pub use barrier::BarrierRequest;
pub use capabilities::{Capabilities, CutOffs, Lists, MessageCutOffs, Placement, SwitchLimits};
pub(crate) use forward::forward;
pub use owned::OwnedTransfer;
pub(crate) use packet::SHORT_WORDS;
pub use packet::{Packet, ShortPacket};
pub use parts::Parts;
pub use request::{Change, Operation, Place, Range, Ranges, Transfer, Update, WorkRequest};
pub(crate) use unread::Unread;
pub use watch::Watch;

/// Memory that is to be registered.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// First byte; null if the device allocates the memory.
    pub base: *mut u8,
    /// Length in bytes.
    pub len: usize,
    /// The function that applies accumulates to the region.
    pub accumulate: Option<AccumulateFn>,
    /// Whether peers may access the region while this rank computes (passive target). If such memory needs the target's
    /// help, an agent must serve it.
    pub passive: bool,
    /// Whether the memory may be released while peers still use it. The owner then rejects every later access.
    pub revocable: bool,
    /// Whether all ranks that will use the region share memory with this rank. In a job in which only some ranks share
    /// memory, this selects the device to which the region belongs, for all its users.
    pub one_node: bool,
    /// Whether only the device and peers access the memory from `register` to the return of `release`, as the type
    /// system guarantees for a mutable borrow or for a vector that the window owns. Memory that another thread, or the
    /// kernel on its behalf, may write at any time is not exclusive: its pages may be exchanged only while the process
    /// has no such thread.
    pub exclusive: bool,
    /// Whether the memory is exported to a peer for one message, which is copied by few transfers of [lists of
    /// ranges](Ranges::List). The device then skips work that pays only for a region that is used again.
    /// [`Device::sealed`] reports that the peer no longer needs the memory. A release before that revokes it: a request
    /// in progress then ends with an error, however much it has copied, and later requests copy nothing. Brief memory
    /// is [exclusive](Region::exclusive) if no other code stores to any byte of it until the release; others may read
    /// it. If it is exported repeatedly, the device may then prepare it so that peers map it
    /// ([`RemoteRegion::mapped`]). The release waits only for requests: code that uses the mapping itself must make
    /// sure that the release comes later.
    pub brief: bool,
    /// The only rank that is given the remote key; `None` if there may be several. The release then waits for the
    /// transfers of this rank alone.
    pub user: Option<u32>,
    /// Alignment in bytes, a power of two, of memory that the device allocates, at the address where this rank sees it.
    pub align: usize,
}

impl Region {
    /// `len` zeroed bytes that the device allocates in the kind of memory that peers access fastest.
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
            user: None,
            align: 1,
        }
    }
}

/// Memory that the device allocated or registered, and its remote key.
#[derive(Clone, Debug)]
pub struct Registration {
    /// First byte, at the address where this rank sees it.
    pub base: *mut u8,
    /// Length in bytes.
    pub len: usize,
    /// The remote key, opaque, of at most [`Capabilities::max_key`] bytes.
    pub key: Vec<u8>,
    /// The device's handle of the registration.
    pub handle: u64,
}

/// Longest remote key in bytes.
pub const MAX_KEY: usize = 288;

/// A peer's region as imported by this rank.
#[derive(Clone, Copy, Debug)]
pub struct RemoteRegion {
    /// The owner (rank of the job).
    pub peer: u32,
    /// Length in bytes.
    pub len: usize,
    /// The device's handle of the region.
    pub handle: u64,
    /// The part of the region that this rank has mapped, if any.
    pub mapped: Option<Mapped>,
    /// The minimum length in bytes of the shortest block for which one request with both local blocks and a list of
    /// ranges of the region ([`Ranges::List`]) is better than packing at one rank and unpacking at the other; `None` if
    /// such requests are not supported, `Some(0)` if any part of the region is mapped.
    pub lists: Option<u64>,
    /// Whether accumulates are composed from one-sided steps, which take more messages than an accumulate that the
    /// owner's processor applies.
    pub steps: bool,
}

/// The directly mapped part of a peer's region: byte `i` of the region is at `base + i` for `lo <= i < hi`.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    /// Address of byte 0 of the region, even if that byte is not mapped.
    pub base: *mut u8,
    /// First mapped byte.
    pub lo: usize,
    /// One past the last mapped byte.
    pub hi: usize,
    /// Whether this rank's processor may also change the bytes atomically. If not, only loads and stores are allowed
    /// while other ranks use atomics and accumulates of the device, which are not coherent with the processor's.
    pub atomics: bool,
}

/// Result of posting a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The request is complete, locally and remotely, or it is a signal or a packet of at most
    /// [`Capabilities::max_packet`] bytes, whose completion is not reported; no completion follows.
    Done,
    /// A completion with the request's id follows.
    Pending,
    /// The device had no queue space and did nothing. Poll, then post the request again.
    Busy,
}

/// An event that a poll delivers.
#[derive(Debug)]
pub enum Event<'a> {
    /// A work request is complete, locally and remotely; a write is visible then unless [`Capabilities::placement`] is
    /// [`Placement::AtRead`].
    Completed {
        /// The id of the request.
        id: u64,
        /// The result of the request.
        result: Result<()>,
    },
    /// A packet has arrived.
    Packet {
        /// The sender (rank of the job).
        source: u32,
        /// The bytes, private to the receiver.
        bytes: &'a [u8],
    },
    /// A packet has arrived that is long enough to be read in place, without a copy to a private buffer.
    LongPacket {
        /// The sender (rank of the job).
        source: u32,
        /// The bytes, which the sender may still be able to write.
        packet: Unread<'a>,
    },
}

/// Scope of a liveness check of the peers.
#[derive(Clone, Copy, Debug)]
pub enum PeerCheck<'a> {
    /// Checks whether all peers are alive.
    Alive,
    /// Checks also whether the process of a peer is stopped, by a signal or a debugger.
    Stopped,
    /// Checks only whether this peer sleeps, so that it makes no progress before it is woken; the answer may be out of
    /// date.
    Asleep(u32),
    /// Checks whether the other peers are alive after this loss, which another component detected; operations in
    /// progress to the lost rank fail.
    Met(&'a Error),
    /// Ends all communication over this device with a peer that another device reaches: operations in progress to the
    /// peer fail with `PeerLost`, no operation that the peer has posted takes effect after the return, and its loss is
    /// no longer reported.
    Left(u32),
}

/// How a rank ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The rank ends in order, after all other ranks have reached the end too; they see no error.
    InOrder,
    /// The rank ends in order, before other ranks reach the end; they continue and see no error.
    Early,
    /// The rank ends out of order: the other ranks get `PeerLost` when they next wait.
    Lost,
}

/// A communication device of one rank. Not `Sync`: one thread drives it. Peers are ranks of the job.
///
/// [`loopback`] is the reference implementation of this contract.
///
/// # Safety
/// The runtime uses the memory that a device returns without checking it. An implementation guarantees that
/// - [`register`](Self::register) of a region without a base gives zeroed memory of the region's length and alignment,
///   which nothing else uses and which stays valid until its [`release`](Self::release), or the drop of the device;
/// - [`RemoteRegion::mapped`], if there is any, is valid for reads and writes of its bytes, which are those of the
///   peer's region, until [`forget`](Self::forget), or the drop of the device;
/// - it accesses local memory of a request only until it has reported the request as [`Posted::Done`] or
///   [`Event::Completed`], or [`cancel`](Self::cancel) of it has returned, and memory of a registration only until
///   `release` has returned; and it writes only to the memory that an operation names as its destination;
/// - a request that it reports as complete without an error has filled the memory that it reads into;
/// - [`capabilities`](Self::capabilities) are always the same, and [`stats`](Self::stats) gives the same counters, at
///   the same addresses, as long as the device lives;
/// - `poll` calls its argument from the calling thread only, and does not keep it.
#[allow(unsafe_code)]
pub unsafe trait Device {
    /// Limits and guarantees of the device.
    fn capabilities(&self) -> &Capabilities;
    /// Registers memory, so that peers can access it after they [import](Self::import) its key. If [`Region::base`] is
    /// null, the device first allocates the memory, zeroed; [`allocate`](#method.allocate) is the safe form of this.
    ///
    /// # Safety
    /// Memory of the caller stays valid until `release` has returned, and until then no code assumes exclusive access
    /// to it while peers may use it.
    ///
    /// # Errors
    /// `SharedMemoryFull`, `Limit`, `Forbidden`.
    unsafe fn register(&self, region: Region) -> Result<Registration>;
    /// Reports that every peer that will use the registration has imported it, or has read it if it is
    /// [brief](Region::brief). The device can free resources that are needed only for the import.
    fn sealed(&self, _handle: u64) {}
    /// Counts a use of `memory` as the source of a message; returns whether peers could map all of it if it were
    /// exported now, so that a read takes no system call. A device may exchange the pages of memory that is used
    /// repeatedly.
    ///
    /// # Safety
    /// The memory is valid for reads, and no other code stores to it during the call.
    unsafe fn peers_can_map(&self, _memory: Block) -> bool {
        false
    }
    /// Ends a registration: allocated memory is unmapped, and registered memory belongs to the caller alone again. No
    /// transfer of a peer accesses the memory after the return. Transfers that peers begin later get an error, or reach
    /// pages that no other process sees, or, if the memory was not [exclusive](Region::exclusive), reach the memory
    /// itself.
    ///
    /// # Safety
    /// `handle` names a registration of this device, and allocated memory is not used after the call.
    ///
    /// # Errors
    /// `Freed` for an unknown handle; `System` if the memory cannot be freed, in which case it is leaked.
    unsafe fn release(&self, handle: u64) -> Result<()>;
    /// Makes a peer's region usable at this rank. `accumulate` is the function that applies accumulates to a mapped
    /// part, or by steps.
    ///
    /// # Errors
    /// `Protocol` for a malformed key, `NoSuchRank`, `PeerLost`, `Forbidden`.
    fn import(&self, peer: u32, key: &[u8], accumulate: Option<AccumulateFn>) -> Result<RemoteRegion>;
    /// Drops an imported region.
    ///
    /// # Safety
    /// [`RemoteRegion::mapped`] of that region is not used after the call.
    unsafe fn forget(&self, handle: u64);
    /// Posts a work request. A write is visible at the target before any atomic or signal that this rank posts to the
    /// same target later, unless [`Capabilities::placement`] says otherwise, or the signal's cell is mapped: the signal is
    /// a store then, which writes in progress do not precede.
    ///
    /// # Safety
    /// All local pointers stay valid (and exclusive where written) until the request has completed.
    ///
    /// # Errors
    /// `BadKey`, `OutOfRange`, `Misaligned`, `NoSuchRank`, `PeerLost`; `BadArgument` for a region of another peer or
    /// for a packet or list that is too long; `Unsupported` for an operation that the device does not have; `Limit` for
    /// lists, since their memory is registered.
    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted>;
    /// Drops pending requests whose id satisfies `which`. Their local pointers are not used after the call.
    fn cancel(&self, which: &dyn Fn(u64) -> bool);
    /// Delivers events; returns whether there were any, or requests of peers were served: then more may follow soon. A
    /// handler that polls gets no events.
    ///
    /// # Errors
    /// `Protocol`, `PeerLost`.
    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool>;
    /// Sleeps until an event arrives, a peer wakes this rank, or the time has elapsed. Returns true without sleeping if
    /// an event is ready, or if `ready` returns true after this rank is visible to peers as about to sleep.
    fn park(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool;
    /// Wakes a peer that may sleep, after a store to its mapped memory.
    fn wake(&self, _peer: u32) {}
    /// A function equivalent to [`wake`](Self::wake) that any thread may call; `None` if the device has none.
    fn peer_waker(&self) -> Option<PeerWaker> {
        None
    }
    /// A function that ends the [`park`](Self::park) of this rank, from any thread: for a device that is combined with
    /// others, and for a multithreaded program.
    ///
    /// # Errors
    /// `Unsupported` if the device has no waker.
    fn waker(&self) -> Result<Waker> {
        Err(Error::new(ErrorKind::Unsupported, "join two devices").device(self.capabilities().name))
    }
    /// Checks that all peers are alive. Returns a rank of the job whose process is stopped or asleep, if `about` asks for
    /// it and this device watches the process.
    ///
    /// # Errors
    /// `PeerLost`, naming a peer that is not alive.
    fn check_peers(&self, about: PeerCheck<'_>) -> Result<Option<u32>>;
    /// The clock of the job. Job code reads no other clock.
    fn now(&self) -> Instant {
        Instant::now()
    }
    /// Computes for `time`: on a simulated network the rank's clock advances, on other devices the rank is busy for
    /// that time.
    fn compute(&self, time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            std::hint::spin_loop();
        }
    }
    /// Passes each set of counters to `each` with the name of its device: several sets if threads count separately or
    /// this device combines others. The first always exists; operations that bypass `post` (stores to mapped memory)
    /// are added to it.
    fn stats<'a>(&'a self, each: &mut dyn FnMut(&'static str, &'a Stats));
    /// Announces that this rank ends. Unless `how` is [`Leave::Lost`], returns whether all requests are complete,
    /// including signals and packets, whose completion is not reported; if not, poll and call again.
    ///
    /// # Errors
    /// `System`.
    fn leave(&self, how: Leave) -> Result<bool>;
}

impl fmt::Debug for dyn Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.capabilities().name)
    }
}

/// Ends the [`park`](Device::park) of a rank, from any thread.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// Wakes a peer that may sleep, from any thread, after a store to its mapped memory.
pub type PeerWaker = Arc<dyn Fn(u32) + Send + Sync>;

/// How a rank sleeps in [`Device::park`].
#[derive(Clone)]
pub enum Sleep<'a> {
    /// Sleeps at most this long.
    For(Duration),
    /// Sleeps on another device, or in an event loop of the program: this device returns immediately and calls the
    /// waker at its next event, from any thread. A device that watches the other ranks also calls it after at most a
    /// second, so that the rank checks them. A rank passes the same waker in every call.
    Elsewhere(&'a Waker),
}

impl dyn Device + '_ {
    /// Allocates memory that peers can reach: [`register`](Device::register) of a region without a base.
    ///
    /// # Errors
    /// `SharedMemoryFull`, `Limit`, `Forbidden`.
    #[allow(unsafe_code)]
    pub fn allocate(&self, region: Region) -> Result<Registration> {
        // SAFETY: `base` is null, so no memory of the caller is involved.
        unsafe { self.register(Region { base: std::ptr::null_mut(), ..region }) }
    }

    /// The counters to which operations that bypass [`post`](Device::post) are added.
    ///
    /// # Panics
    /// If the device violates its contract and has no counters.
    #[must_use]
    pub fn own_stats(&self) -> &Stats {
        let mut first = None;
        self.stats(&mut |_, stats| _ = first.get_or_insert(stats));
        first.expect("a device has counters")
    }

    /// The counters by device: several entries if this device combines others.
    pub(crate) fn counters(&self) -> Vec<(&'static str, Snapshot)> {
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

    /// Whether a peer is known to [sleep](PeerCheck::Asleep).
    #[must_use]
    pub fn is_asleep(&self, peer: u32) -> bool {
        matches!(self.check_peers(PeerCheck::Asleep(peer)), Ok(Some(_)))
    }
}
