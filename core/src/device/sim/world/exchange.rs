//! The key-value exchange of the ranks, and its fences, which take no time.

use std::cell::RefMut;
use std::collections::HashMap;

use super::{Sleeping, World};
use crate::device::sim::network::Time;
use crate::error::{Error, ErrorKind, Result};

/// The key-value exchange of the ranks.
#[derive(Default)]
pub(crate) struct Exchange {
    pub(crate) pending: HashMap<String, Vec<u8>>,
    pub(crate) visible: HashMap<String, Vec<u8>>,
    arrived: usize,
    /// The latest clock of the ranks that have arrived.
    latest: Time,
    /// Number of fences that all ranks have passed.
    passed: u64,
    /// A rank that has ended and reaches no further fence, and the kind of its end.
    ended: Option<(u32, &'static str)>,
}

impl World {
    /// Waits until all ranks have called it; all clocks are then set to that of the last rank.
    pub(crate) fn fence(&self, rank: u32) -> Result<()> {
        self.check_ended(rank)?;
        let (r, mut exchange) = (self.rank(rank), self.exchange.borrow_mut());
        exchange.arrived += 1;
        exchange.latest = exchange.latest.max(r.clock.get());
        let passed = exchange.passed;
        if exchange.arrived < self.ranks.len() {
            drop(exchange);
            r.yields.set(r.yields.get() + 1);
            r.sleeping.set(Sleeping::AtFence);
            self.switch(rank);
            r.sleeping.set(Sleeping::No);
            return if self.exchange.borrow().passed == passed { self.check_ended(rank) } else { Ok(()) };
        }
        let Exchange { pending, visible, .. } = &mut *exchange;
        visible.extend(pending.drain());
        exchange.arrived = 0;
        exchange.passed += 1;
        let latest = exchange.latest;
        drop(exchange);
        (0..self.ranks.len() as u32).for_each(|rank| self.write_back(rank));
        self.last_event.set(self.last_event.get().max(latest));
        r.clock.set(latest);
        self.resume_fence(latest);
        Ok(())
    }

    /// Resumes the ranks that wait at a fence.
    fn resume_fence(&self, time: Time) {
        for rank in 0..self.ranks.len() as u32 {
            if self.rank(rank).sleeping.get() == Sleeping::AtFence {
                self.rank(rank).sleeping.set(Sleeping::No);
                self.resume_at(rank, time);
            }
        }
    }

    pub(super) fn check_ended(&self, rank: u32) -> Result<()> {
        match self.exchange.borrow().ended {
            None => Ok(()),
            Some((ended, cause)) => Err(Error::new(ErrorKind::PeerLost, "pass a fence of the bootstrap")
                .rank(rank)
                .peer(ended)
                .cause(cause)),
        }
    }

    /// Ends the exchange because a rank ends, or because every rank waits in a fence.
    pub(crate) fn end_exchange(&self, rank: Option<(u32, &'static str)>) {
        let ended = rank.unwrap_or((0, "deadlock: the ranks wait in different fences of the bootstrap"));
        let mut exchange = self.exchange.borrow_mut();
        exchange.ended.get_or_insert(ended);
        let latest = exchange.latest.max(rank.map_or(0, |(rank, _)| self.clock(rank)));
        if exchange.arrived > 0 {
            drop(exchange);
            self.resume_fence(latest);
        }
    }

    pub(crate) fn exchange(&self) -> RefMut<'_, Exchange> {
        self.exchange.borrow_mut()
    }
}
