#![allow(unsafe_code)]
//! Starting one rank: its environment, its descriptors, its process group, and its promise to die with the launcher.

use std::io::PipeWriter;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use farside_core::processors;
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::{Bind, RunOptions};

/// Variables by which another launcher would reach through to the ranks.
const NOT_OURS: [&str; 4] = ["PMI_PORT", "PMI_ID", "PMI_SPAWNED", "PMI_KVS"];

/// Starts a rank as the leader of a process group of its own; its process number, which is the group's too. Rank 0 has
/// the launcher's standard input. To be called from the main thread: the kernel kills the rank when the thread that
/// started it ends.
///
/// # Errors
/// What the system says: no such program, no permission, no descriptors, no processes.
pub fn start(
    rank: u32,
    options: &RunOptions,
    pmi: UnixStream,
    stdout: PipeWriter,
    stderr: PipeWriter,
) -> std::io::Result<i32> {
    let mut command = Command::new(&options.program[0]);
    command.args(&options.program[1..]).process_group(0).stdout(stdout).stderr(stderr);
    command.stdin(if rank == 0 { Stdio::inherit() } else { Stdio::null() });
    for name in NOT_OURS {
        command.env_remove(name);
    }
    command.envs(options.variables.iter().map(|(n, v)| (n, v)));
    command.env("PMI_FD", pmi.as_raw_fd().to_string()).env("PMI_RANK", rank.to_string());
    command.env("PMI_SIZE", options.ranks.to_string());
    let launcher = getpid();
    let processors = processors(rank, options.bind)?;
    // SAFETY: `prepare` only makes system calls, which is allowed between fork and exec.
    unsafe { command.pre_exec(move || Ok(prepare(launcher, &pmi, processors.as_ref())?)) };
    // The child is waited for by its number, with all the others; dropping the handle leaves it alone.
    Ok(command.spawn()?.id() as i32)
}

/// The processor that a rank is to be bound to.
fn processors(rank: u32, bind: Bind) -> std::io::Result<Option<CpuSet>> {
    let all = match bind {
        Bind::None => return Ok(None),
        Bind::Core => processors::allowed(),
    };
    let turn = rank as usize % all.len().max(1);
    all.get(turn).map(|p| processors::only(*p)).transpose().map_err(std::io::Error::other)
}

/// Runs in the new process, before the program does.
fn prepare(launcher: Pid, pmi: &UnixStream, processors: Option<&CpuSet>) -> rustix::io::Result<()> {
    if let Some(set) = processors {
        sched_setaffinity(None, set)?;
    }
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The launcher may have died before the call above; then no signal would ever come.
    if getppid() != Some(launcher) {
        return Err(Errno::SRCH);
    }
    // This rank keeps its own end of the connection; those of the others are closed by exec.
    fcntl_setfd(pmi, FdFlags::empty())
}
