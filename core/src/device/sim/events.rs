//! The events of a simulation, in the order in which they happen.

use std::rc::Rc;

use super::flight::Flight;
use super::network::Place;
use super::switch::{Hop, Packet};

/// The kinds of events.
pub(super) enum Happens {
    Resume {
        rank: u32,
        yields: u64,
    },
    Timer {
        rank: u32,
    },
    /// A message enters the network.
    Enters(Rc<Flight>),
    /// A message has reached the interface of its receiver.
    AtPort(Rc<Flight>),
    /// The last byte of a message has passed the receiver's interface.
    Landed(Rc<Flight>),
    /// The origin is informed that its message is complete.
    Complete(Rc<Flight>),
    /// The messages of a pair of ranks that found no posted receive are sent again.
    Again(u32, u32),
    /// The interface of a rank writes its words back to memory.
    WriteBack {
        rank: u32,
    },
    /// A write that has arrived earlier is placed.
    Place {
        rank: u32,
        number: u64,
    },
    /// A gather has found no scatter within the time limit.
    Unmatched(Rc<Flight>),
    /// A packet of the in-switch barrier.
    Barrier {
        rank: u32,
        packet: Packet,
        hop: Hop,
    },
}

/// An event, and its position in the order of events.
pub(super) struct Event {
    pub(super) place: Place,
    pub(super) number: u64,
    pub(super) happens: Happens,
}

impl Event {
    fn key(&self) -> (Place, u64) {
        (self.place, self.number)
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    /// The earliest event is the greatest.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.key().cmp(&self.key())
    }
}
