//! The path of work requests to the HCA: the protocol for the bytes of an operation ([`posting`], [`staged`],
//! [`blocks`], [`lists`]), requests and their send queues ([`request`], [`queue`]), and the handling of completions
//! ([`engine`], [`outcomes`]).

mod blocks;
pub(super) mod cut;
pub(super) mod engine;
pub(super) mod lists;
pub(super) mod notices;
mod outcomes;
mod posting;
mod queue;
mod request;
mod staged;

pub(super) use queue::peer_of;

/// Maximum time of a cancelled transfer before its connection is closed.
pub(super) const CANCEL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1);
