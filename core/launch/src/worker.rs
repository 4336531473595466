//! The worker of `farside run`: starts the ranks and waits until all of them and their descendants have ended.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
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

use crate::descendants::{become_subreaper, kill, kill_all, reap};
use crate::ending::{Action, Ending, code, describe};
use crate::options::Launch;
use crate::output::{Cutter, Sink, forward};
use crate::pmi::{self, Hub, Notice};
use crate::server::{Answer, Server};
use crate::signals::{self, Signals};
use crate::spawn::start;
use crate::waits::Answers;

/// Time that ranks have to answer what they wait for; a waiting rank checks for the question every
/// `FARSIDE_PEER_CHECK_MS`.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// Maximum time in which the kernel ends a rank that is killed.
const KILL_TIME: Duration = Duration::from_millis(50);
/// The exit code of a worker without a guard; no process reads it.
pub(crate) const KILLED: u8 = 137;

/// The runtime in which both processes wait: on one thread, which is the parent of the ranks.
///
/// # Errors
/// `System` when the kernel refuses descriptors.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| Error::system("start the launcher", e))
}

/// Runs the job, as the worker of the process `guard`; returns the exit code.
///
/// # Errors
/// `System` when the kernel refuses what the job needs before its first rank.
pub(crate) fn run(launch: &Launch, guard: i32) -> Result<u8> {
    become_subreaper()?;
    // The worker is outside the terminal's foreground process group, but its lines must be printed nevertheless (`stty
    // tostop`). Its threads inherit this.
    signals::block(Signal::TTOU);
    let result = tokio::task::LocalSet::new().block_on(&runtime()?, job(launch, guard));
    result.inspect_err(|_| drop(kill_all()))
}

async fn job(launch: &Launch, guard: i32) -> Result<u8> {
    let failed = |e| Error::system("start the launcher", e);
    let mut signals = Signals::take()?;
    let mut children = signal(SignalKind::child()).map_err(failed)?;
    let Some(mut guard_ended) = end_of_guard(guard)? else { return Ok(KILLED) };
    let mut job = Job::new(launch)?;
    for (rank, number) in (0..).zip(launch.numbers()) {
        if let Err(e) = job.start(rank, number) {
            job.say(format!(
                "cannot start rank {rank}: {}: {e}",
                Path::new(&launch.programs[number as usize].words[0]).display()
            ));
            kill_all();
            job.finish(&mut signals).await;
            return Ok(match e.kind() {
                std::io::ErrorKind::NotFound => 127,
                std::io::ErrorKind::PermissionDenied => 126,
                _ => 1,
            });
        }
    }
    job.limit = launch.timeout.map(|s| Instant::now() + Duration::from_secs(s));
    loop {
        let mut ended: Vec<_> = std::iter::from_fn(reap).collect();
        let is_error = |(_, status): &(i32, ExitStatus)| status.code().is_some_and(|code| code != 0);
        if !job.ending.has_failed() && !ended.is_empty() && ended.iter().all(is_error) {
            // The connections of a rank that is killed end before the kernel reports its end.
            tokio::time::sleep(KILL_TIME).await;
            ended.extend(std::iter::from_fn(reap));
        }
        // The kernel reports them in any order. Ranks that were killed come first, since others may have ended because
        // of them.
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
                job.say(format!("the job ran longer than {} s (--timeout); ending it", launch.timeout.unwrap_or(0)));
                job.ask();
            }
            () = at(job.answers_until) => job.time_out(),
        }
    }
    for pid in kill_all() {
        job.say(format!("process {pid} has not ended after SIGKILL"));
    }
    Ok(job.finish(&mut signals).await)
}

/// The signal that comes when the guard is killed; `None` if that has happened already.
///
/// # Errors
/// `System` when the kernel refuses it.
pub(crate) fn end_of_guard(guard: i32) -> Result<Option<tokio::signal::unix::Signal>> {
    let failed = |e| Error::system("start the launcher", e);
    // Users do not send this signal to programs; the signals that they send are passed on.
    let ended = signal(SignalKind::from_raw(Signal::POWER.as_raw())).map_err(failed)?;
    set_parent_process_death_signal(Some(Signal::POWER)).map_err(|e| failed(e.into()))?;
    Ok((getppid() == Pid::from_raw(guard)).then_some(ended))
}

/// Waits until a time, or forever.
pub(crate) async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

struct Job<'a> {
    launch: &'a Launch,
    /// Ranks that have not ended, by process number.
    running: HashMap<i32, u32>,
    pids: Vec<i32>,
    ending: Ending,
    hub: Rc<RefCell<Hub>>,
    notices: UnboundedReceiver<Notice>,
    /// Time at which [`Ending::wake`] is called.
    wake: Option<Instant>,
    /// Time at which the job has run too long.
    limit: Option<Instant>,
    /// Once the job has run too long: the answers to what ranks wait for, and the time at which they are printed.
    answers: Answers,
    answers_until: Option<Instant>,
    forwarders: JoinSet<()>,
    finish: watch::Sender<bool>,
    out: Sink,
    err: Sink,
    written: [oneshot::Receiver<()>; 2],
}

impl<'a> Job<'a> {
    fn new(launch: &'a Launch) -> Result<Self> {
        let thread = |e| Error::system("start a thread for output", e);
        let (out, out_written) = Sink::start(std::io::stdout()).map_err(thread)?;
        let (err, err_written) = Sink::start(std::io::stderr()).map_err(thread)?;
        let (sender, notices) = unbounded_channel();
        Ok(Self {
            launch,
            running: HashMap::new(),
            pids: Vec::new(),
            ending: Ending::default(),
            hub: Hub::new(Server::new(launch.numbers().collect()), sender),
            notices,
            wake: None,
            limit: None,
            answers: Answers::default(),
            answers_until: None,
            forwarders: JoinSet::new(),
            finish: watch::Sender::new(false),
            out,
            err,
            written: [out_written, err_written],
        })
    }

    fn start(&mut self, rank: u32, number: u32) -> std::io::Result<()> {
        let (stdout, their_stdout) = std::io::pipe()?;
        let (stderr, their_stderr) = std::io::pipe()?;
        for (from, to) in [(stdout, &self.out), (stderr, &self.err)] {
            let cutter = Cutter::new(rank, self.launch.ranks(), self.launch.prefix);
            self.forwarders.spawn_local(forward(from, cutter, to.clone(), self.finish.subscribe())?);
        }
        let pid = start(self.launch, rank, number, pmi::connect(&self.hub, rank)?, [their_stdout, their_stderr])?;
        self.pids.push(pid);
        self.running.insert(pid, rank);
        Ok(())
    }

    fn child_ended(&mut self, pid: i32, status: ExitStatus) {
        // Any other process is an orphan of a rank.
        let Some(rank) = self.running.remove(&pid) else { return };
        let how = describe(status);
        let unfinished = self.hub.borrow_mut().ended(rank, &format!("it {how}"));
        // The rank's last lines are printed before the report of its end.
        while let Ok(notice) = self.notices.try_recv() {
            self.notice(notice);
        }
        if status.success() && !unfinished {
            return;
        }
        if !self.ending.has_failed() {
            let without = if status.success() {
                " without finalizing (`finalize`, or `MPI_Finalize`, ends a rank in order)"
            } else {
                ""
            };
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
            Answer::Waits(text) => {
                self.answers.add(rank, text);
                if self.answers.are_complete() && self.answers_until.is_some() {
                    self.time_out();
                }
                return;
            }
            Answer::Replies(_) => return,
        };
        self.act(actions);
    }

    /// Asks the ranks what they wait for.
    fn ask(&mut self) {
        self.answers = Answers::of(self.hub.borrow_mut().ask());
        self.answers_until = Some(Instant::now() + ANSWER_TIME);
        if self.answers.are_complete() {
            self.time_out();
        }
    }

    /// Prints what ranks wait for, and ends them.
    fn time_out(&mut self) {
        self.answers_until = None;
        let is_running = |rank: &u32| self.running.values().any(|running| running == rank);
        let doing = |rank| match is_running(&rank) {
            true => self.hub.borrow().doing(rank).to_owned(),
            false => "has ended".to_owned(),
        };
        for line in self.answers.table(0..self.launch.ranks(), doing) {
            self.say(line);
        }
        let actions = self.ending.timed_out();
        self.act(actions);
    }

    fn signalled(&mut self, signal: Signal) {
        let Some(name) = signals::ending(signal) else {
            // The group of a rank has no member whose parent is in the same session, so the kernel ignores TSTP there.
            let signal = if signal == Signal::TSTP { Signal::STOP } else { signal };
            return self.act(vec![Action::Signal(signal, None)]);
        };
        let actions = self.ending.signalled(signal);
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
                        // The rank is not collected yet, so the number is still that of its group. An error means that
                        // the group has no members left.
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

    /// Writes a line to standard error, between lines of the ranks.
    fn say(&self, text: String) {
        let err = self.err.clone();
        tokio::task::spawn_local(async move { err.write(format!("farside: {text}\n").into_bytes()).await });
    }

    /// Writes the rest of the ranks' output, unless a signal interrupts that; returns the exit code of the job.
    async fn finish(self, signals: &mut Signals) -> u8 {
        self.finish.send_replace(true);
        let code = self.ending.code();
        let Self { mut forwarders, out, err, written, finish: _finish, .. } = self;
        drop((out, err));
        let output = async {
            while forwarders.join_next().await.is_some() {}
            for done in written {
                // The receive error shows that the thread has dropped its end.
                let _ = done.await;
            }
        };
        tokio::select! {
            () = output => code,
            signal = signals.next() => if code == 0 { 128 + signal.as_raw() as u8 } else { code },
        }
    }
}
