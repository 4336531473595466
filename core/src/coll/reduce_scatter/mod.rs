//! Reductions of which every rank gets a block.

use super::operation::Algorithm;

/// All of them.
pub const ALGORITHMS: &[&Algorithm] = &[];
