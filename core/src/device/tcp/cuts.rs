#![allow(unsafe_code)]
//! Connections that are cut at any byte: every operation is executed exactly once, in order.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;

use super::TcpDevice;
use super::frame::MAX_LENT_PACKET;
use super::tests::{Numbers, devices, leave, send, turn, until};
use crate::device::{Block, Device, Event, Operation, PeerCheck, Place, Posted, Region, WorkRequest, code};
use crate::error::ErrorKind;
use crate::memory::keys::AccumulateFn;

/// Forwards connections to a rank, and cuts them.
struct Proxy {
    at: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    cuts: AtomicUsize,
    /// Whether every connection is cut immediately.
    is_dead: AtomicBool,
    stops: AtomicBool,
}

impl Proxy {
    /// Cuts a connection after fewer than `most` bytes in one direction; never if `most` is 0.
    fn new(to: SocketAddr, seed: u64, most: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, state) = (listener.local_addr().unwrap(), Arc::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            let mut numbers = Numbers(seed);
            while let Ok((from, _)) = listener.accept() {
                if shared.stops.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(to), false) = (TcpStream::connect(to), shared.is_dead.load(Ordering::SeqCst)) else { continue };
                if most > 0 && numbers.next().is_multiple_of(2) {
                    // The remaining bytes in transit are discarded.
                    for socket in [&from, &to] {
                        set_socket_linger(socket, Some(Duration::ZERO)).unwrap();
                    }
                }
                let (from, to) = (Arc::new(from), Arc::new(to));
                for (from, to) in [(&from, &to), (&to, &from)] {
                    let left = if most == 0 { u64::MAX } else { numbers.next() % most };
                    let (from, to, shared) = (Arc::clone(from), Arc::clone(to), Arc::clone(&shared));
                    std::thread::spawn(move || pass(&from, &to, left, &shared));
                }
            }
        });
        Self { at, state }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.stops.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.at);
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, mut left: u64, state: &State) {
    let mut bytes = [0; 4096];
    from.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    while !state.stops.load(Ordering::SeqCst) {
        let most = left.min(bytes.len() as u64) as usize;
        let n = match from.read(&mut bytes[..most]) {
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock && !state.is_dead.load(Ordering::SeqCst) => continue,
            Ok(n) if n > 0 => n,
            _ => break,
        };
        left -= n as u64;
        if to.write_all(&bytes[..n]).is_err() || left == 0 {
            break;
        }
    }
    state.cuts.fetch_add(usize::from(left == 0), Ordering::SeqCst);
    for socket in [from, to] {
        // The connection may have ended.
        let _ = socket.shutdown(Shutdown::Both);
    }
}

/// Ranks that reach each other through proxies.
fn through_proxies(n: usize, set: &[(&str, &str)], seed: u64, most: u64) -> (Vec<TcpDevice>, Vec<Proxy>) {
    let ranks = devices(n, set);
    let proxies: Vec<_> = (0..).zip(&ranks).map(|(i, rank)| Proxy::new(rank.address(), seed + i, most)).collect();
    for rank in &ranks {
        let mut engine = rank.shared.lock();
        engine.topology.addresses.iter_mut().zip(&proxies).for_each(|(address, proxy)| address.at = vec![proxy.at]);
    }
    (ranks, proxies)
}

/// Adds words.
const SUM: AccumulateFn = sum;

unsafe fn sum(_code: u32, to: *mut u8, operand: *const u8, old: *mut u8, len: usize) -> bool {
    for at in (0..len).step_by(8) {
        // SAFETY: whole aligned words by the contract of an accumulate.
        unsafe {
            let former = to.add(at).cast::<u64>().read();
            if !old.is_null() {
                old.add(at).cast::<u64>().write_unaligned(former);
            }
            to.add(at).cast::<u64>().write(former + operand.add(at).cast::<u64>().read_unaligned());
        }
    }
    true
}

/// Number of bytes that each origin writes at each target, and of words to which all origins add.
const OWN: usize = 160 << 10;
const WORDS: usize = 4000;

/// A rank that communicates with all others.
struct Rank<'a> {
    device: &'a TcpDevice,
    /// Regions of all ranks.
    to: Vec<u64>,
    packets: Vec<Vec<Vec<u8>>>,
    from: Vec<Vec<u8>>,
    back: Vec<Vec<u8>>,
    ones: Vec<u64>,
    old: Vec<Vec<u64>>,
    counts: Vec<u64>,
    left: usize,
    got: Vec<u64>,
}

impl Rank<'_> {
    fn post(&mut self, peer: u32, operation: Operation<'_>) {
        while !self.try_post(peer, operation) {
            self.turn();
        }
    }

    fn try_post(&mut self, peer: u32, operation: Operation<'_>) -> bool {
        let request = WorkRequest { peer, operation, notify: None, id: 1 };
        // SAFETY: the buffers of the rank live until the round has ended.
        let posted = unsafe { self.device.post(&request) }.unwrap();
        self.left += usize::from(posted == Posted::Pending);
        posted != Posted::Busy
    }

    fn turn(&mut self) {
        let Self { device, left, got, .. } = self;
        device
            .poll(&mut |event| match event {
                Event::Completed { result, .. } => {
                    result.unwrap();
                    *left -= 1;
                }
                Event::Packet { source, bytes } => {
                    let count = u64::from_le_bytes(*bytes.first_chunk().unwrap());
                    assert_eq!(count, got[source as usize], "packets in order");
                    assert!(bytes[8..].iter().all(|byte| *byte == count as u8));
                    got[source as usize] += 1;
                }
                Event::LongPacket { .. } => {}
            })
            .unwrap();
    }

    /// Begins a round with a peer; returns how many packets were sent.
    fn begin(&mut self, peer: usize, numbers: &mut Numbers, sent: &mut u64) {
        let (me, to) = (self.device.me as usize, self.to[peer]);
        let place = |offset| Place { region: to, offset };
        let len = 1 + numbers.next() as usize % (if numbers.next().is_multiple_of(3) { OWN } else { 5000 });
        self.from[peer] = numbers.bytes(len);
        let from = [Block::of(self.from[peer].as_ptr(), len)];
        self.post(peer as u32, Operation::write(&from, place(me * OWN)));
        self.back[peer] = vec![0; len];
        let into = [Block { base: self.back[peer].as_mut_ptr(), len }];
        self.post(peer as u32, Operation::read(&into, place(me * OWN)));
        let words = self.to.len() * OWN;
        for _ in 0..3 {
            let old = &raw mut self.counts[peer];
            self.post(peer as u32, Operation::fetch_add(place(words), 1, old));
            let len = numbers.next() as usize % [9000, MAX_LENT_PACKET - 8][*sent as usize % 2];
            self.packets[peer].push(vec![*sent as u8; len]);
            let body = [Block::of(self.packets[peer].last().unwrap().as_ptr(), len)];
            // The peer, which this thread drives too, may have to receive before it takes more.
            *sent += u64::from(self.try_post(peer as u32, Operation::send(&sent.to_le_bytes(), &body)));
        }
        let old = self.old[peer].as_mut_ptr().cast();
        for old in [old, std::ptr::null_mut()] {
            let operand = Block::of(self.ones.as_ptr().cast(), 8 * WORDS);
            let code = code::hint(8, code::Effect::Add);
            self.post(peer as u32, Operation::accumulate(place(words + 8), code, operand, old));
        }
    }
}

/// Runs `rounds` of operations of all kinds between all pairs of `n` ranks, after `prepare` and before `end`; returns the
/// number of cuts.
pub(super) fn exchange(
    n: usize,
    encrypt: &str,
    (seed, rounds, most): (u64, u64, u64),
    prepare: impl Fn(&[TcpDevice]),
    end: impl Fn(&[TcpDevice]),
) -> usize {
    let (devices, proxies) = through_proxies(n, &[("FARSIDE_TCP_ENCRYPT", encrypt)], seed, most);
    prepare(&devices);
    let mut memory = vec![vec![0u64; (n * OWN + 8 + 8 * WORDS) / 8]; n];
    let keys: Vec<_> = devices
        .iter()
        .zip(&mut memory)
        .map(|(device, memory)| {
            let region = Region::of(memory.as_mut_ptr().cast(), 8 * memory.len());
            // SAFETY: the memory outlives the devices' use of it.
            unsafe { device.register(Region { accumulate: Some(SUM), ..region }) }.unwrap().key
        })
        .collect();
    let mut ranks: Vec<_> = devices
        .iter()
        .map(|device| Rank {
            device,
            to: (0..).zip(&keys).map(|(peer, key)| device.import(peer, key, None).unwrap().handle).collect(),
            packets: vec![Vec::new(); n],
            from: vec![Vec::new(); n],
            back: vec![Vec::new(); n],
            ones: vec![1; WORDS],
            old: vec![vec![0; WORDS]; n],
            counts: vec![0; n],
            left: 0,
            got: vec![0; n],
        })
        .collect();
    let mut numbers = Numbers(seed);
    let mut sent = vec![vec![0u64; n]; n];
    let pairs: Vec<_> = (0..n).flat_map(|a| (0..n).map(move |b| (a, b))).filter(|(a, b)| a != b).collect();
    for round in 0..rounds {
        for (me, peer) in &pairs {
            ranks[*me].begin(*peer, &mut numbers, &mut sent[*me][*peer]);
        }
        until(|| {
            ranks.iter_mut().for_each(Rank::turn);
            let has_all = |(me, peer): &(usize, usize)| ranks[*peer].got[*me] == sent[*me][*peer];
            ranks.iter().all(|rank| rank.left == 0) && pairs.iter().all(has_all)
        });
        for (me, peer) in &pairs {
            ranks[*me].packets[*peer].clear();
            assert!(ranks[*me].back[*peer] == ranks[*me].from[*peer], "round {round}: a read after a write");
            assert!(ranks[*me].counts[*peer] < (round + 1) * 3 * (n as u64 - 1));
            let old = &ranks[*me].old[*peer];
            assert!(old.iter().all(|old| (2 * round..2 * (round + 1) * (n as u64 - 1)).contains(old)), "{old:?}");
        }
    }
    for memory in &memory {
        let words = &memory[n * OWN / 8..];
        assert_eq!(words[0], rounds * 3 * (n as u64 - 1), "fetch-adds");
        assert!(words[1..].iter().all(|word| *word == rounds * 2 * (n as u64 - 1)), "accumulates");
    }
    end(&devices);
    // From here on, connections are not cut.
    let direct: Vec<_> = devices.iter().map(TcpDevice::address).collect();
    for device in &devices {
        for address in &mut device.shared.lock().topology.addresses {
            if let Some(rank) = proxies.iter().position(|proxy| address.at == [proxy.at]) {
                address.at = vec![direct[rank]];
            }
        }
    }
    let cuts = proxies.iter().map(|proxy| proxy.state.cuts.load(Ordering::SeqCst)).sum();
    drop((ranks, proxies));
    leave(&devices);
    cuts
}

#[test]
fn everything_is_carried_out_once_however_connections_are_cut() {
    // An encrypted record of up to 16 KiB is received as a whole.
    for (n, encrypt, seed, rounds, most) in
        [(2, "0", 1, 2, 9000), (2, "1", 2, 2, 50_000), (3, "0", 3, 1, 20_000), (4, "1", 5, 1, 60_000)]
    {
        let cuts = exchange(n, encrypt, (seed, rounds, most), |_| (), |_| ());
        assert!(cuts > 10, "{cuts} cuts of {n} ranks");
    }
}

/// Both ranks of a pair whose connection is cut permanently get an error that says so, within the limit.
#[test]
fn connection_that_stays_cut_is_the_loss_of_the_peer() {
    let (ranks, proxies) = through_proxies(2, &[("FARSIDE_TCP_SILENCE_S", "3")], 1, 0);
    send(&ranks[0], 1, b"hello");
    until(|| {
        turn(&ranks[0]);
        !turn(&ranks[1]).is_empty()
    });
    proxies.iter().for_each(|proxy| proxy.state.is_dead.store(true, Ordering::SeqCst));
    let begin = Instant::now();
    let mut lost = [None, None];
    until(|| {
        for (rank, lost) in ranks.iter().zip(&mut lost) {
            turn(rank);
            *lost = lost.take().or_else(|| rank.check_peers(PeerCheck::Alive).err());
        }
        lost.iter().all(Option::is_some)
    });
    assert!(begin.elapsed() >= Duration::from_secs(3), "attempts go on until the limit");
    for (rank, lost) in lost.into_iter().flatten().enumerate() {
        assert_eq!((lost.kind(), lost.blamed()), (ErrorKind::PeerLost, Some(1 - rank)), "{lost}");
        assert!(lost.to_string().contains("not re-established within 3s"), "{lost}");
    }
}
