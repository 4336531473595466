//! Attempts to connect to a peer: each round tries all routes in turn, until the silence limit.

use std::io;
use std::time::{Duration, Instant};

use super::conn::Stage;
use super::engine::Engine;
use super::links::{CHECK_INTERVAL, FIRST, PAUSE, is_short};
use super::peer::Link;
use super::relay::MAX_HOPS;
use super::ways::Way;
use crate::error::{Error, ErrorKind};

/// Number of rounds in which the kernel of the other side may refuse the first connection.
const REFUSALS: u32 = 3;

impl Engine {
    /// Begins to connect to a peer.
    pub(super) fn dial(&mut self, peer: u32) {
        if !self.dialing.contains(&peer) {
            self.dialing.push(peer);
        }
        let state = &mut self.peers[peer as usize];
        state.dials += 1;
        if state.round.ways.is_empty() {
            state.round.ways = self.topology.first(self.me, peer, false);
        }
        let way = state.round.ways.get(state.round.at).copied();
        let begun = match way {
            Some(way) => self.begin_connect(peer, way, (self.me, MAX_HOPS), None),
            None => Err(io::Error::other("the peer published no address")),
        };
        match begun {
            Ok(number) => {
                self.peers[peer as usize].link = Link::Dialing(number);
                self.arm_timer(CHECK_INTERVAL);
            }
            Err(e) => self.attempt_failed(peer, &e),
        }
    }

    /// Whether there is another route after this number of routes in the round; relays come last.
    fn has_way(&mut self, peer: u32, after: usize) -> bool {
        let round = &mut self.peers[peer as usize].round;
        if after >= round.ways.len() && !round.is_refused && !round.is_reached && !round.has_relays {
            round.has_relays = true;
            let mut relays = self.topology.relays(self.me, peer);
            relays.retain(|way| !round.ways.contains(way));
            round.ways.extend(relays);
        }
        match round.ways.get(after) {
            Some(Way::Over(_)) => !round.is_refused,
            way => way.is_some(),
        }
    }

    /// Whether a peer can be reached by several routes.
    pub(super) fn has_ways(&self, peer: u32) -> bool {
        self.topology.first(self.me, peer, false).len() > 1 || !self.topology.relays(self.me, peer).is_empty()
    }

    /// Tries the next route to a peer, begins another round, or abandons the attempts.
    pub(super) fn attempt_failed(&mut self, peer: u32, e: &io::Error) {
        let (silence, now) = (self.silence, Instant::now());
        let mut begun = now;
        let state = &mut self.peers[peer as usize];
        if let Link::Dialing(number) = state.link
            && let Some(conn) = self.conns.remove(number)
        {
            match conn.stage {
                Stage::Connecting(_) => begun = conn.since,
                // The other side has ended the connection because this rank did not continue the handshake.
                Stage::Begun(..) if now.duration_since(conn.since) >= FIRST => state.dialing_since = None,
                _ => {}
            }
            let is_up = conn.ask.is_none() && matches!(conn.stage, Stage::Connected(_) | Stage::Begun(..));
            let is_reached = is_up && e.kind() != io::ErrorKind::TimedOut;
            state.round.is_reached |= is_reached;
            // The silent peer has answered: it may itself be connecting, so it gets the full time limit again.
            if is_reached
                && let Some((since, 0)) = state.dialing_since
                && now.duration_since(since) >= silence
            {
                state.dialing_since = Some((now, 0));
            }
        }
        if let Some(way) = state.round.ways.get(state.round.at) {
            state.round.failures.push(format!("{way}: {e}"));
        }
        state.round.is_refused |= e.kind() == io::ErrorKind::ConnectionRefused;
        state.round.at += 1;
        let at = state.round.at;
        let (since, rounds) = *state.dialing_since.get_or_insert((begun, 0));
        let has_left = state.left;
        if !has_left && self.has_way(peer, at) {
            self.peers[peer as usize].link = Link::Again(now);
            return self.arm_timer(Duration::ZERO);
        }
        let state = &mut self.peers[peer as usize];
        let round = std::mem::take(&mut state.round);
        let rounds = rounds + 1;
        let is_refused = round.is_refused && (rounds >= REFUSALS || state.is_met);
        if !is_refused && !has_left && now.duration_since(since) < silence {
            let pause = PAUSE * rounds.min(20);
            (state.link, state.dialing_since) = (Link::Again(now + pause), Some((since, rounds)));
            return self.arm_timer(pause);
        }
        (state.link, state.dialing_since) = (Link::None, None);
        let why = state.broken.take();
        let error = self.cannot_connect(peer, is_refused, e, &round.failures.join("; "), why);
        self.connection_lost(peer, error);
    }

    /// The error for a peer to which no connection can be established or re-established.
    fn cannot_connect(&self, peer: u32, is_refused: bool, e: &io::Error, tried: &str, broke: Option<String>) -> Error {
        let error = |kind, cause: String| self.error(kind, "connect to a peer", peer).cause(cause);
        let network = "check the network between the hosts, its firewalls, and FARSIDE_TCP_INTERFACE";
        match (e.kind(), broke) {
            (_, Some(why)) => {
                let error = self.error(ErrorKind::PeerLost, "receive from a peer", peer);
                match is_refused {
                    true => error.cause(format!(
                        "the peer's process ended without leaving the job ({why}): connection refused {tried}"
                    )),
                    false => error
                        .cause(format!(
                            "the connection broke ({why}) and was not re-established within {:?}: {tried}",
                            self.silence
                        ))
                        .remedy(
                            "check the network and the peer's host; if the host may be silent for longer, \
                             raise FARSIDE_TCP_SILENCE_S",
                        ),
                }
            }
            _ if is_refused => {
                error(ErrorKind::PeerLost, format!("the peer's process has ended: connection refused {tried}"))
            }
            (io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::PermissionDenied, _) => {
                let cause = "the peer closes connections before they are authenticated: it is not a rank of this job";
                error(ErrorKind::PeerLost, format!("{cause}, or has another secret: {tried}")).remedy(
                    "start all ranks by one launcher, and set FARSIDE_TCP_INTERFACE to the network that they share",
                )
            }
            _ if is_short(e) => error(ErrorKind::Limit, format!("cannot create a socket for the connection: {e}"))
                .remedy("raise the limit of open files (`ulimit -n`)"),
            _ => error(ErrorKind::PeerLost, format!("the peer cannot be reached {tried}")).remedy(network),
        }
    }

    /// Continues attempts to connect.
    pub(super) fn continue_attempts(&mut self) {
        let now = Instant::now();
        for peer in std::mem::take(&mut self.dialing) {
            match self.peers[peer as usize].link {
                Link::Again(at) if now >= at => self.dial(peer),
                Link::Again(at) => self.arm_timer(at - now),
                Link::Dialing(number) => self.check_attempt(peer, number),
                Link::None | Link::Up(_) => continue,
            }
            if !self.dialing.contains(&peer) {
                self.dialing.push(peer);
            }
        }
    }

    /// Ends an attempt that takes too long.
    fn check_attempt(&mut self, peer: u32, number: u64) {
        let Some(conn) = self.conns.get(number) else { return };
        let time = conn.since.elapsed();
        // A relay's agent answers even if the rank computes; a peer without an agent may be computing.
        let is_bounded = conn.ask.is_some() || matches!(conn.stage, Stage::Connecting(_));
        let next = self.peers[peer as usize].round.at + 1;
        self.arm_timer(CHECK_INTERVAL);
        let is_late = is_bounded && time > self.way_limit() && (time > self.silence || self.has_way(peer, next));
        if is_late {
            return self.attempt_failed(peer, &io::ErrorKind::TimedOut.into());
        }
        if !is_bounded
            && time > self.silence
            && let Some(conn) = self.conns.get_mut(number)
            && !std::mem::replace(&mut conn.is_warned, true)
        {
            tracing::warn!(
                rank = self.me,
                peer,
                host = %conn.host,
                "tcp: the peer's host answers, but the peer accepts no connection: it is computing or stopped"
            );
        }
    }

    /// Ends a connection to a peer whose host is silent. If there are other routes, each is tried once.
    pub(super) fn end_silent(&mut self, number: u64) {
        let peer = match self.conns.get(number).map(|conn| &conn.stage) {
            Some(Stage::Up(peer)) => *peer,
            Some(Stage::Connected(peer) | Stage::Begun(peer, _) | Stage::Granted(peer)) => {
                let peer = *peer;
                return self.attempt_failed(peer, &io::ErrorKind::TimedOut.into());
            }
            _ => return,
        };
        let why = format!("the peer's host has acknowledged nothing for {:?}", self.silence);
        if self.has_ways(peer) && !self.peers[peer as usize].left && !self.goodbye_sent {
            let Some(conn) = self.conns.remove(number) else { return };
            self.reconnect(peer, conn.input, why);
            let past = Instant::now().checked_sub(self.silence);
            return self.peers[peer as usize].dialing_since = past.map(|since| (since, 0));
        }
        let error = self.error(ErrorKind::PeerLost, "check the other ranks", peer).cause(why).remedy(
            "check the peer's host and the network; if the host may be silent for longer, raise FARSIDE_TCP_SILENCE_S",
        );
        self.connection_lost(peer, error);
    }
}
