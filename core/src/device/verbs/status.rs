//! All statuses of work completions in one table: the error kind, the effect on the connection, the cause and the
//! remedy (InfiniBand Architecture Specification, volume 1, 10.10.3 and 9.9; `ibv_poll_cq(3)`).
//!
//! Requests complete in order, so all before the one that failed were executed. The knowledge about that request and
//! the following ones, which complete with `WR_FLUSH_ERR`, determines their fate:
//!
//! | fate | the failed request | following requests | consequence |
//! |---|---|---|---|
//! | [`Refused`](Fate::Refused) | not executed: the peer's queue pair has refused it and ended | not executed | it alone fails, the others are posted on a new connection |
//! | [`Unknown`](Fate::Unknown) | unknown: an answer may be lost | unknown | the queue pair is restarted at this request: the peer's, which continues, executes no request twice |
//! | [`Silent`](Fate::Silent) | unknown: no answer arrived | unknown | as `Unknown` if this rank's port was down, else as `Lost` |
//! | [`Lost`](Fate::Lost) | unknown | unknown | the peer is lost; if another device reaches it, that one continues from what has arrived |

use ibverbs::ibv_wc_status as s;

use crate::error::{Error, ErrorKind};

/// Effect of a failed request on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The peer has refused the request, and executes no later request.
    Refused,
    /// The peer may have executed the request and later ones, and its queue pair continues.
    Unknown,
    /// The peer does not answer.
    Silent,
    /// The peer cannot be reached any longer.
    Lost,
}

/// One status of the table.
struct Row {
    status: u32,
    name: &'static str,
    kind: ErrorKind,
    fate: Fate,
    cause: &'static str,
    remedy: &'static str,
}

const BUILD: &str = "make sure that all ranks run the same build; if they do, report a bug in Farside";
const KEY: &str = "the target's memory was released, or the range is outside of it: exchange keys again";
const HARDWARE: &str = "check the device (rdma statistic, the kernel log)";

/// Defines the table: for each status its kind, fate, cause and remedy.
macro_rules! table {
    ($($name:ident $kind:ident $fate:ident: $cause:literal, $remedy:expr;)*) => {
        const TABLE: &[Row] = &[$(Row {
            status: s::$name,
            name: stringify!($name),
            kind: ErrorKind::$kind,
            fate: Fate::$fate,
            cause: $cause,
            remedy: $remedy,
        }),*];
    };
}

table! {
    IBV_WC_LOC_LEN_ERR BadArgument Lost:
        "local length error: the request is longer than the port or the receive buffer allows", BUILD;
    IBV_WC_LOC_QP_OP_ERR PeerLost Unknown: "local queue pair error: the request could not be executed",
        "check the port and the network interface (ibv_devinfo, ip link, ip route)";
    IBV_WC_LOC_EEC_OP_ERR PeerLost Lost: "local end-to-end context error", HARDWARE;
    IBV_WC_LOC_PROT_ERR BadArgument Lost: "local protection error: a local buffer is not, or no longer, registered",
        "keep buffers and their window until the operation is complete";
    IBV_WC_WR_FLUSH_ERR PeerLost Unknown:
        "the request was flushed: the queue pair was in the error state", "see the first error of this connection";
    IBV_WC_MW_BIND_ERR Forbidden Lost: "local error: a memory window could not be bound", BUILD;
    IBV_WC_BAD_RESP_ERR PeerLost Lost: "the peer answered with a malformed response", HARDWARE;
    IBV_WC_LOC_ACCESS_ERR BadArgument Lost:
        "local access error: a peer's write was outside the memory of its remote key", BUILD;
    IBV_WC_REM_INV_REQ_ERR BadKey Refused:
        "remote invalid request: the peer does not allow its length, alignment or operation", KEY;
    IBV_WC_REM_ACCESS_ERR BadKey Refused:
        "remote access error: the remote key is not valid for that range", KEY;
    IBV_WC_REM_OP_ERR BadKey Refused: "remote operation error: the peer could not complete the request", KEY;
    IBV_WC_RETRY_EXC_ERR PeerLost Silent:
        "transport retries exceeded: the peer's process has ended, or the link is down",
        "check that rank's output and the link (ibv_devinfo, ip -s link); on a slow link raise FARSIDE_VERBS_TIMEOUT";
    IBV_WC_RNR_RETRY_EXC_ERR PeerLost Lost:
        "receiver-not-ready retries exceeded: the peer had no receive buffer posted", "raise FARSIDE_VERBS_RECEIVES";
    IBV_WC_LOC_RDD_VIOL_ERR PeerLost Lost: "local reliable datagram domain violation", HARDWARE;
    IBV_WC_REM_INV_RD_REQ_ERR PeerLost Lost: "the peer rejected a reliable datagram", HARDWARE;
    IBV_WC_REM_ABORT_ERR PeerLost Lost: "the peer aborted the request", "check that rank's output";
    IBV_WC_INV_EECN_ERR PeerLost Lost: "invalid end-to-end context number", HARDWARE;
    IBV_WC_INV_EEC_STATE_ERR PeerLost Lost: "invalid end-to-end context state", HARDWARE;
    IBV_WC_FATAL_ERR PeerLost Lost: "fatal local device error", HARDWARE;
    IBV_WC_RESP_TIMEOUT_ERR PeerLost Silent:
        "the peer did not respond in time", "check that rank's output and the link";
    IBV_WC_GENERAL_ERR PeerLost Lost: "general error of the device", HARDWARE;
    IBV_WC_TM_ERR PeerLost Lost: "hardware tag matching failed, which Farside does not use", HARDWARE;
    IBV_WC_TM_RNDV_INCOMPLETE PeerLost Lost:
        "a hardware tag matching rendezvous is incomplete, which Farside does not use", HARDWARE;
}

const UNKNOWN: Row = Row {
    status: u32::MAX,
    name: "unknown",
    kind: ErrorKind::PeerLost,
    fate: Fate::Lost,
    cause: "unknown completion status",
    remedy: HARDWARE,
};

/// The error of a request to `peer` that completed with `status`, and the effect on the connection.
pub(super) fn explain(status: u32, vendor: u32, operation: &'static str, peer: u32) -> (Error, Fate) {
    let row = TABLE.iter().find(|r| r.status == status).unwrap_or(&UNKNOWN);
    let error = Error::new(row.kind, operation)
        .peer(peer)
        .device("verbs")
        .cause(format!("{} ({status}, vendor {vendor:#x}): {}", row.name, row.cause))
        .remedy(row.remedy);
    (error, row.fate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_one_row_in_order() {
        let statuses: Vec<u32> = TABLE.iter().map(|r| r.status).collect();
        assert_eq!(statuses, (1..=s::IBV_WC_TM_RNDV_INCOMPLETE).collect::<Vec<_>>());
    }

    #[test]
    fn every_row_names_the_side_and_the_remedy() {
        for row in TABLE {
            let text = explain(row.status, 0x81, "write remote memory", 3).0.to_string();
            assert!(text.contains(row.name) && text.contains("rank 3") && text.contains("verbs"), "{text}");
            assert!(text.contains(row.cause) && text.contains(row.remedy) && text.contains("0x81"), "{text}");
        }
    }

    #[test]
    fn remote_refusals_fail_alone_and_silence_loses_the_peer() {
        let fate = |status| explain(status, 0, "read", 0).1;
        assert_eq!(fate(s::IBV_WC_REM_ACCESS_ERR), Fate::Refused);
        assert_eq!(fate(s::IBV_WC_RETRY_EXC_ERR), Fate::Silent);
        assert_eq!(fate(s::IBV_WC_WR_FLUSH_ERR), Fate::Unknown);
        assert_eq!(fate(999), Fate::Lost);
        assert!(explain(999, 0, "read", 0).0.to_string().contains("999"));
        let e = explain(s::IBV_WC_REM_ACCESS_ERR, 0, "write remote memory", 2).0;
        assert_eq!((e.kind(), e.blamed()), (ErrorKind::BadKey, Some(2)));
    }
}
