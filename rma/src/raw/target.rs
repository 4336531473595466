#![allow(unsafe_code)]
//! What a window keeps of each target and of its own exposure.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use farside_core::am::Counter;
use farside_core::device::{Registration, RemoteRegion};
use farside_core::job::Track;
use farside_core::signal::SignalArray;

use super::item::Item;
use super::lockword::Ticket;
use super::records::Batch;
use super::words::word;

/// Kinds of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Others may hold shared locks at the same time.
    Shared,
    /// Nobody else holds a lock.
    Exclusive,
}

/// What this rank holds of a target's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockState {
    No,
    /// Lock was called; nothing was sent.
    Wanted(LockKind),
    /// The same, of a shared lock that could not be entered at once: the next step is that of a call that waits.
    Deferred,
    /// The ticket is taken.
    Waiting(LockKind, Ticket),
    /// The ticket is taken, and the rank before it notifies this one.
    InLine(LockKind, Ticket),
    /// Inside by the word; who is inside by claim may have to leave first.
    Draining(LockKind, Ticket),
    /// Inside.
    Inside(LockKind, Ticket),
    /// Inside by claim.
    Claimed,
    /// Inside by `NOCHECK`, without the word.
    Unchecked,
    /// Inside, exclusively, for local access: no operation may touch the memory. By ticket or by claim.
    Local(Option<Ticket>),
}

/// A target, as far as the fast path looks.
#[derive(Debug)]
pub(crate) struct Target {
    /// The epoch in which this target is ready: exposed, or locked.
    pub(super) ready: Cell<u64>,
    /// Byte `i` is at `base + i` for `lo <= i < hi`.
    pub(super) base: *mut u8,
    pub(super) lo: usize,
    pub(super) hi: usize,
    /// This very rank, where the window is not mapped: puts and gets are copies, atomics and accumulates are not.
    pub(super) own_unmapped: bool,
    pub(super) region: RemoteRegion,
    /// Where operations to it are posted: a rank of the job, the device's number of a region, and the first byte there. Another
    /// region than `region` where all memory is one segment.
    pub(super) remote: (u32, u64, usize),
    /// Requests that are not complete.
    pub(super) track: Rc<Track>,
    /// By which its packed pieces go to it; 0: it takes none. How many went, and how many are unpacked there.
    pub(super) listens: u16,
    pub(super) packed: Cell<u64>,
    pub(super) unpacked: Counter,
    /// Its first address modulo 16.
    pub(super) alignment: usize,
    /// Accumulates for it that have not been sent; answers of it that have not come.
    pub(super) batch: RefCell<Batch>,
    pub(super) unanswered: Rc<Cell<usize>>,
    /// How often this rank has started an access to it, and posted an exposure to it.
    pub(super) starts: Cell<u64>,
    pub(super) posts: Cell<u64>,
    pub(super) lock: Cell<LockState>,
    /// Its rank in the window's team.
    pub(super) team_rank: usize,
    /// The way into the lock by claim, if there is one.
    pub(super) entry: Option<ClaimWords>,
    /// The last operation, withheld so that it can carry the notification.
    pub(super) withheld: RefCell<Option<Item>>,
}

/// What this rank needs of a target to enter its lock by claim ([`super::bias`]): words of its signal array.
#[derive(Debug)]
pub(super) struct ClaimWords {
    pub(super) bias: NonNull<AtomicU64>,
    pub(super) claim: NonNull<AtomicU64>,
    /// First word of those who wait.
    pub(super) waiters: NonNull<AtomicU64>,
    /// The last entry by the lock word: its ticket, and how many there were in a row with nobody in between.
    pub(super) last: Cell<u64>,
    pub(super) streak: Cell<u32>,
    /// How long a row has to be before the bias is set: longer each time that it was revoked.
    pub(super) patience: Cell<u32>,
}

impl ClaimWords {
    pub(super) fn new(signals: &SignalArray, target: usize, claim: usize) -> Option<Self> {
        let at = |word| signals.peer_word(target, word).map(NonNull::from);
        Some(Self {
            bias: at(word::BIAS)?,
            claim: at(claim)?,
            waiters: at(word::WAITERS)?,
            last: Cell::new(0),
            streak: Cell::new(0),
            patience: Cell::new(8),
        })
    }
}

/// The group of the exposure that is open; the memory is kept for the next.
#[derive(Debug, Default)]
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
        Self {
            ready: Cell::new(0),
            base,
            lo,
            hi,
            own_unmapped: false,
            remote: (region.peer, region.handle, 0),
            region,
            track: Track::new(),
            listens: 0,
            packed: Cell::new(0),
            unpacked: Counter::new(),
            alignment: 0,
            batch: RefCell::default(),
            unanswered: Rc::default(),
            starts: Cell::new(0),
            posts: Cell::new(0),
            lock: Cell::new(LockState::No),
            team_rank,
            entry: None,
            withheld: RefCell::new(None),
        }
    }
}

impl Target {
    /// Whether packed pieces are under way.
    #[inline]
    pub(super) fn has_packed(&self) -> bool {
        self.packed.get() != self.unpacked.value()
    }

    /// Whether requests or packed pieces are under way.
    #[inline]
    pub(super) fn has_requests(&self) -> bool {
        self.track.open() > 0 || self.has_packed()
    }

    /// Whether anything is under way.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.has_requests() || self.unanswered.get() > 0
    }

    /// Lets puts and gets to this target, which is this rank itself with the memory `own`, be copies.
    pub(super) fn copy_own(&mut self, own: &Registration) {
        if self.region.mapped.is_none() && !own.base.is_null() && own.len == self.region.len {
            (self.base, self.lo, self.hi, self.own_unmapped) = (own.base, 0, own.len, true);
        }
    }

    /// Whether atomic operations on memory that is mapped may be done now, where the window is not mapped as a whole.
    pub(super) fn takes_atomics(&self) -> bool {
        !self.own_unmapped && self.withheld.borrow().is_none()
    }

    /// Bias, claim and waiters, if the lock can be entered by claim.
    #[inline(always)]
    pub(super) fn claim(&self) -> Option<(&AtomicU64, &AtomicU64, &AtomicU64)> {
        let e = self.entry.as_ref()?;
        // SAFETY: words of the window's signal array, which lives as long as the window and its targets.
        Some(unsafe { (e.bias.as_ref(), e.claim.as_ref(), e.waiters.as_ref()) })
    }
}
