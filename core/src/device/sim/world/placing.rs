//! Writes that are placed some time after they have arrived and are complete ([`Placement::AtRead`]), in any order. A
//! read or an atomic that reaches the interface pushes all earlier writes to memory, as a read on PCIe does.

use std::rc::Rc;

use super::World;
use crate::device::sim::events::Happens;
use crate::device::sim::flight::{Flight, UnplacedWrite};
use crate::device::sim::network::Time;

/// A write with the number by which its event finds it.
pub(super) type Numbered = (u64, UnplacedWrite);

impl World {
    /// Holds a write that has arrived, and places it later.
    pub(super) fn hold(&self, flight: &Rc<Flight>, time: Time) {
        let target = flight.target;
        if self.is_lost(target) {
            return flight.miss();
        }
        if flight.is_cancelled() {
            return;
        }
        let Some(write) = flight.take_write() else { return };
        let number = self.number.get();
        self.rank(target).unplaced.borrow_mut().push((number, write));
        let late = self.traffic.borrow_mut().late();
        self.push((time + late, 0), Happens::Place { rank: target, number });
    }

    /// Places a write, unless it has been placed.
    pub(super) fn place(&self, rank: u32, number: u64, time: Time) {
        let mut unplaced = self.rank(rank).unplaced.borrow_mut();
        let Some(at) = unplaced.iter().position(|(other, _)| *other == number) else { return };
        let (_, write) = unplaced.swap_remove(at);
        drop(unplaced);
        write.place();
        self.wake(rank, time);
    }

    /// Places all writes that the interface of a rank holds, in any order.
    pub(super) fn place_all(&self, rank: u32) {
        loop {
            let mut unplaced = self.rank(rank).unplaced.borrow_mut();
            let count = unplaced.len() as u64;
            if count == 0 {
                return;
            }
            let (_, write) = unplaced.swap_remove(self.delay(count) as usize);
            drop(unplaced);
            write.place();
        }
    }
}
