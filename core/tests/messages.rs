#![allow(unsafe_code)]
//! Tests that check where the data of messages is stored, the order of messages, and that sends do not wait.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use farside_core::am::{
    self, Counter, Counters, Delivery, HandlerId, Layout, OnComplete, Received, Sink, Source, Token,
};
use farside_core::device::Block;
use farside_core::job::Track;
use farside_core::settings::Settings;
use farside_core::signal::SignalArray;
use farside_core::stats::Kind;
use farside_core::{ErrorKind, Job, Result, coll};

const ID: HandlerId = HandlerId(7);

fn settings(set: &[(&str, &str)]) -> Settings {
    // The device comes from the environment.
    let machine = |name: &str| {
        let device = matches!(name, "FARSIDE_DEVICE" | "FARSIDE_DEVICES" | "FARSIDE_TEST_NODES")
            || name.starts_with("FARSIDE_VERBS_")
            || name.starts_with("FARSIDE_TCP_")
            || name.starts_with("FARSIDE_OFI_");
        device.then(|| std::env::var(name).ok()).flatten()
    };
    let given = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    Settings::from_lookup(|name| given(name).or_else(|| machine(name))).unwrap()
}

/// Messages that do not fit into a packet are read from the sender's memory.
const READING: [(&str, &str); 1] = [("FARSIDE_TRANSFER", "eager:0,read-intra:1,read-inter:1")];

/// Runs `f` three times: with all readable messages read; the same with the smallest rings; and with the smallest
/// rings, ranks that sleep immediately, and no message read.
fn over_rings(ranks: u32, f: impl Fn(&Job) -> Result<()> + Sync) {
    const RING: (&str, &str) = ("FARSIDE_SHM_RING", "8192");
    let none_read = [RING, ("FARSIDE_WAIT", "park"), ("FARSIDE_SHM_USER_MEMORY", "ring")];
    for set in [&READING[..], &[READING[0], RING], &none_read] {
        Job::threads_with(ranks as usize, &settings(set), &f).unwrap_or_else(|e| panic!("{set:?}: {e}"));
    }
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + i / 251) ^ (seed * 17 + 1)) as u8).collect()
}

/// Blocks of `block` bytes, each `stride` bytes after the previous one; some of them are empty.
#[derive(Debug)]
struct Strided {
    base: *mut u8,
    block: usize,
    stride: usize,
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
            let (block, at) = (from / self.block, from % self.block);
            let now = (self.block - at).min(end - from);
            let base = self.base.wrapping_add(block * self.stride + at);
            blocks.push(Block { base, len: now });
            if block.is_multiple_of(3) {
                blocks.push(Block { base, len: 0 });
            }
            from += now;
        }
    }
}

/// Memory and a layout of `len` packed bytes in it.
fn strided(block: usize, stride: usize, len: usize) -> (Vec<u8>, Rc<Strided>) {
    let mut memory = vec![0xee; len.div_ceil(block) * stride + 1];
    let base = memory.as_mut_ptr();
    (memory, Rc::new(Strided { base, block, stride, len }))
}

/// The bytes in the layout, and whether all bytes between its blocks are unchanged.
fn packed(memory: &[u8], l: &Strided) -> (Vec<u8>, bool) {
    let (mut bytes, mut clean) = (Vec::new(), true);
    for (at, byte) in memory.iter().enumerate() {
        let (block, offset) = (at / l.stride, at % l.stride);
        if offset < l.block && block * l.block + offset < l.len {
            bytes.push(*byte);
        } else {
            clean &= *byte == 0xee;
        }
    }
    (bytes, clean)
}

fn wait_for(job: &Job, track: &Track) -> Result<()> {
    job.wait("a track", || Ok((track.open() == 0).then_some(())))?;
    track.check()
}

/// Lengths around every limit of the device.
fn lengths(job: &Job) -> Vec<usize> {
    let most = job.device().capabilities().max_packet;
    let mut lens = vec![0, 1, 7, 24, 25, 63, 64, 65, 200];
    for limit in [most - 24, most, 2 * most] {
        lens.extend(limit - 2..limit + 3);
    }
    lens.extend([5 * most + 13, 100_000, 1 << 20]);
    lens
}

/// Received messages. The header holds the number of the message.
#[derive(Debug, Default)]
struct Inbox {
    /// Number and result of each message.
    done: Vec<(u32, Result<Received>)>,
    held: VecDeque<(u32, usize, Token)>,
}

type Shared = Rc<RefCell<Inbox>>;

fn header(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

fn note(inbox: &Shared, number: u32) -> OnComplete {
    let inbox = inbox.clone();
    OnComplete::inline(move |received| inbox.borrow_mut().done.push((number, received)))
}

/// Registers a handler that holds messages that wait, and receives the others into buffers.
fn holding(job: &Job) -> Result<Shared> {
    let inbox = Shared::default();
    let to = inbox.clone();
    job.active_messages().register(ID, move |m| {
        let n = number(m.header);
        if m.waits {
            to.borrow_mut().held.push_back((n, m.len, m.token()));
            return Delivery::Hold;
        }
        Delivery::Into(Sink::buffer(Vec::new()), note(&to, n))
    })?;
    job.world()?.barrier()?;
    Ok(inbox)
}

/// Sends `bytes` without waiting.
fn start(job: &Job, to: u32, n: u32, bytes: &[u8], track: &Rc<Track>) -> Result<bool> {
    // SAFETY: the tests keep the bytes until the track has counted the message.
    unsafe { am::start_send(job, to, ID, &header(n), Source::of(bytes), Counters::default(), track) }
}

#[test]
fn messages_from_layout_to_layout_of_every_length() {
    over_rings(2, |job| {
        let lens = lengths(job);
        let shapes = [(1, 2), (3, 5), (64, 64), (1000, 1001), (8, 16)];
        let inbox = Shared::default();
        let sinks: Vec<_> =
            lens.iter().enumerate().map(|(i, len)| strided(shapes[i % 5].0, shapes[i % 5].1, *len)).collect();
        let layouts: Vec<_> = sinks.iter().map(|(_, l)| l.clone()).collect();
        let to = inbox.clone();
        job.active_messages().register(ID, move |m| {
            let n = number(m.header);
            // SAFETY: the memory outlives the messages.
            Delivery::Into(unsafe { Sink::layout(layouts[n as usize].clone()) }, note(&to, n))
        })?;
        job.world()?.barrier()?;
        let track = Track::new();
        let mut sources = Vec::new();
        // The first goes to the other rank, the second to this rank.
        for to in [1 - job.rank_number(), job.rank_number()] {
            for (i, len) in lens.iter().enumerate() {
                let (block, stride) = shapes[(i + 2) % 5];
                let (mut memory, layout) = strided(block, stride, *len);
                let data = pattern(i, *len);
                (0..*len).for_each(|at| memory[at / block * stride + at % block] = data[at]);
                let source = Source::Layout(Rc::new(Strided { base: memory.as_mut_ptr(), ..*layout }));
                // SAFETY: the memory outlives the track.
                unsafe { am::start_send(job, to, ID, &header(i as u32), source, Counters::default(), &track) }?;
                sources.push(memory);
            }
            wait_for(job, &track)?;
            job.wait("messages", || Ok((inbox.borrow().done.len() == lens.len()).then_some(())))?;
            for (n, received) in inbox.borrow_mut().done.drain(..) {
                let (memory, layout) = &sinks[n as usize];
                let (received, len) = (received?, lens[n as usize]);
                assert_eq!((received.len, received.kept), (len, len));
                // SAFETY: the messages are complete, so the memory is no longer written.
                let memory = unsafe { std::slice::from_raw_parts(memory.as_ptr(), memory.len()) };
                assert!(packed(memory, layout) == (pattern(n as usize, len), true), "{len} bytes to {to}");
            }
        }
        job.world()?.barrier()
    });
}

/// The addresses of about 150 blocks do not fit into a packet of the smallest ring.
#[test]
fn layout_of_many_blocks_is_received_also_in_the_smallest_packets() {
    const BLOCKS: usize = 150;
    over_rings(2, |job| {
        let (inbox, track) = (Shared::default(), Track::new());
        let (sink, layout) = strided(32, 33, 32 * BLOCKS);
        let (into, to) = (layout.clone(), inbox.clone());
        job.active_messages().register(ID, move |m| {
            let n = number(m.header);
            // SAFETY: the memory outlives the messages.
            Delivery::Into(unsafe { Sink::layout(into.clone()) }, note(&to, n))
        })?;
        job.world()?.barrier()?;
        let (mut memory, source) = strided(32, 40, 32 * BLOCKS);
        let data = pattern(1, 32 * BLOCKS);
        (0..data.len()).for_each(|at| memory[at / 32 * 40 + at % 32] = data[at]);
        let source = Source::Layout(Rc::new(Strided { base: memory.as_mut_ptr(), ..*source }));
        // SAFETY: the memory outlives the track.
        unsafe { am::start_send(job, 1 - job.rank_number(), ID, &header(0), source, Counters::default(), &track) }?;
        wait_for(job, &track)?;
        job.wait("a message", || Ok((inbox.borrow().done.len() == 1).then_some(())))?;
        for (_, received) in inbox.borrow_mut().done.drain(..) {
            assert_eq!(received?.kept, data.len());
        }
        assert!(packed(&sink, &layout) == (data, true));
        job.world()?.barrier()
    });
}

#[test]
fn shorter_sink_receives_the_first_bytes_and_its_completion_an_error() {
    over_rings(2, |job| {
        let lens = lengths(job);
        // The sinks have room for no byte, one byte, half, and all but one byte.
        let room = |len: usize, how: usize| [0, 1.min(len), len / 2, len.saturating_sub(1)][how];
        let sinks: Vec<Vec<u8>> = (0..4 * lens.len()).map(|i| vec![0xee; room(lens[i / 4], i % 4) + 1]).collect();
        let places: Vec<(*mut u8, usize)> = sinks.iter().map(|s| (s.as_ptr().cast_mut(), s.len() - 1)).collect();
        let inbox = Shared::default();
        let to = inbox.clone();
        job.active_messages().register(ID, move |m| {
            let n = number(m.header);
            let (base, len) = places[n as usize];
            // SAFETY: the memory outlives the messages.
            Delivery::Into(unsafe { Sink::memory(base, len) }, note(&to, n))
        })?;
        job.world()?.barrier()?;
        for to in [1 - job.rank_number(), job.rank_number()] {
            for n in 0..sinks.len() {
                let data = pattern(n, lens[n / 4]);
                am::send(job, to, ID, &header(n as u32), &data, Counters::default())?;
            }
            job.wait("messages", || Ok((inbox.borrow().done.len() == sinks.len()).then_some(())))?;
            for (n, received) in inbox.borrow_mut().done.drain(..) {
                let (len, sink) = (lens[n as usize / 4], &sinks[n as usize]);
                let kept = sink.len() - 1;
                let received = received?;
                assert_eq!((received.len, received.kept), (len, kept));
                // SAFETY: the messages are complete, so the memory is no longer written.
                let sink = unsafe { std::slice::from_raw_parts(sink.as_ptr(), sink.len()) };
                assert!(sink[..kept] == pattern(n as usize, len)[..kept] && sink[kept] == 0xee, "{kept} of {len}");
            }
        }
        job.world()?.barrier()
    });
}

#[test]
fn held_messages_are_delivered_in_any_order_and_once() {
    over_rings(2, |job| {
        let inbox = holding(job)?;
        for to in [1 - job.rank_number(), job.rank_number()] {
            let sent: Vec<Vec<u8>> = (0..40).map(|n| pattern(n, 70_000 + 1000 * n)).collect();
            let track = Track::new();
            for (n, data) in sent.iter().enumerate() {
                assert!(!start(job, to, n as u32, data, &track)?);
            }
            job.wait("messages", || Ok((inbox.borrow().held.len() == sent.len()).then_some(())))?;
            let mut held: Vec<_> = inbox.borrow_mut().held.drain(..).collect();
            assert!(held.iter().map(|(n, ..)| *n).eq(0..40), "handlers run in the order of sending");
            // Delivers the last message, then every other one, then the others, of which one is abandoned.
            held.rotate_right(1);
            let (first, second): (Vec<_>, Vec<_>) = held.into_iter().partition(|(n, ..)| n % 2 == 1);
            for (n, len, token) in first.into_iter().chain(second) {
                assert_eq!(len, sent[n as usize].len());
                if n == 20 {
                    assert!(am::abandon(job, token));
                } else {
                    am::deliver(job, token, Sink::buffer(Vec::new()), note(&inbox, n))?;
                }
                let e = am::deliver(job, token, Sink::discard(), OnComplete::inline(drop)).unwrap_err();
                assert_eq!((e.kind(), e.blamed_number()), (ErrorKind::BadArgument, Some(to)));
            }
            wait_for(job, &track)?;
            job.wait("data", || Ok((inbox.borrow().done.len() == sent.len() - 1).then_some(())))?;
            for (n, received) in inbox.borrow_mut().done.drain(..) {
                assert!(received?.buffer == sent[n as usize] && n != 20, "message {n}");
            }
        }
        job.world()?.barrier()
    });
}

#[test]
fn handlers_of_short_queued_and_long_messages_run_in_the_order_of_sending() {
    over_rings(2, |job| {
        let order = Rc::new(RefCell::new(Vec::new()));
        let to = order.clone();
        job.active_messages().register(ID, move |m| {
            to.borrow_mut().push(number(m.header));
            Delivery::Done
        })?;
        job.world()?.barrier()?;
        const MESSAGES: usize = 3000;
        for to in [1 - job.rank_number(), job.rank_number()] {
            let lens = lengths(job);
            let data = pattern(1, 1 << 20);
            let track = Track::new();
            for n in 0..MESSAGES {
                let data = &data[..lens[n * 7 % lens.len()]];
                match n % 3 {
                    0 if n % 30 == 0 => am::send(job, to, ID, &header(n as u32), data, Counters::default())?,
                    1 if data.len() < 200 => {
                        while !am::try_send(job, to, ID, &header(n as u32), data, Counters::default())? {
                            job.progress()?;
                        }
                    }
                    _ => _ = start(job, to, n as u32, data, &track)?,
                }
            }
            wait_for(job, &track)?;
            job.wait("messages", || Ok((order.borrow().len() == MESSAGES).then_some(())))?;
            assert!(order.borrow_mut().drain(..).eq(0..MESSAGES as u32));
        }
        job.world()?.barrier()
    });
}

/// Messages between layouts of few blocks are sent in one packet, read from the sender's memory, or sent in several
/// packets. A read is one copy within a node, and no copy by this library over verbs. A message to the rank itself is
/// one copy.
#[test]
fn messages_from_layout_to_layout_are_copied_at_most_once() {
    // In a job of several devices, the limits are those of the device between the two ranks.
    let several = [("FARSIDE_DEVICE", "route"), ("FARSIDE_DEVICES", "shm,tcp")];
    [&[][..], &READING, &several].into_iter().for_each(copied_at_most_once);
}

fn copied_at_most_once(set: &[(&str, &str)]) {
    const LENGTHS: [usize; 4] = [8, 4 << 10, 64 << 10, 1 << 20];
    let settings = settings(set);
    Job::threads_with(2, &settings, |job| {
        let inbox = Shared::default();
        let (memory, to) = strided(1 << 16, 1 << 17, 1 << 20);
        let (mut from, source) = strided(1 << 17, 3 << 16, 1 << 20);
        from.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
        let expected = packed(&from, &source).0;
        let (base, done) = (to.base, inbox.clone());
        job.active_messages().register(ID, move |m| {
            // SAFETY: the memory outlives the messages.
            let sink = unsafe { Sink::layout(Rc::new(Strided { base, len: m.len, ..*to })) };
            Delivery::Into(sink, note(&done, number(m.header)))
        })?;
        let team = job.world()?;
        let (c, me) = (job.device().capabilities(), job.rank_number());
        let cut_offs = c.messages.adjusted(&settings.transfer);
        let read_from = if job.device().shares_memory(1 - me) { cut_offs.read_intra } else { cut_offs.read_inter };
        for (len, to) in LENGTHS.into_iter().flat_map(|len| [(len, me), (len, 1 - me)]) {
            // SAFETY: no message is in progress.
            unsafe { memory.as_ptr().cast_mut().write_bytes(0xee, memory.len()) };
            // The message of the other rank may arrive as soon as that rank has left the barrier, whose signals are not
            // counted.
            let (before, track) = (job.stats(), Track::new());
            team.barrier()?;
            let source = Source::Layout(Rc::new(Strided { base: from.as_mut_ptr(), len, ..*source }));
            // SAFETY: the memory outlives the track.
            unsafe { am::start_send(job, to, ID, &header(1), source, Counters::default(), &track) }?;
            job.wait("a message", || Ok(inbox.borrow_mut().done.pop().map(|(_, received)| received)))??;
            wait_for(job, &track)?;
            let spent = job.stats() - before;
            // A read costs the request to send and the end of the other rank's message; packets beyond the eager limit
            // cost the request to send, the clear to send for the other rank's message, and the packets.
            let near = job.device().shares_memory(to);
            let eager = if near { cut_offs.eager_intra } else { cut_offs.eager_inter };
            let (most, len) = (c.max_packet - 24, len as u64);
            let (sends, reads) = match len as usize {
                _ if to == me => (0, 0),
                len if len + 8 <= most => (1, 0),
                // A region of ofi has no lists.
                len if len >= read_from && c.name != "ofi" => (2, 1),
                len if len <= eager => (len.div_ceil(most) as u64, 0),
                len => (2 + len.div_ceil(most) as u64, 0),
            };
            let copies = if to == me || (reads > 0 && near) { (1, len) } else { (0, 0) };
            let copied = (spent.count(Kind::Copy), spent.bytes(Kind::Copy));
            println!("{len} bytes to rank {to} from {me}: {sends} packets, {reads} reads, {} copies", copied.0);
            if reads > 0 && len >= 128 << 10 && near {
                // Both ranks may copy: a sink and a number of segments may be sent too.
                assert!((sends..=sends + 2).contains(&spent.count(Kind::Send)), "{len} bytes: {spent:?}");
                let all = coll::allgather(&team, &copied.1.to_le_bytes())?;
                let sum: u64 = all.iter().map(|one| u64::from_le_bytes(one[..].try_into().unwrap())).sum();
                assert_eq!(sum, 2 * len, "{len} bytes: {spent:?}");
            } else {
                assert_eq!(
                    (spent.count(Kind::Send), spent.count(Kind::Read)),
                    (sends, reads),
                    "{len} bytes: {spent:?}"
                );
                assert_eq!(copied, copies, "{len} bytes: {spent:?}");
            }
            // SAFETY: the messages are complete.
            let memory = unsafe { std::slice::from_raw_parts(memory.as_ptr(), memory.len()) };
            let block = |at: usize| memory[at / (1 << 16) * (1 << 17) + at % (1 << 16)];
            assert!((0..len as usize).all(|at| block(at) == expected[at]), "{len} bytes to rank {to}");
        }
        team.barrier()
    })
    .unwrap();
}

/// Over tcp, a message of one block that is too long for a packet that is copied is one packet, sent from its memory and not
/// copied; its memory is reusable when the target has it.
#[test]
fn message_of_one_block_is_one_packet_over_tcp() {
    let settings = settings(&[("FARSIDE_DEVICE", "tcp")]);
    Job::threads_with(2, &settings, |job| {
        let (inbox, me, team) = (Shared::default(), job.rank_number(), job.world()?);
        let done = inbox.clone();
        job.active_messages()
            .register(ID, move |m| Delivery::Into(Sink::buffer(Vec::new()), note(&done, number(m.header))))?;
        let most = job.device().capabilities().max_lent_packet - 24 - header(1).len();
        for (len, sends) in [(20 << 10, 1), (64 << 10, 1), (most, 1), (most + 1, 2)] {
            let bytes: Vec<u8> = (0..len).map(|at| (at % 253) as u8).collect();
            team.barrier()?;
            let (before, track) = (job.stats(), Track::new());
            let source = Source::Bytes(Block::of(bytes.as_ptr(), len));
            // SAFETY: the memory outlives the track.
            let is_sent = unsafe { am::start_send(job, 1 - me, ID, &header(1), source, Counters::default(), &track) }?;
            assert!(!is_sent, "its memory is in use");
            let received =
                job.wait("a message", || Ok(inbox.borrow_mut().done.pop().map(|(_, received)| received)))??;
            wait_for(job, &track)?;
            let spent = job.stats() - before;
            assert!(received.buffer == bytes, "{len} bytes");
            assert_eq!((spent.count(Kind::Send), spent.bytes(Kind::Copy)), (sends, 0), "{len} bytes: {spent:?}");
        }
        team.barrier()
    })
    .unwrap();
}

/// Reads memory only, so that nothing is dispatched meanwhile.
fn look_until(job: &Job, ready: impl Fn() -> bool) -> Result<()> {
    while !ready() {
        job.check_peers()?;
        std::thread::yield_now();
    }
    Ok(())
}

#[test]
fn sends_to_a_computing_rank_return_at_once_and_arrive_when_it_returns() {
    const MESSAGES: usize = 100_000;
    const LENS: [usize; 5] = [1, 65, 100, 300, 1000];
    let messages = if std::env::var_os("FARSIDE_TEST_QUICK").is_some() { MESSAGES / 20 } else { MESSAGES };
    Job::threads_with(2, &settings(&[]), |job| {
        let (count, sum) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (seen, added) = (count.clone(), sum.clone());
        job.active_messages().register(ID, move |_| {
            seen.set(seen.get() + 1);
            let added = added.clone();
            let then = OnComplete::inline(move |r| {
                added.set(added.get() + r.unwrap().buffer.iter().map(|b| u64::from(*b)).sum::<u64>())
            });
            Delivery::Into(Sink::buffer(Vec::new()), then)
        })?;
        let team = job.world()?;
        let signals = SignalArray::new(&team, 0)?;
        team.barrier()?;
        // Rank 1 computes until rank 0 has started all sends.
        if job.rank_number() == 1 {
            look_until(job, || signals.get(0, 1) == 1)?;
            job.wait("messages", || Ok((count.get() == messages).then_some(())))?;
            assert_eq!(sum.get(), (0..messages).map(|n| (n % 251 * LENS[n % 5]) as u64).sum::<u64>());
            return team.barrier();
        }
        let data: Vec<Vec<u8>> = (0..251).map(|n| vec![n as u8; 1000]).collect();
        let track = Track::new();
        for n in 0..messages {
            start(job, 1, n as u32, &data[n % 251][..LENS[n % 5]], &track)?;
        }
        assert!(track.open() > messages / 2, "{} are in progress", track.open());
        assert!(!am::try_send(job, 1, ID, &header(0), &[], Counters::default())?, "others wait");
        signals.set(1, 1, 1)?;
        wait_for(job, &track)?;
        team.barrier()
    })
    .unwrap();
}

#[test]
fn cancelled_sends_are_errors_at_the_receiver_and_their_memory_is_not_read() {
    over_rings(2, |job| {
        let inbox = holding(job)?;
        let peer = 1 - job.rank_number();
        let track = Track::new();
        let mut data = pattern(1, 300_000);
        start(job, peer, 1, &data, &track)?;
        start(job, peer, 2, &data[..200_000], &track)?;
        job.wait("messages", || Ok((inbox.borrow().held.len() == 2).then_some(())))?;
        // After the barrier the peer has received the requests to send, too.
        job.world()?.barrier()?;
        job.cancel(&track);
        assert_eq!(track.open(), 0);
        track.check()?;
        data.fill(0);
        job.world()?.barrier()?;
        // The completion of a message may borrow the inbox immediately.
        let held: Vec<_> = inbox.borrow_mut().held.drain(..).collect();
        for (n, _, token) in held {
            am::deliver(job, token, Sink::buffer(Vec::new()), note(&inbox, n))?;
        }
        job.wait("errors", || Ok((inbox.borrow().done.len() == 2).then_some(())))?;
        for (_, received) in inbox.borrow_mut().done.drain(..) {
            let e = received.unwrap_err();
            assert_eq!((e.kind(), e.blamed_number()), (ErrorKind::Aborted, Some(peer)), "{e}");
        }
        // Neither rank sends more while the other one counts the errors.
        job.world()?.barrier()?;
        // One message is to this rank, and one may not have been sent.
        for to in [job.rank_number(), peer] {
            let track = Track::new();
            start(job, to, 3, &data, &track)?;
            job.cancel(&track);
            assert_eq!(track.open(), 0);
        }
        job.world()?.barrier()?;
        // A later message arrives complete.
        am::send(job, peer, ID, &header(9), b"whole", Counters::default())?;
        // An offer that had been sent before it was cancelled ends with an error.
        let last = |(n, _): &(u32, _)| *n == 9;
        job.wait("a message", || Ok(inbox.borrow().done.iter().any(last).then_some(())))?;
        let (_, received) = inbox.borrow_mut().done.drain(..).find(last).unwrap();
        assert!(received?.buffer == b"whole");
        job.world()?.barrier()
    });
}

/// Sends that are cancelled at any time, and whose memory is then reused: a message that its target reports as complete
/// has all its data.
#[test]
fn sends_that_are_cancelled_while_they_are_read_arrive_whole_or_as_errors() {
    let rounds = if farside_harness::quick() { 60 } else { 600 };
    Job::threads_with(2, &settings(&[]), |job| {
        let inbox = Shared::default();
        let done = inbox.clone();
        job.active_messages()
            .register(ID, move |m| Delivery::Into(Sink::buffer(Vec::new()), note(&done, number(m.header))))?;
        job.world()?.barrier()?;
        if job.rank_number() == 1 {
            let mut begun = 0;
            job.wait("the last message", || {
                let done = std::mem::take(&mut inbox.borrow_mut().done);
                for (n, received) in done {
                    match received {
                        Ok(r) if r.buffer == b"last" => return Ok(Some(())),
                        Ok(r) => assert!(r.buffer.iter().all(|b| *b == n as u8), "message {n} is not whole"),
                        Err(e) => assert_eq!((e.kind(), e.blamed()), (ErrorKind::Aborted, Some(0)), "{e}"),
                    }
                    begun += 1;
                }
                Ok(None)
            })?;
            println!("{begun} of {rounds} messages have begun");
            return job.world()?.barrier();
        }
        let mut data = vec![0u8; 1 << 20];
        for round in 0..rounds {
            data.fill(round as u8 & 127);
            let track = Track::new();
            start(job, 1, round & 127, &data, &track)?;
            for _ in 0..(round * 7) % 40 {
                job.progress()?;
            }
            job.cancel(&track);
            data.fill(0xff);
        }
        am::send(job, 1, ID, &header(0), b"last", Counters::default())?;
        job.world()?.barrier()
    })
    .unwrap();
}

#[test]
fn counters_of_messages_that_wait_move_when_they_are_complete() {
    over_rings(2, |job| {
        let inbox = holding(job)?;
        let (origin, target, completion) = (Counter::new(), Counter::new(), Counter::new());
        let number = job.active_messages().expose(&target);
        job.world()?.barrier()?;
        for (round, to) in [1 - job.rank_number(), job.rank_number()].into_iter().enumerate() {
            let (track, data) = (Track::new(), pattern(1, 200_000));
            let counters = Counters { origin: Some(&origin), target: Some(number), completion: Some(&completion) };
            // SAFETY: the data outlives the track.
            unsafe { am::start_send(job, to, ID, &header(1), Source::of(&data), counters, &track) }?;
            job.wait("a message", || Ok((!inbox.borrow().held.is_empty()).then_some(())))?;
            assert_eq!(
                (origin.value(), target.value(), completion.value()),
                (round as u64, round as u64, round as u64)
            );
            job.world()?.barrier()?;
            let (n, _, token) = inbox.borrow_mut().held.pop_front().unwrap();
            am::deliver(job, token, Sink::buffer(Vec::new()), note(&inbox, n))?;
            wait_for(job, &track)?;
            job.wait("counters", || Ok((completion.value() == round as u64 + 1).then_some(())))?;
            job.wait("counters", || Ok((target.value() == round as u64 + 1).then_some(())))?;
            assert_eq!(origin.value(), round as u64 + 1);
        }
        job.world()?.barrier()
    });
}

#[test]
fn message_that_is_here_cannot_be_held_and_one_whose_handler_panics_is_an_error_at_its_sender() {
    Job::threads_with(2, &settings(&[]), |job| {
        job.active_messages().register(ID, move |m| {
            if m.waits {
                std::panic::resume_unwind(Box::new("on purpose"));
            }
            Delivery::Hold
        })?;
        let team = job.world()?;
        let signals = SignalArray::new(&team, 0)?;
        team.barrier()?;
        if job.rank_number() == 0 {
            // Rank 1 is out of the barrier, so it does not get the message there.
            look_until(job, || signals.get(1, 1) == 1)?;
            am::send(job, 1, ID, &header(1), b"short", Counters::default())?;
            signals.set(1, 1, 1)?;
            let (data, track) = (pattern(1, 300_000), Track::new());
            look_until(job, || signals.get(1, 1) == 2)?;
            start(job, 1, 2, &data, &track)?;
            signals.set(1, 1, 2)?;
            let e = wait_for(job, &track).unwrap_err();
            assert_eq!((e.kind(), e.blamed()), (ErrorKind::Aborted, Some(1)), "{e}");
        } else {
            signals.set(0, 1, 1)?;
            look_until(job, || signals.get(0, 1) == 1)?;
            let e = job.progress().unwrap_err();
            assert_eq!((e.kind(), e.blamed()), (ErrorKind::BadArgument, Some(0)), "{e}");
            signals.set(0, 1, 2)?;
            look_until(job, || signals.get(0, 1) == 2)?;
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job.progress())).expect_err("the panic goes on");
        }
        team.barrier()
    })
    .unwrap();
}
