//! Groups: ordered sets of ranks of the job; and the sessions from which groups are made.

use std::collections::HashMap;
use std::ffi::c_int;
use std::rc::Rc;

use super::{Attached, InfoObject};
use crate::constants::*;
use crate::errhandler::{ErrhandlerOf, Handler, HasErrhandler};
use crate::handle::Objects;

/// A group: ranks of the job in its order.
pub struct GroupObject {
    pub members: Rc<[u32]>,
    /// The session from which the group was created.
    pub session: Option<Rc<SessionObject>>,
}

impl GroupObject {
    pub fn new(members: impl Into<Rc<[u32]>>) -> Rc<Self> {
        Self::of(members, None)
    }

    /// Creates a group of a session.
    pub fn of(members: impl Into<Rc<[u32]>>, session: Option<&Rc<SessionObject>>) -> Rc<Self> {
        Rc::new(Self { members: members.into(), session: session.cloned() })
    }

    /// The job rank of a rank in the group; `None` for any other number.
    #[inline(always)]
    pub fn member(&self, rank: c_int) -> Option<u32> {
        // A negative number becomes an index that is too large.
        self.members.get(rank as usize).copied()
    }

    /// The group rank of a job rank.
    #[inline]
    pub fn rank_of(&self, job_rank: u32) -> Option<usize> {
        // Fast path: most messages are in groups whose ranks equal those in the job.
        let own = job_rank as usize;
        if self.members.get(own) == Some(&job_rank) {
            return Some(own);
        }
        self.members.iter().position(|member| *member == job_rank)
    }

    /// `MPI_IDENT`, `MPI_SIMILAR` or `MPI_UNEQUAL`.
    pub fn compare(&self, other: &Self) -> c_int {
        if self.members == other.members {
            return MPI_IDENT;
        }
        let sorted = |group: &Self| {
            let mut members = group.members.to_vec();
            members.sort_unstable();
            members
        };
        if sorted(self) == sorted(other) { MPI_SIMILAR } else { MPI_UNEQUAL }
    }

    pub fn places(&self) -> HashMap<u32, usize> {
        self.members.iter().enumerate().map(|(at, member)| (*member, at)).collect()
    }
}

/// Creates the empty group.
pub fn predefined(groups: &Objects<Group, GroupObject>) {
    groups.set_predefined(MPI_GROUP_EMPTY, Some(GroupObject::new([])));
}

/// A session.
pub struct SessionObject {
    pub errhandler: Handler,
    /// The attached buffer, for buffered sends on communicators of the session.
    pub buffer: Attached,
    pub info: Rc<InfoObject>,
}

impl HasErrhandler for (Session, Rc<SessionObject>) {
    fn errhandler_of(&self) -> ErrhandlerOf {
        (Rc::clone(&self.1.errhandler.borrow()), self.0.0)
    }
}
