#![allow(unsafe_code)]
//! A hundred thousand hostile frames, from unauthenticated connections and from a rank that misbehaves, while other
//! ranks continue.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use super::{Numbers, devices, hostile, peer, send, turn, until};
use crate::bootstrap::threads;
use crate::coll;
use crate::device::tcp::agent::Shared;
use crate::device::tcp::frame::{HEADER, Header, Kind, LAST};
use crate::device::tcp::open;
use crate::device::tcp::secret::{self, Greeting, MESSAGE, SECRET};
use crate::device::{Block, Device, Operation, PeerCheck, Place, Region};
use crate::error::{ErrorKind, Result};
use crate::job::Job;
use crate::settings::Settings;

/// Number of hostile frames.
const FRAMES: usize = 100_000;

/// Unauthenticated clients that connect to ranks.
#[derive(Default)]
struct Strangers {
    /// Numbers of frames sent, of connections, and of connections that a rank has ended.
    frames: AtomicUsize,
    connections: AtomicUsize,
    refused: AtomicUsize,
    /// Maximum number of connections of a rank at one time, and of bytes of packets in its inbox.
    most: AtomicUsize,
    inbox: AtomicUsize,
    are_done: AtomicBool,
}

impl Strangers {
    /// Scans ports, stays silent, sends garbage, and uses a wrong secret, until all frames are sent.
    fn attack(&self, at: &[SocketAddr], ranks: &[Arc<Shared>]) {
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        let frames: Vec<u8> = (0..200).flat_map(|_| hostile(&mut numbers, 1)).collect();
        let mut silent = Vec::new();
        while self.frames.load(Ordering::SeqCst) < FRAMES {
            let n = self.connections.fetch_add(1, Ordering::SeqCst);
            let mut socket = TcpStream::connect(at[n % at.len()]).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            match n / at.len() % 5 {
                0 => {}
                1 => set_socket_linger(&socket, Some(Duration::ZERO)).unwrap(),
                2 => silent.push(socket),
                3 => {
                    let garbage = numbers.bytes(MESSAGE);
                    self.send(socket, &garbage, &frames);
                }
                _ => {
                    let mut challenge = [0; SECRET];
                    // A rank that has too many unauthenticated connections closes some of them earlier.
                    if socket.read_exact(&mut challenge).is_ok() {
                        let greeting = Greeting::new(1, (n % at.len()) as u32, 1, 0);
                        let (_, message) = secret::begin(&[7; SECRET], &challenge, &greeting).unwrap();
                        self.send(socket, &message, &frames);
                    }
                }
            }
            for rank in ranks {
                let engine = rank.lock();
                self.most.fetch_max(engine.conns.iter().count(), Ordering::SeqCst);
                self.inbox.fetch_max(engine.inbox.bytes.len(), Ordering::SeqCst);
            }
        }
        self.are_done.store(true, Ordering::SeqCst);
    }

    /// Sends a first message and frames, and waits until the rank ends the connection.
    fn send(&self, mut socket: TcpStream, message: &[u8], frames: &[u8]) {
        if socket.write_all(message).and_then(|()| socket.write_all(frames)).is_ok() {
            self.frames.fetch_add(200, Ordering::SeqCst);
        }
        let mut answer = Vec::new();
        let ended = match socket.read_to_end(&mut answer) {
            Ok(_) => true,
            Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
        };
        // The answer is the challenge, or nothing.
        assert!(ended && answer.len() <= SECRET, "{} bytes", answer.len());
        self.refused.fetch_add(1, Ordering::SeqCst);
    }
}

/// Runs rounds of collectives and writes with checked values, until the hostile clients are done; returns their number.
fn rank(job: &Job, strangers: &Strangers) -> Result<u64> {
    const LEN: usize = 50_000;
    let world = job.world()?;
    let (me, size) = (world.rank(), world.size());
    let own = job.device().allocate(Region::allocated(LEN));
    // SAFETY: a registration of this job, which no test uses after a failure.
    let (own, remotes) = unsafe { coll::exchange_regions(&world, own, None) }?;
    let (mut round, mut are_done) = (0u64, false);
    while !are_done {
        let value = |rank: usize| (round * 3 + rank as u64) as u8;
        let mine = [vec![strangers.are_done.load(Ordering::SeqCst).into()], vec![value(me); 1000]].concat();
        let all = coll::allgather(&world, &mine)?;
        assert!(
            all.iter().enumerate().all(|(rank, got)| got.len() == 1001 && got[1..].iter().all(|b| *b == value(rank)))
        );
        are_done = all.iter().all(|got| got[0] == 1);
        let (right, left) = ((me + 1) % size, (me + size - 1) % size);
        let bytes = vec![value(me); LEN];
        let from = [Block::of(bytes.as_ptr(), LEN)];
        let to = Place { region: remotes[right].handle, offset: 0 };
        // SAFETY: the bytes outlive the call.
        unsafe { job.complete("write", right as u32, Operation::write(&from, to)) }?;
        world.barrier()?;
        // SAFETY: this rank's own memory, which does not change before the next barrier.
        let got = unsafe { std::slice::from_raw_parts(own.base, LEN) };
        assert!(got.iter().all(|byte| *byte == value(left)), "round {round}");
        world.barrier()?;
        round += 1;
    }
    for remote in &remotes {
        // SAFETY: no operation uses it any longer.
        unsafe { job.device().forget(remote.handle) };
    }
    world.barrier()?;
    // SAFETY: the other ranks have dropped their imports of it.
    unsafe { job.device().release(own.handle) }?;
    job.finalize()?;
    Ok(round)
}

#[test]
fn strangers_do_not_disturb_a_job() {
    let strangers = Strangers::default();
    let settings = Settings::from_lookup(|_| None).unwrap();
    let (opened, addresses) = mpsc::channel();
    let rounds: Vec<u64> = std::thread::scope(|scope| {
        let start = |mut bootstrap: threads::ThreadBootstrap| {
            let (opened, settings, strangers) = (opened.clone(), settings.clone(), &strangers);
            scope.spawn(move || {
                let device = open(&mut bootstrap, &settings).unwrap();
                opened.send((device.me, device.address(), Arc::clone(&device.shared))).unwrap();
                let job = Job::start_on(Box::new(bootstrap), settings, Box::new(device)).unwrap();
                rank(&job, strangers).unwrap()
            })
        };
        let ranks: Vec<_> = threads::threads(3).into_iter().map(start).collect();
        let mut all: Vec<_> = (0..3).map(|_| addresses.recv().unwrap()).collect();
        all.sort_by_key(|(rank, ..)| *rank);
        let at: Vec<SocketAddr> = all.iter().map(|(_, at, _)| *at).collect();
        let engines: Vec<Arc<Shared>> = all.into_iter().map(|(_, _, shared)| shared).collect();
        strangers.attack(&at, &engines);
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    assert!(rounds[0] > 10 && rounds.iter().all(|count| *count == rounds[0]), "{rounds:?}");
    let [frames, connections, refused, most, inbox] =
        [&strangers.frames, &strangers.connections, &strangers.refused, &strangers.most, &strangers.inbox]
            .map(|count| count.load(Ordering::SeqCst));
    assert!(
        frames >= FRAMES && refused >= frames / 200 && connections > 2 * refused,
        "{frames} {connections} {refused}"
    );
    // Silent clients, of which the oldest are disconnected, and the connections of the job.
    assert!(most <= 256 + 16 && inbox < 4 << 20, "{most} connections, {inbox} bytes");
}

/// A request that is rejected: a key that does not exist, or bytes outside the region of 2048 bytes.
fn refused(numbers: &mut Numbers, key: u64) -> Vec<u8> {
    let mut pick = |of: &[u64]| of[numbers.next() as usize % of.len()];
    let (key, offset) = match pick(&[0, 1, 1]) {
        0 => (pick(&[0, key + 1, key + 1000, u64::MAX]), pick(&[0, 8, u64::MAX])),
        _ => (key, pick(&[2048, 2048 + 8, 1 << 40, u64::MAX - 7])),
    };
    let kind = [Kind::Write, Kind::FetchAdd, Kind::CompareSwap, Kind::Signal][pick(&[0, 1, 2, 3]) as usize];
    let (size, len, payload) = match kind {
        Kind::Write => (0, 16, 16),
        Kind::CompareSwap => (8, 0, 16),
        _ => (0, pick(&[0, 1, u64::MAX]), 0),
    };
    let header = Header { flags: LAST, size, key, offset, len, ..Header::new(kind) };
    [&header.bytes()[..], &numbers.bytes(payload)].concat()
}

#[test]
fn requests_of_a_rank_that_misbehaves_are_refused_and_others_go_on() {
    const BATCH: usize = 50;
    let ranks = devices(3, &[]);
    let mut numbers = Numbers(0x1234_5678_9abc_def1);
    let mut memory = vec![0u8; 4096];
    // SAFETY: the memory outlives the registration.
    let region = unsafe { ranks[0].register(Region::of(memory[1024..].as_mut_ptr(), 2048)) }.unwrap();
    // Rank 2 is this test.
    let mut socket = peer(&ranks[0], &ranks[2].secret, 2);
    let mut exchanged = 0u64;
    let mut exchange = || {
        exchanged += 1;
        let value = exchanged.to_le_bytes();
        send(&ranks[0], 1, &value);
        send(&ranks[1], 0, &value);
        let mut got = [Vec::new(), Vec::new()];
        until(|| {
            got.iter_mut().zip(&ranks).for_each(|(got, rank)| got.extend(turn(rank)));
            got.iter().all(|got| !got.is_empty())
        });
        assert_eq!(got, [[value], [value]]);
    };
    let (mut answers, mut failures) = (Vec::new(), 0);
    for _ in 0..FRAMES / BATCH {
        let frames: Vec<u8> = (0..BATCH).flat_map(|_| refused(&mut numbers, region.handle)).collect();
        socket.write_all(&frames).unwrap();
        exchange();
        let mut buffer = [0; 1 << 16];
        while let Ok(len @ 1..) = socket.read(&mut buffer) {
            answers.extend(&buffer[..len]);
        }
        for answer in answers.chunks_exact(HEADER) {
            failures += usize::from(answer[0] == Kind::Done as u8 && answer[2..4] != [0; 2]);
            assert!([Kind::Done as u8, Kind::Received as u8].contains(&answer[0]), "{answer:?}");
        }
        answers.drain(..answers.len() / HEADER * HEADER);
    }
    until(|| {
        turn(&ranks[0]);
        let mut buffer = [0; 1 << 16];
        if let Ok(len) = socket.read(&mut buffer) {
            answers.extend(&buffer[..len]);
        }
        let whole =
            answers.chunks_exact(HEADER).filter(|answer| answer[0] == Kind::Done as u8 && answer[2..4] != [0; 2]);
        failures + whole.count() == FRAMES
    });
    assert!(ranks[0].check_peers(PeerCheck::Alive).is_ok());
    {
        let engine = ranks[0].shared.lock();
        assert!(engine.peers[2].replies.buffered < 1 << 20 && engine.inbox.bytes.len() < 4 << 20);
    }
    assert!(memory.iter().all(|byte| *byte == 0), "nothing was written");
    // Frames that break the protocol: the rank is lost, and the other ranks still communicate.
    while ranks[0].shared.lock().peers[2].lost.is_none() {
        let _ = socket.write_all(&numbers.bytes(HEADER));
        exchange();
    }
    let lost = ranks[0].check_peers(PeerCheck::Alive).unwrap_err();
    assert_eq!((lost.kind(), lost.blamed()), (ErrorKind::Protocol, Some(2)), "{lost}");
    exchange();
    // SAFETY: the handle of the registration above.
    unsafe { ranks[0].release(region.handle) }.unwrap();
}
