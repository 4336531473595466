#![allow(unsafe_code)]
//! Bootstrap by a launcher that speaks PMI-1: `farside run`, MPICH's `mpiexec.hydra`, Slurm, Flux.
//!
//! The launcher provides a connected socket (`PMI_FD`) or an address to connect to (`PMI_PORT`). Every call is one
//! request line and one reply line. A wait never exceeds the job's timeout. After a failed wait, replies can no longer
//! be matched to requests, so every later call fails with the same cause.

use std::io::{ErrorKind as Io, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt::socket_type;
use rustix::net::{RecvFlags, SocketType, recv};

use super::pmi1_wire::{LINE_MAX, Line, LineBuffer, Message, pack, part_key, quote, unpack};
use super::{Bootstrap, JOB_PREFIX, KEY_MAX, VALUE_MAX, check_key, check_value, no_such_key, report_abort};
use crate::error::{Error, ErrorKind, Result};

/// Field in which `farside run` names the rank that makes a barrier impossible.
pub const LOST_FIELD: &str = "farside_lost";
/// First message of a rank to `farside run`: the rank answers [`ASK`] and reads text as [`Message::text`].
pub const HELLO: &str = "farside_hello";
/// Unsolicited message of `farside run` that asks what a rank waits for.
pub const ASK: &str = "farside_ask";
/// The answer to [`ASK`], in the field `text`.
pub const WAITS: &str = "farside_waits";

/// The connection of a rank to a PMI-1 launcher.
#[derive(Debug)]
pub struct Pmi1 {
    /// A stream socket of any family: std's TCP type reads and writes without SIGPIPE and has timeouts.
    stream: TcpStream,
    lines: LineBuffer,
    rank: u32,
    size: u32,
    job_id: String,
    /// Maximum length of a key and of a value in characters, as the launcher says.
    key_max: usize,
    value_max: usize,
    timeout: Duration,
    /// The current call, for errors.
    operation: &'static str,
    /// The cause for which every call fails from now on.
    broken: Option<String>,
}

impl Pmi1 {
    /// Uses the socket that a launcher left open as descriptor `fd` (`PMI_FD`). The descriptor itself stays open, but
    /// is closed in programs that this process starts. Call it once per process: two users would mix up their replies.
    ///
    /// # Errors
    /// `Launcher` if `fd` is not an open socket; those of [`Pmi1::over`].
    pub(crate) fn from_fd(fd: RawFd, rank: u32, size: u32, timeout: Duration) -> Result<Self> {
        Self::over(adopt(fd)?, rank, size, timeout)
    }

    /// Connects to `address` (`PMI_PORT`, host:port) as process `id` (`PMI_ID`); the launcher assigns rank and size.
    ///
    /// # Errors
    /// `Launcher` if the connection fails; those of [`Pmi1::over`].
    pub(crate) fn from_port(address: &str, id: &str, timeout: Duration) -> Result<Self> {
        let stream = dial(address, timeout)?;
        let mut me = Self::unready(stream, 0, 1, timeout);
        let hello = Line::new("initack").field("pmiid", id).end();
        let ack = me.exchange(&hello, "initack")?;
        me.require_rc(&ack)?;
        // Size, rank and debug follow, each on its own line.
        let (mut rank, mut size) = (None, None);
        for _ in 0..3 {
            let set = me.receive("set")?;
            let field = |name| set.field(name).map(|_| set.number::<u32>(name)).transpose();
            rank = field("rank").map_err(|e| me.broke(e))?.or(rank);
            size = field("size").map_err(|e| me.broke(e))?.or(size);
        }
        let (Some(rank), Some(size)) = (rank, size) else {
            return Err(me.broke("it did not give rank and size".into()));
        };
        (me.rank, me.size) = (rank, size);
        me.start()?;
        Ok(me)
    }

    /// Uses a connected stream socket: agrees on the version, and asks for the limits and the name of the job.
    ///
    /// # Errors
    /// `Launcher` if the launcher is gone, breaks the protocol, or speaks another version; `Timeout`.
    pub fn over(socket: OwnedFd, rank: u32, size: u32, timeout: Duration) -> Result<Self> {
        let mut me = Self::unready(TcpStream::from(socket), rank, size, timeout);
        me.start()?;
        Ok(me)
    }

    fn unready(stream: TcpStream, rank: u32, size: u32, timeout: Duration) -> Self {
        Self {
            stream,
            lines: LineBuffer::default(),
            rank,
            size,
            job_id: String::new(),
            key_max: 0,
            value_max: 0,
            timeout,
            operation: "bootstrap connect",
            broken: None,
        }
    }

    fn start(&mut self) -> Result<()> {
        if self.rank >= self.size {
            return Err(self.broke(format!("it gave rank {} of {}", self.rank, self.size)));
        }
        let hello = Line::new("init").field("pmi_version", 1).field("pmi_subversion", 1).end();
        let reply = self.exchange(&hello, "response_to_init")?;
        self.require_rc(&reply)?;
        let version: u32 = reply.number("pmi_version").map_err(|e| self.broke(e))?;
        if version != 1 {
            return Err(self.broke(format!("it speaks PMI version {version}, not 1")));
        }
        let maxes = self.exchange(&Line::new("get_maxes").end(), "maxes")?;
        // The limits include the terminating zero of a C string.
        let limit = |name| maxes.number::<usize>(name).map(|n| n.saturating_sub(1));
        self.key_max = limit("keylen_max").map_err(|e| self.broke(e))?;
        self.value_max = limit("vallen_max").map_err(|e| self.broke(e))?;
        // The number of parts of the longest value determines the length of the longest key.
        let parts = pack(&[0; VALUE_MAX], self.value_max).map_err(|e| self.broke(e))?.len();
        let need = KEY_MAX + part_key("", parts).len();
        if self.key_max < need {
            return Err(self.broke(format!("it allows keys of {} characters, but {need} are needed", self.key_max)));
        }
        let name = self.exchange(&Line::new("get_my_kvsname").end(), "my_kvsname")?;
        name.need("kvsname").map_err(|e| self.broke(e))?.clone_into(&mut self.job_id);
        if self.job_id.is_empty() || self.job_id.len() > 1024 {
            return Err(self.broke(format!("it gave a job name of {} characters", self.job_id.len())));
        }
        if self.is_ours() { self.send(&Line::new(HELLO).end()) } else { Ok(()) }
    }

    /// Whether the launcher is `farside run`.
    fn is_ours(&self) -> bool {
        self.job_id.starts_with(JOB_PREFIX)
    }

    /// The free text of a reply.
    fn text(&self, reply: &Message) -> Option<String> {
        if self.is_ours() { reply.text("msg") } else { reply.field("msg").map(|text| text.replace('_', " ")) }
    }

    /// Sends a request and returns its reply, which must be `expected`.
    fn exchange(&mut self, request: &str, expected: &str) -> Result<Message> {
        self.send(request)?;
        self.receive(expected)
    }

    fn send(&mut self, request: &str) -> Result<()> {
        if let Some(cause) = &self.broken {
            return Err(self.error(ErrorKind::Launcher, cause.clone()));
        }
        let mut rest = request.as_bytes();
        let start = Instant::now();
        while !rest.is_empty() {
            self.stream.set_write_timeout(Some(self.left(start))).map_err(|e| self.lost(&e))?;
            match self.stream.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(e) => self.retry(e, "the launcher does not read")?,
            }
        }
        Ok(())
    }

    fn receive(&mut self, expected: &str) -> Result<Message> {
        let start = Instant::now();
        let line = loop {
            match self.lines.pop().map_err(|e| self.broke(e))? {
                // Not answered: the launcher knows what a rank waits for while a request is open.
                Some(line) if is_ask(&line) => continue,
                Some(line) => break line,
                None => {}
            }
            let mut bytes = [0; 4096];
            self.stream.set_read_timeout(Some(self.left(start))).map_err(|e| self.lost(&e))?;
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    let seen = match self.lines.rest() {
                        [] => String::new(),
                        rest => format!(" inside the line {}", quote(rest)),
                    };
                    let cause = format!("the launcher closed the connection{seen} before it sent `{expected}`");
                    return Err(self.give_up(ErrorKind::Launcher, cause));
                }
                Ok(n) => self.lines.push(&bytes[..n]),
                Err(e) => self.retry(e, &format!("no `{expected}` from the launcher"))?,
            }
        };
        let message = Message::parse(&line).map_err(|e| self.broke(e))?;
        if message.command() != expected {
            let cause = format!("instead of `{expected}` the launcher sent {}", quote(&line));
            return Err(self.broke(cause));
        }
        Ok(message)
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
    fn rc(&mut self, reply: &Message) -> Result<i64> {
        match reply.field("rc") {
            None => Ok(0),
            Some(_) => reply.number("rc").map_err(|e| self.broke(e)),
        }
    }

    fn require_rc(&mut self, reply: &Message) -> Result<()> {
        match self.rc(reply)? {
            0 => Ok(()),
            _ => Err(self.broke(format!("it refused the request: {}", quote(reply.line().as_bytes())))),
        }
    }

    fn error(&self, kind: ErrorKind, cause: String) -> Error {
        Error::new(kind, self.operation).rank(self.rank).cause(cause)
    }

    /// Records the cause for which every later call fails.
    fn give_up(&mut self, kind: ErrorKind, cause: String) -> Error {
        self.broken = Some(cause.clone());
        self.error(kind, cause)
    }

    fn broke(&mut self, what: String) -> Error {
        self.give_up(ErrorKind::Launcher, format!("the launcher broke the PMI-1 protocol: {what}"))
    }

    fn lost(&mut self, e: &std::io::Error) -> Error {
        if matches!(e.kind(), Io::BrokenPipe | Io::ConnectionReset) {
            return self.give_up(ErrorKind::Launcher, "the launcher closed the connection".into());
        }
        self.give_up(ErrorKind::Launcher, format!("the connection to the launcher failed: {e}"))
    }

    fn get_part(&mut self, key: &str, part: usize) -> Result<String> {
        let request = Line::new("get").field("kvsname", &self.job_id).field("key", part_key(key, part)).end();
        let reply = self.exchange(&request, "get_result")?;
        if self.rc(&reply)? != 0 {
            return Err(no_such_key(self.operation, key).rank(self.rank));
        }
        let value = reply.need("value").map_err(|e| self.broke(e))?;
        Ok(value.to_owned())
    }
}

impl Bootstrap for Pmi1 {
    fn kind(&self) -> &'static str {
        "pmi-1"
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn job_id(&self) -> &str {
        &self.job_id
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.operation = "bootstrap put";
        check_key(self.operation, key)?;
        check_value(self.operation, key, value)?;
        let parts = pack(value, self.value_max).map_err(|e| self.broke(e))?;
        for (i, part) in parts.iter().enumerate() {
            let request = Line::new("put").field("kvsname", &self.job_id).field("key", part_key(key, i));
            let reply = self.exchange(&request.field("value", part).end(), "put_result")?;
            if self.rc(&reply)? != 0 {
                let why = self.text(&reply).unwrap_or_else(|| "it gave no reason".into());
                let cause = format!("the launcher refused the value of key {key:?} ({} bytes): {why}", value.len());
                return Err(self.error(ErrorKind::Launcher, cause));
            }
        }
        Ok(())
    }

    fn fence(&mut self) -> Result<()> {
        self.operation = "bootstrap fence";
        let reply = self.exchange(&Line::new("barrier_in").end(), "barrier_out")?;
        if reply.field(LOST_FIELD).is_none() {
            return self.require_rc(&reply);
        }
        let peer: u32 = reply.number(LOST_FIELD).map_err(|e| self.broke(e))?;
        let why = self.text(&reply).unwrap_or_else(|| "it ended".into());
        Err(self.give_up(ErrorKind::PeerLost, why).peer(peer))
    }

    fn get(&mut self, key: &str) -> Result<Vec<u8>> {
        self.operation = "bootstrap get";
        check_key(self.operation, key)?;
        let wrong = Error::new(ErrorKind::Protocol, self.operation).rank(self.rank);
        unpack(|part| self.get_part(key, part), |what| wrong.again().cause(format!("value of key {key:?}: {what}")))
    }

    fn answer(&mut self, waits_for: &dyn Fn() -> String) {
        if !self.is_ours() || self.broken.is_some() {
            return;
        }
        let mut bytes = [0; 64];
        if let Ok((n, _)) = recv(&self.stream, &mut bytes, RecvFlags::DONTWAIT) {
            self.lines.push(&bytes[..n]);
        }
        while let Ok(Some(line)) = self.lines.pop() {
            // The launcher sends no other message between requests.
            if is_ask(&line) {
                let _ = self.send(&Line::new(WAITS).text("text", &waits_for()).end());
            }
        }
    }

    fn finalize(&mut self) -> Result<()> {
        self.operation = "bootstrap finalize";
        self.exchange(&Line::new("finalize").end(), "finalize_ack")?;
        self.broken = Some("the rank has finalized".into());
        Ok(())
    }

    fn abort(&mut self, code: i32, reason: &str) {
        // The longest reason that certainly fits into the line.
        let most = |n| reason.chars().take(n).collect::<String>();
        let line = Line::new("abort").field("exitcode", code);
        let line = if self.is_ours() {
            line.text("error_msg", &most(LINE_MAX / 16))
        } else {
            report_abort(self.rank, reason);
            line.field("error_msg", most(500))
        };
        // A failure is ignored: the caller exits in any case, and the launcher notices that too.
        let _ = self.send(&line.end());
        self.broken = Some("the rank has asked for the end of the job".into());
    }
}

fn is_ask(line: &[u8]) -> bool {
    Message::parse(line).is_ok_and(|message| message.command() == ASK)
}

/// Duplicates the socket `fd`, which a launcher left open.
fn adopt(fd: RawFd) -> Result<OwnedFd> {
    let refuse = |why: String| {
        Err(Error::new(ErrorKind::Launcher, "bootstrap connect").cause(format!("PMI_FD={fd} {why}")).remedy(
            "a program that a rank starts is not a rank itself: clear PMI_FD, PMI_RANK and PMI_SIZE for it, or start it with `farside run`",
        ))
    };
    if fd < 0 || std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_err() {
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
        Error::new(ErrorKind::Launcher, "bootstrap connect")
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
