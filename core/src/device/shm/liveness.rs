#![allow(unsafe_code)]
//! Who is alive: a `pidfd` per peer, and the state word in its segment.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use super::layout::{MET, STATE, STATE_LEFT, STATE_LOST};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::segment::Mapping;

/// A peer's process, watched.
#[derive(Debug)]
pub(super) struct Watch {
    pid: u32,
    fd: OwnedFd,
}

impl Watch {
    pub(super) fn new(pid: u32, peer: u32) -> Result<Self> {
        const OP: &str = "watch a peer";
        // SAFETY: no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd >= 0 {
            // SAFETY: a descriptor that was just opened and belongs to nobody else.
            return Ok(Self { pid, fd: unsafe { OwnedFd::from_raw_fd(fd as i32) } });
        }
        let e = std::io::Error::last_os_error();
        let kind = match e.raw_os_error() {
            Some(libc::ESRCH) => ErrorKind::PeerLost,
            Some(libc::EMFILE | libc::ENFILE) => ErrorKind::Limit,
            _ => ErrorKind::System,
        };
        Err(Error::new(kind, OP).peer(peer).cause(format!("process {pid}")).source_error(e))
    }
}

/// Fails if a peer's process has ended, or its thread was lost, without taking leave. The error names ranks of the
/// job, which `ranks` has by their numbers on the node.
pub(super) fn check(watches: &[Option<Watch>], peers: &[Mapping], ranks: &[u32]) -> Result<()> {
    for (rank, peer) in peers.iter().enumerate() {
        // Acquire: pairs with the Release store of a rank that leaves or is lost.
        if peer.half(STATE).load(Ordering::Acquire) == STATE_LOST {
            return Err(lost(peers, ranks, rank, "its thread ended without leaving the job".into()));
        }
    }
    let mut polls: Vec<libc::pollfd> = Vec::with_capacity(watches.len());
    for w in watches {
        let fd = w.as_ref().map_or(-1, |w| w.fd.as_raw_fd());
        polls.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    }
    // SAFETY: a live array of that length; time limit 0.
    let n = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, 0) };
    if n <= 0 {
        return Ok(());
    }
    for (rank, poll) in polls.iter().enumerate() {
        // Acquire: as above.
        if poll.revents != 0 && peers[rank].half(STATE).load(Ordering::Acquire) != STATE_LEFT {
            let pid = watches[rank].as_ref().map_or(0, |w| w.pid);
            return Err(lost(peers, ranks, rank, format!("process {pid} ended without leaving the job")));
        }
    }
    Ok(())
}

/// Notes at this rank whose loss it has met: who then finds this rank gone too is told of the first.
pub(super) fn note(own: &Mapping, error: &Error) {
    if let Some(rank) = error.blamed() {
        // Release: pairs with the Acquire in `lost`. The first stays.
        let _ = own.half(MET).compare_exchange(0, rank + 1, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// The error for `rank`, or for the rank whose loss made it end.
fn lost(peers: &[Mapping], ranks: &[u32], number: usize, cause: String) -> Error {
    let rank = ranks[number];
    // Acquire: pairs with the Release in `note`, which comes before the rank's end.
    let met = peers[number].half(MET).load(Ordering::Acquire);
    let (blamed, cause) = match met.checked_sub(1) {
        Some(first) if first != rank => {
            (first, format!("rank {rank} lost it first and has ended too (rank {rank}: {cause})"))
        }
        _ => (rank, cause),
    };
    Error::new(ErrorKind::PeerLost, "check the other ranks").peer(blamed).device("shm").cause(cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::segment::Segment;

    #[test]
    fn lost_names_the_first_rank_and_whose_process_it_was_that_ended() {
        let segment = || Segment::create(std::path::Path::new("/dev/shm"), 4096).unwrap();
        let peers = [0, 1].map(|_| segment().mapping().clone());
        let lost = || lost(&peers, &[4, 5], 0, "process 30118 ended without leaving the job".into());
        assert_eq!(lost().blamed(), Some(4));
        peers[0].half(MET).store(6, Ordering::SeqCst);
        let text = lost().to_string();
        assert_eq!(lost().blamed(), Some(5));
        assert!(text.contains("rank 4: process 30118 ended"), "{text}");
    }
}
