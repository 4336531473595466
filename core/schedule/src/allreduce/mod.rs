//! Reductions whose result every rank gets, with the same bits.
//!
//! m elements, P = q·2^n ranks with q odd, P' the power of two at or below P, threshold b. Rounds are counted for ranks
//! that send and receive one message at a time, elements on the longest chain.
//!
//! | algorithm | P | rounds, short vector | rounds, long vector | elements, short | elements, long | order |
//! |---|---|---|---|---|---|---|
//! | linear | any | 1, of P - 1 messages each | | (P - 1)m | | ranks |
//! | direct | any, on one node | 2, of P - 1 messages without data each | | 2m(1 - 1/P) | | ranks |
//! | butterfly | 2^n | n | 2n | nm | 2m(1 - 1/P) | ranks |
//! | recursive-doubling | any | log2 P' + 2 | | (log2 P' + 2)m | | ranks |
//! | rabenseifner | any | log2 P' + 2 | 2 log2 P' + 2 | (log2 P' + 2)m | 2m(2 - 1/P') | ranks |
//! | elimination-2-1 | any | log2 P' + 2 | 2 log2 P' + 2 | (log2 P' + 2)m | 2m(1 + 2^-n - 1/P') | ranks |
//! | elimination-3-2-overlapping, -non-overlapping | any | ⌈log2 P⌉ + 1 | 2⌈log2 P⌉ | (⌈log2 P⌉ + 1)m | 2m(1 + 2^-n / 2 - 1/P') | ranks |
//! | small-ring | factors 2, 3, 5, 7 | n + Σ ⌈log2 r⌉ | 2n + Σ (r - 1 + ⌈log2 r⌉) | (n + Σ (r - 1))m | 2m(1 - 1/P) | ranks |
//! | factorized | any | the one above with the minimum cost | | | | ranks |
//! | ring | any | | 2(P - 1) | | 2m(1 - 1/P) | any, by part |
//!
//! If P is a power of two, the eliminating rounds are omitted. All algorithms but the ring, and the
//! direct one in place, reduce every element by the same bracketing.

mod butterfly;
mod direct;
mod elimination_2_1;
mod elimination_3_2_non_overlapping;
mod elimination_3_2_overlapping;
mod factorized;
pub(super) mod linear;
mod rabenseifner;
pub mod recursive_doubling;
mod ring;
mod small_ring;

use super::operation::Algorithm;

/// All allreduce algorithms.
pub(crate) const ALGORITHMS: &[&Algorithm] = &[
    &linear::ALGORITHM,
    &butterfly::ALGORITHM,
    &recursive_doubling::ALGORITHM,
    &rabenseifner::ALGORITHM,
    &elimination_2_1::ALGORITHM,
    &elimination_3_2_overlapping::ALGORITHM,
    &elimination_3_2_non_overlapping::ALGORITHM,
    &small_ring::ALGORITHM,
    &factorized::ALGORITHM,
    &ring::ALGORITHM,
    &direct::ALGORITHM,
];
