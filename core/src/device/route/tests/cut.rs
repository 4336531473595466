#![allow(unsafe_code)]
//! Devices whose link is cut at any request: the next devices in the table take over.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use proptest::prelude::*;
use rustc_hash::FxHashMap;

use crate::device::loopback::{Hub, Loopback};
use crate::device::route::table::SIZES;
use crate::device::route::{Member, RouteDevice};
use crate::device::{
    Block, Capabilities, Device, Event, Leave, Operation, PeerCheck, Place, Posted, Ranges, Region, Registration,
    RemoteRegion, Sleep, Transfer, Waker, WorkRequest, forward,
};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::copy;
use crate::memory::keys::AccumulateFn;
use crate::stats::Stats;

/// The state of a link of two ranks, which both share.
#[derive(Default)]
struct Link {
    is_cut: bool,
    /// Ranks that have left the device.
    has_left: [bool; 2],
    /// The ranks of whose losses the device was notified.
    losses: Vec<Option<u32>>,
}

/// How a link fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Number of requests after which the rank `cutter` cuts the link; 0 for never.
    after: usize,
    /// Number of requests in progress that are still executed; the others are lost.
    delivered: usize,
    /// Ranks that detect the failure by themselves, as bits.
    notice: u8,
    /// The rank that cuts the link.
    cutter: u32,
}

/// A request that has not been executed.
struct Held {
    request: WorkRequest<'static>,
    /// The bytes of a packet.
    packet: Option<Vec<u8>>,
}

/// A device of two ranks whose requests take effect one by one, in their order, and whose link is cut.
pub(super) struct Cut {
    inner: Loopback,
    me: u32,
    link: Arc<Mutex<Link>>,
    plan: Plan,
    posted: Cell<usize>,
    is_dead: Cell<bool>,
    held: RefCell<VecDeque<Held>>,
    /// The blocks of unexecuted requests.
    blocks: RefCell<Vec<Box<[Block]>>>,
    done: RefCell<VecDeque<(u64, Result<()>)>>,
}

impl Cut {
    /// Devices of both ranks.
    pub(super) fn pair(plan: Plan) -> [Self; 2] {
        let (hub, link) = (Hub::new(2), Arc::new(Mutex::new(Link::default())));
        [0, 1].map(|me| Self {
            inner: Loopback::new(&hub, me),
            me,
            link: Arc::clone(&link),
            plan,
            posted: Cell::new(0),
            is_dead: Cell::new(false),
            held: RefCell::default(),
            blocks: RefCell::default(),
            done: RefCell::default(),
        })
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self) -> Error {
        Error::new(ErrorKind::PeerLost, "use a link").rank(self.me).peer(1 - self.me).device("cut").cause("it is cut")
    }

    /// Executes the oldest request; returns whether there was one.
    fn perform(&self) -> bool {
        let mut held = self.held.borrow_mut();
        let Some(Held { request, packet }) = held.front() else { return false };
        let operation = match packet {
            Some(bytes) => Operation::send(bytes, &[]),
            None => request.operation,
        };
        // The lock is held, so that the other rank does not leave meanwhile.
        let link = self.link();
        // A read is complete before its notification is sent.
        let (after, notify) = match (operation, request.notify) {
            (Operation::Transfer(Transfer { write: false, .. }), Some((at, value))) => {
                (Some(Operation::Signal { at, value }), None)
            }
            (_, notify) => (None, notify),
        };
        let after =
            after.map(|operation| Held { request: WorkRequest { operation, notify, ..*request }, packet: None });
        if !link.has_left[1 - self.me as usize] {
            // SAFETY: the memory is valid until the completion.
            match unsafe { self.inner.post(&WorkRequest { operation, notify, ..*request }) } {
                Ok(Posted::Busy) => return false,
                Ok(_) => {}
                Err(e) if packet.is_none() => self.done.borrow_mut().push_back((request.id, Err(e))),
                Err(e) => panic!("{e}"),
            }
        }
        held.pop_front();
        held.extend(after);
        true
    }

    /// Fails what is in progress; the first `delivered` requests take effect.
    fn fail(&self, delivered: usize) {
        if self.is_dead.replace(true) {
            return;
        }
        let silent =
            |request: &WorkRequest<'_>| matches!(request.operation, Operation::Signal { .. } | Operation::Packet(_));
        for _ in 0..delivered {
            let id = self.held.borrow().front().filter(|held| !silent(&held.request)).map(|held| held.request.id);
            if !self.perform() {
                break;
            }
            // The completion of the request is lost.
            if let Some(id) = id {
                self.inner.cancel(&|other| other == id);
                self.done.borrow_mut().push_back((id, Err(self.lost())));
            }
        }
        let lost = self.held.take();
        let ended = lost.iter().filter(|held| !silent(&held.request));
        self.done.borrow_mut().extend(ended.map(|held| (held.request.id, Err(self.lost()))));
    }

    /// Checks whether the link is cut.
    fn look(&self) {
        let is_due = self.plan.cutter == self.me && self.plan.after > 0 && self.posted.get() >= self.plan.after;
        if is_due {
            self.link().is_cut = true;
        }
        if is_due || self.link().is_cut && self.plan.notice >> self.me & 1 == 1 {
            self.fail(self.plan.delivered);
        }
    }

    fn keep(&self, blocks: &[Block]) -> &'static [Block] {
        let kept: Box<[Block]> = blocks.into();
        // SAFETY: boxes of `blocks` live as long as the device, and so do not move.
        let slice = unsafe { std::slice::from_raw_parts(kept.as_ptr(), kept.len()) };
        self.blocks.borrow_mut().push(kept);
        slice
    }
}

// SAFETY: passes on the memory that the inner device returns; a held request is executed before it is reported, or not
// at all.
unsafe impl Device for Cut {
    forward!(inner: capabilities, register, release, import, forget, sealed, peers_can_map, wake, waker, now, compute, stats);

    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        if request.peer == self.me {
            // SAFETY: the same contract.
            return unsafe { self.inner.post(request) };
        }
        if self.is_dead.get() {
            return Err(self.lost());
        }
        if self.held.borrow().len() > 20 {
            return Ok(Posted::Busy);
        }
        self.posted.set(self.posted.get() + 1);
        let mut packet = None;
        let operation = match request.operation {
            Operation::Transfer(Transfer { write, local, region, ranges: Ranges::One(range) }) => {
                let (local, ranges) = (self.keep(local), Ranges::One(range));
                Operation::Transfer(Transfer { write, local, region, ranges })
            }
            Operation::Update(update) => Operation::Update(update),
            Operation::Signal { at, value } => Operation::Signal { at, value },
            Operation::Packet(sent) => {
                let mut bytes = Vec::new();
                // SAFETY: valid blocks.
                sent.with_parts(|header, body| unsafe { copy::gather(header, body, &mut bytes) });
                packet = Some(bytes);
                Operation::send(&[], &[])
            }
            // SAFETY: the same contract.
            _ => return unsafe { self.inner.post(request) },
        };
        let is_silent = packet.is_some() || matches!(operation, Operation::Signal { .. });
        let WorkRequest { peer, notify, id, .. } = *request;
        self.held.borrow_mut().push_back(Held { request: WorkRequest { peer, operation, notify, id }, packet });
        Ok(if is_silent { Posted::Done } else { Posted::Pending })
    }

    fn cancel(&self, which: &dyn Fn(u64) -> bool) {
        self.held.borrow_mut().retain(|held| held.packet.is_some() || !which(held.request.id));
        self.done.borrow_mut().retain(|(id, _)| !which(*id));
        self.inner.cancel(which);
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        self.look();
        let mut any = self.inner.poll(sink)?;
        if !self.link().is_cut {
            any |= self.perform();
        }
        for (id, result) in self.done.take() {
            any = true;
            sink(Event::Completed { id, result });
        }
        Ok(any)
    }

    fn park(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        self.inner.park(sleep, ready)
    }

    fn check_peers(&self, about: PeerCheck<'_>) -> Result<Option<u32>> {
        match about {
            PeerCheck::Left(_) => {
                self.link().has_left[self.me as usize] = true;
                self.fail(0);
                Ok(None)
            }
            PeerCheck::Met(e) => {
                self.link().losses.push(e.blamed_number());
                Ok(None)
            }
            _ if self.is_dead.get() && !self.link().has_left[self.me as usize] => Err(self.lost()),
            about => self.inner.check_peers(about),
        }
    }

    fn leave(&self, how: Leave) -> Result<bool> {
        Ok(self.held.borrow().is_empty() && self.inner.leave(how)?)
    }
}

/// Two ranks over links that fail as the plans say, of these kinds.
fn ranks(plans: &[Plan], kinds: &[u8]) -> [RouteDevice; 2] {
    let mut devices = [Vec::new(), Vec::new()];
    for (number, (plan, kind)) in (1..).zip(plans.iter().zip(kinds)) {
        for (devices, cut) in devices.iter_mut().zip(Cut::pair(*plan)) {
            let member = Member { number, kind: *kind, carries: [true; SIZES] };
            devices.push((member, Box::new(cut) as Box<dyn Device>));
        }
    }
    let has = [(1 << (plans.len() + 1)) - 2; 2];
    let mut me = 0..;
    devices.map(|devices| RouteDevice::new(me.next().unwrap(), None, devices, &has, &[]).unwrap())
}

/// Length in bytes of the slot of a round; number of rounds.
const SLOT: usize = 64;
const ROUNDS: usize = 40;
/// Offsets of a word for atomic additions, of the cell that announces slots, and of the first slot.
const WORD: usize = 0;
const CELL: usize = 8;
const SLOTS: usize = 64;

struct Rank {
    device: RouteDevice,
    memory: Box<[u8]>,
    region: u64,
    sources: Vec<Box<[u8]>>,
    back: Vec<Box<[u8]>>,
    packets: Vec<Vec<u8>>,
    ended: FxHashMap<u64, Result<()>>,
    posted: u64,
    /// Number of rounds whose slots this rank has read.
    taken: usize,
}

fn content(from: usize, round: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at + 31 * round + 7 * from + 1) as u8).collect()
}

impl Rank {
    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(*self.memory[at..].first_chunk().unwrap())
    }

    fn turn(&mut self, me: usize) {
        let (packets, ended) = (&mut self.packets, &mut self.ended);
        self.device
            .poll(&mut |event| match event {
                Event::Packet { bytes, .. } => packets.push(bytes.to_vec()),
                Event::LongPacket { packet, .. } => packets.push(packet.read().to_vec()),
                Event::Completed { id, result } => assert!(ended.insert(id, result).is_none(), "completed once"),
            })
            .unwrap();
        self.device.check_peers(PeerCheck::Alive).unwrap();
        // A slot that was announced has arrived, and then belongs to this rank: no other code writes to it again.
        let announced = self.word(CELL) as usize;
        assert!(announced >= self.taken, "the cell goes back from {} to {announced}", self.taken);
        for round in self.taken..announced {
            let slot = &mut self.memory[SLOTS + round * SLOT..][..SLOT];
            assert!(slot == content(1 - me, round, SLOT), "round {round} was announced before it arrived");
            slot.fill(0);
        }
        self.taken = announced;
    }
}

fn both(ranks: &mut [Rank; 2]) {
    (0..).zip(ranks).for_each(|(me, rank)| rank.turn(me));
}

fn post(ranks: &mut [Rank; 2], me: usize, operation: Operation<'_>, notify: Option<(Place, u64)>) {
    let is_silent = matches!(operation, Operation::Signal { .. } | Operation::Packet(_));
    ranks[me].posted += 1;
    let id = ranks[me].posted;
    for turn in 0.. {
        assert!(turn < 100_000, "{operation:?} finds no room");
        let request = WorkRequest { peer: 1 - me as u32, operation, notify, id };
        // SAFETY: buffers of the ranks live longer than the devices.
        match unsafe { ranks[me].device.post(&request) }.unwrap() {
            Posted::Busy => both(ranks),
            Posted::Pending if !is_silent => return,
            _ => {
                ranks[me].ended.insert(id, Ok(()));
                return;
            }
        }
    }
}

/// Makes progress until all requests of a rank have ended.
fn settle(ranks: &mut [Rank; 2], me: usize) {
    for turn in 0.. {
        assert!(turn < 100_000, "a request does not end");
        if ranks[me].ended.len() as u64 == ranks[me].posted {
            return;
        }
        both(ranks);
    }
}

/// Runs rounds of all operations between two ranks; returns how many atomics have ended with errors.
fn exchange(plans: &[Plan], kinds: &[u8], seed: u64) -> usize {
    let devices = ranks(plans, kinds);
    let mut memories = [0, 1].map(|_| vec![0u8; SLOTS + ROUNDS * SLOT].into_boxed_slice());
    let keys: Vec<_> = devices
        .iter()
        .zip(&mut memories)
        // SAFETY: the memory lives as long as the devices.
        .map(|(device, memory)| unsafe { device.register(Region::of(memory.as_mut_ptr(), memory.len())) }.unwrap().key)
        .collect();
    let (mut memories, mut me) = (memories.into_iter(), 0..);
    let mut ranks = devices.map(|device| {
        let me: usize = me.next().unwrap();
        let region = device.import(1 - me as u32, &keys[1 - me], None).unwrap().handle;
        let (memory, ended) = (memories.next().unwrap(), FxHashMap::default());
        let (sources, back, packets) = Default::default();
        Rank { device, memory, region, sources, back, packets, ended, posted: 0, taken: 0 }
    });
    let mut sent = [Vec::new(), Vec::new()];
    let mut adds = [Vec::new(), Vec::new()];
    let mut state = seed | 1;
    let mut random = move |n: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % n
    };
    for round in 0..ROUNDS {
        for me in 0..2 {
            let region = ranks[me].region;
            let place = |offset| Place { region, offset };
            for _ in 0..random(4) {
                let len = [0, 3, 48, 700][random(4) as usize];
                let packet = content(me, sent[me].len(), len);
                let body = [Block::of(packet[len / 2..].as_ptr(), len - len / 2)];
                post(&mut ranks, me, Operation::send(&packet[..len / 2], &body), None);
                sent[me].push(packet);
            }
            ranks[me].sources.push(content(me, round, SLOT).into());
            let from = [Block::of(ranks[me].sources[round].as_ptr(), SLOT)];
            let write = Operation::write(&from, place(SLOTS + round * SLOT));
            let (cell, value) = (place(CELL), round as u64 + 1);
            ranks[me].back.push(vec![1; 8].into());
            let into = [Block { base: ranks[me].back[round].as_mut_ptr(), len: 8 }];
            let read = Operation::read(&into, place(CELL));
            match random(3) {
                0 => {
                    post(&mut ranks, me, write, Some((cell, value)));
                    post(&mut ranks, me, read, None);
                }
                1 => {
                    post(&mut ranks, me, write, None);
                    post(&mut ranks, me, Operation::Signal { at: cell, value }, None);
                    post(&mut ranks, me, read, None);
                }
                _ => {
                    post(&mut ranks, me, write, None);
                    settle(&mut ranks, me);
                    post(&mut ranks, me, read, Some((cell, value)));
                    settle(&mut ranks, me);
                }
            }
            if random(2) == 0 {
                // Everything posted before an atomic is complete, so only the atomic's effect is unknown.
                settle(&mut ranks, me);
                let old = std::ptr::null_mut();
                post(&mut ranks, me, Operation::fetch_add(place(WORD), 1, old), None);
                adds[me].push(ranks[me].posted);
                // Nothing follows an atomic that is in progress.
                settle(&mut ranks, me);
            }
            (0..random(4)).for_each(|_| both(&mut ranks));
        }
    }
    for turn in 0.. {
        let is_over = |me: usize| {
            let rank = &ranks[me];
            rank.ended.len() as u64 == rank.posted && rank.packets.len() >= sent[1 - me].len() && rank.taken == ROUNDS
        };
        if is_over(0) && is_over(1) {
            break;
        }
        if turn > 100_000 {
            for rank in &ranks {
                println!("{} of {}, {}, {} packets", rank.ended.len(), rank.posted, rank.taken, rank.packets.len());
            }
            panic!("no end: {plans:?}");
        }
        both(&mut ranks);
    }
    (0..100).for_each(|_| both(&mut ranks));
    let mut unknown = 0;
    for me in 0..2 {
        let rank = &ranks[me];
        assert!(rank.packets == sent[1 - me], "packets, once and in order");
        assert!(rank.memory[SLOTS..].iter().all(|byte| *byte == 0), "no write after its announcement was seen");
        let failed: Vec<&u64> = adds[me].iter().filter(|id| rank.ended[*id].is_err()).collect();
        for (id, result) in &rank.ended {
            match result {
                Ok(()) => {}
                Err(e) if adds[me].contains(id) => {
                    assert_eq!((e.kind(), e.blamed()), (ErrorKind::PeerLost, Some(1 - me)), "{e}");
                    assert!(e.to_string().contains("the operation's effect is unknown"), "{e}");
                }
                Err(e) => panic!("request {id}: {e}"),
            }
        }
        let sum = ranks[1 - me].word(WORD);
        assert!(
            (adds[me].len() - failed.len()..=adds[me].len()).contains(&(sum as usize)),
            "{sum} of {}",
            adds[me].len()
        );
        for back in &rank.back {
            assert!(u64::from_le_bytes(*back.first_chunk().unwrap()) <= ROUNDS as u64);
        }
        unknown += failed.len();
    }
    for turn in 0.. {
        if ranks.iter().all(|rank| rank.device.leave(Leave::Early).unwrap()) {
            break;
        }
        let left = |rank: &Rank| rank.device.devices.iter().map(|d| d.leave(Leave::Early).unwrap()).collect::<Vec<_>>();
        let state = || ranks.each_ref().map(|rank| (left(rank), rank.device.needs_poll(), &rank.device.pairs));
        assert!(turn < 1000, "{plans:?}: {:?}", state());
        both(&mut ranks);
    }
    unknown
}

const NEVER: Plan = Plan { after: 0, delivered: 0, notice: 0, cutter: 0 };

fn plan() -> impl Strategy<Value = Plan> {
    (1..250usize, 0..8usize, 0..4u8, 0..2u32).prop_map(|(after, delivered, notice, cutter)| Plan {
        after,
        delivered,
        notice,
        cutter,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// The next device takes over at whichever request a device fails and whichever rank detects it; also if that
    /// device fails too, during the failover or later.
    #[test]
    fn next_device_carries_on_from_any_request(
        first in plan(), second in prop_oneof![Just(NEVER), plan()], rails in any::<bool>(), seed in any::<u64>()
    ) {
        exchange(&[first, second, NEVER], if rails { &[1, 1, 1] } else { &[1, 2, 3] }, seed);
    }
}

/// An old signal that is set again says nothing about a later write that was repeated before it.
#[test]
fn signal_that_is_set_again_is_no_evidence_of_later_writes() {
    let first = Plan { after: 4, delivered: 0, notice: 0, cutter: 0 };
    let second = Plan { after: 1, delivered: 2, notice: 0, cutter: 1 };
    for seed in (0..500).chain([15_098_364_666_003_816_772]) {
        exchange(&[first, second, NEVER], &[1, 2, 3], seed);
    }
}

#[test]
fn atomics_in_progress_end_with_a_clear_error() {
    let unknown = |after| exchange(&[Plan { after, delivered: 2, notice: 3, cutter: 0 }, NEVER], &[1, 2], 5);
    assert!((1..200).map(unknown).sum::<usize>() > 0);
}

/// A rank may end at its first error, without any further call of its device.
#[test]
fn other_devices_are_informed_of_a_loss_that_a_post_reports() {
    let plan = Plan { after: 1, delivered: 0, notice: 0, cutter: 0 };
    let [lost, other] = [plan, NEVER].map(|plan| Cut::pair(plan).map(Box::new));
    let link = Arc::clone(&other[0].link);
    let devices = (1..).zip([lost, other].map(|[device, _]| device)).map(|(number, device)| {
        let member = Member { number, kind: number, carries: [true; SIZES] };
        (member, device as Box<dyn Device>)
    });
    // The peer has only the first device.
    let device = RouteDevice::new(0, None, devices.collect(), &[0b110, 0b010], &[]).unwrap();
    let send = || {
        let operation = Operation::send(&[1], &[]);
        // SAFETY: no blocks.
        unsafe { device.post(&WorkRequest { peer: 1, operation, notify: None, id: 1 }) }
    };
    assert_eq!(send().unwrap(), Posted::Done);
    device.poll(&mut |_| {}).unwrap();
    assert_eq!(send().unwrap_err().blamed(), Some(1));
    assert_eq!(link.lock().unwrap().losses, [Some(1)]);
}
