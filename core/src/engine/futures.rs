//! Futures that wait for communication: they poll for as long as a wait spins, and are then woken at the next event.
//!
//! A future whose condition does not hold yet calls [`Engine::poll_later`]. At first this makes the runtime poll the
//! future again immediately. After the time for which a wait spins, it announces a sleep to the device, as a wait does
//! before it parks, and lets the future be polled once more: that poll sees events before the announcement, and events
//! after it make the device call the waker. So no event is missed, although the future is no longer polled.

use std::cell::{Cell, OnceCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task;
use std::time::Instant;

use super::Engine;
use crate::bill::Awaited;
use crate::callback::caught;
use crate::device::{Sleep, Waker};
use crate::error::Result;

/// The waiting futures of a rank.
#[derive(Default)]
pub(super) struct WaitingFutures {
    shared: Arc<Mutex<Shared>>,
    /// The waker that the device calls, made on first use.
    waker: OnceCell<Waker>,
    /// The time since which polls of the futures have found nothing.
    since: Cell<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Whether the device calls the waker at the next event.
    announced: bool,
    tasks: Vec<task::Waker>,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the announcement and wakes all tasks.
fn wake(shared: &Mutex<Shared>) {
    let tasks = {
        let mut shared = lock(shared);
        shared.announced = false;
        std::mem::take(&mut shared.tasks)
    };
    for task in tasks {
        // A panic must not keep the other tasks from being polled, nor end a thread of the device.
        if let Err(text) = caught(|| task.wake()) {
            tracing::error!("a waker of a future panicked: {text}");
        }
    }
}

impl WaitingFutures {
    /// Records an event, after which futures poll for a while again.
    #[inline]
    pub(super) fn note_progress(&self) {
        if self.since.take().is_some() {
            self.disturbed();
        }
    }

    /// Ends an announcement and wakes all futures. Called after the rank has slept by other means, or after an event
    /// that no device announces.
    pub(super) fn disturbed(&self) {
        if self.waker.get().is_some() {
            wake(&self.shared);
        }
    }

    fn waker(&self) -> &Waker {
        self.waker.get_or_init(|| {
            let shared = Arc::clone(&self.shared);
            Arc::new(move || wake(&shared))
        })
    }
}

impl Engine {
    /// Makes the task of `context` be polled again: immediately or, when polls of futures of this rank have found
    /// nothing for the time that a wait spins, at the next event. Call after a turn of [`progress`](Self::progress) and
    /// a test of the condition, both without result. Peers that fulfil a condition without a message must wake this
    /// rank ([`Device::wake`](crate::device::Device::wake)). If this rank itself fulfils a condition outside progress,
    /// it must call [`wake_futures`](Self::wake_futures).
    ///
    /// # Errors
    /// `PeerLost` from the check of the peers that precedes every sleep; or the reason why the awaited condition can no
    /// longer be fulfilled.
    pub fn poll_later(&self, context: &task::Context<'_>) -> Result<()> {
        let futures = &self.futures;
        let own = context.waker().clone();
        let blocked = self.above().is_some_and(|above| above.is_blocked());
        {
            let mut shared = lock(&futures.shared);
            if shared.announced && !blocked {
                // The condition was tested after the announcement.
                if !shared.tasks.iter().any(|task| task.will_wake(&own)) {
                    shared.tasks.push(own);
                }
                return Ok(());
            }
        }
        own.wake();
        let now = self.device.now();
        let since = futures.since.get().unwrap_or(now);
        futures.since.set(Some(since));
        if blocked || !self.progress.sleeps_after(now.duration_since(since)) {
            return Ok(());
        }
        const OPERATION: &str = "wait for a future";
        self.progress.check_peers(OPERATION, self.device(), None)?;
        self.checked(&|| Awaited::unknown(OPERATION))?;
        lock(&futures.shared).announced = true;
        if self.device.park(Sleep::Elsewhere(futures.waker()), &mut || false) {
            wake(&futures.shared);
        }
        Ok(())
    }

    /// Wakes all waiting futures of this rank. Called after this rank has fulfilled, without a message, a condition for
    /// which they may wait.
    pub fn wake_futures(&self) {
        self.futures.disturbed();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::time::Duration;

    use super::*;
    use crate::Job;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn waker_that_panics_keeps_no_other_from_being_called() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                std::panic::resume_unwind(Box::new("on purpose"));
            }
        }
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let tasks = vec![Arc::new(Panics).into(), Arc::clone(&count).into()];
        let shared = Mutex::new(Shared { announced: true, tasks });
        wake(&shared);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(!lock(&shared).announced);
    }

    /// Rank 0 polls without result until it is no longer polled immediately; rank 1 then wakes it with a store and a
    /// wake-up.
    #[test]
    fn future_is_polled_at_once_for_a_while_and_then_at_an_event() {
        Job::threads(2, |job| {
            let team = job.world()?;
            team.barrier()?;
            if job.rank() == 1 {
                std::thread::sleep(Duration::from_millis(50));
                return team.barrier();
            }
            let count = Arc::new(Count(AtomicUsize::new(0)));
            let waker = Arc::clone(&count).into();
            let context = task::Context::from_waker(&waker);
            let polled = || {
                job.progress().unwrap();
                let before = count.0.load(Ordering::SeqCst);
                job.poll_later(&context).unwrap();
                count.0.load(Ordering::SeqCst) > before
            };
            assert!(polled());
            while polled() {}
            let before = count.0.load(Ordering::SeqCst);
            // The event is the message of the other rank's barrier, or the regular check of the peers.
            let begun = Instant::now();
            while count.0.load(Ordering::SeqCst) == before && begun.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(count.0.load(Ordering::SeqCst), before + 1, "woken once");
            team.barrier()
        })
        .unwrap();
    }
}
