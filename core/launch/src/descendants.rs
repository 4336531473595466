//! Finding and killing every descendant of this process, wherever it has moved its session or process group.
//!
//! The caller is a child subreaper: a descendant whose parent dies becomes its child, so none is lost.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use farside_core::{Error, Result};
use procfs::process::{Process, Stat, all_processes};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, pidfd_send_signal, set_child_subreaper, wait,
};

/// Time that processes have to end after SIGKILL; they take longer only if the kernel holds them.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes this process the parent of orphaned descendants.
///
/// # Errors
/// `System` when the kernel refuses.
pub(crate) fn become_subreaper() -> Result<()> {
    // Any number except 0 switches it on.
    set_child_subreaper(Some(Pid::INIT)).map_err(|e| Error::system("become the parent of orphans", e.into()))
}

/// Collects one child that has ended, if any.
pub(crate) fn reap() -> Option<(i32, ExitStatus)> {
    let (pid, status) = wait(WaitOptions::NOHANG).ok().flatten()?;
    Some((pid.as_raw_nonzero().get(), ExitStatus::from_raw(status.as_raw())))
}

/// Sends SIGKILL once to every descendant; returns their numbers.
pub(crate) fn kill() -> Vec<i32> {
    let found = descendants();
    found.iter().for_each(kill_one);
    found.iter().map(|process| process.pid).collect()
}

/// Kills every descendant and waits until they have ended; returns the numbers of those that have not.
pub(crate) fn kill_all() -> Vec<i32> {
    let deadline = Instant::now() + KILL_TIMEOUT;
    loop {
        while reap().is_some() {}
        let left = kill();
        if left.is_empty() || Instant::now() > deadline {
            return left;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Kills exactly this process: a descriptor is taken first, and then its start time is compared, which distinguishes it
/// from a later process with the same number. If the system refuses descriptors of processes, only the number is used.
fn kill_one(process: &Stat) {
    let Some(pid) = Pid::from_raw(process.pid) else { return };
    let fd = pidfd_open(pid, PidfdFlags::empty()).ok();
    let now = Process::new(process.pid).and_then(|p| p.stat());
    if now.is_ok_and(|now| now.starttime == process.starttime) {
        // If the second call fails too, the process has already ended.
        let sent = fd.is_some_and(|fd| pidfd_send_signal(fd, Signal::KILL).is_ok());
        let _ = sent || kill_process(pid, Signal::KILL).is_ok();
    }
}

/// All descendants of this process, including zombies.
fn descendants() -> Vec<Stat> {
    let mut children: HashMap<i32, Vec<Stat>> = HashMap::new();
    for process in all_processes().into_iter().flatten().flatten().filter_map(|p| p.stat().ok()) {
        children.entry(process.ppid).or_default().push(process);
    }
    let mut found = children.remove(&(std::process::id() as i32)).unwrap_or_default();
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        let more = children.remove(&parent.pid);
        found.extend(more.into_iter().flatten());
        next += 1;
    }
    found
}
