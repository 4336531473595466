#![allow(unsafe_code)]
//! The tcp device, for ranks connected by any TCP/IP network, and for ranks of one host.
//!
//! Operations are sent as frames over one connection for each pair of ranks, made on first use and authenticated by a
//! secret of the job. The target's processor executes them: the rank itself whenever it is inside the runtime, and its
//! agent thread while it computes. Long data is sent from and received to the program's memory without a copy; short
//! frames share system calls. All frames of a pair stay in order, so a signal is set after everything that was posted
//! before it. An operation is complete when the target has acknowledged it.
//!
//! A broken connection is re-established, and all unacknowledged bytes are retransmitted: every frame is executed
//! exactly once. The peer is lost if that takes longer than the silence limit, or if its process has ended.
//!
//! Ranks without a common network communicate over a rank that relays their bytes (see `relay`).
//!
//! Without encryption only the start of a connection is authenticated: an attacker who can change packets on the
//! network can read and write the memory that ranks expose. The secret is as private as the launcher's key-value
//! exchange.

mod address;
mod agent;
mod attempts;
mod conn;
#[cfg(test)]
mod cuts;
#[cfg(test)]
mod detours;
mod engine;
mod frame;
mod handshake;
mod input;
mod links;
mod memory;
mod peer;
mod post;
mod queue;
mod relay;
mod secret;
mod send_buffer;
mod serve;
mod start;
mod sys;
#[cfg(test)]
mod tests;
mod ways;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

pub(crate) use start::{host, open, ports, probe};

use super::loopback::Owned;
use super::wait::sleep;
use super::{
    Capabilities, Device, Event, Leave, PeerCheck, Posted, Region, Registration, RemoteRegion, Sleep, Waker,
    WorkRequest,
};
use crate::entered::Entered;
use crate::error::{ErrorKind, Result};
use crate::memory::keys::{AccumulateFn, Exposed};
use crate::slots::Slots;
use crate::stats::{Kind, Stats};
use crate::wire::{Reader, Writer};
use agent::{Agent, Shared};
use engine::{Engine, Inbox};
use secret::SECRET;

/// Minimum block length, in bytes, for which requests with a range for each block are better than packing.
const LISTS: u64 = 512;
/// Time for which a rank that ends waits until its last bytes have arrived.
const LINGER: Duration = Duration::from_millis(300);

/// A peer's region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Import {
    pub(super) peer: u32,
    pub(super) key: u64,
    pub(super) len: usize,
    /// The lowest bits of the region's address.
    pub(super) align: u8,
}

/// The tcp device of one rank. The agent ends first.
pub(crate) struct TcpDevice {
    agent: RefCell<Option<Agent>>,
    shared: Arc<Shared>,
    me: u32,
    size: u32,
    secret: [u8; SECRET],
    capabilities: Capabilities,
    stats: Stats,
    imports: RefCell<Slots<Import>>,
    /// Memory of regions, by handle.
    owned: RefCell<FxHashMap<u64, Owned>>,
    /// Completions that are being delivered.
    done: RefCell<VecDeque<(u64, Result<()>)>>,
    /// Packets that are being delivered.
    inbox: RefCell<Inbox>,
    polling: Cell<bool>,
    left: Cell<Option<Leave>>,
}

impl TcpDevice {
    fn start_agent(&self) -> Result<()> {
        let mut agent = self.agent.borrow_mut();
        if agent.is_none() {
            *agent = Some(Agent::start(&self.shared, self.me)?);
        }
        Ok(())
    }

    /// Passes unfinished work to the agent, since this rank may compute from now on.
    fn pass_to_agent(&self, engine: &mut Engine) {
        if std::mem::take(&mut engine.begun) {
            if let Err(e) = self.start_agent() {
                tracing::warn!(
                    "the agent thread could not start, so connections are made only while this rank is inside the \
                     runtime: {e}"
                );
            }
            self.shared.ring();
        }
    }

    /// A checksum that detects changed fields of a key of rank `of`, and keys of other jobs. It is the same function in
    /// every build.
    fn seal(&self, of: u32, key: u64, len: u64, align: u8) -> u64 {
        let secret =
            self.secret.chunks_exact(8).map(|part| part.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        secret.chain([of.into(), key, len, align.into()]).fold(0u64, |seal, word| {
            let mixed = (seal ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ mixed >> 29
        })
    }

    /// The key of a region of this rank, of which `key` is the number.
    pub(super) fn write_key(&self, key: u64, len: usize, base: *const u8) -> Vec<u8> {
        let (len, align) = (len as u64, (base.addr() % 64) as u8);
        let seal = self.seal(self.me, key, len, align);
        Writer::new().u64(key).u64(len).u8(align).u64(seal).done()
    }

    /// Parses a key of rank `of`.
    pub(super) fn read_key(&self, of: u32, bytes: &[u8]) -> Option<Import> {
        let mut r = Reader::new(bytes);
        let (key, len, align, seal) = (r.u64()?, r.u64()?, r.u8()?, r.u64()?);
        let is_true = r.is_empty() && seal == self.seal(of, key, len, align);
        Some(Import { peer: of, key, len: usize::try_from(len).ok()?, align }).filter(|_| is_true)
    }

    /// Whether a peer has left, or is lost.
    pub(super) fn is_gone(&self, peer: u32) -> bool {
        let engine = self.shared.lock();
        engine.peers.get(peer as usize).is_none_or(|peer| peer.left || peer.lost.is_some())
    }

    /// Sends waiting data; returns whether a poll would deliver something.
    fn has_events(&self) -> bool {
        let mut engine = self.shared.lock();
        engine.flush();
        self.pass_to_agent(&mut engine);
        engine.has_events() || !self.done.borrow().is_empty()
    }
}

// SAFETY: the device maps no memory of peers; the memory that it allocates lives until the release, and frames are
// placed only in the blocks of their requests.
unsafe impl Device for TcpDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn register(&self, region: Region) -> Result<Registration> {
        let Region { mut base, len, accumulate, align, passive, .. } = region;
        let mut owned = Owned::No;
        if base.is_null() {
            (owned, base) = Owned::aligned(len, align)
                .map_err(|e| self.fail(ErrorKind::Limit, "allocate memory", self.me).cause(e.to_string()))?;
        }
        if passive {
            self.start_agent()?;
            self.shared.serve();
        }
        // SAFETY: memory of the caller is valid by the contract; memory of the device lives until `release`.
        let key = unsafe { self.shared.lock().memory.0.insert(Exposed { base, len, accumulate }) };
        self.owned.borrow_mut().insert(key, owned);
        Ok(Registration { base, len, key: self.write_key(key, len, base), handle: key })
    }

    unsafe fn release(&self, handle: u64) -> Result<()> {
        // The lock is held while bytes of a region are moved.
        let mut engine = self.shared.lock();
        // SAFETY: the memory of the region is valid until the return, by the contract of `register`.
        engine.peers.iter_mut().for_each(|peer| unsafe { peer.detach_region(handle) });
        engine.memory.0.remove(handle);
        match self.owned.borrow_mut().remove(&handle) {
            Some(_) => Ok(()),
            None => Err(self.fail(ErrorKind::Freed, "release memory", self.me)),
        }
    }

    fn import(&self, peer: u32, key: &[u8], _accumulate: Option<AccumulateFn>) -> Result<RemoteRegion> {
        const OP: &str = "import a peer's region";
        if peer >= self.size {
            return Err(self.fail(ErrorKind::NoSuchRank, OP, peer));
        }
        let import = self.read_key(peer, key);
        let import = import.ok_or_else(|| self.fail(ErrorKind::Protocol, OP, peer).cause("malformed key"))?;
        let mut imports = self.imports.borrow_mut();
        let handle = imports.next();
        imports.add(import);
        Ok(RemoteRegion { peer, len: import.len, handle, mapped: None, lists: Some(LISTS), steps: false })
    }

    unsafe fn forget(&self, handle: u64) {
        self.imports.borrow_mut().remove(handle);
    }

    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        // SAFETY: the same contract.
        unsafe { self.post_checked(request) }
    }

    fn cancel(&self, which: &dyn Fn(u64) -> bool) {
        let mut engine = self.shared.lock();
        engine.peers.iter_mut().for_each(|peer| peer.cancel(which));
        engine.done.retain(|(id, _)| !which(*id));
        self.done.borrow_mut().retain(|(id, _)| !which(*id));
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        // A handler that polls gets no events.
        let Some(_entered) = Entered::new(&self.polling) else { return Ok(false) };
        let mut inbox = self.inbox.borrow_mut();
        inbox.clear();
        let any = {
            let mut engine = self.shared.lock();
            self.shared.count_poll();
            let any = engine.turn(&self.stats);
            self.pass_to_agent(&mut engine);
            std::mem::swap(&mut *inbox, &mut engine.inbox);
            self.done.borrow_mut().append(&mut engine.done);
            any
        };
        let count = self.done.borrow().len();
        for packet in &inbox.packets {
            sink(Event::Packet { source: packet.source, bytes: inbox.bytes_of(packet) });
        }
        if !inbox.packets.is_empty() {
            let mut engine = self.shared.lock();
            for packet in inbox.packets.iter().filter(|packet| packet.source != self.me) {
                engine.peers[packet.source as usize].count_received(packet.len);
                engine.touch(packet.source);
            }
            engine.flush();
            self.pass_to_agent(&mut engine);
        }
        for _ in 0..count {
            // A handler may have cancelled the operation.
            let Some((id, result)) = self.done.borrow_mut().pop_front() else { break };
            sink(Event::Completed { id, result: result.map_err(|e| e.rank(self.me)) });
        }
        Ok(any)
    }

    fn park(&self, sleep_by: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        self.shared.count_poll();
        match sleep_by {
            Sleep::Elsewhere(waker) => {
                if let Err(e) = self.start_agent() {
                    tracing::warn!("futures of this rank are polled instead of woken: {e}");
                    return true;
                }
                self.shared.sleep_elsewhere(waker);
                self.has_events() || ready()
            }
            Sleep::For(limit) => {
                let wait = || {
                    let timer = self.shared.lock().timer;
                    let limit = timer.map_or(limit, |at| limit.min(at.saturating_duration_since(Instant::now())));
                    self.stats.add(Kind::Park, 0);
                    sleep(&[self.shared.epoll.as_fd(), self.shared.rank_wake.as_fd()], limit);
                };
                self.shared.sleep(|| self.has_events() || ready(), wait)
            }
        }
    }

    fn waker(&self) -> Result<Waker> {
        let shared = Arc::clone(&self.shared);
        Ok(Arc::new(move || shared.rank_wake.wake()))
    }

    fn check_peers(&self, about: PeerCheck<'_>) -> Result<Option<u32>> {
        if let PeerCheck::Asleep(_) = about {
            return Ok(None);
        }
        let mut engine = self.shared.lock();
        self.shared.count_poll();
        if let PeerCheck::Left(peer) = about
            && peer < self.size
            && peer != self.me
        {
            engine.give_up(peer);
            return Ok(None);
        }
        if let PeerCheck::Met(loss) = about
            && let Some(peer) = loss.blamed_number().filter(|peer| *peer < self.size && *peer != self.me)
            && loss.kind() == ErrorKind::PeerLost
        {
            engine.lose(peer, loss.again());
        }
        engine.turn(&self.stats);
        let watched = engine.watch();
        engine.flush();
        self.pass_to_agent(&mut engine);
        watched.map(|()| None)
    }

    fn stats<'a>(&'a self, each: &mut dyn FnMut(&'static str, &'a Stats)) {
        each(self.capabilities.name, &self.stats);
        each(self.capabilities.name, &self.shared.agent_stats);
    }

    fn leave(&self, how: Leave) -> Result<bool> {
        let mut engine = self.shared.lock();
        if how == Leave::Lost {
            if self.left.get().is_none() {
                self.left.set(Some(how));
                engine.announce_loss("the peer ended without leaving the job");
            }
            return Ok(true);
        }
        engine.turn(&self.stats);
        if !engine.is_quiet() {
            return Ok(false);
        }
        self.left.set(Some(how));
        engine.announce_leave(how == Leave::Early);
        self.pass_to_agent(&mut engine);
        Ok(engine.is_quiet())
    }
}

impl Drop for TcpDevice {
    fn drop(&mut self) {
        let has_left = self.left.get().is_some_and(|how| how != Leave::Lost);
        let _ = self.leave(Leave::Lost);
        drop(self.agent.borrow_mut().take());
        let end = Instant::now() + LINGER;
        let mut engine = self.shared.lock();
        // If received bytes are still unread when a connection is closed, the kernel discards the bytes that it has not
        // sent.
        let is_over = |engine: &Engine| match has_left {
            true => engine.loss.is_some() || engine.is_quiet(),
            false => engine.has_announced(),
        };
        while !is_over(&engine) && Instant::now() < end {
            engine.turn(&self.stats);
            std::thread::yield_now();
        }
        engine.close();
        // Other ranks still use connections that this rank relays. Ranks that end close their own connections first, so
        // all ranks terminate.
        let end = Instant::now() + engine.silence;
        while has_left && engine.relays() > 0 && Instant::now() < end {
            engine.turn(&self.stats);
            sleep(&[self.shared.epoll.as_fd()], LINGER / 30);
        }
        // Wakers may outlive this call; the sockets and the uses of memory end here.
        engine.conns = Slots::default();
        (0..self.size as usize).for_each(|peer| _ = engine.peers[peer].end());
        self.owned.borrow().keys().for_each(|key| _ = engine.memory.0.remove(*key));
    }
}
