#![allow(unsafe_code)]
//! The verbs device, for ranks connected by an RDMA network, over reliable queue pairs.
//!
//! The HCA executes writes, reads and atomics; the target's processor is not involved. A notification is sent as
//! immediate data of the write that it announces. Packets are received through a shared receive queue.
//!
//! A rank has one queue pair for the requests that it sends to a peer, created with its first request, and another for
//! each peer that sends requests to it. An agent thread answers connection requests while the rank computes. Lost peers
//! are detected by requests and datagrams that stay unanswered.

mod adapter;
mod address;
mod connect;
mod limit;
mod memory;
mod partition;
mod port;
mod post;
mod start;
mod status;
mod sys;
mod wait;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

pub(crate) use start::{Prepared, has_port, report};

use super::{
    Capabilities, Device, Event, Leave, PeerCheck, Posted, Region, Registration, RemoteRegion, Sleep, Waker,
    WorkRequest,
};
use crate::entered::Entered;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::keys::AccumulateFn;
use crate::stats::{Kind, Stats};
use address::Message;
use connect::agent::Agent;
use connect::credits;
use connect::datagrams::Endpoint;
use connect::links::Links;
use connect::liveness::{Heartbeat, Suspects};
use memory::buffers::Receives;
use post::CANCEL_TIMEOUT;
use post::engine::Engine;
use post::notices::KnownSlots;
use sys::queue::{Channel, Completion, Completions};
use wait::Elsewhere;

/// While requests are outstanding, one of this many consecutive polls checks for receives.
const MAX_SKIPPED_POLLS: u32 = 4;

fn broken(e: std::io::Error) -> Error {
    Error::system("poll for completions", e).device("verbs")
}

/// Opcode of a receive of a packet.
const RECEIVE: u32 = rdma_sys::ibv_wc_opcode::IBV_WC_RECV;

/// The verbs device of one rank. Fields are dropped in this order: the agent, queue pairs, then memory.
pub(crate) struct VerbsDevice {
    agent: RefCell<Option<Agent>>,
    engine: RefCell<Engine>,
    links: Arc<Links>,
    receives: RefCell<Receives>,
    sends_done: Arc<Completions>,
    receives_done: Arc<Completions>,
    channel: Arc<Channel>,
    capabilities: Capabilities,
    stats: Rc<Stats>,
    /// Completions of receives that were polled but not yet processed, each with the rank that sent the message.
    stash: RefCell<VecDeque<(Option<u32>, Completion)>>,
    /// Sources of packets whose buffers are about to be posted again.
    taken: RefCell<Vec<u32>>,
    /// Rank served by each responder, by queue pair number, recorded at the first completion of the responder.
    sources: RefCell<FxHashMap<u32, u32>>,
    known: RefCell<KnownSlots>,
    heartbeat: RefCell<Heartbeat>,
    suspects: RefCell<Suspects>,
    polling: Cell<bool>,
    /// Number of consecutive polls that have not checked for receives.
    passed: Cell<u32>,
    left: Cell<bool>,
}

impl VerbsDevice {
    fn new(
        links: Arc<Links>,
        endpoint: Endpoint,
        receives: Receives,
        engine: Engine,
        capabilities: Capabilities,
        patience: (Duration, Duration),
        stats: Rc<Stats>,
    ) -> Result<Self> {
        let heartbeat = Heartbeat::new(&links.addresses, links.me, patience)?;
        let agent = Agent::start(&links, endpoint)?;
        Ok(Self {
            agent: RefCell::new(Some(agent)),
            engine: RefCell::new(engine),
            receives: RefCell::new(receives),
            sends_done: Arc::clone(&links.sending.sends),
            receives_done: Arc::clone(&links.sending.receives),
            channel: Arc::clone(&links.channel),
            links,
            capabilities,
            stats,
            heartbeat: RefCell::new(heartbeat),
            stash: RefCell::default(),
            taken: RefCell::default(),
            sources: RefCell::default(),
            known: RefCell::default(),
            suspects: RefCell::default(),
            polling: Cell::new(false),
            passed: Cell::new(0),
            left: Cell::new(false),
        })
    }

    /// The rank served by responder `number`.
    fn source(&self, number: u32) -> Option<u32> {
        let mut sources = self.sources.borrow_mut();
        if let Some(source) = sources.get(&number) {
            return Some(*source);
        }
        let source = self.links.lock().responders.source(number)?;
        sources.insert(number, source);
        Some(source)
    }

    /// Processes a completion of a receive.
    fn received(&self, source: Option<u32>, c: &Completion, sink: &mut dyn FnMut(Event<'_>)) {
        if source.is_none() {
            tracing::warn!("a message to queue pair {}, which serves no rank, was dropped", c.qp);
        }
        if let (0, Some(source)) = (c.status, source) {
            self.heartbeat.borrow_mut().alive(source);
            match (c.opcode, c.immediate) {
                (RECEIVE, Some(immediate)) => {
                    // SAFETY: this completion has returned the buffer, which is posted again below.
                    let bytes = unsafe { self.receives.borrow().bytes(c.id, c.len) };
                    if let Some(taken) = credits::advertised(immediate) {
                        self.engine.borrow_mut().out.credits[source as usize].received(taken);
                        self.taken.borrow_mut().push(source);
                        sink(Event::Packet { source, bytes });
                    } else if !self.known.borrow_mut().define(source, bytes) {
                        tracing::warn!("a malformed control packet from rank {source} was dropped");
                    }
                }
                (_, Some(immediate)) => {
                    if let Some(((number, offset), low)) = self.known.borrow().cell(source, immediate) {
                        // A released region has no cells.
                        self.engine.borrow().regions.raise(number, offset, low);
                    }
                }
                (_, None) => {}
            }
        }
        self.receives.borrow_mut().return_buffer(c.id);
    }

    /// Polls for completions of receives unless the stash holds some; returns whether it holds any now.
    fn take_receives(&self) -> Result<bool> {
        if self.stash.borrow().is_empty() {
            self.stash_receives()?;
        }
        Ok(!self.stash.borrow().is_empty())
    }

    /// Polls for completions of receives; returns whether there were any.
    fn stash_receives(&self) -> Result<bool> {
        let mut stash = self.stash.borrow_mut();
        let found = self.receives_done.poll(|c| stash.push_back((self.source(c.qp), c)));
        Ok(found.map_err(broken)? > 0)
    }

    /// Destroys the responders that were replaced and have flushed, once all their completions have been polled.
    fn end_responders(&self) -> Result<()> {
        let flushed = self.links.lock().responders.flushed(Instant::now());
        if flushed.is_empty() {
            return Ok(());
        }
        // The loop terminates because buffers are not posted again meanwhile.
        while self.stash_receives()? {}
        for (number, responder) in flushed {
            self.links.lock().responders.forget(number);
            self.sources.borrow_mut().remove(&number);
            drop(responder);
        }
        Ok(())
    }

    /// Processes completions of requests; returns whether there were any.
    #[inline]
    fn take_sends(&self, engine: &mut Engine) -> Result<bool> {
        let taken = self.sends_done.poll(|c| {
            if c.status == 0 {
                self.heartbeat.borrow_mut().alive(post::peer_of(c.id) as u32);
            }
            engine.completed(&c);
        });
        Ok(taken.map_err(broken)? > 0)
    }

    /// One poll of a waiting rank: it polls one or two completion queues, and does little else while no completion
    /// arrives. While requests are outstanding the rank usually waits for these, so only one poll in
    /// [`MAX_SKIPPED_POLLS`] checks for receives.
    fn poll_all(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        let mut engine = self.engine.borrow_mut();
        let mut any = self.take_sends(&mut engine)?;
        let waits = any || engine.out.open > 0;
        let passed = if waits && self.stash.borrow().is_empty() { self.passed.get() + 1 } else { MAX_SKIPPED_POLLS };
        self.passed.set(passed % MAX_SKIPPED_POLLS);
        if passed == MAX_SKIPPED_POLLS {
            drop(engine);
            any |= self.serve_receives(sink)?;
            engine = self.engine.borrow_mut();
        }
        engine.poll_sgrs()?;
        engine.drive();
        let (to_self, ended) = (engine.to_self.len(), engine.out.done.len());
        drop(engine);
        // Packets that their handlers send are delivered by the next poll.
        for _ in 0..to_self {
            let Some(bytes) = self.engine.borrow_mut().to_self.pop_front() else { break };
            any = true;
            sink(Event::Packet { source: self.links.me, bytes: &bytes });
        }
        for _ in 0..ended {
            // A handler may have cancelled the operation.
            let Some((id, result)) = self.engine.borrow_mut().out.done.pop_front() else { break };
            any = true;
            match result {
                Err(e) if e.kind() == ErrorKind::BadKey => self.suspects.borrow_mut().suspect(id, e, &self.links),
                result => sink(Event::Completed { id, result }),
            }
        }
        if !self.suspects.borrow().is_empty() {
            any |= self.ask_suspects(sink);
        }
        Ok(any)
    }

    /// Processes received messages; returns whether there were any.
    fn serve_receives(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        if !self.take_receives()? {
            return Ok(false);
        }
        loop {
            let Some((source, c)) = self.stash.borrow_mut().pop_front() else { break };
            self.received(source, &c, sink);
        }
        self.replenish()?;
        let engine = self.engine.borrow();
        for source in self.taken.borrow_mut().drain(..) {
            // Release: the buffer was posted again before its packet is counted.
            engine.regions.taken(source).fetch_add(1, Ordering::Release);
        }
        Ok(true)
    }

    /// Reports operations that failed because of their key, once it is known whether the peer is lost.
    #[cold]
    fn ask_suspects(&self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let lost = self.check_peers(PeerCheck::Alive).err();
        let known = self.suspects.borrow_mut().known(lost.as_ref(), &self.links, self.heartbeat.borrow().silence());
        let any = !known.is_empty();
        for (id, e) in known {
            sink(Event::Completed { id, result: Err(e) });
        }
        any
    }

    /// Processes completions without reporting events: those of requests, and notifications up to the first packet.
    /// Returns whether work is left for `poll`.
    fn absorb(&self) -> Result<bool> {
        self.engine.borrow_mut().poll_sgrs()?;
        while self.take_sends(&mut self.engine.borrow_mut())? | self.take_receives()? {
            loop {
                let mut stash = self.stash.borrow_mut();
                let packet = |c: &Completion| {
                    c.opcode == RECEIVE && c.immediate.is_some_and(|i| credits::advertised(i).is_some())
                };
                if stash.front().is_some_and(|(_, c)| c.status == 0 && packet(c)) {
                    return Ok(true);
                }
                let Some((source, c)) = stash.pop_front() else { break };
                drop(stash);
                self.received(source, &c, &mut |_| {});
            }
            self.replenish()?;
        }
        Ok(!self.engine.borrow().out.done.is_empty())
    }

    fn replenish(&self) -> Result<()> {
        let given = self.receives.borrow_mut().replenish();
        given.map_err(|e| Error::system("replenish receive buffers", e).device("verbs"))
    }

    /// Waits until the HCA no longer accesses memory of cancelled operations.
    fn quiesce(&self) {
        let mut since = Instant::now();
        let mut ended = false;
        loop {
            let peers = self.engine.borrow().peers_with_cancelled();
            if peers.is_empty() {
                return;
            }
            if since.elapsed() > CANCEL_TIMEOUT {
                since = Instant::now();
                let destroy = std::mem::replace(&mut ended, true);
                for peer in peers {
                    if destroy {
                        self.engine.borrow_mut().destroy(peer);
                        continue;
                    }
                    let e = Error::new(ErrorKind::PeerLost, "cancel a transfer")
                        .peer(peer)
                        .device("verbs")
                        .cause("a cancelled transfer could not be completed, so its connection was closed");
                    self.engine.borrow_mut().lose(peer, &e);
                }
            }
            let _ = self.absorb();
            self.engine.borrow_mut().drive();
            std::thread::yield_now();
        }
    }

    /// Reads an event, after which its queue must be armed again; returns whether there was one.
    fn take_event(&self) -> bool {
        let Some(fired) = self.channel.event() else { return false };
        if !self.sends_done.note(&fired) && !self.receives_done.note(&fired) {
            self.engine.borrow().note_sgrs(&fired);
        }
        true
    }

    /// Arms the queues whose event has been read, then checks for work: the check finds completions that came before it,
    /// and later ones make the channel readable. Returns whether there is work.
    fn prepare_to_sleep(&self) -> bool {
        let armed = self.sends_done.arm().and_then(|()| self.receives_done.arm());
        let armed = armed.and_then(|()| self.engine.borrow().arm_sgrs());
        armed.is_err() || self.absorb().unwrap_or(true) || self.engine.borrow().has_work()
    }

    /// Makes the agent call `waker` at the next event; returns whether there is work that a poll would find now.
    fn sleep_elsewhere(&self, waker: &Waker) -> bool {
        if self.links.elsewhere.get().is_none() {
            match Elsewhere::new(Arc::clone(waker), self.channel.fd()) {
                Ok(elsewhere) => {
                    let _ = self.links.elsewhere.set(elsewhere);
                    // The agent went to sleep before `elsewhere` was set.
                    self.links.agent_wake.wake();
                }
                Err(e) => {
                    // The rank has to poll, since nothing wakes it.
                    tracing::warn!("the completion channel cannot wake this rank: {e}");
                    return true;
                }
            }
        }
        // The agent sleeps until the channel becomes readable, but leaves the events to the rank.
        while self.take_event() {}
        self.links.rank_wake.clear();
        self.prepare_to_sleep()
    }

    /// Records a peer whose loss another device has detected, and fails all operations to it.
    fn give_up(&self, lost: &Error) {
        let is_other = |p: &u32| (*p as usize) < self.links.addresses.len() && *p != self.links.me;
        let Some(peer) = lost.blamed_number().filter(is_other) else { return };
        if lost.kind() == ErrorKind::PeerLost {
            self.heartbeat.borrow_mut().note(lost);
            self.links.announce_loss(peer);
            self.engine.borrow_mut().lose(peer, lost);
        }
    }

    fn set_farewell(&self, message: Message) {
        self.links.lock().farewell = Some(message);
        // The agent sends the message, and ends.
        drop(self.agent.borrow_mut().take());
    }
}

// SAFETY: memory that it allocates lives until the release; the HCA accesses only registered memory and the blocks of
// requests.
unsafe impl Device for VerbsDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn register(&self, region: Region) -> Result<Registration> {
        let engine = &mut *self.engine.borrow_mut();
        // SAFETY: the same contract, for both calls.
        let made = unsafe {
            match region {
                _ if region.base.is_null() => engine.regions.allocate(region.len, region.align),
                Region { brief: true, .. } => engine.regions.lend(&mut engine.user, region, &self.stats),
                _ => engine.regions.register(region),
            }
        };
        made.map_err(|e| e.rank(self.links.me))
    }

    fn sealed(&self, handle: u64) {
        self.engine.borrow_mut().regions.was_read(handle);
    }

    unsafe fn release(&self, handle: u64) -> Result<()> {
        self.engine.borrow_mut().regions.release(handle)
    }

    fn import(&self, peer: u32, key: &[u8], _accumulate: Option<AccumulateFn>) -> Result<RemoteRegion> {
        self.engine.borrow_mut().regions.import(peer, key)
    }

    unsafe fn forget(&self, handle: u64) {
        let mut engine = self.engine.borrow_mut();
        if let Some(import) = engine.regions.forget(handle) {
            engine.slots[import.peer as usize].forget(import.number);
        }
    }

    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        // SAFETY: the same contract.
        let posted = unsafe { self.engine.borrow_mut().post(request) }?;
        if posted == Posted::Busy && !self.polling.get() {
            // Completions free resources for the next attempt, even for a caller that does not poll.
            self.absorb()?;
            self.engine.borrow_mut().drive();
        }
        Ok(posted)
    }

    fn cancel(&self, which: &dyn Fn(u64) -> bool) {
        self.engine.borrow_mut().cancel(which);
        self.quiesce();
        self.suspects.borrow_mut().cancel(which);
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        // A handler that polls gets no events: packets are delivered one at a time.
        let Some(_entered) = Entered::new(&self.polling) else { return Ok(false) };
        self.poll_all(sink)
    }

    fn park(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        let limit = match sleep {
            Sleep::For(limit) => limit,
            Sleep::Elsewhere(waker) => return self.sleep_elsewhere(waker),
        };
        if self.prepare_to_sleep() || ready() {
            std::thread::yield_now();
            return true;
        }
        self.stats.add(Kind::Park, 0);
        wait::sleep(&[self.channel.fd(), self.links.rank_wake.as_fd()], limit);
        // If events remain, the next park returns immediately.
        self.take_event();
        self.links.rank_wake.clear();
        false
    }

    fn waker(&self) -> Result<Waker> {
        let links = Arc::clone(&self.links);
        Ok(Arc::new(move || links.rank_wake.wake()))
    }

    fn check_peers(&self, about: PeerCheck<'_>) -> Result<Option<u32>> {
        match about {
            PeerCheck::Met(loss) => self.give_up(loss),
            PeerCheck::Left(peer) if (peer as usize) < self.links.addresses.len() => {
                let e = Error::new(ErrorKind::PeerLost, "post a work request").peer(peer).device("verbs");
                let cause = match self.links.is_port_down() {
                    true => format!("{} is down", self.links.port()),
                    false => "both ranks have switched to another device".into(),
                };
                self.engine.borrow_mut().lose(peer, &e.cause(cause));
                self.links.give_up(peer);
                self.known.borrow_mut().close(peer);
                return Ok(None);
            }
            _ => {}
        }
        self.heartbeat.borrow_mut().check(&self.links).map_err(|e| {
            if let Some(peer) = e.blamed_number().filter(|_| e.kind() == ErrorKind::PeerLost) {
                self.links.announce_loss(peer);
                self.engine.borrow_mut().lose(peer, &e);
            }
            self.links.blame(e).rank(self.links.me)
        })?;
        self.end_responders()?;
        self.engine.borrow_mut().regions.deregister_lingering()?;
        self.engine.borrow_mut().kick_stalled();
        let engine = self.engine.borrow();
        match engine.lost() {
            Some(e) => {
                self.heartbeat.borrow_mut().note(e);
                Err(self.links.blame(e.again()).rank(self.links.me))
            }
            None => Ok(self.heartbeat.borrow().stopped_rank().filter(|_| matches!(about, PeerCheck::Stopped))),
        }
    }

    fn stats<'a>(&'a self, each: &mut dyn FnMut(&'static str, &'a Stats)) {
        each(self.capabilities.name, &self.stats);
    }

    fn leave(&self, how: Leave) -> Result<bool> {
        if how != Leave::Lost {
            let idle = self.engine.borrow_mut().is_idle();
            if idle && !self.left.replace(true) && how == Leave::Early {
                self.set_farewell(Message::Left);
            }
            return Ok(idle);
        }
        if !self.left.replace(true) {
            let blamed = self.heartbeat.borrow().met();
            self.set_farewell(Message::Lost { blamed, why: "the peer ended without leaving the job".into() });
        }
        Ok(true)
    }
}

impl Drop for VerbsDevice {
    fn drop(&mut self) {
        let _ = self.leave(Leave::Lost);
        drop(self.agent.borrow_mut().take());
    }
}
