//! Processes of this node, watched by descriptors that the kernel makes readable when a process ends (pidfd).

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A watched process.
#[derive(Debug)]
pub(crate) struct Process {
    pid: u32,
    fd: OwnedFd,
}

impl Process {
    /// Watches process `pid`.
    ///
    /// # Errors
    /// `NotFound` if it has ended; the system's error if it cannot be watched.
    pub(crate) fn watch(pid: u32) -> io::Result<Self> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, "it has ended");
        let id = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
        match pidfd_open(id, PidfdFlags::empty()) {
            Ok(fd) => Ok(Self { pid, fd }),
            Err(rustix::io::Errno::SRCH) => Err(gone()),
            Err(e) => Err(e.into()),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether a signal or a debugger has stopped it.
    fn is_stopped(&self) -> bool {
        // The state is the first field after the name, which is in parentheses and may contain any character.
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
    }
}

/// Indices of the processes that have ended.
pub(crate) fn ended(processes: &[Option<Process>]) -> Vec<usize> {
    let watched = || processes.iter().enumerate().filter_map(|(number, p)| Some((number, p.as_ref()?)));
    let mut polls: Vec<PollFd<'_>> = watched().map(|(_, p)| PollFd::new(&p.fd, PollFlags::IN)).collect();
    match poll(&mut polls, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(n) if n > 0 => watched()
            .zip(&polls)
            .filter(|(_, poll)| !poll.revents().is_empty())
            .map(|((number, _), _)| number)
            .collect(),
        _ => Vec::new(),
    }
}

/// Index of the first process that is stopped.
pub(crate) fn stopped(processes: &[Option<Process>]) -> Option<usize> {
    processes.iter().position(|p| p.as_ref().is_some_and(Process::is_stopped))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, kill_process};

    #[test]
    fn stop_and_end_of_a_process_are_seen() {
        let mut child = std::process::Command::new("sleep").arg("3600").spawn().unwrap();
        let id = Pid::from_child(&child);
        let watched = [None, Some(Process::watch(child.id()).unwrap())];
        assert!(ended(&watched).is_empty() && stopped(&watched).is_none());
        kill_process(id, Signal::STOP).unwrap();
        while stopped(&watched).is_none() {
            std::thread::yield_now();
        }
        assert_eq!((ended(&watched), stopped(&watched)), (vec![], Some(1)));
        kill_process(id, Signal::CONT).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((ended(&watched), stopped(&watched)), (vec![1], None));
        assert_eq!(Process::watch(child.id()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
