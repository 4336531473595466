#![allow(unsafe_code)]
//! Sends and receives in progress that own their buffers: for async functions, which may be dropped or leaked at any
//! `.await`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytemuck::Pod;
use farside_core::job::Unfinished;
use farside_core::matching::Pattern;
use farside_core::two_sided::Mode;
use farside_core::{Error, ErrorKind, Result, Team, located};

use super::Status;
use super::pending::{RECEIVE, Received, Receiving, SEND, Sending};
use crate::collectives::{Pending as _, poll_of};
use crate::pending::{Buffer, HeapBuffer, Returned};

/// A send in progress, with its buffer: wait, test, or await it. Dropping the handle has no effect on the message; the
/// job then keeps the buffer until the send is complete.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let (me, peer) = (team.rank(), 1 - team.rank());
///     let sent = team.send_nbi(vec![me; 2], peer, 0)?;
///     assert_eq!(team.recv_vec::<usize>(peer, 0)?.0, [peer; 2]);
///     assert_eq!(sent.wait()?, [me; 2]);
///     Ok(())
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[must_use = "wait, await, or let the job complete it"]
pub struct PendingSend<B: 'static> {
    team: Team,
    /// `None` once the buffer has been returned.
    message: Option<OwnedSend<B>>,
}

struct OwnedSend<B> {
    // Dropped first, which ends the send. `None` if the send was already complete when it was started.
    sending: Option<Sending>,
    buffer: HeapBuffer<B>,
}

impl<B> Unfinished for OwnedSend<B> {
    fn is_done(&self) -> bool {
        self.sending.as_ref().is_none_or(Sending::is_done)
    }
}

impl<B> fmt::Debug for PendingSend<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingSend").field("team", &self.team.context()).finish_non_exhaustive()
    }
}

impl<B> Unpin for PendingSend<B> {}

/// The error of a handle whose buffer has already been returned.
fn already_returned(operation: &'static str) -> Error {
    Error::new(ErrorKind::BadArgument, operation).cause("its buffer has already been returned")
}

impl<B: Returned> PendingSend<B> {
    pub(super) fn start<T: Pod>(team: &Team, buffer: B, to: usize, tag: i32) -> Result<Self>
    where
        B: Buffer<T>,
    {
        let mut buffer = HeapBuffer::new(buffer);
        let (at, count) = buffer.get_mut().elements();
        // SAFETY: `count` elements of the buffer.
        let data = unsafe { std::slice::from_raw_parts(at.cast::<u8>().cast_const(), count * size_of::<T>()) };
        // SAFETY: the buffer is not moved, and is returned or dropped only after the send has ended.
        let sending = unsafe { Sending::start(team, data, to, tag, Mode::Standard) }?;
        Ok(Self { team: team.clone(), message: Some(OwnedSend { sending, buffer }) })
    }

    fn take(&mut self) -> Result<B::Value> {
        let message = self.message.take().ok_or_else(|| already_returned(SEND))?;
        drop(message.sending);
        Ok(message.buffer.into_inner().into_value())
    }

    /// Waits until the buffer may be reused, and returns it.
    ///
    /// # Errors
    /// `PeerLost`; `BadArgument` if [`test`](Self::test) has returned the buffer.
    #[track_caller]
    pub fn wait(mut self) -> Result<B::Value> {
        located(|| {
            if let Some(OwnedSend { sending: Some(sending), .. }) = &self.message {
                sending.wait()?;
            }
            self.take()
        })
    }

    /// Makes progress once; returns the buffer if it may be reused, or `None` while the send is in progress.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    #[track_caller]
    pub fn test(&mut self) -> Result<Option<B::Value>> {
        located(|| {
            if let Some(OwnedSend { sending: Some(sending), .. }) = &self.message
                && (!sending.test()? || sending.outcome()?.is_none())
            {
                return Ok(None);
            }
            self.take().map(Some)
        })
    }
}

impl<B: Returned> Future for PendingSend<B> {
    type Output = Result<B::Value>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = self.test();
        poll_of(self.team.job(), context, outcome)
    }
}

impl<B: 'static> Drop for PendingSend<B> {
    fn drop(&mut self) {
        if let Some(message) = self.message.take().filter(|message| !message.is_done()) {
            self.team.job().keep_until_done(Box::new(message));
        }
    }
}

/// A receive in progress, with its buffer. Dropping the handle cancels the receive; if it has already matched a
/// message, the message is lost.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let (me, peer) = (team.rank(), 1 - team.rank());
///     let mut received = team.recv_nbi([9; 3], peer, 0)?;
///     team.send(&[me; 2], peer, 0)?;
///     let (data, status) = loop {
///         // Other work, until the message has arrived.
///         if let Some(received) = received.test()? {
///             break received;
///         }
///     };
///     assert_eq!((data, status.count::<usize>()), ([peer, peer, 9], Some(2)));
///     Ok(())
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[must_use = "wait or await it"]
pub struct PendingReceive<B: 'static, T> {
    // Dropped first, which ends the receive.
    receiving: Receiving,
    /// `None` once the buffer has been returned.
    buffer: Option<HeapBuffer<B>>,
    element: std::marker::PhantomData<T>,
}

impl<B, T> fmt::Debug for PendingReceive<B, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingReceive").field("active", &self.receiving.is_active()).finish_non_exhaustive()
    }
}

impl<B, T> Unpin for PendingReceive<B, T> {}

impl<T: Pod, B: Returned + Buffer<T>> PendingReceive<B, T> {
    pub(super) fn start(team: &Team, buffer: B, pattern: Pattern) -> Result<Self> {
        let mut buffer = HeapBuffer::new(buffer);
        let (at, count) = buffer.get_mut().elements();
        // SAFETY: the buffer is not moved, and is returned or dropped only after the receive has ended.
        let receiving = unsafe { Receiving::start(team, (at.cast(), count * size_of::<T>()), pattern) }?;
        Ok(Self { receiving, buffer: Some(buffer), element: std::marker::PhantomData })
    }

    fn take(&mut self, received: &Received) -> Result<(B::Value, Status)> {
        let status = received.checked::<T>(self.receiving.team())?;
        let buffer = self.buffer.take().ok_or_else(|| already_returned(RECEIVE))?;
        Ok((buffer.into_inner().into_value(), status))
    }

    /// Waits for the message, and returns the buffer and the status. The message is in the first
    /// [`count`](Status::count) elements.
    ///
    /// # Errors
    /// `BadArgument` for a message that is longer than the buffer or not a whole number of elements; `PeerLost`.
    #[track_caller]
    pub fn wait(mut self) -> Result<(B::Value, Status)> {
        located(|| {
            let received = self.receiving.finish()?;
            self.take(&received)
        })
    }

    /// Makes progress once; returns the buffer and the status if the message has arrived.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    #[track_caller]
    pub fn test(&mut self) -> Result<Option<(B::Value, Status)>> {
        located(|| {
            if self.buffer.is_none() {
                return Err(already_returned(RECEIVE));
            }
            self.receiving.test()?;
            self.receiving.outcome()?.map(|received| self.take(&received)).transpose()
        })
    }
}

impl<T: Pod, B: Returned + Buffer<T>> Future for PendingReceive<B, T> {
    type Output = Result<(B::Value, Status)>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = self.test();
        poll_of(self.receiving.team().job(), context, outcome)
    }
}
