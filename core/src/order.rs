//! Store order: whether stores of this rank to memory of other ranks may still be in the store buffer, where its own
//! later loads can overtake them.
//!
//! After a call that completes operations, a later load of the same rank must not see an earlier state of remote
//! memory. A full fence ensures that, but costs as much as an atomic operation, and most calls are not followed by a
//! load. So the fence is deferred: after a flush until an operation reads ([`StoreOrder::before_load`]), and after the
//! end of an epoch, if no other epoch is open, until one opens that does not begin with an atomic operation. The stores
//! themselves leave the store buffer in order without a fence: a notification to another rank is stored later, and
//! becomes visible later.
//!
//! The byte that records whether a fence is due has two more bits for operations on the fast path, which read it
//! anyway: whether calls are refused (inside a callback, or after the end of the job), and whether a bill is recorded.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// A fence is due.
const OWED: u8 = 1;
/// Calls are refused.
const REFUSED: u8 = 2;
/// A bill is recorded.
const BILLED: u8 = 4;

/// The store order of one rank.
#[derive(Debug, Default)]
pub struct StoreOrder {
    open: Cell<u32>,
    /// A bit set of [`OWED`], [`REFUSED`] and [`BILLED`].
    bits: Cell<u8>,
    /// Swapped as a full fence, which costs less than the `mfence` instruction.
    scratch: AtomicU32,
}

impl StoreOrder {
    /// Call when an access epoch opens. `atomic_first`: an atomic operation precedes its first load.
    #[inline]
    pub fn open(&self, atomic_first: bool) {
        self.open.set(self.open.get() + 1);
        if self.is_owed() && !atomic_first {
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
            self.set(OWED, true);
        }
    }

    /// Orders all earlier stores of this rank before all its later loads of other ranks' memory, each of which calls
    /// [`before_load`](Self::before_load) first.
    #[inline]
    pub fn fence_before_load(&self) {
        self.set(OWED, true);
    }

    /// Call before an operation that reads other ranks' memory.
    #[inline(always)]
    pub fn before_load(&self) {
        if self.is_owed() {
            self.fence();
        }
    }

    /// Same as [`before_load`](Self::before_load), for the fast path: returns `false` and does nothing if calls are
    /// refused; the slow path then returns the error.
    #[inline(always)]
    pub fn may_load(&self) -> bool {
        let bits = self.bits.get();
        if bits & (OWED | REFUSED) == 0 {
            return true;
        }
        if bits & REFUSED != 0 {
            return false;
        }
        self.fence();
        true
    }

    /// Whether calls are refused.
    #[inline(always)]
    pub fn refuses(&self) -> bool {
        self.bits.get() & REFUSED != 0
    }

    /// Whether no call is refused and no bill is recorded, so that calls may take their fast path.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.bits.get() & (REFUSED | BILLED) == 0
    }

    /// Sets whether calls are refused.
    #[inline(always)]
    pub(crate) fn refuse(&self, refused: bool) {
        self.set(REFUSED, refused);
    }

    /// Records that a bill is recorded.
    pub(crate) fn note_bill(&self) {
        self.set(BILLED, true);
    }

    #[inline(always)]
    fn is_owed(&self) -> bool {
        self.bits.get() & OWED != 0
    }

    #[inline(always)]
    fn set(&self, bit: u8, on: bool) {
        let bits = self.bits.get();
        self.bits.set(if on { bits | bit } else { bits & !bit });
    }

    /// Orders all earlier stores of this rank before all later loads.
    #[inline]
    pub fn fence(&self) {
        self.scratch.swap(0, Ordering::SeqCst);
        self.set(OWED, false);
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
        assert!(order.is_owed());
        order.open(true);
        assert!(order.is_owed());
        order.close();
        order.open(false);
        assert!(!order.is_owed());
    }

    #[test]
    fn fence_of_a_flush_is_put_off_until_a_load() {
        let order = StoreOrder::default();
        order.open(true);
        order.fence_before_load();
        assert!(order.is_owed());
        order.before_load();
        assert!(!order.is_owed());
    }

    #[test]
    fn fence_is_at_once_inside_another_epoch() {
        let order = StoreOrder::default();
        order.open(true);
        order.open(true);
        order.fence_before_load();
        order.fence_for_later();
        assert!(!order.is_owed());
    }

    #[test]
    fn refusal_outlives_a_fence_and_stops_loads() {
        let order = StoreOrder::default();
        order.fence_before_load();
        order.refuse(true);
        assert!(!order.may_load() && order.is_owed() && !order.is_plain());
        order.fence();
        assert!(order.refuses() && !order.may_load());
        order.refuse(false);
        order.fence_before_load();
        assert!(order.may_load() && !order.is_owed() && order.is_plain());
    }
}
