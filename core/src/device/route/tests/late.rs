#![allow(unsafe_code)]
//! Several networks between ranks, whose operations take effect late.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::coll;
use crate::device::loopback::{Hub, Loopback};
use crate::device::route::table::{LARGE_BYTES, SIZES};
use crate::device::route::{Member, RouteDevice};
use crate::device::{
    Block, Capabilities, Change, Device, Event, Leave, Operation, Place, Posted, Range, Ranges, Region, Registration,
    RemoteRegion, Sleep, Transfer, Update, Waker, WorkRequest, forward,
};
use crate::error::Result;
use crate::job::{Job, Track};
use crate::memory::keys::AccumulateFn;
use crate::settings::Settings;
use crate::signal::SignalArray;
use crate::stats::{Kind, Stats};

/// An operation that has not taken effect.
struct Held {
    peer: u32,
    blocks: Vec<Block>,
    place: Place,
    /// The value of a signal, or the addend of an atomic.
    value: u64,
    action: Action,
    notify: Option<(Place, u64)>,
    id: u64,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Write,
    Read,
    Signal,
    Add,
}

/// A device whose operations take effect one by one, in their order, each after some polls.
struct Late {
    inner: Loopback,
    held: RefCell<VecDeque<Held>>,
    /// Maximum number of operations in progress; beyond it, posting is `Busy`.
    room: usize,
    polls: u32,
    polled: Cell<u32>,
}

impl Late {
    fn new(hub: &Arc<Hub>, me: u32, polls: u32, room: usize) -> Self {
        let inner = Loopback::new(hub, me);
        Self { inner, held: RefCell::default(), room, polls, polled: Cell::new(0) }
    }
}

// SAFETY: passes on the memory that the inner device returns.
unsafe impl Device for Late {
    forward!(inner: capabilities, register, release, import, forget, sealed, peers_can_map, wake, waker, now, compute, stats, check_peers);

    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        let (blocks, place, value, action) = match request.operation {
            Operation::Transfer(Transfer { write, local, region, ranges: Ranges::One(Range { offset, .. }) }) => {
                (local.to_vec(), Place { region, offset }, 0, if write { Action::Write } else { Action::Read })
            }
            Operation::Signal { at, value } => (Vec::new(), at, value, Action::Signal),
            Operation::Update(Update { at, change: Change::Add(add), old, .. }) if old.is_null() => {
                (Vec::new(), at, add, Action::Add)
            }
            // SAFETY: the same contract.
            _ => return unsafe { self.inner.post(request) },
        };
        if self.held.borrow().len() >= self.room {
            return Ok(Posted::Busy);
        }
        let WorkRequest { peer, notify, id, .. } = *request;
        self.held.borrow_mut().push_back(Held { peer, blocks, place, value, action, notify, id });
        Ok(if matches!(action, Action::Signal) { Posted::Done } else { Posted::Pending })
    }

    fn cancel(&self, which: &dyn Fn(u64) -> bool) {
        self.held.borrow_mut().retain(|held| !which(held.id));
        self.inner.cancel(which);
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        let any = self.inner.poll(sink)?;
        self.polled.set(self.polled.get() + 1);
        let held = if self.polled.get().is_multiple_of(self.polls) { self.held.borrow_mut().pop_front() } else { None };
        let Some(Held { peer, blocks, place, value, action, notify, id }) = held else { return Ok(any) };
        let operation = match action {
            Action::Write => Operation::write(&blocks, place),
            Action::Read => Operation::read(&blocks, place),
            Action::Signal => Operation::Signal { at: place, value },
            Action::Add => Operation::fetch_add(place, value, std::ptr::null_mut()),
        };
        // SAFETY: the memory is valid until the completion.
        match unsafe { self.inner.post(&WorkRequest { peer, operation, notify, id }) } {
            // The inner device reports it.
            Ok(Posted::Pending) => {}
            _ if matches!(action, Action::Signal) => {}
            done => sink(Event::Completed { id, result: done.map(drop) }),
        }
        Ok(true)
    }

    fn park(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        let holds = !self.held.borrow().is_empty();
        self.inner.park(sleep, ready) || holds
    }

    fn leave(&self, how: Leave) -> Result<bool> {
        Ok(self.held.borrow().is_empty() && self.inner.leave(how)?)
    }
}

/// Runs two ranks over two late networks; `members` describes each network.
fn over_two(members: [Member; 2], polls: [u32; 2], room: usize, f: impl Fn(&Job) -> Result<()> + Sync) {
    let hubs = [Hub::new(2), Hub::new(2)];
    let settings = Settings::from_lookup(|name| (name == "FARSIDE_WAIT").then(|| "yield".to_owned())).unwrap();
    let device = |me: u32| {
        let late = |at: usize| Box::new(Late::new(&hubs[at], me, polls[at], room)) as Box<dyn Device>;
        let devices = vec![(members[0], late(0)), (members[1], late(1))];
        Ok(Box::new(RouteDevice::new(me, None, devices, &[0b110; 2], &[])?) as Box<dyn Device>)
    };
    Job::threads_on(2, &settings, device, f).map(drop).unwrap_or_else(|e| panic!("{members:?}, {polls:?}: {e}"));
}

fn member(number: u8, kind: u8, carries: [bool; SIZES]) -> Member {
    Member { number, kind, carries }
}

/// Rank 0 writes `len` bytes to rank 1, adds to a word of its region, and notifies rank 1: with the write if `carried`,
/// otherwise with the addition after it. Rank 1 then checks the bytes and the sum.
fn write_add_and_signal(job: &Job, len: usize, carried: bool, rounds: u64) -> Result<()> {
    let team = job.world()?;
    let signals = SignalArray::new(&team, 0)?;
    let own = job.device().allocate(Region::allocated(len + 64));
    // SAFETY: a registration of this job, which no test uses after a failure.
    let (own, remotes) = unsafe { coll::exchange_regions(&team, own, None) }?;
    let (me, other) = (team.rank(), 1 - team.rank());
    for round in 1..=rounds {
        if me == 0 {
            let bytes = vec![round as u8; len];
            let (low, high) = bytes.split_at(len / 3);
            let from = [Block::of(low.as_ptr(), low.len()), Block::of(high.as_ptr(), high.len())];
            let region = remotes[other].handle;
            let track = Track::new();
            let notify = carried.then(|| (signals.cell_at(other, 0, round), round));
            let write = Operation::write(&from, Place { region, offset: 64 });
            let add = Operation::fetch_add(Place { region, offset: 0 }, 1, std::ptr::null_mut());
            // SAFETY: the bytes live until the requests are complete.
            unsafe {
                if carried {
                    job.post(1, add, None, &[&track])?;
                    job.wait("add", || Ok((track.open() == 0).then_some(())))?;
                }
                job.post(1, write, notify, &[&track])?;
                if !carried {
                    // No wait is needed: the device keeps the order.
                    job.post(1, add, Some((signals.cell_at(other, 0, round), round)), &[&track])?;
                }
            }
            job.wait("write", || Ok((track.open() == 0).then_some(())))?;
            track.check()?;
            let mut back = vec![0u8; len];
            let into = [Block { base: back.as_mut_ptr(), len }];
            // SAFETY: `back` outlives the call.
            unsafe { job.complete("read", 1, Operation::read(&into, Place { region, offset: 64 })) }?;
            assert!(back == bytes);
        } else {
            job.wait("signal", || Ok(signals.reached(other, 0, round).then_some(())))?;
            // SAFETY: this rank's own memory, which does not change before the barrier.
            let (sum, bytes) =
                unsafe { (own.base.cast::<u64>().read_volatile(), std::slice::from_raw_parts(own.base.add(64), len)) };
            assert_eq!(sum, round);
            assert!(bytes.iter().all(|byte| *byte == round as u8), "round {round}, {len} bytes");
        }
        team.barrier()?;
    }
    // SAFETY: no longer used.
    unsafe {
        remotes.iter().for_each(|r| job.device().forget(r.handle));
        job.device().release(own.handle)
    }
}

/// Small writes, atomics and signals use one network, larger writes a slower one: a signal never overtakes a write.
#[test]
fn signals_and_atomics_do_not_overtake_writes_on_other_devices() {
    let members = [member(1, 1, [true, false, false]), member(2, 2, [true; SIZES])];
    for polls in [[1, 7], [7, 1]] {
        for len in [8, 20_000, LARGE_BYTES + 4] {
            for carried in [false, true] {
                over_two(members, polls, 4, |job| write_add_and_signal(job, len, carried, 10));
            }
        }
    }
}

/// Large transfers are striped over two networks of one kind: complete, and notified, when all segments are.
#[test]
fn large_transfers_are_striped_and_notified_after_the_last_piece() {
    let members = [member(1, 1, [true; SIZES]), member(2, 1, [true; SIZES])];
    for (polls, room) in [([1, 9], 4), ([9, 1], 1)] {
        for len in [LARGE_BYTES - 1, LARGE_BYTES, 3 * LARGE_BYTES + 5] {
            for carried in [false, true] {
                over_two(members, polls, room, |job| {
                    let bytes = || {
                        let mut all = Vec::new();
                        job.device().stats(&mut |_, stats| all.push(stats.snapshot().bytes(Kind::Write) as usize));
                        all
                    };
                    let before = bytes();
                    write_add_and_signal(job, len, carried, 4)?;
                    let spent: Vec<usize> = bytes().iter().zip(before).map(|(after, before)| after - before).collect();
                    let large: Vec<usize> = spent.iter().map(|bytes| bytes / (len / 4)).collect();
                    let expected = match (job.rank(), len < LARGE_BYTES) {
                        (0, true) => [16, 0],
                        (0, false) => [8, 7],
                        _ => [0, 0],
                    };
                    assert!(large == expected || large == [8, 8], "{len}: {spent:?}");
                    Ok(())
                });
            }
        }
    }
}

/// A cancelled striped write no longer accesses the caller's memory, and the devices stay usable.
#[test]
fn cancelled_stripes_are_dropped() {
    let members = [member(1, 1, [true; SIZES]), member(2, 1, [true; SIZES])];
    over_two(members, [3, 5], 1, |job| {
        let team = job.world()?;
        let own = job.device().allocate(Region::allocated(2 * LARGE_BYTES));
        // SAFETY: as in `write_add_and_signal`.
        let (own, remotes) = unsafe { coll::exchange_regions(&team, own, None) }?;
        for _ in 0..5 {
            let bytes = vec![1u8; 2 * LARGE_BYTES];
            let from = [Block::of(bytes.as_ptr(), bytes.len())];
            let (peer, track) = (1 - job.rank_number(), Track::new());
            let to = Place { region: remotes[peer as usize].handle, offset: 0 };
            // SAFETY: the request is cancelled before the bytes are released.
            unsafe { job.post(peer, Operation::write(&from, to), None, &[&track]) }?;
            job.cancel(&track);
            assert_eq!(track.open(), 0);
        }
        write_add_and_signal(job, LARGE_BYTES, true, 2)?;
        // SAFETY: no longer used.
        unsafe {
            remotes.iter().for_each(|r| job.device().forget(r.handle));
            job.device().release(own.handle)
        }
    });
}
