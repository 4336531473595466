//! SGRS queue pairs: the second queue pair between two ranks, for scatter and gather lists. It has its own receive
//! queue, so that lists and packets never take each other's receives. It is made when a list is first posted, and owns
//! no buffers.
//!
//! Both ends are alike: each rank has one queue pair for the peer, created when it posts a list or the peer requests
//! it. A rank that has a list to send repeats `Pair`, with the number of its queue pair, until `Paired` confirms that
//! the other end is connected; a rank that receives the other's number connects its own queue pair to it. So either end
//! may begin, or both at the same time.
//!
//! A failure of an SGRS queue pair ends it at both ends, since it is not known which lists were transferred: each end
//! creates its next queue pair, with a higher attempt, and a message with a higher attempt ends the queue pair
//! connected to the former one.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::address::Message;
use super::super::limit::limit;
use super::super::sys::Path;
use super::super::sys::sgrs::SgrsQueuePair;
use super::super::wait::random;
use super::links::{Links, REPEAT, REPEAT_MOST, Table, refused};
use crate::error::Result;

const OP: &str = "connect an SGRS queue pair";

/// State of the SGRS queue pair to one peer.
#[derive(Default)]
pub(crate) struct Pairing {
    /// Number of queue pairs created so far; identifies the current one.
    attempt: u32,
    own: Option<Arc<SgrsQueuePair>>,
    /// The peer's latest attempt known from a datagram.
    peer_attempt: Option<u32>,
    /// Whether the own queue pair is connected to the peer's latest attempt; if not, that attempt has ended.
    is_connected: bool,
    /// The time at which to send `Pair` next, and the pause after that.
    next_request: Option<(Instant, Duration)>,
    refused: Option<String>,
}

/// Age of the attempt to which a message belongs, compared with the last attempt of the same peer.
#[derive(Debug, PartialEq, Eq)]
enum Age {
    Old,
    Same,
    First,
    Newer,
}

fn age(known: Option<u32>, attempt: u32) -> Age {
    match known.map(|k| attempt.wrapping_sub(k) as i32) {
        None => Age::First,
        Some(0) => Age::Same,
        Some(1..) => Age::Newer,
        Some(_) => Age::Old,
    }
}

impl Pairing {
    /// The `Pair` message if it is due, and the time at which the next one is.
    pub(crate) fn due(&mut self, now: Instant) -> (Option<Message>, Option<Instant>) {
        let (Some((due, pause)), Some(own)) = (&mut self.next_request, &self.own) else { return (None, None) };
        let mut message = None;
        if *due <= now {
            message = Some(Message::Pair { attempt: self.attempt, number: own.number(), psn: own.psn });
            *due = now + *pause;
            *pause = (*pause * 2).min(REPEAT_MOST);
        }
        (message, Some(*due))
    }
}

impl Links {
    fn fresh_sgrs(&self, peer: u32, pairing: &mut Pairing, path: &Path) -> io::Result<Arc<SgrsQueuePair>> {
        let psn = u32::from_le_bytes(random::<4>()?) & 0xff_ffff;
        let pair = SgrsQueuePair::new(&self.domain, &self.channel, self.sgrs_sizes, &self.tuned(peer), psn)?;
        if peer == self.me {
            pair.connect(pair.number(), psn, path, &self.tuned(peer))?;
            pair.confirm();
        }
        let pair = Arc::new(pair);
        pairing.attempt = pairing.attempt.wrapping_add(1);
        pairing.is_connected = false;
        pairing.own = Some(Arc::clone(&pair));
        Ok(pair)
    }

    /// Returns the queue pair for lists to and from `peer`; creates it if needed. It can receive immediately, and can
    /// send once confirmed.
    pub(crate) fn sgrs(&self, peer: u32) -> Result<Arc<SgrsQueuePair>> {
        let mut table = self.lock();
        let path = self.path(&table, peer);
        let pairing = &mut table.peers[peer as usize].pairing;
        if let Some(why) = &pairing.refused {
            return Err(refused(OP, peer, why));
        }
        match &pairing.own {
            Some(own) if own.ended().is_none() => Ok(Arc::clone(own)),
            _ => self.fresh_sgrs(peer, pairing, &path).map_err(|e| limit(OP, e).peer(peer)),
        }
    }

    /// Asks the peer to confirm `queue_pair`.
    pub(crate) fn pair(&self, peer: u32, queue_pair: &Arc<SgrsQueuePair>) {
        let mut table = self.lock();
        let pairing = &mut table.peers[peer as usize].pairing;
        let current = pairing.own.as_ref().is_some_and(|own| Arc::ptr_eq(own, queue_pair));
        if current && !queue_pair.is_confirmed() && pairing.next_request.is_none() {
            pairing.next_request = Some((Instant::now(), REPEAT));
            drop(table);
            self.agent_wake.wake();
        }
    }

    /// Drops `queue_pair`, which has ended; it is destroyed when its last reference is dropped.
    pub(crate) fn discard(&self, peer: u32, queue_pair: &Arc<SgrsQueuePair>) {
        let pairing = &mut self.lock().peers[peer as usize].pairing;
        if pairing.own.as_ref().is_some_and(|own| Arc::ptr_eq(own, queue_pair)) {
            (pairing.own, pairing.next_request, pairing.is_connected) = (None, None, false);
        }
    }

    /// Ends `queue_pair`, and informs the peer by connecting again.
    pub(crate) fn renew(&self, peer: u32, queue_pair: &Arc<SgrsQueuePair>, why: &str) {
        queue_pair.end(why);
        let mut table = self.lock();
        let path = self.path(&table, peer);
        let pairing = &mut table.peers[peer as usize].pairing;
        if !pairing.own.as_ref().is_some_and(|own| Arc::ptr_eq(own, queue_pair)) {
            return;
        }
        let was_connected = std::mem::take(&mut pairing.is_connected);
        (pairing.own, pairing.next_request) = (None, None);
        // A peer that was not connected has no queue pair to end.
        if was_connected && peer != self.me {
            match self.fresh_sgrs(peer, pairing, &path) {
                Ok(_) => pairing.next_request = Some((Instant::now(), REPEAT)),
                Err(e) => tracing::warn!("cannot create an SGRS queue pair to rank {peer}: {e}"),
            }
            drop(table);
            self.agent_wake.wake();
        }
    }

    /// Processes a message about the SGRS queue pair to `source`; returns the answer, and whether to wake the rank.
    pub(crate) fn receive_for_sgrs(&self, table: &mut Table, source: u32, message: Message) -> (Option<Message>, bool) {
        let path = self.path(table, source);
        let pairing = &mut table.peers[source as usize].pairing;
        match message {
            Message::Pair { attempt, number, psn } => {
                match self.connect_to_attempt(pairing, (source, &path), attempt, number, psn) {
                    Ok(true) => {
                        table.peers[source as usize].patience.succeeded();
                        let pairing = &table.peers[source as usize].pairing;
                        let own = pairing.own.as_ref().map_or((0, 0), |own| (own.number(), own.psn));
                        let answer =
                            Message::Paired { answers: attempt, attempt: pairing.attempt, number: own.0, psn: own.1 };
                        (Some(answer), true)
                    }
                    Ok(false) => (None, false),
                    // The peer repeats its message.
                    Err(e) if table.peers[source as usize].passes(&e) => (None, false),
                    Err(e) => (Some(Message::Unpaired { answers: attempt, why: e.to_string() }), true),
                }
            }
            Message::Paired { answers, attempt, number, psn }
                if answers == pairing.attempt && pairing.own.is_some() =>
            {
                match self.connect_to_attempt(pairing, (source, &path), attempt, number, psn) {
                    // If connecting to a newer attempt has renewed the own queue pair, this message does not answer
                    // that one.
                    Ok(true) if answers == pairing.attempt => {
                        if let Some(own) = &pairing.own {
                            own.confirm();
                        }
                        pairing.next_request = None;
                    }
                    Ok(_) => {}
                    Err(e) => pairing.refused = Some(format!("this rank cannot open the connection: {e}")),
                }
                (None, true)
            }
            Message::Unpaired { answers, why } if answers == pairing.attempt => {
                pairing.refused = Some(why);
                pairing.next_request = None;
                (None, true)
            }
            _ => (None, false),
        }
    }

    /// Connects to queue pair `number` of the peer's `attempt` if not yet connected; returns `false` for an attempt
    /// that has ended.
    fn connect_to_attempt(
        &self,
        pairing: &mut Pairing,
        (peer, path): (u32, &Path),
        attempt: u32,
        number: u32,
        psn: u32,
    ) -> io::Result<bool> {
        match age(pairing.peer_attempt, attempt) {
            Age::Old => return Ok(false),
            Age::Same => return Ok(pairing.is_connected),
            Age::First | Age::Newer => {
                if let (true, Some(own)) = (pairing.is_connected, &pairing.own) {
                    own.end("the peer has closed the SGRS connection");
                    (pairing.own, pairing.next_request) = (None, None);
                }
            }
        }
        let own = match &pairing.own {
            Some(own) => Arc::clone(own),
            None => self.fresh_sgrs(peer, pairing, path)?,
        };
        own.connect(number, psn, path, &self.tuned(peer))?;
        (pairing.peer_attempt, pairing.is_connected) = (Some(attempt), true);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_distinguished_also_where_they_wrap() {
        assert_eq!(age(None, 7), Age::First);
        assert_eq!([6, 7, 8].map(|a| age(Some(7), a)), [Age::Old, Age::Same, Age::Newer]);
        assert_eq!([u32::MAX, 0].map(|a| age(Some(u32::MAX), a)), [Age::Same, Age::Newer]);
        assert_eq!(age(Some(0), u32::MAX), Age::Old);
    }
}
