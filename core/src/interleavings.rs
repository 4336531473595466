//! Models: protocols between ranks, run by `loom` through every interleaving and every reordering that the memory model
//! allows, up to a bound on preemptions.
//!
//! The code under test is the production code, run over the words of this module. Each model runs again with [`Fault`]s
//! injected into some words and must detect each of them.

use std::collections::HashMap;
use std::sync::{Arc, atomic::Ordering};

use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::sync::atomic::AtomicU64;
use loom::thread::Thread;

use crate::device::Block;
use crate::memory::words::{Memory, Word};

/// A fault injected into a word.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    No,
    /// Accesses are Relaxed, whatever ordering the code requests.
    Relaxed,
    /// Stores another value, or does not store at all.
    Stores(fn(u64) -> Option<u64>),
}

/// A word of a model.
#[derive(Debug)]
pub(crate) struct ModelWord {
    value: AtomicU64,
    fault: Fault,
    /// The model's record of plain accesses: a write concurrent with another access fails the model.
    bytes: UnsafeCell<()>,
}

#[allow(unsafe_code)]
// SAFETY: the cell has no value, only the model's record of its accesses.
unsafe impl Sync for ModelWord {}

impl ModelWord {
    pub(crate) fn new(value: u64, fault: Fault) -> Self {
        Self { value: AtomicU64::new(value), fault, bytes: UnsafeCell::new(()) }
    }

    // Relaxed: this is the injected fault, which pairs with nothing.
    fn order(&self, order: Ordering) -> Ordering {
        if matches!(self.fault, Fault::Relaxed) { Ordering::Relaxed } else { order }
    }
}

macro_rules! word {
    ($value:ty) => {
        impl Word<$value> for ModelWord {
            fn load(&self, order: Ordering) -> $value {
                self.value.load(self.order(order)) as $value
            }
            fn store(&self, value: $value, order: Ordering) {
                let value = match self.fault {
                    Fault::Stores(what) => what(value.into()),
                    _ => Some(value.into()),
                };
                if let Some(value) = value {
                    self.value.store(value, self.order(order));
                }
            }
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.value.swap(value.into(), self.order(order)) as $value
            }
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.value.fetch_add(value.into(), self.order(order)) as $value
            }
            fn compare_exchange(&self, a: $value, b: $value, yes: Ordering, no: Ordering) -> Result<$value, $value> {
                let result = self.value.compare_exchange(a.into(), b.into(), self.order(yes), no);
                result.map(|v| v as $value).map_err(|v| v as $value)
            }
        }
    };
}
word!(u64);
word!(u32);

/// Cache lines of memory, by offset.
#[derive(Clone, Debug)]
pub(crate) struct Lines(Arc<HashMap<usize, &'static [ModelWord; 8]>>);

impl Lines {
    /// Lines of zeros at these offsets, with faults by the offset of the word.
    pub(crate) fn new(offsets: impl IntoIterator<Item = usize>, fault: impl Fn(usize) -> Fault) -> Self {
        let line = |at| leak(std::array::from_fn(|word| ModelWord::new(0, fault(at + 8 * word))));
        Self(Arc::new(offsets.into_iter().map(|at| (at, line(at))).collect()))
    }

    /// Offset and byte range of the words that represent a copy of `len` bytes: the first two words of each half of a
    /// line represent the half.
    fn copied(offset: usize, len: usize) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
        assert!(offset.is_multiple_of(8) && len.is_multiple_of(8));
        (0..len).step_by(8).filter(move |i| (offset + i) % 32 < 16).map(move |i| (offset + i, i..i + 8))
    }
}

#[allow(unsafe_code)]
impl Memory for Lines {
    type Word = ModelWord;
    type Line = &'static [ModelWord; 8];

    fn word(&self, offset: usize) -> &ModelWord {
        &self.0[&(offset & !63)][offset % 64 / 8]
    }

    fn words<const N: usize>(&self, offset: usize) -> &[ModelWord; N] {
        self.0[&(offset & !63)][offset % 64 / 8..].first_chunk().unwrap()
    }

    fn line(&self, offset: usize) -> &'static [ModelWord; 8] {
        self.0[&offset]
    }

    unsafe fn store_packet(&self, offset: usize, header: &[u8], body: &[Block], _foreign: bool) {
        assert!(body.is_empty());
        for (at, bytes) in Self::copied(offset, header.len()) {
            let value = u64::from_le_bytes(header[bytes].try_into().unwrap());
            self.word(at).bytes.with_mut(|_| ());
            // Relaxed: plain bytes, which the protocol must order.
            Word::<u64>::store(self.word(at), value, Ordering::Relaxed);
        }
    }

    unsafe fn load_packet(&self, offset: usize, packet: &mut [u8]) {
        for (at, bytes) in Self::copied(offset, packet.len()) {
            self.word(at).bytes.with(|_| ());
            // Relaxed: plain bytes, which the protocol must order.
            packet[bytes].copy_from_slice(&Word::<u64>::load(self.word(at), Ordering::Relaxed).to_le_bytes());
        }
    }
}

/// A futex. As in the kernel, comparing and going to sleep happen under the lock under which a waker searches for the
/// sleeper.
pub(crate) struct Futex {
    pub(crate) word: ModelWord,
    sleeper: Mutex<Option<Thread>>,
}

impl Futex {
    pub(crate) fn new() -> Self {
        Self { word: ModelWord::new(0, Fault::No), sleeper: Mutex::new(None) }
    }

    /// Sleeps until woken if the word is `expected`; for one thread at a time.
    pub(crate) fn wait(&self, expected: u32) {
        {
            let mut sleeper = self.sleeper.lock().unwrap();
            if Word::<u32>::load(&self.word, Ordering::SeqCst) != expected {
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

    pub(crate) fn wake(&self) {
        let sleeper = self.sleeper.lock().unwrap().take();
        if let Some(sleeper) = sleeper {
            sleeper.unpark();
        }
    }
}

/// Runs a model with at most `preemptions` involuntary switches of threads.
pub(crate) fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Runs a model with an injected fault, which it must detect.
pub(crate) fn caught(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let run = std::panic::AssertUnwindSafe(|| check(preemptions, model));
    assert!(std::panic::catch_unwind(run).is_err(), "the model does not notice the fault");
}

/// Leaks the state of one run: a model that ends by a panic must not drop objects that loom no longer tracks.
pub(crate) fn leak<T>(state: T) -> &'static T {
    Box::leak(Box::new(state))
}
