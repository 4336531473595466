//! The worker of `farside run`: starts the ranks and stays until all have ended and nothing is left of them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::Duration;

use farside_core::{Error, Result};
use rustix::process::{Pid, Signal, getppid, kill_process_group, set_parent_process_death_signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::RunOptions;
use crate::descendants::{become_subreaper, kill, kill_all, reap};
use crate::ending::{Action, Ending, code, describe};
use crate::output::{Cutter, Sink, forward};
use crate::pmi::{self, Hub, Notice};
use crate::server::{Answer, Server};
use crate::signals::{self, Signals};
use crate::spawn::start;

/// The exit code of a worker without a guard, which nobody sees.
const KILLED: u8 = 137;

/// What both processes wait with: on one thread, which is the parent of the ranks.
///
/// # Errors
/// `System` when the kernel refuses descriptors.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| Error::system("start the launcher", e))
}

/// Runs the job, as the worker of the process `guard`; its exit code.
///
/// # Errors
/// `System` when the kernel refuses what the job needs before its first rank.
pub fn run(options: &RunOptions, guard: i32) -> Result<u8> {
    become_subreaper()?;
    let result = tokio::task::LocalSet::new().block_on(&runtime()?, job(options, guard));
    result.inspect_err(|_| drop(kill_all()))
}

async fn job(options: &RunOptions, guard: i32) -> Result<u8> {
    let failed = |e| Error::system("start the launcher", e);
    let mut signals = Signals::take()?;
    let mut children = signal(SignalKind::child()).map_err(failed)?;
    let mut guard_ended = signal(SignalKind::user_defined2()).map_err(failed)?;
    set_parent_process_death_signal(Some(Signal::USR2)).map_err(|e| failed(e.into()))?;
    if getppid() != Pid::from_raw(guard) {
        return Ok(KILLED);
    }
    let mut job = Job::new(options)?;
    for rank in 0..options.ranks {
        if let Err(e) = job.start(rank) {
            job.say(format!("cannot start rank {rank}: {}: {e}", options.program[0].display()));
            kill_all();
            job.finish(&mut signals).await;
            return Ok(match e.kind() {
                std::io::ErrorKind::NotFound => 127,
                std::io::ErrorKind::PermissionDenied => 126,
                _ => 1,
            });
        }
    }
    job.limit = options.timeout.map(|s| Instant::now() + Duration::from_secs(s));
    loop {
        let mut ended: Vec<_> = std::iter::from_fn(reap).collect();
        // The order is the kernel's. Of ranks that ended together, those that were killed did not end for the others.
        ended.sort_by_key(|(_, status)| status.code().is_some());
        for (pid, status) in ended {
            job.child_ended(pid, status);
        }
        if job.running.is_empty() {
            break;
        }
        tokio::select! {
            _ = children.recv() => {}
            Some(notice) = job.notices.recv() => job.notice(notice),
            signal = signals.next() => job.signalled(signal),
            _ = guard_ended.recv() => {
                kill_all();
                return Ok(KILLED);
            }
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
    for pid in kill_all() {
        job.say(format!("process {pid} does not die"));
    }
    Ok(job.finish(&mut signals).await)
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
            hub: Hub::new(Server::new(options.ranks), options.ranks, sender),
            notices,
            wake: None,
            limit: None,
            forwarders: JoinSet::new(),
            finish: watch::Sender::new(false),
            out,
            err,
            written: [out_written, err_written],
        })
    }

    fn start(&mut self, rank: u32) -> std::io::Result<()> {
        let (stdout, their_stdout) = std::io::pipe()?;
        let (stderr, their_stderr) = std::io::pipe()?;
        for (from, to) in [(stdout, &self.out), (stderr, &self.err)] {
            let cutter = Cutter::new(rank, self.options.ranks, self.options.prefix);
            self.forwarders.spawn_local(forward(from, cutter, to.clone(), self.finish.subscribe())?);
        }
        let pid = start(rank, self.options, pmi::connect(&self.hub, rank)?, their_stdout, their_stderr)?;
        self.pids.push(pid);
        self.running.insert(pid, rank);
        Ok(())
    }

    fn child_ended(&mut self, pid: i32, status: ExitStatus) {
        // Anything else is an orphan of a rank.
        let Some(rank) = self.running.remove(&pid) else { return };
        let how = describe(status);
        let unfinished = self.hub.borrow_mut().ended(rank, &format!("it {how}"));
        // What it said last comes before how it ended.
        while let Ok(notice) = self.notices.try_recv() {
            self.notice(notice);
        }
        if status.success() && !unfinished {
            return;
        }
        if !self.ending.has_failed() {
            let without = if status.success() { " without finalizing" } else { "" };
            let others = if self.running.is_empty() { "" } else { "; ending the others" };
            self.say(format!("rank {rank} (pid {pid}) {how}{without}{others}"));
        }
        let actions = self.ending.failed(code(status));
        self.act(actions);
    }

    fn notice(&mut self, (rank, what): Notice) {
        let actions = match what {
            Answer::Abort { code, reason } => {
                let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
                self.say(format!("{} aborted the job with code {code}{reason}", self.name(rank)));
                self.ending.aborted(rank, code)
            }
            Answer::Broken(what) => {
                self.say(format!("{} broke the PMI-1 protocol: {what}; ending the job", self.name(rank)));
                self.ending.failed(1)
            }
            Answer::Replies(_) => return,
        };
        self.act(actions);
    }

    fn signalled(&mut self, signal: Signal) {
        let actions = self.ending.signalled(signal);
        let name = signals::name(signal);
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
                        // A rank that was not collected yet, so the number is its own group's; one without members is
                        // an error that means what is wanted.
                        let _ = Pid::from_raw(*pid).map(|group| kill_process_group(group, signal));
                    }
                }
                Action::KillAll => drop(kill()),
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
    async fn finish(self, signals: &mut Signals) -> u8 {
        self.finish.send_replace(true);
        let code = self.ending.code();
        let Self { mut forwarders, out, err, written, finish: _finish, .. } = self;
        drop((out, err));
        let output = async {
            while forwarders.join_next().await.is_some() {}
            for done in written {
                // An error is the sign: the thread has dropped its end.
                let _ = done.await;
            }
        };
        tokio::select! {
            () = output => code,
            signal = signals.next() => if code == 0 { 128 + signal.as_raw() as u8 } else { code },
        }
    }
}
