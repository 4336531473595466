#![allow(unsafe_code)]
//! Relays: connections that this rank forwards between two other ranks that cannot connect directly.
//!
//! The origin connects to this rank, authenticates itself as a member of the job, and names the target. This rank
//! connects to the target, or asks the next relay for it, and forwards bytes in both directions from then on: the
//! handshake and the encryption are end to end between origin and target. The agent does this while the rank computes.
//!
//! Each direction of a relayed connection has a separate buffer of at most [`PIECE`] bytes. A side is read only while
//! the buffer to the other side is empty, so a slow receiver slows down its sender, as without a relay. There is no
//! deadlock: a direction waits only for space at its receiver, which accepts everything that arrives (see `peer`),
//! whatever its program does; no buffer is shared by two directions or two pairs; and a relay forwards bytes whether or
//! not its own requests continue. The same holds for each relay of a longer path, so the last relay always makes
//! progress, and then those before it.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use snow::HandshakeState;

use super::conn::{Ask, Bridge, Conn, Stage};
use super::engine::Engine;
use super::input::LEN as PIECE;
use super::secret::{self, Greeting};
use super::sys;
use super::ways::Way;
use crate::device::Block;
use crate::stats::{Kind, Stats};

/// Maximum number of further ranks over which a connection may lead, so that inconsistent tables cannot make an endless
/// path.
pub(super) const MAX_HOPS: u8 = 7;
/// Maximum number of connections that a rank relays at the same time.
const MAX_RELAYED: usize = 1024;
/// Maximum number of segments that are forwarded in one turn of a connection.
const PIECES: usize = 16;
/// Interval between two checks of relayed connections.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The answer of a relay after the handshake if the request is granted.
const GRANTED: u8 = 0;
/// Connections to the target are refused: its process has ended.
const ENDED: u8 = 1;
const UNREACHED: u8 = 2;
const DENIED: u8 = 3;

/// Converts a relay's answer to a result.
pub(super) fn granted(answer: u8) -> io::Result<()> {
    match answer {
        GRANTED => Ok(()),
        ENDED => Err(io::ErrorKind::ConnectionRefused.into()),
        UNREACHED => Err(io::Error::new(io::ErrorKind::HostUnreachable, "the relay cannot reach the target")),
        _ => Err(io::Error::other("the relay refused to forward to the target")),
    }
}

impl Engine {
    /// Begins to connect to `peer` over one of its routes. A relay gets the origin, and the number of further ranks
    /// that the path may cross. `front` is the connection for which this rank is a relay itself.
    pub(super) fn begin_connect(
        &mut self,
        peer: u32,
        way: Way,
        (origin, hops): (u32, u8),
        front: Option<u64>,
    ) -> io::Result<u64> {
        let (at, ask) = match way {
            Way::Direct(at) => (at, None),
            Way::Over(via) => {
                let state = &self.peers[via as usize];
                if state.left || state.lost.is_some() {
                    return Err(io::Error::other("the relay has left the job or is lost"));
                }
                let first = self.topology.direct(self.me, via).first().copied();
                let Some(Way::Direct(at)) = first else {
                    return Err(io::Error::other("the relay published no address"));
                };
                (at, Some(Ask { via, origin, hops }))
            }
        };
        let conn = Conn::dial(peer, at, self.silence);
        let mut conn = if ask.is_some() { conn.map_err(io::Error::other)? } else { conn? };
        (conn.ask, conn.front) = (ask, front);
        self.add(conn)
    }

    /// Time for which one route to a peer is tried if there are others.
    pub(super) fn way_limit(&self) -> Duration {
        (self.silence / 4).clamp(Duration::from_secs(1), Duration::from_secs(3))
    }

    /// Serves an authenticated request to relay.
    pub(super) fn begin_relay(
        &mut self,
        front: u64,
        greeting: &Greeting,
        state: Box<HandshakeState>,
    ) -> io::Result<()> {
        let Greeting { from, target, origin, hops, .. } = *greeting;
        let refused = |_| io::Error::from(io::ErrorKind::PermissionDenied);
        let own = Greeting { from: self.me, to: from, ..*greeting };
        let (message, _) = secret::reply(state, &own).map_err(refused)?;
        let (silence, relays) = (self.silence, self.relays());
        let Some(conn) = self.conns.get_mut(front) else { return Ok(()) };
        conn.send_handshake(&message)?;
        conn.tune(silence)?;
        let ranks = self.peers.len() as u32;
        let is_cycle = [from, origin, self.me].contains(&target) || origin == self.me;
        if is_cycle
            || target >= ranks
            || origin >= ranks
            || hops > MAX_HOPS
            || relays >= MAX_RELAYED
            || self.goodbye_sent
        {
            tracing::debug!(rank = self.me, from, origin, target, hops, "tcp: a request to relay is refused");
            self.refuse(front, DENIED);
            return Ok(());
        }
        let mut ways = self.topology.first(self.me, target, true);
        let is_onward = |way: &Way| match way {
            Way::Direct(_) => true,
            Way::Over(next) => hops > 0 && ![from, origin].contains(next),
        };
        ways.retain(is_onward);
        ways.reverse();
        let bridge = Bridge { target, origin, hops, ways, back: None, has_ended: false };
        conn.stage = Stage::Bridging(Box::new(bridge));
        self.bridge(front);
        Ok(())
    }

    /// Number of connections that this rank relays, or is about to; each of the two sides counts one half.
    pub(super) fn relays(&self) -> usize {
        self.conns.iter().filter(|(_, conn)| conn.is_relayed()).count().div_ceil(2)
    }

    /// Refuses a request to relay.
    fn refuse(&mut self, front: u64, answer: u8) {
        if let Some(mut conn) = self.conns.remove(front) {
            // If the answer cannot be sent, the other side at least sees the end of the connection.
            let _ = conn.send_handshake(&[answer]);
        }
    }

    /// Tries the next route to the target of a request.
    fn bridge(&mut self, front: u64) {
        loop {
            let Some(conn) = self.conns.get_mut(front) else { return };
            let Stage::Bridging(bridge) = &mut conn.stage else { return };
            let (target, origin, hops) = (bridge.target, bridge.origin, bridge.hops);
            let way = if self.peers[target as usize].lost.is_some() { None } else { bridge.ways.pop() };
            let Some(way) = way else {
                let answer = if bridge.has_ended { ENDED } else { UNREACHED };
                return self.refuse(front, answer);
            };
            let result = self.begin_connect(target, way, (origin, hops.saturating_sub(1)), Some(front));
            let Some(conn) = self.conns.get_mut(front) else { return };
            let Stage::Bridging(bridge) = &mut conn.stage else { return };
            match result {
                Ok(back) => {
                    bridge.back = Some(back);
                    return self.arm_timer(CHECK_INTERVAL);
                }
                Err(e) => bridge.has_ended |= e.kind() == io::ErrorKind::ConnectionRefused,
            }
        }
    }

    /// Ends an attempt to connect to the target of a request, and tries the next route.
    pub(super) fn bridge_failed(&mut self, back: u64, e: &io::Error) {
        let Some(front) = self.conns.remove(back).and_then(|conn| conn.front) else { return };
        if let Some(Stage::Bridging(bridge)) = self.conns.get_mut(front).map(|conn| &mut conn.stage) {
            bridge.has_ended |= e.kind() == io::ErrorKind::ConnectionRefused;
            self.bridge(front);
        }
    }

    /// Starts to forward bytes, now that the connection to the target is complete.
    pub(super) fn splice(&mut self, back: u64, stats: &Stats) {
        let silence = self.silence;
        let Some(conn) = self.conns.get_mut(back) else { return };
        let Some(front) = conn.front.take() else { return };
        conn.stage = Stage::Relay(front);
        let is_tuned = conn.tune(silence).is_ok();
        let early = std::mem::take(&mut conn.input).held().to_vec();
        let Some(conn) = self.conns.get_mut(front).filter(|_| is_tuned) else {
            self.conns.remove(back);
            return;
        };
        conn.stage = Stage::Relay(back);
        let first = std::mem::take(&mut conn.input).held().to_vec();
        conn.pipe = early;
        if conn.send_handshake(&[GRANTED]).is_err() {
            return self.end_relay(front);
        }
        tracing::debug!(rank = self.me, "tcp: a connection is relayed");
        if let Some(conn) = self.conns.get_mut(back) {
            conn.pipe = first;
        }
        [front, back].into_iter().for_each(|number| self.drain(number, stats));
        self.arm_timer(CHECK_INTERVAL);
    }

    /// Ends both sides of a relayed connection, or of one that is about to be relayed.
    pub(super) fn end_relay(&mut self, number: u64) {
        let Some(conn) = self.conns.remove(number) else { return };
        match conn.stage {
            Stage::Relay(other) => drop(self.conns.remove(other)),
            Stage::Bridging(bridge) => drop(bridge.back.and_then(|back| self.conns.remove(back))),
            _ => {}
        }
    }

    /// Handles the events of a side of a relayed connection.
    pub(super) fn pass_on(&mut self, number: u64, flags: epoll::EventFlags, stats: &Stats) {
        if flags.contains(epoll::EventFlags::OUT) {
            self.drain(number, stats);
        }
        if flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP) {
            self.stop_sending(number);
        }
        if flags != epoll::EventFlags::OUT {
            self.pass(number, stats);
        }
    }

    /// Stops sending to a side that has ended; the bytes that it sent before are still forwarded.
    fn stop_sending(&mut self, number: u64) {
        if let Some(conn) = self.conns.get_mut(number)
            && !std::mem::replace(&mut conn.is_deaf, true)
        {
            conn.pipe = Vec::new();
            // Otherwise its events would be reported repeatedly.
            let _ = epoll::delete(&*self.epoll, &conn.socket);
        }
    }

    /// Sends the bytes that are buffered for a side, and continues with the other side.
    fn drain(&mut self, number: u64, stats: &Stats) {
        let Some(conn) = self.conns.get_mut(number) else { return };
        let Stage::Relay(other) = conn.stage else { return };
        let pipe = std::mem::take(&mut conn.pipe);
        if self.deliver(number, &pipe) {
            if let Some(conn) = self.conns.get_mut(other) {
                conn.set_reading(&self.epoll, other, true);
            }
            self.pass(other, stats);
        }
    }

    /// Sends bytes to a side as far as it accepts them, and buffers the others; returns whether nothing is left.
    fn deliver(&mut self, number: u64, bytes: &[u8]) -> bool {
        let Some(conn) = self.conns.get_mut(number) else { return false };
        let mut sent = 0;
        while sent < bytes.len() && !conn.is_deaf {
            let block = Block::of(bytes[sent..].as_ptr(), bytes.len() - sent);
            // SAFETY: a slice.
            match unsafe { sys::send(conn.socket.as_fd(), &[block]) } {
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    conn.pipe = bytes[sent..].to_vec();
                    conn.set_blocked(&self.epoll, number, true);
                    return false;
                }
                Err(_) => {
                    self.stop_sending(number);
                    return true;
                }
            }
        }
        conn.set_blocked(&self.epoll, number, false);
        true
    }

    /// Forwards the bytes that a side has sent, while the other side accepts them.
    fn pass(&mut self, number: u64, stats: &Stats) {
        let mut bytes = std::mem::take(&mut self.spare);
        if bytes.is_empty() {
            bytes = vec![0; PIECE].into();
        }
        self.pass_through(number, &mut bytes, stats);
        self.spare = bytes;
    }

    fn pass_through(&mut self, number: u64, bytes: &mut [u8], stats: &Stats) {
        for piece in 0.. {
            let Some(conn) = self.conns.get_mut(number) else { return };
            let Stage::Relay(other) = conn.stage else { return };
            let is_deaf = conn.is_deaf;
            if piece >= PIECES && !is_deaf {
                return;
            }
            if self.conns.get(other).is_some_and(|other| !other.pipe.is_empty()) {
                if let Some(conn) = self.conns.get_mut(number) {
                    conn.set_reading(&self.epoll, number, false);
                }
                return;
            }
            let Some(conn) = self.conns.get_mut(number) else { return };
            // SAFETY: a slice.
            let received =
                unsafe { sys::receive(conn.socket.as_fd(), &[Block { base: bytes.as_mut_ptr(), len: bytes.len() }]) };
            match received {
                Ok(n) if n > 0 => {
                    stats.add(Kind::Relay, n);
                    self.deliver(other, &bytes[..n]);
                    if n < bytes.len() && !is_deaf {
                        return;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && !is_deaf => return,
                Ok(_) | Err(_) => return self.end_relay(number),
            }
        }
    }

    /// Ends relayed connections whose other side is silent, and attempts that take too long.
    pub(super) fn check_relays(&mut self) {
        let (now, limit) = (Instant::now(), self.way_limit());
        let (mut late, mut silent, mut any) = (Vec::new(), Vec::new(), false);
        for (number, conn) in self.conns.iter().filter(|(_, conn)| conn.is_relayed()) {
            any = true;
            if conn.front.is_some() && now.duration_since(conn.since) > limit {
                late.push(number);
            } else if conn.is_silent(self.silence) {
                silent.push(number);
            }
        }
        late.into_iter().for_each(|number| self.bridge_failed(number, &io::ErrorKind::TimedOut.into()));
        silent.into_iter().for_each(|number| self.end_relay(number));
        if any {
            self.arm_timer(CHECK_INTERVAL);
        }
    }
}
