//! Suite "epoch": whole synchronization epochs with one put each, between the ranks of every pair (2k, 2k+1).

use farside_core::error::{Error, ErrorKind, Result};
use farside_rma::{Assert, LockKind, LockWindow, Window as ActiveWindow};

use super::pages::Pages;
use super::untyped::Untyped;
use super::{Bench, Method, What};
use crate::record::{Op, Suite, Sync, Window};

/// Synchronization, operation, and how many epochs an iteration of each is.
const PATTERNS: [(Sync, Op, u32); 5] = [
    (Sync::Fence, Op::Put, 1),
    (Sync::Fence, Op::Put1, 1),
    (Sync::Pscw, Op::Put, 2),
    (Sync::Lock, Op::Put, 1),
    (Sync::LockExclusive, Op::Put, 1),
];

/// Measures all epochs on windows of this kind. Collective.
pub(super) fn run(bench: &Bench<'_>, window: Window, sizes: &[u64]) -> Result<()> {
    let largest = sizes.last().copied().unwrap_or(1) as usize;
    if window == Window::Allocated {
        let mut typed = Typed::new(bench, largest)?;
        for &bytes in sizes {
            for (sync, op, epochs) in PATTERNS.into_iter().chain([(Sync::FenceClosure, Op::Put, 1)]) {
                measure(bench, &mut typed, window, sync, op, epochs, bytes as usize)?;
            }
        }
        if bench.budget.method == Method::Packets {
            measure(bench, &mut typed, window, Sync::Pscw, Op::Empty, 2, 0)?;
        }
        typed.free()
    } else {
        let mut user = User { pair: Pair::of(bench), window: Untyped::new(&bench.team, window, largest)? };
        for &bytes in sizes {
            for (sync, op, epochs) in PATTERNS {
                measure(bench, &mut user, window, sync, op, epochs, bytes as usize)?;
            }
        }
        user.window.free()
    }
}

/// The patterns over one way of making windows.
trait Patterns {
    /// Fills the origin's data with the pattern of `seed`, and this rank's window with zeros.
    fn prepare(&mut self, sync: Sync, bytes: usize, seed: usize) -> Result<()>;
    /// The first bytes of this rank's window.
    fn arrived(&mut self, sync: Sync, bytes: usize) -> Result<Vec<u8>>;
    /// Iterations of the pattern.
    fn epochs(&mut self, sync: Sync, op: Op, bytes: usize, iterations: u64) -> Result<()>;
}

/// Runs the pattern once on fresh data and looks at what arrived; then measures it.
fn measure(
    bench: &Bench<'_>,
    patterns: &mut dyn Patterns,
    window: Window,
    sync: Sync,
    op: Op,
    per_iteration: u32,
    bytes: usize,
) -> Result<()> {
    // The odd rank puts too in fence epochs of both, and on the way back of post-start-complete-wait.
    let both = matches!((sync, op), (Sync::Fence | Sync::FenceClosure | Sync::Pscw, Op::Put));
    let seed = |rank: usize| rank + bytes + 5 * sync as usize + 3 * op as usize;
    patterns.prepare(sync, bytes, seed(bench.rank))?;
    bench.team.barrier()?;
    patterns.epochs(sync, op, bytes, 1)?;
    bench.team.barrier()?;
    let wanted = if both || !bench.is_origin() { pattern(bytes, seed(bench.partner())) } else { vec![0; bytes] };
    let holds = patterns.arrived(sync, bytes)? == wanted;
    bench.check(holds, Suite::Epoch, sync, op, "the put did not arrive, or another did")?;
    bench.team.barrier()?;
    let what = What { suite: Suite::Epoch, window, sync, op, bytes, per_iteration };
    bench.measure(&what, both || bench.is_origin(), &mut |iterations| patterns.epochs(sync, op, bytes, iterations))
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|i| (seed * 89 + i * 7 + i / 251 + 1) as u8).collect()
}

/// With whom, and who acts.
#[derive(Clone, Copy)]
struct Pair {
    partner: usize,
    is_origin: bool,
}

impl Pair {
    fn of(bench: &Bench<'_>) -> Self {
        Self { partner: bench.partner(), is_origin: bench.is_origin() }
    }
}

/// The typed windows, allocated: one for active and one for passive target epochs.
struct Typed {
    pair: Pair,
    active: ActiveWindow<'static, u8>,
    passive: LockWindow<u8>,
    origin: Pages,
}

impl Typed {
    fn new(bench: &Bench<'_>, bytes: usize) -> Result<Self> {
        Ok(Self {
            pair: Pair::of(bench),
            active: ActiveWindow::allocate(&bench.team, bytes)?,
            passive: LockWindow::allocate(&bench.team, bytes)?,
            origin: Pages::new(bytes)?,
        })
    }

    fn free(self) -> Result<()> {
        self.active.free()?;
        self.passive.free()
    }
}

impl Patterns for Typed {
    fn prepare(&mut self, sync: Sync, bytes: usize, seed: usize) -> Result<()> {
        self.origin[..bytes].copy_from_slice(&pattern(bytes, seed));
        if is_passive(sync) {
            self.passive.with_local(|memory| {
                memory[..bytes].fill(0);
                Ok(())
            })
        } else {
            self.active.local_mut()?[..bytes].fill(0);
            Ok(())
        }
    }

    fn arrived(&mut self, sync: Sync, bytes: usize) -> Result<Vec<u8>> {
        if is_passive(sync) {
            self.passive.with_local(|memory| Ok(memory[..bytes].to_vec()))
        } else {
            Ok(self.active.local()?[..bytes].to_vec())
        }
    }

    fn epochs(&mut self, sync: Sync, op: Op, bytes: usize, iterations: u64) -> Result<()> {
        let Self { pair: Pair { partner, is_origin }, active, passive, origin } = self;
        let (from, partner, is_origin) = (&origin[..bytes], *partner, *is_origin);
        match (sync, op) {
            (Sync::Fence, Op::Put1) if !is_origin => {
                active.fences(|fences| (0..iterations).try_for_each(|_| fences.epoch(Assert::empty(), |_| Ok(()))))
            }
            (Sync::Fence, _) => active.fences(|fences| {
                (0..iterations).try_for_each(|_| fences.epoch(Assert::empty(), |epoch| epoch.put(from, partner, 0)))
            }),
            (Sync::FenceClosure, _) => {
                (0..iterations).try_for_each(|_| active.fence(Assert::empty(), |epoch| epoch.put(from, partner, 0)))
            }
            (Sync::Pscw, _) => {
                for _ in 0..iterations {
                    if !is_origin {
                        active.expose(&[partner], Assert::empty(), |_| Ok(()))?;
                    }
                    active.start(&[partner], Assert::empty(), |epoch| match op {
                        Op::Empty => Ok(()),
                        _ => epoch.put(from, partner, 0),
                    })?;
                    if is_origin {
                        active.expose(&[partner], Assert::empty(), |_| Ok(()))?;
                    }
                }
                Ok(())
            }
            (Sync::Lock | Sync::LockExclusive, _) if !is_origin => Ok(()),
            (Sync::Lock | Sync::LockExclusive, _) => (0..iterations).try_for_each(|_| {
                passive.lock(kind(sync), partner, Assert::empty(), |epoch| epoch.put(from, partner, 0))
            }),
            _ => Err(unknown(sync)),
        }
    }
}

/// The untyped window over user memory.
struct User {
    pair: Pair,
    window: Untyped,
}

impl Patterns for User {
    fn prepare(&mut self, _: Sync, bytes: usize, seed: usize) -> Result<()> {
        self.window.set_origin(&pattern(bytes, seed))?;
        self.window.fill_local(0, bytes)
    }

    fn arrived(&mut self, _: Sync, bytes: usize) -> Result<Vec<u8>> {
        self.window.local(bytes)
    }

    fn epochs(&mut self, sync: Sync, op: Op, bytes: usize, iterations: u64) -> Result<()> {
        let (window, raw, Pair { partner, is_origin }) = (&self.window, self.window.raw(), self.pair);
        let put = || window.put(0, bytes, partner, 0);
        match sync {
            Sync::Fence => {
                raw.fence(Assert::NOPRECEDE)?;
                for _ in 0..iterations {
                    if is_origin || op == Op::Put {
                        put()?;
                    }
                    raw.fence(Assert::empty())?;
                }
                Ok(())
            }
            Sync::Pscw => {
                for _ in 0..iterations {
                    if !is_origin {
                        raw.post(&[partner], Assert::empty())?;
                        raw.wait()?;
                    }
                    raw.start(&[partner], Assert::empty())?;
                    put()?;
                    raw.complete()?;
                    if is_origin {
                        raw.post(&[partner], Assert::empty())?;
                        raw.wait()?;
                    }
                }
                Ok(())
            }
            Sync::Lock | Sync::LockExclusive if !is_origin => Ok(()),
            Sync::Lock | Sync::LockExclusive => {
                for _ in 0..iterations {
                    raw.lock(kind(sync), partner, Assert::empty())?;
                    put()?;
                    raw.unlock(partner)?;
                }
                Ok(())
            }
            _ => Err(unknown(sync)),
        }
    }
}

fn is_passive(sync: Sync) -> bool {
    matches!(sync, Sync::Lock | Sync::LockExclusive)
}

fn kind(sync: Sync) -> LockKind {
    if sync == Sync::Lock { LockKind::Shared } else { LockKind::Exclusive }
}

fn unknown(sync: Sync) -> Error {
    Error::new(ErrorKind::BadArgument, "measure an epoch").cause(format!("{sync} is no epoch"))
}
