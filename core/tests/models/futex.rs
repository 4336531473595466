//! A futex: the kernel compares and goes to sleep under the lock under which wakers look for the sleeper.

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread::Thread;

pub struct Futex {
    pub word: AtomicU32,
    sleeper: Mutex<Option<Thread>>,
}

impl Futex {
    pub fn new() -> Self {
        Self { word: AtomicU32::new(0), sleeper: Mutex::new(None) }
    }

    /// Sleeps while the word is `expected`, until somebody wakes; by one thread at a time.
    pub fn wait(&self, expected: u32) {
        {
            let mut sleeper = self.sleeper.lock().unwrap();
            if self.word.load(Ordering::SeqCst) != expected {
                return;
            }
            *sleeper = Some(loom::thread::current());
        }
        // No lock is held here: a deadlock ends the model by a panic in `park`.
        loop {
            loom::thread::park();
            if self.sleeper.lock().unwrap().is_none() {
                return;
            }
        }
    }

    pub fn wake(&self) {
        let sleeper = self.sleeper.lock().unwrap().take();
        if let Some(sleeper) = sleeper {
            sleeper.unpark();
        }
    }
}
