#![allow(unsafe_code)]
//! The choice of a rank's port. In the emulated machine each of two ranks sees two devices only: the first by name in a
//! separate subnet, the other in the common network. The ranks run this program again, under `farside run`.

use std::process::{Command, Stdio};

use crate::regions::{exchange_regions, forget, release};
use farside_core::device::{Block, Operation, Place};
use farside_core::{Job, Result};

/// Environment variables with the devices that rank 0 and rank 1 see.
const SEEN: [&str; 2] = ["FARSIDE_TEST_SEEN_0", "FARSIDE_TEST_SEEN_1"];
/// Script that hides all other devices from this process, and then becomes the rank.
const HIDE: &str = r#"set -e
eval "seen=\$FARSIDE_TEST_SEEN_$PMI_RANK"
mount -t tmpfs -o mode=755 tmpfs /dev/infiniband
for u in /sys/class/infiniband_verbs/uverbs*; do
    case " $seen " in *" $(cat "$u/ibdev") "*) mknod "/dev/infiniband/${u##*/}" c $(tr : ' ' <"$u/dev") ;; esac
done
exec "$@""#;

/// Two additional devices, each alone in its subnet: a0 and a1, which precede rxe0 and rxe1. They are removed on drop.
struct Lonely;

impl Lonely {
    /// Returns `None`, with a message, if devices cannot be created.
    fn new() -> Option<Self> {
        if std::env::var_os("RXE").is_none() {
            println!("skipped: not in the machine of ci/rxe");
            return None;
        }
        let me = Self;
        for i in 0..2 {
            let (link, address) = (format!("d{i}"), format!("10.7{i}.0.1/24"));
            me.ip(&["link", "add", &link, "type", "dummy"]);
            me.ip(&["address", "add", &address, "dev", &link]);
            me.ip(&["link", "set", &link, "up"]);
            let made =
                Command::new("rdma").args(["link", "add", &format!("a{i}"), "type", "rxe", "netdev", &link]).status();
            assert!(made.unwrap().success(), "a{i}");
        }
        Some(me)
    }

    fn ip(&self, arguments: &[&str]) {
        assert!(Command::new("ip").args(arguments).status().unwrap().success(), "ip {arguments:?}");
    }
}

impl Drop for Lonely {
    fn drop(&mut self) {
        for i in 0..2 {
            let _ = Command::new("rdma").args(["link", "delete", &format!("a{i}")]).status();
            let _ = Command::new("ip").args(["link", "delete", &format!("d{i}")]).status();
        }
    }
}

/// Packets that a device has sent.
fn sent(device: &str) -> u64 {
    let counter = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/sent_pkts");
    // The kernel caches the counters for 10 ms on devices whose `lifespan` the machine's set-up has not changed.
    std::thread::sleep(std::time::Duration::from_millis(20));
    std::fs::read_to_string(counter).unwrap().trim().parse().unwrap()
}

/// Runs a job of two ranks that see these devices; returns its success and output.
fn job(seen: [&str; 2]) -> (bool, String) {
    let output = Command::new("timeout")
        .arg("50")
        .arg(farside_harness::farside())
        .args(["run", "-n", "2", "--", "unshare", "--mount", "sh", "-c", HIDE, "sh"])
        .args(farside_harness::itself!("as_a_rank"))
        .envs(SEEN.into_iter().zip(seen))
        .env("FARSIDE_VERBS_DEVICE", "auto")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

/// This is not a test of its own, but the program of the ranks.
#[test]
fn as_a_rank() {
    if std::env::var_os(SEEN[0]).is_none() {
        return;
    }
    if let Err(e) = rank() {
        println!("rank says: {e}");
        std::process::exit(3);
    }
}

/// Writes to the other rank, adds to its memory, and checks the results.
fn rank() -> Result<()> {
    let job = Job::init()?;
    let team = job.world()?;
    let own = job.device().allocate(farside_core::device::Region::allocated(64));
    let (own, remotes) = exchange_regions(&team, own, None)?;
    let me = job.rank_number();
    let at = |offset| Place { region: remotes[1 - me as usize].handle, offset };
    let (value, mut old) = (100 + u64::from(me), u64::MAX);
    let from = [Block::of((&raw const value).cast(), 8)];
    // SAFETY: the variables live until each operation is complete; this rank's memory is not written after the barrier.
    let got = unsafe {
        job.complete("write", 1 - me, Operation::write(&from, at(0)))?;
        job.complete("add", 1 - me, Operation::fetch_add(at(8), 7, &raw mut old))?;
        team.barrier()?;
        [own.base.cast::<u64>().read(), own.base.cast::<u64>().add(1).read()]
    };
    assert_eq!((got, old), ([101 - u64::from(me), 7], 0));
    remotes.iter().for_each(|r| forget(&job, r.handle));
    release(&job, own.handle)?;
    println!("rank {me} is done");
    job.finalize()
}

/// The first port of each rank reaches no other rank; the job uses the second.
#[test]
fn port_that_reaches_the_peers_is_taken_though_another_is_first() {
    let Some(_lonely) = Lonely::new() else { return };
    for (seen, rank_1) in [(["a0 rxe0", "a1 rxe1"], "rxe1"), (["rxe0", "a1 rxe0"], "rxe0")] {
        let before = ["a0", "a1", "rxe0", rank_1].map(sent);
        let (well, text) = job(seen);
        assert!(well && text.contains("rank 0 is done") && text.contains("rank 1 is done"), "{seen:?}: {text}");
        let after = ["a0", "a1", "rxe0", rank_1].map(sent);
        assert_eq!(before[..2], after[..2], "{seen:?}");
        assert!(after[2] > before[2] && after[3] > before[3], "{seen:?}: {before:?} {after:?}");
    }
}

/// Both ranks report which rank has which ports, and what to do.
#[test]
fn ranks_without_a_common_network_report_the_ports_of_each() {
    let Some(_lonely) = Lonely::new() else { return };
    let (well, text) = job(["a0", "a1 rxe1"]);
    assert!(!well, "{text}");
    let said: Vec<&str> = text.lines().filter(|l| l.contains("rank says: ")).collect();
    assert_eq!(said.len(), 2, "{text}");
    for line in said {
        for word in [
            "rank 0 on `rxe` has a0 port 1 (RoCE v2, 10.70.0.0/24)",
            "rank 1 on `rxe` has rxe1 port 1 (RoCE v2, 10.9.0.0/24), a1 port 1 (RoCE v2, 10.71.0.0/24)",
            "FARSIDE_VERBS_DEVICE",
        ] {
            assert!(line.contains(word), "{word}: {line}");
        }
    }
    // A rank without devices reports the problem of its machine, and the other rank reports that too.
    let (well, text) = job(["", "rxe1"]);
    assert!(!well, "{text}");
    let says = |what: &str| text.lines().any(|l| l.contains("rank says: ") && l.contains(what));
    assert!(says("(at rank 0)") && says("(at rank 1)") && says("rank 0 on `rxe` has none: "), "{text}");
}

/// `farside info` shows for each port and GID whether it would be used, and why; ports that are slow come last.
#[test]
fn info_explains_every_port_and_gid() {
    let Some(_lonely) = Lonely::new() else { return };
    Command::new("ip").args(["link", "set", "d1", "down"]).status().unwrap();
    let info = |set: &str| {
        let mut info = Command::new(farside_harness::farside());
        let output = info.arg("info").env("FARSIDE_VERBS_DEVICE", set).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let text = info("auto");
    for line in [
        "- rxe0 port 1 (RoCE), GID 1 ::ffff:10.9.0.1 (RoCE v2, an IPv4 address), 10 Gb/s, RoCE v2, 10.9.0.0/24: used if it \
         reaches all",
        "- a0 port 1 (RoCE), GID 1 ::ffff:10.70.0.1 (RoCE v2, an IPv4 address), 2.5 Gb/s, RoCE v2, 10.70.0.0/24: used if it \
         reaches all ranks of the job and none above does",
        "- not used: a1: port 1 is not active",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let links: Vec<&str> = text
        .lines()
        .filter(|l| l.contains("- not used: a0: port 1") || l.contains("a0 port 1 (RoCE), GID 0"))
        .collect();
    assert!(links.len() == 1 && links[0].contains("a link-local GID"), "{text}");
    let text = info("rxe1");
    assert!(text.contains("- not used: a0: FARSIDE_VERBS_DEVICE selects another device or port"), "{text}");
    assert!(!text.contains("- rxe0 port 1 (RoCE), GID 1"), "{text}");
}
