//! The words of a window's signal array.

/// Cells of the signal array; each peer has one cache line of them.
pub(crate) mod cell {
    /// Number of the last barrier of a closing fence for which the peer has notified this rank.
    pub(crate) const FENCE: usize = 0;
    /// Number of exposures that the peer has posted to this rank.
    pub(crate) const POST: usize = 1;
    /// Number of accesses to this rank that the peer has completed.
    pub(crate) const COMPLETE: usize = 2;
    /// 1 once the peer has reached the end of the window.
    pub(crate) const END: usize = 3;
}

/// Published words of the signal array.
pub(crate) mod word {
    /// Number of the last fence that opened an exposure at this rank.
    pub(crate) const OPENED: usize = 0;
    /// The lock word.
    pub(crate) const LOCK: usize = 1;
    /// The bias word: the rank, or all readers, that may enter the lock by claim.
    pub(crate) const BIAS: usize = 2;
    /// The origin's rank plus one during an accumulate that no device operation implements, otherwise 0.
    pub(crate) const UPDATE: usize = 3;
    /// The rank that last entered by the lock word, plus one. Used only for the bill.
    pub(crate) const HOLDER: usize = 4;
    /// The element lock (see `element_lock.rs`), on a window that all ranks map.
    pub(crate) const ELEMENTS: usize = 5;
    /// First of the words with one bit for each rank that sleeps until another word of this rank changes. If locks may
    /// be used, one claim word for each rank follows. If words are not mapped, this rank's claim word for a target is
    /// set when this rank may be able to enter that target's lock, and its line also holds the queue entries of waiters
    /// (see `lockqueue.rs`).
    pub(crate) const WAITERS: usize = 6;
}
