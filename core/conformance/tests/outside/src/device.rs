//! A device whose ranks are threads that exchange messages over channels. Each rank has a server thread, which carries
//! out the requests of other ranks on the rank's memory, and replies. The device has only the required features:
//! packets, writes, reads and atomics on words of 8 bytes.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use farside_core::device::imports::{self, ImportedRegion};
use farside_core::device::{
    Block, Capabilities, Change, Device, Event, Leave, Operation, PeerCheck, Place, Posted, Range, Ranges, Region,
    Registration, RemoteRegion, Sleep, Transfer, Update, WorkRequest,
};
use farside_core::memory::copy;
use farside_core::memory::keys::{AccumulateFn, Exposed, Exposures};
use farside_core::stats::{Kind, Stats};
use farside_core::wire::{Reader, Writer};
use farside_core::{Error, ErrorKind, Result};

const NAME: &str = "channels";
const MAX_PACKET: usize = 2048;
pub const MAX_PACKETS: usize = 50; // that may wait for one rank

/// A remote address at its owner.
#[derive(Debug)]
struct Target {
    key: u64,
    offset: usize,
}

/// An operation of a server on a remote address.
#[derive(Debug)]
enum Action {
    Write(Vec<u8>),
    Read(usize),
    Add(u64),
    Swap { expected: u64, desired: u64 },
    Set(u64),
}

/// A request of a rank to a server.
#[derive(Debug)]
struct Request {
    origin: u32,
    /// Comes back in the reply; `None` for a signal, which has no reply.
    ticket: Option<u64>,
    at: Target,
    action: Action,
    notify: Option<(Target, u64)>,
}

/// Events that wait for a rank.
#[derive(Debug, Default)]
struct Inbox {
    packets: VecDeque<(u32, Vec<u8>)>,
    replies: Vec<(u64, std::result::Result<Vec<u8>, ErrorKind>)>,
    /// Whether the memory of this rank has changed since its last poll.
    changed: bool,
    ended: Option<Leave>,
}

#[derive(Debug)]
struct Rank {
    inbox: Mutex<Inbox>,
    event: Condvar,
    exposures: Exposures,
    /// Sends requests to the rank's server; `None` ends it.
    server: Sender<Option<Request>>,
    /// Taken by the server.
    requests: Mutex<Option<Receiver<Option<Request>>>>,
}

impl Rank {
    fn new() -> Self {
        let (server, requests) = channel();
        let requests = Mutex::new(Some(requests));
        Self { inbox: Mutex::default(), event: Condvar::new(), exposures: Exposures::default(), server, requests }
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Inbox)) {
        let mut inbox = self.inbox();
        inbox.changed = true;
        change(&mut inbox);
        self.event.notify_one();
    }

    /// Carries out a request; returns the bytes of the reply.
    fn act(&self, at: &Target, action: Action) -> std::result::Result<Vec<u8>, ErrorKind> {
        let (len, is_word) = match &action {
            Action::Write(bytes) => (bytes.len(), false),
            Action::Read(len) => (*len, false),
            _ => (8, true),
        };
        let done = self.exposures.with(at.key, at.offset as u64, len, |p, _| {
            if is_word && !p.addr().is_multiple_of(8) {
                return Err(ErrorKind::Misaligned);
            }
            // SAFETY: the table has checked the range and keeps it while this runs; a word is aligned.
            unsafe {
                let word = |act: &dyn Fn(&AtomicU64) -> u64| act(AtomicU64::from_ptr(p.cast())).to_ne_bytes().to_vec();
                Ok(match action {
                    Action::Write(bytes) => {
                        copy::store(bytes.as_ptr(), p, len);
                        Vec::new()
                    }
                    Action::Read(_) => {
                        let mut bytes = vec![0; len];
                        copy::load(p, bytes.as_mut_ptr(), len);
                        bytes
                    }
                    Action::Add(add) => word(&|w| w.fetch_add(add, SeqCst)),
                    Action::Swap { expected, desired } => {
                        word(&|w| w.compare_exchange(expected, desired, SeqCst, SeqCst).unwrap_or_else(|old| old))
                    }
                    Action::Set(value) => word(&|w| w.swap(value, SeqCst)),
                })
            }
        });
        done.ok_or(ErrorKind::BadKey)?.ok_or(ErrorKind::OutOfRange)?
    }
}

/// The network that connects the ranks of a job.
#[derive(Debug)]
pub struct Network(Vec<Rank>);

impl Network {
    pub fn new(ranks: u32) -> Arc<Self> {
        Arc::new(Self((0..ranks).map(|_| Rank::new()).collect()))
    }

    /// Serves the requests for the memory of rank `me`.
    fn serve(&self, me: usize, requests: &Receiver<Option<Request>>) {
        let own = &self.0[me];
        while let Ok(Some(request)) = requests.recv() {
            let Request { origin, ticket, at, action, notify } = request;
            let mut result = own.act(&at, action);
            if let (Ok(_), Some((cell, value))) = (&result, notify) {
                result = own.act(&cell, Action::Set(value)).and(result);
            }
            own.change(|_| {});
            if let Some(ticket) = ticket {
                self.0[origin as usize].change(|inbox| inbox.replies.push((ticket, result)));
            }
        }
    }
}

/// A request that has no reply yet.
#[derive(Debug)]
struct Pending {
    id: u64,
    peer: u32,
    /// Destination of the bytes of the reply.
    into: Vec<Block>,
}

/// A peer's region.
#[derive(Debug)]
struct Import {
    peer: u32,
    key: u64,
}

impl ImportedRegion for Import {
    fn peer(&self) -> u32 {
        self.peer
    }
}

/// The device of one rank.
#[derive(Debug)]
pub struct Channels {
    me: u32,
    network: Arc<Network>,
    capabilities: Capabilities,
    stats: Stats,
    server: Option<JoinHandle<()>>,
    /// Regions by handle, which is the key: memory that the device has allocated; empty for memory of the caller.
    owned: RefCell<HashMap<u64, Vec<u64>>>,
    /// Imports by handle.
    imports: RefCell<HashMap<u64, Import>>,
    pending: RefCell<HashMap<u64, Pending>>,
    last: Cell<u64>,
    polling: Cell<bool>,
}

impl Channels {
    pub fn new(network: &Arc<Network>, me: u32) -> Self {
        let requests = network.0[me as usize].requests.lock().unwrap().take().expect("one device for each rank");
        let all = Arc::clone(network);
        Self {
            me,
            network: Arc::clone(network),
            capabilities: Capabilities::minimal(NAME, MAX_PACKET),
            stats: Stats::default(),
            server: Some(std::thread::spawn(move || all.serve(me as usize, &requests))),
            owned: RefCell::default(),
            imports: RefCell::default(),
            pending: RefCell::default(),
            last: Cell::new(1),
            polling: Cell::new(false),
        }
    }

    fn fail(&self, kind: ErrorKind, operation: &'static str, peer: u32) -> Error {
        Error::new(kind, operation).rank(self.me).peer(peer).device(NAME)
    }

    fn own(&self) -> &Rank {
        &self.network.0[self.me as usize]
    }

    fn peer(&self, peer: u32) -> Result<&Rank> {
        self.network.0.get(peer as usize).ok_or_else(|| self.fail(ErrorKind::NoSuchRank, "post a work request", peer))
    }

    fn target(&self, peer: u32, Place { region, offset }: Place) -> Result<Target> {
        let imports = self.imports.borrow();
        let import = imports::region(imports.get(&region), peer, region, "post a work request");
        import.map(|import| Target { key: import.key, offset }).map_err(|e| e.rank(self.me).device(NAME))
    }

    fn next(&self) -> u64 {
        self.last.replace(self.last.get() + 1)
    }

    fn send(&self, peer: u32, packet: Vec<u8>) -> Result<Posted> {
        if packet.len() > MAX_PACKET {
            return Err(self.fail(ErrorKind::BadArgument, "send a packet", peer));
        }
        let (to, len) = (self.peer(peer)?, packet.len());
        if to.inbox().packets.len() >= MAX_PACKETS {
            return Ok(Posted::Busy);
        }
        to.change(|inbox| inbox.packets.push_back((self.me, packet)));
        self.stats.add(Kind::Send, len);
        Ok(Posted::Done)
    }
}

// SAFETY: it maps no memory of peers; what it allocates lives until the release, and local memory is accessed in `post` and
// `poll` only, by requests that are not complete.
unsafe impl Device for Channels {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn register(&self, region: Region) -> Result<Registration> {
        let Region { mut base, len, accumulate, align, .. } = region;
        let mut words = Vec::<u64>::new();
        if base.is_null() {
            // Up to `align` bytes are skipped to align the first one.
            let count = len.saturating_add(align).div_ceil(8);
            let room = words.try_reserve_exact(count);
            room.map_err(|e| self.fail(ErrorKind::Limit, "allocate memory", self.me).cause(e.to_string()))?;
            words.resize(count, 0);
            base = words.as_mut_ptr().cast::<u8>();
            base = base.wrapping_add(base.addr().wrapping_neg() % align);
        }
        // SAFETY: memory of the caller by the contract; that of the device is kept until `release`.
        let handle = unsafe { self.own().exposures.insert(Exposed { base, len, accumulate }) };
        self.owned.borrow_mut().insert(handle, words);
        Ok(Registration { base, len, key: Writer::new().u64(handle).u64(len as u64).done(), handle })
    }

    unsafe fn release(&self, handle: u64) -> Result<()> {
        self.own().exposures.remove(handle);
        let memory = self.owned.borrow_mut().remove(&handle);
        memory.map(drop).ok_or_else(|| self.fail(ErrorKind::Freed, "release memory", self.me))
    }

    fn import(&self, peer: u32, key: &[u8], _: Option<AccumulateFn>) -> Result<RemoteRegion> {
        self.peer(peer)?;
        let mut reader = Reader::new(key);
        let (Some(key), Some(len)) = (reader.u64(), reader.u64()) else {
            return Err(self.fail(ErrorKind::Protocol, "import a region", peer));
        };
        let handle = self.next();
        self.imports.borrow_mut().insert(handle, Import { peer, key });
        Ok(RemoteRegion { peer, len: len as usize, handle, mapped: None, lists: None, steps: false })
    }

    unsafe fn forget(&self, handle: u64) {
        self.imports.borrow_mut().remove(&handle);
    }

    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        let WorkRequest { peer, operation, notify, id } = *request;
        let to = self.peer(peer)?;
        let (mut into, mut bytes) = (Vec::new(), Vec::new());
        let (place, action) = match operation {
            Operation::Packet(packet) => {
                // SAFETY: the blocks of the request are valid by the contract.
                packet.with_parts(|header, body| unsafe { copy::gather(header, body, &mut bytes) });
                return self.send(peer, bytes);
            }
            Operation::Transfer(Transfer { write, local, region, ranges: Ranges::One(Range { offset, len }) }) => {
                let place = Place { region, offset };
                if write {
                    // SAFETY: as above.
                    unsafe { copy::gather(&[], local, &mut bytes) };
                    (place, Action::Write(bytes))
                } else {
                    into.extend_from_slice(local);
                    (place, Action::Read(len))
                }
            }
            Operation::Update(Update { change, at, len: 8, old }) => {
                if !old.is_null() {
                    into.push(Block { base: old, len: 8 });
                }
                match change {
                    Change::Add(add) => (at, Action::Add(add)),
                    Change::CompareSwap { expected, desired } => (at, Action::Swap { expected, desired }),
                    Change::Accumulate { .. } => return Err(operation.unsupported(peer, NAME)),
                }
            }
            Operation::Signal { at, value } => (at, Action::Set(value)),
            _ => return Err(operation.unsupported(peer, NAME)),
        };
        let at = self.target(peer, place)?;
        let notify = notify.map(|(cell, value)| Ok((self.target(peer, cell)?, value))).transpose()?;
        let ticket = (!matches!(operation, Operation::Signal { .. })).then(|| self.next());
        if let Some(ticket) = ticket {
            self.pending.borrow_mut().insert(ticket, Pending { id, peer, into });
        }
        let request = Request { origin: self.me, ticket, at, action, notify };
        let sent = to.server.send(Some(request));
        sent.map_err(|_| self.fail(ErrorKind::PeerLost, "post a work request", peer))?;
        let (kind, len) = operation.counted();
        self.stats.add(kind, len);
        Ok(if ticket.is_some() { Posted::Pending } else { Posted::Done })
    }

    fn cancel(&self, which: &dyn Fn(u64) -> bool) {
        self.pending.borrow_mut().retain(|_, p| !which(p.id));
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        if self.polling.replace(true) {
            return Ok(false);
        }
        let (packets, replies) = {
            let mut inbox = self.own().inbox();
            inbox.changed = false;
            (std::mem::take(&mut inbox.packets), std::mem::take(&mut inbox.replies))
        };
        let any = !packets.is_empty() || !replies.is_empty();
        packets.iter().for_each(|(source, bytes)| sink(Event::Packet { source: *source, bytes }));
        for (ticket, reply) in replies {
            let Some(Pending { id, peer, into }) = self.pending.borrow_mut().remove(&ticket) else { continue };
            let result = reply.map_err(|kind| self.fail(kind, "complete a work request", peer)).map(|bytes| {
                // SAFETY: the request was not cancelled, so that its blocks are valid.
                unsafe { copy::scatter(&bytes, &into) };
            });
            sink(Event::Completed { id, result });
        }
        self.polling.set(false);
        Ok(any)
    }

    fn park(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        let Sleep::For(limit) = sleep else { return true };
        if self.own().inbox().changed || ready() {
            return true;
        }
        let inbox = self.own().inbox();
        if !inbox.changed {
            self.stats.add(Kind::Park, 0);
            drop(self.own().event.wait_timeout(inbox, limit));
        }
        false
    }

    fn check_peers(&self, _: PeerCheck<'_>) -> Result<Option<u32>> {
        match self.network.0.iter().position(|rank| rank.inbox().ended == Some(Leave::Lost)) {
            Some(lost) => Err(self.fail(ErrorKind::PeerLost, "check the other ranks", lost as u32)),
            None => Ok(None),
        }
    }

    fn stats<'a>(&'a self, each: &mut dyn FnMut(&'static str, &'a Stats)) {
        each(self.capabilities.name, &self.stats);
    }

    fn leave(&self, how: Leave) -> Result<bool> {
        self.own().inbox().ended.get_or_insert(how);
        self.network.0.iter().for_each(|rank| rank.change(|_| {}));
        Ok(true)
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        let _ = self.leave(Leave::Lost);
        let _ = self.own().server.send(None);
        let _ = self.server.take().map(JoinHandle::join);
    }
}
