//! Bootstrap by a launcher that speaks PMI-2: Slurm's plugin `pmi2`, MPICH's `mpiexec.hydra`.
//!
//! The launcher provides a connected socket (`PMI_FD`), on which the two sides agree on the version as in PMI-1. Every
//! later message is a length of 6 characters and as many bytes of `name=value;` fields, the first of which is `cmd`; a
//! semicolon in a value is doubled. Every call is one request and one reply. Only one thread of a rank makes calls, so
//! no message names a thread.

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::connection::Connection;
use super::pmi1_wire::{LINE_MAX, LineBuffer, Message, pack, part_key, quote, unpack};
use super::{Bootstrap, check_key, check_value, no_such_key, report_abort};
use crate::error::{Error, ErrorKind, Result};

/// Maximum length of a value in characters: 1024 including the terminating zero of a C string.
const PART_MAX: usize = 1023;
/// Characters of the length in front of a message.
const LENGTH: usize = 6;

/// The connection of a rank to a PMI-2 launcher.
#[derive(Debug)]
pub struct Pmi2 {
    launcher: Connection,
    size: u32,
    job_id: String,
}

impl Pmi2 {
    /// Uses a connected stream socket as `rank` of the job that the launcher calls `job` (`PMI_JOBID`).
    ///
    /// # Errors
    /// `Launcher` if the launcher is gone, breaks the protocol, or speaks another version; `Timeout`.
    pub fn over(socket: OwnedFd, rank: u32, job: &str, timeout: Duration) -> Result<Self> {
        Self::start(Connection::over(socket, rank, timeout), job)
    }

    /// Proposes PMI-2 over a connection.
    ///
    /// # Errors
    /// Those of [`Pmi2::over`].
    pub(super) fn start(mut launcher: Connection, job: &str) -> Result<Self> {
        let version = launcher.agree(2)?;
        if version != 2 {
            return Err(launcher.broke(format!("the launcher speaks PMI version {version}, not 2")));
        }
        let rank = launcher.rank;
        let mut me = Self { launcher, size: 0, job_id: String::new() };
        let rank_text = rank.to_string();
        let joined = me.ask("fullinit", &[("pmijobid", job), ("pmirank", &rank_text), ("threaded", "FALSE")])?;
        me.size = joined.number("size").map_err(|e| me.launcher.broke(e))?;
        let given: u32 = joined.number("rank").map_err(|e| me.launcher.broke(e))?;
        if given != rank || rank >= me.size {
            let cause = format!("the launcher gave rank {given} of {} to rank {rank}", me.size);
            return Err(me.launcher.broke(cause));
        }
        let name = me.ask("job-getid", &[])?;
        name.need("jobid").map_err(|e| me.launcher.broke(e))?.clone_into(&mut me.job_id);
        if me.job_id.is_empty() || me.job_id.len() > PART_MAX {
            let cause =
                format!("the launcher's job ID has {} characters; 1 to {PART_MAX} are allowed", me.job_id.len());
            return Err(me.launcher.broke(cause));
        }
        Ok(me)
    }

    /// Sends a request and returns its reply, which must answer the request and must not be a refusal.
    fn ask(&mut self, command: &str, fields: &[(&str, &str)]) -> Result<Message> {
        let reply = self.exchange(command, fields)?;
        self.launcher.require_rc(&reply).map(|()| reply)
    }

    /// Like [`ask`](Self::ask), but does not check the return code.
    fn exchange(&mut self, command: &str, fields: &[(&str, &str)]) -> Result<Message> {
        self.launcher.send(&request(command, fields))?;
        let expected = format!("{command}-response");
        let frame = self.launcher.receive(&expected, frame)?;
        let message = parse(&frame).map_err(|e| self.launcher.broke(e))?;
        self.launcher.require(message, &expected)
    }

    fn get_part(&mut self, key: &str, part: usize) -> Result<String> {
        let job = self.job_id.clone();
        let reply = self.exchange("kvs-get", &[("jobid", &job), ("srcid", "-1"), ("key", &part_key(key, part))])?;
        // Hydra rejects a get of an unknown key, while Slurm reports that it is not found.
        let is_refused = self.launcher.rc(&reply)? != 0;
        if is_refused || !reply.need("found").map_err(|e| self.launcher.broke(e))?.eq_ignore_ascii_case("true") {
            return Err(no_such_key(self.launcher.operation, key).rank(self.launcher.rank));
        }
        let value = reply.need("value").map_err(|e| self.launcher.broke(e))?;
        Ok(value.to_owned())
    }
}

impl Bootstrap for Pmi2 {
    fn kind(&self) -> &'static str {
        "pmi-2"
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
        let parts = pack(value, PART_MAX).map_err(|e| self.launcher.broke(e))?;
        for (i, part) in parts.iter().enumerate() {
            let reply = self.exchange("kvs-put", &[("key", &part_key(key, i)), ("value", part)])?;
            if self.launcher.rc(&reply)? != 0 {
                let why = reply.field("errmsg").unwrap_or("no reason given");
                let cause = format!("the launcher refused the value of key {key:?} ({} bytes): {why}", value.len());
                return Err(self.launcher.error(ErrorKind::Launcher, cause));
            }
        }
        Ok(())
    }

    fn fence(&mut self) -> Result<()> {
        self.launcher.operation = "pass a fence of the bootstrap";
        self.ask("kvs-fence", &[]).map(drop)
    }

    fn get(&mut self, key: &str) -> Result<Vec<u8>> {
        self.launcher.operation = "bootstrap get";
        check_key(self.launcher.operation, key)?;
        let wrong = Error::new(ErrorKind::Protocol, self.launcher.operation).rank(self.launcher.rank);
        unpack(|part| self.get_part(key, part), |what| wrong.again().cause(format!("value of key {key:?}: {what}")))
    }

    fn answer(&mut self, _waits_for: &dyn Fn() -> String) {
        self.launcher.read_arrived();
    }

    fn finalize(&mut self) -> Result<()> {
        self.launcher.operation = "bootstrap finalize";
        self.ask("finalize", &[])?;
        self.launcher.broken = Some("the rank has already finalized the bootstrap".into());
        Ok(())
    }

    fn abort(&mut self, code: i32, reason: &str) {
        report_abort(self.launcher.rank, reason);
        let text: String = reason.chars().take(500).collect();
        let code = code.to_string();
        // A failure is ignored: the caller exits in any case, and the launcher notices that too.
        let _ = self.launcher.send(&request("abort", &[("isworld", "TRUE"), ("exitcode", &code), ("msg", &text)]));
        self.launcher.broken = Some("the rank has already aborted the job".into());
    }
}

/// A message with its length in front. Characters that would break it become `_`, since not every launcher reads
/// doubled semicolons.
fn request(command: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut body = format!("cmd={command};");
    for (name, value) in fields {
        let value: String = value.chars().map(|c| if c == ';' || c.is_control() { '_' } else { c }).collect();
        body += &format!("{name}={value};");
    }
    format!("{:>LENGTH$}{body}", body.len()).into_bytes()
}

/// Removes the next message, without its length, from received bytes.
fn frame(received: &mut LineBuffer) -> std::result::Result<Option<Vec<u8>>, String> {
    let Some(head) = received.rest().get(..LENGTH) else { return Ok(None) };
    let length = std::str::from_utf8(head).ok().and_then(|head| head.trim().parse::<usize>().ok());
    let length = length.filter(|length| *length <= LINE_MAX);
    let length = length.ok_or_else(|| format!("malformed message length in {}", quote(received.rest())))?;
    Ok(received.take(LENGTH + length).map(|mut frame| frame.split_off(LENGTH)))
}

/// Parses the fields of a message.
fn parse(frame: &[u8]) -> std::result::Result<Message, String> {
    let wrong = |what: &str| format!("{what} in the message {}", quote(frame));
    let text = std::str::from_utf8(frame).map_err(|_| wrong("bytes that are not text"))?;
    if text.chars().any(char::is_control) {
        return Err(wrong("control characters"));
    }
    let (mut fields, mut rest) = (Vec::<(String, String)>::new(), text);
    while !rest.is_empty() {
        let (name, mut more) = rest.split_once('=').ok_or_else(|| wrong("a field without a value"))?;
        let mut value = String::new();
        loop {
            let (part, next) = more.split_once(';').ok_or_else(|| wrong("a field without its end"))?;
            value += part;
            more = next;
            let Some(next) = more.strip_prefix(';') else { break };
            value.push(';');
            more = next;
        }
        if fields.iter().any(|(known, _)| known == name) {
            return Err(wrong(&format!("a second `{}=`", name.escape_debug())));
        }
        fields.push((name.to_owned(), value));
        rest = more;
    }
    Message::of(fields).map_err(|what| wrong(&what))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::UnixStream;

    use super::super::pmi1::Pmi1;
    use super::*;
    use proptest::prelude::*;

    /// A launcher that answers each line, and then each message, with the next reply.
    fn launcher(lines: &'static [&'static str], replies: &'static [&'static str]) -> Connection {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let mut requests = BufReader::new(theirs.try_clone().unwrap());
            for line in lines {
                requests.read_line(&mut String::new()).unwrap();
                (&theirs).write_all(line.as_bytes()).unwrap();
            }
            for reply in replies {
                let mut length = [0; LENGTH];
                requests.read_exact(&mut length).unwrap();
                let length: usize = std::str::from_utf8(&length).unwrap().trim().parse().unwrap();
                requests.read_exact(&mut vec![0; length]).unwrap();
                (&theirs).write_all(format!("{:<6}{reply}", reply.len()).as_bytes()).unwrap();
            }
        });
        Connection::over(ours.into(), 1, Duration::from_secs(20))
    }

    #[test]
    fn launcher_that_offers_only_pmi_2_gets_it() {
        let joined = &["cmd=fullinit-response;rc=0;rank=1;size=2;appnum=0;", "cmd=job-getid-response;rc=0;jobid=a;"];
        for lines in [
            &[
                "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=-1\n",
                "cmd=response_to_init pmi_version=2 rc=0\n",
            ],
            &[
                "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n",
                "cmd=response_to_init pmi_version=2 rc=0\n",
            ],
        ] {
            let left = Pmi1::negotiate(launcher(lines, joined), 2).unwrap().unwrap_err();
            let job = Pmi2::start(left, "7").unwrap();
            assert_eq!((job.kind(), job.rank(), job.size(), job.job_id()), ("pmi-2", 1, 2, "a"));
        }
        let other = launcher(&["cmd=response_to_init pmi_version=3 rc=0\n"], &[]);
        let e = Pmi1::negotiate(other, 2).unwrap_err().to_string();
        assert!(e.contains("the launcher speaks PMI version 3, not 1"), "{e}");
    }

    #[test]
    fn parse_reads_replies_with_doubled_semicolons() {
        let m = parse(b"cmd=kvs-get-response;rc=0;found=TRUE;value=a;;b=c;").unwrap();
        assert_eq!(
            (m.command(), m.field("found"), m.field("value")),
            ("kvs-get-response", Some("TRUE"), Some("a;b=c"))
        );
        let m = parse(b"cmd=fullinit-response;spawner-jobid=;rank=1;").unwrap();
        assert_eq!((m.field("spawner-jobid"), m.number("rank")), (Some(""), Ok(1)));
        for wrong in
            [&b""[..], b"cmd=a", b"cmd=;", b"rc=0;", b"cmd=a;b;", b"cmd=a;cmd=b;", b"cmd=a;\xff=b;", b"cmd=a\n;"]
        {
            assert!(parse(wrong).is_err(), "{}", quote(wrong));
        }
    }

    #[test]
    fn request_keeps_a_hostile_value_in_its_field() {
        let bytes = request("abort", &[("msg", "a;cmd=kvs-put;\n")]);
        assert_eq!(bytes, b"    30cmd=abort;msg=a_cmd=kvs-put__;");
        assert_eq!(parse(&bytes[LENGTH..]).unwrap().command(), "abort");
    }

    proptest! {
        #[test]
        fn messages_are_the_same_however_they_arrive(lengths in proptest::collection::vec(0usize..50, 0..9), cut in 1usize..9) {
            let bodies: Vec<Vec<u8>> = lengths.iter().map(|length| vec![b'x'; *length]).collect();
            // Lengths may be aligned to the left or to the right.
            let heads = bodies.iter().enumerate().map(|(n, body)| match n % 2 {
                0 => format!("{:<6}", body.len()),
                _ => format!("{:>6}", body.len()),
            });
            let all: Vec<u8> = heads.zip(&bodies).flat_map(|(head, body)| [head.as_bytes(), body].concat()).collect();
            let (mut received, mut found) = (LineBuffer::default(), Vec::new());
            for piece in all.chunks(cut) {
                received.push(piece);
                while let Some(one) = frame(&mut received).unwrap() {
                    found.push(one);
                }
            }
            prop_assert_eq!(found, bodies);
            prop_assert!(received.rest().is_empty());
        }

        #[test]
        fn parse_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut received = LineBuffer::default();
            received.push(&bytes);
            let _ = frame(&mut received);
            if let Ok(message) = parse(&bytes) {
                prop_assert!(!message.command().is_empty());
            }
        }
    }
}
