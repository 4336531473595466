//! Random operations in random epochs of one window, compared with a sequential model.
//!
//! All ranks draw the same plan from the same numbers. In an epoch every part of a target's memory is used either by one
//! origin, with any operations in order, or by all origins, with one commuting operation, or by readers.

use farside_rma::{Op, Result, Team};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::config::Config;
use super::sync::{ALL, Win};
use super::values::Value;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Do {
    Put,
    PutValue,
    Get,
    Accumulate(Op),
    GetAccumulate(Op),
    FetchAndOp(Op),
}

/// One operation of the plan. `data` are the values to send, and `old` the values that must be returned, if these are
/// determined.
#[derive(Clone, Debug)]
struct Step<T> {
    origin: usize,
    target: usize,
    at: usize,
    what: Do,
    data: Vec<T>,
    old: Option<Vec<T>>,
}

const ORDERED: &[Op] = &Op::ALL;
const COMMUTING: &[Op] = &[Op::Sum, Op::Prod, Op::Min, Op::Max, Op::Band, Op::Bor, Op::Bxor, Op::Land];

/// Unsigned integers, which the model computes in 64 bits and truncates.
pub(crate) trait Cut: Value {
    fn word(self) -> u64;
}

macro_rules! cut {
    ($($t:ty),*) => { $(impl Cut for $t {
        fn word(self) -> u64 { self as u64 }
    })* };
}

cut!(u8, u16, u32, u64);

fn apply<T: Cut>(op: Op, t: T, x: T) -> T {
    let (a, b) = (t.word(), x.word());
    T::of(match op {
        Op::Sum => a.wrapping_add(b),
        Op::Prod => a.wrapping_mul(b),
        Op::Min => a.min(b),
        Op::Max => a.max(b),
        Op::Land => u64::from(a != 0 && b != 0),
        Op::Lor => u64::from(a != 0 || b != 0),
        Op::Lxor => u64::from((a != 0) != (b != 0)),
        Op::Band => a & b,
        Op::Bor => a | b,
        Op::Bxor => a ^ b,
        Op::Replace => b,
        Op::NoOp => a,
    })
}

fn values<T: Cut>(rng: &mut StdRng, len: usize) -> Vec<T> {
    (0..len).map(|_| T::of(rng.random())).collect()
}

/// Draws the steps of one epoch and applies them to the model.
fn plan<T: Cut>(rng: &mut StdRng, model: &mut [Vec<T>]) -> Vec<Step<T>> {
    let p = model.len();
    let mut steps = Vec::new();
    for (target, memory) in model.iter_mut().enumerate() {
        let mut start = 0;
        while start < memory.len() {
            let len = *[1, 2, 3, 8, 100, 700, 5000].choose(rng).unwrap();
            let part = start..(start + len).min(memory.len());
            start = part.end;
            let kind = rng.random_range(0..5);
            let many = rng.random_range(1..5);
            let (owner, commuting) = (rng.random_range(0..p), *COMMUTING.choose(rng).unwrap());
            // Puts are not ordered among themselves nor against atomics, so one epoch has one or the other.
            let put = rng.random_bool(0.4);
            for i in 0..many {
                let a = rng.random_range(part.clone());
                let b = rng.random_range(a..part.end) + 1;
                let (at, n) = (a, b - a);
                let step = |origin, what, n: usize, rng: &mut StdRng| Step {
                    origin,
                    target,
                    at,
                    what,
                    data: values::<T>(rng, n),
                    old: None,
                };
                let mut step = match kind {
                    0 | 1 if put && i > 0 => continue,
                    0 | 1 if put => step(owner, if n == 1 { Do::PutValue } else { Do::Put }, n, rng),
                    0 | 1 => {
                        let op = *ORDERED.choose(rng).unwrap();
                        let (what, n) = match rng.random_range(0..3) {
                            0 => (Do::Accumulate(op), n),
                            1 => (Do::GetAccumulate(op), n),
                            _ => (Do::FetchAndOp(op), 1),
                        };
                        step(owner, what, n, rng)
                    }
                    2 | 3 => step(rng.random_range(0..p), Do::Accumulate(commuting), n, rng),
                    _ => step(rng.random_range(0..p), Do::Get, n, rng),
                };
                let there = &mut memory[step.at..step.at + step.data.len()];
                if !matches!(step.what, Do::Put | Do::PutValue | Do::Accumulate(_)) {
                    step.old = Some(there.to_vec());
                }
                let op = match step.what {
                    Do::Put | Do::PutValue => Op::Replace,
                    Do::Get => Op::NoOp,
                    Do::Accumulate(op) | Do::GetAccumulate(op) | Do::FetchAndOp(op) => op,
                };
                there.iter_mut().zip(&step.data).for_each(|(t, x)| *t = apply(op, *t, *x));
                steps.push(step);
            }
        }
    }
    steps
}

/// Runs some epochs on one window, whose longest part has one of `lens` elements; returns the number of operations.
///
/// # Errors
/// Those of windows.
///
/// # Panics
/// If a value differs from that of the model.
pub(crate) fn window<T: Cut>(team: &Team, config: &Config, lens: &[usize], rng: &mut StdRng) -> Result<usize> {
    let (p, me) = (team.size(), team.rank());
    let sync = *ALL.choose(rng).unwrap();
    let longest = *lens.choose(rng).unwrap();
    let mut model: Vec<Vec<T>> = (0..p).map(|_| vec![T::of(0); rng.random_range(0..=longest)]).collect();
    let mut win = Win::<T>::new(team, config, sync, model[me].len())?;
    let epochs = rng.random_range(1..6);
    let mut count = 0;
    for epoch in 0..epochs {
        let steps = plan(rng, &mut model);
        count += steps.len();
        let mine: Vec<&Step<T>> = steps.iter().filter(|s| s.origin == me).collect();
        let mut into: Vec<Vec<T>> = mine.iter().map(|s| vec![T::of(0); s.data.len()]).collect();
        let mut slots: Vec<Option<&mut Vec<T>>> = into.iter_mut().map(Some).collect();
        win.epoch(sync, |e, targets| {
            for (s, slot) in mine.iter().zip(&mut slots).filter(|(s, _)| targets.contains(&s.target)) {
                let into = slot.take().unwrap();
                match s.what {
                    Do::Put => e.put(&s.data, s.target, s.at)?,
                    Do::PutValue => e.put_value(s.data[0], s.target, s.at)?,
                    Do::Get => e.get(into, s.target, s.at)?,
                    Do::Accumulate(op) => e.accumulate(op, &s.data, s.target, s.at)?,
                    Do::GetAccumulate(op) => e.get_accumulate(op, &s.data, into, s.target, s.at)?,
                    Do::FetchAndOp(op) => e.fetch_and_op(op, &s.data[0], &mut into[0], s.target, s.at)?,
                }
            }
            Ok(())
        })?;
        for (s, got) in mine.iter().zip(&into) {
            if let Some(old) = &s.old {
                assert_eq!(got, old, "{sync:?}, epoch {epoch}: rank {me} {:?} of {} at {}", s.what, s.target, s.at);
            }
        }
        win.local(|l| {
            for (i, (x, y)) in l.iter().zip(&model[me]).enumerate() {
                assert_eq!(x, y, "{sync:?}, epoch {epoch}: element {i} of {} of rank {me}", l.len());
            }
        })?;
    }
    win.free()?;
    Ok(count)
}
