//! Runs measuring programs: ranks of this program with `farside run`, and the peers with
//! `benches/peers/run`. Forwards their records as they arrive, and converts every failure to a note.

use std::collections::VecDeque;
use std::env;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use farside_core::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use wait_timeout::ChildExt;

use crate::record::{Library, Record};

/// Extra time before a launcher, which enforces the time limit itself, is killed.
const GRACE: Duration = Duration::from_secs(15);
/// The number of lines of error output that a note of a failed run quotes.
const QUOTED_LINES: usize = 4;
/// The length at which a line is cut; no record is longer.
const LINE_BYTES_MAX: u64 = 8192;

/// A remark on a run for the reader of its report: the subject, and the problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// The subject, such as "Open MPI, 4 ranks".
    pub(crate) subject: String,
    /// The problem, in one sentence.
    pub(crate) text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.text)
    }
}

/// The command `farside` in the folder of this program, or in a folder of `PATH`.
///
/// # Errors
/// [`ErrorKind::Launcher`] if it is in neither.
pub(crate) fn farside() -> Result<PathBuf> {
    const OP: &str = "find the farside command";
    let program = env::current_exe().map_err(|error| Error::system(OP, error))?;
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = program.parent().map(Path::to_owned).into_iter().chain(env::split_paths(&path));
    find(folders).ok_or_else(|| {
        Error::new(ErrorKind::Launcher, OP)
            .cause(format!("no `farside` in the folder of {} or in PATH", program.display()))
            .remedy("build it: cargo build --release -p farside-launch")
    })
}

fn find(mut folders: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    folders.find_map(|folder| Some(folder.join("farside")).filter(|path| path.is_file()))
}

/// The command that starts this program as `ranks` ranks (subcommand `worker`), ended after `limit`.
///
/// # Errors
/// `Launcher` if the command `farside` is not found.
pub(crate) fn ranks(ranks: u32, limit: Duration, arguments: &[String]) -> Result<Command> {
    let mut command = launcher(ranks, limit)?;
    command.arg(own_program()).arg("worker").args(arguments);
    Ok(command)
}

/// The command that starts `ranks` ranks, ended after `limit`, of a program that is still to be added.
///
/// # Errors
/// `Launcher` if the command `farside` is not found.
pub(crate) fn launcher(ranks: u32, limit: Duration) -> Result<Command> {
    let mut command = Command::new(farside()?);
    command.args(["run", "-n", &ranks.to_string(), "--timeout", &limit.as_secs().max(1).to_string()]);
    Ok(command)
}

/// The path of this program. The ranks must run the same one, although another build may have replaced its file since the
/// start.
pub(crate) fn own_program() -> String {
    format!("/proc/{}/exe", std::process::id())
}

/// The command that starts a peer, which `ci/peers` has put into `FARSIDE_PEERS` or `target/peers`, ended after
/// `limit`.
///
/// # Errors
/// [`ErrorKind::BadArgument`] if the source tree from which this program was built no longer exists.
pub(crate) fn peer(library: Library, ranks: u32, limit: Duration, arguments: &[String]) -> Result<Command> {
    let wrapper = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/run");
    if !wrapper.is_file() {
        return Err(Error::new(ErrorKind::BadArgument, "find the peers")
            .cause(format!("{} does not exist", wrapper.display()))
            .remedy("run this from the source tree that it was built from"));
    }
    let mut command = Command::new(wrapper);
    command.arg(library.name()).arg(ranks.to_string()).args(arguments);
    command.env("FARSIDE_PEERS_LIMIT_S", limit.as_secs().max(1).to_string());
    Ok(command)
}

/// Runs `command`, which measures `library` with `ranks` ranks, writes records and enforces the time limit `limit`
/// itself. Never fails: if the run fails, returns the records so far, and a note.
pub(crate) fn run(mut command: Command, library: Library, ranks: u32, limit: Duration) -> (Vec<Record>, Vec<Note>) {
    let (mut records, mut errors, mut foreign) = (Vec::new(), VecDeque::new(), 0);
    // Farside's own program also measures the limits and other libraries.
    let own =
        |of: Library| of == library || library == Library::Farside && matches!(of, Library::Loop | Library::Limit);
    let ended = follow(&mut command, Instant::now() + limit + GRACE, |line| match line {
        Line::Out(line) => match Record::parse(line.trim()) {
            Ok(record) if own(record.library) && record.key.ranks == ranks => records.push(record),
            _ => foreign += 1,
        },
        Line::Error(line) if line.trim().is_empty() => {}
        Line::Error(line) => {
            errors.push_back(line.trim().to_owned());
            errors.drain(..errors.len().saturating_sub(QUOTED_LINES));
        }
    });
    let fault = match ended {
        Err(error) => Some(format!("not measured: {error}")),
        Ok(None) => Some(format!("killed because it did not exit, after {} records", records.len())),
        Ok(Some(status)) if !status.success() => {
            let quoted = errors.make_contiguous().join(" / ");
            let colon = if quoted.is_empty() { "" } else { ": " };
            Some(format!("{}, after {} records{colon}{quoted}", exit_reason(status, limit), records.len()))
        }
        Ok(_) => (records.is_empty() && foreign == 0).then(|| "exited successfully without any record".to_owned()),
    };
    let foreign = (foreign > 0).then(|| format!("{foreign} lines of its output are not records of this run"));
    let note = |text| Note { subject: format!("{}, {ranks} ranks", library.label()), text };
    (records, fault.into_iter().chain(foreign).map(note).collect())
}

/// A description of the end of a run whose exit status is not 0; the codes are those of `benches/peers/run`.
fn exit_reason(status: ExitStatus, limit: Duration) -> String {
    match status.code() {
        Some(3) => "stopped because of wrong data".to_owned(),
        Some(124) => format!("ended at its time limit of {} s", limit.as_secs()),
        Some(127) => "not installed".to_owned(),
        _ => format!("failed ({status})"),
    }
}

/// A line of one of the two outputs.
enum Line {
    Out(String),
    Error(String),
}

/// Passes every line of both outputs to `on_line` until the run has ended; `None` if it had to be killed.
fn follow(command: &mut Command, deadline: Instant, mut on_line: impl FnMut(Line)) -> Result<Option<ExitStatus>> {
    let failed = |error| Error::system("start a measuring program", error);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let (sender, lines) = channel();
    child.stdout.take().into_iter().for_each(|pipe| read_lines(pipe, sender.clone(), Line::Out));
    child.stderr.take().into_iter().for_each(|pipe| read_lines(pipe, sender.clone(), Line::Error));
    drop(sender);
    let left = || deadline.saturating_duration_since(Instant::now());
    let in_time = loop {
        match lines.recv_timeout(left()) {
            Ok(line) => on_line(line),
            Err(RecvTimeoutError::Disconnected) => break true,
            // A surviving process may keep the pipe open, so its reader thread is not joined; the reader holds only the
            // pipe.
            Err(RecvTimeoutError::Timeout) => break false,
        }
    };
    let status = if in_time { child.wait_timeout(left()).map_err(failed)? } else { None };
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    Ok(status)
}

fn read_lines(pipe: impl Read + Send + 'static, sender: Sender<Line>, line: fn(String) -> Line) {
    thread::spawn(move || {
        let (mut pipe, mut bytes) = (BufReader::new(pipe), Vec::new());
        while (&mut pipe).take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
            if sender.send(line(String::from_utf8_lossy(&bytes).into_owned())).is_err() {
                return;
            }
            bytes.clear();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"library":"mpich","version":"5","suite":"barrier","window":"none","sync":"none","op":"barrier","bytes":0,"ranks":2,"iterations":7,"us_median":0.5,"us_min":0.25}"#;

    /// Runs a shell script as a peer; returns the number of records, and the notes.
    fn shell(script: &str) -> (usize, Vec<String>) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let (records, notes) = run(command, Library::Mpich, 2, Duration::from_secs(60));
        (records.len(), notes.iter().map(Note::to_string).collect())
    }

    #[test]
    fn find_takes_the_first_folder_with_the_command() {
        let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let paths = || folders.iter().map(|folder| folder.path().to_owned());
        assert_eq!(find(paths()), None);
        std::fs::create_dir(folders[0].path().join("farside")).unwrap();
        for folder in &folders[1..] {
            std::fs::write(folder.path().join("farside"), "").unwrap();
        }
        assert_eq!(find(paths()), Some(folders[1].path().join("farside")));
    }

    #[test]
    fn peer_names_library_ranks_arguments_and_limit() {
        let command = peer(Library::Mpich, 2, Duration::from_secs(60), &["--quick".to_owned()]).unwrap();
        assert!(command.get_args().eq(["mpich", "2", "--quick"]));
        assert!(command.get_envs().eq([("FARSIDE_PEERS_LIMIT_S".as_ref(), Some("60".as_ref()))]));
    }

    #[test]
    fn run_failing_peer_keeps_records_and_says_why() {
        assert_eq!(shell(&format!("echo '{LINE}' && echo '{LINE}'")).0, 2);
        let (records, notes) = shell(&format!("echo '{LINE}'; echo one >&2; echo >&2; echo wrong data >&2; exit 3"));
        assert_eq!(records, 1);
        assert_eq!(notes, ["MPICH, 2 ranks: stopped because of wrong data, after 1 records: one / wrong data"]);
        assert!(shell("kill -9 $$").1[0].contains("failed (signal: 9"));
        assert!(shell("exit 127").1[0].contains("not installed"));
        let (records, notes) = run(Command::new("/nonexistent/run"), Library::OpenMpi, 4, Duration::ZERO);
        assert!(records.is_empty());
        assert!(notes[0].to_string().starts_with("Open MPI, 4 ranks: not measured: start a measuring"), "{notes:?}");
    }

    #[test]
    fn run_peer_with_foreign_lines_counts_them() {
        let four = LINE.replace("\"ranks\":2", "\"ranks\":4");
        let other = LINE.replace("mpich", "openmpi");
        let (records, notes) = shell(&format!("echo hello; echo '{four}'; echo '{other}'; echo '{LINE}'"));
        assert_eq!(records, 1);
        assert_eq!(notes, ["MPICH, 2 ranks: 3 lines of its output are not records of this run"]);
        assert_eq!(shell("true").1, ["MPICH, 2 ranks: exited successfully without any record"]);
        assert_eq!(shell(&format!("head -c 100000 /dev/zero; echo; echo '{LINE}'")).0, 1);
    }

    #[test]
    fn follow_hanging_program_kills_it() {
        let ended = follow(Command::new("sleep").arg("1000"), Instant::now(), |_| {}).unwrap();
        assert_eq!(ended, None);
    }
}
