//! This device beside shared memory ([`crate::device::route`]): the rank sleeps on the doorbell of shared memory, and the
//! agent rings it when a completion comes that the rank has asked for.

use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::VerbsDevice;
use super::wait::Edges;
use crate::device::Waker;
use crate::error::{Error, ErrorKind};

/// The bell of a rank that does not sleep on this device, and the completions for which it is rung.
pub(super) struct Outer {
    bell: Waker,
    completions: Edges,
}

impl fmt::Debug for Outer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outer").field("completions", &self.completions).finish_non_exhaustive()
    }
}

impl Outer {
    fn new(bell: Waker, channel: RawFd) -> io::Result<Self> {
        Ok(Self { bell, completions: Edges::of(channel)? })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.completions.fd()
    }

    /// Whether a completion channel that was armed has been rung since the last call.
    pub(super) fn has_event(&self) -> bool {
        self.completions.take()
    }

    pub(super) fn ring(&self) {
        (self.bell)();
    }
}

impl VerbsDevice {
    /// Asks for `waker` to be called at the next event; whether something is there already that a poll would find.
    pub(super) fn arm(&self, waker: &Waker) -> bool {
        if self.links.outer.get().is_none() {
            match Outer::new(Arc::clone(waker), self.channel.fd()) {
                Ok(outer) => {
                    let _ = self.links.outer.set(outer);
                    // The agent sleeps without it as yet.
                    self.links.agent_bell.ring();
                }
                Err(e) => {
                    // Without it the rank polls.
                    tracing::warn!("completions cannot wake this rank: {e}");
                    return true;
                }
            }
        }
        // It is the agent that sleeps on the channel, and leaves the events to the rank.
        while self.take_event() {}
        self.links.rank_bell.hear();
        self.prepare_to_sleep()
    }

    /// Takes note of a rank whose loss another device has met: what is under way to it fails.
    pub(super) fn give_up(&self, lost: &Error) {
        let Some(peer) = lost.blamed().filter(|p| (*p as usize) < self.links.cards.len() && *p != self.links.me) else {
            return;
        };
        if lost.kind() == ErrorKind::PeerLost {
            self.pulse.borrow_mut().note(lost);
            self.links.tell_of(peer);
            self.engine.borrow_mut().lose(peer, lost, &self.stats);
        }
    }
}
