#![allow(unsafe_code)]
//! The reference device: ranks are threads of one process, regions are memory of that process, and the thread that
//! posts an operation executes it immediately, under the lock of the target's table of exposed regions.
//!
//! The code can be read as the specification of the device seam. [`Loopback::minimal`] omits all optional features:
//! accumulates, and operations of more than one block; [`crate::service`] and the planner then compose them from the
//! remaining operations. Memory is never mapped, and any memory can be registered.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use memmap2::MmapMut;
use rustc_hash::FxHashMap;

use super::{
    Capabilities, Change, Device, Event, Leave, Operation, Packet, PeerCheck, PeerWaker, Place, Placement, Posted,
    Range, Ranges, Region, Registration, RemoteRegion, Sleep, Transfer, Update, Waker, WorkRequest, imports,
};
use crate::device::request::length;
use crate::entered::Entered;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::copy;
use crate::memory::keys::{AccumulateFn, Exposed, Exposures};
use crate::slots::Slots;
use crate::stats::{Kind, Stats};
use crate::wire::{Reader, Writer};

/// Operation name in errors of a request of any kind.
const POST: &str = "post a work request";
/// Maximum length of a packet in bytes.
pub(super) const MAX_PACKET: usize = 4096;
/// Maximum number of packets that wait for one rank; a post beyond it is `Busy`.
pub(super) const MAX_PACKETS: usize = 64;

/// Packets, completions and wake-ups that wait for one rank.
#[derive(Default)]
struct Inbox {
    packets: VecDeque<(u32, Vec<u8>)>,
    completions: VecDeque<(u64, Result<()>)>,
    /// Another rank has changed this rank's memory since its last poll.
    woken: bool,
    /// Called at the next event.
    waker: Option<Waker>,
    ended: Option<Leave>,
}

#[derive(Default)]
struct Rank {
    inbox: Mutex<Inbox>,
    event: Condvar,
    exposures: Exposures,
}

impl Rank {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks an event for this rank, and wakes it if it sleeps.
    fn wake(&self) {
        let waker = {
            let mut inbox = self.inbox();
            inbox.woken = true;
            inbox.waker.take()
        };
        self.event.notify_one();
        if let Some(waker) = waker {
            waker();
        }
    }
}

/// The network: one for all ranks of a job.
pub struct Hub(Vec<Rank>);

impl Hub {
    /// A network of `ranks` ranks.
    #[must_use]
    pub fn new(ranks: u32) -> Arc<Self> {
        Arc::new(Self((0..ranks).map(|_| Rank::default()).collect()))
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hub").field(&self.0.len()).finish()
    }
}

/// Memory of a region.
#[derive(Debug)]
pub(super) enum Owned {
    /// Memory of the caller.
    No,
    Words(Box<[u64]>),
    /// Pages that are never touched take no memory of the machine.
    Pages(MmapMut),
}

impl Owned {
    /// Memory of at least this many bytes is allocated in pages of its own.
    const PAGES: usize = 16 << 10;

    /// `len` zeroed bytes, of which the first is aligned to `align`, and its address.
    pub(super) fn aligned(len: usize, align: usize) -> std::io::Result<(Self, *mut u8)> {
        // Up to `align` bytes are skipped to align the first one.
        let mut owned = Self::new(len.saturating_add(if align <= 8 { 0 } else { align }))?;
        let base = owned.base();
        Ok((owned, base.wrapping_add(base.addr().wrapping_neg() % align)))
    }

    /// Allocates `len` zeroed bytes.
    fn new(len: usize) -> std::io::Result<Self> {
        if len >= Self::PAGES {
            return MmapMut::map_anon(len).map(Self::Pages);
        }
        Ok(Self::Words(vec![0; len.div_ceil(8)].into_boxed_slice()))
    }

    fn base(&mut self) -> *mut u8 {
        match self {
            Self::No => std::ptr::null_mut(),
            Self::Words(words) => words.as_mut_ptr().cast(),
            Self::Pages(pages) => pages.as_mut_ptr(),
        }
    }
}

/// A peer's region, by its key.
#[derive(Clone, Copy, Debug)]
struct Import {
    peer: u32,
    key: NonZeroU64,
}

impl imports::ImportedRegion for Import {
    fn peer(&self) -> u32 {
        self.peer
    }
}

/// The loopback device of one rank.
#[derive(Debug)]
pub struct Loopback {
    me: u32,
    hub: Arc<Hub>,
    capabilities: Capabilities,
    stats: Stats,
    /// Memory of regions, by handle (which is also the key).
    owned: RefCell<FxHashMap<u64, Owned>>,
    imports: RefCell<Slots<Import>>,
    polling: Cell<bool>,
}

impl Loopback {
    /// The device of rank `me`.
    #[must_use]
    pub fn new(hub: &Arc<Hub>, me: u32) -> Self {
        let minimal = Capabilities::minimal("loopback", MAX_PACKET);
        Self::with(
            hub,
            me,
            Capabilities { max_blocks: 16, accumulate: true, coherent: true, own_by_copy: true, ..minimal },
        )
    }

    /// The device of rank `me` without optional features.
    #[must_use]
    pub fn minimal(hub: &Arc<Hub>, me: u32) -> Self {
        Self::with(hub, me, Capabilities::minimal("loopback", MAX_PACKET))
    }

    /// The device of rank `me` as a network of [weaker order](Placement::AtRead) and without atomics. Its operations
    /// still take effect immediately.
    #[must_use]
    pub fn bare(hub: &Arc<Hub>, me: u32) -> Self {
        let minimal = Capabilities::minimal("loopback", MAX_PACKET);
        Self::with(hub, me, Capabilities { placement: Placement::AtRead, atomics: false, ..minimal })
    }

    pub(crate) fn with(hub: &Arc<Hub>, me: u32, capabilities: Capabilities) -> Self {
        Self {
            me,
            hub: Arc::clone(hub),
            capabilities,
            stats: Stats::default(),
            owned: RefCell::default(),
            imports: RefCell::default(),
            polling: Cell::new(false),
        }
    }

    pub(super) fn counters(&self) -> &Stats {
        &self.stats
    }

    fn own(&self) -> &Rank {
        &self.hub.0[self.me as usize]
    }

    pub(super) fn fail(&self, kind: ErrorKind, operation: &'static str, peer: u32) -> Error {
        Error::new(kind, operation).rank(self.me).peer(peer).device(self.capabilities.name)
    }

    fn named(&self, e: Error) -> Error {
        e.rank(self.me).device(self.capabilities.name)
    }

    fn peer(&self, peer: u32, operation: &'static str) -> Result<&Rank> {
        self.hub.0.get(peer as usize).ok_or_else(|| self.fail(ErrorKind::NoSuchRank, operation, peer))
    }

    /// The key of an imported region of `peer`.
    fn key(&self, operation: &'static str, peer: u32, region: u64) -> Result<NonZeroU64> {
        let imports = self.imports.borrow();
        let import = imports::region(imports.get(region), peer, region, operation);
        import.map(|import| import.key).map_err(|e| self.named(e))
    }

    /// Calls `act` on `len` bytes at a remote address of `peer`, which cannot be released meanwhile.
    fn at<R>(
        &self,
        operation: &'static str,
        peer: u32,
        place: Place,
        len: usize,
        act: impl FnOnce(*mut u8, &Exposed) -> R,
    ) -> Result<R> {
        let (key, Place { offset, .. }) = (self.key(operation, peer, place.region)?, place);
        match self.peer(peer, operation)?.exposures.with(key.get(), offset as u64, len, act) {
            Some(Some(result)) => Ok(result),
            Some(None) => Err(self.named(imports::outside(peer, Range { offset, len }, usize::MAX, operation))),
            None => Err(self.fail(ErrorKind::BadKey, operation, peer)),
        }
    }

    /// Checks that `len` bytes at a remote address of `peer` are exposed.
    pub(super) fn is_exposed(&self, peer: u32, place: Place, len: usize) -> Result<()> {
        self.at("write remote memory", peer, place, len, |_, _| ())
    }

    /// The 8-byte word at a remote address of `peer`, if it is exposed and aligned.
    pub(super) fn word(&self, peer: u32, place: Place) -> Option<*mut u64> {
        let word = self.at("update a word", peer, place, 8, |p, _| p.cast::<u64>());
        word.ok().filter(|word| word.is_aligned())
    }

    /// Sets a cell; earlier writes of this rank are visible to a rank that reads the new value.
    fn signal(&self, peer: u32, at: Place, value: u64) -> Result<()> {
        const OP: &str = "signal a peer";
        let set = |p: *mut u8, _: &Exposed| {
            if !p.addr().is_multiple_of(8) {
                return Err(self.named(imports::misaligned(peer, at.offset, OP)));
            }
            // SAFETY: an aligned word of an exposed region, which every rank accesses as an atomic.
            // Release: pairs with the Acquire of the cell's owner.
            unsafe { AtomicU64::from_ptr(p.cast()) }.store(value, Ordering::Release);
            Ok(())
        };
        self.at(OP, peer, at, 8, set)?
    }

    /// The error for a packet that is too long.
    pub(super) fn check_packet(&self, peer: u32, packet: &Packet<'_>) -> Result<()> {
        let (len, most) = (packet.len(), self.capabilities.max_packet);
        if len <= most {
            return Ok(());
        }
        Err(self
            .fail(ErrorKind::BadArgument, "send a packet", peer)
            .cause(format!("the packet has {len} bytes, but at most {most} are allowed")))
    }

    fn send(&self, peer: u32, packet: &Packet<'_>) -> Result<Posted> {
        self.check_packet(peer, packet)?;
        let (to, len, mut bytes) = (self.peer(peer, "send a packet")?, packet.len(), Vec::new());
        // SAFETY: the blocks are valid by the contract of `post`.
        packet.with_parts(|header, body| unsafe { copy::gather(header, body, &mut bytes) });
        {
            let mut inbox = to.inbox();
            if inbox.packets.len() >= MAX_PACKETS {
                return Ok(Posted::Busy);
            }
            inbox.packets.push_back((self.me, bytes));
        }
        self.stats.add(Kind::Send, len);
        Ok(Posted::Done)
    }

    /// Whether the device supports an update.
    fn has(&self, update: &Update) -> bool {
        match update.change {
            _ if !self.capabilities.atomics => false,
            Change::Add(_) => true,
            Change::CompareSwap { .. } => update.len == 8 || self.capabilities.accumulate && update.is_whole(),
            Change::Accumulate { .. } => self.capabilities.accumulate,
        }
    }

    /// Executes a request other than a packet.
    ///
    /// # Safety
    /// All local pointers stay valid (and exclusive where written) until the request has completed.
    unsafe fn perform(&self, request: &WorkRequest<'_>) -> Result<()> {
        let (peer, name) = (request.peer, request.operation.name());
        // SAFETY: local pointers are valid by the contract; remote ones were checked by `at`, which holds the lock.
        unsafe {
            match request.operation {
                Operation::Transfer(Transfer { write, local, region, ranges: Ranges::One(Range { offset, .. }) }) => {
                    self.at(name, peer, Place { region, offset }, length(local), |mut p, _| {
                        for b in local {
                            if write {
                                copy::store(b.base, p, b.len)
                            } else {
                                copy::load(p, b.base, b.len)
                            }
                            p = p.wrapping_add(b.len);
                        }
                    })
                }
                Operation::Update(update) if self.has(&update) => {
                    let done =
                        self.at(name, peer, update.at, update.len, |p, region| update.apply(region.accumulate, p))?;
                    done.map_err(|kind| {
                        self.fail(kind, name, peer).cause(format!("the element at offset {}", update.at.offset))
                    })
                }
                Operation::Signal { at, value } => self.signal(peer, at, value),
                _ => Err(self.named(request.operation.unsupported(peer, "loopback"))),
            }
        }
    }

    /// Checks the peer, the regions and the kind of a request, as [`perform`](Self::perform) does.
    pub(super) fn check(&self, request: &WorkRequest<'_>) -> Result<()> {
        let WorkRequest { peer, operation, notify, .. } = *request;
        self.peer(peer, POST)?;
        let mut regions = operation.region().into_iter().chain(notify.map(|(at, _)| at.region));
        regions.try_for_each(|region| self.key(POST, peer, region).map(drop))?;
        match operation {
            Operation::Transfer(transfer) if matches!(transfer.ranges, Ranges::List(_)) => {}
            Operation::Update(update) if !self.has(&update) => {}
            _ => return Ok(()),
        }
        Err(self.named(operation.unsupported(peer, "loopback")))
    }

    /// Counts an operation and its signal.
    pub(super) fn count(&self, request: &WorkRequest<'_>) {
        let (kind, len) = request.operation.counted();
        self.stats.add(kind, len);
        if request.notify.is_some() {
            self.stats.add(Kind::Notify, 8);
        }
    }

    /// Executes a request and sets its signal cell.
    ///
    /// # Safety
    /// The contract of [`perform`](Self::perform).
    pub(super) unsafe fn perform_and_notify(&self, request: &WorkRequest<'_>) -> Result<()> {
        // SAFETY: the same contract.
        unsafe { self.perform(request) }?;
        request.notify.map_or(Ok(()), |(at, value)| self.signal(request.peer, at, value))
    }
}

// SAFETY: memory is that of ranks of this process, which the hub keeps until it is released, and operations complete
// immediately.
unsafe impl Device for Loopback {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn register(&self, region: Region) -> Result<Registration> {
        let Region { mut base, len, accumulate, align, .. } = region;
        let mut owned = Owned::No;
        if base.is_null() {
            (owned, base) = Owned::aligned(len, align)
                .map_err(|e| self.fail(ErrorKind::Limit, "allocate memory", self.me).cause(e.to_string()))?;
        }
        // SAFETY: memory of the caller is valid by the contract; memory of the device lives until `release`.
        let key = unsafe { self.own().exposures.insert(Exposed { base, len, accumulate }) };
        self.owned.borrow_mut().insert(key, owned);
        Ok(Registration { base, len, key: Writer::new().u64(key).u64(len as u64).done(), handle: key })
    }

    unsafe fn release(&self, handle: u64) -> Result<()> {
        // This waits for the lock, so no peer accesses the memory after this call.
        self.own().exposures.remove(handle);
        match self.owned.borrow_mut().remove(&handle) {
            Some(_) => Ok(()),
            None => Err(self.fail(ErrorKind::Freed, "release memory", self.me)),
        }
    }

    fn import(&self, peer: u32, key: &[u8], _accumulate: Option<AccumulateFn>) -> Result<RemoteRegion> {
        const OP: &str = "import a peer's region";
        self.peer(peer, OP)?;
        let mut r = Reader::new(key);
        let fields =
            (|| Some((NonZeroU64::new(r.u64()?)?, usize::try_from(r.u64()?).ok()?, r.is_empty().then_some(())?)))();
        let (key, len, ()) = fields.ok_or_else(|| self.fail(ErrorKind::Protocol, OP, peer).cause("malformed key"))?;
        let mut imports = self.imports.borrow_mut();
        let handle = imports.next();
        imports.add(Import { peer, key });
        Ok(RemoteRegion { peer, len, handle, mapped: None, lists: None, steps: false })
    }

    unsafe fn forget(&self, handle: u64) {
        self.imports.borrow_mut().remove(handle);
    }

    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        let peer = self.peer(request.peer, POST)?;
        let posted = match request.operation {
            Operation::Packet(packet) => self.send(request.peer, &packet)?,
            operation => {
                // SAFETY: the same contract.
                unsafe { self.perform_and_notify(request) }?;
                self.count(request);
                if matches!(operation, Operation::Signal { .. }) {
                    Posted::Done
                } else {
                    self.own().inbox().completions.push_back((request.id, Ok(())));
                    Posted::Pending
                }
            }
        };
        peer.wake();
        Ok(posted)
    }

    fn cancel(&self, which: &dyn Fn(u64) -> bool) {
        self.own().inbox().completions.retain(|(id, _)| !which(*id));
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        let Some(_entered) = Entered::new(&self.polling) else { return Ok(false) };
        let (packets, completions) = {
            let mut inbox = self.own().inbox();
            inbox.woken = false;
            (std::mem::take(&mut inbox.packets), std::mem::take(&mut inbox.completions))
        };
        let any = !packets.is_empty() || !completions.is_empty();
        for (source, bytes) in &packets {
            sink(Event::Packet { source: *source, bytes });
        }
        completions.into_iter().for_each(|(id, result)| sink(Event::Completed { id, result }));
        Ok(any)
    }

    fn park(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        let mut inbox = self.own().inbox();
        let work = inbox.woken || !inbox.packets.is_empty() || !inbox.completions.is_empty();
        match sleep {
            Sleep::Elsewhere(waker) => {
                inbox.waker = Some(Arc::clone(waker));
                work
            }
            Sleep::For(limit) => {
                drop(inbox);
                if work || ready() {
                    return true;
                }
                inbox = self.own().inbox();
                // A change since `ready` was called has set `woken` under the lock, so it is not missed.
                if !inbox.woken {
                    self.stats.add(Kind::Park, 0);
                    drop(self.own().event.wait_timeout(inbox, limit).unwrap_or_else(PoisonError::into_inner));
                }
                false
            }
        }
    }

    fn wake(&self, peer: u32) {
        if let Some(peer) = self.hub.0.get(peer as usize) {
            peer.wake();
        }
    }

    fn peer_waker(&self) -> Option<PeerWaker> {
        let hub = Arc::clone(&self.hub);
        Some(Arc::new(move |peer| hub.0.get(peer as usize).into_iter().for_each(Rank::wake)))
    }

    fn waker(&self) -> Result<Waker> {
        let (hub, me) = (Arc::clone(&self.hub), self.me as usize);
        Ok(Arc::new(move || hub.0[me].wake()))
    }

    fn check_peers(&self, _about: PeerCheck<'_>) -> Result<Option<u32>> {
        match self.hub.0.iter().position(|rank| rank.inbox().ended == Some(Leave::Lost)) {
            Some(lost) => Err(self
                .fail(ErrorKind::PeerLost, "check the other ranks", lost as u32)
                .cause("the peer's thread ended without leaving the job")),
            None => Ok(None),
        }
    }

    fn stats<'a>(&'a self, each: &mut dyn FnMut(&'static str, &'a Stats)) {
        each(self.capabilities.name, &self.stats);
    }

    fn leave(&self, how: Leave) -> Result<bool> {
        let ended = self.own().inbox().ended.replace(how);
        match ended {
            None if how == Leave::Lost => self.hub.0.iter().for_each(Rank::wake),
            None => {}
            // A rank leaves only once.
            ended => self.own().inbox().ended = ended,
        }
        Ok(true)
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        // Memory that this device allocated is freed with the device.
        self.owned.borrow().keys().for_each(|key| _ = self.own().exposures.remove(*key));
        let _ = self.leave(Leave::Lost);
    }
}
