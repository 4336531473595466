//! The asserts that synchronization calls take (MPI-4 §12.5.5), each a promise of the caller that saves work.

bitflags::bitflags! {
    /// Promises about an epoch. A false one is an error of the caller that is not always detected.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Assert: u32 {
        /// Nobody has used this window's memory by local stores since the last synchronization. Memory is
        /// coherent on every device so far, so it saves nothing.
        const NOSTORE = 1;
        /// Nobody will put or accumulate to this rank before the next fence or in this exposure. Gets still
        /// have to be waited for, so it saves nothing so far.
        const NOPUT = 2;
        /// Fence: no operation was issued since the last fence, by any rank. Saves every message of the call.
        const NOPRECEDE = 4;
        /// Fence: no operation will be issued before the next fence, by any rank. No exposure is opened: the
        /// local memory is this rank's again.
        const NOSUCCEED = 8;
        /// Post and start: the matching post has been called before start; saves the message of post.
        /// Lock: nobody holds or wants a conflicting lock; saves taking and releasing it. A false promise is a
        /// data race, so untyped windows alone rely on it; typed ones take it and do what they do without it.
        const NOCHECK = 16;
    }
}
