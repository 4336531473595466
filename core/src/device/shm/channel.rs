#![allow(unsafe_code)]
//! Packets from one rank to another: short ones through lines of memory, the others through the ring
//! ([`super::ring`]). Both ends number the packets, so that they are taken in the order of sending.
//!
//! A line that goes round a ring is in the receiver's cache when its turn comes again, and the sender has to fetch
//! it back before it can write. Two lines are better, of which the next one is fetched ahead; best is that which has
//! just come: so two ranks have one line for both ways, the *shuttle*, which takes a packet there and the answer back.
//! At any time one of the two holds it: at first the lower, then whoever has taken the packet that came with it.
//! Packets that are no answers go through two lines of each way, used in turn.
//!
//! | word | written by | read by | ordering |
//! |---|---|---|---|
//! | marker of a line: length, packet number, and in the shuttle the way | sender: after the bytes | receiver: before the bytes | Release / Acquire |
//! | second word of a line: how many short packets of the other way were taken | sender: as the bytes | receiver: as the bytes | Relaxed, ordered by the marker |
//! | `taken` | receiver: after the bytes, when it has nothing else to do | sender: when both lines look full | Release / Acquire |

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{LINE, Layout};
use super::ring::{Popped, READY, Ring};
use crate::device::{Block, SHORT_WORDS, ShortPacket};
use crate::memory::copy;
use crate::memory::segment::{Line, Mapping};

/// Lines for short packets of one way.
pub(super) const LINES: usize = 2;
/// Words in front of the bytes of a short packet in its line: the marker, and the number of those taken.
const BEFORE: usize = 2;
/// Longest short packet: what is left of a line.
const SHORT: usize = 8 * SHORT_WORDS;
const _: () = assert!(SHORT == LINE - 8 * BEFORE);
/// In the marker of a line the length is below, the number of the packet above: it does not wrap. Between them stands
/// whether the packet goes by the shuttle from the higher rank to the lower.
const LENGTH: u64 = DOWN - 1;
const DOWN: u64 = 1 << 6;
const NUMBER_SHIFT: u32 = 7;
/// How many short packets are sent through the ring before the sender looks again whether its lines are free: a look
/// takes the word away from the receiver.
const PATIENCE: u32 = 8;

/// Where packets of one rank to another stand in the target's segment.
#[derive(Debug)]
struct Way {
    ring: Ring,
    lines: [Line; LINES],
    /// The ring's head and, behind it, `taken`.
    heads: Line,
    /// The bit of the way in the shuttle's marker.
    down: u64,
}

impl Way {
    /// The way from one rank to another, which has this segment.
    fn new(layout: &Layout, source: usize, (target, memory): (usize, &Mapping)) -> Self {
        Self {
            ring: Ring::new(memory.clone(), layout.ring(source), layout.ring, layout.ring_head(source)),
            lines: layout.short(source).map(|at| memory.line(at)),
            heads: memory.line(layout.ring_head(source)),
            down: if source > target { DOWN } else { 0 },
        }
    }

    /// The line of a short packet of this number, the shuttle's not counted.
    #[inline(always)]
    fn line(&self, mailed: &Cell<u64>) -> &[AtomicU64; 8] {
        &self.lines[mailed.get() as usize % LINES]
    }
}

/// The end of one rank: what it sends to a peer, and what comes from there.
#[derive(Debug)]
pub(super) struct Channel {
    there: Way,
    back: Way,
    /// In the segment of the lower rank.
    shuttle: Line,
    /// Whether this end holds the shuttle: nothing is in it that was not taken.
    holds: Cell<bool>,
    /// Packets sent.
    sent: Cell<u64>,
    /// Packets sent through the lines, and how many of those were taken as far as this end knows.
    mailed: Cell<u64>,
    known: Cell<u64>,
    patience: Cell<u32>,
    /// Packets received.
    received: Cell<u64>,
    /// Packets received through the lines, and how many of those the peer can know of.
    taken: Cell<u64>,
    told: Cell<u64>,
}

/// Stores a packet's bytes, one piece behind the other.
///
/// # Safety
/// The blocks are valid for reads, and there is room at `to`, as for [`copy::store`].
#[inline]
pub(super) unsafe fn store(header: &[u8], body: &[Block], mut to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { copy::store(header.as_ptr(), to, header.len()) };
    to = to.wrapping_add(header.len());
    for block in body.iter().filter(|block| block.len > 0) {
        // SAFETY: as above.
        unsafe { copy::store(block.base, to, block.len) };
        to = to.wrapping_add(block.len);
    }
}

impl Channel {
    /// The end of `own` for packets to and from `peer`, each a rank with its segment.
    pub(super) fn new(layout: &Layout, own: (usize, &Mapping), peer: (usize, &Mapping)) -> Self {
        let (lower, higher) = if own.0 < peer.0 { (own, peer) } else { (peer, own) };
        Self {
            there: Way::new(layout, own.0, peer),
            back: Way::new(layout, peer.0, own),
            shuttle: lower.1.line(layout.shuttle(higher.0)),
            // What a rank sends to itself does not go by a shuttle.
            holds: Cell::new(own.0 < peer.0),
            sent: Cell::new(0),
            mailed: Cell::new(0),
            known: Cell::new(0),
            patience: Cell::new(0),
            received: Cell::new(0),
            taken: Cell::new(0),
            told: Cell::new(0),
        }
    }

    /// Sends a packet of `len` bytes in all; `false` if there is no room now.
    ///
    /// # Safety
    /// The blocks are valid for reads, and this is the one end of this rank for the peer.
    #[inline]
    pub(super) unsafe fn push(&self, header: &[u8], body: &[Block], len: usize) -> bool {
        if len <= SHORT
            && let Some(line) = self.free_line()
        {
            let mut all = [0; SHORT];
            // SAFETY: the blocks by the contract; all fit.
            unsafe { store(header, body, all.as_mut_ptr()) };
            let mut words = [0; SHORT_WORDS];
            for (word, bytes) in words.iter_mut().zip(all.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            self.fill(line, &ShortPacket::new(words, len));
            return true;
        }
        let number = self.sent.get();
        // SAFETY: the same contract.
        if !unsafe { self.there.ring.push(header, body, len, number) } {
            return false;
        }
        self.sent.set(number + 1);
        true
    }

    /// Puts a short packet into a line; `false` if none is free, as far as this end knows.
    #[inline(always)]
    pub(super) fn push_short(&self, packet: &ShortPacket) -> bool {
        let line = self.free_line();
        if let Some(line) = line {
            self.fill(line, packet);
        }
        line.is_some()
    }

    /// The shuttle if it is here, else the next line if that is free; with the bit of the way. It counts as used.
    #[inline(always)]
    fn free_line(&self) -> Option<(&[AtomicU64; 8], u64)> {
        if self.holds.replace(false) {
            return Some((&self.shuttle, self.there.down));
        }
        if !self.has_room() {
            return None;
        }
        let line = self.there.line(&self.mailed);
        self.mailed.set(self.mailed.get() + 1);
        Some((line, 0))
    }

    /// Writes a packet into a line whose last one was taken.
    #[inline(always)]
    fn fill(&self, (line, down): (&[AtomicU64; 8], u64), packet: &ShortPacket) {
        let number = self.sent.get();
        for (place, word) in line[BEFORE..].iter().zip(packet.words()) {
            // Relaxed: ordered by the marker.
            place.store(word, Ordering::Relaxed);
        }
        self.told.set(self.taken.get());
        // Relaxed: ordered by the marker.
        line[1].store(self.taken.get(), Ordering::Relaxed);
        // Release: pairs with the receiver's Acquire of the marker and orders the bytes before it.
        line[0].store(READY | number << NUMBER_SHIFT | down | packet.len() as u64, Ordering::Release);
        self.sent.set(number + 1);
    }

    #[inline]
    fn has_room(&self) -> bool {
        if self.mailed.get() - self.known.get() < LINES as u64 {
            return true;
        }
        if self.patience.get() > 0 {
            self.patience.set(self.patience.get() - 1);
            return false;
        }
        // Acquire: pairs with the Release of `give_back`: the receiver has read the lines.
        self.learn(self.there.heads[1].load(Ordering::Acquire));
        let free = self.mailed.get() - self.known.get() < LINES as u64;
        self.patience.set(if free { 0 } else { PATIENCE });
        free
    }

    /// Takes note of how many short packets the receiver has taken. Old news, and what it cannot have taken, are
    /// ignored.
    #[inline]
    fn learn(&self, taken: u64) {
        if taken > self.known.get() && taken <= self.mailed.get() {
            self.known.set(taken);
        }
    }

    /// Fetches the line that the next packet without the shuttle needs.
    #[inline]
    fn fetch_ahead(&self) {
        let line = self.there.line(&self.mailed);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint; it has no effect that a program can see, and none at all on processors without it.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) line.as_ptr(), options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }

    /// Whether this is the marker of the next packet from the peer, `down` being the bit of the way in this line.
    #[inline(always)]
    fn is_next(&self, marker: u64, down: u64) -> bool {
        marker & !LENGTH == READY | self.received.get() << NUMBER_SHIFT | down
    }

    /// Whether a packet from the peer waits.
    #[inline]
    pub(super) fn ready(&self) -> bool {
        // Relaxed, both: `pop` looks again with Acquire.
        self.is_next(self.shuttle[0].load(Ordering::Relaxed), self.back.down)
            || self.is_next(self.back.line(&self.taken)[0].load(Ordering::Relaxed), 0)
            || self.back.ring.ready()
    }

    /// Whether the ring is to be looked at.
    #[inline(always)]
    pub(super) fn ring_ready(&self) -> bool {
        self.back.ring.ready()
    }

    /// Takes the next packet into `packet`, private memory of at least a line and of the ring's longest packet.
    pub(super) fn pop(&self, packet: &mut [u8]) -> Popped {
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
        match self.back.ring.pop(packet, self.received.get()) {
            // A packet before that one is in a line, and was not there when we looked: it is now, since the
            // marker of the later one was acquired.
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

    /// Takes the next packet into `words` if it is in a line.
    #[inline(always)]
    pub(super) fn pop_short(&self, words: &mut [u64; SHORT_WORDS]) -> Popped {
        // Acquire: pairs with the sender's Release; the bytes behind it are complete.
        let marker = self.shuttle[0].load(Ordering::Acquire);
        if self.is_next(marker, self.back.down) {
            let popped = self.take(&self.shuttle, marker, words);
            self.holds.set(matches!(popped, Popped::Packet(_)));
            return popped;
        }
        let line = self.back.line(&self.taken);
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
    fn take(&self, line: &[AtomicU64; 8], marker: u64, words: &mut [u64; SHORT_WORDS]) -> Popped {
        let len = (marker & LENGTH) as usize;
        if len > SHORT {
            return Popped::Garbage(marker);
        }
        // Relaxed, both: ordered by the marker.
        self.learn(line[1].load(Ordering::Relaxed));
        for (word, place) in words.iter_mut().zip(&line[BEFORE..]) {
            *word = place.load(Ordering::Relaxed);
        }
        self.received.set(self.received.get() + 1);
        Popped::Packet(len)
    }

    /// Lets the peer know of all packets that were taken.
    #[inline]
    pub(super) fn give_back(&self) {
        self.back.ring.give_back();
        if self.told.get() != self.taken.get() {
            self.told.set(self.taken.get());
            // Release: pairs with the sender's Acquire; the bytes have been read.
            self.back.heads[1].store(self.taken.get(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::segment::{Segment, open};
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    use std::collections::VecDeque;
    use std::path::Path;

    const LAYOUT: Layout = Layout { ranks: 2, ring: 8192, bounce: 4096 };

    /// The segment and the end of rank 0, and those of rank 1.
    fn ends() -> [(Segment, Channel); 2] {
        let segments = [(); 2].map(|()| Segment::create(Path::new("/dev/shm"), LAYOUT.len()).unwrap());
        // As another process would see it.
        let mapped = segments.each_ref().map(|s| open(s.name().unwrap(), 0).unwrap());
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
        let (mut short, mut long, mut full, mut shuttles) = (0, 0, 0, 0);
        for step in 0..400_000u32 {
            let x: u64 = rng.random();
            let me = (x >> 62 & 1) as usize;
            if x >> 63 == 0 {
                let len = if x >> 20 & 3 == 0 { (x >> 33) as usize % 2000 } else { (x >> 33) as usize % 80 };
                let bytes: Vec<u8> = (0..len).map(|i| (step as usize + i) as u8).collect();
                let (head, tail) = bytes.split_at(len / 3);
                let (channel, _) = &sides[me];
                let body = [Block::of(tail.as_ptr(), tail.len())];
                let held = channel.holds.get();
                // SAFETY: live slices, one sender of each way.
                if unsafe { channel.push(head, &body, len) } {
                    shuttles += u32::from(held && !channel.holds.get());
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
                match channel.pop(&mut packet) {
                    Popped::Packet(len) => assert_eq!(packet[..len], expected.pop_front().unwrap()[..]),
                    other => {
                        assert_eq!(other, Popped::Empty);
                        assert!(expected.is_empty());
                        channel.give_back();
                    }
                }
            }
            assert!(!(lower.holds.get() && higher.holds.get()), "one shuttle");
        }
        let through_lines = lower.mailed.get() + higher.mailed.get();
        assert!(short > 10_000 && long > 10_000 && full > 100 && through_lines > 10_000, "{short} {long} {full}");
        assert!(shuttles > 5_000, "{shuttles}");
    }

    #[test]
    fn channel_takes_answers_back_by_the_line_that_they_came_with() {
        let [(_, lower), (_, higher)] = ends();
        let mut words = [0; SHORT_WORDS];
        for word in 0..10 {
            assert!(lower.push_short(&ShortPacket::new([word; SHORT_WORDS], 48)));
            assert_eq!(higher.pop_short(&mut words), Popped::Packet(48));
            assert_eq!(words, [word; SHORT_WORDS]);
            // Neither takes its own packet, nor one twice.
            assert_eq!(lower.pop_short(&mut words), Popped::Empty);
            assert_eq!(higher.pop_short(&mut words), Popped::Empty);
            assert!(higher.push_short(&ShortPacket::new([!word; SHORT_WORDS], 40)));
            assert_eq!(lower.pop_short(&mut words), Popped::Packet(40));
            assert_eq!(words, [!word; SHORT_WORDS]);
        }
        assert_eq!((lower.mailed.get(), higher.mailed.get()), (0, 0));
        // What is no answer goes through the lines of the way, and comes in order.
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
        /// Sends N packets and receives N, in any order of the two.
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
                match channel.pop(&mut packet) {
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
        // Longer than a line, in both kinds.
        line.store(READY | 49, Ordering::SeqCst);
        assert!(matches!(lower.pop(&mut packet), Popped::Garbage(_)));
        line.store(0, Ordering::SeqCst);
        let line = own.mapping().word(LAYOUT.shuttle(1));
        line.store(READY | DOWN | 49, Ordering::SeqCst);
        assert!(matches!(lower.pop(&mut packet), Popped::Garbage(_)));
        // The other way's bit: as if nothing were there.
        line.store(READY, Ordering::SeqCst);
        assert_eq!(lower.pop(&mut packet), Popped::Empty);
        let line = own.mapping().word(LAYOUT.short(1)[0]);
        // Another number: as if nothing were there. Packets taken that were never sent: ignored.
        line.store(READY | 1 << NUMBER_SHIFT, Ordering::SeqCst);
        assert_eq!(lower.pop(&mut packet), Popped::Empty);
        own.mapping().word(LAYOUT.short(1)[0] + 8).store(77, Ordering::SeqCst);
        line.store(READY, Ordering::SeqCst);
        assert_eq!(lower.pop(&mut packet), Popped::Packet(0));
        assert_eq!(lower.known.get(), 0);
    }
}
