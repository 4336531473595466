//! Messages that wait at their sender: in queues, in the order of sending to each target, or for the answer to a
//! request to send.

use std::collections::VecDeque;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::counter::Counter;
use super::data::{Data, Header, Lent};
use super::handler::HandlerId;
use super::offer::Offered;
use super::packet::Prefix;
use crate::tracked::Track;

/// A message that waits in a queue, or is a held one of this rank to itself.
pub(super) struct Queued {
    pub(super) handler: HandlerId,
    pub(super) header: Header,
    pub(super) data: Data,
    pub(super) number: u64,
    /// The counter to increment at the target, or 0.
    pub(super) target: u32,
    pub(super) completion: Option<Counter>,
    /// Bytes that have been sent.
    pub(super) sent: usize,
    /// The message uses rendezvous, whatever its length.
    pub(super) waits: bool,
}

/// A message whose request to send (RTS) has been posted.
pub(super) enum PendingRendezvous {
    /// The target has not answered; it may read the data if that is offered.
    Waiting { target: u32, lent: Lent, offered: Option<Offered> },
    /// The target wants the first `wanted` bytes.
    Streaming { target: u32, lent: Lent, wanted: usize, sent: usize },
    /// The message was cancelled; its target has to confirm.
    Cancelled(u32),
}

/// All outgoing messages of this rank.
#[derive(Default)]
pub(super) struct SendQueues {
    /// Control messages by target. Each names the message to which it belongs, so messages sent later may overtake it.
    /// In this map and the other maps of queues by target, no queue is empty. If the device's queue to a target is
    /// full, a turn of progress leaves the remaining messages for that target queued.
    pub(super) control: FxHashMap<u32, VecDeque<Prefix>>,
    pub(super) queues: FxHashMap<u32, VecDeque<Queued>>,
    /// An empty queue, kept for its memory.
    pub(super) spare: VecDeque<Queued>,
    /// Messages whose request to send has been sent, by number.
    pub(super) asked: FxHashMap<u64, PendingRendezvous>,
    /// Numbers of the messages whose data is being sent, by target.
    pub(super) streams: FxHashMap<u32, VecDeque<u64>>,
    /// Numbers of the messages whose targets have exported their sinks.
    pub(super) writes: VecDeque<u64>,
    /// The rank that is to acknowledge a message, by the number of the message.
    pub(super) awaited: FxHashMap<u64, (u32, Counter)>,
    /// Number of queued messages whose data was copied.
    pub(super) copied: usize,
}

impl SendQueues {
    pub(super) fn is_empty(&self) -> bool {
        self.control.is_empty() && self.queues.is_empty() && self.streams.is_empty() && self.writes.is_empty()
    }
}

impl PendingRendezvous {
    pub(super) fn target(&self) -> u32 {
        match self {
            Self::Waiting { target, .. } | Self::Streaming { target, .. } | Self::Cancelled(target) => *target,
        }
    }

    pub(super) fn is_of(&self, track: &Rc<Track>) -> bool {
        match self {
            Self::Waiting { lent, .. } | Self::Streaming { lent, .. } => {
                lent.track.as_ref().is_some_and(|t| Rc::ptr_eq(t, track))
            }
            Self::Cancelled(_) => false,
        }
    }
}
