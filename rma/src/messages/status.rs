//! What was received, or is there to be received.

use bytemuck::Pod;
use farside_core::two_sided::{self, Matched};
use farside_core::{Error, ErrorKind, Result, Team};

use super::pending::{self, RECEIVE};

/// What was received, or is there to be received.
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
    /// How many elements of `T` the message has; `None` if it is no whole number of them.
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

    /// In the ranks of the team.
    pub(super) fn of(team: &Team, status: &two_sided::Status) -> Result<Self> {
        let members = team.members();
        // The team of all ranks has each in its own place.
        let same = (members.get(status.source as usize) == Some(&status.source)).then_some(status.source as usize);
        let source = same.or_else(|| members.iter().position(|member| *member == status.source));
        let source = source.ok_or_else(|| {
            let e = Error::new(ErrorKind::Protocol, RECEIVE).rank(team.job().rank()).peer(status.source);
            e.cause("a message of a rank that is not in the team").remedy("give teams of other members other contexts")
        })?;
        Ok(Self { source, tag: status.tag, len: status.len })
    }

    /// As it is, unless the message is no whole number of elements.
    #[inline]
    pub(super) fn whole<T: Pod>(self, team: &Team) -> Result<Self> {
        if self.count::<T>().is_some() {
            return Ok(self);
        }
        Err(refused(team, &self, format!("and an element has {}", size_of::<T>())))
    }
}

/// A message that its receive cannot take.
#[cold]
pub(super) fn refused(team: &Team, status: &Status, why: String) -> Error {
    let Status { source, tag, len } = status;
    let e = Error::new(ErrorKind::BadArgument, RECEIVE).rank(team.job().rank());
    e.cause(format!("a message of {len} bytes from rank {source} with tag {tag}, {why}"))
        .remedy("receive with the length and the element type of the send, or probe for the length first")
}

/// A message that a probe has taken ([`mprobe`](super::Messages::mprobe)), to be received. One that is dropped is discarded,
/// and its sender goes on.
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
        // A stranger's is dropped.
        match found {
            Ok(found) => Ok(of(found)),
            Err(e) => {
                drop(of(Status { source: 0, tag: status.tag, len: status.len }));
                Err(e)
            }
        }
    }

    /// What it is.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// The team that it was sent in.
    pub(super) fn team(&self) -> &Team {
        &self.team
    }

    /// The message, once.
    pub(super) fn take(&mut self) -> Option<Matched> {
        self.taken.take()
    }

    /// Receives it into the first elements of `into`.
    ///
    /// # Errors
    /// Those of [messages](crate::messages).
    pub fn recv<T: Pod>(mut self, into: &mut [T]) -> Result<Status> {
        let (team, taken) = (self.team.clone(), self.take());
        pending::receive_taken(&team, bytemuck::cast_slice_mut(into), taken)?.checked::<T>(&team)
    }

    /// Receives all of it.
    ///
    /// # Errors
    /// Those of [messages](crate::messages); `Limit` if there is not enough memory.
    pub fn recv_vec<T: Pod>(self) -> Result<(Vec<T>, Status)> {
        let status = self.status.whole::<T>(&self.team)?;
        let count = status.len / size_of::<T>().max(1);
        let mut data = Vec::new();
        data.try_reserve_exact(count).map_err(|_| {
            let e = Error::new(ErrorKind::Limit, RECEIVE).rank(self.team.job().rank());
            e.cause(format!("a message of {} bytes, more than there is memory for", status.len))
        })?;
        data.resize(count, T::zeroed());
        let status = self.recv(&mut data)?;
        Ok((data, status))
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(taken) = self.take() {
            pending::discard(&self.team, taken);
        }
    }
}
