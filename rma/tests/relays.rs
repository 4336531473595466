//! Jobs over tcp on hosts that are network namespaces, which the tests make and remove: three of them, in a triangle, of
//! which one link is missing, or is cut while the job runs; or four in a chain. Ranks that cannot connect directly communicate
//! over others, by themselves or as a table of routes says. The ranks run this program. Needs the rights of root.

use std::io::BufRead;
use std::process::Command;
use std::time::{Duration, Instant};

use farside_harness::{Marked, farside, itself, signal, skip, works};
use farside_rma::prelude::*;

/// Variable that is set only in ranks: the file that exists when the link is cut, or `-` if none is.
const CUT: &str = "FARSIDE_TEST_CUT";
/// The hosts of ranks 0 to 3 of most jobs.
const RANKS: [usize; 4] = [0, 1, 2, 1];
/// The links of a triangle without one of them, and of a chain.
const OPEN: [[usize; 2]; 2] = [[0, 1], [1, 2]];
const CHAIN: [[usize; 2]; 3] = [[0, 1], [1, 2], [2, 3]];
/// Elements of a long transfer.
const LONG: usize = 20_000;

/// Not a test: the program of the ranks.
#[test]
fn as_a_rank() {
    let Ok(cut) = std::env::var(CUT) else { return };
    if let Err(e) = rank(&cut) {
        println!("rank says: {e}");
        std::process::exit(3);
    }
}

/// Rounds of all kinds of communication between all pairs, until some rounds after the cut.
fn rank(cut: &str) -> Result<()> {
    let job = Job::init()?;
    let world = job.world()?;
    let (me, size) = (world.rank(), world.size());
    let mut window = Window::<u64>::allocate(&world, size * LONG)?;
    let counter = LockWindow::<u64>::allocate(&world, 1)?;
    let (mut round, mut left) = (0u64, 6);
    while left > 0 {
        let value = |from: usize, to: usize| round * 1000 + (10 * from + to) as u64;
        let mine: Vec<_> =
            (0..size).map(|to| vec![value(me, to); if round.is_multiple_of(3) { LONG } else { 3 }]).collect();
        let len = mine[0].len();
        window.fence(Assert::empty(), |e| (0..size).try_for_each(|to| e.put(&mine[to], to, me * LONG)))?;
        for from in 0..size {
            let got = &window.local()?[from * LONG..][..len];
            assert!(got.iter().all(|got| *got == value(from, me)), "round {round}: rank {me} from {from}");
        }
        let mut back = vec![vec![0; len]; size];
        window.fence(Assert::empty(), |e| {
            back.iter_mut().enumerate().try_for_each(|(from, back)| e.get(back, from, me * LONG))
        })?;
        for (to, back) in back.iter().enumerate() {
            assert!(back.iter().all(|back| *back == value(me, to)), "round {round}: rank {me} back from {to}");
        }
        counter.lock_all(Assert::empty(), |e| {
            for to in 0..size {
                e.fetch_and_op_now(Op::Sum, 1, to, 0)?;
            }
            world.barrier()?;
            assert_eq!(e.fetch_and_op_now(Op::NoOp, 0, (me + 1) % size, 0)?, (round + 1) * size as u64);
            world.barrier()
        })?;
        for step in 1..size {
            let (to, from) = ((me + step) % size, (me + size - step) % size);
            let mut into = vec![0; len];
            world.sendrecv(&mine[to], to, 7, &mut into, from, 7)?;
            assert!(into.iter().all(|got| *got == value(from, me)), "round {round}: message from {from}");
        }
        let is_cut = u64::from(cut == "-" || std::path::Path::new(cut).exists());
        let mut sums = [1u64 << me, is_cut];
        world.allreduce(&mut sums, Commutative(|a: u64, b: u64| a + b))?;
        assert_eq!(sums[0], (1 << size) - 1);
        left -= i32::from(sums[1] == size as u64);
        round += 1;
        if round == 3 {
            let mut processes = [0; 4];
            processes[me] = u64::from(std::process::id());
            world.allreduce(&mut processes, Commutative(|a: u64, b: u64| a + b))?;
            if me == 0 {
                println!("the job runs as {processes:?}");
            }
        }
    }
    let relayed = job.stats().bytes(farside_core::stats::Kind::Relay);
    println!("rank {me} is done after {round} rounds and has relayed {relayed} bytes");
    window.free()?;
    counter.free()?;
    drop(world);
    job.finalize()
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Namespaces; dropping them removes them, with their links.
struct Hosts {
    names: Vec<String>,
}

impl Hosts {
    /// The namespaces of some links between hosts; `None` if they cannot be made, which is reported.
    fn new(test: &'static str, links: &[[usize; 2]]) -> Option<Self> {
        let count = 1 + links.iter().flatten().max().unwrap();
        let name = |host: &str| format!("fs{}{}{host}", std::process::id(), test.len());
        let names: Vec<String> = ["a", "b", "c", "d"][..count].iter().map(|host| name(host)).collect();
        if !works("ip", &["netns", "add", &names[0]]) {
            skip(test, "network namespaces cannot be made: it needs root, and iproute2");
            return None;
        }
        names[1..].iter().for_each(|name| ip(&format!("netns add {name}")));
        let hosts = Self { names };
        hosts.names.iter().for_each(|name| ip(&format!("-n {name} link set lo up")));
        for [a, b] in links {
            let [from, to] = [*a, *b].map(|host| &hosts.names[host]);
            ip(&format!("-n {from} link add v{a}{b} type veth peer name v{b}{a} netns {to}"));
            for (name, host, other) in [(from, a, b), (to, b, a)] {
                ip(&format!("-n {name} address add 10.77.{}.{}/24 dev v{host}{other}", 10 * a + b, host + 1));
                ip(&format!("-n {name} link set v{host}{other} up"));
            }
        }
        Some(hosts)
    }

    fn run(&self, host: usize, program: &str) -> bool {
        let arguments = ["netns", "exec", &self.names[host]];
        works("ip", &arguments.into_iter().chain(program.split(' ')).collect::<Vec<_>>())
    }

    /// Loses 1 % of the packets that every host sends, or receives, and limits the rate of links; where the kernel has netem,
    /// also delays packets. Reports if packets cannot be lost.
    fn lose_some(&self, test: &str, links: &[[usize; 2]]) {
        let mut ends = links.iter().flat_map(|[a, b]| [[*a, *b], [*b, *a]]);
        let netem = |[a, b]: [usize; 2]| self.run(a, &format!("tc qdisc add dev v{a}{b} root netem delay 1ms loss 1% rate 400mbit"));
        let slow = |[a, b]: [usize; 2]| {
            self.run(a, &format!("tc qdisc add dev v{a}{b} root tbf rate 400mbit burst 64kb latency 20ms"))
        };
        let rules = "add table inet t; add chain inet t in { type filter hook input priority 0; }; add rule inet t in numgen random mod 100 == 0 drop";
        let filter = |name: &String| works("ip", &["netns", "exec", name, "nft", rules]);
        if ends.clone().all(netem) {
            return;
        }
        let _ = ends.all(slow);
        if !self.names.iter().all(filter) {
            skip(test, "without loss of packets: the kernel has no netem, and there is no nft");
        }
    }

    /// Cuts a link: nothing arrives at its other side, which does not notice.
    fn cut(&self, [a, b]: [usize; 2]) {
        let [from, to] = [a, b].map(|host| &self.names[host]);
        ip(&format!("-n {from} address flush dev v{a}{b}"));
        ip(&format!("-n {to} address flush dev v{b}{a}"));
    }

    /// A job of a program with a rank on each of these hosts, which have names of one letter.
    fn launch(&self, ranks: &[usize], program: &[String], set: &[(&str, &str)]) -> Marked {
        let mut job = Marked::run(ranks.len() as u32, &["--timeout", "90", "--", "sh", "-c"]);
        let launcher = &mut job.command;
        launcher.args([r#"eval name=\$HOST$PMI_RANK; exec ip netns exec $name unshare --uts sh -c 'echo $0 > /proc/sys/kernel/hostname; exec "$@"' ${name#"${name%?}"} "$@""#, "sh"]);
        launcher.args(program).env("FARSIDE_DEVICE", "tcp").env("FARSIDE_TCP_SILENCE_S", "3");
        launcher.env_remove("FARSIDE_TEST_NODES").env(CUT, "-").envs(set.iter().copied());
        for (rank, host) in ranks.iter().enumerate() {
            launcher.env(format!("HOST{rank}"), &self.names[*host]);
        }
        job
    }

    /// Runs ranks on hosts; calls `act` with their processes when they communicate; returns what they have written, and how
    /// long they took after that. Then nothing is left of them.
    fn job(&self, ranks: &[usize; 4], set: &[(&str, &str)], act: impl FnOnce(&[u32])) -> (String, bool, Duration) {
        let mut job = self.launch(ranks, &itself("as_a_rank"), set);
        let mut running = job.start();
        let mut text = String::new();
        let out = running.out.as_mut().unwrap();
        let processes = loop {
            if let Some((_, processes)) = text.split_once("the job runs as [") {
                break processes
                    .split(']')
                    .next()
                    .unwrap()
                    .split(", ")
                    .map(|pid| pid.parse().unwrap())
                    .collect::<Vec<u32>>();
            }
            if out.read_line(&mut text).unwrap() == 0 {
                break Vec::new();
            }
        };
        let begin = Instant::now();
        if !processes.is_empty() {
            act(&processes);
        }
        let done = running.finish();
        let took = begin.elapsed();
        job.wait_until_gone();
        (text + &done.out + &done.err, done.code == Some(0), took)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| ip(&format!("netns del {name}")));
    }
}

/// Number of bytes that a rank has relayed.
fn relayed(text: &str, rank: usize) -> u64 {
    let line = text.lines().find_map(|line| line.split_once(&format!("rank {rank} is done")));
    let (_, line) = line.unwrap_or_else(|| panic!("rank {rank} is not done: {text}"));
    line.split(' ').rev().nth(1).unwrap().parse().unwrap()
}

#[test]
fn hosts_without_a_link_communicate_over_another_one() {
    const TEST: &str = "hosts_without_a_link_communicate_over_another_one";
    if std::env::var_os(CUT).is_some() {
        return;
    }
    let Some(hosts) = Hosts::new(TEST, &OPEN) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("routes");
    let row = |from: &str, next: &str, to: &str| {
        format!("[[routes]]\nfrom = \"{from}\"\nto = \"{to}\"\nnext = [\"{next}\", \"{next}\", \"{next}\"]\n")
    };
    let rows = [row("a", "b", "c"), row("c", "b", "a"), row("b", "a", "a"), row("b", "c", "c")].concat();
    std::fs::write(&path, format!("version = 1\nnodes = [\"a\", \"b\", \"c\"]\n{rows}")).unwrap();
    hosts.lose_some(TEST, &OPEN);
    for (encrypt, routes) in [("0", "none"), ("1", path.to_str().unwrap())] {
        let (text, is_success, _) =
            hosts.job(&RANKS, &[("FARSIDE_TCP_ENCRYPT", encrypt), ("FARSIDE_ROUTES", routes)], |_| ());
        assert!(is_success, "{text}");
        assert_eq!(relayed(&text, 0) + relayed(&text, 2), 0);
        assert!(relayed(&text, 1) + relayed(&text, 3) > 100_000, "{text}");
    }
}

#[test]
fn another_way_is_taken_when_a_link_is_cut() {
    const LINKS: [[usize; 2]; 3] = [[0, 1], [1, 2], [0, 2]];
    const TEST: &str = "another_way_is_taken_when_a_link_is_cut";
    if std::env::var_os(CUT).is_some() {
        return;
    }
    let Some(hosts) = Hosts::new(TEST, &LINKS) else { return };
    hosts.lose_some(TEST, &LINKS);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut");
    let (text, is_success, _) = hosts.job(&RANKS, &[(CUT, path.to_str().unwrap())], |_| {
        hosts.cut([0, 2]);
        std::fs::write(&path, "").unwrap();
    });
    assert!(is_success, "{text}");
    assert!(relayed(&text, 1) + relayed(&text, 3) > 100_000, "{text}");
}

#[test]
fn peer_is_lost_when_the_only_way_is_cut() {
    if std::env::var_os(CUT).is_some() {
        return;
    }
    let Some(hosts) = Hosts::new("peer_is_lost_when_the_only_way_is_cut", &OPEN) else { return };
    let (text, is_success, time) = hosts.job(&RANKS, &[(CUT, "/none")], |_| hosts.cut([1, 2]));
    assert!(!is_success, "{text}");
    assert!(time < Duration::from_secs(30), "{time:?}: {text}");
    // Those on the other side of the link lose rank 2.
    assert!(text.contains("rank says") && text.contains("rank 2"), "{text}");
}

/// The rank that passes on the bytes of ranks 0 and 2 is killed: a rank of the job is lost, and all others say which.
#[test]
fn relay_that_is_killed_is_named() {
    if std::env::var_os(CUT).is_some() {
        return;
    }
    let Some(hosts) = Hosts::new("relay_that_is_killed_is_named", &OPEN) else { return };
    let (text, is_success, time) = hosts.job(&RANKS, &[(CUT, "/none")], |processes| signal(processes[1], "KILL"));
    assert!(!is_success && text.contains("killed by signal 9"), "{text}");
    assert!(time < Duration::from_secs(30), "{time:?}: {text}");
    let said: Vec<&str> = text.lines().filter(|line| line.contains("rank says")).collect();
    assert!(said.len() == 3 && said.iter().all(|line| line.contains("rank 1") && line.contains("is gone")), "{text}");
}

#[test]
fn discovered_network_is_the_table_of_a_job() {
    const TEST: &str = "discovered_network_is_the_table_of_a_job";
    if std::env::var_os(CUT).is_some() {
        return;
    }
    for (links, ranks, far) in [(&OPEN[..], RANKS, "c"), (&CHAIN, [0, 1, 2, 3], "d")] {
        let Some(hosts) = Hosts::new(TEST, links) else { return };
        let folder = tempfile::tempdir().unwrap();
        let [network, table] = ["network.toml", "table.toml"].map(|name| folder.path().join(name));
        let mut discover = vec![farside().to_str().unwrap().to_owned()];
        discover
            .extend(["routes", "--discover", "--seconds", "0.3", "--output", table.to_str().unwrap()].map(Into::into));
        let found = hosts.launch(&ranks, &discover, &[]).finish();
        assert_eq!(found.code, Some(0), "{found:?}");
        // The links that are there, and no others; subnets, and the reason why a link is missing, are comments.
        let of_tcp: Vec<&str> =
            found.out.split("[[links]]\ndevice = \"tcp\"\n").skip(1).map(|link| link.lines().next().unwrap()).collect();
        let name = |host: usize| ["a", "b", "c", "d"][host];
        assert_eq!(of_tcp.len(), links.len(), "{found:?}");
        for [a, b] in links {
            assert!(of_tcp.contains(&&*format!("between = [\"{}\", \"{}\"]", name(*a), name(*b))), "{found:?}");
        }
        let missing = format!("# no tcp between \"a\", \"{far}\": ");
        assert!(found.out.contains("# tcp: v10 10.77.1.2/24\n") && found.out.contains(&missing), "{found:?}");

        // The description is read back, with the same table.
        std::fs::write(&network, &found.out).unwrap();
        let again = folder.path().join("again.toml");
        let read = Command::new(farside()).arg("routes").arg(&network).arg("--output").arg(&again).output().unwrap();
        let text = String::from_utf8_lossy(&read.stdout).into_owned() + &String::from_utf8_lossy(&read.stderr);
        assert!(read.status.success() && text.contains(&format!("tcp to b, {} hops", links.len())), "{text}");
        let [written, again] = [&table, &again].map(|file| std::fs::read_to_string(file).unwrap());
        assert_eq!(written, again);
        assert!(written.contains(&format!("from = \"a\"\nto = \"{far}\"\nnext = [\"b\", \"b\", \"b\"]")), "{written}");

        // The ends of the chain do not find each other without the table: no rank shares a network with both.
        let (text, is_success, _) = hosts.job(&ranks, &[], |_| ());
        assert_eq!(is_success, far == "c", "{text}");
        hosts.lose_some(TEST, links);
        let (text, is_success, _) = hosts.job(&ranks, &[("FARSIDE_ROUTES", table.to_str().unwrap())], |_| ());
        assert!(is_success, "{text}");
        let relays =
            if far == "c" { relayed(&text, 1) + relayed(&text, 3) } else { relayed(&text, 1).min(relayed(&text, 2)) };
        assert!(relays > 100_000, "{text}");
    }
}
