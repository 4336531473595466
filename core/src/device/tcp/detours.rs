//! Ranks that cannot connect directly communicate over relays; a relay rejects a request without a reason.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::TcpDevice;
use super::address::Host;
use super::conn::Stage;
use super::cuts::exchange;
use super::relay::MAX_HOPS;
use super::secret::{self, Greeting, MESSAGE, SECRET};
use super::tests::{devices, leave, send, turn, until};
use crate::device::routing::RoutingTable;
use crate::device::{Device, PeerCheck};
use crate::error::ErrorKind;
use crate::stats::Kind;

/// An address to which connections fail.
const NOWHERE: &str = "255.255.255.255:9";

/// Makes ranks 0 and 2 unable to connect directly; rank 1 and all ranks after 2 are on hosts that share networks with
/// both.
fn triangle(ranks: &[TcpDevice]) {
    for (me, rank) in ranks.iter().enumerate() {
        let topology = &mut rank.shared.lock().topology;
        let host = |rank: usize| match rank {
            0 => Host::of("a", "10.0.1.1/24"),
            2 => Host::of("c", "10.0.2.1/24"),
            _ => Host::of(&format!("b{rank}"), &format!("10.0.1.{}/24 10.0.2.{}/24", rank + 2, rank + 2)),
        };
        topology.hosts = (0..ranks.len()).map(host).collect();
        if me == 0 || me == 2 {
            topology.addresses[2 - me].at = vec![NOWHERE.parse().unwrap()];
        }
    }
}

/// Number of bytes that a rank has relayed.
fn relayed(rank: &TcpDevice) -> u64 {
    let mut sum = 0;
    rank.stats(&mut |_, stats| sum += stats.snapshot().bytes(Kind::Relay));
    sum
}

/// Ends the connections that a rank relays, and makes `target` unreachable for it.
fn cut(rank: &TcpDevice, target: u32) {
    let mut engine = rank.shared.lock();
    let relays: Vec<u64> = engine
        .conns
        .iter()
        .filter(|(_, conn)| matches!(conn.stage, Stage::Relay(_)))
        .map(|(number, _)| number)
        .collect();
    assert!(!relays.is_empty());
    relays.into_iter().for_each(|number| engine.end_relay(number));
    engine.topology.addresses[target as usize].at = vec![NOWHERE.parse().unwrap()];
}

/// Sends packets between ranks 0 and 2 until both have received one.
fn talk(ranks: &[TcpDevice]) {
    for (from, to) in [(0, 2), (2, 0)] {
        send(&ranks[from], to, &[from as u8; 100]);
    }
    let mut got = [0, 0];
    until(|| {
        for (me, rank) in ranks.iter().enumerate() {
            let packets = turn(rank).len();
            got[me / 2] += if me == 1 || me > 2 { 0 } else { packets };
        }
        got == [1, 1]
    });
}

#[test]
fn ranks_without_a_common_network_use_a_rank_between_them() {
    for (n, encrypt, seed, rounds, most) in [(3, "0", 1, 2, 0), (3, "1", 2, 1, 70_000), (4, "0", 3, 1, 30_000)] {
        exchange(n, encrypt, (seed, rounds, most), triangle, |ranks| {
            let bytes: u64 = ranks.iter().map(relayed).sum();
            assert!(bytes > 100_000, "{bytes} bytes");
            assert_eq!(relayed(&ranks[0]) + relayed(&ranks[2]), 0);
        });
    }
}

/// A relay that loses its connection to the target is replaced by another one; without another one, the error names the
/// routes.
#[test]
fn another_relay_takes_over() {
    let ranks = devices(4, &[("FARSIDE_TCP_SILENCE_S", "3")]);
    triangle(&ranks);
    talk(&ranks);
    let first = if relayed(&ranks[1]) > 0 { 1 } else { 3 };
    let second = 4 - first;
    assert_eq!(relayed(&ranks[second]), 0);
    for to in [0, 2] {
        ranks[first].shared.lock().topology.addresses[to].at = vec![NOWHERE.parse().unwrap()];
    }
    cut(&ranks[first], 2);
    talk(&ranks);
    assert!(relayed(&ranks[second]) > 0);
    ranks[second].shared.lock().topology.addresses[0].at = vec![NOWHERE.parse().unwrap()];
    cut(&ranks[second], 2);
    let (begin, mut lost) = (Instant::now(), [None, None]);
    until(|| {
        for (me, rank) in ranks.iter().enumerate() {
            turn(rank);
            if me == 0 || me == 2 {
                lost[me / 2] = lost[me / 2].take().or_else(|| rank.check_peers(PeerCheck::Alive).err());
            }
        }
        lost.iter().all(Option::is_some)
    });
    assert!(begin.elapsed() >= Duration::from_secs(3), "attempts go on until the limit");
    for (me, lost) in lost.into_iter().flatten().enumerate() {
        assert_eq!((lost.kind(), lost.blamed()), (ErrorKind::PeerLost, Some(2 - 2 * me)), "{lost}");
        for way in [NOWHERE, "over rank 1: ", "over rank 3: "] {
            assert!(lost.to_string().contains(way), "{way}: {lost}");
        }
    }
}

/// The answer of `device` to a request of a rank that has `secret`; `None` if `device` ends the connection.
fn ask(ranks: &[TcpDevice], secret: &[u8; SECRET], greeting: &Greeting) -> Option<u8> {
    let device = &ranks[greeting.to as usize];
    let socket = TcpStream::connect(device.address()).unwrap();
    socket.set_nonblocking(true).unwrap();
    let read = |bytes: &mut [u8]| {
        let mut at = 0;
        while at < bytes.len() {
            ranks.iter().for_each(|rank| drop(turn(rank)));
            match (&socket).read(&mut bytes[at..]) {
                Ok(0) => return None,
                Ok(n) => at += n,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
        Some(())
    };
    let (mut challenge, mut answer, mut granted) = ([0; SECRET], [0; MESSAGE], [9]);
    read(&mut challenge)?;
    let (state, message) = secret::begin(secret, &challenge, greeting).unwrap();
    (&socket).write_all(&message).unwrap();
    read(&mut answer)?;
    secret::finish(state, (greeting.from, greeting.to), &answer).ok()?;
    read(&mut granted)?;
    Some(granted[0])
}

#[test]
fn requests_of_strangers_and_in_a_cycle_are_refused() {
    let ranks = devices(4, &[]);
    triangle(&ranks);
    let secret = ranks[0].secret;
    let request = Greeting { target: 2, origin: 0, hops: MAX_HOPS, ..Greeting::new(0, 1, 1, 0) };
    assert_eq!(ask(&ranks, &[7; SECRET], &request), None, "a stranger");
    for denied in [
        Greeting { target: 0, ..request },
        Greeting { target: 4, ..request },
        Greeting { target: u32::MAX, ..request },
        Greeting { origin: 1, ..request },
        Greeting { origin: 2, ..request },
        Greeting { origin: 9, ..request },
        Greeting { hops: MAX_HOPS + 1, ..request },
    ] {
        assert_eq!(ask(&ranks, &secret, &denied), Some(3), "{denied:?}");
    }
    assert_eq!(ask(&ranks, &secret, &request), Some(0));
    ranks[1].shared.lock().topology.addresses[2].at = vec![NOWHERE.parse().unwrap()];
    assert_eq!(ask(&ranks, &secret, &request), Some(2), "no way to the target");

    // The tables send connections to rank 2 from rank 1 to rank 3 and back.
    let routes = [("b1", "b3"), ("b3", "b1")].map(|(from, next)| {
        format!("[[routes]]\nfrom = \"{from}\"\nto = \"c\"\nnext = [\"{next}\", \"{next}\", \"{next}\"]\n")
    });
    let file = format!("version = 1\nnodes = [\"b1\", \"b3\", \"c\"]\n{}", routes.concat());
    for rank in &ranks {
        rank.shared.lock().topology.table = RoutingTable::read(&file).unwrap();
    }
    assert_eq!(ask(&ranks, &secret, &request), Some(2), "a cycle");
    until(|| {
        ranks.iter().for_each(|rank| drop(turn(rank)));
        ranks.iter().all(|rank| rank.shared.lock().relays() == 0)
    });
    leave(&ranks);
}

/// The agent of a rank that computes relays bytes.
#[test]
fn rank_that_computes_passes_bytes_on() {
    let ranks = devices(3, &[]);
    triangle(&ranks);
    // The agent runs, as on hosts where relays may be needed.
    ranks[1].start_agent().unwrap();
    send(&ranks[0], 2, &[1; 5000]);
    until(|| {
        turn(&ranks[0]);
        !turn(&ranks[2]).is_empty()
    });
    assert!(relayed(&ranks[1]) > 5000);
    leave(&ranks);
}
