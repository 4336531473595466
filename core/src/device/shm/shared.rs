//! What a rank of a node, its agent and its requests share.

use std::sync::atomic::{Ordering, fence};

use super::layout::Layout;
use super::park;
use super::request::{Server, perform};
use crate::memory::keys::Exposures;
use crate::memory::segment::{Mapping, Segment};
use crate::stats::{Kind, Stats};

/// What a rank and its agent share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) me: usize,
    /// The ranks of the job that this device connects, by their numbers here.
    pub(super) ranks: Vec<u32>,
    pub(super) layout: Layout,
    pub(super) own: Segment,
    pub(super) peers: Vec<Mapping>,
    pub(super) exposures: Exposures,
    pub(super) server: Server,
    pub(super) agent_stats: Stats,
}

impl Shared {
    pub(super) fn chunk(&self, index: usize, chunks: usize) -> *mut u8 {
        self.own.mapping().at(self.layout.bounce() + index * (self.layout.bounce / chunks))
    }

    pub(super) fn serve(&self, stats: &Stats) -> bool {
        let own = self.own.mapping();
        let perform = |source: usize, at| perform(own, at, &self.peers[source], &self.layout, &self.exposures, stats);
        self.server.serve(own, &self.layout, perform, |source| {
            stats.add(Kind::Served, 0);
            // Full fence: pairs with the sleeper's barrier. Either the origin sees the marker, or this thread sees that
            // it sleeps. The same for this rank itself, which may wait for a cell that was just set.
            fence(Ordering::SeqCst);
            park::wake_if_asleep(&self.peers[source], stats);
            park::wake_if_asleep(own, stats);
        })
    }
}
