//! This device beside shared memory ([`crate::device::route`]): the rank sleeps on the doorbell of shared memory, and the
//! agent rings it when a completion comes that the rank has asked for.

use std::fmt;
use std::io;
use std::os::fd::RawFd;

use super::VerbsDevice;
use super::wait::Edges;
use crate::device::route::Far;
use crate::error::{Error, ErrorKind, Result};

/// The bell of a rank that does not sleep on this device, and the completions for which it is rung.
pub(super) struct Outer {
    bell: Box<dyn Fn() + Send + Sync>,
    completions: Edges,
}

impl fmt::Debug for Outer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outer").field("completions", &self.completions).finish_non_exhaustive()
    }
}

impl Outer {
    fn new(bell: Box<dyn Fn() + Send + Sync>, channel: RawFd) -> io::Result<Self> {
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

impl Far for VerbsDevice {
    fn attach(&self, bell: Box<dyn Fn() + Send + Sync>) -> Result<()> {
        let outer = Outer::new(bell, self.channel.fd());
        let outer = outer.map_err(|e| Error::system("listen for completions", e).device("verbs"))?;
        if self.links.outer.set(outer).is_err() {
            return Err(Error::new(ErrorKind::BadArgument, "attach a bell").device("verbs").cause("there is one"));
        }
        // The agent sleeps without it as yet.
        self.links.agent_bell.ring();
        Ok(())
    }

    fn arm(&self) -> bool {
        // It is the agent that sleeps on the channel, and leaves the events to the rank.
        while self.take_event() {}
        self.links.rank_bell.hear();
        self.prepare_to_sleep()
    }

    fn give_up(&self, lost: &Error) {
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
