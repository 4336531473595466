#![allow(unsafe_code)]
//! Injects a fault into every kind of operation once and checks that it has an effect, over one device and over a
//! multidevice of two.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::wrap;
use crate::device::loopback::{Hub, Loopback};
use crate::device::route::tests::joined;
use crate::device::{
    BarrierRequest, Block, Device, Event, Operation, Packet, Place, Posted, Range, Region, ShortPacket, Transfer,
    WorkRequest, shm,
};
use crate::error::{ErrorKind, Result};
use crate::settings::Settings;
use crate::stats::Kind;

/// The accumulate function: adds words.
unsafe fn add(_: u32, target: *mut u8, operand: *const u8, result: *mut u8, bytes: usize) -> bool {
    assert_eq!(bytes, 8);
    // SAFETY: all three point to words by the contract of `AccumulateFn`, except that `result` may be null.
    unsafe {
        let old = AtomicU64::from_ptr(target.cast()).fetch_add(operand.cast::<u64>().read(), Ordering::SeqCst);
        if !result.is_null() {
            result.cast::<u64>().write(old);
        }
    }
    true
}

/// The setting that injects a fault into this operation.
fn damage(operation: &Operation<'_>) -> &'static str {
    match operation {
        Operation::Transfer(Transfer { write: true, .. }) | Operation::List { send: true, .. } => "drop-put",
        Operation::Transfer(_) | Operation::List { .. } => "drop-get",
        Operation::Update(_) => "lose-atomic",
        Operation::Signal { .. } | Operation::Barrier(_) => "drop-signal",
        Operation::Packet(_) => "drop-message",
    }
}

/// Rank 0 and the peer that it uses, each with its own device.
struct Ranks {
    origin: Box<dyn Device>,
    target: Box<dyn Device>,
    peer: u32,
    /// The target's memory: the handle at the origin, the address at the owner.
    region: u64,
    memory: *mut u8,
}

/// Everything that an operation can change: the target's memory, the origin's memory, and the number of packets.
type Effect = ([u64; 4], [u64; 2], usize);

impl Ranks {
    /// Over loopback if `peer` is `None`, otherwise over a multidevice to rank 1 on another node or to rank 2 on the
    /// same node.
    fn new(peer: Option<u32>, damage: &str) -> Self {
        let hub = Hub::new(3);
        let devices = match peer {
            None => [0, 1].map(|rank| Box::new(Loopback::new(&hub, rank)) as Box<dyn Device>),
            Some(peer) => {
                let settings = Settings::from_lookup(|_| None).unwrap();
                let node = |rank| if peer == 2 { vec![0, 2] } else { vec![rank] };
                let number = |rank| node(rank).iter().position(|r| *r == rank).unwrap();
                let intra = [0, peer].map(|r| (r, shm::Prepared::new(number(r), node(r), &settings).unwrap()));
                let addresses = [0, 1].map(|i| intra[i].1.address().unwrap());
                intra.map(|(rank, prepared)| {
                    let on_node: Vec<Vec<u8>> =
                        node(rank).iter().map(|r| addresses[usize::from(*r != 0)].clone()).collect();
                    let intra = prepared.connect(&on_node, 3).unwrap();
                    let inter = Box::new(Loopback::new(&hub, rank));
                    Box::new(joined(rank, 3, Box::new(intra), inter).unwrap()) as Box<dyn Device>
                })
            }
        };
        let [origin, target] = devices;
        let origin = wrap(origin, damage, 0, |packet| (packet.len() == 20).then_some(4)).unwrap();
        let region = Region { accumulate: Some(add), one_node: peer == Some(2), ..Region::allocated(32) };
        let own = target.allocate(region).unwrap();
        let peer = peer.unwrap_or(1);
        let region = origin.import(peer, &own.key, Some(add)).unwrap().handle;
        let ranks = Self { origin, target, peer, region, memory: own.base };
        ranks.word(0).store(5, Ordering::SeqCst);
        ranks
    }

    fn word(&self, i: usize) -> &AtomicU64 {
        // SAFETY: one of the target's four aligned words, which live as long as its device.
        unsafe { AtomicU64::from_ptr(self.memory.cast::<u64>().add(i)) }
    }

    fn effect(&self, local: &Cell<[u64; 2]>) -> Effect {
        let mut packets = 0;
        self.target.poll(&mut |event| packets += usize::from(matches!(event, Event::Packet { .. }))).unwrap();
        (std::array::from_fn(|i| self.word(i).load(Ordering::SeqCst)), local.get(), packets)
    }

    /// Posts an operation at the first word, on memory that outlives the call, and polls until it is complete.
    fn complete(&self, operation: Operation<'_>, notify: Option<(Place, u64)>) -> Result<()> {
        // SAFETY: the caller's memory outlives the call.
        let posted = unsafe { self.origin.post(&WorkRequest { peer: self.peer, operation, notify, id: 1 }) }?;
        let mut end = (posted == Posted::Done).then_some(Ok(()));
        for _ in 0..1000 {
            let Some(result) = end else {
                self.origin.poll(&mut |event| {
                    if let Event::Completed { result, .. } = event {
                        end = Some(result);
                    }
                })?;
                continue;
            };
            return result;
        }
        panic!("{operation:?} is never complete");
    }

    fn damages(&self) -> u64 {
        self.origin.own_stats().snapshot().count(Kind::Damage)
    }
}

const PEERS: [Option<u32>; 3] = [None, Some(1), Some(2)];

#[test]
fn each_kind_of_operation_is_damaged_once_and_that_shows() {
    let source = [9u64, 0];
    let from = [Block::of(source.as_ptr().cast(), 8)];
    let ranges = [Range { offset: 0, len: 8 }];
    let packet = ShortPacket::new([1; 6], 20);
    for (peer, kind) in PEERS.into_iter().flat_map(|peer| (0..13).map(move |kind| (peer, kind))) {
        let local = Cell::new([3u64; 2]);
        let old = local.as_ptr().cast::<u64>();
        let into = [Block { base: old.cast(), len: 8 }];
        let operation = |region| {
            let at = Place { region, offset: 0 };
            [
                Operation::write(&from, at),
                Operation::read(&into, at),
                Operation::write_list(&from, region, &ranges),
                Operation::read_list(&into, region, &ranges),
                Operation::fetch_add(at, 1, old),
                Operation::compare_swap(at, 8, [5, 6], old.cast()),
                Operation::accumulate(at, 0, from[0], old.cast()),
                Operation::Signal { at, value: 7 },
                Operation::scatter(&into),
                Operation::gather(&from),
                Operation::Packet(Packet::Short(&packet)),
                Operation::send(&[1], &from),
                Operation::Barrier(BarrierRequest::Enter { group: 1, number: 1 }),
            ][kind]
        };
        let ranks = Ranks::new(peer, &format!("{}:1", damage(&operation(0))));
        let operation = operation(ranks.region);
        let before = ranks.effect(&local);
        ranks.complete(operation, None).unwrap();
        assert_eq!((ranks.effect(&local), ranks.damages()), (before, 1), "{peer:?}: {operation:?} was done");
        match ranks.complete(operation, None) {
            Ok(()) => assert_ne!(ranks.effect(&local), before, "{peer:?}: {operation:?} did nothing"),
            // These devices have no lists and no barrier in a switch.
            Err(e) => assert!(e.kind() == ErrorKind::Unsupported && matches!(kind, 2 | 3 | 8 | 9 | 12), "{e}"),
        }
        assert_eq!(ranks.damages(), 1, "{peer:?}: {operation:?}");
    }
}

#[test]
fn write_arrives_twice_or_after_its_notification() {
    let source = [9u64];
    let from = [Block::of(source.as_ptr().cast(), 8)];
    for (peer, damage) in PEERS.into_iter().flat_map(|peer| ["double-put:1", "early-notify:1"].map(|d| (peer, d))) {
        let ranks = Ranks::new(peer, damage);
        let at = |offset| Place { region: ranks.region, offset };
        ranks.complete(Operation::write(&from, at(0)), Some((at(8), 1))).unwrap();
        let words = || [0, 1].map(|i| ranks.word(i).load(Ordering::SeqCst));
        let is_double = damage == "double-put:1";
        assert_eq!((words(), ranks.damages()), ([if is_double { 9 } else { 5 }, 1], 1), "{peer:?}: {damage}");
        let other = [7u64];
        let from = [Block::of(other.as_ptr().cast(), 8)];
        ranks.complete(Operation::write(&from, at(16)), None).unwrap();
        assert_eq!(words(), [9, 1], "{peer:?}: {damage}");
        ranks.complete(Operation::write(&from, at(0)), None).unwrap();
        assert_eq!(words(), [if is_double { 9 } else { 7 }, 1], "{peer:?}: {damage}");
        ranks.complete(Operation::write(&from, at(0)), None).unwrap();
        assert_eq!(words(), [7, 1], "{peer:?}: {damage}");
    }
}

#[test]
fn notification_overtakes_a_write_before_it() {
    let source = [9u64];
    let from = [Block::of(source.as_ptr().cast(), 8)];
    for (peer, number) in PEERS.into_iter().flat_map(|peer| [1, 2].map(|number| (peer, number))) {
        let ranks = Ranks::new(peer, &format!("early-notify:{number}"));
        let at = |offset| Place { region: ranks.region, offset };
        let words = || [0, 1].map(|i| ranks.word(i).load(Ordering::SeqCst));
        ranks.complete(Operation::write(&from, at(0)), None).unwrap();
        ranks.complete(Operation::Signal { at: at(8), value: 1 }, None).unwrap();
        assert_eq!(words(), [if number == 1 { 5 } else { 9 }, 1], "{peer:?}: {number}");
        ranks.complete(Operation::write(&from, at(16)), None).unwrap();
        assert_eq!((words(), ranks.damages()), ([9, 1], u64::from(number == 1)), "{peer:?}: {number}");
    }
}

#[test]
fn atomics_on_own_memory_are_done_by_the_processor() {
    let hub = Hub::new(1);
    let device = wrap(Box::new(Loopback::new(&hub, 0)), "own-atomic:2", 0, |_| None).unwrap();
    let own = device.allocate(Region { accumulate: Some(add), ..Region::allocated(8) }).unwrap();
    let at = Place { region: device.import(0, &own.key, Some(add)).unwrap().handle, offset: 0 };
    let old = Cell::new(0u64);
    let operation = Operation::fetch_add(at, 3, old.as_ptr());
    // SAFETY: the previous value outlives the device's use of it.
    let post = || unsafe { device.post(&WorkRequest { peer: 0, operation, notify: None, id: 1 }) }.unwrap();
    assert_eq!([post(), post(), post()], [Posted::Pending, Posted::Done, Posted::Done]);
    assert_eq!(device.own_stats().snapshot().count(Kind::FetchAdd), 1, "two of them without the device");
    // SAFETY: an aligned word of the device's memory.
    assert_eq!((unsafe { own.base.cast::<u64>().read() }, old.get()), (9, 6));
}

#[test]
fn credit_for_packets_is_not_returned_and_a_tag_is_changed() {
    let packet = ShortPacket::new([1 << 32; 6], 20);
    let sent = |origin: &dyn Device| {
        let request =
            WorkRequest { peer: 1, operation: Operation::Packet(Packet::Short(&packet)), notify: None, id: 0 };
        // SAFETY: no local memory is involved.
        unsafe { origin.post(&request) }.unwrap()
    };
    let ranks = Ranks::new(None, "keep-credit:3");
    let taken = (0..100).take_while(|_| {
        let taken = sent(&*ranks.origin) == Posted::Done;
        ranks.target.poll(&mut |_| {}).unwrap();
        taken
    });
    assert_eq!((taken.count(), ranks.damages()), (2 + 64, 1));
    let ranks = Ranks::new(None, "wrong-tag:2");
    (0..3).for_each(|_| assert_eq!(sent(&*ranks.origin), Posted::Done));
    let mut tags = Vec::new();
    let mut sink = |event: Event<'_>| {
        if let Event::Packet { bytes, .. } = event {
            tags.push((bytes[4], bytes.len()));
        }
    };
    ranks.target.poll(&mut sink).unwrap();
    assert_eq!((tags, ranks.damages()), (vec![(1, 20), (0, 20), (1, 20)], 1));
}
