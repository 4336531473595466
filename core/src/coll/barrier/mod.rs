//! Barriers.

mod dissemination;

use super::operation::Algorithm;

/// All of them.
pub const ALGORITHMS: &[&Algorithm] = &[&dissemination::ALGORITHM];
