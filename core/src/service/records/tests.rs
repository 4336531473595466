#![allow(unsafe_code)]
//! Records: how they are split into packets, malformed records, and answers.

use super::*;
use crate::am::Payload;
use crate::device::code::hint;
use crate::device::loopback::{Hub, Loopback};
use crate::device::{Capabilities, Device, Place};
use crate::job::Job;
use crate::settings::Settings;
use crate::signal::SignalArray;

const SUM: u32 = 1 | hint(8, Effect::Add);
const BYTE: u32 = 2 | hint(1, Effect::Other);
const READ: u32 = 3 | hint(1, Effect::Read);

/// Adds words, stores bytes, or reads bytes.
unsafe fn accumulate(code: u32, target: *mut u8, operand: *const u8, result: *mut u8, bytes: usize) -> bool {
    let size = code::element(code);
    if !matches!(code, SUM | BYTE | READ) || !bytes.is_multiple_of(size) || !target.addr().is_multiple_of(size) {
        return false;
    }
    // SAFETY: three ranges of that length by the contract of `AccumulateFn`; `result` may be null.
    unsafe {
        if !result.is_null() {
            copy::load(target, result, bytes);
        }
        match code {
            SUM => {
                for at in 0..bytes / 8 {
                    let word = target.cast::<u64>().add(at);
                    *word += operand.cast::<u64>().add(at).read_unaligned();
                }
            }
            BYTE => copy::store(operand, target, bytes),
            _ => {}
        }
    }
    true
}

/// Calls `f` on one rank, with records over eight words of zero.
fn over_words(f: impl Fn(&Job, &Rc<Records>, &SignalArray, &Cell<[u64; 8]>) -> Result<()> + Sync) {
    Job::threads(1, |job| with_records(job, |records, signals, words| f(job, records, signals, words))).unwrap();
}

fn with_records(job: &Job, f: impl Fn(&Rc<Records>, &SignalArray, &Cell<[u64; 8]>) -> Result<()>) -> Result<()> {
    let signals = SignalArray::new(&job.world()?, 0)?;
    let words = Cell::new([0u64; 8]);
    let state = Rc::new(Cell::new(ExposureState::Exposed));
    let memory = ServedMemory { base: words.as_ptr().cast(), len: 64, state };
    // SAFETY: the words and the signal array live to the end of this function, and no message arrives later.
    let records = Rc::new(unsafe { Records::new(memory, accumulate, signals.own_cells(), 0) });
    f(&records, &signals, &words)
}

fn update(code: u32, offset: usize, len: usize, operand: &[u8], old: *mut u8) -> Update {
    let change = Change::Accumulate { code, operand: operand.as_ptr() };
    Update { change, at: Place { region: 0, offset }, len, old }
}

fn swap([expected, desired]: [u64; 2], offset: usize, len: usize, old: *mut u8) -> Update {
    Update { change: Change::CompareSwap { expected, desired }, at: Place { region: 0, offset }, len, old }
}

#[test]
fn records_are_cut_at_elements_where_the_packet_ends() {
    let operand = vec![1; 2048];
    let mut batch = Batch::default();
    let mut rest = update(SUM, 0, 2048, &operand, std::ptr::null_mut());
    let mut packets = Vec::new();
    while rest.len > 0 {
        // SAFETY: the operand has that length.
        let taken = unsafe { append(&rest, &mut batch, 1021) };
        if taken == 0 {
            packets.push(batch.records.len());
            batch = Batch::default();
        }
        rest.skip(taken);
    }
    packets.push(batch.records.len());
    assert_eq!(packets, [RECORD + 1000, RECORD + 1000, RECORD + 48]);
}

#[test]
fn former_values_fit_into_the_answer_and_go_where_they_belong() {
    over_words(|_, records, _, _| {
        let (mut old, mut batch) = (vec![0u8; 1600], Batch::default());
        let read = update(READ, 0, 1600, &[], old.as_mut_ptr());
        // SAFETY: a read has no operand.
        assert_eq!(unsafe { append(&read, &mut batch, 1000) }, 1000);
        assert_eq!((batch.records.len(), batch.old_len), (RECORD, 1000));
        // SAFETY: as above.
        assert_eq!(unsafe { append(&read, &mut batch, 1000) }, 0, "the answer is full");
        let open = Rc::default();
        let number = records.expect(&open, batch.old);
        assert_eq!((number, open.get()), (1, 1));
        assert!(records.answered(3, 7, &[]).is_some() && open.get() == 1, "an abandoned request");
        assert!(records.answered(3, number, &[9; 1000]).is_some());
        assert_eq!((open.get(), &old[998..1002]), (0, &[9, 9, 0, 0][..]));
        for wrong in [7, 9] {
            let number = records.expect(&open, vec![(old.as_mut_ptr(), 8)]);
            assert!(records.answered(3, number, &vec![1; wrong]).is_none() && open.get() == 0 && old[0] == 9);
            assert_eq!(records.check().unwrap_err().blamed(), Some(3));
        }
        let number = records.expect(&open, vec![(old.as_mut_ptr(), 8)]);
        records.forget();
        assert!(records.answered(3, number, &[1; 8]).is_some() && open.get() == 0 && old[0] == 9);
        Ok(())
    });
}

fn record(code: u32, len: u32, offset: u64, operand: &[u8]) -> Vec<u8> {
    let mut bytes = Writer::new().u32(code).u32(len).u64(offset).done();
    bytes.extend(operand);
    bytes
}

#[test]
fn malformed_records_change_nothing_and_well_formed_ones_notify() {
    over_words(|_, records, signals, words| {
        let deliver = |header: &[u8], data: &[u8]| {
            drop(records.receive(&Message::whole(0, header, Payload::Bytes(data))));
        };
        let header = |cell| Writer::new().u8(RECORDS).u8(cell).u32(0).u32(0).u32(0).u64(5).done();
        let two = 2u64.to_le_bytes();
        let good = record(SUM, 8, 16, &two);
        for n in 1..good.len() {
            deliver(&header(0), &good[..n]);
        }
        for n in 1..header(0).len() {
            deliver(&header(0)[..n], &good);
        }
        for bad in [
            record(SUM, 8, 57, &two),
            record(SUM, 8, 20, &two),
            record(SUM, 8, u64::MAX - 3, &two),
            record(SUM, 4, 0, &two[..4]),
            record(99, 8, 0, &two),
            record(COMPARE_SWAP, 3 | FETCHES, 0, &[0; 16]),
            record(BYTE, u32::MAX >> 1, 0, &two),
            record(READ, 64 | FETCHES, 0, &[]).repeat(MAX_BYTES / 64 + 1),
        ] {
            deliver(&header(0), &bad);
        }
        deliver(&[77], &good);
        deliver(&header(200), &[]);
        for state in [ExposureState::Kept, ExposureState::Ended] {
            records.memory.state.set(state);
            deliver(&header(0), &good);
        }
        records.memory.state.set(ExposureState::Exposed);
        assert_eq!((words.get(), signals.get(0, 0)), ([0; 8], 0));
        let swap = record(COMPARE_SWAP, 8, 8, &[0, 7].map(u64::to_le_bytes).concat());
        deliver(&header(0), &[good, record(BYTE, 1, 3, &[1]), swap].concat());
        assert_eq!((words.get(), signals.get(0, 0)), ([1 << 24, 7, 2, 0, 0, 0, 0, 0], 5));
        Ok(())
    });
}

#[test]
fn a_rank_applies_accumulates_to_its_own_memory_at_once() {
    over_words(|job, records, _, words| {
        let (to, operand, mut old) = (RecordQueue::new(0, 0, 0, None), [7u64, 1], [9u64]);
        let sum = update(SUM, 0, 16, operand.map(u64::to_ne_bytes).as_flattened(), std::ptr::null_mut());
        let old_at = old.as_mut_ptr().cast();
        let swap = |offset| swap([1, 4], offset, 8, old_at);
        // SAFETY: ranges of the eight words; the buffers live during the calls.
        unsafe {
            assert!(records.add(job, &to, 0, &sum)? && records.add(job, &to, 0, &swap(8))?);
            assert_eq!(records.add(job, &to, 0, &swap(12)).unwrap_err().kind(), ErrorKind::Misaligned);
            assert!(!records.add(job, &to, 0, &Update { change: Change::Add(1), ..sum })?);
        }
        assert_eq!((words.get()[..3].to_vec(), old), (vec![7, 4, 0], [1]));
        assert!(to.is_empty() && !to.is_unanswered());
        Ok(())
    });
}

#[test]
fn lengths_that_are_no_whole_elements_are_refused_at_the_origin() {
    over_words(|job, records, _, _| {
        let (operand, mut old) = ([0u8; 16], [0u8; 16]);
        let accumulate = |code, len| update(code, 0, len, &operand, std::ptr::null_mut());
        let swap = |len, old| swap([0, 1], 0, len, old);
        // Updates of the rank's own memory are applied at once, and those of another rank are queued: both reject the
        // same calls.
        for peer in [0, 1] {
            let to = RecordQueue::new(peer, 0, 0, None);
            // SAFETY: the buffers live during the calls, and nothing is sent.
            let add = |update: Update| unsafe { records.add(job, &to, 0, &update) }.map_err(|e| e.kind());
            for len in [0, 3, 16] {
                assert_eq!(add(swap(len, old.as_mut_ptr())), Err(ErrorKind::Misaligned), "{len} bytes to rank {peer}");
            }
            for (code, len) in [(SUM, 12), (SUM, 7), (READ & 0xffff | hint(8, Effect::Read), 4)] {
                assert_eq!(add(accumulate(code, len)), Err(ErrorKind::Misaligned), "{code:#x} to rank {peer}");
            }
            assert_eq!(add(accumulate(COMPARE_SWAP, 8)), Ok(false), "the device refuses this code");
            assert!(to.is_empty());
            assert_eq!(add(swap(8, std::ptr::null_mut())), Ok(true));
        }
        Ok(())
    });
}

#[test]
fn an_element_longer_than_a_packet_is_refused() {
    let hub = Hub::new(1);
    let device = |me| {
        let capabilities = Capabilities { accumulate: true, ..Capabilities::minimal("loopback", 256) };
        Ok(Box::new(Loopback::with(&hub, me, capabilities)) as Box<dyn Device>)
    };
    let run = |job: &Job| {
        with_records(job, |records, _, _| {
            let (to, operand) = (RecordQueue::new(1, 0, 0, None), [0u8; 2 * 255]);
            let add = |size, old| {
                let update = update(hint(size, Effect::Other), 0, size * 2, &operand, old);
                // SAFETY: the buffers live during the calls, and nothing is sent.
                unsafe { records.add(job, &to, 0, &update) }.map_err(|e| e.kind())
            };
            assert_eq!(add(255, std::ptr::null_mut()), Err(ErrorKind::Limit));
            assert!(to.is_empty());
            Ok(())
        })
    };
    Job::threads_on(1, &Settings::from_lookup(|_| None).unwrap(), device, run).unwrap();
}
