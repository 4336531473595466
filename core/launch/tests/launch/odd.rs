#![allow(unsafe_code)]
//! Unusual environments: inherited signals, terminals, missing descriptors, refused system calls.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use farside_harness::{Marked, farside, itself, refuse};

/// `farside run -n 2` and a shell with a script, started with signals blocked or ignored.
fn inherits(script: &str, set: fn()) -> Marked {
    let mut job = Marked::run(2, &["--", "sh", "-c", script]);
    let set = move || {
        set();
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made.
    unsafe { job.command.pre_exec(set) };
    job
}

fn block_all() {
    // SAFETY: a set that is filled before it is read.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

fn ignore_ends_of_children() {
    // SAFETY: an action without code.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

#[test]
fn signals_that_the_launcher_inherits_blocked_or_ignored_change_nothing() {
    // Bit 16: SIGCHLD.
    let script = "while read -r name set; do case $name in SigBlk:|SigIgn:) echo $name $((0x$set & 1 << 16));; esac; \
                  done </proc/$$/status";
    for set in [block_all, ignore_ends_of_children] {
        let done = inherits(script, set).finish();
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(done.out.matches("SigBlk: 0").count() + done.out.matches("SigIgn: 0").count(), 4, "{done:?}");
        assert_eq!(inherits("exit $PMI_RANK", set).finish().code, Some(1));
        let mut job = inherits("trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done", set);
        let mut running = job.start();
        running.await_lines("ready", 2);
        running.signal("TERM");
        assert_eq!(running.finish().code, Some(4));
        job.wait_until_gone();
    }
}

/// Both ends of a new terminal.
fn terminal() -> (File, File) {
    let (mut master, mut slave) = (-1, -1);
    let name = std::ptr::null_mut();
    // SAFETY: two live numbers, and null where that is allowed.
    let rc =
        unsafe { libc::openpty(&raw mut master, &raw mut slave, name, std::ptr::null_mut(), std::ptr::null_mut()) };
    assert_eq!(rc, 0);
    // SAFETY: new descriptors that are no one else's.
    unsafe { (File::from_raw_fd(master), File::from_raw_fd(slave)) }
}

#[test]
fn launcher_of_a_terminal_runs_in_the_background_and_prints_though_others_may_not() {
    let (mut keys, screen) = terminal();
    // The end of the input follows a line.
    keys.write_all(b"typed\n\x04").unwrap();
    let script = "set -m; stty tostop; \
                  \"$0\" run -n 2 true & wait $!; echo background $?; \
                  \"$0\" run -n 2 cat >/dev/tty; echo foreground $?";
    let mut job = Marked::new("sh");
    job.command.args(["-c", script]).arg(farside()).stdin(screen);
    let own_session = || {
        // SAFETY: system calls on the terminal that is standard input.
        let rc = unsafe { libc::setsid().min(libc::ioctl(libc::STDIN_FILENO, libc::TIOCSCTTY, 0)) };
        if rc < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: between fork and exec only system calls are made.
    unsafe { job.command.pre_exec(own_session) };
    let done = job.finish();
    assert_eq!(done.out, "background 0\nforeground 0\n", "{done:?}");
    // The line appears as it is typed, and as rank 0 prints it. A terminal that no rank has open ends in an error.
    let (mut shown, mut bytes) = (Vec::new(), [0; 4096]);
    while let Ok(n @ 1..) = keys.read(&mut bytes) {
        shown.extend_from_slice(&bytes[..n]);
    }
    let shown = String::from_utf8_lossy(&shown);
    assert_eq!(shown.matches("typed\r\n").count(), 2, "{shown}");
}

#[test]
fn launcher_without_standard_descriptors_runs() {
    let mut job = Marked::new("sh");
    job.command.args(["-c", "exec \"$0\" run -n 2 sh -c 'echo x; exit $((3 * PMI_RANK))' <&- >&- 2>&-"]).arg(farside());
    assert_eq!(job.finish().code, Some(3));
}

/// The program of the test below: the launcher, with system calls refused.
#[test]
fn as_a_launcher_that_is_refused() {
    let Ok(errno) = std::env::var("FARSIDE_TEST_REFUSED") else { return };
    refuse(&[libc::SYS_pidfd_open, libc::SYS_pidfd_send_signal], errno.parse().unwrap());
    let script = "setsid sleep 1000 & [ $PMI_RANK = 0 ] || exit 5; sleep 1000";
    panic!("{}", Command::new(farside()).args(["run", "-n", "2", "sh", "-c", script]).exec());
}

#[test]
fn launcher_that_may_not_open_processes_leaves_none_behind() {
    // The program is built first, so that its build is not affected by the refused calls.
    let _ = farside();
    for errno in [libc::EPERM, libc::ENOSYS] {
        let [program, arguments @ ..] = &itself("odd::as_a_launcher_that_is_refused")[..] else { unreachable!() };
        let mut job = Marked::new(program);
        job.command.args(arguments).env("FARSIDE_TEST_REFUSED", errno.to_string());
        let done = job.finish();
        assert_eq!(done.code, Some(5), "{done:?}");
    }
}
