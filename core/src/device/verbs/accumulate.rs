#![allow(unsafe_code)]
//! Accumulates and compare-and-swaps that the card does not do in one request, by steps that the target takes no
//! part in. There is one atomic domain for each element size, whatever the operation, so that none can miss
//! another:
//!
//! | element | by | messages without contention |
//! |---|---|---|
//! | 8 bytes, integer sum | the card's fetch-add | one an element |
//! | 8 bytes, compare and swap | the card's compare-swap | one |
//! | 8 bytes, read (no-op) | a read | one |
//! | 8 bytes, anything else | read, then compare-swap until nobody was in between | one, and one an element |
//! | 1, 2, 4 bytes, and unknown | lock word of the region, read, write, unlock | four for up to 64 KiB |
//!
//! The card changes the 8 bytes of an element and no others; the lock keeps small elements apart from each other, which
//! the card could only change together with their neighbours. The processor changes neither: the card's atomics
//! need not be coherent with it (`IBV_ATOMIC_HCA`), so that an origin's own memory is updated by the card too.
//!
//! Updates of one origin at one target are done one after the other, in the order in which they were posted.

use smallvec::SmallVec;

use super::buffers::PACKET;
use super::engine::Engine;
use super::flight::Flight;
use super::ops::{Op, Owner, Whose};
use super::sys::qp::Action;
use super::update::{Stage, Update, What};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::copy;
use crate::stats::Stats;

impl Engine {
    /// Queues an update and starts it if it is the first.
    pub(super) fn update(&mut self, update: Update, stats: &Stats) {
        let peer = update.import.peer;
        self.updates[peer as usize].push_back(update);
        self.todo = true;
        self.start_update(peer, stats);
    }

    pub(super) fn cancel_updates(&mut self, which: &dyn Fn(u64) -> bool) {
        for queue in &mut self.updates {
            queue.retain_mut(|u| {
                if u.id.is_some_and(which) {
                    u.id = None;
                    u.old = std::ptr::null_mut();
                    u.notice = None;
                }
                // One that has begun is finished: it may hold the lock.
                u.id.is_some() || u.stage != Stage::Idle || u.done > 0 || u.chunk.is_some()
            });
        }
    }

    /// Starts the next step of the first update to `peer`, if there is room for it.
    pub(super) fn start_update(&mut self, peer: u32, stats: &Stats) {
        while let Some(mut u) = self.updates[peer as usize].pop_front() {
            if u.stage != Stage::Idle || u.pause > 0 {
                u.pause = u.pause.saturating_sub(1);
                self.updates[peer as usize].push_front(u);
                return;
            }
            match self.step(&mut u, stats) {
                Ok(()) => {
                    self.updates[peer as usize].push_front(u);
                    return;
                }
                Err(e) => {
                    u.error.get_or_insert(e);
                    self.end_update(u, stats);
                }
            }
        }
    }

    /// Starts one step, if there is room for it.
    fn step(&mut self, u: &mut Update, stats: &Stats) -> Result<()> {
        let peer = u.import.peer;
        let Some(room) = self.ready(peer)?.map(|s| s.room()) else { return Ok(()) };
        if room < 3 {
            return Ok(());
        }
        if u.chunk.is_none() {
            u.chunk = self.pool.take(u.chunk_size());
        }
        let Some(chunk) = &u.chunk else { return Ok(()) };
        let (address, key) = (u.address(), u.import.key);
        let piece = u.piece();
        let mut flights: SmallVec<[Flight; 4]> = SmallVec::new();
        match u.what {
            What::Read => {
                let mut read = Flight::new(Action::Read { address, key });
                read.pieces.push(self.pool.piece(chunk, 0, piece));
                flights.push(read);
                u.stage = Stage::Reading;
            }
            What::Words(..) if u.pending.is_empty() => {
                let mut read = Flight::new(Action::Read { address, key });
                read.pieces.push(self.pool.piece(chunk, 0, piece));
                flights.push(read);
                u.stage = Stage::Reading;
            }
            What::Words(f, code) => {
                let chunk_at = |i: usize| self.pool.at(chunk, i);
                let operand = &u.operand[u.done..u.done + piece];
                let fetch = !u.old.is_null();
                u.under_way.clear();
                while let Some(i) = u.pending.pop() {
                    let at = 8 * i;
                    let (mut word, now) = ([0u8; 8], chunk_at(at));
                    // SAFETY: words of the chunk, which no request uses now, and of private memory.
                    let applied = unsafe {
                        std::ptr::copy_nonoverlapping(now, word.as_mut_ptr(), 8);
                        let mut aligned = u64::from_ne_bytes(word);
                        let ok = f(code, (&raw mut aligned).cast(), operand[at..].as_ptr(), std::ptr::null_mut(), 8);
                        ok.then_some((u64::from_ne_bytes(word), aligned))
                    };
                    let Some((expected, desired)) = applied else {
                        return Err(Error::new(ErrorKind::Misaligned, "accumulate").peer(peer).device("verbs"));
                    };
                    if fetch {
                        u.former[u.done + at..u.done + at + 8].copy_from_slice(&word);
                    }
                    let address = address + at as u64;
                    let mut swap = Flight::new(Action::CompareSwap { address, key, expected, desired });
                    swap.pieces.push(self.pool.piece(chunk, PACKET / 2 + at, 8));
                    flights.push(swap);
                    u.under_way.push(i);
                    if flights.len() >= room {
                        break;
                    }
                }
                u.stage = Stage::Changing;
            }
            What::Add => {
                if u.pending.is_empty() {
                    u.pending = (0..piece / 8).rev().collect();
                }
                u.under_way.clear();
                while let Some(i) = u.pending.pop() {
                    let at = 8 * i;
                    let mut word = [0u8; 8];
                    word.copy_from_slice(&u.operand[u.done + at..u.done + at + 8]);
                    let add = u64::from_le_bytes(word);
                    let mut flight = Flight::new(Action::FetchAdd { address: address + at as u64, key, add });
                    flight.pieces.push(self.pool.piece(chunk, PACKET / 2 + at, 8));
                    flights.push(flight);
                    u.under_way.push(i);
                    if flights.len() >= room {
                        break;
                    }
                }
                u.stage = Stage::Changing;
            }
            What::Swap { expected, desired } => {
                let mut swap = Flight::new(Action::CompareSwap { address, key, expected, desired });
                swap.pieces.push(self.pool.piece(chunk, PACKET / 2, 8));
                flights.push(swap);
                u.under_way = vec![0];
                u.stage = Stage::Changing;
            }
            What::Locked(..) | What::SwapLocked { .. } => {
                let (address, key) = u.import.lock;
                let desired = u64::from(self.links.me) + 1;
                let mut lock = Flight::new(Action::CompareSwap { address, key, expected: 0, desired });
                lock.pieces.push(self.pool.piece(chunk, 0, 8));
                flights.push(lock);
                u.stage = Stage::Locking;
            }
        }
        if !u.old.is_null() && u.former.len() < u.len {
            u.former.resize(u.len, 0);
        }
        self.launch(peer, flights, stats);
        Ok(())
    }

    /// Posts the requests of one step.
    fn launch(&mut self, peer: u32, mut flights: SmallVec<[Flight; 4]>, stats: &Stats) {
        let op = self.ops.add(Op::new(Owner::Accumulate, peer, flights.len()));
        flights.iter_mut().for_each(|f| f.whose = Whose::Op(op));
        if let Some(last) = flights.last_mut() {
            last.signalled = true;
        }
        self.push(peer, flights, stats);
    }

    /// The requests of a step have landed.
    pub(super) fn update_landed(&mut self, peer: u32, result: Result<()>, stats: &Stats) {
        let Some(mut u) = self.updates[peer as usize].pop_front() else { return };
        let ended = match result {
            Ok(()) => self.after(&mut u, stats),
            Err(e) => {
                u.error.get_or_insert(e);
                // The lock was taken, so it is given back: what failed before the unlocking kept that from being done.
                let locked = matches!(u.stage, Stage::Reading | Stage::Unlocking)
                    && matches!(u.what, What::Locked(..) | What::SwapLocked { .. });
                if locked {
                    self.unlock(&mut u, false, stats);
                }
                !locked
            }
        };
        if ended {
            self.end_update(u, stats);
        } else {
            self.updates[peer as usize].push_front(u);
        }
        self.start_update(peer, stats);
    }

    /// Takes a step's results in; whether the update has ended.
    fn after(&mut self, u: &mut Update, stats: &Stats) -> bool {
        let piece = u.piece();
        let Some(chunk) = &u.chunk else { return true };
        match (u.stage, u.what) {
            (Stage::Reading, What::Read) => {
                if !u.old.is_null() {
                    let to = u.former[u.done..].as_mut_ptr();
                    // SAFETY: the piece fits both.
                    unsafe { self.pool.copy_out(chunk, 0, to, piece) };
                }
                u.done += piece;
            }
            (Stage::Reading, What::Words(..)) => u.pending = (0..piece / 8).rev().collect(),
            (Stage::Changing, what) => {
                for i in std::mem::take(&mut u.under_way) {
                    let (now, found) = (self.pool.at(chunk, 8 * i), self.pool.at(chunk, PACKET / 2 + 8 * i));
                    // SAFETY: words of the chunk, which no request uses any more.
                    let (expected, found) = unsafe {
                        let found = found.cast::<u64>().read_unaligned();
                        (std::mem::replace(&mut *now.cast::<u64>(), found), found)
                    };
                    if matches!(what, What::Words(..)) {
                        if expected != found {
                            u.pending.push(i);
                        }
                    } else if !u.old.is_null() {
                        u.former[u.done + 8 * i..u.done + 8 * i + 8].copy_from_slice(&found.to_ne_bytes());
                    }
                }
                if u.pending.is_empty() {
                    u.done += piece;
                }
            }
            (Stage::Locking, _) => {
                // SAFETY: as above.
                let holder = unsafe { self.pool.at(chunk, 0).cast::<u64>().read_unaligned() };
                if holder == 0 {
                    let mut read = Flight::new(Action::Read { address: u.address(), key: u.import.key });
                    read.pieces.push(self.pool.piece(chunk, u.data(), piece));
                    u.stage = Stage::Reading;
                    self.launch(u.import.peer, smallvec::smallvec![read], stats);
                    return false;
                }
                u.tries = (u.tries + 1).min(8);
                u.pause = 1 << u.tries;
            }
            (Stage::Reading, _) => {
                let changed = self.apply(u);
                self.unlock(u, changed, stats);
                return false;
            }
            (Stage::Unlocking, _) => u.done += piece,
            (Stage::Failing | Stage::Idle, _) => return true,
        }
        u.stage = Stage::Idle;
        u.done >= u.len
    }

    /// Changes the elements in the chunk; `false` if the function refused.
    fn apply(&mut self, u: &mut Update) -> bool {
        let (piece, done) = (u.piece(), u.done);
        let Some(chunk) = &u.chunk else { return false };
        let at = self.pool.at(chunk, u.data());
        let former = if u.old.is_null() { std::ptr::null_mut() } else { u.former[done..].as_mut_ptr() };
        // SAFETY: bytes of the chunk at the alignment of the target, which no request uses now; operand and former
        // values are private and have the update's length.
        let ok = unsafe {
            match u.what {
                What::Locked(f, code) => f(code, at, u.operand[done..].as_ptr(), former, piece),
                What::SwapLocked { expected, desired } => {
                    let found = copy::compare_swap(at, piece, expected, desired).to_le_bytes();
                    if !former.is_null() {
                        std::ptr::copy_nonoverlapping(found.as_ptr(), former, piece);
                    }
                    true
                }
                _ => false,
            }
        };
        if !ok {
            u.error = Some(
                Error::new(ErrorKind::Misaligned, "accumulate")
                    .peer(u.import.peer)
                    .device("verbs")
                    .cause(format!("offset {}", u.offset + done)),
            );
        }
        ok
    }

    /// Writes the elements back, if they were changed, and gives the lock back: one list.
    fn unlock(&mut self, u: &mut Update, changed: bool, stats: &Stats) {
        let Some(chunk) = &u.chunk else { return };
        let mut flights: SmallVec<[Flight; 4]> = SmallVec::new();
        if changed {
            let mut write = Flight::new(Action::Write { address: u.address(), key: u.import.key });
            write.pieces.push(self.pool.piece(chunk, u.data(), u.piece()));
            flights.push(write);
        }
        let (address, key) = u.import.lock;
        // By an atomic too: a plain write could fall between the card's reading and writing of another's try.
        let add = (u64::from(self.links.me) + 1).wrapping_neg();
        let mut unlock = Flight::new(Action::FetchAdd { address, key, add });
        unlock.pieces.push(self.pool.piece(chunk, 8, 8));
        flights.push(unlock);
        u.stage = if u.error.is_some() { Stage::Failing } else { Stage::Unlocking };
        self.launch(u.import.peer, flights, stats);
    }

    fn end_update(&mut self, mut u: Update, stats: &Stats) {
        if let Some(chunk) = u.chunk.take() {
            self.pool.give(chunk);
        }
        let result = u.error.map_or(Ok(()), Err);
        let Some(id) = u.id else { return };
        if result.is_ok() {
            if !u.old.is_null() {
                // SAFETY: valid for the update's length until it is complete or cancelled.
                unsafe { std::ptr::copy_nonoverlapping(u.former.as_ptr(), u.old, u.len) };
            }
            if let Some(notice) = &u.notice {
                let signal = self.signal(notice);
                self.push(u.import.peer, [signal], stats);
            }
        }
        self.done.push_back((id, result));
    }
}
