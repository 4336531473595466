#![allow(unsafe_code)]
//! Shared memory: the device between ranks of one node.
//!
//! Every rank that imports memory which the device allocated maps it: a write is a copy, and an atomic is the
//! processor's. Short allocations share segments ([`arena`]). Pages of the user's memory are moved onto shared memory
//! if possible ([`remap`]); otherwise they are reached by `process_vm_writev` ([`vm`]) or by requests to the target
//! ([`target`](crate::device::target)), which are passed in this device's segments. Packets are passed in cache lines
//! and rings ([`channel`], [`ring`]).
//!
//! In a job of several nodes, this device connects the ranks of one node and numbers them from 0. Peers, sources and
//! errors of its methods are ranks of the job.

mod arena;
mod channel;
mod edges;
mod extents;
mod fork;
mod imports;
mod layout;
mod lend;
mod live;
mod liveness;
mod malloc;
mod maps;
mod node;
mod open_name;
pub(crate) mod park;
mod pins;
mod post;
mod remap;
mod ring;
mod segments;
mod sleeper;
mod start;
#[cfg(test)]
mod tests;
mod views;
mod vm;
mod windows;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;

pub(crate) use node::Nodes;
pub(crate) use start::{MappedPeers, Prepared, probe};

use super::{
    Block, Capabilities, Device, Event, Leave, Operation, Packet, PeerCheck, PeerWaker, Posted, Region, Registration,
    RemoteRegion, Sleep, Unread, Waker, WorkRequest,
};
use crate::device::target::TargetService;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::keys::AccumulateFn;
use crate::memory::segment::Mapping;
use crate::processes::{self, Process};
use crate::settings::UserMemory;
use crate::stats::{Kind, Stats};
use arena::{Arena, ImportedSlots};
use channel::{CELL_HEAD, Channel, SHORT};
use extents::Extents;
use imports::{Import, OwnedRegion};
use lend::BufferUses;
use live::LiveKeys;
use remap::MovedPages;
use ring::Popped;
use segments::Segments;
use sleeper::Sleeper;
use views::Views;

#[cold]
fn malformed(source: u32, marker: u64) -> Error {
    Error::new(ErrorKind::Protocol, "receive a packet")
        .peer(source)
        .device("shm")
        .cause(format!("the ring has an invalid marker, {marker:#x}"))
}

/// The number of a rank that is not on this node.
const NOT_HERE: u32 = u32::MAX;
/// Minimum length of a packet that is delivered as a [long packet](Event::LongPacket).
const LONG_PACKET_LEN: usize = 1024;

/// The shared-memory device of one rank.
pub(crate) struct ShmDevice {
    /// Dropped first: its agent serves memory of `owned`.
    service: TargetService<Segments>,
    /// The thread that sleeps for futures of this rank, started on first use.
    sleeper: OnceCell<Sleeper>,
    shared: Arc<Segments>,
    /// Number on this node, by rank of the job.
    numbers: Vec<u32>,
    /// Processes of the ranks of this node, by number; `None` for ranks in this process.
    processes: Vec<Option<Process>>,
    pids: Vec<(u32, u64)>,
    capabilities: Capabilities,
    stats: Stats,
    asymmetric: bool,
    arena: Arena,
    imported_slots: ImportedSlots,
    /// Created on first use.
    moved: RefCell<Option<MovedPages>>,
    /// Moved pages of windows that were freed while another thread could store to them or another region used them.
    /// They are moved back once that has ended, at the latest when the device is dropped; otherwise they stay shared.
    kept: RefCell<Vec<Range<usize>>>,
    uses: RefCell<BufferUses>,
    live: LiveKeys,
    /// Mappings of memory that peers have exported.
    views: RefCell<Views>,
    user_memory: UserMemory,
    /// Maximum number of bytes of message buffers that stay moved.
    buffer_cache: usize,
    /// Whether `process_vm_*` has succeeded, by peer.
    vm_works: Vec<Cell<bool>>,
    /// Whether all ranks are known to be able to use `process_vm_*` with all others.
    all_use_vm: Cell<bool>,
    /// Interval at which futures check that the other ranks are alive.
    check: Duration,
    /// Maximum time that `release` waits for a transfer of a peer.
    timeout: Duration,
    /// Channels to the ranks of this node, by number.
    channels: Vec<Channel>,
    packet: RefCell<Vec<u8>>,
    owned: RefCell<FxHashMap<u64, OwnedRegion>>,
    /// Ranges of program memory that regions cover.
    used: RefCell<Extents<u32>>,
    /// Number of files of long regions that may still be kept open.
    names_left: Rc<Cell<usize>>,
    /// Regions that this device has allocated: handle by address.
    places: RefCell<BTreeMap<usize, u64>>,
    imports: RefCell<FxHashMap<u64, Import>>,
    last: Cell<u64>,
    /// The number of the rank whose packets are polled first.
    first: Cell<usize>,
}

impl ShmDevice {
    fn own(&self) -> &Mapping {
        self.shared.own.mapping()
    }

    /// Announces a sleep, and has another thread sleep for this rank and call `waker` at the next event.
    fn sleep_elsewhere(&self, waker: &Waker, ready: impl FnOnce() -> bool) -> bool {
        let sleeper = match self.sleeper.get() {
            Some(sleeper) => sleeper,
            None => match Sleeper::start(Arc::clone(&self.shared), Arc::clone(waker), self.check) {
                Ok(sleeper) => self.sleeper.get_or_init(|| sleeper),
                Err(e) => {
                    tracing::warn!("futures of this rank are polled instead of woken: {e}");
                    return true;
                }
            },
        };
        // Requests that the agent will not answer soon have to be polled for.
        if self.service.before_sleep(self.check, &self.stats) < self.check {
            return true;
        }
        let [doorbell, sleeping] = [layout::DOORBELL, layout::SLEEPING].map(|at| self.own().half(at));
        park::announce(doorbell, sleeping, || park::sleeper_barrier(self.asymmetric), ready, |bell| sleeper.watch(bell))
    }

    /// Whether only the calling thread can store to these parts of the program's memory, as far as this process can
    /// know: the process has no other thread except the runtime's, and no region covers that memory, so the agent and
    /// peers cannot access it. Only the calling thread could start another thread meanwhile.
    fn is_alone(&self, parts: &[Range<usize>]) -> bool {
        let is_watched = self.moved.borrow().as_ref().is_some_and(MovedPages::is_watched);
        !self.are_used(parts) && self.has_one_thread(is_watched)
    }

    /// Whether a region covers any of these parts of the program's memory.
    fn are_used(&self, parts: &[Range<usize>]) -> bool {
        parts.iter().any(|part| self.is_used(part.start, part.end))
    }

    /// Whether the process has no threads except the calling one, this device's agent and sleeper, and, if memory
    /// `is_watched`, the thread of the watch; none of the latter accesses the memory. Also false if the job uses an
    /// HCA.
    fn has_one_thread(&self, is_watched: bool) -> bool {
        // The kernel counts the threads of a process as links of this directory.
        let threads = fs::metadata("/proc/self/task").map_or(0, |tasks| tasks.nlink().saturating_sub(2));
        let own = [self.service.has_agent(), is_watched, self.sleeper.get().is_some()];
        self.is_one_node() && threads == 1 + own.into_iter().map(u64::from).sum::<u64>()
    }

    /// Whether pages of the program must stay where they are: other code may have pinned them, or they may be locked. In a
    /// job of several nodes the HCA has always pinned some.
    fn has_pins(&self) -> bool {
        self.is_one_node() && pins::has_pins()
    }

    /// Whether all ranks of the job are on this node. If not, an HCA may access memory of the program at any time,
    /// except exclusive memory of a window of this device.
    fn is_one_node(&self) -> bool {
        !self.numbers.contains(&NOT_HERE)
    }

    /// Whether a region covers program memory in `[lo, hi)`.
    fn is_used(&self, lo: usize, hi: usize) -> bool {
        self.used.borrow().within(&(lo..hi)).next().is_some()
    }

    /// Whether every rank of this node can use `process_vm_*` with all others. A rank that has not tried it yet counts
    /// as unable.
    fn all_use_vm(&self) -> bool {
        let works = |peer: &Mapping| peer.word(layout::VM_WORKS).load(Ordering::SeqCst) == 1;
        let all = self.all_use_vm.get() || self.shared.peers.iter().all(works);
        self.all_use_vm.set(all);
        all
    }

    /// The number of `peer` on this node.
    #[inline(always)]
    fn number(&self, peer: u32, operation: &'static str) -> Result<usize> {
        match self.numbers.get(peer as usize) {
            Some(number) if *number != NOT_HERE => Ok(*number as usize),
            _ => Err(self.not_here(peer, operation)),
        }
    }

    #[cold]
    fn not_here(&self, peer: u32, operation: &'static str) -> Error {
        let elsewhere = (peer as usize) < self.numbers.len();
        let kind = if elsewhere { ErrorKind::BadArgument } else { ErrorKind::NoSuchRank };
        Error::new(kind, operation).peer(peer).device("shm").cause("the peer is not on this node")
    }

    /// The error of a request to a rank that is not on this node; `BadKey` if the region is unknown.
    #[cold]
    fn refused(&self, request: &WorkRequest<'_>, error: Error) -> Error {
        match request.operation.region() {
            Some(region) if error.kind() == ErrorKind::BadArgument && !self.imports.borrow().contains_key(&region) => {
                Error::new(ErrorKind::BadKey, "post a work request").peer(request.peer).device("shm")
            }
            _ => error,
        }
    }

    /// Completes an error that names a peer by its number on this node: adds the device and the rank of the job.
    #[cold]
    fn named(&self, error: Error) -> Error {
        error.device("shm").renumbered(|number| self.shared.ranks.get(number).map_or(number, |rank| *rank as usize))
    }

    fn fresh(&self) -> u64 {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    /// Sends a packet.
    ///
    /// # Safety
    /// All local pointers stay valid (and exclusive where written) until the request has completed.
    #[inline(always)]
    unsafe fn send(&self, to: usize, header: &[u8], body: &[Block]) -> Result<Posted> {
        let len = header.len() + body.iter().map(|b| b.len).sum::<usize>();
        if len > self.capabilities.max_packet {
            return Err(Error::new(ErrorKind::BadArgument, "send a packet")
                .peer(self.shared.ranks[to])
                .device("shm")
                .cause(format!(
                    "the packet has {len} bytes, but at most {} are allowed",
                    self.capabilities.max_packet
                )));
        }
        // SAFETY: the blocks are valid by the contract; this rank is the only sender of its channel at the peer.
        let sent = unsafe { self.channels[to].push(header, body, len) };
        Ok(self.posted(to, len, sent))
    }

    /// The result of posting a packet. `sent`: it was sent; otherwise the ring was full.
    #[inline(always)]
    fn posted(&self, to: usize, len: usize, sent: bool) -> Posted {
        if !sent {
            return Posted::Busy;
        }
        self.sent(to, len);
        Posted::Done
    }

    /// Whether a packet is ready to be received.
    #[inline]
    fn any_packet(&self) -> bool {
        self.channels.iter().any(Channel::ready)
    }

    /// Wakes the target of a packet that was sent, and counts the packet.
    #[inline(always)]
    fn sent(&self, to: usize, len: usize) {
        self.wake_number(to);
        self.stats.add(Kind::Send, len);
    }

    /// Wakes the rank with this number on this node, which may sleep, after a store to its memory.
    #[inline(always)]
    fn wake_number(&self, number: usize) {
        park::waker_barrier(self.asymmetric);
        park::wake_if_asleep(&self.shared.peers[number], &self.stats);
    }
}

// SAFETY: memory is mapped from segments of the node until it is released or forgotten, and requests access only their
// blocks.
unsafe impl Device for ShmDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn register(&self, region: Region) -> Result<Registration> {
        if region.base.is_null() {
            return imports::allocate(self, region);
        }
        // SAFETY: the same contract.
        unsafe { imports::register(self, region) }
    }

    fn sealed(&self, handle: u64) {
        if let Some(owned) = self.owned.borrow_mut().get_mut(&handle) {
            owned.close_name(&self.names_left);
        }
    }

    unsafe fn peers_can_map(&self, memory: Block) -> bool {
        // SAFETY: the same contract.
        unsafe { lend::is_mappable(self, memory) }
    }

    unsafe fn release(&self, handle: u64) -> Result<()> {
        imports::release(self, handle)
    }

    fn import(&self, peer: u32, key: &[u8], accumulate: Option<AccumulateFn>) -> Result<RemoteRegion> {
        let number = self.number(peer, "import a peer's region")?;
        imports::import(self, number as u32, key, accumulate)
            .map(|remote| RemoteRegion { peer, ..remote })
            .map_err(|e| self.named(e))
    }

    unsafe fn forget(&self, handle: u64) {
        imports::forget(self, handle);
    }

    #[inline]
    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        let peer = match self.number(request.peer, "post a work request") {
            Ok(peer) => peer,
            Err(e) => return Err(self.refused(request, e)),
        };
        // SAFETY: the same contract, in both.
        unsafe {
            match request.operation {
                Operation::Packet(Packet::Short(packet)) => {
                    let sent = self.channels[peer].push_short(packet);
                    Ok(self.posted(peer, packet.len(), sent))
                }
                Operation::Packet(Packet::Long { header, body }) => self.send(peer, header, body),
                _ => {
                    let request = WorkRequest { peer: peer as u32, ..*request };
                    self.post_transfer(&request).map_err(|e| self.named(e))
                }
            }
        }
    }

    fn cancel(&self, which: &dyn Fn(u64) -> bool) {
        self.service.cancel(which);
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        // A handler that polls gets no events: packets are delivered one at a time.
        let Ok(mut packet) = self.packet.try_borrow_mut() else { return Ok(false) };
        let any = self.service.is_active()
            && self.service.poll(&self.stats, |id, result| {
                sink(Event::Completed { id, result: result.map_err(|e| self.named(e)) });
            });
        let after = |number| if number + 1 < self.channels.len() { number + 1 } else { 0 };
        // Channels are polled in turn, so that every sender is served.
        let mut source = self.first.get();
        for _ in 0..self.channels.len() {
            let Some(channel) = self.channels.get(source) else { break };
            let next = after(source);
            let mut taken = 0;
            // At most 16 packets of a sender per poll.
            while taken < 16 {
                let rank = self.shared.ranks[source];
                let mut short = false;
                match channel.pop(&mut packet, LONG_PACKET_LEN) {
                    Popped::Packet(len) => {
                        short = len <= SHORT;
                        sink(Event::Packet { source: rank, bytes: &packet[..len] });
                    }
                    found @ (Popped::Long(len) | Popped::InCell(len, _)) => {
                        let (at, received) = match found {
                            Popped::InCell(_, cell) => {
                                let (memory, at) = channel.cell(len, cell);
                                (memory.at(at), CELL_HEAD)
                            }
                            _ => (self.own().at(channel.take_long(len)), 0),
                        };
                        // SAFETY: inside the ring or the cell, in a segment that stays mapped as long as the device
                        // lives. The sender writes there only by the functions of `copy`, and a correct sender only
                        // after the slots were released or the cell was returned.
                        let packet = unsafe { Unread::new(at, len, received, &mut packet) };
                        sink(Event::LongPacket { source: rank, packet });
                        match found {
                            Popped::InCell(_, cell) => channel.own_cell(cell),
                            _ => channel.release_long(),
                        }
                    }
                    Popped::Empty | Popped::Later => break,
                    Popped::Malformed(marker) => return Err(malformed(rank, marker)),
                }
                taken += 1;
                // This rank may be waiting for this packet, so after a single short packet only its own line is checked
                // for another. Two packets are treated as a stream.
                if taken == 1 && short && !channel.ready_in_line() {
                    break;
                }
            }
            if taken > 0 {
                // Skips this rank, which sends no packets to itself.
                self.first.set(if next == self.shared.me { after(next) } else { next });
                return Ok(true);
            }
            source = next;
        }
        Ok(any)
    }

    fn park(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        let own = self.own();
        let ready = || ready() || self.any_packet() || self.service.ready();
        let limit = match sleep {
            Sleep::For(limit) => limit,
            Sleep::Elsewhere(waker) => return self.sleep_elsewhere(waker, ready),
        };
        let wait = |doorbell: &_, bell| {
            let limit = self.service.before_sleep(limit, &self.stats);
            self.stats.add(Kind::Park, 0);
            park::futex_wait(doorbell, bell, limit);
        };
        let [doorbell, sleeping] = [layout::DOORBELL, layout::SLEEPING].map(|at| own.half(at));
        park::sleep(doorbell, sleeping, || park::sleeper_barrier(self.asymmetric), ready, wait)
    }

    #[inline]
    fn wake(&self, peer: u32) {
        if let Some(number) = self.numbers.get(peer as usize).filter(|number| **number != NOT_HERE) {
            self.wake_number(*number as usize);
        }
    }

    fn peer_waker(&self) -> Option<PeerWaker> {
        let (shared, numbers, asymmetric) = (Arc::clone(&self.shared), self.numbers.clone(), self.asymmetric);
        let rung = Mutex::new(Stats::default());
        Some(Arc::new(move |peer| {
            let Some(number) = numbers.get(peer as usize).filter(|number| **number != NOT_HERE) else { return };
            park::waker_barrier(asymmetric);
            let mapping = &shared.peers[*number as usize];
            if park::is_asleep(mapping.half(layout::SLEEPING)) {
                park::wake_if_asleep(mapping, &rung.lock().unwrap_or_else(PoisonError::into_inner));
            }
        }))
    }

    fn waker(&self) -> Result<Waker> {
        // The agent has separate counters, because only one thread may write a set of counters.
        let (shared, rung) = (Arc::clone(&self.shared), Mutex::new(Stats::default()));
        Ok(Arc::new(move || {
            // Full fence: pairs with the sleeper's barrier.
            fence(Ordering::SeqCst);
            park::wake_if_asleep(shared.own.mapping(), &rung.lock().unwrap_or_else(PoisonError::into_inner));
        }))
    }

    fn check_peers(&self, about: PeerCheck<'_>) -> Result<Option<u32>> {
        match about {
            PeerCheck::Met(loss) => liveness::note(self.own(), loss),
            PeerCheck::Asleep(peer) => {
                let number = self.numbers.get(peer as usize).copied().unwrap_or(NOT_HERE);
                let mapping = self.shared.peers.get(number as usize);
                return Ok(mapping.filter(|mapping| park::is_asleep(mapping.half(layout::SLEEPING))).map(|_| peer));
            }
            PeerCheck::Alive | PeerCheck::Stopped | PeerCheck::Left(_) => {}
        }
        liveness::check(&self.processes, &self.shared.peers, &self.shared.ranks).map_err(|e| {
            liveness::note(self.own(), &e);
            e.rank(self.shared.ranks[self.shared.me])
        })?;
        let asked = matches!(about, PeerCheck::Stopped);
        Ok(asked.then(|| processes::first_stopped(&self.processes)).flatten().map(|number| self.shared.ranks[number]))
    }

    fn stats<'a>(&'a self, each: &mut dyn FnMut(&'static str, &'a Stats)) {
        each(self.capabilities.name, &self.stats);
        each(self.capabilities.name, self.service.agent_stats());
    }

    fn leave(&self, how: Leave) -> Result<bool> {
        if how != Leave::Lost {
            // Release: pairs with the Acquire in `liveness::check`.
            self.own().half(layout::STATE).store(layout::STATE_LEFT, Ordering::Release);
            return Ok(true);
        }
        let _ = self.own().half(layout::STATE).compare_exchange(
            layout::STATE_RUNNING,
            layout::STATE_LOST,
            // AcqRel: pairs with the Acquire in `liveness::check`. Relaxed on failure: the rank has already left, and
            // nothing is written.
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        (0..self.shared.peers.len()).for_each(|number| self.wake_number(number));
        Ok(true)
    }
}

impl Drop for ShmDevice {
    fn drop(&mut self) {
        imports::revoke_lent(self);
        let _ = self.leave(Leave::Lost);
        windows::move_back_kept(self);
    }
}
