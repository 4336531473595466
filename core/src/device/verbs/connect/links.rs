//! Connections of a rank. For each peer to which a rank sends requests, it has a queue pair (the requester); the peer
//! has a counterpart that only answers (the responder). The two directions of a pair are independent: a refused request
//! ends one direction only, and all requests after it on that queue pair are known not to have been executed.
//!
//! Connecting uses datagrams, which may be lost: the requester's rank repeats `Request` until it receives `Reply` or
//! `Refuse`; the responder's rank answers a repeated request like the first. If both ends connect at the same time, two
//! independent connections result. While a rank computes, its agent accepts connections.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::super::address::{EndpointAddress, Message, Token};
use super::super::limit::limit;
use super::super::port::LocalPort;
use super::super::sys::qp::{Fresh, Parts, Requester, Responder, Sizes, Tuning};
use super::super::sys::queue::Channel;
use super::super::sys::{Context, Domain, Gid, Path};
use super::super::wait::{Elsewhere, WakeFd, random};
use super::moves::{Location, Moves, Own};
use super::patience::Patience;
use super::responders::Responders;
use super::sgrs::Pairing;
use crate::error::{Error, ErrorKind, Result};
use rdma_sys::{ibv_port_attr, ibv_port_state};

/// First pause before a request is repeated; it doubles up to `REPEAT_MOST`. Datagrams are rarely lost, but an answer
/// takes as long as creating a queue pair, and a rank to which many peers connect at the same time creates their queue
/// pairs one by one.
pub(crate) const REPEAT: Duration = Duration::from_millis(200);
pub(crate) const REPEAT_MOST: Duration = Duration::from_secs(1);
/// Addition to the first pause per connection that this rank is making: the others are likely to be making theirs at
/// the same time.
const REPEAT_EACH: Duration = Duration::from_millis(100);

/// A connection that is being made.
struct Attempt {
    pair: Fresh,
    psn: u32,
    due: Instant,
    pause: Duration,
}

/// A connection that a peer made to this rank.
struct Serving {
    attempt: u32,
    requester: u32,
    responder: Responder,
}

/// A usable connection, with address and key of the peer's counter of this rank's packets.
pub(crate) type Ready = (Requester, (u64, u32));

/// State of one peer.
#[derive(Default)]
pub(crate) struct Peer {
    attempt: u32,
    making: Option<Attempt>,
    ready: Option<Ready>,
    refused: Option<String>,
    serving: Option<Serving>,
    pub(crate) pairing: Pairing,
    /// Pings sent since the last sign of life.
    pub(crate) unanswered: u32,
    pub(crate) ping_due: bool,
    /// Number of pongs received.
    pongs: u64,
    pub(super) moves: Moves,
    /// Failures to connect a queue pair because of the network.
    pub(super) patience: Patience,
    /// Whether the completion queue has room for requests to the peer.
    has_room: bool,
    /// Whether the peer has left in order.
    pub(crate) left: bool,
    /// The reason why the peer is lost, and the rank that it blames.
    pub(crate) lost: Option<(Option<u32>, String)>,
    /// Whether another device reaches the peer, which is then no longer served or watched.
    pub(crate) is_given_up: bool,
}

/// State shared by the rank and its agent.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) peers: Vec<Peer>,
    pub(crate) responders: Responders<Responder>,
    /// Number of peers for whose requests the completion queue has room.
    rooms: usize,
    /// The reason why the device has failed permanently.
    pub(crate) fatal: Option<String>,
    /// The time since which the port has been down, and the number of times that it has gone down.
    pub(crate) down: Option<Instant>,
    downs: u32,
    /// Where this rank's port is, if it has moved.
    pub(super) own: Own,
    /// Sent to all peers before the agent ends.
    pub(crate) farewell: Option<Message>,
    /// Notice of the peer whose loss this rank has detected; sent to all peers once.
    notice: Option<Message>,
    noticed: bool,
}

impl Peer {
    /// Whether a failure to connect may be temporary.
    pub(super) fn passes(&mut self, e: &io::Error) -> bool {
        self.patience.passes(e, Instant::now())
    }
}

impl Table {
    pub(crate) fn new(ranks: usize) -> Self {
        Self { peers: (0..ranks).map(|_| Peer::default()).collect(), ..Self::default() }
    }

    /// Records that the port is down.
    pub(crate) fn port_is_down(&mut self) {
        if self.down.is_none() {
            (self.down, self.downs) = (Some(Instant::now()), self.downs + 1);
        }
    }
}

/// Room in the completion queue of requests: all may complete before the rank polls.
pub(crate) struct Room {
    /// Maximum number of requests to a peer.
    pub(crate) each: usize,
    /// Maximum length of a queue of the device.
    pub(crate) limit: usize,
}

impl Room {
    /// The length for requests to `peers` ranks.
    pub(crate) fn of(&self, peers: usize) -> usize {
        (self.each * peers + 16).min(self.limit)
    }
}

/// A rank's connections, and the resources from which they are made.
pub(crate) struct Links {
    pub(crate) me: u32,
    pub(crate) context: Arc<Context>,
    pub(crate) domain: Arc<Domain>,
    pub(crate) choice: LocalPort,
    pub(crate) addresses: Vec<EndpointAddress>,
    /// Parts of requester queue pairs, without receive buffers.
    pub(crate) sending: Parts,
    /// Room in their completion queue.
    pub(crate) room: Room,
    /// Parts of responder queue pairs.
    pub(crate) serving: Parts,
    pub(crate) sizes: Sizes,
    /// Sizes of SGRS queue pairs; `channel` reports their completions.
    pub(crate) sgrs_sizes: Sizes,
    pub(crate) channel: Arc<Channel>,
    pub(crate) tuning: Tuning,
    /// Index of the partition key now.
    pub(crate) pkey_index: AtomicU16,
    pub(crate) service_level: u8,
    pub(crate) traffic_class: u8,
    /// Address and key of the counters of packets that this rank has received, one word per source.
    pub(crate) counters: (u64, u32),
    pub(crate) table: Mutex<Table>,
    /// Wakes the rank when something has changed ([`wake_rank`](Self::wake_rank)).
    pub(crate) rank_wake: WakeFd,
    /// Wakes a rank that sleeps on another device.
    pub(crate) elsewhere: OnceLock<Elsewhere>,
    /// Wakes the agent for new work.
    pub(crate) agent_wake: WakeFd,
    pub(crate) stop: AtomicBool,
}

/// State of a connection.
pub(crate) enum Standing {
    Ready(Ready),
    Making,
}

impl Links {
    /// Wakes the rank, if it sleeps.
    pub(crate) fn wake_rank(&self) {
        self.rank_wake.wake();
        if let Some(elsewhere) = self.elsewhere.get() {
            elsewhere.wake();
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of times that the port has gone down.
    pub(crate) fn downs(&self) -> u32 {
        self.lock().downs
    }

    /// Whether the port is down. The device is queried, since its event may arrive after its effects.
    pub(crate) fn is_port_down(&self) -> bool {
        // The lock is taken before the device is queried, so that the event of a port that comes up again is handled
        // afterwards.
        let mut table = self.lock();
        let is_active = |port: ibv_port_attr| port.state == ibv_port_state::IBV_PORT_ACTIVE;
        if table.down.is_none() && !self.context.port(self.choice.port).is_ok_and(is_active) {
            table.port_is_down();
        }
        table.down.is_some()
    }

    /// The name of the port, for messages.
    pub(crate) fn port(&self) -> String {
        format!("port {} of {}", self.choice.port, self.choice.device)
    }

    /// The error of a port that is down.
    pub(crate) fn down(&self, operation: &'static str) -> Error {
        Error::new(ErrorKind::System, operation)
            .device("verbs")
            .cause(format!("{} is down", self.port()))
            .remedy("check the cable, the switch and the network interface (ip link)")
    }

    /// The error for the loss of a peer, or for the port if it is down, which takes precedence.
    pub(crate) fn blame(&self, e: Error) -> Error {
        if e.kind() != ErrorKind::PeerLost || !self.is_port_down() {
            return e;
        }
        let (down, reason) = (self.down(e.operation()), e.reason());
        match e.blamed_number() {
            Some(peer) => down.cause(format!("{} is down, and rank {peer} is lost: {reason}", self.port())),
            None => down,
        }
    }

    pub(crate) fn token(&self, peer: u32) -> &Token {
        &self.addresses[peer as usize].token
    }

    /// The path to `peer`, whose state is in the table.
    pub(crate) fn path(&self, table: &Table, peer: u32) -> Path {
        let address = &self.addresses[peer as usize];
        let Location { lid, gid } = table.peers[peer as usize].moves.location(address);
        let own = table.own.map_or(self.choice.gid, |(_, location)| location.gid);
        Path {
            port: self.choice.port,
            gid_index: self.choice.gid_index,
            gid,
            lid,
            global: is_global(&self.choice, &own, address, Location { lid, gid }),
            service_level: self.service_level,
            traffic_class: self.traffic_class,
        }
    }

    /// Address and key of the word in which this rank counts the packets of `source`.
    fn counter(&self, source: u32) -> (u64, u32) {
        (self.counters.0 + 8 * u64::from(source), self.counters.1)
    }

    pub(crate) fn tuned(&self, peer: u32) -> Tuning {
        let mtu = self.tuning.mtu.min(u32::from(self.addresses[peer as usize].mtu));
        // Relaxed: see `refresh`.
        Tuning { mtu, pkey_index: self.pkey_index.load(Ordering::Relaxed), ..self.tuning }
    }

    fn depth(&self, peer: u32) -> u8 {
        self.addresses[self.me as usize].depth.min(self.addresses[peer as usize].depth)
    }

    /// Returns the connection to `peer`, or starts making it.
    pub(crate) fn connect(&self, peer: u32) -> Result<Standing> {
        const OP: &str = "connect to a peer";
        let failed = |e: io::Error| limit(OP, e).peer(peer);
        let mut table = self.lock();
        let entry = &mut table.peers[peer as usize];
        if let Some(ready) = entry.ready.take() {
            return Ok(Standing::Ready(ready));
        }
        if let Some(why) = &entry.refused {
            return Err(refused(OP, peer, why));
        }
        let now = Instant::now();
        let due = entry.patience.due(now);
        if entry.making.is_some() || (peer == self.me && due > now) {
            return Ok(Standing::Making);
        }
        entry.attempt = entry.attempt.wrapping_add(1);
        self.make_room(&mut table, peer).map_err(failed)?;
        let psn = u32::from_le_bytes(random::<4>().map_err(failed)?) & 0xff_ffff;
        let tuning = self.tuned(peer);
        let pair = Fresh::new(&self.sending, self.sizes, &tuning, false).map_err(failed)?;
        if peer == self.me {
            let accepted = self.accept(&mut table, peer, 0, pair.number(), psn);
            let (depth, path) = (self.depth(peer), self.path(&table, peer));
            let ready = accepted.and_then(|target| pair.request(target, psn, depth, &path, &tuning));
            let entry = &mut table.peers[peer as usize];
            return match ready {
                Ok(ready) => {
                    entry.patience.succeeded();
                    Ok(Standing::Ready((ready, self.counter(peer))))
                }
                // The rank calls again until the connection is made.
                Err(e) if entry.passes(&e) => Ok(Standing::Making),
                Err(e) => Err(failed(e)),
            };
        }
        let making = table.peers.iter().filter(|p| p.making.is_some()).count() as u32;
        let pause = REPEAT + REPEAT_EACH * making;
        table.peers[peer as usize].making = Some(Attempt { pair, psn, due, pause });
        drop(table);
        self.agent_wake.wake();
        Ok(Standing::Making)
    }

    /// Makes room in the completion queue for requests to a peer, and, if that is new, to as many peers again.
    fn make_room(&self, table: &mut Table, peer: u32) -> io::Result<()> {
        let Table { peers, rooms, .. } = table;
        let (all, entry) = (peers.len(), &mut peers[peer as usize]);
        if !entry.has_room {
            let (queue, wanted) = (&self.sending.sends, self.room.of(*rooms + 1));
            if wanted > queue.entries() {
                queue.grow(self.room.of(all.min(2 * *rooms + 1)))?;
            }
            (*rooms, entry.has_room) = (*rooms + 1, true);
        }
        Ok(())
    }

    /// Creates a responder for queue pair `requester` of `peer`, in place of the former one; returns its number.
    fn accept(&self, table: &mut Table, peer: u32, attempt: u32, requester: u32, psn: u32) -> io::Result<u32> {
        let tuning = self.tuned(peer);
        let sizes = Sizes { sends: 1, receives: 1, pieces: 1, scatter: 1, inline: 0 };
        let pair = Fresh::new(&self.serving, sizes, &tuning, true)?;
        let responder = pair.respond(requester, psn, self.depth(peer), &self.path(table, peer), &tuning)?;
        let number = responder.number();
        table.responders.add(number, peer);
        Self::retire(table, peer);
        table.peers[peer as usize].serving = Some(Serving { attempt, requester, responder });
        Ok(number)
    }

    /// Ends the responder for a peer.
    fn retire(table: &mut Table, peer: u32) {
        if let Some(Serving { responder, .. }) = table.peers[peer as usize].serving.take() {
            if let Err(e) = responder.fail() {
                tracing::warn!("the former queue pair to rank {peer} was not destroyed: {e}");
            }
            table.responders.retire(responder.number(), responder, Instant::now());
        }
    }

    /// Stops serving and watching a peer that another device reaches.
    pub(crate) fn give_up(&self, peer: u32) {
        let mut table = self.lock();
        Self::retire(&mut table, peer);
        let entry = &mut table.peers[peer as usize];
        (entry.is_given_up, entry.left, entry.lost) = (true, true, None);
    }

    /// Processes a message from `source`; returns the answer, if any.
    pub(crate) fn receive(&self, source: u32, message: Message) -> Option<Message> {
        let mut table = self.lock();
        if source as usize >= table.peers.len() {
            return None;
        }
        let path = self.path(&table, source);
        let entry = &mut table.peers[source as usize];
        entry.unanswered = 0;
        let mut changed = false;
        let answer = match message {
            Message::Request { attempt, requester, psn } => {
                return self.serve(&mut table, source, attempt, requester, psn);
            }
            Message::Reply { attempt, responder, counter } if attempt == entry.attempt => {
                if let Some(a) = entry.making.take() {
                    changed = true;
                    let made = a.pair.request(responder, a.psn, self.depth(source), &path, &self.tuned(source));
                    match made {
                        Ok(r) => {
                            entry.patience.succeeded();
                            entry.ready = Some((r, counter));
                        }
                        // The error may be temporary, so the rank begins to connect again.
                        Err(e) if entry.passes(&e) => {}
                        Err(e) => entry.refused = Some(format!("this rank cannot open the connection: {e}")),
                    }
                }
                None
            }
            Message::Refuse { attempt, why } if attempt == entry.attempt => {
                changed = entry.making.take().is_some();
                entry.refused = Some(why);
                None
            }
            Message::Lost { blamed, why } => {
                changed = true;
                if !entry.is_given_up {
                    entry.lost.get_or_insert((blamed, why));
                }
                None
            }
            Message::Left => {
                changed = true;
                entry.left = true;
                None
            }
            Message::Moved { number, lid, gid } => {
                entry.moves.moved(number, Location { lid, gid });
                Some(Message::Noted { number })
            }
            Message::Noted { number } => {
                if table.own.is_some_and(|(last, _)| last == number) {
                    table.peers[source as usize].moves.noted();
                }
                None
            }
            Message::Ping => Some(Message::Pong),
            Message::Pong => {
                entry.pongs += 1;
                changed = true;
                None
            }
            Message::Pair { .. } | Message::Paired { .. } | Message::Unpaired { .. } => {
                let (answer, look) = self.receive_for_sgrs(&mut table, source, message);
                changed = look;
                answer
            }
            Message::Reply { .. } | Message::Refuse { .. } => None,
        };
        drop(table);
        if changed {
            self.wake_rank();
        }
        answer
    }

    fn serve(&self, table: &mut Table, source: u32, attempt: u32, requester: u32, psn: u32) -> Option<Message> {
        if table.peers[source as usize].is_given_up {
            let why = "both ranks have switched to another device".to_owned();
            return Some(Message::Refuse { attempt, why });
        }
        if let Some(s) = &table.peers[source as usize].serving {
            if s.attempt == attempt && s.requester == requester {
                let responder = s.responder.number();
                return Some(Message::Reply { attempt, responder, counter: self.counter(source) });
            }
            // This is a late request for a connection that has ended.
            if attempt.wrapping_sub(s.attempt) as i32 <= 0 {
                return None;
            }
        }
        Some(match self.accept(table, source, attempt, requester, psn) {
            Ok(responder) => {
                table.peers[source as usize].patience.succeeded();
                Message::Reply { attempt, responder, counter: self.counter(source) }
            }
            // The peer repeats its request.
            Err(e) if table.peers[source as usize].passes(&e) => return None,
            Err(e) => Message::Refuse { attempt, why: e.to_string() },
        })
    }

    /// Collects the messages that are due; returns the time at which the next will be.
    pub(crate) fn due(&self, out: &mut Vec<(u32, Message)>) -> Option<Instant> {
        let now = Instant::now();
        let mut next = None;
        let mut table = self.lock();
        if let Some(notice) = table.notice.take() {
            out.extend((0..self.addresses.len() as u32).filter(|r| *r != self.me).map(|r| (r, notice.clone())));
        }
        let moved = Self::move_message(&table);
        for (rank, peer) in table.peers.iter_mut().enumerate() {
            if peer.left || peer.lost.is_some() {
                peer.moves.noted();
            }
            let (tells, due) = peer.moves.due(now);
            out.extend(moved.clone().filter(|_| tells).map(|m| (rank as u32, m)));
            next = due.into_iter().chain(next).min();
            let attempt = peer.attempt;
            if let Some(a) = &mut peer.making {
                if a.due <= now {
                    let requester = a.pair.number();
                    out.push((rank as u32, Message::Request { attempt, requester, psn: a.psn }));
                    a.due = now + a.pause;
                    a.pause = (a.pause * 2).min(REPEAT_MOST);
                }
                next = Some(next.map_or(a.due, |n: Instant| n.min(a.due)));
            }
            let (message, due) = peer.pairing.due(now);
            out.extend(message.map(|m| (rank as u32, m)));
            next = due.into_iter().chain(next).min();
            if std::mem::take(&mut peer.ping_due) {
                out.push((rank as u32, Message::Ping));
            }
        }
        next
    }

    /// Pings `peer`; returns the number of answers so far.
    pub(crate) fn ask(&self, peer: u32) -> u64 {
        let mut table = self.lock();
        let entry = &mut table.peers[peer as usize];
        entry.ping_due = true;
        let pongs = entry.pongs;
        drop(table);
        self.agent_wake.wake();
        pongs
    }

    /// Number of answers received from `peer` so far.
    pub(crate) fn answers(&self, peer: u32) -> u64 {
        self.lock().peers[peer as usize].pongs
    }

    /// Informs all peers, once, that this rank has detected the loss of `blamed`. The loss will end this rank too, and
    /// peers that then find it lost can name the original cause.
    pub(crate) fn announce_loss(&self, blamed: u32) {
        let mut table = self.lock();
        if !table.noticed {
            table.noticed = true;
            table.notice = Some(Message::Lost {
                blamed: Some(blamed),
                why: "the reporting rank lost its connection to that rank".into(),
            });
            drop(table);
            self.agent_wake.wake();
        }
    }

    /// Ends the agent.
    pub(crate) fn stop(&self) {
        // SeqCst: the write to the wake descriptor would order it in any case.
        self.stop.store(true, Ordering::SeqCst);
        self.agent_wake.wake();
    }
}

/// The error for a peer that created no queue pair for this rank.
pub(super) fn refused(operation: &'static str, peer: u32, why: &str) -> Error {
    Error::new(ErrorKind::Limit, operation)
        .peer(peer)
        .device("verbs")
        .cause(format!("the peer could not create a queue pair: {why}"))
}

/// Whether the peer is reached with a global routing header: always on Ethernet; on InfiniBand if it is in another
/// subnet, or if either port needs one.
fn is_global(mine: &LocalPort, own: &Gid, address: &EndpointAddress, at: Location) -> bool {
    let is_needed = mine.global || address.global;
    mine.ethernet || is_needed || own[..8] != at.gid[..8] || at.lid == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(ethernet: bool) -> LocalPort {
        let (gid, why) = ([1; 16], String::new());
        LocalPort { device: "x".into(), port: 1, gid_index: 0, gid, lid: 3, ethernet, global: false, why }
    }

    fn address(gid: [u8; 16], lid: u16) -> EndpointAddress {
        EndpointAddress {
            gid,
            lid,
            ethernet: false,
            global: false,
            partition: 0xffff,
            mtu: 5,
            depth: 1,
            atomics: true,
            relaxed: false,
            datagrams: 0,
            qkey: 0,
            token: [0; 16],
            node: Vec::new(),
            pid: 0,
        }
    }

    #[test]
    fn global_header_on_ethernet_between_subnets_and_where_a_port_needs_it() {
        let is = |mine: &LocalPort, address: &EndpointAddress| {
            is_global(mine, &mine.gid, address, Moves::default().location(address))
        };
        assert!(!is(&choice(false), &address([1; 16], 4)));
        assert!(is(&choice(false), &address([2; 16], 4)));
        assert!(is(&choice(false), &address([1; 16], 0)));
        assert!(is(&choice(true), &address([1; 16], 4)));
        // Virtual functions, at either end.
        assert!(is(&LocalPort { global: true, ..choice(false) }, &address([1; 16], 4)));
        assert!(is(&choice(false), &EndpointAddress { global: true, ..address([1; 16], 4) }));
    }
}
