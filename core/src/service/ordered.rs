#![allow(unsafe_code)]
//! Order and atomics over a device that lacks them: afterwards a write is visible before every atomic, signal and
//! notification that its rank posts to the target later.
//!
//! | the device | what is added |
//! |---|---|
//! | places writes in order, and has atomics | nothing: it is not wrapped |
//! | places a write until it completes | an atomic or signal is posted once the writes to its target are complete (`Busy` until then); a notification becomes a signal, posted when its operation is complete |
//! | places a write after it completes | the same, and a write counts as complete after a read of one byte that was posted when the device had reported it; one read for all writes to a target that are complete by then |
//! | has no atomics | updates are [packets](super::served) that the target's processor serves; later signals to the target wait until they are answered |
//!
//! The device must be the same at all ranks, since the keys of regions differ.

#[cfg(test)]
mod tests;
mod updates;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::served::{Served, ServedUpdate};
use crate::device::{
    Block, Capabilities, Device, Event, Leave, MAX_KEY, Operation, PeerCheck, Place, Placement, Posted, Region,
    Registration, RemoteRegion, Sleep, Transfer, Waker, WorkRequest, forward, imports,
};
use crate::entered::Entered;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::keys::AccumulateFn;
use crate::slots::Slots;
use crate::stats::{Kind, Stats};

/// Maximum number of updates in progress per peer.
const MAX_UPDATES: usize = 1024;

/// Id of requests whose completion the device does not report.
const UNREPORTED: u64 = u64::MAX;

/// The kind of a request in progress.
#[derive(Debug)]
enum Request {
    /// A write of at least one byte, whose first byte goes to this place.
    Write(Place),
    /// A read into a byte, after which these writes are visible.
    Flush {
        _into: Rc<Cell<u8>>,
        writes: Vec<Open>,
    },
    /// An update in packets.
    Update(ServedUpdate),
    Other,
}

/// A request in progress.
#[derive(Debug)]
struct Open {
    /// The id that the layer above knows; `None` if that layer has cancelled the request.
    id: Option<u64>,
    peer: u32,
    notify: Option<(Place, u64)>,
    kind: Request,
}

/// A notification of a complete request, whose id is reported once the signal is posted.
#[derive(Clone, Copy, Debug)]
struct Notification {
    peer: u32,
    at: Place,
    value: u64,
    id: u64,
}

/// The requests to one peer for which later ones wait.
#[derive(Debug, Default)]
struct Peer {
    /// Number of writes that may not be visible.
    writes: usize,
    /// Number of updates in packets.
    updates: usize,
    /// Number of notifications that are not posted.
    notifications: usize,
    /// Complete writes that no read has pushed yet.
    unplaced: Vec<Open>,
    is_flushing: bool,
}

/// A peer's region.
#[derive(Clone, Copy, Debug)]
struct Target {
    peer: u32,
    len: usize,
}

impl imports::ImportedRegion for Target {
    fn peer(&self) -> u32 {
        self.peer
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// A device to which order, or atomics, are added.
#[derive(Debug)]
pub(crate) struct Ordered {
    /// Dropped first: its requests point into the open requests.
    inner: Box<dyn Device>,
    me: u32,
    capabilities: Capabilities,
    placement: Placement,
    /// The updates in packets, if the device has no atomics.
    served: Option<Served>,
    /// The imported regions, by handle.
    targets: RefCell<FxHashMap<u64, Target>>,
    open: RefCell<Slots<Open>>,
    peers: RefCell<FxHashMap<u32, Peer>>,
    /// Peers with complete writes that are to be pushed.
    unplaced: RefCell<Vec<u32>>,
    notifications: RefCell<VecDeque<Notification>>,
    /// Updates with parts that are not sent.
    unsent: RefCell<VecDeque<u64>>,
    /// Answers to updates of peers, to be sent.
    answers: RefCell<VecDeque<(u32, Vec<u8>)>>,
    finished: RefCell<Vec<(u64, Result<()>)>>,
    /// Whether a delayed request found the device busy, so that no event announces that it can be posted.
    is_blocked: Cell<bool>,
    polling: Cell<bool>,
}

impl Ordered {
    /// Wraps the device of rank `me`, and adds order and atomics as far as it lacks them.
    #[must_use]
    pub(crate) fn over(device: Box<dyn Device>, me: u32) -> Self {
        let inner = device.capabilities();
        let (placement, served) = (inner.placement, (!inner.atomics).then(|| Served::new(inner.max_packet)));
        let has_all = inner.accumulate || served.is_some();
        let capabilities = Capabilities {
            placement: Placement::InOrder,
            atomics: true,
            accumulate: has_all,
            coherent: inner.coherent || served.is_some(),
            passive: inner.passive && served.is_none(),
            max_key: if served.is_some() { (inner.max_key + 16).min(MAX_KEY) } else { inner.max_key },
            ..inner.clone()
        };
        Self {
            inner: device,
            me,
            capabilities,
            placement,
            served,
            targets: RefCell::default(),
            open: RefCell::default(),
            peers: RefCell::default(),
            unplaced: RefCell::default(),
            notifications: RefCell::default(),
            unsent: RefCell::default(),
            answers: RefCell::default(),
            finished: RefCell::default(),
            is_blocked: Cell::new(false),
            polling: Cell::new(false),
        }
    }

    /// Whether a device lacks what this adds.
    pub(crate) fn is_needed(capabilities: &Capabilities) -> bool {
        capabilities.placement != Placement::InOrder || !capabilities.atomics
    }

    fn with_peer<R>(&self, peer: u32, f: impl FnOnce(&mut Peer) -> R) -> R {
        f(self.peers.borrow_mut().entry(peer).or_default())
    }

    /// Whether a signal or an update to `peer` waits for earlier requests.
    fn waits(&self, peer: u32, is_update: bool) -> bool {
        let by_packet = is_update && self.served.is_some();
        let peers = self.peers.borrow();
        let Some(peer) = peers.get(&peer) else { return false };
        let writes = by_packet || self.placement != Placement::InOrder;
        writes && peer.writes > 0 || !by_packet && peer.updates > 0
    }

    fn has_notifications(&self, peer: u32) -> bool {
        self.peers.borrow().get(&peer).is_some_and(|peer| peer.notifications > 0)
    }

    /// Checks a signal that is posted later, and whose error nothing would report then.
    fn check_signal(&self, peer: u32, at: Place, value: u64) -> Result<()> {
        const OP: &str = "signal a peer";
        let targets = self.targets.borrow();
        let checked = imports::region(targets.get(&at.region), peer, at.region, OP)
            .and_then(|target| imports::access(target, &Operation::Signal { at, value }));
        checked.map_err(|e| e.rank(self.me).device(self.capabilities.name))
    }

    /// Adds a request in progress; returns its number.
    fn add(&self, open: Open) -> u64 {
        self.with_peer(open.peer, |peer| match open.kind {
            Request::Write(_) => peer.writes += 1,
            Request::Update(_) => peer.updates += 1,
            Request::Flush { .. } | Request::Other => {}
        });
        let mut all = self.open.borrow_mut();
        let number = all.next();
        all.add(open);
        number
    }

    /// Removes a request that no longer delays others.
    fn take(&self, number: u64) -> Option<Open> {
        let open = self.open.borrow_mut().remove(number)?;
        self.release_peer(&open);
        Some(open)
    }

    fn release_peer(&self, open: &Open) {
        self.with_peer(open.peer, |peer| match open.kind {
            Request::Write(_) => peer.writes -= 1,
            // A cancelled update delays no signal, although it is still answered.
            Request::Update(_) if open.id.is_some() => peer.updates -= 1,
            Request::Update(_) => {}
            Request::Flush { .. } => peer.is_flushing = false,
            Request::Other => {}
        });
    }

    /// Ends a request: reports it, or queues its notification first.
    fn finish(&self, open: Open, result: Result<()>) {
        let Some(id) = open.id else { return };
        match (open.notify, &result) {
            (Some((at, value)), Ok(())) => {
                self.with_peer(open.peer, |peer| peer.notifications += 1);
                self.notifications.borrow_mut().push_back(Notification { peer: open.peer, at, value, id });
            }
            _ => self.finished.borrow_mut().push((id, result)),
        }
    }

    /// Handles the completion of a request of the inner device.
    fn completed(&self, number: u64, result: Result<()>) {
        let Some(open) = self.open.borrow_mut().remove(number) else { return };
        if matches!(open.kind, Request::Write(_)) && self.placement == Placement::AtRead && result.is_ok() {
            let peer = open.peer;
            if self.with_peer(peer, |peer| {
                peer.unplaced.push(open);
                peer.unplaced.len() == 1
            }) {
                self.unplaced.borrow_mut().push(peer);
            }
            return;
        }
        self.release_peer(&open);
        match open.kind {
            Request::Flush { writes, .. } => {
                for write in writes {
                    self.release_peer(&write);
                    self.finish(write, result.as_ref().map_or_else(|e| Err(e.again()), |()| Ok(())));
                }
            }
            _ => self.finish(open, result),
        }
    }

    /// Posts a request of this module; `None` if the device is busy.
    ///
    /// # Safety
    /// Local memory is valid until the request is complete.
    unsafe fn post_own(&self, peer: u32, operation: Operation<'_>, id: u64) -> Result<Option<()>> {
        // SAFETY: by the contract.
        let posted = unsafe { self.inner.post(&WorkRequest { peer, operation, notify: None, id }) }?;
        self.is_blocked.set(self.is_blocked.get() || posted == Posted::Busy);
        Ok((posted != Posted::Busy).then_some(()))
    }

    /// Posts the read that pushes the complete writes to `peer`; `false` if it must be tried again.
    fn flush(&self, peer: u32) -> bool {
        let writes =
            self.with_peer(peer, |peer| if peer.is_flushing { Vec::new() } else { std::mem::take(&mut peer.unplaced) });
        let at = writes.iter().rev().find_map(|write| match write.kind {
            Request::Write(at) => Some(at),
            _ => None,
        });
        let Some(at) = at else { return self.with_peer(peer, |peer| peer.unplaced.is_empty()) };
        let byte = Rc::new(Cell::new(0));
        let into = [Block { base: byte.as_ptr(), len: 1 }];
        self.with_peer(peer, |peer| peer.is_flushing = true);
        let number = self.add(Open { id: None, peer, notify: None, kind: Request::Flush { _into: byte, writes } });
        // SAFETY: the byte belongs to the open request.
        match unsafe { self.post_own(peer, Operation::read(&into, at), number) } {
            Ok(Some(())) => true,
            Ok(None) => {
                if let Some(Open { kind: Request::Flush { writes, .. }, .. }) = self.take(number) {
                    self.with_peer(peer, |peer| peer.unplaced = writes);
                }
                false
            }
            Err(e) => {
                self.completed(number, Err(e));
                true
            }
        }
    }

    /// Posts what waits, in order for each peer.
    fn drive(&self) {
        self.is_blocked.set(false);
        if !self.unplaced.borrow().is_empty() {
            let peers = std::mem::take(&mut *self.unplaced.borrow_mut());
            let left: Vec<u32> = peers.into_iter().filter(|peer| !self.flush(*peer)).collect();
            self.unplaced.borrow_mut().extend(left);
        }
        if let Some(served) = &self.served {
            in_order(
                &self.answers,
                |answer| answer.0,
                |(peer, answer)| {
                    // SAFETY: packets are copied when they are posted.
                    match unsafe { self.post_own(*peer, Operation::send(answer, &[]), UNREPORTED) } {
                        Ok(sent) => sent.is_some(),
                        Err(e) => {
                            tracing::debug!("an update of rank {peer} is not answered: {e}");
                            true
                        }
                    }
                },
            );
            let peer = |number: &u64| self.open.borrow().get(*number).map_or(self.me, |open| open.peer);
            in_order(&self.unsent, peer, |number| self.send(served, *number));
        }
        in_order(&self.notifications, |one| one.peer, |one| self.notify(one));
    }

    /// Posts a notification; `false` if it must wait.
    fn notify(&self, one: &Notification) -> bool {
        let Notification { peer, at, value, id } = *one;
        if self.waits(peer, false) {
            return false;
        }
        // SAFETY: a signal touches no local memory.
        let result = match unsafe { self.post_own(peer, Operation::Signal { at, value }, UNREPORTED) } {
            Ok(None) => return false,
            Ok(Some(())) => Ok(()),
            Err(e) => Err(e),
        };
        self.with_peer(peer, |peer| peer.notifications -= 1);
        self.finished.borrow_mut().push((id, result));
        true
    }

    /// Whether requests wait in this module.
    fn is_pending(&self) -> bool {
        let is_held = |open: &Open| match open.kind {
            Request::Update(_) | Request::Flush { .. } => true,
            Request::Write(_) => self.placement == Placement::AtRead,
            Request::Other => false,
        };
        !(self.notifications.borrow().is_empty()
            && self.answers.borrow().is_empty()
            && self.unplaced.borrow().is_empty()
            && !self.open.borrow().iter().any(|(_, open)| is_held(open)))
    }
}

/// Passes the entries of a queue to `post`. An entry for which it returns false stays, and so do the later entries of the
/// same peer.
fn in_order<T>(queue: &RefCell<VecDeque<T>>, peer: impl Fn(&T) -> u32, mut post: impl FnMut(&T) -> bool) {
    if queue.borrow().is_empty() {
        return;
    }
    let entries = std::mem::take(&mut *queue.borrow_mut());
    let mut blocked: SmallVec<[u32; 4]> = SmallVec::new();
    let mut left = VecDeque::new();
    for entry in entries {
        let to = peer(&entry);
        if blocked.contains(&to) {
            left.push_back(entry);
        } else if !post(&entry) {
            blocked.push(to);
            left.push_back(entry);
        }
    }
    let mut queue = queue.borrow_mut();
    left.append(&mut queue);
    *queue = left;
}

// SAFETY: passes on the memory that the inner device returns; its own requests use memory that it keeps until they are
// complete, and the memory of updates until these are complete or cancelled.
unsafe impl Device for Ordered {
    forward!(inner: peers_can_map, sealed, wake, waker, now, compute, stats);

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn register(&self, region: Region) -> Result<Registration> {
        // SAFETY: the same contract.
        let mut made = unsafe { self.inner.register(region) }?;
        if let Some(served) = &self.served {
            // SAFETY: valid until its release, which ends the exposure first.
            unsafe { served.register(&mut made, region.accumulate) };
        }
        Ok(made)
    }

    unsafe fn release(&self, handle: u64) -> Result<()> {
        self.served.iter().for_each(|served| served.release(handle));
        // SAFETY: the same contract.
        unsafe { self.inner.release(handle) }
    }

    fn import(&self, peer: u32, key: &[u8], accumulate: Option<AccumulateFn>) -> Result<RemoteRegion> {
        let mut with = None;
        if self.served.is_some() {
            with = Served::read_key(peer, key, accumulate.is_some());
            if with.is_none() {
                let e = Error::new(ErrorKind::Protocol, "import a peer's region").rank(self.me).peer(peer);
                return Err(e.device(self.capabilities.name).cause("malformed key"));
            }
        }
        let mut imported = self.inner.import(peer, with.map_or(key, |(inner, _)| inner), accumulate)?;
        if let (Some((_, region)), Some(served)) = (with, &self.served) {
            served.import(imported.handle, imported.len, region);
            imported.steps = true;
        }
        self.targets.borrow_mut().insert(imported.handle, Target { peer, len: imported.len });
        Ok(imported)
    }

    unsafe fn forget(&self, handle: u64) {
        self.served.iter().for_each(|served| served.forget(handle));
        self.targets.borrow_mut().remove(&handle);
        // SAFETY: the same contract.
        unsafe { self.inner.forget(handle) };
    }

    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        let WorkRequest { peer, operation, notify, id } = *request;
        let is_update = matches!(operation, Operation::Update(_));
        let is_signal = is_update || matches!(operation, Operation::Signal { .. });
        if is_signal && (self.waits(peer, is_update) || self.has_notifications(peer)) {
            return Ok(Posted::Busy);
        }
        if let (Operation::Update(update), Some(served)) = (&operation, &self.served) {
            return self.post_update(served, request, update);
        }
        let is_apart = notify.is_some()
            && (self.placement != Placement::InOrder || self.waits(peer, false) || self.has_notifications(peer));
        if let Some((at, value)) = notify.filter(|_| is_apart) {
            self.check_signal(peer, at, value)?;
        }
        let with = if is_apart { None } else { notify };
        let number = self.open.borrow_mut().next();
        // SAFETY: the same contract.
        let posted = unsafe { self.inner.post(&WorkRequest { peer, operation, notify: with, id: number }) }?;
        let kind = match operation {
            Operation::Transfer(Transfer { write: true, region, ref ranges, .. }) => {
                let first = ranges.iter().find(|range| range.len > 0);
                first.map_or(Request::Other, |first| Request::Write(Place { region, offset: first.offset }))
            }
            _ => Request::Other,
        };
        let open = Open { id: Some(id), peer, notify: notify.filter(|_| is_apart), kind };
        match posted {
            Posted::Busy => return Ok(Posted::Busy),
            Posted::Pending => _ = self.add(open),
            Posted::Done if is_apart => self.finish(open, Ok(())),
            Posted::Done => return Ok(Posted::Done),
        }
        if is_apart {
            self.inner.own_stats().add(Kind::Notify, 8);
        }
        Ok(Posted::Pending)
    }

    fn cancel(&self, which: &dyn Fn(u64) -> bool) {
        let is_cancelled = |open: &Open| open.id.is_some_and(which);
        let mut below = Vec::new();
        let mut done = Vec::new();
        for (number, open) in self.open.borrow().iter().filter(|(_, open)| is_cancelled(open)) {
            match &open.kind {
                Request::Update(_) => done.push(number),
                _ => below.push(number),
            }
        }
        for number in done {
            let is_answered = match self.open.borrow_mut().get_mut(number) {
                Some(Open { id, peer, notify, kind: Request::Update(update) }) => {
                    self.with_peer(*peer, |peer| peer.updates -= 1);
                    (*id, *notify) = (None, None);
                    update.cancel();
                    update.is_answered()
                }
                _ => false,
            };
            if is_answered {
                self.take(number);
            }
        }
        self.inner.cancel(&|number| below.contains(&number));
        below.into_iter().for_each(|number| _ = self.take(number));
        let forget = |open: &mut Open| {
            if open.id.is_some_and(which) {
                (open.id, open.notify) = (None, None);
            }
        };
        self.peers.borrow_mut().values_mut().flat_map(|peer| &mut peer.unplaced).for_each(forget);
        for open in self.open.borrow_mut().iter_mut() {
            if let Request::Flush { writes, .. } = &mut open.kind {
                writes.iter_mut().for_each(forget);
            }
        }
        self.notifications.borrow_mut().retain(|one| {
            let stays = !which(one.id);
            if !stays {
                self.with_peer(one.peer, |peer| peer.notifications -= 1);
            }
            stays
        });
        self.finished.borrow_mut().retain(|(id, _)| !which(*id));
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        let Some(_entered) = Entered::new(&self.polling) else { return Ok(false) };
        let mut completions = Vec::new();
        let mut served = false;
        let polled = self.inner.poll(&mut |event| match event {
            Event::Completed { id: UNREPORTED, .. } => {}
            Event::Completed { id, result } => completions.push((id, result)),
            Event::Packet { source, bytes } if self.received(source, bytes) => served = true,
            Event::LongPacket { source, packet } if self.served.is_some() && self.received(source, packet.read()) => {
                served = true;
            }
            event => sink(event),
        });
        if let Some(lost) = polled.as_ref().err().and_then(Error::blamed_number) {
            self.lose(lost);
        }
        completions.into_iter().for_each(|(number, result)| self.completed(number, result));
        self.drive();
        let finished = std::mem::take(&mut *self.finished.borrow_mut());
        let any = served || !finished.is_empty();
        finished.into_iter().for_each(|(id, result)| sink(Event::Completed { id, result }));
        Ok(polled? || any)
    }

    fn park(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        if self.is_blocked.get() || !self.finished.borrow().is_empty() {
            std::thread::yield_now();
            return true;
        }
        self.inner.park(sleep, ready)
    }

    fn check_peers(&self, about: PeerCheck<'_>) -> Result<Option<u32>> {
        match about {
            PeerCheck::Left(peer) => self.lose(peer),
            PeerCheck::Met(e) => e.blamed_number().into_iter().for_each(|peer| self.lose(peer)),
            PeerCheck::Alive | PeerCheck::Stopped | PeerCheck::Asleep(_) => {}
        }
        self.inner.check_peers(about)
    }

    fn leave(&self, how: Leave) -> Result<bool> {
        if how != Leave::Lost && self.is_pending() {
            return Ok(false);
        }
        self.inner.leave(how)
    }
}
