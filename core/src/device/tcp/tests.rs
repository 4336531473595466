#![allow(unsafe_code)]
//! Unauthenticated connections and peers that break the protocol are refused and use bounded memory, whatever they
//! send.

mod packets;
mod storms;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use super::conn::Stage;
use super::frame::{CHUNK, END, HEADER, Header, Kind, LAST, PIECE};
use super::memory::Memory;
use super::peer::{Call, MAX_OWED, Peer};
use super::secret::{self, Greeting, MESSAGE, SECRET};
use super::sys::Blocks;
use super::{TcpDevice, open};
use crate::bootstrap::threads::threads;
use crate::device::{Block, Device, Event, Leave, Operation, PeerCheck, Place, Range, Region, WorkRequest};
use crate::error::ErrorKind;
use crate::settings::Settings;

/// The devices of `n` ranks, all driven by this thread.
pub(super) fn devices(n: usize, set: &[(&str, &str)]) -> Vec<TcpDevice> {
    let settings =
        Settings::from_lookup(|name| set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
            .unwrap();
    let opened = std::thread::scope(|scope| {
        let ranks: Vec<_> = threads(n)
            .into_iter()
            .map(|mut bootstrap| {
                let settings = &settings;
                scope.spawn(move || Moved(open(&mut bootstrap, settings).unwrap()))
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
    });
    opened.into_iter().map(|moved| moved.0).collect()
}

/// A device that only one thread uses at a time.
struct Moved(TcpDevice);

// SAFETY: no part of a device is bound to a thread.
unsafe impl Send for Moved {}

impl TcpDevice {
    pub(super) fn address(&self) -> SocketAddr {
        self.shared.lock().topology.addresses[self.me as usize].at[0]
    }
}

pub(super) fn turn(device: &TcpDevice) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    device
        .poll(&mut |event| {
            if let Event::Packet { bytes, .. } = event {
                packets.push(bytes.to_vec());
            }
        })
        .unwrap();
    packets
}

pub(super) fn send(device: &TcpDevice, peer: u32, bytes: &[u8]) {
    let operation = Operation::send(bytes, &[]);
    // SAFETY: a packet is copied.
    unsafe { device.post(&WorkRequest { peer, operation, notify: None, id: 0 }) }.unwrap();
}

/// A generator of pseudo-random numbers, the same in every run.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// A connection to `device` that has authenticated itself as `me`.
fn peer(device: &TcpDevice, secret: &[u8; SECRET], me: u32) -> TcpStream {
    let mut socket = TcpStream::connect(device.address()).unwrap();
    socket.set_nonblocking(true).unwrap();
    let read = |socket: &mut TcpStream, bytes: &mut [u8]| {
        let mut at = 0;
        while at < bytes.len() {
            turn(device);
            at += socket.read(&mut bytes[at..]).unwrap_or(0);
        }
    };
    let (mut challenge, mut answer) = ([0; SECRET], [0; MESSAGE]);
    read(&mut socket, &mut challenge);
    let greeting = Greeting::new(me, device.me, 1, 0);
    let (state, message) = secret::begin(secret, &challenge, &greeting).unwrap();
    socket.write_all(&message).unwrap();
    read(&mut socket, &mut answer);
    secret::finish(state, (me, device.me), &answer).unwrap();
    socket
}

#[test]
fn strangers_are_refused_and_the_ranks_go_on() {
    let ranks = devices(2, &[]);
    let mut numbers = Numbers(7);
    let mut strangers = Vec::new();
    for i in 0..600u32 {
        let mut stranger = TcpStream::connect(ranks[0].address()).unwrap();
        stranger.set_nonblocking(true).unwrap();
        let len = [0, 10, MESSAGE, 3000][i as usize % 4];
        let _ = stranger.write_all(&numbers.bytes(len));
        strangers.push(stranger);
        turn(&ranks[0]);
    }
    assert!(ranks[0].shared.lock().conns.iter().count() <= 256, "silent strangers are ended for new ones");
    send(&ranks[1], 0, b"hello");
    send(&ranks[0], 1, b"there");
    let mut got = [Vec::new(), Vec::new()];
    while got.iter().any(Vec::is_empty) {
        ranks.iter().zip(&mut got).for_each(|(rank, got)| got.extend(turn(rank)));
    }
    assert_eq!(got.concat(), [b"hello", b"there"]);
    ranks.iter().for_each(|rank| assert!(rank.check_peers(PeerCheck::Alive).is_ok()));
    leave(&ranks);
}

/// Ends all ranks in order.
pub(super) fn leave(ranks: &[TcpDevice]) {
    // Every rank takes a turn.
    while ranks.iter().filter(|rank| !rank.leave(Leave::InOrder).unwrap()).count() > 0 {}
}

/// A peer that has the secret and then sends any bytes, or frames with any contents, is lost with an error that names
/// it; memory that it may not access stays unchanged.
#[test]
fn peer_that_sends_anything_is_lost_or_served() {
    for seed in 1..120u64 {
        let ranks = devices(2, &[]);
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut memory = vec![0u8; 4096];
        // SAFETY: the memory outlives the registration.
        let region = unsafe { ranks[0].register(Region::of(memory[1024..].as_mut_ptr(), 2048)) }.unwrap();
        let mut socket = peer(&ranks[0], &ranks[1].secret, 1);
        for _ in 0..60 {
            let frame = if seed % 4 == 0 { numbers.bytes(HEADER) } else { hostile(&mut numbers, region.handle) };
            let _ = socket.write_all(&frame);
            turn(&ranks[0]);
            let _ = socket.read(&mut [0; 65536]);
        }
        // The peer's process ends.
        ranks[1].shared.lock().listeners.clear();
        drop(socket);
        // The peer may have announced that it leaves.
        while !ranks[0].shared.lock().peers[1].left {
            turn(&ranks[0]);
            if let Err(lost) = ranks[0].check_peers(PeerCheck::Alive) {
                assert!(matches!(lost.kind(), ErrorKind::Protocol | ErrorKind::PeerLost), "{lost}");
                assert_eq!(lost.blamed(), Some(1), "{lost}");
                break;
            }
        }
        assert!(ranks[0].shared.lock().inbox.bytes.len() < 4 << 20);
        // SAFETY: the handle of the registration above.
        unsafe { ranks[0].release(region.handle) }.unwrap();
        assert!(memory[..1024].iter().chain(&memory[3072..]).all(|b| *b == 0), "bytes beside the region");
    }
}

/// A frame with some likely and some extreme contents.
fn hostile(numbers: &mut Numbers, key: u64) -> Vec<u8> {
    let mut pick = |of: &[u64]| of[numbers.next() as usize % of.len()];
    let kind = pick(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]) as u8;
    let lens = [0, 1, 8, 12, 2048, 2049, 5000, CHUNK as u64, CHUNK as u64 + 1, 1 << 40, u64::MAX];
    let mut header = Header {
        flags: pick(&[0, 1, 1, 2, 3, 4, 5, 8, 255]) as u8,
        size: pick(&[0, 1, 2, 4, 8, 9, 65535]) as u16,
        code: pick(&[0, 1, 7, 1000, u64::from(u32::MAX), 2 << 24]) as u32,
        key: pick(&[key, key, key, 0, key + 1, u64::MAX]),
        offset: pick(&[0, 4, 8, 2040, 2047, 2048, u64::MAX, u64::MAX - 7]),
        len: pick(&lens),
        ..Header::new(Kind::Write)
    }
    .bytes();
    header[0] = kind;
    let len = pick(&[0, 8, 16, 100, 5000]) as usize;
    [&header[..], &numbers.bytes(len)].concat()
}

/// An answer to a request whose bytes are not sent yet is rejected, since it would let the caller free them.
#[test]
fn early_answer_is_a_broken_protocol() {
    let ranks = devices(2, &[]);
    let mut socket = peer(&ranks[0], &ranks[1].secret, 1);
    let region = ranks[1].register_for_test(64 << 20);
    let to = ranks[0].import(1, &region, None).unwrap();
    let bytes = vec![1u8; 64 << 20];
    let from = [Block::of(bytes.as_ptr(), bytes.len())];
    let operation = Operation::write(&from, Place { region: to.handle, offset: 0 });
    // SAFETY: the bytes outlive the device.
    unsafe { ranks[0].post(&WorkRequest { peer: 1, operation, notify: None, id: 5 }) }.unwrap();
    socket.write_all(&Header { code: 1, ..Header::new(Kind::Ack) }.bytes()).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    let mut failed = None;
    while failed.is_none() {
        assert!(Instant::now() < end);
        ranks[0]
            .poll(&mut |event| {
                if let Event::Completed { id: 5, result } = event {
                    failed = result.err();
                }
            })
            .unwrap();
    }
    let kind = ranks[0].check_peers(PeerCheck::Alive).unwrap_err().kind();
    assert_eq!((kind, failed.map(|e| e.kind())), (ErrorKind::Protocol, Some(ErrorKind::Protocol)));
}

impl TcpDevice {
    /// The key of a region that is never used.
    fn register_for_test(&self, len: usize) -> Vec<u8> {
        let device: &dyn Device = self;
        device.allocate(Region::allocated(len)).unwrap().key
    }
}

/// Both ranks of every pair send first, at the same time: one connection is kept for each pair.
#[test]
fn ranks_that_connect_at_the_same_time_have_one_connection() {
    for encrypt in ["0", "1"] {
        for _ in 0..8 {
            let ranks = devices(4, &[("FARSIDE_TCP_ENCRYPT", encrypt)]);
            for (rank, to) in (0..4).flat_map(|rank| (0..4).map(move |to| (rank, to))).filter(|(rank, to)| rank != to) {
                send(&ranks[rank], to as u32, &[rank as u8; 100]);
            }
            let mut got: [Vec<u8>; 4] = Default::default();
            while got.iter().any(|got| got.len() < 3) {
                for (rank, got) in ranks.iter().zip(&mut got) {
                    got.extend(turn(rank).iter().map(|packet| packet[0]));
                }
            }
            for (rank, mut got) in got.into_iter().enumerate() {
                got.sort_unstable();
                assert!(got.iter().map(|source| usize::from(*source)).eq((0..4).filter(|other| *other != rank)));
            }
            leave(&ranks);
            let up = |rank: &TcpDevice| {
                let engine = rank.shared.lock();
                engine.conns.iter().filter(|(_, conn)| matches!(conn.stage, Stage::Up(_))).count()
            };
            assert!(ranks.iter().all(|rank| up(rank) == 3));
        }
    }
}

/// Requests wait at the sender, not at a rank that receives none: requests beyond the limit are rejected, and an
/// operation of the same peer overtakes packets that were not received.
#[test]
fn operations_pass_packets_that_are_not_taken() {
    let ranks = devices(2, &[]);
    let region = ranks[1].register_for_test(8);
    let word = ranks[0].import(1, &region, None).unwrap();
    let packet = [7u8; 1000];
    let mut sent = 0;
    loop {
        let operation = Operation::send(&packet, &[]);
        // SAFETY: a packet is copied.
        let posted = unsafe { ranks[0].post(&WorkRequest { peer: 1, operation, notify: None, id: 0 }) }.unwrap();
        if posted == crate::device::Posted::Busy {
            break;
        }
        sent += 1;
    }
    let mut old = 9u64;
    let operation = Operation::fetch_add(Place { region: word.handle, offset: 0 }, 3, &raw mut old);
    // SAFETY: the word lives until the operation is complete.
    unsafe { ranks[0].post(&WorkRequest { peer: 1, operation, notify: None, id: 1 }) }.unwrap();
    let mut is_done = false;
    while !is_done {
        // Serves requests, and receives no packets.
        ranks[1].check_peers(PeerCheck::Alive).unwrap();
        ranks[0].poll(&mut |event| is_done |= matches!(event, Event::Completed { id: 1, result: Ok(()) })).unwrap();
    }
    assert_eq!((old, turn(&ranks[1]).len()), (0, sent));
    leave(&ranks);
}

/// The last frame of an operation that was cancelled half-way does not affect the frames of other operations.
#[test]
fn operations_after_a_cancelled_one_are_served() {
    let ranks = devices(2, &[]);
    let region = ranks[1].register_for_test(32 << 20);
    let to = ranks[0].import(1, &region, None).unwrap();
    let place = |offset| Place { region: to.handle, offset };
    let post = |id: u64, operation: Operation<'_>| {
        // SAFETY: the buffers live until the operations are complete or cancelled.
        unsafe { ranks[0].post(&WorkRequest { peer: 1, operation, notify: None, id }) }.unwrap();
    };
    send(&ranks[0], 1, b"connects");
    while turn(&ranks[1]).is_empty() {
        turn(&ranks[0]);
    }
    let mut bytes = vec![1u8; 32 << 20];
    let from = [Block::of(bytes.as_ptr(), bytes.len())];
    // Fills the send buffer of the kernel, since nothing is received meanwhile.
    post(1, Operation::write(&from, place(0)));
    turn(&ranks[0]);
    post(2, Operation::write(&from, place(0)));
    ranks[0].cancel(&|id| id < 3);
    bytes.fill(2);
    let (last, mut back) = ([3u8; 100], [0u8; 100]);
    post(3, Operation::write(&[Block::of(last.as_ptr(), 100)], place(50)));
    post(4, Operation::read(&[Block { base: back.as_mut_ptr(), len: 100 }], place(50)));
    let mut done = Vec::new();
    while done.len() < 2 {
        turn(&ranks[1]);
        ranks[0]
            .poll(&mut |event| {
                if let Event::Completed { id, result } = event {
                    result.unwrap();
                    done.push(id);
                }
            })
            .unwrap();
    }
    assert_eq!((done, back), (vec![3, 4], [3; 100]));
    leave(&ranks);
}

const CALL: Call = Call { id: 7, name: "test", key: 1, notify: None };

/// Sends at most `most` bytes of the data to be sent next; returns its blocks.
fn sent(peer: &mut Peer, memory: &Memory, most: usize) -> Blocks {
    let mut blocks = Blocks::new();
    peer.next(memory, &mut blocks);
    peer.sends.advance(blocks.iter().map(|block| block.len).sum::<usize>().min(most));
    blocks
}

fn send_all(peer: &mut Peer) {
    while !sent(peer, &Memory::default(), usize::MAX).is_empty() {}
}

fn is_complete(peer: &mut Peer) -> bool {
    let end = peer.sends.end();
    peer.sends.acknowledge(end).is_ok() && matches!(peer.complete(Ok(())), Ok(Some((7, Ok(())))))
}

/// Writes `from` as one operation.
fn write(peer: &mut Peer, from: &[u8]) {
    let range = [Range { offset: 0, len: from.len() }];
    // SAFETY: the bytes of a test outlive the operation.
    unsafe { peer.write(&CALL, &[Block::of(from.as_ptr(), from.len())], &range) };
}

/// An answer may come once the peer has all bytes of the request that are sent from memory of the caller.
#[test]
fn request_may_be_answered_once_its_last_byte_has_arrived() {
    let (bytes, memory) = (vec![1u8; 300 << 10], Memory::default());
    let mut origin = Peer::new();
    write(&mut origin, &bytes);
    assert_eq!(sent(&mut origin, &memory, 1000)[1].len, CHUNK);
    origin.answer_read(&Header { flags: LAST, len: 1 << 20, ..Header::new(Kind::Read) });
    let rest = sent(&mut origin, &memory, usize::MAX);
    assert_eq!(rest[0].base, bytes.as_ptr().wrapping_add(1000 - HEADER).cast_mut(), "a frame is not interrupted");
    assert_eq!(sent(&mut origin, &memory, usize::MAX)[0].len, 2 * HEADER, "an answer passes the second frame");
    origin.sends.acknowledge(origin.sends.end() - 1).unwrap();
    assert!(origin.complete(Ok(())).is_err(), "the last byte has not arrived");
    assert!(is_complete(&mut origin));
}

#[test]
fn operation_that_uses_up_a_limit_may_be_answered() {
    let data = |len: usize| Header { flags: END, len: len as u64, ..Header::new(Kind::Data) };
    let (operand, mut old) = (vec![0u8; 21 * PIECE], vec![0u8; 21 * PIECE]);
    let mut origin = Peer::new();
    // SAFETY: both buffers outlive the operation.
    unsafe {
        let at = Range { offset: 0, len: operand.len() };
        origin.accumulate(&CALL, at, 0, operand.as_ptr(), old.as_mut_ptr());
    }
    send_all(&mut origin);
    (0..21).for_each(|_| origin.data_begins(&data(PIECE)).unwrap());
    assert!(is_complete(&mut origin), "no room for a further piece");

    // The length fills a buffer.
    let (ranges, mut into) = (vec![Range { offset: 0, len: 1 }; (64 << 10) / HEADER], [0u8; 2048]);
    origin.read(&CALL, &[Block { base: into.as_mut_ptr(), len: ranges.len() }], &ranges);
    send_all(&mut origin);
    ranges.iter().for_each(|_| origin.data_begins(&data(1)).unwrap());
    assert!(is_complete(&mut origin));
}

#[test]
fn short_accumulates_that_return_data_are_limited_by_it() {
    let (operand, mut old) = (vec![0u8; 8 << 10], vec![0u8; 8 << 10]);
    let (mut origin, mut owed) = (Peer::new(), 0);
    while !origin.is_full() {
        let at = Range { offset: 0, len: operand.len() };
        // SAFETY: both buffers outlive the operations.
        unsafe { origin.accumulate(&CALL, at, 0, operand.as_ptr(), old.as_mut_ptr()) };
        send_all(&mut origin);
        owed += operand.len();
    }
    assert!(owed <= MAX_OWED, "{owed}");
}

/// Calls `step` until it returns true.
pub(super) fn until(mut step: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !step() {
        assert!(Instant::now() < end, "nothing happens");
    }
}

/// Failed segments are answered, so that the last segment can be sent.
#[test]
fn long_accumulate_that_fails_ends() {
    const LEN: usize = 1 << 20;
    let ranks = devices(2, &[]);
    let owner: &dyn Device = &ranks[1];
    let region = owner.allocate(Region::allocated(LEN)).unwrap();
    let to = ranks[0].import(1, &region.key, None).unwrap();
    // SAFETY: the handle of the registration above.
    unsafe { owner.release(region.handle) }.unwrap();
    let (operand, mut old) = (vec![0u8; LEN], vec![0u8; LEN]);
    let operation = Operation::accumulate(
        Place { region: to.handle, offset: 0 },
        0,
        Block::of(operand.as_ptr(), LEN),
        old.as_mut_ptr(),
    );
    // SAFETY: both buffers live until the operation is complete.
    unsafe { ranks[0].post(&WorkRequest { peer: 1, operation, notify: None, id: 1 }) }.unwrap();
    let mut failed = None;
    until(|| {
        turn(&ranks[1]);
        ranks[0]
            .poll(&mut |event| {
                if let Event::Completed { id: 1, result } = event {
                    failed = result.err();
                }
            })
            .unwrap();
        failed.is_some()
    });
    assert_eq!(failed.unwrap().kind(), ErrorKind::BadKey);
    leave(&ranks);
}

fn is_up(device: &TcpDevice, to: u32) -> bool {
    let engine = device.shared.lock();
    engine.conns.iter().any(|(_, conn)| matches!(conn.stage, Stage::Up(peer) if peer == to))
}

/// Rank 1 begins to connect and computes then; its agent continues, and accepts a connection later.
#[test]
fn agent_connects_for_a_rank_that_computes() {
    let ranks = devices(3, &[]);
    ranks[1].check_peers(PeerCheck::Alive).unwrap();
    until(|| {
        turn(&ranks[2]);
        is_up(&ranks[2], 1)
    });
    send(&ranks[0], 1, b"hello");
    until(|| {
        turn(&ranks[0]);
        is_up(&ranks[0], 1)
    });
    until(|| !turn(&ranks[1]).is_empty());
    leave(&ranks);
}

#[test]
fn strangers_push_out_those_of_their_own_host() {
    let ranks = devices(2, &[]);
    let other = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&other, &SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 0))).unwrap();
    connect(&other, &ranks[0].address()).unwrap();
    turn(&ranks[0]);
    let mut strangers = Vec::new();
    for _ in 0..300 {
        strangers.push(TcpStream::connect(ranks[0].address()).unwrap());
        turn(&ranks[0]);
    }
    let hosts: Vec<_> = ranks[0].shared.lock().conns.iter().map(|(_, conn)| conn.host).collect();
    assert_eq!(hosts.len(), 256);
    assert!(hosts.contains(&Ipv4Addr::new(127, 0, 0, 2).into()));
    leave(&ranks);
}

/// A socket on which only sending fails reports no event.
#[test]
fn peer_to_which_nothing_can_be_sent_is_lost() {
    let ranks = devices(2, &[]);
    let _socket = peer(&ranks[0], &ranks[1].secret, 1);
    for (_, conn) in ranks[0].shared.lock().conns.iter() {
        conn.socket.shutdown(Shutdown::Write).unwrap();
    }
    ranks[1].shared.lock().listeners.clear();
    send(&ranks[0], 1, b"hello");
    until(|| {
        turn(&ranks[0]);
        ranks[0].check_peers(PeerCheck::Alive).is_err_and(|e| e.kind() == ErrorKind::PeerLost)
    });
}

/// A rank that computes closes its window, and its host answers probes of the window at growing intervals.
#[test]
fn rank_that_computes_for_long_is_not_lost() {
    let ranks = devices(2, &[("FARSIDE_TCP_SILENCE_S", "3")]);
    let key = ranks[1].register_for_test(64 << 20);
    let to = ranks[0].import(1, &key, None).unwrap();
    let bytes = vec![1u8; 64 << 20];
    send(&ranks[0], 1, b"connects");
    until(|| {
        turn(&ranks[0]);
        !turn(&ranks[1]).is_empty()
    });
    {
        // No thread receives for rank 1.
        let _computes = ranks[1].shared.lock();
        let from = [Block::of(bytes.as_ptr(), bytes.len())];
        let operation = Operation::write(&from, Place { region: to.handle, offset: 0 });
        // SAFETY: the bytes live until the operation is complete.
        unsafe { ranks[0].post(&WorkRequest { peer: 1, operation, notify: None, id: 1 }) }.unwrap();
        let end = Instant::now() + Duration::from_secs(11);
        while Instant::now() < end {
            ranks[0].check_peers(PeerCheck::Alive).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let mut is_done = false;
    until(|| {
        turn(&ranks[1]);
        ranks[0].poll(&mut |event| is_done |= matches!(event, Event::Completed { id: 1, result: Ok(()) })).unwrap();
        is_done
    });
    leave(&ranks);
}

/// If the kernel has no buffer space, nothing is sent until it reports space: on this socket, each attempt would fail.
#[test]
fn socket_without_room_is_left_alone() {
    let ranks = devices(2, &[]);
    let key = ranks[1].register_for_test(64 << 20);
    let to = ranks[0].import(1, &key, None).unwrap();
    let bytes = vec![1u8; 64 << 20];
    send(&ranks[0], 1, b"connects");
    until(|| {
        turn(&ranks[0]);
        !turn(&ranks[1]).is_empty()
    });
    {
        // No thread receives for rank 1.
        let _computes = ranks[1].shared.lock();
        let from = [Block::of(bytes.as_ptr(), bytes.len())];
        let operation = Operation::write(&from, Place { region: to.handle, offset: 0 });
        // SAFETY: the bytes live until the operation is complete.
        unsafe { ranks[0].post(&WorkRequest { peer: 1, operation, notify: None, id: 1 }) }.unwrap();
        let mut engine = ranks[0].shared.lock();
        for (_, conn) in engine.conns.iter() {
            assert!(conn.is_full);
            conn.socket.shutdown(Shutdown::Write).unwrap();
        }
        engine.send(1);
        assert!(engine.broken.is_empty());
    }
    // The kernel reports space then, and the connection is re-established.
    let mut is_done = false;
    until(|| {
        turn(&ranks[1]);
        ranks[0].poll(&mut |event| is_done |= matches!(event, Event::Completed { id: 1, result: Ok(()) })).unwrap();
        is_done
    });
    leave(&ranks);
}
