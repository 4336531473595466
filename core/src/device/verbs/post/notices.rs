//! Notifications that are sent with a write: the immediate data identifies a signal cell and contains its new value.
//!
//! The immediate has 32 bits: a slot, two bits of the mark of the cell's value, and the low 14 bits of its number
//! ([`crate::device::cell::marked`]). A slot identifies a cell of the target; a packet defines it once, before its
//! first use. A number too far from the previous one for 14 bits is sent in a separate message after the write.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::device::cell::{marked, unmarked};
use crate::wire::{Reader, Writer};

/// A cell of a peer: its region's number at the peer, and the offset in the region.
pub(crate) type Cell = (u64, u64);

/// Maximum step that 14 bits can express: a quarter of the range, since a value that was written directly may be ahead
/// of the last one known at this rank.
const STEP: u64 = 1 << 12;
/// Bits of the number in an immediate.
const BITS: u32 = 14;

struct Known {
    slot: Option<u16>,
    last: u64,
}

/// The slots that this rank has defined at one peer.
#[derive(Default)]
pub(crate) struct SentSlots {
    cells: FxHashMap<Cell, Known>,
    free: Vec<u16>,
    used: u16,
}

/// The way in which a cell is set along with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notification {
    /// This immediate sets the cell.
    Immediate(u32),
    /// This immediate sets the cell, after a packet that defines its slot.
    Define(u16, u32),
    /// A separate message sets the cell.
    Alone,
}

fn immediate(slot: u16, value: u64) -> u32 {
    let (number, mark) = unmarked(value);
    u32::from(slot) << 16 | u32::from(mark & 3) << BITS | (number as u32 & ((1 << BITS) - 1))
}

/// The value nearest to `now` whose low bits are `low`, if its number is greater than that of `now`.
pub(crate) fn raised(now: u64, low: u16) -> Option<u64> {
    let (number, _) = unmarked(now);
    let (mark, low) = (low >> BITS, u64::from(low) & ((1 << BITS) - 1));
    let ahead = low.wrapping_sub(number) & ((1 << BITS) - 1);
    // Half of the numbers are ahead of the current one, the other half behind it.
    (1..1 << (BITS - 1)).contains(&ahead).then(|| marked(number + ahead, mark))
}

impl SentSlots {
    /// Records that a cell was set by a separate message.
    pub(crate) fn set(&mut self, cell: Cell, value: u64) {
        self.cells.entry(cell).or_insert(Known { slot: None, last: 0 }).last = unmarked(value).0;
    }

    /// Decides how to set `cell` to `value` along with a write.
    pub(crate) fn notify(&mut self, cell: Cell, value: u64) -> Notification {
        let known = self.cells.entry(cell).or_insert(Known { slot: None, last: 0 });
        let (number, mark) = unmarked(value);
        let is_step = number > known.last && number - known.last < STEP && mark < 4;
        known.last = number;
        if !is_step {
            return Notification::Alone;
        }
        if let Some(slot) = known.slot {
            return Notification::Immediate(immediate(slot, value));
        }
        let slot = self.free.pop().or_else(|| {
            self.used = self.used.checked_add(1)?;
            Some(self.used)
        });
        match slot {
            None => Notification::Alone,
            Some(slot) => {
                known.slot = Some(slot);
                Notification::Define(slot, immediate(slot, value))
            }
        }
    }

    /// Drops the cells of a region.
    pub(crate) fn forget(&mut self, region: u64) {
        let free = &mut self.free;
        self.cells.retain(|(number, _), known| {
            if *number == region {
                free.extend(known.slot);
            }
            *number != region
        });
    }
}

/// The slots that peers have defined at this rank, by source and slot.
#[derive(Default)]
pub(crate) struct KnownSlots {
    cells: FxHashMap<(u32, u16), Cell>,
    /// Sources whose notifications no longer have an effect.
    closed: FxHashSet<u32>,
}

impl KnownSlots {
    /// Handles a packet that defines a slot; returns whether it was one.
    pub(crate) fn define(&mut self, source: u32, bytes: &[u8]) -> bool {
        let mut r = Reader::new(bytes);
        let fields = (|| Some((r.u32()?, r.u64()?, r.u64()?)))();
        match fields {
            Some((slot @ 1..=0xffff, number, offset)) if r.rest().is_empty() => {
                if !self.closed.contains(&source) {
                    self.cells.insert((source, slot as u16), (number, offset));
                }
                true
            }
            _ => false,
        }
    }

    /// Ignores notifications of `source` from now on, including those that have arrived and were not polled.
    pub(crate) fn close(&mut self, source: u32) {
        self.closed.insert(source);
        self.cells.retain(|(of, _), _| *of != source);
    }

    /// The cell and the low bits of its value; `None` for a slot that was never defined or identifies no cell.
    pub(crate) fn cell(&self, source: u32, immediate: u32) -> Option<(Cell, u16)> {
        let slot = (immediate >> 16) as u16;
        self.cells.get(&(source, slot)).map(|cell| (*cell, immediate as u16))
    }
}

/// The packet that defines `slot`.
pub(crate) fn definition(slot: u16, cell: Cell) -> Vec<u8> {
    Writer::new().u32(u32::from(slot)).u64(cell.0).u64(cell.1).done()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_is_defined_once_and_then_used() {
        let (mut sent, mut known) = (SentSlots::default(), KnownSlots::default());
        let cell = (5, 64);
        let Notification::Define(slot, imm) = sent.notify(cell, 1) else { panic!("not defined") };
        assert!(known.cell(3, imm).is_none());
        assert!(known.define(3, &definition(slot, cell)));
        assert_eq!(known.cell(3, imm), Some((cell, 1)));
        assert_eq!(known.cell(2, imm), None, "slots are the sender's own");
        let Notification::Immediate(imm) = sent.notify(cell, 2) else { panic!("defined again") };
        assert_eq!(known.cell(3, imm), Some((cell, 2)));
        assert!(!known.define(3, &[0; 20]) && !known.define(3, &[1; 19]));
        known.close(3);
        assert_eq!(known.cell(3, imm), None, "arrived, and not polled before");
        assert!(known.define(3, &definition(slot, cell)) && known.cell(3, imm).is_none());
    }

    #[test]
    fn raised_value_has_the_mark_and_only_grows() {
        for now in [0, 5, (1 << BITS) - 1, marked(1 << 20, 2), marked(70_000, 1)] {
            let (number, _) = unmarked(now);
            for (step, mark) in [(1, 0), (1, 1), (STEP - 1, 2), (7, 3)] {
                let value = marked(number + step, mark);
                assert_eq!(raised(now, immediate(1, value) as u16), Some(value), "{now:x} {step} {mark}");
                assert_eq!(raised(value, immediate(1, now) as u16), None, "backwards from {value:x}");
            }
            assert_eq!(raised(now, immediate(1, now) as u16), None);
        }
    }

    #[test]
    fn values_that_14_bits_cannot_express_go_alone() {
        let mut sent = SentSlots::default();
        let cell = (1, 0);
        assert_eq!(sent.notify(cell, STEP), Notification::Alone);
        assert!(matches!(sent.notify(cell, STEP + 1), Notification::Define(1, _)));
        assert!(matches!(sent.notify(cell, marked(STEP + 2, 2)), Notification::Immediate(_)), "a mark of two bits");
        assert_eq!(sent.notify(cell, marked(STEP + 3, 4)), Notification::Alone, "a longer mark");
        assert_eq!(sent.notify(cell, 1), Notification::Alone, "backwards");
        sent.set(cell, marked(100, 1));
        assert!(matches!(sent.notify(cell, 101), Notification::Immediate(_)));
    }

    #[test]
    fn slots_of_a_dropped_region_are_reused() {
        let mut sent = SentSlots::default();
        assert!(matches!(sent.notify((1, 0), 1), Notification::Define(1, _)));
        sent.forget(1);
        assert!(matches!(sent.notify((2, 0), 1), Notification::Define(1, _)));
        assert!(matches!(sent.notify((2, 8), 1), Notification::Define(2, _)));
    }
}
