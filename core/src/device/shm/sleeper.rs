//! A thread that sleeps for a rank whose own thread sleeps elsewhere, for example in the event loop of an async runtime.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::layout::DOORBELL;
use super::park;
use super::segments::Segments;
use crate::device::Waker;
use crate::error::{Error, Result};

/// The next task of the sleeper thread.
#[derive(Default)]
enum Next {
    /// Nothing.
    #[default]
    Idle,
    /// Call the waker once the doorbell has another value.
    Watch(u32),
    End,
}

#[derive(Default)]
struct Orders {
    next: Mutex<Next>,
    changed: Condvar,
}

impl Orders {
    fn next(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, order: Next) {
        *self.next() = order;
        self.changed.notify_one();
    }

    /// Waits for the next task.
    fn take(&self) -> Next {
        let idle = |next: &mut Next| matches!(next, Next::Idle);
        let mut next = self.changed.wait_while(self.next(), idle).unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut next)
    }
}

/// The thread of a rank; dropping it ends the thread.
pub(super) struct Sleeper {
    orders: Arc<Orders>,
    segments: Arc<Segments>,
    thread: Option<JoinHandle<()>>,
}

impl Sleeper {
    /// Starts the thread, which calls `waker` when a peer rings the doorbell, and after `limit`, so that the rank
    /// checks its peers.
    pub(super) fn start(segments: Arc<Segments>, waker: Waker, limit: Duration) -> Result<Self> {
        let orders = Arc::new(Orders::default());
        let (taken, own) = (Arc::clone(&orders), Arc::clone(&segments));
        let run = move || {
            while let Next::Watch(bell) = taken.take() {
                park::futex_wait(own.own.mapping().half(DOORBELL), bell, limit);
                waker();
            }
        };
        let thread = std::thread::Builder::new().name(format!("farside-sleeper-{}", segments.ranks[segments.me]));
        let thread = thread.spawn(run).map_err(|e| Error::system("start the sleeper thread", e))?;
        Ok(Self { orders, segments, thread: Some(thread) })
    }

    /// Makes the thread call the waker once the doorbell differs from `bell`.
    pub(super) fn watch(&self, bell: u32) {
        self.orders.give(Next::Watch(bell));
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.orders.give(Next::End);
        let doorbell = self.segments.own.mapping().half(DOORBELL);
        doorbell.fetch_add(1, Ordering::SeqCst);
        park::futex_wake(doorbell);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
    }
}
