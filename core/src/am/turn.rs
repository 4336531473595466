//! A turn of progress for the send queues: packets of the runtime, messages in their order, and data for which targets
//! have asked.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::ActiveMessages;
use super::data::{Data, Lent};
use super::messenger::Messenger;
use super::offer::{Offer, Offered};
use super::outgoing::{PendingRendezvous, Queued, SendQueues};
use super::packet::{MORE, PREFIX, Prefix, RTS, WRITTEN};
use super::queue::release_offered;
use super::send::{eager, lent_block, post_lent};
use super::sink::Source;
use super::state::{DEFERRED, OWN, PACKETS};
use crate::callback::Callback;
use crate::device::{Block, Operation, Packet, ShortPacket};
use crate::error::{Error, Result};

/// Maximum number of packets of one message that are sent in one turn of progress.
const PACKETS_PER_TURN: usize = 16;

impl ActiveMessages {
    /// Sends queued messages as far as there is queue space, and delivers the messages of this rank to itself; returns
    /// whether any were sent or delivered.
    ///
    /// # Errors
    /// The error of a message for which no call waits; `Protocol` for a message to an unregistered handler.
    pub(crate) fn progress(&self, job: &Messenger) -> Result<bool> {
        // Handlers and inline completions run here as in a poll of the device.
        let _inside = job.inside(Callback::Handler);
        if self.work.get() & !DEFERRED == OWN {
            return self.deliver_own(job);
        }
        let own = self.deliver_own(job);
        let read = self.read_offered(job);
        let written = self.write_pieces(job);
        let sent = drain(self, job);
        Ok(own? | read? | written | sent?)
    }

    /// Writes segments of messages into the sinks that their targets have exported; returns whether there were any.
    fn write_pieces(&self, job: &Messenger) -> bool {
        let (mut out, mut any) = (self.outgoing.borrow_mut(), false);
        for number in std::mem::take(&mut out.writes) {
            // The message may have ended meanwhile.
            let Some(PendingRendezvous::Waiting { target, lent, offered: Some(offered) }) = out.asked.get_mut(&number)
            else {
                continue;
            };
            let (target, Some(mut writing)) = (*target, offered.writing.take()) else { continue };
            let step = writing.advance(job, target, &lent.source);
            if step.is_last {
                writing.end(job);
            } else {
                offered.writing = Some(writing);
                out.writes.push_back(number);
            }
            if let Some(pieces) = step.report {
                out.control.entry(target).or_default().push_back(Prefix::control(WRITTEN, number, pieces));
                any = true;
            }
        }
        any
    }
}

/// Sends queued messages as far as there is queue space; returns whether anything was sent.
///
/// # Errors
/// The error of a message for which no call waits.
pub(super) fn drain(am: &ActiveMessages, job: &Messenger) -> Result<bool> {
    if am.work.get() & PACKETS == 0 {
        return Ok(false);
    }
    let mut out = am.outgoing.borrow_mut();
    let mut turn = Turn { job, out: &mut out, any: false, full: SmallVec::new(), ended: Vec::new(), failed: None };
    turn.send_control();
    turn.send_queued();
    turn.send_streams();
    let Turn { any, ended, failed, .. } = turn;
    if out.is_empty() {
        am.unmark(PACKETS);
    }
    drop(out);
    // After the borrow has ended: completing the data may run its owner's code, which may reenter this module.
    for (data, result) in ended {
        match result {
            Ok(()) => data.complete(),
            Err(e) => data.fail(&e),
        }
    }
    failed.map_or(Ok(any), Err)
}

/// One turn of sending.
struct Turn<'a> {
    job: &'a Messenger,
    out: &'a mut SendQueues,
    any: bool,
    /// Targets whose queue is full.
    full: SmallVec<[u32; 8]>,
    ended: Vec<(Data, Result<()>)>,
    /// The first error of a message for which no call waits.
    failed: Option<Error>,
}

/// Outcome of a step of a queued message.
enum Step {
    /// The device was full before the next packet.
    Full,
    /// The message continues in a later turn.
    Again,
    Gone,
    Asks(Option<Offered>),
}

impl Turn<'_> {
    /// Sends a packet; `false` if the queue is full.
    fn packet(&mut self, target: u32, operation: Operation<'_>) -> Result<bool> {
        if self.full.contains(&target) {
            return Ok(false);
        }
        let sent = self.job.try_send(target, operation)?;
        if sent {
            self.any = true;
        } else {
            self.full.push(target);
        }
        Ok(sent)
    }

    fn send_control(&mut self) {
        let mut control = std::mem::take(&mut self.out.control);
        control.retain(|target, queue| {
            while let Some(prefix) = queue.front() {
                let [a, b, c] = prefix.words();
                let packet = ShortPacket::new([a, b, c, 0, 0, 0], PREFIX);
                match self.packet(*target, Operation::Packet(Packet::Short(&packet))) {
                    Ok(false) => return true,
                    Ok(true) => {}
                    Err(e) => _ = self.failed.get_or_insert(e),
                }
                queue.pop_front();
            }
            false
        });
        self.out.control = control;
    }

    fn send_queued(&mut self) {
        let targets: SmallVec<[u32; 8]> = self.out.queues.keys().copied().collect();
        for target in targets {
            while let Some(mut message) = self.out.queues.get_mut(&target).and_then(VecDeque::pop_front) {
                let step = self.step(target, &mut message);
                if let Ok(Step::Full | Step::Again) = step {
                    self.out.queues.entry(target).or_default().push_front(message);
                    break;
                }
                if let Data::Copied(_) = message.data {
                    self.out.copied -= 1;
                }
                if let (Ok(_), Some(c)) = (&step, message.completion) {
                    self.out.awaited.insert(message.number, (target, c));
                }
                match (step, message.data) {
                    (Ok(Step::Asks(offered)), Data::Lent(lent)) => {
                        self.out.asked.insert(message.number, PendingRendezvous::Waiting { target, lent, offered });
                    }
                    (Ok(_), data) => self.ended.push((data, Ok(()))),
                    (Err(e), Data::Copied(_)) => _ = self.failed.get_or_insert(e),
                    (Err(e), data) => self.ended.push((data, Err(e))),
                }
            }
            if self.out.queues.get(&target).is_some_and(VecDeque::is_empty)
                && let Some(queue) = self.out.queues.remove(&target)
            {
                self.out.spare = queue;
            }
        }
    }

    /// Sends the next packets of a queued message.
    fn step(&mut self, target: u32, message: &mut Queued) -> Result<Step> {
        let (len, header_len) = (message.data.len(), message.header.len());
        let most = self.job.max_packet() - PREFIX;
        let mut prefix = Prefix::of_first(message.handler, header_len, len, message.target);
        (prefix.message, prefix.acknowledged) = (message.number, message.completion.is_some());
        let header = Block::of(message.header.as_ptr(), header_len);
        if let Data::Lent(lent) = &message.data
            && !message.waits
            && lent.origin.is_none()
            && let Some(block) = lent_block(self.job, target, header_len, &lent.source)
        {
            return self.lend(target, &[&prefix.write()[..], &message.header].concat(), block, lent);
        }
        if message.waits || len > eager(self.job, target, header_len) {
            prefix.kind = RTS;
            let offer = match &message.data {
                Data::Lent(lent) if !self.full.contains(&target) => Offer::make(self.job, target, &lent.source)?,
                _ => None,
            };
            let (mut offered, mut offer) =
                offer.map_or((None, Vec::new()), |(offered, offer)| (Some(offered), offer.write()));
            if header_len + offer.len() > most {
                release_offered(self.job, offered.take(), true);
                offer.clear();
            }
            let body = [header, Block::of(offer.as_ptr(), offer.len())];
            let sent = self.packet(target, Operation::send(&prefix.write(), &body));
            if matches!(sent, Ok(true)) {
                return Ok(Step::Asks(offered));
            }
            release_offered(self.job, offered, true);
            return sent.map(|_| Step::Full);
        }
        let mut blocks = Vec::new();
        for _ in 0..PACKETS_PER_TURN {
            let first = message.sent == 0;
            let now = (len - message.sent).min(if first { most - header_len } else { most });
            message.data.blocks(message.sent, now, &mut blocks)?;
            if first {
                blocks.insert(0, header);
            } else {
                (prefix.kind, prefix.header_len, prefix.number) = (MORE, 0, message.sent as u64);
            }
            if !self.packet(target, Operation::send(&prefix.write(), &blocks))? {
                return Ok(Step::Full);
            }
            message.sent += now;
            if message.sent == len {
                return Ok(Step::Gone);
            }
        }
        Ok(Step::Again)
    }

    /// Sends a message in one packet from its owner's memory.
    fn lend(&mut self, target: u32, header: &[u8], block: Block, lent: &Lent) -> Result<Step> {
        if self.full.contains(&target) {
            return Ok(Step::Full);
        }
        if post_lent(self.job, target, header, block, lent)? {
            self.any = true;
            return Ok(Step::Gone);
        }
        self.full.push(target);
        Ok(Step::Full)
    }

    fn send_streams(&mut self) {
        for (target, mut queue) in std::mem::take(&mut self.out.streams) {
            for _ in 0..queue.len() {
                if self.full.contains(&target) {
                    break;
                }
                let Some(number) = queue.pop_front() else { break };
                let Some(PendingRendezvous::Streaming { target, lent, wanted, mut sent }) =
                    self.out.asked.remove(&number)
                else {
                    continue;
                };
                match self.stream(number, target, &lent.source, wanted, &mut sent) {
                    Ok(true) => self.ended.push((Data::Lent(lent), Ok(()))),
                    Ok(false) => {
                        self.out.asked.insert(number, PendingRendezvous::Streaming { target, lent, wanted, sent });
                        queue.push_back(number);
                    }
                    Err(e) => self.ended.push((Data::Lent(lent), Err(e))),
                }
            }
            if !queue.is_empty() {
                self.out.streams.insert(target, queue);
            }
        }
    }

    /// Sends the next packets of a message whose target has asked for its data; returns whether the message is
    /// complete.
    fn stream(&mut self, number: u64, target: u32, source: &Source, wanted: usize, sent: &mut usize) -> Result<bool> {
        let most = self.job.max_packet() - PREFIX;
        let mut blocks = Vec::new();
        for _ in 0..PACKETS_PER_TURN {
            let now = (wanted - *sent).min(most);
            source.blocks(*sent, now, &mut blocks)?;
            let prefix = Prefix::control(MORE, number, *sent as u64);
            if !self.packet(target, Operation::send(&prefix.write(), &blocks))? {
                return Ok(false);
            }
            *sent += now;
            if *sent == wanted {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
