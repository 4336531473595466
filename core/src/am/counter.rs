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
///
/// ```
/// use farside_core::Job;
/// use farside_core::am::{self, Counter, Counters, Delivery, HandlerId};
///
/// Job::threads(2, |job| {
///     let (arrived, done) = (Counter::default(), Counter::default());
///     let number = job.active_messages().expose(&arrived);
///     job.active_messages().register(HandlerId(1), |_| Delivery::Done)?;
///     job.world()?.barrier()?;
///     let counters = Counters { target: Some(number), completion: Some(&done), ..Counters::default() };
///     am::send(job, 1 - job.rank_number(), HandlerId(1), b"header", b"data", counters)?;
///     job.wait("both", || Ok((arrived.value() == 1 && done.value() == 1).then_some(())))
/// })?;
/// # Ok::<(), farside_core::Error>(())
/// ```
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
