//! The array of requests that the last call for one or some of many has left.

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

/// An array of requests, as the last call has left it.
#[derive(Default)]
pub struct KnownRequests {
    pub address: usize,
    pub handles: Vec<Request>,
    pub kinds: Vec<RequestKind>,
    /// The places of receives that have ended.
    pub ended: Rc<EndedReceives>,
    /// The places of operations of other kinds; some of these operations may have ended.
    pub others: Vec<u32>,
    /// Where the next look at `others` begins.
    pub next: usize,
    /// The number of receives in the array.
    pub receives: usize,
}
