#![allow(unsafe_code)]
//! The table of regions that this rank exposes by key. Requests from peers are checked against it.
//!
//! Every access through a key holds the table's lock. Once [`Exposures::remove`] has returned, no request accesses the
//! memory, and the owner may free it.

use std::sync::Mutex;

use rustc_hash::FxHashMap;

/// Applies an accumulate to `bytes` bytes at `target`: `code` encodes operation and element type, `operand` points to
/// the operands, and the previous values go to `result` unless it is null. Returns `false`, without any access, if
/// `code` or `bytes` is invalid or `target` is not aligned for its elements. Codes come from peers: a code whose hints
/// ([`code`](crate::device::code)) contradict its operation is invalid, since the hints determine the length of the
/// operand.
///
/// # Safety (for callers)
/// `target`, and `result` unless it is null, are valid for `bytes` bytes, `operand` for [`operand_len(code,
/// bytes)`](crate::device::code::operand_len).
pub type AccumulateFn =
    unsafe fn(code: u32, target: *mut u8, operand: *const u8, result: *mut u8, bytes: usize) -> bool;

/// A region that peers may access by key.
#[derive(Clone, Copy, Debug)]
pub struct Exposed {
    /// First byte.
    pub base: *mut u8,
    /// Length in bytes.
    pub len: usize,
    /// The function that applies accumulates; `None` forbids them.
    pub accumulate: Option<AccumulateFn>,
}

// SAFETY: the pointer is only used under the table's lock, by the contract of `insert`.
unsafe impl Send for Exposed {}

/// All regions that one rank exposes.
#[derive(Debug, Default)]
pub struct Exposures {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    regions: FxHashMap<u64, Exposed>,
    last: u64,
}

impl Exposures {
    /// Exposes a region and returns its key. No key is used twice.
    ///
    /// # Safety
    /// The region stays valid until `remove` has returned; no code that assumes exclusive access uses it while peers
    /// may access it.
    pub unsafe fn insert(&self, region: Exposed) -> u64 {
        let mut t = self.lock();
        t.last += 1;
        let key = t.last;
        t.regions.insert(key, region);
        key
    }

    /// Returns a key that no region has or will have.
    pub fn reserve(&self) -> u64 {
        let mut t = self.lock();
        t.last += 1;
        t.last
    }

    /// Removes a region; returns whether `key` was in the table. Afterwards no request accesses the memory.
    pub fn remove(&self, key: u64) -> bool {
        self.lock().regions.remove(&key).is_some()
    }

    /// Calls `access` with the first byte of `[offset, offset + len)` if the range lies inside the region. Returns
    /// `None` for an unknown key, `Some(None)` for a range outside the region.
    pub fn with<R>(
        &self,
        key: u64,
        offset: u64,
        len: usize,
        access: impl FnOnce(*mut u8, &Exposed) -> R,
    ) -> Option<Option<R>> {
        let t = self.lock();
        let region = t.regions.get(&key)?;
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| end > region.len as u64) {
            return Some(None);
        }
        Some(Some(access(region.base.wrapping_add(offset as usize), region)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exposures_check_key_and_range() {
        let mut memory = [0u8; 16];
        let x = Exposures::default();
        // SAFETY: `memory` outlives the exposure and is not used in the meantime.
        let key = unsafe { x.insert(Exposed { base: memory.as_mut_ptr(), len: 16, accumulate: None }) };
        assert_eq!(x.with(key, 8, 8, |_, _| ()), Some(Some(())));
        assert_eq!(x.with(key, 9, 8, |_, _| ()), Some(None));
        assert_eq!(x.with(key, u64::MAX, 8, |_, _| ()), Some(None));
        assert_eq!(x.with(key + 1, 0, 1, |_, _| ()), None);
        assert!(x.remove(key) && !x.remove(key));
        assert_eq!(x.with(key, 0, 1, |_, _| ()), None);
    }
}
