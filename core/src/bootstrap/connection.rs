#![allow(unsafe_code)]
//! The connection of a rank to a launcher that speaks PMI-1 or PMI-2. Both begin with the same lines, which agree on the
//! version.
//!
//! A wait never exceeds the job's timeout. After a failed wait, replies can no longer be matched to requests, so every
//! later call fails with the same cause.

use std::fmt::Display;
use std::io::{ErrorKind as Io, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::sockopt::socket_type;
use rustix::net::{RecvFlags, SocketType, recv};

use super::mark::mark;
use super::pmi1_wire::{Line, LineBuffer, Message, quote};
use crate::error::{Error, ErrorKind, Result};
use crate::say::say;

/// A connected stream socket, and the rank that uses it.
#[derive(Debug)]
pub(super) struct Connection {
    /// A stream socket of any family. The standard library's TCP type is used because it reads and writes without
    /// SIGPIPE and has timeouts.
    stream: TcpStream,
    pub(super) received: LineBuffer,
    pub(super) rank: u32,
    timeout: Duration,
    /// The protocol, for errors.
    pub(super) protocol: &'static str,
    /// The current call, for errors.
    pub(super) operation: &'static str,
    /// Set once every further call must fail: the cause of their errors.
    pub(super) broken: Option<String>,
    /// The open file that marks this process as a rank, if the launcher was reached by its address.
    _mark: Option<OwnedFd>,
}

impl Connection {
    pub(super) fn over(socket: OwnedFd, rank: u32, timeout: Duration) -> Self {
        Self {
            stream: TcpStream::from(socket),
            received: LineBuffer::default(),
            rank,
            timeout,
            protocol: "PMI-1",
            operation: "connect to the launcher",
            broken: None,
            _mark: None,
        }
    }

    /// Uses the socket that a launcher left open as descriptor `fd` (`PMI_FD`). The descriptor itself stays open, but
    /// is closed in programs that this process starts. This may be called once per process: two users would mix up
    /// their replies.
    ///
    /// # Errors
    /// `Launcher` if `fd` is not an open socket.
    pub(super) fn from_fd(fd: RawFd, rank: u32, timeout: Duration) -> Result<Self> {
        Ok(Self::over(adopt(fd)?, rank, timeout))
    }

    /// Connects to `address` (host:port) as the process that the launcher calls `id`.
    ///
    /// # Errors
    /// `Launcher` if the connection fails, or if an ancestor of this process is that process.
    pub(super) fn dial(address: &str, id: &str, timeout: Duration) -> Result<Self> {
        let mark = mark(&format!("{address} {id}"))?;
        Ok(Self { _mark: mark, ..Self::over(dial(address, timeout)?.into(), 0, timeout) })
    }

    /// Proposes a version of PMI and returns the one that the launcher offers.
    ///
    /// # Errors
    /// `Launcher` if the launcher is gone, breaks the protocol, or refuses both; `Timeout`.
    pub(super) fn agree(&mut self, version: u32) -> Result<u32> {
        self.protocol = if version == 1 { "PMI-1" } else { "PMI-2" };
        // The versions in use are 1.1 and 2.0.
        let subversion = if version == 1 { 1 } else { 0 };
        let hello = Line::new("init").field("pmi_version", version).field("pmi_subversion", subversion).end();
        let reply = self.exchange_line(&hello, "response_to_init")?;
        let offered = reply.number("pmi_version").map_err(|e| self.broke(e));
        match offered {
            // A refusal that names another version is an offer.
            Ok(offered) if offered != version => Ok(offered),
            _ => self.require_rc(&reply).and(offered),
        }
    }

    /// Sends a line and returns its reply, which must be `expected`.
    pub(super) fn exchange_line(&mut self, request: &str, expected: &str) -> Result<Message> {
        self.send(request.as_bytes())?;
        self.receive_line(expected, |_| false)
    }

    /// The next line for which `skipped` does not hold, which must be `expected`.
    pub(super) fn receive_line(&mut self, expected: &str, skipped: fn(&[u8]) -> bool) -> Result<Message> {
        let line = self.receive(expected, |received| {
            loop {
                match received.pop()? {
                    Some(line) if skipped(&line) => {}
                    line => return Ok(line),
                }
            }
        })?;
        let message = Message::parse(&line).map_err(|e| self.broke(e))?;
        self.require(message, expected)
    }

    /// Returns the message if its verb is the expected one.
    pub(super) fn require(&mut self, message: Message, expected: &str) -> Result<Message> {
        if message.command() != expected {
            let seen = quote(message.line().as_bytes());
            return Err(self.broke(format!("instead of `{expected}` the launcher sent {seen}")));
        }
        Ok(message)
    }

    pub(super) fn send(&mut self, request: &[u8]) -> Result<()> {
        if let Some(cause) = &self.broken {
            return Err(self.error(ErrorKind::Launcher, cause.clone()));
        }
        let mut rest = request;
        let start = Instant::now();
        while !rest.is_empty() {
            self.stream.set_write_timeout(Some(self.left(start))).map_err(|e| self.lost(&e))?;
            match self.stream.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(e) => self.retry(e, "the launcher does not read from the connection")?,
            }
        }
        Ok(())
    }

    /// Receives until `pop` finds a whole message.
    pub(super) fn receive(
        &mut self,
        expected: &str,
        pop: impl Fn(&mut LineBuffer) -> std::result::Result<Option<Vec<u8>>, String>,
    ) -> Result<Vec<u8>> {
        let start = Instant::now();
        loop {
            if let Some(message) = pop(&mut self.received).map_err(|e| self.broke(e))? {
                return Ok(message);
            }
            let mut bytes = [0; 4096];
            self.stream.set_read_timeout(Some(self.left(start))).map_err(|e| self.lost(&e))?;
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    let seen = match self.received.rest() {
                        [] => String::new(),
                        rest => format!(" in the middle of the line {},", quote(rest)),
                    };
                    let cause = format!("the launcher closed the connection{seen} before it sent `{expected}`");
                    return Err(self.give_up(ErrorKind::Launcher, cause));
                }
                Ok(n) => self.received.push(&bytes[..n]),
                Err(e) => self.retry(e, &format!("no `{expected}` from the launcher"))?,
            }
        }
    }

    /// Reads bytes that have arrived, without waiting; ends the process if the launcher has closed the connection.
    pub(super) fn read_arrived(&mut self) {
        let mut bytes = [0; 64];
        match recv(&self.stream, &mut bytes, RecvFlags::DONTWAIT) {
            // After this rank's last call the launcher may close the connection.
            Ok((0, _)) if self.broken.is_none() => end_without_launcher(self.rank, self.protocol),
            Ok((n, _)) => self.received.push(&bytes[..n]),
            // Either no bytes have arrived, or a later call reports the failure.
            Err(_) => {}
        }
    }

    /// The remaining time of a wait that began at `start`; at least 1 ms, because zero would mean no limit.
    fn left(&self, start: Instant) -> Duration {
        self.timeout.saturating_sub(start.elapsed()).max(Duration::from_millis(1))
    }

    /// Returns `Ok` if a failed read or write can be retried.
    fn retry(&mut self, e: std::io::Error, what: &str) -> Result<()> {
        match e.kind() {
            Io::Interrupted => Ok(()),
            Io::WouldBlock | Io::TimedOut => {
                let cause = format!("{what} within {:?}", self.timeout);
                Err(self.give_up(ErrorKind::Timeout, cause))
            }
            _ => Err(self.lost(&e)),
        }
    }

    /// The reply's return code; 0 if the reply has none.
    pub(super) fn rc(&mut self, reply: &Message) -> Result<i64> {
        match reply.field("rc") {
            None => Ok(0),
            Some(_) => reply.number("rc").map_err(|e| self.broke(e)),
        }
    }

    pub(super) fn require_rc(&mut self, reply: &Message) -> Result<()> {
        match self.rc(reply)? {
            0 => Ok(()),
            _ => Err(self.broke(format!("the launcher refused the request: {}", quote(reply.line().as_bytes())))),
        }
    }

    pub(super) fn error(&self, kind: ErrorKind, cause: String) -> Error {
        Error::new(kind, self.operation).rank(self.rank).cause(cause)
    }

    /// Makes every later call fail with this cause.
    pub(super) fn give_up(&mut self, kind: ErrorKind, cause: String) -> Error {
        self.broken = Some(cause.clone());
        self.error(kind, cause)
    }

    pub(super) fn broke(&mut self, what: String) -> Error {
        self.give_up(ErrorKind::Launcher, format!("the launcher broke the {} protocol: {what}", self.protocol))
    }

    fn lost(&mut self, e: &std::io::Error) -> Error {
        if matches!(e.kind(), Io::BrokenPipe | Io::ConnectionReset) {
            return self.give_up(ErrorKind::Launcher, "the launcher closed the connection".into());
        }
        self.give_up(ErrorKind::Launcher, format!("the connection to the launcher failed: {e}"))
    }
}

/// Ends the process: a launcher has a process on each node, and if that is killed, no other process ends its ranks.
pub(super) fn end_without_launcher(rank: impl Display, protocol: &str) -> ! {
    say(format_args!("rank {rank} exits: the {protocol} launcher closed the connection"));
    // SAFETY: it may be called at any time; handlers of `exit` might wait for other ranks or other threads.
    unsafe { libc::_exit(1) }
}

/// Duplicates the socket `fd`, which a launcher left open.
fn adopt(fd: RawFd) -> Result<OwnedFd> {
    let refuse = |why: String| {
        Err(Error::new(ErrorKind::Launcher, "connect to the launcher").cause(format!("PMI_FD={fd} {why}")).remedy(
            "a child process of a rank inherits the rank's PMI variables: unset PMI_FD, \
             PMI_RANK and PMI_SIZE before starting it, or start it with `farside run`",
        ))
    };
    // SAFETY: not -1, and the call only tests whether it is open.
    if fd < 0 || fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) }).is_err() {
        return refuse("is not an open descriptor".into());
    }
    // SAFETY: the descriptor is open (checked above) and not -1. It stays open, because the launcher left it open for
    // this process and the runtime owns no descriptor with that number.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    match socket_type(borrowed) {
        Ok(SocketType::STREAM) => {}
        Ok(_) => return refuse("is not a stream socket".into()),
        Err(e) => return refuse(format!("cannot be used: {e}")),
    }
    if let Err(e) = fcntl_setfd(borrowed, FdFlags::CLOEXEC) {
        return refuse(format!("cannot be made close-on-exec: {e}"));
    }
    borrowed.try_clone_to_owned().or_else(|e| refuse(format!("cannot be duplicated: {e}")))
}

fn dial(address: &str, timeout: Duration) -> Result<TcpStream> {
    let refuse = |why: String| {
        Error::new(ErrorKind::Launcher, "connect to the launcher")
            .cause(format!("PMI_PORT={}: {why}", quote(address.as_bytes())))
    };
    let mut last = refuse("no address".into());
    for candidate in address.to_socket_addrs().map_err(|e| refuse(e.to_string()))? {
        match TcpStream::connect_timeout(&candidate, timeout.max(Duration::from_millis(1))) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = refuse(format!("{candidate}: {e}")),
        }
    }
    Err(last)
}
