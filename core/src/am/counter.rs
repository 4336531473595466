//! The three counters that LAPI gives a message.

use std::cell::Cell;
use std::rc::Rc;

/// A counter of messages. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Counter(Rc<Cell<u64>>);

impl Counter {
    /// A counter at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.get()
    }

    pub(super) fn increment(&self) {
        self.0.set(self.0.get() + 1);
    }
}

/// The counters that a message increments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters<'a> {
    /// Incremented here once the data has left the buffer: before [`send`](super::send) returns, and no later than the
    /// track of [`start_send`](super::start_send) counts the message as complete.
    pub origin: Option<&'a Counter>,
    /// Incremented at the target once the message is complete there: the number given by `ActiveMessages::expose`.
    pub target: Option<u32>,
    /// Incremented here once the target has completed the message. Costs one packet back.
    pub completion: Option<&'a Counter>,
}
