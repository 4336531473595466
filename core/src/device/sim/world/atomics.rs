#![allow(unsafe_code)]
//! Atomics that are atomic only with respect to others of the same interface, as those of an HCA may be
//! (`IBV_ATOMIC_HCA`).
//!
//! The interface of a rank holds back the 8-byte words that atomics of other ranks change, and writes them back some
//! time later, or before its next operation if that is earlier: so a rank that is informed of an atomic by a message,
//! or by an answer, sees its effect. An atomic of the rank itself through its interface is written back immediately.
//! Until a word is written back, the rank's processor reads its previous value, and the processor's stores to the word
//! are lost.

use std::rc::Rc;

use super::World;
use crate::device::sim::events::Happens;
use crate::device::sim::flight::{Flight, Incoming};
use crate::device::sim::network::Time;

/// Maximum time for which an interface holds back a word, in picoseconds.
const KEPT: Time = 2_000_000;

/// A word of a region, and its value in the interface of its owner.
#[derive(Clone, Copy, Debug)]
pub(in crate::device::sim) struct KeptWord {
    at: *mut u64,
    value: u64,
}

impl World {
    /// Applies a message to its target. A message to a lost rank has no effect, and fails.
    pub(in crate::device::sim) fn act(&self, flight: &Rc<Flight>, time: Time) -> Option<Incoming> {
        let target = flight.target;
        if self.is_lost(target) {
            flight.miss();
            return None;
        }
        let word = if self.incoherent.get() { flight.word() } else { None };
        let Some(at) = word else {
            self.write_back(target);
            return flight.land();
        };
        let own = &self.rank(target).kept;
        let index = own.borrow().iter().position(|kept| kept.at == at);
        let index = index.unwrap_or_else(|| {
            let mut own = own.borrow_mut();
            if own.is_empty() {
                self.push((time + self.delay(KEPT), 0), Happens::WriteBack { rank: target });
            }
            // SAFETY: a word of a region that is exposed: words are written back before a release.
            own.push(KeptWord { at, value: unsafe { at.read() } });
            own.len() - 1
        });
        // SAFETY: as above. All ranks are on this thread, so none sees the word between the two accesses.
        unsafe {
            let seen = at.replace(own.borrow()[index].value);
            flight.land();
            own.borrow_mut()[index].value = at.replace(seen);
        }
        if flight.is_seen_at_once() {
            self.write_back(target);
        }
        None
    }

    /// Writes the words that the interface of a rank holds back to memory.
    pub(in crate::device::sim) fn write_back(&self, rank: u32) {
        for KeptWord { at, value } in self.rank(rank).kept.borrow_mut().drain(..) {
            // SAFETY: a word of a region that is exposed, since its words are written back before its release.
            unsafe { at.write(value) };
        }
    }
}
