#![allow(unsafe_code)]
//! A wrapper around a device that injects a fault into one operation, so that a test can show that it detects the
//! fault.
//!
//! The wrapper hides that memory is mapped, so that every operation passes through [`Device::post`].

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::time::Instant;

use rustc_hash::{FxHashMap, FxHashSet};

use super::loopback::MAX_PACKETS;
use super::{
    Block, Capabilities, Change, Device, Event, Leave, Operation, Place, Posted, Region, Registration, RemoteRegion,
    Sleep, Transfer, Update, Waker, WorkRequest, forward,
};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::copy;
use crate::memory::keys::AccumulateFn;
use crate::stats::{Kind, Stats};

/// The fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// No fault: the wrapper only hides the mapping.
    None,
    /// An operation of this class is reported as complete but not executed.
    Drop(Class),
    /// A write is repeated after this rank's next write to the same address, as if it were delivered twice, the second
    /// time late.
    DoublePut,
    /// A notification is set before the data that it announces. The data follows with this rank's next operation on
    /// data.
    EarlyNotify,
    /// From this operation on, this rank's processor executes the 8-byte atomics on the rank's own memory, instead of
    /// the device. If atomics of the device are not coherent with the processor's, updates are lost.
    OwnAtomic,
    /// From this packet on, a peer's credits for packets are not returned: once they are used up, no packet is posted
    /// to it.
    KeepCredit,
    /// A message arrives with a wrong tag.
    WrongTag,
}

/// A class of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Put,
    Get,
    Atomic,
    Message,
    Signal,
    /// Operations without data of the program: writes and reads of signal arrays, empty writes, and atomics that only
    /// read.
    Other,
}

/// The time at which a late write is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// After the next write to the same address.
    Overwritten,
    /// Before the next operation, unless that is a notification to the same peer, into which the fault is to be
    /// injected.
    Next,
    /// Before the next operation on data.
    Data,
}

/// A late write: its bytes, its peer and its remote address.
struct Late {
    bytes: Vec<u8>,
    peer: u32,
    to: Place,
    due: Due,
}

/// The offset of the tag in a packet that begins a message with a tag.
pub(crate) type TagAt = fn(packet: &[u8]) -> Option<usize>;

/// A region of this rank.
#[derive(Clone, Debug)]
struct OwnRegion {
    key: Vec<u8>,
    base: *mut u8,
    len: usize,
}

/// Work request id of late writes; their completions are ignored.
const LATE_WRITE_ID: u64 = u64::MAX;

struct Faulty {
    inner: Box<dyn Device>,
    capabilities: Capabilities,
    damage: Damage,
    /// Counts down to the operation into which the fault is injected.
    until: Cell<u64>,
    late: RefCell<Vec<Late>>,
    /// Buffers that the device may still read.
    kept: RefCell<Vec<Vec<u8>>>,
    /// Imported regions without accumulates, which are signal arrays: writes to them are synchronization, not puts.
    signal_arrays: RefCell<FxHashSet<u64>>,
    me: u32,
    tag_at: TagAt,
    /// Regions of this rank by their handle; the handles by key, and by the handle of this rank's import.
    own: RefCell<FxHashMap<u64, OwnRegion>>,
    own_keys: RefCell<FxHashMap<Vec<u8>, u64>>,
    own_imports: RefCell<FxHashMap<u64, u64>>,
    /// The peer whose credits are not returned, and the number of credits left.
    room: Cell<Option<(u32, usize)>>,
}

/// Wraps the `device` of rank `me` according to the setting: `none`, `unmapped`, or a fault and the number of the
/// operation.
///
/// # Errors
/// `Setting`.
pub(crate) fn wrap(device: Box<dyn Device>, setting: &str, me: u32, tag_at: TagAt) -> Result<Box<dyn Device>> {
    if setting == "none" {
        return Ok(device);
    }
    let bad =
        || Error::new(ErrorKind::Setting, "read FARSIDE_TEST_FAULT").cause(format!("{setting:?} is not a known fault"));
    let (damage, number) =
        if setting == "unmapped" { ("unmapped", "0") } else { setting.split_once(':').ok_or_else(bad)? };
    let damage = match damage {
        "unmapped" => Damage::None,
        "drop-put" => Damage::Drop(Class::Put),
        "drop-get" => Damage::Drop(Class::Get),
        "drop-message" => Damage::Drop(Class::Message),
        "drop-signal" => Damage::Drop(Class::Signal),
        "lose-atomic" => Damage::Drop(Class::Atomic),
        "double-put" => Damage::DoublePut,
        "early-notify" => Damage::EarlyNotify,
        "own-atomic" => Damage::OwnAtomic,
        "keep-credit" => Damage::KeepCredit,
        "wrong-tag" => Damage::WrongTag,
        _ => return Err(bad()),
    };
    let until = Cell::new(number.parse().map_err(|_| bad())?);
    // The wrapper must see all puts, also those to the rank's own region.
    let capabilities = Capabilities { own_by_copy: false, ..device.capabilities().clone() };
    let (late, kept, signal_arrays, own, own_keys, own_imports, room) = Default::default();
    Ok(Box::new(Faulty {
        inner: device,
        capabilities,
        damage,
        until,
        late,
        kept,
        signal_arrays,
        me,
        tag_at,
        own,
        own_keys,
        own_imports,
        room,
    }))
}

impl Faulty {
    /// Counts an operation of the faulty class; returns whether the fault is due.
    fn count_fault(&self) -> bool {
        let n = self.until.get();
        self.until.set(n.saturating_sub(1));
        if n == 1 {
            self.inner.own_stats().add(Kind::Damage, 0);
            tracing::info!("fault injected: {:?}", self.damage);
        }
        n == 1
    }

    fn class(&self, operation: &Operation<'_>) -> Class {
        let of_data = |is_put| if is_put { Class::Put } else { Class::Get };
        match operation {
            Operation::Transfer(transfer) => match self.signal_arrays.borrow().contains(&transfer.region) {
                false if transfer.write && transfer.is_empty() => Class::Other,
                false => of_data(transfer.write),
                true => Class::Other,
            },
            Operation::List { send, .. } => of_data(*send),
            // An atomic that adds nothing reads the word.
            Operation::Update(Update { change: Change::Add(0), .. }) => Class::Other,
            Operation::Update(_) => Class::Atomic,
            Operation::Signal { .. } | Operation::Barrier(_) => Class::Signal,
            Operation::Packet(_) => Class::Message,
        }
    }

    /// Stores the bytes of a write until they are due; false if the request is not a write.
    fn keep(&self, request: &WorkRequest<'_>, due: Due) -> bool {
        let Operation::Transfer(Transfer { write: true, local, region, ranges }) = request.operation else {
            return false;
        };
        let mut bytes = gathered(&[], local);
        for range in ranges.iter() {
            let (to, rest) = (Place { region, offset: range.offset }, bytes.split_off(range.len.min(bytes.len())));
            self.late.borrow_mut().push(Late { bytes, peer: request.peer, to, due });
            bytes = rest;
        }
        true
    }

    /// Posts the late writes that are due.
    fn make_late(&self, is_due: impl Fn(&Late) -> bool) -> Result<()> {
        if self.late.borrow().is_empty() {
            return Ok(());
        }
        let due: Vec<Late> = self.late.borrow_mut().extract_if(.., |late| is_due(late)).collect();
        for l in due {
            let from = [Block::of(l.bytes.as_ptr(), l.bytes.len())];
            let operation = Operation::write(&from, l.to);
            // SAFETY: the bytes live until the device is dropped.
            unsafe { self.inner.post(&WorkRequest { peer: l.peer, operation, notify: None, id: LATE_WRITE_ID }) }?;
            self.kept.borrow_mut().push(l.bytes);
        }
        Ok(())
    }

    /// Posts a request. If it writes to the address of a late write, the late bytes replace its own there.
    fn overwrite(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        let late = &self.late;
        let written = match request.operation {
            Operation::Transfer(transfer) if transfer.write => Some(transfer),
            _ => None,
        };
        let overlapped = written.and_then(|transfer| {
            let (mut bytes, mut begin, mut overlaps) = (gathered(&[], transfer.local), 0, false);
            for range in transfer.ranges.iter() {
                for late in &*late.borrow() {
                    let (first, last) = (late.to.offset.max(range.offset), late.to.offset + late.bytes.len());
                    let end = last.min(range.offset + range.len);
                    if (late.peer, late.to.region) == (request.peer, transfer.region) && first < end {
                        let (at, from) = (begin + first - range.offset, first - late.to.offset);
                        bytes[at..at + end - first].copy_from_slice(&late.bytes[from..from + end - first]);
                        overlaps = true;
                    }
                }
                begin += range.len;
            }
            overlaps.then_some((transfer, bytes))
        });
        let Some((transfer, bytes)) = overlapped else {
            // SAFETY: the caller is `post`, whose contract covers this request.
            return unsafe { self.inner.post(request) };
        };
        late.borrow_mut().clear();
        let local = [Block::of(bytes.as_ptr(), bytes.len())];
        let operation = Operation::Transfer(Transfer { local: &local, ..transfer });
        // SAFETY: the bytes live until the device is dropped; the rest holds by the contract of `post`.
        let posted = unsafe { self.inner.post(&WorkRequest { operation, ..*request }) };
        self.kept.borrow_mut().push(bytes);
        posted
    }

    /// Executes an atomic on this rank's own memory with this processor; returns whether the operation was one.
    fn do_own_atomic(&self, operation: &Operation<'_>) -> bool {
        let own = operation.region().and_then(|region| self.own_imports.borrow().get(&region).copied());
        let Some(own) = own.and_then(|own| self.own.borrow().get(&own).cloned()) else { return false };
        let at = |place: Place, len: usize| {
            let fits = place.offset.checked_add(len).is_some_and(|end| end <= own.len);
            fits.then(|| own.base.wrapping_add(place.offset))
        };
        let Operation::Update(update) = *operation else { return false };
        // SAFETY: a part of a region of this rank; the rest holds by the contract of `post`.
        at(update.at, update.len).is_some_and(|to| unsafe { update.apply(None, to) }.is_ok())
    }

    /// Posts a message with a wrong tag; `None` if the message has no tag, or the fault is not due.
    fn post_with_wrong_tag(&self, request: &WorkRequest<'_>) -> Option<Result<Posted>> {
        let Operation::Packet(packet) = request.operation else { return None };
        let mut bytes = packet.with_parts(gathered);
        let tag = (self.tag_at)(&bytes)?;
        if !self.count_fault() {
            return None;
        }
        bytes[tag] ^= 1;
        let operation = Operation::send(&bytes, &[]);
        // SAFETY: a packet is complete when it is posted.
        let posted = unsafe { self.inner.post(&WorkRequest { operation, ..*request }) };
        if matches!(posted, Ok(Posted::Busy)) {
            self.until.set(1);
        }
        Some(posted)
    }

    /// Takes a credit for a message to a peer; returns false if the peer has none left.
    fn take_room(&self, peer: u32) -> bool {
        if self.room.get().is_none() && self.count_fault() {
            self.room.set(Some((peer, MAX_PACKETS)));
        }
        match self.room.get() {
            Some((full, left)) if full == peer => {
                self.room.set(Some((full, left.saturating_sub(1))));
                left > 0
            }
            _ => true,
        }
    }

    /// Posts the writes that are due before an operation of this class, unless it is the notification that has to
    /// precede its data.
    fn post_due_writes(&self, peer: u32, class: Class) -> Result<()> {
        let is_held = |late: &Late| late.peer == peer && late.due == Due::Next;
        if class == Class::Signal && self.late.borrow().iter().any(is_held) && self.count_fault() {
            self.late.borrow_mut().iter_mut().filter(|late| is_held(late)).for_each(|late| late.due = Due::Data);
        }
        self.make_late(|late| match late.due {
            Due::Overwritten => false,
            Due::Next => late.peer == peer || !matches!(class, Class::Signal | Class::Put),
            Due::Data => matches!(class, Class::Put | Class::Get | Class::Atomic),
        })
    }
}

/// Whether an operation is an atomic on a word of 8 bytes.
fn is_wide_atomic(operation: &Operation<'_>) -> bool {
    matches!(operation, Operation::Update(update) if update.is_integer() && update.len == 8 && update.change != Change::Add(0))
}

/// The bytes of a header and valid blocks.
fn gathered(header: &[u8], blocks: &[Block]) -> Vec<u8> {
    let mut bytes = Vec::new();
    // SAFETY: the blocks are valid by the contract of `post`.
    unsafe { copy::gather(header, blocks, &mut bytes) };
    bytes
}

// SAFETY: passes on the memory that the inner device names; a faulty operation is dropped, repeated, or names fewer
// bytes.
unsafe impl Device for Faulty {
    forward!(inner: peers_can_map, sealed, cancel, wake, waker, now, compute, stats, check_peers, leave);

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn register(&self, region: Region) -> Result<Registration> {
        // SAFETY: the same contract.
        let own = unsafe { self.inner.register(region) }?;
        let key = own.key.clone();
        self.own_keys.borrow_mut().insert(key.clone(), own.handle);
        self.own.borrow_mut().insert(own.handle, OwnRegion { key, base: own.base, len: own.len });
        Ok(own)
    }

    unsafe fn release(&self, handle: u64) -> Result<()> {
        if let Some(own) = self.own.borrow_mut().remove(&handle) {
            self.own_keys.borrow_mut().remove(&own.key);
        }
        // SAFETY: the same contract.
        unsafe { self.inner.release(handle) }
    }

    fn import(&self, peer: u32, key: &[u8], accumulate: Option<AccumulateFn>) -> Result<RemoteRegion> {
        let mut remote = self.inner.import(peer, key, accumulate)?;
        remote.mapped = None;
        if let Some(own) = self.own_keys.borrow().get(key).filter(|_| peer == self.me) {
            self.own_imports.borrow_mut().insert(remote.handle, *own);
        }
        if accumulate.is_none() {
            self.signal_arrays.borrow_mut().insert(remote.handle);
        }
        Ok(remote)
    }

    unsafe fn forget(&self, handle: u64) {
        self.signal_arrays.borrow_mut().remove(&handle);
        self.own_imports.borrow_mut().remove(&handle);
        self.late.borrow_mut().retain(|late| late.to.region != handle);
        // SAFETY: the same contract.
        unsafe { self.inner.forget(handle) };
    }

    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        let class = self.class(&request.operation);
        self.post_due_writes(request.peer, class)?;
        let hit = match self.damage {
            Damage::None => false,
            Damage::Drop(damaged) => damaged == class && self.count_fault(),
            Damage::DoublePut => class == Class::Put && self.count_fault(),
            Damage::EarlyNotify => class == Class::Put && request.notify.is_some() && self.count_fault(),
            Damage::OwnAtomic if request.peer == self.me && is_wide_atomic(&request.operation) => {
                (self.until.get() == 0 || self.count_fault()) && self.do_own_atomic(&request.operation)
            }
            Damage::KeepCredit if class == Class::Message && !self.take_room(request.peer) => return Ok(Posted::Busy),
            Damage::WrongTag if class == Class::Message => match self.post_with_wrong_tag(request) {
                Some(posted) => return posted,
                None => false,
            },
            Damage::OwnAtomic | Damage::KeepCredit | Damage::WrongTag => false,
        };
        if hit && self.damage == Damage::DoublePut {
            self.keep(request, Due::Overwritten);
        } else if hit {
            if self.damage == Damage::EarlyNotify {
                self.keep(request, Due::Data);
            }
            let Some((at, value)) = request.notify else { return Ok(Posted::Done) };
            let signal = WorkRequest { operation: Operation::Signal { at, value }, notify: None, ..*request };
            // SAFETY: a signal touches no local memory.
            return unsafe { self.inner.post(&signal) };
        } else if self.damage == Damage::EarlyNotify
            && class == Class::Put
            && self.until.get() > 0
            && request.notify.is_none()
        {
            // The write is delayed, because it is not known yet whether a notification follows.
            if self.keep(request, Due::Next) {
                return Ok(Posted::Done);
            }
        }
        if !hit && self.late.borrow().iter().any(|late| late.due == Due::Overwritten) {
            return self.overwrite(request);
        }
        // SAFETY: the same contract.
        unsafe { self.inner.post(request) }
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        self.make_late(|late| late.due == Due::Next)?;
        self.inner.poll(&mut |event| match event {
            Event::Completed { id: LATE_WRITE_ID, .. } => {}
            event => sink(event),
        })
    }

    fn park(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        self.inner.park(sleep, ready)
    }
}
