//! Sleeping on file descriptors, waking a thread that does so, and random bytes from the kernel.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rand::TryRng;
use rand::rngs::SysRng;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};

use crate::device::Waker;

/// Wakes a thread that sleeps in [`sleep`].
#[derive(Debug)]
pub(super) struct WakeFd(OwnedFd);

impl WakeFd {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    pub(super) fn wake(&self) {
        // If the counter is full, the write fails, and the descriptor is readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable again; returns whether [`wake`](Self::wake) had been called.
    pub(super) fn clear(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl AsFd for WakeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sleeps until one of the descriptors is readable or the time limit has passed.
pub(super) fn sleep(fds: &[BorrowedFd<'_>], limit: Duration) {
    let mut polls: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    // A signal only shortens the sleep.
    let _ = poll(&mut polls, Timespec::try_from(limit).ok().as_ref());
}

/// Wakes a rank that sleeps on another device: the agent calls the waker when the completion channel becomes readable.
/// The rank, not the agent, reads the channel, so it may stay readable for long. The agent therefore sleeps on its
/// edges, as reported by `epoll`.
pub(super) struct Elsewhere {
    waker: Waker,
    edges: OwnedFd,
}

impl Elsewhere {
    pub(super) fn new(waker: Waker, channel: BorrowedFd<'_>) -> io::Result<Self> {
        let edges = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&edges, channel, epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        Ok(Self { waker, edges })
    }

    /// Whether the channel has become readable since the last call.
    pub(super) fn has_event(&self) -> bool {
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        epoll::wait(&self.edges, &mut events, Some(&Timespec::default())).is_ok_and(|n| n > 0)
    }

    pub(super) fn wake(&self) {
        (self.waker)();
    }
}

impl AsFd for Elsewhere {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.edges.as_fd()
    }
}

impl fmt::Debug for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elsewhere").field("edges", &self.edges).finish_non_exhaustive()
    }
}

/// Unpredictable random bytes from the kernel.
pub(super) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    SysRng.try_fill_bytes(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn wake_is_cleared_once_and_ends_a_sleep() {
        let (never, wake) = (WakeFd::new().unwrap(), WakeFd::new().unwrap());
        assert!(!wake.clear());
        wake.wake();
        wake.wake();
        sleep(&[never.as_fd(), wake.as_fd()], Duration::from_secs(3600));
        assert!(wake.clear() && !wake.clear());
        sleep(&[never.as_fd(), wake.as_fd()], Duration::from_millis(1));
    }

    #[test]
    fn edge_is_seen_once_for_each_wake_even_if_it_is_never_cleared() {
        let wake = WakeFd::new().unwrap();
        let elsewhere = Elsewhere::new(Arc::new(|| {}), wake.as_fd()).unwrap();
        assert!(!elsewhere.has_event());
        for _ in 0..2 {
            wake.wake();
            sleep(&[elsewhere.as_fd()], Duration::from_secs(3600));
            assert!(elsewhere.has_event() && !elsewhere.has_event());
        }
        assert!(wake.clear());
    }

    #[test]
    fn random_bytes_differ() {
        assert_ne!(random::<16>().unwrap(), random::<16>().unwrap());
    }
}
