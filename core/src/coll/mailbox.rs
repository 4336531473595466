//! Messages of collectives that have arrived before they were asked for.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use crate::error::Result;

/// Context of the team, number of the call, round, and sending rank of the job.
pub(super) type Key = (u32, u64, u32, u32);

/// Unexpected messages of collectives.
#[derive(Debug, Default)]
pub(crate) struct Mailbox(RefCell<FxHashMap<Key, Result<Vec<u8>>>>);

impl Mailbox {
    pub(super) fn put(&self, key: Key, data: Result<Vec<u8>>) {
        self.0.borrow_mut().insert(key, data);
    }

    pub(super) fn take(&self, key: &Key) -> Option<Result<Vec<u8>>> {
        self.0.borrow_mut().remove(key)
    }
}
