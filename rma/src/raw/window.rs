#![allow(unsafe_code)]
//! An untyped window: its state, and the operations on mapped memory.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;

use bytemuck::Pod;
use farside_core::bill::{Account, Awaited, SignalKind};
use farside_core::coll::PeerTable;
use farside_core::device::Registration;
use farside_core::memory::copy;
use farside_core::signal::SignalArray;
use farside_core::stats::{Kind, Stats};
use farside_core::{Error, ErrorKind, Job, Result, Team};

use super::address::Attachments;
use super::item::Item;
use super::job_end::WindowEnd;
use super::layouts::Layouts;
use super::orphans::Orphans;
use super::published::{CurrentAccess, Handles, Published};
use super::state::{FenceState, GroupState, LockingState, OperationState, ServedState};
use super::target::{Target, UnusedTargets};
use crate::elements::{WindowElement, range_text};
use crate::selection::Selection;

const PUT_OWN: &str = "put from window memory";

/// Options of an untyped window.
///
/// ```
/// use farside_rma::prelude::*;
/// use farside_rma::raw::lock::LockKind;
/// use farside_rma::raw::{Options, RawWindow};
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     // For fences and post-start-complete-wait alone.
///     let window = RawWindow::allocate(&team, 8, Options { locks: false })?;
///     assert!(window.lock(LockKind::Shared, 0, Assert::empty()).is_err());
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether lock, lock_all and flush may be used. Memory that is not mapped then has an agent at its target.
    pub locks: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { locks: true }
    }
}

/// An untyped window. Creation and [`free`](Self::free) are collective; dropping it is not: peers that still use the
/// window access memory that this rank no longer uses, or get an error.
///
/// ```
/// use farside_rma::prelude::*;
/// use farside_rma::raw::{Options, RawWindow};
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let window = RawWindow::allocate(&team, 16, Options::default())?;
///     let data = [1u8, 2, 3];
///     window.fence(Assert::NOPRECEDE)?;
///     // SAFETY: `data` is valid and not written until the next fence.
///     unsafe { window.put(data.as_ptr(), data.len(), 1 - team.rank(), 8) }?;
///     window.fence(Assert::NOSUCCEED)?;
///     // SAFETY: 16 bytes of this rank's memory, which no other rank writes concurrently.
///     let own = unsafe { std::slice::from_raw_parts(window.base(), 16) };
///     assert_eq!(own[8..12], [1, 2, 3, 0]);
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
pub struct RawWindow {
    pub(super) job: Job,
    pub(super) team: Team,
    pub(super) stats: NonNull<Stats>,
    pub(super) own: Registration,
    pub(super) signals: SignalArray,
    /// The window's account on the bill, if a bill is recorded.
    pub(super) account: Option<Account>,
    /// Changed only by [`WindowEnd::change`].
    pub(super) targets: PeerTable<Target>,
    /// Creates targets at their first use.
    pub(super) unused: Rc<UnusedTargets>,
    pub(super) options: Options,
    /// The element type, if the window has one.
    pub(super) element: Option<WindowElement>,
    /// Whether every rank maps the whole memory and the signal arrays of all targets.
    pub(super) mapped: bool,
    /// The attached regions of a dynamic window, whose offsets are addresses; `None` for other windows.
    pub(super) attachments: Option<Rc<Attachments>>,
    pub(super) access: CurrentAccess,
    /// Number of the access epoch; [`NO_EPOCH`] outside of one.
    pub(super) epoch: Published,
    pub(super) last_epoch: Cell<u64>,
    pub(super) fencing: FenceState,
    pub(super) groups: GroupState,
    pub(super) locking: LockingState,
    pub(super) operations: OperationState,
    pub(super) serving: ServedState,
    /// Whether an access epoch is counted in the job's store order.
    pub(super) counted: Cell<bool>,
    /// The waiting side pays for the store-load fence, so a writer may check the sleeper flag right after its store.
    pub(super) sleepers_fence: bool,
    /// Buffers of operations in progress whose handles were dropped. Dropped after `drop` has ended all operations.
    pub(crate) orphans: RefCell<Orphans>,
    /// Whether operations that read this rank's own memory may be in progress.
    pub(crate) own_in_use: Cell<bool>,
    /// Whether a slice of this rank's memory is borrowed for local access.
    pub(crate) borrowed: Cell<bool>,
    /// Counts the handles by which other threads of this rank access the memory.
    pub(super) handles: Handles,
    /// Whether operations in progress have been abandoned, after which a request may appear complete although it is
    /// not.
    pub(super) lost: Cell<bool>,
    pub(super) broken: Cell<bool>,
    pub(super) released: Cell<bool>,
    /// Whether the window is broken or released, or the job has ended.
    pub(super) end: Rc<WindowEnd>,
}

impl fmt::Debug for RawWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawWindow").field("team", &self.team).field("access", &self.access).finish_non_exhaustive()
    }
}

impl RawWindow {
    /// The window's account on the bill, if a bill is recorded.
    #[must_use]
    pub fn account(&self) -> Option<Account> {
        self.account
    }

    /// Counts a call on the bill.
    #[inline]
    pub(super) fn called(&self, operation: &'static str) {
        if let Some((bill, account)) = self.job.bill().zip(self.account) {
            bill.called(account, operation);
        }
    }

    /// Records in the trace that the call closes or opens an epoch.
    #[inline]
    pub(super) fn note_epoch(&self, name: &'static str, opens: bool) {
        if let Some((bill, account)) = self.job.bill().zip(self.account) {
            bill.epoch(account, name, opens);
        }
    }

    /// Counts a call that concerns team rank `target` on the bill.
    #[inline]
    pub(super) fn called_for(&self, operation: &'static str, target: usize) {
        if let Some((bill, account)) = self.job.bill().zip(self.account) {
            bill.called_for(account, operation, self.team.members().get(target).copied());
        }
    }

    /// Counts a call on the bill, with the team ranks to which it signals.
    #[inline]
    pub(super) fn called_to(&self, operation: &'static str, kind: SignalKind, targets: &[usize]) {
        if let Some((bill, account)) = self.job.bill().zip(self.account) {
            bill.called(account, operation);
            let peers = targets.iter().filter_map(|target| self.team.members().get(*target));
            peers.for_each(|peer| bill.signalled(account, kind, *peer, 0));
        }
    }

    /// The description of a wait for team rank `from` in a call that is not collective.
    pub(super) fn awaited(&self, operation: &'static str, from: usize) -> Awaited {
        Awaited { call: 0, ..self.signals.awaited(operation, 0, from) }
    }

    /// The team.
    #[must_use]
    pub fn team(&self) -> &Team {
        &self.team
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// First byte of this rank's own memory.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.own.base
    }

    /// Whether transfers may use any scheme, because none is set.
    pub(crate) fn chooses_freely(&self) -> bool {
        self.operations.planner.is_free()
    }

    /// Length of the window in bytes at team rank `rank`.
    ///
    /// # Errors
    /// `NoSuchRank`.
    pub fn len_at(&self, rank: usize) -> Result<usize> {
        self.target(rank, "look up a window").map(|t| t.region.len)
    }

    /// The address at which the memory of team rank `rank` is mapped, or `None` if any part of it is unmapped. This
    /// rank's own memory is always mapped.
    ///
    /// # Errors
    /// `NoSuchRank`.
    pub fn mapped_base(&self, rank: usize) -> Result<Option<*mut u8>> {
        let t = self.target(rank, "look up a window")?;
        if rank == self.team.rank() && !self.own.base.is_null() && self.own.len == t.region.len {
            return Ok(Some(self.own.base));
        }
        Ok(((t.lo, t.hi) == (0, t.region.len) && t.region.mapped.is_some()).then_some(t.base))
    }

    /// Whether every rank's memory is mapped at every other rank, so that operations are loads and stores.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.mapped
    }

    #[inline(always)]
    pub(crate) fn stats(&self) -> &Stats {
        // SAFETY: the device's counters are not moved while the job lives, of which `self` holds a handle.
        unsafe { self.stats.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn target(&self, rank: usize, operation: &'static str) -> Result<&Target> {
        match self.targets.get(rank) {
            Some(t) => Ok(t),
            None => self.lazy_target(rank, operation),
        }
    }

    /// The address of `len` bytes at `offset` of a target that is ready and whose bytes are mapped.
    #[inline(always)]
    pub(super) fn direct(&self, target: usize, offset: usize, len: usize) -> Option<*mut u8> {
        self.direct_at(self.targets.get(target)?, offset, len)
    }

    /// [`direct`](Self::direct), also for a target that is created at its first use.
    #[inline(always)]
    pub(super) fn direct_at(&self, t: &Target, offset: usize, len: usize) -> Option<*mut u8> {
        if let Some(last) = t.hi.checked_sub(len)
            && t.ready.get() == self.epoch.get()
            && offset <= last
            && offset >= t.lo
        {
            return Some(t.base.wrapping_add(offset));
        }
        self.attachments.as_ref()?;
        self.direct_attached(t, offset, len)
    }

    /// [`direct`](Self::direct) for attached memory. Not inlined, to keep the path for other memory short.
    #[cold]
    #[inline(never)]
    fn direct_attached(&self, t: &Target, address: usize, len: usize) -> Option<*mut u8> {
        let attachments = self.attachments.as_ref().filter(|_| t.ready.get() == self.epoch.get())?;
        attachments.direct(t.team_rank, address, len)
    }

    /// Puts `len` bytes to byte `offset` of `target`. The buffer may still be read after the call, unless the window is
    /// mapped and the target ready; the put is complete at the target after the call that closes the epoch or flushes.
    /// One message; on mapped windows a copy.
    ///
    /// # Safety
    /// `from` is valid for `len` bytes, and not written, until the epoch is closed or flushed, or
    /// [`abandon`](Self::abandon) has returned.
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`, `WrongEpoch`.
    #[inline(always)]
    pub unsafe fn put(&self, from: *const u8, len: usize, target: usize, offset: usize) -> Result<()> {
        // SAFETY: the same contract.
        if unsafe { self.try_put(from, len, target, offset) } {
            return Ok(());
        }
        self.issue(target, Item::transfer(true, from.cast_mut(), len, offset), None)
    }

    /// Puts if the target is ready and the range mapped, and returns whether it did. Otherwise it does nothing, and
    /// [`put`](Self::put) queues the operation or returns the error.
    ///
    /// # Safety
    /// `from` is valid for `len` bytes.
    #[inline(always)]
    pub unsafe fn try_put(&self, from: *const u8, len: usize, target: usize, offset: usize) -> bool {
        let Some(to) = self.direct(target, offset, len) else { return false };
        self.stats().add(Kind::Write, len);
        self.operations.stored.set(true);
        // SAFETY: `to` is inside the target's mapped memory; `from` is valid by the contract.
        unsafe { copy::store(from, to, len) };
        true
    }

    /// Checks that an operation can use this rank's own memory.
    fn check_own(&self, operation: &'static str) -> Result<()> {
        self.job.running(operation)?;
        self.check_not_borrowed(operation)
    }

    #[cold]
    fn outside_own(&self, start: i128, end: i128) -> Error {
        let e = Error::new(ErrorKind::OutOfRange, PUT_OWN).rank(self.job.rank());
        e.cause(range_text(self.element, start, end, self.own.len))
    }

    /// Puts the elements that `of` selects in this rank's own memory to those that `at` selects at another rank. Peers
    /// may write to them concurrently.
    ///
    /// # Errors
    /// Those of [`put_own`](Self::put_own).
    pub(crate) fn put_own_selected<T: Pod>(
        &self,
        of: &Selection<T>,
        target: usize,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<()> {
        self.check_own(PUT_OWN)?;
        let map = of.type_map();
        let layouts = Layouts::put_own((self.own.base, self.own.len), of, displacement, at)
            .map_err(|_| self.outside_own(map.true_lb().into(), map.true_ub().into()))?;
        self.own_in_use.set(true);
        self.transfer_layouts(target, layouts)
    }

    /// Puts bytes `range` of this rank's own memory to byte `offset` of `target`. Peers may write to them concurrently.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); `OutOfRange` for a range outside of this rank's memory; `WrongEpoch` while the
    /// memory is borrowed for local access.
    pub fn put_own(&self, range: Range<usize>, target: usize, offset: usize) -> Result<()> {
        self.check_own(PUT_OWN)?;
        if range.start > range.end || range.end > self.own.len {
            return Err(self.outside_own(range.start as i128, range.end as i128));
        }
        let (from, len) = (self.own.base.wrapping_add(range.start).cast_const(), range.len());
        if target == self.team.rank() && offset < range.end && range.start < offset.saturating_add(len) {
            // The ranges overlap, so the bytes are copied through private memory.
            let mut copied = vec![0; len];
            // SAFETY: the range is inside of this rank's memory.
            unsafe { copy::load(from, copied.as_mut_ptr(), len) };
            return self.put_bytes(&copied, target, offset);
        }
        let Some(to) = self.direct(target, offset, len) else {
            self.own_in_use.set(true);
            return self.issue(target, Item::transfer(true, from.cast_mut(), len, offset), None);
        };
        self.stats().add(Kind::Write, len);
        self.operations.stored.set(true);
        self.job.store_order().before_load();
        // SAFETY: both ranges are window memory, inside of this rank's and the target's, and disjoint.
        unsafe { copy::bytes(from, to, len) };
        Ok(())
    }

    /// Checks that this rank's memory is not borrowed for exclusive local access.
    ///
    /// # Errors
    /// `WrongEpoch`.
    #[inline]
    pub(crate) fn check_not_borrowed(&self, operation: &'static str) -> Result<()> {
        if !self.borrowed.get() {
            return Ok(());
        }
        Err(self.wrong_epoch(operation, "this rank's memory is borrowed for exclusive local access"))
    }

    /// Puts one value; the reference need not outlive the call.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    #[inline(always)]
    pub fn put_value<T: Pod>(&self, value: T, target: usize, offset: usize) -> Result<()> {
        if let Some(to) = self.direct(target, offset, size_of::<T>()) {
            self.stats().add(Kind::Write, size_of::<T>());
            self.operations.stored.set(true);
            // SAFETY: `to` is inside the target's mapped memory; `value` is live.
            unsafe { copy::store((&raw const value).cast(), to, size_of::<T>()) };
            return Ok(());
        }
        self.put_bytes(bytemuck::bytes_of(&value), target, offset)
    }

    /// Gets `len` bytes from byte `offset` of `target`; they have arrived after the call that closes the epoch or
    /// flushes. One message and its reply; on mapped windows a copy.
    ///
    /// # Safety
    /// `into` is valid for `len` bytes, and not accessed otherwise, for as long as [`put`](Self::put) demands.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    #[inline(always)]
    pub unsafe fn get(&self, into: *mut u8, len: usize, target: usize, offset: usize) -> Result<()> {
        // SAFETY: the same contract.
        if unsafe { self.try_get(into, len, target, offset) } {
            return Ok(());
        }
        self.issue(target, Item::transfer(false, into, len, offset), None)
    }

    /// Gets if the target is ready and the range mapped, and returns whether it did.
    ///
    /// # Safety
    /// `into` is valid for writes of `len` bytes.
    #[inline(always)]
    pub unsafe fn try_get(&self, into: *mut u8, len: usize, target: usize, offset: usize) -> bool {
        let Some(from) = self.direct(target, offset, len) else { return false };
        if !self.job.store_order().may_load() {
            return false;
        }
        self.stats().add(Kind::Read, len);
        // SAFETY: as in `try_put`.
        unsafe { copy::load(from, into, len) };
        true
    }

    #[inline(always)]
    pub(crate) fn usable(&self, operation: &'static str) -> Result<()> {
        if self.end.is_unusable() { Err(self.unusable(operation)) } else { self.job.running(operation) }
    }

    #[cold]
    pub(crate) fn wrong_epoch(&self, operation: &'static str, cause: &str) -> Error {
        Error::new(ErrorKind::WrongEpoch, operation).rank(self.job.rank()).cause(cause.to_owned())
    }
}

impl Drop for RawWindow {
    fn drop(&mut self) {
        if let Err(e) = self.release() {
            tracing::error!("failed to release the memory of a window: {e}");
        }
    }
}
