#![allow(unsafe_code)]
//! The start of one rank: its environment, its descriptors, its session, and its end with the launcher.

use std::ffi::{OsStr, OsString};
use std::io::PipeWriter;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use farside_core::processors;
use rustix::fs::{Access, access};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setsid};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::numa;
use crate::options::{Bind, Environment, Inherited, Launch, Program};
use crate::signals;

/// Variables of another launcher, which ranks must not see.
const NOT_OURS: [&str; 4] = ["PMI_PORT", "PMI_ID", "PMI_SPAWNED", "PMI_KVS"];

/// Starts a rank of the program with this number, in a session of its own; returns its process number, which is also
/// that of its process group. A kernel that groups processes by session (`CONFIG_SCHED_AUTOGROUP`) then gives each rank
/// the share of the processors of another user's program, instead of one such share to all ranks. Rank 0 has the
/// launcher's standard input. This must be called from the main thread, since the kernel kills the rank when the thread
/// that started it ends.
///
/// # Errors
/// The error of the system: no such program, no permission, no descriptors, no processes.
pub(crate) fn start(
    launch: &Launch,
    rank: u32,
    number: u32,
    pmi: UnixStream,
    [stdout, stderr]: [PipeWriter; 2],
) -> std::io::Result<i32> {
    let program = &launch.programs[number as usize];
    let mut command = Command::new(place(program));
    command.arg0(&program.words[0]).args(&program.words[1..]).stdout(stdout).stderr(stderr);
    command.stdin(if rank == 0 { Stdio::inherit() } else { Stdio::null() });
    environment(&mut command, &program.environment);
    command.env("PMI_FD", pmi.as_raw_fd().to_string()).env("PMI_RANK", rank.to_string());
    command.env("PMI_SIZE", launch.ranks().to_string()).env("PMI_APPNUM", number.to_string());
    if let Some(folder) = &program.folder {
        command.current_dir(folder);
    }
    let launcher = getpid();
    let processors = processors(rank, launch.bind)?;
    // SAFETY: `prepare` only makes system calls, which is allowed between fork and exec.
    unsafe { command.pre_exec(move || Ok(prepare(launcher, &pmi, processors.as_ref())?)) };
    // The child is awaited by its number, like all others; dropping the handle does not affect it.
    Ok(command.spawn()?.id() as i32)
}

/// Sends another launcher, as a child of this process, SIGTERM when this process is killed. This must be called from
/// the main thread, like [`start`].
pub(crate) fn end_with_parent(command: &mut Command) {
    let parent = getpid();
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::TERM))?;
        if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: `prepare` only makes system calls, which is allowed between fork and exec.
    unsafe { command.pre_exec(prepare) };
}

/// The path of the program; its name if it is not found.
fn place(program: &Program) -> OsString {
    find(&program.words[0], &program.path).map_or_else(|| program.words[0].clone(), PathBuf::into_os_string)
}

/// The path of a program whose name has no slash: it is searched in the folders of `-path`, and then in the launcher's
/// `PATH`, even if ranks do not get that variable.
pub(crate) fn find(name: &OsStr, folders: &[PathBuf]) -> Option<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return None;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = folders.iter().cloned().chain(std::env::split_paths(&path));
    folders.filter_map(|folder| std::path::absolute(folder.join(name)).ok()).find(|file| is_program(file))
}

pub(crate) fn is_program(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

fn environment(command: &mut Command, environment: &Environment) {
    if let Some(Inherited::Only(names)) = &environment.inherited {
        command.env_clear();
        command.envs(names.iter().filter_map(|name| Some((OsStr::new(name), std::env::var_os(name)?))));
    }
    for name in NOT_OURS {
        command.env_remove(name);
    }
    command.envs(environment.set.iter().map(|(name, value)| (name, value)));
}

/// The processors that a rank is to be bound to.
fn processors(rank: u32, bind: Bind) -> std::io::Result<Option<CpuSet>> {
    let all: Vec<Vec<usize>> = match bind {
        Bind::None => return Ok(None),
        Bind::Core => processors::allowed().into_iter().map(|processor| vec![processor]).collect(),
        Bind::Numa => numa::nodes(Path::new("/sys/devices/system/node"), &processors::allowed()),
    };
    let turn = rank as usize % all.len().max(1);
    all.get(turn).map(|set| processors::set(set)).transpose().map_err(std::io::Error::other)
}

/// Runs in the new process, before the program does.
fn prepare(launcher: Pid, pmi: &UnixStream, processors: Option<&CpuSet>) -> rustix::io::Result<()> {
    signals::unblock();
    setsid()?;
    if let Some(set) = processors {
        sched_setaffinity(None, set)?;
    }
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The launcher may have died before the call above; then no signal would ever come.
    if getppid() != Some(launcher) {
        return Err(Errno::SRCH);
    }
    // This rank keeps its own end of the connection; `exec` closes those of the others.
    fcntl_setfd(pmi, FdFlags::empty())
}
