#![allow(unsafe_code)]
//! Long messages between ranks of one node, of which both ranks copy segments at the same time: which rank copies which
//! segments, and how such messages end when one of the two ranks stops in the middle.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use farside_core::am::{self, Counters, Delivery, HandlerId, Layout, OnComplete, Received, Sink, Source, Token};
use farside_core::device::{Block, Operation, Posted, Range, Region, WorkRequest};
use farside_core::job::Track;
use farside_core::settings::Settings;
use farside_core::stats::Kind;
use farside_core::{ErrorKind, Job, Result, coll};

const ID: HandlerId = HandlerId(7);
/// Length of a message of 64 segments, of which a rank copies 16 in a turn of progress.
const LEN: usize = 16 << 20;
const PIECE: usize = LEN / 64;
const TURN: u64 = LEN as u64 / 4;
/// The maximum wait, so that a test that would wait forever ends.
const LIMIT: Duration = Duration::from_secs(60);

/// Makes ranks act in a given order.
#[derive(Default)]
struct Turns(AtomicUsize);

impl Turns {
    /// Runs `act` when all earlier turns have ended.
    fn at<R>(&self, turn: usize, act: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        while self.0.load(Ordering::SeqCst) != turn {
            assert!(start.elapsed() < 2 * LIMIT, "turn {turn} does not come");
            std::thread::yield_now();
        }
        let result = act();
        self.0.store(turn + 1, Ordering::SeqCst);
        result
    }
}

/// Runs two ranks that read messages of any length. Skipped if ranks cannot map each other's memory, or share a
/// processor.
fn over_two(f: impl Fn(&Job, &Turns) -> Result<()> + Sync) -> Result<()> {
    match std::thread::available_parallelism() {
        Ok(processors) if processors.get() > 1 => with(&[], f),
        _ => {
            println!("the two ranks share a processor");
            Ok(())
        }
    }
}

/// The same with these settings, on any processors.
fn with(set: &[(&str, &str)], f: impl Fn(&Job, &Turns) -> Result<()> + Sync) -> Result<()> {
    let machine = |name: &str| {
        let device = matches!(name, "FARSIDE_DEVICE" | "FARSIDE_DEVICES" | "FARSIDE_TEST_NODES")
            || name.starts_with("FARSIDE_VERBS_")
            || name.starts_with("FARSIDE_TCP_")
            || name.starts_with("FARSIDE_OFI_");
        device.then(|| std::env::var(name).ok()).flatten()
    };
    let set = [&[("FARSIDE_TRANSFER", "eager:0,read-intra:1")], set].concat();
    let given = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    let settings = Settings::from_lookup(|name| given(name).or_else(|| machine(name))).unwrap();
    let turns = Turns::default();
    let run = |job: &Job| {
        if !job.device().shares_memory(1 - job.rank_number()) {
            println!("the ranks share no memory");
            return Ok(());
        }
        f(job, &turns)
    };
    Job::threads_with(2, &settings, run).map(|_| ())
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + i / 251) ^ (seed * 17 + 1)) as u8).collect()
}

/// Makes turns of progress until this rank has copied segments of a message; returns the number of bytes.
fn copy_some(job: &Job, kind: Kind) -> Result<u64> {
    let before = job.stats().bytes(kind);
    for _ in 0..1_000_000 {
        job.progress()?;
        let copied = job.stats().bytes(kind) - before;
        if copied > 0 {
            return Ok(copied);
        }
        std::thread::yield_now();
    }
    panic!("nothing is copied");
}

fn progress_often(job: &Job) -> Result<()> {
    (0..1000).try_for_each(|_| job.progress().map(|_| ()))
}

/// A receiver of one message at a time, of at most `room` bytes.
struct Receiver {
    sink: Vec<u8>,
    token: Rc<Cell<Option<Token>>>,
    result: Rc<RefCell<Option<Result<Received>>>>,
}

impl Receiver {
    fn new(job: &Job, room: usize) -> Result<Self> {
        Self::into(job, vec![0xee; room + 1], 0, room)
    }

    /// A receiver into `room` bytes of `sink` from `at` on.
    fn into(job: &Job, mut sink: Vec<u8>, at: usize, room: usize) -> Result<Self> {
        let (token, result, base) = (Rc::default(), Rc::default(), sink[at..].as_mut_ptr());
        let receiver = Self { sink, token, result };
        let (token, result) = (receiver.token.clone(), receiver.result.clone());
        job.active_messages().register(ID, move |m| {
            token.set(Some(m.token()));
            let result = result.clone();
            // SAFETY: the memory outlives the messages.
            Delivery::Into(
                unsafe { Sink::memory(base, room) },
                OnComplete::inline(move |r| *result.borrow_mut() = Some(r)),
            )
        })?;
        Ok(receiver)
    }

    fn wait(&self, job: &Job) -> Result<Received> {
        job.within(LIMIT, || job.wait("a message", || Ok(self.result.borrow_mut().take())))?
    }

    fn bytes(&self) -> Vec<u8> {
        let len = self.sink.len();
        // SAFETY: no message is in progress.
        unsafe { std::slice::from_raw_parts(std::hint::black_box(self.sink.as_ptr()), len) }.to_vec()
    }

    fn fill(&self) {
        // SAFETY: no message is in progress.
        unsafe { self.sink.as_ptr().cast_mut().write_bytes(0xee, self.sink.len()) };
    }

    /// Sets the protection of the pages in the second half of the sink.
    fn allow(&self, rights: i32) {
        const PAGE: usize = 4096;
        let bytes = self.sink.as_ptr_range();
        let (start, end) = (bytes.start.addr() + LEN / 2, bytes.end.addr() / PAGE * PAGE);
        let at = bytes.start.wrapping_add(start.next_multiple_of(PAGE) - bytes.start.addr());
        // SAFETY: whole pages of the sink, which this rank does not access meanwhile.
        let rc = unsafe { libc::mprotect(at.cast_mut().cast(), end - at.addr(), rights) };
        assert_eq!(rc, 0);
    }

    fn is(&self, data: &[u8]) -> bool {
        let bytes = self.bytes();
        bytes[..data.len()] == *data && bytes[data.len()..].iter().all(|byte| *byte == 0xee)
    }
}

fn start(job: &Job, data: &[u8], track: &Rc<Track>) -> Result<()> {
    // SAFETY: the tests keep the data until the track has counted the message, or it is cancelled.
    unsafe { am::start_send(job, 1, ID, &[], Source::of(data), Counters::default(), track) }.map(|_| ())
}

fn wait_for(job: &Job, track: &Track) -> Result<()> {
    job.within(LIMIT, || job.wait("a track", || Ok((track.open() == 0).then_some(()))))?;
    track.check()
}

/// Bytes read and written by this rank since `before`, and packets sent.
fn spent(job: &Job, before: farside_core::stats::Snapshot) -> (u64, u64, u64) {
    let spent = job.stats() - before;
    (spent.bytes(Kind::Read), spent.bytes(Kind::Write), spent.count(Kind::Send))
}

#[test]
fn target_reads_from_the_front_while_the_sender_writes_from_the_back() {
    over_two(|job, turns| {
        let (data, track) = (pattern(1, LEN), Track::new());
        let receiver = Receiver::new(job, LEN)?;
        job.world()?.barrier()?;
        let before = job.stats();
        if job.rank_number() == 0 {
            turns.at(0, || start(job, &data, &track))?;
            assert_eq!(turns.at(2, || copy_some(job, Kind::Write))?, TURN);
            assert_eq!(turns.at(4, || copy_some(job, Kind::Write))?, TURN);
            wait_for(job, &track)?;
            // The request to send, and the number of segments after each turn.
            assert_eq!(spent(job, before), (0, 2 * TURN, 3));
        } else {
            // The segments are at their offsets, and nothing else was written.
            let quarter = LEN / 4;
            turns.at(1, || {
                assert_eq!(copy_some(job, Kind::Read)?, TURN);
                let bytes = receiver.bytes();
                assert!(bytes[..quarter] == data[..quarter] && bytes[quarter..].iter().all(|byte| *byte == 0xee));
                Ok(())
            })?;
            turns.at(3, || {
                assert_eq!(copy_some(job, Kind::Read)?, TURN);
                let bytes = receiver.bytes();
                assert!(bytes[..2 * quarter] == data[..2 * quarter]);
                assert!(bytes[LEN - quarter..LEN] == data[LEN - quarter..]);
                Ok(())
            })?;
            turns.at(5, || ());
            assert_eq!(receiver.wait(job)?.kept, LEN);
            job.wait("the end", || Ok(job.active_messages().is_quiet().then_some(())))?;
            // The sink, and the end.
            assert_eq!(spent(job, before), (2 * TURN, 0, 2));
            assert!(receiver.is(&pattern(1, LEN)));
        }
        job.world()?.barrier()
    })
    .unwrap();
}

#[test]
fn target_copies_everything_if_the_sender_does_not_poll() {
    over_two(|job, turns| {
        let (data, track) = (pattern(2, LEN), Track::new());
        let receiver = Receiver::new(job, LEN)?;
        job.world()?.barrier()?;
        for message in 0..3 {
            let before = job.stats();
            if job.rank_number() == 0 {
                turns.at(3 * message, || start(job, &data[message..], &track))?;
                // Both the sink's address and the end of the message have arrived, so this rank copies nothing.
                turns.at(3 * message + 2, || wait_for(job, &track))?;
                assert_eq!(spent(job, before), (0, 0, 1));
            } else {
                turns.at(3 * message + 1, || {
                    assert_eq!(receiver.wait(job)?.kept, LEN - message);
                    job.wait("the end", || Ok(job.active_messages().is_quiet().then_some(())))
                })?;
                assert_eq!(spent(job, before), ((LEN - message) as u64, 0, 2));
                assert!(receiver.is(&pattern(2, LEN)[message..]));
                receiver.fill();
            }
        }
        job.world()?.barrier()
    })
    .unwrap();
}

#[test]
fn target_does_not_wait_for_a_sender_that_has_copied_some_pieces_and_computes() {
    over_two(|job, turns| {
        let (data, track) = (pattern(9, LEN), Track::new());
        let receiver = Receiver::new(job, LEN)?;
        job.world()?.barrier()?;
        let before = job.stats();
        if job.rank_number() == 0 {
            turns.at(0, || start(job, &data, &track))?;
            assert_eq!(turns.at(2, || copy_some(job, Kind::Write))?, TURN);
            turns.at(4, || wait_for(job, &track))?;
        } else {
            turns.at(1, || copy_some(job, Kind::Read))?;
            turns.at(3, || receiver.wait(job))?;
            assert_eq!(spent(job, before).0, 3 * TURN);
            assert!(receiver.is(&data));
        }
        job.world()?.barrier()
    })
    .unwrap();
}

#[test]
fn sender_that_sleeps_is_woken_once_at_the_end() {
    // The rank sleeps for a long time without a check for lost ranks.
    with(&[("FARSIDE_WAIT", "park"), ("FARSIDE_PEER_CHECK_MS", "2000")], |job, turns| {
        let (data, track) = (pattern(12, LEN), Track::new());
        let receiver = Receiver::new(job, LEN)?;
        job.world()?.barrier()?;
        if job.rank_number() == 0 {
            turns.at(0, || start(job, &data, &track))?;
            wait_for(job, &track)?;
        } else {
            turns.at(1, || ());
            let start = Instant::now();
            while !job.device().is_asleep(0) {
                assert!(start.elapsed() < LIMIT, "it never sleeps");
                std::thread::yield_now();
            }
            let before = job.stats();
            receiver.wait(job)?;
            job.wait("the end", || Ok(job.active_messages().is_quiet().then_some(())))?;
            assert_eq!((spent(job, before), (job.stats() - before).count(Kind::Wake)), ((LEN as u64, 0, 1), 1));
            assert!(receiver.is(&data));
        }
        job.world()?.barrier()
    })
    .unwrap();
}

#[test]
fn sinks_are_lent_for_any_number_of_messages() {
    const MESSAGES: u64 = 70;
    over_two(|job, turns| {
        let (data, track) = (pattern(11, 128 << 10), Track::new());
        let receiver = Receiver::new(job, data.len())?;
        job.world()?.barrier()?;
        let before = job.stats();
        for message in 0..MESSAGES as usize {
            if job.rank_number() == 0 {
                turns.at(3 * message, || start(job, &data, &track))?;
                turns.at(3 * message + 2, || wait_for(job, &track))?;
            } else {
                turns.at(3 * message + 1, || {
                    receiver.wait(job)?;
                    job.wait("the end", || Ok(job.active_messages().is_quiet().then_some(())))
                })?;
                assert!(receiver.is(&data));
                receiver.fill();
            }
        }
        if job.rank_number() == 1 {
            assert_eq!(spent(job, before).2, 2 * MESSAGES);
        }
        job.world()?.barrier()
    })
    .unwrap();
}

#[test]
fn buffers_that_are_used_again_are_copied_by_both_without_system_calls() {
    farside_harness::alone!("buffers_that_are_used_again_are_copied_by_both_without_system_calls");
    const LEN: usize = 1 << 20;
    const MESSAGES: usize = 20;
    #[cfg(feature = "verbs")]
    if let Err(e) = farside_core::device::Watch::new() {
        return println!("memory cannot be watched: {e}");
    }
    if cfg!(not(all(target_env = "gnu", feature = "verbs"))) {
        return;
    }
    // `malloc` maps each of the buffers separately. SAFETY: a parameter of the allocator.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 64 << 10) };
    // Buffers are not moved if the sender sleeps whenever a message begins, as it may on a busy machine, or if pages of
    // another rank of this process are next to them. Then the next job has other buffers.
    let (begin, mut kept) = (Instant::now(), Vec::new());
    let [has_run, are_moved] = [const { AtomicBool::new(false) }; 2];
    while !are_moved.load(Ordering::SeqCst) {
        assert!(begin.elapsed() < LIMIT, "buffers are never moved");
        kept.push(vec![0_u8; 100 << 10]);
        over_two(|job, _| {
            has_run.store(true, Ordering::SeqCst);
            let track = Track::new();
            let (mut data, sink) = (vec![0; LEN + 4096], vec![0xee; LEN + 4096]);
            // Other parts of the pages at the edges could be used by other ranks.
            let [from, to] = [&data, &sink].map(|memory| memory.as_ptr().align_offset(4096));
            let receiver = Receiver::into(job, sink, to, LEN)?;
            job.world()?.barrier()?;
            let mut messages = |first: usize| {
                for message in first..first + MESSAGES {
                    if job.rank_number() == 0 {
                        data[from..from + LEN].copy_from_slice(&pattern(message, LEN));
                        start(job, &data[from..from + LEN], &track)?;
                        wait_for(job, &track)?;
                    } else {
                        assert_eq!(receiver.wait(job)?.kept, LEN);
                        assert!(receiver.bytes()[to..to + LEN] == pattern(message, LEN), "message {message}");
                    }
                }
                Ok::<_, farside_core::Error>(())
            };
            for round in 0..5 {
                messages(round * MESSAGES)?;
                let moved = coll::allgather(&job.world()?, &[u8::from(job.stats().count(Kind::Remap) > 0)])?;
                if moved.iter().all(|moved| moved[..] == [1]) {
                    are_moved.store(true, Ordering::SeqCst);
                    break;
                }
            }
            if !are_moved.load(Ordering::SeqCst) {
                return Ok(());
            }
            let before = job.stats();
            messages(0)?;
            let (read, written, _) = spent(job, before);
            println!("rank {}: {read} bytes read, {written} written", job.rank_number());
            assert_eq!((job.stats() - before).count(Kind::SystemCall), 0, "{:?}", job.stats() - before);
            let sums = coll::allgather(&job.world()?, &(read + written).to_le_bytes())?;
            let sums = sums.iter().map(|sum| u64::from_le_bytes(sum[..].try_into().unwrap()));
            assert_eq!(sums.sum::<u64>(), (MESSAGES * LEN) as u64);
            Ok(())
        })
        .unwrap();
        if !has_run.load(Ordering::SeqCst) {
            return;
        }
    }
}

#[test]
fn target_copies_alone_where_the_ranks_share_a_processor() {
    let bound = || {
        // SAFETY: the set is plain data, of the size that is given.
        let bound = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
            let first = (0..libc::CPU_SETSIZE as usize).find(|at| libc::CPU_ISSET(*at, &set)).unwrap();
            libc::CPU_ZERO(&mut set);
            libc::CPU_SET(first, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
        };
        assert_eq!(bound, 0);
        with(&[], |job, _| {
            let (data, track) = (pattern(10, LEN), Track::new());
            let receiver = Receiver::new(job, LEN)?;
            job.world()?.barrier()?;
            let before = job.stats();
            // The request to send, and the end.
            if job.rank_number() == 0 {
                start(job, &data, &track)?;
                wait_for(job, &track)?;
                assert_eq!(spent(job, before), (0, 0, 1));
            } else {
                receiver.wait(job)?;
                job.wait("the end", || Ok(job.active_messages().is_quiet().then_some(())))?;
                assert_eq!(spent(job, before), (LEN as u64, 0, 1));
                assert!(receiver.is(&data));
            }
            job.world()?.barrier()
        })
        .unwrap();
    };
    std::thread::scope(|scope| scope.spawn(bound).join()).unwrap();
}

#[test]
fn message_that_is_cancelled_in_the_middle_is_copied_by_none() {
    over_two(|job, turns| {
        let (mut data, track) = (pattern(3, LEN), Track::new());
        let receiver = Receiver::new(job, LEN)?;
        job.world()?.barrier()?;
        if job.rank_number() == 0 {
            turns.at(0, || start(job, &data, &track))?;
            turns.at(2, || {
                assert_eq!(copy_some(job, Kind::Write)?, TURN);
                job.cancel(&track);
                data.fill(0);
                progress_often(job)
            })?;
            let before = job.stats();
            turns.at(4, || progress_often(job))?;
            assert_eq!(spent(job, before).1, 0);
        } else {
            turns.at(1, || copy_some(job, Kind::Read))?;
            turns.at(3, || {
                assert_eq!(receiver.wait(job).unwrap_err().kind(), ErrorKind::Aborted);
                receiver.fill();
                Ok(())
            })?;
            turns.at(5, || progress_often(job))?;
            assert!(receiver.is(&[]));
        }
        job.world()?.barrier()
    })
    .unwrap();
}

#[test]
fn sink_of_a_message_that_is_abandoned_in_the_middle_is_not_written() {
    over_two(|job, turns| {
        let (data, track) = (pattern(4, LEN), Track::new());
        let receiver = Receiver::new(job, LEN)?;
        job.world()?.barrier()?;
        // The second message is abandoned when the sender has written nothing, but has received the sink.
        for (message, first) in [(0, 0), (1, 6)] {
            if job.rank_number() == 0 {
                turns.at(first, || start(job, &data, &track))?;
                turns.at(first + 2, || if message == 0 { copy_some(job, Kind::Write) } else { Ok(0) })?;
                let before = job.stats();
                turns.at(first + 4, || wait_for(job, &track))?;
                assert_eq!(spent(job, before).1, 0);
            } else {
                turns.at(first + 1, || copy_some(job, Kind::Read))?;
                turns.at(first + 3, || {
                    assert!(am::abandon(job, receiver.token.take().unwrap()));
                    receiver.fill();
                    progress_often(job)
                })?;
                turns.at(first + 5, || progress_often(job))?;
                assert!(receiver.is(&[]) && receiver.result.borrow().is_none());
            }
        }
        job.world()?.barrier()
    })
    .unwrap();
}

/// Registers `len` bytes for one transfer; returns the handle and the key.
fn lend(job: &Job, base: *mut u8, len: usize) -> Result<(u64, Vec<u8>)> {
    // SAFETY: the tests keep the memory until the registration is released.
    let made = unsafe { job.device().register(Region { brief: true, one_node: true, ..Region::of(base, len) }) }?;
    Ok((made.handle, made.key))
}

#[test]
fn pieces_that_the_sender_fails_to_write_are_read() {
    over_two(|job, turns| {
        let (data, track) = (pattern(5, LEN), Track::new());
        let receiver = Receiver::new(job, LEN)?;
        job.world()?.barrier()?;
        let before = job.stats();
        if job.rank_number() == 0 {
            turns.at(0, || start(job, &data, &track))?;
            turns.at(2, || copy_some(job, Kind::Write))?;
            turns.at(4, || progress_often(job))?;
            wait_for(job, &track)?;
        } else {
            turns.at(1, || copy_some(job, Kind::Read))?;
            turns.at(3, || {
                // The system refuses the sender's writes.
                receiver.allow(libc::PROT_NONE);
                Ok(())
            })?;
            turns.at(5, || {
                receiver.allow(libc::PROT_READ | libc::PROT_WRITE);
                Ok(())
            })?;
            assert_eq!(receiver.wait(job)?.kept, LEN);
            // The quarter of the sender is copied too.
            assert_eq!(spent(job, before).0, LEN as u64);
            assert!(receiver.is(&pattern(5, LEN)));
        }
        job.world()?.barrier()
    })
    .unwrap();
}

#[test]
fn rank_that_ends_in_the_middle_is_reported_to_the_other() {
    for lost in [0, 1] {
        let outcome = Mutex::new(None);
        let data = pattern(6, LEN);
        let result = over_two(|job, turns| {
            let track = Track::new();
            // The sink outlives the job.
            let receiver = std::mem::ManuallyDrop::new(Receiver::new(job, LEN)?);
            job.world()?.barrier()?;
            let wait = || if job.rank_number() == 0 { wait_for(job, &track) } else { receiver.wait(job).map(|_| ()) };
            if job.rank_number() == 0 {
                turns.at(0, || start(job, &data, &track))?;
                turns.at(2, || copy_some(job, Kind::Write))?;
            } else {
                turns.at(1, || copy_some(job, Kind::Read))?;
                turns.at(3, || Ok(()))?;
            }
            if job.rank_number() == lost {
                return Err(farside_core::Error::new(ErrorKind::Aborted, "end in the middle"));
            }
            let result = wait();
            if job.rank_number() == 0 {
                job.cancel(&track);
            }
            // On a busy machine the receiver may have read everything before the sender ends.
            assert!(result.is_err() || job.rank_number() == 1 && receiver.is(&data));
            *outcome.lock().unwrap() = Some(result);
            Ok(())
        });
        if let Err(e) = result {
            assert_eq!(e.kind(), ErrorKind::Aborted);
            if let Err(error) = outcome.into_inner().unwrap().expect("the other rank waits for ever or goes on") {
                assert_eq!((error.kind(), error.blamed_number()), (ErrorKind::PeerLost, Some(lost)), "{error}");
            }
        }
    }
}

#[test]
fn memory_that_a_rank_has_lent_is_not_written_when_its_device_is_gone() {
    let memory = vec![0xee_u8; 1 << 20];
    let _ = over_two(|job, _| {
        let team = job.world()?;
        let (handle, key) = lend(job, memory.as_ptr().cast_mut(), memory.len())?;
        let keys = coll::allgather(&team, &key)?;
        let remote = job.device().import(1 - job.rank_number(), &keys[1 - job.rank()], None)?;
        team.barrier()?;
        if job.rank_number() == 1 {
            // The device is dropped with its registrations.
            return Err(farside_core::Error::new(ErrorKind::Aborted, "end"));
        }
        while job.check_peers().is_ok() {
            std::thread::yield_now();
        }
        let (mut zeros, ranges) = (vec![0u8; 1 << 20], [Range { offset: 0, len: 1 << 20 }]);
        // The other rank is lost before its device is dropped. Until then its memory can be read.
        let start = Instant::now();
        loop {
            let into = &[Block::of(zeros.as_mut_ptr(), zeros.len())];
            let operation = Operation::read_list(into, remote.handle, &ranges);
            // SAFETY: the blocks are valid during the call, which does not end before the operation.
            let read = unsafe { job.device().post(&WorkRequest { peer: 1, operation, notify: None, id: 1 }) };
            match read {
                Ok(posted) => assert_eq!(posted, Posted::Done),
                Err(e) => break assert_eq!(e.kind(), ErrorKind::BadKey),
            }
            assert!(start.elapsed() < LIMIT, "lent memory stays readable");
        }
        zeros.fill(0);
        let from = &[Block::of(zeros.as_ptr(), zeros.len())];
        let operation = Operation::write_list(from, remote.handle, &ranges);
        // SAFETY: the blocks are valid during the call.
        let posted = unsafe { job.device().post(&WorkRequest { peer: 1, operation, notify: None, id: 1 }) };
        assert_eq!(posted.unwrap_err().kind(), ErrorKind::BadKey);
        // SAFETY: registered above.
        unsafe { job.device().release(handle) }
    });
    assert!(memory.iter().all(|byte| *byte == 0xee));
}

/// Blocks of `block` bytes, at every other block-sized offset.
struct Strided {
    base: *mut u8,
    block: usize,
    len: usize,
}

// SAFETY: the blocks have the requested bytes in their order.
unsafe impl Layout for Strided {
    fn packed_len(&self) -> usize {
        self.len
    }

    fn blocks(&self, mut from: usize, len: usize, blocks: &mut Vec<Block>) {
        let end = from + len;
        while from < end {
            let now = (self.block - from % self.block).min(end - from);
            let at = from / self.block * 2 * self.block + from % self.block;
            blocks.push(Block { base: self.base.wrapping_add(at), len: now });
            from += now;
        }
    }
}

#[test]
fn messages_of_any_length_and_shape_arrive_completely_in_both_directions() {
    /// Length of the message, length of the sink, lengths of the blocks of both.
    const SHAPES: [[usize; 4]; 9] = [
        [(128 << 10) - 1, 1 << 20, 1 << 20, 1 << 20],
        [128 << 10, 128 << 10, 1 << 20, 1 << 20],
        [(128 << 10) + 1, 200 << 10, 1 << 20, 1 << 20],
        [1_000_003, 1_000_003, 1 << 20, 1 << 20],
        [1_000_003, 700_001, 1 << 20, 1 << 20],
        [1_000_003, 100, 1 << 20, 1 << 20],
        [1_500_000, 1_500_000, 40_000, 100_003],
        // More blocks than an offer can hold.
        [1_500_000, 1_500_000, 1 << 20, 5000],
        [5_000_001, 5_000_001, 1 << 20, 300_001],
    ];
    over_two(|job, _| {
        let sinks: Vec<Vec<u8>> = SHAPES.iter().map(|shape| vec![0xee; 2 * (shape[1] + shape[3]) + 1]).collect();
        let places: Vec<*mut u8> = sinks.iter().map(|sink| sink.as_ptr().cast_mut()).collect();
        let done = Rc::new(RefCell::new(Vec::new()));
        let to = done.clone();
        job.active_messages().register(ID, move |m| {
            let (number, to) = (usize::from(m.header[0]), to.clone());
            let [_, room, _, block] = SHAPES[number];
            // SAFETY: the memory outlives the messages.
            let sink = unsafe { Sink::layout(Rc::new(Strided { base: places[number], block, len: room })) };
            Delivery::Into(sink, OnComplete::inline(move |received| to.borrow_mut().push((number, received))))
        })?;
        job.world()?.barrier()?;
        let before = job.stats();
        for round in 0..5 {
            let track = Track::new();
            let mut sources = Vec::new();
            for (number, [len, _, block, _]) in SHAPES.into_iter().enumerate() {
                let mut memory = vec![0; 2 * (len + block)];
                let source = Strided { base: memory.as_mut_ptr(), block, len };
                let mut blocks = Vec::new();
                source.blocks(0, len, &mut blocks);
                let mut data = &pattern(number + round, len)[..];
                for one in blocks {
                    // SAFETY: inside the memory.
                    unsafe { one.base.copy_from(data.as_ptr(), one.len) };
                    data = &data[one.len..];
                }
                let (source, counters) = (Source::Layout(Rc::new(source)), Counters::default());
                // SAFETY: the memory outlives the track.
                unsafe { am::start_send(job, 1 - job.rank_number(), ID, &[number as u8], source, counters, &track) }?;
                sources.push(memory);
            }
            job.wait("messages", || Ok((done.borrow().len() == SHAPES.len()).then_some(())))?;
            wait_for(job, &track)?;
            for (number, received) in done.borrow_mut().drain(..) {
                let ([len, room, _, block], received) = (SHAPES[number], received?);
                assert_eq!((received.len, received.kept), (len, len.min(room)));
                let data = pattern(number + round, len);
                let sink: &[u8] = std::hint::black_box(&sinks[number]);
                let is_right = |at: usize, byte: u8| {
                    let (chunk, offset) = (at / (2 * block), at % (2 * block));
                    let packed = chunk * block + offset;
                    byte == if offset < block && packed < received.kept { data[packed] } else { 0xee }
                };
                assert!(sink.iter().enumerate().all(|(at, byte)| is_right(at, *byte)), "message {number}");
                // SAFETY: the messages of this round are complete.
                unsafe { sink.as_ptr().cast_mut().write_bytes(0xee, sink.len()) };
            }
            job.world()?.barrier()?;
        }
        // Each byte is copied once, by either rank. Those of the shortest sink arrive in packets, or, if the sender
        // sleeps, are read.
        let (read, written, _) = spent(job, before);
        let sums = coll::allgather(&job.world()?, &(read + written).to_le_bytes())?;
        let sum: u64 = sums.iter().map(|sum| u64::from_le_bytes(sum[..].try_into().unwrap())).sum();
        let kept: usize = SHAPES.iter().map(|shape| shape[0].min(shape[1])).filter(|kept| *kept > 100).sum();
        println!("rank {}: {read} bytes read, {written} written", job.rank_number());
        let shortest = sum.checked_sub(2 * 5 * kept as u64).expect("every byte is copied");
        assert!(shortest <= 2 * 5 * 100 && shortest.is_multiple_of(100), "{sum}");
        job.world()?.barrier()
    })
    .unwrap();
}

#[test]
fn malformed_sinks_are_refused_and_the_message_arrives() {
    over_two(|job, turns| {
        let (data, track) = (pattern(8, 4 * PIECE), Track::new());
        let receiver = Receiver::new(job, data.len())?;
        job.world()?.barrier()?;
        let number = |bytes: &mut Vec<u8>, value: u64| bytes.extend(value.to_le_bytes());
        let text = |bytes: &mut Vec<u8>, text: &[u8]| {
            bytes.extend((text.len() as u32).to_le_bytes());
            bytes.extend(text);
        };
        // Bodies of the packet: too short, a longer sink than the message, and unknown keys, alone and with slots that do
        // not exist.
        let body = |len: u64| {
            let mut body = Vec::new();
            text(&mut body, b"board");
            text(&mut body, b"sink");
            number(&mut body, 0);
            number(&mut body, len);
            body
        };
        let bodies = [Vec::new(), vec![255; 30], body(1 << 40), body(u64::MAX), body(1 << 20), body(0), body(1 << 20)];
        if job.rank_number() == 0 {
            turns.at(0, || start(job, &data, &track))?;
            for (i, _) in bodies.iter().enumerate() {
                turns.at(2 * i + 2, || {
                    for _ in 0..20 {
                        if let Err(e) = job.progress() {
                            assert_eq!((e.kind(), e.blamed()), (ErrorKind::Protocol, Some(1)), "{e}");
                        }
                    }
                });
            }
            wait_for(job, &track)?;
        } else {
            for (i, body) in bodies.iter().enumerate() {
                turns.at(2 * i + 1, || {
                    for message in 0..4 {
                        let mut packet = 8u64.to_le_bytes().to_vec();
                        number(&mut packet, (i as u64) << 60);
                        number(&mut packet, message << 1);
                        packet.extend(body);
                        let operation = Operation::send(&packet, &[]);
                        // SAFETY: packets are copied.
                        unsafe { job.device().post(&WorkRequest { peer: 0, operation, notify: None, id: 1 }) }.unwrap();
                    }
                });
            }
            turns.at(2 * bodies.len() + 1, || ());
            assert_eq!(receiver.wait(job)?.kept, data.len());
            assert!(receiver.is(&data));
        }
        job.world()?.barrier()
    })
    .unwrap();
}
