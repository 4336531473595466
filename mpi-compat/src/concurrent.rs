#![allow(unsafe_code)]
//! Tables of objects that any thread reads without a lock.
//!
//! A table has a pointer to an immutable entry for each handle index. A reader first pins the current epoch and then
//! follows the pointer. A writer, which holds the lock, replaces the pointer and retires the old entry, which is freed
//! once every thread that was pinned at that time has unpinned (`crossbeam-epoch`: K. Fraser, "Practical lock-freedom",
//! 2004, section 5.2.3). So a read costs a fence. The pointers are in chunks that are never moved, each twice as long
//! as the one before, so that the cost of a change does not depend on the length of the table.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_epoch::{self as epoch, Guard};

use crate::handle::{self, Handle};

/// A pointer to an entry, abstracted for the table and its `loom` model.
pub trait Pointer<V> {
    fn new(entry: *mut V) -> Self;
    fn load(&self, order: Ordering) -> *mut V;
    fn swap(&self, entry: *mut V, order: Ordering) -> *mut V;
}

impl<V> Pointer<V> for AtomicPtr<V> {
    fn new(entry: *mut V) -> Self {
        Self::new(entry)
    }

    #[inline(always)]
    fn load(&self, order: Ordering) -> *mut V {
        self.load(order)
    }

    fn swap(&self, entry: *mut V, order: Ordering) -> *mut V {
        self.swap(entry, order)
    }
}

/// The reclamation scheme of retired entries.
pub trait Reclaim<V> {
    type Pointer: Pointer<V>;
    /// A guard: while it lives, no entry is freed that was current when the guard was created or later.
    type Guard;
    /// Also a full fence, unless the thread has a guard already.
    fn pin(&self) -> Self::Guard;

    /// Frees an entry once no guard older than this call exists.
    ///
    /// # Safety
    /// The entry was made by `Box::into_raw`. Threads that pin from now on cannot reach it, and any thread may drop it.
    unsafe fn retire(&self, guard: &Self::Guard, entry: *mut V);

    /// Waits until no guard older than this call exists. The caller holds none.
    fn wait_for_readers(&self);
}

/// Reclamation by the epochs of `crossbeam-epoch`.
#[derive(Default)]
pub struct EpochReclaim;

impl<V> Reclaim<V> for EpochReclaim {
    type Pointer = AtomicPtr<V>;
    type Guard = Guard;

    #[inline(always)]
    fn pin(&self) -> Guard {
        epoch::pin()
    }

    unsafe fn retire(&self, guard: &Guard, entry: *mut V) {
        // SAFETY: by the contract; `defer_unchecked` runs the function once no thread that is pinned now is still
        // pinned.
        unsafe { guard.defer_unchecked(move || drop(Box::from_raw(entry))) };
    }

    fn wait_for_readers(&self) {
        let has_ended = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&has_ended);
        // Release: pairs with the Acquire below.
        epoch::pin().defer(move || flag.store(true, Ordering::Release));
        // Acquire: pairs with the Release above, which the epochs order after the accesses of all readers.
        while !has_ended.load(Ordering::Acquire) {
            // Each flush may advance the epoch by one.
            epoch::pin().flush();
            std::thread::yield_now();
        }
    }
}

/// A handle, and its object.
pub type Entry<T> = (usize, T);

/// Number of pointers in the first chunk.
const FIRST: usize = 8;
const CHUNKS: usize = 28;

/// Objects by their handles.
pub struct Table<T, R: Reclaim<Entry<T>> = EpochReclaim> {
    chunks: [OnceLock<Box<[R::Pointer]>>; CHUNKS],
    reclaim: R,
}

impl<T: Send + Sync + 'static, R: Reclaim<Entry<T>> + Default> Default for Table<T, R> {
    fn default() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS], reclaim: R::default() }
    }
}

impl<T: Send + Sync + 'static, R: Reclaim<Entry<T>>> Table<T, R> {
    /// The chunk of a handle, and the index in it; `None` for a value whose index no handle can have.
    #[inline(always)]
    fn place(value: usize) -> Option<(usize, usize)> {
        let index = handle::index_of(value);
        let chunk = (index / FIRST).checked_add(1)?.ilog2() as usize;
        (chunk < CHUNKS).then(|| (chunk, index - ((1 << chunk) - 1) * FIRST))
    }

    /// Calls `f` with the object of a handle, in any thread, after a full fence; `None` if the value is no current
    /// handle. `f` must neither wait for other threads nor use the table.
    #[inline(always)]
    pub fn with<U>(&self, value: usize, f: impl FnOnce(&T) -> U) -> Option<U> {
        let (chunk, at) = Self::place(value)?;
        let _guard = self.reclaim.pin();
        // Acquire: pairs with the AcqRel of `replace`.
        let entry = self.chunks[chunk].get()?.get(at)?.load(Ordering::Acquire);
        // SAFETY: null, or an entry that was current after the guard was made, which lives until `f` has returned.
        let (of, object) = unsafe { entry.as_ref() }?;
        (*of == value).then(|| f(object))
    }

    /// Stores the object that `make` returns for a handle. The caller holds the lock.
    pub fn insert<H: Handle>(&self, handle: H, make: impl FnOnce() -> T) {
        let value = handle.value();
        self.replace(value, || Box::into_raw(Box::new((value, make()))));
    }

    /// Removes the object of a handle, if there is one; on return no thread uses it any more. The caller holds the
    /// lock.
    pub fn remove<H: Handle>(&self, handle: H) {
        if self.with(handle.value(), |_| ()).is_some() {
            self.replace(handle.value(), std::ptr::null_mut);
            self.reclaim.wait_for_readers();
        }
    }

    /// Replaces the current entry by another entry or null.
    fn replace(&self, value: usize, entry: impl FnOnce() -> *mut Entry<T>) {
        let Some((chunk, at)) = Self::place(value) else { unreachable!("the index of a handle") };
        let new = || (0..FIRST << chunk).map(|_| Pointer::new(std::ptr::null_mut())).collect();
        let guard = self.reclaim.pin();
        // AcqRel: Release pairs with the Acquire of `with`, which reads the entry; Acquire pairs with the previous
        // change, whose entry is freed.
        let old = self.chunks[chunk].get_or_init(new)[at].swap(entry(), Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: made by `insert`, and no longer current; `T` is `Send`, and `'static`.
            unsafe { self.reclaim.retire(&guard, old) };
        }
    }
}

#[cfg(test)]
mod models;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants::Win;

    /// The window handle with this index and generation.
    fn window(index: usize, generation: usize) -> Win {
        Win((Win::KIND << 56 | generation << 32) + index + 4096)
    }

    #[test]
    fn table_finds_objects_by_their_handles_alone() {
        let table = Table::<usize>::default();
        table.insert(window(3, 1), || 30);
        table.insert(window(0, 1), || 10);
        let find = |handle: Win| table.with(handle.0, |object| *object);
        assert_eq!((find(window(3, 1)), find(window(0, 1))), (Some(30), Some(10)));
        assert_eq!([window(3, 2), window(1, 1), window(9, 1), Win(0x110), Win(0)].map(find), [None; 5]);
        table.remove(window(3, 1));
        table.insert(window(3, 2), || 31);
        assert_eq!((find(window(3, 1)), find(window(3, 2))), (None, Some(31)));
        // Every index has a distinct position.
        (4..5000).for_each(|index| table.insert(window(index, 1), || index));
        assert!((4..5000).all(|index| find(window(index, 1)) == Some(index)));
    }

    #[test]
    fn table_is_read_while_it_changes() {
        let table = Table::<Arc<usize>>::default();
        let dropped = Arc::new(7);
        table.insert(window(0, 1), || Arc::clone(&dropped));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        assert_eq!(table.with(window(0, 1).0, |object| **object), Some(7));
                        table.with(window(1, 1).0, |object| assert_eq!(**object, 1));
                    }
                });
            }
            for _ in 0..100 {
                table.insert(window(1, 1), || Arc::new(1));
                table.remove(window(1, 1));
            }
        });
        table.remove(window(0, 1));
        assert_eq!(Arc::strong_count(&dropped), 1, "its entry has been freed");
    }
}
