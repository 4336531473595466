//! Store order: whether stores of this rank to memory of other ranks may still be in the store buffer, where its own
//! later loads can overtake them.
//!
//! A call that completes operations must not let a later load of the same rank see remote memory as it was before them.
//! A full fence ensures that, but costs as much as an atomic operation, and most calls are not followed by a load. So
//! the fence is deferred: after a flush until an operation reads ([`StoreOrder::before_load`]), and after the end of an
//! epoch, if no other epoch is open, until one opens that does not begin with an atomic operation. The stores
//! themselves leave the store buffer in order without a fence: a notification to another rank is stored later, and
//! becomes visible later.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// The store order of one rank.
#[derive(Debug, Default)]
pub struct StoreOrder {
    open: Cell<u32>,
    owed: Cell<bool>,
    /// Swapped as a full fence, which costs less than the `mfence` instruction.
    scratch: AtomicU32,
}

impl StoreOrder {
    /// Call when an access epoch opens. `atomic_first`: an atomic operation precedes its first load.
    #[inline]
    pub fn open(&self, atomic_first: bool) {
        self.open.set(self.open.get() + 1);
        if self.owed.get() && !atomic_first {
            self.fence();
        }
    }

    /// Call when an access epoch has closed.
    #[inline]
    pub fn close(&self) {
        self.open.set(self.open.get() - 1);
    }

    /// Orders all earlier stores before all loads of later epochs; if an epoch other than the closing one is open,
    /// before all later loads.
    #[inline]
    pub fn fence_for_later(&self) {
        if self.open.get() > 1 {
            self.fence();
        } else {
            self.owed.set(true);
        }
    }

    /// Orders all earlier stores of this rank before all its later loads of other ranks' memory, each of which calls
    /// [`before_load`](Self::before_load) first.
    #[inline]
    pub fn fence_before_load(&self) {
        self.owed.set(true);
    }

    /// Call before an operation that reads other ranks' memory.
    #[inline(always)]
    pub fn before_load(&self) {
        if self.owed.get() {
            self.fence();
        }
    }

    /// Orders all earlier stores of this rank before all later loads.
    #[inline]
    pub fn fence(&self) {
        self.scratch.swap(0, Ordering::SeqCst);
        self.owed.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fence_is_put_off_until_an_epoch_opens_without_an_atomic() {
        let order = StoreOrder::default();
        order.open(true);
        order.fence_for_later();
        order.close();
        assert!(order.owed.get());
        order.open(true);
        assert!(order.owed.get());
        order.close();
        order.open(false);
        assert!(!order.owed.get());
    }

    #[test]
    fn fence_of_a_flush_is_put_off_until_a_load() {
        let order = StoreOrder::default();
        order.open(true);
        order.fence_before_load();
        assert!(order.owed.get());
        order.before_load();
        assert!(!order.owed.get());
    }

    #[test]
    fn fence_is_at_once_inside_another_epoch() {
        let order = StoreOrder::default();
        order.open(true);
        order.open(true);
        order.owed.set(true);
        order.fence_for_later();
        assert!(!order.owed.get());
    }
}
