//! The suite "pack": packs one message into consecutive bytes, unpacks it, and copies it to the same layout elsewhere
//! (as a put to a mapped window does), with Farside, with a loop specialized to this layout, and with a memcpy of the
//! same length.
//!
//! The three variants alternate, with a block of calls each, and the fastest block of each counts: other load on the
//! machine affects all variants equally, and only increases times. The results are compared first.

use std::hint::black_box;
use std::time::{Duration, Instant};

use farside_core::error::{Error, ErrorKind, Result};
use farside_datatype::DatatypeError;

use crate::by_hand::loops;
use crate::pages::Pages;
use crate::record::{Key, Library, Op, Record, Suite};
use crate::shapes::Case;

/// The duration of a block of calls.
const BLOCK: Duration = Duration::from_micros(100);
/// The number of consecutive blocks of one variant, so that large messages find the cache contents that the same
/// variant has left.
const BLOCKS: usize = 4;
/// The minimum and the maximum number of rounds.
const ROUNDS: (usize, usize) = (3, 100);
/// The offset of the packed bytes in their page; those in the layout begin at a page.
const PACKED_AT: usize = 1088;

/// The bytes in their layout, packed, and in the same layout in other memory. All three ways use the same memory, as do
/// the peers' programs: for data that exceed the inner caches, the speed depends on the contents of the last-level
/// cache.
struct Buffers {
    memory: Pages,
    packed: Pages,
    other: Pages,
}

impl Buffers {
    fn of(case: &Case) -> Result<Self> {
        let packed = Pages::new(PACKED_AT + case.bytes as usize)?;
        Ok(Self { memory: Pages::new(case.room())?, packed, other: Pages::new(case.room())? })
    }

    fn view(&mut self) -> View<'_> {
        View { memory: &mut self.memory, packed: &mut self.packed[PACKED_AT..], other: &mut self.other }
    }
}

struct View<'a> {
    memory: &'a mut [u8],
    packed: &'a mut [u8],
    other: &'a mut [u8],
}

/// Measures the three variants of `case`: three records each.
///
/// # Errors
/// [`ErrorKind::Protocol`] for wrong bytes.
pub(crate) fn measure(case: &Case, quick: bool) -> Result<Vec<Record>> {
    let mut buffers = Buffers::of(case)?;
    check(case, buffers.view())?;
    let mut view = buffers.view();
    let [pack, unpack, copy] = loops(case.shape);
    let (map, layout, bytes) = (&case.map, &case.layout, case.bytes as usize);
    let budget = Duration::from_millis(if quick { 20 } else { 150 });
    let mut records = Vec::new();
    let mut add = |op, measured: [(u64, Vec<f64>); 3]| -> Result<()> {
        for (library, (iterations, us)) in [Library::Farside, Library::Loop, Library::Limit].into_iter().zip(measured) {
            let key = Key { suite: Suite::Pack, op, shape: case.shape, bytes: case.bytes, ranks: 1, ..Key::default() };
            records.push(Record::from_blocks(library, key, iterations, &us)?);
        }
        Ok(())
    };
    let packing = rounds(
        budget,
        &mut view,
        |b| done(black_box(map).pack(b.memory, 0, 0, b.packed)),
        |b| pack(black_box(layout), b.memory, b.packed),
        |b| b.packed.copy_from_slice(&b.memory[..bytes]),
    );
    add(Op::Pack, packing)?;
    let unpacking = rounds(
        budget,
        &mut view,
        |b| done(black_box(map).unpack(b.packed, 0, b.memory, 0)),
        |b| unpack(black_box(layout), b.packed, b.memory),
        |b| b.memory[..bytes].copy_from_slice(b.packed),
    );
    add(Op::Unpack, unpacking)?;
    let copying = rounds(
        budget,
        &mut view,
        |b| done(black_box(map).copy(b.memory, 0, black_box(map), b.other, 0)),
        |b| copy(black_box(layout), b.memory, b.other),
        |b| b.other[..bytes].copy_from_slice(&b.memory[..bytes]),
    );
    add(Op::Copy, copying)?;
    Ok(records)
}

/// Passes the number of bytes of a success to `black_box`; an error ends the program.
#[inline(always)]
fn done(result: std::result::Result<usize, DatatypeError>) {
    match result {
        Ok(bytes) => _ = black_box(bytes),
        Err(error) => fail(&error),
    }
}

#[cold]
#[inline(never)]
fn fail(error: &DatatypeError) {
    panic!("{error}");
}

/// Packs, unpacks and copies once with both Farside and the loop, and compares.
fn check(case: &Case, View { memory, packed, other }: View<'_>) -> Result<()> {
    let expect = |holds: bool, what: &str| {
        let cause =
            || format!("a message of shape {} with {} bytes is wrong after it was {what}", case.shape, case.bytes);
        let wrong = || Error::new(ErrorKind::Protocol, "check the data of a measurement").cause(cause());
        if holds { Ok(()) } else { Err(wrong()) }
    };
    let [pack, unpack, copy] = loops(case.shape);
    memory.iter_mut().enumerate().for_each(|(i, byte)| *byte = ((i * 41) >> 3) as u8);
    let (all, mut flat) = (Ok(packed.len()), vec![0; packed.len()]);
    let done = case.map.pack(memory, 0, 0, packed);
    pack(&case.layout, memory, &mut flat);
    expect(done == all && *packed == flat, "packed")?;
    memory.fill(7);
    other.fill(7);
    let done = case.map.unpack(packed, 0, memory, 0);
    unpack(&case.layout, packed, other);
    expect(done == all && memory == other, "unpacked")?;
    other.fill(7);
    let done = case.map.copy(memory, 0, &case.map, other, 0);
    expect(done == all && memory == other, "copied")?;
    other.fill(7);
    copy(&case.layout, memory, other);
    expect(memory == other, "copied by hand")
}

/// Alternates the three variants; returns, for each, the number of calls and the microseconds of a call in each block.
fn rounds<S>(
    budget: Duration,
    state: &mut S,
    mut farside: impl FnMut(&mut S),
    mut by_hand: impl FnMut(&mut S),
    mut limit: impl FnMut(&mut S),
) -> [(u64, Vec<f64>); 3] {
    let calls = [calibrate(state, &mut farside), calibrate(state, &mut by_hand), calibrate(state, &mut limit)];
    let mut us = [const { Vec::new() }; 3];
    let (start, mut done) = (Instant::now(), 0);
    while done < ROUNDS.0 || done < ROUNDS.1 && start.elapsed() < budget {
        us[0].extend((0..BLOCKS).map(|_| block_us(state, calls[0], &mut farside)));
        us[1].extend((0..BLOCKS).map(|_| block_us(state, calls[1], &mut by_hand)));
        us[2].extend((0..BLOCKS).map(|_| block_us(state, calls[2], &mut limit)));
        done += 1;
    }
    let mut calls = calls.into_iter();
    us.map(|us| (calls.next().unwrap_or(1) * us.len() as u64, us))
}

/// The number of calls that fill a block.
fn calibrate<S>(state: &mut S, call: &mut impl FnMut(&mut S)) -> u64 {
    let mut calls = 1;
    loop {
        let us = block_us(state, calls, call) * calls as f64;
        if us * 2.0 >= BLOCK.as_micros() as f64 {
            return calls;
        }
        calls *= 2;
    }
}

#[inline(never)]
fn block_us<S>(state: &mut S, calls: u64, call: &mut impl FnMut(&mut S)) -> f64 {
    // A warm-up, since the other variants have used the caches in between; the peers' program measures one variant at a
    // time.
    call(state);
    let start = Instant::now();
    for _ in 0..calls {
        // Each call reads its arguments from memory, so that the compiler cannot keep any in registers.
        call(black_box(state));
    }
    start.elapsed().as_secs_f64() * 1e6 / calls as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Shape;
    use crate::shapes::{all, sizes};

    #[test]
    fn every_shape_comes_out_right_by_all() {
        for shape in all() {
            for bytes in sizes(shape, true) {
                let case = Case::new(shape, bytes).unwrap();
                check(&case, Buffers::of(&case).unwrap().view()).unwrap();
            }
        }
    }

    #[test]
    fn measure_gives_three_ways_of_all_three() {
        let case = Case::new(Shape::Struct, 29 * 4).unwrap();
        let records = measure(&case, true).unwrap();
        assert_eq!(records.len(), 9);
        for record in &records {
            assert_eq!(Record::parse(&record.line()).unwrap().key, record.key);
        }
    }
}
