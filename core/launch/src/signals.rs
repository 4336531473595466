//! The signals that `farside run` passes on to the ranks.

use std::future::poll_fn;
use std::task::Poll;

use farside_core::{Error, Result};
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// With the names that users know.
const PASSED_ON: [(Signal, &str); 4] =
    [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM"), (Signal::HUP, "SIGHUP"), (Signal::QUIT, "SIGQUIT")];

/// The signals that are passed on, as this process gets them.
#[derive(Debug)]
pub struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Takes the signals from now on; they no longer end this process. A child gets the default action of each, also
    /// where it was ignored when the launcher began, as a shell does for commands in the background. A hangup that
    /// was ignored then (`nohup`) stays ignored, here and in the ranks.
    ///
    /// # Errors
    /// `System` when the kernel refuses.
    pub fn take() -> Result<Self> {
        let refused = |e| Error::system("take signals", e);
        let status = procfs::process::Process::myself().and_then(|me| me.status()).map_err(std::io::Error::other);
        let ignored = status.map_err(refused)?.sigign;
        let taken = PASSED_ON.into_iter().map(|(signal, _)| signal);
        let taken = taken.filter(|s| *s != Signal::HUP || ignored & (1 << (s.as_raw() - 1)) == 0);
        let stream = |s: Signal| Ok((s, unix::signal(SignalKind::from_raw(s.as_raw())).map_err(refused)?));
        taken.map(stream).collect::<Result<_>>().map(Self)
    }

    /// The next one.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let ready =
                self.0.iter_mut().find_map(|(signal, stream)| stream.poll_recv(context).is_ready().then_some(*signal));
            ready.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// The name of a signal that is passed on.
#[must_use]
pub fn name(signal: Signal) -> &'static str {
    PASSED_ON.iter().find(|(s, _)| *s == signal).map_or("signal", |(_, name)| name)
}
