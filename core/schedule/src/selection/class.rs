//! Classes of calls; all calls of a class have the same choice.

use std::ops::RangeInclusive;

use super::{Facts, Placement};
use crate::operation::{Call, Operation};
use crate::two_level;

/// The calls of an operation with one number of ranks, one placement, one number of nodes, and a size between two
/// powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    /// The operation.
    pub operation: Operation,
    /// The number of ranks.
    pub ranks: u32,
    /// The placement of the ranks.
    pub placement: Placement,
    /// The number of nodes and the maximum number of ranks per node, unless all ranks are on one node. A rank whose
    /// node is not known has its own.
    pub nodes: Option<(u32, u32)>,
    /// Number of binary digits of the bytes.
    digits: u32,
}

impl Class {
    /// The class of a call.
    #[inline]
    #[must_use]
    pub fn of(call: &Call<'_>, facts: &Facts) -> Self {
        let digits = u64::BITS - facts.bytes.leading_zeros();
        let nodes = nodes(call, facts);
        Self { operation: call.operation, ranks: call.size, placement: facts.placement, nodes, digits }
    }

    /// The sizes, counted as in [`Facts::bytes`].
    #[must_use]
    pub fn bytes(&self) -> RangeInclusive<u64> {
        let most = u64::MAX.checked_shr(u64::BITS - self.digits).unwrap_or(0);
        most.div_ceil(2)..=most
    }
}

/// The number of nodes and the maximum number of ranks per node, unless all ranks are on one node.
pub(super) fn nodes(call: &Call<'_>, facts: &Facts) -> Option<(u32, u32)> {
    (facts.placement == Placement::Anywhere).then(|| two_level::counts(call.nodes, call.size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_in_its_class_and_classes_do_not_overlap() {
        let call = Call::new(Operation::Allreduce, 0, 4);
        let class = |bytes| Class::of(&call, &Facts { bytes, commutative: true, placement: Placement::OneNode });
        assert_eq!(class(0).bytes(), 0..=0);
        assert_eq!(class(8).bytes(), 8..=15);
        assert_eq!(class(u64::MAX).bytes(), 1 << 63..=u64::MAX);
        for bytes in (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]) {
            let range = class(bytes).bytes();
            assert!(range.contains(&bytes), "{bytes}");
            assert_eq!(class(*range.start()), class(*range.end()));
            assert_eq!(class(*range.end()) == class(bytes + 1), range.contains(&(bytes + 1)));
        }
    }
}
