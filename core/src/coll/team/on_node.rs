//! Barrier by signal cells in two levels: the ranks of each node report to its lowest rank over a tree, these leaders
//! disseminate, and release the ranks of their nodes. The signals within a node use a separate array, whose memory the
//! ranks of the node map if the device can.

use super::Team;
use crate::bill::Account;
use crate::coll::barrier_dissemination::{self, CELL};
use crate::coll::tree::Place;
use crate::coll::{self, two_level};
use crate::error::{Error, ErrorKind, Result};
use crate::signal::{Pace, SignalArray, marked};

/// The signals of a rank of a team within its node, and the leaders of all nodes.
pub(super) struct NodeSignals {
    signals: SignalArray,
    /// Team rank, on the same node, of this rank's parent in the tree.
    parent: Option<usize>,
    children: Vec<usize>,
    /// Team ranks of the leaders.
    leaders: Vec<usize>,
    /// The number of this rank's node.
    node: usize,
    /// Keeps the context of the node's team allocated.
    _team: Team,
}

/// Makes the signal arrays within the nodes of a team with several nodes; `flat` selects a flat tree within each node.
/// `None` at all ranks if one has no memory for them. Collective; no rank returns before all have called it. Messages:
/// those of a [split](Team::split), of two allgathers within the node, and of an allreduce.
///
/// # Errors
/// `PeerLost`; `Limit` at all ranks if team rank 0 has no context left.
pub(super) fn make(team: &Team, flat: bool) -> Result<Option<NodeSignals>> {
    const OP: &str = "make the signal arrays of a node";
    let nodes = &team.membership().nodes;
    let node = nodes[team.rank()];
    let on_node = team.split(Some(node), 0)?;
    let on_node = on_node.ok_or_else(|| Error::new(ErrorKind::Protocol, OP).rank(team.job().rank()))?;
    let signals = SignalArray::for_account(&on_node, 0, Account::team(team.context()));
    let failed = [u8::from(signals.is_err())];
    let failed = coll::allreduce(team, &failed, &mut |some, other| some[0] |= other[0])? != [0];
    let signals = match signals {
        Err(e) if e.kind() == ErrorKind::PeerLost => return Err(e),
        Err(e) => {
            tracing::debug!("team {} falls back to messages, without signal arrays: {e}", team.context());
            return Ok(None);
        }
        Ok(_) if failed => return Ok(None),
        Ok(signals) => signals,
    };
    let (me, size) = (on_node.rank() as u32, on_node.size() as u32);
    let place = if flat { Place::flat(me, size) } else { Place::k_nomial(2, me, size) };
    let leaders = two_level::lowest_of_nodes(nodes).map(|rank| rank as usize).collect();
    let children = place.children.iter().map(|child| child.start as usize).collect();
    let parent = place.parent.map(|parent| parent as usize);
    Ok(Some(NodeSignals { signals, parent, children, leaders, node: node as usize, _team: on_node }))
}

/// Runs barrier `number` (1, 2, ...) of a team over its signal array and those of its nodes. Returns the bitwise OR of all
/// ranks' marks.
///
/// # Errors
/// `PeerLost`.
pub(super) fn run(signals: &SignalArray, on_node: &NodeSignals, number: u64, mut mark: u16) -> Result<u16> {
    const NAME: &str = "barrier";
    let NodeSignals { signals: within, parent, children, leaders, node, .. } = on_node;
    let wait = |from: usize| -> Result<u16> {
        within.wait(NAME, from, CELL, number, Pace::EXCHANGE)?;
        Ok(within.mark(from, CELL, number))
    };
    // The smallest subtrees complete first.
    for child in children.iter().rev() {
        mark |= wait(*child)?;
    }
    mark = match parent {
        Some(parent) => {
            within.set(*parent, CELL, marked(number, mark))?;
            wait(*parent)?
        }
        None => {
            let leader = |number: usize| leaders[number];
            let place = (leaders.len(), *node, leader);
            barrier_dissemination::disseminate(place, signals, CELL, number, mark, NAME, Pace::EXCHANGE)?
        }
    };
    children.iter().try_for_each(|child| within.set(*child, CELL, marked(number, mark)))?;
    Ok(mark)
}
