//! Guard against re-entry: a poll inside a handler, a completion inside a completion.

use std::cell::Cell;

/// Guard of a part of the runtime that must not be entered again from inside. Dropping it leaves the part, also when a
/// panic unwinds.
pub(crate) struct Entered<'a>(&'a Cell<bool>);

impl<'a> Entered<'a> {
    pub(crate) fn new(inside: &'a Cell<bool>) -> Option<Self> {
        (!inside.replace(true)).then(|| Self(inside))
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
