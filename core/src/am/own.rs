//! Messages of a rank to itself that wait: for the next turn of progress, since a handler must not run inside a send,
//! or, if held, until [`deliver`](super::deliver) names a sink.

use std::collections::VecDeque;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::data::Data;
use super::outgoing::Queued;
use super::packet::{Prefix, REST};
use crate::tracked::Track;

/// A message of this rank to itself.
pub(super) enum OwnMessage {
    /// The header, and behind it the data, if they fit into a short packet.
    Short(Prefix, [u64; REST]),
    Long(Box<Queued>),
}

/// The waiting messages of this rank to itself.
#[derive(Default)]
pub(super) struct OwnMessages {
    pub(super) queue: VecDeque<OwnMessage>,
    /// The held messages, and whether each is claimed: it cannot be withdrawn.
    pub(super) held: FxHashMap<u64, (Box<Queued>, bool)>,
}

impl OwnMessages {
    pub(super) fn is_held(&mut self, number: u64, claim: bool) -> bool {
        self.held.get_mut(&number).map(|(_, claimed)| *claimed |= claim).is_some()
    }

    /// Removes the messages that `track` counts; with `withdraw`, except claimed ones. Returns their data.
    pub(super) fn take(&mut self, track: &Rc<Track>, withdraw: bool) -> Vec<Data> {
        let is_taken = |(message, claimed): &(Box<Queued>, bool)| message.data.is_of(track) && !(withdraw && *claimed);
        let held = self.held.extract_if(|_, held| is_taken(held)).map(|(_, (message, _))| message.data);
        let mut taken: Vec<Data> = held.collect();
        for own in std::mem::take(&mut self.queue) {
            match own {
                OwnMessage::Long(message) if message.data.is_of(track) => taken.push(message.data),
                other => self.queue.push_back(other),
            }
        }
        taken
    }
}
