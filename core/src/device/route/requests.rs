//! Requests that the joined devices must not reorder.
//!
//! A device orders a write before the atomics and signals that follow it on the same device. Between devices the order is
//! kept here: an atomic, a signal or a notification finds the joined device busy while writes to the same peer are in
//! progress on another device. A notification whose cell belongs to another device than its operation is posted when
//! that operation is complete.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::device::Place;
use crate::error::Result;
use crate::slots::Slots;

/// Marks ids of requests that are tracked here. Ids of the job have no such bits, nor those that the devices below add.
const TRACKED: u64 = 1 << 60;
/// Id of requests whose completion nobody awaits.
pub(super) const UNTRACKED: u64 = u64::MAX;

/// A signal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signal {
    pub(super) peer: u32,
    pub(super) device: u8,
    /// The cell, with the handle of `device`.
    pub(super) at: Place,
    pub(super) value: u64,
}

/// A request in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tracked {
    /// The id that the job knows.
    pub(super) id: u64,
    pub(super) peer: u32,
    pub(super) device: u8,
    /// Whether later atomics and signals wait for it.
    pub(super) is_write: bool,
    /// Posted when the request is complete.
    pub(super) notify: Option<Signal>,
}

/// A request that is complete except for its notification.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unnotified {
    pub(super) id: u64,
    pub(super) signal: Signal,
}

/// The requests in progress that are tracked.
#[derive(Debug, Default)]
pub(super) struct Requests {
    tracked: RefCell<Slots<Tracked>>,
    /// Number of entries of `tracked` and `unnotified`.
    open: Cell<usize>,
    /// Writes in progress, by peer and device.
    writes: RefCell<FxHashMap<(u32, u8), u32>>,
    /// Requests whose notification found a busy device.
    pub(super) unnotified: RefCell<VecDeque<Unnotified>>,
}

impl Requests {
    /// The id under which the next request is tracked, if it is [added](Self::add).
    pub(super) fn next(&self) -> u64 {
        self.tracked.borrow_mut().next() | TRACKED
    }

    /// Tracks a request in progress.
    pub(super) fn add(&self, request: Tracked) {
        if request.is_write {
            *self.writes.borrow_mut().entry((request.peer, request.device)).or_default() += 1;
        }
        self.tracked.borrow_mut().add(request);
        self.open.set(self.open.get() + 1);
    }

    /// Whether an id is that of a tracked request.
    #[inline(always)]
    pub(super) fn is_tracked(id: u64) -> bool {
        id != UNTRACKED && id & TRACKED != 0
    }

    /// Removes a request that has ended; `None` if it has been cancelled.
    pub(super) fn remove(&self, id: u64) -> Option<Tracked> {
        let request = self.tracked.borrow_mut().remove(id & !TRACKED)?;
        self.open.set(self.open.get() - 1);
        let of = (request.peer, request.device);
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

    /// The oldest request without its notification.
    pub(super) fn first_unnotified(&self) -> Option<Unnotified> {
        self.unnotified.borrow().front().copied()
    }

    /// Removes the oldest request without its notification.
    pub(super) fn remove_unnotified(&self) {
        if self.unnotified.borrow_mut().pop_front().is_some() {
            self.open.set(self.open.get() - 1);
        }
    }

    /// Whether an atomic or signal on `device` would overtake writes or notifications to `peer`; with `any`, also those
    /// of the same device.
    #[inline(always)]
    pub(super) fn would_overtake(&self, peer: u32, device: u8, any: bool) -> bool {
        self.open.get() > 0 && self.is_behind(peer, device, any)
    }

    #[cold]
    fn is_behind(&self, peer: u32, device: u8, any: bool) -> bool {
        self.unnotified.borrow().iter().any(|request| request.signal.peer == peer)
            || self.writes.borrow().keys().any(|(of, by)| *of == peer && (any || *by != device))
            || self.tracked.borrow().iter().any(|(_, request)| request.peer == peer && request.notify.is_some())
    }

    /// Forgets the requests whose id satisfies `which`, by the job's ids; returns their ids here.
    pub(super) fn cancel(&self, which: &dyn Fn(u64) -> bool) -> Vec<u64> {
        let tracked = self.tracked.borrow().iter().filter(|(_, request)| which(request.id)).map(|(id, _)| id).collect();
        let ids: Vec<u64> = tracked;
        ids.iter().for_each(|id| _ = self.remove(*id));
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
        let write = |peer, device, id| {
            let number = requests.next();
            requests.add(Tracked { id, peer, device, is_write: true, notify: None });
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
        let signal = Signal { peer: 1, device: 0, at: Place { region: 1, offset: 0 }, value: 1 };
        requests.add_unnotified(Unnotified { id: 9, signal });
        assert!(overtakes(1, 0) && !overtakes(2, 0));
        requests.remove_unnotified();
        assert_eq!((overtakes(1, 0), requests.open.get()), (false, 0));
    }
}
