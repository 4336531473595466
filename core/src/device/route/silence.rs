//! How often a device is polled that has no events. A poll of one device may take many times as long as that of another: an
//! HCA's reads memory, that of a socket enters the kernel.

use std::cell::Cell;

/// A silent device is polled after this part of the polls that it has been silent for: an event is seen late by at most this
/// part of the time since the last one.
const PART: u32 = 16;
/// Largest number of polls in a row that leave a device out.
const MAX_SKIPPED_POLLS: u32 = 1024;

/// The polls since a device had an event, or was given a request.
#[derive(Debug, Default)]
pub(super) struct Silence {
    polls: Cell<u32>,
    /// The next polls that leave it out.
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

    /// Has the next polls poll the device; returns whether polls may have left it out.
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
        // No gap is longer than the part, after however many polls.
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
