//! Output, input and environment of ranks.

use std::io::Write;
use std::process::Stdio;

use farside_harness::Marked;

fn shell(ranks: u32, options: &[&str], script: &str) -> Marked {
    Marked::run(ranks, &[options, &["--", "sh", "-c", script]].concat())
}

#[test]
fn output_with_prefix_keeps_lines_whole() {
    let script = r#"i=0; while [ $i -lt 300 ]; do printf a$PMI_RANK; printf "b $i\n"; i=$((i+1)); done
        echo error $PMI_RANK >&2; printf tail$PMI_RANK"#;
    let done = shell(3, &["--prefix"], script).finish();
    assert_eq!((done.code, done.out.lines().count()), (Some(0), 3 * 301));
    for rank in 0..3 {
        let mut want: Vec<String> = (0..300).map(|i| format!("[{rank}] a{rank}b {i}")).collect();
        want.push(format!("[{rank}] tail{rank}"));
        let got: Vec<&str> = done.out.lines().filter(|l| l.starts_with(&format!("[{rank}]"))).collect();
        assert_eq!(got, want);
        assert!(done.err.contains(&format!("[{rank}] error {rank}\n")));
    }
    assert_eq!(done.err.lines().count(), 3);
}

#[test]
fn output_longer_than_a_line_may_be_is_split() {
    let done = shell(2, &["--prefix"], "head -c 1500000 /dev/zero | tr '\\0' x").finish();
    let lines: Vec<(&str, usize)> = done.out.lines().map(|l| (&l[..4], l.len() - 4)).collect();
    for rank in ["[0] ", "[1] "] {
        let mine: Vec<usize> = lines.iter().filter(|(p, _)| *p == rank).map(|(_, n)| *n).collect();
        assert_eq!(mine, [1 << 20, 1_500_000 - (1 << 20)]);
    }
}

#[test]
fn output_of_one_rank_is_unchanged() {
    assert_eq!(shell(1, &[], "printf 'a\\nb'").finish().out, "a\nb");
}

#[test]
fn output_larger_than_every_buffer_arrives() {
    let done = shell(2, &[], "seq 1 200000").finish();
    let want: u64 = (1..=200_000).sum::<u64>() * 2;
    assert_eq!(done.out.lines().map(|l| l.parse::<u64>().unwrap()).sum::<u64>(), want);
}

#[test]
fn output_without_a_reader_ends_the_job() {
    let mut job = shell(2, &[], "while :; do echo y; done 2>/dev/null");
    let mut running = job.start();
    running.await_lines("y", 1);
    running.out = None;
    assert_ne!(running.finish().code, Some(0));
    job.wait_until_gone();
}

#[test]
fn setting_that_is_mistyped_is_one_warning_with_the_nearest_name() {
    let options = ["-x", "FARSIDE_TIMOUT_S=5", "-x", "FARSIDE_TEST_RANK=0"].map(str::to_owned);
    let done = Marked::run(2, &[&options[..], &farside_harness::itself("output::as_a_rank")].concat()).finish();
    let line = "farside: FARSIDE_TIMOUT_S is set, but is not a setting: did you mean FARSIDE_TIMEOUT_S?\n";
    assert_eq!((done.code, done.err.as_str()), (Some(0), line), "{done:?}");
}

/// A datagram socket separates the bytes of different writes.
#[test]
fn line_of_the_runtime_is_one_write() {
    let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let program = farside_harness::itself("output::as_a_rank");
    let mut rank = Marked::new(&program[0]);
    rank.command.args(&program[1..]).env("FARSIDE_TIMOUT_S", "5").env("FARSIDE_TEST_RANK", "0");
    rank.command.stderr(std::os::fd::OwnedFd::from(theirs));
    assert_eq!(rank.finish().code, Some(0));
    ours.set_nonblocking(true).unwrap();
    let mut line = [0; 500];
    let n = ours.recv(&mut line).unwrap();
    let wanted = "farside: FARSIDE_TIMOUT_S is set, but is not a setting: did you mean FARSIDE_TIMEOUT_S?\n";
    assert_eq!(String::from_utf8_lossy(&line[..n]), wanted);
}

/// The program of the tests above.
#[test]
fn as_a_rank() {
    if std::env::var_os("FARSIDE_TEST_RANK").is_some() {
        farside_core::Job::init().unwrap().finalize().unwrap();
    }
}

#[test]
fn input_goes_to_rank_0_only() {
    let mut job = shell(3, &["--prefix"], "cat");
    job.command.stdin(Stdio::piped());
    let mut running = job.start();
    running.child.stdin.take().unwrap().write_all(b"one\ntwo\n").unwrap();
    assert_eq!(running.finish().out, "[0] one\n[0] two\n");
}

#[test]
fn ranks_get_their_variables_and_no_others() {
    let mut job = shell(2, &["--env", "COLOUR=red=blue", "--prefix"], "env | grep -E '^(PMI|COLOUR)' | sort");
    job.command.env("PMI_PORT", "host:1").env("PMI_ID", "7");
    let done = job.finish();
    for rank in 0..2 {
        let prefix = format!("[{rank}] ");
        let mine: Vec<&str> = done.out.lines().filter_map(|l| l.strip_prefix(&prefix)).collect();
        assert_eq!(mine[..2], ["COLOUR=red=blue", "PMI_APPNUM=0"], "{mine:?}");
        assert!(mine[2].starts_with("PMI_FD="), "{mine:?}");
        assert_eq!(mine[3..], [format!("PMI_RANK={rank}"), "PMI_SIZE=2".to_owned()]);
    }
}

#[test]
fn ranks_are_bound_in_turn_if_that_is_asked_for() {
    let allowed = farside_core::processors::allowed();
    let ranks = allowed.len() + 1;
    let of = |options: &[&str]| -> Vec<String> {
        let done = shell(ranks as u32, options, "grep Cpus_allowed_list /proc/self/status").finish();
        let mut lines: Vec<String> = done.out.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let line = |rank: usize| format!("[{rank}] Cpus_allowed_list:\t{}", allowed[rank % allowed.len()]);
    let mut wanted: Vec<String> = (0..ranks).map(line).collect();
    wanted.sort();
    assert_eq!(of(&["--prefix", "--bind", "core"]), wanted);
    let free = of(&["--prefix"]);
    assert!(free.len() == ranks && (free != wanted || allowed.len() == 1), "{free:?}");
}

#[test]
fn ranks_get_no_descriptor_of_another_rank() {
    let done = shell(5, &[], "ls -l /proc/self/fd | grep -c socket:").finish();
    assert_eq!(done.out, "1\n".repeat(5));
}

#[test]
fn ranks_start_with_the_signals_that_the_launcher_started_with() {
    let masks = |status: &str| -> Vec<u64> {
        let of = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).unwrap().trim().to_owned();
        // Signals above 31 belong to the C library.
        let mask = |name| u64::from_str_radix(&of(name), 16).unwrap() & 0x7fff_ffff;
        vec![mask("SigBlk:"), mask("SigIgn:")]
    };
    let started = Marked::new("cat").finish_with(&["/proc/self/status"]);
    let rank = Marked::run(1, &["cat", "/proc/self/status"]).finish();
    // Signals that the launcher passes on are handled even if it was started with them ignored.
    let handled = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM].iter().fold(0u64, |m, s| m | 1 << (s - 1));
    let wanted = [masks(&started.out)[0], masks(&started.out)[1] & !handled];
    assert_eq!(masks(&rank.out), wanted);
    let ignored = Marked::new("sh").finish_with(&[
        "-c",
        "trap '' HUP; exec \"$0\" run -n 1 cat /proc/self/status",
        farside_harness::farside().to_str().unwrap(),
    ]);
    assert_eq!(masks(&ignored.out)[1], wanted[1] | 1);
}
