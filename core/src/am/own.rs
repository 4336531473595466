//! Messages of a rank to itself that wait: for the next turn of progress, since a handler must not run inside a send,
//! or, if held, until [`deliver`](super::deliver) names a sink.

use std::collections::VecDeque;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::counter::Counter;
use super::data::{Data, Header};
use super::handler::HandlerId;
use super::packet::{Prefix, REST};
use crate::tracked::Track;

/// A message in the queue.
pub(super) enum Queued {
    Short(ShortMessage),
    Other(Box<OwnMessage>),
}

/// A message that fits into a short packet.
pub(super) struct ShortMessage {
    pub(super) prefix: Prefix,
    /// The header, and behind it the data.
    pub(super) words: [u64; REST],
}

/// A message of this rank to itself.
pub(super) struct OwnMessage {
    pub(super) handler: HandlerId,
    pub(super) header: Header,
    pub(super) data: Data,
    pub(super) number: u32,
    pub(super) target: u32,
    pub(super) completion: Option<Counter>,
    /// The message cannot be withdrawn.
    pub(super) claimed: bool,
}

/// The waiting messages of this rank to itself.
#[derive(Default)]
pub(super) struct OwnMessages {
    pub(super) queue: VecDeque<Queued>,
    pub(super) held: FxHashMap<u32, OwnMessage>,
}

impl OwnMessages {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_held(&mut self, number: u32, claim: bool) -> bool {
        let held = self.held.get_mut(&number);
        held.map(|message| message.claimed |= claim).is_some()
    }

    /// Removes and returns the messages that `track` counts; with `withdraw`, except claimed ones.
    pub(super) fn take(&mut self, track: &Rc<Track>, withdraw: bool) -> Vec<OwnMessage> {
        let is_taken = |message: &OwnMessage| message.data.is_of(track) && !(withdraw && message.claimed);
        let mut taken: Vec<OwnMessage> =
            self.held.extract_if(|_, message| is_taken(message)).map(|(_, message)| message).collect();
        let is_other = |queued: &Queued| match queued {
            Queued::Short(_) => true,
            Queued::Other(message) => !message.data.is_of(track),
        };
        let (kept, own) = std::mem::take(&mut self.queue).into_iter().partition::<VecDeque<_>, _>(is_other);
        self.queue = kept;
        taken.extend(own.into_iter().filter_map(|queued| match queued {
            Queued::Short(_) => None,
            Queued::Other(message) => Some(*message),
        }));
        taken
    }
}
