//! Two hosts with two links, of which one fails while the job runs, and the other one carries on.

use std::time::Duration;

use super::{CUT, FAILS, Hosts};

/// The devices of ranks 0 and 1: both links.
const BOTH: &str = "tcp:v01,tcp:v01b;tcp:v10,tcp:v10b";
const LINKS: [[usize; 2]; 2] = [[0, 1], [0, 1]];

#[test]
fn job_goes_on_by_the_other_interface() {
    if std::env::var_os(CUT).is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Rails, and devices for different sizes.
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
        assert!(text.contains("is left for rank"), "{time:?}: {text}");
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
    // The limits of both devices, and of the ranks' end.
    assert!(time < Duration::from_secs(40), "{time:?}: {text}");
    assert!(text.contains("rank says") && text.contains("rank 1"), "{text}");
}
