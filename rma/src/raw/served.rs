#![allow(unsafe_code)]
//! The target's side of [`super::batch`]: a handler applies the accumulates of a packet, and then sets the notification
//! cell or answers.

use std::rc::Rc;

use farside_core::am::{self, Counters, Delivery, HandlerId, Message, Messenger, Sink, Then};
use farside_core::signal::OwnCells;
use farside_core::wire::{Reader, Writer};

use super::records::{ANSWER, Answers, FETCHES, MOST, NO_CELL, RECORD, RECORDS, SWAP, apply, operand_len};
use super::window_bytes::WindowBytes;

/// The parts of a window that the handler of its records and answers uses.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) bytes: WindowBytes,
    pub(super) cells: OwnCells,
    pub(super) answers: Rc<Answers>,
}

impl Served {
    /// Handles a message with a header. A malformed message is dropped.
    pub(super) fn receive(&self, m: &Message<'_>) -> Delivery {
        self.take(m).unwrap_or_else(|| {
            tracing::error!(
                "malformed accumulates of {} bytes from rank {} for a window, or outside of its epochs: dropped",
                m.len,
                m.source
            );
            Delivery::Done
        })
    }

    fn take(&self, m: &Message<'_>) -> Option<Delivery> {
        let (mut header, data) = (Reader::new(m.header), m.data?);
        match header.u8()? {
            ANSWER => self.answers.take(m.source, header.u32()?, data)?,
            RECORDS => {
                let (cell, reply) = (header.u8()?, u16::try_from(header.u32()?).ok()?);
                let (from, number, value) = (header.u32()?, header.u32()?, header.u64()?);
                let mut old = Vec::new();
                self.carry_out(data, &mut old)?;
                let served = self.clone();
                let notify = move || {
                    if cell != NO_CELL && served.bytes.is_alive() {
                        // SAFETY: the signal array exists as long as the window receives messages.
                        unsafe { served.cells.set(from as usize, usize::from(cell), value) };
                    }
                };
                if number == 0 {
                    notify();
                    return Some(Delivery::Done);
                }
                let source = m.source;
                // The notification lets this rank leave its closing call, so the answer is sent first.
                let then = move |job: &Messenger, _| {
                    let header = Writer::new().u8(ANSWER).u32(number).done();
                    // SAFETY: the former values go to the handler of the window at `source` that requested them.
                    unsafe { am::send_any(job, source, HandlerId(reply), &header, &old, Counters::default()) }?;
                    notify();
                    Ok(())
                };
                return Some(Delivery::Into(Sink::discard(), Then::later(then)));
            }
            _ => return None,
        }
        Some(Delivery::Done)
    }

    /// Applies records in their order, and appends requested former values to `old`; `None` at a malformed record.
    fn carry_out(&self, mut records: &[u8], old: &mut Vec<u8>) -> Option<()> {
        while !records.is_empty() {
            let (record, rest) = records.split_at_checked(RECORD)?;
            let mut reader = Reader::new(record);
            let (code, said, offset) = (reader.u32()?, reader.u32()?, usize::try_from(reader.u64()?).ok()?);
            let (len, fetches) = ((said & !FETCHES) as usize, said & FETCHES != 0);
            let (operand, rest) = rest.split_at_checked(operand_len(code, len))?;
            let to = self.bytes.range(offset, len)?;
            let at = old.len();
            if fetches {
                old.resize(Some(at + len).filter(|len| *len <= MOST)?, 0);
            } else if code == SWAP {
                return None;
            }
            let former = if fetches { old[at..].as_mut_ptr() } else { std::ptr::null_mut() };
            // SAFETY: `to` is inside the window's memory, which is registered while the window is alive; operand and
            // former values have `len` bytes.
            if !unsafe { apply(code, to, operand.as_ptr(), former, len) } {
                return None;
            }
            records = rest;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use farside_core::Job;

    use super::*;
    use crate::op::{ElementType, Op, code};
    use crate::raw::{Options, RawWindow};

    fn record(code: u32, len: u32, offset: u64, operand: &[u8]) -> Vec<u8> {
        let mut bytes = Writer::new().u32(code).u32(len).u64(offset).done();
        bytes.extend(operand);
        bytes
    }

    #[test]
    fn records_that_make_no_sense_change_nothing_and_those_that_do_notify() {
        let job = |job: &Job| {
            let window = RawWindow::allocate(&job.world()?, 64, Options::default())?;
            // SAFETY: this rank's own memory, which only its handlers change, inside `deliver`.
            let memory = || unsafe { *window.base().cast::<[u64; 8]>() };
            let deliver = |header: &[u8], records: &[u8]| {
                let to = HandlerId(window.serving.listener.id());
                // SAFETY: the window checks each message, and `memory` returns a copy, so no reference exists.
                unsafe { am::send_any(job, 0, to, header, records, Counters::default()) }?;
                job.progress().map(|_| ())
            };
            let header = |cell| Writer::new().u8(RECORDS).u8(cell).u32(0).u32(0).u32(0).u64(5).done();
            window.serving.listener.expose(true);
            let (sum, byte) = (code(Op::Sum, ElementType::U64), code(Op::Replace, ElementType::U8));
            let two = 2u64.to_le_bytes();
            let good = record(sum, 8, 16, &two);
            for n in 1..good.len() {
                deliver(&header(0), &good[..n])?;
            }
            for n in 1..header(0).len() {
                deliver(&header(0)[..n], &good)?;
            }
            let read = code(Op::NoOp, ElementType::U8);
            for bad in [
                record(sum, 8, 57, &two),
                record(sum, 8, 20, &two),
                record(sum, 8, u64::MAX - 3, &two),
                record(sum, 4, 0, &two[..4]),
                record(99, 8, 0, &two),
                record(SWAP, 8, 0, &[0; 16]),
                record(SWAP, 3 | FETCHES, 0, &[0; 16]),
                record(byte, u32::MAX >> 1, 0, &two),
                record(read, 64 | FETCHES, 0, &[]).repeat(MOST / 64 + 1),
            ] {
                deliver(&header(0), &bad)?;
            }
            deliver(&[77], &good)?;
            deliver(&header(200), &[])?;
            window.serving.listener.expose(false);
            deliver(&header(0), &good)?;
            window.serving.listener.expose(true);
            assert_eq!((memory(), window.signals.get(0, 0)), ([0; 8], 0));
            deliver(&header(0), &[good, record(byte, 1, 3, &[1])].concat())?;
            assert_eq!((memory(), window.signals.get(0, 0)), ([1 << 24, 0, 2, 0, 0, 0, 0, 0], 5));
            window.free()
        };
        Job::threads(1, job).unwrap();
    }
}
