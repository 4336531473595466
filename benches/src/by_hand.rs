//! Hand-written loops with which a library is compared: for each layout the specialized loop that a programmer would
//! write, with a compile-time block length if the layout has one. As in a safe function, the ends of both buffers are
//! checked once.
#![allow(unsafe_code)]

use std::ptr::copy_nonoverlapping;

use crate::record::Shape;
use crate::shapes::{STRUCT_BYTES, STRUCT_EXTENT};

/// The layout of a loop, in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoopLayout {
    /// The start of the first block; for the nested vector, the inner stride; for the diagonals, the bytes in a row of
    /// a block.
    pub(crate) first: usize,
    /// The number of blocks.
    pub(crate) count: usize,
    /// The distance between the starts of consecutive blocks.
    pub(crate) stride: usize,
    /// Length of a block; for the nested vector, the inner count.
    pub(crate) len: usize,
    /// Offsets of the blocks, if they have no stride.
    pub(crate) list: Vec<usize>,
    /// End of the last block.
    pub(crate) room: usize,
    /// Total length of all blocks.
    pub(crate) bytes: usize,
}

impl LoopLayout {
    /// A layout of `len` contiguous bytes.
    pub(crate) fn of_one_block(len: usize) -> Self {
        Self { count: 1, len, room: len, bytes: len, ..Self::default() }
    }
}

/// Moves bytes of the first buffer to the second.
pub(crate) type Loop = fn(&LoopLayout, &[u8], &mut [u8]);

/// The loops of a shape: pack, unpack, and copy to the same layout elsewhere.
pub(crate) fn loops(shape: Shape) -> [Loop; 3] {
    macro_rules! all {
        ($walk:expr) => {
            [
                |layout, memory, packed| {
                    assert!(layout.room <= memory.len() && layout.bytes <= packed.len());
                    let (from, to, mut done) = (memory.as_ptr(), packed.as_mut_ptr(), 0);
                    $walk(layout, |at, len| {
                        // SAFETY: the end of the layout was checked against both, so each block is inside.
                        unsafe { copy_nonoverlapping(from.add(at), to.add(done), len) };
                        done += len;
                    });
                },
                |layout, packed, memory| {
                    assert!(layout.room <= memory.len() && layout.bytes <= packed.len());
                    let (from, to, mut done) = (packed.as_ptr(), memory.as_mut_ptr(), 0);
                    $walk(layout, |at, len| {
                        // SAFETY: as above.
                        unsafe { copy_nonoverlapping(from.add(done), to.add(at), len) };
                        done += len;
                    });
                },
                |layout, memory, other| {
                    assert!(layout.room <= memory.len() && layout.room <= other.len());
                    let (from, to) = (memory.as_ptr(), other.as_mut_ptr());
                    // SAFETY: as above.
                    $walk(layout, |at, len| unsafe { copy_nonoverlapping(from.add(at), to.add(at), len) });
                },
            ]
        };
    }
    match shape {
        Shape::Vector4 | Shape::Column => all!(strided::<4, _>),
        Shape::Vector8 | Shape::FaceX => all!(strided::<8, _>),
        Shape::Vector16 => all!(strided::<16, _>),
        Shape::Vector64 => all!(strided::<64, _>),
        Shape::Vector512 => all!(strided::<512, _>),
        Shape::Vector4096 => all!(strided::<4096, _>),
        Shape::Diagonals => all!(diagonals),
        Shape::Indexed8 => all!(listed::<8, _>),
        Shape::Indexed64 => all!(listed::<64, _>),
        Shape::Struct => all!(structures),
        Shape::Nested => all!(nested),
        _ => all!(rows),
    }
}

/// Copies from a layout to the same layout in other memory.
pub(crate) type HandCopy = unsafe fn(&LoopLayout, *const u8, *mut u8, usize);

/// The two usual ways to copy rows of ints: a memcpy of each row, or a nested loop.
///
/// # Safety
/// For each function: both sides are valid for their lengths, do not overlap, and are not accessed by other code
/// meanwhile.
pub(crate) fn copies(shape: Shape) -> [HandCopy; 2] {
    macro_rules! both {
        ($walk:expr) => {
            [
                |layout, from, to, room| {
                    assert!(layout.room <= room);
                    // SAFETY: the end of the layout was checked, so each block is inside; the caller guarantees the
                    // remaining conditions.
                    $walk(layout, |at, len| unsafe { copy_nonoverlapping(from.add(at), to.add(at), len) });
                },
                |layout, from, to, room| {
                    assert!(layout.room <= room);
                    // SAFETY: as above; the ints may have any alignment, like the bytes.
                    $walk(layout, |at, len| unsafe {
                        let (from, to) = (from.add(at).cast::<i32>(), to.add(at).cast::<i32>());
                        (0..len / 4).for_each(|i| to.add(i).write_unaligned(from.add(i).read_unaligned()));
                    });
                },
            ]
        };
    }
    match shape {
        Shape::Diagonals => both!(diagonals),
        _ => both!(rows),
    }
}

// Each function calls `block` with the offset and length of each block of a layout.

#[inline(always)]
fn strided<const LEN: usize, F: FnMut(usize, usize)>(layout: &LoopLayout, mut block: F) {
    let mut at = layout.first;
    for _ in 0..layout.count {
        block(at, LEN);
        at += layout.stride;
    }
}

#[inline(always)]
fn rows(layout: &LoopLayout, mut block: impl FnMut(usize, usize)) {
    (0..layout.count).for_each(|i| block(layout.first + i * layout.stride, layout.len));
}

/// The main block diagonal and the first one above it: each row has two blocks, except the rows of the last block row, which
/// have one.
#[inline(always)]
fn diagonals(layout: &LoopLayout, mut block: impl FnMut(usize, usize)) {
    let (side, mut at) = (layout.first / 4, 0);
    for first in (0..layout.count).step_by(side) {
        let len = if first + side < layout.count { 2 * layout.first } else { layout.first };
        for _ in 0..side {
            block(at, len);
            at += layout.stride;
        }
        at += layout.first;
    }
}

#[inline(always)]
fn listed<const LEN: usize, F: FnMut(usize, usize)>(layout: &LoopLayout, mut block: F) {
    // This program has created the list, and no offset is beyond the end of the memory.
    layout.list.iter().for_each(|at| block(*at, LEN));
}

/// Structures of an int, three doubles and a char.
#[inline(always)]
fn structures(layout: &LoopLayout, mut block: impl FnMut(usize, usize)) {
    for i in 0..layout.count {
        let at = i * STRUCT_EXTENT as usize;
        block(at, 4);
        block(at + 8, STRUCT_BYTES as usize - 4);
    }
}

#[inline(always)]
fn nested(layout: &LoopLayout, mut block: impl FnMut(usize, usize)) {
    for i in 0..layout.count {
        (0..layout.len).for_each(|j| block(i * layout.stride + j * layout.first, 8));
    }
}
