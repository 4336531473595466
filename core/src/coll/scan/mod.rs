//! Prefix reductions, with the contribution of the rank itself (scan) and without (exscan).

use super::operation::Algorithm;

/// All of them.
pub const ALGORITHMS: &[&Algorithm] = &[];
