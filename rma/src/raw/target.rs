#![allow(unsafe_code)]
//! The state that a window keeps for each target and for its own exposure.

use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use farside_core::Result;
use farside_core::am::Counter;
use farside_core::coll::Announced;
use farside_core::device::RemoteRegion;
use farside_core::job::Track;
use farside_core::service::records::RecordQueue;
use farside_core::signal::SignalArray;

use super::announcement::Announcement;
use super::element_lock::ElementLock;
use super::item::Item;
use super::lockword::Ticket;
use super::published::Published;
use super::words::word;

/// The kind of lock.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let window = LockWindow::<u64>::allocate(&team, 2)?;
///     // Both elements change atomically: no other rank sees one without the other.
///     window.lock(LockKind::Exclusive, 0, Assert::empty(), |epoch| {
///         let mut both = [0; 2];
///         epoch.get_into_blocking(&mut both, 0, 0)?;
///         epoch.put_blocking(&[both[0] + 1, both[1] + 10], 0, 0)
///     })?;
///     team.barrier()?;
///     let both = window.lock(LockKind::Shared, 0, Assert::empty(), |epoch| {
///         Ok::<_, Error>((epoch.get_blocking(0, 0)?, epoch.get_blocking(0, 1)?))
///     })?;
///     assert_eq!(both, (3, 30));
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Other ranks may hold shared locks at the same time.
    Shared,
    /// No other rank holds a lock.
    Exclusive,
}

/// The state of a target's lock at this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockState {
    No,
    /// Lock was called, but the request has not been sent.
    Wanted(LockKind),
    /// A shared lock could not be entered immediately; the next waiting call makes another attempt.
    Deferred,
    /// The ticket is taken.
    Waiting(LockKind, Ticket),
    /// The ticket is taken and queued: the rank whose change admits the ticket notifies this rank.
    Queued(LockKind, Ticket),
    /// This rank has entered by the word, but may have to wait until ranks that entered by claim have left.
    Draining(LockKind, Ticket),
    /// This rank holds the lock by the word.
    Inside(LockKind, Ticket),
    /// This rank holds the lock by claim.
    Claimed(LockKind),
    /// This rank uses `NOCHECK` and does not access the word.
    Unchecked,
    /// This rank holds the lock exclusively for local access, so operations fail; by ticket, or by claim if `None`.
    Local(Option<Ticket>),
}

/// Targets that are created at their first use ([`PeerTable`](farside_core::coll::PeerTable)).
pub(crate) struct UnusedTargets {
    /// The state of their locks.
    pub(super) lock: Cell<LockState>,
    /// The announcements of the ranks, once they have been exchanged.
    pub(super) announced: OnceCell<Announced>,
    /// This rank, and its memory if puts and gets to it are copies.
    pub(super) own: Option<(usize, Own)>,
}

/// The memory of this rank, and whether the device's atomics are coherent with those of its CPU.
#[derive(Clone, Copy)]
pub(super) struct Own {
    pub(super) base: *mut u8,
    pub(super) len: usize,
    pub(super) coherent: bool,
}

impl UnusedTargets {
    pub(super) fn make(&self, rank: usize, region: RemoteRegion) -> Target {
        let mut target = Target::new((rank, region));
        target.lock.set(self.lock.get());
        if let Some(announced) = self.announced.get() {
            target.apply_announcement(&announced.read(rank, Announcement::read));
            self.own.filter(|(me, _)| *me == rank).into_iter().for_each(|(_, own)| target.copy_own(own));
        }
        target
    }
}

/// A target. The first fields are those of the fast path. A window may have a target for each rank, so the state of
/// operations, in [`Used`], is allocated only at the first dereference.
pub(crate) struct Target {
    /// The epoch in which this target is ready, that is, exposed or locked.
    pub(super) ready: Published,
    /// Byte `i` is at `base + i` for `lo <= i < hi`.
    pub(super) base: *mut u8,
    pub(super) lo: usize,
    pub(super) hi: usize,
    /// Whether this rank can load and store its whole memory although the window is not mapped, so that puts and gets
    /// are copies.
    pub(super) copies: bool,
    /// Whether this rank's CPU may execute atomics on its mapped memory in every epoch.
    pub(super) atomics: bool,
    pub(super) elements: ElementLock,
    pub(super) region: RemoteRegion,
    pub(super) lock: Cell<LockState>,
    /// Its rank in the window's team.
    pub(super) team_rank: usize,
    /// The words for entering the lock by claim, if they are mapped.
    pub(super) entry: Option<Box<ClaimWords>>,
    /// The handler of packed pieces at the target, or 0 if it receives none.
    pub(super) listens: u16,
    /// The handler of transfers by lists at the target, or 0.
    pub(super) lists: u16,
    /// The address of its memory modulo 16.
    pub(super) alignment: u8,
    used: OnceCell<Box<Used>>,
}

/// The state of operations on a target.
pub(crate) struct Used {
    /// The remote address of its memory: a rank of the job, the device's handle of a region, and the offset of the
    /// first byte. Differs from the target's own region if all memory is one segment.
    pub(super) remote: (u32, u64, usize),
    /// Tracks the requests that are not complete.
    pub(super) track: Rc<Track>,
    /// Whether a request in progress may be something other than a write.
    pub(super) reads: Cell<bool>,
    /// Number of packed pieces sent, and number unpacked by the target.
    pub(super) packed: Cell<u64>,
    pub(super) unpacked: Counter,
    /// Accumulates that the target's CPU applies.
    pub(super) records: RecordQueue,
    /// Number of accesses to the target that this rank has started, and number of exposures that this rank has posted
    /// to it.
    pub(super) starts: Cell<u64>,
    pub(super) posts: Cell<u64>,
    /// The last operation, withheld to be combined with the notification.
    pub(super) withheld: RefCell<Option<Item>>,
}

/// The words of a target's signal array for entering its lock by claim ([`super::bias`]).
pub(super) struct ClaimWords {
    pub(super) bias: NonNull<AtomicU64>,
    pub(super) claim: NonNull<AtomicU64>,
    /// First word of the waiter bits.
    pub(super) waiters: NonNull<AtomicU64>,
    /// The ticket of this rank's last entry by the lock word, and the streak of consecutive entries that count towards
    /// a bias.
    pub(super) last: Cell<u64>,
    pub(super) streak: Cell<u32>,
    /// The streak at which the bias is set. It doubles each time.
    pub(super) patience: Cell<u32>,
}

impl ClaimWords {
    pub(super) fn new(signals: &SignalArray, target: usize, claim: usize) -> Option<Box<Self>> {
        let at = |word| signals.peer_word(target, word).map(NonNull::from);
        Some(Box::new(Self {
            bias: at(word::BIAS)?,
            claim: at(claim)?,
            waiters: at(word::WAITERS)?,
            last: Cell::new(0),
            streak: Cell::new(0),
            patience: Cell::new(8),
        }))
    }
}

/// The group of the open exposure epoch. Its memory is reused for the next group.
#[derive(Default)]
pub(super) struct OpenExposure {
    open: bool,
    origins: Vec<usize>,
}

impl OpenExposure {
    pub(super) fn open(&mut self, origins: &[usize]) {
        self.open = true;
        origins.iter().for_each(|origin| self.origins.push(*origin));
    }

    pub(super) fn close(&mut self) {
        self.open = false;
        self.origins.clear();
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    pub(super) fn members(&self) -> &[usize] {
        &self.origins
    }
}

impl Target {
    pub(super) fn new((team_rank, region): (usize, RemoteRegion)) -> Self {
        let (base, lo, hi) = region.mapped.map_or((std::ptr::null_mut(), 1, 0), |m| (m.base, m.lo, m.hi));
        let atomics = region.mapped.is_none_or(|m| m.atomics);
        Self {
            ready: Published::default(),
            base,
            lo,
            hi,
            copies: (lo, hi) == (0, region.len),
            atomics,
            elements: ElementLock::default(),
            region,
            lock: Cell::new(LockState::No),
            team_rank,
            entry: None,
            listens: 0,
            lists: 0,
            alignment: 0,
            used: OnceCell::new(),
        }
    }

    /// The address of its memory, if this rank can load and store all of it.
    fn whole(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.base).filter(|_| self.copies)
    }

    #[cold]
    fn make_used(&self) -> Box<Used> {
        let RemoteRegion { peer, handle, .. } = self.region;
        Box::new(Used {
            remote: (peer, handle, 0),
            track: Track::new(),
            reads: Cell::new(false),
            packed: Cell::new(0),
            unpacked: Counter::new(),
            records: RecordQueue::new(peer, self.listens, usize::from(self.alignment), self.whole()),
            starts: Cell::new(0),
            posts: Cell::new(0),
            withheld: RefCell::new(None),
        })
    }
}

impl Deref for Target {
    type Target = Used;

    #[inline]
    fn deref(&self) -> &Used {
        self.used.get_or_init(|| self.make_used())
    }
}

impl Target {
    /// The state of operations, if there has been any operation.
    #[inline]
    pub(super) fn used(&self) -> Option<&Used> {
        self.used.get().map(|used| &**used)
    }

    /// Redirects the target's memory to a part of another rank's region.
    pub(super) fn move_to(&mut self, remote: (u32, u64, usize)) {
        let mut used = self.make_used();
        used.remote = remote;
        self.used = OnceCell::from(used);
    }

    /// Whether this rank holds the target's lock exclusively, so that no other rank accesses its memory.
    #[inline]
    pub(super) fn is_locked_exclusively(&self) -> bool {
        matches!(self.lock.get(), LockState::Inside(LockKind::Exclusive, _) | LockState::Claimed(LockKind::Exclusive))
    }

    /// Number of requests in progress.
    #[inline]
    pub(super) fn open(&self) -> usize {
        self.used().map_or(0, |used| used.track.open())
    }

    /// Whether a request has failed since the last [`check`](Self::check).
    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        self.used().is_some_and(|used| used.track.has_failed())
    }

    /// Returns and removes the first error of its requests.
    ///
    /// # Errors
    /// The first failure since the last call.
    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        self.used().map_or(Ok(()), |used| used.track.check())
    }

    /// Whether an operation is withheld.
    #[inline]
    pub(super) fn has_withheld(&self) -> bool {
        self.used().is_some_and(|used| used.withheld.borrow().is_some())
    }

    /// Whether requests or packed pieces are in progress.
    #[inline]
    pub(super) fn has_requests(&self) -> bool {
        self.used().is_some_and(|used| used.track.open() > 0 || used.packed.get() != used.unpacked.value())
    }

    /// Whether all outstanding operations are writes by the device. Copies to a mapped part of the memory are not
    /// ordered with messages.
    pub(super) fn has_only_writes(&self) -> bool {
        let only_writes = |used: &Used| {
            let is_packed = used.packed.get() != used.unpacked.value();
            !used.reads.get() && !is_packed && used.records.is_empty() && !used.records.is_unanswered()
        };
        self.region.mapped.is_none() && self.used().is_some_and(only_writes)
    }

    /// Whether requests, packed pieces or answers are outstanding.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.has_requests() || self.used().is_some_and(|used| used.records.is_unanswered())
    }

    /// Turns puts and gets to this target into copies, and accumulates into CPU atomics if those of the device are coherent with them.
    /// The target is this rank itself.
    pub(super) fn copy_own(&mut self, Own { base, len, coherent }: Own) {
        if self.region.mapped.is_none() && !base.is_null() && len == self.region.len {
            (self.base, self.lo, self.hi) = (base, 0, len);
            (self.copies, self.atomics) = (true, coherent);
        }
    }

    /// Stores the announced properties of the target that this rank needs in order to send to it.
    pub(super) fn apply_announcement(&mut self, announced: &Announcement) {
        self.listens = announced.listens;
        self.lists = announced.lists.0;
        self.alignment = announced.served.unwrap_or(0);
    }

    /// The bias, claim and waiter words, if the lock can be entered by claim.
    #[inline(always)]
    pub(super) fn claim(&self) -> Option<(&AtomicU64, &AtomicU64, &AtomicU64)> {
        let e = self.entry.as_ref()?;
        // SAFETY: words of the window's signal array, which lives as long as the window and its targets.
        Some(unsafe { (e.bias.as_ref(), e.claim.as_ref(), e.waiters.as_ref()) })
    }
}
