//! One connection: its socket, the stage of its handshake, its receive buffer, and its encryption.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use snow::HandshakeState;

use super::input::{HANDSHAKE_LEN, Input};
use super::secret::{RECORD, SECRET, Seal};
use super::sys::{self, Blocks};
use super::ways::Way;
use crate::device::Block;

/// Time without a byte after which the kernel probes the other side, and time between two probes.
const IDLE: Duration = Duration::from_secs(2);
const PROBES: Duration = Duration::from_secs(1);

/// The stage of a connection, and the rank at the other side if it is known.
pub(super) enum Stage {
    /// Accepted; this rank has sent the challenge.
    Accepted([u8; SECRET]),
    /// The kernel is connecting to this rank.
    Connecting(u32),
    /// Connected to this rank; the challenge of the other side is due.
    Connected(u32),
    /// This rank has sent the first message; the answer is due.
    Begun(u32, Box<HandshakeState>),
    /// A relay is authenticated; its answer whether it forwards to this rank is due.
    Granted(u32),
    Up(u32),
    /// The other side is authenticated; this rank connects to the target for it.
    Bridging(Box<Bridge>),
    /// Arriving bytes are forwarded to the connection with this number.
    Relay(u64),
}

/// A request to a relay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) via: u32,
    pub(super) origin: u32,
    pub(super) hops: u8,
}

/// A request that this rank serves as a relay, until there is a connection to the target.
pub(super) struct Bridge {
    pub(super) target: u32,
    pub(super) origin: u32,
    pub(super) hops: u8,
    /// The remaining routes, the next one at the end.
    pub(super) ways: Vec<Way>,
    pub(super) back: Option<u64>,
    /// Whether connections to an address of the target were refused.
    pub(super) has_ended: bool,
}

/// A connection.
pub(super) struct Conn {
    pub(super) socket: TcpStream,
    /// The host at the other side.
    pub(super) host: IpAddr,
    pub(super) stage: Stage,
    pub(super) input: Input,
    pub(super) seal: Option<Box<Seal>>,
    pub(super) since: Instant,
    /// Whether the connection waits for space in the send buffer of the kernel, and for bytes.
    blocked: bool,
    reading: bool,
    /// Whether the send buffer of the kernel was full at the last attempt, and the kernel has not reported space since.
    pub(super) is_full: bool,
    /// The request to the other side, if that is a relay.
    pub(super) ask: Option<Ask>,
    /// The incoming connection for which this rank makes this one as a relay.
    pub(super) front: Option<u64>,
    /// The bytes that a relayed connection has to send, and whether its other side receives no more.
    pub(super) pipe: Vec<u8>,
    pub(super) is_deaf: bool,
    /// Whether the kernel of the other side owed an acknowledgement at the last check.
    is_owed: Cell<bool>,
    /// Whether a warning was logged that the other side does not authenticate itself.
    pub(super) is_warned: bool,
    /// An error of sending; bytes that the other side sent earlier are received first.
    pub(super) broken: Option<io::Error>,
}

fn interest(reading: bool, blocked: bool) -> epoll::EventFlags {
    let readable = if reading { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
    if blocked { readable | epoll::EventFlags::OUT } else { readable }
}

impl Conn {
    fn new(socket: TcpStream, host: IpAddr, stage: Stage, blocked: bool) -> Self {
        Self {
            socket,
            host,
            stage,
            input: Input::new(HANDSHAKE_LEN),
            seal: None,
            since: Instant::now(),
            blocked,
            reading: true,
            is_full: false,
            ask: None,
            front: None,
            pipe: Vec::new(),
            is_deaf: false,
            is_owed: Cell::new(false),
            is_warned: false,
            broken: None,
        }
    }

    /// Begins to connect to a peer.
    pub(super) fn dial(peer: u32, address: SocketAddr, silence: Duration) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket: OwnedFd = socket_with(family, SocketType::STREAM, flags, None)?;
        let conn = Self::new(socket.into(), address.ip(), Stage::Connecting(peer), true);
        conn.tune(silence)?;
        match connect(&conn.socket, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(conn),
            Err(e) => Err(e.into()),
        }
    }

    /// Takes over an accepted connection, and sends the challenge.
    pub(super) fn accepted(socket: TcpStream, host: IpAddr, challenge: [u8; SECRET]) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let mut conn = Self::new(socket, host, Stage::Accepted(challenge), false);
        conn.send_handshake(&challenge)?;
        Ok(conn)
    }

    pub(super) fn register(&self, epoll: &OwnedFd, number: u64) -> io::Result<()> {
        Ok(epoll::add(epoll, &self.socket, epoll::EventData::new_u64(number), interest(self.reading, self.blocked))?)
    }

    /// Sets whether the connection waits for space in the send buffer.
    pub(super) fn set_blocked(&mut self, epoll: &OwnedFd, number: u64, blocked: bool) {
        if std::mem::replace(&mut self.blocked, blocked) != blocked {
            self.set_interest(epoll, number);
        }
    }

    /// Sets whether the connection waits for bytes.
    pub(super) fn set_reading(&mut self, epoll: &OwnedFd, number: u64, reading: bool) {
        if std::mem::replace(&mut self.reading, reading) != reading {
            self.set_interest(epoll, number);
        }
    }

    fn set_interest(&self, epoll: &OwnedFd, number: u64) {
        let interest = interest(self.reading, self.blocked);
        let _ = epoll::modify(epoll, &self.socket, epoll::EventData::new_u64(number), interest);
    }

    /// Whether this rank relays this connection, or is about to.
    pub(super) fn is_relayed(&self) -> bool {
        self.front.is_some() || matches!(self.stage, Stage::Bridging(_) | Stage::Relay(_))
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// The result of connecting.
    pub(super) fn connected(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(&self.socket)??)
    }

    /// Sets the options of a connection to a peer. There is no `TCP_USER_TIMEOUT`: it would also end a connection whose
    /// other side computes for long without receiving.
    pub(super) fn tune(&self, silence: Duration) -> io::Result<()> {
        let probes = silence.saturating_sub(IDLE).as_secs().max(1) as u32;
        sockopt::set_tcp_nodelay(&self.socket, true)?;
        sockopt::set_tcp_keepidle(&self.socket, IDLE)?;
        sockopt::set_tcp_keepintvl(&self.socket, PROBES)?;
        sockopt::set_tcp_keepcnt(&self.socket, probes)?;
        Ok(sockopt::set_socket_keepalive(&self.socket, true)?)
    }

    /// Sends a message of the handshake, which fits into the send buffer of a new socket.
    #[allow(unsafe_code)]
    pub(super) fn send_handshake(&mut self, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: a slice.
        let sent = unsafe { sys::send(self.socket.as_fd(), &[Block::of(bytes.as_ptr(), bytes.len())]) }?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    /// Receives bytes first into `direct`, then into the buffer. Returns how many bytes were received into `direct`,
    /// and whether all blocks are full; `None` if nothing has arrived.
    ///
    /// # Safety
    /// The blocks are valid for writes.
    #[allow(unsafe_code)]
    pub(super) unsafe fn receive(&mut self, mut direct: Blocks) -> io::Result<Option<(usize, bool)>> {
        let Self { socket, input, seal, .. } = self;
        if let Some(seal) = seal {
            return Self::unseal(socket, input, seal);
        }
        let wanted: usize = direct.iter().map(|b| b.len).sum();
        let room = input.room();
        let all = wanted + room.len();
        direct.push(Block { base: room.as_mut_ptr(), len: room.len() });
        // SAFETY: by the contract, and the free part of the buffer.
        match unsafe { sys::receive(socket.as_fd(), &direct) } {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                let placed = n.min(wanted);
                input.arrived(n - placed);
                input.is_bulky &= n < all;
                Ok(Some((placed, n == all)))
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Receives and decrypts one record into the buffer.
    #[allow(unsafe_code)]
    fn unseal(socket: &TcpStream, input: &mut Input, seal: &mut Seal) -> io::Result<Option<(usize, bool)>> {
        loop {
            let forged =
                |_| io::Error::new(io::ErrorKind::InvalidData, "a received record was not encrypted by the peer");
            if let Some(len) = seal.open(input.free()).map_err(forged)? {
                input.arrived(len);
                return Ok(Some((0, true)));
            }
            let free = seal.free();
            // SAFETY: a slice.
            let received =
                unsafe { sys::receive(socket.as_fd(), &[Block { base: free.as_mut_ptr(), len: free.len() }]) };
            match received {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => seal.arrived(n),
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    return Ok(None);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Sends blocks; returns how many bytes the kernel or the encryption has accepted. `WouldBlock` if its buffer is
    /// full.
    ///
    /// # Safety
    /// The blocks are valid for reads.
    #[allow(unsafe_code)]
    pub(super) unsafe fn send(&mut self, blocks: &[Block]) -> io::Result<usize> {
        if self.seal.is_none() {
            // SAFETY: the same contract.
            return unsafe { sys::send(self.socket.as_fd(), blocks) };
        }
        self.flush_seal()?;
        let mut bytes = Vec::new();
        for block in blocks {
            let len = block.len.min(RECORD - bytes.len());
            // SAFETY: a part of a block of the contract.
            unsafe { crate::memory::copy::gather(&[], &[Block { len, ..*block }], &mut bytes) };
        }
        if let Some(seal) = &mut self.seal {
            seal.seal(&bytes).map_err(|_| io::Error::other("a record could not be encrypted"))?;
        }
        match self.flush_seal() {
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
            _ => Ok(bytes.len()),
        }
    }

    /// Sends the encrypted bytes that are pending.
    #[allow(unsafe_code)]
    pub(super) fn flush_seal(&mut self) -> io::Result<()> {
        let Self { socket, seal: Some(seal), .. } = self else { return Ok(()) };
        while !seal.pending().is_empty() {
            let pending = seal.pending();
            // SAFETY: a slice.
            let sent = unsafe { sys::send(socket.as_fd(), &[Block::of(pending.as_ptr(), pending.len())]) }?;
            seal.sent(sent);
        }
        Ok(())
    }

    /// Whether the kernel of the other side has acknowledged everything.
    pub(super) fn is_flushed(&self) -> bool {
        self.seal.as_ref().is_none_or(|seal| seal.pending().is_empty())
            && sys::unacknowledged_bytes(self.socket.as_fd()) == 0
    }

    /// Whether the kernel of the other side has been silent for longer than `silence`, and has owed an acknowledgement
    /// at this check and at the last one. A receiver that computes closes its window; probes, at growing intervals,
    /// then check whether its host is alive.
    pub(super) fn is_silent(&self, silence: Duration) -> bool {
        let since = sys::unanswered_time(self.socket.as_fd());
        self.is_owed.replace(since.is_some()) && since.is_some_and(|time| time > silence)
    }
}
