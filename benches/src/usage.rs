//! What a process has used of the processor.
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
    /// How often it gave the core away to wait.
    pub switches: u64,
}

/// Whose usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// All threads of this process, those that have ended too.
    Process,
    /// The calling thread.
    Thread,
}

impl Usage {
    /// Now.
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
        let time = |t: libc::timeval| {
            Duration::from_secs(t.tv_sec.unsigned_abs()) + Duration::from_micros(t.tv_usec.unsigned_abs())
        };
        Ok(Self { cpu: time(usage.ru_utime) + time(usage.ru_stime), switches: usage.ru_nvcsw.unsigned_abs() })
    }
}

impl Sub for Usage {
    type Output = Usage;

    fn sub(self, before: Usage) -> Usage {
        Usage { cpu: self.cpu.saturating_sub(before.cpu), switches: self.switches.saturating_sub(before.switches) }
    }
}
