#![allow(unsafe_code)]
//! The two processes of `farside run`, and what each does when the other is killed.
//!
//! - The **guard** holds the signals of the terminal and of the user, and passes them on over a socket. If the worker
//!   is killed, the ranks die with it (`PR_SET_PDEATHSIG`), their descendants become children of the guard, and it
//!   kills them.
//! - The **worker** sees the socket close if the guard is killed, and kills every descendant.
//!
//! What remains: if both are killed with SIGKILL within the same instant, the ranks die with the worker, but
//! processes that the ranks have started stay, unless they asked to die with their parent.

use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::ending::End;
use super::sweep::{become_subreaper, end_of, sweep};
use crate::error::{Error, ErrorKind, Result};

/// The signals that are passed on to the ranks; a hangup is not where it was ignored when the launcher began (`nohup`).
const PASSED_ON: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// What the worker has from its guard.
#[derive(Debug)]
pub struct Link {
    /// One byte per signal; end of file when the guard is gone.
    pub signals: UnixStream,
    /// The signal mask that the ranks are to have: that of before.
    pub mask: SignalMask,
}

/// A set of blocked signals.
#[derive(Clone, Copy)]
pub struct SignalMask(libc::sigset_t);

impl std::fmt::Debug for SignalMask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignalMask")
    }
}

impl SignalMask {
    /// Makes it the mask of the calling thread. Safe between fork and exec: one system call, no memory.
    ///
    /// # Errors
    /// What the system says.
    pub fn apply(&self) -> std::io::Result<()> {
        // SAFETY: the set is initialized, and no old one is asked for.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) } {
            0 => Ok(()),
            e => Err(std::io::Error::from_raw_os_error(e)),
        }
    }

    fn passed_on() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initializes the set; sigaddset gets that set and valid signal numbers.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in PASSED_ON.into_iter().filter(|s| *s != libc::SIGHUP || !is_ignored(*s)) {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            Self(set.assume_init())
        }
    }

    /// Blocks these signals too; the mask of before.
    fn block(&self) -> Result<Self> {
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are live; the old one is written when the call succeeds.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const self.0, before.as_mut_ptr()) } {
            // SAFETY: the call has succeeded and has written it.
            0 => Ok(Self(unsafe { before.assume_init() })),
            e => Err(Error::system("block signals", std::io::Error::from_raw_os_error(e))),
        }
    }

    /// A descriptor from which these signals are read.
    fn descriptor(&self) -> Result<OwnedFd> {
        // SAFETY: the set is initialized; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const self.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(Error::last_os("take signals"));
        }
        // SAFETY: the call has just made this descriptor, and nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only, into a live structure.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: plain integers, valid as zeros too.
    let action = unsafe { action.assume_init() };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Runs `work` in a worker process under the guard of this one; the exit code that it gives.
///
/// # Errors
/// `Unsupported` when the process has more threads than one (the worker is a fork of it) or no /proc;
/// `System` when the kernel refuses a process, a socket or the signals.
pub fn guarded(work: impl FnOnce(Link) -> u8) -> Result<u8> {
    let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count);
    if !matches!(threads, Ok(1)) {
        return Err(Error::new(ErrorKind::Unsupported, "start the launcher")
            .cause("it needs /proc, and a process with a single thread")
            .remedy("mount /proc, and start it first thing in `main`"));
    }
    become_subreaper()?;
    let signals = SignalMask::passed_on();
    let mask = signals.block()?;
    let (mine, theirs) = UnixStream::pair().map_err(|e| Error::system("make a socket pair", e))?;
    // SAFETY: this process has one thread (above), so the child has every lock in a known state.
    match unsafe { libc::fork() } {
        -1 => Err(Error::last_os("start the launcher's worker")),
        0 => {
            drop(mine);
            let link = Link { signals: theirs, mask };
            let code = catch_unwind(AssertUnwindSafe(|| become_subreaper().map(|()| work(link))));
            std::process::exit(match code {
                Ok(Ok(code)) => code.into(),
                Ok(Err(e)) => {
                    eprintln!("farside: {e}");
                    1
                }
                // The panic has printed its message.
                Err(_) => 101,
            });
        }
        worker => {
            drop(theirs);
            let end = watch(worker, &mine, &signals.descriptor()?)?;
            if let End::Killed(_) = end {
                eprintln!("farside: the launcher's worker {end}; ending the ranks");
            }
            for pid in sweep() {
                eprintln!("farside: process {pid} does not die");
            }
            Ok(end.code())
        }
    }
}

/// Passes signals on until the worker has ended; how it did.
fn watch(worker: i32, link: &UnixStream, signals: &OwnedFd) -> Result<End> {
    let of = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    link.set_nonblocking(true).map_err(|e| Error::system("set up the worker's socket", e))?;
    loop {
        let mut ready = [of(link.as_raw_fd()), of(signals.as_raw_fd())];
        // SAFETY: the array is live and has as many entries as said.
        let n = unsafe { libc::poll(ready.as_mut_ptr(), ready.len() as libc::nfds_t, -1) };
        if n < 0 && std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return Err(Error::last_os("wait for the worker"));
        }
        if ready[0].revents != 0 {
            // The worker never writes, so it has closed its end: it has ended.
            let mut status = 0;
            // SAFETY: `status` is a live integer for the call to write.
            while unsafe { libc::waitpid(worker, &raw mut status, 0) } < 0 {
                if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                    return Err(Error::last_os("wait for the worker"));
                }
            }
            return Ok(end_of(status));
        }
        while let Some(signal) = next_signal(signals) {
            // A worker that is gone is seen above; one that has a buffer full of signals needs no more of them.
            let _ = (&*link).write(&[signal]);
        }
    }
}

fn next_signal(signals: &OwnedFd) -> Option<u8> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the buffer is as long as said.
    let n = unsafe { libc::read(signals.as_raw_fd(), info.as_mut_ptr().cast(), size) };
    if n != size as isize {
        return None;
    }
    // SAFETY: the call has filled the whole structure, which is plain integers.
    let info = unsafe { info.assume_init() };
    u8::try_from(info.ssi_signo).ok()
}
