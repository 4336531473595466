//! The array of requests of the last call that completed one or some of many, in the state after that call.

use std::rc::Rc;

use farside_core::two_sided::EndedReceives;

use crate::handle::Request;

/// What the handle at a place of an array refers to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    Null,
    Receive,
    /// An operation, which may be one of a persistent request that is not started.
    Other,
}

/// An array of requests, in the state after the last call.
#[derive(Default)]
pub struct KnownRequests {
    pub address: usize,
    pub handles: Vec<Request>,
    pub kinds: Vec<RequestKind>,
    /// The places of receives that have ended.
    pub ended: Rc<EndedReceives>,
    /// The places of operations of other kinds; some of these operations may have ended.
    pub others: Vec<u32>,
    /// The index in `others` at which the next check begins.
    pub next: usize,
    /// The number of receives in the array.
    pub receives: usize,
}
