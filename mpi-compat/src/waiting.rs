#![allow(unsafe_code)]
//! Waits of several threads. One thread at a time makes progress for all of them; the others sleep. It wakes them when
//! their waits have ended and, when it stops, wakes one of them to take over. While it makes progress it holds the
//! lock, and yields it to any other thread that wants it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

use crate::lock::LOCK;

/// The waiting threads.
#[derive(Default)]
pub struct Waiting {
    /// Whether a thread is making progress.
    pub has_driver: Cell<bool>,
    sleepers: RefCell<Vec<Sleeper>>,
}

/// A sleeping thread.
struct Sleeper {
    /// Whether the thread's wait has ended. The pointer is valid until the thread is woken.
    ready: *mut dyn FnMut() -> bool,
    thread: Thread,
    woken: Arc<AtomicBool>,
}

impl Sleeper {
    fn wake(self) {
        // Release: pairs with the Acquire in `sleep`.
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Waiting {
    /// Wakes the threads whose waits have ended.
    pub fn wake_ready(&self) {
        if self.sleepers.borrow().is_empty() {
            return;
        }
        let mut sleepers = self.sleepers.borrow_mut();
        // SAFETY: the owner of the closure sleeps until it is woken, and the lock is held.
        let ready = sleepers.extract_if(.., |sleeper| unsafe { (*sleeper.ready)() });
        ready.for_each(Sleeper::wake);
    }

    /// Wakes a thread to make progress.
    pub fn wake_next(&self) {
        let next = self.sleepers.borrow_mut().pop();
        next.into_iter().for_each(Sleeper::wake);
    }

    /// Sleeps, without the lock, until `ready` or until no other thread makes progress.
    pub fn sleep(&self, ready: &mut dyn FnMut() -> bool) {
        let woken = Arc::new(AtomicBool::new(false));
        let ready: *mut (dyn FnMut() -> bool + '_) = ready;
        // SAFETY: only the lifetime changes; the pointer is not used after this function, which returns once the entry
        // is removed.
        let ready: *mut (dyn FnMut() -> bool + 'static) = unsafe { std::mem::transmute(ready) };
        let thread = std::thread::current();
        self.sleepers.borrow_mut().push(Sleeper { ready, thread, woken: Arc::clone(&woken) });
        let depth = LOCK.leave();
        // Acquire: pairs with the Release of `Sleeper::wake`.
        while !woken.load(Ordering::Acquire) {
            std::thread::park();
        }
        LOCK.enter(depth);
    }
}
