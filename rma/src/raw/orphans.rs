//! Buffers of operations in progress whose handles were dropped.

use std::rc::Rc;

/// A buffer whose handle was dropped.
pub(crate) trait Orphan {
    fn is_done(&self) -> bool;
}

/// Buffers that are owned here until their operations are complete.
#[derive(Default)]
pub(crate) struct Orphans {
    kept: Vec<Rc<dyn Orphan>>,
    /// Length of the list at which finished buffers are removed.
    most: usize,
}

impl Orphans {
    /// Drops the buffers of operations that are complete.
    pub(crate) fn sweep(&mut self) {
        self.kept.retain(|orphan| !orphan.is_done());
        self.most = 2 * self.kept.len().max(4);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(crate) fn keep(&mut self, orphan: Rc<dyn Orphan>) {
        if self.kept.len() >= self.most {
            self.sweep();
        }
        self.kept.push(orphan);
    }
}
