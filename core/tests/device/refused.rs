#![allow(unsafe_code)]
//! Systems that refuse calls to a rank, and the replacements that the library uses. The table is that of
//! `core/README.md`.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use farside_conformance::Setup;
use farside_core::{ErrorKind, Job, Result};
use farside_harness::{Finished, Marked, refuse, refuse_opens, skip, works};

use crate::system::{collect_long_blocks, use_user_memory};
use crate::world::{World, pattern};

/// The system calls that a rank makes fail, and their error.
const CALLS: &str = "FARSIDE_TEST_REFUSED";
/// The rank that must not open memory of others.
const UNMAPPED: &str = "FARSIDE_TEST_UNMAPPED";
/// A user without privileges.
const PLAIN_USER: u32 = 65534;

const EPERM: i32 = libc::EPERM;
const ENOSYS: i32 = libc::ENOSYS;

/// System calls that are refused together, as in `core/README.md`, and their error.
const REFUSED: &[(&[(&str, libc::c_long)], i32)] = &[
    (&[("pidfd_open", libc::SYS_pidfd_open)], EPERM),
    (&[("memfd_create", libc::SYS_memfd_create)], ENOSYS),
    (&[("fallocate", libc::SYS_fallocate)], EPERM),
    (
        &[
            ("process_vm_readv", libc::SYS_process_vm_readv),
            ("process_vm_writev", libc::SYS_process_vm_writev),
            ("userfaultfd", libc::SYS_userfaultfd),
        ],
        ENOSYS,
    ),
    (
        &[
            ("membarrier", libc::SYS_membarrier),
            ("sched_setattr", libc::SYS_sched_setattr),
            ("sched_getattr", libc::SYS_sched_getattr),
            ("sched_getaffinity", libc::SYS_sched_getaffinity),
            ("get_mempolicy", libc::SYS_get_mempolicy),
        ],
        EPERM,
    ),
];

/// The program of the tests: a job of two ranks with a put, messages, barriers, and windows over memory of the user and of
/// the runtime, which prints the name of its device.
#[test]
fn as_a_rank_that_is_refused() {
    let Ok(calls) = std::env::var(CALLS) else { return };
    let (errno, calls) = calls.split_once(':').unwrap();
    let calls: Vec<_> = calls.split_whitespace().map(|call| call.parse().unwrap()).collect();
    refuse(&calls, errno.parse().unwrap());
    if std::env::var_os(UNMAPPED).is_some_and(|rank| Some(rank) == std::env::var_os("PMI_RANK")) {
        // Segments of other ranks are opened in the same way.
        refuse_opens(libc::O_RDWR | libc::O_CLOEXEC, libc::EACCES);
    }
    let job = Job::init().unwrap();
    communicate(&job).unwrap();
    println!("device {}", job.device().capabilities().name);
    if std::env::var_os("FARSIDE_TEST_LOST").is_some() {
        if job.rank() == 1 {
            // SAFETY: ends this process.
            unsafe { libc::raise(libc::SIGKILL) };
        }
        let e = job.world().unwrap().barrier().unwrap_err();
        assert_eq!((e.kind(), e.blamed()), (ErrorKind::PeerLost, Some(1)), "{e}");
        return println!("lost");
    }
    job.finalize().unwrap();
}

fn communicate(job: &Job) -> Result<()> {
    // A short region is a slot of a segment, a long one is a file.
    for len in [1000, 300 << 10] {
        let world = World::new(job, &Setup::default(), len)?;
        world.write(1 - world.me(), 3, &pattern(world.me(), len - 3))?;
        world.barrier()?;
        assert!(world.own_bytes()[3..] == pattern(1 - world.me(), len - 3));
        world.barrier()?;
    }
    use_user_memory(job)?;
    // At their third use buffers are moved onto shared memory.
    (0..4).try_for_each(|_| collect_long_blocks(job))
}

/// Two ranks, which a command like `unshare` may start.
fn ranks(before: &[&str], program: &str, refused: &str) -> Marked {
    let [_, arguments @ ..] = &farside_harness::itself("refused::as_a_rank_that_is_refused")[..] else {
        unreachable!()
    };
    let command: Vec<&str> =
        before.iter().copied().chain([program]).chain(arguments.iter().map(String::as_str)).collect();
    let mut job = Marked::run(2, &[&["--"], &command[..]].concat());
    job.command.env(CALLS, refused).env("FARSIDE_LOG", "warn");
    job
}

fn own_program() -> String {
    std::env::current_exe().unwrap().to_str().unwrap().to_owned()
}

/// Checks that both ranks have succeeded with this device, and that rank 0 reports once if it replaces shared memory.
fn check(what: &str, device: &str, done: &Finished) {
    assert_eq!(done.code, Some(0), "{what}: {done:?}");
    assert_eq!(done.out.matches(&format!("device {device}\n")).count(), 2, "{what}: {done:?}");
    let said =
        done.err.lines().filter(|line| line.contains("without shared memory") || line.contains("do not share memory"));
    let said: Vec<_> = said.filter(|line| line.contains(device)).collect();
    assert_eq!(said.len(), usize::from(device != "shm"), "{what}: {done:?}");
}

fn is_left_out(test: &str) -> bool {
    let other = !crate::harness::shm();
    if other {
        skip(test, "only shared memory needs these");
    }
    other
}

#[test]
fn each_refused_system_call_has_a_stand_in() {
    if is_left_out("refused system calls") {
        return;
    }
    let table = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    for (calls, errno) in REFUSED {
        for (name, _) in *calls {
            assert!(table.contains(&format!("`{name}`")), "core/README.md should say what stands in for {name}");
        }
        let numbers: Vec<String> = calls.iter().map(|(_, number)| number.to_string()).collect();
        let done = ranks(&[], &own_program(), &format!("{errno}: {}", numbers.join(" "))).finish();
        check(calls[0].0, "shm", &done);
    }
    let all: Vec<String> = REFUSED.iter().flat_map(|(calls, _)| *calls).map(|(_, number)| number.to_string()).collect();
    check("all", "shm", &ranks(&[], &own_program(), &format!("{ENOSYS}: {}", all.join(" "))).finish());
}

#[test]
fn lost_rank_is_named_where_its_process_may_not_be_opened() {
    if is_left_out("lost ranks without pidfd_open") {
        return;
    }
    let mut job = ranks(&[], &own_program(), &format!("{ENOSYS}: {}", libc::SYS_pidfd_open));
    job.command.env("FARSIDE_TEST_LOST", "1");
    let done = job.finish();
    assert!(done.code == Some(137) && done.out.contains("\nlost\n"), "{done:?}");
}

#[test]
fn ranks_that_may_not_map_each_other_use_tcp_and_warn_once() {
    if is_left_out("user namespaces, /proc") {
        return;
    }
    let nothing = format!("{EPERM}:");
    let no_proc = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /proc && exec \"$0\" \"$@\""];
    for (what, before) in [("user namespaces", &["unshare", "-Ur"][..]), ("no /proc", &no_proc)] {
        let probe = [&before[1..], &["true"]].concat();
        if works(before[0], &probe) {
            check(what, "tcp", &ranks(before, &own_program(), &nothing).finish());
            let mut forced = ranks(before, &own_program(), &nothing);
            forced.command.env("FARSIDE_DEVICE", "shm");
            let done = forced.finish();
            assert!(done.code != Some(0) && done.err.contains("; "), "{what}: {done:?}");
            assert!(what == "no /proc" || done.err.contains("leave FARSIDE_DEVICE at auto"), "{done:?}");
        } else {
            skip(what, "this system does not allow it");
        }
    }
}

#[test]
fn one_rank_that_may_not_map_another_is_known_to_all() {
    if is_left_out("a rank that may not map others") {
        return;
    }
    for rank in ["0", "1"] {
        let mut job = ranks(&[], &own_program(), &format!("{EPERM}:"));
        job.command.env(UNMAPPED, rank);
        let done = job.finish();
        check("may not map", "tcp", &done);
        assert!(done.err.contains(&format!("(at rank {rank})")), "{done:?}");
    }
}

/// Runs a job as a user without privileges.
fn as_plain_user(mut job: Marked) -> Finished {
    // SAFETY: the call only reads an attribute of this process.
    if unsafe { libc::geteuid() } == 0 {
        job.command.uid(PLAIN_USER).gid(PLAIN_USER);
    }
    job.finish()
}

#[test]
fn plain_user_with_any_umask_and_with_a_program_that_is_only_executable() {
    if is_left_out("umask, execute-only programs") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = dir.path().join("program");
    std::fs::copy(own_program(), &program).unwrap();
    let set = |mode| std::fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
    let run = |mask: u32| {
        let mut job = ranks(&[], program.to_str().unwrap(), &format!("{EPERM}:"));
        let set = move || {
            // SAFETY: a system call.
            unsafe { libc::umask(mask as libc::mode_t) };
            Ok(())
        };
        // SAFETY: between fork and exec only a system call is made.
        unsafe { job.command.pre_exec(set) };
        as_plain_user(job)
    };
    set(0o555);
    if !Path::new("/proc/self/fd").exists() || as_plain_user(Marked::run(1, &["true"])).code != Some(0) {
        return skip("plain users", "they may not run programs that are here");
    }
    for mask in [0o777, 0o077] {
        check("umask", "shm", &run(mask));
    }
    set(0o111);
    check("execute-only", "tcp", &run(0o022));
}

/// The program of the test below.
#[test]
fn as_a_rank_without_standard_descriptors() {
    if std::env::var_os(CALLS).is_none() {
        return;
    }
    // SAFETY: no other code of this process uses the descriptors meanwhile.
    (0..3).for_each(|number| unsafe { _ = libc::close(number) });
    let job = Job::init().unwrap();
    let null =
        |number| std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok_and(|path| path == Path::new("/dev/null"));
    let are_null = (0..3).all(null);
    println!("not into a segment");
    communicate(&job).and_then(|()| job.finalize()).unwrap();
    std::process::exit(if are_null { 0 } else { 3 });
}

#[test]
fn missing_descriptors_are_replaced_and_too_few_are_an_error_with_a_remedy() {
    let mut job = Marked::run(2, &farside_harness::itself("refused::as_a_rank_without_standard_descriptors"));
    job.command.env(CALLS, "");
    assert_eq!(job.finish().code, Some(0));
    let few = ["sh", "-c", "ulimit -n 8; exec \"$0\" \"$@\""];
    let done = ranks(&few, &own_program(), &format!("{EPERM}:")).finish();
    assert!(done.code != Some(0) && done.err.contains("(`ulimit -n`)"), "{done:?}");
}
