//! A failed operation is an error of its own call or of the call that closes its epoch. The closing call still
//! synchronizes: other ranks, other operations and later epochs are not affected.

use farside_rma::datatype::Datatype;
use farside_rma::{Assert, ErrorKind, LockKind, LockWindow, Op, Result, Selection, Window};

use crate::checks::config::{self, Memory, within};

const NONE: Assert = Assert::empty();

/// A selection of an element that starts at byte 1.
fn odd() -> Result<Selection<u32>> {
    let bytes = Datatype::hindexed(&[1], &[1], &Selection::<u32>::element()).unwrap();
    Selection::from_type_map(bytes.message(1).unwrap())
}

/// Runs `epoch`, which returns the outcome of the epoch, with an error at rank 0 and then without. Afterwards rank `r`
/// has the values that rank `r - 1` put.
fn recovers<W>(
    make: impl Fn(&farside_rma::Team, Memory) -> Result<W> + Send + Sync + Copy + 'static,
    epoch: impl Fn(&mut W, usize, usize, bool, [u32; 2]) -> Result<()> + Send + Sync + Copy + 'static,
    local: impl Fn(&mut W) -> Result<Vec<u32>> + Send + Sync + Copy + 'static,
    free: impl Fn(W) -> Result<()> + Send + Sync + Copy + 'static,
) {
    let configs = [config::MAPPED, config::POSTED, config::REMAP, config::VM, config::RING];
    for config in config::these(&configs) {
        for ranks in [2, 3] {
            let run = move || {
                config.run(ranks, |team| {
                    let (me, size) = (team.rank(), team.size());
                    let mut window = make(team, config.memory)?;
                    for turn in 0..4 {
                        let fails = me == 0 && turn % 2 == 0;
                        let values = [1, 2].map(|i| 100 * turn + 10 * me as u32 + i);
                        let ended = epoch(&mut window, me, (me + 1) % size, fails, values);
                        match ended {
                            Err(e) => {
                                assert!(fails && e.kind() == ErrorKind::Misaligned, "turn {turn} of rank {me}: {e}")
                            }
                            Ok(()) => assert!(!fails, "turn {turn} of rank {me}"),
                        }
                        team.barrier()?;
                        let left = ((me + size - 1) % size) as u32;
                        let expected = [0, 1, 2].map(|i| if i == 0 { 0 } else { 100 * turn + 10 * left + i });
                        assert_eq!(local(&mut window)?[..3], expected, "turn {turn} at rank {me}");
                        team.barrier()?;
                    }
                    free(window)
                })
            };
            within(60, config.name, run).unwrap_or_else(|e| panic!("{}, {ranks} ranks: {e}", config.name));
        }
    }
}

fn window(team: &farside_rma::Team, memory: Memory) -> Result<Window<'static, u32>> {
    match memory {
        Memory::Allocated => Window::allocate(team, 8),
        Memory::Vector => Window::from_vec(team, vec![0; 8]),
    }
}

fn lock_window(team: &farside_rma::Team, memory: Memory) -> Result<LockWindow<u32>> {
    match memory {
        Memory::Allocated => LockWindow::allocate(team, 8),
        Memory::Vector => LockWindow::from_vec(team, vec![0; 8]),
    }
}

/// A put, an accumulate that fails, and a put. If the accumulate is refused immediately, its error is that of the
/// epoch.
macro_rules! operations {
    ($epoch:expr, $to:expr, $fails:expr, $values:expr) => {{
        $epoch.put_value($values[0], $to, 1)?;
        let one = Selection::contiguous(1)?;
        let refused = if $fails { $epoch.accumulate_selected(Op::Sum, &[1], &one, $to, 0, &odd()?) } else { Ok(()) };
        $epoch.put_value($values[1], $to, 2)?;
        refused
    }};
}

#[test]
fn accumulate_fence_misaligned() {
    recovers(
        window,
        |w, _, to, fails, values| w.fence(NONE, |e| operations!(e, to, fails, values)),
        |w| w.local().map(<[u32]>::to_vec),
        Window::free,
    );
}

#[test]
fn accumulate_fences_misaligned() {
    recovers(
        window,
        |w, _, to, fails, values| {
            w.fences(|run| {
                let first = run.epoch(NONE, |e| operations!(e, to, fails, values));
                // The run of epochs continues.
                run.epoch(NONE, |e| e.put_value(values[1], to, 2))?;
                first
            })
        },
        |w| w.local().map(<[u32]>::to_vec),
        Window::free,
    );
}

#[test]
fn accumulate_start_misaligned_before_the_target_posts() {
    recovers(
        window,
        |w, me, to, fails, values| {
            let from = (me + w.team().size() - 1) % w.team().size();
            if me == 1 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            w.expose(&[from], NONE, |x| x.start(&[to], NONE, |e| operations!(e, to, fails, values)))
        },
        |w| w.local().map(<[u32]>::to_vec),
        Window::free,
    );
}

#[test]
fn accumulate_lock_misaligned() {
    recovers(
        lock_window,
        |w, _, to, fails, values| w.lock(LockKind::Exclusive, to, NONE, |e| operations!(e, to, fails, values)),
        |w| w.with_local(|own| Ok(own.to_vec())),
        LockWindow::free,
    );
}

#[test]
fn accumulate_lock_all_misaligned() {
    recovers(
        lock_window,
        |w, _, to, fails, values| {
            w.lock_all(NONE, |e| {
                let refused = operations!(e, to, fails, values);
                // A flush that fails leaves the epoch open.
                let flushed = e.flush(to);
                e.put_value(values[1], to, 2)?;
                refused.and(flushed)
            })
        },
        |w| w.with_local(|own| Ok(own.to_vec())),
        LockWindow::free,
    );
}
