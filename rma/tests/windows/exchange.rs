//! The ghost exchange of a stencil on a ring of ranks, under every synchronization, compared with the same steps on one
//! array. Many steps detect an epoch that ends too early, or epoch numbers that are confused.

use farside_rma::{Assert, LockKind, Result, Team};

use crate::checks::config::{Config, everywhere};
use crate::checks::sync::{Sync, Win};

const STEPS: usize = 12;

/// The new value of a cell from the cell and its neighbours; small integers, so that it is exact.
fn step(left: u64, here: u64, right: u64) -> u64 {
    (left * 3 + here * 5 + right * 7 + 1) % 1009
}

fn serial(n: usize) -> Vec<u64> {
    let mut now: Vec<u64> = (0..n as u64).map(|i| i * i % 1009).collect();
    for _ in 0..STEPS {
        let (l, r) = (|i: usize| now[(i + n - 1) % n], |i: usize| now[(i + 1) % n]);
        now = (0..n).map(|i| step(l(i), now[i], r(i))).collect();
    }
    now
}

/// A ring of cells, `len` for each rank, with a ghost at each end. With fence and PSCW a rank writes only the ghosts of
/// other ranks; under locks the ranks also need a barrier.
fn exchange(team: &Team, config: &Config, sync: Sync) -> Result<()> {
    let (p, me) = (team.size(), team.rank());
    for len in [1usize, 7, 600] {
        let expected = serial(p * len);
        let mut win = Win::<u64>::new(team, config, sync, len + 2)?;
        let mut cells: Vec<u64> = (0..len).map(|i| ((me * len + i) * (me * len + i) % 1009) as u64).collect();
        let (left, right) = ((me + p - 1) % p, (me + 1) % p);
        let group: Vec<usize> = if p <= 2 { (0..p).filter(|r| *r == left).collect() } else { vec![left, right] };
        for _ in 0..STEPS {
            let (first, last) = ([cells[0]], [cells[len - 1]]);
            let mut ghosts = [0; 2];
            let none = Assert::empty();
            match &mut win {
                Win::Active(w) => {
                    match sync {
                        Sync::Pscw => w.expose(&group, none, |x| {
                            x.start(&group, none, |e| {
                                e.put(&first, left, len + 1)?;
                                e.put(&last, right, 0)
                            })
                        })?,
                        Sync::Fences => w.fences(|f| {
                            // A first epoch puts wrong values, a second one the correct ones.
                            f.epoch(none, |e| {
                                e.put_value(5000, left, len + 1)?;
                                e.put_value(5000, right, 0)
                            })?;
                            f.epoch(none, |e| {
                                e.put(&first, left, len + 1)?;
                                e.put(&last, right, 0)
                            })
                        })?,
                        _ => w.fence(none, |e| {
                            e.put(&first, left, len + 1)?;
                            e.put(&last, right, 0)
                        })?,
                    }
                    let local = w.local()?;
                    ghosts.copy_from_slice(&[local[0], local[len + 1]]);
                }
                Win::Passive(w) => {
                    if sync == Sync::LockAll {
                        w.lock_all(none, |e| {
                            e.put(&first, left, len + 1)?;
                            e.put(&last, right, 0)?;
                            e.flush_all()
                        })?;
                    } else {
                        let kind = if sync == Sync::LockShared { LockKind::Shared } else { LockKind::Exclusive };
                        w.lock(kind, left, none, |e| e.put(&first, left, len + 1))?;
                        w.lock(kind, right, none, |e| e.put(&last, right, 0))?;
                    }
                    team.barrier()?;
                    w.with_local(|l| {
                        ghosts.copy_from_slice(&[l[0], l[len + 1]]);
                        Ok(())
                    })?;
                    team.barrier()?;
                }
            }
            let at = |i: usize| {
                if i == 0 {
                    ghosts[0]
                } else if i > len {
                    ghosts[1]
                } else {
                    cells[i - 1]
                }
            };
            cells = (1..=len).map(|i| step(at(i - 1), at(i), at(i + 1))).collect();
        }
        assert_eq!(cells, expected[me * len..][..len], "cells of rank {me}, {len} each");
        win.free()?;
    }
    Ok(())
}

macro_rules! exchange {
    ($($name:ident: $sync:ident;)*) => { $(
        #[test]
        fn $name() {
            everywhere(|team, config| exchange(team, config, Sync::$sync));
        }
    )* };
}

exchange! {
    ghost_exchange_fence: Fence;
    ghost_exchange_fences: Fences;
    ghost_exchange_pscw: Pscw;
    ghost_exchange_lock_shared: LockShared;
    ghost_exchange_lock_exclusive: LockExclusive;
    ghost_exchange_lock_all: LockAll;
}
