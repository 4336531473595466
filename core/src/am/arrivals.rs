//! Messages of which only a part has arrived.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::handler::{OnComplete, Token};
use super::offer::{Offer, Read};
use super::sink::Filling;

/// A message that has not arrived completely.
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
    /// The message was held, and its sender has cancelled it.
    Gone(Envelope),
    /// This rank reads the data from its sender's memory.
    Offered { envelope: Envelope, filling: Filling, then: Option<OnComplete<J>>, read: Read },
    /// The first `expected` bytes arrive in packets; if `held`, into a buffer until [`deliver`](super::deliver) is
    /// called.
    Coming { envelope: Envelope, filling: Filling, expected: usize, then: Option<OnComplete<J>>, held: bool },
}

/// The messages that have not arrived completely.
pub(super) struct Arrivals<J> {
    pub(super) open: FxHashMap<Token, Arrival<J>>,
    /// Tokens of the messages in `open` whose data this rank reads from the senders' memory.
    pub(super) offered: VecDeque<Token>,
}

impl<J> Default for Arrivals<J> {
    fn default() -> Self {
        Self { open: FxHashMap::default(), offered: VecDeque::new() }
    }
}
