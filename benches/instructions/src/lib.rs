//! Counts the instructions of single calls with valgrind's callgrind: a program is run with N and with 2 N calls, and
//! the difference divided by N is the count of one call, including its loop iteration.

pub mod release;

use std::cell::Cell;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;

use farside_core::Job;
use farside_core::am::{self, Counters, Delivery, HandlerId};
use farside_core::error::{Error, ErrorKind, Result};
use farside_rma::{Assert, LockKind, LockWindow, Op, PassiveEpoch, Selection, Window};

/// The number of calls of the shorter of the two runs.
pub const CALLS: u64 = 50_000;

/// The operations that can be counted: name and description.
pub const CALLED: [(&str, &str); 16] = [
    ("loop", "the loop alone, with its arguments"),
    ("put", "put of 8 bytes, in lock_all"),
    ("put_value", "put_value of 8 bytes, in lock_all"),
    ("put_flush", "put of 8 bytes and flush, in lock_all"),
    ("get", "get of 8 bytes and flush (get_blocking), in lock_all"),
    ("accumulate", "accumulate of 8 bytes, in lock_all"),
    ("fetch_op", "fetch-and-op of 8 bytes and flush, in lock_all"),
    ("cas", "compare-and-swap of 8 bytes and flush, in lock_all"),
    ("flush", "flush with nothing to complete, in lock_all"),
    ("lock", "shared lock, put of 8 bytes, unlock"),
    ("fences", "put of 8 bytes and fence, in a chain of fence epochs"),
    ("fence", "a fence epoch by itself, with a put of 8 bytes"),
    ("by_hand", "a hand-written loop that copies 64 blocks of 8 bytes, every other element on both sides"),
    ("put_blocks", "put of the same blocks between two selections (put_selected), in lock_all"),
    ("message", "active message of 8 bytes to this rank, its arrival and its handler"),
    ("put_block", "put of 8 bytes between two selections (put_selected), in lock_all"),
];

/// The number of blocks of the copies between vectors.
const BLOCKS: usize = 64;

/// Makes `calls` calls of `name` through the typed interface, as rank 0 of 1 on its own window, which is mapped. All
/// arguments are opaque to the compiler.
///
/// # Errors
/// [`ErrorKind::BadArgument`] for an unknown name; the errors of the calls.
pub fn run(name: &str, calls: u64) -> Result<()> {
    let job = Job::init()?;
    let team = job.world()?;
    let mut active = Window::<u64>::allocate(&team, 16)?;
    let passive = LockWindow::<u64>::allocate(&team, 16 + 2 * BLOCKS)?;
    let word = [7u64; 2 * BLOCKS];
    let none = Assert::empty();
    match name {
        "loop" => (0..calls).for_each(|_| {
            black_box((words(&word), rank(), place()));
        }),
        "by_hand" => {
            let mut other = [0u64; 16 + 2 * BLOCKS];
            (0..calls).for_each(|_| by_hand(black_box(&word), black_box(&mut other[place()..]), black_box(BLOCKS)));
        }
        "lock" => (0..calls).try_for_each(|_| {
            passive.lock(LockKind::Shared, rank(), none, |epoch| epoch.put(words(&word), rank(), place()))
        })?,
        "fences" => active.fences(|fences| {
            (0..calls).try_for_each(|_| fences.epoch(none, |epoch| epoch.put(words(&word), rank(), place())))
        })?,
        "message" => messages(&job, calls)?,
        "fence" => {
            (0..calls).try_for_each(|_| active.fence(none, |epoch| epoch.put(words(&word), rank(), place())))?;
        }
        _ => passive.lock_all(none, |epoch| {
            epoch.put(&word, 0, 0)?; // the first access takes the lock
            in_lock_all(name, calls, epoch, &word)
        })?,
    }
    job.finalize()
}

/// Sends messages one at a time, each after the previous one has arrived.
fn messages(job: &Job, calls: u64) -> Result<()> {
    let sum = Rc::new(Cell::new(0));
    let seen = Rc::clone(&sum);
    job.active_messages().register(HandlerId(1), move |message: am::Message<'_>| {
        let word = message.data().and_then(|data| data.try_into().ok()).map_or(0, u64::from_le_bytes);
        seen.set(seen.get() + word);
        Delivery::Done
    })?;
    for call in 1..=calls {
        am::send(job, rank() as u32, HandlerId(1), &[], &black_box(1u64).to_le_bytes(), Counters::default())?;
        job.wait("receive a message", || Ok((sum.get() == call).then_some(())))?;
    }
    job.active_messages().unregister(HandlerId(1));
    Ok(())
}

fn in_lock_all<'scope>(
    name: &str,
    calls: u64,
    epoch: &'scope PassiveEpoch<'scope, '_, u64>,
    word: &'scope [u64; 2 * BLOCKS],
) -> Result<()> {
    // Each loop contains only its call: the call is selected before the loop.
    macro_rules! each {
        ($call:expr) => {
            (0..calls).try_for_each(|_| $call)
        };
    }
    match name {
        "put_blocks" | "put_block" => {
            let from = Selection::vector(if name == "put_block" { 1 } else { BLOCKS }, 1, 2)?;
            let to = from.clone();
            each!(epoch.put_selected(black_box(&word[..]), black_box(&from), rank(), place(), black_box(&to)))
        }
        "put" => each!(epoch.put(words(word), rank(), place())),
        "put_value" => each!(epoch.put_value(black_box(7), rank(), place())),
        "put_flush" => each!(epoch.put(words(word), rank(), place()).and_then(|()| epoch.flush(rank()))),
        "get" => each!(epoch.get_blocking(rank(), place()).map(|value| _ = black_box(value))),
        "accumulate" => each!(epoch.accumulate(black_box(Op::Sum), words(word), rank(), place())),
        "fetch_op" => {
            each!(
                epoch
                    .fetch_and_op_blocking(black_box(Op::Sum), black_box(1), rank(), place())
                    .map(|old| _ = black_box(old))
            )
        }
        "cas" => {
            each!(
                epoch
                    .compare_and_swap_blocking(black_box(1), black_box(2), rank(), place())
                    .map(|old| _ = black_box(old))
            )
        }
        "flush" => each!(epoch.flush(rank())),
        _ => {
            Err(Error::new(ErrorKind::BadArgument, "count instructions")
                .cause(format!("there is no measured call {name}")))
        }
    }
}

#[inline(always)]
fn words(word: &[u64; 2 * BLOCKS]) -> &[u64] {
    black_box(&word[..1])
}

/// The loop that a programmer would write: every other element, with one bounds check per buffer.
#[inline(never)]
fn by_hand(from: &[u64], to: &mut [u64], blocks: usize) {
    let (from, to) = (&from[..2 * blocks - 1], &mut to[..2 * blocks - 1]);
    for (from, to) in from.iter().step_by(2).zip(to.iter_mut().step_by(2)) {
        *to = *from;
    }
}

#[inline(always)]
fn rank() -> usize {
    black_box(0)
}

#[inline(always)]
fn place() -> usize {
    black_box(3)
}

/// Whether valgrind is installed.
#[must_use]
pub fn has_valgrind() -> bool {
    let version = Command::new("valgrind").arg("--version").stdin(Stdio::null()).output();
    version.is_ok_and(|output| output.status.success())
}

/// Instructions of one call of `name`, including its loop iteration, with these settings; `program` is the program
/// `instructions`.
///
/// # Errors
/// [`ErrorKind::System`] if valgrind cannot be started; [`ErrorKind::Aborted`] if it or the program fails.
pub fn of_one(program: &Path, name: &str, settings: &[(&str, &str)]) -> Result<f64> {
    let [once, twice] = [CALLS, 2 * CALLS].map(|calls| total(program, name, calls, settings));
    Ok((twice? as f64 - once? as f64) / CALLS as f64)
}

fn total(program: &Path, name: &str, calls: u64, settings: &[(&str, &str)]) -> Result<u64> {
    const OP: &str = "count instructions";
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["--run", name, "--calls", &calls.to_string()])
        .envs(settings.iter().copied())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::system(OP, error))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    collected.filter(|_| output.status.success()).ok_or_else(|| {
        let last: Vec<&str> = text.lines().rev().take(5).collect();
        Error::new(ErrorKind::Aborted, OP).cause(format!("{name}, {}: {}", output.status, last.join(" / ")))
    })
}
