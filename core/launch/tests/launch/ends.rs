//! Every end of a job: exit codes, dead ranks, a dead launcher, signals. After each end, no process may be left.

use farside_harness::{Marked, children, itself, signal};

use crate::kvs;

/// A rank that has left two processes behind, one of them in a session of its own.
const LITTER: &str = "setsid sleep 1000 & sleep 1000 & echo ready; wait";

fn shell(ranks: u32, script: &str) -> Marked {
    Marked::run(ranks, &["--", "sh", "-c", script])
}

#[test]
fn end_code_is_that_of_the_failing_rank() {
    for (script, code) in [
        ("exit 0", 0),
        ("test $PMI_RANK != 1 || exit 5", 5),
        ("test $PMI_RANK != 1 || kill -SEGV $$", 139),
        ("test $PMI_RANK != 1 || kill -KILL $$", 137),
    ] {
        let done = shell(3, script).finish();
        assert_eq!(done.code, Some(code), "{script}: {done:?}");
        assert_eq!(done.err.contains("farside: rank 1 (pid "), code != 0, "{script}: {done:?}");
    }
}

#[test]
fn end_of_a_program_that_cannot_start() {
    let done = Marked::run(2, &["/nowhere/program"]).finish();
    assert!(done.code == Some(127) && done.err.contains("/nowhere/program"), "{done:?}");
    assert_eq!(Marked::run(2, &["/etc/passwd"]).finish().code, Some(126));
    assert_eq!(Marked::run(0, &["true"]).finish().code, Some(2));
    assert_eq!(Marked::run(1, &[""; 0]).finish().code, Some(2));
    assert_eq!(Marked::run(1, &["--env", "x", "true"]).finish().code, Some(2));
}

#[test]
fn option_that_does_not_exist_is_refused_and_any_behind_the_program_passed_on() {
    let done = Marked::run(2, &["--foo", "true"]).finish();
    assert!(done.code == Some(2) && done.err.contains("'--foo'"), "{done:?}");
    let done = Marked::run(1, &["echo", "--prefix", "-n", "--", "--help"]).finish();
    assert_eq!((done.code, done.out.as_str()), (Some(0), "--prefix -n -- --help\n"), "{done:?}");
}

/// Runs `farside run -n RANKS` under a limit of the shell's `ulimit`.
fn limited(ranks: u32, limit: &str) -> farside_harness::Finished {
    let script = format!("ulimit {limit}; exec \"$0\" run -n {ranks} echo started");
    let mut job = Marked::new("sh");
    job.command.args(["-c", &script]).arg(farside_harness::farside());
    job.finish()
}

#[test]
fn limit_of_descriptors_that_is_too_low_is_an_error_with_a_remedy() {
    for (ranks, limit, remedy) in [(1, 8, "ulimit -n 35"), (200, 100, "ulimit -n 632")] {
        let done = limited(ranks, &format!("-n {limit}"));
        assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{done:?}");
        assert!(done.err.contains("RLIMIT_NOFILE") && done.err.contains(remedy), "{done:?}");
        assert!(!done.err.contains("panicked"), "{done:?}");
    }
    assert_eq!(limited(1, "-n 35").code, Some(0), "as many as it asks for are enough");
    assert_eq!(limited(20, "-n 92").code, Some(0));
}

#[test]
fn more_ranks_than_the_machine_can_have_are_refused_before_any_is_started() {
    let done = limited(100_000, "-n 1024");
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{done:?}");
    assert!(done.err.contains("100000 ranks need") && done.err.contains("start fewer ranks"), "{done:?}");
}

#[test]
fn ranks_exchange_values_and_end_in_order() {
    let kvs = kvs();
    for ranks in [1, 2, 4, 32] {
        let done = Marked::run(ranks, &[&kvs, "5000"]).finish();
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
        for rank in 0..ranks {
            assert!(done.out.contains(&format!("rank {rank} of {ranks}: {ranks} values by pmi-1")), "{done:?}");
        }
    }
    let largest = Marked::run(2, &[&kvs, "65536"]).finish();
    assert_eq!(largest.code, Some(0), "{largest:?}");
}

#[test]
fn rank_lost_in_any_phase_is_named_by_the_others() {
    let kvs = kvs();
    for phase in ["start", "init", "put", "fence", "finalize"] {
        for (how, code, said) in [
            ("kill", 137, "was killed by signal 9 (SIGKILL)"),
            ("3", 3, "exited with code 3"),
            ("0", 1, "exited with code 0 without finalizing"),
        ] {
            let done = Marked::run(3, &[&kvs, "5000", "1", phase, how]).finish();
            assert_eq!(done.code, Some(code), "{phase} {how}: {done:?}");
            // A rank that ends without an error and has never joined is missed only by the others.
            if (phase, how) != ("start", "0") {
                assert!(
                    done.err.contains("farside: rank 1 (pid ") && done.err.contains(said),
                    "{phase} {how}: {done:?}"
                );
            }
            // After the last fence the others no longer need it.
            if phase != "finalize" {
                assert_eq!(done.err.matches("a rank is gone").count(), 2, "{phase} {how}: {done:?}");
                assert_eq!(done.err.matches("peer rank 1").count(), 2, "{phase} {how}: {done:?}");
            }
        }
    }
}

#[test]
fn rank_that_closes_its_connection_and_lives_on_is_lost() {
    let script = "[ $PMI_RANK = 1 ] || exec $0; eval \"exec $PMI_FD>&-\"; exec sleep 1000";
    let done = Marked::run(2, &["bash", "-c", script, &kvs()]).finish();
    assert!(done.code == Some(1) && done.err.contains("peer rank 1: its connection"), "{done:?}");
}

#[test]
fn rank_that_aborts_ends_the_job_with_its_code_and_reason() {
    let done = Marked::run(3, &[&kvs(), "10", "2", "put", "abort"]).finish();
    assert_eq!(done.code, Some(7), "{done:?}");
    assert!(
        done.err.contains("farside: rank 2 (pid ")
            && done.err.contains("code 7: asked to: set FARSIDE_SHM_DIR, 100% sure\n"),
        "{done:?}"
    );
    assert_eq!(done.err.matches("asked to").count(), 1, "the reason is printed once: {done:?}");
}

#[test]
fn rank_that_breaks_the_protocol_ends_the_job() {
    let script = "[ $PMI_RANK = 0 ] || exec sleep 1000; echo nonsense >&$PMI_FD; sleep 1000";
    let done = Marked::run(2, &["bash", "-c", script]).finish();
    assert!(done.code == Some(1) && done.err.contains("broke the PMI-1 protocol"), "{done:?}");
    assert!(done.err.contains("\"nonsense\""), "{done:?}");
}

#[test]
fn others_that_ignore_every_signal_are_killed() {
    let done = shell(3, "[ $PMI_RANK = 1 ] && exit 3; trap '' TERM INT HUP; while :; do sleep 1000; done").finish();
    assert_eq!(done.code, Some(3), "{done:?}");
}

#[test]
fn timeout_ends_the_job() {
    let done = Marked::run(2, &["--timeout", "1", "sleep", "1000"]).finish();
    assert!(done.code == Some(124) && done.err.contains("--timeout"), "{done:?}");
}

/// The program of the test below: rank 1 comes late to a barrier.
#[test]
fn as_a_rank_that_waits() {
    if std::env::var_os("FARSIDE_TEST_RANK").is_none() {
        return;
    }
    let job = farside_core::Job::init().unwrap();
    let world = job.world().unwrap();
    world.barrier().unwrap();
    if job.rank() == 1 {
        println!("ready");
        std::thread::sleep(std::time::Duration::from_secs(1000));
    }
    world.barrier().unwrap();
}

/// The number of ranks in a line such as "farside: ranks 0, 2-3: ..".
fn ranks_in(line: &str) -> u32 {
    let names = line.split(':').nth(1).unwrap().trim_start_matches(" ranks ").trim_start_matches(" rank ");
    let ends = names.split(", ").map(|run| run.split('-').map(|n| n.parse::<u32>().unwrap()).collect::<Vec<_>>());
    ends.map(|run| run[run.len() - 1] - run[0] + 1).sum()
}

#[test]
fn timeout_says_who_waits_for_whom() {
    // With a bill, the ranks of a barrier know for which rank they wait.
    for (bill, whom) in [("0", "farside: ranks 0, 2-3: barrier of team 0 waits for"), ("1000", "waits for rank 1\n")] {
        let options = ["--timeout=2", "-x", "FARSIDE_TEST_RANK=1", "-x", &format!("FARSIDE_STALL_S={bill}")];
        let options = options.map(str::to_owned);
        let program = itself("ends::as_a_rank_that_waits");
        let done = Marked::run(4, &[&options[..], &program].concat()).finish();
        assert_eq!(done.code, Some(124), "{done:?}");
        let computes = "farside: rank 1: waits for no rank: it computes, polls or is stopped\n";
        assert!([computes, whom].iter().all(|line| done.err.contains(line)), "{done:?}");
        let answered: u32 = done.err.lines().filter(|line| line.starts_with("farside: rank")).map(ranks_in).sum();
        assert_eq!(answered, 4, "a line for each: {done:?}");
    }
    // Ranks that have not reached their start are known without a question.
    let script = "[ $PMI_RANK = 1 ] && exec sleep 1000; exec $0";
    let done = Marked::run(3, &["--timeout", "1", "--", "sh", "-c", script, &kvs()]).finish();
    let known = "farside: ranks 0, 2: start-up waits for ranks that have not joined the job\n\
                 farside: rank 1: has not joined the job\n";
    assert!(done.code == Some(124) && done.err.contains(known), "{done:?}");
}

#[test]
fn processes_that_a_rank_left_behind_are_killed() {
    let done = shell(2, "setsid sleep 1000 & sleep 1000 & exit 0").finish();
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[test]
fn launcher_killed_leaves_nothing() {
    let mut job = shell(3, LITTER);
    let mut running = job.start();
    running.await_lines("ready", 3);
    running.signal("KILL");
    assert_eq!(running.finish().code, None);
    job.wait_until_gone();
}

#[test]
fn worker_killed_leaves_nothing() {
    let mut job = shell(3, LITTER);
    let mut running = job.start();
    running.await_lines("ready", 3);
    let worker = children(running.child.id());
    assert_eq!(worker.len(), 1);
    signal(worker[0], "KILL");
    let done = running.finish();
    assert!(done.code == Some(137) && done.err.contains("worker was killed"), "{done:?}");
    job.wait_until_gone();
}

#[test]
fn ranks_die_with_the_worker_without_any_help() {
    let mut job = shell(3, "echo ready; exec sleep 1000");
    let mut running = job.start();
    running.await_lines("ready", 3);
    let worker = children(running.child.id())[0];
    running.signal("STOP");
    signal(worker, "KILL");
    job.wait_until(|left| left.len() == 1);
    running.signal("CONT");
    assert_eq!(running.finish().code, Some(137));
    job.wait_until_gone();
}

#[test]
fn rank_killed_takes_its_litter_along() {
    let mut job = shell(2, LITTER);
    let mut running = job.start();
    running.await_lines("ready", 2);
    let worker = children(running.child.id())[0];
    signal(children(worker)[0], "KILL");
    assert_eq!(running.finish().code, Some(137));
    job.wait_until_gone();
}

#[test]
fn interrupt_is_passed_on_to_the_ranks() {
    for (name, code) in [("INT", 4), ("TERM", 4), ("HUP", 4)] {
        let mut job = shell(2, "trap 'echo got; exit 4' INT TERM HUP; echo ready; while :; do sleep 0.05; done");
        let mut running = job.start();
        running.await_lines("ready", 2);
        running.signal(name);
        running.await_lines("got", 2);
        assert_eq!(running.finish().code, Some(code), "{name}");
        job.wait_until_gone();
    }
}

#[test]
fn signals_of_the_program_are_passed_on_and_end_nothing_by_themselves() {
    for name in ["USR1", "USR2", "WINCH", "CONT"] {
        let script = format!("trap 'echo got' {name}; trap 'exit 4' INT; echo ready; while :; do sleep 0.05; done");
        let mut job = shell(2, &script);
        let mut running = job.start();
        running.await_lines("ready", 2);
        for _ in 0..2 {
            running.signal(name);
            running.await_lines("got", 2);
        }
        running.signal("INT");
        let done = running.finish();
        assert_eq!(done.code, Some(4), "{name}: {done:?}");
        assert!(!done.err.contains(name), "nothing is said: {done:?}");
        job.wait_until_gone();
    }
    let mut job = shell(2, "echo ready; exec sleep 1000");
    let mut running = job.start();
    running.await_lines("ready", 2);
    running.signal("USR2");
    let done = running.finish();
    assert!(
        done.code == Some(128 + libc::SIGUSR2) && done.err.contains("SIGUSR2"),
        "ranks without a handler: {done:?}"
    );
}

/// Waits until a process has stopped, or continues.
fn await_stop(pid: u32, stopped: bool) {
    let is_stopped = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ");
    let deadline = std::time::Instant::now() + farside_harness::PATIENCE;
    while is_stopped() != stopped {
        assert!(std::time::Instant::now() < deadline, "process {pid}: stopped should be {stopped}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn job_that_is_suspended_stops_with_all_ranks_and_goes_on() {
    // Each rank is a single process: a shell whose child is stopped between vfork and exec waits for the child, and
    // does not stop itself.
    let mut job = shell(2, "echo ready; exec sleep 1000");
    let mut running = job.start();
    running.await_lines("ready", 2);
    let guard = running.child.id();
    let mut all = children(children(guard)[0]);
    assert_eq!(all.len(), 2);
    all.push(guard);
    for _ in 0..2 {
        running.signal("TSTP");
        all.iter().for_each(|pid| await_stop(*pid, true));
        running.signal("CONT");
        all.iter().for_each(|pid| await_stop(*pid, false));
    }
    running.signal("INT");
    assert_eq!(running.finish().code, Some(128 + libc::SIGINT));
    job.wait_until_gone();
}

#[test]
fn every_rank_has_a_session_of_its_own() {
    let done = shell(3, "read -r _ _ _ _ _ session _ </proc/$$/stat; [ $session = $$ ] && echo alone").finish();
    assert_eq!(done.out, "alone\n".repeat(3), "{done:?}");
}

#[test]
fn hangups_pass_by_what_nohup_has_started() {
    let run = "trap '' HUP; exec \"$0\" run -n 2 sh -c 'echo ready; sleep 1; echo done'";
    let mut job = Marked::new("sh");
    job.command.args(["-c", run]).arg(farside_harness::farside());
    let mut running = job.start();
    running.await_lines("ready", 2);
    running.signal("HUP");
    running.signal("HUP");
    let done = running.finish();
    assert!(done.code == Some(0) && done.out.matches("done").count() == 2, "{done:?}");
}

#[test]
fn interrupt_that_ranks_handle_well_is_no_failure() {
    let mut job = shell(2, "trap 'exit 0' INT; echo ready; while :; do sleep 0.05; done");
    let mut running = job.start();
    running.await_lines("ready", 2);
    running.signal("INT");
    assert_eq!(running.finish().code, Some(0));
}

#[test]
fn interrupt_twice_kills_ranks_that_ignore_it() {
    let mut job = shell(2, "trap '' INT TERM HUP; setsid sleep 1000 & echo ready; while :; do sleep 1000; done");
    let mut running = job.start();
    running.await_lines("ready", 2);
    running.signal("INT");
    running.await_errors(&["passed on to the ranks"]);
    assert!(job.survivors().len() >= 6, "{:?}", job.survivors());
    running.signal("INT");
    assert_eq!(running.finish().code, Some(130));
    job.wait_until_gone();
}

#[test]
fn foreign_launcher_is_refused() {
    for (name, value) in [("PMIX_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "4"), ("PMI_RANK", "2"), ("PALS_RANKID", "1")] {
        let mut program = Marked::new(kvs());
        program.command.env(name, value);
        let done = program.finish();
        assert_eq!(done.code, Some(1));
        assert!(done.err.contains(&format!("{name}={value}")) && done.err.contains("rank 0 of 1"), "{done:?}");
    }
    let done = Marked::new(kvs()).finish();
    assert!(done.code == Some(0) && done.out.contains("by singleton"), "{done:?}");
}

#[test]
fn descriptor_that_is_not_a_launchers_is_refused() {
    for (fd, part) in [("0", "PMI_FD=0"), ("999", "PMI_FD=999"), ("-1", "PMI_FD=-1")] {
        let mut program = Marked::new(kvs());
        program.command.env("PMI_FD", fd).env("PMI_RANK", "0").env("PMI_SIZE", "2");
        let done = program.finish();
        assert!(done.code == Some(1) && done.err.contains(part), "{done:?}");
    }
}
