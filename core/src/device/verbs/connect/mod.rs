//! Connections between ranks: making them ([`links`], [`sgrs`]) by datagrams ([`datagrams`], [`agent`]), ending them
//! ([`responders`]), detecting lost peers ([`liveness`]), and flow control of packets ([`credits`]).

pub(super) mod agent;
pub(super) mod credits;
pub(super) mod datagrams;
pub(super) mod links;
pub(super) mod liveness;
mod moves;
mod patience;
pub(super) mod responders;
pub(super) mod sgrs;
