//! The handshake of a connection, and the agreement of both sides of a pair on two questions: which of two connections
//! is kept, and where the streams of a broken connection resume.

use std::io;

use snow::TransportState;

use super::conn::{Ask, Stage};
use super::engine::Engine;
use super::links::{cut, departure};
use super::peer::Link;
use super::relay::granted;
use super::secret::{self, Greeting, MESSAGE, SECRET, Seal};
use super::ways::Round;
use crate::stats::Stats;

impl Engine {
    /// Continues the handshake of a connection.
    pub(super) fn shake(&mut self, number: u64, stats: &Stats) {
        match self.next_stage(number, stats) {
            Ok(None) => {}
            Ok(Some(peer)) => {
                if self.digest(number, peer, 0, stats) {
                    self.receive(number, stats);
                }
            }
            Err(e) => match self.conns.get(number) {
                Some(conn) if conn.front.is_some() => self.bridge_failed(number, &e),
                Some(conn) => match conn.stage {
                    Stage::Connecting(peer) | Stage::Connected(peer) | Stage::Begun(peer, _) | Stage::Granted(peer) => {
                        self.attempt_failed(peer, &e);
                    }
                    _ => self.end_relay(number),
                },
                None => {}
            },
        }
    }

    /// The announcement of this rank to a peer.
    fn greeting(&self, peer: u32) -> Greeting {
        let state = &self.peers[peer as usize];
        Greeting::new(self.me, peer, state.dials, state.received)
    }

    /// Returns the peer once the connection is up.
    #[allow(unsafe_code)]
    fn next_stage(&mut self, number: u64, stats: &Stats) -> io::Result<Option<u32>> {
        let (me, secret) = (self.me, self.secret);
        let Some(conn) = self.conns.get_mut(number) else { return Ok(None) };
        if let Stage::Connecting(peer) = conn.stage {
            let connected = conn.connected();
            // The end of a connection to a relay does not mean that the peer is lost.
            if conn.ask.is_some() { connected.map_err(io::Error::other) } else { connected }?;
            conn.stage = Stage::Connected(peer);
            conn.set_blocked(&self.epoll, number, false);
            if conn.front.is_some() && conn.ask.is_none() {
                self.splice(number, stats);
                return Ok(None);
            }
        }
        // SAFETY: no blocks.
        unsafe { conn.receive(Default::default()) }?;
        let refused = |_| io::Error::from(io::ErrorKind::PermissionDenied);
        loop {
            let Some(conn) = self.conns.get_mut(number) else { return Ok(None) };
            let held = conn.input.held();
            match std::mem::replace(&mut conn.stage, Stage::Connecting(me)) {
                Stage::Connected(peer) => {
                    conn.stage = Stage::Connected(peer);
                    let Some(challenge) = held.first_chunk::<SECRET>().copied() else { return Ok(None) };
                    conn.input.consume(SECRET);
                    let ask = conn.ask.map(|Ask { via, origin, hops }| Greeting {
                        target: peer,
                        origin,
                        hops,
                        ..Greeting::new(me, via, 0, 0)
                    });
                    let greeting = ask.unwrap_or_else(|| self.greeting(peer));
                    let (state, message) = secret::begin(&secret, &challenge, &greeting).map_err(refused)?;
                    let Some(conn) = self.conns.get_mut(number) else { return Ok(None) };
                    conn.stage = Stage::Begun(peer, state);
                    conn.send_handshake(&message)?;
                }
                Stage::Begun(peer, state) => {
                    let Some(answer) = held.first_chunk::<MESSAGE>().copied() else {
                        conn.stage = Stage::Begun(peer, state);
                        return Ok(None);
                    };
                    conn.input.consume(MESSAGE);
                    conn.stage = Stage::Connected(peer);
                    if let Some(Ask { via, .. }) = conn.ask {
                        conn.stage = Stage::Granted(peer);
                        secret::finish(state, (me, via), &answer).map_err(refused)?;
                        continue;
                    }
                    let (greeting, state) = secret::finish(state, (me, peer), &answer).map_err(refused)?;
                    self.up(number, &greeting, state)?;
                    return Ok(Some(peer));
                }
                Stage::Granted(peer) => {
                    conn.stage = Stage::Granted(peer);
                    let Some(answer) = held.first().copied() else { return Ok(None) };
                    conn.input.consume(1);
                    granted(answer)?;
                    // The target, or the next rank of the path, is at the other side from now on.
                    (conn.ask, conn.stage) = (None, Stage::Connected(peer));
                    if conn.front.is_some() {
                        self.splice(number, stats);
                        return Ok(None);
                    }
                }
                Stage::Accepted(challenge) => {
                    conn.stage = Stage::Accepted(challenge);
                    let Some(first) = held.first_chunk::<MESSAGE>().copied() else { return Ok(None) };
                    conn.input.consume(MESSAGE);
                    let (greeting, state) = secret::read_greeting(&secret, &challenge, me, &first).map_err(refused)?;
                    if greeting.target != me {
                        self.begin_relay(number, &greeting, state)?;
                        return Ok(None);
                    }
                    self.admit(&greeting)?;
                    let (message, state) = secret::reply(state, &self.greeting(greeting.from)).map_err(refused)?;
                    let Some(conn) = self.conns.get_mut(number) else { return Ok(None) };
                    conn.send_handshake(&message)?;
                    self.up(number, &greeting, state)?;
                    return Ok(Some(greeting.from));
                }
                stage @ (Stage::Connecting(_) | Stage::Up(_) | Stage::Bridging(_) | Stage::Relay(_)) => {
                    conn.stage = stage;
                    return Ok(None);
                }
            }
        }
    }

    /// Decides whether to accept a connection that a peer has begun; accepting it ends an earlier connection that the
    /// peer has abandoned.
    fn admit(&mut self, greeting: &Greeting) -> io::Result<()> {
        let peer = greeting.from;
        let known = self.peers.get(peer as usize).ok_or(io::ErrorKind::PermissionDenied)?;
        // The peer has abandoned attempts with numbers that this rank has recorded, and begins others only when its
        // connection has ended.
        let is_new = known.lost.is_none() && greeting.dials > known.dialed;
        if !is_new || matches!(known.link, Link::Dialing(_)) && peer > self.me {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        if let Link::Up(former) = known.link
            && let Some(conn) = self.conns.remove(former)
        {
            self.reconnect(peer, conn.input, "the peer reported the connection as broken".into());
        }
        Ok(())
    }

    /// Makes an authenticated connection the connection of its peer.
    fn up(&mut self, number: u64, greeting: &Greeting, seal: TransportState) -> io::Result<()> {
        let peer = greeting.from;
        let Some(conn) = self.conns.get_mut(number) else { return Ok(()) };
        conn.tune(self.silence)?;
        let state = &mut self.peers[peer as usize];
        state.sends.resume(greeting.received).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
        conn.stage = Stage::Up(peer);
        let mut input = state.input.take().unwrap_or_default();
        if self.encrypts {
            let mut seal = Seal::new(seal);
            let early = conn.input.held().len();
            seal.free()[..early].copy_from_slice(conn.input.held());
            seal.arrived(early);
            conn.seal = Some(Box::new(seal));
        } else {
            input.resume(conn.input.held(), &mut self.spare);
        }
        conn.input = input;
        state.dialed = state.dialed.max(greeting.dials);
        (state.dialing_since, state.broken, state.round) = (None, None, Round::default());
        let was_met = std::mem::replace(&mut state.is_met, true);
        if let Link::Dialing(own) = std::mem::replace(&mut state.link, Link::Up(number))
            && own != number
        {
            self.conns.remove(own);
        }
        tracing::debug!(rank = self.me, peer, "tcp: connected");
        if !was_met {
            self.send_earlier_notices(peer);
        }
        self.touch(peer);
        Ok(())
    }

    /// Sends a peer the notices that other peers received before it was connected.
    fn send_earlier_notices(&mut self, peer: u32) {
        if self.goodbye_sent && !self.listeners.is_empty() {
            self.peers[peer as usize].send_text(departure(self.me, false, self.me), "");
        }
        for rank in (0..self.peers.len() as u32).filter(|rank| *rank != peer) {
            if self.peers[rank as usize].left {
                self.peers[peer as usize].send_text(departure(rank, false, rank), "");
            } else if let Some(e) = &self.peers[rank as usize].lost {
                let (blamed, why) = (e.blamed_number().unwrap_or(rank), e.reason());
                self.peers[peer as usize].send_text(departure(rank, true, blamed), cut(&why));
            }
        }
    }
}
