//! Limits of the system: for `farside info`, and for a job before its first rank is started.

use std::path::Path;

use farside_core::{Error, ErrorKind, Result, processors};
use procfs::process::all_processes;
use procfs::{Current, LoadAverage, Meminfo};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

/// Descriptors of the launcher for each rank: its connection, its output and its errors.
const DESCRIPTORS_PER_RANK: u64 = 3;
/// Number of descriptors that the launcher needs for itself and for the rank that it is starting.
const DESCRIPTORS: u64 = 32;
/// Number of processes and threads of the launcher itself.
const PROCESSES: u64 = 8;
/// Minimum memory of a process, including its page tables and its part of the kernel.
const BYTES_PER_RANK: u64 = 1 << 20;

/// A limit as a number or in bytes; `None` if there is no limit.
pub(crate) type Amount = Option<u64>;

/// A soft and a hard limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Pair {
    /// The limit in force.
    pub soft: Amount,
    /// The maximum to which this process may raise the limit.
    pub hard: Amount,
}

/// A file system's room, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Room {
    /// Size of the file system.
    pub size: u64,
    /// Bytes that this user can still take.
    pub free: u64,
}

/// The limits; `None` if the system reports none.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Limits {
    /// Memory that may be locked.
    pub locked_memory_bytes: Pair,
    /// Open descriptors.
    pub descriptors: Pair,
    /// The file system of shared memory.
    pub shared_memory_bytes: Option<Room>,
    /// Which processes may read another one's memory: 0 the same user, 1 parents, 2 administrators, 3 no process.
    pub ptrace_scope: Option<u32>,
    /// Cores that this process may use.
    pub cores: usize,
    /// The kernel.
    pub kernel: Option<String>,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// The choice of huge pages for ordinary memory.
    pub huge_pages: Option<String>,
    /// The choice of huge pages for shared memory.
    pub huge_pages_shared: Option<String>,
}

impl Limits {
    /// Reads the limits from the system; shared memory is in `shm_dir`.
    pub(crate) fn now(shm_dir: &Path) -> Self {
        let room = |fs: rustix::fs::StatVfs| Room {
            size: fs.f_blocks.saturating_mul(fs.f_frsize),
            free: fs.f_bavail.saturating_mul(fs.f_frsize),
        };
        Self {
            locked_memory_bytes: pair(Resource::Memlock),
            descriptors: pair(Resource::Nofile),
            shared_memory_bytes: rustix::fs::statvfs(shm_dir).ok().map(room),
            ptrace_scope: word("/proc/sys/kernel/yama/ptrace_scope").and_then(|w| w.parse().ok()),
            cores: processors::allowed().len(),
            kernel: word("/proc/sys/kernel/osrelease"),
            page_bytes: rustix::param::page_size(),
            huge_pages: word("/sys/kernel/mm/transparent_hugepage/enabled").and_then(|w| chosen(&w)),
            huge_pages_shared: word("/sys/kernel/mm/transparent_hugepage/shmem_enabled").and_then(|w| chosen(&w)),
        }
    }
}

fn pair(resource: Resource) -> Pair {
    let limit = getrlimit(resource);
    Pair { soft: limit.current, hard: limit.maximum }
}

fn word(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The choice in brackets, as the kernel marks it: `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    text.split_once('[')?.1.split_once(']').map(|(choice, _)| choice.to_owned())
}

/// A limited resource: the number that a job needs, and the maximum that it can have.
struct Need {
    limit: &'static str,
    most: u64,
    need: u64,
    remedy: String,
}

/// Checks that this machine can have `ranks` ranks. Other programs may use the resources that are free now: then a rank
/// that cannot be started ends the job.
///
/// # Errors
/// `Limit`, naming the limit that is too low and how to raise it.
pub(crate) fn check(ranks: u32) -> Result<()> {
    let Some(need) = needs(ranks).into_iter().find(|need| need.need > need.most) else { return Ok(()) };
    let Need { limit, most, need, remedy } = need;
    Err(Error::new(ErrorKind::Limit, "start the ranks")
        .cause(format!("{ranks} ranks need {need} {limit}, but at most {most} are available"))
        .remedy(format!("start fewer ranks, or {remedy}")))
}

fn needs(ranks: u32) -> Vec<Need> {
    let ranks = u64::from(ranks);
    let mut needs = Vec::new();
    let mut add = |limit, most: Amount, need, remedy| needs.extend(most.map(|most| Need { limit, most, need, remedy }));
    let descriptors = DESCRIPTORS + DESCRIPTORS_PER_RANK * ranks;
    let remedy = format!("raise the limit: ulimit -n {descriptors}");
    add("open descriptors of the launcher (RLIMIT_NOFILE)", pair(Resource::Nofile).soft, descriptors, remedy);
    let processes = PROCESSES + ranks;
    // This limit does not apply to an administrator.
    let user = rustix::process::geteuid();
    if !user.is_root() {
        let own = all_processes().into_iter().flatten().flatten().filter(|p| p.uid().is_ok_and(|u| u == user.as_raw()));
        let there: u64 = own.filter_map(|p| p.stat().ok()).map(|s| s.num_threads.unsigned_abs()).sum();
        let most = pair(Resource::Nproc).soft.map(|most| most.saturating_sub(there));
        let remedy = format!("raise the limit: ulimit -u {}", processes + there);
        add("processes of this user (RLIMIT_NPROC)", most, processes, remedy);
    }
    let there = LoadAverage::current().map_or(0, |load| u64::from(load.max));
    for (limit, name) in [
        ("processes of the machine (kernel.pid_max)", "kernel.pid_max"),
        ("processes of the machine (kernel.threads-max)", "kernel.threads-max"),
    ] {
        let most = word(&format!("/proc/sys/{}", name.replace('.', "/"))).and_then(|w| w.parse::<u64>().ok());
        let remedy = format!("raise the limit: sysctl {name}={}", processes + there);
        add(limit, most.map(|most| most.saturating_sub(there)), processes, remedy);
    }
    let free = Meminfo::current().ok().and_then(|memory| memory.mem_available);
    add("bytes of memory", free, BYTES_PER_RANK * ranks, "use a machine with more memory".into());
    needs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn now_reads_what_every_system_has() {
        let limits = Limits::now(Path::new("/"));
        assert!(limits.cores >= 1 && limits.page_bytes.is_power_of_two());
        assert!(limits.shared_memory_bytes.unwrap().size > 0);
        assert!(limits.kernel.is_some());
        assert_eq!(Limits::now(Path::new("/nowhere/at/all")).shared_memory_bytes, None);
    }

    #[test]
    fn chosen_is_the_word_in_brackets() {
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(chosen("always"), None);
    }

    #[test]
    fn check_refuses_more_ranks_than_any_machine_has_and_names_the_limit() {
        check(1).unwrap();
        let e = check(u32::MAX).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Limit);
        assert!(e.to_string().contains("4294967295 ranks need") && e.to_string().contains("start fewer ranks"), "{e}");
    }

    #[test]
    fn needs_ask_for_descriptors_processes_and_memory() {
        let needs = needs(1000);
        for name in ["kernel.pid_max", "kernel.threads-max", "bytes of memory"] {
            let need = needs.iter().find(|need| need.limit.contains(name)).unwrap();
            assert!(need.need >= 1000 && need.most > 0 && !need.remedy.is_empty(), "{name}");
        }
    }
}
