#![allow(unsafe_code)]
//! Order and atomics over the loopback device, one poll at a time: what waits for what, and the requests of each.

use std::sync::Arc;

use super::*;
use crate::device::Update;
use crate::device::code::{Effect, hint};
use crate::device::loopback::{Hub, Loopback};

/// Adds words of 8 bytes.
unsafe fn add(code: u32, target: *mut u8, operand: *const u8, result: *mut u8, bytes: usize) -> bool {
    for at in (0..bytes).step_by(8).filter(|_| code == SUM) {
        // SAFETY: three ranges of that length by the contract of `AccumulateFn`; `result` may be null.
        unsafe {
            let old = target.add(at).cast::<u64>().read_unaligned();
            let sum = old.wrapping_add(operand.add(at).cast::<u64>().read_unaligned());
            target.add(at).cast::<u64>().write_unaligned(sum);
            if !result.is_null() {
                result.add(at).cast::<u64>().write_unaligned(old);
            }
        }
    }
    code == SUM
}

const SUM: u32 = hint(8, Effect::Other);
const WORDS: usize = 2000;

/// An origin, rank 0, and its region at a target, rank 1, both wrapped.
struct Pair {
    origin: Ordered,
    target: Ordered,
    own: Registration,
    region: u64,
    id: Cell<u64>,
}

impl Pair {
    fn new(make: impl Fn(&Arc<Hub>, u32) -> Loopback) -> Self {
        let hub = Hub::new(2);
        let [origin, target] = [0, 1].map(|me| Ordered::over(Box::new(make(&hub, me)), me));
        let region = Region { accumulate: Some(add), ..Region::allocated(8 * WORDS) };
        let own = (&target as &dyn Device).allocate(region).unwrap();
        let region = origin.import(1, &own.key, Some(add)).unwrap().handle;
        Self { origin, target, own, region, id: Cell::new(0) }
    }

    /// A network on which a write is placed as `placement` says.
    fn placed(placement: Placement) -> Self {
        let limits = Capabilities { placement, ..Capabilities::minimal("loopback", 4096) };
        Self::new(|hub, me| Loopback::with(hub, me, limits.clone()))
    }

    fn at(&self, word: usize) -> Place {
        Place { region: self.region, offset: 8 * word }
    }

    fn post(&self, operation: Operation<'_>, notify: Option<(Place, u64)>) -> Posted {
        self.id.set(self.id.get() + 1);
        // SAFETY: the callers' memory outlives the requests.
        unsafe { self.origin.post(&WorkRequest { peer: 1, operation, notify, id: self.id.get() }) }.unwrap()
    }

    fn write(&self, value: &u64, word: usize, notify: Option<(Place, u64)>) -> Posted {
        let from = [Block::of(std::ptr::from_ref(value).cast(), 8)];
        self.post(Operation::write(&from, self.at(word)), notify)
    }

    fn signal(&self, word: usize, value: u64) -> Posted {
        self.post(Operation::Signal { at: self.at(word), value }, None)
    }

    /// Polls a rank once; returns its completions. There are no packets for the layer above.
    fn poll(device: &Ordered) -> Vec<(u64, Option<ErrorKind>)> {
        let mut all = Vec::new();
        let polled = device.poll(&mut |event| match event {
            Event::Completed { id, result } => all.push((id, result.err().map(|e| e.kind()))),
            Event::Packet { bytes, .. } => panic!("a packet of {} bytes", bytes.len()),
            Event::LongPacket { .. } => panic!("a long packet"),
        });
        polled.unwrap();
        all
    }

    fn word(&self, word: usize) -> u64 {
        // SAFETY: a word of the target's region.
        unsafe { self.own.base.add(8 * word).cast::<u64>().read() }
    }

    fn counts<const N: usize>(&self, kinds: [Kind; N]) -> [u64; N] {
        let stats = self.origin.own_stats_of_test();
        kinds.map(|kind| stats.count(kind))
    }
}

impl Ordered {
    fn own_stats_of_test(&self) -> crate::stats::Snapshot {
        self.inner.own_stats().snapshot()
    }
}

#[test]
fn device_that_lacks_nothing_is_not_wrapped() {
    let hub = Hub::new(1);
    for device in [Loopback::new(&hub, 0), Loopback::minimal(&hub, 0)] {
        assert!(!Ordered::is_needed(device.capabilities()));
    }
    let bare = Ordered::over(Box::new(Loopback::bare(&hub, 0)), 0);
    let all = bare.capabilities();
    assert!(!Ordered::is_needed(all) && all.accumulate && all.coherent && !all.passive);
}

#[test]
fn signal_waits_for_the_completion_of_earlier_writes() {
    let pair = Pair::placed(Placement::AtCompletion);
    assert_eq!(pair.signal(0, 1), Posted::Done);
    assert_eq!([pair.write(&7, 1, None), pair.write(&8, 2, None)], [Posted::Pending; 2]);
    assert_eq!(pair.signal(0, 2), Posted::Busy);
    let mut old = 0;
    assert_eq!(pair.post(Operation::fetch_add(pair.at(3), 1, &raw mut old), None), Posted::Busy);
    assert_eq!(Pair::poll(&pair.origin), [(2, None), (3, None)]);
    assert_eq!(
        [pair.signal(0, 2), pair.post(Operation::fetch_add(pair.at(3), 1, &raw mut old), None)],
        [Posted::Done, Posted::Pending]
    );
    assert_eq!(Pair::poll(&pair.origin), [(7, None)]);
    assert_eq!(pair.counts([Kind::Write, Kind::Signal, Kind::Read, Kind::FetchAdd]), [2, 2, 0, 1]);
    assert_eq!((0..4).map(|i| pair.word(i)).collect::<Vec<_>>(), [2, 7, 8, 1]);
}

#[test]
fn notification_is_a_signal_after_all_earlier_writes() {
    let pair = Pair::placed(Placement::AtCompletion);
    assert_eq!(pair.write(&7, 1, Some((pair.at(0), 5))), Posted::Pending);
    // A later signal does not overtake the notification.
    assert_eq!((pair.word(0), pair.signal(0, 6)), (0, Posted::Busy));
    assert_eq!(Pair::poll(&pair.origin), [(1, None)]);
    assert_eq!((pair.word(0), pair.word(1)), (5, 7));
    assert_eq!(pair.counts([Kind::Write, Kind::Signal, Kind::Notify]), [1, 1, 1]);
    // The notification of a cancelled request is dropped.
    assert_eq!(pair.write(&8, 1, Some((pair.at(0), 7))), Posted::Pending);
    pair.origin.cancel(&|id| id == 3);
    assert_eq!((Pair::poll(&pair.origin), pair.word(0), pair.signal(0, 8)), (Vec::new(), 5, Posted::Done));
}

#[test]
fn one_read_pushes_all_complete_writes() {
    let pair = Pair::placed(Placement::AtRead);
    assert_eq!([pair.write(&7, 1, None), pair.write(&8, 2, None)], [Posted::Pending; 2]);
    // The device reports both, and the read is posted.
    assert_eq!((Pair::poll(&pair.origin), pair.signal(0, 1)), (Vec::new(), Posted::Busy));
    assert!(!pair.origin.leave(Leave::Early).unwrap());
    assert_eq!(Pair::poll(&pair.origin), [(1, None), (2, None)]);
    assert_eq!(pair.signal(0, 1), Posted::Done);
    assert_eq!(pair.counts([Kind::Write, Kind::Read, Kind::Signal]), [2, 1, 1]);
    // A write that completes while the read is in progress takes another one.
    assert_eq!((pair.write(&7, 1, None), Pair::poll(&pair.origin)), (Posted::Pending, Vec::new()));
    assert_eq!(pair.write(&9, 2, None), Posted::Pending);
    assert_eq!(Pair::poll(&pair.origin), [(5, None)]);
    assert_eq!((pair.signal(0, 2), Pair::poll(&pair.origin)), (Posted::Busy, vec![(6, None)]));
    assert_eq!((pair.signal(0, 2), pair.counts([Kind::Read])), (Posted::Done, [3]));
    assert!(pair.origin.leave(Leave::Early).unwrap());
}

#[test]
fn updates_are_packets_that_the_target_serves() {
    let pair = Pair::new(Loopback::bare);
    let mut old = [0u64; 2];
    // A write is placed before an update that follows it.
    assert_eq!(pair.write(&40, 0, None), Posted::Pending);
    assert_eq!(pair.post(Operation::fetch_add(pair.at(0), 2, &raw mut old[0]), None), Posted::Busy);
    assert_eq!((Pair::poll(&pair.origin), Pair::poll(&pair.origin)), (Vec::new(), vec![(1, None)]));
    assert_eq!(pair.post(Operation::fetch_add(pair.at(0), 2, &raw mut old[0]), None), Posted::Pending);
    let notify = Some((pair.at(5), 9));
    let swap = Operation::compare_swap(pair.at(0), 8, [42, 50], (&raw mut old[1]).cast());
    assert_eq!((pair.post(swap, notify), pair.signal(4, 1)), (Posted::Pending, Posted::Busy));
    assert_eq!((Pair::poll(&pair.origin), pair.word(0)), (Vec::new(), 40));
    Pair::poll(&pair.target);
    assert_eq!((pair.word(0), pair.word(5)), (50, 0));
    assert_eq!((Pair::poll(&pair.origin), old, pair.word(5)), (vec![(3, None), (4, None)], [40, 42], 9));
    assert_eq!(pair.signal(4, 1), Posted::Done);
    assert_eq!(pair.counts([Kind::FetchAdd, Kind::CompareSwap, Kind::Send, Kind::Notify]), [1, 1, 2, 1]);
    assert_eq!(pair.target.own_stats_of_test().count(Kind::Served), 2);
}

#[test]
fn long_accumulate_is_served_in_parts() {
    let pair = Pair::new(Loopback::bare);
    let operand: Vec<u64> = (1..=WORDS as u64).collect();
    let mut old = vec![7u64; WORDS];
    for round in 0..2 {
        let block = Block::of(operand.as_ptr().cast(), 8 * WORDS);
        let sum = Operation::accumulate(pair.at(0), SUM, block, old.as_mut_ptr().cast());
        assert_eq!(pair.post(sum, None), Posted::Pending);
        Pair::poll(&pair.target);
        assert_eq!(Pair::poll(&pair.origin), [(round + 1, None)]);
        assert!(old.iter().zip(&operand).all(|(old, add)| *old == round * add));
    }
    let parts = (8 * WORDS).div_ceil((4096 - 42) / 8 * 8) as u64;
    assert_eq!(pair.counts([Kind::Accumulate, Kind::Send]), [2, 2 * parts]);
    // An accumulate that its function refuses.
    let (code, block) = (hint(8, Effect::Add), Block::of(operand.as_ptr().cast(), 8));
    assert_eq!(pair.post(Operation::accumulate(pair.at(0), code, block, std::ptr::null_mut()), None), Posted::Pending);
    Pair::poll(&pair.target);
    assert_eq!(Pair::poll(&pair.origin), [(3, Some(ErrorKind::Misaligned))]);
}

#[test]
fn cancelled_update_stores_nothing_and_delays_no_signal() {
    let pair = Pair::new(Loopback::bare);
    let mut old = 3;
    assert_eq!(pair.post(Operation::fetch_add(pair.at(0), 2, &raw mut old), None), Posted::Pending);
    pair.origin.cancel(&|id| id == 1);
    assert_eq!(pair.signal(1, 1), Posted::Done);
    Pair::poll(&pair.target);
    assert_eq!((Pair::poll(&pair.origin), old, pair.word(0)), (Vec::new(), 3, 2));
    assert!(pair.origin.leave(Leave::Early).unwrap());
}

#[test]
fn updates_to_a_lost_rank_fail() {
    let pair = Pair::new(Loopback::bare);
    let mut old = 3;
    assert_eq!(pair.post(Operation::fetch_add(pair.at(0), 2, &raw mut old), None), Posted::Pending);
    pair.origin.check_peers(PeerCheck::Left(1)).unwrap();
    assert_eq!(Pair::poll(&pair.origin), [(1, Some(ErrorKind::PeerLost))]);
    // Its late answer is dropped.
    Pair::poll(&pair.target);
    assert_eq!((Pair::poll(&pair.origin), old), (Vec::new(), 3));
}

#[test]
fn hostile_packets_change_nothing() {
    let pair = Pair::new(Loopback::bare);
    let ones = [1u64; 2];
    let (served, update) = (pair.origin.served.as_ref().unwrap(), |offset, len| Update {
        change: crate::device::Change::Accumulate { code: SUM, operand: ones.as_ptr().cast() },
        at: Place { region: pair.region, offset },
        len,
        old: std::ptr::null_mut(),
    });
    // SAFETY: the operand outlives the call.
    let (good, _) = unsafe { served.begin(1, &update(0, 16)).unwrap().request(77, 4000) };
    let mut wrong_key = good.clone();
    wrong_key[16] ^= 0x55;
    let mut outside = good.clone();
    outside[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
    let mut kind = good.clone();
    kind[40] = 3;
    let mut reserved = good.clone();
    reserved[32..36].fill(0xff);
    let mut answer = u64::from_le_bytes(*b"\x41updates").to_le_bytes().to_vec();
    answer.extend([9; 30]);
    let cut = (8..good.len()).map(|len| good[..len].to_vec());
    for packet in cut.chain([wrong_key, outside, kind, reserved, answer.clone(), answer[..8].to_vec()]) {
        // SAFETY: packets are copied.
        let posted = unsafe { pair.origin.post_own(1, Operation::send(&packet, &[]), UNREPORTED) };
        posted.unwrap();
        Pair::poll(&pair.target);
        Pair::poll(&pair.origin);
    }
    assert!((0..WORDS).all(|word| pair.word(word) == 0));
    // An answer that does not fit its request is an error, and is not stored.
    let mut old = 3;
    assert_eq!(pair.post(Operation::fetch_add(pair.at(0), 2, &raw mut old), None), Posted::Pending);
    let number = pair.origin.open.borrow().iter().next().unwrap().0;
    answer[8..16].copy_from_slice(&number.to_le_bytes());
    answer[16] = 0;
    // SAFETY: packets are copied.
    unsafe { pair.target.post_own(0, Operation::send(&answer, &[]), UNREPORTED) }.unwrap();
    Pair::poll(&pair.target);
    assert_eq!((Pair::poll(&pair.origin), old), (vec![(1, Some(ErrorKind::Protocol))], 3));
}
