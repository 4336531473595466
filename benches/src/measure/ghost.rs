//! Suite "ghost": the ghost-area exchange of Thakur, Gropp and Toonen (EuroPVM/MPI 2004, section 1). The ranks form a
//! periodic two-dimensional grid; every rank sends n integers to each of its four neighbours. Neighbours may coincide,
//! also with the rank itself; there are always four transfers into four separate areas.
//!
//! An iteration is one exchange. The lock version is the paper's: when it returns, a rank knows that its own data have
//! arrived, not that those of its neighbours have. In place of two-sided messages there are active messages: the header
//! handler takes a short one into the area, and gives the buffer of a long one.

use std::cell::RefCell;
use std::rc::Rc;

use farside_core::Job;
use farside_core::am::{self, Counters, Delivery, HandlerId, Then};
use farside_core::error::{Error, ErrorKind, Result};
use farside_rma::{Assert, LockKind, LockWindow, Window as ActiveWindow};

use super::pages::Pages;
use super::untyped::Untyped;
use super::{Bench, What};
use crate::record::{Op, Suite, Sync, Window};

/// West, east, north, south: the opposite of d is d ^ 1.
const DIRECTIONS: usize = 4;
const HANDLER: HandlerId = HandlerId(2);
const INTEGER: usize = size_of::<i32>();

/// The neighbour in each direction.
fn neighbours(rank: usize, ranks: usize) -> [usize; DIRECTIONS] {
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

/// The different ranks among the neighbours, as post and start want them.
fn group(neighbours: &[usize; DIRECTIONS]) -> Vec<usize> {
    let mut group: Vec<usize> = Vec::new();
    for rank in neighbours {
        if !group.contains(rank) {
            group.push(*rank);
        }
    }
    group
}

/// What `rank` sends in direction `d` in exchange `round`.
fn area(rank: usize, d: usize, round: usize, n: usize) -> impl Iterator<Item = u8> {
    let start = (((rank * DIRECTIONS + d) * 8 + round) as u32).wrapping_mul(131_072);
    (0..n as u32).flat_map(move |i| start.wrapping_add(i).to_ne_bytes())
}

/// The exchanges over one way of communicating. Areas lie one after the other; area d of the incoming ones is filled by
/// neighbour d.
trait Patterns {
    /// Sets what is sent, and the incoming areas to ones in every bit.
    fn prepare(&mut self, sync: Sync, out: &[u8]) -> Result<()>;
    /// The incoming areas, `bytes` in all.
    fn arrived(&mut self, sync: Sync, bytes: usize) -> Result<Vec<u8>>;
    /// Iterations of the exchange, each area `bytes` long.
    fn exchange(&mut self, sync: Sync, bytes: usize, iterations: u64) -> Result<()>;
}

/// Two exchanges with different data, each looked at; then the measurement.
fn measure(bench: &Bench<'_>, patterns: &mut dyn Patterns, window: Window, sync: Sync, n: usize) -> Result<()> {
    let (bytes, from) = (n * INTEGER, neighbours(bench.rank, bench.ranks));
    for round in 0..2 {
        let out: Vec<u8> = (0..DIRECTIONS).flat_map(|d| area(bench.rank, d, round, n)).collect();
        patterns.prepare(sync, &out)?;
        bench.team.barrier()?;
        patterns.exchange(sync, bytes, 1)?;
        bench.team.barrier()?;
        let wanted: Vec<u8> = (0..DIRECTIONS).flat_map(|d| area(from[d], d ^ 1, round, n)).collect();
        let holds = patterns.arrived(sync, DIRECTIONS * bytes)? == wanted;
        bench.check(holds, Suite::Ghost, sync, Op::Ghost, "an area does not hold what the neighbour sent")?;
        bench.team.barrier()?;
    }
    let what = What { suite: Suite::Ghost, window, sync, op: Op::Ghost, bytes, per_iteration: 1 };
    bench.measure(&what, true, &mut |iterations| patterns.exchange(sync, bytes, iterations))
}

/// Measures the exchanges over windows of this kind. Collective.
pub(super) fn run(bench: &Bench<'_>, window: Window, counts: &[u64]) -> Result<()> {
    let largest = DIRECTIONS * counts.last().copied().unwrap_or(1) as usize * INTEGER;
    let to = neighbours(bench.rank, bench.ranks);
    let (mut typed, mut user);
    let patterns: &mut dyn Patterns = if window == Window::Allocated {
        typed = Typed {
            to,
            group: group(&to),
            active: ActiveWindow::allocate(&bench.team, largest)?,
            passive: LockWindow::allocate(&bench.team, largest)?,
            out: Pages::new(largest)?,
        };
        &mut typed
    } else {
        user = User { to, group: group(&to), pair: Untyped::new(&bench.team, window, largest)? };
        &mut user
    };
    for &n in counts {
        for sync in [Sync::Fence, Sync::Pscw, Sync::Lock] {
            measure(bench, patterns, window, sync, n as usize)?;
        }
    }
    // Nobody's window goes while others still use theirs.
    bench.team.barrier()
}

/// With the asserts of the paper's figure 1.
const FENCE: Assert = Assert::NOSTORE.union(Assert::NOPUT);

/// The typed windows, allocated.
struct Typed {
    to: [usize; DIRECTIONS],
    group: Vec<usize>,
    active: ActiveWindow<'static, u8>,
    passive: LockWindow<u8>,
    out: Pages,
}

impl Patterns for Typed {
    fn prepare(&mut self, sync: Sync, out: &[u8]) -> Result<()> {
        self.out[..out.len()].copy_from_slice(out);
        if sync == Sync::Lock {
            self.passive.with_local(|memory| {
                memory[..out.len()].fill(0xff);
                Ok(())
            })
        } else {
            self.active.local_mut()?[..out.len()].fill(0xff);
            Ok(())
        }
    }

    fn arrived(&mut self, sync: Sync, bytes: usize) -> Result<Vec<u8>> {
        if sync == Sync::Lock {
            self.passive.with_local(|memory| Ok(memory[..bytes].to_vec()))
        } else {
            Ok(self.active.local()?[..bytes].to_vec())
        }
    }

    fn exchange(&mut self, sync: Sync, bytes: usize, iterations: u64) -> Result<()> {
        let Self { to, group, active, passive, out } = self;
        let out = |d: usize| &out[d * bytes..(d + 1) * bytes];
        match sync {
            Sync::Fence => (0..iterations).try_for_each(|_| {
                active.fence(FENCE, |epoch| (0..DIRECTIONS).try_for_each(|d| epoch.put(out(d), to[d], (d ^ 1) * bytes)))
            }),
            Sync::Pscw => (0..iterations).try_for_each(|_| {
                active.expose(group, Assert::empty(), |exposure| {
                    exposure.start(group, Assert::empty(), |epoch| {
                        (0..DIRECTIONS).try_for_each(|d| epoch.put(out(d), to[d], (d ^ 1) * bytes))
                    })
                })
            }),
            Sync::Lock => (0..iterations).try_for_each(|_| {
                (0..DIRECTIONS).try_for_each(|d| {
                    passive.lock(LockKind::Shared, to[d], Assert::empty(), |epoch| {
                        epoch.put(out(d), to[d], (d ^ 1) * bytes)
                    })
                })
            }),
            _ => Err(unknown(sync)),
        }
    }
}

/// The untyped window over user memory.
struct User {
    to: [usize; DIRECTIONS],
    group: Vec<usize>,
    pair: Untyped,
}

impl Patterns for User {
    fn prepare(&mut self, _: Sync, out: &[u8]) -> Result<()> {
        self.pair.set_origin(out)?;
        self.pair.fill_local(0xff, out.len())
    }

    fn arrived(&mut self, _: Sync, bytes: usize) -> Result<Vec<u8>> {
        self.pair.local(bytes)
    }

    fn exchange(&mut self, sync: Sync, bytes: usize, iterations: u64) -> Result<()> {
        let (pair, raw, to) = (&self.pair, self.pair.raw(), &self.to);
        let put = |d: usize| pair.put(d * bytes, bytes, to[d], (d ^ 1) * bytes);
        let puts = || (0..DIRECTIONS).try_for_each(put);
        match sync {
            Sync::Fence => (0..iterations).try_for_each(|_| {
                raw.fence(Assert::NOPRECEDE)?;
                puts()?;
                raw.fence(FENCE | Assert::NOSUCCEED)
            }),
            Sync::Pscw => (0..iterations).try_for_each(|_| {
                raw.post(&self.group, Assert::empty())?;
                raw.start(&self.group, Assert::empty())?;
                puts()?;
                raw.complete()?;
                raw.wait()
            }),
            Sync::Lock => (0..iterations).try_for_each(|_| {
                (0..DIRECTIONS).try_for_each(|d| {
                    raw.lock(LockKind::Shared, to[d], Assert::empty())?;
                    put(d)?;
                    raw.unlock(to[d])
                })
            }),
            _ => Err(unknown(sync)),
        }
    }
}

/// Measures the exchanges by active messages. Collective.
pub(super) fn run_messages(bench: &Bench<'_>, counts: &[u64]) -> Result<()> {
    let largest = DIRECTIONS * counts.last().copied().unwrap_or(1) as usize * INTEGER;
    let inbox = Rc::new(RefCell::new(Inbox::default()));
    let handler = {
        let inbox = inbox.clone();
        move |message: am::Message<'_>| take(&inbox, message)
    };
    bench.job.active_messages().register(HANDLER, handler)?;
    bench.team.barrier()?;
    let to = neighbours(bench.rank, bench.ranks);
    let mut messages = Messages { job: bench.job.clone(), to, out: Pages::new(largest)?, inbox, exchanges: 0 };
    for &n in counts {
        measure(bench, &mut messages, Window::None, Sync::Twosided, n as usize)?;
    }
    bench.job.active_messages().unregister(HANDLER);
    Ok(())
}

/// Incoming areas, of exchanges with an even and with an odd number: a neighbour may be one exchange ahead, no more,
/// for then it needs this rank's data.
#[derive(Default)]
struct Inbox {
    areas: [[Vec<u8>; DIRECTIONS]; 2],
    arrived: [u64; DIRECTIONS],
}

/// The header handler: the header says which area, and whether the exchange's number is even.
fn take(inbox: &Rc<RefCell<Inbox>>, message: am::Message<'_>) -> Delivery {
    let &[d, parity] = message.header else { return Delivery::Done };
    let (d, parity) = (usize::from(d) % DIRECTIONS, usize::from(parity) % 2);
    let mut now = inbox.borrow_mut();
    if let Some(data) = message.data {
        let area = &mut now.areas[parity][d];
        area.clear();
        area.extend_from_slice(data);
        now.arrived[d] += 1;
        return Delivery::Done;
    }
    let (buffer, inbox) = (std::mem::take(&mut now.areas[parity][d]), inbox.clone());
    Delivery::Into(
        buffer,
        Then::Quick(Box::new(move |data| {
            let mut inbox = inbox.borrow_mut();
            inbox.areas[parity][d] = data;
            inbox.arrived[d] += 1;
        })),
    )
}

/// Active messages in place of send and receive.
struct Messages {
    job: Job,
    to: [usize; DIRECTIONS],
    out: Pages,
    inbox: Rc<RefCell<Inbox>>,
    exchanges: u64,
}

impl Patterns for Messages {
    fn prepare(&mut self, _: Sync, out: &[u8]) -> Result<()> {
        self.out[..out.len()].copy_from_slice(out);
        self.inbox.borrow_mut().areas.as_flattened_mut().iter_mut().for_each(Vec::clear);
        Ok(())
    }

    fn arrived(&mut self, _: Sync, _: usize) -> Result<Vec<u8>> {
        Ok(self.inbox.borrow().areas[self.exchanges as usize % 2].concat())
    }

    fn exchange(&mut self, _: Sync, bytes: usize, iterations: u64) -> Result<()> {
        let job = &self.job;
        for _ in 0..iterations {
            self.exchanges += 1;
            let (number, parity) = (self.exchanges, (self.exchanges % 2) as u8);
            for d in 0..DIRECTIONS {
                let data = &self.out[d * bytes..(d + 1) * bytes];
                am::send(job, self.to[d] as u32, HANDLER, &[(d ^ 1) as u8, parity], data, Counters::default())?;
            }
            let inbox = &self.inbox;
            job.wait("exchange areas", || {
                Ok(inbox.borrow().arrived.iter().all(|arrived| *arrived >= number).then_some(()))
            })?;
        }
        Ok(())
    }
}

fn unknown(sync: Sync) -> Error {
    Error::new(ErrorKind::BadArgument, "measure a ghost-area exchange").cause(format!("{sync} has no version"))
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
        assert_eq!(group(&neighbours(0, 2)), [1, 0]);
    }
}
