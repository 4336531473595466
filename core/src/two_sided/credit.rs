//! Credits: how many bytes a rank may send to a peer before the peer has received them.

use std::cell::{Cell, OnceCell, RefCell};

/// Maximum bytes of unexpected messages of one peer, their envelopes included; further messages wait at their sender.
/// Messages that the peer has not yet taken out of the ring count too, so this exceeds what the ring holds: half a
/// megabyte, in which the shortest messages count as more than twice their length.
pub const UNEXPECTED: u64 = 4 << 20;
/// Bytes that a message costs in addition to its data.
const ENVELOPE: u64 = 64;
/// Credits are advertised to a peer after this many bytes.
const STEP: u64 = UNEXPECTED / 16;

#[derive(Debug, Default)]
struct Peer {
    /// Bytes sent to the peer, and how many of them the peer has reported as received.
    sent: Cell<u64>,
    granted: Cell<u64>,
    /// Bytes received from the peer, and how many of them were advertised to it.
    taken: Cell<u64>,
    advertised: Cell<u64>,
}

/// The counts of all peers.
#[derive(Debug)]
pub(super) struct Credits {
    rank: u32,
    /// Peers with messages, so that the others take 8 bytes each.
    peers: Box<[OnceCell<Box<Peer>>]>,
    /// Peers to which credits are to be advertised.
    owed: RefCell<Vec<u32>>,
}

impl Credits {
    pub(super) fn new(rank: u32, size: u32) -> Self {
        Self { rank, peers: (0..size).map(|_| OnceCell::new()).collect(), owed: RefCell::default() }
    }

    #[inline]
    fn peer(&self, peer: u32) -> &Peer {
        self.peers[peer as usize].get_or_init(Box::default)
    }

    /// Takes credits for a message of `len` bytes to another rank; `false` if there are too few.
    #[inline]
    pub(super) fn spend(&self, peer: u32, len: usize) -> bool {
        let at = self.peer(peer);
        let sent = at.sent.get() + len as u64 + ENVELOPE;
        let room = sent.wrapping_sub(at.granted.get()) <= UNEXPECTED;
        if room {
            at.sent.set(sent);
        }
        room
    }

    /// Returns the credits of a message that was not sent.
    pub(super) fn unspend(&self, peer: u32, len: usize) {
        if peer != self.rank {
            let at = self.peer(peer);
            at.sent.set(at.sent.get() - len as u64 - ENVELOPE);
        }
    }

    /// Records that the peer has received `taken` bytes in total.
    pub(super) fn granted(&self, peer: u32, taken: u64) {
        let at = self.peer(peer);
        // Clamped, since a peer that reports more than it was sent must not gain credits.
        at.granted.set(taken.clamp(at.granted.get(), at.sent.get().max(at.granted.get())));
    }

    /// Counts a received message of the peer.
    #[inline]
    pub(super) fn taken(&self, peer: u32, len: usize) {
        if peer == self.rank {
            return;
        }
        let at = self.peer(peer);
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

    /// Takes a peer to which credits are to be advertised, and the total of bytes received from it.
    pub(super) fn owed(&self) -> Option<(u32, u64)> {
        let peer = self.owed.borrow_mut().pop()?;
        Some((peer, self.peer(peer).taken.get()))
    }
}
