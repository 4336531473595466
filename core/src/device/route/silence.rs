//! Decides which devices a poll includes. A poll of one device may take many times as long as that of another: the poll
//! of an HCA reads memory, that of a socket enters the kernel. Every poll includes the first device.

use std::cell::Cell;

/// A device that has been silent for n polls is polled again after n / `PART` polls, so an event is seen late by at
/// most that fraction of the time since the last one.
const PART: u64 = 16;
/// Maximum number of consecutive polls that skip a device.
const MAX_SKIPPED_POLLS: u64 = 1024;

/// A device after the first.
#[derive(Debug, Default)]
struct Silence {
    /// The number of the poll before which the device had its last event, or a request was posted on it.
    since: Cell<u64>,
    /// The number of the poll that includes the device next.
    next: Cell<u64>,
}

/// The silences of all devices.
#[derive(Debug)]
pub(super) struct Silences {
    /// Number of polls.
    polls: Cell<u64>,
    /// The number of the poll that includes one of the devices next: the lowest of theirs.
    next: Cell<u64>,
    devices: Box<[Silence]>,
}

impl Silences {
    pub(super) fn new(devices: usize) -> Self {
        let devices = (1..devices).map(|_| Silence::default()).collect();
        Self { polls: Cell::new(0), next: Cell::new(0), devices }
    }

    /// Counts a poll; returns whether it includes devices after the first.
    #[inline(always)]
    pub(super) fn begin_poll(&self) -> bool {
        let poll = self.polls.get() + 1;
        self.polls.set(poll);
        poll >= self.next.get()
    }

    /// Calls `poll` with the number of each device that the current poll includes after the first, until it fails.
    pub(super) fn poll_due<E>(&self, mut poll: impl FnMut(u8) -> Result<(), E>) -> Result<(), E> {
        // Lowered again by a request that `poll` posts.
        self.next.set(u64::MAX);
        let result = (1..).zip(&self.devices).try_for_each(|(number, device)| {
            let now = self.polls.get();
            if device.next.get() > now {
                return Ok(());
            }
            device.next.set(now + 1 + ((now - device.since.get()) / PART).min(MAX_SKIPPED_POLLS));
            poll(number)
        });
        self.devices.iter().for_each(|device| self.next.set(self.next.get().min(device.next.get())));
        result
    }

    /// Makes the next polls include a device; returns whether polls may have skipped it.
    #[inline(always)]
    pub(super) fn end(&self, number: u8) -> bool {
        // The first device has no silence.
        let Some(device) = self.devices.get(usize::from(number).wrapping_sub(1)) else { return false };
        let polls = self.polls.get();
        self.next.set(0);
        device.next.set(0);
        polls - device.since.replace(polls) >= PART
    }

    /// Makes the next polls include all devices; returns whether polls may have skipped one.
    pub(super) fn end_all(&self) -> bool {
        (1..=self.devices.len() as u8).fold(false, |any, number| self.end(number) | any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes `n` polls; returns how many of them included each of two devices after the first.
    fn polls(silences: &Silences, n: u32) -> [u32; 2] {
        let mut included = [0; 2];
        for _ in 0..n {
            if silences.begin_poll() {
                let poll = |number: u8| {
                    included[usize::from(number) - 1] += 1;
                    Ok::<_, ()>(())
                };
                silences.poll_due(poll).unwrap();
            }
        }
        included
    }

    #[test]
    fn silent_device_is_polled_less_and_less_often() {
        let silences = Silences::new(3);
        assert_eq!(polls(&silences, 15), [15; 2]);
        let included = polls(&silences, 1000);
        assert!((16..80).contains(&included[0]) && included[0] == included[1], "{included:?}");
        assert!(polls(&silences, 1_000_000)[0] < 1_000_000 / MAX_SKIPPED_POLLS as u32 + 200);
        // An event or a request ends the silence of its device alone.
        assert!(silences.end(2) && !silences.end(2) && !silences.end(0));
        let included = polls(&silences, 15);
        assert!(included[0] <= 1 && included[1] == 15, "{included:?}");
        assert!(silences.end_all() && !silences.end_all());
        assert_eq!(polls(&silences, 15), [15; 2]);
        // However many polls have passed, no gap exceeds the fraction.
        silences.end_all();
        let (mut gap, mut longest) = (0, 0);
        for at in 1..100_000u64 {
            gap = if polls(&silences, 1)[0] > 0 { 0 } else { gap + 1 };
            assert!(gap <= at / PART && gap <= MAX_SKIPPED_POLLS, "{gap} at {at}");
            longest = longest.max(gap);
        }
        assert!(longest > MAX_SKIPPED_POLLS - 2);
    }

    /// A request that is posted while a device is polled makes the next poll include its own device.
    #[test]
    fn request_of_a_poll_is_not_forgotten() {
        let silences = Silences::new(3);
        polls(&silences, 100_000);
        silences.end(1);
        assert!(silences.begin_poll());
        let post = |number: u8| {
            assert_eq!(number, 1);
            silences.end(2);
            Err(())
        };
        assert_eq!(silences.poll_due(post), Err(()));
        assert_eq!(polls(&silences, 1), [1; 2]);
        // A rank without other devices checks for them in its first poll alone.
        let alone = Silences::new(1);
        assert_eq!(polls(&alone, 10), [0; 2]);
        assert!(!alone.begin_poll());
    }
}
