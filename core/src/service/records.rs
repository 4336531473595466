#![allow(unsafe_code)]
//! Accumulates that the target's CPU applies, if the device would need several steps for each. The target must enter
//! the runtime before the origin's epoch ends, so windows use this between fences, and from start to complete.
//!
//! Accumulates for one target are batched as records of offset and operand. A packet of records is sent when it is
//! full, and by the closing call. The target applies records in the order of issue, with the function of the region.
//! The last packet contains the notification of the closing call, or requests an answer, which means that all records
//! before it have been applied.
//!
//! | accumulates of one rank to one target, in one epoch | messages |
//! |---|---|
//! | to this rank itself, or to memory that it maps | none |
//! | the closing call notifies the target | one for each full packet; the last is the notification |
//! | the closing call does not notify it | one for each full packet, and one answer |
//! | with previous values | in addition an answer to each packet that requests previous values |

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::am::{self, Counters, Delivery, HandlerId, Message, Messenger, OnComplete, Sink};
use crate::device::code::{self, COMPARE_SWAP, Effect, operand_len};
use crate::device::{Change, Update};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::copy;
use crate::memory::keys::AccumulateFn;
use crate::signal::OwnCells;
use crate::wire::{Reader, Writer};

/// First byte of the header of a packet of records, and of an answer.
const RECORDS: u8 = 1;
const ANSWER: u8 = 2;
/// Number of bytes of the header of records.
const HEADER: usize = 22;
/// Header value for a packet without a notification, instead of a cell.
const NO_CELL: u8 = u8::MAX;
/// Number of bytes of a record before its operand: code, length, offset.
const RECORD: usize = 16;
/// Flag in the length of a record that requests its previous values.
const FETCHES: u32 = 1 << 31;
/// Maximum total size of the records, and of the previous values, of a packet: the largest MTU of RDMA networks less
/// the headers.
const MAX_BYTES: usize = 4096 - am::MAX_HEADER;

/// Number of bytes of records that fit into a packet.
fn room(job: &Messenger) -> usize {
    am::room(job, HEADER).min(MAX_BYTES)
}

/// Whether records fit into packets of the device.
#[must_use]
pub fn has_room(job: &Messenger) -> bool {
    room(job) >= 8 * RECORD
}

/// Appends as many elements as fit; returns their number of bytes.
///
/// # Safety
/// The operand is valid for reads.
unsafe fn append(update: &Update, batch: &mut Batch, most: usize) -> usize {
    let (code, fetches) = (update.code(), !update.old.is_null());
    let Some(free) = most.checked_sub(batch.records.len() + RECORD) else { return 0 };
    let mut len = update.len;
    if operand_len(code, len) > free {
        len = if code == COMPARE_SWAP { 0 } else { free };
    }
    if fetches {
        len = len.min(most - batch.old_len);
    }
    len -= len % update.element();
    if len == 0 {
        return 0;
    }
    let said = len as u32 | if fetches { FETCHES } else { 0 };
    batch.records.extend(code.to_le_bytes());
    batch.records.extend(said.to_le_bytes());
    batch.records.extend((update.at.offset as u64).to_le_bytes());
    // SAFETY: the operand is valid by the contract.
    unsafe { update.append_operand(len, &mut batch.records) };
    if fetches {
        batch.old.push((update.old, len));
        batch.old_len += len;
    }
    len
}

/// Records that have not been sent.
#[derive(Debug, Default)]
struct Batch {
    records: Vec<u8>,
    /// Destinations of the previous values, in the order of the records.
    old: Vec<(*mut u8, usize)>,
    old_len: usize,
}

/// This rank's accumulates to one target.
#[derive(Debug, Default)]
pub struct RecordQueue {
    peer: u32,
    handler: u16,
    alignment: usize,
    /// The address of the memory, if it is completely mapped.
    mapped: Option<NonNull<u8>>,
    batch: RefCell<Batch>,
    unanswered: Rc<Cell<usize>>,
}

impl RecordQueue {
    /// The queue to rank `peer`, whose `handler` passes messages to [`Records::receive`]; the address of the region
    /// there is `alignment` modulo 16; `mapped`: the region's address at this rank, if it is completely mapped.
    #[must_use]
    pub fn new(peer: u32, handler: u16, alignment: usize, mapped: Option<NonNull<u8>>) -> Self {
        Self { peer, handler, alignment, mapped, ..Self::default() }
    }

    /// Whether all records have been sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batch.borrow().records.is_empty()
    }

    /// Whether answers are outstanding.
    #[inline]
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        self.unanswered.get() > 0
    }

    /// Drops the records that have not been sent.
    pub fn clear(&self) {
        self.batch.take();
    }
}

/// This rank's own memory, for message handlers that change it.
#[derive(Clone, Debug)]
pub struct ServedMemory {
    /// First byte.
    pub base: *mut u8,
    /// Length in bytes.
    pub len: usize,
    /// Whether messages may change it.
    pub state: Rc<Cell<ExposureState>>,
}

/// Whether messages may change the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExposureState {
    /// No: this rank may hold references to the memory, and has not exposed it since.
    Kept,
    /// Yes: this rank has exposed the memory.
    Exposed,
    /// No: its registration has ended. The last packet of a message may arrive after that.
    Ended,
}

impl ServedMemory {
    /// The address of `len` bytes at `offset`, if they are inside and messages may change them.
    #[must_use]
    pub fn range(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let inside = offset <= self.len && len <= self.len - offset;
        (inside && self.state.get() == ExposureState::Exposed).then(|| self.base.wrapping_add(offset))
    }
}

/// The accumulates of one rank to the memory of the ranks of a team, and theirs to its memory.
#[derive(Debug)]
pub struct Records {
    memory: ServedMemory,
    accumulate: AccumulateFn,
    /// The signal array with the cells of notifications, and this rank in its team.
    cells: OwnCells,
    me: u32,
    last: Cell<u32>,
    awaited: RefCell<FxHashMap<u32, Awaited>>,
    /// A rank whose answer did not match the request.
    wrong: Cell<Option<u32>>,
}

/// An outstanding answer.
#[derive(Debug)]
struct Awaited {
    /// The number of outstanding answers of this target.
    open: Rc<Cell<usize>>,
    old: Vec<(*mut u8, usize)>,
}

impl Records {
    /// The accumulates of rank `me` of a team, whose memory is `memory`, applied by `accumulate`.
    ///
    /// # Safety
    /// The memory is valid, and the signal array of `cells` exists, until the memory's state is
    /// [`Ended`](ExposureState::Ended). `accumulate` fulfils the contract of [`AccumulateFn`] for every code, since codes
    /// come from peers.
    #[must_use]
    pub unsafe fn new(memory: ServedMemory, accumulate: AccumulateFn, cells: OwnCells, me: u32) -> Self {
        let (last, awaited, wrong) = (Cell::new(0), RefCell::default(), Cell::new(None));
        Self { memory, accumulate, cells, me, last, awaited, wrong }
    }

    /// Applies an accumulate or a compare-and-swap to this rank's own memory or to mapped memory, or batches it.
    /// Returns `false`, and does nothing, for a fetch-and-add of a word, and for an accumulate with the code of
    /// compare-and-swaps, which every device rejects. Batched records are complete at the target when
    /// [`send`](Self::send) has sent them and no answer is outstanding, or with the notification that their packet
    /// contains. Answers are sent to the handler `reply`.
    ///
    /// # Safety
    /// The target has the range, mapped as its queue states, and exposes it until the update is complete; the operand
    /// is valid during the call, and `old` until then or until [`forget`](Self::forget).
    ///
    /// # Errors
    /// `Misaligned` for a misaligned or malformed operation; `Limit` for elements that do not fit into a packet; those
    /// of [`am::send`].
    pub unsafe fn add(&self, job: &Messenger, to: &RecordQueue, reply: u16, whole: &Update) -> Result<bool> {
        if matches!(whole.change, Change::Add(_)) || whole.code() == COMPARE_SWAP && !whole.is_integer() {
            return Ok(false);
        }
        let mut rest = *whole;
        let refused = |kind| {
            let e = Error::new(kind, whole.name()).rank(job.rank()).peer(to.peer);
            e.cause(format!(
                "an accumulate of {} bytes is not a whole number of elements of {} bytes, at offset {}",
                whole.len,
                whole.element(),
                whole.at.offset
            ))
        };
        let size = rest.element();
        if !rest.is_whole() || !(to.alignment + rest.at.offset).is_multiple_of(size) {
            return Err(refused(ErrorKind::Misaligned));
        }
        let own = (to.peer == job.rank_number()).then_some(self.memory.base);
        if let Some(base) = own.or(to.mapped.map(NonNull::as_ptr)) {
            let at = base.wrapping_add(rest.at.offset);
            // SAFETY: the range is inside the memory, and the buffers are valid, by the contract.
            let applied = unsafe { rest.apply(Some(self.accumulate), at) };
            return applied.map(|()| true).map_err(refused);
        }
        if rest.old.is_null() && code::effect(rest.code()) == Effect::Read {
            return Ok(true);
        }
        let most = room(job);
        while rest.len > 0 {
            // SAFETY: the operand is valid by the contract.
            let taken = unsafe { append(&rest, &mut to.batch.borrow_mut(), most) };
            if taken == 0 && to.is_empty() {
                return Err(refused(ErrorKind::Limit));
            } else if taken == 0 {
                self.send(job, to, reply, None, false)?;
            }
            rest.skip(taken);
        }
        Ok(true)
    }

    /// Sends the batched records, with `notify`, the cell and value of a notification, if given. `answered` requests an
    /// answer even if no previous values are requested. Sends nothing if no records are batched.
    ///
    /// # Errors
    /// Those of [`am::send`].
    pub fn send(
        &self,
        job: &Messenger,
        to: &RecordQueue,
        reply: u16,
        notify: Option<(usize, u64)>,
        answered: bool,
    ) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        // `send_any` may wait, and another thread may issue operations meanwhile, so the batch is taken first.
        let Batch { mut records, old, .. } = to.batch.take();
        let number = if answered || !old.is_empty() { self.expect(&to.unanswered, old) } else { 0 };
        let (cell, value) = notify.map_or((NO_CELL, 0), |(cell, value)| (cell as u8, value));
        let header = Writer::new().u8(RECORDS).u8(cell).u32(u32::from(reply)).u32(self.me).u32(number).u64(value);
        let header = header.done();
        debug_assert_eq!(header.len(), HEADER);
        // SAFETY: the records are for the peer's memory, in the format of its handler, while the memory is exposed.
        unsafe { am::send_any(job, to.peer, HandlerId(to.handler), &header, &records, Counters::default()) }?;
        let mut batch = to.batch.borrow_mut();
        if batch.records.is_empty() {
            records.clear();
            batch.records = records;
        }
        Ok(())
    }

    /// Registers an outstanding answer, counted by `open`, and returns its number.
    fn expect(&self, open: &Rc<Cell<usize>>, old: Vec<(*mut u8, usize)>) -> u32 {
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

    /// Fails if an answer was wrong.
    ///
    /// # Errors
    /// `Protocol`.
    pub fn check(&self) -> Result<()> {
        self.wrong.take().map_or(Ok(()), |source| {
            let e = Error::new(ErrorKind::Protocol, "accumulate").peer(source);
            Err(e.cause("the answer contains previous values that were not requested"))
        })
    }

    /// Abandons all requests: no previous values are written afterwards.
    pub fn forget(&self) {
        for (_, awaited) in self.awaited.borrow_mut().drain() {
            awaited.open.set(0);
        }
    }

    /// Handles a packet of records or an answer. A malformed message is dropped.
    pub fn receive(self: &Rc<Self>, m: &Message<'_>) -> Delivery {
        self.take(m).unwrap_or_else(|| {
            tracing::error!(
                "dropped {} bytes of accumulates from rank {}: malformed, or for memory that is not exposed",
                m.len,
                m.source
            );
            Delivery::Done
        })
    }

    fn take(self: &Rc<Self>, m: &Message<'_>) -> Option<Delivery> {
        let (mut header, data) = (Reader::new(m.header), m.data()?);
        match header.u8()? {
            ANSWER => self.answered(m.source, header.u32()?, data)?,
            RECORDS => {
                let (cell, reply) = (header.u8()?, u16::try_from(header.u32()?).ok()?);
                let (from, number, value) = (header.u32()?, header.u32()?, header.u64()?);
                let mut old = Vec::new();
                self.apply(data, &mut old)?;
                let served = Rc::clone(self);
                let notify = move || {
                    if cell != NO_CELL && served.memory.state.get() != ExposureState::Ended {
                        // SAFETY: the signal array exists, by the contract of `new`.
                        unsafe { served.cells.set(from as usize, usize::from(cell), value) };
                    }
                };
                if number == 0 {
                    notify();
                    return Some(Delivery::Done);
                }
                let source = m.source;
                // The notification lets this rank return from its closing call, so the answer is sent first.
                let then = move |job: &Messenger, _| {
                    let header = Writer::new().u8(ANSWER).u32(number).done();
                    // SAFETY: the previous values go to the handler at `source` that requested them.
                    unsafe { am::send_any(job, source, HandlerId(reply), &header, &old, Counters::default()) }?;
                    notify();
                    Ok(())
                };
                return Some(Delivery::Into(Sink::discard(), OnComplete::deferred(then)));
            }
            _ => return None,
        }
        Some(Delivery::Done)
    }

    /// Applies records in their order, and appends requested previous values to `old`; `None` at a malformed record.
    fn apply(&self, mut records: &[u8], old: &mut Vec<u8>) -> Option<()> {
        while !records.is_empty() {
            let (record, rest) = records.split_at_checked(RECORD)?;
            let mut reader = Reader::new(record);
            let (code, said, offset) = (reader.u32()?, reader.u32()?, usize::try_from(reader.u64()?).ok()?);
            let (len, fetches) = ((said & !FETCHES) as usize, said & FETCHES != 0);
            let (operand, rest) = rest.split_at_checked(operand_len(code, len))?;
            let to = self.memory.range(offset, len)?;
            let at = old.len();
            if fetches {
                old.resize(Some(at + len).filter(|len| *len <= MAX_BYTES)?, 0);
            }
            let former = if fetches { old[at..].as_mut_ptr() } else { std::ptr::null_mut() };
            // SAFETY: `to` is inside the memory, which is valid while it is exposed; operand and previous values have
            // their lengths.
            unsafe { Change::of(code, operand).apply(Some(self.accumulate), to, former, len) }.ok()?;
            records = rest;
        }
        Some(())
    }

    /// Stores the previous values of an answer of rank `source`; `None` if they do not match the request.
    fn answered(&self, source: u32, number: u32, mut values: &[u8]) -> Option<()> {
        // The answer to an abandoned request is ignored.
        let Some(awaited) = self.awaited.borrow_mut().remove(&number) else { return Some(()) };
        awaited.open.set(awaited.open.get() - 1);
        if awaited.old.iter().map(|(_, len)| len).sum::<usize>() != values.len() {
            self.wrong.set(Some(source));
            return None;
        }
        for (old, len) in awaited.old {
            let (now, rest) = values.split_at(len);
            // SAFETY: `old` is valid for writes until the accumulate is complete, which waits for the answer, or
            // abandoned, which removes the request.
            unsafe { copy::store(now.as_ptr(), old, len) };
            values = rest;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
