//! Numbering of access epochs. Their start and end are reported to the job's store order.

use super::{Access, NO_EPOCH, RawWindow};

impl RawWindow {
    /// Opens an access epoch and returns its number. `atomic_first` says that an atomic operation on memory of peers
    /// will precede the first read.
    #[inline]
    pub(super) fn open_epoch(&self, access: Access, atomic_first: bool) -> u64 {
        if !self.counted.replace(true) {
            self.job.store_order().open(atomic_first);
        }
        self.number_epoch(access)
    }

    /// Closes the access epoch, if one is open, and opens the next.
    #[inline]
    pub(super) fn next_epoch(&self, access: Access) -> u64 {
        self.drop_copies();
        if self.counted.get() {
            self.job.store_order().before_load();
            self.number_epoch(access)
        } else {
            self.open_epoch(access, false)
        }
    }

    #[inline]
    pub(super) fn number_epoch(&self, access: Access) -> u64 {
        let number = self.last_epoch.get() + 1;
        self.last_epoch.set(number);
        self.epoch.set(number);
        self.access.set(access);
        number
    }

    #[inline(always)]
    pub(super) fn close_epoch(&self) {
        self.access.set(Access::None);
        self.no_epoch();
        self.drop_copies();
        if !self.orphans.borrow().is_empty() {
            self.orphans.borrow_mut().sweep();
        }
    }

    #[inline]
    fn drop_copies(&self) {
        if !self.operations.copies.borrow().is_empty() {
            self.operations.copies.borrow_mut().clear();
        }
    }

    #[inline]
    pub(super) fn no_epoch(&self) {
        self.epoch.set(NO_EPOCH);
        if self.counted.replace(false) {
            self.job.store_order().close();
        }
    }

    /// Orders all earlier stores of this rank before all later loads.
    #[inline]
    pub(super) fn full_fence(&self) {
        self.job.store_order().fence();
        self.operations.stored.set(false);
    }
}
