//! Butterfly-like reductions for every number of ranks, after Rabenseifner and Träff, "More efficient reduction
//! algorithms for non-power-of-two number of processors in message-passing parallel systems" (EuroPVM/MPI 2004, LNCS
//! 3241, 36-46).
//!
//! A [`Plan`] determines which ranks communicate in which round. A [`Reduction`] makes the steps of a rank: in the
//! reduction phase the ranks of a round either divide their piece of the vector among themselves (R) or exchange it in
//! full (A); the routing phase that follows runs the rounds backwards and makes the operation an allreduce (G), a
//! reduce or a reduce_scatter. Every element is reduced by the same bracketing, in the order of the ranks, and every
//! rank gets the same bits.

mod cost;
mod plan;
mod reduction;
mod routing;

pub use cost::{COSTS, Costs, factorized, prime_factors};
pub use plan::{Factor, Meeting, Merge, Place, Plan, Round};
pub use reduction::Reduction;

use super::operation::{Call, Parameter};
use super::schedule::Schedule;

/// The parameter of all algorithms that halve: the paper's b.
pub(super) const THRESHOLD: Parameter = Parameter {
    name: "threshold",
    default: 512,
    least: 1,
    most: u32::MAX,
    help: "elements of a piece above which it is cut among the ranks that meet",
};

/// The butterfly for the factors two of `p`, then `odd` for the odd factor.
#[must_use]
pub fn odd_factor(p: u32, odd: Factor) -> Plan {
    let mut factors = vec![Factor::Butterfly; p.trailing_zeros() as usize];
    if !p.is_power_of_two() {
        factors.push(odd);
    }
    Plan::new(p, &factors)
}

/// The schedule of a call by a plan in which pieces above the [`THRESHOLD`] are divided.
pub(super) fn halved(call: &Call<'_>, plan: Plan) -> Schedule {
    Reduction::schedule(call, &plan.halved_above(call.parameters[0].into(), call.elements))
}
