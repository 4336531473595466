//! The PMI-1 client against servers that send wrong or partial answers, fall silent or close the connection.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;

use farside_core::bootstrap::Bootstrap;
use farside_core::bootstrap::pmi1::Pmi1;
use farside_core::{Error, ErrorKind, Result};
use proptest::prelude::*;

/// `PATIENT` is far longer than an answer takes; `IMPATIENT` is for tests of silent servers.
const PATIENT: Duration = Duration::from_secs(20);
const IMPATIENT: Duration = Duration::from_millis(50);

const INIT: &str = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n";
const MAXES: &str = "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n";
const NAME: &str = "cmd=my_kvsname rc=0 kvsname=kvs\n";

/// A server that answers each request with the next reply, and hangs up after the last.
fn script(replies: &[&[u8]]) -> (UnixStream, JoinHandle<()>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let replies: Vec<Vec<u8>> = replies.iter().map(|r| r.to_vec()).collect();
    let server = std::thread::spawn(move || {
        let mut requests = BufReader::new(theirs.try_clone().unwrap());
        for reply in replies {
            let mut line = String::new();
            requests.read_line(&mut line).unwrap();
            // The client may have closed the connection.
            let _ = (&theirs).write_all(&reply);
        }
    });
    (ours, server)
}

/// The result of a client that connects, puts, fences, gets and finalizes.
fn talk(replies: &[&[u8]], timeout: Duration) -> Result<Vec<u8>> {
    let (socket, server) = script(replies);
    let result = (|| {
        let mut job = Pmi1::over(socket.into(), 0, 2, timeout)?;
        job.put("key", b"value")?;
        job.fence()?;
        let value = job.get("key")?;
        job.finalize()?;
        Ok(value)
    })();
    server.join().unwrap();
    result
}

/// Same as `talk`, after a successful connection.
fn talk_on(replies: &[&str]) -> Result<Vec<u8>> {
    let all: Vec<&[u8]> = [&[INIT, MAXES, NAME], replies].concat().iter().map(|r| r.as_bytes()).collect();
    talk(&all, PATIENT)
}

fn refused(e: &Error, kind: ErrorKind, part: &str) {
    assert_eq!(e.kind(), kind, "{e}");
    assert!(e.to_string().contains(part), "{part:?} is not in: {e}");
}

#[test]
fn client_accepts_the_answers_of_a_good_server() {
    // "value" in base64, after its length.
    let get = "cmd=get_result rc=0 msg=success value=5.dmFsdWU\n";
    let value = talk_on(&["cmd=put_result rc=0\n", "cmd=barrier_out\n", get, "cmd=finalize_ack\n"]);
    assert_eq!(value.unwrap(), b"value");
}

#[test]
fn client_refuses_a_connection_with_malformed_replies() {
    let long = vec![b'x'; 100_000];
    let cases: &[(&[&[u8]], &str)] = &[
        (&[], "closed the connection"),
        (&[b"cmd=response_to"], "in the middle of the line \"cmd=response_to\", before"),
        (&[b"\n"], "no `cmd=`"),
        (&[b"hello\n"], "\"hello\""),
        (&[b"\xff\xfe\x00\n"], "not text"),
        (&[&long], "longer than"),
        (&[b"cmd=maxes rc=0\n"], "instead of `response_to_init`"),
        (&[b"cmd=response_to_init rc=0\n"], "`pmi_version=` is missing"),
        (&[b"cmd=response_to_init rc=-1 pmi_version=1\n"], "the launcher refused the request"),
        (&[b"cmd=response_to_init rc=zero pmi_version=1\n"], "`rc=` is not a number"),
        (&[b"cmd=response_to_init rc=0 pmi_version=2\n"], "PMI version 2"),
        (&[b"cmd=response_to_init rc=0 rc=1 pmi_version=1\n"], "a second `rc=`"),
        (&[INIT.as_bytes(), b"cmd=maxes rc=0 keylen_max=64\n"], "`vallen_max=` is missing"),
        (&[INIT.as_bytes(), b"cmd=maxes keylen_max=64 vallen_max=-1\n"], "`vallen_max=` is not a number"),
        (&[INIT.as_bytes(), b"cmd=maxes keylen_max=64 vallen_max=3\n"], "too small"),
        (&[INIT.as_bytes(), b"cmd=maxes keylen_max=8 vallen_max=1024\n"], "keys of at most 7 characters"),
        (&[INIT.as_bytes(), MAXES.as_bytes(), b"cmd=my_kvsname rc=0\n"], "`kvsname=` is missing"),
        (&[INIT.as_bytes(), MAXES.as_bytes(), b"cmd=my_kvsname kvsname=\n"], "kvsname has 0"),
    ];
    for (replies, part) in cases {
        refused(&talk(replies, PATIENT).unwrap_err(), ErrorKind::Launcher, part);
    }
}

#[test]
fn client_refuses_malformed_replies_after_the_start() {
    let put = "cmd=put_result rc=0\n";
    let out = "cmd=barrier_out rc=0\n";
    let get = "cmd=get_result rc=0 value=5.dmFsdWU\n";
    let launcher: &[(&[&str], &str)] = &[
        (
            &["cmd=put_result rc=-1 msg=no_room:_4_MiB_a_rank\n"],
            "refused the value of key \"key\" (5 bytes): no room: 4 MiB a rank",
        ),
        (&[put, "cmd=barrier_out rc=1\n"], "the launcher refused the request"),
        (&[put, "cmd=barrier_out rc=-1 farside_lost=x\n"], "`farside_lost=` is not a number"),
        (&[put, "cmd=finalize_ack\n"], "instead of `barrier_out`"),
        (&[put], "closed the connection"),
        (&[put, out, "cmd=get_result rc=0\n"], "`value=` is missing"),
        (&[put, out, get, "cmd=barrier_out\n"], "instead of `finalize_ack`"),
        (&[put, out, get], "closed the connection"),
    ];
    for (replies, part) in launcher {
        refused(&talk_on(replies).unwrap_err(), ErrorKind::Launcher, part);
    }
    let protocol: &[(&str, &str)] = &[
        ("cmd=get_result rc=-1 msg=key_not_found value=unknown\n", "no rank put the key"),
        ("cmd=get_result rc=0 value=abc\n", "no value length"),
        ("cmd=get_result rc=0 value=99999999.AAAA\n", "malformed value length"),
        ("cmd=get_result rc=0 value=5.????\n", "value of key \"key\""),
        ("cmd=get_result rc=0 value=2.dmFsdWU\n", "the value has 5 bytes, but 2 were announced"),
    ];
    for (reply, part) in protocol {
        refused(&talk_on(&[put, out, reply]).unwrap_err(), ErrorKind::Protocol, part);
    }
    let lost = "cmd=barrier_out rc=-1 farside_lost=1 msg=it_was_killed\n";
    let e = talk_on(&[put, lost]).unwrap_err();
    refused(&e, ErrorKind::PeerLost, "it was killed");
    assert_eq!(e.blamed(), Some(1));
}

#[test]
fn client_waits_no_longer_than_the_timeout_and_stays_broken() {
    let (socket, silent) = UnixStream::pair().unwrap();
    let e = Pmi1::over(socket.into(), 0, 2, IMPATIENT).unwrap_err();
    refused(&e, ErrorKind::Timeout, "no `response_to_init`");
    drop(silent);
    // A server that falls silent in the barrier: later calls must not accept late replies as theirs.
    let (socket, theirs) = UnixStream::pair().unwrap();
    for line in [INIT, MAXES, NAME] {
        (&theirs).write_all(line.as_bytes()).unwrap();
    }
    let mut job = Pmi1::over(socket.into(), 0, 2, IMPATIENT).unwrap();
    refused(&job.fence().unwrap_err(), ErrorKind::Timeout, "no `barrier_out`");
    (&theirs).write_all(b"cmd=barrier_out rc=0\n").unwrap();
    refused(&job.put("key", b"").unwrap_err(), ErrorKind::Launcher, "no `barrier_out`");
    refused(&job.finalize().unwrap_err(), ErrorKind::Launcher, "no `barrier_out`");
}

#[test]
fn client_waits_no_longer_than_the_timeout_for_a_server_that_does_not_read() {
    let (socket, theirs) = UnixStream::pair().unwrap();
    for line in [INIT, MAXES, NAME] {
        (&theirs).write_all(line.as_bytes()).unwrap();
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        // Writes a reply to every put in advance, and reads nothing.
        s.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                if (&theirs).write_all(b"cmd=put_result rc=0\n").is_err() {
                    return;
                }
            }
        });
        let mut job = Pmi1::over(socket.into(), 0, 2, IMPATIENT).unwrap();
        let e = (0..100_000).find_map(|_| job.put("key", &[7; 1000]).err()).unwrap();
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        refused(&e, ErrorKind::Timeout, "does not read");
        drop(job);
    });
}

#[test]
fn client_refuses_a_rank_outside_the_job() {
    let (socket, _server) = UnixStream::pair().unwrap();
    refused(&Pmi1::over(socket.into(), 2, 2, IMPATIENT).unwrap_err(), ErrorKind::Launcher, "rank 2 of 2");
}

#[test]
fn value_larger_than_the_servers_limit_is_split() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || {
        let mut values: HashMap<String, String> = HashMap::new();
        for line in BufReader::new(theirs.try_clone().unwrap()).lines() {
            let line = line.unwrap();
            let field = |name: &str| line.split(' ').find_map(|w| w.strip_prefix(&format!("{name}=")));
            let reply = match field("cmd").unwrap() {
                "init" => INIT.to_owned(),
                "get_maxes" => "cmd=maxes kvsname_max=16 keylen_max=60 vallen_max=40\n".to_owned(),
                "get_my_kvsname" => NAME.to_owned(),
                "put" => {
                    let (key, value) = (field("key").unwrap(), field("value").unwrap());
                    assert!(key.len() < 60 && value.len() < 40, "{line}");
                    values.insert(key.to_owned(), value.to_owned());
                    "cmd=put_result rc=0\n".to_owned()
                }
                "get" => format!("cmd=get_result rc=0 value={}\n", values[field("key").unwrap()]),
                "barrier_in" => "cmd=barrier_out\n".to_owned(),
                other => panic!("{other}"),
            };
            (&theirs).write_all(reply.as_bytes()).unwrap();
        }
        values.len()
    });
    let mut job = Pmi1::over(ours.into(), 0, 1, PATIENT).unwrap();
    let key = "k".repeat(48);
    let value: Vec<u8> = (0..5000).map(|i| (i * 7 % 256) as u8).collect();
    job.put(&key, &value).unwrap();
    job.put("other", b"").unwrap();
    job.fence().unwrap();
    assert_eq!(job.get(&key).unwrap(), value);
    assert_eq!(job.get("other").unwrap(), b"");
    drop(job);
    assert!(server.join().unwrap() > 100);
}

#[test]
fn lines_are_no_longer_than_the_longest_value_allowed() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || {
        let mut lengths = Vec::new();
        for line in BufReader::new(theirs.try_clone().unwrap()).lines() {
            let line = line.unwrap();
            lengths.push(line.len() + 1);
            let reply = match line.split(' ').next().unwrap() {
                "cmd=init" => INIT,
                "cmd=get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
                "cmd=get_my_kvsname" => NAME,
                _ => "cmd=put_result rc=0\n",
            };
            (&theirs).write_all(reply.as_bytes()).unwrap();
        }
        lengths.into_iter().max().unwrap()
    });
    let mut job = Pmi1::over(ours.into(), 0, 1, PATIENT).unwrap();
    job.put(&"k".repeat(48), &[7; 65536]).unwrap();
    drop(job);
    let longest = server.join().unwrap();
    assert!((900..=1024).contains(&longest), "{longest}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn client_survives_any_bytes(good in 0usize..6, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let start = [INIT, MAXES, NAME, "cmd=put_result rc=0\n", "cmd=barrier_out rc=0\n"];
        let mut replies: Vec<&[u8]> = start[..good.min(start.len())].iter().map(|r| r.as_bytes()).collect();
        replies.push(&bytes);
        // Random bytes are not a valid conversation, and the server hangs up: the client gets an error and does not
        // hang.
        prop_assert!(talk(&replies, PATIENT).is_err());
    }
}
