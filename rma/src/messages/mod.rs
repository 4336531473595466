//! Two-sided messages: a send at one rank of a team meets a receive at another by source and tag. [`Messages`] are methods of
//! [`Team`] that wait; [`Overlap`](crate::collectives::Overlap) starts sends and receives that go on meanwhile.
//!
//! Of the receives that fit a message the one posted first gets it; of the messages that fit a receive it gets the one that
//! came first, and those of one sender come in the order of sending. Tags are any `i32`. The time to match does not depend on
//! how many receives or messages wait.
//!
//! | message | goes |
//! |---|---|
//! | up to the device's eager limit, while its target has less than 1 MiB of this rank's unexpected messages | at once, in one packet or some; the send is complete |
//! | longer, or synchronous, or without room | when its receive is there (rendezvous): a request, the bytes straight from the sender's memory to the receiver's, an end; the send is complete then |
//!
//! Elements are any [`Pod`] type, and a receive may be of another type than its send: bytes are what travels. A message longer than
//! its receive is an error of the receive alone, which keeps what it has room for; so is one that is no whole number of
//! elements. A team has its own messages, apart from those of other teams and from its collectives.
//!
//! Errors of all of them: `NoSuchRank` for a rank outside of the team, `BadArgument` for a message that the receive has no
//! room for, `PeerLost`, `Freed` after the end of the job.

mod pending;
mod request;
mod status;

use bytemuck::Pod;
use farside_core::two_sided::Mode;
use farside_core::{Result, Team};

pub use request::{ReceiveRequest, SendRequest};
pub use status::{Message, Status};

use pending::pattern;

/// Takes messages of any rank of the team.
pub const ANY_SOURCE: Option<usize> = None;

/// Takes messages with any tag.
pub const ANY_TAG: Option<i32> = None;

/// Two-sided messages of a team. Where a `source` or `tag` is asked for, a number means that one, and [`ANY_SOURCE`] and
/// [`ANY_TAG`] any.
pub trait Messages {
    /// Sends `data` to a rank with a tag. When it returns the buffer is free; the message need not have been received. One that
    /// is longer than the device's eager limit waits for its receive.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     if team.rank() == 0 {
    ///         team.send(&[1.5, 2.5], 1, 7)
    ///     } else {
    ///         let mut data = [0.0; 2];
    ///         let status = team.recv(&mut data, ANY_SOURCE, 7)?;
    ///         assert_eq!((data, status.source, status.count::<f64>()), ([1.5, 2.5], 0, Some(2)));
    ///         Ok(())
    ///     }
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [messages](crate::messages).
    fn send<T: Pod>(&self, data: &[T], to: usize, tag: i32) -> Result<()>;

    /// As [`send`](Self::send), but returns only once the receive has begun.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     if team.rank() == 0 { team.ssend(&[1u8], 1, 0) } else { team.recv(&mut [0u8], 0, 0).map(|_| ()) }
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [messages](crate::messages).
    fn ssend<T: Pod>(&self, data: &[T], to: usize, tag: i32) -> Result<()>;

    /// Receives the first message that fits into the first elements of `into`, as many as it has.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     if team.rank() > 0 {
    ///         return team.send(&vec![team.rank() as u32; team.rank()], 0, 5);
    ///     }
    ///     for _ in 1..3 {
    ///         let mut data = [0u32; 2];
    ///         let status = team.recv(&mut data, ANY_SOURCE, ANY_TAG)?;
    ///         assert_eq!(data[..status.source], [status.source as u32; 2][..status.source]);
    ///     }
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [messages](crate::messages).
    fn recv<T: Pod>(
        &self,
        into: &mut [T],
        source: impl Into<Option<usize>>,
        tag: impl Into<Option<i32>>,
    ) -> Result<Status>;

    /// Receives the first message that fits, however long it is.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     if team.rank() == 0 {
    ///         return team.send(b"of any length", 1, 0);
    ///     }
    ///     let (text, _) = team.recv_vec::<u8>(0, ANY_TAG)?;
    ///     assert_eq!(text, b"of any length");
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [messages](crate::messages).
    fn recv_vec<T: Pod>(
        &self,
        source: impl Into<Option<usize>>,
        tag: impl Into<Option<i32>>,
    ) -> Result<(Vec<T>, Status)> {
        self.mprobe(source, tag)?.recv_vec()
    }

    /// Sends and receives at once, so that ranks may exchange messages of any length.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let (right, left) = ((team.rank() + 1) % 3, (team.rank() + 2) % 3);
    ///     let mut theirs = [0];
    ///     team.sendrecv(&[team.rank()], right, 0, &mut theirs, left, 0)?;
    ///     assert_eq!(theirs, [left]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [messages](crate::messages).
    fn sendrecv<T: Pod, U: Pod>(
        &self,
        data: &[T],
        to: usize,
        send_tag: i32,
        into: &mut [U],
        source: impl Into<Option<usize>>,
        tag: impl Into<Option<i32>>,
    ) -> Result<Status>;

    /// Waits for a message that fits, and leaves it to be received.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     if team.rank() == 0 {
    ///         return team.send(&[1u16; 40], 1, 3);
    ///     }
    ///     let status = team.probe(0, ANY_TAG)?;
    ///     let mut data = vec![0u16; status.count::<u16>().unwrap()];
    ///     team.recv(&mut data, status.source, status.tag)?;
    ///     assert_eq!(data, [1; 40]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [messages](crate::messages).
    fn probe(&self, source: impl Into<Option<usize>>, tag: impl Into<Option<i32>>) -> Result<Status>;

    /// The message that a receive would get now, if there is one, making progress once.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(1, |job| {
    ///     let team = job.world()?;
    ///     assert_eq!(team.iprobe(ANY_SOURCE, ANY_TAG)?, None);
    ///     team.send(&[1u64], 0, 9)?;
    ///     assert_eq!(team.iprobe(ANY_SOURCE, 9)?.map(|status| status.len), Some(8));
    ///     team.recv(&mut [0u64], 0, 9).map(|_| ())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [messages](crate::messages).
    fn iprobe(&self, source: impl Into<Option<usize>>, tag: impl Into<Option<i32>>) -> Result<Option<Status>>;

    /// Waits for a message that fits, and takes it, so that no other receive or probe finds it.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     if team.rank() == 0 {
    ///         return team.send(&[1u16; 40], 1, 3);
    ///     }
    ///     let message = team.mprobe(ANY_SOURCE, ANY_TAG)?;
    ///     let mut data = vec![0u16; message.status().count::<u16>().unwrap()];
    ///     message.recv(&mut data)?;
    ///     assert_eq!(data, [1; 40]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [messages](crate::messages).
    fn mprobe(&self, source: impl Into<Option<usize>>, tag: impl Into<Option<i32>>) -> Result<Message>;

    /// Takes the message that a receive would get now, if there is one, making progress once.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(1, |job| {
    ///     let team = job.world()?;
    ///     team.send(&[1u64], 0, 9)?;
    ///     let message = team.improbe(0, 9)?.expect("a short message of a rank to itself is there at once");
    ///     assert_eq!(message.recv_vec::<u64>()?.0, [1]);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [messages](crate::messages).
    fn improbe(&self, source: impl Into<Option<usize>>, tag: impl Into<Option<i32>>) -> Result<Option<Message>>;
}

impl Messages for Team {
    #[inline]
    fn send<T: Pod>(&self, data: &[T], to: usize, tag: i32) -> Result<()> {
        pending::send(self, bytemuck::cast_slice(data), to, tag, Mode::Standard)
    }

    #[inline]
    fn ssend<T: Pod>(&self, data: &[T], to: usize, tag: i32) -> Result<()> {
        pending::send(self, bytemuck::cast_slice(data), to, tag, Mode::Synchronous)
    }

    #[inline]
    fn recv<T: Pod>(
        &self,
        into: &mut [T],
        source: impl Into<Option<usize>>,
        tag: impl Into<Option<i32>>,
    ) -> Result<Status> {
        let pattern = pattern(self, source.into(), tag.into())?;
        pending::receive(self, bytemuck::cast_slice_mut(into), pattern)?.checked::<T>(self)
    }

    fn sendrecv<T: Pod, U: Pod>(
        &self,
        data: &[T],
        to: usize,
        send_tag: i32,
        into: &mut [U],
        source: impl Into<Option<usize>>,
        tag: impl Into<Option<i32>>,
    ) -> Result<Status> {
        use crate::collectives::Collectives;
        self.overlap(|messages| {
            let received = messages.irecv(into, source, tag)?;
            messages.isend(data, to, send_tag)?.wait()?;
            received.wait().map(|(_, status)| status)
        })
    }

    fn probe(&self, source: impl Into<Option<usize>>, tag: impl Into<Option<i32>>) -> Result<Status> {
        let pattern = pattern(self, source.into(), tag.into())?;
        let found = self.job().wait_for(|| pending::probing(&pattern), || self.job().probe(&pattern))?;
        Status::of(self, &found)
    }

    fn iprobe(&self, source: impl Into<Option<usize>>, tag: impl Into<Option<i32>>) -> Result<Option<Status>> {
        let pattern = pattern(self, source.into(), tag.into())?;
        self.job().progress()?;
        self.job().probe(&pattern)?.map(|found| Status::of(self, &found)).transpose()
    }

    fn mprobe(&self, source: impl Into<Option<usize>>, tag: impl Into<Option<i32>>) -> Result<Message> {
        let pattern = pattern(self, source.into(), tag.into())?;
        let taken = self.job().wait_for(|| pending::probing(&pattern), || self.job().take_message(&pattern))?;
        Message::of(self, taken)
    }

    fn improbe(&self, source: impl Into<Option<usize>>, tag: impl Into<Option<i32>>) -> Result<Option<Message>> {
        let pattern = pattern(self, source.into(), tag.into())?;
        self.job().progress()?;
        self.job().take_message(&pattern)?.map(|taken| Message::of(self, taken)).transpose()
    }
}
