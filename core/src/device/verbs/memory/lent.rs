#![allow(unsafe_code)]
//! Memory of the program that is exported to a peer for one read ([`Region::brief`](crate::device::Region::brief)).
//!
//! The registration of such memory belongs to [`super::user`] and outlives the read, so its remote key stays valid.
//! Memory that is revoked before it was read may be changed while the peer reads it. Therefore the owner counts its
//! revocations; the key of exported memory contains the count, and the peer reads the count after the data. If it has
//! changed, the data is discarded. Invalidating the key instead would make the HCA refuse the read, which would cost
//! the connection and all requests after the read.

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

/// Minimum block length in bytes for which reading blocks is better than packing: each range takes a separate request.
const BLOCK_FROM: u64 = 1024;

/// The counter at the owner of exported memory that shows whether any was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Witness {
    /// The counter's value as long as none was revoked.
    pub(crate) expected: u64,
    pub(crate) address: u64,
    pub(crate) key: u32,
}

/// Memory that this rank has exported, and memory exported to it.
#[derive(Default)]
pub(super) struct Lent {
    /// For each handle: the registration, and whether the peer has read the memory.
    own: FxHashMap<u64, (Rc<Memory>, bool)>,
    /// Registrations of revoked memory. A read may still be in progress, which the HCA would refuse after
    /// deregistration.
    revoked: Vec<(Instant, Rc<Memory>)>,
    /// Witnesses, by handle of the imported region.
    witnesses: FxHashMap<u64, Witness>,
}

impl Lent {
    /// Records an imported region; returns the minimum block length for which it is read by blocks.
    pub(super) fn imported(&mut self, handle: u64, witness: Witness) -> u64 {
        self.witnesses.insert(handle, witness);
        BLOCK_FROM
    }

    pub(super) fn forget(&mut self, handle: u64) {
        self.witnesses.remove(&handle);
    }

    /// Drops the registrations of memory that was revoked more than `linger` ago; those without other users are
    /// deregistered.
    pub(super) fn deregister_lingering(&mut self, linger: Duration) {
        self.revoked.retain(|(since, _)| since.elapsed() < linger);
    }
}

impl Regions {
    /// Exports memory of the program to a peer.
    ///
    /// # Safety
    /// The contract of [`crate::device::Device::register`].
    pub(crate) unsafe fn lend(&mut self, user: &mut UserMemory, region: Region, stats: &Stats) -> Result<Registration> {
        let Region { base, len, .. } = region;
        // SAFETY: valid until the release. The HCA may read the pages even after that, since they stay pinned.
        let (_, leases) = unsafe { user.pieces(&[Block { base, len }], Rights::Lent, |_| None, stats) }?;
        let Some(memory) = leases.into_iter().next() else {
            return Err(Error::new(ErrorKind::BadArgument, "export memory for a transfer")
                .device("verbs")
                .cause("the memory is empty"));
        };
        self.last += 1;
        let (handle, key) = (self.last, self.lent_key(base, len, memory.remote_key()));
        self.lent.own.insert(handle, (memory, false));
        Ok(Registration { base, len, key, handle })
    }

    /// Records that the peer has read exported memory.
    pub(crate) fn was_read(&mut self, handle: u64) {
        if let Some((_, is_read)) = self.lent.own.get_mut(&handle) {
            *is_read = true;
        }
    }

    /// Revokes exported memory; returns whether the handle belongs to exported memory.
    pub(super) fn end_lease(&mut self, handle: u64) -> bool {
        let Some((memory, is_read)) = self.lent.own.remove(&handle) else { return false };
        if !is_read {
            // Incremented before the program changes the memory. Pairs with the peers' HCAs, which read the data first,
            // then this count.
            self.revoked().fetch_add(1, Ordering::SeqCst);
            self.lent.revoked.push((Instant::now(), memory));
        }
        true
    }

    /// The witness of a region that was exported to this rank; `None` for any other region.
    pub(crate) fn witness(&self, handle: u64) -> Option<Witness> {
        self.lent.witnesses.get(&handle).copied()
    }
}
