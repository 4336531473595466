//! Processor time that a process has used.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ops::Sub;
use std::time::Duration;

use farside_core::error::{Error, Result};
use rustix::time::{ClockId, clock_gettime};

/// Processor time and voluntary context switches up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// User and system time.
    pub(crate) cpu: Duration,
    /// The number of times that the thread or process gave up its core to wait.
    pub(crate) switches: u64,
}

/// The process or thread whose usage is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
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
    pub(crate) fn now(of: Of) -> Result<Self> {
        let who = if of == Of::Process { libc::RUSAGE_SELF } else { libc::RUSAGE_THREAD };
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel writes one rusage.
        if unsafe { libc::getrusage(who, usage.as_mut_ptr()) } != 0 {
            return Err(Error::last_os("ask for the processor time"));
        }
        // SAFETY: plain numbers, zeroed before and written by the kernel.
        let usage = unsafe { usage.assume_init() };
        // Read from the CPU-time clock: getrusage's times of a running thread are as old as its last tick.
        let clock = if of == Of::Process { ClockId::ProcessCPUTime } else { ClockId::ThreadCPUTime };
        let time = clock_gettime(clock);
        let cpu = Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32);
        Ok(Self { cpu, switches: usage.ru_nvcsw.unsigned_abs() })
    }
}

impl Sub for Usage {
    type Output = Usage;

    fn sub(self, before: Usage) -> Usage {
        Usage { cpu: self.cpu.saturating_sub(before.cpu), switches: self.switches.saturating_sub(before.switches) }
    }
}
