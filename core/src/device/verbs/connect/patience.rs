//! Failures to connect a queue pair because of the network. A queue pair that becomes ready to receive resolves the
//! address of its peer, which can time out when many ranks start at the same time, or fail while a port is down.

use std::io;
use std::time::{Duration, Instant};

/// Time for which failures of one peer's connections may follow each other before one is final.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pause after a failure before this rank tries again.
const PAUSE: Duration = Duration::from_millis(200);

/// Whether an error may be temporary.
fn is_passing(e: &io::Error) -> bool {
    let passing = [
        libc::ENETDOWN,
        libc::ENETUNREACH,
        libc::EHOSTDOWN,
        libc::EHOSTUNREACH,
        libc::ETIMEDOUT,
        libc::EADDRNOTAVAIL,
        libc::ENODEV,
    ];
    e.raw_os_error().is_some_and(|code| passing.contains(&code))
}

/// The failures since the last success: times of the first and of the last one.
#[derive(Default)]
pub(crate) struct Patience(Option<(Instant, Instant)>);

impl Patience {
    /// Records a failure at `now`; returns whether it may be temporary and its like have not lasted too long.
    pub(crate) fn passes(&mut self, e: &io::Error, now: Instant) -> bool {
        tracing::debug!("a queue pair could not be connected: {e}");
        let since = match self.0 {
            // Failures that are far apart have different causes.
            Some((since, last)) if now.saturating_duration_since(last) < PATIENCE => since,
            _ => now,
        };
        self.0 = Some((since, now));
        is_passing(e) && now.saturating_duration_since(since) < PATIENCE
    }

    pub(crate) fn succeeded(&mut self) {
        self.0 = None;
    }

    /// The time at which this rank may try again.
    pub(crate) fn due(&self, now: Instant) -> Instant {
        self.0.map_or(now, |(_, last)| (last + PAUSE).max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_temporary_for_a_time_whatever_their_number() {
        let error = |code| io::Error::from_raw_os_error(code);
        let (start, mut patience) = (Instant::now(), Patience::default());
        assert_eq!(patience.due(start), start);
        // A hundred failures in ten seconds, as of a queue pair that cannot resolve its peer's address.
        for i in 0..100 {
            let now = start + Duration::from_millis(100) * i;
            assert!(patience.passes(&error(libc::ETIMEDOUT), now), "failure {i}");
            assert_eq!(patience.due(now), now + PAUSE);
        }
        assert!(!Patience::default().passes(&error(libc::EINVAL), start), "not one of the network");
        assert!(!patience.passes(&error(libc::ETIMEDOUT), start + PATIENCE));
        patience.succeeded();
        assert!(patience.passes(&error(libc::EHOSTUNREACH), start + PATIENCE), "the first one after a success");
        assert!(patience.passes(&error(libc::EHOSTUNREACH), start + 3 * PATIENCE), "another one, long after");
    }
}
