#![allow(unsafe_code)]
//! Finding and killing every descendant of this process, wherever it has moved its session or process group.
//!
//! The caller is a child subreaper: a descendant whose parent dies becomes its child, so none gets out of sight.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::ending::End;
use crate::error::{Error, Result};

/// How long processes may take to die after SIGKILL; longer only where the kernel holds them.
const PATIENCE: Duration = Duration::from_secs(5);

/// A process as one look at /proc showed it. The start time tells it from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    started: u64,
}

/// Makes this process the parent of orphaned descendants.
///
/// # Errors
/// `System` when the kernel refuses.
pub fn become_subreaper() -> Result<()> {
    // SAFETY: PR_SET_CHILD_SUBREAPER takes one integer and touches no memory.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(Error::last_os("become the parent of orphans")),
    }
}

/// Collects one child that has ended, if there is one.
#[must_use]
pub fn reap() -> Option<(i32, End)> {
    let mut status = 0;
    // SAFETY: `status` is a live integer for the call to write.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    if pid <= 0 {
        return None;
    }
    Some((pid, end_of(status)))
}

/// What a wait status says.
#[must_use]
pub fn end_of(status: i32) -> End {
    if libc::WIFSIGNALED(status) { End::Killed(libc::WTERMSIG(status)) } else { End::Exited(libc::WEXITSTATUS(status)) }
}

/// Sends SIGKILL once to every descendant.
pub fn kill_descendants() {
    for process in descendants() {
        kill_process(process);
    }
}

/// Kills every descendant and waits until none is left. The numbers of those that would not die.
pub fn sweep() -> Vec<i32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        while reap().is_some() {}
        let left = descendants();
        if left.is_empty() || Instant::now() > deadline {
            return left.into_iter().map(|p| p.pid).collect();
        }
        for process in left {
            kill_process(process);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends `signal` to the process group of a child that was not collected yet, so that the number is still its own.
pub fn signal_group(leader: i32, signal: i32) {
    // SAFETY: kill touches no memory. A group that is gone is an error that means what is wanted.
    unsafe { libc::kill(-leader, signal) };
}

/// Kills exactly this process: a descriptor is taken first, and then it is looked at once more.
fn kill_process(process: Process) {
    // SAFETY: pidfd_open takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process.pid, 0) };
    if fd < 0 {
        let unknown = std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH);
        if unknown && look_at(process.pid) == Some(process) {
            // No such system call here. The number could have gone to another process only within this instant.
            // SAFETY: kill touches no memory.
            unsafe { libc::kill(process.pid, libc::SIGKILL) };
        }
        return;
    }
    // SAFETY: the call has just made this descriptor, and nobody else knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    if look_at(process.pid).is_some_and(|now| now.started == process.started) {
        let none: *const libc::siginfo_t = std::ptr::null();
        // SAFETY: the descriptor is open, and a null siginfo is allowed.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), libc::SIGKILL, none, 0) };
    }
}

/// All descendants of this process, zombies included.
fn descendants() -> Vec<Process> {
    let me = std::process::id() as i32;
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in processes() {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut parents = vec![me];
    while let Some(parent) = parents.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            parents.push(child.pid);
            found.push(child);
        }
    }
    found
}

fn processes() -> impl Iterator<Item = Process> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| look_at(entry.file_name().to_str()?.parse().ok()?))
}

fn look_at(pid: i32) -> Option<Process> {
    parse_stat(pid, &std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads parent (field 4) and start time (field 22); the name before them is in parentheses and may contain anything.
fn parse_stat(pid: i32, stat: &[u8]) -> Option<Process> {
    let after_name = stat.iter().rposition(|&b| b == b')')? + 1;
    let mut fields = std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(Process { pid, parent, started })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_stat_survives_any_name() {
        let rest = "S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 99 88";
        for name in ["(sh)", "(a b)", "(x) S 1 (y)", "()"] {
            let got = parse_stat(3, format!("3 {name} {rest}").as_bytes());
            assert_eq!(got, Some(Process { pid: 3, parent: 7, started: 12345 }), "{name}");
        }
        assert_eq!(parse_stat(3, b"3 (sh"), None);
        assert_eq!(parse_stat(3, b"3 (sh) S"), None);
    }

    #[test]
    fn look_at_this_process_finds_its_parent() {
        let me = look_at(std::process::id() as i32).unwrap();
        assert_eq!(me.parent, std::os::unix::process::parent_id() as i32);
    }
}
