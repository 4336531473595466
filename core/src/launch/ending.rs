//! How ranks end, and what the launcher does about it. Pure: time and processes are elsewhere.

use std::fmt;
use std::time::Duration;

/// How long the others may go on after a rank failed, so that they can say what they saw.
const GRACE: Duration = Duration::from_secs(3);
/// How long a rank may take to end after SIGTERM.
const TERM_TIME: Duration = Duration::from_secs(1);
/// The exit code of a job that ran into `--timeout`, as that of timeout(1).
const TIMEOUT_CODE: u8 = 124;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with a code.
    Exited(i32),
    /// A signal killed it.
    Killed(i32),
}

impl End {
    /// The exit code that a shell would report.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            // Only the low byte of an exit code reaches a parent.
            Self::Exited(code) => (code & 0xff) as u8,
            Self::Killed(signal) => 128u8.saturating_add(signal as u8),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Killed(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "was killed by signal {signal} ({name})"),
                None => write!(f, "was killed by signal {signal}"),
            },
        }
    }
}

/// The name of a signal that often ends programs.
#[must_use]
pub fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}

/// What the launcher must do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the signal to every rank that still runs, but for one that ends by itself.
    Signal(i32, Option<u32>),
    /// Kill everything that is left.
    KillAll,
    /// Call [`Ending::wake`] after so long, and forget earlier such requests.
    WakeAfter(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing has gone wrong.
    Running,
    /// A rank failed; the others may still say so.
    Grace,
    /// SIGTERM was sent.
    Terminated,
    /// SIGKILL was sent.
    Killed,
}

/// The way of a job to its end.
#[derive(Debug)]
pub struct Ending {
    stage: Stage,
    code: u8,
    /// A signal was passed on already.
    warned: bool,
}

impl Default for Ending {
    fn default() -> Self {
        Self { stage: Stage::Running, code: 0, warned: false }
    }
}

impl Ending {
    /// The exit code of the job: that of the first failure.
    #[must_use]
    pub fn code(&self) -> u8 {
        self.code
    }

    /// Whether the job has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.code != 0
    }

    /// A rank failed: the others get a grace period.
    pub fn failed(&mut self, code: u8) -> Vec<Action> {
        self.blame(code);
        match self.stage {
            Stage::Running => self.to(Stage::Grace),
            _ => Vec::new(),
        }
    }

    /// The job must end now: `--timeout`.
    pub fn timed_out(&mut self) -> Vec<Action> {
        self.end_now(TIMEOUT_CODE, None)
    }

    /// The job must end now: `rank` asked for it, and exits by itself.
    pub fn aborted(&mut self, rank: u32, code: i32) -> Vec<Action> {
        self.end_now(End::Exited(code).code(), Some(rank))
    }

    /// The user sent a signal: the first is for the ranks, the second kills.
    pub fn signalled(&mut self, signal: i32) -> Vec<Action> {
        if self.warned || self.stage == Stage::Killed {
            self.blame(End::Killed(signal).code());
            return self.to(Stage::Killed);
        }
        self.warned = true;
        vec![Action::Signal(signal, None)]
    }

    /// The time asked for has passed.
    pub fn wake(&mut self) -> Vec<Action> {
        match self.stage {
            Stage::Running => Vec::new(),
            Stage::Grace => self.to(Stage::Terminated),
            Stage::Terminated | Stage::Killed => self.to(Stage::Killed),
        }
    }

    fn blame(&mut self, code: u8) {
        if self.code == 0 {
            // A failure must not look like success, whatever code it came with.
            self.code = code.max(1);
        }
    }

    fn end_now(&mut self, code: u8, spared: Option<u32>) -> Vec<Action> {
        self.blame(code);
        match self.stage {
            Stage::Running | Stage::Grace => {
                self.stage = Stage::Terminated;
                vec![Action::Signal(libc::SIGTERM, spared), Action::WakeAfter(TERM_TIME)]
            }
            _ => Vec::new(),
        }
    }

    fn to(&mut self, stage: Stage) -> Vec<Action> {
        self.stage = stage;
        match stage {
            Stage::Running => Vec::new(),
            Stage::Grace => vec![Action::WakeAfter(GRACE)],
            Stage::Terminated => vec![Action::Signal(libc::SIGTERM, None), Action::WakeAfter(TERM_TIME)],
            // Again and again: a process may have forked between the look and the kill.
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
        assert_eq!(e.wake(), [Action::Signal(libc::SIGTERM, None), Action::WakeAfter(TERM_TIME)]);
        assert_eq!(e.wake(), [Action::KillAll, Action::WakeAfter(TERM_TIME)]);
        assert_eq!(e.wake(), [Action::KillAll, Action::WakeAfter(TERM_TIME)]);
        assert_eq!(e.code(), 3);
    }

    #[test]
    fn second_signal_kills_in_every_stage() {
        let mut e = Ending::default();
        assert_eq!(e.signalled(libc::SIGINT), [Action::Signal(libc::SIGINT, None)]);
        assert_eq!(e.signalled(libc::SIGINT)[0], Action::KillAll);
        assert_eq!(e.code(), 130);
        let mut e = Ending::default();
        e.failed(3);
        e.signalled(libc::SIGTERM);
        assert_eq!(e.signalled(libc::SIGINT)[0], Action::KillAll);
        assert_eq!(e.code(), 3);
    }

    #[test]
    fn abort_spares_its_rank_and_is_never_success() {
        let mut e = Ending::default();
        assert_eq!(e.aborted(2, 0)[0], Action::Signal(libc::SIGTERM, Some(2)));
        assert_eq!(e.code(), 1);
        assert_eq!(e.failed(9), []);
    }

    #[test]
    fn timeout_has_the_code_of_timeout() {
        let mut e = Ending::default();
        assert_eq!(e.timed_out()[0], Action::Signal(libc::SIGTERM, None));
        assert_eq!(e.code(), 124);
    }

    #[test]
    fn code_is_that_of_a_shell() {
        assert_eq!(End::Killed(libc::SIGKILL).code(), 137);
        assert_eq!(End::Exited(3).code(), 3);
        assert_eq!(End::Killed(9).to_string(), "was killed by signal 9 (SIGKILL)");
        assert_eq!(End::Killed(40).to_string(), "was killed by signal 40");
    }
}
