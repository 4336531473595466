//! What waits at its sender: messages in queues, in the order of sending to each target, and those whose targets are asked.

use std::collections::VecDeque;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::counter::Counter;
use super::data::{Data, Header, Lent};
use super::handler::HandlerId;
use super::packet::Prefix;
use crate::tracked::Track;

/// A message that waits for its turn.
pub(super) struct Queued {
    pub(super) handler: HandlerId,
    pub(super) header: Header,
    pub(super) data: Data,
    pub(super) number: u32,
    pub(super) target: u32,
    pub(super) completion: Option<Counter>,
    /// Bytes that have gone.
    pub(super) sent: usize,
    /// It waits here until its target says where it goes, however short it is.
    pub(super) waits: bool,
}

/// A message whose target is asked.
pub(super) enum Asked {
    /// The request to send has gone; the target may read the data in this region.
    Waiting { target: u32, lent: Lent, region: Option<u64> },
    /// The target wants the first bytes.
    Streaming { target: u32, lent: Lent, wanted: usize, sent: usize },
    /// Taken back; its target is to confirm that.
    Cancelled(u32),
}

/// What this rank has to send.
#[derive(Default)]
pub(super) struct Outgoing {
    /// By target, as all queues here; none of them is empty. A turn looks no further in one whose target has no room.
    pub(super) control: FxHashMap<u32, VecDeque<Prefix>>,
    pub(super) queues: FxHashMap<u32, VecDeque<Queued>>,
    /// By number.
    pub(super) asked: FxHashMap<u32, Asked>,
    /// Of those the ones whose data goes.
    pub(super) streams: FxHashMap<u32, VecDeque<u32>>,
    /// The rank that is to acknowledge a message, by the number of the message.
    pub(super) awaited: FxHashMap<u32, (u32, Counter)>,
    /// Messages that are queued and copied.
    pub(super) copied: usize,
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.control.is_empty() && self.queues.is_empty() && self.streams.is_empty()
    }

    pub(super) fn is_free(&self, number: u32) -> bool {
        !self.asked.contains_key(&number) && !self.awaited.contains_key(&number)
    }
}

impl Asked {
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
