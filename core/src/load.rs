//! The load of the processors during a measurement: the fraction of time in which a measuring rank could run, but other
//! threads had the processor. The kernel counts this time for each thread (`schedstat`).

use std::fmt;
use std::time::Instant;

/// The load in thousandths at which the machine counts as loaded. A measured value is the minimum or the lower quartile
/// of several times, which does not change if a tenth of them is disturbed.
const HEAVY: u16 = 100;

/// A load, in thousandths; `None` if the kernel does not count it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Load(Option<u16>);

impl Load {
    /// The load of `thousandths`, as reported by a peer.
    pub(crate) fn of(thousandths: u32) -> Self {
        Self(u16::try_from(thousandths).ok().filter(|part| *part <= 1000))
    }

    /// The form for a peer.
    pub(crate) fn thousandths(self) -> u32 {
        self.0.map_or(u32::MAX, u32::from)
    }

    /// Whether the load is too high to store values that were measured under it.
    pub(crate) fn is_heavy(self) -> bool {
        self.0 >= Some(HEAVY)
    }

    /// Parses the format of `Display`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("0.").filter(|digits| digits.len() == 3) {
            Some(digits) => Some(Self(Some(digits.parse().ok()?))),
            None if text == "1.000" => Some(Self(Some(1000))),
            None => (text == "unknown").then_some(Self(None)),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(part) => write!(f, "{}.{:03}", part / 1000, part % 1000),
            None => f.write_str("unknown"),
        }
    }
}

/// Nanoseconds for which the calling thread has waited for a processor.
fn waited_ns() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Measures the load during a measurement by the calling thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measuring {
    since: Instant,
    waited: Option<u64>,
}

impl Measuring {
    /// Begins at a time of the device's clock.
    pub(crate) fn begin(now: Instant) -> Self {
        Self { since: now, waited: waited_ns() }
    }

    /// The load from the beginning until a time of the device's clock.
    pub(crate) fn load(&self, now: Instant) -> Load {
        let time = now.duration_since(self.since).as_nanos().max(1);
        let part = |(now, before): (u64, u64)| u128::from(now.saturating_sub(before)) * 1000 / time;
        Load(waited_ns().zip(self.waited).map(|both| part(both).min(1000) as u16))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn loads_are_read_back_and_ordered() {
        for load in [Load(None), Load(Some(0)), Load(Some(99)), Load(Some(1000))] {
            assert_eq!((Load::parse(&load.to_string()), Load::of(load.thousandths())), (Some(load), load));
        }
        assert!(Load(Some(100)).is_heavy() && !Load(Some(99)).is_heavy() && !Load(None).is_heavy());
        assert!(["0.5", "0.0001", "2.000", "0.-10", "", "0.1234"].iter().all(|text| Load::parse(text).is_none()));
    }

    #[test]
    fn threads_that_share_a_processor_are_a_load() {
        let processors = crate::processors::allowed();
        let bound = || rustix::thread::sched_setaffinity(None, &crate::processors::only(processors[0]).unwrap());
        if waited_ns().is_none() {
            return println!("skipped: the kernel does not count the time");
        }
        let busy = AtomicBool::new(true);
        let keep_busy = || {
            bound().unwrap();
            while busy.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
        };
        // Loops until the kernel has given the processor to the other threads.
        let measure = || {
            bound().unwrap();
            let measuring = Measuring::begin(Instant::now());
            while !measuring.load(Instant::now()).is_heavy() {
                std::hint::spin_loop();
            }
        };
        let measured = std::thread::scope(|threads| {
            (0..3).for_each(|_| drop(threads.spawn(keep_busy)));
            let measured = threads.spawn(measure).join();
            busy.store(false, Ordering::SeqCst);
            measured
        });
        measured.unwrap();
    }
}
