//! Sleeping on file descriptors, waking a thread that sleeps on them, and random bytes from the kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rand::TryRng;
use rand::rngs::SysRng;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Wakes a thread that sleeps in [`sleep`].
pub(crate) struct WakeFd(OwnedFd);

impl WakeFd {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    pub(crate) fn wake(&self) {
        // If the counter is full, the write fails, and the descriptor is already readable.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable again; returns whether [`wake`](Self::wake) had been called.
    pub(crate) fn clear(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl AsFd for WakeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sleeps until one of the descriptors is readable or the time limit has passed.
pub(crate) fn sleep(fds: &[BorrowedFd<'_>], limit: Duration) {
    let mut polls: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    // A signal only shortens the sleep.
    let _ = poll(&mut polls, Timespec::try_from(limit).ok().as_ref());
}

/// Unpredictable random bytes from the kernel.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    SysRng.try_fill_bytes(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
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
    fn random_bytes_differ() {
        assert_ne!(random::<16>().unwrap(), random::<16>().unwrap());
    }
}
