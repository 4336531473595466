//! One run of a measuring program: its records as they come, and whatever goes wrong as a note.

use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use farside_core::error::Error;
use serde::{Deserialize, Serialize};

use crate::record::{Library, Record};

/// Lines of its error output that a note of a failed run quotes.
const QUOTED_LINES: usize = 4;
/// A line longer than this is cut; it is no record anyway.
const LINE_BYTES_MAX: u64 = 8192;

/// Something in a run that the reader of its report must know: what it concerns, and what is the matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// For example "Open MPI, 4 ranks".
    pub subject: String,
    /// One sentence.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.text)
    }
}

/// Runs `command`, which measures `library` with `ranks` ranks and writes records, and keeps the time limit `limit`
/// itself; it is killed `grace` later. Never fails: what goes wrong gives the records so far, and notes.
pub(crate) fn run_of(
    mut command: Command,
    library: Library,
    ranks: u32,
    limit: Duration,
    grace: Duration,
    mut on_record: impl FnMut(&Record),
) -> (Vec<Record>, Vec<Note>) {
    let subject = format!("{}, {ranks} ranks", library.title());
    let mut notes = Vec::new();
    let mut note = |text: String| notes.push(Note { subject: subject.clone(), text });
    let mut records = Vec::new();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    match command.spawn() {
        Err(error) => note(format!("not measured: {}", Error::system("start a measuring program", error))),
        Ok(mut child) => {
            let mut foreign = 0;
            let ended = follow(&mut child, Instant::now() + limit + grace, |line| match Record::parse(line.trim()) {
                Ok(record) if is_of(&record, library) && record.ranks == ranks => {
                    on_record(&record);
                    records.push(record);
                }
                _ => foreign += 1,
            });
            match ended {
                End::Exit(status, _) if status.success() => {}
                End::Exit(status, errors) => note(broken_off(status, limit, records.len(), &errors)),
                End::Hung => note(format!("killed when it did not end by itself, after {} records", records.len())),
                End::Failed(error) => note(format!("lost sight of it: {error}")),
            }
            if foreign > 0 {
                note(format!("{foreign} lines of its output are no records of this run"));
            }
            if records.is_empty() && notes.is_empty() {
                notes.push(Note { subject, text: "ended well but measured nothing".to_owned() });
            }
        }
    }
    (records, notes)
}

/// Whether a record may come from a run that measures `library`: Farside's own program also measures what is beside it.
fn is_of(record: &Record, library: Library) -> bool {
    let beside = matches!(record.library, Library::Loop | Library::Limit);
    record.library == library || library == Library::Farside && beside
}

/// Hands every line of output to `on_line` until the run has ended one way or another.
fn follow(child: &mut Child, deadline: Instant, mut on_line: impl FnMut(&str)) -> End {
    let (sender, lines) = channel();
    let readers = [
        child.stdout.take().map(|pipe| read_lines(pipe, sender.clone(), Line::Out)),
        child.stderr.take().map(|pipe| read_lines(pipe, sender, Line::Error)),
    ];
    let mut errors = VecDeque::new();
    let in_time = receive(&lines, deadline, |line| match line {
        Line::Out(text) => on_line(&text),
        Line::Error(text) if !text.trim().is_empty() => {
            errors.push_back(text);
            if errors.len() > QUOTED_LINES {
                errors.pop_front();
            }
        }
        Line::Error(_) => {}
    });
    if !in_time {
        // A reader whose pipe some survivor keeps open stays behind; it holds nothing but the pipe.
        let _ = child.kill();
        let _ = child.wait();
        return End::Hung;
    }
    for reader in readers.into_iter().flatten() {
        let _ = reader.join();
    }
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return End::Exit(status, errors.into()),
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return End::Hung;
            }
            Err(error) => return End::Failed(Error::system("wait for a measuring program", error)),
        }
    }
}

/// How a run ended.
enum End {
    /// With this status and these last lines of error output.
    Exit(ExitStatus, Vec<String>),
    /// Not at all, so it was killed.
    Hung,
    /// It cannot be known.
    Failed(Error),
}

/// A line of one of the two outputs.
enum Line {
    Out(String),
    Error(String),
}

fn read_lines(
    pipe: impl Read + Send + 'static,
    sender: Sender<Line>,
    line: fn(String) -> Line,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            match (&mut pipe).take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(_) if sender.send(line(String::from_utf8_lossy(&bytes).into_owned())).is_err() => return,
                Ok(_) => {}
            }
        }
    })
}

/// Takes lines until both readers are done; false if that is not before `deadline`.
fn receive(lines: &Receiver<Line>, deadline: Instant, mut on_line: impl FnMut(Line)) -> bool {
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => on_line(line),
            Err(RecvTimeoutError::Disconnected) => return true,
            Err(RecvTimeoutError::Timeout) => return false,
        }
    }
}

/// What to say about a run that did not end with 0; the codes are those of `benches/peers/run`.
fn broken_off(status: ExitStatus, limit: Duration, records: usize, errors: &[String]) -> String {
    let how = match status.code() {
        Some(3) => "stopped, because data arrived wrong".to_owned(),
        Some(124) => format!("ended after its {} s were over", limit.as_secs()),
        Some(127) => "not installed".to_owned(),
        _ => format!("broke off ({status})"),
    };
    let quoted = errors.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" / ");
    let colon = if quoted.is_empty() { "" } else { ": " };
    format!("{how}, after {records} records{colon}{quoted}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follow_hanging_program_kills_it() {
        let mut command = Command::new("sleep");
        let mut child = command.arg("1000").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        assert!(matches!(follow(&mut child, Instant::now(), |_| {}), End::Hung));
        assert!(!child.try_wait().unwrap().unwrap().success());
    }
}
