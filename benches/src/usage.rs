//! Processor time that a process has used.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ops::Sub;
use std::time::Duration;

use farside_core::error::{Error, Result};

/// Processor time and voluntary context switches up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User and system time.
    pub cpu: Duration,
    /// The number of times that the thread or process gave the core away to wait.
    pub switches: u64,
}

/// The process or thread whose usage is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// All threads of this process, including those that have ended.
    Process,
    /// The calling thread.
    Thread,
}

impl Usage {
    /// The usage up to now.
    ///
    /// # Errors
    /// [`farside_core::error::ErrorKind::System`].
    pub fn now(of: Of) -> Result<Self> {
        let who = if of == Of::Process { libc::RUSAGE_SELF } else { libc::RUSAGE_THREAD };
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel writes one rusage.
        if unsafe { libc::getrusage(who, usage.as_mut_ptr()) } != 0 {
            return Err(Error::last_os("ask for the processor time"));
        }
        // SAFETY: plain numbers, zeroed before and written by the kernel.
        let usage = unsafe { usage.assume_init() };
        // Read from the CPU-time clock: getrusage's times of a running thread are as old as its last tick.
        let clock = if of == Of::Process { libc::CLOCK_PROCESS_CPUTIME_ID } else { libc::CLOCK_THREAD_CPUTIME_ID };
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes one timespec.
        if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
            return Err(Error::last_os("ask for the processor time"));
        }
        let cpu = Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_nanos(time.tv_nsec.unsigned_abs());
        Ok(Self { cpu, switches: usage.ru_nvcsw.unsigned_abs() })
    }
}

impl Sub for Usage {
    type Output = Usage;

    fn sub(self, before: Usage) -> Usage {
        Usage { cpu: self.cpu.saturating_sub(before.cpu), switches: self.switches.saturating_sub(before.switches) }
    }
}
