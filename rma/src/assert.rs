//! The asserts of synchronization calls (MPI-4 §12.5.5): assertions by the caller that may save work.

bitflags::bitflags! {
    /// Promises about an epoch. A false one is an error of the caller that is not always detected.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let mut window = Window::<u32>::allocate(&team, 1)?;
    ///     window.local_mut()?[0] = 5 + team.rank() as u32;
    ///     let mut theirs = [0];
    ///     // In this epoch no rank stores to its own memory.
    ///     window.fence(Assert::NOSTORE, |epoch| epoch.get(&mut theirs, 1 - team.rank(), 0))?;
    ///     assert_eq!(theirs, [6 - team.rank() as u32]);
    ///     // A step in which no rank has anything to exchange: no message.
    ///     window.fence(Assert::NOPRECEDE | Assert::NOSTORE, |_| Ok::<(), Error>(()))?;
    ///     window.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Assert: u32 {
        /// This rank has not stored to its window memory since the last synchronization. Memory is coherent on every
        /// device, so the assert has no effect.
        const NOSTORE = 1;
        /// No rank will put or accumulate to this rank before the next fence or in this exposure. The assert has no
        /// effect, since gets must still be awaited.
        const NOPUT = 2;
        /// Fence: no operation was issued since the last fence, by any rank. Saves every message of the call.
        const NOPRECEDE = 4;
        /// Fence: no operation will be issued before the next fence, by any rank. No exposure is opened, so this rank
        /// may access its memory locally.
        const NOSUCCEED = 8;
        /// Post and start: the matching post has been called before start; saves the message of post.
        /// Lock: no rank holds or requests a conflicting lock; saves acquiring and releasing it. A false assertion is a
        /// data race, so only untyped windows use the assert; typed ones ignore it.
        const NOCHECK = 16;
    }
}
