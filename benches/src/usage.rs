//! CPU time that a process has used, and that others have used meanwhile.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ops::Sub;
use std::time::{Duration, Instant};

use farside_core::error::{Error, Result};
use rustix::time::{ClockId, clock_gettime};

/// CPU time and voluntary context switches so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// User and system time.
    pub(crate) cpu: Duration,
    /// The number of voluntary context switches, that is, of times that the thread or process gave up its core to wait.
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
    /// Reads the usage so far.
    ///
    /// # Errors
    /// [`farside_core::error::ErrorKind::System`].
    pub(crate) fn now(of: Of) -> Result<Self> {
        let who = if of == Of::Process { libc::RUSAGE_SELF } else { libc::RUSAGE_THREAD };
        let usage = usage_of(who)?;
        // Read from the CPU-time clock: getrusage's times of a running thread are as old as its last tick.
        let clock = if of == Of::Process { ClockId::ProcessCPUTime } else { ClockId::ThreadCPUTime };
        let time = clock_gettime(clock);
        let cpu = Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32);
        Ok(Self { cpu, switches: usage.ru_nvcsw.unsigned_abs() })
    }
}

/// The CPU time that all processes have used up to a time, and that of this process and its children that have ended.
pub(crate) struct Share {
    at: Instant,
    all: Duration,
    own: Duration,
}

impl Share {
    /// The use up to now; `None` if the kernel does not say it.
    pub(crate) fn now() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let ticks: Vec<u64> =
            stat.lines().next()?.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; the times of guests are part of the first two.
        let busy = ticks
            .iter()
            .take(8)
            .enumerate()
            .filter(|(at, _)| ![3, 4].contains(at))
            .map(|(_, ticks)| ticks)
            .sum::<u64>();
        let own = [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN].into_iter().map(|who| {
            let usage = usage_of(who).ok()?;
            let time = |t: libc::timeval| Duration::new(t.tv_sec.unsigned_abs(), 1000 * t.tv_usec as u32);
            Some(time(usage.ru_utime) + time(usage.ru_stime))
        });
        let all = Duration::from_secs_f64(busy as f64 / rustix::param::clock_ticks_per_second() as f64);
        Some(Self { at: Instant::now(), all, own: own.sum::<Option<_>>()? })
    }

    /// The share of `cores` processors that other processes have used since then.
    pub(crate) fn of_others(&self, cores: usize) -> Option<f64> {
        let now = Self::now()?;
        let others = (now.all.saturating_sub(self.all)).saturating_sub(now.own.saturating_sub(self.own));
        Some(others.as_secs_f64() / ((now.at - self.at).as_secs_f64() * cores as f64).max(1e-3))
    }
}

/// The resources that `who` has used.
fn usage_of(who: i32) -> Result<libc::rusage> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one rusage.
    if unsafe { libc::getrusage(who, usage.as_mut_ptr()) } != 0 {
        return Err(Error::last_os("query the CPU time"));
    }
    // SAFETY: plain numbers, zeroed before and written by the kernel.
    Ok(unsafe { usage.assume_init() })
}

impl Sub for Usage {
    type Output = Usage;

    fn sub(self, before: Usage) -> Usage {
        Usage { cpu: self.cpu.saturating_sub(before.cpu), switches: self.switches.saturating_sub(before.switches) }
    }
}
