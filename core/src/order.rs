//! Store order: whether stores of this rank to memory of others may still be in its processor's buffer, where its
//! own later loads can overtake them.
//!
//! A call that completes operations must not let a later load of the same rank see remote memory as it was before
//! them. A full fence does that and costs as much as an atomic operation, and most of what follows loads nothing. So it
//! is put off: by a flush until an operation reads ([`StoreOrder::before_load`]), by the end of an epoch, where no other is
//! left open, until one opens that does not begin with an atomic operation. The stores themselves leave the processor's
//! buffer in their order and without being asked to: whatever tells another rank of them is stored later, and seen later.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// The store order of one rank.
#[derive(Debug, Default)]
pub struct StoreOrder {
    open: Cell<u32>,
    owed: Cell<bool>,
    /// Swapped for a full fence, which costs less than the instruction of that name.
    scratch: AtomicU32,
}

impl StoreOrder {
    /// An access epoch opens. `atomic_first`: before its first load there will be an atomic operation.
    #[inline]
    pub fn open(&self, atomic_first: bool) {
        self.open.set(self.open.get() + 1);
        if self.owed.get() && !atomic_first {
            self.fence();
        }
    }

    /// An access epoch has closed.
    #[inline]
    pub fn close(&self) {
        self.open.set(self.open.get() - 1);
    }

    /// Orders all earlier stores before all loads of later epochs; if any epoch but the one that is closing is open,
    /// before all later loads.
    #[inline]
    pub fn fence_for_later(&self) {
        if self.open.get() > 1 {
            self.fence();
        } else {
            self.owed.set(true);
        }
    }

    /// Orders all earlier stores of this rank before all later loads of memory of others, which begin with
    /// [`before_load`](Self::before_load).
    #[inline]
    pub fn fence_before_load(&self) {
        self.owed.set(true);
    }

    /// An operation is about to read memory of others.
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
