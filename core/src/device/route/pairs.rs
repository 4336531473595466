//! The state of pairs of ranks that have several inter-node devices in common: the operations that are repeated when
//! one of the devices fails ([`failover`](super::failover) has the protocol).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::control::Control;
use super::requests::{Repeat, Signal};
use crate::device::{Block, Place};
use crate::error::Error;

/// The receiver acknowledges after this many packets, or this many bytes.
const ACK_EVERY_PACKETS: u64 = 64;
const ACK_EVERY_BYTES: usize = 256 << 10;
/// The maximum number of packets, and of bytes, that a sender keeps for one peer; beyond that, posting is `Busy`.
const MAX_KEPT: usize = 1024;
const MAX_BYTES: usize = 4 << 20;
/// Number of stored signals above which those of the same cell are merged.
const MANY_SIGNALS: usize = 256;

/// Copies of packets that were sent and are not acknowledged.
#[derive(Debug, Default)]
pub(super) struct StoredPackets {
    bytes: VecDeque<u8>,
    lens: VecDeque<u32>,
    /// Number of packets sent before the first stored one.
    first: u64,
    /// The index of the packet that is retransmitted next, and the offset of its first byte.
    next_resend: usize,
    resend_offset: usize,
}

impl StoredPackets {
    pub(super) fn is_full(&self) -> bool {
        self.lens.len() >= MAX_KEPT || self.bytes.len() >= MAX_BYTES
    }

    /// Adds a packet that was sent.
    ///
    /// # Safety
    /// The blocks are valid.
    #[allow(unsafe_code)]
    pub(super) unsafe fn add(&mut self, header: &[u8], body: &[Block]) {
        let before = self.bytes.len();
        self.bytes.extend(header);
        for block in body.iter().filter(|block| block.len > 0) {
            // SAFETY: a valid block by the contract.
            self.bytes.extend(unsafe { std::slice::from_raw_parts(block.base, block.len) });
        }
        let len = self.bytes.len() - before;
        self.lens.push_back(len as u32);
        (self.next_resend, self.resend_offset) = (self.lens.len(), self.bytes.len());
    }

    /// Number of packets that were sent before the next one.
    fn sent(&self) -> u64 {
        self.first + self.next_resend as u64
    }

    /// Drops the first packets, of which `count` have arrived in all.
    pub(super) fn acknowledge(&mut self, count: u64) {
        let dropped = count.saturating_sub(self.first).min(self.lens.len() as u64);
        let bytes = self.lens.drain(..dropped as usize).map(|len| len as usize).sum::<usize>();
        self.bytes.drain(..bytes);
        self.first += dropped;
        self.next_resend = self.next_resend.saturating_sub(dropped as usize);
        self.resend_offset = self.resend_offset.saturating_sub(bytes);
    }

    /// Drops all packets and stores no further ones, since no device is left to retransmit them.
    fn clear(&mut self) {
        self.acknowledge(u64::MAX);
    }

    /// Starts to retransmit all packets.
    fn rewind(&mut self) {
        (self.next_resend, self.resend_offset) = (0, 0);
    }

    /// The packet that is retransmitted next.
    pub(super) fn next(&self) -> Option<Vec<u8>> {
        let len = *self.lens.get(self.next_resend)? as usize;
        Some(self.bytes.range(self.resend_offset..self.resend_offset + len).copied().collect())
    }

    pub(super) fn advance(&mut self) {
        self.resend_offset += self.lens.get(self.next_resend).map_or(0, |len| *len as usize);
        self.next_resend += 1;
    }
}

/// A signal that may have to be set again.
#[derive(Clone, Copy, Debug)]
struct Set {
    /// Its number among the requests to the peer when it was set last.
    order: u64,
    /// Its number when the job posted it, which does not change when it is set again.
    since: u64,
    device: u8,
    at: Place,
    value: u64,
    /// The device for packets, and the number of packets sent, when the signal was set.
    packets: u8,
    sent: u64,
}

/// The state of the cell whose value shows whether a write has arrived.
#[derive(Debug)]
pub(super) enum Check {
    /// Its value has not been requested yet, or is not needed.
    Due,
    /// A read of the cell is in progress, with this id.
    Asked(u64, Box<u64>),
    /// The cell has this value.
    Known(u64),
}

/// A request that waits to be posted again.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) repeat: Repeat,
    pub(super) check: Check,
}

impl Waiting {
    /// The id of the read in progress of the request's cell.
    pub(super) fn check(&self) -> Option<u64> {
        match &self.check {
            Check::Asked(id, _) => Some(*id),
            _ => None,
        }
    }
}

/// A peer with which this rank has several devices in common. Devices are bits, by their numbers at this rank.
#[derive(Debug)]
pub(super) struct Pair {
    common: u8,
    left: u8,
    /// The devices that this rank has announced to the peer as left, and those that the peer has announced to this
    /// rank.
    left_sent: u8,
    left_received: u8,
    /// Number of packets of this rank that the peer had received at its announcement.
    arrived: u64,
    /// The device for packets to the peer, and whether it has changed and the stored packets are still to be
    /// retransmitted.
    pub(super) packets: u8,
    has_moved: bool,
    /// Whether new requests wait until both ranks have left the same devices and all earlier requests are posted again.
    pub(super) is_moving: bool,
    pub(super) is_settled: bool,
    pub(super) kept: StoredPackets,
    /// Numbers of the peer's packets that have arrived and that have been acknowledged, and the bytes of the
    /// unacknowledged ones.
    received: u64,
    confirmed: u64,
    unconfirmed: usize,
    /// Devices on which an empty packet has announced a message.
    announced: u8,
    /// A control message of which only the empty packet was sent.
    pub(super) begun: Option<Control>,
    pub(super) waiting: VecDeque<Waiting>,
    signals: VecDeque<Set>,
    /// The signal that is set again next.
    next_signal: usize,
    /// Number of requests posted.
    order: u64,
    /// The reason why no device is left.
    pub(super) lost: Option<Error>,
}

/// The outcome of leaving a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// The device was left before.
    Known,
    /// Requests continue on this device.
    To(u8),
    /// It was the last device, so the peer is lost.
    Last,
    /// No device was left even before: the peer is lost.
    Lost,
}

impl Pair {
    pub(super) fn new(common: u8, packets: u8) -> Self {
        Self {
            common,
            left: 0,
            left_sent: 0,
            left_received: 0,
            arrived: 0,
            packets,
            has_moved: false,
            is_moving: false,
            is_settled: false,
            kept: StoredPackets::default(),
            received: 0,
            confirmed: 0,
            unconfirmed: 0,
            announced: 0,
            begun: None,
            waiting: VecDeque::new(),
            signals: VecDeque::new(),
            next_signal: 0,
            order: 0,
            lost: None,
        }
    }

    /// The devices that were left.
    pub(super) fn left(&self) -> u8 {
        self.left
    }

    /// The devices that were not left.
    pub(super) fn usable(&self) -> u8 {
        self.common & !self.left
    }

    /// Whether another device remains if one fails.
    pub(super) fn has_spare(&self) -> bool {
        self.usable().count_ones() > 1
    }

    /// Whether packets to the peer must wait.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.is_moving || self.begun.is_some() || self.kept.is_full()
    }

    pub(super) fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// Leaves a device.
    pub(super) fn leave(&mut self, device: u8, why: &Error) -> Leaving {
        if self.lost.is_some() {
            return Leaving::Lost;
        }
        if self.left >> device & 1 == 1 {
            return Leaving::Known;
        }
        let rest = self.usable() & !(1 << device);
        if rest == 0 {
            (self.lost, self.is_moving) = (Some(why.again()), false);
            return Leaving::Last;
        }
        self.left |= 1 << device;
        self.announced &= !(1 << device);
        let next = rest.trailing_zeros() as u8;
        if self.packets == device {
            (self.packets, self.has_moved, self.begun) = (next, true, None);
        }
        (self.is_moving, self.is_settled, self.next_signal) = (true, false, 0);
        Leaving::To(next)
    }

    /// Records a packet of the peer; `None` if the device was left.
    #[inline]
    pub(super) fn takes(&mut self, device: u8, len: usize) -> Option<()> {
        if self.left >> device & 1 == 1 {
            return None;
        }
        self.received += 1;
        self.unconfirmed += len;
        Some(())
    }

    /// Whether an arriving packet is a message announced by an empty packet.
    #[inline]
    pub(super) fn is_announced(&mut self, device: u8) -> bool {
        let is_announced = self.announced >> device & 1 == 1;
        self.announced &= !(1 << device);
        is_announced
    }

    pub(super) fn announce(&mut self, device: u8) {
        self.announced |= 1 << device & !self.left;
    }

    /// Whether an acknowledgement is due.
    #[inline]
    pub(super) fn ack_is_due(&self) -> bool {
        (self.received - self.confirmed >= ACK_EVERY_PACKETS || self.unconfirmed >= ACK_EVERY_BYTES) && self.has_spare()
    }

    /// Records an acknowledgement; returns the number of packets that have arrived.
    pub(super) fn confirm(&mut self) -> u64 {
        (self.confirmed, self.unconfirmed) = (self.received, 0);
        self.received
    }

    /// The number of packets that have arrived.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Whether devices that were left are to be announced to the peer.
    pub(super) fn must_announce(&self) -> bool {
        self.left_sent != self.left
    }

    pub(super) fn has_announced(&mut self, left: u8) {
        self.left_sent = left;
    }

    /// Records the devices that the peer has left.
    pub(super) fn receive_left(&mut self, left: u8, arrived: u64) {
        (self.left_received, self.arrived) = (left & self.common, arrived);
    }

    /// Returns whether both ranks have left the same devices and know it; if so, drops the packets that have arrived.
    pub(super) fn settle(&mut self) -> bool {
        if self.left_sent != self.left || self.left_received != self.left {
            return false;
        }
        if !std::mem::replace(&mut self.is_settled, true) {
            self.kept.acknowledge(self.arrived);
            // A signal has arrived if a later packet on its device has arrived; the handler of that packet may have set
            // a greater value.
            self.signals.retain(|set| set.device != set.packets || set.sent >= self.arrived);
            if std::mem::take(&mut self.has_moved) {
                self.kept.rewind();
            }
        }
        true
    }

    /// Ends a failover, after everything was posted again.
    pub(super) fn end_move(&mut self) {
        self.is_moving = false;
        if !self.has_spare() {
            self.kept.clear();
            self.signals.clear();
        }
    }

    /// Stores a signal that was posted, as part of the request of this number if it is not one of its own.
    pub(super) fn keep_signal(&mut self, device: u8, at: Place, value: u64, part_of: Option<u64>) {
        if !self.has_spare() {
            return;
        }
        let order = self.next_order();
        let since = part_of.unwrap_or(order);
        if self.signals.len() >= MANY_SIGNALS {
            let mut seen = rustc_hash::FxHashSet::default();
            let mut latest: Vec<Set> = self.signals.drain(..).rev().collect();
            latest.retain(|set| seen.insert((set.at.region, set.at.offset)));
            self.signals.extend(latest.into_iter().rev());
        }
        let (packets, sent) = (self.packets, self.kept.sent());
        self.signals.push_back(Set { order, since, device, at, value, packets, sent });
    }

    /// Drops signals that have arrived, since a later request on the same device is complete.
    #[inline]
    pub(super) fn completed(&mut self, devices: u8, order: u64) {
        while self.signals.front().is_some_and(|set| set.order < order && devices == 1 << set.device) {
            self.signals.pop_front();
            self.next_signal = self.next_signal.saturating_sub(1);
        }
    }

    /// Drops signals by their cells and values.
    pub(super) fn drop_signals(&mut self, is_dropped: impl Fn(Place, u64) -> bool) {
        let resent = self.signals.iter().take(self.next_signal);
        self.next_signal -= resent.filter(|set| is_dropped(set.at, set.value)).count();
        self.signals.retain(|set| !is_dropped(set.at, set.value));
    }

    /// The signal that is set again next, and the number of the request that set it first. Earlier values of the same cell
    /// are dropped.
    pub(super) fn next_signal(&mut self, peer: u32) -> Option<(Signal, u64)> {
        while let Some(Set { at, value, since, .. }) = self.signals.get(self.next_signal).copied() {
            if !self.signals.range(self.next_signal + 1..).any(|later| later.at == at) {
                return Some((Signal { peer, at, value }, since));
            }
            self.signals.remove(self.next_signal);
        }
        None
    }

    /// Records that a device has set a signal again, after the requests that were posted again before it.
    pub(super) fn advance_signal(&mut self, device: u8) {
        let (order, packets, sent) = (self.next_order(), self.packets, self.kept.sent());
        if let Some(set) = self.signals.get_mut(self.next_signal) {
            *set = Set { device, order, packets, sent, ..*set };
        }
        self.next_signal += 1;
    }
}

/// All pairs of this rank that have several devices in common.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    all: Vec<Option<Box<RefCell<Pair>>>>,
    /// Peers to which requests or announcements are still to be posted.
    pub(super) due: RefCell<Vec<u32>>,
    /// Whether a poll can continue one of these peers; otherwise they wait for a packet of the peer.
    pub(super) is_ready: Cell<bool>,
    /// Announcements of peers: the devices that they have left, and the number of packets that had arrived.
    pub(super) news: RefCell<Vec<(u32, u8, u64)>>,
}

impl Pairs {
    pub(super) fn new(all: impl Iterator<Item = Option<Pair>>) -> Self {
        let all: Vec<_> = all.map(|pair| pair.map(|pair| Box::new(RefCell::new(pair)))).collect();
        let all = if all.iter().any(Option::is_some) { all } else { Vec::new() };
        Self { all, ..Self::default() }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    #[inline(always)]
    pub(super) fn get(&self, peer: u32) -> Option<&RefCell<Pair>> {
        self.all.get(peer as usize)?.as_deref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &RefCell<Pair>)> {
        (0..).zip(&self.all).filter_map(|(peer, pair)| Some((peer, pair.as_deref()?)))
    }

    /// Whether requests or announcements are to be posted, or announcements of peers are to be handled.
    #[inline(always)]
    pub(super) fn is_due(&self) -> bool {
        !self.is_empty() && (!self.due.borrow().is_empty() || !self.news.borrow().is_empty())
    }

    /// Marks a peer with which the next poll continues.
    pub(super) fn mark_due(&self, peer: u32) {
        let mut due = self.due.borrow_mut();
        if !due.contains(&peer) {
            due.push(peer);
        }
        self.is_ready.set(true);
    }

    /// Removes and returns the requests whose id satisfies `which`; their checks may be in progress.
    pub(super) fn cancel(&self, which: &dyn Fn(u64) -> bool) -> Vec<Waiting> {
        let mut taken = Vec::new();
        for (_, pair) in self.iter() {
            let waiting = &mut pair.borrow_mut().waiting;
            for _ in 0..waiting.len() {
                match waiting.pop_front() {
                    Some(one) if which(one.repeat.id) => taken.push(one),
                    one => waiting.extend(one),
                }
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[allow(unsafe_code)]
    fn add(kept: &mut StoredPackets, packet: &[u8]) {
        // SAFETY: no blocks.
        unsafe { kept.add(packet, &[]) };
    }

    #[test]
    fn packets_that_have_not_arrived_are_sent_again() {
        let mut kept = StoredPackets::default();
        let packet = |i: u8| vec![i; usize::from(i) % 5];
        for i in 0..20 {
            add(&mut kept, &packet(i));
        }
        assert_eq!(kept.next(), None);
        kept.acknowledge(7);
        kept.rewind();
        for i in 7..20 {
            assert_eq!(kept.next(), Some(packet(i)));
            kept.advance();
            // Acknowledgements arrive meanwhile.
            kept.acknowledge(u64::from(i) - 3);
        }
        assert_eq!(kept.next(), None);
        kept.clear();
        assert!(kept.bytes.is_empty() && kept.lens.is_empty());
    }

    #[test]
    fn pair_moves_when_both_ranks_have_left_the_same_devices() {
        let why = Error::new(ErrorKind::PeerLost, "post");
        let mut pair = Pair::new(0b1011, 0);
        assert_eq!(pair.leave(0, &why), Leaving::To(1));
        assert_eq!((pair.leave(0, &why), pair.packets), (Leaving::Known, 1));
        pair.receive_left(0b1, 0);
        assert!(pair.must_announce() && !pair.settle());
        pair.has_announced(0b1);
        assert!(pair.settle());
        assert_eq!(pair.leave(3, &why), Leaving::To(1));
        assert!(pair.must_announce() && !pair.settle());
        assert_eq!(pair.leave(1, &why), Leaving::Last);
        assert!(pair.lost.is_some());
    }

    #[test]
    fn signal_is_not_set_again_if_a_packet_after_it_has_arrived() {
        let why = Error::new(ErrorKind::PeerLost, "post");
        let at = |offset| Place { region: 1, offset };
        // A signal before each of three packets, and one on a device on which no packets are sent.
        let again = |arrived| {
            let mut pair = Pair::new(0b111, 0);
            for offset in 0..3 {
                pair.keep_signal(0, at(offset), 1, None);
                add(&mut pair.kept, &[0; 8]);
            }
            pair.keep_signal(2, at(3), 1, None);
            pair.leave(0, &why);
            pair.has_announced(0b1);
            pair.receive_left(0b1, arrived);
            assert!(pair.settle());
            let mut again = Vec::new();
            while let Some((Signal { at, .. }, _)) = pair.next_signal(1) {
                again.push(at.offset);
                pair.advance_signal(1);
            }
            again
        };
        assert_eq!([0, 1, 2, 3].map(again), [vec![0, 1, 2, 3], vec![1, 2, 3], vec![2, 3], vec![3]]);
    }

    #[test]
    fn last_value_of_a_cell_is_set_again_unless_it_has_arrived() {
        let mut pair = Pair::new(0b11, 0);
        let at = |offset| Place { region: 1, offset };
        for (offset, value) in [(0, 1), (8, 2), (0, 3), (16, 4)] {
            pair.keep_signal(0, at(offset), value, None);
        }
        let order = pair.next_order();
        pair.keep_signal(0, at(8), 5, None);
        let mut again = Vec::new();
        while let Some((Signal { at, value, .. }, _)) = pair.next_signal(1) {
            again.push((at.offset, value));
            pair.advance_signal(0);
        }
        assert_eq!(again, [(0, 3), (16, 4), (8, 5)]);
        // A request that was posted before the signals were set again does not show that they have arrived.
        pair.completed(0b1, order);
        let later = pair.next_order();
        pair.completed(0b10, later);
        assert_eq!(pair.signals.len(), 3);
        pair.drop_signals(|of, value| of == at(8) && value < 5);
        assert_eq!(pair.signals.len(), 3);
        pair.completed(0b1, later);
        assert!(pair.signals.is_empty());
        pair.keep_signal(0, at(0), 6, None);
        for value in 0..2000 {
            pair.keep_signal(0, at(24), value, None);
        }
        assert!(pair.signals.len() <= MANY_SIGNALS + 1);
        let (number, cell) = (pair.signals.len(), at(24));
        pair.drop_signals(|at, _| at == cell);
        assert!((1..number).contains(&pair.signals.len()) && pair.next_signal <= pair.signals.len());
        pair.drop_signals(|at, _| at.region == 1);
        assert!(pair.signals.is_empty() && pair.next_signal == 0);
    }
}
