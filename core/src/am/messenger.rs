//! An engine with its active messages.

use std::ops::Deref;

use super::state::ActiveMessages;
use crate::engine::Engine;

/// An engine, and the active messages over its device. Part of a [`Job`](crate::Job), which derefs to it.
#[derive(Debug)]
pub struct Messenger {
    /// Dropped before the messages, since its device may be reading into their sinks.
    engine: Engine,
    messages: ActiveMessages<Self>,
}

impl Messenger {
    pub(crate) fn new(engine: Engine, messages: ActiveMessages<Self>) -> Self {
        Self { engine, messages }
    }

    /// The active messages.
    #[must_use]
    #[inline]
    pub fn active_messages(&self) -> &ActiveMessages<Self> {
        &self.messages
    }
}

impl Deref for Messenger {
    type Target = Engine;

    #[inline(always)]
    fn deref(&self) -> &Engine {
        &self.engine
    }
}
