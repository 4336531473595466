#![allow(unsafe_code)]
//! Packets from one rank to another: short ones through two lines that are used in turn, the others through the
//! ring ([`super::ring`]). Both ends number the packets, so that they are taken in the order of sending.
//!
//! A line that goes round a ring is in the receiver's cache when its turn comes again, and the sender has to fetch
//! it back before it can write. Of the two lines the next one is fetched ahead: when a packet is taken, the line
//! that an answer will need.
//!
//! | word | written by | read by | ordering |
//! |---|---|---|---|
//! | marker of a line: length, packet number | sender: after the bytes | receiver: before the bytes | Release / Acquire |
//! | second word of a line: how many short packets of the other way were taken | sender: as the bytes | receiver: as the bytes | Relaxed, ordered by the marker |
//! | `taken` | receiver: after the bytes, when it has nothing else to do | sender: when both lines look full | Release / Acquire |

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::layout::{LINE, Layout};
use super::ring::{Popped, READY, Ring};
use crate::device::{Block, SHORT_WORDS, ShortPacket};
use crate::memory::copy;
use crate::memory::segment::Mapping;

/// Lines for short packets.
pub(super) const LINES: usize = 2;
/// Words in front of the bytes of a short packet in its line: the marker, and the number of those taken.
const BEFORE: usize = 2;
/// Longest short packet: what is left of a line.
const SHORT: usize = 8 * SHORT_WORDS;
const _: () = assert!(SHORT == LINE - 8 * BEFORE);
/// In the marker of a line the length is below, the number of the packet above: it does not wrap.
const LENGTH: u64 = (1 << NUMBER_SHIFT) - 1;
const NUMBER_SHIFT: u32 = 6;
/// How many short packets are sent through the ring before the sender looks again whether its lines are free: a look
/// takes the word away from the receiver.
const PATIENCE: u32 = 8;

/// Where packets of one rank to another stand in the target's segment.
#[derive(Debug)]
struct Way {
    ring: Ring,
    lines: [usize; LINES],
    taken: usize,
}

impl Way {
    fn new(layout: &Layout, source: usize) -> Self {
        Self {
            ring: Ring::new(layout.ring(source), layout.ring, layout.ring_head(source)),
            lines: layout.short(source),
            taken: layout.taken(source),
        }
    }
}

/// The sending end.
#[derive(Debug)]
pub(super) struct Sender {
    way: Way,
    /// Packets sent.
    number: Cell<u64>,
    /// Packets sent through the lines, and how many of those were taken as far as this end knows.
    mailed: Cell<u64>,
    known: Cell<u64>,
    patience: Cell<u32>,
}

/// The receiving end.
#[derive(Debug)]
pub(super) struct Receiver {
    way: Way,
    /// Packets taken.
    number: Cell<u64>,
    /// Packets taken from the lines, and how many of those the sender can know of.
    mailed: Cell<u64>,
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

impl Sender {
    /// The end of rank `source`, for the segment of its target.
    pub(super) fn new(layout: &Layout, source: usize) -> Self {
        Self {
            way: Way::new(layout, source),
            number: Cell::new(0),
            mailed: Cell::new(0),
            known: Cell::new(0),
            patience: Cell::new(0),
        }
    }

    /// Appends a packet of `len` bytes in all; `false` if there is no room now. `back` is the receiving end of the other way.
    ///
    /// # Safety
    /// The blocks are valid for reads, and `memory` is the target's segment and has this one sender.
    #[inline]
    pub(super) unsafe fn push(
        &self,
        memory: &Mapping,
        (header, body, len): (&[u8], &[Block], usize),
        back: &Receiver,
    ) -> bool {
        if len <= SHORT && self.has_room(memory) {
            let mut all = [0; SHORT];
            // SAFETY: the blocks by the contract; all fit.
            unsafe { store(header, body, all.as_mut_ptr()) };
            let mut words = [0; SHORT_WORDS];
            for (word, bytes) in words.iter_mut().zip(all.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            self.mail(memory, &ShortPacket::new(words, len), back);
            return true;
        }
        let number = self.number.get();
        // SAFETY: the same contract.
        if !unsafe { self.way.ring.push(memory, header, body, len, number) } {
            return false;
        }
        self.number.set(number + 1);
        true
    }

    /// Puts a short packet into a line; `false` if none is free, as far as this end knows. As [`push`](Self::push).
    #[inline(always)]
    pub(super) fn push_short(&self, memory: &Mapping, packet: &ShortPacket, back: &Receiver) -> bool {
        let room = self.has_room(memory);
        if room {
            self.mail(memory, packet, back);
        }
        room
    }

    #[inline(always)]
    fn mail(&self, memory: &Mapping, packet: &ShortPacket, back: &Receiver) {
        let (number, mailed) = (self.number.get(), self.mailed.get());
        // A line whose last packet was taken.
        let line = memory.line(self.line());
        for (place, word) in line[BEFORE..].iter().zip(packet.words()) {
            // Relaxed: ordered by the marker.
            place.store(word, Ordering::Relaxed);
        }
        let taken = back.mailed.get();
        back.told.set(taken);
        // Relaxed: ordered by the marker.
        line[1].store(taken, Ordering::Relaxed);
        // Release: pairs with the receiver's Acquire of the marker and orders the bytes before it.
        line[0].store(READY | number << NUMBER_SHIFT | packet.len() as u64, Ordering::Release);
        self.mailed.set(mailed + 1);
        self.number.set(number + 1);
    }

    #[inline(always)]
    fn line(&self) -> usize {
        self.way.lines[self.mailed.get() as usize % LINES]
    }

    #[inline]
    fn has_room(&self, memory: &Mapping) -> bool {
        if self.mailed.get() - self.known.get() < LINES as u64 {
            return true;
        }
        if self.patience.get() > 0 {
            self.patience.set(self.patience.get() - 1);
            return false;
        }
        // Acquire: pairs with the Release of `give_back`: the receiver has read the lines.
        self.learn(memory.word(self.way.taken).load(Ordering::Acquire));
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

    /// Fetches the line that the next short packet needs.
    #[inline]
    fn fetch_ahead(&self, memory: &Mapping) {
        let line = memory.line(self.line());
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint; it has no effect that a program can see, and none at all on processors without it.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) line.as_ptr(), options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }
}

impl Receiver {
    /// The end for packets of rank `source`, in this rank's own segment.
    pub(super) fn new(layout: &Layout, source: usize) -> Self {
        Self { way: Way::new(layout, source), number: Cell::new(0), mailed: Cell::new(0), told: Cell::new(0) }
    }

    #[inline(always)]
    fn line(&self) -> usize {
        self.way.lines[self.mailed.get() as usize % LINES]
    }

    #[inline(always)]
    fn is_next(&self, marker: u64) -> bool {
        marker & !LENGTH == READY | self.number.get() << NUMBER_SHIFT
    }

    /// Whether a packet waits.
    #[inline]
    pub(super) fn ready(&self, memory: &Mapping) -> bool {
        // Relaxed: `pop` looks again with Acquire.
        self.is_next(memory.word(self.line()).load(Ordering::Relaxed)) || self.way.ring.ready(memory)
    }

    /// Whether the ring is to be looked at.
    #[inline(always)]
    pub(super) fn ring_ready(&self, memory: &Mapping) -> bool {
        self.way.ring.ready(memory)
    }

    /// Takes the next packet into `packet`, private memory of at least a line and of the ring's longest packet.
    /// `back` is the sending end of the other way, in the segment `peer`.
    pub(super) fn pop(&self, memory: &Mapping, packet: &mut [u8], back: &Sender, peer: &Mapping) -> Popped {
        let short = |packet: &mut [u8]| {
            let mut words = [0; SHORT_WORDS];
            let popped = self.pop_short(memory, &mut words, back, peer);
            if let Popped::Packet(len) = popped {
                packet[..SHORT].copy_from_slice(&ShortPacket::new(words, len).bytes());
            }
            popped
        };
        match short(packet) {
            Popped::Empty => {}
            found => return found,
        }
        match self.way.ring.pop(memory, packet, self.number.get()) {
            // A packet before that one is in a line, and was not there when we looked: it is now, since the
            // marker of the later one was acquired.
            Popped::Later => match short(packet) {
                Popped::Empty => Popped::Garbage(self.number.get()),
                found => found,
            },
            Popped::Packet(len) => {
                self.number.set(self.number.get() + 1);
                Popped::Packet(len)
            }
            found => found,
        }
    }

    /// Takes the next packet into `words` if it is in a line.
    #[inline(always)]
    pub(super) fn pop_short(
        &self,
        memory: &Mapping,
        words: &mut [u64; SHORT_WORDS],
        back: &Sender,
        peer: &Mapping,
    ) -> Popped {
        let line = memory.line(self.line());
        // Acquire: pairs with the sender's Release; the bytes behind it are complete.
        let marker = line[0].load(Ordering::Acquire);
        if !self.is_next(marker) {
            return Popped::Empty;
        }
        back.fetch_ahead(peer);
        let len = (marker & LENGTH) as usize;
        if len > SHORT {
            return Popped::Garbage(marker);
        }
        // Relaxed, both: ordered by the marker.
        back.learn(line[1].load(Ordering::Relaxed));
        for (word, place) in words.iter_mut().zip(&line[BEFORE..]) {
            *word = place.load(Ordering::Relaxed);
        }
        self.mailed.set(self.mailed.get() + 1);
        self.number.set(self.number.get() + 1);
        Popped::Packet(len)
    }

    /// Lets the sender know of all packets that were taken.
    #[inline]
    pub(super) fn give_back(&self, memory: &Mapping) {
        self.way.ring.give_back(memory);
        if self.told.get() != self.mailed.get() {
            self.told.set(self.mailed.get());
            // Release: pairs with the sender's Acquire; the bytes have been read.
            memory.word(self.way.taken).store(self.mailed.get(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::segment::{Segment, open};
    use std::collections::VecDeque;
    use std::path::Path;

    const LAYOUT: Layout = Layout { ranks: 2, ring: 8192, bounce: 4096 };

    /// Ends of rank 0 and of rank 1: each sends into the other's segment.
    fn ends(source: usize) -> (Segment, Sender, Receiver) {
        let own = Segment::create(Path::new("/dev/shm"), LAYOUT.len()).unwrap();
        (own, Sender::new(&LAYOUT, source), Receiver::new(&LAYOUT, 1 - source))
    }

    #[test]
    fn channel_against_queues_both_ways_every_length_and_fill() {
        let (own, out, into) = ends(0);
        let (peer, peer_out, peer_into) = ends(1);
        let mut sides =
            [(&out, &into, &own, &peer, VecDeque::new()), (&peer_out, &peer_into, &peer, &own, VecDeque::new())];
        let mut packet = vec![0u8; LAYOUT.ring];
        let (mut x, mut short, mut long, mut full) = (4321u64, 0, 0, 0);
        for step in 0..400_000u32 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let me = (x >> 62 & 1) as usize;
            if x >> 63 == 0 {
                let len = if x >> 20 & 3 == 0 { (x >> 33) as usize % 2000 } else { (x >> 33) as usize % 80 };
                let bytes: Vec<u8> = (0..len).map(|i| (step as usize + i) as u8).collect();
                let (head, tail) = bytes.split_at(len / 3);
                let (sender, back, _, target, _) = &sides[me];
                let body = [Block::of(tail.as_ptr(), tail.len())];
                // SAFETY: live slices, one sender of each way.
                if unsafe { sender.push(target.mapping(), (head, &body, len), back) } {
                    if len <= SHORT {
                        short += 1
                    } else {
                        long += 1
                    }
                    sides[1 - me].4.push_back(bytes);
                } else {
                    full += 1;
                }
            } else {
                let (back, receiver, memory, peer, expected) = &mut sides[me];
                assert_eq!(receiver.ready(memory.mapping()), !expected.is_empty());
                match receiver.pop(memory.mapping(), &mut packet, back, peer.mapping()) {
                    Popped::Packet(len) => assert_eq!(packet[..len], expected.pop_front().unwrap()[..]),
                    other => {
                        assert_eq!(other, Popped::Empty);
                        assert!(expected.is_empty());
                        receiver.give_back(memory.mapping());
                    }
                }
            }
        }
        let through_lines = out.mailed.get() + peer_out.mailed.get();
        assert!(short > 10_000 && long > 10_000 && full > 100 && through_lines > 10_000, "{short} {long} {full}");
    }

    #[test]
    fn channel_between_threads_keeps_order_and_bytes() {
        let (own, out, into) = ends(0);
        let (peer, peer_out, peer_into) = ends(1);
        let peer_from_here = open(peer.name().unwrap(), 0).unwrap();
        let own_from_there = open(own.name().unwrap(), 0).unwrap();
        const N: u64 = 60_000;
        /// Sends N packets and receives N, in any order of the two.
        fn run(out: &Sender, into: &Receiver, own: &Mapping, peer: &Mapping) {
            let mut packet = vec![0u8; LAYOUT.ring];
            let (mut sent, mut got) = (0, 0u64);
            while sent < N || got < N {
                let body = [sent; 12];
                let block = Block::of(body.as_ptr().cast(), 8 * (sent as usize % 12));
                // SAFETY: a live array, one sender.
                if sent < N && unsafe { out.push(peer, (&sent.to_le_bytes(), &[block], 8 + block.len), into) } {
                    sent += 1;
                } else {
                    std::thread::yield_now();
                }
                match into.pop(own, &mut packet, out, peer) {
                    Popped::Packet(len) => {
                        assert_eq!(len, 8 + 8 * (got as usize % 12));
                        assert!(packet[..len].chunks(8).all(|c| c == got.to_le_bytes()), "packet {got}");
                        got += 1;
                    }
                    Popped::Empty => into.give_back(own),
                    other => panic!("{other:?}"),
                }
            }
        }
        std::thread::scope(|t| {
            t.spawn(move || run(&peer_out, &peer_into, peer.mapping(), &own_from_there));
            run(&out, &into, own.mapping(), &peer_from_here);
        });
    }

    #[test]
    fn channel_with_words_that_no_sender_writes_is_garbage_or_empty() {
        let (own, out, into) = ends(0);
        let (peer, ..) = ends(1);
        let mut packet = vec![0u8; LAYOUT.ring];
        let line = own.mapping().word(LAYOUT.short(1)[0]);
        // Longer than a line.
        line.store(READY | 49, Ordering::SeqCst);
        assert!(matches!(into.pop(own.mapping(), &mut packet, &out, peer.mapping()), Popped::Garbage(_)));
        // Another number: as if nothing were there. Packets taken that were never sent: ignored.
        line.store(READY | 1 << NUMBER_SHIFT, Ordering::SeqCst);
        assert_eq!(into.pop(own.mapping(), &mut packet, &out, peer.mapping()), Popped::Empty);
        own.mapping().word(LAYOUT.short(1)[0] + 8).store(77, Ordering::SeqCst);
        line.store(READY, Ordering::SeqCst);
        assert_eq!(into.pop(own.mapping(), &mut packet, &out, peer.mapping()), Popped::Packet(0));
        assert_eq!(out.known.get(), 0);
    }
}
