#![allow(unsafe_code)]
//! Nonblocking sends and receives: wait, test, or await them.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytemuck::Pod;
use farside_core::two_sided::Mode;
use farside_core::{Result, located};

use super::pending::{Receiving, Sending, pattern};
use super::{Message, Status};
use crate::collectives::{Overlap, Pending, poll_of};

impl<'scope, 'env> Overlap<'scope, 'env> {
    /// Starts a nonblocking [`send`](super::Messages::send) of `data` to a rank with a tag.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let (mine, mut theirs, other) = (vec![team.rank(); 100_000], vec![9; 100_000], 1 - team.rank());
    ///     team.overlap(|messages| {
    ///         let received = messages.irecv(&mut theirs, other, ANY_TAG)?;
    ///         let sent = messages.isend(&mine, other, 4)?;
    ///         // Other work, and then:
    ///         let (data, status) = received.wait()?;
    ///         assert_eq!((data[99_999], status.tag), (other, 4));
    ///         sent.wait()
    ///     })
    /// })
    /// .unwrap();
    /// ```
    ///
    /// Requests are futures:
    ///
    /// ```
    /// # #[cfg(feature = "async")] {
    /// use farside_rma::block_on;
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let (mine, mut theirs, other) = ([team.rank()], [9], 1 - team.rank());
    ///     team.overlap(|messages| {
    ///         block_on(async {
    ///             let received = messages.irecv(&mut theirs, other, 0)?;
    ///             messages.isend(&mine, other, 0)?.await?;
    ///             assert_eq!(received.await?.0, [other]);
    ///             Ok(())
    ///         })?
    ///     })
    /// })
    /// .unwrap();
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [messages](crate::messages).
    #[inline]
    #[track_caller]
    pub fn isend<T: Pod>(&'scope self, data: &'scope [T], to: usize, tag: i32) -> Result<SendRequest<'scope>> {
        self.start_send(bytemuck::cast_slice(data), to, tag, Mode::Standard)
    }

    /// Starts a nonblocking [`ssend`](super::Messages::ssend), which is complete only once the matching receive has
    /// started.
    ///
    /// # Errors
    /// Those of [messages](crate::messages).
    #[track_caller]
    pub fn issend<T: Pod>(&'scope self, data: &'scope [T], to: usize, tag: i32) -> Result<SendRequest<'scope>> {
        self.start_send(bytemuck::cast_slice(data), to, tag, Mode::Synchronous)
    }

    #[inline]
    #[track_caller]
    fn start_send(&'scope self, data: &'scope [u8], to: usize, tag: i32, mode: Mode) -> Result<SendRequest<'scope>> {
        located(|| {
            // SAFETY: the data is borrowed until the scope has ended, and the scope completes or cancels the send before
            // that.
            let sending = unsafe { Sending::start(self.team(), data, to, tag, mode) }?;
            Ok(SendRequest { operation: sending.map(|sending| self.own_operation(sending)), data: PhantomData })
        })
    }

    /// Starts a nonblocking [`recv`](super::Messages::recv) into the first elements of `into`.
    ///
    /// # Errors
    /// `NoSuchRank`, `Freed`. Errors of the message are returned by [`ReceiveRequest::wait`].
    #[inline]
    #[track_caller]
    pub fn irecv<T: Pod>(
        &'scope self,
        into: &'scope mut [T],
        source: impl Into<Option<usize>>,
        tag: impl Into<Option<i32>>,
    ) -> Result<ReceiveRequest<'scope, T>> {
        located(|| {
            let pattern = pattern(self.team(), source.into(), tag.into())?;
            let output = (into.as_mut_ptr(), into.len());
            // SAFETY: the buffer is borrowed exclusively until the scope has ended, and the scope completes or cancels the
            // receive before that.
            let receiving = unsafe { Receiving::start(self.team(), (output.0.cast(), size_of_val(into)), pattern) }?;
            Ok(ReceiveRequest { operation: self.own_operation(receiving), output, buffer: PhantomData })
        })
    }

    /// Starts to receive a message that a matched probe has returned.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let peer = 1 - team.rank();
    ///     team.send(&[team.rank() as u64; 3], peer, 5)?;
    ///     let message = team.mprobe(peer, ANY_TAG)?;
    ///     let mut into = [9; 4];
    ///     team.overlap(|scope| {
    ///         let (_, status) = scope.imrecv(&mut into, message)?.wait()?;
    ///         assert_eq!((status.source, status.tag, status.count::<u64>()), (peer, 5, Some(3)));
    ///         Ok(())
    ///     })?;
    ///     assert_eq!(into, [peer as u64, peer as u64, peer as u64, 9]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`irecv`](Self::irecv).
    #[track_caller]
    pub fn imrecv<T: Pod>(
        &'scope self,
        into: &'scope mut [T],
        mut message: Message,
    ) -> Result<ReceiveRequest<'scope, T>> {
        located(|| {
            let output = (into.as_mut_ptr(), into.len());
            let (team, taken) = (message.team().clone(), message.take());
            // SAFETY: as in `irecv`.
            let receiving = unsafe { Receiving::start_taken(&team, (output.0.cast(), size_of_val(into)), taken) }?;
            Ok(ReceiveRequest { operation: self.own_operation(receiving), output, buffer: PhantomData })
        })
    }
}

/// A nonblocking send. Dropping the request has no effect on the send: the end of the scope waits for it.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let (mine, mut theirs, peer) = ([team.rank(); 3], [9; 3], 1 - team.rank());
///     team.overlap(|messages| {
///         let mut sent = messages.issend(&mine, peer, 0)?;
///         messages.irecv(&mut theirs, peer, 0)?.wait()?;
///         while !sent.test()? {
///             // Other work, until the peer's receive has started.
///         }
///         sent.wait()
///     })?;
///     assert_eq!(theirs, [peer; 3]);
///     Ok(())
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[must_use = "wait, await, or let the end of the scope complete it"]
pub struct SendRequest<'scope> {
    /// `None` if the send was complete when it was started.
    operation: Option<Rc<Sending>>,
    data: PhantomData<&'scope ()>,
}

impl fmt::Debug for SendRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendRequest").field("complete", &self.operation.is_none()).finish_non_exhaustive()
    }
}

impl SendRequest<'_> {
    /// Waits until the data may be reused.
    ///
    /// # Errors
    /// `PeerLost`.
    #[track_caller]
    pub fn wait(self) -> Result<()> {
        located(|| self.operation.map_or(Ok(()), |operation| operation.wait()))
    }

    /// Whether the data may be reused, making progress once. [`wait`](Self::wait) returns an error of the send.
    ///
    /// # Errors
    /// `PeerLost`.
    #[track_caller]
    pub fn test(&mut self) -> Result<bool> {
        located(|| self.operation.as_ref().map_or(Ok(true), |operation| operation.test()))
    }
}

impl Future for SendRequest<'_> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(operation) = &self.operation else { return Poll::Ready(Ok(())) };
        poll_of(operation.team().job(), context, operation.test().and_then(|_| operation.outcome()))
    }
}

/// A nonblocking receive. Dropping the request has no effect on the receive: the end of the scope waits for it.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let (mut buffer, mut never) = ([9; 2], [9; 2]);
///     team.overlap(|messages| {
///         let mut received = messages.irecv(&mut buffer, ANY_SOURCE, 1)?;
///         let mut other = messages.irecv(&mut never, ANY_SOURCE, 2)?;
///         team.send(&[7], 1 - team.rank(), 1)?;
///         while !received.test()? {
///             // Other work, until the message has arrived.
///         }
///         assert!(other.cancel());
///         Ok(())
///     })?;
///     assert_eq!((buffer, never), ([7, 9], [9, 9]));
///     Ok(())
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[must_use = "wait, await, or let the end of the scope complete it"]
pub struct ReceiveRequest<'scope, T> {
    operation: Rc<Receiving>,
    output: (*mut T, usize),
    buffer: PhantomData<&'scope mut [T]>,
}

impl<T> fmt::Debug for ReceiveRequest<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveRequest").field("active", &self.operation.is_active()).finish_non_exhaustive()
    }
}

impl<'scope, T: Pod> ReceiveRequest<'scope, T> {
    /// Waits for the message, and returns the buffer and the status. The message is in the first
    /// [`count`](Status::count) elements of the buffer.
    ///
    /// # Errors
    /// `BadArgument` for a message that is longer than the buffer or not a whole number of elements; `PeerLost`;
    /// `Aborted` after a [`cancel`](Self::cancel).
    #[track_caller]
    pub fn wait(self) -> Result<(&'scope mut [T], Status)> {
        located(|| {
            let status = self.operation.finish()?.checked::<T>(self.operation.team())?;
            Ok((self.take(), status))
        })
    }

    /// Whether the message has arrived, making progress once. [`wait`](Self::wait) returns an error of the receive.
    ///
    /// # Errors
    /// `PeerLost`.
    #[track_caller]
    pub fn test(&mut self) -> Result<bool> {
        located(|| self.operation.test())
    }

    /// Cancels the receive if it has not matched a message, and returns whether it did. The end of the scope does not
    /// wait for a cancelled receive.
    #[must_use]
    pub fn cancel(&mut self) -> bool {
        self.operation.take_back()
    }

    /// The buffer. Called only with the status of a successful receive, which is returned once.
    fn take(&self) -> &'scope mut [T] {
        // SAFETY: the buffer is borrowed exclusively for the scope; the receive has ended, and its outcome, which
        // `take` requires, is returned once.
        unsafe { std::slice::from_raw_parts_mut(self.output.0, self.output.1) }
    }
}

impl<'scope, T: Pod> Future for ReceiveRequest<'scope, T> {
    type Output = Result<(&'scope mut [T], Status)>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let received =
            poll_of(self.operation.team().job(), context, self.operation.test().and_then(|_| self.operation.outcome()));
        received.map(|received| {
            let status = received?.checked::<T>(self.operation.team())?;
            Ok((self.take(), status))
        })
    }
}
