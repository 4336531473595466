#![allow(unsafe_code)]
//! Waits of several threads. One thread at a time makes progress for all of them; the others sleep, and are woken when what they
//! wait for is there, or to take its place. While it makes progress it has the lock, and lets in any other thread that wants it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

use farside_core::Job;
use farside_core::bill::Awaited;

use crate::fail::Result;
use crate::lock::LOCK;
use crate::runtime::Call;

/// The threads that wait.
#[derive(Default)]
pub struct Waiting {
    /// Whether a thread makes progress.
    driven: Cell<bool>,
    sleepers: RefCell<Vec<Sleeper>>,
    /// What is to be done when a message of this library has come.
    deferred: RefCell<Vec<Deferred>>,
}

/// Does what can be done; whether that was the last of it.
type Deferred = Box<dyn FnMut() -> bool>;

/// A thread that sleeps until it is woken.
struct Sleeper {
    /// What it waits for. Valid until it is woken.
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
    /// Has every wait and test call `work` until it returns `true`.
    pub fn defer(&self, mut work: Deferred) {
        if !work() {
            self.deferred.borrow_mut().push(work);
        }
    }

    /// Does what was deferred, as far as that is possible now. Called between two turns of every wait of the job, and by tests.
    #[inline]
    pub fn do_deferred(&self) {
        if !self.deferred.borrow().is_empty() {
            // Not borrowed meanwhile: what is started may make progress.
            let mut deferred = self.deferred.take();
            deferred.retain_mut(|work| !work());
            self.deferred.borrow_mut().append(&mut deferred);
        }
    }

    /// Wakes the threads whose wait is over.
    fn wake_ready(&self) {
        let mut sleepers = self.sleepers.borrow_mut();
        // SAFETY: the owner of the closure sleeps until it is woken, and the lock is held.
        let ready = sleepers.extract_if(.., |sleeper| unsafe { (*sleeper.ready)() });
        ready.for_each(Sleeper::wake);
    }

    /// Wakes a thread that is to make progress now.
    fn wake_next(&self) {
        let next = self.sleepers.borrow_mut().pop();
        next.into_iter().for_each(Sleeper::wake);
    }

    /// Sleeps, without the lock, until `ready` or until no other thread makes progress.
    fn sleep(&self, ready: &mut dyn FnMut() -> bool) {
        let woken = Arc::new(AtomicBool::new(false));
        let ready: *mut (dyn FnMut() -> bool + '_) = ready;
        // SAFETY: only the lifetime changes; it is not used after this function, which returns once the entry is gone.
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

impl Call<'_> {
    /// Waits until `ready`, which peers or other threads bring about. Makes progress.
    #[inline]
    pub fn wait(&self, ready: impl FnMut() -> bool) -> Result {
        self.wait_until(|| None, ready)
    }

    /// The same; `awaited` says what for, at any time, if that is known.
    #[inline]
    pub fn wait_until(&self, awaited: impl Fn() -> Option<Awaited>, mut ready: impl FnMut() -> bool) -> Result {
        if ready() {
            return Ok(());
        }
        let awaited = || awaited().unwrap_or(Awaited::unknown(self.name));
        Ok(self.wait_for(&self.job()?, awaited, ready)?)
    }

    /// The same, for what is not there yet.
    pub fn wait_for(
        &self,
        job: &Job,
        awaited: impl Fn() -> Awaited,
        mut ready: impl FnMut() -> bool,
    ) -> farside_core::Result<()> {
        let waiting = &self.waiting;
        while waiting.driven.get() {
            waiting.sleep(&mut ready);
            if ready() {
                if !waiting.driven.get() {
                    waiting.wake_next();
                }
                return Ok(());
            }
        }
        waiting.driven.set(true);
        let ended = job.wait_for(awaited, || {
            if ready() {
                return Ok(Some(()));
            }
            if !waiting.sleepers.borrow().is_empty() {
                waiting.wake_ready();
            }
            Ok(None)
        });
        waiting.driven.set(false);
        waiting.wake_next();
        ended
    }

    /// Whether `ready`, at the latest after one turn of progress.
    #[inline]
    pub fn test(&self, mut ready: impl FnMut() -> bool) -> Result<bool> {
        if ready() {
            return Ok(true);
        }
        self.job()?.progress_of_test()?;
        self.waiting.do_deferred();
        if LOCK.is_wanted() {
            LOCK.let_in();
        }
        Ok(ready())
    }
}
