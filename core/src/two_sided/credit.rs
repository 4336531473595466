//! How much a rank may send to a peer before the peer has received it.

use std::cell::{Cell, RefCell};

/// Bytes that unexpected messages of one peer may take, their envelopes among them; what is more waits at its sender.
pub const UNEXPECTED: u64 = 1 << 20;
/// What a message takes beside its data.
const ENVELOPE: u64 = 64;
/// Credits are advertised to a peer after this many bytes.
const STEP: u64 = UNEXPECTED / 4;

#[derive(Debug, Default)]
struct Peer {
    /// Bytes sent to the peer, and of those the ones that it says it has taken.
    sent: Cell<u64>,
    granted: Cell<u64>,
    /// Bytes taken of the peer, and how many of them were advertised to it.
    taken: Cell<u64>,
    advertised: Cell<u64>,
}

/// The counts of all peers.
#[derive(Debug)]
pub(super) struct Credits {
    rank: u32,
    peers: Vec<Peer>,
    /// Peers that credits are to be advertised to.
    owed: RefCell<Vec<u32>>,
}

impl Credits {
    pub(super) fn new(rank: u32, size: u32) -> Self {
        Self { rank, peers: (0..size).map(|_| Peer::default()).collect(), owed: RefCell::default() }
    }

    /// Whether a message of `len` bytes may be sent to another rank before it is received; if so it is counted.
    #[inline]
    pub(super) fn spend(&self, peer: u32, len: usize) -> bool {
        let at = &self.peers[peer as usize];
        let sent = at.sent.get() + len as u64 + ENVELOPE;
        let room = sent.wrapping_sub(at.granted.get()) <= UNEXPECTED;
        if room {
            at.sent.set(sent);
        }
        room
    }

    /// A message that was counted did not go after all.
    pub(super) fn unspend(&self, peer: u32, len: usize) {
        if peer != self.rank {
            let at = &self.peers[peer as usize];
            at.sent.set(at.sent.get() - len as u64 - ENVELOPE);
        }
    }

    /// The peer has taken so many bytes.
    pub(super) fn granted(&self, peer: u32, taken: u64) {
        let at = &self.peers[peer as usize];
        // A peer that says more than it was sent only gets no more room than it has.
        at.granted.set(taken.clamp(at.granted.get(), at.sent.get().max(at.granted.get())));
    }

    /// A counted message of the peer has been received.
    #[inline]
    pub(super) fn taken(&self, peer: u32, len: usize) {
        if peer == self.rank {
            return;
        }
        let at = &self.peers[peer as usize];
        let taken = at.taken.get() + len as u64 + ENVELOPE;
        at.taken.set(taken);
        if taken - at.advertised.get() >= STEP {
            at.advertised.set(taken);
            self.owed.borrow_mut().push(peer);
        }
    }

    /// Whether credits are to be advertised to a peer.
    #[inline]
    pub(super) fn owes(&self) -> bool {
        !self.owed.borrow().is_empty()
    }

    /// A peer that credits are to be advertised to, and for how many bytes.
    pub(super) fn owed(&self) -> Option<(u32, u64)> {
        let peer = self.owed.borrow_mut().pop()?;
        Some((peer, self.peers[peer as usize].taken.get()))
    }
}
