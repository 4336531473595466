//! The worker of `farside run`: starts the ranks and stays until all have ended and nothing is left of them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{IsTerminal, PipeWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::RunOptions;
use super::ending::{Action, End, Ending, signal_name};
use super::forward::{Cutter, Sink, forward};
use super::guard::Link;
use super::pmi::{self, Hub, Notice};
use super::server::Server;
use super::spawn::{Wires, job_name, start};
use super::sweep::{kill_descendants, reap, signal_group, sweep};
use crate::error::{Error, Result};

/// Runs the job; its exit code.
pub fn run(options: &RunOptions, link: Link) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => tokio::task::LocalSet::new().block_on(&runtime, job(options, link)),
        Err(e) => Err(Error::system("start the launcher", e)),
    };
    result.unwrap_or_else(|e| {
        sweep();
        eprintln!("farside: {e}");
        1
    })
}

async fn job(options: &RunOptions, link: Link) -> Result<u8> {
    let setup = |e| Error::system("start the launcher", e);
    let mask = link.mask;
    link.signals.set_nonblocking(true).map_err(setup)?;
    let mut guard = tokio::net::UnixStream::from_std(link.signals).map_err(setup)?;
    let mut children = signal(SignalKind::child()).map_err(setup)?;
    let mut job = Job::new(options)?;
    for rank in 0..options.ranks {
        if let Err(e) = job.start(rank, mask) {
            let program = options.program[0].display();
            job.say(format!("cannot start rank {rank}: {program}: {e}"));
            sweep();
            job.finish(&mut guard).await;
            return Ok(match e.kind() {
                std::io::ErrorKind::NotFound => 127,
                std::io::ErrorKind::PermissionDenied => 126,
                _ => 1,
            });
        }
    }
    let limit = options.timeout.map(|s| Instant::now() + Duration::from_secs(s));
    job.limit = limit;
    job.feed_terminal();
    loop {
        let mut ended: Vec<_> = std::iter::from_fn(reap).collect();
        // The order is the kernel's. Of ranks that ended together, those that were killed did not end for the others.
        ended.sort_by_key(|(_, end)| matches!(end, End::Exited(_)));
        for (pid, end) in ended {
            job.child_ended(pid, end);
        }
        if job.running.is_empty() {
            break;
        }
        let mut byte = [0];
        tokio::select! {
            _ = children.recv() => {}
            Some(notice) = job.notices.recv() => job.notice(notice),
            n = guard.read(&mut byte) => match n {
                Ok(1) => job.signalled(byte[0].into()),
                // The guard was killed: nobody is left to hear of the end.
                _ => {
                    sweep();
                    return Ok(End::Killed(libc::SIGKILL).code());
                }
            },
            () = at(job.wake) => {
                job.wake = None;
                let actions = job.ending.wake();
                job.act(actions);
            }
            () = at(job.limit) => {
                job.limit = None;
                job.say(format!("the job ran longer than {} s (--timeout); ending it", options.timeout.unwrap_or(0)));
                let actions = job.ending.timed_out();
                job.act(actions);
            }
        }
    }
    for pid in sweep() {
        job.say(format!("process {pid} does not die"));
    }
    Ok(job.finish(&mut guard).await)
}

/// Waits until a time, or for ever.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

struct Job<'a> {
    options: &'a RunOptions,
    /// Ranks that have not ended, by process number.
    running: HashMap<i32, u32>,
    pids: Vec<i32>,
    ending: Ending,
    hub: Rc<RefCell<Hub>>,
    notices: UnboundedReceiver<Notice>,
    /// When to call [`Ending::wake`].
    wake: Option<Instant>,
    /// When the job has run too long.
    limit: Option<Instant>,
    forwarders: JoinSet<()>,
    finish: watch::Sender<bool>,
    out: Sink,
    err: Sink,
    written: [oneshot::Receiver<()>; 2],
    /// Where rank 0's standard input is fed, if it is a terminal.
    terminal: Option<PipeWriter>,
}

impl<'a> Job<'a> {
    fn new(options: &'a RunOptions) -> Result<Self> {
        let thread = |e| Error::system("start a thread for output", e);
        let (out, out_written) = Sink::start(std::io::stdout()).map_err(thread)?;
        let (err, err_written) = Sink::start(std::io::stderr()).map_err(thread)?;
        let (sender, notices) = unbounded_channel();
        Ok(Self {
            options,
            running: HashMap::new(),
            pids: Vec::new(),
            ending: Ending::default(),
            hub: Hub::new(Server::new(job_name()?, options.ranks), options.ranks, sender),
            notices,
            wake: None,
            limit: None,
            forwarders: JoinSet::new(),
            finish: watch::Sender::new(false),
            out,
            err,
            written: [out_written, err_written],
            terminal: None,
        })
    }

    fn start(&mut self, rank: u32, mask: super::guard::SignalMask) -> std::io::Result<()> {
        let (pmi, theirs) = UnixStream::pair()?;
        let (stdout, their_stdout) = std::io::pipe()?;
        let (stderr, their_stderr) = std::io::pipe()?;
        let stdin = self.stdin(rank)?;
        for (from, to) in [(stdout, &self.out), (stderr, &self.err)] {
            let cutter = Cutter::new(rank, self.options.ranks, self.options.prefix);
            self.forwarders.spawn_local(forward(from, cutter, to.clone(), self.finish.subscribe())?);
        }
        pmi::connect(&self.hub, rank, pmi)?;
        let wires = Wires { pmi: theirs, stdin, stdout: their_stdout, stderr: their_stderr };
        let pid = start(rank, self.options, wires, mask)?;
        self.pids.push(pid);
        self.running.insert(pid, rank);
        Ok(())
    }

    /// Rank 0 has the launcher's input. A terminal cannot be handed on, for the rank is in a process group of its
    /// own, which the terminal would stop.
    fn stdin(&mut self, rank: u32) -> std::io::Result<Stdio> {
        if rank != 0 {
            return Ok(Stdio::null());
        }
        if !std::io::stdin().is_terminal() {
            return Ok(Stdio::inherit());
        }
        let (theirs, mine) = std::io::pipe()?;
        self.terminal = Some(mine);
        Ok(theirs.into())
    }

    /// Copies the terminal to rank 0, in a thread that ends with the process.
    fn feed_terminal(&mut self) {
        let Some(mut to) = self.terminal.take() else { return };
        let feed = move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = std::io::stdin().read(&mut bytes) {
                if to.write_all(&bytes[..n]).is_err() {
                    break;
                }
            }
        };
        if let Err(e) = std::thread::Builder::new().name("farside-input".into()).spawn(feed) {
            self.say(format!("rank 0 gets no input: {e}"));
        }
    }

    fn child_ended(&mut self, pid: i32, end: End) {
        // Anything else is an orphan of a rank.
        let Some(rank) = self.running.remove(&pid) else { return };
        let unfinished = self.hub.borrow_mut().ended(rank, &format!("it {end}"));
        // What it said last comes before how it ended.
        while let Ok(notice) = self.notices.try_recv() {
            self.notice(notice);
        }
        if end == End::Exited(0) && !unfinished {
            return;
        }
        if !self.ending.has_failed() {
            let how = if end == End::Exited(0) { " without finalizing" } else { "" };
            let others = if self.running.is_empty() { "" } else { "; ending the others" };
            self.say(format!("rank {rank} (pid {pid}) {end}{how}{others}"));
        }
        let actions = self.ending.failed(end.code());
        self.act(actions);
    }

    fn notice(&mut self, notice: Notice) {
        let actions = match notice {
            Notice::Abort { rank, code, reason } => {
                let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
                self.say(format!("{} aborted the job with code {code}{reason}", self.name(rank)));
                self.ending.aborted(rank, code)
            }
            Notice::Broken { rank, what } => {
                self.say(format!("{} broke the PMI-1 protocol: {what}; ending the job", self.name(rank)));
                self.ending.failed(1)
            }
        };
        self.act(actions);
    }

    fn signalled(&mut self, signal: i32) {
        let actions = self.ending.signalled(signal);
        let name = signal_name(signal).unwrap_or("signal");
        self.say(match actions.contains(&Action::KillAll) {
            true => format!("{name}: killing the ranks"),
            false => format!("{name}: passed on to the ranks; once more kills them"),
        });
        self.act(actions);
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Signal(signal, spared) => {
                    for (pid, _) in self.running.iter().filter(|(_, rank)| spared != Some(**rank)) {
                        signal_group(*pid, signal);
                    }
                }
                Action::KillAll => kill_descendants(),
                Action::WakeAfter(time) => self.wake = Some(Instant::now() + time),
            }
        }
    }

    fn name(&self, rank: u32) -> String {
        match self.pids.get(rank as usize) {
            Some(pid) => format!("rank {rank} (pid {pid})"),
            None => format!("rank {rank}"),
        }
    }

    /// Says something on standard error, between the lines of the ranks.
    fn say(&self, text: String) {
        let err = self.err.clone();
        tokio::task::spawn_local(async move { err.write(format!("farside: {text}\n").into_bytes()).await });
    }

    /// Writes out what the ranks have printed; a signal cuts that short. The exit code of the job.
    async fn finish(self, guard: &mut tokio::net::UnixStream) -> u8 {
        self.finish.send_replace(true);
        let code = self.ending.code();
        let Self { mut forwarders, out, err, written, .. } = self;
        drop((out, err));
        let output = async {
            while forwarders.join_next().await.is_some() {}
            for done in written {
                // An error is the sign: the thread has dropped its end.
                let _ = done.await;
            }
        };
        let mut byte = [0];
        tokio::select! {
            () = output => code,
            n = guard.read(&mut byte) => match n {
                Ok(1) if code == 0 => End::Killed(byte[0].into()).code(),
                _ => code.max(1),
            },
        }
    }
}
