//! Page-aligned memory, as the peers' program allocates it with posix_memalign, private or shared with other processes.
#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::atomic::AtomicU64;

use farside_core::error::{Error, Result};

/// Zeroed bytes that begin at a page, each page touched.
pub(crate) struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: only `self` refers to the memory; shared references only read, or use atomics.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Allocates memory that is private to this process.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        Self::map(bytes, libc::MAP_PRIVATE)
    }

    /// Allocates memory that is shared with processes forked later.
    pub(crate) fn shared(bytes: usize) -> Result<Self> {
        Self::map(bytes, libc::MAP_SHARED)
    }

    fn map(bytes: usize, sharing: libc::c_int) -> Result<Self> {
        let (bytes, rights) = (bytes.max(1), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice changes no existing memory.
        let start = unsafe { libc::mmap(null_mut(), bytes, rights, sharing | libc::MAP_ANONYMOUS, -1, 0) };
        let start = NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED);
        let Some(start) = start else {
            let error = Error::last_os("take memory for a measurement").cause(format!("{bytes} bytes"));
            return Err(error.remedy("choose smaller sizes"));
        };
        let mut pages = Self { start, bytes };
        // Every page is written, so that no page maps the kernel's shared zero page.
        pages.fill(0xff);
        pages.fill(0);
        Ok(pages)
    }

    /// The address of the first byte, for processes that share the memory and create no slices of it.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The word at offset `at`, for memory without slices.
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.bytes);
        // SAFETY: inside the mapping, aligned, and kept as long as `self`; accessed only as an atomic.
        unsafe { AtomicU64::from_ptr(self.as_ptr().add(at).cast()) }
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped with this size and initialized; the slice borrows `self`.
        unsafe { from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the borrow is exclusive.
        unsafe { from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `map` mapped; borrows of it have ended.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
