#![allow(unsafe_code)]
//! Accumulates and compare-and-swaps that a device cannot execute in one request, by steps that do not involve the
//! target. There is one atomic domain per element size: all operations on elements of a size are atomic with respect to
//! each other.
//!
//! | elements | by | requests without contention |
//! |---|---|---|
//! | one of 8 bytes, integer sum | fetch-add | one |
//! | one of 8 bytes, compare and swap | compare-swap | one |
//! | one of 8 bytes, any other update | read, then compare-swap until no other update intervened | two |
//! | read (no-op), 8 bytes each | a read; fetch-adds of 0 while an atomic that is not a step is in progress, which a read may overtake | one, or one per element |
//! | several of 8 bytes | lock word of the region, read, write, unlock | four for up to 64 KiB |
//! | the same, if the lock word is shared | as single elements, after one read of 2 KiB | one per element, and one for each 2 KiB |
//! | 1, 2, 4 bytes, and unknown | lock word of the region, read, write, unlock | four for up to 64 KiB |
//!
//! The device's atomics change the 8 bytes of an element and no others. Small elements need the lock, because an atomic
//! on a word would change their neighbours as well. Processors never update elements: the atomics of an HCA need not be
//! coherent with theirs, so an origin's own memory is also updated through the device.
//!
//! The lock is a ticket lock (Mellor-Crummey and Scott 1991) in one word: an origin takes a ticket by adding one to the
//! upper half, and waits until the lower half, without its lowest bit, equals its ticket. So a rank with a long latency
//! to the word is not starved by ranks with a short one.
//!
//! An atomic must not fall between the read and the write of several elements. So before the first atomic on an element
//! of a region, an origin takes the lock and sets the lowest bit of the word, unless that is set: the word is shared
//! from then on, and several elements are also updated by atomics. Ranks that take the lock later see the bit. This
//! costs an origin two requests for each region. It does not concern [`Change::Add`], which is for words that no
//! accumulate changes, nor regions without an accumulate function.
//!
//! Updates by one origin at one target are executed one after another, in posting order. The unlock is an atomic too: a
//! plain write could fall between the read and the write of another origin's fetch-and-add.

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustc_hash::FxHashMap;

use super::update::{SHARED, Stage, SteppedRegion, SteppedUpdate, TICKET, UpdateKind};
use crate::device::code::COMPARE_SWAP;
use crate::device::{
    Block, Capabilities, Change, Device, Event, Leave, Operation, Place, Posted, Range, Region, Registration,
    RemoteRegion, Sleep, Update, Waker, WorkRequest, code, forward, imports,
};
use crate::entered::Entered;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::copy;
use crate::memory::keys::AccumulateFn;
use crate::stats::{Kind, Stats};
use crate::wire::{Reader, Writer};

/// Number of lock words of a rank, one cache line each; regions share them.
const LOCKS: u64 = 64;
const LINE: usize = 64;
/// Marks the ids of the requests of steps; the lower bits hold the peer.
const STEP: u64 = 1 << 62;
/// Marks the ids of atomics that are not steps.
const ATOMIC: u64 = 1 << 61;
/// Maximum number of queued updates per peer.
const MAX_UPDATES: usize = 1024;

/// A device that implements accumulates by steps.
#[derive(Debug)]
pub(crate) struct Steps {
    /// Dropped first: its requests point into the updates.
    inner: Box<dyn Device>,
    capabilities: Capabilities,
    /// This rank's lock words; registered when the first region needs them.
    locks: RefCell<Option<Registration>>,
    /// Handle of the lock words, by peer.
    peer_locks: RefCell<FxHashMap<u32, u64>>,
    targets: RefCell<FxHashMap<u64, SteppedRegion>>,
    /// Updates by peer, in posting order. They do not move while requests point into them.
    updates: RefCell<BTreeMap<u32, VecDeque<Box<SteppedUpdate>>>>,
    /// Notifications of updates that have ended: peer, cell, value, and the id to report.
    notifications: RefCell<VecDeque<(u32, Place, u64, u64)>>,
    /// Number of atomics in progress that are not steps. A cancelled one stays counted forever.
    atomics: Cell<usize>,
    polling: Cell<bool>,
}

impl Steps {
    /// Wraps `device`, and adds the operations that it lacks.
    #[must_use]
    pub(crate) fn over(device: Box<dyn Device>) -> Self {
        Self {
            capabilities: Capabilities { accumulate: true, coherent: false, ..device.capabilities().clone() },
            inner: device,
            locks: RefCell::default(),
            peer_locks: RefCell::default(),
            targets: RefCell::default(),
            updates: RefCell::default(),
            notifications: RefCell::default(),
            atomics: Cell::new(0),
            polling: Cell::new(false),
        }
    }

    fn fail(&self, kind: ErrorKind, operation: &'static str, peer: u32) -> Error {
        Error::new(kind, operation).peer(peer).device(self.capabilities.name)
    }

    /// Returns the key of this rank's lock words, and the offset of the lock word of a new region: an unshared word, if
    /// there is one.
    fn lock_key(&self, handle: u64) -> Result<(Vec<u8>, u64)> {
        if self.locks.borrow().is_none() {
            let locks = self.inner.allocate(Region::allocated(LOCKS as usize * LINE))?;
            self.locks.replace(Some(locks));
        }
        let locks = self.locks.borrow();
        let Some(Registration { base, key, .. }) = &*locks else { return Ok((Vec::new(), 0)) };
        let at = |lock: u64| lock % LOCKS * LINE as u64;
        // SAFETY: a word of the registration. Relaxed: only this choice depends on it.
        let word = |at: u64| unsafe { AtomicU64::from_ptr(base.add(at as usize).cast()) }.load(Ordering::Relaxed);
        let free = (handle..handle + LOCKS).map(at).find(|at| word(*at) & SHARED == 0);
        Ok((key.clone(), free.unwrap_or(at(handle))))
    }

    /// Checks that `len` bytes in elements of `size` lie inside the region at a remote address of `peer`; returns the
    /// region.
    fn target(&self, operation: &'static str, peer: u32, at: Place, len: usize, size: usize) -> Result<SteppedRegion> {
        let checked = || {
            let targets = self.targets.borrow();
            let target = *imports::region(targets.get(&at.region), peer, at.region, operation)?;
            imports::range(&target, Range { offset: at.offset, len }, operation)?;
            if size > 1 && !(target.alignment + at.offset).is_multiple_of(size) {
                return Err(imports::misaligned(peer, at.offset, operation));
            }
            Ok(target)
        };
        checked().map_err(|e: Error| e.device(self.capabilities.name))
    }

    fn is_idle(&self, peer: u32) -> bool {
        self.updates.borrow().get(&peer).is_none_or(VecDeque::is_empty)
    }

    /// Queues an update, and starts it if it is the first.
    fn queue(&self, peer: u32, update: SteppedUpdate, kind: Kind) -> Result<Posted> {
        let mut updates = self.updates.borrow_mut();
        let queue = updates.entry(peer).or_default();
        if queue.len() >= MAX_UPDATES {
            return Ok(Posted::Busy);
        }
        self.inner.own_stats().add(kind, update.len);
        if update.notify.is_some() {
            self.inner.own_stats().add(Kind::Notify, 8);
        }
        queue.push_back(Box::new(update));
        if let ([first], false) = (queue.make_contiguous(), self.polling.get()) {
            self.advance(peer, first);
        }
        Ok(Posted::Pending)
    }

    /// Posts one request of a step; returns whether the device has accepted it.
    ///
    /// # Safety
    /// The request's memory belongs to an update, which is kept until the request is complete.
    unsafe fn step(&self, peer: u32, operation: Operation<'_>) -> Result<bool> {
        let request = WorkRequest { peer, operation, notify: None, id: STEP | u64::from(peer) };
        // SAFETY: by the contract.
        match unsafe { self.inner.post(&request) }? {
            Posted::Busy => Ok(false),
            Posted::Done | Posted::Pending => Ok(true),
        }
    }

    /// Posts the requests of an update's stage, as far as there is queue space.
    fn advance(&self, peer: u32, u: &mut SteppedUpdate) {
        if u.pause > 0 {
            u.pause -= 1;
        } else if let Err(e) = self.post_stage(peer, u) {
            u.error.get_or_insert(e);
            u.posted = true;
        }
    }

    fn post_stage(&self, peer: u32, u: &mut SteppedUpdate) -> Result<()> {
        let (piece, place, lock, stage) = (u.piece(), u.place(0), u.lock, u.stage);
        let word = std::ptr::from_mut(u.lock_word(stage == Stage::Unlock));
        let local = match stage {
            Stage::Wait => [Block { base: word.cast(), len: 8 }],
            _ => [Block { base: u.data().as_mut_ptr(), len: piece }],
        };
        let operation = match stage {
            Stage::Change => return self.post_changes(peer, u),
            Stage::Lock => Operation::fetch_add(lock, TICKET, word),
            Stage::Wait => Operation::read(&local, lock),
            Stage::Read => Operation::read(&local, place),
            Stage::WriteBack => Operation::write(&local, place),
            Stage::Unlock => Operation::fetch_add(lock, u.unlocking(), word),
        };
        // SAFETY: the memory belongs to the update, whose box is kept while requests are open.
        u.posted = unsafe { self.step(peer, operation) }?;
        u.open += usize::from(u.posted);
        if stage == Stage::WriteBack && u.posted {
            // The unlock can be posted at once: an atomic is executed after the writes before it.
            u.turn_to(Stage::Unlock);
            return self.post_stage(peer, u);
        }
        Ok(())
    }

    /// Posts an atomic for each element that is still to be changed.
    fn post_changes(&self, peer: u32, u: &mut SteppedUpdate) -> Result<()> {
        while let Some(i) = u.pending.pop_front() {
            let (at, old) = (u.place(8 * i), &raw mut u.found[i]);
            let operand = u.word(u.done + 8 * i);
            let swap = |expected, desired| Operation::compare_swap(at, 8, [expected, desired], old.cast());
            let operation = match u.kind {
                UpdateKind::Add => Operation::fetch_add(at, operand, old),
                UpdateKind::Swap => swap(operand, u.word(8)),
                UpdateKind::Words => {
                    let now = u64::from_ne_bytes(u.data()[8 * i..].first_chunk().copied().unwrap_or_default());
                    let mut new = now;
                    let change = Change::of(u.code, &operand.to_ne_bytes());
                    // SAFETY: words that live during the call.
                    let applied = unsafe { change.apply(u.accumulate, (&raw mut new).cast(), std::ptr::null_mut(), 8) };
                    applied.map_err(|kind| self.fail(kind, "accumulate", peer))?;
                    swap(now, new)
                }
                UpdateKind::Read | UpdateKind::Locked => break,
            };
            // SAFETY: the memory is a word of the update.
            if !unsafe { self.step(peer, operation) }? {
                u.pending.push_front(i);
                break;
            }
            u.open += 1;
            u.under_way.push(i);
        }
        u.posted = u.open > 0;
        Ok(())
    }

    /// Records the completion of a request of the first update to `peer`; returns the update if it has ended.
    fn completed(&self, peer: u32, result: Result<()>) -> Option<Box<SteppedUpdate>> {
        let mut updates = self.updates.borrow_mut();
        let u = updates.get_mut(&peer)?.front_mut()?;
        u.open = u.open.saturating_sub(1);
        if let Err(e) = result {
            u.error.get_or_insert(e);
            u.posted = true;
        }
        self.settle(peer, u).then(|| updates.get_mut(&peer).and_then(VecDeque::pop_front)).flatten()
    }

    /// Advances an update once the requests of its stage are complete; returns whether the update has ended.
    fn settle(&self, peer: u32, u: &mut SteppedUpdate) -> bool {
        while u.open == 0 && u.posted {
            let holds = u.is_locked() && matches!(u.stage, Stage::Read | Stage::WriteBack);
            if u.error.is_some() {
                if !holds {
                    return true;
                }
                u.turn_to(Stage::Unlock);
            } else if self.after(peer, u) {
                return true;
            }
            self.advance(peer, u);
        }
        false
    }

    /// Evaluates the results of a stage and starts the next one; returns whether the update has ended.
    fn after(&self, peer: u32, u: &mut SteppedUpdate) -> bool {
        let piece = u.piece();
        match u.stage {
            Stage::Lock | Stage::Wait => {
                let word = *u.lock_word(false);
                if u.stage == Stage::Lock {
                    u.ticket = (word / TICKET) as u32;
                }
                let next = u.enter(word);
                u.turn_to(next);
                return false;
            }
            Stage::Unlock if !u.is_locked() => {
                // The word is shared now.
                self.targets.borrow_mut().get_mut(&u.at.region).into_iter().for_each(|target| target.shared = true);
                u.begin();
                return false;
            }
            Stage::Read if u.is_locked() => {
                let changed = self.apply(peer, u);
                u.turn_to(if changed { Stage::WriteBack } else { Stage::Unlock });
                return false;
            }
            Stage::Read if u.kind == UpdateKind::Words => {
                u.change_all();
                return false;
            }
            Stage::Read => {
                let read = u.data().to_vec();
                u.keep(0, &read);
            }
            Stage::Change => {
                for i in std::mem::take(&mut u.under_way) {
                    let found = u.found[i].to_ne_bytes();
                    if u.kind == UpdateKind::Words {
                        let read = &mut u.data()[8 * i..8 * i + 8];
                        if read != found {
                            read.copy_from_slice(&found);
                            u.pending.push_back(i);
                            continue;
                        }
                    }
                    u.keep(8 * i, &found[..piece.min(8)]);
                }
                if !u.pending.is_empty() {
                    u.turn_to(Stage::Change);
                    return false;
                }
            }
            Stage::WriteBack | Stage::Unlock => {}
        }
        u.done += piece;
        if u.done >= u.len {
            return true;
        }
        u.begin();
        false
    }

    /// Changes the elements of the segment; `false` if there is nothing to write back.
    fn apply(&self, peer: u32, u: &mut SteppedUpdate) -> bool {
        let (piece, done, data) = (u.piece(), u.done, u.data().as_mut_ptr());
        let former = if u.old.is_null() { std::ptr::null_mut() } else { u.former[done..].as_mut_ptr() };
        // SAFETY: `data` is the segment, aligned as at the target, and no request uses it now; operand and previous
        // values are private and have the update's length.
        let applied = unsafe { Change::of(u.code, &u.operand[done..]).apply(u.accumulate, data, former, piece) };
        if let Err(kind) = applied {
            let e = self.fail(kind, "accumulate", peer);
            u.error = Some(e.cause(format!("the element at offset {}", u.at.offset + done)));
        }
        applied.is_ok()
    }

    /// Reports an update that has ended.
    fn end(&self, peer: u32, u: SteppedUpdate, sink: &mut dyn FnMut(Event<'_>)) {
        let Some(id) = u.id else { return };
        let result = u.error.map_or(Ok(()), Err);
        if result.is_ok() {
            if !u.old.is_null() {
                // SAFETY: `old` is valid for the update's length until the update is complete or cancelled.
                unsafe { copy::load(u.former.as_ptr(), u.old, u.len) };
            }
            if let Some((at, value)) = u.notify {
                return self.notifications.borrow_mut().push_back((peer, at, value, id));
            }
        }
        sink(Event::Completed { id, result });
    }

    /// Posts an accumulate, or a compare-and-swap that the device does not support.
    ///
    /// # Safety
    /// The contract of [`Device::post`].
    unsafe fn update(&self, request: &WorkRequest<'_>, a: &Update) -> Result<Posted> {
        let peer = request.peer;
        // SAFETY: the same contract.
        let post = |operation, id| unsafe { self.inner.post(&WorkRequest { operation, id, ..*request }) };
        // An atomic whose completion is not awaited has no mark.
        let atomic = |operation| {
            let mark = if request.id == u64::MAX { 0 } else { ATOMIC };
            let posted = post(operation, request.id | mark)?;
            self.atomics.set(self.atomics.get() + usize::from(mark != 0 && posted == Posted::Pending));
            Ok(posted)
        };
        let fail = |kind, cause: &str| Err(self.fail(kind, a.name(), peer).cause(cause));
        let is_swap = a.is_integer();
        if !is_swap && a.code() == COMPARE_SWAP {
            return fail(ErrorKind::Misaligned, "this accumulate code is reserved: it marks a compare-and-swap");
        }
        let target = self.target(a.name(), peer, a.at, a.len, a.element())?;
        if is_swap && !a.is_whole() {
            return fail(
                ErrorKind::BadArgument,
                &format!("integers of {} bytes are not supported, only of 1, 2, 4 or 8", a.len),
            );
        }
        if a.len == 0 {
            return post(Operation::write(&[], a.at), request.id);
        }
        if !is_swap && target.accumulate.is_none() {
            return fail(ErrorKind::Unsupported, "the region was imported without an accumulate function");
        }
        let effect = code::effect(a.code());
        // Whether atomics may change the elements now.
        let is_shared = target.shared || target.accumulate.is_none();
        let kind = match effect {
            _ if a.element() != 8 || !a.len.is_multiple_of(8) => UpdateKind::Locked,
            _ if is_swap => UpdateKind::Swap,
            code::Effect::Add => UpdateKind::Add,
            code::Effect::Read if is_shared && self.atomics.get() > 0 => UpdateKind::Add,
            code::Effect::Read => UpdateKind::Read,
            code::Effect::Other => UpdateKind::Words,
        };
        // One atomic of the device need not be queued, unless it would overtake updates.
        if a.len == 8 && is_shared && self.is_idle(peer) {
            match a.change {
                Change::CompareSwap { .. } => return atomic(request.operation),
                Change::Accumulate { operand, .. } if effect == code::Effect::Add => {
                    // SAFETY: the operand has 8 bytes.
                    let add = unsafe { operand.cast::<u64>().read_unaligned() };
                    return atomic(Operation::fetch_add(a.at, add, a.old.cast()));
                }
                _ => {}
            }
        }
        let kinds = if is_shared || kind == UpdateKind::Read { (kind, kind) } else { (UpdateKind::Locked, kind) };
        let at_target = (target.accumulate, target.lock, target.alignment + a.at.offset);
        // SAFETY: the operand is valid by the contract.
        let mut update = unsafe { SteppedUpdate::new(request.id, a, kinds, at_target) };
        update.notify = request.notify;
        if !is_swap {
            self.inner.own_stats().add(Kind::Copy, a.len);
        }
        self.queue(peer, update, a.kind())
    }

    /// Returns the handle of the lock words of `peer`, whose key is `key`.
    fn peer_lock(&self, peer: u32, key: &[u8]) -> Result<u64> {
        if let Some(handle) = self.peer_locks.borrow().get(&peer) {
            return Ok(*handle);
        }
        let handle = self.inner.import(peer, key, None)?.handle;
        self.peer_locks.borrow_mut().insert(peer, handle);
        Ok(handle)
    }

    /// Advances updates that wait for queue space, and reports those that have ended.
    fn drive(&self, completions: &[(u32, Result<()>)], sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let mut ended = Vec::new();
        for (peer, result) in completions {
            let result = result.as_ref().map_or_else(|e| Err(e.again()), |()| Ok(()));
            ended.extend(self.completed(*peer, result).map(|u| (*peer, u)));
        }
        for (peer, queue) in self.updates.borrow_mut().iter_mut() {
            while let Some(u) = queue.front_mut().filter(|u| !u.posted) {
                self.advance(*peer, u);
                if !self.settle(*peer, u) {
                    break;
                }
                ended.extend(queue.pop_front().map(|u| (*peer, u)));
            }
        }
        let any = !ended.is_empty();
        ended.into_iter().for_each(|(peer, u)| self.end(peer, *u, sink));
        any
    }

    /// Posts notifications of updates that have ended while the device is not busy, and reports these updates.
    fn notify(&self, sink: &mut dyn FnMut(Event<'_>)) {
        let first = || self.notifications.borrow().front().copied();
        while let Some((peer, at, value, id)) = first() {
            let request = WorkRequest { peer, operation: Operation::Signal { at, value }, notify: None, id: u64::MAX };
            // SAFETY: a signal touches no local memory.
            let posted = unsafe { self.inner.post(&request) };
            if matches!(posted, Ok(Posted::Busy)) {
                return;
            }
            self.notifications.borrow_mut().pop_front();
            sink(Event::Completed { id, result: posted.map(drop) });
        }
    }

    /// Whether an update waits for queue space in the device, which no completion announces.
    fn needs_poll(&self) -> bool {
        !self.notifications.borrow().is_empty()
            || self.updates.borrow().values().any(|queue| queue.front().is_some_and(|u| !u.posted))
    }
}

// SAFETY: passes on the memory that the inner device returns; its own steps use words of the window and buffers that it
// keeps.
unsafe impl Device for Steps {
    forward!(inner: peers_can_map, sealed, wake, waker, now, compute, stats, check_peers, leave);

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn register(&self, region: Region) -> Result<Registration> {
        // SAFETY: the same contract.
        let mut made = unsafe { self.inner.register(region) }?;
        let (lock, offset) = match self.lock_key(made.handle) {
            Ok(lock) => lock,
            Err(e) => {
                // SAFETY: no peer has the key yet.
                unsafe { self.inner.release(made.handle) }?;
                return Err(e);
            }
        };
        let key = Writer::new().u8((made.base.addr() % 16) as u8).bytes(&made.key).bytes(&lock);
        made.key = key.u64(offset).done();
        Ok(made)
    }

    unsafe fn release(&self, handle: u64) -> Result<()> {
        // SAFETY: the same contract.
        unsafe { self.inner.release(handle) }
    }

    fn import(&self, peer: u32, key: &[u8], accumulate: Option<AccumulateFn>) -> Result<RemoteRegion> {
        let mut r = Reader::new(key);
        let malformed = || self.fail(ErrorKind::Protocol, "import a peer's region", peer).cause("malformed key");
        let (alignment, key) = r.u8().zip(r.bytes()).ok_or_else(malformed)?;
        let lock = r.bytes().zip(r.u64()).filter(|(_, offset)| *offset < LOCKS * LINE as u64 && r.is_empty());
        let (lock, offset) = lock.ok_or_else(malformed)?;
        let region = self.inner.import(peer, key, accumulate)?;
        let lock = Place { region: self.peer_lock(peer, lock)?, offset: offset as usize };
        let target =
            SteppedRegion { peer, len: region.len, accumulate, alignment: usize::from(alignment), lock, shared: false };
        self.targets.borrow_mut().insert(region.handle, target);
        Ok(RemoteRegion { steps: true, ..region })
    }

    unsafe fn forget(&self, handle: u64) {
        self.targets.borrow_mut().remove(&handle);
        // SAFETY: the same contract.
        unsafe { self.inner.forget(handle) };
    }

    #[inline]
    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        // SAFETY: the same contract, for both calls.
        unsafe {
            match request.operation {
                Operation::Update(ref update) if !matches!(update.change, Change::Add(_)) => {
                    self.update(request, update)
                }
                _ => self.inner.post(request),
            }
        }
    }

    fn cancel(&self, which: &dyn Fn(u64) -> bool) {
        for queue in self.updates.borrow_mut().values_mut() {
            let mut first = true;
            queue.retain_mut(|u| {
                if u.id.is_some_and(which) {
                    (u.id, u.old, u.notify) = (None, std::ptr::null_mut(), None);
                }
                // The first update may have begun and may hold the lock, so it is finished.
                std::mem::take(&mut first) || u.id.is_some()
            });
        }
        self.notifications.borrow_mut().retain(|(.., id)| !which(*id));
        self.inner.cancel(&|id| id & STEP == 0 && which(id & !ATOMIC));
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        let Some(_entered) = Entered::new(&self.polling) else { return Ok(false) };
        let mut completions = Vec::new();
        let polled = self.inner.poll(&mut |event| match event {
            Event::Completed { id, result } if id != u64::MAX && id & STEP != 0 => {
                completions.push((id as u32, result))
            }
            Event::Completed { id, result } if id != u64::MAX && id & ATOMIC != 0 => {
                self.atomics.set(self.atomics.get().saturating_sub(1));
                sink(Event::Completed { id: id & !ATOMIC, result });
            }
            event => sink(event),
        });
        let any = !self.updates.borrow().is_empty() && self.drive(&completions, sink);
        self.notify(sink);
        Ok(polled? || any || !completions.is_empty())
    }

    fn park(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        if self.needs_poll() {
            std::thread::yield_now();
            return true;
        }
        self.inner.park(sleep, ready)
    }
}
