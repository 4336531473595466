//! The layouts of the suites "pack" and "put": their sizes, their datatypes and the parameters of hand-written loops.
//! `benches/peers/pack.c` builds the same layouts with MPI's constructors.

use farside_core::error::{Error, ErrorKind, Result};
use farside_datatype::{Datatype, DatatypeError, Named, Order, Subarray, TypeMap};

use crate::by_hand::LoopLayout;
use crate::plan::sorted;
use crate::record::{Op, Shape};

/// The number of ints in a row of the matrix.
const ROW_INTS: u64 = 4096;
/// Blocks on a side of the square matrix.
const DIAGONAL_BLOCKS: u64 = 16;
/// The packed bytes of the structure, and its extent.
pub(crate) const STRUCT_BYTES: u64 = 29;
pub(crate) const STRUCT_EXTENT: u64 = 40;
/// The nested vector: doubles of the inner vector, distance in bytes between doubles, distance in bytes between inner
/// vectors.
const NESTED: (u64, u64, u64) = (4, 24, 128);

/// The shapes of the suite "pack".
pub(crate) fn all() -> Vec<Shape> {
    Shape::ALL.iter().copied().filter(|shape| !sizes(*shape, false).is_empty()).collect()
}

/// The messages of the suite "put", as in the experiments with schemes for derived datatypes over InfiniBand: 4 to 2048
/// columns of 64 and 128 rows, the same numbers of bytes without gaps, 4 to 64 blocks, block diagonals.
pub(crate) fn puts(quick: bool) -> Vec<(Shape, u64)> {
    let mut puts = Vec::new();
    for (shape, rows) in [(Shape::Columns64, 64), (Shape::Columns128, 128)] {
        let exponents = (2..12).step_by(if quick { 3 } else { 1 });
        puts.extend(exponents.map(|n| (shape, (4 * rows) << n)));
    }
    let flat = sorted(puts.iter().map(|(_, bytes)| *bytes));
    puts.extend(flat.into_iter().map(|bytes| (Shape::None, bytes)));
    for kib in if quick { &[128][..] } else { &[128, 256, 512] } {
        puts.extend(
            Shape::ALL.iter().filter(|shape| shape.number_of("blocks").is_some()).map(|shape| (*shape, kib << 10)),
        );
    }
    let sides = if quick { &[4, 16, 64][..] } else { &[4, 8, 16, 32, 64] };
    puts.extend(sides.iter().map(|side| (Shape::Diagonals, diagonals_bytes(*side))));
    puts
}

/// Bytes of the two leading block diagonals, of blocks of `side` x `side` ints.
pub(crate) const fn diagonals_bytes(side: u64) -> u64 {
    4 * side * side * (2 * DIAGONAL_BLOCKS - 1)
}

/// The measurements of a message in the suite "put".
pub(crate) fn put_ops(shape: Shape) -> &'static [Op] {
    let ops = &[Op::Put, Op::PutBandwidth, Op::OriginCpu, Op::TargetCpu];
    if shape == Shape::None || shape.number_of("columns").is_some() { ops } else { &ops[..1] }
}

/// Whether `ranks` ranks exchange a message of the suite "put" all-to-all: columns, if all of them fit into a row.
pub(crate) fn is_exchanged(shape: Shape, bytes: u64, ranks: u32) -> bool {
    shape.number_of("columns").is_some_and(|rows| bytes / (4 * rows) * u64::from(ranks) <= ROW_INTS)
}

/// The distance from the columns of an exchange for one rank to those for the next.
pub(crate) fn columns_bytes(shape: Shape, bytes: u64) -> usize {
    shape.number_of("columns").map_or(0, |rows| (bytes / rows) as usize)
}

/// Sizes in bytes of messages of a shape: few blocks, sizes that fit into the L2 cache, and larger ones.
pub(crate) fn sizes(shape: Shape, quick: bool) -> Vec<u64> {
    let columns = |rows: u64| [4, 32, 256, 2048].map(|columns| rows * 4 * columns).into();
    let mut sizes = match (shape, shape.number_of("vector")) {
        (_, Some(block)) => vec![block, 4 * block, 64 * block, 1 << 18, 1 << 24],
        (Shape::Column, _) => vec![64 * 4, 128 * 4, 4096 * 4],
        (Shape::Columns64, _) => columns(64),
        (Shape::Columns128, _) => columns(128),
        (Shape::FaceX | Shape::FaceY | Shape::FaceZ, _) => [16, 64, 256].map(|n| n * n * 8).into(),
        (Shape::Indexed8, _) => vec![64 * 8, 4096 * 8, 1 << 23],
        (Shape::Indexed64, _) => vec![64 * 64, 1024 * 64, 1 << 24],
        (Shape::Struct, _) => [4, 64, 8192, 524_288].map(|count| STRUCT_BYTES * count).into(),
        (Shape::Nested, _) => [4, 64, 8192, 524_288].map(|count| 8 * NESTED.0 * count).into(),
        // These shapes are only in suite "put".
        _ => vec![],
    };
    if quick {
        sizes.retain(|bytes| *bytes < 1 << 19);
    }
    sorted(sizes)
}

/// A message of a shape.
pub(crate) struct Case {
    /// The shape.
    pub(crate) shape: Shape,
    /// Bytes that are packed.
    pub(crate) bytes: u64,
    /// The layout for Farside.
    pub(crate) map: TypeMap,
    /// The layout for a hand-written loop.
    pub(crate) layout: LoopLayout,
}

impl Case {
    /// A message of `bytes` bytes, one of [`sizes`] or [`puts`].
    ///
    /// # Errors
    /// [`ErrorKind::BadArgument`] if the shape has no message of that size.
    pub(crate) fn new(shape: Shape, bytes: u64) -> Result<Self> {
        let refuse = |cause: String| Error::new(ErrorKind::BadArgument, "build a layout").cause(cause);
        let (map, mut layout) = make(shape, bytes).map_err(|error| refuse(error.to_string()))?;
        (layout.room, layout.bytes) = (map.true_ub() as usize, bytes as usize);
        if map.size() != bytes || bytes == 0 {
            return Err(refuse(format!("the shape {shape} has no message of {bytes} bytes")));
        }
        Ok(Self { shape, bytes, map, layout })
    }

    /// Bytes from the start of the memory to the end of the last block.
    pub(crate) fn room(&self) -> usize {
        self.layout.room
    }
}

fn make(shape: Shape, bytes: u64) -> std::result::Result<(TypeMap, LoopLayout), DatatypeError> {
    let (int, double) = (Datatype::from(Named::Int), Datatype::from(Named::Double));
    let layout = |first: u64, count: u64, stride: u64, len: u64| LoopLayout {
        first: first as usize,
        count: count as usize,
        stride: stride as usize,
        len: len as usize,
        ..LoopLayout::default()
    };
    let rows = |rows: u64, columns: u64| {
        let map = Datatype::vector(rows, columns, ROW_INTS as i64, &int)?.message(1)?;
        Ok((map, layout(0, rows, 4 * ROW_INTS, 4 * columns)))
    };
    let side = (bytes / 8).isqrt();
    let face = |subsizes: [u64; 3], starts: [u64; 3], layout: LoopLayout| {
        let (sizes, order, old) = ([side; 3].into(), Order::C, double.clone());
        let array = Subarray { sizes, subsizes: subsizes.into(), starts: starts.into(), order, old };
        Ok((Datatype::subarray(&array)?.message(1)?, layout))
    };
    match (shape, shape.number_of("vector")) {
        (_, Some(block)) => {
            let (length, old) = if block == 4 { (1, &int) } else { (block / 8, &double) };
            let map = Datatype::hvector(bytes / block, length, 2 * block as i64, old)?.message(1)?;
            Ok((map, layout(0, bytes / block, 2 * block, block)))
        }
        (Shape::Column, _) => rows(bytes / 4, 1),
        (Shape::Columns64 | Shape::Columns128, _) => {
            let count = shape.number_of("columns").unwrap_or(1);
            rows(count, bytes / (4 * count))
        }
        (Shape::FaceX, _) => face([side, side, 1], [0, 0, 1], layout(8, side * side, 8 * side, 8)),
        (Shape::FaceY, _) => face([side, 1, side], [0, 1, 0], layout(8 * side, side, 8 * side * side, 8 * side)),
        (Shape::FaceZ, _) => face([1, side, side], [1, 0, 0], layout(8 * side * side, 1, 0, 8 * side * side)),
        (Shape::Indexed8 | Shape::Indexed64, _) => {
            let block = if shape == Shape::Indexed8 { 8 } else { 64 };
            let places = places(bytes / block);
            let at: Vec<i64> = places.iter().map(|place| (place * block / 8) as i64).collect();
            let map = Datatype::indexed_block(block / 8, &at, &double)?.message(1)?;
            let list = places.iter().map(|place| (place * block) as usize).collect();
            Ok((map, LoopLayout { list, ..layout(0, bytes / block, 0, block) }))
        }
        (Shape::Struct, _) => {
            let one = Datatype::structure(&[1, 3, 1], &[0, 8, 32], &[int, double, Named::Char.into()])?;
            let one = Datatype::resized(&one, 0, STRUCT_EXTENT as i64)?;
            let count = bytes / STRUCT_BYTES;
            Ok((one.message(count)?, layout(0, count, STRUCT_EXTENT, STRUCT_BYTES)))
        }
        (Shape::None, _) => Ok((Datatype::contiguous(bytes / 4, &int)?.message(1)?, layout(0, 1, 0, bytes))),
        (Shape::Diagonals, _) => {
            let side = (bytes / diagonals_bytes(1)).isqrt();
            let row = DIAGONAL_BLOCKS * side;
            Ok((diagonals(side, 0)?, layout(4 * side, row, 4 * row, 8 * side)))
        }
        (shape, _) if shape.number_of("blocks").is_some() => {
            let count = shape.number_of("blocks").unwrap_or(1);
            let len = bytes / count;
            let map = Datatype::hvector(count, len / 4, 2 * len as i64, &int)?.message(1)?;
            Ok((map, layout(0, count, 2 * len, len)))
        }
        (_, _) => {
            let (inner, stride, outer) = NESTED;
            let one = Datatype::hvector(inner, 1, stride as i64, &double)?;
            let count = bytes / (8 * inner);
            let map = Datatype::hvector(count, 1, outer as i64, &one)?.message(1)?;
            // `first` has the inner stride and `len` the inner count, for a nested loop.
            Ok((map, layout(stride, count, outer, inner)))
        }
    }
}

/// The two leading block diagonals of a matrix of ints that starts at int `first`, with blocks of `side` x `side`: each
/// row has two blocks, except in the last block, which has one.
pub(crate) fn diagonals(side: u64, first: u64) -> std::result::Result<TypeMap, DatatypeError> {
    let (row, last) = (DIAGONAL_BLOCKS * side, DIAGONAL_BLOCKS - 1);
    let lengths: Vec<u64> = (0..row).map(|r| if r / side < last { 2 * side } else { side }).collect();
    let at: Vec<i64> = (0..row).map(|r| (first + r * row + r / side * side) as i64).collect();
    Datatype::indexed(&lengths, &at, &Named::Int.into())?.message(1)
}

/// Draws `count` of `2 * count` positions, in random order; they are the same as in `benches/peers/pack.c`.
fn places(count: u64) -> Vec<u64> {
    let mut places: Vec<u64> = (0..2 * count).collect();
    let mut state = 1_u64;
    for i in (1..places.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        places.swap(i, (state >> 33) as usize % (i + 1));
    }
    places.truncate(count as usize);
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_of_every_shape_is_a_message() {
        for shape in all() {
            let sizes = sizes(shape, true);
            assert!(sizes.len() >= 2, "{shape}");
            for bytes in sizes {
                assert_eq!(Case::new(shape, bytes).unwrap().map.size(), bytes, "{shape}");
            }
            assert_eq!(Case::new(shape, 3).map(|case| case.bytes).unwrap_err().kind(), ErrorKind::BadArgument);
        }
    }

    #[test]
    fn every_put_is_a_message_and_measured_once() {
        for quick in [false, true] {
            let puts = puts(quick);
            let different: std::collections::BTreeSet<_> = puts.iter().collect();
            assert_eq!(different.len(), puts.len());
            for (shape, bytes) in puts {
                let map = Case::new(shape, bytes).unwrap().map;
                assert_eq!(map.size(), bytes, "{shape}");
                let expected = match shape {
                    Shape::None => 1,
                    Shape::Diagonals => 16 * (bytes / 124).isqrt(),
                    _ => shape.number_of("columns").or(shape.number_of("blocks")).unwrap(),
                };
                assert_eq!(map.block_count(), expected, "{shape} of {bytes}");
            }
        }
        assert!(is_exchanged(Shape::Columns128, 128 * 4 * 1024, 4));
        assert!(!is_exchanged(Shape::Columns128, 128 * 4 * 2048, 4) && !is_exchanged(Shape::None, 1024, 2));
    }
}
