//! Values with unique numbers, which are never 0: a number has the slot in its low half, and in its high half the
//! number of uses of the slot, from 1.

/// Values by number.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

fn number(slot: usize, uses: u32) -> u64 {
    u64::from(uses) << 32 | slot as u64
}

impl<T> Slots<T> {
    /// The number of the value that is added next.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> u64 {
        let slot = match self.free.last() {
            Some(slot) => *slot as usize,
            None => {
                self.slots.push((1, None));
                self.free.push(self.slots.len() as u32 - 1);
                self.slots.len() - 1
            }
        };
        number(slot, self.slots[slot].0)
    }

    /// Adds a value under the number that [`next`](Self::next) has returned.
    #[inline(always)]
    pub(crate) fn add(&mut self, value: T) {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize].1 = Some(value);
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self, id: u64) -> Option<&T> {
        match self.slots.get(id as u32 as usize) {
            Some((uses, value)) if u64::from(*uses) == id >> 32 => value.as_ref(),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        match self.slots.get_mut(id as u32 as usize) {
            Some((uses, value)) if u64::from(*uses) == id >> 32 => value.as_mut(),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: u64) -> Option<T> {
        match self.slots.get_mut(id as u32 as usize) {
            Some((uses, value)) if u64::from(*uses) == id >> 32 && value.is_some() => {
                *uses = uses.wrapping_add(1).max(1);
                self.free.push(id as u32);
                value.take()
            }
            _ => None,
        }
    }

    /// The only value, if there is exactly one.
    pub(crate) fn sole(&self) -> Option<(u64, &T)> {
        let mut all = self.iter();
        all.next().filter(|_| all.next().is_none())
    }

    /// All values, mutably.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|(_, value)| value.as_mut())
    }

    /// All values and their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(slot, (uses, value))| value.as_ref().map(|v| (number(slot, *uses), v)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_names_one_value_also_where_its_slot_is_used_again() {
        let mut slots = Slots::default();
        let mut add = |value| {
            let id = slots.next();
            slots.add(value);
            id
        };
        let (a, b) = (add('a'), add('b'));
        assert_eq!([a, b].map(|id| slots.get(id).copied()), [Some('a'), Some('b')]);
        assert_eq!((slots.remove(a), slots.remove(a), slots.get(a)), (Some('a'), None, None));
        let c = slots.next();
        assert!(slots.get(c).is_none() && slots.remove(c).is_none(), "not added yet");
        slots.add('c');
        assert_eq!(c as u32, a as u32, "the slot is used again");
        assert_eq!((slots.remove(a), slots.get(a), slots.get(c)), (None, None, Some(&'c')));
        assert!(slots.iter().eq([(c, &'c'), (b, &'b')]));
        assert!(slots.get(u64::MAX).is_none() && slots.get(0).is_none());
    }
}
