//! Tracks requests, so that requests on several devices stay in order.
//!
//! A device orders a write before the atomics and signals that follow it on the same device. This module keeps the
//! order between devices: posting an atomic, a signal or a notification returns `Busy` while writes to the same peer
//! are in progress on another device. A notification whose cell belongs to another device than its operation is posted
//! when that operation is complete.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::device::{Operation, OwnedTransfer, Place, WorkRequest};
use crate::error::{Error, Result};
use crate::slots::Slots;

/// The bit that marks ids of requests tracked here. Neither the job nor the devices below use this bit.
const TRACKED: u64 = 1 << 60;
/// Id of requests whose completion is ignored.
pub(super) const UNTRACKED: u64 = u64::MAX;

/// A signal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signal {
    pub(super) peer: u32,
    /// The cell, with the handle that the job knows.
    pub(super) at: Place,
    pub(super) value: u64,
}

/// A notification: a signal, its device, and the cell with that device's handle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notification {
    pub(super) signal: Signal,
    pub(super) device: u8,
    pub(super) to: Place,
}

/// How a write's arrival can be detected at the peer: by the effect of the first request after it on the same device.
#[derive(Clone, Copy, Debug)]
pub(super) enum Evidence {
    /// No request has followed yet.
    Nothing,
    /// The value of a cell.
    Signal(Place, u64),
    /// The effect of an atomic or accumulate.
    Atomic,
}

/// A read or write as the job has posted it. It is posted again if its device fails.
#[derive(Debug)]
pub(super) struct Repeat {
    pub(super) id: u64,
    pub(super) peer: u32,
    /// Its number among the requests to the peer.
    pub(super) order: u64,
    pub(super) transfer: OwnedTransfer,
    pub(super) notify: Option<(Place, u64)>,
    pub(super) evidence: Evidence,
}

impl Repeat {
    /// `None` for a request that is not a read or write.
    #[inline]
    pub(super) fn of(request: &WorkRequest<'_>, order: u64) -> Option<Self> {
        let WorkRequest { id, peer, notify, .. } = *request;
        let Operation::Transfer(transfer) = &request.operation else { return None };
        let transfer = OwnedTransfer::of(transfer);
        Some(Self { id, peer, order, transfer, notify, evidence: Evidence::Nothing })
    }

    /// The request.
    pub(super) fn request(&self) -> WorkRequest<'_> {
        let Self { id, peer, ref transfer, notify, .. } = *self;
        WorkRequest { peer, operation: transfer.operation(), notify, id }
    }
}

/// A request in progress.
pub(super) struct Tracked {
    /// The id that the job knows.
    pub(super) id: u64,
    pub(super) peer: u32,
    /// The devices that execute the request, as bits.
    pub(super) devices: u8,
    /// Number of parts of the request that are not complete.
    pub(super) left: u32,
    /// The first error of a part.
    pub(super) error: Option<Error>,
    /// Whether later atomics and signals wait for the request.
    pub(super) is_write: bool,
    /// The signal to post when the request is complete.
    pub(super) notify: Option<Signal>,
    /// The request to post again if its device fails.
    pub(super) repeat: Option<Repeat>,
    /// Whether the request reads a cell to detect which writes have arrived.
    pub(super) is_check: bool,
}

impl Tracked {
    /// A request that `devices` execute by `parts` requests; it is not a write and has no notification.
    pub(super) fn new(id: u64, peer: u32, devices: u8, parts: u32) -> Self {
        Self {
            id,
            peer,
            devices,
            left: parts,
            error: None,
            is_write: false,
            notify: None,
            repeat: None,
            is_check: false,
        }
    }
}

/// A segment of a read or write that has not been posted.
pub(super) struct Stripe {
    /// The id of the request of which this is a segment.
    pub(super) id: u64,
    pub(super) peer: u32,
    pub(super) device: u8,
    pub(super) transfer: OwnedTransfer,
}

/// A request that is complete except for its notification.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unnotified {
    pub(super) id: u64,
    pub(super) signal: Signal,
}

/// The requests in progress that are tracked.
#[derive(Default)]
pub(super) struct Requests {
    tracked: RefCell<Slots<Tracked>>,
    /// Number of entries of `tracked` and `unnotified`.
    open: Cell<usize>,
    /// Writes in progress, by peer and devices.
    writes: RefCell<FxHashMap<(u32, u8), u32>>,
    /// Requests whose notification was delayed by a busy device.
    unnotified: RefCell<VecDeque<Unnotified>>,
    /// Segments that were delayed by a busy device.
    pub(super) stripes: RefCell<VecDeque<Stripe>>,
    /// Parts of tracked requests that have ended in the current poll of a device, and their results.
    pub(super) ended: RefCell<Vec<(u64, Result<()>)>>,
}

impl Requests {
    /// The id under which the next request is tracked, if it is [added](Self::add).
    pub(super) fn next(&self) -> u64 {
        self.tracked.borrow_mut().next() | TRACKED
    }

    /// Tracks a request in progress.
    pub(super) fn add(&self, request: Tracked) {
        if request.is_write {
            *self.writes.borrow_mut().entry((request.peer, request.devices)).or_default() += 1;
        }
        self.tracked.borrow_mut().add(request);
        self.open.set(self.open.get() + 1);
    }

    /// Whether there are requests in progress that are tracked, or wait for their notification. Only these have
    /// segments that were delayed.
    #[inline(always)]
    pub(super) fn has_open(&self) -> bool {
        self.open.get() > 0
    }

    /// Whether an id is that of a tracked request.
    #[inline(always)]
    pub(super) fn is_tracked(id: u64) -> bool {
        id != UNTRACKED && id & TRACKED != 0
    }

    /// The peer of a request; `None` if it has been cancelled.
    pub(super) fn peer(&self, id: u64) -> Option<u32> {
        self.tracked.borrow().get(id & !TRACKED).map(|request| request.peer)
    }

    /// Records a request to `peer` whose effect proves the arrival of the writes with lower numbers than `before`.
    pub(super) fn add_evidence(&self, peer: u32, evidence: Evidence, before: u64) {
        if !self.has_open() || self.writes.borrow().is_empty() {
            return;
        }
        let mut tracked = self.tracked.borrow_mut();
        for request in tracked.iter_mut().filter(|request| request.peer == peer && request.is_write) {
            if let Some(repeat) = &mut request.repeat
                && repeat.order < before
                && matches!(repeat.evidence, Evidence::Nothing)
            {
                repeat.evidence = evidence;
            }
        }
    }

    /// Whether requests to `peer` are in progress on some of these devices.
    pub(super) fn uses(&self, peer: u32, devices: u8) -> bool {
        self.tracked.borrow().iter().any(|(_, request)| request.peer == peer && request.devices & devices != 0)
    }

    /// Whether writes to `peer` are in progress on other devices than `device`.
    pub(super) fn has_writes_elsewhere(&self, peer: u32, device: u8) -> bool {
        self.writes.borrow().keys().any(|(of, by)| *of == peer && *by != 1 << device)
    }

    /// Records the end of a part of a request; if it was the last part, returns the request and its result. `None` also
    /// if the request has been cancelled.
    pub(super) fn ended(&self, id: u64, result: Result<()>) -> Option<(Tracked, Result<()>)> {
        {
            let mut tracked = self.tracked.borrow_mut();
            let request = tracked.get_mut(id & !TRACKED)?;
            if let Err(e) = result {
                request.error.get_or_insert(e);
            }
            request.left = request.left.saturating_sub(1);
            if request.left > 0 {
                return None;
            }
        }
        let mut request = self.remove(id)?;
        let result = request.error.take().map_or(Ok(()), Err);
        Some((request, result))
    }

    /// Removes the oldest segment that has not been posted.
    pub(super) fn take_stripe(&self) -> Option<Stripe> {
        self.stripes.borrow_mut().pop_front()
    }

    /// Removes a request; `None` if it has been cancelled.
    pub(super) fn remove(&self, id: u64) -> Option<Tracked> {
        let request = self.tracked.borrow_mut().remove(id & !TRACKED)?;
        self.open.set(self.open.get() - 1);
        let of = (request.peer, request.devices);
        let mut writes = self.writes.borrow_mut();
        if request.is_write
            && let Some(count) = writes.get_mut(&of)
        {
            *count -= 1;
            if *count == 0 {
                writes.remove(&of);
            }
        }
        Some(request)
    }

    /// Adds a request that is complete except for its notification.
    pub(super) fn add_unnotified(&self, request: Unnotified) {
        self.unnotified.borrow_mut().push_back(request);
        self.open.set(self.open.get() + 1);
    }

    /// The oldest request whose notification is not posted.
    pub(super) fn first_unnotified(&self) -> Option<Unnotified> {
        self.unnotified.borrow().front().copied()
    }

    /// Removes the oldest request whose notification is not posted.
    pub(super) fn remove_unnotified(&self) {
        if self.unnotified.borrow_mut().pop_front().is_some() {
            self.open.set(self.open.get() - 1);
        }
    }

    /// Whether an atomic or signal on `device` would overtake writes or notifications to `peer`; with `any`, also those
    /// of the same device.
    #[inline(always)]
    pub(super) fn would_overtake(&self, peer: u32, device: u8, any: bool) -> bool {
        self.has_open() && self.is_behind(peer, device, any)
    }

    #[cold]
    fn is_behind(&self, peer: u32, device: u8, any: bool) -> bool {
        self.unnotified.borrow().iter().any(|request| request.signal.peer == peer)
            || self.writes.borrow().keys().any(|(of, by)| *of == peer && (any || *by != 1 << device))
            || self.tracked.borrow().iter().any(|(_, request)| request.peer == peer && request.notify.is_some())
    }

    /// Drops the requests whose job id satisfies `which`; returns the ids under which they were tracked.
    pub(super) fn cancel(&self, which: &dyn Fn(u64) -> bool) -> Vec<u64> {
        let tracked = self.tracked.borrow().iter().filter(|(_, request)| which(request.id)).map(|(id, _)| id).collect();
        let ids: Vec<u64> = tracked;
        ids.iter().for_each(|id| _ = self.remove(*id));
        self.stripes.borrow_mut().retain(|stripe| !ids.contains(&(stripe.id & !TRACKED)));
        let mut unnotified = self.unnotified.borrow_mut();
        let before = unnotified.len();
        unnotified.retain(|request| !which(request.id));
        self.open.set(self.open.get() - (before - unnotified.len()));
        ids.into_iter().map(|id| id | TRACKED).collect()
    }

    /// Reports the result of a tracked request to the job.
    pub(super) fn report(id: u64, result: Result<()>, sink: &mut dyn FnMut(crate::device::Event<'_>)) {
        if id != UNTRACKED {
            sink(crate::device::Event::Completed { id, result });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_wait_for_writes_on_other_devices_to_the_same_peer() {
        let requests = Requests::default();
        let write = |peer, device: u8, id| {
            let number = requests.next();
            requests.add(Tracked { is_write: true, ..Tracked::new(id, peer, 1u8 << device, 1) });
            number
        };
        let (a, b) = (write(1, 0, 7), write(2, 1, 8));
        assert!(Requests::is_tracked(a) && !Requests::is_tracked(7) && !Requests::is_tracked(UNTRACKED));
        let overtakes = |peer, device| requests.would_overtake(peer, device, false);
        assert_eq!([overtakes(1, 0), overtakes(1, 1), overtakes(2, 0), overtakes(3, 0)], [false, true, true, false]);
        assert!(requests.would_overtake(1, 0, true));
        assert_eq!(requests.cancel(&|id| id == 8), [b]);
        assert!(!overtakes(2, 0) && requests.remove(b).is_none());
        assert_eq!(requests.remove(a).unwrap().id, 7);
        assert_eq!((overtakes(1, 1), requests.open.get()), (false, 0));
        // A write in two segments, on two devices.
        let id = requests.next();
        requests.add(Tracked { is_write: true, ..Tracked::new(5, 1, 0b11, 2) });
        assert!(overtakes(1, 0) && overtakes(1, 1));
        let lost = || Error::new(crate::error::ErrorKind::PeerLost, "write");
        assert!(requests.ended(id, Err(lost())).is_none());
        let (request, result) = requests.ended(id, Ok(())).unwrap();
        assert_eq!((request.id, result.is_err(), overtakes(1, 0)), (5, true, false));
        let signal = Signal { peer: 1, at: Place { region: 1, offset: 0 }, value: 1 };
        requests.add_unnotified(Unnotified { id: 9, signal });
        assert!(overtakes(1, 0) && !overtakes(2, 0));
        requests.remove_unnotified();
        assert_eq!((overtakes(1, 0), requests.open.get()), (false, 0));
    }
}
