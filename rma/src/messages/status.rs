//! The status of messages, and messages returned by matched probes.

use bytemuck::Pod;
use farside_core::two_sided::{self, Matched};
use farside_core::{Error, ErrorKind, Result, Team, located};

use super::pending::{self, RECEIVE};

/// The envelope and length of a message that was received or probed.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     if team.rank() == 0 {
///         return team.send(&[1u32; 5], 1, -3);
///     }
///     let status = team.probe(ANY_SOURCE, ANY_TAG)?;
///     assert_eq!((status.source, status.tag, status.len), (0, -3, 20));
///     team.recv(&mut [0u32; 5], 0, -3).map(drop)
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The sender, as a rank of the team.
    pub source: usize,
    /// The tag.
    pub tag: i32,
    /// Length of the message in bytes.
    pub len: usize,
}

impl Status {
    /// Number of elements of `T` in the message; `None` if the message is not a whole number of elements.
    ///
    /// ```
    /// let status = farside_rma::messages::Status { source: 0, tag: 0, len: 12 };
    /// assert_eq!((status.count::<u32>(), status.count::<u64>()), (Some(3), None));
    /// ```
    #[must_use]
    pub fn count<T: Pod>(&self) -> Option<usize> {
        let size = size_of::<T>().max(1);
        self.len.is_multiple_of(size).then_some(self.len / size)
    }

    /// Converts a status with job ranks to one with ranks of the team.
    pub(super) fn of(team: &Team, status: &two_sided::Status) -> Result<Self> {
        let members = team.members();
        // In the world team, team ranks are job ranks.
        let same = (members.get(status.source as usize) == Some(&status.source)).then_some(status.source as usize);
        let source = same.or_else(|| members.iter().position(|member| *member == status.source));
        let source = source.ok_or_else(|| {
            let e = Error::new(ErrorKind::Protocol, RECEIVE).rank(team.job().rank()).peer(status.source);
            e.cause("the sender is not in the team").remedy("give teams with different members different contexts")
        })?;
        Ok(Self { source, tag: status.tag, len: status.len })
    }

    /// The status; an error if the message is not a whole number of elements.
    #[inline]
    pub(super) fn whole<T: Pod>(self, team: &Team) -> Result<Self> {
        if self.count::<T>().is_some() {
            return Ok(self);
        }
        Err(refused(team, &self, format!("but an element has {} bytes", size_of::<T>())))
    }
}

/// The error for a message that does not fit its receive.
#[cold]
pub(super) fn refused(team: &Team, status: &Status, why: String) -> Error {
    let Status { source, tag, len } = status;
    let e = Error::new(ErrorKind::BadArgument, RECEIVE).rank(team.job().rank());
    e.cause(format!("a message from rank {source} with tag {tag} has {len} bytes, {why}"))
        .remedy("receive with the length and the element type of the send, or probe for the length first")
}

/// A message that a matched probe ([`mprobe`](super::Messages::mprobe)) has removed from matching, to be received.
/// Dropping it discards the message, and the send completes.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let peer = 1 - team.rank();
///     team.send(b"text", peer, 1)?;
///     // A matched probe, since the length of the message is not known in advance.
///     let message = team.mprobe(ANY_SOURCE, ANY_TAG)?;
///     assert_eq!(message.status().len, 4);
///     let (text, status) = message.recv_vec::<u8>()?;
///     assert_eq!((&text[..], status.source), (&b"text"[..], peer));
///     Ok(())
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[must_use = "a message that is dropped is lost"]
#[derive(Debug)]
pub struct Message {
    team: Team,
    status: Status,
    taken: Option<Matched>,
}

impl Message {
    pub(super) fn of(team: &Team, taken: Matched) -> Result<Self> {
        let status = taken.status();
        let found = Status::of(team, &status);
        let of = |status| Self { team: team.clone(), status, taken: Some(taken) };
        // Discards a message whose sender is not in the team.
        match found {
            Ok(found) => Ok(of(found)),
            Err(e) => {
                drop(of(Status { source: 0, tag: status.tag, len: status.len }));
                Err(e)
            }
        }
    }

    /// Source, tag and length.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// The team in which the message was sent.
    pub(super) fn team(&self) -> &Team {
        &self.team
    }

    /// Takes the message; `None` if it has already been taken.
    pub(super) fn take(&mut self) -> Option<Matched> {
        self.taken.take()
    }

    /// Receives the message into the first elements of `into`.
    ///
    /// # Errors
    /// Those of [messages](crate::messages).
    #[track_caller]
    pub fn recv<T: Pod>(mut self, into: &mut [T]) -> Result<Status> {
        located(|| {
            let (team, taken) = (self.team.clone(), self.take());
            pending::receive_taken(&team, bytemuck::cast_slice_mut(into), taken)?.checked::<T>(&team)
        })
    }

    /// Receives the whole message into a new vector.
    ///
    /// # Errors
    /// Those of [messages](crate::messages); `Limit` if there is not enough memory.
    #[track_caller]
    pub fn recv_vec<T: Pod>(self) -> Result<(Vec<T>, Status)> {
        located(|| {
            let status = self.status.whole::<T>(&self.team)?;
            let count = status.len / size_of::<T>().max(1);
            let mut data = Vec::new();
            data.try_reserve_exact(count).map_err(|_| {
                let e = Error::new(ErrorKind::Limit, RECEIVE).rank(self.team.job().rank());
                e.cause(format!("cannot allocate a receive buffer of {} bytes", status.len))
            })?;
            data.resize(count, T::zeroed());
            let status = self.recv(&mut data)?;
            Ok((data, status))
        })
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(taken) = self.take() {
            pending::discard(&self.team, taken);
        }
    }
}
