#![allow(unsafe_code)]
//! The ring under every interleaving of its producer and its consumer.

use super::*;
use crate::model::{Fault, Lines, caught, check};

const SIZE: usize = 8 * LINE;

/// Bytes of packet `number`, which takes `lines` lines; every word could pass for a marker.
fn bytes(number: u64, lines: usize) -> Vec<u8> {
    (READY | number << 8 | 8).to_le_bytes().repeat(lines * LINE / 8 - 1)
}

/// The ring holds three packets, of which two were taken. The producer adds packets that need a pad and lines of the
/// third.
fn packets(fault: impl Fn(usize) -> Fault) {
    const LINES: [usize; 7] = [2, 2, 2, 1, 2, 2, 1];
    let memory = Lines::new((0..=SIZE).step_by(LINE), fault);
    let [producer, consumer] = [(); 2].map(|()| Ring::new(memory.clone(), LINE, SIZE, 0));
    let push = move |number: usize| {
        let packet = bytes(number as u64, LINES[number]);
        // SAFETY: live bytes, one producer.
        while !unsafe { producer.push(&packet, &[], packet.len(), number as u64) } {
            loom::thread::yield_now();
        }
    };
    let pop = |number: usize| {
        let mut packet = vec![0; 2 * LINE];
        loop {
            match consumer.pop(&mut packet, number as u64, usize::MAX) {
                Popped::Packet(len) => {
                    let expected = bytes(number as u64, LINES[number]);
                    assert_eq!(len, expected.len());
                    // The model keeps the first two words of each line.
                    assert!([0, 56].iter().filter(|at| **at < len).all(|at| packet[*at..at + 8] == expected[..8]));
                    break;
                }
                Popped::Empty => {
                    consumer.give_back();
                    loom::thread::yield_now();
                }
                other => panic!("{other:?}"),
            }
        }
    };
    (0..3).for_each(&push);
    (0..2).for_each(pop);
    let producer = loom::thread::spawn(move || (3..7).for_each(push));
    (2..7).for_each(pop);
    producer.join().unwrap();
    assert_eq!(consumer.pop(&mut [0; 2 * LINE], 7, usize::MAX), Popped::Empty);
}

#[test]
fn ring_model_delivers_whole_packets_in_order() {
    check(3, || packets(|_| Fault::No));
}

/// Runs the model with `fault` in the head, or in the words of the lines.
fn fault_is_caught(in_head: bool, fault: Fault) {
    caught(2, move || packets(|at| if (at == 0) == in_head { fault } else { Fault::No }));
}

#[test]
fn ring_model_notices_markers_and_heads_that_are_not_ordered() {
    fault_is_caught(false, Fault::Relaxed);
    fault_is_caught(true, Fault::Relaxed);
}

#[test]
fn ring_model_notices_lines_given_back_too_early_or_not_zeroed() {
    fault_is_caught(true, Fault::Stores(|head| Some(head + 2 * LINE as u64)));
    fault_is_caught(false, Fault::Stores(|word| (word != 0).then_some(word)));
}
