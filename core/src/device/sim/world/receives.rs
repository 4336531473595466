//! Receive queues of limited length, as those of HCAs: a packet, a signal and a notification each take a receive of
//! their target, until the target polls. A message that finds no posted receive is rejected and sent again after some
//! time, together with the messages that its rank has sent to the same target after it, as on a reliable connection
//! with unlimited RNR retries.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::{Happens, World};
use crate::device::sim::flight::Flight;
use crate::device::sim::network::{Network, Time, picoseconds};

/// Origin and target of a message.
type Pair = (u32, u32);

/// The fate of a message at its target.
pub(super) enum Admission {
    Lands,
    /// It waits behind a message that was rejected.
    Behind,
    Refused,
}

pub(crate) struct Receives {
    /// Number of receives of a rank; 0 for an unlimited number.
    limit: usize,
    retry: Time,
    /// For each rank, the number of packets that it has not received, and of signals and notifications since its last
    /// poll.
    used: Vec<Cell<(usize, usize)>>,
    /// Messages of a pair of ranks, the first of which was rejected.
    waiting: RefCell<FxHashMap<Pair, VecDeque<Rc<Flight>>>>,
    refused: Cell<u64>,
}

impl Receives {
    pub(super) fn new(network: &Network, ranks: u32) -> Self {
        let ranks = if network.receives == 0 { 0 } else { ranks };
        Self {
            limit: network.receives,
            retry: picoseconds(network.receive_retry).max(1),
            used: (0..ranks).map(|_| Cell::default()).collect(),
            waiting: RefCell::default(),
            refused: Cell::new(0),
        }
    }

    /// Number of rejections; a message counts each time that it is rejected.
    pub(crate) fn refusals(&self) -> u64 {
        self.refused.get()
    }

    /// Returns whether a message may take effect; if not, stores it. A message to a lost rank, which no longer polls,
    /// needs no receive.
    pub(super) fn admit(&self, flight: &Rc<Flight>, is_lost: bool) -> Admission {
        if self.limit == 0 || flight.origin == flight.target {
            return Admission::Lands;
        }
        if let Some(waiting) = self.waiting.borrow_mut().get_mut(&(flight.origin, flight.target)) {
            waiting.push_back(Rc::clone(flight));
            return Admission::Behind;
        }
        if is_lost || self.takes(flight) { Admission::Lands } else { Admission::Refused }
    }

    /// Takes a receive of the target, if the message needs one; returns whether it can take effect.
    fn takes(&self, flight: &Flight) -> bool {
        let used = &self.used[flight.target as usize];
        let (packets, signals) = used.get();
        match flight.takes_receive() {
            Some(_) if packets + signals >= self.limit => return false,
            Some(true) => used.set((packets + 1, signals)),
            Some(false) => used.set((packets, signals + 1)),
            None => {}
        }
        true
    }

    /// Records that a rank polls, which frees its receives of signals.
    pub(in crate::device::sim) fn polled(&self, rank: u32) {
        if let Some(used) = self.used.get(rank as usize) {
            used.set((used.get().0, 0));
        }
    }

    /// Records that a rank has received a packet of `source`.
    pub(super) fn taken(&self, source: u32, rank: u32) {
        if let Some(used) = self.used.get(rank as usize).filter(|_| source != rank) {
            used.set((used.get().0 - 1, used.get().1));
        }
    }
}

impl World {
    /// Stores a message that has found no receive until it is sent again.
    pub(super) fn refuse(&self, flight: &Rc<Flight>, time: Time) {
        let pair = (flight.origin, flight.target);
        self.receives.waiting.borrow_mut().insert(pair, VecDeque::from([Rc::clone(flight)]));
        self.send_again(pair, time);
    }

    fn send_again(&self, (origin, target): Pair, time: Time) {
        let Receives { refused, retry, .. } = &self.receives;
        refused.set(refused.get() + 1);
        // The rejection travels back, and the message travels once more.
        self.push((time + 2 * self.costs(origin, target).latency + retry, 0), Happens::Again(origin, target));
    }

    /// Sends the messages of a pair again, up to the first one that is rejected.
    pub(super) fn again(&self, pair: Pair, time: Time) {
        loop {
            let mut waiting = self.receives.waiting.borrow_mut();
            let Some(flights) = waiting.get_mut(&pair) else { return };
            let Some(flight) = flights.front() else {
                waiting.remove(&pair);
                return;
            };
            if !self.is_lost(pair.1) && !self.receives.takes(flight) {
                drop(waiting);
                return self.send_again(pair, time);
            }
            let flight = flights.pop_front();
            drop(waiting);
            flight.into_iter().for_each(|flight| self.arrive(&flight, time));
        }
    }
}
