#![allow(unsafe_code)]
//! The SGRS queue pair: it sends and receives, with its own receive queue and completion queue. It is shared by the
//! rank, which posts requests, and its agent, which connects or ends it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::qp::{Action, Order, Pair, Parts, Sizes, Tuning, is_a_pair};
use super::queue::{Channel, Completions, Piece};
use super::{Domain, Path};

/// RNR timer, encoded: a sender whose peer has posted no list retries after 0.33 s, six times.
const RNR_TIMER: u8 = 30;
const RNR_RETRIES: u8 = 6;

/// A queue pair that is, or will be, connected to an SGRS queue pair of the peer.
pub(crate) struct SgrsQueuePair {
    pair: Pair,
    pub(crate) completions: Arc<Completions>,
    pub(crate) psn: u32,
    /// Whether the peer's queue pair is connected too, so that messages will be received.
    confirmed: AtomicBool,
    /// The reason why the queue pair was ended.
    ended: OnceLock<String>,
}

is_a_pair!(SgrsQueuePair.pair);

impl SgrsQueuePair {
    /// Creates a queue pair, to which receives can be posted immediately.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        channel: &Arc<Channel>,
        sizes: Sizes,
        tuning: &Tuning,
        psn: u32,
    ) -> io::Result<Self> {
        let completions = Completions::new(channel, (sizes.sends + sizes.receives) as usize)?;
        let parts = Parts {
            domain: Arc::clone(domain),
            sends: Arc::clone(&completions),
            receives: Arc::clone(&completions),
            shared: None,
        };
        let pair = Pair::new(&parts, sizes, false)?;
        pair.initialize(tuning, 0)?;
        Ok(Self { pair, completions, psn, confirmed: AtomicBool::new(false), ended: OnceLock::new() })
    }

    /// Connects the queue pair to queue pair `peer`, whose first packet has number `psn`.
    pub(crate) fn connect(&self, peer: u32, psn: u32, path: &Path, tuning: &Tuning) -> io::Result<()> {
        self.pair.ready_to_receive((peer, psn), 0, RNR_TIMER, path, tuning)?;
        self.pair.ready_to_send(self.psn, 0, RNR_RETRIES, tuning)
    }

    /// Records the peer's confirmation: the queue pair may send from now on.
    pub(crate) fn confirm(&self) {
        // Release: pairs with the Acquire of `is_confirmed`; the rank then posts to the queue pair that was connected
        // before.
        self.confirmed.store(true, Ordering::Release);
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        // Acquire: pairs with the Release of `confirm`.
        self.confirmed.load(Ordering::Acquire)
    }

    /// Ends the queue pair: all posted requests complete with an error, and the HCA no longer accesses their memory
    /// afterwards.
    pub(crate) fn end(&self, why: &str) {
        if self.ended.set(why.to_owned()).is_ok()
            && let Err(e) = self.pair.fail()
        {
            tracing::warn!("an SGRS queue pair could not be moved to the error state: {e}");
        }
    }

    pub(crate) fn ended(&self) -> Option<&str> {
        self.ended.get().map(String::as_str)
    }

    /// Sends pieces as one message.
    ///
    /// # Safety
    /// The memory stays registered and mapped until the request has completed.
    pub(crate) unsafe fn send(&self, id: u64, pieces: &[Piece]) -> io::Result<()> {
        let order = Order { id, action: Action::Send, pieces, inline: false, immediate: None, signalled: true };
        // SAFETY: the same contract.
        super::check(unsafe { self.pair.send(&order) })
    }
}
