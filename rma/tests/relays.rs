//! Jobs over tcp on hosts that are network namespaces, which the tests make and remove: three of them, in a triangle, of
//! which one link is missing, or is cut while the job runs. Ranks that cannot connect directly communicate over another one.
//! The ranks run this program. Needs the rights of root.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use farside_harness::{farside, itself, skip, works};
use farside_rma::prelude::*;

/// Variable that is set only in ranks: the file that exists when the link is cut, or `-` if none is.
const CUT: &str = "FARSIDE_TEST_CUT";
/// The hosts of ranks 0 to 3.
const HOSTS: [usize; 4] = [0, 1, 2, 1];
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
        if me == 0 && round == 3 {
            println!("the job runs");
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

/// Three namespaces; dropping them removes them, with their links.
struct Hosts {
    names: [String; 3],
}

impl Hosts {
    /// The namespaces with some of the links 0-1, 1-2 and 0-2; `None` if they cannot be made, which is reported.
    fn new(test: &'static str, links: &[[usize; 2]]) -> Option<Self> {
        let names = ["a", "b", "c"].map(|host| format!("fs{}{}{host}", std::process::id(), test.len()));
        if !works("ip", &["netns", "add", &names[0]]) {
            skip(test, "network namespaces cannot be made: it needs root, and iproute2");
            return None;
        }
        ip(&format!("netns add {}", names[1]));
        ip(&format!("netns add {}", names[2]));
        let hosts = Self { names };
        hosts.names.iter().for_each(|name| ip(&format!("-n {name} link set lo up")));
        for [a, b] in links {
            let [from, to] = [*a, *b].map(|host| &hosts.names[host]);
            ip(&format!("-n {from} link add v{a}{b} type veth peer name v{b}{a} netns {to}"));
            for (name, host, other) in [(from, a, b), (to, b, a)] {
                ip(&format!("-n {name} address add 10.77.{}.{}/24 dev v{host}{other}", a + b, host + 1));
                ip(&format!("-n {name} link set v{host}{other} up"));
            }
        }
        Some(hosts)
    }

    fn run(&self, host: usize, program: &str) -> bool {
        let arguments = ["netns", "exec", &self.names[host]];
        works("ip", &arguments.into_iter().chain(program.split(' ')).collect::<Vec<_>>())
    }

    /// Loses 1 % of the packets that every host sends, or receives; reports if that is impossible.
    fn lose_some(&self, test: &str, links: &[[usize; 2]]) {
        let mut ends = links.iter().flat_map(|[a, b]| [[*a, *b], [*b, *a]]);
        let netem = |[a, b]: [usize; 2]| self.run(a, &format!("tc qdisc add dev v{a}{b} root netem loss 1%"));
        let rules = "add table inet t; add chain inet t in { type filter hook input priority 0; }; add rule inet t in numgen random mod 100 == 0 drop";
        let filter = |name: &String| works("ip", &["netns", "exec", name, "nft", rules]);
        if !ends.all(netem) && !self.names.iter().all(filter) {
            skip(test, "without loss of packets: the kernel has no netem, and there is no nft");
        }
    }

    /// Cuts a link: nothing arrives at its other side, which is not told.
    fn cut(&self, [a, b]: [usize; 2]) {
        let [from, to] = [a, b].map(|host| &self.names[host]);
        ip(&format!("-n {from} address flush dev v{a}{b}"));
        ip(&format!("-n {to} address flush dev v{b}{a}"));
    }

    /// Runs ranks on the hosts; calls `act` when they communicate; returns what they have written, and how long they took
    /// after that.
    fn job(&self, set: &[(&str, &str)], act: impl FnOnce()) -> (String, bool, Duration) {
        let mut launcher = Command::new("timeout");
        launcher.arg("100").arg(farside()).args(["run", "-n", "4", "--", "sh", "-c"]);
        launcher.args([r#"eval name=\$HOST$PMI_RANK; exec ip netns exec $name unshare --uts sh -c 'echo $0 > /proc/sys/kernel/hostname; exec "$@"' ${name#"${name%?}"} "$@""#, "sh"]);
        launcher.args(itself("as_a_rank")).env("FARSIDE_DEVICE", "tcp").env("FARSIDE_TCP_SILENCE_S", "3");
        launcher.env_remove("FARSIDE_TEST_NODES").env(CUT, "-").envs(set.iter().copied());
        for (rank, host) in HOSTS.into_iter().enumerate() {
            launcher.env(format!("HOST{rank}"), &self.names[host]);
        }
        let mut job = launcher.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(job.stdout.take().unwrap());
        let mut text = String::new();
        while !text.contains("the job runs") && output.read_line(&mut text).unwrap() > 0 {}
        let begin = Instant::now();
        act();
        output.read_to_string(&mut text).unwrap();
        job.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        let is_success = job.wait().unwrap().success();
        (text, is_success, begin.elapsed())
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
    const LINKS: [[usize; 2]; 2] = [[0, 1], [1, 2]];
    const TEST: &str = "hosts_without_a_link_communicate_over_another_one";
    if std::env::var_os(CUT).is_some() {
        return;
    }
    let Some(hosts) = Hosts::new(TEST, &LINKS) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("routes");
    let row = |from: &str, next: &str, to: &str| {
        format!("[[routes]]\nfrom = \"{from}\"\nto = \"{to}\"\nnext = [\"{next}\", \"{next}\", \"{next}\"]\n")
    };
    let rows = [row("a", "b", "c"), row("c", "b", "a"), row("b", "a", "a"), row("b", "c", "c")].concat();
    std::fs::write(&path, format!("version = 1\nnodes = [\"a\", \"b\", \"c\"]\n{rows}")).unwrap();
    hosts.lose_some(TEST, &LINKS);
    for (encrypt, routes) in [("0", "none"), ("1", path.to_str().unwrap())] {
        let (text, is_success, _) = hosts.job(&[("FARSIDE_TCP_ENCRYPT", encrypt), ("FARSIDE_ROUTES", routes)], || ());
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
    let (text, is_success, _) = hosts.job(&[(CUT, path.to_str().unwrap())], || {
        hosts.cut([0, 2]);
        std::fs::write(&path, "").unwrap();
    });
    assert!(is_success, "{text}");
    assert!(relayed(&text, 1) + relayed(&text, 3) > 100_000, "{text}");
}

#[test]
fn peer_is_lost_when_the_only_way_is_cut() {
    const LINKS: [[usize; 2]; 2] = [[0, 1], [1, 2]];
    if std::env::var_os(CUT).is_some() {
        return;
    }
    let Some(hosts) = Hosts::new("peer_is_lost_when_the_only_way_is_cut", &LINKS) else { return };
    let (text, is_success, time) = hosts.job(&[(CUT, "/none")], || hosts.cut([1, 2]));
    assert!(!is_success, "{text}");
    assert!(time < Duration::from_secs(30), "{time:?}: {text}");
    // Those on the other side of the link lose rank 2.
    assert!(text.contains("rank says") && text.contains("rank 2"), "{text}");
}
