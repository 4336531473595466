#![allow(unsafe_code)]
//! Packets through the reply line and the rings, under every interleaving of two ranks.

use super::*;
use crate::device::shm::layout::LINE;
use crate::interleavings::{Fault, Lines, caught, check};

const LAYOUT: Layout = Layout { ranks: 2, ring: 8 * LINE, bounce: LINE };
/// Number of words of a packet that is sent in a cell if its sender has one.
const LONG: usize = 7;

/// The ends of both ranks, with faults by the segment's rank and the offset of the word.
fn ends(fault: impl Fn(usize) -> Fault) -> [Channel<Lines>; 2] {
    let segments = [0, 1].map(|rank| {
        let source = 1 - rank;
        let ring = (0..LAYOUT.ring).step_by(LINE).map(|at| LAYOUT.ring(source) + at);
        let cell = (0..CELLS * LAYOUT.cell_len()).step_by(LINE).map(|at| LAYOUT.cell(source) + at);
        Lines::new(ring.chain([LAYOUT.ring_head(source), LAYOUT.reply_line(1)]).chain(cell), &fault)
    });
    [0, 1].map(|me| Channel::new(&LAYOUT, (me, &segments[me]), (1 - me, &segments[1 - me])))
}

fn send(channel: &Channel<Lines>, value: u64) {
    let bytes = value.to_le_bytes();
    // SAFETY: live bytes, one sender.
    while !unsafe { channel.push(&bytes, &[], bytes.len()) } {
        loom::thread::yield_now();
    }
}

fn send_long(channel: &Channel<Lines>, value: u64) {
    let bytes = value.to_le_bytes().repeat(LONG);
    // SAFETY: live bytes, one sender.
    while !unsafe { channel.push(&bytes, &[], bytes.len()) } {
        loom::thread::yield_now();
    }
}

/// A word of a packet that the model keeps: the first two of each half of a line.
fn word(packet: &[u8]) -> &[u8] {
    if packet.len() == 8 {
        return packet;
    }
    assert_eq!(packet.len(), 8 * LONG);
    &packet[CELL_HEAD..CELL_HEAD + 8]
}

fn receive(channel: &Channel<Lines>, value: u64) {
    let mut packet = [0; 2 * LINE];
    loop {
        match channel.pop(&mut packet, usize::MAX) {
            Popped::Packet(len) => {
                assert_eq!(word(&packet[..len]), value.to_le_bytes());
                return;
            }
            Popped::InCell(len, cell) => {
                let (memory, at) = channel.cell(len, cell);
                // SAFETY: the sender has written the packet, or the model fails.
                unsafe { memory.load_packet(at, &mut packet[CELL_HEAD..len]) };
                assert_eq!(word(&packet[..len]), value.to_le_bytes());
                channel.own_cell(cell);
                return;
            }
            Popped::Empty => loom::thread::yield_now(),
            other => panic!("{other:?}"),
        }
    }
}

/// The first packet uses the reply line, the others the ring, in which one slot is already occupied.
fn one_direction(fault: impl Fn(usize) -> Fault) {
    let [lower, higher] = ends(fault);
    lower.owns_reply_line.set(false);
    send(&lower, 0);
    receive(&higher, 0);
    lower.owns_reply_line.set(true);
    let sender = loom::thread::spawn(move || (1..4).for_each(|value| send(&lower, value)));
    (1..4).for_each(|value| receive(&higher, value));
    sender.join().unwrap();
}

/// Two packets in each direction, some of them in the reply line. With `keeps`, a sender wrongly keeps ownership of the
/// reply line.
fn two_directions(keeps: bool, fault: impl Fn(usize) -> Fault) {
    let [lower, higher] = ends(fault);
    let other = loom::thread::spawn(move || {
        for value in 10..12 {
            send(&higher, value);
            receive(&higher, value - 10);
        }
    });
    for value in 0..2 {
        send(&lower, value);
        lower.owns_reply_line.set(keeps);
    }
    (10..12).for_each(|value| receive(&lower, value));
    other.join().unwrap();
}

/// Packets in cells, in both directions, named in the ring if `in_ring`. With `keeps`, a sender wrongly keeps ownership
/// of its cell.
fn cells(in_ring: bool, keeps: bool, fault: impl Fn(usize) -> Fault) {
    let [lower, higher] = ends(fault);
    lower.owns_reply_line.set(!in_ring);
    let other = loom::thread::spawn(move || {
        for value in 10..12 {
            receive(&higher, value - 10);
            send_long(&higher, value);
        }
    });
    for value in 0..2 {
        send_long(&lower, value);
        if keeps {
            lower.cells.own.set((1 << CELLS) - 1);
        }
    }
    (10..12).for_each(|value| receive(&lower, value));
    other.join().unwrap();
}

#[test]
fn channel_model_delivers_packets_in_cells() {
    check(3, || cells(false, false, |_| Fault::No));
    check(3, || cells(true, false, |_| Fault::No));
}

#[test]
fn channel_model_notices_cells_that_are_not_ordered_or_that_their_sender_keeps() {
    let relaxed = |wrong: bool| if wrong { Fault::Relaxed } else { Fault::No };
    caught(2, move || cells(false, false, |at| relaxed(at == LAYOUT.reply_line(1))));
    caught(2, move || cells(true, false, |at| relaxed(at >= LAYOUT.ring(0))));
    caught(2, || cells(true, true, |_| Fault::No));
}

#[test]
fn channel_model_delivers_in_the_order_of_sending() {
    check(3, || one_direction(|_| Fault::No));
}

#[test]
fn channel_model_delivers_both_directions_in_the_order_of_sending() {
    check(3, || two_directions(false, |_| Fault::No));
}

#[test]
fn channel_model_notices_markers_that_are_not_ordered() {
    let relaxed = |wrong: bool| if wrong { Fault::Relaxed } else { Fault::No };
    caught(2, move || one_direction(|at| relaxed(at == LAYOUT.reply_line(1))));
    caught(2, move || one_direction(|at| relaxed(at >= LAYOUT.ring(0))));
    caught(2, move || two_directions(false, |at| relaxed(at == LAYOUT.reply_line(1))));
}

#[test]
fn channel_model_notices_a_reply_line_that_its_sender_keeps() {
    caught(2, || two_directions(true, |_| Fault::No));
}
