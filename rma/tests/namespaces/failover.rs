//! Two hosts with two links; one link fails while the job runs, and the other takes over. In the machine of `ci/rxe`
//! also two nodes with HCAs, which fail, and a network for tcp.

use std::time::Duration;

use farside_harness::{Marked, works};

use super::{CUT, FAILS, Hosts, program, run};

/// The devices of ranks 0 and 1: both links.
const BOTH: &str = "tcp:v01,tcp:v01b;tcp:v10,tcp:v10b";
const LINKS: [[usize; 2]; 2] = [[0, 1], [0, 1]];

#[test]
fn job_goes_on_by_the_other_interface() {
    if std::env::var_os(CUT).is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The devices are rails, or serve different message sizes.
    for (host, interface, devices) in [
        (0, "v01", BOTH),
        (1, "v10b", BOTH),
        (1, "v10", "tcp:v01@small+medium,tcp:v01b@large;tcp:v10@small+medium,tcp:v10b@large"),
    ] {
        let Some(hosts) = Hosts::new("job_goes_on_by_the_other_interface", &LINKS) else { return };
        let path = folder.path().join(format!("{interface}{}", devices.len()));
        let set = [
            (CUT, path.to_str().unwrap()),
            (FAILS, "1"),
            ("FARSIDE_DEVICE", "route"),
            ("FARSIDE_DEVICES", devices),
            ("FARSIDE_LOG", "warn"),
        ];
        let (text, is_success, time) = hosts.job(&[0, 1], &set, |_| {
            hosts.take_down(host, interface);
            std::fs::write(&path, "").unwrap();
        });
        assert!(is_success, "{text}");
        assert!((0..2).all(|rank| text.contains(&format!("rank {rank} is done"))), "{text}");
        assert!(text.contains("is no longer used for rank"), "{time:?}: {text}");
    }
}

#[test]
fn peer_is_lost_when_both_interfaces_fail() {
    if std::env::var_os(CUT).is_some() {
        return;
    }
    let Some(hosts) = Hosts::new("peer_is_lost_when_both_interfaces_fail", &LINKS) else { return };
    let set = [(CUT, "/none"), (FAILS, "1"), ("FARSIDE_DEVICE", "route"), ("FARSIDE_DEVICES", BOTH)];
    let (text, is_success, time) = hosts.job(&[0, 1], &set, |_| {
        hosts.take_down(0, "v01");
        hosts.take_down(0, "v01b");
    });
    assert!(!is_success, "{text}");
    // The time includes the time limits of both devices and of the end of the ranks.
    assert!(time < Duration::from_secs(40), "{time:?}: {text}");
    assert!(text.contains("rank says") && text.contains("rank 1"), "{text}");
}

/// The cable of an HCA is unplugged, or packets are lost without any event.
#[test]
fn job_goes_on_by_tcp_when_the_hca_fails() {
    if std::env::var_os(CUT).is_some() || !works("rxe-link", &["show"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for how in ["down", "cut"] {
        let path = folder.path().join(how);
        let mut job = Marked::run(2, &["--timeout", "90"]);
        job.command.args(program()).env(CUT, &path).env(FAILS, "hca").env("FARSIDE_LOG", "warn");
        job.command
            .env("FARSIDE_TEST_NODES", "2")
            .env("FARSIDE_DEVICE", "route")
            .env("FARSIDE_DEVICES", "shm,verbs,tcp");
        let (text, is_success, time) = run(job, |_| {
            assert!(works("rxe-link", &[how, "rxe0"]));
            std::fs::write(&path, "").unwrap();
        });
        assert!(works("rxe-link", &["up", "all"]));
        assert!(is_success, "{how}: {time:?}: {text}");
        assert!((0..2).all(|rank| text.contains(&format!("rank {rank} is done"))), "{how}: {text}");
        assert!(
            text.contains("device verbs") && text.contains("is no longer used for rank"),
            "{how}: {time:?}: {text}"
        );
    }
}
