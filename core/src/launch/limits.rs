#![allow(unsafe_code)]
//! What the system allows this process, for `farside info`.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::processors;

/// A limit in bytes or pieces; `None` is no limit.
pub type Amount = Option<u64>;

/// A soft and a hard limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// What is in force.
    pub soft: Amount,
    /// What this process may raise it to.
    pub hard: Amount,
}

/// A file system's room, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// All of it.
    pub size: u64,
    /// What is left for this user.
    pub free: u64,
}

/// What the system allows; `None` where it does not say.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Memory that may be locked, in bytes.
    pub locked_memory: Option<Pair>,
    /// Open descriptors.
    pub descriptors: Option<Pair>,
    /// The file system of shared memory.
    pub shared_memory: Option<Room>,
    /// Who may look into other processes' memory: 0 the same user, 1 parents, 2 administrators, 3 nobody.
    pub ptrace_scope: Option<u32>,
    /// Cores that this process may use.
    pub cores: usize,
    /// The kernel.
    pub kernel: Option<String>,
    /// Bytes of a page.
    pub page: usize,
    /// The choice of huge pages for ordinary memory.
    pub huge_pages: Option<String>,
    /// The choice of huge pages for shared memory.
    pub huge_pages_shared: Option<String>,
}

impl Limits {
    /// Asks the system; shared memory is that in `shm_dir`.
    #[must_use]
    pub fn now(shm_dir: &Path) -> Self {
        Self {
            locked_memory: pair(libc::RLIMIT_MEMLOCK),
            descriptors: pair(libc::RLIMIT_NOFILE),
            shared_memory: room(shm_dir),
            ptrace_scope: word("/proc/sys/kernel/yama/ptrace_scope").and_then(|w| w.parse().ok()),
            cores: processors::allowed().len(),
            kernel: word("/proc/sys/kernel/osrelease"),
            page: page(),
            huge_pages: word("/sys/kernel/mm/transparent_hugepage/enabled").and_then(|w| chosen(&w)),
            huge_pages_shared: word("/sys/kernel/mm/transparent_hugepage/shmem_enabled").and_then(|w| chosen(&w)),
        }
    }
}

fn pair(resource: libc::__rlimit_resource_t) -> Option<Pair> {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: the structure is live for the call to write.
    if unsafe { libc::getrlimit(resource, limit.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call has succeeded and has written it.
    let limit = unsafe { limit.assume_init() };
    let amount = |n| (n != libc::RLIM_INFINITY).then_some(n);
    Some(Pair { soft: amount(limit.rlim_cur), hard: amount(limit.rlim_max) })
}

fn room(dir: &Path) -> Option<Room> {
    let dir = CString::new(dir.as_os_str().as_bytes()).ok()?;
    let mut fs = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends with a zero, and the structure is live for the call to write.
    if unsafe { libc::statvfs(dir.as_ptr(), fs.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call has succeeded and has written it.
    let fs = unsafe { fs.assume_init() };
    Some(Room { size: fs.f_blocks.saturating_mul(fs.f_frsize), free: fs.f_bavail.saturating_mul(fs.f_frsize) })
}

fn page() -> usize {
    // SAFETY: sysconf touches no memory.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn word(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The choice in brackets, as the kernel marks it: `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    text.split_once('[')?.1.split_once(']').map(|(choice, _)| choice.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn now_reads_what_every_system_has() {
        let limits = Limits::now(Path::new("/"));
        assert!(limits.cores >= 1 && limits.page.is_power_of_two());
        let files = limits.descriptors.unwrap();
        assert!(files.soft.is_none() == files.hard.is_none() || files.soft.is_some());
        assert!(limits.shared_memory.unwrap().size > 0);
        assert!(limits.kernel.is_some());
        assert_eq!(Limits::now(Path::new("/nowhere/at/all")).shared_memory, None);
    }

    #[test]
    fn chosen_is_the_word_in_brackets() {
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(chosen("always"), None);
    }
}
