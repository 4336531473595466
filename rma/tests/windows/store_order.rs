#![allow(unsafe_code)]
//! A read after a flush is ordered after the writes before the flush. Two ranks each write a word at one place,
//! complete the write, and read the word that the other rank writes: at least one of them must find it. A CPU lets a
//! load overtake an earlier store, so without a fence in between neither finds it in a few of the thousands of rounds.

use farside_rma::raw::{Options, RawWindow};
use farside_rma::{Assert, Op, Result, Team};

use crate::checks::config::{self, Config, within};

fn rounds() -> usize {
    if config::quick() { 200 } else { 20_000 }
}

/// Runs `run` on two ranks, and compares the values that the two have read in each round. The ranks start each round
/// together, synchronized by a word that both poll.
fn both_ways(config: Config, run: impl Fn(&Team, usize, &dyn Fn(usize)) -> Result<Vec<u64>> + Sync + Send + 'static) {
    if config::served() {
        return println!("skipped: a rank that polls a word of its own outside the runtime serves no get");
    }
    /// One test at a time, since the reordering shows only on two cores.
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let name = config.name;
    let rounds = rounds();
    let found = within(120, "both ways", move || {
        let come = [const { std::sync::atomic::AtomicUsize::new(0) }; 2];
        config.run(2, |team| {
            let (me, other) = (&come[team.rank()], &come[1 - team.rank()]);
            let together = |round: usize| {
                // SeqCst: pairs with the load of the other rank, so that accesses of earlier rounds do not overlap.
                me.store(round + 1, std::sync::atomic::Ordering::SeqCst);
                let mut looks = 0u32;
                while other.load(std::sync::atomic::Ordering::SeqCst) <= round {
                    looks += 1;
                    if looks.is_multiple_of(1 << 10) {
                        std::thread::yield_now();
                    }
                    assert!(looks < 1 << 28, "the other rank does not reach round {round}");
                }
            };
            run(team, rounds, &together)
        })
    })
    .unwrap_or_else(|e| panic!("{name}: {e}"));
    let neither = (0..rounds).filter(|i| found[0][*i] == 0 && found[1][*i] == 0).count();
    assert_eq!(neither, 0, "{name}: rounds, out of {rounds}, in which neither rank read the other's value");
    assert!(found.iter().flatten().any(|x| *x != 0), "{name}: no value was ever read");
}

/// Bytes from one place to the next: each position has its own cache line, which the reader owns and the writer must
/// fetch.
const LINE: usize = 64;

/// Runs all rounds in one lock_all epoch of an untyped window: in round i rank r writes place 2 i + r of the other
/// rank, and reads place 2 i + 1 - r of its own memory.
fn flushed(
    config: Config,
    write: impl Fn(&RawWindow, usize, usize) -> Result<()> + Sync + Send + 'static,
    read: impl Fn(&RawWindow, &mut u64, usize, usize) -> Result<()> + Sync + Send + 'static,
) {
    both_ways(config, move |team, rounds, together| {
        let w = RawWindow::allocate(team, 2 * LINE * rounds, Options::default())?;
        let (me, other) = (team.rank(), 1 - team.rank());
        let mut found = vec![0u64; rounds];
        w.lock_all(Assert::empty())?;
        for (i, found) in found.iter_mut().enumerate() {
            get(&w, found, me, LINE * (2 * i + other))?;
            w.flush(me)?;
        }
        team.barrier()?;
        for (i, found) in found.iter_mut().enumerate() {
            together(i);
            write(&w, other, LINE * (2 * i + me))?;
            w.flush(other)?;
            read(&w, found, me, LINE * (2 * i + other))?;
            w.flush(me)?;
        }
        w.unlock_all()?;
        w.free()?;
        Ok(found)
    });
}

fn put(w: &RawWindow, target: usize, offset: usize) -> Result<()> {
    w.put_value(1u64, target, offset)
}

fn get(w: &RawWindow, found: &mut u64, target: usize, offset: usize) -> Result<()> {
    // SAFETY: the variable outlives the flush.
    unsafe { w.get((&raw mut *found).cast(), 8, target, offset) }
}

#[test]
fn get_after_a_flush_does_not_overtake_a_put() {
    for config in config::these(&[config::MAPPED, config::POSTED, config::VM]) {
        flushed(config, put, get);
    }
}

#[test]
fn atomic_read_after_a_flush_does_not_overtake_a_replacement() {
    for config in config::these(&[config::MAPPED, config::POSTED]) {
        let replace = |w: &RawWindow, target, offset| {
            // SAFETY: the operand is a constant and outlives the flush.
            unsafe { w.accumulate(Op::Replace, &1u64, std::ptr::null_mut(), 1, target, offset) }
        };
        let read = |w: &RawWindow, found: &mut u64, target, offset| {
            // SAFETY: the variable outlives the flush; the operand is not read.
            unsafe { w.accumulate(Op::NoOp, &0u64, found, 1, target, offset) }
        };
        flushed(config, replace, read);
        flushed(config, replace, get);
        flushed(config, put, read);
    }
}
