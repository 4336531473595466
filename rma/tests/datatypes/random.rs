#![allow(unsafe_code)]
//! Random pairs of layouts with the same elements: put, get and accumulate, compared with a byte-wise model. Bytes of
//! the window and of the buffer outside the receiving blocks are unchanged.

use std::collections::BTreeSet;

use farside_datatype::{Datatype, Named, TypeMap};
use farside_rma::core::settings::TransferScheme;
use farside_rma::raw::{Options, RawWindow};
use farside_rma::{Assert, ErrorKind, Op, Result, Team};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::common::{Naive, Script, bytes, spread};
use crate::checks::config::{self, Config, Memory, everywhere_with};

/// The number of bytes of a window, and of the buffer of an origin.
const LEN: usize = 48 << 10;

/// One side: its layout and the offsets of its elements.
#[derive(Clone)]
struct Side {
    map: TypeMap,
    elements: Vec<(i64, Named)>,
}

impl Side {
    /// A random offset for byte 0 of the layout in memory of [`LEN`] bytes.
    fn place(&self, rng: &mut StdRng) -> Option<usize> {
        let low = usize::try_from(-self.map.true_lb().min(0)).ok()?;
        let high = usize::try_from(self.map.true_ub().max(0)).ok()?;
        let room = LEN.checked_sub(low + high)?;
        // The offset is aligned, so that elements that are aligned in the layout are aligned in memory.
        Some((low + rng.random_range(0..=room.min(9000))).next_multiple_of(16)).filter(|at| at + high <= LEN)
    }

    fn has_a_byte_twice(&self) -> bool {
        let all = bytes(&self.elements);
        all.iter().collect::<BTreeSet<_>>().len() < all.len()
    }
}

fn random_type(rng: &mut StdRng) -> Naive {
    let script: Vec<u32> = (0..40).map(|_| rng.random()).collect();
    Naive::random(&mut Script::new(&script), 3)
}

/// A random layout, and another layout with the same elements but other gaps and another order of blocks.
fn pair(rng: &mut StdRng) -> (Side, Side) {
    loop {
        let naive = random_type(rng);
        let count = rng.random_range(0..4);
        let elements = naive.message(count);
        if elements.len() > 2000 {
            continue;
        }
        let Ok(map) = naive.datatype.message(count) else { continue };
        let gaps: Vec<i64> = (0..5).map(|_| rng.random_range(0..3) * 8).collect();
        let other = spread(&elements, &gaps);
        let mut at = 0;
        let spread: Vec<(i64, Named)> = elements
            .iter()
            .zip(gaps.iter().cycle())
            .map(|((_, named), gap)| {
                at += gap + named.size() as i64;
                (at - named.size() as i64, *named)
            })
            .collect();
        let other = Side { map: other.message(1).unwrap(), elements: spread };
        let one = Side { map, elements };
        return if rng.random() { (one, other) } else { (other, one) };
    }
}

/// The bytes of rank `rank` before case `case`.
fn pattern(case: usize, rank: usize) -> Vec<u8> {
    (0..LEN).map(|i| (i * 7 + i / 251 + case * 13 + rank * 101) as u8).collect()
}

/// Creates a window of [`LEN`] bytes. Also returns its memory if that is a vector, which is not page-aligned.
fn window(team: &Team, config: &Config) -> Result<(RawWindow, Vec<u64>)> {
    match config.memory {
        Memory::Allocated => Ok((RawWindow::allocate(team, LEN, Options::default())?, Vec::new())),
        Memory::Vector => {
            let mut vec = vec![0u64; LEN / 8 + 2];
            let base = vec[2..].as_mut_ptr().cast();
            // SAFETY: the vector lives until the window is freed, and this thread accesses it only as its epochs allow.
            let window = unsafe { RawWindow::create_exclusively(team, base, LEN, Options::default()) }?;
            Ok((window, vec))
        }
    }
}

/// Sets or compares this rank's memory, between two barriers.
fn local(window: &RawWindow, f: impl FnOnce(&mut [u8])) -> Result<()> {
    window.team().barrier()?;
    // SAFETY: no epoch is open on any rank between the two barriers.
    f(unsafe { std::slice::from_raw_parts_mut(window.base(), LEN) });
    window.team().barrier()
}

/// Number of cases of a configuration.
fn cases() -> usize {
    if config::quick() { 6 } else { 60 }
}

fn compare(case: usize, what: &str, got: &[u8], expected: &[u8]) {
    if got != expected {
        let at = got.iter().zip(expected).position(|(a, b)| a != b).unwrap();
        panic!("case {case}: {what}: byte {at} is {}, not {}", got[at], expected[at]);
    }
}

/// The schemes, used in turn; the planner chooses in half of the cases.
const WAYS: [TransferScheme; 8] = [
    TransferScheme::Auto,
    TransferScheme::Generic,
    TransferScheme::Auto,
    TransferScheme::MultiW,
    TransferScheme::Auto,
    TransferScheme::Gather,
    TransferScheme::Auto,
    TransferScheme::Sgrs,
];

/// Rank 1 puts to, or gets from, rank 0 and itself.
fn moves(team: &Team, config: &Config, put: bool) -> Result<()> {
    let (window, memory) = window(team, config)?;
    let mut rng = StdRng::seed_from_u64(0x5eed + u64::from(put));
    let mut done = 0;
    for case in 0..cases() {
        let (origin, target) = pair(&mut rng);
        let (Some(at), Some(offset)) = (origin.place(&mut rng), target.place(&mut rng)) else { continue };
        let receiver = if put { &target } else { &origin };
        let refused = receiver.has_a_byte_twice();
        window.set_transfer(WAYS[case % WAYS.len()]);
        for to in 0..2 {
            local(&window, |l| l.copy_from_slice(&pattern(case, team.rank())))?;
            let mut buffer = pattern(case, 7);
            window.fence(Assert::NOPRECEDE)?;
            if team.rank() == 1 {
                let base = buffer.as_mut_ptr();
                // SAFETY: the layout is inside the buffer, which outlives the closing fence.
                let result = unsafe {
                    if put {
                        window.put_typed(base.add(at), &origin.map, to, offset, &target.map)
                    } else {
                        window.get_typed(base.add(at), &origin.map, to, offset, &target.map)
                    }
                };
                match result {
                    Ok(()) => assert!(!refused, "case {case}: a receiving side with a byte twice was accepted"),
                    Err(e) => assert!(refused && e.kind() == ErrorKind::BadArgument, "case {case}: {e}"),
                }
            }
            window.fence(Assert::NOSUCCEED)?;
            let (mut there, mut here) = (pattern(case, to), pattern(case, 7));
            for (o, t) in bytes(&origin.elements).into_iter().zip(bytes(&target.elements)).filter(|_| !refused) {
                let (o, t) = ((at as i64 + o) as usize, (offset as i64 + t) as usize);
                if put {
                    there[t] = here[o];
                } else {
                    here[o] = there[t];
                }
            }
            let mine = if team.rank() == to { there } else { pattern(case, team.rank()) };
            local(&window, |l| compare(case, "window", l, &mine))?;
            if team.rank() == 1 {
                compare(case, "buffer", &buffer, &here);
            }
        }
        done += 1;
    }
    assert!(done > cases() / 2, "only {done} pairs fit");
    window.free()?;
    drop(memory);
    Ok(())
}

#[test]
fn put_typed_moves_what_a_walk_by_bytes_does() {
    everywhere_with(&[2], |team, config| moves(team, config, true));
}

#[test]
fn get_typed_moves_what_a_walk_by_bytes_does() {
    everywhere_with(&[2], |team, config| moves(team, config, false));
}

/// A random layout of aligned elements of one integer type. Unless `disjoint`, it may contain an element twice.
fn integers(rng: &mut StdRng, count: usize, disjoint: bool) -> Side {
    let named = Named::Int32;
    let mut at: Vec<i64> = Vec::new();
    let mut end = rng.random_range(-3..3);
    for _ in 0..count {
        let next = if disjoint || rng.random_range(0..4) > 0 { end } else { rng.random_range(0..20) };
        at.push(next);
        end = end.max(next + 1) + rng.random_range(0..3);
    }
    if disjoint && rng.random() {
        at.reverse();
    }
    let datatype = Datatype::indexed_block(1, &at, &named.into()).unwrap();
    Side { map: datatype.message(1).unwrap(), elements: at.iter().map(|i| (4 * i, named)).collect() }
}

/// Rank 1 accumulates into rank 0 and itself, with and without the previous values.
fn accumulates(team: &Team, config: &Config) -> Result<()> {
    let (window, memory) = window(team, config)?;
    let mut rng = StdRng::seed_from_u64(0xacc);
    for case in 0..cases() {
        let count = rng.random_range(0..300);
        let (origin, target) = (integers(&mut rng, count, false), integers(&mut rng, count, false));
        let (old, fetches) = (integers(&mut rng, count, true), rng.random::<bool>());
        let op = [Op::Sum, Op::Bxor, Op::Replace, Op::NoOp, Op::Max][case % 5];
        let places = [&origin, &old, &target].map(|s| s.place(&mut rng));
        let [Some(from), Some(into), Some(offset)] = places else { continue };
        for to in 0..2 {
            local(&window, |l| l.copy_from_slice(&pattern(case, team.rank())))?;
            let (mut operand, mut former) = (pattern(case, 7), pattern(case, 8));
            window.fence(Assert::NOPRECEDE)?;
            if team.rank() == 1 {
                let result = fetches.then(|| (former.as_mut_ptr().wrapping_add(into), &old.map));
                let local = operand.as_mut_ptr().wrapping_add(from).cast_const();
                // SAFETY: the layouts are inside the buffers, which outlive the closing fence.
                unsafe { window.accumulate_typed(op, (local, &origin.map), result, to, offset, &target.map) }?;
            }
            window.fence(Assert::NOSUCCEED)?;
            let (mut there, mut expected) = (pattern(case, to), pattern(case, 8));
            let int = |b: &[u8], at: usize| i32::from_le_bytes(b[at..at + 4].try_into().unwrap());
            for ((o, t), r) in origin.elements.iter().zip(&target.elements).zip(&old.elements) {
                let at = |base: usize, e: &(i64, Named)| (base as i64 + e.0) as usize;
                let (x, t) = (int(&operand, at(from, o)), at(offset, t));
                let before = int(&there, t);
                let after = match op {
                    Op::Sum => before.wrapping_add(x),
                    Op::Bxor => before ^ x,
                    Op::Replace => x,
                    Op::Max => before.max(x),
                    _ => before,
                };
                there[t..t + 4].copy_from_slice(&after.to_le_bytes());
                if fetches {
                    let r = at(into, r);
                    expected[r..r + 4].copy_from_slice(&before.to_le_bytes());
                }
            }
            let mine = if team.rank() == to { there } else { pattern(case, team.rank()) };
            local(&window, |l| compare(case, "window", l, &mine))?;
            if team.rank() == 1 {
                compare(case, "previous values", &former, &expected);
            }
        }
    }
    window.free()?;
    drop(memory);
    Ok(())
}

#[test]
fn accumulate_typed_combines_what_a_walk_by_elements_does() {
    everywhere_with(&[2], accumulates);
}
