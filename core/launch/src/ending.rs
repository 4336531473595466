//! The stages in which the launcher ends ranks. This is a pure state machine: time and processes are handled elsewhere.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;

/// Time that the other ranks have after one has failed, so that they can report their own errors.
const GRACE: Duration = Duration::from_secs(3);
/// Time that a rank has to end after SIGTERM.
const TERM_TIME: Duration = Duration::from_secs(1);
/// The exit code of a job that `--timeout` ended; the same as that of timeout(1).
pub(crate) const TIMEOUT_CODE: u8 = 124;

/// The exit code that a shell would report.
pub(crate) fn code(status: ExitStatus) -> u8 {
    // Only the low byte of an exit code reaches a parent.
    status.code().map_or_else(|| 128 + status.signal().unwrap_or(0) as u8, |code| (code & 0xff) as u8)
}

/// How a process ended, as in "rank 1 was killed by signal 9 (SIGKILL)".
pub(crate) fn describe(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exited with code {code}"),
        None => format!("was killed by {status}").replace("signal: ", "signal "),
    }
}

/// An action of the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send the signal to every rank that still runs, except one that ends by itself.
    Signal(Signal, Option<u32>),
    /// Kill everything that is left.
    KillAll,
    /// Call [`Ending::wake`] after this time, and forget earlier such requests.
    WakeAfter(Duration),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// No rank has failed.
    #[default]
    Running,
    /// A rank failed; the others may still report errors.
    Grace,
    /// SIGTERM was sent.
    Terminated,
    /// SIGKILL was sent.
    Killed,
}

/// The stages of a job's end.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    stage: Stage,
    code: u8,
    /// Whether a signal was passed on already.
    warned: bool,
}

impl Ending {
    /// The exit code of the job: that of the first failure.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Whether the job has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.code != 0
    }

    /// Handles the failure of a rank: the others get a grace period.
    pub(crate) fn failed(&mut self, code: u8) -> Vec<Action> {
        self.blame(code);
        match self.stage {
            Stage::Running => self.to(Stage::Grace, None),
            _ => Vec::new(),
        }
    }

    /// Ends the job because of `--timeout`.
    pub(crate) fn timed_out(&mut self) -> Vec<Action> {
        self.end_now(TIMEOUT_CODE, None)
    }

    /// Ends the job because `rank` requested it; that rank exits by itself.
    pub(crate) fn aborted(&mut self, rank: u32, code: i32) -> Vec<Action> {
        self.end_now((code & 0xff) as u8, Some(rank))
    }

    /// Handles a signal of the user: the first is passed to the ranks, the second kills them.
    pub(crate) fn signalled(&mut self, signal: Signal) -> Vec<Action> {
        if self.warned || self.stage == Stage::Killed {
            self.blame(128 + signal.as_raw() as u8);
            return self.to(Stage::Killed, None);
        }
        self.warned = true;
        vec![Action::Signal(signal, None)]
    }

    /// Continues after the requested time has passed.
    pub(crate) fn wake(&mut self) -> Vec<Action> {
        match self.stage {
            Stage::Running => Vec::new(),
            Stage::Grace => self.to(Stage::Terminated, None),
            Stage::Terminated | Stage::Killed => self.to(Stage::Killed, None),
        }
    }

    fn blame(&mut self, code: u8) {
        if self.code == 0 {
            // A failure must not look like success, even if its exit code was 0.
            self.code = code.max(1);
        }
    }

    fn end_now(&mut self, code: u8, spared: Option<u32>) -> Vec<Action> {
        self.blame(code);
        match self.stage {
            Stage::Running | Stage::Grace => self.to(Stage::Terminated, spared),
            _ => Vec::new(),
        }
    }

    fn to(&mut self, stage: Stage, spared: Option<u32>) -> Vec<Action> {
        self.stage = stage;
        match stage {
            Stage::Running => Vec::new(),
            Stage::Grace => vec![Action::WakeAfter(GRACE)],
            Stage::Terminated => vec![Action::Signal(Signal::TERM, spared), Action::WakeAfter(TERM_TIME)],
            // This is repeated, since a process may have forked between the search and the kill.
            Stage::Killed => vec![Action::KillAll, Action::WakeAfter(TERM_TIME)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_gives_grace_then_term_then_kill() {
        let mut e = Ending::default();
        assert_eq!(e.failed(3), [Action::WakeAfter(GRACE)]);
        assert_eq!(e.failed(9), []);
        assert_eq!(e.wake(), [Action::Signal(Signal::TERM, None), Action::WakeAfter(TERM_TIME)]);
        assert_eq!(e.wake(), [Action::KillAll, Action::WakeAfter(TERM_TIME)]);
        assert_eq!(e.wake(), [Action::KillAll, Action::WakeAfter(TERM_TIME)]);
        assert_eq!(e.code(), 3);
    }

    #[test]
    fn second_signal_kills_in_every_stage() {
        let mut e = Ending::default();
        assert_eq!(e.signalled(Signal::INT), [Action::Signal(Signal::INT, None)]);
        assert_eq!(e.signalled(Signal::INT)[0], Action::KillAll);
        assert_eq!(e.code(), 130);
        let mut e = Ending::default();
        e.failed(3);
        e.signalled(Signal::TERM);
        assert_eq!(e.signalled(Signal::INT)[0], Action::KillAll);
        assert_eq!(e.code(), 3);
    }

    #[test]
    fn abort_spares_its_rank_and_is_never_success() {
        let mut e = Ending::default();
        assert_eq!(e.aborted(2, 0)[0], Action::Signal(Signal::TERM, Some(2)));
        assert_eq!(e.code(), 1);
        assert_eq!(e.failed(9), []);
    }

    #[test]
    fn timeout_has_the_code_of_timeout() {
        let mut e = Ending::default();
        assert_eq!(e.timed_out()[0], Action::Signal(Signal::TERM, None));
        assert_eq!(e.code(), 124);
    }

    #[test]
    fn code_is_that_of_a_shell() {
        let [killed, exited] = [9, 3 << 8].map(ExitStatus::from_raw);
        assert_eq!([code(killed), code(exited)], [137, 3]);
        assert_eq!([describe(killed), describe(exited)], ["was killed by signal 9 (SIGKILL)", "exited with code 3"]);
    }
}
