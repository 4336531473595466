#![allow(unsafe_code)]
//! The ring for packets from one rank to another: one producer, one consumer, no lock.
//!
//! A packet occupies whole slots of half a cache line: a marker word with its number and length, then its bytes. The
//! marker is written last (Release) and read first (Acquire), so a packet needs no shared tail, and one cache line
//! holds two packets of up to 24 bytes. Before it writes a marker, the producer zeroes the word where the next marker
//! will be, so that old bytes are never taken for a marker. The consumer writes only `head`, which returns slots to the
//! producer, whenever a quarter of the window has been consumed. The remaining slots have room for the longest packet
//! and a pad. Packets do not wrap: a pad marker directs the consumer to the start of the ring; it is written after the
//! marker of the packet there.
//!
//! While the consumer keeps pace, only the first bytes of the ring are used, the *window*, so that its lines stay in
//! the nearest caches of both ends: at the end of the window the producer returns to the start as soon as the consumer
//! has released the slots there. The remainder of the ring is for packets that wait for a busy consumer. Packets of
//! half a window and more get a window of two packets, so that the producer fills one while the consumer reads the
//! other.
//!
//! Both ends prefetch the line after the next marker: the producer, which will write it next, for writing; the
//! consumer, for reading, when it finds two packets in a line, because the producer is then ahead of it.
//!
//! | word | written by | read by | ordering |
//! |---|---|---|---|
//! | marker | producer: after the bytes | consumer: before the bytes | Release / Acquire |
//! | marker = 0 | producer: before the marker before it | consumer: after the marker before it | Relaxed, ordered by that marker |
//! | `head` | consumer: after the bytes | producer: when the ring looks full | Release / Acquire |

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::channel::{CELL_HEAD, SHORT};
use super::layout::LINE;
use crate::device::{Block, ShortPacket};
use crate::memory::segment::Mapping;
use crate::memory::words::{self, Memory, Word};

/// The number of bytes of a slot, of which a packet occupies a multiple.
pub(super) const SLOT: usize = LINE / 2;
const SLOT_WORDS: usize = SLOT / 8;
const MARKER: usize = 8;
pub(super) const READY: u64 = 1 << 63;
const PAD: u64 = 1 << 62;
/// Both bits together mark a packet in a cell; the next word names the cell, and the packet's first bytes follow.
const IN_CELL: u64 = READY | PAD;
/// The marker has the length in the lower bits and the packet number in the upper bits.
const NUMBER_SHIFT: u32 = 22;
const NUMBER: u64 = (1 << 40) - 1;
const LENGTH: u64 = (1 << NUMBER_SHIFT) - 1;

/// One end of the ring. Positions count all bytes since the ring was made.
pub(super) struct Ring<M = Mapping> {
    memory: M,
    data: usize,
    size: usize,
    window: usize,
    head: usize,
    position: Cell<u64>,
    /// Producer: the head as last read. Consumer: the position up to which slots were released.
    head_seen: Cell<u64>,
}

/// Result of a check of the ring by the consumer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Popped {
    Empty,
    Packet(usize),
    /// A long packet, which stays in the ring until it is taken.
    Long(usize),
    /// A packet of this length in a cell; its slot in the ring was consumed, and its first bytes were received.
    InCell(usize, u64),
    /// A packet with another number than the expected one.
    Later,
    /// A marker that no correct producer writes.
    Malformed(u64),
}

/// Length of the window in bytes: a quarter of a data cache of 32 KiB, the smallest in use, since a rank has a window
/// for each direction, and its program's data needs cache too.
const WINDOW: usize = 8 << 10;

/// Length of the largest packet of a ring of `size` bytes: a quarter, so that a few always fit.
pub(super) fn max_packet(size: usize) -> usize {
    size / 4 - LONG_START
}

/// Offset of the bytes of a packet that is not short, in its slots: one word after the marker, so that the data of a
/// message, which follows two words of headers, is aligned to a slot. Copies of unaligned data cross cache lines.
const LONG_START: usize = 2 * MARKER;

/// Offset of the bytes of a packet of `len` bytes, in its slots.
#[inline(always)]
fn start(len: usize) -> usize {
    if len > SHORT { LONG_START } else { MARKER }
}

/// Marker of packet `number` of `len` bytes.
#[inline(always)]
fn marker(kind: u64, number: u64, len: usize) -> u64 {
    kind | (number & NUMBER) << NUMBER_SHIFT | len as u64
}

/// Number of bytes that a packet of `len` bytes occupies in the ring.
#[inline(always)]
fn slots(len: usize) -> usize {
    (start(len) + len).next_multiple_of(SLOT)
}

impl<M: Memory> Ring<M> {
    /// One end of the ring in `memory`: its slots start at byte `data`, and its head word is at byte `head`.
    pub(super) fn new(memory: M, data: usize, size: usize, head: usize) -> Self {
        Self { memory, data, size, window: size.min(WINDOW), head, position: Cell::new(0), head_seen: Cell::new(0) }
    }

    /// Offset of the word at `position`.
    #[inline(always)]
    fn at(&self, position: u64) -> usize {
        self.data + (position as usize & (self.size - 1))
    }

    /// Appends packet `number`, with a total length of `len` bytes; `false` if the ring is full.
    ///
    /// # Safety
    /// The blocks are valid for reads, and this is the ring's only producer.
    #[inline]
    pub(super) unsafe fn push(&self, header: &[u8], body: &[Block], len: usize, number: u64) -> bool {
        assert!(len <= max_packet(self.size), "a packet of {len} bytes");
        let need = slots(len);
        self.append(need, self.window.max(2 * need), marker(READY, number, len), |at| {
            // SAFETY: contiguous slots for `len` bytes that the consumer has released; the blocks are valid by the
            // contract.
            unsafe { self.memory.store_packet(at + start(len), header, body, true) };
        })
    }

    /// Appends a short packet; `false` if the ring is full. This is the ring's only producer.
    #[inline(always)]
    pub(super) fn push_short(&self, packet: &ShortPacket, number: u64) -> bool {
        let [a, b, c, d, e, f] = packet.words();
        self.append(slots(packet.len()), self.window, marker(READY, number, packet.len()), |at| {
            let slot = |at, words: [u64; SLOT_WORDS - 1], skip: usize| {
                for (place, word) in self.memory.words::<SLOT_WORDS>(at)[skip..].iter().zip(words) {
                    // Relaxed: ordered by the marker.
                    place.store(word, Ordering::Relaxed);
                }
            };
            slot(at, [a, b, c], 1);
            if packet.len() > SLOT - MARKER {
                slot(at + SLOT, [d, e, f], 0);
            }
        })
    }

    /// Appends packet `number` of `len` bytes in a cell, into which `store` writes all but its first bytes; `false` if the
    /// ring is full. The words are the cell's number and the first bytes.
    #[inline]
    pub(super) fn push_in_cell(&self, len: usize, number: u64, words: [u64; 3], store: impl FnOnce()) -> bool {
        self.append(SLOT, self.window, marker(IN_CELL, number, len), |at| {
            store();
            for (place, word) in self.memory.words::<SLOT_WORDS>(at)[1..].iter().zip(words) {
                // Relaxed: ordered by the marker.
                place.store(word, Ordering::Relaxed);
            }
        })
    }

    /// Appends a packet of `need` bytes of slots and this marker, in a window of `window` bytes. `store` writes it
    /// after the marker, and gets the offset. Returns `false` if the ring is full.
    #[inline(always)]
    fn append(&self, need: usize, window: usize, marker: u64, store: impl FnOnce(usize)) -> bool {
        let before = self.position.get();
        let first = before as usize & (self.size - 1);
        let start = before + (self.size - first) as u64;
        // The slot of the next marker must be free too.
        let end = |position: u64| position + (need + SLOT) as u64;
        let returns = first + need > self.size || first >= window && self.has_room(end(start));
        let position = if returns { start } else { before };
        if !self.has_room(end(position)) {
            return false;
        }
        let next = position + need as u64;
        // Relaxed: ordered by the marker, after which the consumer reads this word.
        self.memory.word(self.at(next)).store(0, Ordering::Relaxed);
        let at = self.at(position);
        store(at);
        // Release: pairs with the consumer's Acquire of the marker and orders the bytes before it.
        self.memory.word(at).store(marker, Ordering::Release);
        if returns {
            // Release: pairs with the consumer's Acquire of the marker, which then reads the marker at the start.
            self.memory.word(self.at(before)).store(PAD, Ordering::Release);
        }
        self.position.set(next);
        self.fetch_to_write(LINE);
        true
    }

    /// Fetches for writing the line with the byte `distance` after the next marker.
    #[inline(always)]
    pub(super) fn fetch_to_write(&self, distance: usize) {
        words::fetch_to_write(self.after(distance));
    }

    /// Address of the byte `distance` after the next marker, a multiple of a word.
    #[inline(always)]
    fn after(&self, distance: usize) -> *const u8 {
        std::ptr::from_ref(self.memory.word(self.at(self.position.get() + distance as u64))).cast()
    }

    /// Whether the producer may write up to position `end`.
    #[inline(always)]
    fn has_room(&self, end: u64) -> bool {
        // Wrapping: the peer writes the head, and an invalid value must count as a full ring.
        let fits = || end.wrapping_sub(self.head_seen.get()) <= self.size as u64;
        fits() || {
            // Acquire: pairs with the consumer's Release of `head`, after which the producer may write the slots.
            self.head_seen.set(self.memory.word(self.head).load(Ordering::Acquire));
            fits()
        }
    }

    /// Whether a packet is ready.
    #[inline]
    pub(super) fn ready(&self) -> bool {
        // Relaxed: `pop` reads again with Acquire.
        self.memory.word(self.at(self.position.get())).load(Ordering::Relaxed) != 0
    }

    /// Whether a packet is ready in the cache line that holds the end of the previous packet.
    #[inline(always)]
    pub(super) fn ready_in_line(&self) -> bool {
        !self.position.get().is_multiple_of(LINE as u64) && self.ready()
    }

    /// Receives the next packet, if it is packet `number`, into `packet`, private memory of at least `max_packet`
    /// bytes, and releases slots if a quarter of the window has been consumed. A packet of `long` bytes or more stays
    /// in the ring, at [`place`](Self::place), until [`take`](Self::take).
    #[inline]
    pub(super) fn pop(&self, packet: &mut [u8], number: u64, long: usize) -> Popped {
        loop {
            let position = self.position.get();
            let offset = position as usize & (self.size - 1);
            let at = self.data + offset;
            // Acquire: pairs with the producer's Release; the bytes after the marker are complete.
            let marker = self.memory.word(at).load(Ordering::Acquire);
            if marker == 0 {
                return Popped::Empty;
            }
            // A correct sender does not pad at the start.
            if marker == PAD && offset != 0 {
                self.position.set(position + (self.size - offset) as u64);
                self.release_slots();
                continue;
            }
            if marker & READY != 0 && marker >> NUMBER_SHIFT & NUMBER != number & NUMBER {
                return Popped::Later;
            }
            let len = (marker & LENGTH) as usize;
            if marker & IN_CELL != READY
                || len > max_packet(self.size).min(packet.len())
                || offset + slots(len) > self.size
            {
                if marker & IN_CELL != IN_CELL {
                    return Popped::Malformed(marker);
                }
                let [_, cell, words @ ..] = self.memory.words::<SLOT_WORDS>(at);
                for (bytes, word) in packet[..CELL_HEAD].as_chunks_mut().0.iter_mut().zip(words) {
                    // Relaxed: ordered by the marker.
                    *bytes = word.load(Ordering::Relaxed).to_le_bytes();
                }
                // Relaxed: as above.
                let cell = cell.load(Ordering::Relaxed);
                self.position.set(position + SLOT as u64);
                self.release_slots();
                return Popped::InCell(len, cell);
            }
            if len >= long {
                return Popped::Long(len);
            }
            // SAFETY: inside the ring as just checked; the producer writes there only after `head` has passed.
            unsafe { self.memory.load_packet(at + start(len), &mut packet[..len]) };
            self.take(len);
            if self.ready_in_line() {
                words::fetch(self.after(LINE));
            }
            self.release_slots();
            return Popped::Packet(len);
        }
    }

    /// Offset of the bytes of the long packet that was found, which has `len` bytes.
    pub(super) fn place(&self, len: usize) -> usize {
        self.at(self.position.get()) + start(len)
    }

    /// Advances past the packet of `len` bytes that was found. Its bytes stay until its slots are released.
    #[inline]
    pub(super) fn take(&self, len: usize) {
        self.position.set(self.position.get() + slots(len) as u64);
    }

    /// Releases the slots of all consumed packets to the producer if they are a quarter of the window.
    #[inline]
    pub(super) fn release_slots(&self) {
        let taken = self.position.get();
        if taken - self.head_seen.get() >= self.window as u64 / 4 {
            self.head_seen.set(taken);
            // Release: pairs with the producer's Acquire of `head`; the bytes have been read.
            self.memory.word(self.head).store(taken, Ordering::Release);
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

    const SIZE: usize = 8192;

    fn ends() -> (Segment, Ring, Ring) {
        ends_of(SIZE)
    }

    fn ends_of(size: usize) -> (Segment, Ring, Ring) {
        let s = Segment::create(Path::new("/dev/shm"), size + 4096, Pages::AtOnce).unwrap();
        let ring = |memory| Ring::new(memory, 4096, size, 0);
        // Mapped by the producer as by another process.
        let (producer, consumer) =
            (ring(open(s.name().unwrap(), Pages::AtOnce, 0).unwrap()), ring(s.mapping().clone()));
        (s, producer, consumer)
    }

    #[test]
    fn ring_against_a_queue_every_length_and_fill() {
        against_a_queue(SIZE);
        against_a_queue(8 * WINDOW);
    }

    fn against_a_queue(size: usize) {
        let (_, producer, consumer) = ends_of(size);
        let mut oracle = VecDeque::new();
        let mut packet = vec![0u8; size];
        let (mut rng, mut pushed, mut popped, mut full) = (StdRng::seed_from_u64(12345), 0, 0, 0);
        for step in 0..200_000u32 {
            let x: u64 = rng.random();
            if x >> 63 == 0 {
                let len = ((x >> 33) as usize % max_packet(size)) >> ((x >> 20) % 9);
                // Bytes that look like markers must not mislead the consumer.
                let bytes: Vec<u8> = (0..len).map(|i| if i % 8 == 7 { 0x80 } else { step as u8 }).collect();
                let (head, tail) = bytes.split_at(len / 3);
                let fits = if len <= 48 && x >> 19 & 1 == 0 {
                    let mut words = [0; 6];
                    bytes.chunks(8).zip(&mut words).for_each(|(chunk, word)| {
                        *word = chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
                    });
                    producer.push_short(&ShortPacket::new(words, len), pushed)
                } else {
                    // SAFETY: live slices, one producer.
                    unsafe { producer.push(head, &[Block::of(tail.as_ptr(), tail.len())], len, pushed) }
                };
                if fits {
                    oracle.push_back(bytes);
                    pushed += 1;
                } else {
                    full += 1;
                    assert!(!oracle.is_empty());
                }
            } else {
                match consumer.pop(&mut packet, popped, usize::MAX) {
                    Popped::Packet(len) => {
                        assert_eq!(packet[..len], oracle.pop_front().unwrap()[..]);
                        popped += 1;
                    }
                    other => {
                        assert_eq!(other, Popped::Empty);
                        assert!(oracle.is_empty());
                    }
                }
            }
        }
        assert!(pushed > 10_000 && full > 100, "{pushed} {full}");
    }

    #[test]
    fn ring_carries_two_short_packets_per_line_and_releases_a_quarter_at_once() {
        let (s, producer, consumer) = ends();
        let mut packet = vec![0; SIZE];
        let head = || s.mapping().word(0).load(Ordering::SeqCst);
        for number in 0..(SIZE / 4 / SLOT) as u64 {
            assert_eq!(head(), 0);
            assert!(producer.push_short(&ShortPacket::new([number; 6], SLOT - MARKER), number));
            assert_eq!(producer.position.get(), SLOT as u64 * (number + 1));
            assert_eq!(consumer.ready_in_line(), number % 2 == 1);
            assert_eq!(consumer.pop(&mut packet, number, usize::MAX), Popped::Packet(SLOT - MARKER));
        }
        assert_eq!(head(), SIZE as u64 / 4);
    }

    #[test]
    fn ring_stays_in_its_window_while_the_consumer_keeps_pace_and_has_more_room_otherwise() {
        const DEEP: usize = 4 * WINDOW;
        let (_, producer, consumer) = ends_of(DEEP);
        let (mut packet, mut number) = (vec![0; DEEP], 0);
        let short = ShortPacket::new([1; 6], SLOT - MARKER);
        let push = |number: &mut u64| {
            let fits = producer.push_short(&short, *number);
            *number += u64::from(fits);
            fits
        };
        let mut taken = 0;
        for step in 0..10_000 {
            assert!(push(&mut number));
            assert!(producer.position.get() as usize % DEEP <= WINDOW + SLOT, "step {step}");
            // The consumer is a few packets behind the producer.
            if step >= 50 {
                assert_eq!(consumer.pop(&mut packet, taken, usize::MAX), Popped::Packet(SLOT - MARKER));
                taken += 1;
            }
        }
        while taken < number {
            assert_eq!(consumer.pop(&mut packet, taken, usize::MAX), Popped::Packet(SLOT - MARKER));
            taken += 1;
        }
        while push(&mut number) {}
        assert!(number - taken > (DEEP - WINDOW) as u64 / SLOT as u64 - 2, "{}", number - taken);
    }

    #[test]
    fn ring_between_threads_keeps_order_and_bytes() {
        between_threads(SIZE, 100_000, 12);
        // Some of these are longer than the window.
        between_threads(8 * WINDOW, 4_000, 2 * WINDOW / 8 - 4);
    }

    /// Sends `n` packets, of a word and at most `most` others.
    fn between_threads(size: usize, n: u64, most: usize) {
        let (_, producer, consumer) = ends_of(size);
        std::thread::scope(|t| {
            t.spawn(move || {
                for i in 0..n {
                    let body = vec![i; most];
                    let block = Block::of(body.as_ptr().cast(), 8 * (1 + i as usize % most));
                    // SAFETY: a live array, one producer.
                    while !unsafe { producer.push(&i.to_le_bytes(), &[block], 8 + block.len, i) } {
                        std::thread::yield_now();
                    }
                }
            });
            let mut packet = vec![0u8; size];
            for i in 0..n {
                let len = loop {
                    match consumer.pop(&mut packet, i, usize::MAX) {
                        Popped::Packet(len) => break len,
                        Popped::Empty => std::thread::yield_now(),
                        other => panic!("{other:?}"),
                    }
                };
                assert_eq!(len, 8 + 8 * (1 + i as usize % most));
                assert!(packet[..len].chunks(8).all(|c| c == i.to_le_bytes()), "packet {i}");
            }
        });
    }

    #[test]
    fn ring_with_a_marker_that_no_producer_writes_is_garbage() {
        let (s, _, consumer) = ends();
        for marker in [1u64, READY | LENGTH, READY | (SIZE as u64 / 2), PAD] {
            s.mapping().word(4096).store(marker, Ordering::SeqCst);
            assert_eq!(consumer.pop(&mut [0; SIZE], 0, usize::MAX), Popped::Malformed(marker));
        }
        for kind in [READY, IN_CELL] {
            s.mapping().word(4096).store(kind | 1 << NUMBER_SHIFT, Ordering::SeqCst);
            assert_eq!(consumer.pop(&mut [0; SIZE], 0, usize::MAX), Popped::Later);
        }
    }
}
