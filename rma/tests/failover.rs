//! Jobs over two interfaces of two hosts, which are network namespaces that the tests make and remove: one link fails while
//! the job runs, and the other one carries on. The ranks run this program. Needs the rights of root.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use farside_harness::{farside, itself, skip, works};
use farside_rma::prelude::*;

/// Variable that is set only in ranks: the file that exists when a link has failed.
const DOWN: &str = "FARSIDE_TEST_DOWN";
/// Elements of a long transfer.
const LONG: usize = 60_000;

/// Not a test: the program of the ranks.
#[test]
fn as_a_rank() {
    let Ok(down) = std::env::var(DOWN) else { return };
    if let Err(e) = rank(&down) {
        println!("rank says: {e}");
        std::process::exit(3);
    }
}

/// Rounds of messages, collectives, puts and gets until some rounds after the failure; atomics after it.
fn rank(down: &str) -> Result<()> {
    let job = Job::init()?;
    let world = job.world()?;
    let (me, size) = (world.rank(), world.size());
    let mut window = Window::<u64>::allocate(&world, size * LONG)?;
    let counter = LockWindow::<u64>::allocate(&world, 1)?;
    let (mut round, mut after) = (0u64, 0);
    while after < 6 {
        let value = |from: usize, to: usize| round * 1000 + (10 * from + to) as u64;
        let len = if round.is_multiple_of(3) { LONG } else { 3 };
        let mine: Vec<_> = (0..size).map(|to| vec![value(me, to); len]).collect();
        for step in 1..size {
            let (to, from) = ((me + step) % size, (me + size - step) % size);
            let mut into = vec![0; len];
            world.sendrecv(&mine[to], to, 7, &mut into, from, 7)?;
            assert!(into.iter().all(|got| *got == value(from, me)), "round {round}: message from {from}");
        }
        world.barrier()?;
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
        // Those in progress when the link fails may have an unknown effect; later ones go by the other link.
        if after > 1 {
            counter.lock_all(Assert::empty(), |e| {
                for to in 0..size {
                    e.fetch_and_op_now(Op::Sum, 1, to, 0)?;
                }
                world.barrier()?;
                assert_eq!(e.fetch_and_op_now(Op::NoOp, 0, (me + 1) % size, 0)?, (after - 1) * size as u64);
                world.barrier()
            })?;
        }
        let is_down = u64::from(std::path::Path::new(down).exists());
        let mut sums = [1u64 << me, is_down];
        world.allreduce(&mut sums, Commutative(|a: u64, b: u64| a + b))?;
        assert_eq!(sums[0], (1 << size) - 1);
        after += u64::from(sums[1] == size as u64);
        round += 1;
        if me == 0 && round == 3 {
            println!("the job runs");
        }
    }
    println!("rank {me} is done");
    window.free()?;
    counter.free()?;
    drop(world);
    job.finalize()
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Two namespaces, joined by the links `e1` and `e2`; dropping them removes them.
struct Hosts {
    names: [String; 2],
}

impl Hosts {
    /// `None` if they cannot be made, which is reported.
    fn new(test: &'static str) -> Option<Self> {
        let names = ["a", "b"].map(|host| format!("fo{}{}{host}", std::process::id(), test.len()));
        if !works("ip", &["netns", "add", &names[0]]) {
            skip(test, "network namespaces cannot be made: it needs root, and iproute2");
            return None;
        }
        ip(&format!("netns add {}", names[1]));
        let hosts = Self { names };
        let [a, b] = &hosts.names;
        hosts.names.iter().for_each(|name| ip(&format!("-n {name} link set lo up")));
        for link in 1..3 {
            ip(&format!("-n {a} link add e{link} type veth peer name e{link} netns {b}"));
            for (name, host) in [(a, 1), (b, 2)] {
                ip(&format!("-n {name} address add 10.78.{link}.{host}/24 dev e{link}"));
                ip(&format!("-n {name} link set e{link} up"));
            }
        }
        Some(hosts)
    }

    /// Runs ranks on the hosts; calls `act` when they communicate; returns what they have written, and how long they took
    /// after that.
    fn job(&self, set: &[(&str, &str)], act: impl FnOnce()) -> (String, bool, Duration) {
        let mut launcher = Command::new("timeout");
        launcher.arg("100").arg(farside()).args(["run", "-n", "2", "--", "sh", "-c"]);
        launcher.args([r#"eval name=\$HOST$PMI_RANK; exec ip netns exec $name unshare --uts sh -c 'echo $0 > /proc/sys/kernel/hostname; exec "$@"' $name "$@""#, "sh"]);
        launcher.args(itself("as_a_rank")).env_remove("FARSIDE_DEVICE").env_remove("FARSIDE_TEST_NODES");
        launcher.env("FARSIDE_LOG", "warn").env("FARSIDE_TCP_SILENCE_S", "3");
        launcher.env("FARSIDE_DEVICES", "tcp:e1,tcp:e2").envs(set.iter().copied());
        for (rank, host) in self.names.iter().enumerate() {
            launcher.env(format!("HOST{rank}"), host);
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

    /// Takes a link down at one of its sides.
    fn fail(&self, host: usize, link: usize) {
        ip(&format!("-n {} link set e{link} down", self.names[host]));
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| ip(&format!("netns del {name}")));
    }
}

#[test]
fn job_goes_on_by_the_other_interface() {
    const TEST: &str = "job_goes_on_by_the_other_interface";
    if std::env::var_os(DOWN).is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Rails, and devices for different sizes.
    for (host, link, devices) in
        [(0, 1, "tcp:e1,tcp:e2"), (1, 2, "tcp:e1,tcp:e2"), (1, 1, "tcp:e1@small+medium,tcp:e2@large")]
    {
        let Some(hosts) = Hosts::new(TEST) else { return };
        let path = folder.path().join(format!("{host}{link}{devices}").replace(':', ""));
        let set = [(DOWN, path.to_str().unwrap()), ("FARSIDE_DEVICES", devices)];
        let (text, is_success, time) = hosts.job(&set, || {
            hosts.fail(host, link);
            std::fs::write(&path, "").unwrap();
        });
        assert!(is_success, "{text}");
        assert!((0..2).all(|rank| text.contains(&format!("rank {rank} is done"))), "{text}");
        assert!(text.contains("is left for rank"), "{time:?}: {text}");
    }
}

#[test]
fn peer_is_lost_when_both_interfaces_fail() {
    if std::env::var_os(DOWN).is_some() {
        return;
    }
    let Some(hosts) = Hosts::new("peer_is_lost_when_both_interfaces_fail") else { return };
    let (text, is_success, time) = hosts.job(&[(DOWN, "/none")], || (1..3).for_each(|link| hosts.fail(0, link)));
    assert!(!is_success, "{text}");
    // The limits of both devices, and of the ranks' end.
    assert!(time < Duration::from_secs(40), "{time:?}: {text}");
    assert!(text.contains("rank says") && text.contains("rank 1"), "{text}");
}
