#![allow(unsafe_code)]
//! Shared memory: the device between ranks of one node.
//!
//! Memory that the device allocates is mapped by every rank that imports it: a write is a copy, an atomic is
//! the processor's. Memory of the user is moved onto shared pages where it can be ([`remap`]), and otherwise
//! reached by `process_vm_writev` ([`vm`]) or by requests to the target ([`request`]). Packets go through
//! rings ([`ring`]).

mod agent;
mod imports;
mod layout;
mod liveness;
mod park;
mod remap;
mod request;
mod ring;
mod start;
mod transfer;
mod vm;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use rustc_hash::FxHashMap;

pub use start::{Prepared, probe};

use super::{
    Block, Capabilities, Device, Event, Operation, Place, Posted, Region, Registration, RemoteRegion, WorkRequest,
};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::copy;
use crate::memory::keys::{AccumulateFn, Exposures};
use crate::memory::segment::{Mapping, Segment};
use crate::settings::UserMemory;
use crate::stats::{Kind, Snapshot, Stats};
use agent::Agent;
use imports::{Import, Owned};
use layout::Layout;
use request::{Code, Server};
use ring::{Popped, Ring};
use transfer::{Piece, Pieces, Transfer, Transfers};

/// What a rank and its agent share.
#[derive(Debug)]
struct Shared {
    me: usize,
    layout: Layout,
    own: Segment,
    peers: Vec<Mapping>,
    exposures: Exposures,
    server: Server,
    agent_stats: Stats,
}

impl Shared {
    fn chunk(&self, index: usize, chunks: usize) -> *mut u8 {
        self.own.mapping().at(self.layout.bounce() + index * (self.layout.bounce / chunks))
    }

    fn serve(&self, stats: &Stats) -> bool {
        self.server.serve(self.own.mapping(), &self.peers, &self.layout, &self.exposures, stats)
    }
}

/// The shared-memory device of one rank.
#[derive(Debug)]
pub struct ShmDevice {
    shared: Arc<Shared>,
    watches: Vec<Option<liveness::Watch>>,
    pids: Vec<(u32, u64)>,
    capabilities: Capabilities,
    stats: Stats,
    asymmetric: bool,
    dir: PathBuf,
    user_memory: UserMemory,
    outgoing: Vec<Ring>,
    incoming: Vec<Ring>,
    packet: RefCell<Vec<u8>>,
    owned: RefCell<FxHashMap<u64, Owned>>,
    imports: RefCell<FxHashMap<u64, Import>>,
    last: Cell<u64>,
    transfers: RefCell<Transfers>,
    agent: RefCell<Option<Agent>>,
    /// Whether some region of this rank may need its help.
    serving: Cell<bool>,
}

impl ShmDevice {
    fn own(&self) -> &Mapping {
        self.shared.own.mapping()
    }

    fn fresh(&self) -> u64 {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    /// Wakes whoever can serve a request that was just written: the sleeping rank, or its agent if the rank
    /// is busy elsewhere.
    fn wake_server(&self, peer: u32) {
        // Full fence: pairs with the one in `attending`; either we see that the rank has gone, or it sees the request.
        fence(Ordering::SeqCst);
        let target = &self.shared.peers[peer as usize];
        park::wake_if_asleep(target, &self.stats);
        // Relaxed: ordered by the fence.
        if target.half(layout::ATTENDING).load(Ordering::Relaxed) == 0
            && target.half(layout::AGENT_PRESENT).load(Ordering::Relaxed) != 0
        {
            target.half(layout::AGENT_BELL).fetch_add(1, Ordering::SeqCst);
            park::futex_wake(target.half(layout::AGENT_BELL));
            self.stats.add(Kind::Wake, 0);
        }
    }

    fn set_signal(&self, peer: u32, at: Place, value: u64) -> Result<()> {
        let imports = self.imports.borrow();
        let cell = imports::mapped_word(&imports, at, "signal a peer")?;
        // Release: pairs with the Acquire load of the cell by its owner; what this rank wrote before is visible.
        // SAFETY: a mapped, aligned word, accessed as an atomic by every rank.
        unsafe { AtomicU64::from_ptr(cell) }.store(value, Ordering::Release);
        self.wake(peer);
        Ok(())
    }

    /// Copies what is mapped and returns the pieces that are not.
    ///
    /// # Safety
    /// As [`Device::post`].
    unsafe fn copy_mapped(&self, import: &Import, code: Code, blocks: &[Block], start: usize) -> Result<Pieces> {
        let mut rest = Pieces::new();
        let mut offset = start;
        for block in blocks {
            let mut done = 0;
            while done < block.len {
                let at = offset + done;
                let local = block.base.wrapping_add(done);
                let (mapped, end) = import.extent(at);
                let len = (block.len - done).min(end - at);
                if let Some(remote) = mapped {
                    // SAFETY: the range was checked against the region; local by the contract.
                    unsafe {
                        match code {
                            Code::Read => copy::load(remote, local, len),
                            _ => copy::store(local, remote, len),
                        }
                    }
                    self.stats.add(Kind::Copy, len);
                } else {
                    rest.push(Piece {
                        code,
                        accumulate: 0,
                        key: import.request_key,
                        offset: at as u64,
                        len,
                        local,
                        old: std::ptr::null_mut(),
                        words: [0; 2],
                    });
                }
                done += len;
            }
            offset += block.len;
        }
        Ok(rest)
    }

    /// Moves long pieces by `process_vm_*` where that is allowed and pays, all in one call; leaves the others.
    ///
    /// # Safety
    /// As [`Device::post`].
    unsafe fn copy_vm(&self, import: &Import, code: Code, pieces: &mut Pieces) -> Result<()> {
        let Some((pid, base)) = import.vm else { return Ok(()) };
        let total: usize = pieces.iter().map(|p| p.len).sum();
        if total < import.vm_from {
            return Ok(());
        }
        let local: Vec<Block> = pieces.iter().map(|p| Block { base: p.local, len: p.len }).collect();
        let remote: Vec<vm::RemoteBlock> = pieces.iter().map(|p| (base + p.offset, p.len)).collect();
        let direction = if code == Code::Read { vm::Direction::Read } else { vm::Direction::Write };
        // SAFETY: handed on; the remote region is exposed for this until its window is freed collectively.
        let calls =
            unsafe { vm::transfer(direction, pid, &local, &remote) }.map_err(|e| e.peer(import.peer).device("shm"))?;
        for _ in 0..calls {
            self.stats.add(Kind::SystemCall, 0);
        }
        self.stats.add(Kind::Copy, total);
        pieces.clear();
        Ok(())
    }

    fn word_piece(import: &Import, code: Code, offset: usize, len: usize, words: [u64; 2], old: *mut u8) -> Pieces {
        smallvec::smallvec![Piece {
            code,
            accumulate: 0,
            key: import.request_key,
            offset: offset as u64,
            len,
            local: std::ptr::null_mut(),
            old,
            words,
        }]
    }

    /// # Safety
    /// As [`Device::post`].
    unsafe fn post_pieces(&self, request: &WorkRequest<'_>) -> Result<Pieces> {
        let imports = self.imports.borrow();
        // SAFETY: pointers by the contract of `post`, remote words checked by `imports`.
        unsafe {
            match request.operation {
                Operation::Write { from, to } => {
                    let len = from.iter().map(|b| b.len).sum();
                    self.stats.add(Kind::Write, len);
                    let import = imports::region(&imports, to, len, "write remote memory")?;
                    let mut rest = self.copy_mapped(import, Code::Write, from, to.offset)?;
                    self.copy_vm(import, Code::Write, &mut rest)?;
                    Ok(rest)
                }
                Operation::Read { into, from } => {
                    let len = into.iter().map(|b| b.len).sum();
                    self.stats.add(Kind::Read, len);
                    let import = imports::region(&imports, from, len, "read remote memory")?;
                    let mut rest = self.copy_mapped(import, Code::Read, into, from.offset)?;
                    self.copy_vm(import, Code::Read, &mut rest)?;
                    Ok(rest)
                }
                Operation::FetchAdd { at, add, old } => {
                    self.stats.add(Kind::FetchAdd, 8);
                    let import = imports::region(&imports, at, 8, "fetch and add")?;
                    match import.word(at.offset, "fetch and add")? {
                        Some(word) => *old = AtomicU64::from_ptr(word).fetch_add(add, Ordering::SeqCst),
                        None => {
                            return Ok(Self::word_piece(import, Code::FetchAdd, at.offset, 8, [add, 0], old.cast()));
                        }
                    }
                    Ok(Pieces::new())
                }
                Operation::CompareSwap { at, len, expected, desired, old } => {
                    self.stats.add(Kind::CompareSwap, len);
                    let import = imports::region(&imports, at, len, "compare and swap")?;
                    match import.integer(at.offset, len, "compare and swap")? {
                        Some(p) => {
                            let former = copy::compare_swap(p, len, expected, desired).to_le_bytes();
                            copy::load(former.as_ptr(), old, len);
                        }
                        None => {
                            let words = [expected, desired];
                            return Ok(Self::word_piece(import, Code::CompareSwap, at.offset, len, words, old));
                        }
                    }
                    Ok(Pieces::new())
                }
                Operation::Accumulate { at, code, operand, old } => {
                    self.stats.add(Kind::Accumulate, operand.len);
                    let import = imports::region(&imports, at, operand.len, "accumulate")?;
                    self.accumulate(import, at.offset, code, operand, old)
                }
                Operation::Signal { at, value } => {
                    self.stats.add(Kind::Signal, 8);
                    drop(imports);
                    self.set_signal(request.peer, at, value)?;
                    Ok(Pieces::new())
                }
                Operation::Send { .. } => Ok(Pieces::new()),
            }
        }
    }

    /// # Safety
    /// As [`Device::post`].
    unsafe fn accumulate(
        &self,
        import: &Import,
        start: usize,
        code: u32,
        operand: Block,
        old: *mut u8,
    ) -> Result<Pieces> {
        const OP: &str = "accumulate";
        let mut rest = Pieces::new();
        let mut done = 0;
        while done < operand.len {
            let (mapped, end) = import.extent(start + done);
            let len = (operand.len - done).min(end - start - done);
            let from = operand.base.wrapping_add(done);
            let old = if old.is_null() { old } else { old.wrapping_add(done) };
            if let Some(remote) = mapped {
                let f = import.accumulate.ok_or_else(|| Error::new(ErrorKind::Unsupported, OP).peer(import.peer))?;
                // SAFETY: a checked range of the region; local pointers by the contract.
                if !unsafe { f(code, remote, from, old, len) } {
                    return Err(Error::new(ErrorKind::Misaligned, OP)
                        .peer(import.peer)
                        .cause(format!("offset {}", start + done)));
                }
            } else {
                let fetch = if old.is_null() { Code::Accumulate } else { Code::FetchAccumulate };
                rest.push(Piece {
                    code: fetch,
                    accumulate: code,
                    key: import.request_key,
                    offset: (start + done) as u64,
                    len,
                    local: from,
                    old,
                    words: [0; 2],
                });
            }
            done += len;
        }
        Ok(rest)
    }

    fn finish(
        &self,
        request_id: u64,
        peer: u32,
        notify: Option<(Place, u64)>,
        result: Result<()>,
        sink: &mut dyn FnMut(Event<'_>),
    ) {
        let result = result.and_then(|()| match notify {
            Some((at, value)) => {
                self.stats.add(Kind::Notify, 8);
                self.set_signal(peer, at, value)
            }
            None => Ok(()),
        });
        sink(Event::Completed { id: request_id, result });
    }
}

impl Device for ShmDevice {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn allocate(&self, len: usize, region: Region) -> Result<Registration> {
        imports::allocate(self, len, region)
    }

    unsafe fn register(&self, region: Region) -> Result<Registration> {
        // SAFETY: the same contract.
        unsafe { imports::register(self, region) }
    }

    fn release(&self, handle: u64) -> Result<()> {
        imports::release(self, handle)
    }

    fn settled(&self, handle: u64) {
        if let Some(owned) = self.owned.borrow_mut().get_mut(&handle) {
            owned.close_name();
        }
    }

    fn import(&self, peer: u32, key: &[u8], accumulate: Option<AccumulateFn>) -> Result<RemoteRegion> {
        imports::import(self, peer, key, accumulate)
    }

    fn forget(&self, handle: u64) {
        self.imports.borrow_mut().remove(&handle);
    }

    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        if let Operation::Send { header, body } = request.operation {
            let peer = &self.shared.peers[request.peer as usize];
            // SAFETY: the blocks by the contract; this rank is the one producer of its ring at the peer.
            if !unsafe { self.outgoing[request.peer as usize].push(peer, header, body) } {
                return Ok(Posted::Busy);
            }
            self.stats.add(Kind::Send, header.len() + body.iter().map(|b| b.len).sum::<usize>());
            self.wake(request.peer);
            return Ok(Posted::Done);
        }
        if self.transfers.borrow().is_full() {
            return Ok(Posted::Busy);
        }
        // SAFETY: the same contract.
        let pieces = unsafe { self.post_pieces(request) }?;
        if pieces.is_empty() {
            if let Some((at, value)) = request.notify {
                self.stats.add(Kind::Notify, 8);
                self.set_signal(request.peer, at, value)?;
            }
            return Ok(Posted::Done);
        }
        let mut transfers = self.transfers.borrow_mut();
        transfers.add(Transfer::new(request.id, request.peer, request.notify, pieces));
        transfers.issue_now(&self.shared, &self.stats, &|peer| self.wake_server(peer));
        Ok(Posted::Pending)
    }

    fn cancel(&self, which: &dyn Fn(u64) -> bool) {
        self.transfers.borrow_mut().cancel(which);
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        // A handler that polls finds nothing: packets are delivered one at a time.
        let Ok(mut packet) = self.packet.try_borrow_mut() else { return Ok(false) };
        let mut any = false;
        if self.serving.get() {
            any |= self.shared.serve(&self.stats);
        }
        if !self.transfers.borrow().is_idle() {
            let finished =
                self.transfers.borrow_mut().advance(&self.shared, &self.stats, &|peer| self.wake_server(peer));
            for (t, result) in finished {
                any = true;
                self.finish(t.id, t.peer, t.notify, result, sink);
            }
        }
        for (source, ring) in self.incoming.iter().enumerate() {
            // A bounded number from each, so that none starves the others.
            for _ in 0..16 {
                match ring.pop(self.own(), &mut packet) {
                    Popped::Empty => break,
                    Popped::Packet(len) => {
                        any = true;
                        sink(Event::Packet { source: source as u32, bytes: &packet[..len] });
                    }
                    Popped::Garbage(marker) => {
                        return Err(Error::new(ErrorKind::Protocol, "receive a packet")
                            .peer(source as u32)
                            .device("shm")
                            .cause(format!("marker {marker:#x} in the ring")));
                    }
                }
            }
        }
        Ok(any)
    }

    fn park(&self, limit: Duration, ready: &mut dyn FnMut() -> bool) {
        let own = self.own();
        let bell = own.half(layout::DOORBELL).load(Ordering::SeqCst);
        own.half(layout::SLEEPING).store(1, Ordering::SeqCst);
        park::sleeper_barrier(self.asymmetric);
        let work = ready()
            || self.incoming.iter().any(|r| r.ready(own))
            || (self.serving.get() && self.shared.server.ready(own, &self.shared.layout))
            || !self.transfers.borrow().is_idle() && self.transfers.borrow().something_served(&self.shared);
        if !work {
            self.stats.add(Kind::Park, 0);
            park::futex_wait(own.half(layout::DOORBELL), bell, limit);
        }
        own.half(layout::SLEEPING).store(0, Ordering::SeqCst);
    }

    #[inline]
    fn wake(&self, peer: u32) {
        park::waker_barrier(self.asymmetric);
        park::wake_if_asleep(&self.shared.peers[peer as usize], &self.stats);
    }

    fn attending(&self, inside: bool) {
        if !self.serving.get() {
            return;
        }
        // Relaxed: ordered by the fence below; when entering, a late sight of it costs one wake-up.
        self.own().half(layout::ATTENDING).store(u32::from(inside), Ordering::Relaxed);
        if !inside {
            // Full fence: pairs with the one in `wake_server`.
            fence(Ordering::SeqCst);
            self.shared.serve(&self.stats);
        }
    }

    fn check_peers(&self) -> Result<()> {
        liveness::check(&self.watches, &self.shared.peers).map_err(|e| {
            liveness::note(self.own(), &e);
            e.rank(self.shared.me as u32)
        })
    }

    fn counters(&self) -> Snapshot {
        self.stats.snapshot().merged(&self.shared.agent_stats.snapshot())
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn leave(&self) {
        // Release: pairs with the Acquire in `liveness::check`.
        self.own().half(layout::STATE).store(layout::STATE_LEFT, Ordering::Release);
    }

    fn abandon(&self) {
        // AcqRel: as in `leave`; a rank that has left stays so (Relaxed: nothing follows from that).
        let _ = self.own().half(layout::STATE).compare_exchange(
            layout::STATE_RUNNING,
            layout::STATE_LOST,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        for peer in 0..self.shared.peers.len() as u32 {
            self.wake(peer);
        }
    }
}

impl Drop for ShmDevice {
    fn drop(&mut self) {
        // The agent ends before the memory that it serves goes.
        drop(self.agent.borrow_mut().take());
        self.abandon();
    }
}
