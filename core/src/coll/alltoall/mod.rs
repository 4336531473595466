//! Exchanges of all with all: every rank gives every rank a block of its own.

use super::operation::Algorithm;

/// All of them.
pub const ALGORITHMS: &[&Algorithm] = &[];
