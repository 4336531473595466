#![allow(unsafe_code)]
//! The origin's side of requests: transfers cut into pieces, pieces into requests, in a pipeline through the
//! chunks of this rank's bounce buffer.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::layout::{SLOTS, TURNS};
use super::request::{self, Code, INLINE, INLINE_BYTES, Request};
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::memory::copy;
use crate::stats::{Kind, Stats};

/// Turns of a waiting rank, some tens of nanoseconds each, after which it asks for its target's agent.
const PATIENCE: u32 = 128;

/// Most transfers that are under way at a time; more are refused until some are done.
const MOST: usize = 64;

/// The pieces of one transfer: few, unless its buffers are many.
pub(super) type Pieces = SmallVec<[Piece; 2]>;

/// How many chunks the bounce buffer has: one is filled while others are served.
const CHUNKS: usize = 4;

/// Something to be done to consecutive bytes that are not mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) code: Code,
    pub(super) accumulate: u32,
    pub(super) key: u64,
    pub(super) offset: u64,
    pub(super) len: usize,
    /// Operand or source; for a read, the destination.
    pub(super) local: *mut u8,
    /// Where former values go, or null.
    pub(super) old: *mut u8,
    /// The operands of word atomics.
    pub(super) words: [u64; 2],
}

/// A work request that needs its target.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) id: u64,
    pub(super) peer: u32,
    pieces: Pieces,
    /// The first that is not sent whole.
    next: usize,
    in_flight: usize,
    error: Option<Error>,
}

impl Transfer {
    pub(super) fn new(id: u64, peer: u32, pieces: Pieces) -> Self {
        Self { id, peer, pieces, next: 0, in_flight: 0, error: None }
    }
}

#[derive(Debug)]
struct InFlight {
    sequence: u64,
    chunk: Option<usize>,
    len: usize,
    result: *mut u8,
    transfer: u64,
}

/// The requests to one target.
#[derive(Debug, Default)]
struct RequestQueue {
    next: u64,
    in_flight: VecDeque<InFlight>,
    /// The target's turns when this rank last ran out of patience.
    turns: Option<u32>,
    /// Whether an earlier transfer still has pieces to send: later ones wait, so that none overtakes it.
    blocked: bool,
}

/// All transfers of one rank.
#[derive(Debug)]
pub(super) struct Transfers {
    active: VecDeque<(u64, Transfer)>,
    queues: Vec<RequestQueue>,
    free: Vec<usize>,
    serial: u64,
    /// Turns since something was sent or served.
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

    /// Whether there is no room for another transfer.
    pub(super) fn is_full(&self) -> bool {
        self.active.len() >= MOST
    }

    pub(super) fn add(&mut self, transfer: Transfer) {
        self.serial += 1;
        self.active.push_back((self.serial, transfer));
    }

    /// Drops the transfers chosen by `which`; requests already sent run out, but their results go nowhere.
    pub(super) fn cancel(&mut self, which: &dyn Fn(u64) -> bool) {
        let gone: Vec<u64> = self.active.iter().filter(|(_, t)| which(t.id)).map(|(s, _)| *s).collect();
        self.active.retain(|(s, _)| !gone.contains(s));
        for f in self.queues.iter_mut().flat_map(|q| q.in_flight.iter_mut()) {
            if gone.contains(&f.transfer) {
                f.result = std::ptr::null_mut();
            }
        }
    }

    /// Whether transfers to `peer` are under way.
    pub(super) fn any_to(&self, peer: u32) -> bool {
        self.active.iter().any(|(_, t)| t.peer == peer)
    }

    /// The targets of requests that are not served whose ranks have not turned since the last call; whether there are
    /// others.
    pub(super) fn left_alone(&mut self, shared: &Shared) -> (SmallVec<[usize; 4]>, bool) {
        let (mut left, mut others) = (SmallVec::new(), false);
        for (peer, queue) in self.queues.iter_mut().enumerate().filter(|(_, q)| !q.in_flight.is_empty()) {
            // Relaxed: see where it is written.
            let turns = shared.peers[peer].half(TURNS).load(Ordering::Relaxed);
            if queue.turns.replace(turns) == Some(turns) {
                left.push(peer);
            } else {
                others = true;
            }
        }
        (left, others)
    }

    /// Counts a turn in which nothing was served; whether it is time to wake agents, which is said once in a while.
    pub(super) fn is_patience_over(&mut self) -> bool {
        self.idle_turns += 1;
        self.idle_turns.is_multiple_of(PATIENCE)
    }

    /// Adds a piece to the transfer that was added last: served after its others.
    pub(super) fn append(&mut self, piece: Piece) {
        if let Some((_, t)) = self.active.back_mut() {
            t.pieces.push(piece);
        }
    }

    /// Whether a target has served something that was not collected yet.
    pub(super) fn something_served(&self, shared: &Shared) -> bool {
        self.queues.iter().enumerate().any(|(peer, queue)| {
            let served = |f: &InFlight| request::is_served(&shared.peers[peer], &shared.layout, shared.me, f.sequence);
            queue.in_flight.front().is_some_and(served)
        })
    }

    /// Collects what was served, sends what there is room for, and returns the finished transfers.
    pub(super) fn advance(
        &mut self,
        shared: &Shared,
        stats: &Stats,
        wake: &dyn Fn(u32),
    ) -> SmallVec<[(Transfer, Result<()>); 1]> {
        self.collect(shared, stats);
        self.issue(shared, stats, wake);
        let mut finished = SmallVec::new();
        let mut i = 0;
        while i < self.active.len() {
            let t = &self.active[i].1;
            if t.in_flight == 0 && (t.next == t.pieces.len() || t.error.is_some()) {
                if let Some((_, mut t)) = self.active.remove(i) {
                    let result = t.error.take().map_or(Ok(()), Err);
                    finished.push((t, result));
                }
            } else {
                i += 1;
            }
        }
        finished
    }

    fn collect(&mut self, shared: &Shared, stats: &Stats) {
        for (peer, queue) in self.queues.iter_mut().enumerate().filter(|(_, q)| !q.in_flight.is_empty()) {
            let target = &shared.peers[peer];
            let served = |f: &InFlight| request::is_served(target, &shared.layout, shared.me, f.sequence);
            while queue.in_flight.front().is_some_and(served) {
                let Some(f) = queue.in_flight.pop_front() else { break };
                self.idle_turns = 0;
                let outcome = request::outcome(target, &shared.layout, shared.me, f.sequence);
                if let (Ok(words), false) = (&outcome, f.result.is_null()) {
                    let from = match f.chunk {
                        Some(chunk) => shared.chunk(chunk, CHUNKS).cast_const(),
                        None => words.as_ptr().cast(),
                    };
                    // SAFETY: `result` is valid for `len` bytes by the contract of `post` (a cancelled one is
                    // null); the chunk holds as many, or the words do.
                    unsafe { copy::load(from, f.result, f.len) };
                    stats.add(Kind::Copy, f.len);
                }
                self.free.extend(f.chunk);
                if let Some((_, t)) = self.active.iter_mut().find(|(s, _)| *s == f.transfer) {
                    t.in_flight -= 1;
                    if let Err(e) = outcome {
                        t.error.get_or_insert(e.peer(peer as u32));
                    }
                }
            }
        }
    }

    /// Sends what there is room for.
    pub(super) fn issue(&mut self, shared: &Shared, stats: &Stats, wake: &dyn Fn(u32)) {
        self.queues.iter_mut().for_each(|q| q.blocked = false);
        for (serial, t) in &mut self.active {
            let queue = &mut self.queues[t.peer as usize];
            let mut sent = false;
            while t.error.is_none() && !queue.blocked && queue.in_flight.len() < SLOTS {
                let Some(piece) = t.pieces.get_mut(t.next) else { break };
                let len;
                let mut chunk = None;
                let mut operand = [piece.words[0], piece.words[1], 0];
                if piece.len <= INLINE_BYTES {
                    len = piece.len;
                    if !matches!(piece.code, Code::Read | Code::FetchAdd | Code::CompareSwap | Code::Signal) {
                        // SAFETY: the piece's source holds `len` bytes by the contract of `post`.
                        unsafe { copy::load(piece.local, operand.as_mut_ptr().cast(), len) };
                        stats.add(Kind::Copy, len);
                    }
                } else {
                    let Some(free) = self.free.pop() else { break };
                    chunk = Some(free);
                    len = piece.len.min(shared.layout.bounce / CHUNKS);
                    if piece.code != Code::Read {
                        // SAFETY: as above; the chunk is free, so the target does not touch it.
                        unsafe { copy::store(piece.local, shared.chunk(free, CHUNKS), len) };
                        stats.add(Kind::Copy, len);
                    }
                }
                let bounce = chunk.map_or(INLINE, |c| (c * (shared.layout.bounce / CHUNKS)) as u32);
                request::write(
                    &shared.peers[t.peer as usize],
                    &shared.layout,
                    shared.me,
                    queue.next,
                    &Request {
                        code: piece.code,
                        accumulate: piece.accumulate,
                        key: piece.key,
                        offset: piece.offset,
                        len: len as u32,
                        bounce,
                        operand,
                    },
                );
                stats.add(Kind::Request, len);
                let result = match piece.code {
                    Code::Write | Code::Accumulate | Code::Signal => std::ptr::null_mut(),
                    Code::Read => piece.local,
                    Code::FetchAdd | Code::CompareSwap | Code::FetchAccumulate => piece.old,
                };
                queue.in_flight.push_back(InFlight { sequence: queue.next, chunk, len, result, transfer: *serial });
                queue.next += 1;
                t.in_flight += 1;
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
                wake(t.peer);
            }
        }
    }
}
