#![allow(unsafe_code)]
//! A model of a queue pair and of its peer's, according to the specification, so that every request can fail with every
//! status: the peer executes packets in the order of their numbers, treats earlier ones as repetitions, and stops at a
//! request that it refuses. Whatever was lost in transit, each request is executed once, in order, or has failed.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use smallvec::smallvec;

use super::*;
use crate::device::verbs::sys::qp::Order;
use crate::device::verbs::sys::queue::Piece;

const MTU: usize = 4096;
const NUMBERS: u32 = 0xff_ffff;
const FLUSHED: u32 = rdma_sys::ibv_wc_status::IBV_WC_WR_FLUSH_ERR;
const STATUSES: u32 = rdma_sys::ibv_wc_status::IBV_WC_TM_RNDV_INCOMPLETE;

/// A request that was posted: its id, its content, and the numbers of its first packet and of the packet after its
/// last.
#[derive(Clone, Copy, Debug)]
struct Sent {
    id: u64,
    content: u64,
    first: u32,
    end: u32,
}

/// The requests and the peer's queue pair of one connection, and the contents that the peer has executed, on all
/// connections.
#[derive(Default)]
struct State {
    sent: Vec<Sent>,
    next: u32,
    expected: u32,
    executed: Vec<u64>,
    /// The code with which requests are refused.
    refuses: i32,
}

impl State {
    /// Delivers the first `packets` packets of the requests posted since the last start.
    fn deliver(&mut self, mut packets: u32) {
        for sent in &self.sent {
            for number in sent.first..sent.end {
                if packets == 0 {
                    return;
                }
                packets -= 1;
                assert!(number <= self.expected, "packet {number} instead of {}: a request is missing", self.expected);
                if number == self.expected {
                    self.expected += 1;
                    if self.expected == sent.end {
                        self.executed.push(sent.content);
                    }
                }
            }
        }
    }

    fn packets(&self) -> u32 {
        self.sent.iter().map(|sent| sent.end - sent.first).sum()
    }
}

struct Model(Rc<RefCell<State>>);

impl Sends for Model {
    fn inline(&self) -> usize {
        0
    }

    fn first(&self) -> u32 {
        self.0.borrow().next
    }

    fn packets(&self, len: usize) -> u32 {
        len.div_ceil(MTU).max(1) as u32
    }

    unsafe fn post(&self, order: &Order<'_>) -> i32 {
        let mut state = self.0.borrow_mut();
        if state.refuses != 0 {
            return state.refuses;
        }
        let [piece] = order.pieces else { panic!("{order:?}") };
        let (first, end) = (state.next, state.next + self.packets(piece.len as usize));
        state.next = end;
        state.sent.push(Sent { id: order.id, content: piece.address, first, end });
        0
    }

    fn fail(&self) -> io::Result<()> {
        Ok(())
    }

    fn restart(&self, psn: u32) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.next = psn;
        state.sent.clear();
        Ok(())
    }
}

/// A send queue, its connection, and the results of the requests, by their contents.
struct Bench {
    queue: SendQueue<Model>,
    state: Rc<RefCell<State>>,
    posted: u64,
    results: Vec<(u64, bool)>,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self { queue: SendQueue::new(3, 16), state: Rc::default(), posted: 0, results: Vec::new() };
        bench.connect();
        bench
    }

    /// Connects to another queue pair of the peer.
    fn connect(&mut self) {
        let executed = std::mem::take(&mut self.state.borrow_mut().executed);
        let first = 1000 + self.posted as u32;
        self.state = Rc::new(RefCell::new(State { next: first, expected: first, executed, ..State::default() }));
        self.queue.connected(Model(Rc::clone(&self.state)), 0);
        self.flush();
    }

    fn flush(&mut self) {
        // SAFETY: the model reads no memory.
        unsafe { self.queue.flush(false) };
    }

    /// Posts a request of `len` bytes; `more`: the next request belongs to the same operation.
    fn post(&mut self, len: usize, more: bool) {
        let content = self.posted;
        self.posted += 1;
        let fill = |r: &mut Request| {
            r.pieces = smallvec![Piece { address: content, len: len as u32, key: 0 }];
            (r.held.owner, r.more, r.signalled) = (Owner::User(content), more, content.is_multiple_of(3));
        };
        // SAFETY: the model reads no memory.
        unsafe { self.queue.post(Action::Send, fill, false) };
    }

    fn complete(&mut self, id: u64, status: u32, port_was_down: bool) {
        let c = Completion { id, status, opcode: 0, vendor: 0, len: 0, immediate: None, qp: 0 };
        if self.queue.is_success(&c) {
            while let Some(request) = self.queue.pop(id) {
                let Owner::User(content) = request.held.owner else { panic!("an owner has changed") };
                self.results.push((content, true));
            }
            return;
        }
        let mut ended = Vec::new();
        let failure = Failure { is_over: &|_| false, port_was_down: &|| port_was_down };
        self.queue.failed(&c, &mut ended, &failure);
        for (held, result) in ended {
            let Owner::User(content) = held.owner else { panic!("an owner has changed") };
            self.results.push((content, result.is_ok()));
        }
    }

    /// Fails the request at this position among those posted, and all after it; returns `false` if there is none.
    fn fail(&mut self, at: usize, status: u32, port_was_down: bool) -> bool {
        let rest: Vec<u64> = self.state.borrow().sent.iter().skip(at).map(|sent| sent.id).collect();
        for (i, id) in rest.iter().enumerate() {
            self.complete(*id, if i == 0 { status } else { FLUSHED }, port_was_down);
        }
        !rest.is_empty()
    }

    /// Delivers and completes all posted requests.
    fn settle(&mut self) {
        loop {
            self.flush();
            let all = self.state.borrow().packets();
            self.state.borrow_mut().deliver(all);
            let last = self.state.borrow().sent.last().map(|sent| sent.id);
            let Some(last) = last.filter(|_| !self.queue.is_idle()) else { return };
            self.complete(last, 0, false);
        }
    }

    fn restart(&mut self) {
        assert!(self.queue.wants_restart() && !self.queue.wants_connection());
        if let Some(restarts) = &mut self.queue.restarts {
            (restarts.due, restarts.count) = (Instant::now(), 0);
        }
        self.queue.restart(0).unwrap();
        assert!(self.queue.is_connected());
        self.flush();
    }

    /// Checks that requests have ended in order, and that those executed, in order, are those that have not failed.
    fn check(&self) {
        let ended: Vec<u64> = self.results.iter().map(|(content, _)| *content).collect();
        assert_eq!(ended, (0..self.posted).collect::<Vec<_>>(), "each request ends once");
        let well: Vec<u64> = self.results.iter().filter(|(_, well)| *well).map(|(content, _)| *content).collect();
        assert_eq!(self.state.borrow().executed, well);
    }
}

/// Lengths of requests: of one packet and of several.
const LENS: [usize; 7] = [8, 4096, 200, 4097, 0, 20_000, 8];

#[test]
fn every_status_at_every_request_whatever_has_arrived_loses_and_doubles_nothing() {
    let total: u32 = LENS.iter().map(|len| len.div_ceil(MTU).max(1) as u32).sum();
    for status in 1..=STATUSES {
        for (at, port_was_down) in (0..LENS.len()).flat_map(|at| [(at, false), (at, true)]) {
            let before: u32 = LENS[..at].iter().map(|len| len.div_ceil(MTU).max(1) as u32).sum();
            for arrived in before..=total {
                let mut bench = Bench::new();
                LENS.iter().for_each(|len| bench.post(*len, false));
                let (_, fate) = explain(status, 0, "send", 3);
                let is_refused = fate == Fate::Refused;
                bench.state.borrow_mut().deliver(if is_refused { before } else { arrived });
                assert!(bench.fail(at, status, port_was_down));
                let text = format!("status {status} at {at}, {arrived} packets arrived: {:?}", bench.results);
                match fate {
                    Fate::Refused => {
                        assert!(bench.queue.lost().is_none(), "{text}");
                        if at + 1 < LENS.len() {
                            assert!(bench.queue.wants_connection(), "{text}");
                        }
                        bench.connect();
                        bench.settle();
                        let failed: Vec<u64> =
                            bench.results.iter().filter(|(_, well)| !well).map(|(content, _)| *content).collect();
                        assert_eq!(failed, [at as u64], "{text}");
                        bench.check();
                    }
                    Fate::Unknown | Fate::Silent if fate == Fate::Unknown || port_was_down => {
                        assert!(bench.queue.lost().is_none(), "{text}");
                        bench.restart();
                        bench.settle();
                        assert!(bench.results.iter().all(|(_, well)| *well), "{text}");
                        bench.check();
                    }
                    _ => {
                        assert_eq!(bench.queue.lost().map(Error::kind), Some(ErrorKind::PeerLost), "{text}");
                        assert!(bench.queue.is_disconnected() && bench.queue.is_idle(), "{text}");
                        let expected: Vec<_> = (0..LENS.len()).map(|i| (i as u64, i < at)).collect();
                        assert_eq!(bench.results, expected, "{text}");
                    }
                }
            }
        }
    }
}

/// Random requests, arrivals, acknowledgements and failures, also while requests are repeated.
#[test]
fn failures_one_after_the_other_lose_and_double_nothing() {
    use rdma_sys::ibv_wc_status as s;
    for seed in 1..=300u64 {
        let mut state = seed;
        let mut random = |n: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % n
        };
        let mut bench = Bench::new();
        for _ in 0..60 {
            match random(8) {
                0..4 => bench.post(LENS[random(7) as usize], false),
                4 => {
                    // A part arrives, and one of the requests that have arrived is acknowledged.
                    let packets = random(bench.state.borrow().packets() + 1);
                    bench.state.borrow_mut().deliver(packets);
                    let expected = bench.state.borrow().expected;
                    let arrived: Vec<u64> =
                        bench.state.borrow().sent.iter().filter(|s| s.end <= expected).map(|s| s.id).collect();
                    if !arrived.is_empty() {
                        bench.complete(arrived[random(arrived.len() as u32) as usize], 0, false);
                        bench.flush();
                    }
                }
                5 => {
                    // The connection fails at the first request that is not acknowledged.
                    let Some(oldest) = bench.queue.oldest() else { continue };
                    let at = bench.state.borrow().sent.iter().position(|s| s.id & NUMBER == oldest).unwrap();
                    let packets = random(bench.state.borrow().packets() + 1);
                    bench.state.borrow_mut().deliver(packets);
                    let status = [s::IBV_WC_LOC_QP_OP_ERR, s::IBV_WC_WR_FLUSH_ERR, s::IBV_WC_RETRY_EXC_ERR];
                    bench.fail(at, status[random(3) as usize], true);
                    bench.restart();
                }
                6 if bench.queue.oldest().is_some() => {
                    // The peer refuses a request after it has executed those before it.
                    let (expected, count) = (bench.state.borrow().expected, bench.state.borrow().sent.len());
                    let at = bench.state.borrow().sent.iter().position(|s| s.end > expected);
                    let Some(at) = at.map(|at| at + random((count - at) as u32) as usize) else { continue };
                    let packets = bench.state.borrow().sent[..at].iter().map(|s| s.end - s.first).sum();
                    bench.state.borrow_mut().deliver(packets);
                    if bench.state.borrow().sent[at].first != bench.state.borrow().expected {
                        continue;
                    }
                    bench.fail(at, s::IBV_WC_REM_ACCESS_ERR, false);
                    bench.connect();
                }
                _ => {}
            }
        }
        bench.settle();
        bench.check();
    }
}

#[test]
fn queue_pair_that_never_starts_again_is_given_up_with_its_first_reason() {
    let mut bench = Bench::new();
    bench.post(8, false);
    let why = loop {
        assert!(bench.fail(0, rdma_sys::ibv_wc_status::IBV_WC_LOC_QP_OP_ERR, false));
        let restarts = bench.queue.restarts.as_mut().unwrap();
        restarts.due = Instant::now();
        assert!(restarts.count <= RESTARTS);
        if let Err(e) = bench.queue.restart(0) {
            break e;
        }
        bench.flush();
    };
    assert!(why.kind() == ErrorKind::PeerLost && why.to_string().contains("LOC_QP_OP_ERR"), "{why}");
    let mut ended = Vec::new();
    bench.queue.lose(why, &mut ended);
    assert!(ended.len() == 1 && bench.queue.is_idle() && bench.queue.is_disconnected());
}

#[test]
fn request_cancelled_while_it_is_repeated_is_repeated_and_one_behind_it_is_not_posted() {
    let mut bench = Bench::new();
    (0..20).for_each(|_| bench.post(8, false));
    assert!(bench.state.borrow().sent.len() < 20, "some are not posted");
    assert!(bench.fail(0, FLUSHED, false));
    let mut ended = Vec::new();
    assert_eq!(bench.queue.cancel(&|owner| matches!(owner, Owner::User(2 | 19)), &mut ended), 2);
    assert_eq!(ended.len(), 1, "the one that was never posted");
    bench.restart();
    let numbers: Vec<u64> = bench.state.borrow().sent.iter().map(|sent| sent.content).collect();
    assert_eq!(numbers[..4], [0, 1, 2, 3]);
    assert_eq!(bench.queue.acknowledged & NUMBERS, 1000);
}

#[test]
fn request_that_finds_no_room_waits_unless_the_queue_is_empty() {
    let refused = |posted_before: bool, code| {
        let mut bench = Bench::new();
        if posted_before {
            bench.post(8, false);
        }
        bench.state.borrow_mut().refuses = code;
        bench.post(8, false);
        assert!(bench.queue.is_waiting());
        bench.queue.refused().map(|e| e.to_string())
    };
    assert_eq!(refused(true, libc::ENOMEM), None, "requests that complete make room");
    let e = refused(false, libc::ENOMEM).expect("nothing will make room");
    assert!(e.contains("Cannot allocate memory"), "{e}");
    // Some drivers return negative codes.
    for code in [libc::EINVAL, -libc::EINVAL] {
        assert!(refused(true, code).is_some_and(|e| e.contains("Invalid argument")));
    }
}
