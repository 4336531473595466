//! Liveness of the peers: their processes, and the state word in each peer's segment.

use std::sync::atomic::Ordering;

use super::layout::{MET, STATE, STATE_LEFT, STATE_LOST};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::segment::Mapping;
use crate::processes::{self, Process};

/// Watches the process of `peer`, a rank of the job.
pub(super) fn watch(pid: u32, peer: u32) -> Result<Process> {
    Process::watch(pid).map_err(|e| {
        const OP: &str = "watch a peer";
        let error = match e.kind() {
            std::io::ErrorKind::NotFound => Error::new(ErrorKind::PeerLost, OP).source_error(e),
            _ => Error::system(OP, e),
        };
        error.peer(peer).cause(format!("process {pid}"))
    })
}

/// Fails if a peer's process ended, or its thread was lost, without leaving the job. The error names ranks of the job;
/// `ranks` maps numbers on the node to them.
pub(super) fn check(processes: &[Option<Process>], peers: &[Mapping], ranks: &[u32]) -> Result<()> {
    for (rank, peer) in peers.iter().enumerate() {
        // Acquire: pairs with the Release store of a rank that leaves or is lost.
        if peer.half(STATE).load(Ordering::Acquire) == STATE_LOST {
            return Err(lost(peers, ranks, rank, "the peer ended without leaving the job".into()));
        }
    }
    for rank in processes::ended(processes) {
        // Acquire: as above.
        if peers[rank].half(STATE).load(Ordering::Acquire) != STATE_LEFT {
            let pid = processes[rank].as_ref().map_or(0, Process::pid);
            return Err(lost(peers, ranks, rank, format!("process {pid} ended without leaving the job")));
        }
    }
    Ok(())
}

/// Records, in this rank's segment, the rank whose loss it has detected: a peer that later finds this rank lost reports
/// the first loss.
pub(super) fn note(own: &Mapping, error: &Error) {
    if let Some(rank) = error.blamed_number() {
        // Release: pairs with the Acquire in `lost`. The first value stays.
        let _ = own.half(MET).compare_exchange(0, rank + 1, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// The error for the loss of rank `number`, or of the rank whose loss made that rank end.
fn lost(peers: &[Mapping], ranks: &[u32], number: usize, cause: String) -> Error {
    let rank = ranks[number];
    // Acquire: pairs with the Release in `note`, which comes before the rank's end.
    let met = peers[number].half(MET).load(Ordering::Acquire);
    let (blamed, cause) = match met.checked_sub(1) {
        Some(first) if first != rank => {
            (first, format!("rank {rank} detected the loss first and has ended too (rank {rank}: {cause})"))
        }
        _ => (rank, cause),
    };
    Error::new(ErrorKind::PeerLost, "check the other ranks").peer(blamed).device("shm").cause(cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::segment::{Pages, Segment};

    #[test]
    fn lost_names_the_first_rank_and_whose_process_it_was_that_ended() {
        let segment = || Segment::create(std::path::Path::new("/dev/shm"), 4096, Pages::AtOnce).unwrap();
        let peers = [0, 1].map(|_| segment().mapping().clone());
        let lost = || lost(&peers, &[4, 5], 0, "process 30118 ended without leaving the job".into());
        assert_eq!(lost().blamed(), Some(4));
        peers[0].half(MET).store(6, Ordering::SeqCst);
        let text = lost().to_string();
        assert_eq!(lost().blamed(), Some(5));
        assert!(text.contains("rank 4: process 30118 ended"), "{text}");
    }
}
