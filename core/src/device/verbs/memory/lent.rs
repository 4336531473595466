#![allow(unsafe_code)]
//! Memory of the program that is lent to a peer for one read ([`Region::brief`](crate::device::Region::brief)).
//!
//! Its registration is one of [`super::user`] and stays when the read is over, so its remote key stays valid. Memory that is
//! taken back before it was read may be changed while the peer reads it. Therefore its owner counts how often it has taken
//! memory back; the key of lent memory carries the count, and the peer reads the count behind the data. If it has changed,
//! what was read counts as not read. A refusal by the HCA would cost the connection, and all requests behind the read.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::regions::Regions;
use super::user::UserMemory;
use crate::device::verbs::sys::{Memory, Rights};
use crate::device::{Block, Region, Registration};
use crate::error::{Error, ErrorKind, Result};
use crate::stats::Stats;

/// Shortest block for which reads of blocks are better than packing, in bytes: each range is a request of its own.
const BLOCK_FROM: u64 = 1024;

/// The word at the owner of lent memory that tells whether any was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Witness {
    /// Its value as long as none was.
    pub(crate) expected: u64,
    pub(crate) address: u64,
    pub(crate) key: u32,
}

/// What this rank has lent, and what was lent to it.
#[derive(Debug, Default)]
pub(super) struct Lent {
    /// By handle: the registration, and whether the peer has read it.
    own: FxHashMap<u64, (Rc<Memory>, bool)>,
    /// Registrations of memory that was taken back: a read may be under way, and its end is not to be a refusal.
    taken_back: Vec<(Instant, Rc<Memory>)>,
    /// By handle of the imported region.
    witnesses: FxHashMap<u64, Witness>,
}

impl Lent {
    /// Notes an imported region; the shortest block for which it is read.
    pub(super) fn imported(&mut self, handle: u64, witness: Witness) -> u64 {
        self.witnesses.insert(handle, witness);
        BLOCK_FROM
    }

    pub(super) fn forget(&mut self, handle: u64) {
        self.witnesses.remove(&handle);
    }

    /// Deregisters what was taken back and is kept by nobody else, after this time.
    pub(super) fn let_go(&mut self, linger: Duration) {
        self.taken_back.retain(|(since, _)| since.elapsed() < linger);
    }
}

impl Regions {
    /// Lends memory of the program to a peer.
    ///
    /// # Safety
    /// As [`crate::device::Device::register`].
    pub(crate) unsafe fn lend(&mut self, user: &mut UserMemory, region: Region, stats: &Stats) -> Result<Registration> {
        let Region { base, len, .. } = region;
        // SAFETY: valid until the release. After that the HCA may still read the pages, which stay pinned.
        let (_, leases) = unsafe { user.pieces(&[Block { base, len }], Rights::Lent, |_| None, stats) }?;
        let Some(memory) = leases.into_iter().next() else {
            return Err(Error::new(ErrorKind::BadArgument, "lend memory").device("verbs").cause("it has no bytes"));
        };
        self.last += 1;
        let (handle, key) = (self.last, self.lent_key(base, len, memory.remote_key()));
        self.lent.own.insert(handle, (memory, false));
        Ok(Registration { base, len, key, handle })
    }

    /// The peer has read lent memory.
    pub(crate) fn was_read(&mut self, handle: u64) {
        if let Some((_, is_read)) = self.lent.own.get_mut(&handle) {
            *is_read = true;
        }
    }

    /// Takes lent memory back; whether the handle is that of lent memory.
    pub(super) fn end_lease(&mut self, handle: u64) -> bool {
        let Some((memory, is_read)) = self.lent.own.remove(&handle) else { return false };
        if !is_read {
            // Before the program changes the memory: pairs with the reads of HCAs, data first, then this count.
            self.taken_back().fetch_add(1, Ordering::SeqCst);
            self.lent.taken_back.push((Instant::now(), memory));
        }
        true
    }

    /// What tells whether a region that was lent to this rank was taken back.
    pub(crate) fn witness(&self, handle: u64) -> Option<Witness> {
        self.lent.witnesses.get(&handle).copied()
    }
}
