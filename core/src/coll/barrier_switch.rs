#![allow(unsafe_code)]
//! The use of the barrier in the switch of the network by a team (Hoefler 2005, section 3.1): the first barrier of a
//! team makes it a group of the switch, if the network has such a barrier, the selection chooses it, and an id is free.
//! Each further barrier takes one message of every rank to the switch, and one back.

use std::cell::Cell;

use crate::bill::{Account, Awaited};
use crate::coll::operation::{Call, Operation as Collective};
use crate::coll::selection::{Facts, Origin, Placement};
use crate::coll::team::Team;
use crate::coll::{self, execute, table};
use crate::device::{BarrierRequest, Operation};
use crate::engine::CancelOnDrop;
use crate::error::{Error, ErrorKind, Result};
use crate::job::{Job, Track};

/// A group of the switch.
pub(crate) struct SwitchGroup {
    group: u64,
    /// Number of barriers so far.
    barriers: Cell<u64>,
}

/// Whether the network has an in-switch barrier and the selection chooses it; the same at all ranks. The selection
/// compares message counts only; the device reports from how many nodes on the switch is also faster than signals.
fn is_chosen(team: &Team) -> bool {
    let job = team.job();
    let Some(limits) = job.device().capabilities().switch else { return false };
    let (rank, size) = (team.rank() as u32, team.size() as u32);
    let call = Call { switch: true, lends: team.is_on_one_node(), ..Call::new(Collective::Barrier, rank, size) };
    let placement = Placement::of(team.is_on_one_node(), job.is_on_oversubscribed_node());
    let (choice, origin) = job.calls().tuning.selection().select(&call, &Facts::new(&call, 1, true, placement));
    let nodes = team.membership().nodes.iter().max().map_or(size, |last| last + 1);
    table::is_in_switch(choice.algorithm) && (origin == Origin::User || nodes >= limits.least_nodes)
}

/// Posts a request to the switch and waits until it is complete. `number` is that of the barrier, or 0.
fn ask(team: &Team, request: BarrierRequest, number: u64) -> Result<()> {
    let job = team.job();
    let track = Track::new();
    let _open = CancelOnDrop::new(job, &track);
    // SAFETY: complete or cancelled before this function returns; until then the memory for the group is valid.
    if !unsafe { job.post(job.rank_number(), Operation::Barrier(request), None, &[&track]) }? {
        let account = Some(Account::team(team.context()));
        let awaited = || Awaited { account, call: number, ..Awaited::unknown("barrier") };
        job.wait(awaited, || Ok((track.open() == 0).then_some(())))?;
    }
    track.check()
}

/// Makes the team a group of the switch, unless [another barrier is chosen](is_chosen) or no id is free: then no rank
/// of the team has a group. Collective. If there is a group, no rank returns before all have called it. Messages: those
/// of a broadcast and of a barrier by messages, a request of each rank to the switch, and a further request of team
/// rank 0.
///
/// # Errors
/// `PeerLost`, `Mismatch`.
pub(crate) fn join(team: &Team) -> Result<Option<SwitchGroup>> {
    if !is_chosen(team) {
        return Ok(None);
    }
    let mut group = BarrierRequest::NO_GROUP;
    if team.rank() == 0 {
        ask(team, BarrierRequest::Open { group: &raw mut group }, 0).map_err(|e| execute::fail_everywhere(team, e))?;
    }
    let given = coll::broadcast(team, 0, &group.to_le_bytes())?;
    let given = given.as_slice().try_into().map(u64::from_le_bytes);
    let group = given.map_err(|_| Error::new(ErrorKind::Protocol, "barrier").rank(team.job().rank()))?;
    if group == BarrierRequest::NO_GROUP {
        tracing::debug!("team {}: all group ids of the in-switch barrier are in use", team.context());
        return Ok(None);
    }
    ask(team, BarrierRequest::Join { group }, 0).map_err(|e| execute::fail_everywhere(team, e))?;
    execute::barrier(team)?;
    Ok(Some(SwitchGroup { group, barriers: Cell::new(0) }))
}

/// Runs the next barrier of a group: one request to the switch, which answers it when all members have arrived.
///
/// # Errors
/// `PeerLost`; `BadArgument` if the group has ended.
pub(crate) fn run(team: &Team, group: &SwitchGroup) -> Result<()> {
    let number = group.barriers.get() + 1;
    group.barriers.set(number);
    if let Some(bill) = team.job().bill() {
        bill.called(Account::team(team.context()), "barrier");
    }
    team.calls().in_barrier(|_| ask(team, BarrierRequest::Enter { group: group.group, number }, number))
}

/// Releases the id of a group, after the last barrier of this rank. The switch waits until all members have left it.
pub(crate) fn end(job: &Job, group: &SwitchGroup) {
    let request = Operation::Barrier(BarrierRequest::Close { group: group.group });
    // SAFETY: no local memory is involved.
    if let Err(e) = unsafe { job.post(job.rank_number(), request, None, &[]) } {
        tracing::debug!("the group id of an in-switch barrier was not released: {e}");
    }
}
