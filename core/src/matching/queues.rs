//! Queues by pattern, whose members are linked through the slots that hold them, so that any of them leaves in constant
//! time.

use rustc_hash::FxHashMap;

use super::{KINDS, Pattern, Slot};

const END: u32 = u32::MAX;

/// The neighbours of a slot in a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    previous: u32,
    next: u32,
}

impl Link {
    pub(super) const NONE: Self = Self { previous: END, next: END };
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

/// The queues that have members.
#[derive(Debug, Default)]
pub(super) struct Queues(FxHashMap<Pattern, Ends>);

impl Queues {
    /// The first member of a pattern's queue.
    #[inline]
    pub(super) fn head(&self, pattern: &Pattern) -> Option<u32> {
        self.0.get(pattern).map(|ends| ends.first)
    }

    /// Puts a slot at the end of a pattern's queue, linked by its links of kind `kind`.
    #[inline]
    pub(super) fn push<T>(&mut self, pattern: Pattern, slot: u32, kind: usize, slots: &mut [Slot<T>]) {
        debug_assert!(kind < KINDS);
        let ends = self.0.entry(pattern).or_insert(Ends { first: slot, last: END });
        slots[slot as usize].links[kind] = Link { previous: ends.last, next: END };
        if ends.last != END {
            slots[ends.last as usize].links[kind].next = slot;
        }
        ends.last = slot;
    }

    /// Takes a slot out of a pattern's queue.
    #[inline]
    pub(super) fn unlink<T>(&mut self, pattern: Pattern, slot: u32, kind: usize, slots: &mut [Slot<T>]) {
        let Link { previous, next } = std::mem::replace(&mut slots[slot as usize].links[kind], Link::NONE);
        if previous == END && next == END {
            self.0.remove(&pattern);
            return;
        }
        if previous != END {
            slots[previous as usize].links[kind].next = next;
        }
        if next != END {
            slots[next as usize].links[kind].previous = previous;
        }
        if (previous == END || next == END)
            && let Some(ends) = self.0.get_mut(&pattern)
        {
            if previous == END {
                ends.first = next;
            }
            if next == END {
                ends.last = previous;
            }
        }
    }
}
