//! Page-aligned memory, as the peers' program takes it from posix_memalign.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use farside_core::error::{Error, ErrorKind, Result};

/// Zeroed bytes from the start of a page on, each page touched.
#[derive(Debug)]
pub(super) struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

impl Pages {
    pub(super) fn new(bytes: usize) -> Result<Self> {
        let no_memory = || {
            Error::new(ErrorKind::Limit, "take memory for a measurement")
                .cause(format!("{bytes} bytes"))
                .remedy("choose smaller sizes")
        };
        // SAFETY: no memory is touched.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let layout = Layout::from_size_align(bytes.max(1), page).map_err(|_| no_memory())?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(no_memory)?;
        let mut pages = Self { start, layout };
        // Written, so that no page is the one page of zeros.
        pages.fill(0xff);
        pages.fill(0);
        Ok(pages)
    }

    /// The first byte, for those who share the memory; nobody uses slices of it then.
    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: allocated with this size and initialized; borrowed as `self` is.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as `deref`, exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: from the same allocator with the same layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}
