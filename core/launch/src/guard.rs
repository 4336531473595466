//! The two processes of `farside run`, each of which cleans up when the other is killed. For ranks on several machines the
//! worker is another launcher (`nodes.rs`), which gets SIGTERM if the guard is killed.
//!
//! - The **guard** takes the signals of the terminal and of the user, and passes them on to the worker, which is in a
//!   process group of its own. If the worker is killed, the ranks die with it (`PR_SET_PDEATHSIG`), their descendants
//!   become children of the guard, and it kills them.
//! - The **worker** gets a signal if the guard is killed (`PR_SET_PDEATHSIG` again), and kills every descendant.
//!
//! One case is not covered: if both are killed with SIGKILL at the same instant, the ranks die with the worker, but
//! processes that the ranks have started stay, unless they asked to die with their parent.

use std::fs::File;
use std::io::IsTerminal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use farside_core::{Error, Result};
use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::process::Child;
use tokio::time::Instant;

use crate::descendants::{become_subreaper, kill_all};
use crate::ending::{TIMEOUT_CODE, code, describe};
use crate::options::{Front, Launch};
use crate::signals::Signals;
use crate::spawn::end_with_parent;
use crate::worker::{at, runtime};

/// Time that another launcher has to end after SIGTERM.
const LAUNCHER_TERM_TIME: Duration = Duration::from_secs(5);

/// Runs a job in a worker under the guard of this process; returns the exit code.
///
/// # Errors
/// `Limit` when a limit of the machine is below the number of ranks; `Launcher` when ranks are on several machines and
/// there is no launcher for them; `System` when the kernel refuses a process or the signals.
pub(crate) fn run(front: Front, launch: &Launch) -> Result<u8> {
    for note in &launch.notes {
        eprintln!("{}: no effect: {note}", front.name());
    }
    let (command, who, limit) = match launch.is_foreign() {
        true => {
            let mut command = crate::nodes::command(launch)?;
            end_with_parent(&mut command);
            (command, "launcher", launch.timeout)
        }
        false => {
            crate::limits::check(launch.ranks())?;
            // The worker itself ends a job in time.
            (worker(front), "launcher's worker", None)
        }
    };
    become_subreaper()?;
    let (status, timed_out) = runtime()?.block_on(watch(command, limit))?;
    if status.signal().is_some() {
        eprintln!("farside: the {who} {}; ending the ranks", describe(status));
    }
    for pid in kill_all() {
        eprintln!("farside: process {pid} has not ended after SIGKILL");
    }
    Ok(if timed_out { TIMEOUT_CODE } else { code(status) })
}

/// Starts the worker and passes signals on until it has ended; returns its exit status, and whether it was ended because
/// it had run for `limit` seconds.
async fn watch(command: Command, limit: Option<u64>) -> Result<(ExitStatus, bool)> {
    let mut signals = Signals::take()?;
    let mut worker = start(command)?;
    let pid = worker.id().and_then(|pid| Pid::from_raw(pid as i32));
    let mut end = limit.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut timed_out = false;
    // Sending fails where the worker has ended, which is seen below.
    let send = |signal| {
        let _ = pid.map(|pid| kill_process(pid, signal));
    };
    loop {
        tokio::select! {
            status = worker.wait() => {
                return status.map(|status| (status, timed_out)).map_err(|e| Error::system("wait for the worker", e));
            }
            signal = signals.next() => {
                send(signal);
                if signal == Signal::TSTP {
                    // The shell sees the job stopped; the worker, which is not, stops the ranks.
                    let _ = kill_process(getpid(), Signal::STOP);
                }
            }
            () = at(end) => {
                if !timed_out {
                    eprintln!("farside: the job ran longer than {} s (--timeout); ending it", limit.unwrap_or(0));
                }
                send(if timed_out { Signal::KILL } else { Signal::TERM });
                (timed_out, end) = (true, Some(Instant::now() + LAUNCHER_TERM_TIME));
            }
        }
    }
}

/// The command of this program again, as the worker.
fn worker(front: Front) -> Command {
    let mut arguments = std::env::args_os();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(arguments.next().unwrap_or_default());
    command.args(arguments.by_ref().take(usize::from(front == Front::Run)));
    command.args(["--guard", &std::process::id().to_string()]).args(arguments);
    command
}

/// Starts the worker, or another launcher. It is outside the terminal's foreground process group and may not read the
/// terminal, so this process reads it for rank 0.
fn start(mut command: Command) -> Result<Child> {
    let failed = |e| Error::system("start the launcher's worker", e);
    let terminal = std::io::stdin().is_terminal();
    command.process_group(0).stdin(if terminal { Stdio::piped() } else { Stdio::inherit() });
    let mut worker = tokio::process::Command::from(command).spawn().map_err(failed)?;
    if let Some(input) = worker.stdin.take() {
        let mut input = File::from(input.into_owned_fd().map_err(failed)?);
        // The thread ends with the process.
        let feed = move || drop(std::io::copy(&mut std::io::stdin(), &mut input));
        std::thread::Builder::new().name("farside-input".into()).spawn(feed).map_err(failed)?;
    }
    Ok(worker)
}
