//! Connections: who is connected to whom ([`links`], [`sgrs`]), how a connection ends ([`responders`]), the datagrams that
//! make them ([`datagrams`], [`agent`]), who is alive ([`liveness`]), and how many packets a peer takes ([`credits`]).

pub(super) mod agent;
pub(super) mod credits;
pub(super) mod datagrams;
pub(super) mod links;
pub(super) mod liveness;
pub(super) mod responders;
pub(super) mod sgrs;
