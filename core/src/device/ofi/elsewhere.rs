//! Waking a rank that sleeps on another device: a thread, started with the first such sleep, waits in its place for the
//! provider's next event.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::device::Waker;
use crate::device::wait::{WakeFd, sleep};

/// Sleep of the thread while the rank does not sleep elsewhere.
const IDLE: Duration = Duration::from_secs(3600);

struct Shared {
    /// The function to call, and the time after which it is called without an event, if the rank sleeps elsewhere.
    asleep: Mutex<Option<(Waker, Duration)>>,
    ring: WakeFd,
    stops: AtomicBool,
}

impl Shared {
    fn asleep(&self) -> MutexGuard<'_, Option<(Waker, Duration)>> {
        self.asleep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread; dropping this ends it.
pub(super) struct Elsewhere {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Elsewhere {
    /// Starts the thread of rank `me`, for events that make `events` readable.
    pub(super) fn start(me: u32, events: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        // A descriptor of its own: that of the provider may be closed before the thread ends.
        let events = events.map(|fd| fd.try_clone_to_owned()).transpose()?;
        let shared = Shared { asleep: Mutex::default(), ring: WakeFd::new()?, stops: AtomicBool::new(false) };
        let shared = Arc::new(shared);
        let watched = Arc::clone(&shared);
        let thread = Builder::new().name(format!("farside-ofi-{me}")).spawn(move || run(&watched, events.as_ref()))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Calls `waker` once, at the next event or after `limit`. The thread may have begun to wait in an earlier call.
    pub(super) fn begin(&self, waker: &Waker, limit: Duration) {
        let before = self.shared.asleep().replace((Arc::clone(waker), limit));
        if before.is_none_or(|(_, before)| limit < before) {
            self.shared.ring.wake();
        }
    }

    /// The rank sleeps on this device now.
    pub(super) fn end(&self) {
        *self.shared.asleep() = None;
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::SeqCst);
        self.shared.ring.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, events: Option<&OwnedFd>) {
    let ring = shared.ring.as_fd();
    let both: Vec<BorrowedFd<'_>> = std::iter::once(ring).chain(events.map(AsFd::as_fd)).collect();
    while !shared.stops.load(Ordering::SeqCst) {
        let limit = shared.asleep().as_ref().map(|(_, limit)| *limit);
        sleep(if limit.is_some() { &both } else { &both[..1] }, limit.unwrap_or(IDLE));
        if shared.ring.clear() {
            continue;
        }
        let asleep = shared.asleep().take();
        if let Some((waker, _)) = asleep {
            waker();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn waker_is_called_once_for_an_event_or_after_the_limit() {
        let event = WakeFd::new().unwrap();
        let elsewhere = Elsewhere::start(0, Some(event.as_fd())).unwrap();
        let (called, calls) = channel();
        let waker: Waker = Arc::new(move || called.send(()).unwrap());
        event.wake();
        elsewhere.begin(&waker, IDLE);
        calls.recv().unwrap();
        // The event is still there, but the rank has been woken.
        assert!(calls.recv_timeout(Duration::from_millis(20)).is_err() && event.clear());
        elsewhere.begin(&waker, IDLE);
        // A shorter limit holds at once.
        elsewhere.begin(&waker, Duration::from_millis(1));
        calls.recv().unwrap();
        elsewhere.begin(&waker, IDLE);
        elsewhere.end();
        event.wake();
        assert!(calls.recv_timeout(Duration::from_millis(20)).is_err());
    }
}
