//! Files of long regions that stay open, so that ranks of other teams can map the memory for a message. Their number is
//! limited, since each takes a descriptor.

use std::cell::Cell;
use std::rc::Rc;

/// Maximum number of files of long regions that stay open in a process: a small fraction of its descriptor limit, which
/// is 1024 by default.
pub(super) const MAX_OPEN_NAMES: usize = 64;

/// A file of a long region that stays open. `left` is the number of files that this rank may still keep open.
pub(super) struct OpenName {
    left: Rc<Cell<usize>>,
}

impl OpenName {
    /// `None` if the limit is reached.
    pub(super) fn new(left: &Rc<Cell<usize>>) -> Option<Self> {
        left.set(left.get().checked_sub(1)?);
        Some(Self { left: Rc::clone(left) })
    }
}

impl Drop for OpenName {
    fn drop(&mut self) {
        self.left.set(self.left.get() + 1);
    }
}
