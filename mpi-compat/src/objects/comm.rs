//! Communicators.

use std::cell::RefCell;
use std::rc::Rc;

use farside_core::Job;
use farside_rma::Team;

use super::{Attached, Attributes, GroupObject, InfoObject, Topology};
use crate::constants::MPI_ERR_INTERN;
use crate::errhandler::{ErrhandlerOf, Handler, HasErrhandler};
use crate::fail::{Result, fail};
use crate::handle::Comm;

/// A communicator.
pub struct CommObject {
    pub group: Rc<GroupObject>,
    /// The remote group of an intercommunicator.
    pub remote: Option<Rc<GroupObject>>,
    /// The group to which rank arguments refer: for an intercommunicator the remote group, otherwise the local one.
    pub peers: Rc<GroupObject>,
    /// This rank in `group`.
    pub rank: usize,
    /// The context of its team, for collectives, and of its point-to-point messages, which never match those of
    /// collectives.
    pub context: u32,
    /// The context of this library's internal messages between its members.
    pub inner: u32,
    /// The core team, for collectives and windows; for an intercommunicator it contains the ranks of both groups.
    pub team: Team,
    pub name: RefCell<Vec<u8>>,
    pub attributes: Attributes,
    pub errhandler: Handler,
    pub info: RefCell<Rc<InfoObject>>,
    pub topology: Option<Rc<Topology>>,
    /// The attached buffer for buffered sends.
    pub buffer: Attached,
}

/// The members of a communicator.
pub struct Members {
    pub local: Rc<GroupObject>,
    /// The remote group of an intercommunicator.
    pub remote: Option<Rc<GroupObject>>,
    /// Whether the local group comes first in the team, whose order is the same at all members.
    pub local_first: bool,
}

impl CommObject {
    pub fn new(team: Team, members: Members, contexts: [u32; 2], errhandler: Handler) -> Result<Self> {
        let me = team.job().rank_number();
        let rank = members.local.rank_of(me);
        Ok(Self {
            rank: rank.ok_or_else(|| fail(MPI_ERR_INTERN, "a communicator without this rank is made"))?,
            peers: Rc::clone(members.remote.as_ref().unwrap_or(&members.local)),
            group: members.local,
            remote: members.remote,
            context: contexts[0],
            inner: contexts[1],
            team,
            name: RefCell::default(),
            attributes: Attributes::default(),
            errhandler,
            info: RefCell::default(),
            topology: None,
            buffer: Attached::default(),
        })
    }

    /// A new communicator with the error handler and the session of an old one.
    pub fn of(old: &Self, mut members: Members, contexts: [u32; 2]) -> Result<Self> {
        if let session @ Some(_) = &old.group.session {
            members.local = GroupObject::of(Rc::clone(&members.local.members), session.as_ref());
        }
        Self::on(old.team.job(), members, contexts, old.errhandler.clone())
    }

    /// A new communicator.
    pub fn on(job: &Job, members: Members, contexts: [u32; 2], errhandler: Handler) -> Result<Self> {
        let remote = members.remote.as_ref().map_or(&[][..], |remote| &remote.members);
        let (first, second) = if members.local_first {
            (&members.local.members[..], remote)
        } else {
            (remote, &members.local.members[..])
        };
        let team = Team::of(job, &[first, second].concat(), contexts[0])?;
        Self::new(team, members, contexts, errhandler)
    }

    /// Whether the local group of an intercommunicator comes first in the team.
    pub fn is_local_first(&self) -> bool {
        self.team.members().first() == self.group.members.first()
    }

    /// The rank in the team of a rank of `peers`.
    pub fn team_rank(&self, rank: usize) -> usize {
        if self.remote.is_some() && self.is_local_first() { self.group.members.len() + rank } else { rank }
    }
}

impl Drop for CommObject {
    fn drop(&mut self) {
        for context in [self.context, self.inner] {
            self.team.job().forget_context(context);
        }
    }
}

impl HasErrhandler for (Comm, Rc<CommObject>) {
    fn errhandler_of(&self) -> ErrhandlerOf {
        (Rc::clone(&self.1.errhandler.borrow()), self.0.0)
    }
}
