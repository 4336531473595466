//! What the end of the job changes in a window.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use farside_core::job::EndsWithJob;

use super::target::Target;

/// What the end of a job changes in a window, so that every call that names another rank fails. Operations on mapped memory
/// look at nothing but whether their target is ready, and it is not ready any more.
#[derive(Debug, Default)]
pub(super) struct WindowEnd {
    unusable: Cell<bool>,
    targets: RefCell<Option<Weak<[Target]>>>,
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

    /// Changes the targets of the window, which nothing else refers to.
    pub(super) fn change(&self, targets: &mut Rc<[Target]>, change: impl FnOnce(&mut [Target])) {
        *self.targets.borrow_mut() = None;
        if let Some(targets) = Rc::get_mut(targets) {
            change(targets);
        }
        *self.targets.borrow_mut() = Some(Rc::downgrade(targets));
    }
}

impl EndsWithJob for WindowEnd {
    fn end(&self) {
        self.unusable.set(true);
        let targets = self.targets.borrow().as_ref().and_then(Weak::upgrade);
        targets.iter().flat_map(|targets| targets.iter()).for_each(|t| t.ready.set(0));
    }
}
