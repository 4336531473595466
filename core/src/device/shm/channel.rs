#![allow(unsafe_code)]
//! Packets from one rank to another, in the ring ([`super::ring`]) or in the reply line. Both ends number the packets,
//! so that they are received in the order of sending.
//!
//! A cache line that has just delivered a packet is in the right cache for the answer: two ranks therefore share a
//! *reply line* for a short packet to one rank and the answer back. One of the two owns it: at first the lower rank,
//! then the rank that has received the packet in it. The owner sends its next short packet in it, and all other packets
//! in the ring.
//!
//! The same holds for the cache lines of a longer packet. Two ranks share *cells* for them, [`CELLS`] in the segment
//! of each, and each cell belongs to one of the two ranks: at first to the rank in whose segment it is, then to the rank
//! that has received the packet in it. The receiver fetches its lines for writing, so that they move once, with their
//! bytes, and are in the right cache for the next packet in the other direction. The reply line, or a slot in the ring,
//! names the cell and has the first bytes of the packet, the headers of a message, whose data begin with the cell. A rank
//! without a cell sends the bytes in the ring, where each cache line is transferred twice per packet: to be written, and
//! to be read.
//!
//! | word | written by | read by | ordering |
//! |---|---|---|---|
//! | marker of the reply line: length, packet number, direction | sender: after the bytes | receiver: before the bytes | Release / Acquire |
//! | bytes of a cell | the rank that it belongs to: before the marker in the ring | receiver: after the marker | plain, ordered by the marker |

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::layout::{CELLS, LINE, Layout};
use super::ring::{Popped, READY, Ring};
use crate::device::{Block, SHORT_WORDS, ShortPacket};
use crate::memory::segment::Mapping;
use crate::memory::words::{Memory, Word, fetch_to_write, store_packet};

/// Length of the longest short packet, which fits into the reply line after the marker.
pub(super) const SHORT: usize = 8 * SHORT_WORDS;
/// The marker of the reply line has the length in the lower bits and the packet number, which does not wrap, in the
/// upper bits. The bit between them marks a packet from the higher rank to the lower.
const LENGTH: u64 = DOWN - 1;
const DOWN: u64 = 1 << 6;
const NUMBER_SHIFT: u32 = 7;
/// A value instead of a length: the next words are the length of a packet in a cell, the cell's number, and the packet's
/// first bytes.
const NAMES_CELL: u64 = LENGTH;
/// Number of first bytes of a packet that are not in its cell: the headers of a message.
pub(super) const CELL_HEAD: usize = 16;

/// The cells that two ranks share for packets, numbered from 0: those in this rank's segment, then those in the peer's.
struct SharedCells<M> {
    /// The segments, and the offset of the first cell in each.
    segments: [(M, usize); 2],
    /// Distance of two cells.
    stride: usize,
    /// The cells that belong to this end, as bits.
    own: Cell<u8>,
}

impl<M> SharedCells<M> {
    /// The cell for the next packet: of those that belong to this end one that the peer has filled before, if possible.
    fn next(&self) -> Option<usize> {
        self.own.get().checked_ilog2().map(|number| number as usize)
    }

    fn is_own(&self, number: usize) -> bool {
        self.own.get() >> number & 1 != 0
    }

    fn set_own(&self, number: usize, is_own: bool) {
        self.own.set(self.own.get() & !(1 << number) | u8::from(is_own) << number);
    }

    /// The number at the peer's end.
    fn at_peer(number: usize) -> usize {
        (number + CELLS) % (2 * CELLS)
    }

    /// Segment and offset.
    fn place(&self, number: usize) -> (&M, usize) {
        let (segment, first) = &self.segments[number / CELLS];
        (segment, first + number % CELLS * self.stride)
    }
}

/// One rank's end of a channel: packets to a peer, and packets from that peer.
pub(super) struct Channel<M: Memory = Mapping> {
    /// The ring for packets to the peer, in the peer's segment.
    outgoing: Ring<M>,
    /// The ring for packets from the peer.
    incoming: Ring<M>,
    /// The reply line of both ends, in the segment of the lower rank.
    reply_line: M::Line,
    /// Whether this end owns the reply line: the packet in it was received.
    owns_reply_line: Cell<bool>,
    cells: SharedCells<M>,
    /// Maximum length of a packet.
    max_packet: usize,
    /// The bit of the direction in markers of the reply line, of packets to the peer and from it.
    down: [u64; 2],
    /// Packets sent.
    sent: Cell<u64>,
    /// Packets received.
    received: Cell<u64>,
}

impl<M: Memory + Clone> Channel<M> {
    /// The end of rank `own` for packets to and from rank `peer`, each given with its segment.
    pub(super) fn new(layout: &Layout, own: (usize, &M), peer: (usize, &M)) -> Self {
        let (lower, higher) = if own.0 < peer.0 { (own, peer) } else { (peer, own) };
        let ring =
            |source, memory: &M| Ring::new(memory.clone(), layout.ring(source), layout.ring, layout.ring_head(source));
        Self {
            outgoing: ring(own.0, peer.1),
            incoming: ring(peer.0, own.1),
            reply_line: lower.1.line(layout.reply_line(higher.0)),
            // A rank has no reply line with itself.
            owns_reply_line: Cell::new(own.0 < peer.0),
            cells: SharedCells {
                segments: [(own.1.clone(), layout.cell(peer.0)), (peer.1.clone(), layout.cell(own.0))],
                stride: layout.cell_len(),
                own: Cell::new(if own.0 == peer.0 { 0 } else { (1 << CELLS) - 1 }),
            },
            max_packet: layout.max_packet(),
            down: if own.0 < peer.0 { [0, DOWN] } else { [DOWN, 0] },
            sent: Cell::new(0),
            received: Cell::new(0),
        }
    }

    /// Sends a packet with a total length of `len` bytes; `false` if the ring is full.
    ///
    /// # Safety
    /// The blocks are valid for reads, and this is the only end of this rank for the peer.
    #[inline]
    pub(super) unsafe fn push(&self, header: &[u8], body: &[Block], len: usize) -> bool {
        if len <= SHORT {
            let mut bytes = [0; SHORT];
            // SAFETY: the blocks are valid by the contract, and all fit.
            unsafe { store_packet(header, body, bytes.as_mut_ptr(), false) };
            let mut words = [0; SHORT_WORDS];
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            return self.push_short(&ShortPacket::new(words, len));
        }
        let number = self.sent.get();
        let sent = match self.cells.next().zip(header.split_first_chunk::<CELL_HEAD>()) {
            Some((cell, (head, header))) => {
                let ((memory, at), name) = (self.cells.place(cell), SharedCells::<M>::at_peer(cell) as u64);
                assert!(len <= self.max_packet, "a packet of {len} bytes");
                let (a, b) = head.split_at(8);
                let [a, b] = [a, b].map(|half| u64::from_le_bytes(half.try_into().unwrap()));
                // SAFETY: as long as a cell, which belongs to this end. The blocks are valid by the contract.
                let store = || unsafe { memory.store_packet(at, header, body, false) };
                let sent = if self.owns_reply_line.replace(false) {
                    store();
                    self.reply([len as u64, name, a, b], NAMES_CELL);
                    true
                } else {
                    self.outgoing.push_in_cell(len, number, [name, a, b], store)
                };
                self.cells.set_own(cell, !sent);
                sent
            }
            // SAFETY: the same contract.
            None => unsafe { self.outgoing.push(header, body, len, number) },
        };
        self.count(sent)
    }

    /// Sends a short packet; `false` if the ring is full. This is the only end of this rank for the peer.
    #[inline(always)]
    pub(super) fn push_short(&self, packet: &ShortPacket) -> bool {
        let sent = if self.owns_reply_line.replace(false) {
            self.reply(packet.words(), packet.len() as u64);
            true
        } else {
            self.outgoing.push_short(packet, self.sent.get())
        };
        self.count(sent)
    }

    /// Counts a packet if it was sent; returns whether it was.
    #[inline(always)]
    fn count(&self, sent: bool) -> bool {
        self.sent.set(self.sent.get() + u64::from(sent));
        sent
    }

    /// Writes a packet into the reply line, whose previous packet was received.
    #[inline(always)]
    fn reply<const N: usize>(&self, words: [u64; N], len: u64) {
        for (place, word) in self.reply_line[1..].iter().zip(words) {
            // Relaxed: ordered by the marker.
            place.store(word, Ordering::Relaxed);
        }
        let marker = READY | self.sent.get() << NUMBER_SHIFT | self.down[0] | len;
        // Release: pairs with the receiver's Acquire of the marker and orders the bytes before it.
        self.reply_line[0].store(marker, Ordering::Release);
    }

    /// Whether `marker`, of the reply line, is the marker of the next packet from the peer.
    #[inline(always)]
    fn is_next(&self, marker: u64) -> bool {
        marker & !LENGTH == READY | self.received.get() << NUMBER_SHIFT | self.down[1]
    }

    /// Whether a packet from the peer is ready.
    #[inline]
    pub(super) fn ready(&self) -> bool {
        // Relaxed: `pop` reads again with Acquire.
        self.is_next(self.reply_line[0].load(Ordering::Relaxed)) || self.incoming.ready()
    }

    /// Whether a packet is ready in the ring's cache line that holds the end of the previous packet.
    #[inline(always)]
    pub(super) fn ready_in_line(&self) -> bool {
        self.incoming.ready_in_line()
    }

    /// Receives the next packet into `packet`, private memory for at least a short packet and the ring's longest
    /// packet. A packet of `long` bytes or more stays in the ring until [`take_long`](Self::take_long); of a packet in a
    /// cell only the first [`CELL_HEAD`] bytes are received.
    #[inline(always)]
    pub(super) fn pop(&self, packet: &mut [u8], long: usize) -> Popped {
        match self.pop_reply(packet) {
            Popped::Empty => {}
            found => return found,
        }
        match self.incoming.pop(packet, self.received.get(), long) {
            // The next packet is in the reply line but was not visible at the first check. It is visible now, because
            // the marker of the later packet was read with Acquire.
            Popped::Later => match self.pop_reply(packet) {
                Popped::Empty => Popped::Malformed(self.received.get()),
                found => found,
            },
            Popped::InCell(len, cell) if !self.is_valid_cell(len, cell) => Popped::Malformed(cell),
            found @ (Popped::Packet(_) | Popped::InCell(..)) => {
                self.received.set(self.received.get() + 1);
                // The next packet to the peer is often an answer.
                self.outgoing.fetch_to_write(0);
                found
            }
            found => found,
        }
    }

    /// Whether a packet of `len` bytes may be in this cell, as its sender claims.
    fn is_valid_cell(&self, len: usize, cell: u64) -> bool {
        let exists = cell < 2 * CELLS as u64;
        exists && (CELL_HEAD..=self.max_packet).contains(&len) && !self.cells.is_own(cell as usize)
    }

    /// Memory and offset of a packet of `len` bytes that was found in the cell, behind its first [`CELL_HEAD`] bytes. They
    /// stay until [`own_cell`](Self::own_cell).
    #[inline]
    pub(super) fn cell(&self, len: usize, cell: u64) -> (&M, usize) {
        let (memory, at) = self.cells.place(cell as usize);
        for line in (at..at + len - CELL_HEAD).step_by(LINE) {
            fetch_to_write(std::ptr::from_ref(memory.word(line)).cast());
        }
        (memory, at)
    }

    /// Reports that the packet in the cell has been read. The cell belongs to this end from now on.
    #[inline]
    pub(super) fn own_cell(&self, cell: u64) {
        self.cells.set_own(cell as usize, true);
    }

    /// Receives the next packet into `packet` if it is in the reply line.
    #[inline(always)]
    fn pop_reply(&self, packet: &mut [u8]) -> Popped {
        // Acquire: pairs with the sender's Release; the bytes after the marker are complete.
        let marker = self.reply_line[0].load(Ordering::Acquire);
        if !self.is_next(marker) {
            return Popped::Empty;
        }
        let len = (marker & LENGTH) as usize;
        if len > SHORT {
            return self.pop_cell_of_reply(marker, packet);
        }
        for (bytes, place) in packet.as_chunks_mut().0.iter_mut().zip(&self.reply_line[1..=SHORT_WORDS]) {
            // Relaxed: ordered by the marker.
            *bytes = place.load(Ordering::Relaxed).to_le_bytes();
        }
        self.received.set(self.received.get() + 1);
        self.owns_reply_line.set(true);
        Popped::Packet(len)
    }

    /// Receives the next packet, which is in a cell that the reply line with this marker names.
    #[inline(never)]
    fn pop_cell_of_reply(&self, marker: u64, packet: &mut [u8]) -> Popped {
        // Relaxed: ordered by the marker.
        let [len, cell, head @ ..] = [1, 2, 3, 4].map(|word| self.reply_line[word].load(Ordering::Relaxed));
        packet[..CELL_HEAD].as_chunks_mut().0.copy_from_slice(&head.map(u64::to_le_bytes));
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if marker & LENGTH != NAMES_CELL || !self.is_valid_cell(len, cell) {
            return Popped::Malformed(marker);
        }
        self.received.set(self.received.get() + 1);
        self.owns_reply_line.set(true);
        Popped::InCell(len, cell)
    }

    /// Receives a long packet of `len` bytes that was found. Returns the offset of its bytes in this rank's segment;
    /// they stay until [`release_long`](Self::release_long).
    pub(super) fn take_long(&self, len: usize) -> usize {
        let place = self.incoming.place(len);
        self.incoming.take(len);
        self.received.set(self.received.get() + 1);
        place
    }

    /// Reports that the long packet has been read.
    pub(super) fn release_long(&self) {
        self.incoming.release_slots();
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
        // Mapped as by another process.
        let mapped = segments.each_ref().map(|s| open(s.name().unwrap(), Pages::AtOnce, 0).unwrap());
        let mut me = 0..2;
        segments.map(|own| {
            let me = me.next().unwrap();
            let channel = Channel::new(&LAYOUT, (me, own.mapping()), (1 - me, &mapped[1 - me]));
            (own, channel)
        })
    }

    /// Receives the next packet into `packet`, also from a cell.
    fn pop(channel: &Channel, packet: &mut [u8]) -> Popped {
        match channel.pop(packet, usize::MAX) {
            Popped::InCell(len, cell) => {
                let (memory, at) = channel.cell(len, cell);
                // SAFETY: the sender has written the packet.
                unsafe { memory.load_packet(at, &mut packet[CELL_HEAD..len]) };
                channel.own_cell(cell);
                Popped::Packet(len)
            }
            found => found,
        }
    }

    #[test]
    fn channel_against_queues_both_ways_every_length_and_fill() {
        let [(_, lower), (_, higher)] = ends();
        let mut sides = [(&lower, VecDeque::new()), (&higher, VecDeque::new())];
        let mut packet = vec![0u8; LAYOUT.ring];
        let mut rng = StdRng::seed_from_u64(4321);
        let (mut short, mut long, mut full, mut replies, mut cells) = (0, 0, 0, 0, 0);
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
                let in_cell = len / 3 >= CELL_HEAD && channel.cells.next().is_some();
                // SAFETY: live slices, one sender per direction.
                if unsafe { channel.push(head, &body, len) } {
                    replies += u32::from(held && !channel.owns_reply_line.get());
                    if len <= SHORT {
                        short += 1
                    } else {
                        long += 1
                    }
                    cells += u32::from(in_cell);
                    sides[1 - me].1.push_back(bytes);
                } else {
                    full += 1;
                }
            } else {
                let (channel, expected) = &mut sides[me];
                assert_eq!(channel.ready(), !expected.is_empty());
                match pop(channel, &mut packet) {
                    Popped::Packet(len) => assert_eq!(packet[..len], expected.pop_front().unwrap()[..]),
                    other => {
                        assert_eq!(other, Popped::Empty);
                        assert!(expected.is_empty());
                    }
                }
            }
            assert!(!(lower.owns_reply_line.get() && higher.owns_reply_line.get()), "two owners of the reply line");
            let both = |cell| lower.cells.is_own(cell) && higher.cells.is_own(SharedCells::<Mapping>::at_peer(cell));
            assert!(!(0..2 * CELLS).any(both), "two owners of a cell");
        }
        assert!(short > 10_000 && long > 10_000 && full > 100, "{short} {long} {full}");
        assert!(replies > 5_000 && cells > 5_000, "{replies} {cells}");
    }

    #[test]
    fn channel_receives_answers_over_the_line_of_the_request() {
        let [(_, lower), (_, higher)] = ends();
        let mut packet = vec![0; LAYOUT.ring];
        let mut expect = |channel: &Channel, word: u64, len: usize| {
            assert_eq!(channel.pop(&mut packet, usize::MAX), Popped::Packet(len));
            assert!(packet[..len].chunks(8).all(|bytes| bytes == word.to_le_bytes()), "{word}");
        };
        for word in 0..10 {
            assert!(lower.push_short(&ShortPacket::new([word; SHORT_WORDS], 48)));
            expect(&higher, word, 48);
            // Neither rank receives its own packet or a packet twice.
            assert!(!lower.ready() && !higher.ready());
            assert!(higher.push_short(&ShortPacket::new([!word; SHORT_WORDS], 40)));
            expect(&lower, !word, 40);
            assert!(!lower.ready() && !higher.ready());
        }
        assert!(lower.owns_reply_line.get());
        // Packets that are not answers are sent in the ring, in order.
        for word in 0..3 {
            assert!(lower.push_short(&ShortPacket::new([word; SHORT_WORDS], 24 * (1 + word as usize % 2))));
        }
        assert!(!lower.owns_reply_line.get());
        (0..3).for_each(|word| expect(&higher, word, 24 * (1 + word as usize % 2)));
        assert_eq!(higher.pop(&mut vec![0; LAYOUT.ring], usize::MAX), Popped::Empty);
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
                let body = [sent; 60];
                let block = Block::of(body.as_ptr().cast(), 8 * (sent as usize % 60));
                // SAFETY: a live array, one sender.
                if sent < N && unsafe { channel.push(&sent.to_le_bytes(), &[block], 8 + block.len) } {
                    sent += 1;
                } else {
                    std::thread::yield_now();
                }
                match pop(channel, &mut packet) {
                    Popped::Packet(len) => {
                        assert_eq!(len, 8 + 8 * (got as usize % 60));
                        assert!(packet[..len].chunks(8).all(|c| c == got.to_le_bytes()), "packet {got}");
                        got += 1;
                    }
                    Popped::Empty => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        std::thread::scope(|t| {
            t.spawn(move || run(&higher));
            run(&lower);
        });
    }

    /// Two ranks that answer each other, or send at the same time, use only the cells.
    #[test]
    fn channel_sends_long_packets_back_in_the_cells_that_brought_them() {
        let [(_, lower), (_, higher)] = ends();
        let mut packet = vec![0; LAYOUT.ring];
        let bytes = vec![7; 2000];
        // SAFETY: live bytes, one sender.
        let send = |channel: &Channel| assert!(unsafe { channel.push(&bytes, &[], bytes.len()) });
        let mut receive = |channel: &Channel, in_cell: bool| {
            let found = channel.pop(&mut packet, usize::MAX);
            assert_eq!(matches!(found, Popped::InCell(2000, _)), in_cell, "{found:?}");
            if let Popped::InCell(_, cell) = found {
                channel.own_cell(cell);
            }
        };
        for _ in 0..10 {
            send(&lower);
            receive(&higher, true);
            send(&higher);
            receive(&lower, true);
        }
        for _ in 0..10 {
            [&lower, &higher].into_iter().for_each(send);
            [&lower, &higher].into_iter().for_each(|channel| receive(channel, true));
        }
        // A stream uses the ring once the cells are at its receiver.
        (0..CELLS + 1).for_each(|_| send(&lower));
        (0..CELLS + 1).for_each(|number| receive(&higher, number < CELLS));
        (0..3).for_each(|_| send(&higher));
        (0..3).for_each(|_| receive(&lower, true));
    }

    #[test]
    fn channel_with_words_that_no_sender_writes_is_garbage_or_empty() {
        let [(own, lower), _] = ends();
        let mut packet = vec![0u8; LAYOUT.ring];
        let mut pop = || lower.pop(&mut packet, usize::MAX);
        // A length beyond the reply line.
        let line = own.mapping().word(LAYOUT.reply_line(1));
        line.store(READY | DOWN | 49, Ordering::SeqCst);
        assert!(matches!(pop(), Popped::Malformed(_)));
        // The direction bit of the other direction, and another packet number: the line counts as empty.
        for marker in [READY, READY | DOWN | 1 << NUMBER_SHIFT] {
            line.store(marker, Ordering::SeqCst);
            assert_eq!(pop(), Popped::Empty);
        }
        // A packet in the ring that is not the next one, while the reply line does not hold the next one either.
        own.mapping().word(LAYOUT.ring(1)).store(READY | 5 << 22, Ordering::SeqCst);
        assert!(matches!(pop(), Popped::Malformed(_)));
        line.store(READY | DOWN, Ordering::SeqCst);
        assert_eq!(pop(), Popped::Packet(0));
    }

    #[test]
    fn channel_with_a_cell_that_is_not_the_senders_or_too_short_is_garbage() {
        // The receiver's own cell, cells that do not exist, and more bytes than fit.
        let cells = CELLS as u64;
        for (cell, len) in [(0, 300), (2 * cells, 300), (u64::MAX, 300), (cells, 2033)] {
            let [(own, lower), _] = ends();
            own.mapping().word(LAYOUT.ring(1) + 8).store(cell, Ordering::SeqCst);
            own.mapping().word(LAYOUT.ring(1)).store(3 << 62 | len, Ordering::SeqCst);
            let found = lower.pop(&mut vec![0; LAYOUT.ring], usize::MAX);
            assert!(matches!(found, Popped::Malformed(_)), "{found:?}");
            let [(own, lower), _] = ends();
            for (at, word) in [(8, len), (16, cell), (0, READY | DOWN | NAMES_CELL)] {
                own.mapping().word(LAYOUT.reply_line(1) + at).store(word, Ordering::SeqCst);
            }
            let found = lower.pop(&mut vec![0; LAYOUT.ring], usize::MAX);
            assert!(matches!(found, Popped::Malformed(_)), "{found:?}");
        }
    }
}
