//! A job whose ranks are on two hosts: in the emulated machine of `ci/rxe`, under `rxe-host`, where each host has its
//! own name, processes, shared memory and kernel identity. Started by `farside run`, and by MPICH's launcher, with its
//! proxies on both hosts, if that is installed. The ranks run this program.

use std::process::{Command, Stdio};

use farside_harness::{farside, itself, skip, works};
use farside_rma::prelude::*;

/// Environment variable with the number of ranks, set only in ranks.
const RANKS: &str = "FARSIDE_TEST_RANKS";

/// Not a test, but the program of the ranks.
#[test]
fn as_a_rank() {
    let Ok(ranks) = std::env::var(RANKS) else { return };
    if let Err(e) = rank(ranks.parse().unwrap()) {
        eprintln!("rank says: {e}");
        std::process::exit(3);
    }
}

/// Puts to the right neighbour and adds at rank 0, in the world team and in the team of the host.
fn rank(ranks: usize) -> Result<()> {
    let job = Job::init()?;
    let world = job.world()?;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!((world.size(), world.is_on_one_node()), (ranks, false));
    let node = world.split_by_node()?;
    assert_eq!(node.size(), ranks / 2);
    for team in [&world, &node] {
        let (me, size) = (team.rank(), team.size());
        let mut window = Window::<u64>::allocate(team, 4)?;
        for round in 0..20 {
            let mine = [1000 * round + me as u64; 2];
            window.fence(Assert::empty(), |e| e.put(&mine, (me + 1) % size, 0))?;
            let left = (me + size - 1) % size;
            assert_eq!(window.local()?[..2], [1000 * round + left as u64; 2]);
            window.fence(Assert::empty(), |_| Ok(()))?;
        }
        window.free()?;
        let counter = LockWindow::<u64>::allocate(team, 1)?;
        counter.lock_all(Assert::empty(), |e| {
            for _ in 0..20 {
                e.fetch_and_op_blocking(Op::Sum, 1, 0, 0)?;
            }
            team.barrier()?;
            assert_eq!(e.fetch_and_op_blocking(Op::NoOp, 0, 0, 0)?, 20 * size as u64);
            team.barrier()
        })?;
        counter.free()?;
    }
    println!("rank {} of {} is done on {}", world.rank(), world.size(), host.trim());
    drop((node, world));
    job.finalize()
}

/// Runs ranks by a launcher, which places rank r on host r modulo 2, and checks their output. No setting names a
/// device.
fn run(launcher: &mut Command, ranks: usize) {
    let output = launcher
        .args(itself!("as_a_rank"))
        .env(RANKS, ranks.to_string())
        .env("FARSIDE_VERBS_DEVICE", "auto")
        .env("FARSIDE_DEVICE", "auto")
        .env_remove("FARSIDE_TEST_NODES")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{launcher:?}: {:?}: {text}", output.status);
    for rank in 0..ranks {
        assert!(text.contains(&format!("rank {rank} of {ranks} is done on h{}", rank % 2)), "{launcher:?}: {text}");
    }
}

/// Creates both hosts; `false` if that is impossible, as it is everywhere except in the machine of `ci/rxe`.
fn hosts() -> bool {
    ["0", "1"].iter().all(|host| works("rxe-host", &[host, "true"]))
}

#[test]
fn ranks_on_two_hosts_put_and_add() {
    if std::env::var_os(RANKS).is_some() || !hosts() {
        return;
    }
    for ranks in [2, 4] {
        let mut launcher = Command::new("timeout");
        launcher.arg("50").arg(farside()).args(["run", "-n", &ranks.to_string(), "--", "sh", "-c"]);
        launcher.args([r#"exec rxe-host $((PMI_RANK % 2)) "$@""#, "sh"]);
        run(&mut launcher, ranks);
    }
}

#[test]
fn ranks_on_two_hosts_are_started_by_mpich() {
    if std::env::var_os(RANKS).is_some() || !hosts() {
        return;
    }
    if !works("mpiexec.hydra", &["-info"]) {
        return skip("ranks_on_two_hosts_are_started_by_mpich", "there is no mpiexec.hydra (ci/peers fetches one)");
    }
    for ranks in [2, 4] {
        let mut launcher = Command::new("timeout");
        launcher.args(["50", "mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", "rxe-ssh", "-hosts", "h0,h1"]);
        launcher.args(["-ppn", "1", "-n", &ranks.to_string()]);
        // The hosts' addresses are also addresses of this machine, so Hydra would start the ranks locally by default.
        launcher.env("HYDRA_LAUNCHER_AUTOFORK", "0");
        run(&mut launcher, ranks);
    }
}
