//! Layouts by hand: normal form, sizes, limits, errors.

use std::collections::HashSet;

use farside_datatype::{Layout, LayoutError, MAX_DIMS, pair_blocks};

fn blocks(layout: &Layout, from: usize) -> Vec<(usize, usize)> {
    layout.blocks(from).collect()
}

/// `depth` strides; each gap differs from the one inside, so that none merge.
fn deep(depth: usize) -> Layout {
    (0..depth).fold(Layout::contiguous(1), |inner, dim| Layout::nested(&inner, 2, inner.extent() + dim + 1).unwrap())
}

#[test]
fn contiguous_one_block() {
    let layout = Layout::contiguous(24);
    assert!(layout.is_contiguous());
    assert_eq!((layout.size(), layout.extent(), layout.block_count()), (24, 24, 1));
    assert_eq!(blocks(&layout, 0), [(0, 24)]);
    assert_eq!(blocks(&layout, 23), [(23, 1)]);
    assert_eq!(blocks(&layout, 24), []);
    assert_eq!(blocks(&layout, usize::MAX), []);
}

#[test]
fn strided_with_gaps_blocks_at_stride() {
    let layout = Layout::strided(3, 8, 20).unwrap();
    assert!(!layout.is_contiguous());
    assert_eq!((layout.size(), layout.extent(), layout.block_count()), (24, 48, 3));
    assert_eq!(blocks(&layout, 0), [(0, 8), (20, 8), (40, 8)]);
    assert_eq!(blocks(&layout, 11), [(23, 5), (40, 8)]);
    assert_eq!(blocks(&layout, 16), [(40, 8)]);
}

#[test]
fn nested_planes_blocks_in_order() {
    let plane = Layout::section_2d(10, 2, 4).unwrap();
    let layout = Layout::nested(&plane, 2, 100).unwrap();
    assert_eq!((layout.size(), layout.extent(), layout.block_count()), (16, 114, 4));
    assert_eq!(blocks(&layout, 0), [(0, 4), (10, 4), (100, 4), (110, 4)]);
    assert_eq!(blocks(&layout, 9), [(101, 3), (110, 4)]);
}

#[test]
fn section_2d_full_rows_contiguous() {
    assert_eq!(Layout::section_2d(64, 5, 64).unwrap(), Layout::contiguous(320));
}

#[test]
fn nested_full_planes_merge() {
    // Rows of 4 in a pitch of 10, 6 rows to a plane, planes back to back: one vector of 12 rows.
    let plane = Layout::section_2d(10, 6, 4).unwrap();
    assert_eq!(Layout::nested(&plane, 2, 60).unwrap(), Layout::strided(12, 4, 10).unwrap());
    assert_ne!(Layout::nested(&plane, 2, 61).unwrap(), Layout::strided(12, 4, 10).unwrap());
}

#[test]
fn nested_count_one_is_inner() {
    let inner = Layout::strided(3, 8, 20).unwrap();
    assert_eq!(Layout::nested(&inner, 1, 0).unwrap(), inner);
    assert_eq!(Layout::strided(1, 8, 3).unwrap(), Layout::contiguous(8));
}

#[test]
fn no_bytes_all_equal() {
    let strided = Layout::strided(3, 8, 20).unwrap();
    let empty = [
        Layout::contiguous(0),
        Layout::strided(0, 8, 20).unwrap(),
        Layout::strided(usize::MAX, 0, usize::MAX).unwrap(),
        Layout::nested(&strided, 0, 0).unwrap(),
        Layout::section_2d(0, 7, 0).unwrap(),
    ];
    assert_eq!(HashSet::from(empty).len(), 1);
    assert_eq!((empty[1].size(), empty[1].extent(), empty[1].block_count()), (0, 0, 0));
    assert_eq!(blocks(&empty[1], 0), []);
    assert_eq!(pair_blocks(&empty[0], &empty[1]).unwrap().next(), None);
}

#[test]
fn nested_touching_blocks_stay_apart() {
    let inner = Layout::strided(2, 4, 8).unwrap();
    let layout = Layout::nested(&inner, 2, 12).unwrap();
    assert_eq!(blocks(&layout, 0), [(0, 4), (8, 4), (12, 4), (20, 4)]);
}

#[test]
fn stride_below_extent_overlap() {
    assert_eq!(Layout::strided(2, 8, 7), Err(LayoutError::Overlap { stride: 7, extent: 8 }));
    assert_eq!(Layout::section_2d(8, 2, 9), Err(LayoutError::Overlap { stride: 8, extent: 9 }));
    let inner = Layout::strided(3, 8, 20).unwrap();
    assert_eq!(Layout::nested(&inner, 2, 47), Err(LayoutError::Overlap { stride: 47, extent: 48 }));
    assert!(Layout::nested(&inner, 2, 48).is_ok());
}

#[test]
fn extent_limit_is_isize_max() {
    const MAX: usize = isize::MAX as usize;
    assert_eq!(Layout::strided(2, 1, MAX - 1).unwrap().extent(), MAX);
    assert_eq!(Layout::strided(2, 1, MAX), Err(LayoutError::Overflow));
    assert_eq!(Layout::strided(2, 1, usize::MAX), Err(LayoutError::Overflow));
    assert_eq!(Layout::strided(usize::MAX, 1, 2), Err(LayoutError::Overflow));
    assert_eq!(Layout::strided(MAX, 1, 1).unwrap(), Layout::contiguous(MAX));
    assert_eq!(Layout::strided(MAX, 1, 2), Err(LayoutError::Overflow));
    let half = Layout::strided(2, 1, MAX / 2).unwrap();
    assert_eq!(Layout::nested(&half, 4, MAX / 2 + 1), Err(LayoutError::Overflow));
}

#[test]
fn far_blocks_seek_without_overflow() {
    const STRIDE: usize = isize::MAX as usize / 2;
    let layout = Layout::strided(3, 1, STRIDE).unwrap();
    assert_eq!(blocks(&layout, 0), [(0, 1), (STRIDE, 1), (2 * STRIDE, 1)]);
    assert_eq!(blocks(&layout, 2), [(2 * STRIDE, 1)]);
}

#[test]
fn depth_limit_is_max_dims() {
    let layout = deep(MAX_DIMS);
    assert_eq!((layout.size(), layout.block_count()), (1 << MAX_DIMS, 1 << MAX_DIMS));
    assert_eq!(Layout::nested(&layout, 2, layout.extent() + 100), Err(LayoutError::TooDeep));
    // One that merges is no deeper.
    let plane = Layout::nested(&deep(MAX_DIMS - 1), 2, 1_000).unwrap();
    assert_eq!(Layout::nested(&plane, 3, 2_000).unwrap().block_count(), 6 << (MAX_DIMS - 1));
}

#[test]
fn pair_blocks_sizes_differ() {
    let (a, b) = (Layout::contiguous(8), Layout::strided(3, 3, 4).unwrap());
    assert_eq!(pair_blocks(&a, &b).unwrap_err(), LayoutError::SizeMismatch { left: 8, right: 9 });
}

#[test]
fn pair_blocks_blocks_of_different_length() {
    let (a, b) = (Layout::strided(2, 6, 10).unwrap(), Layout::strided(3, 4, 5).unwrap());
    let pieces: Vec<_> = pair_blocks(&a, &b).unwrap().collect();
    assert_eq!(pieces, [(0, 0, 4), (4, 5, 2), (10, 7, 2), (12, 10, 4)]);
}

#[test]
fn debug_names_strides() {
    let plane = Layout::section_2d(10, 2, 4).unwrap();
    let layout = Layout::nested(&plane, 3, 100).unwrap();
    assert_eq!(format!("{layout:?}"), "Layout(4 bytes, 2 x stride 10, 3 x stride 100)");
}
