//! Reductions to one rank.

use super::operation::Algorithm;

/// All of them.
pub const ALGORITHMS: &[&Algorithm] = &[];
