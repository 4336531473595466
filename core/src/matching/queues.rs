//! Queues by pattern, whose members are linked through their slots, so that any member is removed in constant time. An
//! empty queue is kept for later members of its pattern, until its slot is needed.

use std::cell::Cell;

use super::{END, Pattern, Slot};

/// The neighbours of a slot in a queue, and the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    previous: u32,
    next: u32,
    queue: u32,
}

impl Link {
    pub(super) const NONE: Self = Self { previous: END, next: END, queue: END };
}

/// A queue.
struct Queue {
    pattern: Pattern,
    /// The first member; `END` if the queue is empty.
    first: u32,
    last: u32,
    /// The next queue of the same bucket.
    next: u32,
}

/// The queues, in a hash table.
pub(super) struct Queues {
    queues: Vec<Queue>,
    /// The first queue of each bucket. The number of buckets is a power of two, and at least the number of queues.
    buckets: Vec<u32>,
    /// Queues that are in no bucket.
    free: Vec<u32>,
    /// The queue that was found last: most receives and messages have the same pattern as the previous one. Never a
    /// free queue.
    recent: Cell<u32>,
}

impl Default for Queues {
    fn default() -> Self {
        Self { queues: Vec::new(), buckets: vec![END; 16], free: Vec::new(), recent: Cell::new(END) }
    }
}

impl Queues {
    #[inline(always)]
    fn bucket(&self, pattern: &Pattern) -> usize {
        /// 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, volume 3, section 6.4).
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let hash = (pattern.low.wrapping_mul(FACTOR) ^ pattern.high).wrapping_mul(FACTOR);
        (hash >> 32) as usize & (self.buckets.len() - 1)
    }

    /// The queue of the pattern that was found last, if it is the queue of `pattern`.
    #[inline(always)]
    fn found_last(&self, pattern: &Pattern) -> Option<&Queue> {
        self.queues.get(self.recent.get() as usize).filter(|queue| queue.pattern == *pattern)
    }

    fn look_up(&self, pattern: Pattern) -> Option<u32> {
        let mut at = self.buckets[self.bucket(&pattern)];
        while let Some(queue) = self.queues.get(at as usize) {
            if queue.pattern == pattern {
                self.recent.set(at);
                return Some(at);
            }
            at = queue.next;
        }
        None
    }

    /// The first member of a pattern's queue; `END` if it has none.
    #[inline(always)]
    pub(super) fn head(&self, pattern: &Pattern) -> u32 {
        match self.found_last(pattern) {
            Some(queue) => queue.first,
            None => self.other_head(*pattern),
        }
    }

    #[inline(never)]
    fn other_head(&self, pattern: Pattern) -> u32 {
        self.look_up(pattern).map_or(END, |at| self.queues[at as usize].first)
    }

    /// Adds a queue for a pattern that has none.
    #[cold]
    fn add(&mut self, pattern: Pattern) -> u32 {
        if self.free.is_empty() && self.queues.len() == self.buckets.len() {
            self.rebuild();
        }
        let bucket = self.bucket(&pattern);
        let next = self.buckets[bucket];
        let queue = Queue { pattern, first: END, last: END, next };
        let at = match self.free.pop() {
            Some(at) => {
                self.queues[at as usize] = queue;
                at
            }
            None => {
                self.queues.push(queue);
                self.queues.len() as u32 - 1
            }
        };
        self.buckets[bucket] = at;
        at
    }

    /// Frees the empty queues, and doubles the number of buckets if fewer than half of the queues are empty. Either way
    /// half of the queues are free, so at least as many new patterns must arrive before the next rebuild as this one
    /// takes steps: its cost is amortized O(1) per pattern.
    fn rebuild(&mut self) {
        let all = 0..self.queues.len() as u32;
        let (free, used): (Vec<u32>, Vec<u32>) = all.partition(|at| self.queues[*at as usize].first == END);
        self.recent.set(END);
        let factor = if free.len() < used.len() { 2 } else { 1 };
        self.buckets = vec![END; self.buckets.len() * factor];
        self.free = free;
        for at in used {
            let bucket = self.bucket(&self.queues[at as usize].pattern);
            self.queues[at as usize].next = std::mem::replace(&mut self.buckets[bucket], at);
        }
    }

    /// Appends a slot to a pattern's queue, through the slot's link number `kind`.
    #[inline(always)]
    pub(super) fn push<T, const N: usize>(
        &mut self,
        pattern: Pattern,
        slot: u32,
        kind: usize,
        slots: &mut [Slot<T, N>],
    ) {
        let at = match self.found_last(&pattern) {
            Some(_) => self.recent.get(),
            None => self.look_up(pattern).unwrap_or_else(|| self.add(pattern)),
        };
        let queue = &mut self.queues[at as usize];
        let previous = std::mem::replace(&mut queue.last, slot);
        slots[slot as usize].links[kind] = Link { previous, next: END, queue: at };
        match slots.get_mut(previous as usize) {
            Some(before) => before.links[kind].next = slot,
            None => queue.first = slot,
        }
    }

    /// Removes a slot from its queue; `link` was the slot's link number `kind`.
    #[inline(always)]
    pub(super) fn unlink<T, const N: usize>(&mut self, link: Link, kind: usize, slots: &mut [Slot<T, N>]) {
        let Link { previous, next, queue } = link;
        let queue = &mut self.queues[queue as usize];
        match slots.get_mut(previous as usize) {
            Some(before) => before.links[kind].next = next,
            None => queue.first = next,
        }
        match slots.get_mut(next as usize) {
            Some(after) => after.links[kind].previous = previous,
            None => queue.last = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_without_members_give_their_places_to_other_patterns() {
        let mut queues = Queues::default();
        let mut slots: Vec<Slot<(), 1>> =
            (0..2u64).map(|number| Slot { generation: 0, content: None, links: [Link::NONE], number }).collect();
        let pattern = |tag| Pattern::new(1, Some(2), Some(tag));
        queues.push(pattern(-1), 1, 0, &mut slots);
        for tag in 0..10_000 {
            queues.push(pattern(tag), 0, 0, &mut slots);
            assert_eq!(queues.head(&pattern(tag)), 0);
            queues.unlink(slots[0].links[0], 0, &mut slots);
            assert_eq!(queues.head(&pattern(tag)), END);
        }
        assert_eq!(queues.head(&pattern(-1)), 1);
        assert!(queues.queues.len() <= 16, "{}", queues.queues.len());
    }
}
