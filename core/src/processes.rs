//! Processes of this node, watched by descriptors that the kernel makes readable when a process ends (pidfd). If a
//! filter of system calls refuses these, as in some containers, a process is identified by its process ID and its start
//! time.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};

/// A watched process.
#[derive(Debug)]
pub(crate) struct Process {
    pid: Pid,
    /// The descriptor; `None` if the system refuses it.
    fd: Option<OwnedFd>,
    /// The start time of the process, in the kernel's ticks; `None` if the system does not report it.
    start: Option<u64>,
}

/// The state of a process, and its start time.
fn look_up(pid: Pid) -> Option<(char, u64)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The state is the first field after the name, which is in parentheses and may contain any character; the start
    // time is field 22 of all.
    let mut rest = stat.rsplit_once(") ")?.1.split(' ');
    Some((rest.next()?.chars().next()?, rest.nth(18)?.parse().ok()?))
}

impl Process {
    /// Watches process `pid`.
    ///
    /// # Errors
    /// `NotFound` if it has ended; the system's error if there are no descriptors left.
    pub(crate) fn watch(pid: u32) -> io::Result<Self> {
        let not_found = || io::Error::new(io::ErrorKind::NotFound, "the process has ended");
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(not_found)?;
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => Ok(Self { pid, fd: Some(fd), start: None }),
            Err(Errno::SRCH) => Err(not_found()),
            Err(e @ (Errno::MFILE | Errno::NFILE)) => Err(e.into()),
            Err(e) => {
                tracing::debug!("process {pid} is watched by its process ID, because pidfd_open failed: {e}");
                let process = Self { pid, fd: None, start: look_up(pid).map(|(_, start)| start) };
                if process.has_ended() { Err(not_found()) } else { Ok(process) }
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// Whether a signal or a debugger has stopped the process.
    fn is_stopped(&self) -> bool {
        look_up(self.pid).is_some_and(|(state, _)| matches!(state, 'T' | 't'))
    }

    /// Whether the process has ended, looked up by its process ID: it may still exist as a zombie, or another process
    /// may have the ID.
    fn has_ended(&self) -> bool {
        match look_up(self.pid) {
            Some((state, start)) => matches!(state, 'Z' | 'X' | 'x') || self.start.is_some_and(|own| own != start),
            None => test_kill_process(self.pid) == Err(Errno::SRCH),
        }
    }
}

/// Indices of the processes that have ended.
pub(crate) fn ended(processes: &[Option<Process>]) -> Vec<usize> {
    let watched = || processes.iter().enumerate().filter_map(|(number, p)| Some((number, p.as_ref()?)));
    let by_number = watched().filter(|(_, p)| p.fd.is_none() && p.has_ended()).map(|(number, _)| number);
    let mut all: Vec<usize> = by_number.collect();
    let by_descriptor = || watched().filter_map(|(number, p)| Some((number, p.fd.as_ref()?)));
    let mut polls: Vec<PollFd<'_>> = by_descriptor().map(|(_, fd)| PollFd::new(fd, PollFlags::IN)).collect();
    if poll(&mut polls, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0) {
        let is_readable =
            |((number, _), poll): ((usize, _), &PollFd<'_>)| (!poll.revents().is_empty()).then_some(number);
        all.extend(by_descriptor().zip(&polls).filter_map(is_readable));
    }
    all
}

/// Index of the first process that is stopped.
pub(crate) fn first_stopped(processes: &[Option<Process>]) -> Option<usize> {
    processes.iter().position(|p| p.as_ref().is_some_and(Process::is_stopped))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, kill_process};

    #[test]
    fn stop_and_end_of_a_process_are_seen_by_descriptor_and_by_number() {
        for by_number in [false, true] {
            let mut child = std::process::Command::new("sleep").arg("3600").spawn().unwrap();
            let id = Pid::from_child(&child);
            let mut process = Process::watch(child.id()).unwrap();
            if by_number {
                (process.fd, process.start) = (None, look_up(id).map(|(_, start)| start));
            }
            let watched = [None, Some(process)];
            assert!(ended(&watched).is_empty() && first_stopped(&watched).is_none());
            kill_process(id, Signal::STOP).unwrap();
            while first_stopped(&watched).is_none() {
                std::thread::yield_now();
            }
            assert_eq!((ended(&watched), first_stopped(&watched)), (vec![], Some(1)));
            kill_process(id, Signal::CONT).unwrap();
            child.kill().unwrap();
            while ended(&watched).is_empty() {
                std::thread::yield_now(); // a zombie
            }
            child.wait().unwrap();
            assert_eq!((ended(&watched), first_stopped(&watched)), (vec![1], None));
            assert_eq!(Process::watch(child.id()).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        let other = Process { pid: rustix::process::getpid(), fd: None, start: Some(1) };
        assert_eq!(ended(&[Some(other)]), [0], "another process has its number");
    }
}
