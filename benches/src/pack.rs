//! The suite "pack": one message from its layout to consecutive bytes, back, and to the same layout elsewhere (as a put
//! on a mapped window goes), by Farside, by a loop for just this layout, and as much by memcpy.
//!
//! The three take turns, a block of calls each, and of each the fastest block counts: what else the machine does meets
//! all alike, and makes times only longer. What arrives is compared before.

use std::hint::black_box;
use std::time::{Duration, Instant};

use farside_core::error::{Error, ErrorKind, Result};
use farside_datatype::DatatypeError;

use crate::by_hand::loops;
use crate::plan::Effort;
use crate::record::{Key, Library, Op, Record, Suite, Sync, Window};
use crate::shapes::Case;

/// How long a block of calls is.
const BLOCK: Duration = Duration::from_micros(100);
/// Blocks of one way before the next has its turn: large messages find in the caches what the same way has left there.
const BLOCKS: usize = 4;
/// Rounds at least, and at most.
const ROUNDS: (usize, usize) = (3, 100);
/// The packed bytes start so far into a page, and those in the layout at a page.
const PACKED_AT: usize = 1088;
const PAGE: usize = 4096;

/// How long all rounds of one message are.
const fn budget(effort: Effort) -> Duration {
    match effort {
        Effort::Full => Duration::from_millis(150),
        Effort::Quick => Duration::from_millis(20),
    }
}

/// The bytes in their layout, packed, and packed by the other for the check.
struct Buffers {
    memory: Pages,
    packed: Pages,
    flat: Pages,
    /// As `memory`, elsewhere.
    other: Pages,
}

impl Buffers {
    fn of(case: &Case) -> Self {
        let (bytes, room) = (case.bytes as usize, case.map.true_ub() as usize);
        let (memory, packed, flat) = (Pages::new(room, 0), Pages::new(bytes, PACKED_AT), Pages::new(bytes, 0));
        Self { memory, packed, flat, other: Pages::new(room, 0) }
    }

    fn view(&mut self) -> View<'_> {
        let Self { memory, packed, other, .. } = self;
        View { memory: memory.get_mut(), packed: packed.get_mut(), other: other.get_mut() }
    }
}

/// The same, as slices. All three ways use the same memory, as the peers' programs have no other either: what does not fit
/// into the nearer caches depends on what is in the last one.
struct View<'a> {
    memory: &'a mut [u8],
    packed: &'a mut [u8],
    other: &'a mut [u8],
}

/// Measures the three ways of `case`: three records each.
///
/// # Errors
/// [`ErrorKind::Protocol`] if bytes came out wrong.
pub fn measure(case: &Case, effort: Effort) -> Result<Vec<Record>> {
    let mut buffers = Buffers::of(case);
    check(case, &mut buffers)?;
    let mut view = buffers.view();
    let [pack, unpack, copy] = loops(case.shape);
    let (map, facts, bytes, budget) = (&case.map, &case.facts, case.bytes as usize, budget(effort));
    let packing = rounds(
        budget,
        &mut view,
        |b| done(black_box(map).pack(b.memory, 0, 0, b.packed)),
        |b| pack(black_box(facts), b.memory, b.packed),
        |b| b.packed.copy_from_slice(&b.memory[..bytes]),
    );
    let unpacking = rounds(
        budget,
        &mut view,
        |b| done(black_box(map).unpack(b.packed, 0, b.memory, 0)),
        |b| unpack(black_box(facts), b.packed, b.memory),
        |b| b.memory[..bytes].copy_from_slice(b.packed),
    );
    let copying = rounds(
        budget,
        &mut view,
        |b| done(black_box(map).copy(b.memory, 0, black_box(map), b.other, 0)),
        |b| copy(black_box(facts), b.memory, b.other),
        |b| b.other[..bytes].copy_from_slice(&b.memory[..bytes]),
    );
    let mut records = Vec::new();
    for (op, measured) in [(Op::Pack, packing), (Op::Unpack, unpacking), (Op::Copy, copying)] {
        for (library, (iterations, us)) in [Library::Farside, Library::Loop, Library::Limit].into_iter().zip(measured) {
            let (suite, window, sync, shape) = (Suite::Pack, Window::None, Sync::None, case.shape);
            let key = Key { suite, window, sync, op, shape, bytes: case.bytes, ranks: 1 };
            records.push(Record::from_blocks(library, env!("CARGO_PKG_VERSION"), key, iterations, &us)?);
        }
    }
    Ok(records)
}

/// What a caller does with a result: its bytes if it is one, or the end of the program.
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

/// Packs and unpacks once by both, and compares.
fn check(case: &Case, buffers: &mut Buffers) -> Result<()> {
    let wrong = |what: &str| {
        let cause = format!("{} of {} bytes, {what}", case.shape, case.bytes);
        Err(Error::new(ErrorKind::Protocol, "check the data of a measurement").cause(cause))
    };
    let fill =
        |bytes: &mut [u8], by: usize| bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = ((i * by) >> 3) as u8);
    let [pack, unpack, copy] = loops(case.shape);
    let Buffers { memory, packed, flat, other } = buffers;
    fill(memory.get_mut(), 41);
    let done = case.map.pack(memory.get(), 0, 0, packed.get_mut());
    pack(&case.facts, memory.get(), flat.get_mut());
    if done != Ok(packed.get().len()) || packed.get() != flat.get() {
        return wrong("packed");
    }
    memory.get_mut().fill(7);
    other.get_mut().fill(7);
    let done = case.map.unpack(packed.get(), 0, memory.get_mut(), 0);
    unpack(&case.facts, packed.get(), other.get_mut());
    if done != Ok(packed.get().len()) || memory.get() != other.get() {
        return wrong("unpacked");
    }
    other.get_mut().fill(7);
    let done = case.map.copy(memory.get(), 0, &case.map, other.get_mut(), 0);
    let by_farside = memory.get() == other.get();
    other.get_mut().fill(7);
    copy(&case.facts, memory.get(), other.get_mut());
    if done != Ok(packed.get().len()) || !by_farside || memory.get() != other.get() {
        return wrong("copied");
    }
    Ok(())
}

/// The three in turns: of each the calls in all, and the microseconds of one in each block.
fn rounds<S>(
    budget: Duration,
    state: &mut S,
    mut farside: impl FnMut(&mut S),
    mut by_hand: impl FnMut(&mut S),
    mut limit: impl FnMut(&mut S),
) -> [(u64, Vec<f64>); 3] {
    let calls = [calibrate(state, &mut farside), calibrate(state, &mut by_hand), calibrate(state, &mut limit)];
    let mut us = [const { Vec::new() }; 3];
    let start = Instant::now();
    let mut done = 0;
    while done < ROUNDS.0 || done < ROUNDS.1 && start.elapsed() < budget {
        for _ in 0..BLOCKS {
            us[0].push(block_us(state, calls[0], &mut farside));
        }
        for _ in 0..BLOCKS {
            us[1].push(block_us(state, calls[1], &mut by_hand));
        }
        for _ in 0..BLOCKS {
            us[2].push(block_us(state, calls[2], &mut limit));
        }
        done += 1;
    }
    let all = |i: usize, us: Vec<f64>| (calls[i] * us.len() as u64, us);
    let [a, b, c] = us;
    [all(0, a), all(1, b), all(2, c)]
}

/// Calls that fill a block.
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
    // Before, for those in between have used the caches; the peers' program runs one thing at a time.
    call(state);
    let start = Instant::now();
    for _ in 0..calls {
        // Each call finds its arguments in memory, whichever the compiler would have kept.
        call(black_box(state));
    }
    start.elapsed().as_secs_f64() * 1e6 / calls as f64
}

/// Bytes that start so far into a page.
struct Pages {
    memory: Vec<u8>,
    first: usize,
    len: usize,
}

impl Pages {
    fn new(len: usize, at: usize) -> Self {
        // Written, so that every page is there.
        let memory = vec![1; len + 2 * PAGE];
        let first = memory.as_ptr().addr().next_multiple_of(PAGE) - memory.as_ptr().addr() + at;
        Self { memory, first, len }
    }

    #[inline]
    fn get(&self) -> &[u8] {
        &self.memory[self.first..][..self.len]
    }

    #[inline]
    fn get_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.first..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Shape;
    use crate::shapes::{all, sizes};

    #[test]
    fn every_shape_comes_out_right_by_all() {
        for shape in all() {
            for bytes in sizes(shape, Effort::Quick) {
                let case = Case::new(shape, bytes).unwrap();
                check(&case, &mut Buffers::of(&case)).unwrap();
            }
        }
    }

    #[test]
    fn measure_gives_three_ways_of_all_three() {
        let case = Case::new(Shape::Struct, 29 * 4).unwrap();
        let records = measure(&case, Effort::Quick).unwrap();
        assert_eq!(records.len(), 9);
        for record in &records {
            assert_eq!(Record::parse(&record.line()).unwrap().key(), record.key());
        }
    }
}
