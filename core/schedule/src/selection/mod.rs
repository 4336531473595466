//! Selection of the algorithm of a call.
//!
//! The first of these that can make the call is chosen: a rule of the user, a measured rule, the algorithm with the
//! minimum time according to a fitted model, the first row of a table of conditions that holds. Blocking calls confirm
//! the proposals of a model and of the table by measurement (`trial`). The choice must be the same at all ranks of a
//! call, so it depends only on facts that are the same at all of them.

mod choice;
mod class;
mod ranking;
mod rows;
mod rules;

use std::fmt;

pub use choice::Choice;
pub use class::Class;
pub use ranking::{candidates, ranking};
pub use rows::{ROWS, Row, Value};
pub use rules::{Rule, Rules};

use super::operation::{Call, Operation};
use super::schedule::predict::PLogP;

/// Placement of a team's ranks; each variant is a special case of the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placement {
    /// Any nodes.
    Anywhere,
    /// All on one node.
    OneNode,
    /// All on one node, where ranks of the job share processors.
    OversubscribedNode,
}

impl Placement {
    /// All placements.
    pub const ALL: [Self; 3] = [Self::Anywhere, Self::OneNode, Self::OversubscribedNode];

    /// The name, as in rules.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Anywhere => "anywhere",
            Self::OneNode => "one-node",
            Self::OversubscribedNode => "oversubscribed",
        }
    }

    /// The placement of ranks, by whether they are all on one node, and whether their nodes are oversubscribed.
    #[inline]
    #[must_use]
    pub fn of(one_node: bool, oversubscribed: bool) -> Self {
        match (one_node, oversubscribed) {
            (true, true) => Self::OversubscribedNode,
            (true, false) => Self::OneNode,
            (false, _) => Self::Anywhere,
        }
    }
}

/// Facts in addition to the call on which the choice depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Bytes of the vector; in an allgather or reduce_scatter, of all blocks together; in other operations with blocks
    /// by rank, of a block on average. 0 if not every rank knows the sizes.
    pub bytes: u64,
    /// Whether the reduction is commutative; `true` without a reduction.
    pub commutative: bool,
    /// Placement of the team's ranks.
    pub placement: Placement,
}

impl Facts {
    /// Facts of a call whose elements have `element` bytes.
    #[inline]
    #[must_use]
    pub fn new(call: &Call<'_>, element: u64, commutative: bool, placement: Placement) -> Self {
        use Operation as O;
        let p = u64::from(call.size);
        let all = match call.operation {
            O::Barrier | O::NeighborAllgather | O::NeighborAlltoall => 0,
            _ if call.operation.is_of_a_vector() => call.elements,
            _ if !call.sizes_known => 0,
            _ if call.sizes.is_empty() => call.elements.saturating_mul(p),
            // The sizes differ between ranks, so they are not used.
            O::Alltoall => 0,
            _ => call.sizes.iter().copied().fold(0, u64::saturating_add),
        };
        let by_block = matches!(call.operation, O::Scatter | O::Gather | O::Alltoall);
        let elements = if by_block { all / p } else { all };
        Self { bytes: elements.saturating_mul(element), commutative, placement }
    }
}

/// The first row that holds for a call, and its choice.
///
/// # Panics
/// If no row holds, which cannot happen: the last row of each operation is for every call.
#[must_use]
pub fn row(call: &Call<'_>, facts: &Facts) -> (&'static Row, Choice) {
    let rows = ROWS.iter().filter(|r| r.operation == call.operation && r.holds(call.size, facts));
    let mut choices = rows.filter_map(|r| Some((r, r.choice(facts)?)));
    choices.find(|(_, c)| c.applies(call, facts)).expect("the last row of an operation holds for every call")
}

/// The origin of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The setting `FARSIDE_COLL`.
    User,
    /// A measurement by the calls of this job, or of an earlier one on this machine.
    Measurement,
    /// The minimum predicted time according to a model that was fitted to this network.
    Model,
    /// The table.
    Table,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Measurement => "measurement",
            Self::Model => "model",
            Self::Table => "table",
        })
    }
}

/// The data for the selection, the same at all ranks of a job.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Rules of the user.
    pub user: Rules,
    /// Rules that earlier jobs have measured.
    pub measured: Rules,
    /// The fitted model of messages between the ranks, in nanoseconds.
    pub model: Option<PLogP>,
}

impl Selection {
    /// The choice for a call, and its origin. Measurements and the model are used only for blocks of one size. On one
    /// node the model does not choose: ranks that share memory need not use messages, so there it only proposes
    /// candidates that calls measure.
    #[must_use]
    pub fn select(&self, call: &Call<'_>, facts: &Facts) -> (Choice, Origin) {
        if let Some(choice) = self.user.find(call, facts) {
            return (choice.clone(), Origin::User);
        }
        let of_table = row(call, facts).1;
        // Ranks may know different sizes.
        if !call.sizes.is_empty() || !call.sizes_known {
            return (of_table, Origin::Table);
        }
        if let Some(choice) = self.measured.find(call, facts) {
            return (choice.clone(), Origin::Measurement);
        }
        let model = self.model.as_ref().filter(|_| facts.placement == Placement::Anywhere);
        let ranked = model.map_or_else(Vec::new, |model| ranking(call, facts, model));
        // The model does not choose among only a few algorithms if those that the table prefers have too many steps to
        // be predicted.
        let is_whole = ranked.iter().any(|(choice, _)| choice.algorithm.name == of_table.algorithm.name);
        match ranked.into_iter().next().filter(|_| is_whole) {
            Some((choice, _)) => (choice, Origin::Model),
            None => (of_table, Origin::Table),
        }
    }
}
