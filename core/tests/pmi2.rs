//! The PMI-2 client with a correct server, and with servers that send wrong or partial answers, fall silent or close
//! the connection.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use farside_core::bootstrap::Bootstrap;
use farside_core::bootstrap::pmi2::Pmi2;
use farside_core::{Error, ErrorKind, Result};

/// `PATIENT` is far longer than an answer takes; `IMPATIENT` is for tests of silent servers.
const PATIENT: Duration = Duration::from_secs(20);
const IMPATIENT: Duration = Duration::from_millis(50);

const INIT: &str = "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n";
const JOINED: &str = "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=2;appnum=0;";
const NAME: &str = "cmd=job-getid-response;rc=0;jobid=job.7;";

/// A message with its length, as Slurm writes it.
fn framed(body: &str) -> Vec<u8> {
    format!("{:<6}{body}", body.len()).into_bytes()
}

/// The next request: a line at first, then messages with their length.
fn request(from: &mut BufReader<UnixStream>, is_line: bool) -> Option<String> {
    let mut bytes = Vec::new();
    if is_line {
        from.read_until(b'\n', &mut bytes).ok()?;
    } else {
        let mut length = [0; 6];
        from.read_exact(&mut length).ok()?;
        bytes.resize(std::str::from_utf8(&length).unwrap().trim().parse().unwrap(), 0);
        from.read_exact(&mut bytes).ok()?;
    }
    Some(String::from_utf8(bytes).unwrap())
}

/// A server that answers each request with the next reply, and hangs up after the last.
fn script(replies: Vec<Vec<u8>>) -> (UnixStream, JoinHandle<()>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || {
        let mut requests = BufReader::new(theirs.try_clone().unwrap());
        for (n, reply) in replies.into_iter().enumerate() {
            request(&mut requests, n == 0);
            // The client may have closed the connection.
            let _ = (&theirs).write_all(&reply);
        }
    });
    (ours, server)
}

/// The result of a client that connects, puts, fences, gets and finalizes.
fn talk(replies: Vec<Vec<u8>>) -> Result<Vec<u8>> {
    let (socket, server) = script(replies);
    let result = (|| {
        let mut job = Pmi2::over(socket.into(), 0, "7", PATIENT)?;
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
    let later = [&[JOINED, NAME], replies].concat().into_iter().map(framed);
    talk([INIT.as_bytes().to_vec()].into_iter().chain(later).collect())
}

fn refused(e: &Error, kind: ErrorKind, part: &str) {
    assert_eq!(e.kind(), kind, "{e}");
    assert!(e.to_string().contains(part), "{part:?} is not in: {e}");
}

#[test]
fn ranks_exchange_values_by_a_server() {
    const RANKS: usize = 3;
    let (values, barrier) = (Arc::new(Mutex::new(HashMap::new())), Arc::new(Barrier::new(RANKS)));
    let serve = |theirs: UnixStream, rank: usize| {
        let (values, barrier) = (Arc::clone(&values), Arc::clone(&barrier));
        std::thread::spawn(move || {
            let mut requests = BufReader::new(theirs.try_clone().unwrap());
            assert_eq!(request(&mut requests, true).unwrap(), "cmd=init pmi_version=2 pmi_subversion=0\n");
            (&theirs).write_all(INIT.as_bytes()).unwrap();
            let mut commands = Vec::new();
            while let Some(text) = request(&mut requests, false) {
                let field = |name: &str| text.split(';').find_map(|word| word.strip_prefix(&format!("{name}=")));
                let command = field("cmd").unwrap().to_owned();
                let answer = match command.as_str() {
                    "fullinit" => {
                        assert_eq!(text, format!("cmd=fullinit;pmijobid=7;pmirank={rank};threaded=FALSE;"));
                        format!("rank={rank};size={RANKS};appnum=0;debugged=FALSE;")
                    }
                    "job-getid" => "jobid=job.7;".to_owned(),
                    "kvs-put" => {
                        let [key, value] = ["key", "value"].map(|name| field(name).unwrap());
                        assert!(key.len() < 64 && value.len() < 1024, "{text}");
                        values.lock().unwrap().insert(key.to_owned(), value.to_owned());
                        String::new()
                    }
                    "kvs-fence" => {
                        barrier.wait();
                        String::new()
                    }
                    "kvs-get" => {
                        assert_eq!(field("jobid"), Some("job.7"));
                        let found = values.lock().unwrap().get(field("key").unwrap()).cloned();
                        found.map_or_else(|| "found=FALSE;".into(), |value| format!("found=TRUE;value={value};"))
                    }
                    _ => String::new(),
                };
                commands.push(command.clone());
                if command == "abort" {
                    assert_eq!(text, "cmd=abort;isworld=TRUE;exitcode=7;msg=a_b;");
                    break;
                }
                (&theirs).write_all(&framed(&format!("cmd={command}-response;rc=0;{answer}"))).unwrap();
            }
            commands
        })
    };
    let ranks = (0..RANKS).map(|rank| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let server = serve(theirs, rank);
        let rank = std::thread::spawn(move || {
            let mut job = Pmi2::over(ours.into(), rank as u32, "7", PATIENT).unwrap();
            assert_eq!((job.rank(), job.size(), job.job_id(), job.kind()), (rank as u32, 3, "job.7", "pmi-2"));
            let value = |rank: usize| (0..rank * 30_000).map(|i| (i * 7 % 256) as u8).collect::<Vec<u8>>();
            job.put(&format!("{}.{rank}", "k".repeat(46)), &value(rank)).unwrap();
            job.fence().unwrap();
            for other in 0..RANKS {
                assert_eq!(job.get(&format!("{}.{other}", "k".repeat(46))).unwrap(), value(other));
            }
            refused(&job.get("none").unwrap_err(), ErrorKind::Protocol, "no rank put the key \"none\"");
            if rank == 2 {
                job.abort(7, "a;b");
            } else {
                job.finalize().unwrap();
            }
            refused(&job.fence().unwrap_err(), ErrorKind::Launcher, "the rank has");
        });
        (rank, server)
    });
    for (rank, server) in ranks.collect::<Vec<_>>() {
        rank.join().unwrap();
        let commands = server.join().unwrap();
        assert!(["finalize", "abort"].contains(&commands.last().unwrap().as_str()), "{commands:?}");
    }
}

#[test]
fn client_refuses_a_connection_with_malformed_replies() {
    let line = |text: &str| text.as_bytes().to_vec();
    let init = || line(INIT);
    let cases = [
        (vec![], "closed the connection"),
        (vec![line("cmd=response_to_init rc=0 pmi_version=1\n")], "PMI version 1, not 2"),
        (vec![line("cmd=response_to_init rc=-1 pmi_version=2\n")], "the launcher refused the request"),
        (vec![line("cmd=response_to_init rc=0\n")], "`pmi_version=` is missing"),
        (vec![init(), line("hello!cmd=")], "malformed message length in \"hello!cmd=\""),
        (vec![init(), line("999999cmd=")], "malformed message length"),
        (vec![init(), line("12    cmd")], "in the middle of the line \"12    cmd\", before"),
        (vec![init(), framed("rc=0;")], "no `cmd=`"),
        (vec![init(), framed("cmd=fullinit-response")], "a field without its end"),
        (vec![init(), framed("cmd=fullinit-response;rc;")], "a field without a value"),
        (vec![init(), framed("cmd=fullinit-response;rc=0;rc=0;")], "a second `rc=`"),
        (vec![init(), framed("cmd=kvs-put-response;rc=0;")], "instead of `fullinit-response`"),
        (vec![init(), framed("cmd=fullinit-response;rc=14;errmsg=no;")], "the launcher refused the request"),
        (vec![init(), framed("cmd=fullinit-response;rc=0;rank=0;")], "`size=` is missing"),
        (vec![init(), framed("cmd=fullinit-response;rc=0;rank=1;size=2;")], "the launcher gave rank 1 of 2 to rank 0"),
        (vec![init(), framed("cmd=fullinit-response;rc=0;rank=0;size=0;")], "the launcher gave rank 0 of 0"),
        (vec![init(), framed(JOINED), framed("cmd=job-getid-response;rc=0;jobid=;")], "job ID has 0"),
    ];
    for (replies, part) in cases {
        refused(&talk(replies).unwrap_err(), ErrorKind::Launcher, part);
    }
}

#[test]
fn client_refuses_malformed_replies_after_the_start() {
    let put = "cmd=kvs-put-response;rc=0;";
    let fence = "cmd=kvs-fence-response;rc=0;";
    let get = "cmd=kvs-get-response;rc=0;found=TRUE;value=5.dmFsdWU;";
    assert_eq!(talk_on(&[put, fence, get, "cmd=finalize-response;rc=0;"]).unwrap(), b"value");
    let launcher: &[(&[&str], &str)] = &[
        (&["cmd=kvs-put-response;rc=1;errmsg=no room;"], "refused the value of key \"key\" (5 bytes): no room"),
        (&[put, "cmd=kvs-fence-response;rc=1;errmsg=srun is gone;"], "errmsg=srun is gone"),
        (&[put], "closed the connection"),
        (&[put, fence, "cmd=kvs-get-response;rc=0;"], "`found=` is missing"),
        (&[put, fence, "cmd=kvs-get-response;rc=0;found=TRUE;"], "`value=` is missing"),
        (&[put, fence, get, fence], "instead of `finalize-response`"),
    ];
    for (replies, part) in launcher {
        refused(&talk_on(replies).unwrap_err(), ErrorKind::Launcher, part);
    }
    for (reply, part) in [
        ("rc=0;found=FALSE;", "no rank put the key"),
        ("found=TRUE;value=2.dmFsdWU;", "the value has 5 bytes, but 2 were announced"),
    ] {
        let reply = format!("cmd=kvs-get-response;{reply}");
        refused(&talk_on(&[put, fence, &reply]).unwrap_err(), ErrorKind::Protocol, part);
    }
}

#[test]
fn client_waits_no_longer_than_the_timeout_and_stays_broken() {
    let (socket, theirs) = UnixStream::pair().unwrap();
    let replies = [INIT.as_bytes().to_vec(), framed(JOINED), framed(NAME)].concat();
    (&theirs).write_all(&replies).unwrap();
    let mut job = Pmi2::over(socket.into(), 0, "7", IMPATIENT).unwrap();
    refused(&job.fence().unwrap_err(), ErrorKind::Timeout, "no `kvs-fence-response`");
    (&theirs).write_all(&framed("cmd=kvs-fence-response;rc=0;")).unwrap();
    refused(&job.put("key", b"").unwrap_err(), ErrorKind::Launcher, "no `kvs-fence-response`");
}
