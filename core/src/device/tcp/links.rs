//! Connections: how either side makes them on first use, and how they end; ranks that are lost or have left.
//!
//! If both ranks of a pair connect at the same time, the connection that the lower rank has begun is kept: a rank
//! refuses a higher rank while it is connecting itself, and abandons its own attempt when it accepts a lower rank. A
//! refused attempt is repeated until the silence limit, unless the other side has connected.
//!
//! A broken connection is re-established, and the bytes that the peer has not received are retransmitted (see
//! `send_buffer`). The peer is lost if connections to it are refused, or if re-establishing takes longer than the
//! silence limit.
//!
//! A rank watches the next rank that has not left, by a connection to it, and forwards reports about other ranks. So
//! all ranks are informed of a rank that ends, with the reason, even those without a connection to it.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use rustix::event::epoll;

use super::conn::{Conn, Stage};
use super::engine::{Engine, LISTENER};
use super::frame::{Header, Kind, TEXT};
use super::input::Input;
use super::peer::{Link, Peer};
use super::secret;
use crate::error::{Error, ErrorKind, Result};

/// Time limit of the first message of a connection that was accepted.
pub(super) const FIRST: Duration = Duration::from_secs(5);
/// Maximum number of connections whose other side has not authenticated itself; beyond it, a new connection closes an
/// old one.
const MAX_UNAUTHENTICATED: usize = 256;
/// Maximum number of connections that a turn accepts from one listener.
const ACCEPTS: usize = 16;
/// Delay of the next attempt to connect, per failed attempt.
pub(super) const PAUSE: Duration = Duration::from_millis(10);
/// Interval between two checks of the acknowledgements of all connections.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Engine {
    pub(super) fn error(&self, kind: ErrorKind, operation: &'static str, peer: u32) -> Error {
        Error::new(kind, operation).rank(self.me).peer(peer).device("tcp")
    }

    /// Accepts pending connections.
    pub(super) fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(listener) else { return };
            let (socket, from) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(e) if is_short(&e) => {
                    tracing::warn!(rank = self.me, "tcp: no connection is accepted: {e}; raise `ulimit -n`");
                    self.pause(true);
                    return self.arm_timer(CHECK_INTERVAL);
                }
                Err(_) => return,
            };
            self.make_room();
            let conn = secret::challenge().and_then(|challenge| Conn::accepted(socket, from.ip(), challenge));
            match conn.and_then(|conn| self.add(conn)) {
                Ok(_) => self.arm_timer(FIRST),
                Err(e) => tracing::debug!("a connection was not accepted: {e}"),
            }
        }
    }

    /// Connections whose other side has not authenticated itself.
    fn unauthenticated(&self) -> impl Iterator<Item = (u64, &Conn)> {
        self.conns.iter().filter(|(_, conn)| matches!(conn.stage, Stage::Accepted(_)))
    }

    /// Closes a connection if too many are not authenticated: the oldest one of the host with the most of them, so that
    /// one host cannot displace the ranks of others.
    fn make_room(&mut self) {
        if self.unauthenticated().count() < MAX_UNAUTHENTICATED {
            return;
        }
        let mut hosts = FxHashMap::<IpAddr, (usize, Instant, u64)>::default();
        for (number, conn) in self.unauthenticated() {
            let host = hosts.entry(conn.host).or_insert((0, conn.since, number));
            host.0 += 1;
            if conn.since < host.1 {
                (host.1, host.2) = (conn.since, number);
            }
        }
        if let Some((_, _, oldest)) = hosts.into_values().max_by_key(|(count, ..)| *count) {
            self.conns.remove(oldest);
        }
    }

    pub(super) fn add(&mut self, conn: Conn) -> io::Result<u64> {
        let number = self.conns.next();
        conn.register(&self.epoll, number)?;
        self.conns.add(conn);
        Ok(number)
    }

    /// Makes sure that attempts and handshakes are checked within this time.
    pub(super) fn arm_timer(&mut self, time: Duration) {
        let at = Instant::now() + time;
        self.timer = Some(self.timer.map_or(at, |timer| timer.min(at)));
        self.begun = true;
    }

    /// Ends the connection to a peer, which is lost unless it or this rank has left.
    pub(super) fn connection_lost(&mut self, peer: u32, error: Error) {
        let state = &mut self.peers[peer as usize];
        if !state.left && !self.goodbye_sent {
            return self.lose(peer, error);
        }
        if let Link::Up(number) | Link::Dialing(number) = std::mem::take(&mut state.link) {
            self.conns.remove(number);
        }
        self.fail(peer, &error);
    }

    /// Continues attempts, and ends handshakes that take too long.
    pub(super) fn check_attempts(&mut self) {
        self.timer = None;
        let now = Instant::now();
        if self.is_paused {
            self.pause(false);
        }
        let silent: Vec<_> = self.unauthenticated().map(|(number, conn)| (number, conn.since)).collect();
        for (number, since) in silent {
            match FIRST.checked_sub(now.duration_since(since)) {
                Some(left) => self.arm_timer(left),
                None => drop(self.conns.remove(number)),
            }
        }
        self.continue_attempts();
        self.check_relays();
    }

    /// Handles the end of a connection to a peer.
    pub(super) fn ended(&mut self, number: u64, e: Option<io::Error>) {
        let Some(conn) = self.conns.remove(number) else { return };
        let Stage::Up(peer) = conn.stage else { return };
        if self.peers[peer as usize].link != Link::Up(number) {
            return;
        }
        let e = conn.broken.or(e).unwrap_or_else(|| io::ErrorKind::BrokenPipe.into());
        if e.kind() == io::ErrorKind::InvalidData {
            let error = self
                .error(ErrorKind::Protocol, "receive from a peer", peer)
                .cause("the connection delivered bytes that fail authentication")
                .remedy("check for devices between the hosts that modify packets");
            return self.connection_lost(peer, error);
        }
        if self.peers[peer as usize].left || self.goodbye_sent {
            let error = self.error(ErrorKind::PeerLost, "receive from a peer", peer);
            return self.connection_lost(
                peer,
                error.cause(format!("the connection ended after one of the two ranks had left the job: {e}")),
            );
        }
        self.reconnect(peer, conn.input, e.to_string());
    }

    /// Re-establishes a broken connection to a peer; the lower rank begins.
    pub(super) fn reconnect(&mut self, peer: u32, input: Input, why: String) {
        tracing::debug!(rank = self.me, peer, "tcp: a connection has broken: {why}");
        let now = Instant::now();
        let pause = if self.me < peer { Duration::ZERO } else { PAUSE };
        let state = &mut self.peers[peer as usize];
        (state.input, state.broken) = (Some(input), Some(why));
        (state.link, state.dialing_since) = (Link::Again(now + pause), Some((now, 0)));
        if !self.dialing.contains(&peer) {
            self.dialing.push(peer);
        }
        self.arm_timer(pause);
    }

    /// Records the loss of a peer, and informs the others.
    pub(super) fn lose(&mut self, peer: u32, error: Error) {
        let state = &mut self.peers[peer as usize];
        if let Link::Up(number) | Link::Dialing(number) = std::mem::take(&mut state.link) {
            self.conns.remove(number);
        }
        self.fail(peer, &error);
        if self.peers[peer as usize].lost.is_some() {
            return;
        }
        let (blamed, why) = (error.blamed_number().unwrap_or(peer), error.reason());
        if !self.peers.get(blamed as usize).is_some_and(|peer| peer.is_given_up) {
            self.loss.get_or_insert_with(|| error.again());
        }
        self.peers[peer as usize].lost = Some(error);
        self.notify_all(None, departure(peer, true, blamed), cut(&why));
    }

    /// Ends all communication with a peer that another device reaches.
    pub(super) fn give_up(&mut self, peer: u32) {
        let error = self.error(ErrorKind::PeerLost, "receive from a peer", peer);
        let error = error.cause("both ranks have switched to another device");
        let state = &mut self.peers[peer as usize];
        state.is_given_up = true;
        if let Link::Up(number) | Link::Dialing(number) = std::mem::take(&mut state.link) {
            self.conns.remove(number);
        }
        let error = state.lost.get_or_insert(error).again();
        self.fail(peer, &error);
        let is_given_up = |rank: u32| self.peers.get(rank as usize).is_some_and(|peer| peer.is_given_up);
        let counts =
            |(rank, error): &(u32, &Error)| !is_given_up(*rank) && !error.blamed_number().is_some_and(is_given_up);
        let lost = (0..).zip(&self.peers).filter_map(|(rank, peer)| Some((rank, peer.lost.as_ref()?)));
        self.loss = lost.filter(counts).map(|(_, error)| error.again()).next();
    }

    /// Sends a report to all peers to which there has been a connection, except one.
    fn notify_all(&mut self, except: Option<u32>, news: Header, text: &str) {
        for peer in (0..self.peers.len() as u32).filter(|peer| Some(*peer) != except) {
            if self.peers[peer as usize].is_met {
                self.peers[peer as usize].send_text(news, text);
                self.touch(peer);
            }
        }
    }

    /// Handles a peer's report about a rank.
    pub(super) fn receive_report(&mut self, from: u32, header: &Header, text: &[u8]) {
        let Some(rank) = u32::try_from(header.key).ok().filter(|rank| *rank < self.peers.len() as u32) else { return };
        let state = &mut self.peers[rank as usize];
        if rank == self.me || state.left || state.lost.is_some() {
            return;
        }
        let text = String::from_utf8_lossy(text);
        if header.size == 0 {
            state.left = true;
            return self.notify_all(Some(from), *header, "");
        }
        let blamed = u32::try_from(header.offset).ok();
        let blamed = blamed.filter(|b| *b < self.peers.len() as u32 && *b != self.me).unwrap_or(rank);
        let cause = match blamed == rank {
            true => text.into_owned(),
            false => format!("rank {rank} reported the loss and has ended too: {text}"),
        };
        let error = self.error(ErrorKind::PeerLost, "check the other ranks", blamed).cause(cause);
        self.lose(rank, error);
    }

    /// Watches the next rank that has not left, and checks for peers whose hosts are silent.
    ///
    /// # Errors
    /// The first loss that this rank has detected or been informed of.
    pub(super) fn watch(&mut self) -> Result<()> {
        if let Some(e) = &self.loss {
            return Err(e.again().rank(self.me));
        }
        if !self.goodbye_sent
            && let Some(next) = self.neighbors()[0]
            && self.peers[next as usize].link == Link::None
        {
            self.dial(next);
        }
        if self.last_check.elapsed() >= CHECK_INTERVAL {
            self.last_check = Instant::now();
            let is_watched = |conn: &Conn| match conn.stage {
                Stage::Accepted(_) | Stage::Connecting(_) => false,
                _ => !conn.is_relayed(),
            };
            let silent = self.conns.iter().filter(|(_, conn)| is_watched(conn) && conn.is_silent(self.silence));
            for number in silent.map(|(number, _)| number).collect::<Vec<_>>() {
                self.end_silent(number);
            }
        }
        self.loss.as_ref().map_or(Ok(()), |e| Err(e.again().rank(self.me)))
    }

    /// The next and the previous rank that have not left and are not lost.
    fn neighbors(&self) -> [Option<u32>; 2] {
        let size = self.peers.len() as u32;
        let at = |step: u32| (self.me + step) % size;
        let is_here = |rank: &u32| {
            let peer = &self.peers[*rank as usize];
            !peer.left && peer.lost.is_none()
        };
        [(1..size).map(at).find(is_here), (1..size).rev().map(at).find(is_here)]
    }

    /// Announces once that this rank leaves; if it leaves early, also to ranks that watch it.
    pub(super) fn announce_leave(&mut self, early: bool) {
        if std::mem::replace(&mut self.goodbye_sent, true) {
            return;
        }
        let left = departure(self.me, false, self.me);
        self.notify_all(None, left, "");
        if early {
            self.notify_neighbors(left, "");
        }
        self.flush();
    }

    /// Informs the previous and the next rank, to which it connects if necessary.
    fn notify_neighbors(&mut self, news: Header, text: &str) {
        for neighbor in self.neighbors().into_iter().flatten() {
            let peer = &mut self.peers[neighbor as usize];
            if !peer.is_met && peer.lost.is_none() {
                peer.send_text(news, text);
                self.touch(neighbor);
            }
        }
    }

    /// Whether all announcements of this rank have been sent.
    pub(super) fn has_announced(&self) -> bool {
        self.peers.iter().all(Peer::has_answered)
    }

    /// Announces once that this rank ends without leaving, and stops accepting connections.
    pub(super) fn announce_loss(&mut self, why: &str) {
        if !std::mem::replace(&mut self.goodbye_sent, true) {
            let blamed = self.loss.as_ref().and_then(Error::blamed_number).unwrap_or(self.me);
            let why = self.loss.as_ref().map_or_else(|| why.to_owned(), Error::reason);
            self.notify_all(None, departure(self.me, true, blamed), cut(&why));
            self.notify_neighbors(departure(self.me, true, blamed), cut(&why));
            self.flush();
        }
        self.listeners.clear();
        let silent: Vec<u64> = self.unauthenticated().map(|(number, _)| number).collect();
        silent.into_iter().for_each(|number| drop(self.conns.remove(number)));
    }

    /// Listens for events of a listener.
    pub(super) fn listen(&self) -> io::Result<()> {
        for (number, listener) in (LISTENER..).zip(&self.listeners) {
            for epoll in [&self.epoll, &self.doors] {
                epoll::add(epoll, listener.as_fd(), epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
            }
        }
        Ok(())
    }

    /// Stops or resumes listening for events of the listeners.
    fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
        let flags = if is_paused { epoll::EventFlags::empty() } else { epoll::EventFlags::IN };
        for (number, listener) in (LISTENER..).zip(&self.listeners) {
            for epoll in [&self.epoll, &self.doors] {
                let _ = epoll::modify(epoll, listener.as_fd(), epoll::EventData::new_u64(number), flags);
            }
        }
    }
}

/// Whether the error means that this process, or its host, has no descriptors or no memory for a socket.
pub(super) fn is_short(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// A frame that reports that a rank has left, or that it is lost because of another rank.
pub(super) fn departure(rank: u32, lost: bool, blamed: u32) -> Header {
    Header { size: u16::from(lost), key: rank.into(), offset: blamed.into(), ..Header::new(Kind::News) }
}

/// The part of a text that fits into a frame.
pub(super) fn cut(text: &str) -> &str {
    let end = (0..=TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}
