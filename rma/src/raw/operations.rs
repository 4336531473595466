#![allow(unsafe_code)]
//! Operations off the fast path: checks, the queue for targets that are not ready yet, posting.

use std::cell::Cell;

use farside_core::device::{Block, Place};
use farside_core::memory::copy;
use farside_core::stats::Kind;
use farside_core::{Error, ErrorKind, Result};

use super::fence::MAX_PAIRWISE_RANKS;
use super::item::{Item, Queued, Request};
use super::state::Replaced;
use super::{Access, RawWindow, Target, cell};
use crate::elements::range_text;

/// Counts an operation that is being posted, which may wait for send queue space, until dropped.
struct Posting<'a>(&'a Cell<u32>);

impl<'a> Posting<'a> {
    #[inline(always)]
    fn new(posting: &'a Cell<u32>) -> Self {
        posting.set(posting.get() + 1);
        Self(posting)
    }
}

impl Drop for Posting<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Ends the current request on drop, even on panic, since other requests wait for its end.
struct CurrentRequest<'a>(&'a RawWindow);

impl Drop for CurrentRequest<'_> {
    fn drop(&mut self) {
        *self.0.operations.current_request.borrow_mut() = None;
    }
}

impl RawWindow {
    /// Starts an operation, or queues it until its target is ready. The path of all operations on unmapped memory.
    #[cold]
    #[inline(never)]
    pub(crate) fn issue(&self, target: usize, item: Item, request: Option<&Request>) -> Result<()> {
        let name = item.name();
        self.job.running(name)?;
        let t = self.target(target, name)?;
        if self.serving.aggregated.get() > 0 && item.is_update() {
            let cause = "updates of this memory are aggregated, and its owner's processor applies them, with which the \
                         device's atomics are not coherent";
            return Err(self.wrong_epoch(name, cause).remedy("finish the aggregated updates first"));
        }
        let all = item.attached().map_or(t.region.len, |region| region.len);
        // On a dynamic window the range is checked only when the target is ready, since the target may attach memory
        // until then.
        if let Some((offset, len)) = item.range().filter(|_| self.attachments.is_none())
            && offset.checked_add(len).is_none_or(|end| end > all)
        {
            self.usable(name)?;
            return Err(self.out_of_range(name, t, (offset, len), all));
        }
        let current = self.operations.current_request.borrow().clone();
        let request = request.or(current.as_ref());
        // This also covers an unusable window, which has no epoch.
        let ready = t.ready.get() == self.epoch.get() && !self.has_queued();
        if ready || self.ready_or_queued(name, target, request, || item.clone())? {
            self.begin(t, item, request).map_err(|e| self.naming_lost_rank(e))?;
        }
        Ok(())
    }

    /// Checks that `len` bytes at byte `offset` are in the window's memory at `target`, before a buffer is allocated.
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`.
    pub(crate) fn check_range(&self, name: &'static str, target: usize, offset: usize, len: usize) -> Result<()> {
        let t = self.target(target, name)?;
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= t.region.len);
        if is_inside { Ok(()) } else { Err(self.out_of_range(name, t, (offset, len), t.region.len)) }
    }

    #[cold]
    fn out_of_range(&self, name: &'static str, t: &Target, (offset, len): (usize, usize), all: usize) -> Error {
        Error::new(ErrorKind::OutOfRange, name).rank(self.job.rank()).peer(t.region.peer).cause(range_text(
            self.element,
            offset as i128,
            offset as i128 + len as i128,
            all,
        ))
    }

    /// The target of a window that creates targets at their first use, or the error of a rank that does not exist.
    #[cold]
    #[inline(never)]
    pub(super) fn lazy_target(&self, rank: usize, operation: &'static str) -> Result<&Target> {
        if rank >= self.targets.ranks() {
            return Err(self.no_such_rank(rank, operation));
        }
        let t = &self.targets[rank];
        if t.region.handle != 0 {
            return Ok(t);
        }
        let e = Error::new(ErrorKind::BadKey, operation).rank(self.job.rank()).peer(t.region.peer);
        Err(e.cause("the target has already freed the window").remedy("free a window only when no rank uses it"))
    }

    #[cold]
    fn no_such_rank(&self, rank: usize, operation: &'static str) -> Error {
        let e = Error::new(ErrorKind::NoSuchRank, operation).rank(self.job.rank()).peer(rank);
        e.cause(format!("the window's team has {} ranks", self.targets.ranks()))
    }

    /// Returns whether `target` is ready and its queued operations have started; otherwise queues the operation.
    pub(super) fn ready_or_queued(
        &self,
        name: &'static str,
        target: usize,
        request: Option<&Request>,
        item: impl FnOnce() -> Item,
    ) -> Result<bool> {
        self.usable(name)?;
        // While another thread starts queued operations, possibly older ones of this thread, new ones are queued too.
        let starting = &self.operations.starting;
        if starting.get() || !self.admit(name, target)? || starting.get() {
            if let Some(r) = request {
                r.queued.set(true);
            }
            self.operations.queued.set(true);
            self.operations.queue.borrow_mut().push(Queued { target, item: item(), request: request.cloned() });
            return Ok(false);
        }
        // Operations that were queued for this target before it became ready start first.
        self.start_queued(Some(target))?;
        Ok(true)
    }

    /// Puts bytes from a buffer that need not outlive the call.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub(crate) fn put_bytes(&self, bytes: &[u8], target: usize, offset: usize) -> Result<()> {
        let item = Item::transfer(true, self.copy_bytes(bytes)?.cast_mut(), bytes.len(), offset);
        self.issue(target, item, None)
    }

    /// Copies bytes into memory that lives until the epoch is closed.
    pub(super) fn copy_bytes(&self, bytes: &[u8]) -> Result<*const u8> {
        // An operation that waits for send queue space is not counted in its track yet.
        let none_waits = self.operations.posting.get() == 0 && self.operations.queue.borrow().is_empty();
        if self.operations.copies.borrow().len() >= 64 && none_waits {
            let idle = |t: &Target| t.open() == 0 && !t.has_withheld();
            if self.operations.copies.borrow().len() >= 4096 {
                // Waits for the operations in progress, to bound the memory of copies.
                self.settle_all()?;
            }
            if self.targets.iter().all(idle) {
                self.operations.copies.borrow_mut().clear();
            }
        }
        let copy: Box<[u8]> = bytes.into();
        let p = copy.as_ptr();
        self.operations.copies.borrow_mut().push(copy);
        Ok(p)
    }

    /// Runs `issue`, which issues operations to one target, and returns a request for their completion. They start like
    /// other operations of the epoch, and are sent by the end of this call if the target is ready
    /// ([`hold`](Self::hold)); they are not withheld for a notification. Must not be called inside `issue`.
    ///
    /// # Errors
    /// Any error of `issue`; `PeerLost`.
    pub fn request(&self, issue: impl FnOnce() -> Result<()>) -> Result<Request> {
        let request = Request::new();
        // While `issue` waits, another thread of this rank may create a request.
        if self.operations.current_request.borrow().is_some() {
            self.job.wait("request an operation", || {
                Ok(self.operations.current_request.borrow().is_none().then_some(()))
            })?;
        }
        *self.operations.current_request.borrow_mut() = Some(request.clone());
        let _current = CurrentRequest(self);
        issue().map(|()| request)
    }

    /// Checks that the current epoch allows access to `target`, now or later.
    pub(super) fn permit(&self, name: &'static str, target: usize) -> Result<()> {
        match self.access.get() {
            Access::None if self.borrowed.get() => {
                Err(self.wrong_epoch(name, "the memory is borrowed for local access"))
            }
            Access::None => Err(self.wrong_epoch(name, "no access epoch is open")),
            Access::Start if !self.groups.started.borrow().contains(&target) => {
                Err(self.wrong_epoch(name, "the target is not in the group of start"))
            }
            Access::Lock(_) | Access::LockAll => self.permit_locked(name, target),
            Access::Start | Access::Fence(_) => Ok(()),
        }
    }

    /// Whether `target` may be accessed now; an error if the current epoch will never allow it.
    #[inline]
    fn admit(&self, name: &'static str, target: usize) -> Result<bool> {
        let t = &self.targets[target];
        if t.ready.get() == self.epoch.get() {
            return Ok(true);
        }
        self.permit(name, target)?;
        let ready = match self.access.get() {
            Access::None => false,
            Access::Fence(number) => self.exposed_by_fence(target, number),
            // The target's post often arrives soon, and a short spin is cheaper than queueing.
            Access::Start => {
                (0..=2 * self.job.spins()).any(|_| self.signals.reached(target, cell::POST, t.starts.get()))
            }
            Access::Lock(_) | Access::LockAll => self.locked(name, target)?,
        };
        if ready {
            t.ready.set(self.epoch.get());
        }
        Ok(ready)
    }

    /// Whether the last operation to a target is withheld, to be combined with the notification of the closing call: if
    /// operations are messages, and the epoch ends with a notification.
    fn withholds(&self) -> bool {
        let notified_pairwise = match self.access.get() {
            Access::Fence(_) => self.team.size() <= MAX_PAIRWISE_RANKS,
            access => access == Access::Start,
        };
        !self.mapped && notified_pairwise
    }

    pub(super) fn begin(&self, t: &Target, item: Item, request: Option<&Request>) -> Result<()> {
        if let Item::Layouts(all) = item {
            return self.execute_layouts(t, &all.borrow(), request);
        }
        if let Some(attachments) = self.attachments.as_ref().filter(|_| item.attached().is_none()) {
            return self.begin_by_address(attachments, t, item, request);
        }
        self.order_stores(item.reads_and_stores());
        if (self.mapped || t.copies) && self.try_copy(t, &item)? || self.try_record(t, &item, request.is_some())? {
            return Ok(());
        }
        if self.withholds() {
            // A request-based operation is not withheld, but must not overtake a withheld operation.
            let (now, withheld) = if request.is_none() { (None, Some(item)) } else { (Some(item), None) };
            let previous = t.withheld.replace(withheld);
            if let Some(previous) = previous {
                self.send_earlier(t, &previous, None);
            }
            return now.map_or(Ok(()), |item| self.send(t, &item, None, request));
        }
        self.send(t, &item, None, request)
    }

    /// Called before an operation that may load or store mapped memory.
    pub(super) fn order_stores(&self, (read, store): (bool, bool)) {
        if read {
            self.job.store_order().before_load();
        }
        if store {
            self.operations.stored.set(true);
        }
    }

    /// Executes an operation on mapped memory, if possible: the first one of an epoch does not take the fast path.
    fn try_copy(&self, t: &Target, item: &Item) -> Result<bool> {
        let Some((offset, len)) = item.range().filter(|_| item.attached().is_none()) else { return Ok(false) };
        let Some(remote) = self.direct_at(t, offset, len) else { return Ok(false) };
        // SAFETY, for all blocks below: `remote` is inside the target's mapped memory; local memory is valid by the
        // contract of the call that created the item, and has the length of the range.
        match item {
            Item::Transfer(transfer) => {
                let [Block { base, .. }] = transfer.local[..] else { return Ok(false) };
                // SAFETY: see above.
                unsafe { if transfer.write { copy::store(base, remote, len) } else { copy::load(remote, base, len) } };
            }
            Item::Update(update) if self.mapped => {
                let access = self.enter_elements(t, len == update.element())?;
                // SAFETY: see above.
                unsafe { self.update_mapped(t, &access, item.name(), update, remote) }?;
            }
            _ => return Ok(false),
        }
        self.stats().add(item.kind(), len);
        Ok(true)
    }

    /// Hands an accumulate or a compare-and-swap to [`records`](farside_core::service::records) if the CPU of `t`
    /// applies it in the current epoch; returns whether it did. With `singly`, a request-based operation, it is
    /// complete on return.
    ///
    /// All accumulates of such an epoch are handed over in this way, independently of length, operation and type, so
    /// that they are atomic with respect to each other; those of [`update`](Self::update) use a separate lock. HCA
    /// atomics, which need not be coherent with CPU atomics, are used only in lock epochs, since memory is never
    /// exposed and locked at the same time (MPI-5.0 section 12.5.3). So this rank's CPU may immediately apply
    /// accumulates to memory that it maps. Attached memory (dynamic windows) is updated by the HCA's atomics in all
    /// epochs.
    fn try_record(&self, t: &Target, item: &Item, singly: bool) -> Result<bool> {
        if !self.target_applies() {
            return Ok(false);
        }
        let Item::Update(update) = item else { return Ok(false) };
        // SAFETY: the range was checked, and the target enters the runtime before this epoch ends; the buffers are
        // valid by the contract of the call that created the item.
        if !unsafe { self.serving.records.add(&self.job, &t.records, self.serving.listener.id(), update) }? {
            return Ok(false);
        }
        self.stats().add(item.kind(), item.range().map_or(0, |(_, len)| len));
        if singly {
            self.complete_at(t.team_rank)?;
        }
        Ok(true)
    }

    /// Whether the targets' CPUs apply all accumulates of the current epoch, although the device has atomics.
    fn target_applies(&self) -> bool {
        self.serving.accumulates && matches!(self.access.get(), Access::Fence(_) | Access::Start)
    }

    /// Whether this rank's CPU may now execute atomics on the mapped memory of `t` in a window that is not mapped as a
    /// whole.
    pub(super) fn takes_atomics(&self, t: &Target) -> bool {
        if t.atomics { !t.has_withheld() } else { self.target_applies() }
    }

    pub(super) fn send_records(&self, t: &Target, notify: Option<(usize, u64)>, answered: bool) -> Result<()> {
        self.serving.records.send(&self.job, &t.records, self.serving.listener.id(), notify, answered)
    }

    pub(super) fn send(
        &self,
        t: &Target,
        item: &Item,
        notify: Option<(Place, u64)>,
        request: Option<&Request>,
    ) -> Result<()> {
        let tracks = [&t.track, request.map_or(&t.track, |r| &r.track)];
        let tracks = &tracks[..1 + usize::from(request.is_some())];
        let (peer, handle, start) = t.remote;
        self.operations.requests.set(true);
        if let Some(bill) = self.job.bill()
            && let Some(account) = self.account
        {
            bill.posted(account, |stats| stats.add(item.kind(), item.range().map_or(0, |(_, len)| len)));
        }
        if item.kind() != Kind::Write {
            t.reads.set(true);
        }
        let _posting = Posting::new(&self.operations.posting);
        let posted = item.with_operation((handle, start), |operation| {
            // SAFETY: the buffers are valid until the epoch is closed or abandoned, by the contract of the calls that
            // created the item; closing and abandoning wait for the track or cancel it.
            unsafe { self.job.post(peer, operation, notify, tracks) }
        });
        // An error that names another rank is kept, since the target may have ended because of that rank.
        let about = |e: Error| if e.blamed().is_none() { e.peer(t.region.peer) } else { e };
        posted.unwrap_or(Ok(true)).map(|_| ()).map_err(about)
    }

    /// Sends an operation that was issued earlier. Returns `false` after an error, which the completing call returns.
    pub(super) fn send_earlier(&self, t: &Target, item: &Item, notify: Option<(Place, u64)>) -> bool {
        self.send(t, item, notify, None).map_err(|e| self.store_error(t, None, &e)).is_ok()
    }

    /// Stores the error of an operation for the calls that complete it.
    #[cold]
    fn store_error(&self, t: &Target, request: Option<&Request>, e: &Error) {
        self.operations.failed.set(true);
        self.operations.requests.set(true);
        request.into_iter().for_each(|request| request.track.fail(e));
        t.track.fail(e);
    }

    /// Starts, in order, queued operations (of all targets or one) whose targets have become ready, unless another
    /// thread is doing so. The calls that complete them return their errors.
    ///
    /// # Errors
    /// `PeerLost` of a check whether a target is ready.
    #[inline]
    pub(crate) fn start_queued(&self, only: Option<usize>) -> Result<()> {
        let none = self.operations.starting.get() || self.operations.queue.borrow().is_empty();
        if none { Ok(()) } else { self.start_some(only) }
    }

    /// [`start_queued`](Self::start_queued) with a nonempty queue. A panic inside abandons all operations.
    fn start_some(&self, only: Option<usize>) -> Result<()> {
        self.or_abandon(|| Ok(self.start_each(only)))?
    }

    fn start_each(&self, only: Option<usize>) -> Result<()> {
        let _starting = Replaced::replace(&self.operations.starting, true);
        let mut waiting: Vec<usize> = Vec::new();
        // Swaps two buffers, to avoid an allocation.
        let mut queue = std::mem::take(&mut *self.operations.queue.borrow_mut());
        let mut result = Ok(());
        let mut rest = std::mem::take(&mut *self.operations.queue_scratch.borrow_mut());
        for q in queue.drain(..) {
            let candidate = only.is_none_or(|t| t == q.target) && !waiting.contains(&q.target) && result.is_ok();
            let ready = candidate && {
                let admitted = self.admit(q.item.name(), q.target);
                admitted.unwrap_or_else(|e| {
                    result = Err(e);
                    false
                })
            };
            if ready {
                let (t, request) = (&self.targets[q.target], q.request.as_ref());
                self.begin(t, q.item, request).unwrap_or_else(|e| self.store_error(t, request, &e));
                // From now on the request counts the operation through its track.
                if let Some(r) = request {
                    r.queued.set(false);
                }
            } else {
                waiting.push(q.target);
                rest.push(q);
            }
        }
        // `begin` may wait, and another thread may queue operations in the meantime.
        rest.append(&mut self.operations.queue.borrow_mut());
        self.operations.queued.set(!rest.is_empty());
        *self.operations.queue.borrow_mut() = rest;
        *self.operations.queue_scratch.borrow_mut() = queue;
        result
    }

    /// The targets that still have queued operations.
    pub(crate) fn queued_targets(&self) -> Vec<usize> {
        let mut targets: Vec<usize> = self.operations.queue.borrow().iter().map(|q| q.target).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// Whether this epoch has an operation for `target` that is not posted yet.
    pub(crate) fn has_unposted(&self, target: usize) -> bool {
        let t = &self.targets[target];
        t.used().is_some_and(|used| used.withheld.borrow().is_some() || !used.records.is_empty())
            || self.operations.starting.get()
            || self.has_lists(target)
            || self.operations.queue.borrow().iter().any(|q| q.target == target)
    }
}
