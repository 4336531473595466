#![allow(unsafe_code)]
//! The ofi device, for networks that libfabric supports: Slingshot, EFA, Omni-Path. `libfabric.so.1` is loaded at run
//! time, so that the vendor's library is used.
//!
//! Writes and reads are remote accesses of the provider. A write is complete when it is visible at the target, or, if
//! the provider cannot say that, after a later read; [`service`](crate::service) adds the order and the atomics. Packets
//! and signals are messages, which the target handles while it is inside the runtime. Lost ranks are found by a
//! [tcp](super::tcp) device beside this one, over which no data travels.
//!
//! The fabric is trusted: neither its messages nor its accesses are authenticated.

mod buffers;
mod choose;
mod elsewhere;
mod engine;
mod fabric;
mod leases;
mod message;
mod post;
mod start;
mod sys;

use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use choose::{is_preferred, report};
pub(crate) use start::open;

use smallvec::SmallVec;

use super::loopback::Owned;
use super::tcp::{self, TcpDevice};
use super::wait::{WakeFd, sleep};
use super::{
    Capabilities, Device, Event, Leave, Operation, PeerCheck, Posted, Region, Registration, RemoteRegion, Sleep, Waker,
    WorkRequest, imports,
};
use crate::entered::Entered;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::keys::{AccumulateFn, Exposed};
use crate::slots::Slots;
use crate::stats::{Kind, Stats};
use elsewhere::Elsewhere;
use engine::{Engine, Notice, OwnRegion};
use leases::Exposure;
use message::Message;

/// Longest sleep of a rank whose provider announces no events, or that has work which no event announces.
const NAP: Duration = Duration::from_micros(200);
/// Longest sleep on another device, after which the rank checks its peers.
const CHECK_ASLEEP: Duration = Duration::from_secs(1);
/// Interval of the checks whether a rank is lost whose answer is awaited.
const CHECK: Duration = Duration::from_millis(10);

/// A peer's region.
#[derive(Clone, Copy, Debug)]
struct Import {
    peer: u32,
    region: u64,
    len: usize,
    align: u8,
    lease: u64,
}

impl imports::ImportedRegion for Import {
    fn peer(&self) -> u32 {
        self.peer
    }

    fn len(&self) -> usize {
        self.len
    }

    fn alignment(&self) -> usize {
        self.align.into()
    }
}

/// The ofi device of one rank.
pub(crate) struct OfiDevice {
    engine: RefCell<Engine>,
    /// Finds lost ranks.
    watch: TcpDevice,
    me: u32,
    capabilities: Capabilities,
    stats: Stats,
    imports: RefCell<Slots<Import>>,
    wake: Arc<WakeFd>,
    /// Wakes this rank while it sleeps on another device.
    elsewhere: OnceCell<Elsewhere>,
    polling: Cell<bool>,
    left: Cell<bool>,
}

impl OfiDevice {
    fn fail(&self, kind: ErrorKind, operation: &'static str, peer: u32) -> Error {
        Error::new(kind, operation).rank(self.me).peer(peer).device("ofi")
    }

    /// The import with a handle, if it is a region of `peer`.
    fn import_of(&self, peer: u32, handle: u64, operation: &'static str) -> Result<Import> {
        let imports = self.imports.borrow();
        let found = imports::region(imports.get(handle), peer, handle, operation);
        found.copied().map_err(|e| e.rank(self.me).device("ofi"))
    }

    /// Checks by the other device that no rank is lost.
    fn check_watch(&self, about: PeerCheck<'_>) -> Result<()> {
        self.watch.check_peers(about).map(drop).map_err(|e| {
            let e = e.device("ofi");
            self.engine.borrow_mut().note_loss(&e);
            e
        })
    }

    /// Waits until no peer uses a region of the caller's memory.
    fn await_users(&self, region: u64) {
        let mut checked = Instant::now();
        loop {
            let Some(users) = self.engine.borrow().regions.get(&region).map(|own| own.users.clone()) else { return };
            if users.is_empty() || self.engine.borrow().broken.is_some() {
                return;
            }
            if self.engine.borrow_mut().turn().is_err() {
                self.break_off("the provider makes no progress");
            }
            if checked.elapsed() >= CHECK {
                checked = Instant::now();
                let _ = self.check_watch(PeerCheck::Alive);
                for peer in users.into_keys().filter(|peer| self.watch.is_gone(*peer)) {
                    // Its requests ended before it left; those of a lost rank end with its connection.
                    let mut engine = self.engine.borrow_mut();
                    engine.regions.get_mut(&region).into_iter().for_each(|own| _ = own.users.remove(&peer));
                }
            }
            std::thread::yield_now();
        }
    }

    fn break_off(&self, why: &'static str) {
        let e = self.fail(ErrorKind::System, "make progress", self.me).cause(why);
        self.engine.borrow_mut().close(e);
    }

    /// Makes progress before a sleep; returns whether a poll would deliver something.
    fn has_events(&self) -> bool {
        let mut engine = self.engine.borrow_mut();
        engine.turn().is_err() || engine.has_events()
    }

    fn elsewhere(&self, events: Option<BorrowedFd<'_>>) -> std::io::Result<&Elsewhere> {
        if self.elsewhere.get().is_none() {
            let _ = self.elsewhere.set(Elsewhere::start(self.me, events)?);
        }
        self.elsewhere.get().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }

    /// # Safety
    /// The contract of [`Device::post`].
    unsafe fn post_checked(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        const POST: &str = "post a work request";
        let WorkRequest { peer, operation, notify, id } = *request;
        let mut engine = self.engine.borrow_mut();
        if peer as usize >= engine.peers.len() {
            return Err(self.fail(ErrorKind::NoSuchRank, POST, peer));
        }
        let notice = match notify {
            Some((at, value)) => {
                let signal = Operation::Signal { at, value };
                let import = self.import_of(peer, at.region, signal.name())?;
                imports::access(&import, &signal).map_err(|e| e.rank(self.me).device("ofi"))?;
                Some(Notice { peer, region: import.region, offset: at.offset as u64, value })
            }
            None => None,
        };
        match operation {
            Operation::Transfer(ref transfer) => {
                let import = self.import_of(peer, transfer.region, transfer.name())?;
                // SAFETY: the contract of `Device::post`.
                unsafe { engine.post_transfer(&import, transfer, notice, id) }
            }
            Operation::Signal { at, value } => {
                let import = self.import_of(peer, at.region, operation.name())?;
                imports::access(&import, &operation).map_err(|e| e.rank(self.me).device("ofi"))?;
                let message = Message::Signal { region: import.region, offset: at.offset as u64, value };
                if peer == self.me {
                    let raised = engine.raise(import.region, at.offset as u64, value);
                    return raised.map(|()| Posted::Done).map_err(|kind| self.fail(kind, operation.name(), peer));
                }
                // It follows earlier writes, and the notifications of earlier operations.
                if engine.peers[peer as usize].held > 0 || !engine.unposted.is_empty() {
                    return Ok(Posted::Busy);
                }
                // SAFETY: there are no blocks.
                unsafe { engine.send_data(peer, message, &[], &[]) }
            }
            Operation::Packet(packet) => {
                let (len, most) = (packet.len(), self.capabilities.max_packet);
                if len > most {
                    let e = self.fail(ErrorKind::BadArgument, operation.name(), peer);
                    return Err(e.cause(format!("the packet has {len} bytes, but at most {most} are allowed")));
                }
                packet.with_parts(|header, body| {
                    if peer == self.me {
                        let mut bytes = Vec::new();
                        // SAFETY: the contract of `Device::post`.
                        unsafe { crate::memory::copy::gather(header, body, &mut bytes) };
                        engine.inbox.push_back((peer, bytes));
                    // SAFETY: the contract of `Device::post`.
                    } else if unsafe { engine.send_data(peer, Message::Packet, header, body) }? == Posted::Busy {
                        return Ok(Posted::Busy);
                    }
                    notice.into_iter().for_each(|notice| engine.notify(notice, None));
                    Ok(Posted::Done)
                })
            }
            Operation::Update(update) => {
                self.import_of(peer, update.at.region, update.name())?;
                Err(operation.unsupported(peer, "ofi").rank(self.me))
            }
            Operation::List { .. } | Operation::Barrier(_) => Err(operation.unsupported(peer, "ofi").rank(self.me)),
        }
    }
}

// SAFETY: the device maps no memory of peers; the memory that it allocates lives until no peer has a lease of it, and
// the provider gets the blocks of a request until it has completed, or the endpoint is closed.
unsafe impl Device for OfiDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn register(&self, region: Region) -> Result<Registration> {
        const OP: &str = "register memory";
        let Region { mut base, len, accumulate, align, .. } = region;
        let mut owned = Owned::No;
        if base.is_null() {
            (owned, base) = Owned::aligned(len, align)
                .map_err(|e| self.fail(ErrorKind::Limit, "allocate memory", self.me).cause(e.to_string()))?;
        }
        let mut engine = self.engine.borrow_mut();
        if let Some(e) = engine.gone(self.me, OP) {
            return Err(e);
        }
        // SAFETY: memory of the caller is valid by the contract; memory of the device lives as long as the registration.
        let memory = unsafe { (len > 0).then(|| engine.fabric.register(base, len)).transpose() };
        let memory = memory.map_err(|failure| engine.failure(OP, self.me, &failure))?;
        // SAFETY: as above.
        let number = unsafe { engine.exposures.insert(Exposed { base, len, accumulate }) };
        let address = if engine.fabric.offer.has_addresses() { base.addr() as u64 } else { 0 };
        let at = Exposure { address, key: memory.as_ref().map_or(0, |memory| memory.key), len: len as u64 };
        engine.by_address.insert(base.addr(), (len, number));
        engine.regions.insert(number, OwnRegion { base, at, memory, owned, users: Default::default() });
        Ok(Registration { base, len, key: self.watch.write_key(number, len, base), handle: number })
    }

    unsafe fn release(&self, handle: u64) -> Result<()> {
        let mut engine = self.engine.borrow_mut();
        let Some(own) = engine.regions.get(&handle) else {
            return Err(self.fail(ErrorKind::Freed, "release memory", self.me));
        };
        let (at, users, is_callers) = (own.base.addr(), own.users.clone(), matches!(own.owned, Owned::No));
        engine.exposures.remove(handle);
        if engine.by_address.get(&at).is_some_and(|known| known.1 == handle) {
            engine.by_address.remove(&at);
        }
        for (peer, lease) in users {
            engine.control(peer, Message::Revoked { lease });
        }
        if is_callers {
            drop(engine);
            self.await_users(handle);
            engine = self.engine.borrow_mut();
        }
        // The registration is closed before the memory is freed.
        if let Some(own) = engine.regions.remove(&handle).filter(|own| !own.users.is_empty() && !is_callers) {
            engine.released.insert(handle, own);
        }
        Ok(())
    }

    fn import(&self, peer: u32, key: &[u8], _accumulate: Option<AccumulateFn>) -> Result<RemoteRegion> {
        const OP: &str = "import a peer's region";
        let mut engine = self.engine.borrow_mut();
        if peer as usize >= engine.peers.len() {
            return Err(self.fail(ErrorKind::NoSuchRank, OP, peer));
        }
        let key = self.watch.read_key(peer, key);
        let tcp::Import { key: region, len, align, .. } =
            key.ok_or_else(|| self.fail(ErrorKind::Protocol, OP, peer).cause("malformed key"))?;
        let mut imports = self.imports.borrow_mut();
        let (handle, lease) = (imports.next(), engine.leases.import(peer, region));
        imports.add(Import { peer, region, len, align, lease });
        Ok(RemoteRegion { peer, len, handle, mapped: None, lists: None, steps: false })
    }

    unsafe fn forget(&self, handle: u64) {
        if let Some(import) = self.imports.borrow_mut().remove(handle) {
            let mut engine = self.engine.borrow_mut();
            let ended = engine.leases.forget(import.lease);
            engine.control_if(ended);
        }
    }

    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        // SAFETY: the same contract.
        let posted = unsafe { self.post_checked(request) }?;
        if posted == Posted::Busy {
            if !self.polling.get() {
                // Completions free resources for the next attempt, even for a caller that does not poll.
                self.engine.borrow_mut().turn()?;
            }
        } else {
            let (kind, len) = request.operation.counted();
            self.stats.add(kind, len);
            if request.notify.is_some() {
                self.stats.add(Kind::Notify, 8);
            }
        }
        Ok(posted)
    }

    fn cancel(&self, which: &dyn Fn(u64) -> bool) {
        self.engine.borrow_mut().cancel(which);
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        // A handler that polls gets no events.
        let Some(_entered) = Entered::new(&self.polling) else { return Ok(false) };
        let (packets, done, mut any) = {
            let mut engine = self.engine.borrow_mut();
            engine.turn()?;
            (engine.inbox.len(), engine.done.len(), std::mem::take(&mut engine.has_served))
        };
        for _ in 0..packets {
            let Some((source, bytes)) = self.engine.borrow_mut().next_packet() else { break };
            any = true;
            sink(Event::Packet { source, bytes: &bytes });
        }
        for _ in 0..done {
            // A handler may have cancelled the operation.
            let Some((id, result)) = self.engine.borrow_mut().done.pop_front() else { break };
            any = true;
            sink(Event::Completed { id, result });
        }
        Ok(any)
    }

    fn park(&self, sleep_by: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        if self.has_events() || ready() {
            if let Sleep::For(_) = sleep_by {
                std::thread::yield_now();
            }
            return true;
        }
        let engine = self.engine.borrow();
        let events = engine.fabric.wait_fd();
        if events.is_some() && !engine.fabric.may_sleep() {
            return true;
        }
        let most = if events.is_none() || engine.is_blocked() { NAP } else { Duration::MAX };
        match sleep_by {
            Sleep::For(limit) => {
                self.elsewhere.get().into_iter().for_each(Elsewhere::end);
                self.stats.add(Kind::Park, 0);
                let fds: SmallVec<[_; 2]> = events.into_iter().chain([self.wake.as_fd()]).collect();
                sleep(&fds, limit.min(most));
                self.wake.clear();
                false
            }
            Sleep::Elsewhere(waker) => match self.elsewhere(events) {
                Ok(elsewhere) => {
                    elsewhere.begin(waker, most.min(CHECK_ASLEEP));
                    false
                }
                Err(e) => {
                    tracing::warn!("the provider's events cannot wake this rank, so it polls: {e}");
                    true
                }
            },
        }
    }

    fn waker(&self) -> Result<Waker> {
        let wake = Arc::clone(&self.wake);
        Ok(Arc::new(move || wake.wake()))
    }

    fn check_peers(&self, about: PeerCheck<'_>) -> Result<Option<u32>> {
        if let PeerCheck::Asleep(_) = about {
            return Ok(None);
        }
        match about {
            PeerCheck::Met(e) => self.engine.borrow_mut().note_loss(e),
            PeerCheck::Left(peer) => {
                let e = self.fail(ErrorKind::PeerLost, "post a work request", peer);
                self.engine.borrow_mut().lose(peer, &e.cause("both ranks have switched to another device"));
            }
            PeerCheck::Alive | PeerCheck::Stopped | PeerCheck::Asleep(_) => {}
        }
        let watched = self.check_watch(about);
        let mut engine = self.engine.borrow_mut();
        engine.turn()?;
        engine.end_lost_requests();
        watched?;
        if let PeerCheck::Left(_) = about {
            return Ok(None);
        }
        match &engine.loss {
            Some(e) => Err(e.again().during("check the other ranks")),
            None => Ok(None),
        }
    }

    fn stats<'a>(&'a self, each: &mut dyn FnMut(&'static str, &'a Stats)) {
        each(self.capabilities.name, &self.stats);
    }

    fn leave(&self, how: Leave) -> Result<bool> {
        if how == Leave::Lost {
            self.left.set(true);
            return self.watch.leave(how);
        }
        let mut engine = self.engine.borrow_mut();
        engine.turn()?;
        if engine.open > 0 && engine.broken.is_none() {
            return Ok(false);
        }
        // No owner waits for this rank any more.
        for (peer, ended) in engine.leases.end_all() {
            engine.control(peer, ended);
        }
        if !engine.is_quiet() {
            return Ok(false);
        }
        self.left.set(true);
        self.watch.leave(how)
    }
}

impl Drop for OfiDevice {
    fn drop(&mut self) {
        if !self.left.get() {
            let _ = self.leave(Leave::Lost);
        }
    }
}
