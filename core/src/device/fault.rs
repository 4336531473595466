#![allow(unsafe_code)]
//! A wrapper round a device that damages one operation, so that tests show that they would notice.
//!
//! It hides that memory is mapped, so that every operation comes through [`Device::post`].

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::time::Instant;

use rustc_hash::FxHashSet;

use super::{
    Capabilities, Device, Event, Leave, Operation, Place, Posted, Range, Region, Registration, RemoteRegion,
    RemoteVector, Sleep, Waker, WorkRequest,
};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::keys::AccumulateFn;
use crate::stats::{Kind, Snapshot, Stats};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// Nothing: the wrapper only hides the mapping.
    None,
    /// An operation of this class is reported done and not made.
    Drop(Class),
    /// A write is made again later, after the next operation: late, doubled delivery.
    DoublePut,
    /// A notification is set before the data that it announces, which comes some polls later.
    EarlyNotify,
}

/// A class of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Put,
    Get,
    Atomic,
    Message,
    Signal,
    /// What carries synchronization and no data of the program: writes and reads of signal arrays, and reads of words by
    /// atomics.
    Other,
}

/// A late write: its bytes, its peer, its place, and the polls until it is made.
#[derive(Debug)]
struct Late {
    bytes: Vec<u8>,
    peer: u32,
    to: Place,
    polls: u32,
}

#[derive(Debug)]
struct Faulty {
    inner: Box<dyn Device>,
    capabilities: Capabilities,
    damage: Damage,
    /// Counts down to the operation that is damaged.
    until: Cell<u64>,
    late: RefCell<Vec<Late>>,
    /// Imported regions without accumulates, which are signal arrays: writes to them are synchronization, and no puts.
    signal_arrays: RefCell<FxHashSet<u64>>,
}

/// Wraps `device` as the setting says: `none`, `unmapped`, or a damage and the number of the operation.
///
/// # Errors
/// `Setting`.
pub fn wrap(device: Box<dyn Device>, setting: &str) -> Result<Box<dyn Device>> {
    if setting == "none" {
        return Ok(device);
    }
    let bad = || Error::new(ErrorKind::Setting, "read FARSIDE_FAULT").cause(format!("{setting:?}"));
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
        _ => return Err(bad()),
    };
    let until = Cell::new(number.parse().map_err(|_| bad())?);
    // All puts are to pass by here.
    let capabilities = Capabilities { own_by_copy: false, ..device.capabilities().clone() };
    let (late, signal_arrays) = Default::default();
    Ok(Box::new(Faulty { inner: device, capabilities, damage, until, late, signal_arrays }))
}

impl Faulty {
    /// Whether this operation, one of the kind that is damaged, is the one.
    fn hit(&self) -> bool {
        let n = self.until.get();
        self.until.set(n.saturating_sub(1));
        if n == 1 {
            self.inner.stats().add(Kind::Damage, 0);
        }
        n == 1
    }

    fn class(&self, operation: &Operation<'_>) -> Class {
        match operation {
            Operation::Write { to: Place { region, .. }, .. }
            | Operation::WriteBlocks { to: RemoteVector { region, .. }, .. }
            | Operation::Read { from: Place { region, .. }, .. }
            | Operation::ReadBlocks { from: RemoteVector { region, .. }, .. }
                if self.signal_arrays.borrow().contains(region) =>
            {
                Class::Other
            }
            Operation::Write { .. } | Operation::WriteBlocks { .. } | Operation::Gather { .. } => Class::Put,
            Operation::Read { .. } | Operation::ReadBlocks { .. } | Operation::Scatter { .. } => Class::Get,
            // An atomic that adds nothing reads the word.
            Operation::FetchAdd { add: 0, .. } => Class::Other,
            Operation::FetchAdd { .. } | Operation::CompareSwap { .. } | Operation::Accumulate { .. } => Class::Atomic,
            Operation::Signal { .. } => Class::Signal,
            Operation::SendShort(_) | Operation::Send { .. } => Class::Message,
        }
    }

    /// Writes the bytes of this request once more, after so many polls.
    fn repeat_late(&self, request: &WorkRequest<'_>, polls: u32) {
        let whole;
        let (from, region, ranges) = match request.operation {
            Operation::Write { from, to } => {
                whole = [Range { offset: to.offset, len: from.iter().map(|b| b.len).sum() }];
                (from, to.region, &whole[..])
            }
            Operation::WriteBlocks { from, to } => (from, to.region, to.ranges),
            _ => return,
        };
        let mut bytes = Vec::new();
        for b in from {
            let at = bytes.len();
            bytes.resize(at + b.len, 0);
            // SAFETY: the block is valid by the contract of `post`, and the vector has room.
            unsafe { std::ptr::copy_nonoverlapping(b.base, bytes[at..].as_mut_ptr(), b.len) };
        }
        for range in ranges {
            let (to, rest) = (Place { region, offset: range.offset }, bytes.split_off(range.len.min(bytes.len())));
            self.late.borrow_mut().push(Late { bytes, peer: request.peer, to, polls });
            bytes = rest;
        }
    }

    fn make_late(&self) -> Result<()> {
        let due: Vec<Late> = {
            let mut late = self.late.borrow_mut();
            for l in late.iter_mut() {
                l.polls = l.polls.saturating_sub(1);
            }
            let (due, rest) = late.drain(..).partition(|l| l.polls == 0);
            *late = rest;
            due
        };
        for l in due {
            let from = [super::Block::of(l.bytes.as_ptr(), l.bytes.len())];
            let operation = Operation::Write { from: &from, to: l.to };
            // SAFETY: the bytes live through the call; a mapped write is complete when it returns, and one
            // that is not is cancelled below.
            let posted =
                unsafe { self.inner.post(&WorkRequest { peer: l.peer, operation, notify: None, id: u64::MAX }) }?;
            if posted == Posted::Pending {
                self.inner.cancel(&|id| id == u64::MAX);
            }
        }
        Ok(())
    }
}

impl Device for Faulty {
    forward!(inner: sealed, cancel, wake, waker, now, stats, counters, check_peers, stopped_peer, leave);

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn register(&self, region: Region) -> Result<Registration> {
        // SAFETY: the same contract.
        unsafe { self.inner.register(region) }
    }

    unsafe fn release(&self, handle: u64) -> Result<()> {
        // SAFETY: the same contract.
        unsafe { self.inner.release(handle) }
    }

    fn import(&self, peer: u32, key: &[u8], accumulate: Option<AccumulateFn>) -> Result<RemoteRegion> {
        let mut remote = self.inner.import(peer, key, accumulate)?;
        remote.mapped = None;
        if accumulate.is_none() {
            self.signal_arrays.borrow_mut().insert(remote.handle);
        }
        Ok(remote)
    }

    unsafe fn forget(&self, handle: u64) {
        self.signal_arrays.borrow_mut().remove(&handle);
        // SAFETY: the same contract.
        unsafe { self.inner.forget(handle) };
    }

    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        let class = self.class(&request.operation);
        let hit = match self.damage {
            Damage::None => false,
            Damage::Drop(damaged) => damaged == class && self.hit(),
            Damage::DoublePut => class == Class::Put && self.hit(),
            Damage::EarlyNotify => class == Class::Put && request.notify.is_some() && self.hit(),
        };
        if !hit {
            // SAFETY: the same contract.
            return unsafe { self.inner.post(request) };
        }
        match self.damage {
            Damage::DoublePut => {
                self.repeat_late(request, 3);
                // SAFETY: the same contract.
                return unsafe { self.inner.post(request) };
            }
            Damage::EarlyNotify => self.repeat_late(request, 50),
            Damage::None | Damage::Drop(_) => {}
        }
        let Some((at, value)) = request.notify else { return Ok(Posted::Done) };
        let signal = WorkRequest { operation: Operation::Signal { at, value }, notify: None, ..*request };
        // SAFETY: a signal touches no local memory.
        unsafe { self.inner.post(&signal) }
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        self.make_late()?;
        self.inner.poll(sink)
    }

    fn park(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        !self.late.borrow().is_empty() || self.inner.park(sleep, ready)
    }
}
