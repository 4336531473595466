//! Two-sided messages: a send at one rank of a team matches a receive at another by source and tag. The methods of
//! [`Messages`] block; [`Overlap`](crate::collectives::Overlap) starts nonblocking sends and receives.
//!
//! A message goes to the first posted receive that matches it; a receive takes the first arrived message that matches
//! it, and messages of one sender arrive in the order of sending. Tags are any `i32`. The time to match does not depend
//! on the number of posted receives or unexpected messages.
//!
//! | message | protocol |
//! |---|---|
//! | up to the device's eager limit, while its target has less than 4 MiB of this rank's unexpected messages | eager:
//! sent immediately, in one or several packets; the send is then complete |
//! | longer, synchronous, or above these 4 MiB | rendezvous: a request (RTS), and once the receive matches the bytes go directly from the sender's memory to the receiver's; an end message completes the send |
//!
//! Elements are any [`Pod`] type. Bytes are transferred, so a receive may have another element type than its send. A
//! message that is longer than its receive buffer is an error of the receive only, whose buffer then holds the first
//! bytes; a message that is not a whole number of elements is an error too. Messages of a team never match those of
//! another team or of collectives.
//!
//! Errors of all methods: `NoSuchRank` for a rank outside of the team, `BadArgument` for a message that is longer than
//! its receive, `PeerLost`, `Freed` after the end of the job.

mod owned;
pub(crate) mod pending;
mod request;
mod status;

use bytemuck::Pod;
use farside_core::two_sided::Mode;
use farside_core::{Result, Team, located};

pub use owned::{PendingReceive, PendingSend};
pub use request::{ReceiveRequest, SendRequest};
pub use status::{Message, Status};

use crate::pending::{Buffer, Returned};
use pending::pattern;

/// Matches messages of any rank of the team.
pub const ANY_SOURCE: Option<usize> = None;

/// Matches messages with any tag.
pub const ANY_TAG: Option<i32> = None;

/// Two-sided messages of a team. Arguments `source` and `tag` are a rank and a tag, or [`ANY_SOURCE`] and [`ANY_TAG`].
pub trait Messages {
    /// The team.
    fn as_team(&self) -> &Team;

    /// Sends `data` to a rank with a tag. On return the buffer may be reused; the message need not have been received.
    /// A message longer than the device's eager limit waits for its receive.
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
    #[inline]
    #[track_caller]
    fn send<T: Pod>(&self, data: &[T], to: usize, tag: i32) -> Result<()> {
        located(|| pending::send(self.as_team(), bytemuck::cast_slice(data), to, tag, Mode::Standard))
    }

    /// Starts to send a buffer, which the handle returns: a vector, a boxed slice or an array.
    ///
    /// ```
    /// # #[cfg(feature = "async")] {
    /// use std::time::Duration;
    ///
    /// use farside_rma::prelude::*;
    ///
    /// #[tokio::main(flavor = "current_thread")]
    /// async fn rank(team: &Team) -> Result<()> {
    ///     let peer = 1 - team.rank();
    ///     // A receive that a timeout drops is cancelled.
    ///     let never = team.recv_nbi(vec![0u8; 9], peer, 77)?;
    ///     assert!(tokio::time::timeout(Duration::from_millis(1), never).await.is_err());
    ///     let (sent, received) = tokio::join!(team.send_nbi(vec![4.5; 3], peer, 1)?, team.recv_nbi([0.0; 4], peer, 1)?);
    ///     let (data, status) = received?;
    ///     assert_eq!((sent?, data, status.count::<f64>()), (vec![4.5; 3], [4.5, 4.5, 4.5, 0.0], Some(3)));
    ///     Ok(())
    /// }
    ///
    /// Job::threads(2, |job| rank(&job.world()?))?;
    /// # }
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [messages](crate::messages); the buffer is then dropped.
    #[track_caller]
    fn send_nbi<T: Pod, B: Buffer<T> + Returned>(&self, buffer: B, to: usize, tag: i32) -> Result<PendingSend<B>> {
        located(|| PendingSend::start::<T>(self.as_team(), buffer, to, tag))
    }

    /// Starts to receive into a buffer, which the handle returns together with the status. Dropping the handle cancels
    /// the receive.
    ///
    /// # Errors
    /// Those of [`send_nbi`](Self::send_nbi).
    #[track_caller]
    fn recv_nbi<T: Pod, B: Buffer<T> + Returned>(
        &self,
        buffer: B,
        source: impl Into<Option<usize>>,
        tag: impl Into<Option<i32>>,
    ) -> Result<PendingReceive<B, T>> {
        located(|| {
            let pattern = pattern(self.as_team(), source.into(), tag.into())?;
            PendingReceive::start(self.as_team(), buffer, pattern)
        })
    }

    /// Synchronous send: like [`send`](Self::send), but returns only once the matching receive has started.
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
    #[inline]
    #[track_caller]
    fn ssend<T: Pod>(&self, data: &[T], to: usize, tag: i32) -> Result<()> {
        located(|| pending::send(self.as_team(), bytemuck::cast_slice(data), to, tag, Mode::Synchronous))
    }

    /// Receives the first matching message into the first elements of `into`.
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
    #[inline]
    #[track_caller]
    fn recv<T: Pod>(
        &self,
        into: &mut [T],
        source: impl Into<Option<usize>>,
        tag: impl Into<Option<i32>>,
    ) -> Result<Status> {
        located(|| {
            let team = self.as_team();
            let pattern = pattern(team, source.into(), tag.into())?;
            pending::receive(team, bytemuck::cast_slice_mut(into), pattern)?.checked::<T>(team)
        })
    }

    /// Receives the first matching message, of any length, into a new vector.
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
    #[track_caller]
    fn recv_vec<T: Pod>(
        &self,
        source: impl Into<Option<usize>>,
        tag: impl Into<Option<i32>>,
    ) -> Result<(Vec<T>, Status)> {
        located(|| self.mprobe(source, tag)?.recv_vec())
    }

    /// Sends and receives concurrently, so that ranks can exchange messages of any length.
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
    #[track_caller]
    fn sendrecv<T: Pod, U: Pod>(
        &self,
        data: &[T],
        to: usize,
        send_tag: i32,
        into: &mut [U],
        source: impl Into<Option<usize>>,
        tag: impl Into<Option<i32>>,
    ) -> Result<Status> {
        located(|| {
            use crate::collectives::Collectives;
            self.as_team().overlap(|messages| {
                let received = messages.irecv(into, source, tag)?;
                messages.isend(data, to, send_tag)?.wait()?;
                received.wait().map(|(_, status)| status)
            })
        })
    }

    /// Waits for a matching message, without receiving it.
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
    #[track_caller]
    fn probe(&self, source: impl Into<Option<usize>>, tag: impl Into<Option<i32>>) -> Result<Status> {
        located(|| {
            let team = self.as_team();
            let pattern = pattern(team, source.into(), tag.into())?;
            let found = team.job().wait(|| pending::probing(&pattern), || team.job().probe(&pattern))?;
            Status::of(team, &found)
        })
    }

    /// The status of the message that a receive would match now, if any, making progress once.
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
    #[track_caller]
    fn iprobe(&self, source: impl Into<Option<usize>>, tag: impl Into<Option<i32>>) -> Result<Option<Status>> {
        located(|| {
            let team = self.as_team();
            let pattern = pattern(team, source.into(), tag.into())?;
            team.job().progress()?;
            team.job().probe(&pattern)?.map(|found| Status::of(team, &found)).transpose()
        })
    }

    /// Waits for a matching message, and takes it, so that no other receive or probe matches it.
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
    #[track_caller]
    fn mprobe(&self, source: impl Into<Option<usize>>, tag: impl Into<Option<i32>>) -> Result<Message> {
        located(|| {
            let team = self.as_team();
            let pattern = pattern(team, source.into(), tag.into())?;
            let taken = team.job().wait(|| pending::probing(&pattern), || team.job().take_message(&pattern))?;
            Message::of(team, taken)
        })
    }

    /// Takes the message that a receive would match now, if any, making progress once.
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
    #[track_caller]
    fn improbe(&self, source: impl Into<Option<usize>>, tag: impl Into<Option<i32>>) -> Result<Option<Message>> {
        located(|| {
            let team = self.as_team();
            let pattern = pattern(team, source.into(), tag.into())?;
            team.job().progress()?;
            team.job().take_message(&pattern)?.map(|taken| Message::of(team, taken)).transpose()
        })
    }
}

impl Messages for Team {
    #[inline]
    fn as_team(&self) -> &Team {
        self
    }
}
