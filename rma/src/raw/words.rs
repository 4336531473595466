//! The words of a window's signal array.

/// Cells of the signal array, one line for each peer.
pub(crate) mod cell {
    /// Number of the last fence that the peer has finished its part of.
    pub(crate) const FENCE: usize = 0;
    /// How often the peer has posted an exposure to this rank.
    pub(crate) const POST: usize = 1;
    /// How often the peer has completed an access to this rank.
    pub(crate) const COMPLETE: usize = 2;
}

/// Published words of the signal array.
pub(crate) mod word {
    /// Number of the last fence that opened an exposure here.
    pub(crate) const OPENED: usize = 0;
    /// The lock.
    pub(crate) const LOCK: usize = 1;
    /// Who may enter the lock by claim.
    pub(crate) const BIAS: usize = 2;
    /// Whether an accumulate is carried out here that is no operation of a device: the origin's rank and one, or 0.
    pub(crate) const UPDATE: usize = 3;
    /// The rank that has entered the lock by the word last, and one: kept for the bill alone.
    pub(crate) const HOLDER: usize = 4;
    /// First of the words with a bit for each rank that sleeps until one of the others changes; behind them, where
    /// locks may be used, the claim of each rank, or, where words are not mapped, what tells this rank that its turn has
    /// come at each target, and in the same lines who waits here (see `lockqueue.rs`).
    pub(crate) const WAITERS: usize = 5;
}
