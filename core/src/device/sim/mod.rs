#![allow(unsafe_code)]
//! The simulated network: ranks are coroutines of one thread, time is virtual, and one seed decides the order of events
//! that may happen in several orders.
//!
//! The device has the semantics of [`loopback`](super::loopback), but each message takes the time that a [`Network`]
//! determines, and takes effect on arrival. The code above the device seam is the same as on other devices; its own
//! work takes no time. Runs of the same program with the same seed are the same, event by event.

mod events;
mod flight;
pub(crate) mod network;
mod nodes;
mod switch;
mod topology;
mod trace;
pub(crate) mod world;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::loopback::{Loopback, MAX_PACKET, MAX_PACKETS};
use super::{
    Block, Capabilities, Device, Event, Leave, Lists, Operation, Packet, Parts, PeerCheck, Posted, Region,
    Registration, RemoteRegion, Sleep, WorkRequest,
};
use crate::device::owned::Owned;
use crate::device::request::length;
use crate::entered::Entered;
use crate::error::{ErrorKind, Result};
use crate::memory::copy;
use crate::memory::keys::AccumulateFn;
use crate::stats::{Kind, Stats};
use flight::{Flight, Incoming};
pub use network::{Flap, Interface, Network, Switch};
pub use nodes::Nodes;
pub use topology::Topology;
pub use trace::Trace;
use world::World;

/// Virtual time for which a rank with waiting futures sleeps without an event.
const ELSEWHERE: Duration = Duration::from_millis(1);

/// The simulated device of one rank.
pub(crate) struct Sim {
    me: u32,
    world: Rc<World>,
    /// The regions, and the operations on them.
    memory: Rc<Loopback>,
    /// Requests in progress, by their address.
    pending: RefCell<FxHashMap<*const Flight, Rc<Flight>>>,
    /// Number of packets to each peer that the peer has not received.
    untaken: Rc<RefCell<FxHashMap<u32, usize>>>,
    /// Number of registrations until one fails, if a failure is set.
    registrations: Cell<Option<usize>>,
    polling: Cell<bool>,
    /// Regions to be dropped once no message in transit uses them.
    forgotten: RefCell<Vec<u64>>,
}

impl Sim {
    pub(crate) fn new(world: &Rc<World>, me: u32, minimal: bool, registrations: Option<usize>) -> Self {
        let capabilities = Capabilities::minimal("sim", MAX_PACKET);
        let more = !minimal;
        let (placement, atomics) = (world.traffic.borrow().placement(), world.traffic.borrow().has_atomics());
        let capabilities = Capabilities {
            max_blocks: if more { 16 } else { 1 },
            placement,
            atomics,
            accumulate: more && atomics,
            own_by_copy: more,
            lists: more.then_some(world::lists::LIMITS),
            switch: world.switch_limits(),
            nodes: world.traffic.borrow().nodes(),
            ..capabilities
        };
        Self {
            me,
            world: Rc::clone(world),
            memory: Rc::new(Loopback::with(&world.hub, me, capabilities)),
            pending: RefCell::default(),
            untaken: Rc::clone(&world.ranks[me as usize].untaken),
            registrations: Cell::new(registrations),
            polling: Cell::new(false),
            forgotten: RefCell::default(),
        }
    }

    fn own(&self) -> &world::Rank {
        &self.world.ranks[self.me as usize]
    }

    /// Sends a message after the overhead of the processor.
    fn launch(&self, flight: &Rc<Flight>, request: &WorkRequest<'_>) {
        self.memory.count(request);
        let (costs, own) = (self.world.costs(self.me, flight.target), self.own());
        self.world.work(self.me, costs.send_overhead + costs.bytes(flight.operation.bytes().0));
        own.flying.set(own.flying.get() + 1);
        self.world.reset_idle_calls(self.me);
        self.world.launch(flight, self.world.clock(self.me));
    }

    fn send(&self, request: &WorkRequest<'_>, packet: &Packet<'_>) -> Result<Posted> {
        self.memory.check_packet(request.peer, packet)?;
        let room = &mut *self.untaken.borrow_mut();
        let untaken = room.entry(request.peer).or_default();
        if *untaken >= MAX_PACKETS {
            return Ok(Posted::Busy);
        }
        *untaken += 1;
        let mut bytes = self.world.buffers.take();
        bytes.reserve_exact(packet.len());
        // SAFETY: the blocks are valid by the contract of `post`.
        packet.with_parts(|header, body| unsafe { copy::gather(header, body, &mut bytes) });
        self.launch(&Flight::new(&self.memory, self.me, request, Owned::Packet(RefCell::new(bytes))), request);
        Ok(Posted::Done)
    }

    /// Posts a scatter or a gather.
    fn list(&self, request: &WorkRequest<'_>, send: bool, blocks: &[Block]) -> Result<Posted> {
        let Some(limits) = self.capabilities().lists else {
            return Err(request.operation.unsupported(request.peer, "sim"));
        };
        let bytes = length(blocks);
        if blocks.len() > limits.blocks || bytes > limits.bytes || request.notify.is_some() || request.peer == self.me {
            let e = self.memory.fail(ErrorKind::BadArgument, "post a list", request.peer);
            let Lists { blocks: most, bytes: longest } = limits;
            return Err(e.cause(format!(
                "the list has {} blocks and {bytes} bytes: at most {most} blocks and {longest} bytes to another rank, \
                 without a notification, are allowed",
                blocks.len()
            )));
        }
        let owned = Owned::List { send, local: Parts::from_slice(blocks) };
        let flight = Flight::new(&self.memory, self.me, request, owned);
        if send {
            self.launch(&flight, request);
        } else {
            self.memory.count(request);
            self.world.work(self.me, self.world.costs(self.me, request.peer).send_overhead);
            self.world.reset_idle_calls(self.me);
            self.world.scatter(&flight, self.world.clock(self.me));
        }
        self.pending.borrow_mut().insert(Rc::as_ptr(&flight), flight);
        Ok(Posted::Pending)
    }

    /// Returns the error for a lost rank, or for ranks that wait for each other.
    fn check(&self, operation: &'static str) -> Result<()> {
        self.world.check_still(self.me)?;
        match self.world.lost.get().filter(|lost| *lost != self.me) {
            None => Ok(()),
            Some(lost) => {
                let e = self.memory.fail(ErrorKind::PeerLost, operation, lost);
                Err(e.cause("the peer ended without leaving the job"))
            }
        }
    }
}

// SAFETY: memory is that of a loopback device, and a request stores its blocks until it is complete or cancelled.
unsafe impl Device for Sim {
    fn capabilities(&self) -> &Capabilities {
        self.memory.capabilities()
    }

    unsafe fn register(&self, region: Region) -> Result<Registration> {
        if let Some(left) = self.registrations.get() {
            self.registrations.set(left.checked_sub(1));
            if left == 0 {
                let e = self.world.fail(ErrorKind::Limit, self.me);
                return Err(e.cause("the simulation is set up to reject this registration"));
            }
        }
        // SAFETY: the same contract.
        unsafe { self.memory.register(region) }
    }

    unsafe fn release(&self, handle: u64) -> Result<()> {
        self.world.write_back(self.me);
        // SAFETY: the same contract. A message that arrives later finds no region.
        unsafe { self.memory.release(handle) }
    }

    fn import(&self, peer: u32, key: &[u8], accumulate: Option<AccumulateFn>) -> Result<RemoteRegion> {
        self.memory.import(peer, key, accumulate)
    }

    unsafe fn forget(&self, handle: u64) {
        let mut forgotten = self.forgotten.borrow_mut();
        forgotten.push(handle);
        if self.own().flying.get() == 0 {
            // SAFETY: the same contract.
            forgotten.drain(..).for_each(|handle| unsafe { self.memory.forget(handle) });
        }
    }

    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        self.world.catch_up(self.me)?;
        self.memory.check(request)?;
        let mut regions = request.operation.region().into_iter().chain(request.notify.map(|(at, _)| at.region));
        if regions.any(|region| self.forgotten.borrow().contains(&region)) {
            return Err(self.memory.fail(ErrorKind::BadKey, "post a work request", request.peer));
        }
        let posted = match request.operation {
            Operation::Packet(packet) => self.send(request, &packet)?,
            Operation::List { send, local } => self.list(request, send, local)?,
            Operation::Barrier(asked) => {
                let posted = self.world.ask(self.me, asked, request.id)?;
                if posted != Posted::Busy {
                    self.memory.count(request);
                    self.world.reset_idle_calls(self.me);
                }
                posted
            }
            operation => {
                let Some(owned) = Owned::of(&operation) else { return Ok(Posted::Done) };
                let flight = Flight::new(&self.memory, self.me, request, owned);
                self.launch(&flight, request);
                if !flight.completes() {
                    return Ok(Posted::Done);
                }
                self.pending.borrow_mut().insert(Rc::as_ptr(&flight), flight);
                Posted::Pending
            }
        };
        if posted == Posted::Busy {
            self.world.idle(self.me);
        }
        Ok(posted)
    }

    fn cancel(&self, which: &dyn Fn(u64) -> bool) {
        self.world.cancel(self.me, which);
        self.pending.borrow_mut().retain(|_, flight| {
            let cancelled = which(flight.id);
            if cancelled {
                flight.cancel();
            }
            !cancelled
        });
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        let Some(_entered) = Entered::new(&self.polling) else { return Ok(false) };
        self.world.catch_up(self.me)?;
        self.own().woken.set(false);
        self.world.receives.polled(self.me);
        let mut any = false;
        loop {
            // Packets are taken one by one, since the clock advances with each of them.
            let Some(incoming) = self.own().inbox.borrow_mut().pop_front() else { break };
            match incoming {
                Incoming::Packet { source, bytes } => {
                    let costs = self.world.costs(source, self.me);
                    self.world.work(self.me, costs.receive_overhead + costs.bytes(bytes.len()));
                    self.world.taken(source, self.me);
                    any = true;
                    sink(Event::Packet { source, bytes: &bytes });
                    self.world.buffers.recycle(bytes);
                }
                Incoming::Answered { id, result } => {
                    let costs = self.world.traffic.borrow().network_costs();
                    self.world.work(self.me, costs.receive_overhead);
                    any = true;
                    sink(Event::Completed { id, result });
                }
                Incoming::Completed { flight, result } => {
                    self.pending.borrow_mut().remove(&Rc::as_ptr(&flight));
                    if !flight.is_cancelled() {
                        any = true;
                        sink(Event::Completed { id: flight.id, result });
                    }
                }
            }
        }
        if any {
            self.world.reset_idle_calls(self.me);
        } else {
            self.world.idle(self.me);
        }
        Ok(any)
    }

    fn park(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        if self.world.catch_up(self.me).is_err() {
            return true;
        }
        let own = self.own();
        let work = || own.woken.get() || !own.inbox.borrow().is_empty();
        if work() || ready() || work() {
            return true;
        }
        // All ranks are on this thread, so a rank sleeps here even if it should sleep on another device, and is awake
        // afterwards.
        let (limit, elsewhere) = match sleep {
            Sleep::For(limit) => (limit, false),
            Sleep::Elsewhere(_) => (ELSEWHERE, true),
        };
        self.memory.counters().add(Kind::Park, 0);
        self.world.park(self.me, u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000));
        elsewhere
    }

    fn wake(&self, peer: u32) {
        if (peer as usize) < self.world.ranks.len() {
            self.world.wake(peer, self.world.clock(self.me));
        }
    }

    fn check_peers(&self, _about: PeerCheck<'_>) -> Result<Option<u32>> {
        self.world.catch_up(self.me)?;
        self.world.idle(self.me);
        self.check("check the other ranks").map(|()| None)
    }

    fn now(&self) -> Instant {
        self.world.idle(self.me);
        self.world.now(self.me)
    }

    fn compute(&self, time: Duration) {
        self.world.work(self.me, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 1000).saturating_mul(1000));
        // Other ranks run meanwhile. The next call reports an error.
        let _ = self.world.catch_up(self.me);
    }

    fn stats<'a>(&'a self, each: &mut dyn FnMut(&'static str, &'a Stats)) {
        self.memory.stats(each);
    }

    fn leave(&self, how: Leave) -> Result<bool> {
        let own = self.own();
        // A rank may end although a scatter has received nothing.
        let is_open = |flight: &Rc<Flight>| !matches!(flight.operation, Owned::List { send: false, .. });
        if how != Leave::Lost && (own.flying.get() > 0 || self.pending.borrow().values().any(is_open)) {
            return Ok(false);
        }
        if own.ended.get().is_none() {
            own.ended.set(Some(how));
            // The reference device has no waiting ranks to check.
            let _ = self.memory.leave(Leave::Early);
            if how == Leave::Lost {
                self.world.lose(self.me);
            }
        }
        Ok(true)
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.cancel(&|_| true);
        // The words that the interface holds are written back before the memory is released.
        self.world.write_back(self.me);
        let _ = self.leave(Leave::Lost);
    }
}
