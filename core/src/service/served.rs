#![allow(unsafe_code)]
//! Updates in packets to the target, whose processor makes them, for a device without atomics.
//!
//! | update | packets |
//! |---|---|
//! | an integer | a request and its answer |
//! | an accumulate | a request and its answer for each part that fits into a packet |
//!
//! The target makes updates while it is inside the runtime, in the order of posting. Its processor's atomics are
//! coherent with them. A request is checked before use, since a peer has written it.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use crate::device::code::{COMPARE_SWAP, operand_len};
use crate::device::target::{failure, status};
use crate::device::{Change, Operation, Registration, Update, imports};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::copy;
use crate::memory::keys::{AccumulateFn, Exposed, Exposures};
use crate::wire::{Reader, Writer};

/// First word of a request, and of an answer. Its first byte is not a kind of packet of any other layer.
const REQUEST: u64 = u64::from_le_bytes(*b"\x40updates");
const ANSWER: u64 = u64::from_le_bytes(*b"\x41updates");
/// Number of bytes of a request before its operand. An answer has fewer before its previous values.
const HEADER: usize = 42;
/// Parts of accumulates whose elements have no known size are multiples of this.
const UNKNOWN: usize = 64;

/// A peer's region.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServedRegion {
    peer: u32,
    len: usize,
    key: u64,
    alignment: usize,
    /// Whether the region has an accumulate function.
    accumulates: bool,
}

impl imports::ImportedRegion for ServedRegion {
    fn peer(&self) -> u32 {
        self.peer
    }

    fn len(&self) -> usize {
        self.len
    }

    fn alignment(&self) -> usize {
        self.alignment
    }
}

/// An update in progress.
#[derive(Debug)]
pub(super) struct ServedUpdate {
    update: Update,
    key: u64,
    /// Number of bytes that have been sent, and that have been answered.
    sent: usize,
    answered: usize,
    pub(super) error: Option<Error>,
}

impl ServedUpdate {
    /// Whether all parts have been sent.
    pub(super) fn is_sent(&self) -> bool {
        self.sent >= self.update.len
    }

    /// Whether all parts have been answered.
    pub(super) fn is_answered(&self) -> bool {
        self.answered >= self.update.len
    }

    /// Ends the use of the origin's memory: no further part is sent, and no previous value is stored.
    pub(super) fn cancel(&mut self) {
        (self.update.len, self.update.old) = (self.sent, std::ptr::null_mut());
    }

    /// Number of bytes of the part from byte `from` on, in packets with room for `room` bytes of operands.
    fn part(&self, from: usize, room: usize) -> usize {
        let rest = self.update.len - from;
        let Change::Accumulate { .. } = self.update.change else { return rest };
        let unit = if self.update.element() > 1 { self.update.element() } else { UNKNOWN };
        if rest <= room { rest } else { room - room % unit }
    }

    /// The request for the next part, and its length; `number` identifies the update in the answer.
    ///
    /// # Safety
    /// The operand is valid for reads.
    pub(super) unsafe fn request(&self, number: u64, room: usize) -> (Vec<u8>, usize) {
        let len = self.part(self.sent, room);
        let kind = match self.update.change {
            Change::Add(_) => 0,
            Change::CompareSwap { .. } => 1,
            Change::Accumulate { .. } => 2,
        };
        let mut part = self.update;
        part.skip(self.sent);
        let w = Writer::new().u64(REQUEST).u64(number).u64(self.key).u64(part.at.offset as u64);
        let mut packet = w.u32(part.code()).u32(len as u32).u8(kind).u8(u8::from(!part.old.is_null())).done();
        // SAFETY: by the contract.
        unsafe { part.append_operand(len, &mut packet) };
        (packet, len)
    }

    /// Records that a part of `len` bytes was sent.
    pub(super) fn has_sent(&mut self, len: usize) {
        self.sent += len;
    }

    /// Stores the answer to the next part; returns whether it fits the request.
    ///
    /// # Safety
    /// The destination of the previous values is valid for writes, or null.
    unsafe fn answer(&mut self, said: u8, old: &[u8], room: usize) -> bool {
        if self.answered >= self.sent {
            return false;
        }
        let len = self.part(self.answered, room);
        if said != 0 {
            let e = Error::new(failure(said.into()), self.update.name());
            let at = self.update.at.offset + self.answered;
            self.error.get_or_insert(e.cause(format!("the element at offset {at}")));
        } else if !self.update.old.is_null() {
            if old.len() != len {
                return false;
            }
            // SAFETY: by the contract; the part is inside the update.
            unsafe { copy::store(old.as_ptr(), self.update.old.add(self.answered), len) };
        }
        self.answered += len;
        true
    }
}

/// The answer to an update.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    /// The update that it answers.
    pub(super) number: u64,
    status: u8,
    old: &'a [u8],
}

impl Answer<'_> {
    /// Passes the answer to its update, an update to rank `peer`.
    ///
    /// # Safety
    /// The destination of the update's previous values is valid for writes, or null.
    pub(super) unsafe fn pass(&self, update: &mut ServedUpdate, room: usize) {
        // SAFETY: by the contract.
        if !unsafe { update.answer(self.status, self.old, room) } {
            let e = Error::new(ErrorKind::Protocol, update.update.name());
            update.error.get_or_insert(e.cause("the answer does not fit the request"));
            // No part that is not sent yet follows, and no further answer is awaited.
            update.cancel();
            update.answered = update.sent;
        }
    }
}

/// A packet of updates.
#[derive(Debug)]
pub(super) enum UpdatePacket<'a> {
    /// A request, after its first word.
    Request(&'a [u8]),
    Answer(Answer<'a>),
}

impl<'a> UpdatePacket<'a> {
    /// `None` for a packet of another layer. A malformed answer is one of an update that does not exist.
    pub(super) fn read(packet: &'a [u8]) -> Option<Self> {
        let mut r = Reader::new(packet);
        match r.u64()? {
            REQUEST => Some(Self::Request(r.rest())),
            ANSWER => {
                let (number, status) = r.u64().zip(r.u8()).unwrap_or_default();
                Some(Self::Answer(Answer { number, status, old: r.rest() }))
            }
            _ => None,
        }
    }
}

/// The regions of this rank and of its peers, as far as updates use them.
#[derive(Debug)]
pub(super) struct Served {
    exposures: Exposures,
    /// The key of each registration, by its handle.
    own: RefCell<FxHashMap<u64, u64>>,
    regions: RefCell<FxHashMap<u64, ServedRegion>>,
    /// Number of bytes of operands that fit into a packet.
    pub(super) room: usize,
}

impl Served {
    /// For packets of at most `max_packet` bytes.
    pub(super) fn new(max_packet: usize) -> Self {
        let room = max_packet.saturating_sub(HEADER);
        Self { exposures: Exposures::default(), own: RefCell::default(), regions: RefCell::default(), room }
    }

    /// Exposes a region to updates; its remote key is extended.
    ///
    /// # Safety
    /// The region stays valid until [`release`](Self::release) of it has returned.
    pub(super) unsafe fn register(&self, made: &mut Registration, accumulate: Option<AccumulateFn>) {
        // SAFETY: by the contract.
        let key = unsafe { self.exposures.insert(Exposed { base: made.base, len: made.len, accumulate }) };
        self.own.borrow_mut().insert(made.handle, key);
        made.key.push((made.base.addr() % 64) as u8);
        made.key.extend(key.to_le_bytes());
    }

    /// Ends the exposure of a region: afterwards no update accesses it.
    pub(super) fn release(&self, handle: u64) {
        let key = self.own.borrow_mut().remove(&handle);
        key.into_iter().for_each(|key| _ = self.exposures.remove(key));
    }

    /// The device's own part of a remote key, and the region that the key describes, except for its length.
    pub(super) fn read_key(peer: u32, key: &[u8], accumulates: bool) -> Option<(&[u8], ServedRegion)> {
        let (inner, own) = key.split_last_chunk::<8>()?;
        let (alignment, inner) = inner.split_last()?;
        let (key, alignment) = (u64::from_le_bytes(*own), usize::from(*alignment));
        Some((inner, ServedRegion { peer, len: 0, key, alignment, accumulates }))
    }

    /// Adds a peer's region of `len` bytes, which the device has imported under `handle`.
    pub(super) fn import(&self, handle: u64, len: usize, region: ServedRegion) {
        self.regions.borrow_mut().insert(handle, ServedRegion { len, ..region });
    }

    /// Forgets a peer's region.
    pub(super) fn forget(&self, handle: u64) {
        self.regions.borrow_mut().remove(&handle);
    }

    /// Checks an update of a region of `peer` before it is sent.
    ///
    /// # Errors
    /// Those of [`Device::post`](crate::device::Device::post).
    pub(super) fn begin(&self, peer: u32, update: &Update) -> Result<ServedUpdate> {
        let (name, regions) = (update.name(), self.regions.borrow());
        let region = imports::region(regions.get(&update.at.region), peer, update.at.region, name)?;
        imports::access(region, &Operation::Update(*update))?;
        let fail = |kind, cause: &str| Err(Error::new(kind, name).peer(peer).cause(cause.to_owned()));
        if !update.is_integer() {
            let element = update.element();
            if update.code() == COMPARE_SWAP {
                return fail(ErrorKind::Misaligned, "this accumulate code is reserved: it marks a compare-and-swap");
            }
            if !region.accumulates {
                return fail(ErrorKind::Unsupported, "the region was imported without an accumulate function");
            }
            if element.is_power_of_two() && !(region.alignment + update.at.offset).is_multiple_of(element.min(64)) {
                return Err(imports::misaligned(peer, update.at.offset, name));
            }
            if element > self.room {
                return fail(ErrorKind::Limit, "an element does not fit into a packet");
            }
        }
        Ok(ServedUpdate { update: *update, key: region.key, sent: 0, answered: 0, error: None })
    }

    /// Makes the update of a request; returns the answer, or `None` if the request is malformed.
    pub(super) fn serve(&self, request: &[u8]) -> Option<Vec<u8>> {
        let mut r = Reader::new(request);
        let (number, key, offset) = (r.u64()?, r.u64()?, r.u64()?);
        let (code, len, kind, fetches) = (r.u32()?, r.u32()? as usize, r.u8()?, r.u8()? != 0);
        let operand = r.rest();
        let change = match kind {
            0 => Change::Add(u64::from_ne_bytes(operand.try_into().ok()?)),
            1 if operand.len() == operand_len(COMPARE_SWAP, len) => Change::of(COMPARE_SWAP, operand),
            2 if code != COMPARE_SWAP && operand.len() == operand_len(code, len) => Change::of(code, operand),
            _ => return None,
        };
        let mut old = vec![0; if fetches && len <= self.room { len } else { 0 }];
        let former = if old.is_empty() { std::ptr::null_mut() } else { old.as_mut_ptr() };
        let made = match self.exposures.with(key, offset, len, |to, region| {
            // SAFETY: the range is inside an exposed region, which cannot be released meanwhile; the operand has the
            // length that belongs to the change, and there is room for the previous values.
            unsafe { change.apply(region.accumulate, to, former, len) }
        }) {
            None => Err(ErrorKind::BadKey),
            Some(None) => Err(ErrorKind::OutOfRange),
            Some(Some(made)) => made,
        };
        let mut answer = Writer::new().u64(ANSWER).u64(number).u8(status(made) as u8).done();
        answer.extend(if made.is_ok() { &old[..] } else { &[] });
        Some(answer)
    }
}
