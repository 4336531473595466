//! Soak test: random operations over random windows, epochs and ranks; every element and every value read is compared
//! with a sequential model. The seed is printed. `FARSIDE_SOAK_SEED` sets the seed, `FARSIDE_SOAK_SECONDS` the duration
//! (default 5 s).
//!
//! All ranks draw the same plan from the seed. In an epoch every part of a target's memory is used either by one
//! origin, with any operations in order, or by all origins, with one commuting operation, or by readers.

#[path = "windows/checks/mod.rs"]
mod checks;

use std::io::{Read, Seek};
use std::time::{Duration, Instant};

use checks::config::{self, Config, Memory, within};
use checks::sync::{ALL, Win};
use checks::values::Value;
use farside_rma::{Job, Op, Result, Team};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

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
trait Cut: Value {
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

/// Runs some epochs on one window; returns the number of operations.
fn window<T: Cut>(team: &Team, config: &Config, rng: &mut StdRng) -> Result<usize> {
    let (p, me) = (team.size(), team.rank());
    let sync = *ALL.choose(rng).unwrap();
    let longest = *[3usize, 60, 3000, 20_000].choose(rng).unwrap();
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

/// Runs `windows` random windows, the same on all ranks. Returns the number of operations.
fn soak(team: &Team, config: &Config, seed: u64, windows: usize) -> Result<usize> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut count = 0;
    for _ in 0..windows {
        count += match rng.random_range(0..4) {
            0 => window::<u8>(team, config, &mut rng)?,
            1 => window::<u16>(team, config, &mut rng)?,
            2 => window::<u32>(team, config, &mut rng)?,
            _ => window::<u64>(team, config, &mut rng)?,
        };
    }
    Ok(count)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}

fn seed() -> u64 {
    number("FARSIDE_SOAK_SEED").unwrap_or_else(rand::random)
}

fn seconds() -> Duration {
    Duration::from_secs(number("FARSIDE_SOAK_SECONDS").unwrap_or(5))
}

#[test]
fn random_operations_equal_the_model_threads() {
    let first = seed();
    println!("FARSIDE_SOAK_SEED={first}");
    let since = Instant::now();
    let (mut runs, mut count) = (0u64, 0);
    while since.elapsed() < seconds() {
        let seed = first.wrapping_add(runs);
        let mut rng = StdRng::seed_from_u64(seed ^ 0x5eed);
        let config = *config::table().choose(&mut rng).unwrap();
        let n = rng.random_range(1..=6);
        let what = format!("FARSIDE_SOAK_SEED={seed}: {n} ranks, {}", config.name);
        let run = move || config.run(n, |team| soak(team, &config, seed, 3));
        let counts = within(120, &what, run).unwrap_or_else(|e| panic!("{what}: {e}"));
        count += counts[0];
        runs += 1;
    }
    println!("{runs} runs, {count} operations");
    assert!(count > 0);
}

/// The same with processes, if `farside run` has been built: this program starts itself as the ranks.
#[test]
fn random_operations_equal_the_model_processes() {
    if let Some(seed) = number("FARSIDE_SOAK_RANK") {
        let job = Job::init().unwrap();
        let memory = if number("FARSIDE_SOAK_VECTOR") == Some(1) { Memory::Vector } else { Memory::Allocated };
        let config = Config { name: "processes", memory, settings: &[], device: None, seed: None };
        // Each rank reads its own clock, so the number of windows is fixed instead of the duration.
        let windows = number("FARSIDE_SOAK_WINDOWS").unwrap_or(1) as usize;
        soak(&job.world().unwrap(), &config, seed, windows).unwrap();
        return job.finalize().unwrap();
    }
    // An emulated machine is slower.
    let (windows, limit) = if config::verbs() { ("2", 180) } else { ("8", 60) };
    let first = seed();
    println!("FARSIDE_SOAK_SEED={first}");
    let since = Instant::now();
    let mut runs = 0u64;
    while since.elapsed() < seconds() {
        let seed = first.wrapping_add(runs);
        let (user_memory, vector) = [("auto", 0), ("remap", 1), ("vm", 1), ("ring", 1)][runs as usize % 4];
        let n = 1 + (seed % 5);
        let what = format!("FARSIDE_SOAK_SEED={seed}, {n} ranks, {user_memory}, vector {vector}");
        let mut log = tempfile::tempfile().unwrap();
        let mut job = std::process::Command::new(farside_harness::farside())
            .args(["run", "-n", &n.to_string()])
            .args(farside_harness::itself("random_operations_equal_the_model_processes"))
            .env("FARSIDE_SOAK_RANK", seed.to_string())
            .env("FARSIDE_SOAK_WINDOWS", windows)
            .env("FARSIDE_SOAK_VECTOR", vector.to_string())
            .env("FARSIDE_SHM_USER_MEMORY", user_memory)
            .env("FARSIDE_TEST_FAULT", if runs % 8 == 4 { "unmapped" } else { "none" })
            .stdout(log.try_clone().unwrap())
            .stderr(log.try_clone().unwrap())
            .spawn()
            .unwrap();
        let started = Instant::now();
        let status = loop {
            if let Some(status) = job.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > Duration::from_secs(limit) {
                // Ranks end with their launcher.
                job.kill().and_then(|()| job.wait()).unwrap();
                panic!("{what}: still not done after {limit} s");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let mut text = String::new();
        log.rewind().and_then(|()| log.read_to_string(&mut text)).unwrap();
        assert!(status.success(), "{what}:\n{text}");
        runs += 1;
    }
    println!("{runs} runs as processes");
}
