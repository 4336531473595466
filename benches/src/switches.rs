//! Time of a switch between two ranks of a simulation, as coroutines of one thread and as threads of which one runs at
//! a time.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use clap::Args;
use corosensei::{Coroutine, CoroutineResult};
use farside_core::error::Result;

/// Measures the time of a switch between coroutines, and between threads that run one at a time.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Number of switches of each kind.
    #[arg(long, default_value_t = 200_000)]
    switches: u32,
}

/// Nanoseconds of a switch from the scheduler to a coroutine or back.
fn coroutines(switches: u32) -> f64 {
    let mut ranks: [Coroutine<(), (), ()>; 2] = [(); 2].map(|()| {
        Coroutine::new(|yielder, ()| {
            loop {
                yielder.suspend(());
            }
        })
    });
    let begin = Instant::now();
    for turn in 0..switches / 2 {
        let CoroutineResult::Yield(()) = ranks[turn as usize % 2].resume(()) else { unreachable!() };
    }
    let time = begin.elapsed();
    // The coroutines never end on their own.
    ranks.iter_mut().for_each(Coroutine::force_unwind);
    time.as_secs_f64() * 1e9 / f64::from(switches)
}

/// Nanoseconds of handing the baton from one thread to the other.
fn threads(switches: u32) -> f64 {
    let (baton, passed) = (Mutex::new(0u32), Condvar::new());
    let rank = |me: u32| {
        let mut turn = baton.lock().unwrap_or_else(PoisonError::into_inner);
        while *turn < switches {
            if *turn % 2 == me {
                *turn += 1;
                passed.notify_one();
            } else {
                turn = passed.wait(turn).unwrap_or_else(PoisonError::into_inner);
            }
        }
        passed.notify_one();
    };
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| rank(0));
        rank(1);
    });
    begin.elapsed().as_secs_f64() * 1e9 / f64::from(switches)
}

impl Arguments {
    pub(crate) fn run(self) -> Result<bool> {
        let (coroutines, threads) = (coroutines(self.switches), threads(self.switches));
        println!("coroutines {coroutines:.0} ns, threads {threads:.0} ns a switch: {:.0} times", threads / coroutines);
        Ok(true)
    }
}
