//! Messages that have arrived in part.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::handler::{OnComplete, Token};
use super::offer::{Offer, Read};
use super::sink::Filling;

/// A message of which a part has not arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Envelope {
    pub(super) token: Token,
    pub(super) len: usize,
    pub(super) target: u32,
    pub(super) acknowledged: bool,
}

pub(super) enum Arrival<J> {
    /// The data waits at its sender until [`deliver`](super::deliver) is called; `claimed` if the sender may not
    /// withdraw it.
    Held { envelope: Envelope, offer: Option<Offer>, claimed: bool },
    /// The message was held, and the sender has cancelled the message.
    Gone(Envelope),
    /// The data is read out of its sender's memory.
    Offered { envelope: Envelope, filling: Filling, then: Option<OnComplete<J>>, read: Read },
    /// The first `expected` bytes arrive in packets; if `held`, into a buffer until [`deliver`](super::deliver) is
    /// called.
    Coming { envelope: Envelope, filling: Filling, expected: usize, then: Option<OnComplete<J>>, held: bool },
}

/// The messages of which a part has not arrived.
pub(super) struct Arrivals<J> {
    pub(super) open: FxHashMap<Token, Arrival<J>>,
    /// Tokens of the messages in `open` that are read.
    pub(super) offered: VecDeque<Token>,
}

impl<J> Default for Arrivals<J> {
    fn default() -> Self {
        Self { open: FxHashMap::default(), offered: VecDeque::new() }
    }
}
