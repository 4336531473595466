//! Credits: the number of bytes that a rank may send to a peer before the peer has received earlier ones.
//!
//! Each pair begins with [`UNEXPECTED`] bytes. If unexpected messages of a peer use half of its credits, the receiver
//! doubles them, as long as memory is left ([`Room`]). It revokes the added credits, by advertising less than it
//! receives, when few such messages are left. The total number of bytes that the sender may send only grows.

use std::cell::{Cell, OnceCell, RefCell};

use crate::memory::available::available_bytes;

/// Bytes of unexpected messages, including their envelopes, that every rank stores for each peer; further messages wait
/// at their sender until the peer has memory for them. Messages that the peer has not yet read from the ring count too,
/// so this must exceed what a full ring counts: it has half a megabyte, and the shortest messages count as more than
/// twice the bytes that they take there.
pub const UNEXPECTED: u64 = 4 << 20;
/// Bytes that a message counts in addition to its data.
const ENVELOPE: u64 = 64;
/// Credits are advertised to a peer after this many bytes.
const STEP: u64 = UNEXPECTED / 16;
/// Bytes of unexpected messages at which a rank reports that it stores many.
const MANY_BYTES: u64 = 16 * UNEXPECTED;

fn cost(len: usize) -> u64 {
    len as u64 + ENVELOPE
}

/// The memory that unexpected messages may use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Room {
    /// No memory beyond the first credits, so that a simulated job behaves the same on every machine.
    Fixed,
    /// The available memory of this machine, shared by this number of ranks.
    Machine { ranks: u64 },
    #[cfg(test)]
    Bytes(u64),
}

impl Room {
    /// Number of bytes that this rank may store, including the `stored` bytes that it stores now: the ranks of a
    /// machine use at most half of the memory that would be available without their messages.
    fn bytes(self, stored: u64) -> u64 {
        match self {
            Self::Fixed => 0,
            Self::Machine { ranks } => available_bytes().map_or(0, |left| (left + stored) / (2 * ranks.max(1))),
            #[cfg(test)]
            Self::Bytes(bytes) => bytes,
        }
    }
}

#[derive(Debug, Default)]
struct Peer {
    /// Bytes sent to the peer, and bytes that the peer has advertised.
    sent: Cell<u64>,
    granted: Cell<u64>,
    /// Number of bytes received from the peer, its added credits, and the number of bytes of both that were advertised
    /// to it.
    received: Cell<u64>,
    added: Cell<u64>,
    advertised: Cell<u64>,
    /// Bytes of its unexpected messages that this rank stores.
    stored: Cell<u64>,
    /// The total of received bytes at which memory is checked again, after none was available.
    check_at: Cell<u64>,
}

/// The counts of all peers.
pub(super) struct Credits {
    rank: u32,
    /// Only peers with messages have a full entry; the others take 8 bytes each.
    peers: Box<[OnceCell<Box<Peer>>]>,
    /// Peers to which credits are to be advertised.
    owed: RefCell<Vec<u32>>,
    room: Room,
    /// Bytes of all unexpected messages, and the added credits of all peers.
    stored: Cell<u64>,
    added: Cell<u64>,
    /// Whether this rank has reported that it stores many bytes, and that it has no memory for more.
    said: [Cell<bool>; 2],
}

impl Credits {
    pub(super) fn new(rank: u32, size: u32, room: Room) -> Self {
        Self {
            rank,
            peers: (0..size).map(|_| OnceCell::new()).collect(),
            owed: RefCell::default(),
            room,
            stored: Cell::default(),
            added: Cell::default(),
            said: Default::default(),
        }
    }

    #[inline]
    fn peer(&self, peer: u32) -> &Peer {
        self.peers[peer as usize].get_or_init(Box::default)
    }

    /// Takes credits for a message of `len` bytes to another rank; `false` if there are too few.
    #[inline]
    pub(super) fn spend(&self, peer: u32, len: usize) -> bool {
        let at = self.peer(peer);
        let sent = at.sent.get() + cost(len);
        let room = sent <= at.granted.get() + UNEXPECTED;
        if room {
            at.sent.set(sent);
        }
        room
    }

    /// Returns the credits of a message that was not sent.
    pub(super) fn unspend(&self, peer: u32, len: usize) {
        if peer != self.rank {
            let at = self.peer(peer);
            at.sent.set(at.sent.get() - cost(len));
        }
    }

    /// Records the total that the peer has advertised. A peer that advertises more than it has memory for overflows
    /// only its own memory.
    pub(super) fn granted(&self, peer: u32, total: u64) {
        let at = self.peer(peer);
        at.granted.set(total.min(u64::MAX / 2).max(at.granted.get()));
    }

    /// Counts a received message of the peer.
    #[inline]
    pub(super) fn count_received(&self, peer: u32, len: usize) {
        if peer == self.rank {
            return;
        }
        let at = self.peer(peer);
        let received = at.received.get() + cost(len);
        at.received.set(received);
        if at.added.get() > 0 {
            self.revoke_added(at, cost(len));
        }
        self.advertise(peer, at);
    }

    /// Counts an unexpected message of the peer that is stored until its receive.
    pub(super) fn stored(&self, peer: u32, len: usize) {
        if peer == self.rank {
            return;
        }
        let at = self.peer(peer);
        at.stored.set(at.stored.get() + cost(len));
        self.stored.set(self.stored.get() + cost(len));
        if at.stored.get() >= (UNEXPECTED + at.added.get()) / 2 && at.received.get() >= at.check_at.get() {
            self.add(peer, at);
        }
    }

    /// Counts a stored message of the peer as received.
    pub(super) fn taken_from_store(&self, peer: u32, len: usize) {
        if peer == self.rank {
            return;
        }
        let at = self.peer(peer);
        at.stored.set(at.stored.get() - cost(len));
        self.stored.set(self.stored.get() - cost(len));
        self.count_received(peer, len);
    }

    /// Doubles the credits of a peer, if there is memory.
    #[cold]
    fn add(&self, peer: u32, at: &Peer) {
        let more = UNEXPECTED + at.added.get();
        let (stored, added) = (self.stored.get(), self.added.get() + more);
        if added > self.room.bytes(stored) {
            at.check_at.set(at.received.get() + STEP);
            if !self.said[1].replace(true) {
                tracing::warn!(
                    "{} KiB of messages have no receive yet; there is no memory for more, so those of rank {peer} wait at \
                     their sender",
                    stored >> 10
                );
            }
            return;
        }
        self.added.set(added);
        at.added.set(at.added.get() + more);
        self.advertise(peer, at);
        if stored >= MANY_BYTES && !self.said[0].replace(true) {
            tracing::warn!("{} MiB of unexpected messages are stored, the latest from rank {peer}", stored >> 20);
        }
    }

    /// Revokes added credits of a peer for `bytes` that were received, while few of its messages are stored.
    #[cold]
    fn revoke_added(&self, at: &Peer, bytes: u64) {
        if at.stored.get() < (UNEXPECTED + at.added.get()) / 4 {
            let back = bytes.min(at.added.get());
            at.added.set(at.added.get() - back);
            self.added.set(self.added.get() - back);
        }
    }

    #[inline]
    fn advertise(&self, peer: u32, at: &Peer) {
        let total = at.received.get() + at.added.get();
        if total >= at.advertised.get() + STEP {
            at.advertised.set(total);
            self.owed.borrow_mut().push(peer);
        }
    }

    /// Whether credits are to be advertised to a peer.
    #[inline]
    pub(super) fn owes(&self) -> bool {
        !self.owed.borrow().is_empty()
    }

    /// Removes and returns a peer to which credits are to be advertised, and the total to advertise.
    pub(super) fn owed(&self) -> Option<(u32, u64)> {
        let peer = self.owed.borrow_mut().pop()?;
        Some((peer, self.peer(peer).advertised.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 1000 - ENVELOPE as usize;

    /// Rank 0 sends to rank 1, which stores unexpected messages.
    struct Pair {
        sender: Credits,
        receiver: Credits,
    }

    impl Pair {
        fn new(room: Room) -> Self {
            Self { sender: Credits::new(0, 2, room), receiver: Credits::new(1, 2, room) }
        }

        /// Sends until there are no credits, and stores all messages; returns the numbers of messages and of
        /// advertisements.
        fn flood(&self, most: u64) -> (u64, u64) {
            let (mut sent, mut advertised) = (0, 0);
            while sent < most && self.sender.spend(1, LEN) {
                self.receiver.stored(0, LEN);
                sent += 1;
                advertised += self.tell();
            }
            (sent, advertised)
        }

        fn tell(&self) -> u64 {
            let mut count = 0;
            while let Some((_, total)) = self.receiver.owed() {
                self.sender.granted(1, total);
                count += 1;
            }
            count
        }
    }

    #[test]
    fn flood_is_stored_as_far_as_there_is_memory_with_few_advertisements() {
        for (room, least, most) in [(0, 1, 1), (UNEXPECTED, 2, 2), (100 * UNEXPECTED, 64, 101)] {
            let pair = Pair::new(Room::Bytes(room));
            let (sent, advertised) = pair.flood(u64::MAX);
            let windows = (sent * 1000).div_ceil(UNEXPECTED);
            assert!((least..=most).contains(&windows), "{windows} with {room}");
            assert!(advertised <= 7, "{advertised}");
            assert!(!pair.sender.spend(1, LEN));
        }
        assert_eq!(Pair::new(Room::Fixed).flood(u64::MAX).0, UNEXPECTED / 1000);
    }

    /// After its messages are received, a peer has its first credits again, and the memory is available to others.
    #[test]
    fn added_credits_are_revoked_when_the_messages_are_received() {
        let pair = Pair::new(Room::Bytes(20 * UNEXPECTED));
        for round in 0..3 {
            let (sent, _) = pair.flood(u64::MAX);
            assert!(sent * 1000 > 8 * UNEXPECTED, "round {round}: {sent}");
            (0..sent).for_each(|_| {
                pair.receiver.taken_from_store(0, LEN);
                pair.tell();
            });
            assert_eq!(pair.receiver.stored.get(), 0);
            // Credits that were added last are revoked by the next messages.
            for _ in 0..20 * UNEXPECTED / 1000 {
                assert!(pair.sender.spend(1, LEN), "a sender whose messages are received waits");
                pair.receiver.count_received(0, LEN);
                pair.tell();
            }
            assert_eq!(pair.receiver.added.get(), 0);
            let left = pair.sender.peer(1).granted.get() + UNEXPECTED - pair.sender.peer(1).sent.get();
            assert!((UNEXPECTED - STEP..=UNEXPECTED).contains(&left), "{left}");
        }
    }

    /// A rank without available memory checks for memory again only when it has received messages.
    #[test]
    fn sender_waits_without_memory_and_continues_when_messages_are_received() {
        let pair = Pair::new(Room::Fixed);
        let (sent, _) = pair.flood(u64::MAX);
        for _ in 0..sent {
            pair.receiver.taken_from_store(0, LEN);
        }
        pair.tell();
        assert!(pair.flood(u64::MAX).0 >= sent - STEP / 1000 - 1);
    }
}
