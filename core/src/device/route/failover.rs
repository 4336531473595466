#![allow(unsafe_code)]
//! Failover of devices: if two ranks have several inter-node devices in common and one of these loses the other rank,
//! the pair leaves it and continues over the next device in the table. A pair never returns to a device that it has
//! left.
//!
//! Packets have no header for this: each side counts the packets that have arrived, and the sender keeps copies of
//! those that are not acknowledged. An empty packet announces that the next one is a [`Control`] message: an
//! acknowledgement, or the devices that the sender has left and the number of packets that it had received when it had
//! left them.
//!
//! A rank that leaves a device ends all use of it with the peer first ([`PeerCheck::Left`]), so that nothing that was
//! sent over it takes effect later, and then announces this to the peer over the next device. The peer leaves the
//! device too, and answers with its own announcement. When both have left the same devices, each posts again, in order:
//! the reads and writes that have failed, the last values of signal cells, and the packets that have not arrived. Until
//! then, posting a new request returns `Busy`. If another device fails meanwhile, the failover starts again with the
//! next one. The peer is lost when no device is left.
//!
//! | operation in progress | after its device has failed |
//! |---|---|
//! | packet | arrives exactly once, in order |
//! | read | is read again |
//! | write | is written again |
//! | write before, or with, a signal or notification, which is evidence of its arrival | the cell is read: what has arrived is complete, the rest is repeated |
//! | signal | the cell is set again to its last value: it has one writer, and only grows; unless a packet that was sent after it has arrived, or a later write carries a notification of the cell |
//! | atomic, accumulate, write before one of these | `PeerLost`: its effect is unknown |
//! | list ([`Operation::List`]) | `PeerLost` |
//!
//! Later atomics and accumulates use the next device if its atomics are coherent with those of the device that was
//! left; otherwise they end with `PeerLost`.

use std::cell::RefCell;

use super::RouteDevice;
use super::control::Control;
use super::pairs::{Check, Leaving, Pair, Waiting};
use super::regions::Found;
use super::requests::{Evidence, Repeat, Requests, Signal, Tracked, UNTRACKED};
use crate::device::cell::unmarked;
use crate::device::{Block, Event, Operation, PeerCheck, Place, Posted, WorkRequest};
use crate::error::{Error, ErrorKind, Result};

/// The reason why the requests that are to be posted again are delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Done,
    /// The requests continue at an event.
    Waits,
    /// A device is full.
    Busy,
}

impl RouteDevice {
    /// Leaves a device that has lost a peer.
    #[cold]
    fn leave_device(&self, device: u8, peer: u32, why: &Error) -> Leaving {
        let Some(pair) = self.pairs.get(peer) else { return Leaving::Lost };
        let leaving = pair.borrow_mut().leave(device, why);
        match leaving {
            Leaving::To(next) => {
                let [from, to] = [device, next].map(|device| self.describe(device));
                tracing::warn!(
                    "{from} is no longer used for rank {peer}, which is reached through {to} from now on: {why}"
                );
                let left = pair.borrow().left();
                self.move_imports(peer, left);
                if let Err(e) = self.device(device).check_peers(PeerCheck::Left(peer)) {
                    tracing::debug!("{from}: {e}");
                }
                self.pairs.mark_due(peer);
            }
            Leaving::Last => {
                self.report_loss(device, why);
                self.pairs.mark_due(peer);
            }
            Leaving::Known | Leaving::Lost => {}
        }
        leaving
    }

    /// The name and number of a device, for log lines.
    fn describe(&self, device: u8) -> String {
        let name = self.device(device).capabilities().name;
        format!("device {name} (number {} in the job)", self.numbers[usize::from(device)])
    }

    /// Records an error of a device; returns whether this rank continues without the device.
    pub(super) fn has_lost(&self, device: u8, e: &Error) -> bool {
        let goes_on = |peer| matches!(self.leave_device(device, peer, e), Leaving::To(_) | Leaving::Known);
        match (e.kind(), e.blamed_number()) {
            (ErrorKind::PeerLost, Some(peer)) if self.pairs.get(peer).is_some() => goes_on(peer),
            // The device itself has failed, but no pair may need it.
            (ErrorKind::System, None) if !self.pairs.is_empty() && !self.table.needs(device) => {
                let peers: Vec<u32> = self.pairs.iter().map(|(peer, _)| peer).collect();
                let uses = |peer: &u32| self.table.get(*peer).is_some_and(|c| c.common >> device & 1 == 1);
                // Every device is checked, even if another one fails.
                peers.into_iter().filter(uses).filter(|peer| !goes_on(*peer)).count() == 0
            }
            _ => {
                self.report_loss(device, e);
                false
            }
        }
    }

    /// Reports a loss that one device has detected to the other devices: if this rank ends because of it, the ranks
    /// that those devices reach report the first loss.
    #[cold]
    pub(super) fn report_loss(&self, number: u8, e: &Error) {
        if e.kind() == ErrorKind::PeerLost {
            let others = (0..).zip(&self.devices).filter(|(other, _)| *other != number);
            others.for_each(|(_, device)| _ = device.check_peers(PeerCheck::Met(e)));
        }
    }

    /// Records that a request to a peer has failed.
    pub(super) fn has_failed(&self, device: u8, peer: u32, e: &Error) {
        if e.kind() == ErrorKind::PeerLost && self.pairs.get(peer).is_some() {
            self.leave_device(device, peer, e);
        }
    }

    /// Posts a request to a device; if the device has lost the peer, the pair leaves it.
    ///
    /// # Safety
    /// The contract of [`Device::post`](crate::device::Device::post).
    #[inline]
    pub(super) unsafe fn post_to(&self, device: u8, request: &WorkRequest<'_>) -> Result<Posted> {
        // SAFETY: the same contract.
        match unsafe { self.post_by(device, request) } {
            Err(e) if e.kind() == ErrorKind::PeerLost => self.refused(device, request.peer, e),
            posted => posted,
        }
    }

    #[cold]
    fn refused(&self, device: u8, peer: u32, e: Error) -> Result<Posted> {
        match self.leave_device(device, peer, &e) {
            Leaving::To(_) => Ok(Posted::Busy),
            Leaving::Known => Err(e
                .because(
                    "the operation must use this device, which has failed for this peer: \
                     its atomics are not coherent with other devices",
                )
                .remedy(
                    "restart the job with a working device in FARSIDE_DEVICES, or without operations \
                     that need the failed one",
                )),
            Leaving::Last | Leaving::Lost => Err(e),
        }
    }

    /// Posts a request on a region of a peer with which this rank has several devices in common.
    ///
    /// # Safety
    /// The contract of [`Device::post`](crate::device::Device::post).
    pub(super) unsafe fn post_of_pair(&self, request: &WorkRequest<'_>, found: Found) -> Result<Posted> {
        let Some(pair) = self.pairs.get(request.peer) else { return Ok(Posted::Busy) };
        {
            let pair = pair.borrow();
            if let Some(e) = &pair.lost {
                return Err(e.again());
            }
            if pair.is_moving {
                return Ok(Posted::Busy);
            }
        }
        let order = pair.borrow_mut().next_order();
        // SAFETY: the same contract.
        let posted = unsafe { self.post_found(request, found, Repeat::of(request, order)) }?;
        if let (Operation::Signal { at, value }, Posted::Done | Posted::Pending) = (request.operation, posted) {
            self.has_signalled(pair, found.device, &Signal { peer: request.peer, at, value });
        }
        Ok(posted)
    }

    /// Records a signal that was posted to a peer with which this rank has several devices in common.
    pub(super) fn has_signalled(&self, pair: &RefCell<Pair>, device: u8, signal: &Signal) {
        let Signal { peer, at, value } = *signal;
        pair.borrow_mut().keep_signal(device, at, value, None);
        self.requests.add_evidence(peer, Evidence::Signal(at, value), u64::MAX);
    }

    /// Records a notification of a request, and drops the stored signals of its cell with lower values: posted after
    /// it, they would set the cell back.
    pub(super) fn has_notified(&self, signal: &Signal) {
        let Signal { peer, at, value } = *signal;
        if let Some(pair) = self.pairs.get(peer) {
            let (number, _) = unmarked(value);
            pair.borrow_mut().drop_signals(|cell, kept| cell == at && unmarked(kept).0 <= number);
        }
        self.requests.add_evidence(peer, Evidence::Signal(at, value), u64::MAX);
    }

    /// Posts a packet to a peer with which this rank has several devices in common.
    ///
    /// # Safety
    /// The contract of [`Device::post`](crate::device::Device::post).
    pub(super) unsafe fn post_packet(
        &self,
        request: &WorkRequest<'_>,
        header: &[u8],
        body: &[Block],
    ) -> Result<Posted> {
        let Some(pair) = self.pairs.get(request.peer) else { return Ok(Posted::Busy) };
        let device = {
            let pair = pair.borrow();
            if let Some(e) = &pair.lost {
                return Err(e.again());
            }
            if pair.is_closed() {
                return Ok(Posted::Busy);
            }
            pair.packets
        };
        let posted = match header.is_empty() && body.iter().all(|block| block.len == 0) {
            true if self.send_control(request.peer, Control::Empty)? => Posted::Done,
            true => Posted::Busy,
            // SAFETY: the same contract.
            false => unsafe { self.post_to(device, request) }?,
        };
        let mut pair = pair.borrow_mut();
        if posted != Posted::Busy && pair.has_spare() {
            // SAFETY: the same contract.
            unsafe { pair.kept.add(header, body) };
        }
        Ok(posted)
    }

    /// Sends a packet without a body over the device for packets.
    fn send(&self, peer: u32, header: &[u8]) -> Result<bool> {
        let Some(pair) = self.pairs.get(peer) else { return Ok(false) };
        let device = pair.borrow().packets;
        let request = WorkRequest { peer, operation: Operation::send(header, &[]), notify: None, id: UNTRACKED };
        // SAFETY: no blocks.
        let posted = unsafe { self.post_to(device, &request) }?;
        Ok(posted != Posted::Busy && pair.borrow().packets == device)
    }

    /// Sends a message to the other side of a pair; `false` if the device was full.
    fn send_control(&self, peer: u32, control: Control) -> Result<bool> {
        let Some(pair) = self.pairs.get(peer) else { return Ok(false) };
        let device = pair.borrow().packets;
        if pair.borrow().begun.is_some() || !self.send(peer, &[])? {
            return Ok(false);
        }
        pair.borrow_mut().begun = Some(control);
        if !self.finish_control(peer)? {
            self.pairs.mark_due(peer);
        }
        // The message is lost if the device was left meanwhile.
        Ok(pair.borrow().packets == device)
    }

    /// Sends the message that an empty packet has announced.
    fn finish_control(&self, peer: u32) -> Result<bool> {
        let Some(pair) = self.pairs.get(peer) else { return Ok(true) };
        let begun = pair.borrow().begun;
        let Some(control) = begun else { return Ok(true) };
        let is_sent = self.send(peer, &control.write())?;
        if is_sent {
            pair.borrow_mut().begun = None;
        }
        Ok(is_sent)
    }

    /// Receives a packet of a peer; `None` if it is one of the failover protocol.
    pub(super) fn receive_packet<'a>(&self, device: u8, source: u32, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let Some(pair) = self.pairs.get(source) else { return Some(bytes) };
        let mut pair = pair.borrow_mut();
        let mut shown = bytes;
        if pair.is_announced(device) {
            match Control::read(bytes) {
                Some(Control::Empty) => shown = &[],
                Some(Control::Received(count)) => {
                    pair.kept.acknowledge(count);
                    return None;
                }
                Some(Control::Left(devices, count)) => {
                    self.pairs.news.borrow_mut().push((source, devices, count));
                    self.pairs.is_ready.set(true);
                    return None;
                }
                None => {
                    tracing::warn!("rank {source} has sent an empty packet that no packet follows");
                    return None;
                }
            }
        } else if bytes.is_empty() {
            pair.announce(device);
            return None;
        }
        pair.takes(device, shown.len())?;
        if pair.ack_is_due() {
            self.pairs.mark_due(source);
        }
        Some(shown)
    }

    /// Receives a long packet of a peer; returns false if it came over a device that was left.
    pub(super) fn receive_long(&self, device: u8, source: u32, len: usize) -> bool {
        let Some(pair) = self.pairs.get(source) else { return true };
        let mut pair = pair.borrow_mut();
        if pair.takes(device, len).is_none() {
            return false;
        }
        if pair.ack_is_due() {
            self.pairs.mark_due(source);
        }
        true
    }

    /// Records that a request has completed.
    #[inline]
    pub(super) fn completed(&self, tracked: &Tracked) {
        if let (Some(repeat), Some(pair)) = (&tracked.repeat, self.pairs.get(tracked.peer)) {
            let mut pair = pair.borrow_mut();
            pair.completed(tracked.devices, repeat.order);
            // A device may notify the peer before the data of a read has arrived; the completion does not prove that
            // the notification has arrived.
            if let (false, None, Some((at, value))) = (repeat.transfer.write, tracked.notify, repeat.notify) {
                let device = tracked.devices.trailing_zeros() as u8;
                pair.keep_signal(device, at, value, Some(repeat.order));
            }
        }
    }

    /// Queues a request that has failed, so that it is posted again.
    ///
    /// # Errors
    /// `e` if the request cannot be posted again, with a remark if its effect is unknown.
    #[cold]
    pub(super) fn repeats(&self, tracked: Tracked, e: Error) -> Result<()> {
        let Some(pair) = self.pairs.get(tracked.peer).filter(|_| e.kind() == ErrorKind::PeerLost) else {
            return Err(e);
        };
        let mut pair = pair.borrow_mut();
        match tracked.repeat {
            _ if pair.lost.is_some() => Err(e),
            Some(repeat) if !(repeat.transfer.write && matches!(repeat.evidence, Evidence::Atomic)) => {
                let at = pair.waiting.partition_point(|waiting| waiting.repeat.order < repeat.order);
                pair.waiting.insert(at, Waiting { repeat, check: Check::Due });
                pair.is_moving = true;
                self.pairs.mark_due(tracked.peer);
                Ok(())
            }
            _ => Err(unknown(&e)),
        }
    }

    /// Records the value of a cell that was read.
    #[cold]
    pub(super) fn checked(&self, id: u64, peer: u32, result: &Result<()>) {
        let Some(pair) = self.pairs.get(peer) else { return };
        for waiting in &mut pair.borrow_mut().waiting {
            if let Check::Asked(asked, word) = &waiting.check
                && *asked == id
            {
                let value = **word;
                waiting.check = Check::Due;
                match result {
                    Ok(()) => waiting.check = Check::Known(value),
                    Err(e) if e.kind() == ErrorKind::PeerLost => {}
                    // The cell no longer exists.
                    Err(_) => waiting.repeat.evidence = Evidence::Atomic,
                }
            }
        }
        self.pairs.mark_due(peer);
    }

    /// Continues repeated requests and announcements; returns whether there were any.
    pub(super) fn progress(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        if !self.pairs.is_due() {
            return Ok(false);
        }
        let mut result = Ok(());
        for (peer, devices, count) in self.pairs.news.take() {
            result = result.and(self.receive_left(peer, devices, count));
        }
        let mut any = false;
        let due = self.pairs.due.take();
        self.pairs.is_ready.set(false);
        for peer in due {
            match self.progress_peer(peer, sink) {
                Ok(Progress::Done) => any = true,
                Ok(Progress::Waits) => {
                    let mut due = self.pairs.due.borrow_mut();
                    if !due.contains(&peer) {
                        due.push(peer);
                    }
                }
                Ok(Progress::Busy) => self.pairs.mark_due(peer),
                Err(e) => {
                    self.pairs.mark_due(peer);
                    result = result.and(Err(e));
                }
            }
        }
        result.map(|()| any)
    }

    /// Records the devices, by their numbers in the job, that a peer has left.
    fn receive_left(&self, peer: u32, devices: u8, count: u64) -> Result<()> {
        let Some(pair) = self.pairs.get(peer) else { return Ok(()) };
        let is_left = |device: &u8| devices >> self.numbers[usize::from(*device)] & 1 == 1;
        let left: Vec<u8> = (0..self.devices.len() as u8).filter(is_left).collect();
        for device in &left {
            let name = self.device(*device).capabilities().name;
            let why = Error::new(ErrorKind::PeerLost, "check the other ranks").peer(peer).device(name);
            let why = why.cause("the device has failed at the peer");
            if self.leave_device(*device, peer, &why) == Leaving::Last {
                return Err(why);
            }
        }
        pair.borrow_mut().receive_left(left.iter().fold(0, |bits, device| bits | 1 << device), count);
        self.pairs.mark_due(peer);
        Ok(())
    }

    fn progress_peer(&self, peer: u32, sink: &mut dyn FnMut(Event<'_>)) -> Result<Progress> {
        let Some(pair) = self.pairs.get(peer) else { return Ok(Progress::Done) };
        let lost = pair.borrow().lost.as_ref().map(Error::again);
        if let Some(e) = lost {
            let waiting = std::mem::take(&mut pair.borrow_mut().waiting);
            waiting.into_iter().for_each(|waiting| Requests::report(waiting.repeat.id, Err(e.again()), sink));
            return Ok(Progress::Done);
        }
        if !self.finish_control(peer)? {
            return Ok(Progress::Busy);
        }
        let (is_moving, left, must_announce, ack_is_due, received) = {
            let pair = pair.borrow();
            (pair.is_moving, pair.left(), pair.must_announce(), pair.ack_is_due(), pair.received())
        };
        if !is_moving {
            if ack_is_due && !self.send_control(peer, Control::Received(received))? {
                return Ok(Progress::Busy);
            }
            if ack_is_due {
                pair.borrow_mut().confirm();
            }
            return Ok(Progress::Done);
        }
        if must_announce {
            let named = (0..).zip(&self.numbers).filter(|(device, _)| left >> device & 1 == 1);
            let devices = named.fold(0, |bits, (_, number)| bits | 1 << number);
            if !self.send_control(peer, Control::Left(devices, received))? || pair.borrow().left() != left {
                return Ok(Progress::Busy);
            }
            pair.borrow_mut().has_announced(left);
        }
        if !pair.borrow_mut().settle() || self.requests.uses(peer, left) {
            return Ok(Progress::Waits);
        }
        let requests = self.repeat_requests(peer, sink);
        if requests != Progress::Done {
            return Ok(requests);
        }
        match self.repeat_signals(peer)? {
            Progress::Done => self.repeat_packets(peer),
            progress => Ok(progress),
        }
    }

    /// Posts failed reads and writes again.
    fn repeat_requests(&self, peer: u32, sink: &mut dyn FnMut(Event<'_>)) -> Progress {
        let Some(pair) = self.pairs.get(peer) else { return Progress::Done };
        loop {
            let Some(mut waiting) = pair.borrow_mut().waiting.pop_front() else { return Progress::Done };
            let id = waiting.repeat.id;
            if waiting.repeat.transfer.write {
                let asked = match (waiting.repeat.evidence, &waiting.check) {
                    (Evidence::Signal(cell, _), Check::Due) => self.ask(peer, cell, &mut waiting),
                    (_, Check::Asked(..)) => Ok(Progress::Waits),
                    (Evidence::Signal(_, value), Check::Known(now)) if unmarked(*now).0 >= unmarked(value).0 => {
                        Requests::report(id, Ok(()), sink);
                        continue;
                    }
                    (Evidence::Atomic, _) => {
                        let e = Error::new(ErrorKind::PeerLost, "write remote memory").peer(peer).device("route");
                        Err(unknown(&e))
                    }
                    _ => Ok(Progress::Done),
                };
                match asked {
                    Ok(Progress::Done) => {}
                    Ok(progress) => {
                        pair.borrow_mut().waiting.push_front(waiting);
                        return progress;
                    }
                    Err(e) => {
                        Requests::report(id, Err(e), sink);
                        continue;
                    }
                }
            }
            let request = waiting.repeat.request();
            let Some(region) = request.operation.region() else { continue };
            // The request returns to its place in the queue, in case the next device fails too.
            let repeat = Repeat::of(&request, waiting.repeat.order);
            let found = self.find(peer, region, Some(&request.operation));
            // SAFETY: the memory of a request is valid until it is complete or cancelled.
            match found.and_then(|found| unsafe { self.post_found(&request, found, repeat) }) {
                Ok(Posted::Busy) => {
                    pair.borrow_mut().waiting.push_front(waiting);
                    return Progress::Busy;
                }
                Ok(Posted::Pending) => {}
                done => Requests::report(id, done.map(drop), sink),
            }
        }
    }

    /// Reads the cell that shows whether a write has arrived.
    fn ask(&self, peer: u32, cell: Place, waiting: &mut Waiting) -> Result<Progress> {
        let Found { device, handle: region, .. } = self.find(peer, cell.region, None)?;
        let mut word = Box::new(0u64);
        let into = [Block { base: (&raw mut *word).cast(), len: 8 }];
        let operation = Operation::read(&into, Place { region, offset: cell.offset });
        let id = self.requests.next();
        // SAFETY: the word lives until the read is complete or cancelled.
        match unsafe { self.post_to(device, &WorkRequest { peer, operation, notify: None, id }) }? {
            Posted::Busy => Ok(Progress::Busy),
            Posted::Done => {
                waiting.check = Check::Known(*word);
                Ok(Progress::Busy)
            }
            Posted::Pending => {
                self.requests.add(Tracked { is_check: true, ..Tracked::new(UNTRACKED, peer, 1 << device, 1) });
                waiting.check = Check::Asked(id, word);
                Ok(Progress::Waits)
            }
        }
    }

    /// Sets signal cells again.
    fn repeat_signals(&self, peer: u32) -> Result<Progress> {
        let Some(pair) = self.pairs.get(peer) else { return Ok(Progress::Done) };
        loop {
            let Some((signal, since)) = pair.borrow_mut().next_signal(peer) else { return Ok(Progress::Done) };
            let Ok(Found { device, handle: region, .. }) = self.find(peer, signal.at.region, None) else {
                pair.borrow_mut().drop_signals(|at, _| at.region == signal.at.region);
                continue;
            };
            if self.requests.has_writes_elsewhere(peer, device) {
                return Ok(Progress::Waits);
            }
            let operation = Operation::Signal { at: signal.at, value: signal.value }.on_region(region);
            // SAFETY: a signal touches no local memory.
            let posted = unsafe { self.post_to(device, &WorkRequest { peer, operation, notify: None, id: UNTRACKED }) };
            if matches!(posted, Ok(Posted::Busy)) {
                return Ok(Progress::Busy);
            }
            pair.borrow_mut().advance_signal(device);
            posted?;
            // The peer may have seen this value before a write that the job posted after it was repeated.
            self.requests.add_evidence(peer, Evidence::Signal(signal.at, signal.value), since);
        }
    }

    /// Sends the packets again that have not arrived; this ends the failover.
    fn repeat_packets(&self, peer: u32) -> Result<Progress> {
        let Some(pair) = self.pairs.get(peer) else { return Ok(Progress::Done) };
        loop {
            let Some(packet) = pair.borrow().kept.next() else {
                pair.borrow_mut().end_move();
                return Ok(Progress::Done);
            };
            let is_sent = match packet.is_empty() {
                true => self.send_control(peer, Control::Empty)?,
                false => self.finish_control(peer)? && self.send(peer, &packet)?,
            };
            if !is_sent {
                return Ok(Progress::Busy);
            }
            pair.borrow_mut().kept.advance();
        }
    }
}

/// The error of an operation that may or may not have taken effect.
fn unknown(e: &Error) -> Error {
    e.again()
        .because(
            "the operation's effect is unknown: the device failed before the answer arrived, and repeating \
             the operation is not safe",
        )
        .remedy(
            "restart the job, or treat the operation's target data as undefined; the job continues \
             on another device",
        )
}
