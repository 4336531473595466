//! Layouts against a list of every byte.

use farside_datatype::{Layout, pair_blocks};
use proptest::prelude::*;

/// A layout as it was asked for: a block, and (count, gap after the extent) from the inside out.
#[derive(Clone, Debug)]
struct Spec {
    block: usize,
    dims: Vec<(usize, usize)>,
}

impl Spec {
    fn layout(&self) -> Layout {
        self.dims.iter().fold(Layout::contiguous(self.block), |inner, (count, gap)| {
            Layout::nested(&inner, *count, inner.extent() + gap).unwrap()
        })
    }

    /// The offset of every byte, in packed order.
    fn bytes(&self) -> Vec<usize> {
        self.dims.iter().fold((0..self.block).collect(), |inner: Vec<usize>, (count, gap)| {
            let stride = inner.last().map_or(0, |last| last + 1) + gap;
            (0..*count).flat_map(|i| inner.iter().map(move |offset| i * stride + offset)).collect()
        })
    }
}

fn specs() -> impl Strategy<Value = Spec> {
    // Small gaps, so that full rows, and strides that continue each other, are common.
    (0_usize..5, proptest::collection::vec((0_usize..4, 0_usize..4), 0..5))
        .prop_map(|(block, dims)| Spec { block, dims })
}

/// A layout of just `size` bytes: divisors of it as block and counts.
fn specs_of(size: usize) -> impl Strategy<Value = Spec> {
    proptest::collection::vec((any::<proptest::sample::Index>(), 0_usize..4), 0..4).prop_map(move |choices| {
        let (mut block, mut dims) = (size, Vec::new());
        for (choice, gap) in choices {
            let divisors: Vec<usize> = (1..=block).filter(|d| block % d == 0).collect();
            if divisors.is_empty() {
                break;
            }
            let count = *choice.get(&divisors);
            block /= count;
            dims.push((count, gap));
        }
        Spec { block, dims }
    })
}

fn pairs() -> impl Strategy<Value = (Spec, Spec)> {
    (0_usize..150).prop_flat_map(|size| (specs_of(size), specs_of(size)))
}

fn expand(blocks: impl Iterator<Item = (usize, usize)>) -> Vec<usize> {
    blocks.flat_map(|(offset, len)| offset..offset + len).collect()
}

proptest! {
    #[test]
    fn blocks_give_every_byte(spec in specs()) {
        let (layout, bytes) = (spec.layout(), spec.bytes());
        prop_assert_eq!(layout.size(), bytes.len());
        prop_assert_eq!(layout.extent(), bytes.last().map_or(0, |last| last + 1));
        prop_assert_eq!(layout.blocks(0).count(), layout.block_count());
        prop_assert_eq!(layout.blocks(0).len(), layout.block_count());
        prop_assert!(layout.blocks(0).all(|(_, len)| len > 0));
        prop_assert_eq!(expand(layout.blocks(0)), bytes);
    }

    #[test]
    fn blocks_from_any_byte_give_the_rest(spec in specs()) {
        let (layout, bytes) = (spec.layout(), spec.bytes());
        for from in 0..=bytes.len() {
            prop_assert_eq!(layout.blocks(from).len(), layout.blocks(from).count());
            prop_assert!(layout.blocks(from).all(|(_, len)| len > 0));
            prop_assert_eq!(expand(layout.blocks(from)), &bytes[from..]);
        }
        prop_assert_eq!(layout.blocks(bytes.len() + 1).next(), None);
    }

    #[test]
    fn equal_exactly_if_same_bytes((a, b) in prop_oneof![(specs(), specs()), pairs()]) {
        prop_assert_eq!(a.layout() == b.layout(), a.bytes() == b.bytes());
    }

    #[test]
    fn split_dimensions_normalize_to_the_same(
        block in 1_usize..6,
        split_block in 1_usize..6,
        dims in proptest::collection::vec((1_usize..4, 1_usize..4, 0_usize..4), 0..4),
    ) {
        // Each block and each dimension once in one step and once in two.
        let mut whole = Layout::contiguous(block * split_block);
        let mut split = Layout::strided(split_block, block, block).unwrap();
        prop_assert_eq!(whole, split);
        for (outer, inner, gap) in dims {
            let stride = whole.extent() + gap;
            whole = Layout::nested(&whole, outer * inner, stride).unwrap();
            split = Layout::nested(&Layout::nested(&split, inner, stride).unwrap(), outer, inner * stride).unwrap();
            prop_assert_eq!(whole, split);
        }
    }

    #[test]
    fn blocks_in_normal_form_first_two_apart(spec in specs()) {
        // A gap follows the first block, or it is the only one.
        let layout = spec.layout();
        let mut blocks = layout.blocks(0);
        if let (Some((_, len)), Some((second, _))) = (blocks.next(), blocks.next()) {
            prop_assert!(second > len);
        }
        prop_assert_eq!(layout.is_contiguous(), layout.block_count() <= 1);
    }

    #[test]
    fn pair_blocks_give_both_sides((a, b) in pairs()) {
        let (left, right) = (a.layout(), b.layout());
        let pieces: Vec<_> = pair_blocks(&left, &right).unwrap().collect();
        prop_assert!(pieces.iter().all(|(_, _, len)| *len > 0));
        prop_assert!(pieces.len() <= (left.block_count() + right.block_count()).saturating_sub(1));
        prop_assert_eq!(expand(pieces.iter().map(|(offset, _, len)| (*offset, *len))), a.bytes());
        prop_assert_eq!(expand(pieces.iter().map(|(_, offset, len)| (*offset, *len))), b.bytes());
    }

    #[test]
    fn any_arguments_no_panic(
        block in any::<usize>(),
        dims in proptest::collection::vec((any::<usize>(), any::<usize>()), 0..8),
        from in any::<usize>(),
    ) {
        let mut layout = Layout::contiguous(block);
        for (count, stride) in dims {
            layout = Layout::nested(&layout, count >> (stride % 64), stride).unwrap_or(layout);
        }
        for (offset, len) in layout.blocks(from).take(10) {
            prop_assert!(offset < layout.extent() && len <= layout.extent() - offset);
        }
    }
}
