//! Runs the peers: starts `benches/peers/run`, reads its records, and turns whatever goes wrong into a note.

use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use farside_core::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::record::{Library, Record};

/// How long a run of one peer may take.
pub const LIMIT: Duration = Duration::from_secs(300);
/// What the wrapper, which keeps the limit itself, gets on top of it before it is killed.
const GRACE: Duration = Duration::from_secs(15);
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

/// Where the peers are.
#[derive(Clone, Debug)]
pub struct Peers {
    wrapper: PathBuf,
    directory: Option<PathBuf>,
    limit: Duration,
    grace: Duration,
}

impl Peers {
    /// The wrapper of this source tree. `directory` is where `ci/peers` has put the libraries; without it, the
    /// wrapper looks at `FARSIDE_PEERS` and then in `target/peers`.
    ///
    /// # Errors
    /// [`ErrorKind::BadArgument`] if the source tree, from which this was built, is gone.
    pub fn locate(directory: Option<&Path>) -> Result<Self> {
        let wrapper = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/run");
        if !wrapper.is_file() {
            return Err(Error::new(ErrorKind::BadArgument, "find the peers")
                .cause(format!("{} does not exist", wrapper.display()))
                .remedy("run this from the source tree that it was built from"));
        }
        Ok(Self::with_wrapper(wrapper, directory))
    }

    /// Any program that takes `LIBRARY RANKS [ARGUMENT...]` and writes records.
    #[must_use]
    pub fn with_wrapper(wrapper: PathBuf, directory: Option<&Path>) -> Self {
        Self { wrapper, directory: directory.map(Path::to_owned), limit: LIMIT, grace: GRACE }
    }

    /// Changes how long a run of one peer may take.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Measures `library` with `ranks` ranks; `arguments` are those of [`crate::plan::Plan::peer_arguments`].
    /// `on_record` sees each record as it arrives.
    ///
    /// Never fails: a peer that is missing, breaks off, hangs or writes nonsense gives the records so far and notes.
    pub fn run(
        &self,
        library: Library,
        ranks: u32,
        arguments: &[String],
        mut on_record: impl FnMut(&Record),
    ) -> (Vec<Record>, Vec<Note>) {
        let subject = format!("{}, {ranks} ranks", library.title());
        let mut notes = Vec::new();
        let mut note = |text: String| notes.push(Note { subject: subject.clone(), text });
        let mut records = Vec::new();
        match self.start(library, ranks, arguments) {
            Err(error) => note(format!("not measured: {error}")),
            Ok(mut child) => {
                let mut foreign = 0;
                let ended = self.follow(&mut child, |line| match Record::parse(line.trim()) {
                    Ok(record) if record.library == library && record.ranks == ranks => {
                        on_record(&record);
                        records.push(record);
                    }
                    _ => foreign += 1,
                });
                match ended {
                    End::Exit(status, _) if status.success() => {}
                    End::Exit(status, errors) => note(broken_off(status, self.limit, records.len(), &errors)),
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

    fn start(&self, library: Library, ranks: u32, arguments: &[String]) -> Result<Child> {
        let mut command = Command::new(&self.wrapper);
        command.arg(library.name()).arg(ranks.to_string()).args(arguments);
        command.env("FARSIDE_PEERS_LIMIT_S", self.limit.as_secs().max(1).to_string());
        if let Some(directory) = &self.directory {
            command.env("FARSIDE_PEERS", directory);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(|error| Error::system("start a peer", error))
    }

    /// Hands every line of output to `on_line` until the run has ended one way or another.
    fn follow(&self, child: &mut Child, mut on_line: impl FnMut(&str)) -> End {
        let deadline = Instant::now() + self.limit + self.grace;
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
                Err(error) => return End::Failed(Error::system("wait for a peer", error)),
            }
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
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const LINE: &str = r#"{"library":"mpich","version":"5","suite":"barrier","window":"none","sync":"none","op":"barrier","bytes":0,"ranks":2,"iterations":7,"us_median":0.5,"us_min":0.25}"#;

    /// Runs a wrapper with this shell text; returns the number of records, and the notes.
    fn run(script: &str, limit: Duration) -> (usize, Vec<String>) {
        let directory = tempfile::tempdir().unwrap();
        let wrapper = directory.path().join("run");
        std::fs::write(&wrapper, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut seen = 0;
        let peers = Peers::with_wrapper(wrapper, None).limit(limit);
        let (records, notes) = peers.run(Library::Mpich, 2, &["--quick".to_owned()], |_| seen += 1);
        assert_eq!(seen, records.len());
        (records.len(), notes.iter().map(Note::to_string).collect())
    }

    #[test]
    fn run_good_peer_gives_records_without_notes() {
        let script = format!(
            r#"test "$1 $2 $3 $FARSIDE_PEERS_LIMIT_S" = "mpich 2 --quick 60" && echo '{LINE}' && echo '{LINE}'"#
        );
        assert_eq!(run(&script, Duration::from_secs(60)), (2, vec![]));
    }

    #[test]
    fn run_failing_peer_keeps_records_and_says_why() {
        let script = format!("echo '{LINE}'; echo one >&2; echo >&2; echo wrong data >&2; exit 3");
        let (records, notes) = run(&script, LIMIT);
        assert_eq!(records, 1);
        assert_eq!(notes, ["MPICH, 2 ranks: stopped, because data arrived wrong, after 1 records: one / wrong data"]);
        let (_, notes) = run("kill -9 $$", LIMIT);
        assert!(notes[0].contains("broke off (signal: 9"), "{notes:?}");
        let (_, notes) = run("exit 127", LIMIT);
        assert!(notes[0].contains("not installed"), "{notes:?}");
    }

    #[test]
    fn run_peer_with_foreign_lines_counts_them() {
        let four = LINE.replace("\"ranks\":2", "\"ranks\":4");
        let other = LINE.replace("mpich", "openmpi");
        let (records, notes) = run(&format!("echo hello; echo '{four}'; echo '{other}'; echo '{LINE}'"), LIMIT);
        assert_eq!(records, 1);
        assert_eq!(notes, ["MPICH, 2 ranks: 3 lines of its output are no records of this run"]);
        let (_, notes) = run("true", LIMIT);
        assert_eq!(notes, ["MPICH, 2 ranks: ended well but measured nothing"]);
    }

    #[test]
    fn run_peer_with_endless_line_ends() {
        let (records, notes) = run(&format!("head -c 100000 /dev/zero; echo; echo '{LINE}'"), LIMIT);
        assert_eq!((records, notes.len()), (1, 1));
    }

    #[test]
    fn run_missing_wrapper_is_a_note() {
        let peers = Peers::with_wrapper("/nonexistent/run".into(), None);
        let (records, notes) = peers.run(Library::OpenMpi, 4, &[], |_| {});
        assert!(records.is_empty());
        assert!(notes[0].to_string().starts_with("Open MPI, 4 ranks: not measured: start a peer"), "{notes:?}");
    }

    #[test]
    fn run_hanging_peer_is_killed() {
        let mut peers = Peers::with_wrapper("unused".into(), None).limit(Duration::ZERO);
        peers.grace = Duration::ZERO;
        let mut command = Command::new("sleep");
        let mut child = command.arg("1000").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        assert!(matches!(peers.follow(&mut child, |_| {}), End::Hung));
        assert!(!child.try_wait().unwrap().unwrap().success());
    }
}
