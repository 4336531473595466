//! The asserts of synchronization calls (MPI-4 §12.5.5): promises of the caller that may save work.

bitflags::bitflags! {
    /// Promises about an epoch. A false one is an error of the caller that is not always detected.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Assert: u32 {
        /// This rank has not stored to its window memory since the last synchronization. Memory is coherent on every
        /// device, so the assert has no effect.
        const NOSTORE = 1;
        /// No rank will put or accumulate to this rank before the next fence or in this exposure. The assert has no
        /// effect, since gets still have to be waited for.
        const NOPUT = 2;
        /// Fence: no operation was issued since the last fence, by any rank. Saves every message of the call.
        const NOPRECEDE = 4;
        /// Fence: no operation will be issued before the next fence, by any rank. No exposure is opened, so this rank
        /// may access its memory locally.
        const NOSUCCEED = 8;
        /// Post and start: the matching post has been called before start; saves the message of post.
        /// Lock: no rank holds or requests a conflicting lock; saves acquiring and releasing it. A false promise is a
        /// data race, so only untyped windows use the assert; typed ones ignore it.
        const NOCHECK = 16;
    }
}
