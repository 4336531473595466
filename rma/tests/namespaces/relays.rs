//! Three hosts in a triangle, of which one link is missing, or is cut while the job runs; or four in a chain. Ranks
//! that cannot connect directly communicate over others, which they find themselves or in a table of routes.

use std::process::Command;
use std::time::Duration;

use farside_harness::{farside, signal};

use super::{CUT, Hosts};

/// The hosts of ranks 0 to 3 of most jobs.
const RANKS: [usize; 4] = [0, 1, 2, 1];
/// The links of a triangle without one of them, and of a chain.
const OPEN: [[usize; 2]; 2] = [[0, 1], [1, 2]];
const CHAIN: [[usize; 2]; 3] = [[0, 1], [1, 2], [2, 3]];

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
    // The ranks on the other side of the link lose rank 2.
    assert!(text.contains("rank says") && text.contains("rank 2"), "{text}");
}

/// The rank that passes on the bytes of ranks 0 and 2 is killed: a rank of the job is lost, and all others name it.
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
        // The output has the links that exist, and no others; subnets, and the reason why a link is missing, are
        // comments.
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
