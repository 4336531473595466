//! `farside run --hosts` on two nodes: network namespaces of this machine with their own host names, connected by a
//! pair of virtual interfaces. MPICH's and PRRTE's launchers start the ranks there with an agent that enters the
//! namespaces.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use farside_core::{Job, Result};
use farside_harness::{Marked, children, farside, itself, peer, signal, skip, works};
use tempfile::TempDir;

use crate::{kvs, options::script};

/// The addresses of the nodes, which are also their names, since there is no name service.
const NAMES: [&str; 2] = ["10.0.0.1", "10.0.0.2"];
/// Devices between the nodes; for a device that does not connect them, a part of the error of each rank.
const DEVICES: [(&str, Option<&str>); 3] = [("shm", Some("FARSIDE_DEVICE")), ("tcp", None), ("auto", None)];

/// Not a test: the program of the ranks of a job.
#[test]
fn as_a_rank_on_a_node() {
    if std::env::var_os("FARSIDE_TEST_AS_A_RANK").is_none() {
        return;
    }
    if let Err(e) = meet() {
        eprintln!("rank says: {e}");
        std::process::exit(3);
    }
}

fn meet() -> Result<()> {
    let job = Job::init()?;
    let team = job.world()?;
    team.barrier()?;
    println!("rank {} of {} has met all", team.rank(), team.size());
    drop(team);
    job.finalize()
}

/// Two nodes, each kept by a process that ends when this one does, so that no namespace stays.
struct Nodes {
    keepers: [Child; 2],
    folder: TempDir,
}

impl Nodes {
    /// Makes the nodes; if that is not allowed, skips the test and returns `None`.
    fn new(test: &str) -> Option<Self> {
        let tools = works("ip", &["-V"]) && works("nsenter", &["-V"]);
        if !tools || !works("unshare", &["--net", "--uts", "true"]) {
            skip(test, "network namespaces need root, and `ip`, `unshare` and `nsenter` (iproute2, util-linux)");
            return None;
        }
        let keeper = |name: &str| {
            let text = format!("hostname {name} && echo ready && exec cat");
            let mut keeper = Command::new("unshare");
            keeper.args(["--net", "--uts", "sh", "-c", &text]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut keeper = keeper.spawn().unwrap();
            let mut ready = String::new();
            BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut ready).unwrap();
            assert_eq!(ready, "ready\n");
            keeper
        };
        let nodes = Self { keepers: NAMES.map(keeper), folder: tempfile::tempdir().unwrap() };
        let [first, second] = [nodes.keepers[0].id().to_string(), nodes.keepers[1].id().to_string()];
        nodes.enter(0, &["ip", "link", "add", "v", "type", "veth", "peer", "name", "v", "netns", &second]);
        let mut agent =
            "#!/bin/sh\nwhile :; do case $1 in -*) shift ;; *) break ;; esac; done\ncase $1 in\n".to_owned();
        for (node, (name, keeper)) in NAMES.iter().zip([&first, &second]).enumerate() {
            nodes.enter(node, &["ip", "addr", "add", &format!("{name}/24"), "dev", "v"]);
            nodes.enter(node, &["ip", "link", "set", "v", "up"]);
            nodes.enter(node, &["ip", "link", "set", "lo", "up"]);
            agent += &format!("{name}) keeper={keeper} ;;\n");
        }
        // Like ssh, it passes no variables on, and ends with 255 when the other side is lost.
        agent += "*) exit 9 ;;\nesac\nshift\nnsenter --target $keeper --net --uts env -i PATH=\"$PATH\" HOME=\"$HOME\" \
                  FARSIDE_TEST_MARK=\"$FARSIDE_TEST_MARK\" PRTE_PREFIX=\"$PRTE_PREFIX\" sh -c \"$*\"\ncode=$?\n[ $code -lt 128 ] || code=255\nexit $code\n";
        script(&nodes.folder.path().join("agent"), &agent);
        Some(nodes)
    }

    /// Runs a command on a node.
    fn enter(&self, node: usize, words: &[&str]) {
        let keeper = self.keepers[node].id().to_string();
        assert!(works("nsenter", &[&["--target", &keeper, "--net", "--uts"], words].concat()), "{words:?}");
    }

    /// Starts `farside run` on the first node with a launcher, for ranks on both.
    fn run(&self, launcher: &str, options: &[&str]) -> Marked {
        let mut job = Marked::new("nsenter");
        let keeper = self.keepers[0].id().to_string();
        job.command.args(["--target", &keeper, "--net", "--uts"]).arg(farside());
        job.command.args(["run", "--launcher", launcher, "--launch-agent"]).arg(self.folder.path().join("agent"));
        job.command.args(options);
        // The launcher may have been moved from its installation folder.
        let prefix = std::path::Path::new(launcher).ancestors().nth(2).unwrap();
        job.command.env("PRTE_PREFIX", prefix);
        job
    }

    /// The processes on a node, without its keeper.
    fn processes(&self, node: usize) -> Vec<u32> {
        let keeper = self.keepers[node].id();
        let space = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let own = space(keeper);
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| *pid != keeper && space(*pid) == own).collect()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for keeper in &mut self.keepers {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
    }
}

/// Runs a test with each available launcher.
fn by_each_launcher(test: &str, body: impl Fn(&Nodes, &str)) {
    let Some(nodes) = Nodes::new(test) else { return };
    for (library, program) in [("mpich", "mpiexec.hydra"), ("openmpi", "prterun")] {
        if let Some(launcher) = peer(test, library, program) {
            body(&nodes, &launcher);
        }
    }
}

const SLOTS: &str = "10.0.0.1:2,10.0.0.2:2";
/// The rank of a shell, under each launcher.
const RANK: &str = "rank=${PMI_RANK-$PMIX_RANK}";

#[test]
fn ranks_on_two_nodes_find_each_other() {
    by_each_launcher("ranks_on_two_nodes_find_each_other", |nodes, launcher| {
        let input = nodes.folder.path().join("input");
        std::fs::write(&input, "a line\n").unwrap();
        let script = format!(
            "{RANK}; [ $rank != 0 ] || {{ read -r line; echo \"got $line\"; }}; echo \"$rank $(hostname) $A $B $(pwd)\"; exec {} 5000",
            kvs()
        );
        let all = ["-x", "B", "-genv", "A", "it is", "-wdir", "/usr", "sh", "-c", &script];
        for options in [
            &["--hosts", SLOTS][..],
            &["--hosts", "10.0.0.1,10.0.0.2", "--ppn", "2"],
            &["-n", "4", "--hosts", "10.0.0.1,10.0.0.2"],
        ] {
            let mut job = nodes.run(launcher, &[options, &all].concat());
            job.command.env("B", "own").stdin(File::open(&input).unwrap());
            let done = job.finish();
            assert_eq!(done.code, Some(0), "{options:?}: {done:?}");
            for rank in 0..4 {
                let line = format!("{rank} {} it is own /usr\n", NAMES[rank / 2]);
                assert!(done.out.contains(&line), "{options:?}: {done:?}");
                assert!(done.out.contains(&format!("rank {rank} of 4: 4 values by pmi")), "{options:?}: {done:?}");
            }
            assert_eq!(done.out.matches("got a line\n").count(), 1, "{options:?}: {done:?}");
        }
    });
}

#[test]
fn end_of_ranks_on_two_nodes_is_that_of_the_job() {
    by_each_launcher("end_of_ranks_on_two_nodes_is_that_of_the_job", |nodes, launcher| {
        // PRRTE 3 sometimes does not end after a rank has failed; then `farside run` ends it.
        let is_right =
            |found: Option<i32>, code| found == Some(code) || launcher.ends_with("prterun") && found == Some(124);
        let run = |timeout, words: &[&str]| {
            nodes.run(launcher, &[&["--timeout", timeout, "--hosts", SLOTS], words].concat()).finish()
        };
        let ends = [("5", "10", Some(5)), ("kill", "10", None), ("abort", "10", Some(7)), ("stay", "1", Some(124))];
        for (how, timeout, code) in ends {
            // Hydra does not end the others when a rank exits, so the rank exits last.
            let phase = if how == "5" { "finalize" } else { "put" };
            let done = run(timeout, &[&kvs(), "10", "3", phase, how]);
            let is_right = code.map_or(done.code != Some(0), |code| is_right(done.code, code));
            assert!(is_right, "{how}: {done:?}");
            assert_eq!(done.err.contains("(--timeout)"), done.code == Some(124), "{how}: {done:?}");
        }
    });
}

#[test]
fn ranks_on_two_nodes_end_with_their_launchers_and_nodes() {
    by_each_launcher("ranks_on_two_nodes_end_with_their_launchers_and_nodes", |nodes, launcher| {
        for what in ["TERM", "INT", "KILL", "worker", "launcher", "node"] {
            let mut job = nodes.run(launcher, &["--hosts", SLOTS, &kvs(), "10", "3", "put", "stay"]);
            println!("{launcher}: {what}");
            let mut running = job.start();
            running.await_lines("stays", 1);
            let worker = children(running.child.id())[0];
            match what {
                "worker" => signal(worker, "KILL"),
                "launcher" => signal(children(worker)[0], "KILL"),
                // Some end as others are killed.
                "node" => {
                    let pids = nodes.processes(1).iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
                    let _ = works("sh", &["-c", &format!("kill -KILL {pids}")]);
                }
                name => running.signal(name),
            }
            let done = running.finish();
            // PRRTE 3 ends with 0 if it has lost a node, and reports the loss.
            let lost = what == "node" && done.err.contains("lost communication");
            assert!(done.code != Some(0) || lost, "{what}: {done:?}");
            assert!(
                what != "launcher" || done.code == Some(137) && done.err.contains("launcher was killed"),
                "{done:?}"
            );
            job.wait_until_gone();
        }
    });
}

#[test]
fn job_on_two_nodes_meets_by_a_device_or_says_what_is_missing() {
    by_each_launcher("job_on_two_nodes_meets_by_a_device_or_says_what_is_missing", |nodes, launcher| {
        for (device, error) in DEVICES {
            let options =
                ["-x", "FARSIDE_TEST_AS_A_RANK=1", "-x", &format!("FARSIDE_DEVICE={device}"), "--hosts", SLOTS];
            let program = itself("nodes::as_a_rank_on_a_node");
            let words: Vec<&str> = options.into_iter().chain(program.iter().map(String::as_str)).collect();
            let done = nodes.run(launcher, &words).finish();
            match error {
                None => assert_eq!((done.code, done.out.matches("of 4 has met all").count()), (Some(0), 4), "{done:?}"),
                Some(part) => {
                    assert_ne!(done.code, Some(0), "{done:?}");
                    let is_clear = |line: &str| [part, NAMES[0], NAMES[1]].iter().all(|part| line.contains(part));
                    assert!(done.err.lines().any(is_clear), "{done:?}");
                }
            }
        }
    });
}

#[test]
fn network_of_two_nodes_is_discovered() {
    by_each_launcher("network_of_two_nodes_is_discovered", |nodes, launcher| {
        let command = farside();
        let words = ["--hosts", "10.0.0.1,10.0.0.2", command.to_str().unwrap(), "routes", "--discover"];
        let done = nodes.run(launcher, &words).finish();
        assert_eq!(done.code, Some(0), "{done:?}");
        let link = format!("[[links]]\ndevice = \"tcp\"\nbetween = [\"{}\", \"{}\"]\n", NAMES[0], NAMES[1]);
        assert!(done.out.contains(&link) && done.out.contains("# tcp: v 10.0.0.1/24\n"), "{done:?}");
    });
}
