#![allow(unsafe_code)]
//! Starting one rank: its environment, its descriptors, its process group, and its promise to die with the launcher.

use std::io::PipeWriter;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::thread::{CpuSet, sched_setaffinity};

use super::guard::SignalMask;
use super::{Bind, RunOptions};
use crate::error::{Error, Result};
use crate::processors;

/// Variables by which another launcher would reach through to the ranks.
const NOT_OURS: [&str; 4] = ["PMI_PORT", "PMI_ID", "PMI_SPAWNED", "PMI_KVS"];

/// What one rank is connected to.
#[derive(Debug)]
pub struct Wires {
    /// Its end of the PMI-1 connection.
    pub pmi: UnixStream,
    /// Its standard input.
    pub stdin: Stdio,
    /// Its standard output.
    pub stdout: PipeWriter,
    /// Its standard error.
    pub stderr: PipeWriter,
}

/// Starts a rank as the leader of a process group of its own; its process number, which is the group's too.
/// To be called from the main thread: the kernel kills the rank when the thread that started it ends.
///
/// # Errors
/// What the system says: no such program, no permission, no descriptors, no processes.
pub fn start(rank: u32, options: &RunOptions, wires: Wires, mask: SignalMask) -> std::io::Result<i32> {
    let (program, arguments) = options.program.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    let pmi = wires.pmi.as_raw_fd();
    let launcher = std::process::id() as i32;
    let mut command = Command::new(program);
    command.args(arguments).process_group(0).stdin(wires.stdin).stdout(wires.stdout).stderr(wires.stderr);
    for name in NOT_OURS {
        command.env_remove(name);
    }
    command.envs(options.variables.iter().map(|(n, v)| (n, v)));
    command.env("PMI_FD", pmi.to_string()).env("PMI_RANK", rank.to_string());
    command.env("PMI_SIZE", options.ranks.to_string());
    let bound = bound(rank, options.bind)?;
    // SAFETY: `prepare` only makes system calls, which is allowed between fork and exec.
    unsafe { command.pre_exec(move || prepare(launcher, pmi, mask, bound.as_ref())) };
    // The child is waited for by its number, with all the others; dropping the handle leaves it alone.
    let child = command.spawn()?;
    Ok(child.id() as i32)
}

/// The processor that a rank is to be bound to.
fn bound(rank: u32, bind: Bind) -> std::io::Result<Option<CpuSet>> {
    let processors = match bind {
        Bind::None => return Ok(None),
        Bind::Core => processors::allowed(),
    };
    let turn = rank as usize % processors.len().max(1);
    processors.get(turn).map(|p| processors::only(*p)).transpose().map_err(std::io::Error::other)
}

/// Runs in the new process, before the program does.
fn prepare(launcher: i32, pmi: RawFd, mask: SignalMask, bound: Option<&CpuSet>) -> std::io::Result<()> {
    if let Some(set) = bound {
        sched_setaffinity(None, set)?;
    }
    // SAFETY: PR_SET_PDEATHSIG takes an integer.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // The launcher may have died before the call above; then no signal would ever come.
    // SAFETY: getppid cannot fail.
    if unsafe { libc::getppid() } != launcher {
        return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
    }
    // This rank keeps its own end of the connection; those of the others are closed by exec.
    // SAFETY: F_SETFD touches nothing but the flag of the descriptor.
    if unsafe { libc::fcntl(pmi, libc::F_SETFD, 0) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // A shell starts commands in the background with these ignored, and that is inherited; but what the launcher
    // passes on is meant for the ranks.
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: the default action is no function of ours.
        if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
            return Err(std::io::Error::last_os_error());
        }
    }
    mask.apply()
}

/// A name that no other job has: 128 random bits.
///
/// # Errors
/// `System` when the kernel gives no random bytes.
pub fn job_name() -> Result<String> {
    let mut bytes = [0u8; 16];
    // SAFETY: the buffer is live and as long as said.
    let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if n != bytes.len() as isize {
        return Err(Error::last_os("name the job"));
    }
    Ok(format!("farside-{:032x}", u128::from_ne_bytes(bytes)))
}
