#![allow(unsafe_code)]
//! The state of a rank's device, behind a lock, which the rank and its agent take in turn.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use super::conn::{Conn, Stage};
use super::memory::Memory;
use super::peer::{Link, Peer};
use super::secret::SECRET;
use super::sys::Blocks;
use super::ways::Topology;
use crate::error::{Error, ErrorKind, Result};
use crate::slots::Slots;
use crate::stats::Stats;

/// The number of the first listener among the events; connections have lower numbers.
pub(super) const LISTENER: u64 = u64::MAX - 64;
/// Maximum number of events of one turn.
const EVENTS: usize = 64;
/// Maximum number of receives of a turn from one connection, so that every connection is served.
const RECEIVES: usize = 16;
/// Number of consecutive turns that receive from the only connection without asking the kernel for events of all
/// sockets.
const SOLE: u32 = 64;

/// Packets that have arrived.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) bytes: Vec<u8>,
    pub(super) packets: Vec<Arrived>,
    /// A buffer for the next packet that is placed as it arrives.
    pub(super) spare: Vec<u8>,
}

/// A packet that has arrived.
pub(super) struct Arrived {
    pub(super) source: u32,
    pub(super) len: usize,
    place: Stored,
}

/// The place of a packet that has arrived.
enum Stored {
    /// In the bytes of the inbox, from this position.
    Joined(usize),
    /// In a buffer of its own.
    Alone(Vec<u8>),
}

impl Inbox {
    pub(super) fn push(&mut self, source: u32, bytes: &[u8]) {
        self.packets.push(Arrived { source, len: bytes.len(), place: Stored::Joined(self.bytes.len()) });
        self.bytes.extend(bytes);
    }

    /// Adds a packet of `len` bytes that has a buffer of its own.
    pub(super) fn push_long(&mut self, source: u32, bytes: Vec<u8>, len: usize) {
        self.packets.push(Arrived { source, len, place: Stored::Alone(bytes) });
    }

    pub(super) fn bytes_of<'a>(&'a self, packet: &'a Arrived) -> &'a [u8] {
        match &packet.place {
            Stored::Joined(from) => &self.bytes[*from..][..packet.len],
            Stored::Alone(bytes) => &bytes[..packet.len],
        }
    }

    /// Removes all packets; one buffer remains as the spare one.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        for packet in self.packets.drain(..) {
            if let Stored::Alone(bytes) = packet.place {
                self.spare = bytes;
            }
        }
        // The memory of a burst of packets is freed.
        self.bytes.shrink_to(1 << 20);
    }
}

/// The state of a device.
pub(super) struct Engine {
    pub(super) me: u32,
    pub(super) epoll: Arc<OwnedFd>,
    /// An epoll instance with only the listeners, for an agent that has nothing else to do.
    pub(super) doors: Arc<OwnedFd>,
    pub(super) listeners: Vec<TcpListener>,
    /// Whether no connections are accepted, for lack of descriptors.
    pub(super) is_paused: bool,
    pub(super) conns: Slots<Conn>,
    pub(super) peers: Vec<Peer>,
    pub(super) topology: Topology,
    pub(super) secret: [u8; SECRET],
    pub(super) encrypts: bool,
    pub(super) silence: Duration,
    pub(super) memory: Memory,
    pub(super) done: VecDeque<(u64, Result<()>)>,
    pub(super) inbox: Inbox,
    /// A receive buffer that no connection uses.
    pub(super) spare: Box<[u8]>,
    /// Peers for which data may be waiting to be sent.
    pub(super) dirty: Vec<u32>,
    /// The time at which attempts to connect and handshakes are checked again.
    pub(super) timer: Option<Instant>,
    /// Peers to which this rank is connecting or will try to connect again.
    pub(super) dialing: Vec<u32>,
    /// Connections on which sending has failed; the kernel may report no event for them.
    pub(super) broken: Vec<u64>,
    /// Whether an action has begun that continues when a socket is ready or at a time, and for which the agent was not
    /// woken yet.
    pub(super) begun: bool,
    /// The first loss that this rank has detected or been informed of.
    pub(super) loss: Option<Error>,
    /// Whether this rank has announced its end.
    pub(super) goodbye_sent: bool,
    pub(super) last_check: Instant,
    /// Number of turns.
    pub(super) turns: u32,
}

// SAFETY: the raw pointers are those of operations in progress, whose memory stays valid until they are complete,
// whichever thread holds the lock.
unsafe impl Send for Engine {}

impl Engine {
    /// Handles the sockets' events; returns whether there were any, or a poll would deliver something.
    pub(super) fn turn(&mut self, stats: &Stats) -> bool {
        self.turns = self.turns.wrapping_add(1);
        let sole = self.conns.sole().filter(|(_, conn)| matches!(conn.stage, Stage::Up(_)) && !conn.is_blocked());
        if let Some((number, _)) = sole
            && self.timer.is_none_or(|timer| Instant::now() < timer)
            && !self.turns.is_multiple_of(SOLE)
        {
            let any = self.receive(number, stats);
            self.settle(stats);
            return any || self.has_events();
        }
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [none; EVENTS];
        let count = epoll::wait(&self.epoll, &mut events[..], Some(&Timespec::default())).unwrap_or(0);
        for event in &events[..count] {
            let (number, flags) = (event.data.u64(), event.flags);
            if number >= LISTENER {
                self.accept((number - LISTENER) as usize);
            } else {
                self.ready(number, flags, stats);
            }
        }
        if self.timer.is_some_and(|timer| Instant::now() >= timer) {
            self.check_attempts();
        }
        self.settle(stats);
        count > 0 || self.has_events()
    }

    /// Sends waiting data, and ends the connections on which that fails.
    fn settle(&mut self, stats: &Stats) {
        self.flush();
        for number in std::mem::take(&mut self.broken) {
            let _ = self.receive(number, stats);
        }
    }

    /// Whether a connection is being made or relayed, or waits for space in the send buffer of the kernel.
    pub(super) fn is_pending(&self) -> bool {
        self.timer.is_some() || self.conns.iter().any(|(_, conn)| conn.is_blocked() || conn.is_relayed())
    }

    /// Ends all connections except relayed ones.
    pub(super) fn close(&mut self) {
        let own: Vec<u64> =
            self.conns.iter().filter(|(_, conn)| !conn.is_relayed()).map(|(number, _)| number).collect();
        own.into_iter().for_each(|number| drop(self.conns.remove(number)));
        self.listeners.clear();
        self.dialing.clear();
    }

    /// Whether a poll would deliver something.
    pub(super) fn has_events(&self) -> bool {
        !self.done.is_empty() || !self.inbox.packets.is_empty()
    }

    /// Records that data may be waiting to be sent to a peer.
    pub(super) fn touch(&mut self, peer: u32) {
        if self.dirty.last() != Some(&peer) {
            self.dirty.push(peer);
        }
    }

    /// Sends waiting data, as far as the sockets accept it.
    pub(super) fn flush(&mut self) {
        while let Some(peer) = self.dirty.pop() {
            self.send(peer);
        }
    }

    fn ready(&mut self, number: u64, flags: epoll::EventFlags, stats: &Stats) {
        let Some(conn) = self.conns.get_mut(number) else { return };
        let peer = match conn.stage {
            Stage::Up(peer) => peer,
            Stage::Relay(_) => return self.pass_on(number, flags, stats),
            _ => return self.shake(number, stats),
        };
        if flags.contains(epoll::EventFlags::OUT) {
            conn.is_full = false;
            self.touch(peer);
        }
        if flags != epoll::EventFlags::OUT {
            let _ = self.receive(number, stats);
        }
    }

    /// Receives from a connection to a peer, and processes the arrived data; returns whether any has arrived.
    pub(super) fn receive(&mut self, number: u64, stats: &Stats) -> bool {
        for turn in 0.. {
            let Some(conn) = self.conns.get_mut(number) else { break };
            let Stage::Up(peer) = conn.stage else { break };
            let mut direct = Blocks::new();
            let is_sealed = conn.seal.is_some();
            if conn.input.held().is_empty()
                && !is_sealed
                && let Some(payload) = &conn.input.payload
            {
                let payload = super::input::Payload { ..*payload };
                direct = self.direct(peer, &payload);
            }
            let Some(conn) = self.conns.get_mut(number) else { break };
            conn.input.lend(&mut self.spare);
            // SAFETY: bytes of an operation in progress, or of a region that is not released while the lock is held.
            let (placed, is_full) = match unsafe { conn.receive(direct) } {
                Ok(Some(received)) => received,
                Ok(None) if conn.broken.is_none() => {
                    conn.input.return_buffer(&mut self.spare);
                    return turn > 0;
                }
                Ok(None) => {
                    self.ended(number, None);
                    break;
                }
                Err(e) => {
                    self.ended(number, Some(e));
                    break;
                }
            };
            if !self.digest(number, peer, placed, stats) {
                break;
            }
            let Some(conn) = self.conns.get(number) else { break };
            let is_last = turn >= RECEIVES;
            if conn.broken.is_some() {
                if is_last {
                    self.ended(number, None);
                    break;
                }
            } else if !is_full || is_last && !conn.seal.as_ref().is_some_and(|seal| seal.has_record()) {
                // The kernel reports the remaining bytes again, but not those of records that were already received.
                break;
            }
        }
        true
    }

    /// Processes the buffer of a connection, after `placed` bytes of a payload were received directly to their
    /// destination; returns whether the connection continues.
    pub(super) fn digest(&mut self, number: u64, peer: u32, placed: usize, stats: &Stats) -> bool {
        let Some(conn) = self.conns.get_mut(number) else { return false };
        let mut input = std::mem::take(&mut conn.input);
        input.total += placed as u64;
        if let (Some(payload), true) = (&mut input.payload, placed > 0) {
            self.arrived(peer, payload, placed);
        }
        let processed = self.process(peer, &mut input, stats);
        input.return_buffer(&mut self.spare);
        if let Some(conn) = self.conns.get_mut(number) {
            conn.input = input;
        }
        if let Err(why) = processed {
            let e = Error::new(ErrorKind::Protocol, "receive from a peer").peer(peer).device("tcp").cause(why);
            self.lose(peer, e);
        }
        self.conns.get(number).is_some()
    }

    /// Sends to a peer as much as its socket accepts; connects to it first.
    pub(super) fn send(&mut self, to: u32) {
        let number = match self.peers[to as usize].link {
            Link::Up(number) => number,
            Link::None if !self.peers[to as usize].is_idle() => return self.dial(to),
            Link::None | Link::Dialing(_) | Link::Again(_) => return,
        };
        let (peer, Some(conn)) = (&mut self.peers[to as usize], self.conns.get_mut(number)) else { return };
        if conn.broken.is_some() || conn.is_full {
            return;
        }
        let mut blocks = Blocks::new();
        let result = loop {
            blocks.clear();
            peer.next(&self.memory, &mut blocks);
            if blocks.is_empty() {
                break conn.flush_seal();
            }
            // SAFETY: buffers, and bytes of operations in progress and of regions, which `cancel` and `release` copy.
            match unsafe { conn.send(&blocks) } {
                Ok(len) => peer.sends.advance(len),
                Err(e) => break Err(e),
            }
        };
        match result {
            Ok(()) => conn.set_blocked(&self.epoll, number, false),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                conn.is_full = true;
                conn.set_blocked(&self.epoll, number, true);
                self.begun = true;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => self.dirty.push(to),
            // Data that the peer sent before it ended is received first.
            Err(e) => {
                conn.broken = Some(e);
                self.broken.push(number);
                self.arm_timer(Duration::ZERO);
            }
        }
    }

    /// Ends all operations to a peer.
    pub(super) fn fail(&mut self, peer: u32, error: &Error) {
        for (id, name) in self.peers[peer as usize].end() {
            self.done.push_back((id, Err(error.again().during(name))));
        }
    }

    /// Whether all requests are complete, and all sent data has arrived.
    pub(super) fn is_quiet(&self) -> bool {
        let is_flushed = |conn: &Conn| !matches!(conn.stage, Stage::Up(_)) || conn.is_flushed();
        let is_up = |peer: &Peer| !peer.is_met || peer.sends.is_empty() || matches!(peer.link, Link::Up(_));
        self.peers.iter().all(|peer| peer.is_idle() && is_up(peer))
            && self.conns.iter().all(|(_, conn)| is_flushed(conn))
    }
}
