//! A messenger with its two-sided messages.

use std::ops::Deref;
use std::rc::Rc;

use super::state::TwoSided;
use crate::am::Messenger;

/// A messenger, and the two-sided messages over it. Part of a [`Job`](crate::Job), which derefs to it.
#[derive(Debug)]
pub struct Mailbox {
    messenger: Messenger,
    two_sided: Rc<TwoSided>,
}

impl Mailbox {
    pub(crate) fn new(messenger: Messenger, two_sided: Rc<TwoSided>) -> Self {
        Self { messenger, two_sided }
    }

    /// The two-sided messages.
    #[must_use]
    #[inline]
    pub fn two_sided(&self) -> &TwoSided {
        &self.two_sided
    }
}

impl Deref for Mailbox {
    type Target = Messenger;

    #[inline(always)]
    fn deref(&self) -> &Messenger {
        &self.messenger
    }
}
