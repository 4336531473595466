//! The choice of the device on which a rank sleeps. An event of that device wakes the rank directly, an event of
//! another one through a thread of that device, which calls a waker. So a rank sleeps on the device that woke it last,
//! or had the last event.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::RouteDevice;
use crate::device::{Device, Sleep, Waker};
use crate::error::Result;

/// The object on which this rank sleeps.
enum SleepsOn {
    Device(usize),
    /// An event loop of the program.
    Elsewhere(Waker),
}

struct Shared {
    /// The functions that end the park of each device; `None` for a device that has no such function, so that no rank
    /// sleeps on it.
    ends: Vec<Option<Waker>>,
    sleeps_on: Mutex<SleepsOn>,
    /// The device that had the last event.
    last: AtomicUsize,
}

impl Shared {
    fn sleeps_on(&self) -> MutexGuard<'_, SleepsOn> {
        self.sleeps_on.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the sleep of this rank. A rank that begins another sleep meanwhile polls all devices before it sleeps.
    fn wake(&self) {
        let end = match &*self.sleeps_on() {
            SleepsOn::Device(number) => self.ends[*number].clone(),
            SleepsOn::Elsewhere(waker) => Some(Arc::clone(waker)),
        };
        end.iter().for_each(|end| end());
    }
}

/// How a rank sleeps on one of several devices.
pub(super) struct Sleeping {
    shared: Arc<Shared>,
    /// The waker of each device, for sleeps on another device.
    wakers: Vec<Waker>,
}

impl Sleeping {
    /// # Errors
    /// `Unsupported` if the first device has no waker.
    pub(super) fn new(devices: &[Box<dyn Device>]) -> Result<Self> {
        let mut ends = vec![Some(devices[0].waker()?)];
        ends.extend(devices[1..].iter().map(|device| device.waker().ok()));
        let shared = Shared { ends, sleeps_on: Mutex::new(SleepsOn::Device(0)), last: AtomicUsize::new(0) };
        let shared = Arc::new(shared);
        let waker = |number| -> Waker {
            let shared = Arc::clone(&shared);
            Arc::new(move || {
                // Relaxed: an outdated value only makes a rank sleep on another device.
                shared.last.store(number, Ordering::Relaxed);
                shared.wake();
            })
        };
        Ok(Self { wakers: (0..devices.len()).map(waker).collect(), shared })
    }

    /// Records an event of a device.
    #[inline]
    pub(super) fn note(&self, number: u8) {
        // Relaxed: as in `new`.
        self.shared.last.store(number.into(), Ordering::Relaxed);
    }

    /// A function that ends the sleep of this rank, whichever device it sleeps on.
    pub(super) fn waker(&self) -> Waker {
        let shared = Arc::clone(&self.shared);
        Arc::new(move || shared.wake())
    }

    /// Chooses the device to sleep on, and the kind of sleep. From now on, an event of any device ends that sleep.
    fn begin<'a>(&'a self, sleep: Sleep<'a>) -> (usize, Sleep<'a>) {
        // Relaxed: as in `new`.
        let last = self.shared.last.load(Ordering::Relaxed);
        let (first, sleeps_on, sleep) = match sleep {
            Sleep::For(_) if self.shared.ends[last].is_some() => (last, SleepsOn::Device(last), sleep),
            Sleep::For(_) => (0, SleepsOn::Device(0), sleep),
            Sleep::Elsewhere(waker) => (0, SleepsOn::Elsewhere(Arc::clone(waker)), Sleep::Elsewhere(&self.wakers[0])),
        };
        *self.shared.sleeps_on() = sleeps_on;
        (first, sleep)
    }
}

impl RouteDevice {
    /// Sleeps as [`Device::park`] does.
    pub(super) fn park_all(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        if self.silences.end_all() || self.needs_poll() {
            std::thread::yield_now();
            return true;
        }
        let (on, sleep) = self.sleeping.begin(sleep);
        let mut work = false;
        // The other devices are polled a last time, since peers can see by now that this rank is about to sleep.
        let first = self.devices[on].park(sleep, &mut || {
            for (number, device) in self.devices.iter().enumerate().filter(|(number, _)| *number != on) {
                work |= device.park(Sleep::Elsewhere(&self.sleeping.wakers[number]), &mut || false);
            }
            work || ready()
        });
        if work {
            std::thread::yield_now();
        }
        first || work
    }
}
