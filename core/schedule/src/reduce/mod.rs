//! Reductions to one rank.
//!
//! m elements, P = q·2^n ranks with q odd, P' the power of two at or below P. Rounds are counted for ranks that send
//! and receive one message at a time, elements on the longest chain.
//!
//! | algorithm | rounds | elements | order |
//! |---|---|---|---|
//! | flat | P - 1 | (P - 1)m | ranks |
//! | binomial | ⌈log2 P⌉, one more if the root is not 0 | the same, m each | ranks |
//! | binomial-rotated | ⌈log2 P⌉ | ⌈log2 P⌉m | any |
//! | chain(k segments), d ranks on the longer side of the root | d + k - 1 | (d + k - 1)m/k | ranks |
//! | rabenseifner | 2 log2 P' + 1, one more if the root was folded | 2m(1.5 - 1/P'), m more | ranks |
//! | elimination-3-2 | at most 2⌈log2 P⌉ | at most 2m(1 + 2^-n / 2 - 1/P') | ranks |
//!
//! If the root has ranks on both sides, it receives from both sides of the chain: up to 2k - 1 + d rounds.
//! If P is a power of two, the eliminating rounds are omitted.

mod binomial;
mod binomial_rotated;
mod chain;
mod direct;
mod elimination_3_2;
pub(super) mod flat;
mod rabenseifner;

use super::operation::Algorithm;

/// All reduce algorithms.
pub(crate) const ALGORITHMS: &[&Algorithm] = &[
    &flat::ALGORITHM,
    &binomial::ALGORITHM,
    &binomial_rotated::ALGORITHM,
    &chain::ALGORITHM,
    &rabenseifner::ALGORITHM,
    &elimination_3_2::ALGORITHM,
    &direct::ALGORITHM,
];
