#![allow(unsafe_code)]
//! Claims of the segments of a message that both ranks copy at the same time.
//!
//! Such a message is cut into segments, and a word in memory of the receiver that both ranks map counts the claimed
//! ones. The receiver claims segments from the front and the sender from the back, so the count alone says which are
//! left: none is copied twice, and none is left out. The word also holds a number of the message, so that a late sender
//! claims no segment of another message.

#[cfg(test)]
mod models;

use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;

use crate::device::{Device, Mapped, Region, Registration};
use crate::memory::words::Word;

/// Bytes of a slot: a cache line.
const SLOT: usize = 64;
/// Number of slots of a rank: messages beyond that are copied by their receiver alone.
const SLOTS: usize = 64;

/// Begins the claims of a message, whose number has not been used in this word before.
fn open(word: &impl Word, message: u32) {
    word.store(u64::from(message) << 32, Ordering::SeqCst);
}

/// Claims one more segment of a message; `false` if all are claimed, or the word belongs to another message.
fn claim(word: &impl Word, message: u32, pieces: u32) -> bool {
    let mut found = word.load(Ordering::SeqCst);
    while (found >> 32) as u32 == message && (found as u32) < pieces {
        match word.compare_exchange(found, found + 1, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return true,
            Err(now) => found = now,
        }
    }
    false
}

/// Ends the claims of a message that may have segments left.
fn close(word: &impl Word) {
    word.store(u64::MAX, Ordering::SeqCst);
}

/// The claims of one message, as seen by one of its two ranks.
pub(super) struct Claims {
    word: *mut u64,
    message: u32,
    pieces: u32,
}

impl Claims {
    fn word(&self) -> &AtomicU64 {
        // SAFETY: an aligned word of a claim table. Both ranks access it as an atomic, and it is mapped as long as the
        // device lives; claims are used only in calls that are given the engine.
        unsafe { AtomicU64::from_ptr(self.word) }
    }

    /// Claims one more segment; `false` if all are claimed, or the message has ended.
    pub(super) fn claim(&self) -> bool {
        claim(self.word(), self.message, self.pieces)
    }
}

/// Memory with the claims of messages: this rank's own, and that of other ranks of the node.
#[derive(Default)]
pub(super) struct ClaimTable {
    /// Allocated on first use.
    own: Option<Registration>,
    /// Bit set of the slots in use.
    used: u64,
    last: u32,
    /// The claim tables of other ranks; `None` for one that cannot be mapped.
    peers: FxHashMap<u32, Option<Mapped>>,
}

impl ClaimTable {
    /// Begins the claims of a message of `pieces` segments. Returns the claims, the key of the table's region, and the
    /// number by which the sender finds the claims in the table; `None` if no slot is free, or the table cannot be
    /// allocated.
    pub(super) fn open(&mut self, device: &dyn Device, pieces: u32) -> Option<(Claims, &[u8], u64)> {
        let own = match &mut self.own {
            Some(own) => own,
            none => {
                let region = Region { one_node: true, align: SLOT, ..Region::allocated(SLOT * SLOTS) };
                none.insert(device.allocate(region).ok()?)
            }
        };
        let slot = (!self.used).trailing_zeros();
        self.used |= 1u64.checked_shl(slot)?;
        self.last = self.last.wrapping_add(1) & (u32::MAX >> 1);
        let claims = Claims { word: at(own.base, slot), message: self.last, pieces };
        open(claims.word(), self.last);
        Some((claims, &own.key, u64::from(slot) << 32 | u64::from(self.last)))
    }

    /// Ends claims in this rank's own table: none succeeds afterwards.
    pub(super) fn close(&mut self, claims: &Claims) {
        close(claims.word());
        let Some(own) = &self.own else { return };
        self.used &= !(1 << ((claims.word.addr() - own.base.addr()) / SLOT));
    }

    /// The claims of a message that `peer` receives, by its table's key and their number there; `None` if this rank
    /// cannot map the table.
    pub(super) fn find(
        &mut self,
        device: &dyn Device,
        peer: u32,
        (key, number): (&[u8], u64),
        pieces: u32,
    ) -> Option<Claims> {
        let mapped = self.peers.entry(peer).or_insert_with(|| {
            let remote = device.import(peer, key, None).ok()?;
            let is_whole = |m: &Mapped| m.lo == 0 && m.hi >= SLOT * SLOTS && m.base.addr().is_multiple_of(SLOT);
            let mapped = remote.mapped.filter(is_whole);
            if mapped.is_none() {
                // SAFETY: nothing accesses the mapping.
                unsafe { device.forget(remote.handle) };
            }
            mapped
        });
        let slot = (number >> 32) as u32;
        let base = mapped.filter(|_| (slot as usize) < SLOTS)?.base;
        Some(Claims { word: at(base, slot), message: number as u32, pieces })
    }
}

/// The word of a slot.
fn at(base: *mut u8, slot: u32) -> *mut u64 {
    base.wrapping_add(SLOT * slot as usize).cast()
}
