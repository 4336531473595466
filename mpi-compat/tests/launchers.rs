//! Programs under third-party launchers: a C program under PRRTE, and Rust and C programs under Slurm, which the tests
//! run on this machine alone, with private daemons, ports and folders. `ci/test slurm` runs the latter.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use farside_harness::{Finished, Marked, PATIENCE, example, mpi_folder, mpi_include, peer, signal, skip, works};
use tempfile::TempDir;

/// Every rank waits for a message that never arrives.
const RING: &str = r#"#include <mpi.h>
    #include <stdio.h>
    int main(void) {
        int rank, size, value;
        MPI_Init(NULL, NULL);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        MPI_Barrier(MPI_COMM_WORLD);
        printf("ready\n");
        fflush(stdout);
        MPI_Recv(&value, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return 0;
    }"#;

/// Compiles a C program into a folder.
fn compile(folder: &Path, source: &Path) -> PathBuf {
    let program = folder.join(source.file_stem().unwrap());
    let mut compiler = Command::new("cc");
    compiler.arg(source).arg("-o").arg(&program).arg("-I").arg(mpi_include()).arg("-L").arg(mpi_folder());
    assert!(compiler.arg("-lmpi_abi").status().expect("a C compiler").success(), "{}", source.display());
    program
}

/// A program that increments window elements under locks and checks the result.
fn counter(folder: &Path) -> PathBuf {
    compile(folder, Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/rma_lock_counter.c")))
}

fn check(done: &Finished) {
    assert!(done.code == Some(0) && !done.out.contains("FAILED"), "{done:?}");
}

#[test]
fn c_program_is_started_by_prterun() {
    let Some(program) = peer("c_program_is_started_by_prterun", "openmpi", "prterun") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut job = Marked::new(program);
    job.command.args(["--allow-run-as-root", "--map-by", ":oversubscribe", "-n", "4"]).arg(counter(folder.path()));
    job.command.env("LD_LIBRARY_PATH", mpi_folder());
    check(&job.finish());
}

/// Slurm on this machine: no authentication, no control groups, all on the loopback interface.
struct Slurm {
    /// The shell that has started the daemons, and ends them when its input ends.
    keeper: Child,
    folder: TempDir,
}

impl Slurm {
    /// Starts Slurm; `None`, and the test is skipped, if it is not installed or lacks this kind of PMI.
    fn start(test: &str, mpi: &str) -> Option<Self> {
        // srun does not even report its version without a configuration.
        if !works("sh", &["-c", "[ $(id -u) = 0 ] && slurmctld -V && slurmd -V && command -v srun"]) {
            skip(test, "it needs root and Slurm (Debian: slurm-wlm)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().to_str().unwrap();
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let name = name.trim().split('.').next().unwrap();
        // Both ports are reserved at the same time, so they differ.
        let free = [0; 2].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
        let [control, node] = free.map(|listener| listener.local_addr().unwrap().port());
        let conf = format!(
            "ClusterName=one\nSlurmctldHost={name}(127.0.0.1)\nSlurmctldPort={control}\nSlurmdPort={node}\n\
             AuthType=auth/none\nCredType=cred/none\nProctrackType=proctrack/pgid\nTaskPlugin=task/none\n\
             JobAcctGatherType=jobacct_gather/none\nSlurmUser=root\nSlurmdUser=root\n\
             CommunicationParameters=NoInAddrAny,NoCtldInAddrAny\nStateSaveLocation={place}/state\n\
             SlurmdSpoolDir={place}/spool\nSlurmctldPidFile={place}/slurmctld.pid\nSlurmdPidFile={place}/slurmd.pid\n\
             SelectType=select/cons_tres\nSwitchType=switch/none\nSlurmdParameters=config_overrides\n\
             MailProg=/bin/true\nTmpFS={place}/tmp\nReturnToService=2\nInactiveLimit=3\nKillWait=3\n\
             NodeName={name} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN\n\
             PartitionName=all Nodes=ALL Default=YES State=UP\n"
        );
        std::fs::write(folder.path().join("slurm.conf"), conf).unwrap();
        ["state", "spool", "tmp"].iter().for_each(|name| std::fs::create_dir(folder.path().join(name)).unwrap());
        // Processes of steps have the folder of the daemon that has started them.
        let script = "cd $0; slurmctld -D -i -f $0/slurm.conf >slurmctld.log 2>&1 & first=$!\n\
                      slurmd -D -f $0/slurm.conf >slurmd.log 2>&1 & second=$!\n\
                      cat; kill -KILL $first $second\n\
                      for step in $(grep -ls slurmstepd /proc/[0-9]*/comm); do step=${step%/comm}\n\
                      [ \"$(readlink $step/cwd)\" != $0 ] || kill -KILL ${step#/proc/}; done";
        let mut keeper = Command::new("sh");
        keeper.args(["-c", script, place]).stdin(Stdio::piped());
        let me = Self { keeper: keeper.spawn().unwrap(), folder };
        let deadline = Instant::now() + PATIENCE;
        while me.query("sinfo", &["-h", "-o", "%T"]).out.trim() != "idle" {
            let logs = ["slurmctld.log", "slurmd.log"].map(|name| std::fs::read_to_string(me.folder.path().join(name)));
            assert!(Instant::now() < deadline, "Slurm does not start: {logs:?}");
            std::thread::sleep(PATIENCE / 200);
        }
        let kinds = me.query("srun", &["--mpi=list"]);
        if !(kinds.out + &kinds.err).contains(mpi) {
            skip(test, &format!("this Slurm has no plugin {mpi}"));
            return None;
        }
        Some(me)
    }

    /// A command of Slurm.
    fn command(&self, program: &str) -> Marked {
        let mut command = Marked::new(program);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SLURM_")) {
            command.command.env_remove(name);
        }
        command.command.env("SLURM_CONF", self.folder.path().join("slurm.conf")).current_dir(&self.folder);
        command
    }

    fn query(&self, program: &str, arguments: &[&str]) -> Finished {
        self.command(program).finish_with(arguments)
    }

    /// `srun` of four ranks.
    fn run(&self, mpi: &str, options: &[&str], program: impl AsRef<Path>, arguments: &[&str]) -> Marked {
        let mut job = self.command("srun");
        job.command.arg(format!("--mpi={mpi}")).args(["-n", "4"]).args(options).arg(program.as_ref()).args(arguments);
        job.command.env("LD_LIBRARY_PATH", mpi_folder());
        job
    }

    fn ring(&self) -> PathBuf {
        let source = self.folder.path().join("ring.c");
        std::fs::write(&source, RING).unwrap();
        compile(self.folder.path(), &source)
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // These jobs may be left by a failed test.
        let conf = self.folder.path().join("slurm.conf");
        let _ = Command::new("scancel").args(["--signal=KILL", "--user=root"]).env("SLURM_CONF", conf).output();
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// The parent of a process, and its name.
fn parent(pid: u32) -> Option<(u32, String)> {
    let stat = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    let parent = stat(pid)?.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
    Some((parent, stat(parent)?.split_once('(')?.1.rsplit_once(')')?.0.to_owned()))
}

/// The processes of Slurm that have started ranks.
fn steps(job: &Marked) -> Vec<u32> {
    let pids = job.survivors().into_iter().filter_map(|line| line.split(':').next()?.parse().ok());
    let mut steps: Vec<u32> =
        pids.filter_map(parent).filter(|(_, name)| name == "slurmstepd").map(|(pid, _)| pid).collect();
    steps.sort_unstable();
    steps.dedup();
    steps
}

/// Jobs from their start to each kind of end.
fn jobs(test: &str, mpi: &str, bootstrap: &str) {
    let Some(slurm) = Slurm::start(test, mpi) else { return };
    let kvs = example("farside-launch", "kvs");
    let done = slurm.run(mpi, &[], &kvs, &["5000"]).finish();
    check(&done);
    for rank in 0..4 {
        assert!(done.out.contains(&format!("rank {rank} of 4: 4 values by {bootstrap}")), "{done:?}");
    }
    let done = slurm.run(mpi, &[], example("farside-rma", "hello_put_get"), &[]).finish();
    assert!(done.code == Some(0) && done.out.contains("rank 3 has 102 from the left, and gets 103"), "{done:?}");
    let heat = ["--version", "all", "--size", "60", "--steps", "20"];
    let done = slurm.run(mpi, &[], example("farside-rma", "heat_stencil"), &heat).finish();
    assert!(done.code == Some(0) && done.out.matches("same bits as serial").count() == 4, "{done:?}");
    check(&slurm.run(mpi, &[], counter(slurm.folder.path()), &[]).finish());

    // Slurm treats a step whose tasks end immediately as one that has not started.
    let done = slurm.run(mpi, &[], "sh", &["-c", "sleep 1; exit $((SLURM_PROCID == 2 ? 5 : 0))"]).finish();
    assert_eq!(done.code, Some(5), "{done:?}");
    let done = slurm.run(mpi, &[], &kvs, &["10", "1", "put", "child"]).finish();
    assert!(done.code == Some(0) && done.err.contains("a child process of a rank inherits"), "{done:?}");
    // Ranks that wait for a rank that is killed end immediately, not after the time limit of start-up.
    for how in ["kill", "abort", "3"] {
        let done = slurm.run(mpi, &["--kill-on-bad-exit"], &kvs, &["10", "1", "put", how]).finish();
        assert!(done.code != Some(0) && !done.err.contains("timed out"), "{how}: {done:?}");
    }
    let ring = slurm.ring();
    for what in ["rank", "srun", "step"] {
        let mut job = slurm.run(mpi, &["--kill-on-bad-exit"], &ring, &[]);
        let mut running = job.start();
        running.await_lines("ready", 4);
        match what {
            "rank" => {
                let rank = job.survivors().into_iter().find(|line| !line.contains("srun")).unwrap();
                signal(rank.split(':').next().unwrap().parse().unwrap(), "KILL");
            }
            "srun" => running.signal("TERM"),
            _ => steps(&job).into_iter().for_each(|pid| signal(pid, "KILL")),
        }
        if what == "step" {
            // Only srun remains of the marked processes, and it waits for the step.
            job.wait_until(|left| left.iter().all(|line| line.contains(": srun ")));
            running.signal("KILL");
        }
        let done = running.finish();
        assert_ne!(done.code, Some(0), "{what}: {done:?}");
        job.wait_until_gone();
    }
}

#[test]
#[ignore = "ci/test slurm"]
fn slurm_runs_jobs_by_pmi_2() {
    jobs("slurm_runs_jobs_by_pmi_2", "pmi2", "pmi-1");
}

#[test]
#[ignore = "ci/test slurm"]
fn slurm_runs_jobs_by_pmix() {
    jobs("slurm_runs_jobs_by_pmix", "pmix", "pmix");
}

/// The controller checks every 30 seconds for jobs whose srun has not answered for `InactiveLimit`.
#[test]
#[ignore = "ci/test slurm"]
fn slurm_ends_ranks_whose_srun_was_killed() {
    let Some(slurm) = Slurm::start("slurm_ends_ranks_whose_srun_was_killed", "pmi2") else { return };
    let mut job = slurm.run("pmi2", &[], slurm.ring(), &[]);
    let mut running = job.start();
    running.await_lines("ready", 4);
    running.signal("KILL");
    assert_eq!(running.finish().code, None);
    let deadline = Instant::now() + 6 * PATIENCE;
    while !job.survivors().is_empty() {
        assert!(Instant::now() < deadline, "left behind: {:?}", job.survivors());
        std::thread::sleep(PATIENCE / 20);
    }
}
