#![allow(unsafe_code)]
//! Model checking (`loom`) of the table: every interleaving of one writer and several readers. The model must detect
//! every variant with an injected fault.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicPtr, AtomicUsize, fence};

use super::{CHUNKS, Entry, FIRST, Pointer, Reclaim, Table};
use crate::constants::Win;
use crate::handle::Handle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    No,
    /// An entry is freed although threads may read it.
    FreesAtOnce,
    /// A reader may load the pointer before its announcement is visible.
    PinsWithoutFence,
    /// An entry is published without Release ordering.
    PublishesRelaxed,
}

/// A value that no object contains.
const FREED: u64 = u64::MAX;

struct ModelPointer<V>(AtomicPtr<V>, Broken);

impl<V> Pointer<V> for ModelPointer<V> {
    fn new(entry: *mut V) -> Self {
        Self(AtomicPtr::new(entry), Broken::No)
    }

    fn load(&self, order: Ordering) -> *mut V {
        self.0.load(order)
    }

    fn swap(&self, entry: *mut V, order: Ordering) -> *mut V {
        // Relaxed: the injected fault, which pairs with nothing.
        self.0.swap(entry, if self.1 == Broken::PublishesRelaxed { Ordering::Relaxed } else { order })
    }
}

/// An object. Leaked, since a model that panics must not drop
/// objects that loom no longer tracks.
struct Object(&'static UnsafeCell<u64>);

// SAFETY: every access to the cell is tracked by loom, which reports those that are not ordered.
unsafe impl Sync for Object {}
// SAFETY: as above.
unsafe impl Send for Object {}

impl Object {
    fn new(value: u64) -> Self {
        let object = Self(Box::leak(Box::new(UnsafeCell::new(FREED))));
        // loom treats this as an access, which must happen before the accesses of readers. SAFETY: no other thread has
        // the cell yet.
        object.0.with_mut(|at| unsafe { *at = value });
        object
    }

    fn get(&self) -> u64 {
        // SAFETY: loom checks that no other thread writes the cell meanwhile.
        self.0.with(|value| unsafe { *value })
    }
}

/// Reclamation that counts readers and waits for a count of 0. As in `crossbeam-epoch`, fences order a reader's
/// announcement before its load of the pointer, and the swap of the pointer before the check for readers.
struct ModelReclaim {
    readers: &'static AtomicUsize,
    broken: Broken,
}

struct ModelGuard(&'static AtomicUsize);

impl Drop for ModelGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Reclaim<Entry<Object>> for ModelReclaim {
    type Pointer = ModelPointer<Entry<Object>>;
    type Guard = ModelGuard;

    fn pin(&self) -> ModelGuard {
        self.readers.fetch_add(1, Ordering::SeqCst);
        if self.broken != Broken::PinsWithoutFence {
            fence(Ordering::SeqCst);
        }
        ModelGuard(self.readers)
    }

    unsafe fn retire(&self, _: &ModelGuard, entry: *mut Entry<Object>) {
        fence(Ordering::SeqCst);
        // The caller itself counts as a reader.
        while self.broken != Broken::FreesAtOnce && self.readers.load(Ordering::SeqCst) > 1 {
            loom::thread::yield_now();
        }
        // SAFETY: the entry is leaked; loom checks that no other thread uses the cell meanwhile.
        unsafe { &(*entry).1 }.0.with_mut(|value| unsafe { *value = FREED });
    }

    fn wait_for_readers(&self) {
        while self.readers.load(Ordering::SeqCst) > 0 {
            loom::thread::yield_now();
        }
    }
}

/// One thread replaces and removes an object, while another thread looks it up and looks up an object that is not
/// changed.
fn replaced_while_read(broken: Broken) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let [handle, other] = [4096, 4097].map(|at| Win(Win::KIND << 56 | 1 << 32 | at));
        let entry = |at: usize| match at {
            0 => Box::into_raw(Box::new((handle.0, Object::new(1)))),
            1 => Box::into_raw(Box::new((other.0, Object::new(7)))),
            _ => std::ptr::null_mut(),
        };
        let table: &'static Table<Object, ModelReclaim> = Box::leak(Box::new(Table {
            chunks: [const { OnceLock::new() }; CHUNKS],
            reclaim: ModelReclaim { readers: Box::leak(Box::new(AtomicUsize::new(0))), broken },
        }));
        let chunk = (0..FIRST).map(|at| ModelPointer(AtomicPtr::new(entry(at)), broken)).collect();
        assert!(table.chunks[0].set(chunk).is_ok());
        let reader = loom::thread::spawn(move || [handle, other].map(|handle| table.with(handle.0, Object::get)));
        table.insert(handle, || Object::new(2));
        table.remove(handle);
        let [found, stays] = reader.join().unwrap();
        assert!([Some(1), Some(2), None].contains(&found) && stays == Some(7));
    });
}

#[test]
fn table_model_frees_no_entry_that_is_read() {
    replaced_while_read(Broken::No);
}

#[test]
fn table_model_notices_what_the_table_needs() {
    for broken in [Broken::FreesAtOnce, Broken::PinsWithoutFence, Broken::PublishesRelaxed] {
        let caught = std::panic::catch_unwind(|| replaced_while_read(broken));
        assert!(caught.is_err(), "{broken:?} is not detected");
    }
}
