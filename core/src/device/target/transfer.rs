#![allow(unsafe_code)]
//! The origin's side: work requests become transfers of segments, each segment is divided into requests, and the
//! requests are pipelined through the chunks of this rank's bounce buffer.

use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};

use smallvec::SmallVec;

use super::agent;
use super::request::{self, Code, INLINE, INLINE_BYTES, Request};
use super::shared_memory::{SLOTS, SharedMemory};
use crate::error::{Error, Result};
use crate::memory::copy;
use crate::stats::{Kind, Stats};

/// Polls without progress, some tens of nanoseconds each, after which a waiting rank checks whether to wake its
/// targets' agents.
const POLLS_BEFORE_WAKE: u32 = 128;

/// Maximum number of transfers in progress; further ones are rejected until some complete.
const MAX_TRANSFERS: usize = 64;

/// The segments of one transfer, usually at most two.
pub(crate) type Pieces = SmallVec<[Piece; 2]>;

/// Number of chunks of the bounce buffer, so that one is filled while others are served.
const CHUNKS: usize = 4;

/// An operation on consecutive bytes that are not mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) code: Code,
    pub(crate) accumulate: u32,
    pub(crate) key: u64,
    pub(crate) offset: u64,
    pub(crate) len: usize,
    /// Operand or source; for a read, the destination.
    pub(crate) local: *mut u8,
    /// Receives the previous values, unless null.
    pub(crate) old: *mut u8,
    /// The operands of word atomics.
    pub(crate) words: [u64; 2],
}

/// A work request that its target serves.
struct Transfer {
    /// A unique number; `id` need not be unique.
    serial: u64,
    id: u64,
    peer: u32,
    pieces: Pieces,
    /// Index of the first segment that is not completely sent.
    next: usize,
    outstanding: usize,
    error: Option<Error>,
}

/// A request that was sent and whose answer has not been collected yet.
struct Outstanding {
    sequence: u64,
    chunk: Option<usize>,
    len: usize,
    result: *mut u8,
    transfer: u64,
}

/// The requests to one target.
#[derive(Default)]
struct RequestQueue {
    next: u64,
    outstanding: VecDeque<Outstanding>,
    /// The target's progress counter when [`wake_agents`](Transfers::wake_agents) last read it.
    turns: Option<u32>,
    /// Whether an earlier transfer still has segments to send: later transfers wait, so that they do not overtake it.
    blocked: bool,
}

impl RequestQueue {
    /// Whether the target, rank `peer`, has served the first outstanding request.
    fn is_served(&self, memory: &impl SharedMemory, peer: usize) -> bool {
        let served =
            |r: &Outstanding| request::is_served(memory.memory(peer), memory.layout(), memory.me(), r.sequence);
        self.outstanding.front().is_some_and(served)
    }
}

/// All transfers of one rank.
pub(super) struct Transfers {
    active: VecDeque<Transfer>,
    queues: Vec<RequestQueue>,
    free: Vec<usize>,
    serial: u64,
    /// Polls since a request was last sent or served.
    idle_turns: u32,
}

impl Transfers {
    pub(super) fn new(ranks: usize) -> Self {
        Self {
            active: VecDeque::new(),
            queues: (0..ranks).map(|_| RequestQueue::default()).collect(),
            free: (0..CHUNKS).collect(),
            serial: 0,
            idle_turns: 0,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// Whether no further transfer can be accepted.
    pub(super) fn is_full(&self) -> bool {
        self.active.len() >= MAX_TRANSFERS
    }

    pub(super) fn add(&mut self, id: u64, peer: u32, pieces: Pieces) {
        self.serial += 1;
        let serial = self.serial;
        self.active.push_back(Transfer { serial, id, peer, pieces, next: 0, outstanding: 0, error: None });
    }

    /// Drops the transfers that `which` selects. The target still serves requests already sent, but their results are
    /// discarded.
    pub(super) fn cancel(&mut self, which: &dyn Fn(u64) -> bool) {
        self.active.retain(|t| !which(t.id));
    }

    /// Whether transfers to `peer` are in progress.
    pub(super) fn any_to(&self, peer: u32) -> bool {
        self.active.iter().any(|t| t.peer == peer)
    }

    /// Wakes the agents of targets that are not inside the runtime: those whose progress counter did not change since
    /// the last call. This is not done immediately, because a target that is about to return to the runtime serves
    /// sooner than its agent could wake up. Returns whether all targets with outstanding requests are outside the
    /// runtime.
    pub(super) fn wake_agents(&mut self, memory: &impl SharedMemory, stats: &Stats) -> bool {
        let mut all_absent = true;
        for (peer, queue) in self.queues.iter_mut().enumerate().filter(|(_, q)| !q.outstanding.is_empty()) {
            let target = memory.memory(peer);
            // Relaxed: a stale value at most wakes the agent once too often.
            let turns = target.half(memory.layout().turns()).load(Ordering::Relaxed);
            if queue.turns.replace(turns) == Some(turns) {
                agent::wake(memory, target, stats);
            } else {
                all_absent = false;
            }
        }
        all_absent
    }

    /// Adds a segment to the transfer added last; it is served after the other segments.
    pub(super) fn append(&mut self, piece: Piece) {
        if let Some(t) = self.active.back_mut() {
            t.pieces.push(piece);
        }
    }

    /// Whether a target has served a request whose answer has not been collected yet.
    pub(super) fn any_served(&self, memory: &impl SharedMemory) -> bool {
        !self.is_idle() && self.queues.iter().enumerate().any(|(peer, queue)| queue.is_served(memory, peer))
    }

    /// Whether a target has served a request, so that [`advance`](Self::advance) has work: requests that are not sent
    /// yet wait for a slot or a chunk, and only a served request frees one. Counts the polls without success.
    #[inline]
    pub(super) fn poll_served(&mut self, memory: &impl SharedMemory, stats: &Stats) -> bool {
        let served = self.any_served(memory);
        if !served && !self.is_idle() {
            self.idle_turns += 1;
            if self.idle_turns.is_multiple_of(POLLS_BEFORE_WAKE) {
                self.wake_agents(memory, stats);
            }
        }
        served
    }

    /// Collects answers, sends requests as far as slots and chunks are free, and returns the ids of finished transfers.
    pub(super) fn advance(&mut self, memory: &impl SharedMemory, stats: &Stats) -> SmallVec<[(u64, Result<()>); 1]> {
        self.collect(memory, stats);
        self.issue(memory, stats);
        let mut finished = SmallVec::new();
        self.active.retain_mut(|t| {
            let ends = t.outstanding == 0 && (t.next == t.pieces.len() || t.error.is_some());
            if ends {
                finished.push((t.id, t.error.take().map_or(Ok(()), Err)));
            }
            !ends
        });
        finished
    }

    fn collect(&mut self, memory: &impl SharedMemory, stats: &Stats) {
        for (peer, queue) in self.queues.iter_mut().enumerate() {
            while queue.is_served(memory, peer) {
                let Some(request) = queue.outstanding.pop_front() else { break };
                self.idle_turns = 0;
                self.free.extend(request.chunk);
                let Some(t) = self.active.iter_mut().find(|t| t.serial == request.transfer) else { continue };
                t.outstanding -= 1;
                match request::outcome(memory.memory(peer), memory.layout(), memory.me(), request.sequence) {
                    Ok(_) if request.result.is_null() => {}
                    Ok(words) => {
                        let from = match request.chunk {
                            Some(chunk) => chunk_of(memory, chunk).cast_const(),
                            None => words.as_ptr().cast(),
                        };
                        // SAFETY: `result` is valid for `len` bytes by the contract of `post`, since the transfer was
                        // not cancelled; the chunk or the operand words hold `len` bytes.
                        unsafe { copy::load(from, request.result, request.len) };
                        stats.add(Kind::Copy, request.len);
                    }
                    Err(e) => {
                        t.error.get_or_insert(e.peer(peer as u32));
                    }
                }
            }
        }
    }

    /// Sends requests as far as slots and chunks are free, and wakes their targets.
    pub(super) fn issue(&mut self, memory: &impl SharedMemory, stats: &Stats) {
        let (layout, me) = (memory.layout(), memory.me());
        let chunk_len = layout.bounce_len / CHUNKS;
        self.queues.iter_mut().for_each(|q| q.blocked = false);
        for t in &mut self.active {
            let target = memory.memory(t.peer as usize);
            let queue = &mut self.queues[t.peer as usize];
            let mut sent = false;
            while t.error.is_none() && !queue.blocked && queue.outstanding.len() < SLOTS {
                let Some(piece) = t.pieces.get_mut(t.next) else { break };
                let len;
                let mut chunk = None;
                let mut operand = [piece.words[0], piece.words[1], 0];
                if piece.len <= INLINE_BYTES {
                    len = piece.len;
                    if !matches!(piece.code, Code::Read | Code::FetchAdd | Code::CompareSwap | Code::Signal) {
                        // SAFETY: the segment's source holds `len` bytes by the contract of `post`.
                        unsafe { copy::load(piece.local, operand.as_mut_ptr().cast(), len) };
                        stats.add(Kind::Copy, len);
                    }
                } else {
                    let Some(free) = self.free.pop() else { break };
                    chunk = Some(free);
                    len = piece.len.min(chunk_len);
                    if piece.code != Code::Read {
                        // SAFETY: as above; the chunk is free, so the target does not access it.
                        unsafe { copy::store(piece.local, chunk_of(memory, free), len) };
                        stats.add(Kind::Copy, len);
                    }
                }
                let bounce = chunk.map_or(INLINE, |c| (c * chunk_len) as u32);
                let Piece { code, accumulate, key, offset, .. } = *piece;
                let request = Request { code, accumulate, key, offset, len: len as u32, bounce, operand };
                request::write(target, layout, me, queue.next, &request);
                stats.add(Kind::Request, len);
                let result = match piece.code {
                    Code::Write | Code::Accumulate | Code::Signal => std::ptr::null_mut(),
                    Code::Read => piece.local,
                    Code::FetchAdd | Code::CompareSwap | Code::FetchAccumulate => piece.old,
                };
                queue.outstanding.push_back(Outstanding {
                    sequence: queue.next,
                    chunk,
                    len,
                    result,
                    transfer: t.serial,
                });
                queue.next += 1;
                t.outstanding += 1;
                sent = true;
                piece.offset += len as u64;
                piece.len -= len;
                piece.local = piece.local.wrapping_add(len);
                if !piece.old.is_null() {
                    piece.old = piece.old.wrapping_add(len);
                }
                if piece.len == 0 {
                    t.next += 1;
                }
            }
            queue.blocked |= t.error.is_none() && t.next < t.pieces.len();
            if sent {
                self.idle_turns = 0;
                // Full fence: pairs with the sleeper's barrier.
                fence(Ordering::SeqCst);
                memory.wake(t.peer as usize, stats);
            }
        }
    }
}

/// The address of a chunk of this rank's bounce buffer.
fn chunk_of(memory: &impl SharedMemory, index: usize) -> *mut u8 {
    let layout = memory.layout();
    memory.memory(memory.me()).at(layout.bounce + index * (layout.bounce_len / CHUNKS))
}
