//! Jobs over tcp on hosts that are network namespaces, which the tests make and remove. The ranks run this program. Needs the
//! rights of root.

mod failover;
mod relays;

use std::io::BufRead;
use std::process::Command;
use std::time::{Duration, Instant};

use farside_harness::{Marked, itself, skip, works};
use farside_rma::prelude::*;

use super::examples::COMPARED;

/// Variable that is set only in ranks: the file that exists when the link is cut, or `-` if none is.
const CUT: &str = "FARSIDE_TEST_CUT";
/// Variable of ranks in whose job a device may fail between two ranks: `hca` if other devices are not coherent with it.
const FAILS: &str = "FARSIDE_TEST_FAILS";
/// Elements of a long transfer, which rails share.
const LONG_ELEMENTS: usize = 40_000;

/// The program of the ranks.
fn program() -> Vec<String> {
    itself!("as_a_rank")
}

/// This is not a test, but the code that [`program`] runs.
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
    let fails = std::env::var(FAILS).ok();
    let is_coherent = fails.as_ref().is_none_or(|device| device != "hca");
    let job = Job::init()?;
    let world = job.world()?;
    let (me, size) = (world.rank(), world.size());
    let mut window = Window::<u64>::allocate(&world, size * LONG_ELEMENTS)?;
    let counter = LockWindow::<u64>::allocate(&world, 1)?;
    let (mut round, mut counted, mut left) = (0u64, 0, 6);
    while left > 0 {
        let value = |from: usize, to: usize| round * 1000 + (10 * from + to) as u64;
        let mine: Vec<_> =
            (0..size).map(|to| vec![value(me, to); if round.is_multiple_of(3) { LONG_ELEMENTS } else { 3 }]).collect();
        let len = mine[0].len();
        window.fence(Assert::empty(), |e| (0..size).try_for_each(|to| e.put(&mine[to], to, me * LONG_ELEMENTS)))?;
        for from in 0..size {
            let got = &window.local()?[from * LONG_ELEMENTS..][..len];
            assert!(got.iter().all(|got| *got == value(from, me)), "round {round}: rank {me} from {from}");
        }
        let mut back = vec![vec![0; len]; size];
        window.fence(Assert::empty(), |e| {
            back.iter_mut().enumerate().try_for_each(|(from, back)| e.get(back, from, me * LONG_ELEMENTS))
        })?;
        for (to, back) in back.iter().enumerate() {
            assert!(back.iter().all(|back| *back == value(me, to)), "round {round}: rank {me} back from {to}");
        }
        // Operations in progress when a device fails may have an unknown effect; later ones use another device.
        if fails.is_none() || left < 5 && is_coherent {
            counted += size as u64;
            counter.lock_all(Assert::empty(), |e| {
                for to in 0..size {
                    e.fetch_and_op_blocking(Op::Sum, 1, to, 0)?;
                }
                world.barrier()?;
                assert_eq!(e.fetch_and_op_blocking(Op::NoOp, 0, (me + 1) % size, 0)?, counted);
                world.barrier()
            })?;
        }
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
    /// The namespaces of some links between hosts; `None` if they cannot be made, which is reported. A host has an
    /// interface `v01` for the first link between hosts 0 and 1 if it is host 0, `v10` if it is host 1, and `v01b` or `v10b`
    /// for the second one.
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
        for (at, [a, b]) in links.iter().enumerate() {
            let [from, to] = [*a, *b].map(|host| &hosts.names[host]);
            let (which, net) = if links[..at].contains(&[*a, *b]) { ("b", 78) } else { ("", 77) };
            ip(&format!("-n {from} link add v{a}{b}{which} type veth peer name v{b}{a}{which} netns {to}"));
            for (name, host, other) in [(from, a, b), (to, b, a)] {
                let subnet = 10 * a + b;
                ip(&format!("-n {name} address add 10.{net}.{subnet}.{}/24 dev v{host}{other}{which}", host + 1));
                ip(&format!("-n {name} link set v{host}{other}{which} up"));
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
        let shape = |[a, b]: [usize; 2], how: &str| self.run(a, &format!("tc qdisc add dev v{a}{b} root {how}"));
        let netem = |end: [usize; 2]| shape(end, "netem delay 1ms loss 1% rate 400mbit");
        let slow = |end: [usize; 2]| shape(end, "tbf rate 400mbit burst 64kb latency 20ms");
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

    /// Takes an interface down.
    fn take_down(&self, host: usize, interface: &str) {
        ip(&format!("-n {} link set {interface} down", self.names[host]));
    }

    /// A job with a rank on each of the given hosts, whose names have one letter.
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

    /// Runs ranks on hosts like [`run`].
    fn job(&self, ranks: &[usize], set: &[(&str, &str)], act: impl FnOnce(&[u32])) -> (String, bool, Duration) {
        run(self.launch(ranks, &program(), set), act)
    }
}

/// Runs a job; calls `act` with its processes when they communicate; returns their output, whether they succeeded, and
/// the time that they took after that. Nothing is left of them then.
fn run(mut job: Marked, act: impl FnOnce(&[u32])) -> (String, bool, Duration) {
    let mut running = job.start();
    let mut text = String::new();
    let out = running.out.as_mut().unwrap();
    let processes = loop {
        if let Some((_, processes)) = text.split_once("the job runs as [") {
            let processes = processes.split(']').next().unwrap().split(", ");
            break processes.map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>();
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

/// The programs that compare their results with a serial run, two ranks on each of two hosts.
#[test]
fn symmetric_memory_arrays_and_calls_between_hosts() {
    let Some(hosts) = Hosts::new("calls_between_hosts", &[[0, 1]]) else { return };
    for (example, arguments) in COMPARED {
        let path = farside_harness::example("farside-rma", example).to_str().unwrap().to_owned();
        let program: Vec<_> = [path].into_iter().chain(arguments.iter().map(|a| (*a).to_owned())).collect();
        let (text, ok, _) = run(hosts.launch(&[0, 1, 0, 1], &program, &[]), |_| {});
        assert!(ok && text.lines().count() == 1, "{example}: {text}");
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| ip(&format!("netns del {name}")));
    }
}
