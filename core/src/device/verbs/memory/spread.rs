//! Regions that are longer than a registration may be (`max_mr_size`): they have several overlapping registrations, so
//! that every request is within one of them. Number n begins n strides into the region and is two strides long: any
//! bytes up to a stride are in the registration in whose first stride they begin, or in the last one.

use std::ops::Range;

use super::regions::Import;
use crate::device::verbs::post::cut::{Limits, Part};
use crate::device::verbs::sys::qp::Action;
use crate::memory::segment::PAGE;

/// The stride for registrations of up to `longest` bytes.
fn stride(longest: usize) -> usize {
    (longest / 2 / PAGE * PAGE).max(PAGE)
}

/// The registrations of a region of `len` bytes, at most `longest` bytes each: their offsets in the region, and the
/// stride.
pub(super) fn ranges(len: usize, longest: usize) -> (Vec<Range<usize>>, usize) {
    if len <= longest {
        return (std::iter::once(0..len).collect(), len.max(1));
    }
    let stride = stride(longest);
    let count = len.saturating_sub(2 * stride).div_ceil(stride) + 1;
    ((0..count).map(|n| n * stride..((n + 2) * stride).min(len)).collect(), stride)
}

/// A peer's region with several registrations.
pub(crate) struct Spread {
    stride: usize,
    /// The region by each of its keys.
    imports: Vec<Import>,
}

impl Spread {
    /// `None` if the stride and the number of keys do not belong to a region of `len` bytes.
    pub(super) fn new(import: Import, stride: usize, keys: &[u32], len: usize) -> Option<Self> {
        let imports: Vec<_> = keys.iter().map(|key| Import { key: *key, ..import }).collect();
        let is_covered = imports.len().checked_add(1)?.checked_mul(stride)? >= len;
        (imports.len() > 1 && stride > 0 && is_covered).then_some(Self { stride, imports })
    }

    /// Bytes that the first registration covers.
    pub(super) fn first(&self, len: usize) -> usize {
        len.min(2 * self.stride)
    }

    /// The region by the key for bytes at `offset`.
    pub(super) fn at(&self, offset: usize) -> &Import {
        &self.imports[(offset / self.stride).min(self.imports.len() - 1)]
    }

    /// Limits of requests, each of which needs one key only.
    pub(super) fn limits(&self, limits: Limits) -> Limits {
        Limits { message: limits.message.min(self.stride), ..limits }
    }

    /// The operation with the key for its remote address.
    pub(super) fn keyed(&self, action: Action) -> Action {
        let key = |address: u64| self.at(address.wrapping_sub(self.imports[0].base) as usize).key;
        match action {
            Action::Write { address, .. } => Action::Write { address, key: key(address) },
            Action::Read { address, .. } => Action::Read { address, key: key(address) },
            other => other,
        }
    }

    pub(super) fn key_all(&self, parts: &mut [Part]) {
        parts.iter_mut().for_each(|(action, _)| *action = self.keyed(*action));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn region_that_fits_has_one_registration() {
        for (len, longest) in [(10 * PAGE, 10 * PAGE), (1, usize::MAX), (0, PAGE)] {
            let (ranges, _) = ranges(len, longest);
            assert!(ranges.len() == 1 && ranges[0] == (0..len), "{ranges:?}");
        }
    }

    proptest! {
        /// All bytes up to a stride from any offset are in the registration whose key is used.
        #[test]
        fn every_request_is_within_the_registration_of_its_key(
            pages in 1usize..200, odd in 0usize..PAGE, longest in 2usize..50, at: prop::sample::Index, len: prop::sample::Index,
        ) {
            let (bytes, longest) = (pages * PAGE + odd, longest * PAGE + odd);
            let (ranges, stride) = ranges(bytes, longest);
            prop_assert!(ranges.iter().all(|r| r.len() <= longest && r.end <= bytes && !r.is_empty()), "{ranges:?}");
            let base = Import { peer: 1, base: 1 << 20, len: bytes, covered: bytes, key: 0, number: 1 };
            let keys: Vec<u32> = (0..ranges.len() as u32).collect();
            let Some(spread) = Spread::new(base, stride, &keys, bytes) else {
                prop_assert_eq!(ranges.len(), 1);
                return Ok(());
            };
            prop_assert_eq!(spread.first(bytes), ranges[0].end);
            let at = at.index(bytes);
            let len = 1 + len.index(stride.min(bytes - at));
            let range = &ranges[spread.at(at).key as usize];
            prop_assert!(range.start <= at && at + len <= range.end, "{at} {len} {range:?} {stride}");
            let address = base.base + at as u64;
            let keyed = spread.keyed(Action::Read { address, key: 7 });
            prop_assert_eq!(keyed, Action::Read { address, key: spread.at(at).key });
        }
    }
}
