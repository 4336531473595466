//! Other implementations: MPICH's launcher starts a Farside program, and `farside run` starts an MPI program.

use farside_harness::{Finished, Marked, mpich, peer};

use crate::kvs;

#[test]
fn hydra_starts_a_farside_program() {
    let Some(hydra) = mpich("hydra_starts_a_farside_program", "mpiexec.hydra") else { return };
    let version = Marked::new(&hydra).finish_with(&["--version"]).out;
    // Intel's variant of it has no such option.
    let ways: &[&[&str]] = if version.contains("Intel") { &[&[]] } else { &[&[], &["-pmi-port"]] };
    for way in ways {
        for bytes in ["0", "5000", "65536"] {
            let done = Marked::new(&hydra).finish_with(&[*way, &["-n", "3", &kvs(), bytes]].concat());
            assert_eq!(done.code, Some(0), "{way:?}: {done:?}");
            for rank in 0..3 {
                assert!(done.out.contains(&format!("rank {rank} of 3: 3 values by pmi-1")), "{way:?}: {done:?}");
            }
        }
    }
}

#[test]
fn hydra_ends_the_others_when_a_farside_rank_dies() {
    let Some(hydra) = mpich("hydra_ends_the_others_when_a_farside_rank_dies", "mpiexec.hydra") else { return };
    for (how, code) in [("kill", None), ("abort", Some(7))] {
        let done = Marked::new(&hydra).finish_with(&["-n", "3", &kvs(), "10", "1", "put", how]);
        assert_ne!(done.code, Some(0), "{done:?}");
        assert!(code.is_none() || done.code == code, "{done:?}");
    }
}

#[test]
fn hydra_starts_a_farside_program_by_pmi_2() {
    let Some(hydra) = mpich("hydra_starts_a_farside_program_by_pmi_2", "mpiexec.hydra") else { return };
    // Without `PMI_SIZE`, only PMI-2 tells the number of ranks.
    let start = |arguments: &str| {
        let command = format!("unset PMI_SIZE; exec {} {arguments}", kvs());
        Marked::new(&hydra).finish_with(&["-n", "3", "sh", "-c", &command])
    };
    for bytes in ["0", "5000", "65536"] {
        let done = start(bytes);
        assert_eq!(done.code, Some(0), "{done:?}");
        for rank in 0..3 {
            assert!(done.out.contains(&format!("rank {rank} of 3: 3 values by pmi-2")), "{done:?}");
        }
    }
    for how in ["kill", "abort"] {
        let done = start(&format!("10 1 put {how}"));
        assert_ne!(done.code, Some(0), "{done:?}");
    }
}

/// A job of `prterun`, which is also allowed to run as root.
fn prterun(program: &str) -> Marked {
    let mut job = Marked::new(program);
    let arguments = ["--allow-run-as-root", "--map-by", ":oversubscribe", "-n", "4", &kvs()];
    job.command.args(arguments).env("PRTE_ALLOW_RUN_AS_ROOT", "1").env("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    job
}

#[test]
fn prterun_starts_a_farside_program_by_pmix() {
    let Some(program) = peer("prterun_starts_a_farside_program_by_pmix", "openmpi", "prterun") else { return };
    for bytes in ["0", "5000", "65536"] {
        let done = prterun(&program).finish_with(&[bytes]);
        assert_eq!(done.code, Some(0), "{done:?}");
        for rank in 0..4 {
            assert!(done.out.contains(&format!("rank {rank} of 4: 4 values by pmix")), "{done:?}");
        }
    }
}

#[test]
fn prterun_ends_the_others_when_a_farside_rank_dies() {
    let Some(program) = peer("prterun_ends_the_others_when_a_farside_rank_dies", "openmpi", "prterun") else { return };
    for (phase, how) in [("init", "kill"), ("put", "abort"), ("fence", "3")] {
        let done = prterun(&program).finish_with(&["10", "1", phase, how]);
        assert_ne!(done.code, Some(0), "{phase} {how}: {done:?}");
    }
}

#[test]
fn prterun_killed_leaves_no_farside_rank() {
    let Some(program) = peer("prterun_killed_leaves_no_farside_rank", "openmpi", "prterun") else { return };
    let mut job = prterun(&program);
    job.command.args(["10", "1", "put", "stay"]);
    let mut running = job.start();
    running.await_lines("stays", 1);
    running.signal("KILL");
    assert_eq!(running.finish().code, None);
    // Rank 1 makes no call in which it would learn this; the others wait in one.
    job.wait_until_gone();
}

/// Checks a job in which rank 1 has started a program that takes itself for that rank.
fn check_child(done: &Finished) {
    assert!(done.code == Some(0) && done.out.contains("its child ended with Some(1)\n"), "{done:?}");
    assert!(done.err.contains("a child process of a rank inherits"), "{done:?}");
}

#[test]
fn child_of_a_rank_is_told_that_it_is_none() {
    const TEST: &str = "child_of_a_rank_is_told_that_it_is_none";
    check_child(&Marked::run(3, &[&kvs(), "10", "1", "put", "child"]).finish());
    if let Some(program) = peer(TEST, "openmpi", "prterun") {
        check_child(&prterun(&program).finish_with(&["10", "1", "put", "child"]));
    }
    if let Some(hydra) = mpich(TEST, "mpiexec.hydra") {
        for way in [&[][..], &["-pmi-port"]] {
            check_child(
                &Marked::new(&hydra).finish_with(&[way, &["-n", "3", &kvs(), "10", "1", "put", "child"]].concat()),
            );
        }
    }
}

#[test]
fn mpich_program_is_started_by_farside() {
    let Some(mpicc) = mpich("mpich_program_is_started_by_farside", "mpicc") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("sum.c"), dir.path().join("sum"));
    let text = r#"#include <mpi.h>
        #include <stdio.h>
        int main(int argc, char **argv) {
            int rank, sum;
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            printf("sum %d\n", sum);
            if (argc > 1 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 9);
            MPI_Finalize();
            return 0;
        }"#;
    std::fs::write(&source, text).unwrap();
    let (source, program) = (source.to_str().unwrap(), program.to_str().unwrap());
    let compiled = Marked::new(&mpicc).finish_with(&["-o", program, source]);
    assert_eq!(compiled.code, Some(0), "{compiled:?}");
    let done = Marked::run(3, &[program]).finish();
    assert_eq!((done.code, done.out.as_str()), (Some(0), "sum 3\nsum 3\nsum 3\n"), "{done:?}");
    let done = Marked::run(3, &[program, "abort"]).finish();
    assert!(done.code == Some(9) && done.err.contains("aborted the job with code 9"), "{done:?}");
}
