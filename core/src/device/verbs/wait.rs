//! Waking a rank that sleeps on another device.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};

use crate::device::Waker;
pub(super) use crate::device::wait::{WakeFd, random, sleep};

/// Wakes a rank that sleeps on another device: the agent calls the waker when the completion channel becomes readable.
/// The rank, not the agent, reads the channel, which may therefore stay readable for long. So the agent uses
/// edge-triggered `epoll`.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

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
}
