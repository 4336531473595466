//! The rank that each responder serves, and the end of a responder.
//!
//! `ibv_destroy_qp` of mlx5 removes the queue pair's completions from the completion queue. Completions of receives
//! that the rank has not polled yet would be lost: acknowledged packets and notifications, and the shared receive
//! buffers that they hold. So a responder that is replaced is moved to the error state and kept, until the rank has
//! found the completion queue empty after that.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

/// Time between the error state and the final poll of the completion queue. Completions of acknowledged requests arrive
/// before the peer can request another responder; the time is for receives that were begun but not acknowledged, which
/// complete within milliseconds. `IBV_EVENT_QP_LAST_WQE_REACHED` would report when they have, but Soft-RoCE does not
/// raise it.
const FLUSH: Duration = Duration::from_secs(1);

/// The responders of a rank, by queue pair number.
pub(crate) struct Responders<Q> {
    sources: FxHashMap<u32, u32>,
    retired: Vec<(Instant, u32, Q)>,
}

impl<Q> Default for Responders<Q> {
    fn default() -> Self {
        Self { sources: FxHashMap::default(), retired: Vec::new() }
    }
}

impl<Q> Responders<Q> {
    /// Records that queue pair `number` serves rank `source`.
    pub(crate) fn add(&mut self, number: u32, source: u32) {
        self.sources.insert(number, source);
    }

    /// The rank that queue pair `number` serves, or has served until it was retired.
    pub(crate) fn source(&self, number: u32) -> Option<u32> {
        self.sources.get(&number).copied()
    }

    /// Keeps a responder that entered the error state at `now`.
    pub(crate) fn retire(&mut self, number: u32, responder: Q, now: Instant) {
        self.retired.push((now, number, responder));
    }

    /// The responders that have flushed by `now`. Once the completion queue was seen empty after this call, the caller
    /// [forgets](Self::forget) and then drops them.
    pub(crate) fn flushed(&mut self, now: Instant) -> Vec<(u32, Q)> {
        // In the order in which they were retired.
        let count = self.retired.partition_point(|(since, ..)| now.saturating_duration_since(*since) >= FLUSH);
        self.retired.drain(..count).map(|(_, number, responder)| (number, responder)).collect()
    }

    /// Drops a number: the HCA may assign it to another queue pair once this one is destroyed.
    pub(crate) fn forget(&mut self, number: u32) {
        self.sources.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retired_responder_is_known_until_it_is_flushed_and_its_number_is_free_after_that() {
        let mut responders = Responders::default();
        let start = Instant::now();
        responders.add(7, 1);
        responders.add(8, 2);
        responders.retire(7, "former", start);
        assert!(responders.flushed(start + FLUSH / 2).is_empty());
        assert_eq!((responders.source(7), responders.source(8)), (Some(1), Some(2)));
        assert_eq!(responders.flushed(start + FLUSH), [(7, "former")]);
        assert_eq!(responders.source(7), Some(1), "its completions may be polled still");
        responders.forget(7);
        assert_eq!(responders.source(7), None);
        responders.add(7, 2);
        assert_eq!(responders.source(7), Some(2), "the adapter has used the number again");
        assert!(responders.flushed(start + 2 * FLUSH).is_empty());
    }
}
