//! Reductions whose result every rank gets, with the same bits.

use super::operation::Algorithm;

/// All of them.
pub const ALGORITHMS: &[&Algorithm] = &[];
