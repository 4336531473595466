#![allow(unsafe_code)]
//! Packets from one rank to another: short packets through cache lines, others through the ring ([`super::ring`]). Both
//! ends number the packets, so that they are received in the order of sending.
//!
//! When a line is used in turn with others, it is in the receiver's cache when its turn comes again, and the sender has
//! to fetch it back before it can write. With two lines the sender fetches the next one ahead. A line that has just
//! delivered a packet is already in the right cache: two ranks therefore share a *reply line*, which carries a packet
//! to one rank and the answer back. One of the two owns it: at first the lower rank, then the rank that has received
//! the packet in it. Other short packets alternate between two lines per direction.
//!
//! | word | written by | read by | ordering |
//! |---|---|---|---|
//! | marker of a line: length, packet number, and in the reply line the direction | sender: after the bytes | receiver: before the bytes | Release / Acquire |
//! | second word of a line: credits, the number of short packets taken in the other direction | sender: as the bytes | receiver: as the bytes | Relaxed, ordered by the marker |
//! | `taken` | receiver: after the bytes, when it has nothing else to do | sender: when both lines look full | Release / Acquire |

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::layout::{LINE, Layout};
use super::ring::{Popped, READY, Ring};
use crate::device::{Block, SHORT_WORDS, ShortPacket};
use crate::memory::segment::Mapping;
use crate::memory::words::{self, Memory, Word, store_packet};

/// Lines for short packets of one direction.
pub(super) const LINES: usize = 2;
/// Number of words before the bytes of a short packet in its line: marker and credits.
const BEFORE: usize = 2;
/// Length of the longest short packet: the rest of a line.
const SHORT: usize = 8 * SHORT_WORDS;
const _: () = assert!(SHORT == LINE - 8 * BEFORE);
/// The marker of a line has the length in the lower bits and the packet number, which does not wrap, in the upper bits.
/// The bit between them marks a packet in the reply line from the higher rank to the lower.
const LENGTH: u64 = DOWN - 1;
const DOWN: u64 = 1 << 6;
const NUMBER_SHIFT: u32 = 7;
/// Number of short packets sent through the ring before the sender checks again for free lines: a check takes the cache
/// line of `taken` from the receiver.
const LOOK_AFTER: u32 = 8;

/// The lines and the ring, in the target's segment, for packets from one rank to another.
#[derive(Debug)]
struct Direction<M: Memory> {
    ring: Ring<M>,
    lines: [M::Line; LINES],
    /// The ring's head and, behind it, `taken`.
    heads: M::Line,
    /// The bit of the direction in markers of the reply line.
    down: u64,
}

impl<M: Memory + Clone> Direction<M> {
    /// The direction from rank `source` to rank `target`, whose segment is `memory`.
    fn new(layout: &Layout, source: usize, (target, memory): (usize, &M)) -> Self {
        Self {
            ring: Ring::new(memory.clone(), layout.ring(source), layout.ring, layout.ring_head(source)),
            lines: layout.short(source).map(|at| memory.line(at)),
            heads: memory.line(layout.ring_head(source)),
            down: if source > target { DOWN } else { 0 },
        }
    }

    /// The line for the next short packet after `mailed` packets through lines of this direction.
    #[inline(always)]
    fn line(&self, mailed: &Cell<u64>) -> &[M::Word; 8] {
        &self.lines[mailed.get() as usize % LINES]
    }
}

/// One rank's end of a channel: packets to a peer, and packets from that peer.
#[derive(Debug)]
pub(super) struct Channel<M: Memory = Mapping> {
    outgoing: Direction<M>,
    incoming: Direction<M>,
    /// The reply line of both ends, in the segment of the lower rank.
    reply_line: M::Line,
    /// Whether this end owns the reply line: the packet in it was received.
    owns_reply_line: Cell<bool>,
    /// Packets sent.
    sent: Cell<u64>,
    /// Packets sent through the lines, and the credits received for them.
    mailed: Cell<u64>,
    credited: Cell<u64>,
    until_look: Cell<u32>,
    /// Packets received.
    received: Cell<u64>,
    /// Packets received through the lines, and the credits advertised for them.
    taken: Cell<u64>,
    advertised: Cell<u64>,
}

impl<M: Memory + Clone> Channel<M> {
    /// The end of rank `own` for packets to and from rank `peer`, each given with its segment.
    pub(super) fn new(layout: &Layout, own: (usize, &M), peer: (usize, &M)) -> Self {
        let (lower, higher) = if own.0 < peer.0 { (own, peer) } else { (peer, own) };
        Self {
            outgoing: Direction::new(layout, own.0, peer),
            incoming: Direction::new(layout, peer.0, own),
            reply_line: lower.1.line(layout.reply_line(higher.0)),
            // A rank does not use a reply line with itself.
            owns_reply_line: Cell::new(own.0 < peer.0),
            sent: Cell::new(0),
            mailed: Cell::new(0),
            credited: Cell::new(0),
            until_look: Cell::new(0),
            received: Cell::new(0),
            taken: Cell::new(0),
            advertised: Cell::new(0),
        }
    }

    /// Sends a packet with a total length of `len` bytes; `false` if there is no room now.
    ///
    /// # Safety
    /// The blocks are valid for reads, and this is the only end of this rank for the peer.
    #[inline]
    pub(super) unsafe fn push(&self, header: &[u8], body: &[Block], len: usize) -> bool {
        if len <= SHORT
            && let Some(line) = self.free_line()
        {
            let mut all = [0; SHORT];
            // SAFETY: the blocks are valid by the contract, and all fit.
            unsafe { store_packet(header, body, all.as_mut_ptr()) };
            let mut words = [0; SHORT_WORDS];
            for (word, bytes) in words.iter_mut().zip(all.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            self.fill(line, &ShortPacket::new(words, len));
            return true;
        }
        // SAFETY: the same contract.
        unsafe { self.push_ring(header, body, len) }
    }

    /// Sends a packet through the ring; `false` if there is no room now.
    ///
    /// # Safety
    /// The blocks are valid for reads, and this is the only end of this rank for the peer.
    #[inline]
    pub(super) unsafe fn push_ring(&self, header: &[u8], body: &[Block], len: usize) -> bool {
        let number = self.sent.get();
        // SAFETY: the same contract.
        if !unsafe { self.outgoing.ring.push(header, body, len, number) } {
            return false;
        }
        self.sent.set(number + 1);
        true
    }

    /// Writes a short packet into a line; `false` if this end knows of no free line.
    #[inline(always)]
    pub(super) fn push_short(&self, packet: &ShortPacket) -> bool {
        let line = self.free_line();
        if let Some(line) = line {
            self.fill(line, packet);
        }
        line.is_some()
    }

    /// The reply line if this end owns it, otherwise the next line if it is free, with the direction bit for the
    /// marker. The line counts as used.
    #[inline(always)]
    fn free_line(&self) -> Option<(&[M::Word; 8], u64)> {
        if self.owns_reply_line.replace(false) {
            return Some((&self.reply_line, self.outgoing.down));
        }
        if !self.has_room() {
            return None;
        }
        let line = self.outgoing.line(&self.mailed);
        self.mailed.set(self.mailed.get() + 1);
        Some((line, 0))
    }

    /// Writes a packet into a line whose previous packet was received.
    #[inline(always)]
    fn fill(&self, (line, down): (&[M::Word; 8], u64), packet: &ShortPacket) {
        let number = self.sent.get();
        for (place, word) in line[BEFORE..].iter().zip(packet.words()) {
            // Relaxed: ordered by the marker.
            place.store(word, Ordering::Relaxed);
        }
        self.advertised.set(self.taken.get());
        // Relaxed: ordered by the marker.
        line[1].store(self.taken.get(), Ordering::Relaxed);
        // Release: pairs with the receiver's Acquire of the marker and orders the bytes before it.
        line[0].store(READY | number << NUMBER_SHIFT | down | packet.len() as u64, Ordering::Release);
        self.sent.set(number + 1);
    }

    #[inline]
    fn has_room(&self) -> bool {
        if self.mailed.get() - self.credited.get() < LINES as u64 {
            return true;
        }
        if self.until_look.get() > 0 {
            self.until_look.set(self.until_look.get() - 1);
            return false;
        }
        // Acquire: pairs with the Release of `give_back`: the receiver has read the lines.
        self.take_credits(self.outgoing.heads[1].load(Ordering::Acquire));
        let free = self.mailed.get() - self.credited.get() < LINES as u64;
        self.until_look.set(if free { 0 } else { LOOK_AFTER });
        free
    }

    /// Receives credits: the number of short packets that the receiver has taken. Smaller numbers than before and
    /// impossible ones are ignored.
    #[inline]
    fn take_credits(&self, taken: u64) {
        if taken > self.credited.get() && taken <= self.mailed.get() {
            self.credited.set(taken);
        }
    }

    /// Fetches the line that the next packet outside the reply line needs.
    #[inline]
    fn fetch_ahead(&self) {
        words::fetch_to_write(self.outgoing.line(&self.mailed).as_ptr().cast());
    }

    /// Whether `marker` is the marker of the next packet from the peer; `down` is the direction bit of its line.
    #[inline(always)]
    fn is_next(&self, marker: u64, down: u64) -> bool {
        marker & !LENGTH == READY | self.received.get() << NUMBER_SHIFT | down
    }

    /// Whether a packet from the peer waits.
    #[inline]
    pub(super) fn ready(&self) -> bool {
        // Relaxed, both: `pop` reads again with Acquire.
        self.is_next(self.reply_line[0].load(Ordering::Relaxed), self.incoming.down)
            || self.is_next(self.incoming.line(&self.taken)[0].load(Ordering::Relaxed), 0)
            || self.incoming.ring.ready()
    }

    /// Whether the ring has an entry.
    #[inline(always)]
    pub(super) fn ring_ready(&self) -> bool {
        self.incoming.ring.ready()
    }

    /// Takes the next packet into `packet`, private memory for at least a line and the ring's longest packet. A packet
    /// of `long` bytes or more stays in the ring until [`take_long`](Self::take_long).
    pub(super) fn pop(&self, packet: &mut [u8], long: usize) -> Popped {
        let short = |packet: &mut [u8]| {
            let mut words = [0; SHORT_WORDS];
            let popped = self.pop_short(&mut words);
            if let Popped::Packet(len) = popped {
                packet[..SHORT].copy_from_slice(&ShortPacket::new(words, len).bytes());
            }
            popped
        };
        match short(packet) {
            Popped::Empty => {}
            found => return found,
        }
        match self.incoming.ring.pop(packet, self.received.get(), long) {
            // The next packet is in a line but was not visible at the first check. It is visible now, because the
            // marker of the later packet was read with Acquire.
            Popped::Later => match short(packet) {
                Popped::Empty => Popped::Garbage(self.received.get()),
                found => found,
            },
            Popped::Packet(len) => {
                self.received.set(self.received.get() + 1);
                Popped::Packet(len)
            }
            found => found,
        }
    }

    /// Takes the long packet of `len` bytes that was found. Returns the offset of its bytes in this rank's segment;
    /// they stay until [`give_back_long`](Self::give_back_long).
    pub(super) fn take_long(&self, len: usize) -> usize {
        let place = self.incoming.ring.place();
        self.incoming.ring.take(len);
        self.received.set(self.received.get() + 1);
        place
    }

    /// Reports that the long packet has been read.
    pub(super) fn give_back_long(&self) {
        self.incoming.ring.give_back_many();
    }

    /// Takes the next packet into `words` if it is in a line.
    #[inline(always)]
    pub(super) fn pop_short(&self, words: &mut [u64; SHORT_WORDS]) -> Popped {
        // Acquire: pairs with the sender's Release; the bytes after the marker are complete.
        let marker = self.reply_line[0].load(Ordering::Acquire);
        if self.is_next(marker, self.incoming.down) {
            let popped = self.take(&self.reply_line, marker, words);
            self.owns_reply_line.set(matches!(popped, Popped::Packet(_)));
            return popped;
        }
        let line = self.incoming.line(&self.taken);
        // Acquire: as above.
        let marker = line[0].load(Ordering::Acquire);
        if !self.is_next(marker, 0) {
            return Popped::Empty;
        }
        self.fetch_ahead();
        let popped = self.take(line, marker, words);
        if let Popped::Packet(_) = popped {
            self.taken.set(self.taken.get() + 1);
        }
        popped
    }

    #[inline(always)]
    fn take(&self, line: &[M::Word; 8], marker: u64, words: &mut [u64; SHORT_WORDS]) -> Popped {
        let len = (marker & LENGTH) as usize;
        if len > SHORT {
            return Popped::Garbage(marker);
        }
        // Relaxed, both: ordered by the marker.
        self.take_credits(line[1].load(Ordering::Relaxed));
        for (word, place) in words.iter_mut().zip(&line[BEFORE..]) {
            *word = place.load(Ordering::Relaxed);
        }
        self.received.set(self.received.get() + 1);
        Popped::Packet(len)
    }

    /// Advertises all packets taken so far.
    #[inline]
    pub(super) fn give_back(&self) {
        self.incoming.ring.give_back();
        if self.advertised.get() != self.taken.get() {
            self.advertised.set(self.taken.get());
            // Release: pairs with the sender's Acquire; the bytes have been read.
            self.incoming.heads[1].store(self.taken.get(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod models;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::segment::{Pages, Segment, open};
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    use std::collections::VecDeque;
    use std::path::Path;

    const LAYOUT: Layout = Layout { ranks: 2, ring: 8192, bounce: 4096 };

    /// The segments and the ends of rank 0 and rank 1.
    fn ends() -> [(Segment, Channel); 2] {
        let segments = [(); 2].map(|()| Segment::create(Path::new("/dev/shm"), LAYOUT.len(), Pages::AtOnce).unwrap());
        // Mapped as in another process.
        let mapped = segments.each_ref().map(|s| open(s.name().unwrap(), Pages::AtOnce, 0).unwrap());
        let mut me = 0..2;
        segments.map(|own| {
            let me = me.next().unwrap();
            let channel = Channel::new(&LAYOUT, (me, own.mapping()), (1 - me, &mapped[1 - me]));
            (own, channel)
        })
    }

    #[test]
    fn channel_against_queues_both_ways_every_length_and_fill() {
        let [(_, lower), (_, higher)] = ends();
        let mut sides = [(&lower, VecDeque::new()), (&higher, VecDeque::new())];
        let mut packet = vec![0u8; LAYOUT.ring];
        let mut rng = StdRng::seed_from_u64(4321);
        let (mut short, mut long, mut full, mut replies) = (0, 0, 0, 0);
        for step in 0..400_000u32 {
            let x: u64 = rng.random();
            let me = (x >> 62 & 1) as usize;
            if x >> 63 == 0 {
                let len = if x >> 20 & 3 == 0 { (x >> 33) as usize % 2000 } else { (x >> 33) as usize % 80 };
                let bytes: Vec<u8> = (0..len).map(|i| (step as usize + i) as u8).collect();
                let (head, tail) = bytes.split_at(len / 3);
                let (channel, _) = &sides[me];
                let body = [Block::of(tail.as_ptr(), tail.len())];
                let held = channel.owns_reply_line.get();
                // SAFETY: live slices, one sender per direction.
                if unsafe { channel.push(head, &body, len) } {
                    replies += u32::from(held && !channel.owns_reply_line.get());
                    if len <= SHORT {
                        short += 1
                    } else {
                        long += 1
                    }
                    sides[1 - me].1.push_back(bytes);
                } else {
                    full += 1;
                }
            } else {
                let (channel, expected) = &mut sides[me];
                assert_eq!(channel.ready(), !expected.is_empty());
                match channel.pop(&mut packet, usize::MAX) {
                    Popped::Packet(len) => assert_eq!(packet[..len], expected.pop_front().unwrap()[..]),
                    other => {
                        assert_eq!(other, Popped::Empty);
                        assert!(expected.is_empty());
                        channel.give_back();
                    }
                }
            }
            assert!(!(lower.owns_reply_line.get() && higher.owns_reply_line.get()), "two owners of the reply line");
        }
        let through_lines = lower.mailed.get() + higher.mailed.get();
        assert!(short > 10_000 && long > 10_000 && full > 100 && through_lines > 10_000, "{short} {long} {full}");
        assert!(replies > 5_000, "{replies}");
    }

    #[test]
    fn channel_takes_answers_back_by_the_line_that_they_came_with() {
        let [(_, lower), (_, higher)] = ends();
        let mut words = [0; SHORT_WORDS];
        for word in 0..10 {
            assert!(lower.push_short(&ShortPacket::new([word; SHORT_WORDS], 48)));
            assert_eq!(higher.pop_short(&mut words), Popped::Packet(48));
            assert_eq!(words, [word; SHORT_WORDS]);
            // Neither rank receives its own packet or a packet twice.
            assert_eq!(lower.pop_short(&mut words), Popped::Empty);
            assert_eq!(higher.pop_short(&mut words), Popped::Empty);
            assert!(higher.push_short(&ShortPacket::new([!word; SHORT_WORDS], 40)));
            assert_eq!(lower.pop_short(&mut words), Popped::Packet(40));
            assert_eq!(words, [!word; SHORT_WORDS]);
        }
        assert_eq!((lower.mailed.get(), higher.mailed.get()), (0, 0));
        // Packets that are not answers use the lines of the direction, in order.
        for word in 0..3 {
            assert!(lower.push_short(&ShortPacket::new([word; SHORT_WORDS], 48)));
        }
        assert_eq!(lower.mailed.get(), 2);
        for word in 0..3 {
            assert_eq!(higher.pop_short(&mut words), Popped::Packet(48));
            assert_eq!(words, [word; SHORT_WORDS]);
        }
    }

    #[test]
    fn channel_between_threads_keeps_order_and_bytes() {
        let [(_, lower), (_, higher)] = ends();
        const N: u64 = 60_000;
        /// Sends N packets and receives N, interleaved in any order.
        fn run(channel: &Channel) {
            let mut packet = vec![0u8; LAYOUT.ring];
            let (mut sent, mut got) = (0, 0u64);
            while sent < N || got < N {
                let body = [sent; 12];
                let block = Block::of(body.as_ptr().cast(), 8 * (sent as usize % 12));
                // SAFETY: a live array, one sender.
                if sent < N && unsafe { channel.push(&sent.to_le_bytes(), &[block], 8 + block.len) } {
                    sent += 1;
                } else {
                    std::thread::yield_now();
                }
                match channel.pop(&mut packet, usize::MAX) {
                    Popped::Packet(len) => {
                        assert_eq!(len, 8 + 8 * (got as usize % 12));
                        assert!(packet[..len].chunks(8).all(|c| c == got.to_le_bytes()), "packet {got}");
                        got += 1;
                    }
                    Popped::Empty => channel.give_back(),
                    other => panic!("{other:?}"),
                }
            }
        }
        std::thread::scope(|t| {
            t.spawn(move || run(&higher));
            run(&lower);
        });
    }

    #[test]
    fn channel_with_words_that_no_sender_writes_is_garbage_or_empty() {
        let [(own, lower), _] = ends();
        let mut packet = vec![0u8; LAYOUT.ring];
        let line = own.mapping().word(LAYOUT.short(1)[0]);
        // A length beyond a line, in both kinds of line.
        line.store(READY | 49, Ordering::SeqCst);
        assert!(matches!(lower.pop(&mut packet, usize::MAX), Popped::Garbage(_)));
        line.store(0, Ordering::SeqCst);
        let line = own.mapping().word(LAYOUT.reply_line(1));
        line.store(READY | DOWN | 49, Ordering::SeqCst);
        assert!(matches!(lower.pop(&mut packet, usize::MAX), Popped::Garbage(_)));
        // The direction bit of the other direction: the line counts as empty.
        line.store(READY, Ordering::SeqCst);
        assert_eq!(lower.pop(&mut packet, usize::MAX), Popped::Empty);
        let line = own.mapping().word(LAYOUT.short(1)[0]);
        // Another packet number: the line counts as empty. Credits for packets that were never sent are ignored.
        line.store(READY | 1 << NUMBER_SHIFT, Ordering::SeqCst);
        assert_eq!(lower.pop(&mut packet, usize::MAX), Popped::Empty);
        own.mapping().word(LAYOUT.short(1)[0] + 8).store(77, Ordering::SeqCst);
        line.store(READY, Ordering::SeqCst);
        assert_eq!(lower.pop(&mut packet, usize::MAX), Popped::Packet(0));
        assert_eq!(lower.credited.get(), 0);
    }
}
