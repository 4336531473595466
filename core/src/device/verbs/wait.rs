#![allow(unsafe_code)]
//! Sleeping on descriptors, and waking a thread that does; secrets from the kernel.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rand::TryRng;
use rand::rngs::SysRng;

/// Wakes a thread that sleeps in [`sleep`].
#[derive(Debug)]
pub(super) struct Bell(File);

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just opened and belongs to nobody else.
        Ok(Self(File::from(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    pub(super) fn ring(&self) {
        // A counter that is full has been rung.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    /// Makes it silent; whether it had been rung.
    pub(super) fn hear(&self) -> bool {
        (&self.0).read(&mut [0; 8]).is_ok()
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Sleeps until one of the descriptors is readable or the time is over; which of them are. Negative ones never are.
pub(super) fn sleep<const N: usize>(fds: [RawFd; N], limit: Duration) -> [bool; N] {
    let mut polls = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // Rounded up, so that a short limit does not become a busy loop.
    let ms = i32::try_from(limit.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    // SAFETY: a live array of that length.
    unsafe { libc::poll(polls.as_mut_ptr(), N as libc::nfds_t, ms) };
    polls.map(|poll| poll.revents != 0)
}

/// Becomes readable when another descriptor does so anew, until it is [`taken`](Self::take): the other one may stay readable
/// meanwhile without waking who sleeps on this one.
#[derive(Debug)]
pub(super) struct Edges(OwnedFd);

impl Edges {
    pub(super) fn of(fd: RawFd) -> io::Result<Self> {
        // SAFETY: no pointers.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just opened and belongs to nobody else.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
        // SAFETY: two open descriptors and a live event.
        let rc = unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        if rc == 0 { Ok(Self(epoll)) } else { Err(io::Error::last_os_error()) }
    }

    /// Whether the other descriptor has become readable since the last call.
    pub(super) fn take(&self) -> bool {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: a live array of one event; time limit 0.
        unsafe { libc::epoll_wait(self.0.as_raw_fd(), &raw mut event, 1, 0) > 0 }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Random bytes that nobody can guess.
pub(super) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    SysRng.try_fill_bytes(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bell_is_heard_once_and_ends_a_sleep() {
        let bell = Bell::new().unwrap();
        assert!(!bell.hear());
        bell.ring();
        bell.ring();
        assert_eq!(sleep([-1, bell.fd()], Duration::from_secs(3600)), [false, true]);
        assert!(bell.hear() && !bell.hear());
        assert_eq!(sleep([bell.fd(), -1], Duration::from_millis(1)), [false, false]);
    }

    #[test]
    fn edge_is_taken_once_for_each_ring_also_while_nobody_hears_the_bell() {
        let bell = Bell::new().unwrap();
        let edges = Edges::of(bell.fd()).unwrap();
        assert!(!edges.take());
        for _ in 0..2 {
            bell.ring();
            sleep([edges.fd()], Duration::from_secs(3600));
            assert!(edges.take() && !edges.take());
        }
        assert!(bell.hear());
    }

    #[test]
    fn random_bytes_differ() {
        assert_ne!(random::<16>().unwrap(), random::<16>().unwrap());
    }
}
