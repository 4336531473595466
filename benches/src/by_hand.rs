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
    /// Where the first block starts; of the nested vector, the inner stride; of the diagonals, bytes of a row of a block.
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

impl Facts {
    /// Of so many bytes in one piece.
    #[must_use]
    pub fn of_one_block(len: usize) -> Self {
        Self { first: 0, count: 1, stride: 0, len, list: Vec::new(), room: 0 }
    }
}

/// Moves bytes of the first buffer to the second.
pub type Loop = fn(&Facts, &[u8], &mut [u8]);

/// The ways of a loop.
const PACK: u8 = 0;
const UNPACK: u8 = 1;
const COPY: u8 = 2;

/// The loops of a shape: pack, unpack, and copy to the same layout elsewhere.
#[must_use]
pub fn loops(shape: Shape) -> [Loop; 3] {
    macro_rules! all {
        ($name:ident $(, $len:tt)?) => {
            [
                |facts, memory, packed| {
                    let (from, to) = (memory.as_ptr().cast_mut(), packed.as_mut_ptr());
                    $name::<PACK $(, $len)?>(facts, from, memory.len(), to, packed.len())
                },
                |facts, packed, memory| {
                    let (from, to) = (packed.as_ptr().cast_mut(), memory.as_mut_ptr());
                    $name::<UNPACK $(, $len)?>(facts, to, memory.len(), from, packed.len())
                },
                |facts, memory, other| {
                    let (from, to) = (memory.as_ptr().cast_mut(), other.as_mut_ptr());
                    $name::<COPY $(, $len)?>(facts, from, memory.len(), to, other.len())
                },
            ]
        };
    }
    match shape {
        Shape::Vector4 | Shape::Column => all!(strided, 4),
        Shape::Vector8 | Shape::FaceX => all!(strided, 8),
        Shape::Vector16 => all!(strided, 16),
        Shape::Vector64 => all!(strided, 64),
        Shape::Vector512 => all!(strided, 512),
        Shape::Vector4096 => all!(strided, 4096),
        Shape::None | Shape::Columns64 | Shape::Columns128 | Shape::FaceY | Shape::FaceZ => all!(rows),
        Shape::Blocks4 | Shape::Blocks8 | Shape::Blocks16 | Shape::Blocks32 | Shape::Blocks64 => all!(rows),
        Shape::Diagonals => all!(diagonals, false),
        Shape::Indexed8 => all!(listed, 8),
        Shape::Indexed64 => all!(listed, 64),
        Shape::Struct => all!(structures),
        Shape::Nested => all!(nested),
    }
}

/// Copies from a layout to the same one in other memory, of so many bytes each.
pub type HandCopy = unsafe fn(&Facts, *const u8, *mut u8, usize);

/// The two ways in which one would write a copy of rows of ints: a memcpy of each row, or a loop in a loop.
///
/// # Safety
/// Of the functions: both sides are valid for so many bytes, disjoint, and not used by others meanwhile.
#[must_use]
pub fn copies(shape: Shape) -> [HandCopy; 2] {
    match shape {
        Shape::Diagonals => [
            |facts, from, to, room| diagonals::<COPY, false>(facts, from.cast_mut(), room, to, room),
            |facts, from, to, room| diagonals::<COPY, true>(facts, from.cast_mut(), room, to, room),
        ],
        _ => [|facts, from, to, room| rows::<COPY>(facts, from.cast_mut(), room, to, room), ints],
    }
}

/// The bytes from memory to packed form or other memory, or back.
///
/// # Safety
/// `len` bytes at both, apart.
#[inline(always)]
unsafe fn go<const WAY: u8>(memory: *mut u8, packed: *mut u8, len: usize) {
    let (from, to) = if WAY == UNPACK { (packed, memory) } else { (memory, packed) };
    // SAFETY: the caller's promise.
    unsafe { copy_nonoverlapping(from, to, len) }
}

#[inline(never)]
fn strided<const WAY: u8, const LEN: usize>(
    facts: &Facts,
    memory: *mut u8,
    room: usize,
    packed: *mut u8,
    packed_len: usize,
) {
    assert!(facts.first + (facts.count - 1) * facts.stride + LEN <= room && facts.count * LEN <= packed_len);
    let (first, step) = if WAY == COPY { (facts.first, facts.stride) } else { (0, LEN) };
    assert!(WAY != COPY || packed_len >= room);
    let mut at = memory.wrapping_add(facts.first);
    let mut packed = packed.wrapping_add(first);
    for _ in 0..facts.count {
        // SAFETY: the last block ends inside, as was checked.
        unsafe { go::<WAY>(at, packed, LEN) };
        (at, packed) = (at.wrapping_add(facts.stride), packed.wrapping_add(step));
    }
}

#[inline(never)]
fn rows<const WAY: u8>(facts: &Facts, memory: *mut u8, room: usize, packed: *mut u8, packed_len: usize) {
    let len = facts.len;
    assert!(facts.first + (facts.count - 1) * facts.stride + len <= room && facts.count * len <= packed_len);
    assert!(WAY != COPY || packed_len >= room);
    let (first, step) = if WAY == COPY { (facts.first, facts.stride) } else { (0, len) };
    for i in 0..facts.count {
        // SAFETY: the last block ends inside, as was checked.
        unsafe { go::<WAY>(memory.add(facts.first + i * facts.stride), packed.add(first + i * step), len) };
    }
}

/// The two leading block diagonals: in each row two blocks, in those of the last block one.
#[inline(never)]
fn diagonals<const WAY: u8, const BY_INTS: bool>(
    facts: &Facts,
    memory: *mut u8,
    room: usize,
    packed: *mut u8,
    packed_len: usize,
) {
    let (rows, block) = (facts.count, facts.first);
    let side = block / 4;
    assert!(
        rows * facts.stride <= room && (2 * rows - side) * block <= packed_len && (WAY != COPY || packed_len >= room)
    );
    let (mut first, mut at, mut packed) = (0, 0, packed);
    while first < rows {
        let len = if first + side < rows { 2 * block } else { block };
        for _ in 0..side {
            // SAFETY: a part of a row of the matrix, which lies inside, as was checked.
            unsafe {
                let to = if WAY == COPY { packed.add(at) } else { packed };
                if BY_INTS { go_ints(memory.add(at), to, len) } else { go::<WAY>(memory.add(at), to, len) }
            }
            if WAY != COPY {
                packed = packed.wrapping_add(len);
            }
            at += facts.stride;
        }
        (first, at) = (first + side, at + block);
    }
}

/// Rows, int by int.
#[inline(never)]
fn ints(facts: &Facts, from: *const u8, to: *mut u8, room: usize) {
    assert!(facts.first + (facts.count - 1) * facts.stride + facts.len <= room);
    for i in 0..facts.count {
        let at = facts.first + i * facts.stride;
        // SAFETY: the last row ends inside, as was checked.
        unsafe { go_ints(from.add(at), to.add(at), facts.len) };
    }
}

/// # Safety
/// `len` bytes at both.
#[inline(always)]
unsafe fn go_ints(from: *const u8, to: *mut u8, len: usize) {
    for i in 0..len / 4 {
        // SAFETY: the caller's promise; ints of any alignment, as the bytes are.
        unsafe { to.add(4 * i).cast::<i32>().write_unaligned(from.add(4 * i).cast::<i32>().read_unaligned()) };
    }
}

#[inline(never)]
fn listed<const WAY: u8, const LEN: usize>(
    facts: &Facts,
    memory: *mut u8,
    room: usize,
    packed: *mut u8,
    packed_len: usize,
) {
    // The list is this program's own.
    assert!(facts.room <= room && facts.list.len() * LEN <= packed_len);
    assert!(WAY != COPY || packed_len >= room);
    let mut packed = packed;
    for at in &facts.list {
        // SAFETY: the block lies inside, as was checked.
        unsafe { go::<WAY>(memory.add(*at), if WAY == COPY { packed.add(*at) } else { packed }, LEN) };
        if WAY != COPY {
            packed = packed.wrapping_add(LEN);
        }
    }
}

#[inline(never)]
fn structures<const WAY: u8>(facts: &Facts, memory: *mut u8, room: usize, packed: *mut u8, packed_len: usize) {
    let (size, extent) = (STRUCT_BYTES as usize, STRUCT_EXTENT as usize);
    assert!(facts.count * extent <= room + 7 && facts.count * size <= packed_len);
    assert!(WAY != COPY || packed_len >= room);
    for i in 0..facts.count {
        // SAFETY: int, three doubles and char of a structure that lies inside, as was checked.
        unsafe {
            let (one, packed) = (memory.add(i * extent), packed.add(i * if WAY == COPY { extent } else { size }));
            go::<WAY>(one, packed, 4);
            go::<WAY>(one.add(8), packed.add(if WAY == COPY { 8 } else { 4 }), 25);
        }
    }
}

#[inline(never)]
fn nested<const WAY: u8>(facts: &Facts, memory: *mut u8, room: usize, packed: *mut u8, packed_len: usize) {
    let (outer, inner) = (facts.count, facts.len);
    let end = (outer - 1) * facts.stride + (inner - 1) * facts.first + 8;
    assert!(end <= room && outer * inner * 8 <= packed_len);
    assert!(WAY != COPY || packed_len >= room);
    let mut packed = packed;
    for i in 0..outer {
        for j in 0..inner {
            let at = i * facts.stride + j * facts.first;
            // SAFETY: the last double ends inside, as was checked.
            unsafe { go::<WAY>(memory.add(at), if WAY == COPY { packed.add(at) } else { packed }, 8) };
            if WAY != COPY {
                packed = packed.wrapping_add(8);
            }
        }
    }
}
