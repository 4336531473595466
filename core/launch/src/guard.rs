//! The two processes of `farside run`, each of which cleans up when the other is killed. If ranks are on several
//! machines, the worker's child is another launcher (`nodes.rs`), not the ranks.
//!
//! - The **guard** takes the signals of the terminal and of the user, and passes them on to the worker, which is in a
//!   process group of its own. If the worker is killed, the ranks die with it (`PR_SET_PDEATHSIG`), their descendants
//!   become children of the guard, and it kills them.
//! - The **worker** gets a signal if the guard is killed (`PR_SET_PDEATHSIG` again), and kills every descendant.
//!
//! One case is not covered: if both are killed with SIGKILL at the same instant, the ranks die with the worker, but
//! processes that the ranks have started stay, unless they asked to die with their parent.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use farside_core::{Error, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::process::{Child, Command};

use crate::descendants::{become_subreaper, kill_all};
use crate::ending::{code, describe};
use crate::options::{Front, Launch};
use crate::signals::{self, Signals};
use crate::worker::runtime;

/// Interval at which a launcher in the background checks whether it may read the terminal.
const BACKGROUND: Duration = Duration::from_millis(200);

/// Runs a job in a worker under the guard of this process; returns the exit code.
///
/// # Errors
/// `Limit` when a limit of the machine is below the number of ranks; `System` when the kernel refuses a process or the
/// signals.
pub(crate) fn run(front: Front, launch: &Launch) -> Result<u8> {
    for note in &launch.notes {
        eprintln!("{}: no effect: {note}", front.name());
    }
    if !launch.is_foreign() {
        crate::limits::check(launch.ranks())?;
    }
    become_subreaper()?;
    let status = runtime()?.block_on(watch(front))?;
    if status.signal().is_some() {
        eprintln!("farside: the launcher's worker {}; ending the ranks", describe(status));
    }
    for pid in kill_all() {
        eprintln!("farside: process {pid} has not ended after SIGKILL");
    }
    Ok(code(status))
}

/// Starts the worker and passes signals on until it has ended; returns its exit status.
async fn watch(front: Front) -> Result<ExitStatus> {
    let mut signals = Signals::take()?;
    let mut worker = start(front)?;
    let pid = worker.id().and_then(|pid| Pid::from_raw(pid as i32));
    loop {
        tokio::select! {
            status = worker.wait() => return status.map_err(|e| Error::system("wait for the worker", e)),
            signal = signals.next() => {
                // Sending fails if the worker has ended, which is handled above.
                let _ = pid.map(|pid| kill_process(pid, signal));
                if signal == Signal::TSTP {
                    // The shell sees that the job is stopped; the worker is not stopped, and stops the ranks.
                    let _ = kill_process(getpid(), Signal::STOP);
                }
            }
        }
    }
}

/// Starts this program again, as the worker. The worker is outside the terminal's foreground process group and may not
/// read the terminal, so this process reads it for rank 0.
fn start(front: Front) -> Result<Child> {
    let failed = |e| Error::system("start the launcher's worker", e);
    let mut arguments = std::env::args_os();
    let terminal = std::io::stdin().is_terminal();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(arguments.next().unwrap_or_default()).process_group(0);
    command.args(arguments.by_ref().take(usize::from(front == Front::Run)));
    command.args(["--guard", &std::process::id().to_string()]).args(arguments);
    command.stdin(if terminal { Stdio::piped() } else { Stdio::inherit() });
    let mut worker = command.spawn().map_err(failed)?;
    if let Some(input) = worker.stdin.take() {
        let input = File::from(input.into_owned_fd().map_err(failed)?);
        // The thread ends with the process.
        std::thread::Builder::new().name("farside-input".into()).spawn(move || feed(input)).map_err(failed)?;
    }
    Ok(worker)
}

/// Passes terminal input on to rank 0 while this process is in the terminal's foreground. The read of a process in the
/// background would stop it (SIGTTIN), though its ranks may read nothing; with the signal blocked, the read fails.
fn feed(mut input: File) {
    signals::block(Signal::TTIN);
    let (terminal, mut bytes) = (std::io::stdin(), [0; 4096]);
    loop {
        let _ = poll(&mut [PollFd::new(&terminal, PollFlags::IN)], None);
        match rustix::io::read(&terminal, &mut bytes) {
            Ok(0) => return,
            Ok(n) if input.write_all(&bytes[..n]).is_err() => return,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::IO) if signals::is_in_background() => std::thread::sleep(BACKGROUND),
            Err(_) => return,
        }
    }
}
