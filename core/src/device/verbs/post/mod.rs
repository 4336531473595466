//! Work requests on their way to the HCA: which way the bytes of an operation go ([`posting`], [`staged`], [`blocks`], [`lists`]), the
//! requests and their send queue ([`request`], [`queue`]), and what follows when they end ([`engine`], [`outcomes`]).

mod blocks;
pub(super) mod cut;
pub(super) mod engine;
pub(super) mod lists;
pub(super) mod notices;
mod outcomes;
mod packets;
mod posting;
mod queue;
mod request;
mod staged;

pub(super) use queue::peer_of;

/// How long a cancelled transfer may take until its connection is ended instead.
pub(super) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);
