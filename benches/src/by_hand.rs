//! Loops with which a library is compared: for each layout the loop that a programmer would write only for it, with a
//! block length that the compiler knows if the programmer knows it. As in a safe function, the ends of both buffers are
//! checked once.
#![allow(unsafe_code)]

use std::ptr::copy_nonoverlapping;

use crate::record::Shape;
use crate::shapes::{STRUCT_BYTES, STRUCT_EXTENT};

/// The layout that a loop is for, in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The start of the first block; for the nested vector, the inner stride; for the diagonals, the bytes of a block's
    /// row.
    pub(crate) first: usize,
    /// The number of blocks.
    pub(crate) count: usize,
    /// The distance from the start of one block to that of the next.
    pub(crate) stride: usize,
    /// Length of a block; of the nested vector, the inner count.
    pub(crate) len: usize,
    /// Offsets of the blocks, if they have no stride.
    pub(crate) list: Vec<usize>,
    /// End of the last block.
    pub(crate) room: usize,
    /// Length of all blocks together.
    pub(crate) bytes: usize,
}

impl Facts {
    /// A layout of `len` contiguous bytes.
    pub(crate) fn of_one_block(len: usize) -> Self {
        Self { count: 1, len, room: len, bytes: len, ..Self::default() }
    }
}

/// Moves bytes of the first buffer to the second.
pub(crate) type Loop = fn(&Facts, &[u8], &mut [u8]);

/// The loops of a shape: pack, unpack, and copy to the same layout elsewhere.
pub(crate) fn loops(shape: Shape) -> [Loop; 3] {
    macro_rules! all {
        ($walk:expr) => {
            [
                |facts, memory, packed| {
                    assert!(facts.room <= memory.len() && facts.bytes <= packed.len());
                    let (from, to, mut done) = (memory.as_ptr(), packed.as_mut_ptr(), 0);
                    $walk(facts, |at, len| {
                        // SAFETY: the end of the layout was checked against both, so each block is inside.
                        unsafe { copy_nonoverlapping(from.add(at), to.add(done), len) };
                        done += len;
                    });
                },
                |facts, packed, memory| {
                    assert!(facts.room <= memory.len() && facts.bytes <= packed.len());
                    let (from, to, mut done) = (packed.as_ptr(), memory.as_mut_ptr(), 0);
                    $walk(facts, |at, len| {
                        // SAFETY: as above.
                        unsafe { copy_nonoverlapping(from.add(done), to.add(at), len) };
                        done += len;
                    });
                },
                |facts, memory, other| {
                    assert!(facts.room <= memory.len() && facts.room <= other.len());
                    let (from, to) = (memory.as_ptr(), other.as_mut_ptr());
                    // SAFETY: as above.
                    $walk(facts, |at, len| unsafe { copy_nonoverlapping(from.add(at), to.add(at), len) });
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

/// Copies from a layout to the same one in other memory.
pub(crate) type HandCopy = unsafe fn(&Facts, *const u8, *mut u8, usize);

/// The two usual ways to copy rows of ints: a memcpy of each row, or a nested loop.
///
/// # Safety
/// For each function: both sides are valid for their lengths, do not overlap, and are not accessed by other code
/// meanwhile.
pub(crate) fn copies(shape: Shape) -> [HandCopy; 2] {
    macro_rules! both {
        ($walk:expr) => {
            [
                |facts, from, to, room| {
                    assert!(facts.room <= room);
                    // SAFETY: the end of the layout was checked, so each block is inside; the caller guarantees the
                    // rest.
                    $walk(facts, |at, len| unsafe { copy_nonoverlapping(from.add(at), to.add(at), len) });
                },
                |facts, from, to, room| {
                    assert!(facts.room <= room);
                    // SAFETY: as above; the ints may have any alignment, as the bytes have.
                    $walk(facts, |at, len| unsafe {
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
fn strided<const LEN: usize, F: FnMut(usize, usize)>(facts: &Facts, mut block: F) {
    let mut at = facts.first;
    for _ in 0..facts.count {
        block(at, LEN);
        at += facts.stride;
    }
}

#[inline(always)]
fn rows(facts: &Facts, mut block: impl FnMut(usize, usize)) {
    (0..facts.count).for_each(|i| block(facts.first + i * facts.stride, facts.len));
}

/// The two leading block diagonals: each row has two blocks, except in the last block, which has one.
#[inline(always)]
fn diagonals(facts: &Facts, mut block: impl FnMut(usize, usize)) {
    let (side, mut at) = (facts.first / 4, 0);
    for first in (0..facts.count).step_by(side) {
        let len = if first + side < facts.count { 2 * facts.first } else { facts.first };
        for _ in 0..side {
            block(at, len);
            at += facts.stride;
        }
        at += facts.first;
    }
}

#[inline(always)]
fn listed<const LEN: usize, F: FnMut(usize, usize)>(facts: &Facts, mut block: F) {
    // This program made the list, and no offset is beyond the end of the memory.
    facts.list.iter().for_each(|at| block(*at, LEN));
}

/// Structures of an int, three doubles and a char.
#[inline(always)]
fn structures(facts: &Facts, mut block: impl FnMut(usize, usize)) {
    for i in 0..facts.count {
        let at = i * STRUCT_EXTENT as usize;
        block(at, 4);
        block(at + 8, STRUCT_BYTES as usize - 4);
    }
}

#[inline(always)]
fn nested(facts: &Facts, mut block: impl FnMut(usize, usize)) {
    for i in 0..facts.count {
        (0..facts.len).for_each(|j| block(i * facts.stride + j * facts.first, 8));
    }
}
