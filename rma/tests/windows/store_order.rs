#![allow(unsafe_code)]
//! What a rank reads after a flush does not come from before what it wrote ahead of it. Two ranks each write a word at
//! one place, complete that, and read the other's at another place: both cannot find nothing. A processor lets a load
//! overtake the store ahead of it, so that without a fence in between both do, in a few of the thousands of rounds.

use farside_rma::raw::{Options, RawWindow};
use farside_rma::{Assert, Op, Result, Team};

use crate::checks::config::{self, Config, within};

fn rounds() -> usize {
    if config::quick() { 200 } else { 20_000 }
}

/// Runs `write` and then `read` with each round's place on two ranks, and compares what the two have read. The ranks come
/// to each round together, as nearly as a word that both look at can have it.
fn both_ways(config: Config, run: impl Fn(&Team, usize, &dyn Fn(usize)) -> Result<Vec<u64>> + Sync + Send + 'static) {
    /// One at a time: what is looked for needs two cores.
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let name = config.name;
    let rounds = rounds();
    let found = within(120, "both ways", move || {
        let come = [const { std::sync::atomic::AtomicUsize::new(0) }; 2];
        config.run(2, |team| {
            let (me, other) = (&come[team.rank()], &come[1 - team.rank()]);
            let together = |round: usize| {
                // SeqCst: nothing is to be seen from before.
                me.store(round + 1, std::sync::atomic::Ordering::SeqCst);
                let mut looks = 0u32;
                while other.load(std::sync::atomic::Ordering::SeqCst) <= round {
                    looks += 1;
                    if looks.is_multiple_of(1 << 10) {
                        std::thread::yield_now();
                    }
                    assert!(looks < 1 << 28, "the other rank does not come to round {round}");
                }
            };
            run(team, rounds, &together)
        })
    })
    .unwrap_or_else(|e| panic!("{name}: {e}"));
    let neither = (0..rounds).filter(|i| found[0][*i] == 0 && found[1][*i] == 0).count();
    assert_eq!(neither, 0, "{name}: in so many of {rounds} rounds neither rank read what the other had written");
    assert!(found.iter().flatten().any(|x| *x != 0), "{name}: nothing was ever read");
}

/// Bytes from one place to the next: each has a line, which its reader has and its writer has to fetch.
const LINE: usize = 64;

/// In one lock_all epoch of an untyped window: in round i rank r writes place 2 i + r of the other, and reads place
/// 2 i + 1 - r of its own.
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
    // SAFETY: flushed while the variable lives.
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
            // SAFETY: flushed while the operand, a constant, lives.
            unsafe { w.accumulate(Op::Replace, &1u64, std::ptr::null_mut(), 1, target, offset) }
        };
        let read = |w: &RawWindow, found: &mut u64, target, offset| {
            // SAFETY: flushed while the variable lives; no operand is looked at.
            unsafe { w.accumulate(Op::NoOp, &0u64, found, 1, target, offset) }
        };
        flushed(config, replace, read);
        flushed(config, replace, get);
        flushed(config, put, read);
    }
}
