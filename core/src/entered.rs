//! Re-entry: a poll inside a handler, a completion inside a completion.

use std::cell::Cell;

/// A part of the runtime that is not entered a second time from inside, until it is left: by a panic too.
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
