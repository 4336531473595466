//! How often a device without events is polled. A poll of one device may take many times as long as that of another: an
//! HCA's reads memory, that of a socket enters the kernel.

use std::cell::Cell;

/// A device that has been silent for n polls is polled again after n / `PART` polls, so an event is seen late by at
/// most that fraction of the time since the last one.
const PART: u32 = 16;
/// Maximum number of consecutive polls that skip a device.
const MAX_SKIPPED_POLLS: u32 = 1024;

/// Number of polls since a device had an event, or was given a request.
#[derive(Debug, Default)]
pub(super) struct Silence {
    polls: Cell<u32>,
    /// Number of next polls that skip it.
    left_out: Cell<u32>,
}

impl Silence {
    /// Counts a poll; returns whether it polls the device.
    #[inline]
    pub(super) fn is_poll_due(&self) -> bool {
        let polls = self.polls.get().saturating_add(1);
        self.polls.set(polls);
        match self.left_out.get() {
            0 => self.left_out.set((polls / PART).min(MAX_SKIPPED_POLLS)),
            left => {
                self.left_out.set(left - 1);
                return false;
            }
        }
        true
    }

    /// Makes the next polls include the device; returns whether polls may have skipped it.
    #[inline(always)]
    pub(super) fn end(&self) -> bool {
        self.left_out.set(0);
        self.polls.replace(0) >= PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_device_is_polled_less_and_less_often() {
        let silence = Silence::default();
        let polls = |silence: &Silence, n: u32| (0..n).filter(|_| silence.is_poll_due()).count();
        assert_eq!(polls(&silence, 15), 15);
        assert!((16..80).contains(&polls(&silence, 1000)));
        assert!(polls(&silence, 1_000_000) < 1_000_000 / MAX_SKIPPED_POLLS as usize + 200);
        // An event or a request ends it.
        assert!(silence.end() && !silence.end());
        assert_eq!(polls(&silence, 15), 15);
        // However many polls have passed, no gap exceeds the fraction.
        silence.end();
        let (mut gap, mut longest) = (0, 0);
        for at in 1..100_000u32 {
            gap = if silence.is_poll_due() { 0 } else { gap + 1 };
            assert!(gap <= at / PART && gap <= MAX_SKIPPED_POLLS, "{gap} at {at}");
            longest = longest.max(gap);
        }
        assert!(longest > MAX_SKIPPED_POLLS - 2);
    }
}
