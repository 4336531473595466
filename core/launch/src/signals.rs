#![allow(unsafe_code)]
//! The signals that `farside run` passes on to the ranks, and what it inherits from the process that starts it.

use std::future::poll_fn;
use std::task::Poll;

use farside_core::{Error, Result};
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// Signals that request the end of the ranks, with their usual names.
const ENDING: [(Signal, &str); 4] =
    [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM"), (Signal::HUP, "SIGHUP"), (Signal::QUIT, "SIGQUIT")];
/// Signals that have a meaning only for the ranks, and those of job control.
const OTHERS: [Signal; 5] = [Signal::USR1, Signal::USR2, Signal::WINCH, Signal::TSTP, Signal::CONT];

/// Unblocks all signals in this thread, and so in the processes that it starts: batch systems start tasks with some of
/// them blocked. Makes only system calls.
pub(crate) fn unblock() {
    // SAFETY: a set of signals, which is filled before it is read.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Gives this process the signals that the launcher needs, whatever it has inherited: no signal is blocked, and the end
/// of a child is reported. Daemons leave SIGCHLD ignored, and then the kernel forgets children that have ended.
pub(crate) fn reset() {
    unblock();
    // SAFETY: the default action runs no code of this process.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Blocks a signal in this thread.
pub(crate) fn block(signal: Signal) {
    // SAFETY: a set of signals, which is filled before it is read.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal.as_raw());
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Whether standard input is a terminal with another process group in its foreground.
pub(crate) fn is_in_background() -> bool {
    // SAFETY: the calls have no memory. The first one fails on all but the terminal of this session.
    let (foreground, own) = unsafe { (libc::tcgetpgrp(libc::STDIN_FILENO), libc::getpgrp()) };
    foreground > 0 && foreground != own
}

/// The signals that this process receives and passes on.
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Takes the signals from now on; they no longer end or stop this process. A child gets the default action of each,
    /// even if it was ignored when the launcher began, as a shell does for commands in the background. A hangup that
    /// was ignored then (`nohup`) stays ignored in this process and in the ranks, and so do the signals that do not
    /// request an end.
    ///
    /// # Errors
    /// `System` when the kernel refuses.
    pub(crate) fn take() -> Result<Self> {
        let refused = |e| Error::system("take signals", e);
        let status = procfs::process::Process::myself().and_then(|me| me.status()).map_err(std::io::Error::other);
        let ignored = status.map_err(refused)?.sigign;
        let is_ignored = |s: Signal| ignored & (1 << (s.as_raw() - 1)) != 0;
        let ending = ENDING.into_iter().map(|(signal, _)| signal).filter(|s| *s != Signal::HUP || !is_ignored(*s));
        let taken = ending.chain(OTHERS.into_iter().filter(|s| !is_ignored(*s)));
        let stream = |s: Signal| Ok((s, unix::signal(SignalKind::from_raw(s.as_raw())).map_err(refused)?));
        taken.map(stream).collect::<Result<_>>().map(Self)
    }

    /// The next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let ready =
                self.0.iter_mut().find_map(|(signal, stream)| stream.poll_recv(context).is_ready().then_some(*signal));
            ready.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// The name of a signal that requests the end of the ranks.
pub(crate) fn ending(signal: Signal) -> Option<&'static str> {
    ENDING.iter().find(|(s, _)| *s == signal).map(|(_, name)| *name)
}
