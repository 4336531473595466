#![allow(unsafe_code)]
//! Epoch and window bodies that fail at one rank, by an error or a panic.
//!
//! Other participants of the same epoch or window may wait in their bodies for calls that the failing rank will never
//! make. So the failing rank sends a message to each of them, and their waits inside the body fail with an error that
//! names it. The failing rank then closes the epoch as usual; it leaves a window over borrowed memory immediately.
//!
//! | body | is reported to |
//! |---|---|
//! | of a window over borrowed memory, a run of fences, a fence epoch, exclusive access | all ranks of the team |
//! | of an access epoch (start) | its targets, which may be in the body of their exposure |
//! | of an exposure epoch (post) | its origins, which may be in the body of their access |
//! | under locks | no rank, since none takes part |

use std::any::Any;

use farside_core::am::{self, Counters, HandlerId, Source};
use farside_core::job::Track;
use farside_core::wire::Writer;
use farside_core::{Error, ErrorKind};

use super::failures::{FAILED, Failure};
use super::state::Replaced;
use super::{RawWindow, cell};

/// Maximum length of a panic text in a message, in bytes.
const TEXT: usize = 80;

/// A closure that ranks run inside a call on a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// The body of a window over borrowed memory.
    Window,
    /// A run of fences, with the number of the fence that opened it.
    Fences(u64),
    /// A single fence epoch, with the number of the fence that opened it.
    Fence(u64),
    /// One fence epoch of a run.
    FenceOfRun(u64),
    /// Exclusive access, with the number of the barrier that opened it.
    Exclusive(u64),
    Access,
    Exposure,
    /// A lock epoch.
    Lock,
}

impl Body {
    /// The code of the body in messages: [`FAILED`] plus its index in [`NAMES`].
    fn code(self) -> u8 {
        FAILED
            + match self {
                Self::Window => 0,
                Self::Fences(_) => 1,
                Self::Fence(_) | Self::FenceOfRun(_) => 2,
                Self::Exclusive(_) => 3,
                Self::Access => 4,
                Self::Exposure => 5,
                Self::Lock => 6,
            }
    }

    fn name(self) -> &'static str {
        name(self.code())
    }
}

/// The names of bodies, in the order of their codes.
const NAMES: [&str; 7] = [
    "a window over borrowed memory",
    "a run of fences",
    "a fence epoch",
    "exclusive access",
    "an access epoch",
    "an exposure epoch",
    "a lock",
];

/// The name of the body with this code, which another rank may have sent.
fn name(code: u8) -> &'static str {
    NAMES.get(usize::from(code - FAILED)).copied().unwrap_or("a window")
}

/// Describes how a body has failed; `None` if it has not.
fn described<R, E>(ended: &std::thread::Result<Result<R, E>>) -> Option<String> {
    let text = |panic: &(dyn Any + Send)| {
        panic.downcast_ref::<&str>().map(|text| (*text).to_owned()).or_else(|| panic.downcast_ref::<String>().cloned())
    };
    match ended {
        Ok(Ok(_)) => None,
        Ok(Err(_)) => Some("returned an error".to_owned()),
        Err(panic) => {
            let text = text(&**panic).unwrap_or_default();
            let end = (0..=text.len().min(TEXT)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            Some(format!("panicked: {}", &text[..end]))
        }
    }
}

impl RawWindow {
    /// Runs a body, whose waits fail if the body of another rank fails.
    #[inline]
    pub(crate) fn in_body<R>(&self, body: Body, run: impl FnOnce() -> R) -> R {
        match body {
            Body::Lock => run(),
            // The body of the run encloses this one, and its check covers both.
            Body::FenceOfRun(number) => {
                let _inside = Replaced::replace(&self.fencing.inside, number);
                run()
            }
            _ => self.job.in_body(&|| self.failed_elsewhere(body), run),
        }
    }

    /// Notifies the other participants of a body that it has failed at this rank. For a body of all ranks this is
    /// skipped if the failure was caused by another rank's failure in the same or an enclosing body, of which they have
    /// already been notified.
    #[inline]
    pub(crate) fn report_if_failed<R, E>(&self, body: Body, ended: &std::thread::Result<Result<R, E>>) {
        if !matches!(ended, Ok(Ok(_))) {
            self.report_failure(body, &described(ended).unwrap_or_default());
        }
    }

    #[cold]
    fn report_failure(&self, body: Body, text: &str) {
        let pairs = matches!(body, Body::Access | Body::Exposure);
        // A closing call that failed inside the body has failed at all ranks.
        let known = self.broken.get() && body != Body::Window;
        if !pairs && (known || self.failed_elsewhere(body).is_some() || self.job.check_bodies().is_err()) {
            return;
        }
        let all = |number| (0..self.targets.ranks()).map(|rank| (rank, number)).collect();
        let recipients: Vec<(usize, u64)> = match body {
            Body::Lock => return,
            Body::Window => all(0),
            Body::Fences(number) | Body::Fence(number) | Body::FenceOfRun(number) | Body::Exclusive(number) => {
                all(number)
            }
            Body::Access => self.groups.started.borrow().iter().map(|t| (*t, self.targets[*t].starts.get())).collect(),
            Body::Exposure => {
                let posted = self.groups.posted.borrow();
                posted.members().iter().map(|origin| (*origin, self.targets[*origin].posts.get())).collect()
            }
        };
        for (rank, number) in recipients.into_iter().filter(|(rank, _)| *rank != self.team.rank()) {
            let t = &self.targets[rank];
            let mut header =
                Writer::new().u8(body.code()).u64(self.serving.unique).u64(number).u64(self.fences()).done();
            header.extend(text.as_bytes());
            let (to, source, track) = (HandlerId(t.listens), Source::of(&[]), Track::new());
            // SAFETY: the message has no data, and goes to the listener of the window at the rank.
            let sent =
                unsafe { am::start_send(&self.job, t.region.peer, to, &header, source, Counters::default(), &track) };
            if let Err(e) = sent {
                tracing::debug!("failed to notify rank {} of a failed epoch body: {e}", t.region.peer);
            }
        }
    }

    /// The error of the body that this rank is running, if the body has failed at another participant.
    ///
    /// A closing fence continues, since the rank whose body has failed participates in it, unless that rank has already
    /// left its window. Inside the body of an exposure, an access epoch continues to close unless it waits for that
    /// rank's post.
    pub(crate) fn failed_elsewhere(&self, body: Body) -> Option<Error> {
        let closing = self.fencing.closing.get();
        let disturbs = |failure: &&Failure| match body {
            _ if closing != 0 => body == Body::Window && failure.fences < closing,
            Body::Exposure if self.groups.completing.get() => self.awaits_post_of(failure.source),
            _ => true,
        };
        let concerns = |failure: &&Failure| match body {
            Body::Lock => false,
            Body::Window => failure.code == body.code(),
            Body::Fence(number) | Body::FenceOfRun(number) | Body::Exclusive(number) => {
                (failure.code, failure.number) == (body.code(), number)
            }
            Body::Fences(number) => {
                let inside = self.fencing.inside.get();
                let in_epoch =
                    inside != 0 && (failure.code, failure.number) == (Body::FenceOfRun(inside).code(), inside);
                in_epoch || (failure.code, failure.number) == (body.code(), number)
            }
            Body::Access => {
                let targets = self.groups.started.borrow();
                failure.code == Body::Exposure.code()
                    && self.peer_of(&targets, failure.source).is_some_and(|t| t.starts.get() == failure.number)
            }
            Body::Exposure => {
                let origins = self.groups.posted.borrow();
                failure.code == Body::Access.code()
                    && self.peer_of(origins.members(), failure.source).is_some_and(|t| t.posts.get() == failure.number)
            }
        };
        let failures = self.serving.listener.failures().reported();
        failures.iter().filter(|failure| failure.window == self.serving.unique).filter(disturbs).find(concerns).map(
            |failure| {
                let e = Error::new(ErrorKind::Mismatch, body.name()).rank(self.job.rank()).peer(failure.source);
                e.cause(format!("the peer's body of {} {}", name(failure.code), failure.text))
                    .remedy("see the error of the peer rank")
            },
        )
    }

    /// Whether job rank `rank` is a target of the started access epoch, and has not posted yet.
    fn awaits_post_of(&self, rank: u32) -> bool {
        let target = self.peer_of(&self.groups.started.borrow(), rank);
        target.is_some_and(|t| !self.signals.reached(t.team_rank, cell::POST, t.starts.get()))
    }

    /// The target state of job rank `rank`, if it is in a group of team ranks.
    fn peer_of(&self, group: &[usize], rank: u32) -> Option<&super::Target> {
        group.iter().map(|member| &self.targets[*member]).find(|t| t.region.peer == rank)
    }

    /// Replaces the error of a closing call that failed because ranks disagree or a rank has left the window by one
    /// that names the rank whose body has failed, if there is one.
    #[cold]
    pub(crate) fn naming_failed_rank(&self, body: Body, e: Error) -> Error {
        if !matches!(e.kind(), ErrorKind::Mismatch | ErrorKind::BadKey) {
            return e;
        }
        // The failing rank sent its notification before the signals that revealed the failure, so it arrives soon.
        self.or_cause(e, || self.failed_elsewhere(body).or_else(|| self.job.check_bodies().err()))
    }

    /// Replaces the error of operations on memory that its rank has freed by the loss of a third rank, if that is why
    /// the window ended there: the loss was noticed there first.
    #[cold]
    pub(super) fn naming_lost_rank(&self, e: Error) -> Error {
        if e.kind() == ErrorKind::BadKey { self.or_cause(e, || None) } else { e }
    }

    /// `e`, or what has caused it if that becomes known soon: `cause`, or the loss of a rank.
    fn or_cause(&self, e: Error, cause: impl Fn() -> Option<Error>) -> Error {
        const SOON: std::time::Duration = std::time::Duration::from_millis(100);
        // A wait checks the peers less often.
        let found = || self.job.check_peers().map(|()| cause());
        match self.job.within(SOON, || self.job.wait("find the cause of an error", found)) {
            Ok(cause) => cause,
            Err(lost) if lost.kind() == ErrorKind::PeerLost => lost,
            Err(_) => e,
        }
    }
}
