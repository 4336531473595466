//! Messages of a rank to itself that wait: for the next turn of progress, since a handler must not run inside a send,
//! or, if held, until [`deliver`](super::deliver) names a sink.

use std::collections::VecDeque;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::data::Data;
use super::outgoing::Queued;
use super::packet::{Prefix, SHORT_BODY_WORDS};
use crate::tracked::Track;

/// A message of this rank to itself.
pub(super) enum OwnMessage {
    /// The header followed by the data, if they fit into a short packet.
    Short(Prefix, [u64; SHORT_BODY_WORDS]),
    Long(Box<Queued>),
}

/// The waiting messages of this rank to itself.
#[derive(Default)]
pub(super) struct OwnMessages {
    pub(super) queue: VecDeque<OwnMessage>,
    /// The held messages, `None` for one that was cancelled, and whether each is claimed: a claimed message cannot be
    /// withdrawn.
    pub(super) held: FxHashMap<u64, (Option<Box<Queued>>, bool)>,
}

impl OwnMessages {
    pub(super) fn is_held(&mut self, number: u64, claim: bool) -> bool {
        let held = self.held.get_mut(&number).filter(|(message, _)| message.is_some());
        held.map(|(_, claimed)| *claimed |= claim).is_some()
    }

    /// Removes and returns the data of the messages that `track` counts; with `withdraw`, except claimed ones.
    pub(super) fn take(&mut self, track: &Rc<Track>, withdraw: bool) -> Vec<Data> {
        let free = self.held.values_mut().filter(|(_, claimed)| !(withdraw && *claimed));
        let held = free.filter_map(|(message, _)| message.take_if(|message| message.data.is_of(track)));
        let mut taken: Vec<Data> = held.map(|message| message.data).collect();
        for own in std::mem::take(&mut self.queue) {
            match own {
                OwnMessage::Long(message) if message.data.is_of(track) => taken.push(message.data),
                other => self.queue.push_back(other),
            }
        }
        taken
    }
}
