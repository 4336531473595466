//! Barriers. Algorithms with an arrival and a release phase (`fan_in`, `binomial_spanning_tree::release`) send 2 (P -
//! 1) signals in all; in the others no release is needed, since every rank detects that all have arrived.

mod binomial_spanning_tree;
mod butterfly;
mod central_counter;
mod combining_tree;
pub mod dissemination;
mod mcs_tree;
mod pairwise_exchange;
pub(super) mod switch;
mod tournament;

use super::operation::Algorithm;
use super::schedule::Builder;

/// All barrier algorithms.
pub(crate) const ALGORITHMS: &[&Algorithm] = &[
    &central_counter::ALGORITHM,
    &combining_tree::ALGORITHM,
    &tournament::ALGORITHM,
    &tournament::F_WAY,
    &mcs_tree::ALGORITHM,
    &binomial_spanning_tree::ALGORITHM,
    &butterfly::ALGORITHM,
    &pairwise_exchange::ALGORITHM,
    &pairwise_exchange::N_WISE,
    &dissemination::ALGORITHM,
    &switch::ALGORITHM,
];

/// Arrival at rank 0 in ⌈log_n P⌉ rounds: of n consecutive remaining ranks, the first awaits the others and continues
/// to the next round; the others signal it and drop out.
fn fan_in(s: &mut Builder, n: u32) {
    let (p, me, n) = (u64::from(s.size()), u64::from(s.rank()), u64::from(n));
    let mut stride = 1;
    while stride < p {
        let first = me - me % (stride * n);
        if me != first {
            return s.signal(first as u32, 0);
        }
        for member in (1..n).map(|i| me + i * stride).take_while(|m| *m < p) {
            s.wait(member as u32, 0);
        }
        stride *= n;
    }
}
