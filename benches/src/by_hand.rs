//! What a library is compared with: for each layout the loop that one would write for it alone, with the length of a
//! block known to the compiler where it is known to who writes it. As in a safe function, the ends of both buffers are
//! checked once.
#![allow(unsafe_code)]

use std::ptr::copy_nonoverlapping;

use crate::record::Shape;
use crate::shapes::{STRUCT_BYTES, STRUCT_EXTENT};

/// What a loop knows of its layout, in bytes.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Where the first block starts; of the nested vector, the inner stride.
    pub first: usize,
    /// Blocks.
    pub count: usize,
    /// From start to start.
    pub stride: usize,
    /// Of a block; of the nested vector, the inner count.
    pub len: usize,
    /// Where the blocks are, if at no stride, and where the last of them ends.
    pub list: Vec<usize>,
    /// See `list`.
    pub room: usize,
}

/// Packs the first buffer to the second.
pub type Loop = fn(&Facts, &[u8], &mut [u8]);

/// The loops of a shape: pack, and unpack.
#[must_use]
pub fn loops(shape: Shape) -> (Loop, Loop) {
    macro_rules! both {
        ($name:ident $(, $len:literal)?) => {
            (
                |facts, memory, packed| $name::<true $(, $len)?>(facts, memory.as_ptr().cast_mut(), memory.len(), packed.as_mut_ptr(), packed.len()),
                |facts, packed, memory| $name::<false $(, $len)?>(facts, memory.as_mut_ptr(), memory.len(), packed.as_ptr().cast_mut(), packed.len()),
            )
        };
    }
    match shape {
        Shape::Vector4 | Shape::Column => both!(strided, 4),
        Shape::Vector8 | Shape::FaceX => both!(strided, 8),
        Shape::Vector16 => both!(strided, 16),
        Shape::Vector64 => both!(strided, 64),
        Shape::Vector512 => both!(strided, 512),
        Shape::Vector4096 => both!(strided, 4096),
        Shape::None | Shape::Columns64 | Shape::Columns128 | Shape::FaceY | Shape::FaceZ => both!(rows),
        Shape::Indexed8 => both!(listed, 8),
        Shape::Indexed64 => both!(listed, 64),
        Shape::Struct => both!(structures),
        Shape::Nested => both!(nested),
    }
}

/// The bytes from memory to packed form, or back.
///
/// # Safety
/// `len` bytes at both, apart.
#[inline(always)]
unsafe fn go<const PACK: bool>(memory: *mut u8, packed: *mut u8, len: usize) {
    let (from, to) = if PACK { (memory, packed) } else { (packed, memory) };
    // SAFETY: the caller's promise.
    unsafe { copy_nonoverlapping(from, to, len) }
}

#[inline(never)]
fn strided<const PACK: bool, const LEN: usize>(
    facts: &Facts,
    memory: *mut u8,
    room: usize,
    packed: *mut u8,
    packed_len: usize,
) {
    assert!(facts.first + (facts.count - 1) * facts.stride + LEN <= room && facts.count * LEN <= packed_len);
    let mut at = memory.wrapping_add(facts.first);
    let mut packed = packed;
    for _ in 0..facts.count {
        // SAFETY: the last block ends inside, as was checked.
        unsafe { go::<PACK>(at, packed, LEN) };
        (at, packed) = (at.wrapping_add(facts.stride), packed.wrapping_add(LEN));
    }
}

#[inline(never)]
fn rows<const PACK: bool>(facts: &Facts, memory: *mut u8, room: usize, packed: *mut u8, packed_len: usize) {
    let len = facts.len;
    assert!(facts.first + (facts.count - 1) * facts.stride + len <= room && facts.count * len <= packed_len);
    for i in 0..facts.count {
        // SAFETY: the last block ends inside, as was checked.
        unsafe { go::<PACK>(memory.add(facts.first + i * facts.stride), packed.add(i * len), len) };
    }
}

#[inline(never)]
fn listed<const PACK: bool, const LEN: usize>(
    facts: &Facts,
    memory: *mut u8,
    room: usize,
    packed: *mut u8,
    packed_len: usize,
) {
    // The list is this program's own.
    assert!(facts.room <= room && facts.list.len() * LEN <= packed_len);
    let mut packed = packed;
    for at in &facts.list {
        // SAFETY: the block lies inside, as was checked.
        unsafe { go::<PACK>(memory.add(*at), packed, LEN) };
        packed = packed.wrapping_add(LEN);
    }
}

#[inline(never)]
fn structures<const PACK: bool>(facts: &Facts, memory: *mut u8, room: usize, packed: *mut u8, packed_len: usize) {
    let (size, extent) = (STRUCT_BYTES as usize, STRUCT_EXTENT as usize);
    assert!(facts.count * extent <= room + 7 && facts.count * size <= packed_len);
    for i in 0..facts.count {
        // SAFETY: int, three doubles and char of a structure that lies inside, as was checked.
        unsafe {
            let (one, packed) = (memory.add(i * extent), packed.add(i * size));
            go::<PACK>(one, packed, 4);
            go::<PACK>(one.add(8), packed.add(4), 25);
        }
    }
}

#[inline(never)]
fn nested<const PACK: bool>(facts: &Facts, memory: *mut u8, room: usize, packed: *mut u8, packed_len: usize) {
    let (outer, inner) = (facts.count, facts.len);
    let end = (outer - 1) * facts.stride + (inner - 1) * facts.first + 8;
    assert!(end <= room && outer * inner * 8 <= packed_len);
    let mut packed = packed;
    for i in 0..outer {
        for j in 0..inner {
            // SAFETY: the last double ends inside, as was checked.
            unsafe { go::<PACK>(memory.add(i * facts.stride + j * facts.first), packed, 8) };
            packed = packed.wrapping_add(8);
        }
    }
}
