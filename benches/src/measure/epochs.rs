//! Suite "epoch": whole synchronization epochs with one put each, between the ranks of every pair (2k, 2k+1); and suite
//! "ghost": the ghost-area exchange of Thakur, Gropp and Toonen (EuroPVM/MPI 2004, section 1). There the ranks form a
//! periodic two-dimensional grid; every rank sends n integers to each of its four neighbours. Neighbours may be the
//! same rank, also the sender itself; there are always four transfers into four separate areas. The lock version is
//! that of the paper: on return a rank's own data have arrived at its neighbours, but the neighbours' data need not
//! have arrived.

use farside_core::error::Result;
use farside_rma::{Assert, LockKind, LockWindow, Window as ActiveWindow};

use super::untyped::Untyped;
use super::{Bench, Method};
use crate::pages::Pages;
use crate::plan::{EPOCHS, FENCE_CLOSURE, sorted};
use crate::record::{Key, Op, Suite, Sync, Window};

/// West, east, north, south: the opposite of d is d ^ 1.
pub(super) const DIRECTIONS: usize = 4;
pub(super) const INTEGER: usize = size_of::<i32>();

/// One put of an epoch: an offset in the origin's memory, and an offset at the target.
#[derive(Clone, Copy)]
struct Put {
    from: usize,
    target: usize,
    to: usize,
}

/// The operations of an epoch.
struct Epoch<'a> {
    sync: Sync,
    puts: &'a [Put],
    /// Length of each put.
    bytes: usize,
    /// The ranks of this rank's start and post calls.
    group: &'a [usize],
    /// Whether each fence closes an epoch and opens the next; otherwise each epoch has its own opening fence.
    chain: bool,
    fence: Assert,
    /// In PSCW, whether this rank's access epoch comes before its exposure epoch, as in a round trip; otherwise the
    /// access epoch is nested in the exposure epoch.
    starts_first: Option<bool>,
}

/// The windows of one kind, with the memory of their puts.
#[allow(clippy::large_enum_variant)] // there is one at a time
enum Windows {
    /// Typed, allocated windows: one for active and one for passive target epochs.
    Typed { active: ActiveWindow<'static, u8>, passive: LockWindow<u8>, origin: Pages },
    /// An untyped window over user memory.
    User(Untyped),
}

impl Windows {
    fn new(bench: &Bench<'_>, window: Window, bytes: usize) -> Result<Self> {
        if window != Window::Allocated {
            return Ok(Self::User(Untyped::new(&bench.team, window, bytes)?));
        }
        let (active, passive) =
            (ActiveWindow::allocate(&bench.team, bytes)?, LockWindow::allocate(&bench.team, bytes)?);
        Ok(Self::Typed { active, passive, origin: Pages::new(bytes)? })
    }

    fn free(self) -> Result<()> {
        match self {
            Self::Typed { active, passive, .. } => active.free().and_then(|()| passive.free()),
            Self::User(window) => window.free(),
        }
    }

    /// Sets the data of puts, and the same number of bytes of this rank's window to `value`.
    fn prepare(&mut self, sync: Sync, out: &[u8], value: u8) -> Result<()> {
        let len = out.len();
        match self {
            Self::Typed { active, passive, origin } => {
                origin[..len].copy_from_slice(out);
                if is_passive(sync) {
                    return passive.with_local(|memory| {
                        memory[..len].fill(value);
                        Ok(())
                    });
                }
                active.local_mut()?[..len].fill(value);
                Ok(())
            }
            Self::User(window) => window.set_origin(out).and_then(|()| window.fill_local(value, len)),
        }
    }

    /// The first bytes of this rank's window.
    fn arrived(&self, sync: Sync, len: usize) -> Result<Vec<u8>> {
        match self {
            Self::Typed { passive, .. } if is_passive(sync) => passive.with_local(|memory| Ok(memory[..len].to_vec())),
            Self::Typed { active, .. } => Ok(active.local()?[..len].to_vec()),
            Self::User(window) => window.local(len),
        }
    }

    fn run(&mut self, epoch: &Epoch<'_>, iterations: u64) -> Result<()> {
        match self {
            Self::Typed { active, passive, origin } => typed(active, passive, origin, epoch, iterations),
            Self::User(window) => untyped(window, epoch, iterations),
        }
    }
}

fn typed(
    active: &mut ActiveWindow<'static, u8>,
    passive: &LockWindow<u8>,
    origin: &Pages,
    epoch: &Epoch<'_>,
    iterations: u64,
) -> Result<()> {
    let &Epoch { sync, puts, bytes, group, fence, .. } = epoch;
    let none = Assert::empty();
    let from = |put: &Put| &origin[put.from..put.from + bytes];
    macro_rules! puts {
        () => {
            |epoch| puts.iter().try_for_each(|put| epoch.put(from(put), put.target, put.to))
        };
    }
    match sync {
        Sync::Lock | Sync::LockExclusive => (0..iterations).try_for_each(|_| {
            puts.iter().try_for_each(|put| {
                passive.lock(kind(sync), put.target, none, |epoch| epoch.put(from(put), put.target, put.to))
            })
        }),
        Sync::Pscw => (0..iterations).try_for_each(|_| match epoch.starts_first {
            None => active.expose(group, none, |exposure| exposure.start(group, none, puts!())),
            Some(true) => {
                active.start(group, none, puts!())?;
                active.expose(group, none, |_| Ok(()))
            }
            Some(false) => {
                active.expose(group, none, |_| Ok(()))?;
                active.start(group, none, puts!())
            }
        }),
        _ if epoch.chain => active.fences(|fences| (0..iterations).try_for_each(|_| fences.epoch(fence, puts!()))),
        _ => (0..iterations).try_for_each(|_| active.fence(fence, puts!())),
    }
}

fn untyped(window: &Untyped, epoch: &Epoch<'_>, iterations: u64) -> Result<()> {
    let &Epoch { sync, puts, bytes, group, fence, .. } = epoch;
    let (raw, none) = (window.raw(), Assert::empty());
    let put = |put: &Put| window.put(put.from, bytes, put.target, put.to);
    let start = || {
        raw.start(group, none)?;
        puts.iter().try_for_each(put)?;
        raw.complete()
    };
    match sync {
        Sync::Lock | Sync::LockExclusive => (0..iterations).try_for_each(|_| {
            puts.iter().try_for_each(|one| {
                raw.lock(kind(sync), one.target, none)?;
                put(one)?;
                raw.unlock(one.target)
            })
        }),
        Sync::Pscw => (0..iterations).try_for_each(|_| {
            if epoch.starts_first == Some(true) {
                start()?;
            }
            raw.post(group, none)?;
            if epoch.starts_first.is_none() {
                start()?;
            }
            raw.wait()?;
            if epoch.starts_first == Some(false) { start() } else { Ok(()) }
        }),
        _ if epoch.chain => {
            raw.fence(Assert::NOPRECEDE)?;
            (0..iterations).try_for_each(|_| puts.iter().try_for_each(put).and_then(|()| raw.fence(fence)))
        }
        _ => (0..iterations).try_for_each(|_| {
            raw.fence(Assert::NOPRECEDE)?;
            puts.iter().try_for_each(put)?;
            raw.fence(fence | Assert::NOSUCCEED)
        }),
    }
}

fn is_passive(sync: Sync) -> bool {
    matches!(sync, Sync::Lock | Sync::LockExclusive)
}

fn kind(sync: Sync) -> LockKind {
    if sync == Sync::Lock { LockKind::Shared } else { LockKind::Exclusive }
}

/// Measures all epochs on windows of this kind. Collective.
pub(super) fn epochs(bench: &Bench<'_>, window: Window, sizes: &[u64]) -> Result<()> {
    let mut windows = Windows::new(bench, window, sizes.last().copied().unwrap_or(1) as usize)?;
    let typed = window == Window::Allocated;
    for &bytes in sizes {
        for (sync, op, each) in EPOCHS.into_iter().chain(typed.then_some(FENCE_CLOSURE)) {
            measure_epoch(bench, &mut windows, bench.key(Suite::Epoch, window, sync, op, bytes as usize), each)?;
        }
    }
    if typed && bench.budget.method == Method::Packets {
        measure_epoch(bench, &mut windows, bench.key(Suite::Epoch, window, Sync::Pscw, Op::Empty, 0), 2)?;
    }
    windows.free()
}

/// Runs the epoch once on fresh data and checks the result; then measures it.
fn measure_epoch(bench: &Bench<'_>, windows: &mut Windows, key: Key, per_iteration: u32) -> Result<()> {
    let Key { sync, op, .. } = key;
    let (origin, target, bytes) = (bench.is_origin(), bench.partner(), key.bytes as usize);
    // The odd rank also puts, in fence epochs in which both put, and in the second half of a post-start-complete-wait
    // round trip.
    let both = !is_passive(sync) && op == Op::Put;
    let puts: &[_] = if (both || origin) && op != Op::Empty { &[Put { from: 0, target, to: 0 }] } else { &[] };
    let (group, chain, fence) = (&[target], sync == Sync::Fence, Assert::empty());
    let epoch = Epoch { sync, puts, bytes, group, chain, fence, starts_first: Some(origin) };
    let seed = |rank: usize| rank + bytes + 5 * sync as usize + 3 * op as usize;
    windows.prepare(sync, &pattern(bytes, seed(bench.rank)), 0)?;
    bench.team.barrier()?;
    windows.run(&epoch, 1)?;
    bench.team.barrier()?;
    let wanted = if both || !origin { pattern(bytes, seed(target)) } else { vec![0; bytes] };
    bench.check(windows.arrived(sync, bytes)? == wanted, key, "the window does not contain the value that was put")?;
    bench.team.barrier()?;
    bench.time_single(key, per_iteration, both || origin, &mut |iterations| windows.run(&epoch, iterations))
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|i| (seed * 89 + i * 7 + i / 251 + 1) as u8).collect()
}

/// Measures the exchanges over windows of this kind. Collective.
pub(super) fn ghost(bench: &Bench<'_>, window: Window, counts: &[u64]) -> Result<()> {
    let largest = DIRECTIONS * counts.last().copied().unwrap_or(1) as usize * INTEGER;
    let mut windows = Windows::new(bench, window, largest)?;
    let to = neighbours(bench.rank, bench.ranks);
    for (n, sync) in counts.iter().flat_map(|n| [Sync::Fence, Sync::Pscw, Sync::Lock].map(|sync| (*n as usize, sync))) {
        let (bytes, group) = (n * INTEGER, &sorted(to)[..]);
        let key = bench.key(Suite::Ghost, window, sync, Op::Ghost, bytes);
        let puts: [Put; DIRECTIONS] =
            std::array::from_fn(|d| Put { from: d * bytes, target: to[d], to: (d ^ 1) * bytes });
        // The asserts are those of the paper's figure 1.
        let fence = Assert::NOSTORE | Assert::NOPUT;
        let epoch = Epoch { sync, puts: &puts, bytes, group, chain: false, fence, starts_first: None };
        // Two exchanges with different data are checked; then the measurement follows.
        for round in 0..2 {
            let out: Vec<u8> = (0..DIRECTIONS).flat_map(|d| area(bench.rank, d, round, n)).collect();
            windows.prepare(sync, &out, 0xff)?;
            bench.team.barrier()?;
            windows.run(&epoch, 1)?;
            bench.team.barrier()?;
            let holds = windows.arrived(sync, DIRECTIONS * bytes)? == arriving(&to, round, n);
            bench.check(holds, key, "a ghost area does not contain the data that the neighbour sent")?;
            bench.team.barrier()?;
        }
        bench.time_single(key, 1, true, &mut |iterations| windows.run(&epoch, iterations))?;
    }
    windows.free()
}

/// The neighbour in each direction.
pub(crate) fn neighbours(rank: usize, ranks: usize) -> [usize; DIRECTIONS] {
    let rows = (1..).take_while(|r| r * r <= ranks).filter(|r| ranks.is_multiple_of(*r)).last().unwrap_or(1);
    let columns = ranks / rows;
    let (x, y) = (rank % columns, rank / columns);
    [
        y * columns + (x + columns - 1) % columns,
        y * columns + (x + 1) % columns,
        (y + rows - 1) % rows * columns + x,
        (y + 1) % rows * columns + x,
    ]
}

/// The values that `rank` sends in direction `d` in exchange `round`.
pub(super) fn area(rank: usize, d: usize, round: usize, n: usize) -> impl Iterator<Item = u8> {
    let start = (((rank * DIRECTIONS + d) * 8 + round) as u32).wrapping_mul(131_072);
    (0..n as u32).flat_map(move |i| start.wrapping_add(i).to_ne_bytes())
}

/// The values that arrive from all neighbours in exchange `round`.
pub(super) fn arriving(from: &[usize; DIRECTIONS], round: usize, n: usize) -> Vec<u8> {
    (0..DIRECTIONS).flat_map(|d| area(from[d], d ^ 1, round, n)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_mutual_in_opposite_directions() {
        for ranks in [2, 4, 6, 8, 12, 16] {
            for rank in 0..ranks {
                for (d, neighbour) in neighbours(rank, ranks).into_iter().enumerate() {
                    assert_eq!(neighbours(neighbour, ranks)[d ^ 1], rank, "{ranks} ranks, {rank}, direction {d}");
                }
            }
        }
        assert_eq!(neighbours(0, 2), [1, 1, 0, 0]);
        assert_eq!(neighbours(5, 8), [4, 6, 1, 1]);
        assert_eq!(sorted(neighbours(0, 2)), [0, 1]);
    }
}
