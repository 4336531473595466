//! Updates of a window at the end of the job.

use std::cell::{Cell, RefCell};

use farside_core::coll::PeerTable;
use farside_core::job::EndsWithJob;

use super::target::Target;

/// The state of a window that the end of the job updates, so that every call that names another rank fails. Operations
/// on mapped memory check only whether their target is ready, so the targets become not ready.
#[derive(Default)]
pub(super) struct WindowEnd {
    unusable: Cell<bool>,
    targets: RefCell<Option<PeerTable<Target>>>,
}

impl WindowEnd {
    /// Whether the window is broken or released, or the job has ended.
    #[inline(always)]
    pub(super) fn is_unusable(&self) -> bool {
        self.unusable.get()
    }

    pub(super) fn set_unusable(&self) {
        self.unusable.set(true);
    }

    /// Updates the targets that were created with the window. A window that creates targets at their first use has
    /// none.
    pub(super) fn change(&self, targets: &mut PeerTable<Target>, change: impl FnOnce(&mut [Target])) {
        *self.targets.borrow_mut() = None;
        change(targets.all_mut());
        *self.targets.borrow_mut() = Some(targets.clone());
    }
}

impl EndsWithJob for WindowEnd {
    fn end(&self) {
        self.unusable.set(true);
        self.targets.borrow().iter().flat_map(PeerTable::iter).for_each(|t| t.ready.set(0));
    }
}
