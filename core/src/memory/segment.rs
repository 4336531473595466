#![allow(unsafe_code)]
//! Shared-memory segments: unnamed files on a memory file system, which cannot outlive their users. All their pages are
//! reserved at creation, so that a full file system gives an error and never a `SIGBUS`.
//!
//! Large window memory is in files of the kernel's own memory file system (`memfd_create`), which has no size limit.
//! Their pages are allocated at the first access, like those of private memory; in both cases the kernel kills a
//! process when the machine has no memory left.
//!
//! If the system refuses one of the two kinds of files, the other kind is used instead; if it refuses `fallocate`,
//! zeros are written.
//!
//! Another rank of the node opens the segment through `/proc/<pid>/fd/<fd>`, which the kernel allows only to the same
//! user, in the same user namespace, of a program that this user may read.

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
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, fallocate, fchmod, fstatvfs, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};
use rustix::process::{Resource, getrlimit};

use crate::error::{Error, ErrorKind, Result};
use crate::wire::{Reader, Writer};

/// The page size; all lengths are rounded up to it.
pub(crate) const PAGE: usize = 4096;

fn non_null(base: *mut u8) -> io::Result<NonNull<u8>> {
    NonNull::new(base).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Rounds up to whole pages.
pub(crate) const fn page_up(len: usize) -> usize {
    len.div_ceil(PAGE) * PAGE
}

/// Mapped shared memory. Other ranks write it at any time, so it is read and written only by atomics and raw copies. A
/// clone refers to the same memory, which stays mapped until the last clone and the last [`Line`] are dropped.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    /// First byte and length: all of `map`, unless an alignment was requested.
    base: NonNull<u8>,
    len: usize,
    map: Arc<MmapRaw>,
}

// SAFETY: the interface allows only accesses that any thread may make, and the memory stays mapped as long as `map`
// exists.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// The words of one cache line of a [`Mapping`].
pub(crate) struct Line {
    words: NonNull<[AtomicU64; 8]>,
    _map: Arc<MmapRaw>,
}

// SAFETY: a reference to atomics, which any thread may use; `_map` keeps the memory mapped.
unsafe impl Send for Line {}
// SAFETY: as above.
unsafe impl Sync for Line {}

impl Deref for Line {
    type Target = [AtomicU64; 8];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64; 8] {
        // SAFETY: inside the mapping, aligned, initialized, and accessed by every rank only through atomics of this
        // size (see `Mapping::line`); `_map` keeps it mapped.
        unsafe { self.words.as_ref() }
    }
}

/// The time at which the pages of a mapping are entered into the page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// When the memory is mapped, because it is used soon. Only up to 64 MiB; pages of longer mappings at their first
    /// access.
    AtOnce,
    /// When a page is first accessed.
    WhenTouched,
}

impl Mapping {
    fn of(file: &File, offset: u64, len: usize, pages: Pages) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        options.offset(offset).len(len);
        if pages == Pages::AtOnce && len <= 64 << 20 {
            options.populate();
        }
        let map = options.map_raw(file)?;
        Ok(Self { base: non_null(map.as_mut_ptr())?, len, map: Arc::new(map) })
    }

    /// Maps the file at a multiple of `align`, a power of two larger than a page, inside an address range reserved for
    /// it.
    fn aligned(file: &File, len: usize, align: usize) -> io::Result<Self> {
        let room = len.checked_add(align).ok_or(io::ErrorKind::OutOfMemory)?;
        let map = MmapRaw::from(MmapOptions::new().len(room).no_reserve_swap().map_anon()?);
        let start = map.as_mut_ptr();
        let base = start.wrapping_add(start.addr().wrapping_neg() % align);
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range lies in the reserved one, which is not used yet and is unmapped with it.
        let base = unsafe { mmap(base.cast(), len, ProtFlags::READ | ProtFlags::WRITE, flags, file, 0) }?;
        Ok(Self { base: non_null(base.cast())?, len, map: Arc::new(map) })
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of byte `offset`.
    ///
    /// # Panics
    /// If `offset` is outside the mapping. Offsets are computed by this rank, or checked if they come from a peer.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len(), "offset {offset} is outside the segment of {} bytes", self.len());
        self.base.as_ptr().wrapping_add(offset)
    }

    /// The 64-bit word at `offset`.
    ///
    /// # Panics
    /// If the word is outside or misaligned.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        let [word] = self.words(offset);
        word
    }

    /// `N` 64-bit words, from `offset` on.
    ///
    /// # Panics
    /// If the words are outside or misaligned.
    #[inline]
    pub(crate) fn words<const N: usize>(&self, offset: usize) -> &[AtomicU64; N] {
        assert!(offset.is_multiple_of(8) && offset + 8 * N <= self.len());
        // SAFETY: inside the mapping, aligned (mappings start at page boundaries), zero-initialized, alive as
        // long as `self`, and accessed by every rank through atomics of this size only.
        unsafe { self.base.add(offset).cast().as_ref() }
    }

    /// The words of the cache line at `offset`.
    ///
    /// # Panics
    /// If the line is outside or misaligned.
    pub(crate) fn line(&self, offset: usize) -> Line {
        assert!(offset.is_multiple_of(64));
        Line { words: NonNull::from(self.words(offset)), _map: Arc::clone(&self.map) }
    }

    /// The 32-bit word at `offset`.
    ///
    /// # Panics
    /// If the word is outside or misaligned.
    #[inline]
    pub(crate) fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len());
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }
}

/// A segment that this rank created, with the descriptor by which others open it.
#[derive(Debug)]
pub(crate) struct Segment {
    mapping: Mapping,
    file: Option<File>,
}

/// Identifies a segment, or a part of one, so that another rank can open it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentName {
    /// Process that created it.
    pub(crate) pid: u32,
    /// Its descriptor in that process.
    pub(crate) fd: u32,
    /// First byte of the part, a multiple of the page size.
    pub(crate) offset: u64,
    /// Length of the part in bytes, a multiple of the page size.
    pub(crate) len: u64,
    /// Inode of the file: the descriptor may have been closed and reused.
    pub(crate) inode: u64,
}

impl SegmentName {
    /// Appends the name to a message.
    pub(crate) fn write(self, w: Writer) -> Writer {
        w.u32(self.pid).u32(self.fd).u64(self.offset).u64(self.len).u64(self.inode)
    }

    /// Parses a name in the format of [`write`](Self::write).
    pub(crate) fn read(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self { pid: r.u32()?, fd: r.u32()?, offset: r.u64()?, len: r.u64()?, inode: r.u64()? })
    }
}

impl Segment {
    /// Creates an unnamed segment in `dir` of at least `len` bytes (rounded up to pages), zeroed, with mode 0600.
    ///
    /// # Errors
    /// `SharedMemoryFull` when the pages cannot be reserved; `System` for anything else.
    pub(crate) fn create(dir: &Path, len: usize, pages: Pages) -> Result<Self> {
        let len = whole_pages(len)?;
        Self::of(anonymous_file(dir, len)?, len, pages)
    }

    /// Creates a segment of at least `len` bytes (rounded up to pages), zeroed, that is mapped in this process at a
    /// multiple of `align`, a power of two. Only accessed pages take memory, unless the system refuses such files: then
    /// the segment is like those of [`create`](Self::create).
    ///
    /// # Errors
    /// `SharedMemoryFull` if `len` exceeds the memory of the machine; `System` for anything else.
    pub(crate) fn sparse(dir: &Path, len: usize, align: usize) -> Result<Self> {
        let len = whole_pages(len)?;
        let memory = memory_of_machine();
        if len as u64 > memory {
            let e = Error::new(ErrorKind::SharedMemoryFull, MAKE);
            return Err(e.cause(format!("{len} bytes are needed, but the machine has {memory}")));
        }
        let file = match sparse_file("farside-window", len as u64) {
            // Pages of a file system, which may run full, are reserved.
            Err(e) if e.kind() == ErrorKind::Forbidden => anonymous_file(dir, len)?,
            file => file?,
        };
        if overcommit_is_strict() {
            reserve(&file, 0, len as u64).map_err(|e| failed(e, format!("{len} bytes")))?;
        }
        if align <= PAGE {
            return Self::of(file, len, Pages::WhenTouched);
        }
        let mapping = Mapping::aligned(&file, len, align).map_err(|e| Error::system("map a shared segment", e))?;
        Ok(Self { mapping, file: Some(file) })
    }

    fn of(file: File, len: usize, pages: Pages) -> Result<Self> {
        let mapping = Mapping::of(&file, 0, len, pages).map_err(|e| Error::system("map a shared segment", e))?;
        Ok(Self { mapping, file: Some(file) })
    }

    /// The segment's name for other ranks.
    ///
    /// # Errors
    /// `Freed` after [`close_name`](Self::close_name).
    pub(crate) fn name(&self) -> Result<SegmentName> {
        let file = self.file.as_ref().ok_or_else(|| Error::new(ErrorKind::Freed, "name a shared segment"))?;
        name_of(file, 0, self.mapping.len() as u64)
    }

    /// Closes the descriptor; called once every rank that needs the segment has mapped it. The memory stays mapped.
    pub(crate) fn close_name(&mut self) {
        self.file = None;
    }

    /// Frees the pages, also for peers that have mapped them, which find zeros if they access them.
    pub(crate) fn empty(&self) {
        // SAFETY: pages of this segment's file, which its owner no longer uses.
        let freed = unsafe { madvise(self.mapping.at(0).cast(), self.mapping.len(), Advice::LinuxRemove) };
        let _ = freed.inspect_err(|e| tracing::debug!("the pages of a shared segment could not be freed: {e}"));
    }

    /// The memory.
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

/// Names a part of a file of this process. Others can open it by the name as long as the descriptor is open.
///
/// # Errors
/// `System`.
pub(crate) fn name_of(file: &File, offset: u64, len: u64) -> Result<SegmentName> {
    let inode = file.metadata().map_err(|e| Error::system("name a shared segment", e))?.ino();
    Ok(SegmentName { pid: std::process::id(), fd: file.as_raw_fd() as u32, offset, len, inode })
}

/// Opens and maps another rank's segment, or a part of one.
///
/// # Errors
/// `PeerLost` when that process has ended or its descriptor is closed; `Forbidden` when the system denies access;
/// `Protocol` when the file is not the announced one, or not of the kind that ranks create for segments.
pub(crate) fn open(name: SegmentName, pages: Pages, peer: u32) -> Result<Mapping> {
    let (file, path, length) = open_file(name, peer)?;
    let (page, fits) = (PAGE as u64, name.offset.checked_add(name.len).is_some_and(|end| end <= length));
    if !fits || name.len == 0 || !name.len.is_multiple_of(page) || !name.offset.is_multiple_of(page) {
        return Err(elsewhere(name, &path, length, peer));
    }
    Mapping::of(&file, name.offset, name.len as usize, pages).map_err(|e| Error::system(OPEN, e).peer(peer))
}

/// Opens another rank's file and maps the window, aligned to `align`, that contains the bytes of `name`. Returns the
/// name of the part that is mapped.
///
/// # Errors
/// Those of [`open`].
pub(crate) fn open_around(name: SegmentName, align: u64, peer: u32) -> Result<(SegmentName, Mapping)> {
    let (file, path, length) = open_file(name, peer)?;
    let end = name.offset.checked_add(name.len).filter(|end| *end <= length && name.len > 0);
    let end = end.ok_or_else(|| elsewhere(name, &path, length, peer))?;
    let offset = name.offset / align * align;
    let len = end.next_multiple_of(align).min(length) - offset;
    let mapping = Mapping::of(&file, offset, len as usize, Pages::WhenTouched);
    Ok((SegmentName { offset, len, ..name }, mapping.map_err(|e| Error::system(OPEN, e).peer(peer))?))
}

/// Opens the file of another rank's segment; also returns its path and its length.
fn open_file(name: SegmentName, peer: u32) -> Result<(File, String, u64)> {
    let path = format!("/proc/{}/fd/{}", name.pid, name.fd);
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(|e| {
        let error = match e.kind() {
            io::ErrorKind::NotFound if Path::new("/proc/self/fd").exists() => {
                Error::new(ErrorKind::PeerLost, OPEN).source_error(e)
            }
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                let e = Error::new(ErrorKind::Forbidden, OPEN).source_error(e);
                e.remedy(
                    "start the ranks in one user namespace, with /proc, from a program that its user may read; or leave \
                     FARSIDE_DEVICE at auto, which then uses tcp",
                )
            }
            _ => Error::system(OPEN, e),
        };
        error.peer(peer).cause(path.clone())
    })?;
    let meta = file.metadata().map_err(|e| Error::system(OPEN, e).peer(peer))?;
    // A segment's file never had a name, so a file of another user cannot be mistaken for a segment.
    if !meta.is_file() || meta.nlink() != 0 || meta.ino() != name.inode {
        return Err(Error::new(ErrorKind::Protocol, OPEN).peer(peer).cause(format!("{path} is another file")));
    }
    Ok((file, path, meta.len()))
}

fn elsewhere(name: SegmentName, path: &str, length: u64, peer: u32) -> Error {
    let SegmentName { offset, len, .. } = name;
    Error::new(ErrorKind::Protocol, OPEN)
        .peer(peer)
        .cause(format!("{path} has {length} bytes, but {len} at offset {offset} were announced"))
}

const OPEN: &str = "map a peer's shared segment";
const MAKE: &str = "make a shared segment";

fn whole_pages(len: usize) -> Result<usize> {
    if len > isize::MAX as usize / 2 {
        let e = Error::new(ErrorKind::SharedMemoryFull, MAKE);
        return Err(e.cause(format!("{len} bytes exceed the address space")));
    }
    Ok(page_up(len.max(1)))
}

/// Rejects a file that is longer than the process's file size limit: the kernel would end the process by SIGXFSZ.
fn check_limit(len: u64) -> Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if len > limit => Err(Error::new(ErrorKind::SharedMemoryFull, MAKE)
            .cause(format!("{len} bytes are needed, but the process's file size limit (RLIMIT_FSIZE) is {limit}"))
            .remedy("raise the file size limit (`ulimit -f`)")),
        _ => Ok(()),
    }
}

/// Creates a file of `len` bytes on the kernel's own memory file system. Only pages that are written take memory.
///
/// # Errors
/// `SharedMemoryFull` if files of this process are limited to fewer bytes; `Forbidden`, `System`.
pub(crate) fn sparse_file(name: &str, len: u64) -> Result<File> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC).map_err(|e| failed(e, "memfd_create".into()))?;
    check_limit(len)?;
    rustix::fs::ftruncate(&file, len).map_err(|e| Error::system(MAKE, e.into()))?;
    Ok(file.into())
}

/// Bytes of memory and swap space of the machine.
fn memory_of_machine() -> u64 {
    // SAFETY: a struct of integers, for which all zeros is valid.
    let mut system: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: `system` is valid for writes.
    if unsafe { libc::sysinfo(&raw mut system) } != 0 {
        return u64::MAX;
    }
    u64::from(system.mem_unit).saturating_mul(system.totalram.saturating_add(system.totalswap))
}

/// Whether the kernel accounts memory at allocation (strict overcommit), so that accessing unreserved file memory may
/// fail.
pub(crate) fn overcommit_is_strict() -> bool {
    std::fs::read("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.starts_with(b"2"))
}

/// Reserves the pages of a part of a file that contains only zeros.
///
/// # Errors
/// The errors of `fallocate`.
pub(crate) fn reserve(file: &File, offset: u64, len: u64) -> rustix::io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), offset, len) {
        Err(e) if is_refused(e) => write_zeros(file, offset, len),
        reserved => reserved,
    }
}

fn write_zeros(file: &File, mut offset: u64, len: u64) -> rustix::io::Result<()> {
    let room = fstatvfs(file).map_or(u64::MAX, |system| system.f_bavail.saturating_mul(system.f_frsize));
    if len > room {
        return Err(Errno::NOSPC);
    }
    let (zeros, end) = (vec![0; 64 << 10], offset + len);
    while offset < end {
        let most = usize::try_from(end - offset).unwrap_or(usize::MAX).min(zeros.len());
        match rustix::io::pwrite(file, &zeros[..most], offset) {
            Ok(n) => offset += n as u64,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Whether the error means that the system does not provide a call, or not to this process, because of a filter, the
/// file system or an old kernel.
fn is_refused(e: Errno) -> bool {
    matches!(e, Errno::NOSYS | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP)
}

fn failed(e: Errno, what: String) -> Error {
    let kind = match e {
        Errno::NOSPC | Errno::DQUOT | Errno::NOMEM | Errno::FBIG => ErrorKind::SharedMemoryFull,
        e if is_refused(e) => ErrorKind::Forbidden,
        _ => return Error::system(MAKE, e.into()).cause(what),
    };
    Error::new(kind, MAKE).cause(what).source_error(e.into())
}

/// The error for a directory in which no segment can be made: a bad setting, unless it is the default.
pub(crate) fn unusable(operation: &'static str, dir: &Path, e: io::Error) -> Error {
    let kind = if dir == Path::new("/dev/shm") { ErrorKind::System } else { ErrorKind::Setting };
    let e = Error::new(kind, operation).cause(dir.display().to_string()).source_error(e);
    e.remedy("set FARSIDE_SHM_DIR to a directory on tmpfs where this user may write")
}

/// Creates a file without a name in a directory, or in the kernel's own memory file system if the directory's file
/// system has no such files.
fn unnamed_file(dir: &Path) -> Result<File> {
    let (flags, mode) = (OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    let what = || format!("cannot create an unnamed file in {}", dir.display());
    let file = match rustix::fs::open(dir, flags, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => memfd_create("farside-segment", MemfdFlags::CLOEXEC),
        Err(e @ (Errno::MFILE | Errno::NFILE)) => return Err(failed(e, what())),
        Err(e) => return Err(unusable(MAKE, dir, e.into()).cause(what())),
        file => file,
    };
    let file = file.map_err(|e| failed(e, what()))?;
    // The user's `umask` may have removed the permissions that other ranks need to open the file.
    fchmod(&file, mode).map_err(|e| failed(e, what()))?;
    Ok(file.into())
}

fn anonymous_file(dir: &Path, len: usize) -> Result<File> {
    let file = unnamed_file(dir)?;
    check_limit(len as u64)?;
    reserve(&file, 0, len as u64).map_err(|e| failed(e, format!("{len} bytes in {}", dir.display())))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn segment_opened_by_its_name_is_the_same_memory() {
        let mut s = Segment::create(Path::new("/dev/shm"), 100, Pages::AtOnce).unwrap();
        assert_eq!(s.mapping().len(), PAGE);
        let other = open(s.name().unwrap(), Pages::AtOnce, 0).unwrap();
        s.close_name();
        s.mapping().word(64).store(7, Ordering::SeqCst);
        assert_eq!(other.word(64).load(Ordering::SeqCst), 7);
        assert!(s.name().is_err());
    }

    #[test]
    fn segment_larger_than_the_file_system_is_an_error() {
        let e = Segment::create(Path::new("/dev/shm"), 1 << 45, Pages::AtOnce).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::SharedMemoryFull, "{e}");
    }

    #[test]
    fn sparse_segment_takes_memory_for_pages_that_are_touched() {
        let dir = Path::new("/dev/shm");
        let s = Segment::sparse(dir, 1000 * PAGE, PAGE).unwrap();
        let pages = || s.file.as_ref().unwrap().metadata().unwrap().blocks() as usize * 512 / PAGE;
        let other = open(s.name().unwrap(), Pages::WhenTouched, 0).unwrap();
        let expected = |touched| if overcommit_is_strict() { 1000 } else { touched };
        assert_eq!(pages(), expected(0));
        other.word(500 * PAGE).store(3, Ordering::SeqCst);
        assert_eq!(s.mapping().word(500 * PAGE).load(Ordering::SeqCst), 3);
        assert_eq!(pages(), expected(1));
        let e = Segment::sparse(dir, 1 << 45, PAGE).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::SharedMemoryFull, "{e}");
    }

    #[test]
    fn pages_are_reserved_by_zeros_where_fallocate_is_refused() {
        // The test runs in its own thread, since the filter cannot be removed.
        let made = std::thread::spawn(|| {
            farside_harness::refuse(&[libc::SYS_fallocate, libc::SYS_memfd_create], libc::ENOSYS);
            let dir = Path::new("/dev/shm");
            let blocks = |s: Segment| s.file.unwrap().metadata().unwrap().blocks() as usize * 512 / PAGE;
            let full = Segment::create(dir, 1 << 45, Pages::AtOnce).unwrap_err().kind();
            let [one, long] = [Segment::create(dir, 100 * PAGE, Pages::AtOnce), Segment::sparse(dir, 50 * PAGE, PAGE)];
            (full, blocks(one.unwrap()), blocks(long.unwrap()))
        });
        assert_eq!(made.join().unwrap(), (ErrorKind::SharedMemoryFull, 100, 50));
    }

    #[test]
    fn segment_name_of_another_file_or_of_bytes_that_it_does_not_have_is_refused() {
        let s = Segment::create(Path::new("/dev/shm"), 2 * PAGE, Pages::AtOnce).unwrap();
        let name = s.name().unwrap();
        let (page, len) = (PAGE as u64, 2 * PAGE as u64);
        let wrong =
            [(0, len + 1), (0, len + page), (0, page - 1), (page, len), (1, page), (0, 0), (u64::MAX - 4095, page)];
        for (offset, len) in wrong {
            let e = open(SegmentName { offset, len, ..name }, Pages::AtOnce, 3).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Protocol, "{e}");
        }
        let part = open(SegmentName { offset: page, len: page, ..name }, Pages::WhenTouched, 3).unwrap();
        s.mapping().word(PAGE + 8).store(9, Ordering::SeqCst);
        assert_eq!((part.len(), part.word(8).load(Ordering::SeqCst)), (PAGE, 9));
        let other = SegmentName { inode: name.inode + 1, ..name };
        assert_eq!(open(other, Pages::AtOnce, 3).unwrap_err().kind(), ErrorKind::Protocol);
        let gone = SegmentName { fd: 60_000, ..name };
        assert_eq!(open(gone, Pages::AtOnce, 3).unwrap_err().kind(), ErrorKind::PeerLost);
    }
}
