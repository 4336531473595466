#![allow(unsafe_code)]
//! Accumulates as records of a packet ([`super::batch`]), and the answers with former values.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_core::am;
use farside_core::device::code::{self, Effect};
use farside_core::memory::copy;
use farside_core::{Error, ErrorKind, Job, Result};
use rustc_hash::FxHashMap;

use super::item::Item;

/// First byte of the header of a packet of records, and of an answer. Packed pieces have no header.
pub(super) const RECORDS: u8 = 1;
pub(super) const ANSWER: u8 = 2;
/// Bytes of the header of records.
pub(super) const HEADER: usize = 22;
/// Header value for a packet without a notification, instead of a cell.
pub(super) const NO_CELL: u8 = u8::MAX;
/// Bytes of a record before its operand: code, length, offset.
pub(super) const RECORD: usize = 16;
/// Flag in the length of a record that requests its former values.
pub(super) const FETCHES: u32 = 1 << 31;
/// Code of a compare-and-swap, whose operand is two words.
pub(super) const SWAP: u32 = u32::MAX;
/// Largest total size of the records, and of the former values, of a packet: the largest MTU of RDMA networks less the
/// headers.
pub(super) const MOST: usize = 4096 - am::MAX_HEADER;

/// Bytes of records that fit into a packet of this job.
pub(super) fn room(job: &Job) -> usize {
    am::room(job, HEADER).min(MOST)
}

/// Whether packets have room for records.
pub(super) fn has_room(job: &Job) -> bool {
    room(job) >= 8 * RECORD
}

/// The accumulates for one target that have not been sent.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) records: Vec<u8>,
    /// Destinations of the former values, in the order of the records.
    pub(super) old: Vec<(*mut u8, usize)>,
    old_len: usize,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

/// An accumulate, or the part of it that has not been appended yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accumulate {
    pub(super) code: u32,
    /// Bytes of an element.
    pub(super) size: usize,
    pub(super) operand: *const u8,
    pub(super) old: *mut u8,
    pub(super) len: usize,
    pub(super) offset: usize,
}

impl Accumulate {
    pub(super) fn of(item: &Item, words: &mut [u64; 2]) -> Option<Self> {
        match *item {
            Item::Accumulate { code, operand, old, len, offset } => {
                Some(Self { code, size: code::element(code), operand, old, len, offset })
            }
            Item::CompareSwap { len, expected, desired, old, offset } => {
                *words = [expected, desired];
                Some(Self { code: SWAP, size: len, operand: words.as_ptr().cast(), old, len, offset })
            }
            _ => None,
        }
    }

    /// Removes the first `len` bytes.
    pub(super) fn skip(&mut self, len: usize) {
        self.len -= len;
        self.offset += len;
        self.operand = self.operand.wrapping_add(len);
        if !self.old.is_null() {
            self.old = self.old.wrapping_add(len);
        }
    }

    /// Appends as many elements as fit; returns their number of bytes.
    ///
    /// # Safety
    /// The operand is valid for reads.
    pub(super) unsafe fn append(&self, batch: &mut Batch, most: usize) -> usize {
        let fetches = !self.old.is_null();
        let Some(free) = most.checked_sub(batch.records.len() + RECORD) else { return 0 };
        let mut len = self.len;
        if operand_len(self.code, len) > free {
            len = if self.code == SWAP { 0 } else { free };
        }
        if fetches {
            len = len.min(most - batch.old_len);
        }
        len -= len % self.size;
        if len == 0 {
            return 0;
        }
        let said = len as u32 | if fetches { FETCHES } else { 0 };
        batch.records.extend(self.code.to_le_bytes());
        batch.records.extend(said.to_le_bytes());
        batch.records.extend((self.offset as u64).to_le_bytes());
        let (at, operand_len) = (batch.records.len(), operand_len(self.code, len));
        batch.records.resize(at + operand_len, 0);
        // SAFETY: the operand is valid by the contract; `records` has room for it at `at`.
        unsafe { copy::load(self.operand, batch.records[at..].as_mut_ptr(), operand_len) };
        if fetches {
            batch.old.push((self.old, len));
            batch.old_len += len;
        }
        len
    }
}

/// Bytes of the operand of a record on `len` bytes.
pub(super) fn operand_len(code: u32, len: usize) -> usize {
    match code {
        SWAP => 16,
        _ if code::effect(code) == Effect::Read => 0,
        _ => len,
    }
}

/// Applies an accumulate by this rank's CPU. Returns `false`, and changes nothing, for a malformed one.
///
/// # Safety
/// The contract of [`crate::op::apply_bytes`]. The operand of [`SWAP`] has 16 bytes, and its `old` is not null.
pub(super) unsafe fn apply(code: u32, to: *mut u8, operand: *const u8, old: *mut u8, len: usize) -> bool {
    if code != SWAP {
        // SAFETY: the same contract.
        return unsafe { crate::op::apply_bytes(code, to, operand, old, len) };
    }
    if !matches!(len, 1 | 2 | 4 | 8) || !to.addr().is_multiple_of(len) || old.is_null() {
        return false;
    }
    // SAFETY: valid by the contract; the target is an aligned integer, and `old` has room for its bytes.
    unsafe {
        let [expected, desired] = operand.cast::<[u64; 2]>().read_unaligned();
        let former = copy::compare_swap(to, len, expected, desired).to_le_bytes();
        copy::store(former.as_ptr(), old, len);
    }
    true
}

/// The outstanding answers to accumulates of this rank.
#[derive(Debug, Default)]
pub(super) struct Answers {
    last: Cell<u32>,
    awaited: RefCell<FxHashMap<u32, Awaited>>,
    /// A rank whose answer did not match the request.
    wrong: Cell<Option<u32>>,
}

#[derive(Debug)]
struct Awaited {
    /// The number of outstanding answers of this target.
    open: Rc<Cell<usize>>,
    old: Vec<(*mut u8, usize)>,
}

impl Answers {
    /// Registers an outstanding answer, counted by `open`, and returns its number.
    pub(super) fn expect(&self, open: &Rc<Cell<usize>>, old: Vec<(*mut u8, usize)>) -> u32 {
        let mut awaited = self.awaited.borrow_mut();
        let mut number = self.last.get();
        loop {
            number = number.wrapping_add(1).max(1);
            if !awaited.contains_key(&number) {
                break;
            }
        }
        self.last.set(number);
        open.set(open.get() + 1);
        awaited.insert(number, Awaited { open: Rc::clone(open), old });
        number
    }

    /// Stores the former values of an answer of rank `source`; `None` if they do not match the request.
    pub(super) fn take(&self, source: u32, number: u32, mut values: &[u8]) -> Option<()> {
        // The answer to an abandoned request is ignored.
        let Some(awaited) = self.awaited.borrow_mut().remove(&number) else { return Some(()) };
        awaited.open.set(awaited.open.get() - 1);
        if awaited.old.iter().map(|(_, len)| len).sum::<usize>() != values.len() {
            self.wrong.set(Some(source));
            return None;
        }
        for (old, len) in awaited.old {
            let (now, rest) = values.split_at(len);
            // SAFETY: `old` is valid for writes until the epoch is closed, which waits for the answer, or abandoned,
            // which removes the request.
            unsafe { copy::store(now.as_ptr(), old, len) };
            values = rest;
        }
        Some(())
    }

    /// Fails if an answer was wrong.
    pub(super) fn check(&self) -> Result<()> {
        self.wrong.take().map_or(Ok(()), |source| {
            let e = Error::new(ErrorKind::Protocol, "accumulate").peer(source);
            Err(e.cause("the answer has former values that were not requested"))
        })
    }

    /// Abandons all requests: no former values are written any more.
    pub(super) fn forget(&self) {
        for (_, awaited) in self.awaited.borrow_mut().drain() {
            awaited.open.set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(len: usize, operand: &[u8], old: *mut u8) -> Accumulate {
        let code = crate::op::code(crate::Op::Sum, crate::op::ElementType::F64);
        Accumulate { code, size: 8, operand: operand.as_ptr(), old, len, offset: 0 }
    }

    #[test]
    fn records_are_cut_at_elements_where_the_packet_ends() {
        let operand = vec![1; 2048];
        let mut batch = Batch::default();
        let mut rest = sum(2048, &operand, std::ptr::null_mut());
        let mut packets = Vec::new();
        while rest.len > 0 {
            // SAFETY: the operand has that length.
            let taken = unsafe { rest.append(&mut batch, 1021) };
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
        let (mut old, mut batch) = (vec![0u8; 1600], Batch::default());
        let read = Accumulate {
            code: crate::op::code(crate::Op::NoOp, crate::op::ElementType::U64),
            ..sum(1600, &[], old.as_mut_ptr())
        };
        // SAFETY: a read has no operand.
        assert_eq!(unsafe { read.append(&mut batch, 1000) }, 1000);
        assert_eq!((batch.records.len(), batch.old_len), (RECORD, 1000));
        // SAFETY: as above.
        assert_eq!(unsafe { read.append(&mut batch, 1000) }, 0, "the answer is full");
        let (answers, open) = (Answers::default(), Rc::default());
        let number = answers.expect(&open, batch.old);
        assert_eq!((number, open.get()), (1, 1));
        assert!(answers.take(3, 7, &[]).is_some() && open.get() == 1, "one that was given up");
        assert!(answers.take(3, number, &[9; 1000]).is_some());
        assert_eq!((open.get(), &old[998..1002]), (0, &[9, 9, 0, 0][..]));
        for wrong in [7, 9] {
            let number = answers.expect(&open, vec![(old.as_mut_ptr(), 8)]);
            assert!(answers.take(3, number, &vec![1; wrong]).is_none() && open.get() == 0 && old[0] == 9);
            assert_eq!(answers.check().unwrap_err().blamed(), Some(3));
        }
        let number = answers.expect(&open, vec![(old.as_mut_ptr(), 8)]);
        answers.forget();
        assert!(answers.take(3, number, &[1; 8]).is_some() && open.get() == 0 && old[0] == 9);
    }
}
