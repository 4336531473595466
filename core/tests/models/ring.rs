//! The packet ring (`ring.rs`): markers, zeroing, pads, and the head.
//!
//! A line is its first word, an atomic because it may be a marker, and the rest, which is plain memory: two ranks
//! that touch it without an order between them are reported as a data race.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};

const READY: u64 = 1 << 63;
const PAD: u64 = 1 << 62;
const LINES: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    No,
    /// The marker is not released after the bytes.
    MarkerRelaxed,
    /// The head is not released after the bytes were taken.
    HeadRelaxed,
    /// Lines are given back before they were read.
    HeadFirst,
    /// Only the marker's line is zeroed, not the others of the packet.
    FirstLineZeroed,
}

struct Ring {
    first: [AtomicU64; LINES],
    rest: [UnsafeCell<u64>; LINES],
    head: AtomicU64,
    broken: Broken,
}

#[allow(unsafe_code)]
// SAFETY: every access to a cell is tracked by loom, which reports those that are not ordered.
unsafe impl Sync for Ring {}

struct Producer {
    position: u64,
    seen_head: u64,
}

#[derive(Default)]
struct Consumer {
    position: u64,
    /// How far lines were given back.
    given: u64,
    /// Where the markers between these two stand.
    markers: Vec<u64>,
}

#[allow(unsafe_code)]
impl Ring {
    fn new(broken: Broken) -> Self {
        Self {
            first: std::array::from_fn(|_| AtomicU64::new(0)),
            rest: std::array::from_fn(|_| UnsafeCell::new(0)),
            head: AtomicU64::new(0),
            broken,
        }
    }

    fn at(position: u64) -> usize {
        position as usize % LINES
    }

    /// A packet of `lines` lines whose bytes are all `value`.
    fn push(&self, p: &mut Producer, lines: u64, value: u64) -> bool {
        let at = Self::at(p.position);
        let pad = if at + lines as usize > LINES { (LINES - at) as u64 } else { 0 };
        let end = p.position + pad + lines;
        if end - p.seen_head > LINES as u64 {
            // Acquire: pairs with the Release in `give_back`.
            p.seen_head = self.head.load(Ordering::Acquire);
            if end - p.seen_head > LINES as u64 {
                return false;
            }
        }
        if pad != 0 {
            // Release: pairs with the Acquire of the marker in `pop`; it carries no bytes.
            self.first[at].store(PAD, Ordering::Release);
            p.position += pad;
        }
        let at = Self::at(p.position);
        for line in at..at + lines as usize {
            // SAFETY: loom checks that nobody else uses the cell meanwhile.
            self.rest[line].with_mut(|w| unsafe { *w = value });
            if line > at {
                // Bytes of a packet stand where a marker would: like everything but the marker, plain stores.
                // Relaxed: ordered by the marker.
                self.first[line].store(READY | 1 | value << 8, Ordering::Relaxed);
            }
        }
        // Release: pairs with the Acquire of the marker in `pop`.
        let release = if self.broken == Broken::MarkerRelaxed { Ordering::Relaxed } else { Ordering::Release };
        self.first[at].store(READY | lines, release);
        p.position += lines;
        true
    }

    /// Gives back the lines of all packets that were taken.
    fn give_back(&self, c: &mut Consumer) {
        for at in c.given..c.position {
            if self.broken != Broken::FirstLineZeroed || c.markers.contains(&at) {
                // Relaxed: ordered by the Release of `head` below.
                self.first[Self::at(at)].store(0, Ordering::Relaxed);
            }
        }
        if c.given != c.position {
            c.given = c.position;
            c.markers.clear();
            // Release: pairs with the Acquire of `head` in `push`.
            let release = if self.broken == Broken::HeadRelaxed { Ordering::Relaxed } else { Ordering::Release };
            self.head.store(c.given, release);
        }
    }

    /// Goes on behind what was taken, and gives lines back once many are owed.
    fn advance(&self, c: &mut Consumer, lines: u64) {
        c.position += lines;
        if c.position - c.given >= LINES as u64 / 2 {
            self.give_back(c);
        }
    }

    /// Lines and value of the next packet.
    fn pop(&self, c: &mut Consumer) -> Option<(u64, u64)> {
        loop {
            let at = Self::at(c.position);
            // Acquire: pairs with the Release of the marker in `push`.
            let marker = self.first[at].load(Ordering::Acquire);
            if marker == 0 {
                // Nothing else to do: what was taken is given back.
                self.give_back(c);
                return None;
            }
            c.markers.push(c.position);
            if marker == PAD {
                self.advance(c, (LINES - at) as u64);
                continue;
            }
            let lines = marker & !READY;
            assert!(marker & READY != 0 && at + lines as usize <= LINES, "garbage {marker:#x}");
            if self.broken == Broken::HeadFirst {
                self.advance(c, lines);
            }
            let mut value = None;
            for line in at..at + lines as usize {
                // SAFETY: as in `push`.
                let v = self.rest[line].with(|r| unsafe { *r });
                assert!(value.replace(v).is_none_or(|w| w == v), "a packet of two halves");
            }
            if self.broken != Broken::HeadFirst {
                self.advance(c, lines);
            }
            return value.map(|v| (lines, v));
        }
    }
}

/// Packets of these lengths, in lines: they fill the ring, start on lines that were inside another packet, and
/// need a pad.
const PACKETS: [u64; 5] = [2, 1, 1, 1, 2];

fn model(broken: Broken) {
    crate::check(3, move || {
        let ring = crate::leak(Ring::new(broken));
        let producer = loom::thread::spawn(move || {
            let mut p = Producer { position: 0, seen_head: 0 };
            for (i, lines) in PACKETS.iter().enumerate() {
                while !ring.push(&mut p, *lines, i as u64 + 1) {
                    loom::thread::yield_now();
                }
            }
        });
        let mut c = Consumer::default();
        for (i, lines) in PACKETS.iter().enumerate() {
            let packet = loop {
                match ring.pop(&mut c) {
                    Some(packet) => break packet,
                    None => loom::thread::yield_now(),
                }
            };
            assert_eq!(packet, (*lines, i as u64 + 1), "packet {i}");
        }
        producer.join().unwrap();
        assert_eq!(ring.pop(&mut c), None);
    });
}

#[test]
fn ring_delivers_whole_packets_in_order() {
    model(Broken::No);
}

#[test]
#[should_panic]
fn ring_with_a_relaxed_marker_is_caught() {
    model(Broken::MarkerRelaxed);
}

#[test]
#[should_panic]
fn ring_with_a_relaxed_head_is_caught() {
    model(Broken::HeadRelaxed);
}

#[test]
#[should_panic]
fn ring_that_gives_lines_back_early_is_caught() {
    model(Broken::HeadFirst);
}

#[test]
#[should_panic]
fn ring_that_leaves_old_bytes_where_markers_go_is_caught() {
    model(Broken::FirstLineZeroed);
}
