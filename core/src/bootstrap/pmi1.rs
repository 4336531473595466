//! Bootstrap by a launcher that speaks PMI-1: `farside run`, MPICH's `mpiexec.hydra`, Slurm, Flux.
//!
//! The launcher provides a connected socket (`PMI_FD`) or an address to connect to (`PMI_PORT`). Every call is one
//! request line and one reply line.

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::connection::Connection;
use super::pmi1_wire::{LINE_MAX, Line, Message, pack, part_key, unpack};
use super::{Bootstrap, JOB_PREFIX, KEY_MAX, VALUE_MAX, check_key, check_value, no_such_key, report_abort};
use crate::error::{Error, ErrorKind, Result};

/// Field in which `farside run` names the rank that keeps a barrier from completing.
pub const LOST_FIELD: &str = "farside_lost";
/// First message of a rank to `farside run`: the rank answers [`ASK`] and reads free text as [`Message::text`] encodes
/// it.
pub const HELLO: &str = "farside_hello";
/// Unsolicited message of `farside run` that asks what a rank waits for.
pub const ASK: &str = "farside_ask";
/// The answer to [`ASK`], in the field `text`.
pub const WAITS: &str = "farside_waits";

/// Maximum length in bytes of a line for a launcher that allows only values of at most this length.
const LINE_SHORT: usize = 1024;

/// The connection of a rank to a PMI-1 launcher.
#[derive(Debug)]
pub struct Pmi1 {
    launcher: Connection,
    size: u32,
    job_id: String,
    /// Maximum length of a value in characters, according to the launcher.
    value_max: usize,
}

impl Pmi1 {
    /// Connects to `address` (`PMI_PORT`, host:port) as process `id` (`PMI_ID`); the launcher assigns rank and size.
    ///
    /// # Errors
    /// `Launcher` if the connection fails; those of [`Pmi1::over`].
    pub(crate) fn from_port(address: &str, id: &str, timeout: Duration) -> Result<Self> {
        let mut launcher = Connection::dial(address, id, timeout)?;
        let hello = Line::new("initack").field("pmiid", id).end();
        let ack = launcher.exchange_line(&hello, "initack")?;
        launcher.require_rc(&ack)?;
        // Size, rank and debug follow, each on its own line.
        let (mut rank, mut size) = (None, None);
        for _ in 0..3 {
            let set = launcher.receive_line("set", |_| false)?;
            let field = |name| set.field(name).map(|_| set.number::<u32>(name)).transpose();
            rank = field("rank").map_err(|e| launcher.broke(e))?.or(rank);
            size = field("size").map_err(|e| launcher.broke(e))?.or(size);
        }
        let (Some(rank), Some(size)) = (rank, size) else {
            return Err(launcher.broke("the launcher gave no rank and size".into()));
        };
        launcher.rank = rank;
        Self::only(launcher, size)
    }

    /// Uses a connected stream socket: agrees on the version, and requests the limits and the name of the job.
    ///
    /// # Errors
    /// `Launcher` if the launcher is gone, breaks the protocol, or speaks another version; `Timeout`.
    pub fn over(socket: OwnedFd, rank: u32, size: u32, timeout: Duration) -> Result<Self> {
        Self::only(Connection::over(socket, rank, timeout), size)
    }

    fn only(launcher: Connection, size: u32) -> Result<Self> {
        let other = |mut launcher: Connection| Err(launcher.broke("the launcher speaks PMI version 2, not 1".into()));
        Self::negotiate(launcher, size)?.or_else(other)
    }

    /// Proposes PMI-1 over a connection. Gives the connection back if the launcher offers PMI-2 instead.
    ///
    /// # Errors
    /// Those of [`Pmi1::over`].
    pub(super) fn negotiate(mut launcher: Connection, size: u32) -> Result<std::result::Result<Self, Connection>> {
        if launcher.rank >= size {
            return Err(launcher.broke(format!("the launcher gave rank {} of {size}", launcher.rank)));
        }
        match launcher.agree(1)? {
            1 => Self::start(launcher, size).map(Ok),
            2 => Ok(Err(launcher)),
            version => Err(launcher.broke(format!("the launcher speaks PMI version {version}, not 1"))),
        }
    }

    fn start(mut launcher: Connection, size: u32) -> Result<Self> {
        let maxes = launcher.exchange_line(&Line::new("get_maxes").end(), "maxes")?;
        // The limits include the terminating zero of a C string.
        let limit = |name| maxes.number::<usize>(name).map(|n| n.saturating_sub(1));
        let key_max = limit("keylen_max").map_err(|e| launcher.broke(e))?;
        let value_max = limit("vallen_max").map_err(|e| launcher.broke(e))?;
        // The number of parts of the longest value determines the length of the longest key.
        let parts = pack(&[0; VALUE_MAX], value_max).map_err(|e| launcher.broke(e))?.len();
        let need = KEY_MAX + part_key("", parts).len();
        if key_max < need {
            return Err(launcher
                .broke(format!("the launcher allows keys of at most {key_max} characters, but {need} are needed")));
        }
        let name = launcher.exchange_line(&Line::new("get_my_kvsname").end(), "my_kvsname")?;
        let job_id = name.need("kvsname").map_err(|e| launcher.broke(e))?.to_owned();
        if job_id.is_empty() || job_id.len() > 1024 {
            return Err(launcher
                .broke(format!("the launcher's kvsname has {} characters; 1 to 1024 are allowed", job_id.len())));
        }
        // Slurm allows values of 1024 bytes, but splits lines whose total length exceeds that.
        let rest = Line::new("put").field("kvsname", &job_id).field("key", "").field("value", "").end().len() + need;
        let value_max = if value_max < LINE_SHORT { value_max.min(LINE_SHORT.saturating_sub(rest)) } else { value_max };
        let mut me = Self { launcher, size, job_id, value_max };
        if me.is_ours() {
            me.launcher.send(Line::new(HELLO).end().as_bytes())?;
        }
        Ok(me)
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
        self.launcher.send(request.as_bytes())?;
        // A question of the launcher is not answered here: while a request is open, the launcher knows what the rank
        // waits for.
        self.launcher.receive_line(expected, is_ask)
    }

    fn get_part(&mut self, key: &str, part: usize) -> Result<String> {
        let request = Line::new("get").field("kvsname", &self.job_id).field("key", part_key(key, part)).end();
        let reply = self.exchange(&request, "get_result")?;
        if self.launcher.rc(&reply)? != 0 {
            return Err(no_such_key(self.launcher.operation, key).rank(self.launcher.rank));
        }
        let value = reply.need("value").map_err(|e| self.launcher.broke(e))?;
        Ok(value.to_owned())
    }
}

impl Bootstrap for Pmi1 {
    fn kind(&self) -> &'static str {
        "pmi-1"
    }

    fn rank(&self) -> u32 {
        self.launcher.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn job_id(&self) -> &str {
        &self.job_id
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.launcher.operation = "bootstrap put";
        check_key(self.launcher.operation, key)?;
        check_value(self.launcher.operation, key, value)?;
        let parts = pack(value, self.value_max).map_err(|e| self.launcher.broke(e))?;
        for (i, part) in parts.iter().enumerate() {
            let request = Line::new("put").field("kvsname", &self.job_id).field("key", part_key(key, i));
            let reply = self.exchange(&request.field("value", part).end(), "put_result")?;
            if self.launcher.rc(&reply)? != 0 {
                let why = self.text(&reply).unwrap_or_else(|| "no reason given".into());
                let cause = format!("the launcher refused the value of key {key:?} ({} bytes): {why}", value.len());
                return Err(self.launcher.error(ErrorKind::Launcher, cause));
            }
        }
        Ok(())
    }

    fn fence(&mut self) -> Result<()> {
        self.launcher.operation = "pass a fence of the bootstrap";
        let reply = self.exchange(&Line::new("barrier_in").end(), "barrier_out")?;
        if reply.field(LOST_FIELD).is_none() {
            return self.launcher.require_rc(&reply);
        }
        let peer: u32 = reply.number(LOST_FIELD).map_err(|e| self.launcher.broke(e))?;
        let why = self.text(&reply).unwrap_or_else(|| "it ended".into());
        Err(self.launcher.give_up(ErrorKind::PeerLost, why).peer(peer))
    }

    fn get(&mut self, key: &str) -> Result<Vec<u8>> {
        self.launcher.operation = "bootstrap get";
        check_key(self.launcher.operation, key)?;
        let wrong = Error::new(ErrorKind::Protocol, self.launcher.operation).rank(self.launcher.rank);
        unpack(|part| self.get_part(key, part), |what| wrong.again().cause(format!("value of key {key:?}: {what}")))
    }

    fn answer(&mut self, waits_for: &dyn Fn() -> String) {
        if self.launcher.broken.is_some() {
            return;
        }
        self.launcher.read_arrived();
        if !self.is_ours() {
            return;
        }
        while let Ok(Some(line)) = self.launcher.received.pop() {
            // The launcher sends no other message between requests.
            if is_ask(&line) {
                let _ = self.launcher.send(Line::new(WAITS).text("text", &waits_for()).end().as_bytes());
            }
        }
    }

    fn finalize(&mut self) -> Result<()> {
        self.launcher.operation = "bootstrap finalize";
        self.exchange(&Line::new("finalize").end(), "finalize_ack")?;
        self.launcher.broken = Some("the rank has already finalized the bootstrap".into());
        Ok(())
    }

    fn abort(&mut self, code: i32, reason: &str) {
        // The maximum length of a reason that is certain to fit into the line.
        let most = |n| reason.chars().take(n).collect::<String>();
        let line = Line::new("abort").field("exitcode", code);
        let line = if self.is_ours() {
            line.text("error_msg", &most(LINE_MAX / 16))
        } else {
            report_abort(self.launcher.rank, reason);
            line.field("error_msg", most(500))
        };
        // A failure is ignored: the caller exits in any case, and the launcher notices that too.
        let _ = self.launcher.send(line.end().as_bytes());
        self.launcher.broken = Some("the rank has already aborted the job".into());
    }
}

fn is_ask(line: &[u8]) -> bool {
    Message::parse(line).is_ok_and(|message| message.command() == ASK)
}
