#![allow(unsafe_code)]
//! A card for tests: ranks are threads, and what crosses the network is done at once under the lock of the target.
//!
//! Its atomics are a load and a store under that lock, so they are atomic among themselves and with nothing else: a word
//! that a processor changed at the same time would lose updates, as with a card that is not coherent.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::Far;
use crate::device::{
    Atomics, Capabilities, CutOffs, Device, Event, Operation, Place, Posted, Region, Registration, RemoteRegion,
    WorkRequest,
};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::copy;
use crate::memory::keys::AccumulateFn;
use crate::stats::{Kind, Snapshot, Stats};
use crate::wire::{Reader, Writer};

#[derive(Clone, Copy)]
struct Exposed {
    base: *mut u8,
    len: usize,
}

// SAFETY: reached under the seat's lock, as long as the region is registered.
unsafe impl Send for Exposed {}

/// What the network holds for one rank.
#[derive(Default)]
struct Seat {
    packets: VecDeque<(u32, Vec<u8>)>,
    done: VecDeque<u64>,
    regions: FxHashMap<u64, Exposed>,
    bell: Option<Box<dyn Fn() + Send + Sync>>,
    armed: bool,
    left: bool,
    lost: bool,
}

impl Seat {
    fn event(&mut self) {
        if let (true, Some(bell)) = (std::mem::take(&mut self.armed), &self.bell) {
            bell();
        }
    }
}

/// The network.
pub(super) struct Hub(Vec<Mutex<Seat>>);

impl Hub {
    pub(super) fn new(ranks: u32) -> Arc<Self> {
        Arc::new(Self((0..ranks).map(|_| Mutex::default()).collect()))
    }

    fn seat(&self, rank: u32) -> MutexGuard<'_, Seat> {
        self.0[rank as usize].lock().unwrap()
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct Wire {
    me: u32,
    hub: Arc<Hub>,
    capabilities: Capabilities,
    stats: Stats,
    last: Cell<u64>,
    owned: RefCell<FxHashMap<u64, Box<[u64]>>>,
    imports: RefCell<FxHashMap<u64, (u32, u64, usize)>>,
}

impl Wire {
    pub(super) fn new(me: u32, hub: &Arc<Hub>) -> Self {
        let capabilities = Capabilities {
            max_blocks: 16,
            inline_bytes: 0,
            max_packet: 1000,
            atomics: Atomics::Device,
            ordered: true,
            mappable: false,
            accumulate: false,
            lists: None,
            cut_offs: CutOffs::UNMEASURED,
            sleepers_fence: false,
            own_by_copy: true,
        };
        let (owned, imports) = Default::default();
        Self { me, hub: Arc::clone(hub), capabilities, stats: Stats::default(), last: Cell::new(0), owned, imports }
    }

    fn fresh(&self) -> u64 {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    fn expose(&self, base: *mut u8, len: usize) -> Registration {
        let handle = self.fresh();
        self.hub.seat(self.me).regions.insert(handle, Exposed { base, len });
        Registration { base, len, key: Writer::new().u64(handle).u64(len as u64).done(), handle }
    }

    fn find(&self, seat: &Seat, peer: u32, at: Place, len: usize) -> Result<*mut u8> {
        let fail = |kind| Error::new(kind, "use the test's network").peer(peer).device("wire");
        let imports = self.imports.borrow();
        let (owner, id, _) = imports.get(&at.region).copied().ok_or_else(|| fail(ErrorKind::BadKey))?;
        if owner != peer {
            return Err(fail(ErrorKind::BadArgument));
        }
        let region = seat.regions.get(&id).ok_or_else(|| fail(ErrorKind::BadKey))?;
        match at.offset.checked_add(len) {
            Some(end) if end <= region.len => Ok(region.base.wrapping_add(at.offset)),
            _ => Err(fail(ErrorKind::OutOfRange)),
        }
    }

    fn word(&self, seat: &Seat, peer: u32, at: Place) -> Result<&AtomicU64> {
        let word = self.find(seat, peer, at, 8)?;
        // SAFETY: inside a region of its owner, aligned as all regions of these tests are, an atomic for all.
        Ok(unsafe { AtomicU64::from_ptr(word.cast()) })
    }
}

impl Device for Wire {
    fn name(&self) -> &'static str {
        "wire"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn allocate(&self, len: usize, _region: Region) -> Result<Registration> {
        let mut words = vec![0u64; len.div_ceil(8)].into_boxed_slice();
        let made = self.expose(words.as_mut_ptr().cast(), len);
        self.owned.borrow_mut().insert(made.handle, words);
        Ok(made)
    }

    unsafe fn register(&self, region: Region) -> Result<Registration> {
        Ok(self.expose(region.base, region.len))
    }

    unsafe fn release(&self, handle: u64) -> Result<()> {
        let known = self.hub.seat(self.me).regions.remove(&handle).is_some();
        self.owned.borrow_mut().remove(&handle);
        if known { Ok(()) } else { Err(Error::new(ErrorKind::Freed, "release a region").device("wire")) }
    }

    fn settled(&self, _handle: u64) {}

    fn import(&self, peer: u32, key: &[u8], _accumulate: Option<AccumulateFn>) -> Result<RemoteRegion> {
        let mut r = Reader::new(key);
        let fields = (|| Some((r.u64()?, r.u64()? as usize)))();
        let (id, len) = fields.ok_or_else(|| Error::new(ErrorKind::Protocol, "import").peer(peer).device("wire"))?;
        let handle = self.fresh();
        self.imports.borrow_mut().insert(handle, (peer, id, len));
        Ok(RemoteRegion { peer, len, handle, mapped: None, lists: None })
    }

    unsafe fn forget(&self, handle: u64) {
        self.imports.borrow_mut().remove(&handle);
    }

    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        let mut seat = self.hub.seat(request.peer);
        let kind = match request.operation {
            Operation::Send { header, body } => {
                let mut bytes = header.to_vec();
                for b in body {
                    let at = bytes.len();
                    bytes.resize(at + b.len, 0);
                    // SAFETY: the block by the contract; room was just made.
                    unsafe { copy::load(b.base, bytes[at..].as_mut_ptr(), b.len) };
                }
                seat.packets.push_back((self.me, bytes));
                Kind::Send
            }
            Operation::Signal { at, value } => {
                self.word(&seat, request.peer, at)?.store(value, Ordering::SeqCst);
                Kind::Signal
            }
            Operation::Write { from, to } => {
                let mut to = self.find(&seat, request.peer, to, from.iter().map(|b| b.len).sum())?;
                for b in from {
                    // SAFETY: a checked range; the block by the contract.
                    unsafe { copy::store(b.base, to, b.len) };
                    to = to.wrapping_add(b.len);
                }
                Kind::Write
            }
            Operation::Read { into, from } => {
                let mut from = self.find(&seat, request.peer, from, into.iter().map(|b| b.len).sum())?;
                for b in into {
                    // SAFETY: as above.
                    unsafe { copy::load(from, b.base, b.len) };
                    from = from.wrapping_add(b.len);
                }
                Kind::Read
            }
            Operation::FetchAdd { at, add, old } => {
                let word = self.word(&seat, request.peer, at)?;
                let former = word.load(Ordering::SeqCst);
                std::thread::yield_now();
                word.store(former.wrapping_add(add), Ordering::SeqCst);
                // SAFETY: by the contract.
                unsafe { *old = former };
                Kind::FetchAdd
            }
            Operation::Scatter { .. } | Operation::Gather { .. } => {
                return Err(crate::device::no_lists(request.peer, "wire"));
            }
            Operation::CompareSwap { .. }
            | Operation::Accumulate { .. }
            | Operation::WriteBlocks { .. }
            | Operation::ReadBlocks { .. } => {
                return Err(Error::new(ErrorKind::Unsupported, "use the test's network").device("wire"));
            }
        };
        self.stats.add(kind, 0);
        if let Some((at, value)) = request.notify {
            self.word(&seat, request.peer, at)?.store(value, Ordering::SeqCst);
            self.stats.add(Kind::Notify, 8);
        }
        seat.event();
        drop(seat);
        if matches!(kind, Kind::Send | Kind::Signal) {
            return Ok(Posted::Done);
        }
        let mut own = self.hub.seat(self.me);
        own.done.push_back(request.id);
        own.event();
        Ok(Posted::Pending)
    }

    fn cancel(&self, which: &dyn Fn(u64) -> bool) {
        self.hub.seat(self.me).done.retain(|id| !which(*id));
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        let mut seat = self.hub.seat(self.me);
        let (packets, done) = (std::mem::take(&mut seat.packets), std::mem::take(&mut seat.done));
        drop(seat);
        let any = !packets.is_empty() || !done.is_empty();
        for (source, bytes) in &packets {
            sink(Event::Packet { source: *source, bytes });
        }
        done.into_iter().for_each(|id| sink(Event::Completed { id, result: Ok(()) }));
        Ok(any)
    }

    fn pending(&self) -> bool {
        true
    }

    fn park(&self, _limit: Duration, _ready: &mut dyn FnMut() -> bool) {}

    fn wake(&self, _peer: u32) {}

    fn attending(&self, _inside: bool) {}

    fn check_peers(&self) -> Result<()> {
        match (0..self.hub.0.len() as u32).find(|r| self.hub.seat(*r).lost) {
            Some(rank) => Err(Error::new(ErrorKind::PeerLost, "check the other ranks").peer(rank).device("wire")),
            None => Ok(()),
        }
    }

    fn shares_memory(&self, _peer: u32) -> bool {
        false
    }

    fn counters(&self) -> Snapshot {
        self.stats.snapshot()
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn leave(&self) {
        self.hub.seat(self.me).left = true;
    }

    fn abandon(&self) {
        let mut own = self.hub.seat(self.me);
        own.lost = !own.left;
        drop(own);
        (0..self.hub.0.len() as u32).for_each(|r| self.hub.seat(r).event());
    }
}

impl Far for Wire {
    fn attach(&self, bell: Box<dyn Fn() + Send + Sync>) -> Result<()> {
        self.hub.seat(self.me).bell = Some(bell);
        Ok(())
    }

    fn arm(&self) -> bool {
        let mut own = self.hub.seat(self.me);
        own.armed = true;
        !own.packets.is_empty() || !own.done.is_empty()
    }

    fn give_up(&self, _lost: &Error) {}
}
