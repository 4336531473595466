//! Messages that have arrived before their receiver has posted a destination.

use smallvec::SmallVec;

use super::handler::{Message, Token};
use super::messenger::Messenger;
use super::{Delivery, abandon};

/// Maximum length of data that is stored without an allocation.
const INLINE: usize = 16;

/// A message for which there is no destination yet.
pub(crate) enum Unexpected {
    /// A copy of the data.
    Whole(SmallVec<[u8; INLINE]>),
    /// The data waits until [`deliver`](super::deliver) names a sink; its length.
    Held(Token, usize),
}

impl Unexpected {
    /// Stores an unexpected message. With `copies`, data that has arrived is copied; otherwise it stays in the packet,
    /// so that its sender waits too.
    pub(crate) fn of(m: Message<'_>, copies: bool) -> (Self, Delivery) {
        match m.payload {
            Some(data) if copies => (Self::Whole(data.copied()), Delivery::Done),
            _ => (Self::Held(m.token(), m.len), Delivery::Hold),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Whole(data) => data.len(),
            Self::Held(_, len) => *len,
        }
    }

    /// Abandons the message.
    pub(crate) fn abandon(self, job: &Messenger) {
        if let Self::Held(token, _) = self {
            abandon(job, token);
        }
    }
}
