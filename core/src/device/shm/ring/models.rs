#![allow(unsafe_code)]
//! The ring under every interleaving of its producer and its consumer.

use super::*;
use crate::interleavings::{Fault, Lines, caught, check};

const SIZE: usize = 8 * SLOT;

/// The words of packet `number`; every word looks like a marker.
fn word(number: usize) -> u64 {
    READY | (number as u64) << 8 | 8
}

/// The ring holds three packets, two of which were consumed. The producer adds packets that need a pad and the slots of
/// the third. Packets of one slot are posted as short packets.
fn packets(window: usize, fault: impl Fn(usize) -> Fault) {
    const SLOTS: [usize; 7] = [2, 2, 2, 1, 2, 2, 2];
    // Lengths of packets of one slot and of two.
    const LEN: [usize; 2] = [SLOT - MARKER, 2 * SLOT - LONG_START];
    let memory = Lines::new((0..=SIZE).step_by(LINE), fault);
    let [producer, consumer] = [(); 2].map(|()| Ring { window, ..Ring::new(memory.clone(), LINE, SIZE, 0) });
    let push = move |number: usize| {
        let packet = word(number).to_le_bytes().repeat(LEN[SLOTS[number] - 1] / 8);
        let short = || producer.push_short(&ShortPacket::new([word(number); 6], packet.len()), number as u64);
        // SAFETY: live bytes, one producer.
        let other = || unsafe { producer.push(&packet, &[], packet.len(), number as u64) };
        while !(if SLOTS[number] == 1 { short() } else { other() }) {
            loom::thread::yield_now();
        }
    };
    let pop = |number: usize| {
        let mut packet = vec![0; 2 * SLOT];
        loop {
            match consumer.pop(&mut packet, number as u64, usize::MAX) {
                Popped::Packet(len) => {
                    assert_eq!(len, LEN[SLOTS[number] - 1]);
                    // The model keeps the first two words of each slot.
                    let kept = [0, 24, 32].into_iter().filter(|at| *at + 8 <= len && (SLOTS[number] > 1 || *at == 0));
                    kept.for_each(|at| assert_eq!(packet[at..at + 8], word(number).to_le_bytes()));
                    break;
                }
                Popped::Empty => loom::thread::yield_now(),
                other => panic!("{other:?}"),
            }
        }
    };
    (0..3).for_each(&push);
    (0..2).for_each(pop);
    let producer = loom::thread::spawn(move || (3..7).for_each(push));
    (2..7).for_each(pop);
    producer.join().unwrap();
    assert_eq!(consumer.pop(&mut [0; 2 * SLOT], 7, usize::MAX), Popped::Empty);
}

#[test]
fn ring_model_delivers_whole_packets_in_order() {
    check(3, || packets(SIZE, |_| Fault::No));
    check(2, || packets(SIZE / 2, |_| Fault::No));
}

/// Runs the model with `fault` in the head, or in the words of the slots.
fn fault_is_caught(in_head: bool, fault: Fault) {
    for window in [SIZE, SIZE / 2] {
        caught(2, move || packets(window, |at| if (at == 0) == in_head { fault } else { Fault::No }));
    }
}

#[test]
fn ring_model_notices_markers_and_heads_that_are_not_ordered() {
    fault_is_caught(false, Fault::Relaxed);
    fault_is_caught(true, Fault::Relaxed);
}

#[test]
fn ring_model_notices_slots_released_too_early_or_not_zeroed() {
    fault_is_caught(true, Fault::Stores(|head| Some(head + 2 * SLOT as u64)));
    fault_is_caught(false, Fault::Stores(|word| (word != 0).then_some(word)));
}
