//! Reductions in which every rank gets one block of the result; block sizes may differ and be zero.
//!
//! m elements in all, P ranks, P' the power of two at or below P. Rounds are counted for ranks that send and receive
//! one message at a time, elements on the longest chain, for blocks of equal size.
//!
//! | algorithm | rounds | elements | order |
//! |---|---|---|---|
//! | butterfly | log2 P; else at most ⌈log2 P⌉ + 2 | m(1 - 1/P); else at most 2m | ranks |
//! | recursive-halving | log2 P' + 2 | m(2 - 1/P') and a block | any |
//! | bruck | ⌈log2 P⌉ | m(1 - 1/P) | any |
//! | pairwise | P - 1 | m(1 - 1/P) | ranks |
//!
//! If P is a power of two, the two folding rounds are omitted.

pub mod bruck;
mod butterfly;
mod direct;
pub(super) mod pairwise;
mod recursive_halving;

use super::operation::Algorithm;

/// All reduce_scatter algorithms.
pub(crate) const ALGORITHMS: &[&Algorithm] = &[
    &butterfly::ALGORITHM,
    &recursive_halving::ALGORITHM,
    &bruck::ALGORITHM,
    &pairwise::ALGORITHM,
    &direct::ALGORITHM,
];
