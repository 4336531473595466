#![allow(unsafe_code)]
//! Shared-memory segments: files without a name on a memory file system, so that none can stay behind, with
//! all their pages reserved when they are made, so that a full file system is an error and never a `SIGBUS`.
//!
//! Another rank of the node opens the segment through `/proc/<pid>/fd/<fd>`, which the kernel allows to the
//! same user only.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind, Result};
use crate::wire::{Reader, Writer};

/// The page size that all lengths are rounded to.
pub const PAGE: usize = 4096;

/// Rounds up to whole pages.
#[must_use]
pub const fn page_up(len: usize) -> usize {
    len.div_ceil(PAGE) * PAGE
}

/// Mapped shared memory. Others write it at any time: it is read and written by atomics and raw copies only. Clones are
/// the same memory, which stays mapped as long as one of them, or a [`Line`] of it, is there.
#[derive(Clone, Debug)]
pub struct Mapping {
    map: Arc<MmapRaw>,
}

/// The words of a cache line of a [`Mapping`].
#[derive(Debug)]
pub struct Line {
    words: NonNull<[AtomicU64; 8]>,
    _map: Arc<MmapRaw>,
}

// SAFETY: a reference to atomics, which any thread may use, in memory that lives as long as this.
unsafe impl Send for Line {}
// SAFETY: as above.
unsafe impl Sync for Line {}

impl Deref for Line {
    type Target = [AtomicU64; 8];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64; 8] {
        // SAFETY: inside the mapping, aligned, initialized, and accessed by every rank through atomics of this size only
        // (see `Mapping::line`); it is mapped as long as `_map` is there.
        unsafe { self.words.as_ref() }
    }
}

impl Mapping {
    fn of(file: &File, len: usize) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        options.len(len);
        if len <= 64 << 20 {
            options.populate();
        }
        Ok(Self { map: Arc::new(options.map_raw(file)?) })
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there is nothing in it (never the case).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of byte `offset`.
    ///
    /// # Panics
    /// If `offset` is outside: offsets are computed here and never taken from a peer unchecked.
    #[must_use]
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len(), "offset {offset} outside a segment of {}", self.len());
        self.map.as_mut_ptr().wrapping_add(offset)
    }

    /// The 64-bit word at `offset`.
    ///
    /// # Panics
    /// If the word is outside or misaligned.
    #[must_use]
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len());
        // SAFETY: inside the mapping, aligned (mappings start at page boundaries), zero-initialized, alive as
        // long as `self`, and accessed by every rank through atomics of this size only.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(offset).cast()) }
    }

    /// The words of the cache line at `offset`.
    ///
    /// # Panics
    /// If the line is outside or misaligned.
    #[must_use]
    pub fn line(&self, offset: usize) -> Line {
        assert!(offset.is_multiple_of(64) && offset + 64 <= self.len());
        // SAFETY: inside the mapping, as just checked, so not null. Mappings start at page boundaries and are
        // zero-initialized.
        let words = unsafe { NonNull::new_unchecked(self.map.as_mut_ptr().add(offset).cast()) };
        Line { words, _map: Arc::clone(&self.map) }
    }

    /// The 32-bit word at `offset`.
    ///
    /// # Panics
    /// If the word is outside or misaligned.
    #[must_use]
    #[inline]
    pub fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len());
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(self.map.as_mut_ptr().add(offset).cast()) }
    }
}

/// A segment that this rank made, with the descriptor by which others open it.
#[derive(Debug)]
pub struct Segment {
    mapping: Mapping,
    file: Option<File>,
}

/// By what another rank opens a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentName {
    /// Process that made it.
    pub pid: u32,
    /// Its descriptor there.
    pub fd: u32,
    /// Length in bytes.
    pub len: u64,
    /// Number of its file: a descriptor may be closed and used again.
    pub inode: u64,
}

impl SegmentName {
    /// Adds the name to a message.
    #[must_use]
    pub fn write(self, w: Writer) -> Writer {
        w.u32(self.pid).u32(self.fd).u64(self.len).u64(self.inode)
    }

    /// Reads what [`write`](Self::write) has written.
    pub fn read(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self { pid: r.u32()?, fd: r.u32()?, len: r.u64()?, inode: r.u64()? })
    }
}

impl Segment {
    /// Makes a segment of at least `len` bytes (rounded to pages) in `dir`, zeroed, mode 0600, without a name.
    ///
    /// # Errors
    /// `SharedMemoryFull` when the pages cannot be reserved; `System` for anything else.
    pub fn create(dir: &Path, len: usize) -> Result<Self> {
        if len > isize::MAX as usize / 2 {
            let e = Error::new(ErrorKind::SharedMemoryFull, "make a shared segment");
            return Err(e.cause(format!("{len} bytes are more than an address space holds")));
        }
        let len = page_up(len.max(1));
        let file = anonymous_file(dir, len)?;
        let mapping = Mapping::of(&file, len).map_err(|e| Error::system("map a shared segment", e))?;
        Ok(Self { mapping, file: Some(file) })
    }

    /// Its name for other ranks.
    ///
    /// # Errors
    /// `Freed` after [`close_name`](Self::close_name).
    pub fn name(&self) -> Result<SegmentName> {
        const OP: &str = "name a shared segment";
        let file = self.file.as_ref().ok_or_else(|| Error::new(ErrorKind::Freed, OP))?;
        let inode = file.metadata().map_err(|e| Error::system(OP, e))?.ino();
        Ok(SegmentName { pid: std::process::id(), fd: file.as_raw_fd() as u32, len: self.mapping.len() as u64, inode })
    }

    /// Closes the descriptor once every rank that needs it has mapped it; the memory stays.
    pub fn close_name(&mut self) {
        self.file = None;
    }

    /// The memory.
    #[must_use]
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The file, while the name is open.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }
}

/// Opens and maps another rank's segment.
///
/// # Errors
/// `PeerLost` when that process or its descriptor is gone; `Forbidden` when the system denies it; `Protocol`
/// when the file is not the one that was announced, or none that a rank makes for this.
pub fn open(name: SegmentName, peer: u32) -> Result<Mapping> {
    const OP: &str = "map a peer's shared segment";
    let path = format!("/proc/{}/fd/{}", name.pid, name.fd);
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(|e| {
        let kind = match e.kind() {
            io::ErrorKind::NotFound => ErrorKind::PeerLost,
            io::ErrorKind::PermissionDenied => ErrorKind::Forbidden,
            _ => ErrorKind::System,
        };
        Error::new(kind, OP).peer(peer).cause(path.clone()).source_error(e)
    })?;
    let meta = file.metadata().map_err(|e| Error::system(OP, e).peer(peer))?;
    let len = meta.len();
    if len != name.len || len == 0 {
        return Err(Error::new(ErrorKind::Protocol, OP)
            .peer(peer)
            .cause(format!("{path} has {len} bytes, {} were announced", name.len)));
    }
    // A segment's file never had a name, so that no file of somebody else can pass for one.
    if !meta.is_file() || meta.nlink() != 0 || meta.ino() != name.inode {
        return Err(Error::new(ErrorKind::Protocol, OP).peer(peer).cause(format!("{path} is another file")));
    }
    Mapping::of(&file, len as usize).map_err(|e| Error::system(OP, e).peer(peer))
}

fn anonymous_file(dir: &Path, len: usize) -> Result<File> {
    const OP: &str = "make a shared segment";
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR).map_err(|e| {
        Error::system(OP, e.into())
            .cause(format!("a file without a name in {}", dir.display()))
            .remedy("set FARSIDE_SHM_DIR to a directory on tmpfs where this user may write")
    })?;
    fallocate(&file, FallocateFlags::empty(), 0, len as u64).map_err(|e| {
        let kind = match e {
            Errno::NOSPC | Errno::DQUOT | Errno::NOMEM | Errno::FBIG => ErrorKind::SharedMemoryFull,
            _ => ErrorKind::System,
        };
        Error::new(kind, OP).cause(format!("{len} bytes in {}", dir.display())).source_error(e.into())
    })?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn segment_opened_by_its_name_is_the_same_memory() {
        let mut s = Segment::create(Path::new("/dev/shm"), 100).unwrap();
        assert_eq!(s.mapping().len(), PAGE);
        let other = open(s.name().unwrap(), 0).unwrap();
        s.close_name();
        s.mapping().word(64).store(7, Ordering::SeqCst);
        assert_eq!(other.word(64).load(Ordering::SeqCst), 7);
        assert!(s.name().is_err());
    }

    #[test]
    fn segment_larger_than_the_file_system_is_an_error() {
        let e = Segment::create(Path::new("/dev/shm"), 1 << 45).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::SharedMemoryFull, "{e}");
    }

    #[test]
    fn segment_name_with_another_length_is_refused() {
        let s = Segment::create(Path::new("/dev/shm"), PAGE).unwrap();
        let mut name = s.name().unwrap();
        name.len += 1;
        assert_eq!(open(name, 3).unwrap_err().kind(), ErrorKind::Protocol);
        name.len -= 1;
        name.inode += 1;
        assert_eq!(open(name, 3).unwrap_err().kind(), ErrorKind::Protocol);
        name.fd = 60_000;
        assert_eq!(open(name, 3).unwrap_err().kind(), ErrorKind::PeerLost);
    }
}
