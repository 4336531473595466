#![allow(unsafe_code)]
//! Commands whose processes can be found again by a mark in their environment, and must all have ended.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::programs::farside;

/// How long a test waits for an event before it fails, instead of hanging.
pub const PATIENCE: Duration = Duration::from_secs(20);
const MARK: &str = "FARSIDE_TEST_MARK";

/// A command whose processes can be found again by a mark in their environment.
#[derive(Debug)]
pub struct Marked {
    /// The command, which may be changed before it is started.
    pub command: Command,
    mark: String,
}

impl Marked {
    /// A program without arguments.
    #[must_use]
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{MARK}={}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let mut command = Command::new(program);
        let (name, value) = mark.split_once('=').unwrap();
        // A test that counts messages has the same cut-offs on every machine.
        command.env(name, value).env("FARSIDE_CALIBRATION", "off");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The tests may run in a background shell or under nohup, which ignore these signals. SAFETY: between fork and
        // exec only system calls are made.
        unsafe {
            command.pre_exec(|| {
                for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                Ok(())
            });
        }
        Self { command, mark }
    }

    /// `farside run -n RANKS` with further arguments.
    #[must_use]
    pub fn run(ranks: u32, arguments: &[impl AsRef<OsStr>]) -> Self {
        let mut me = Self::new(farside());
        me.command.args(["run", "-n", &ranks.to_string()]).args(arguments);
        me
    }

    /// Waits for the end, and checks that no process is left.
    #[must_use]
    pub fn finish(mut self) -> Finished {
        let child = self.command.spawn().unwrap();
        let _limit = limit(child.id());
        let output = child.wait_with_output().unwrap();
        self.wait_until_gone();
        Finished::from(output)
    }

    /// Adds arguments, and then [`finish`](Self::finish).
    #[must_use]
    pub fn finish_with(mut self, arguments: &[impl AsRef<OsStr>]) -> Finished {
        self.command.args(arguments);
        self.finish()
    }

    /// Starts it.
    pub fn start(&mut self) -> Running {
        let mut child = self.command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let err = BufReader::new(child.stderr.take().unwrap());
        Running { out: Some(out), err, _limit: limit(child.id()), child }
    }

    /// Processes with the mark that have not ended.
    #[must_use]
    pub fn survivors(&self) -> Vec<String> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { continue };
            if environment.split(|&b| b == 0).any(|v| v == self.mark.as_bytes()) {
                let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                found.push(format!("{pid}: {}", String::from_utf8_lossy(&command).replace('\0', " ")));
            }
        }
        found
    }

    /// Waits until none is left.
    pub fn wait_until_gone(&self) {
        self.wait_until(<[String]>::is_empty);
    }

    /// Waits until `good` accepts the survivors.
    pub fn wait_until(&self, good: impl Fn(&[String]) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = self.survivors();
            if good(&left) {
                return;
            }
            assert!(Instant::now() < deadline, "left behind: {left:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The outcome and the output of a command.
#[derive(Debug)]
pub struct Finished {
    /// The exit code; `None` if a signal killed it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// Kills the process unless the returned value is dropped in time: a test that waits for output then sees the end of
/// the output.
fn limit(pid: u32) -> mpsc::Sender<()> {
    let (running, over) = mpsc::channel();
    std::thread::spawn(move || {
        // The emulated machine is slow, and slower beside other work.
        let times = if crate::quick() { 6 } else { 3 };
        if over.recv_timeout(times * PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("process {pid} takes too long and is killed");
            signal(pid, "KILL");
        }
    });
    running
}

/// A running command.
#[derive(Debug)]
pub struct Running {
    /// The process.
    pub child: Child,
    /// Its output, until it is closed.
    pub out: Option<BufReader<ChildStdout>>,
    /// Its errors.
    pub err: BufReader<ChildStderr>,
    _limit: mpsc::Sender<()>,
}

impl Running {
    /// Reads standard output until `n` lines equal `line`.
    pub fn await_lines(&mut self, line: &str, n: usize) {
        let mut seen = Vec::new();
        while seen.iter().filter(|l| *l == line).count() < n {
            let mut text = String::new();
            let got = self.out.as_mut().unwrap().read_line(&mut text).unwrap();
            assert!(got > 0, "{line:?} x {n} was awaited, {seen:?} came");
            seen.push(text.trim_end().to_owned());
        }
    }

    /// Reads standard error until it has each of `parts`, and returns what it has read.
    pub fn await_errors(&mut self, parts: &[&str]) -> String {
        let mut all = String::new();
        while !parts.iter().all(|part| all.contains(part)) {
            assert!(self.err.read_line(&mut all).unwrap() > 0, "{parts:?} were awaited, {all:?} came");
        }
        all
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// The exit code, the rest of the output, and the rest of the errors.
    #[must_use]
    pub fn finish(mut self) -> Finished {
        let (mut out, mut err) = (String::new(), String::new());
        if let Some(mut rest) = self.out.take() {
            rest.read_to_string(&mut out).unwrap();
        }
        self.err.read_to_string(&mut err).unwrap();
        Finished { code: self.child.wait().unwrap().code(), out, err }
    }
}

/// Sends a signal to a process; after STOP, the process has stopped when this returns. It uses the `kill` that is built
/// into the shell, since the program of that name may be missing.
pub fn signal(pid: u32, name: &str) {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap();
    assert!(status.success());
    // A process that runs on another processor continues for a moment.
    let runs = || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") T "));
    while name == "STOP" && runs() {
        std::thread::yield_now();
    }
}

/// The children of a process.
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace().map(|p| p.parse().unwrap()).collect()
}
