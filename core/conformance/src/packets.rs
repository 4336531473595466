#![allow(unsafe_code)]
//! Packets: their order, all lengths up to the maximum, and a full queue.

use farside_core::device::{Block, Event, Operation, Posted, WorkRequest};
use farside_core::error::Error;
use farside_core::signal::SignalArray;
use farside_core::{Job, Result};

use crate::world::pattern;

fn send(job: &Job, to: u32, header: &[u8], parts: &[&[u8]]) -> Result<Posted> {
    let body: Vec<Block> = parts.iter().map(|p| Block::of(p.as_ptr(), p.len())).collect();
    let operation = Operation::send(header, &body);
    // SAFETY: a packet is copied before the call returns.
    unsafe { job.device().post(&WorkRequest { peer: to, operation, notify: None, id: 0 }) }
}

fn send_waiting(job: &Job, to: u32, header: &[u8], parts: &[&[u8]]) -> Result<()> {
    loop {
        match send(job, to, header, parts)? {
            Posted::Done => return Ok(()),
            posted => assert_eq!(posted, Posted::Busy),
        }
        job.check_peers()?;
        std::thread::yield_now();
    }
}

fn receive(job: &Job) -> Result<Vec<(u32, Vec<u8>)>> {
    let mut packets = Vec::new();
    job.device().poll(&mut |event| match event {
        Event::Packet { source, bytes } => packets.push((source, bytes.to_vec())),
        Event::LongPacket { source, packet } => packets.push((source, packet.read().to_vec())),
        Event::Completed { id, result } => panic!("completion {id}: {result:?}"),
    })?;
    if packets.is_empty() {
        job.check_peers()?;
        std::thread::yield_now();
    }
    Ok(packets)
}

/// Receives packets of rank 0, of these lengths in this order.
fn receive_patterns(job: &Job, lens: &[usize]) -> Result<()> {
    let mut next = 0;
    while next < lens.len() {
        for (source, bytes) in receive(job)? {
            assert_eq!(source, 0);
            assert!(bytes == pattern(next, lens[next]), "packet {next} of {} bytes", lens[next]);
            next += 1;
        }
    }
    Ok(())
}

/// A barrier with signal cells only, after which only [`receive`] takes packets, at rank `receiver`. No rank sends
/// before the receiver has all the signals that it waits for: a signal behind packets that are not taken may wait for a
/// receive buffer forever. There are two rounds, since the first signal to a rank may have to wait for a connection,
/// and a rank that waits for one takes packets.
fn barrier_by_signals(job: &Job, receiver: usize) -> Result<SignalArray> {
    let team = job.world()?;
    // The first barrier of a team that spans nodes sends packets.
    team.barrier()?;
    let signals = SignalArray::new(&team, 0)?;
    let others = |rank: usize| (0..team.size()).filter(move |other| *other != rank);
    for round in 1..=2 {
        let await_from = |from: usize| -> Result<()> {
            while signals.get(from, 7) < round {
                job.check_peers()?;
                std::thread::yield_now();
            }
            Ok(())
        };
        if team.rank() == receiver {
            others(receiver).try_for_each(await_from)?;
            others(receiver).try_for_each(|to| signals.set(to, 7, round))?;
        } else {
            signals.set(receiver, 7, round)?;
            await_from(receiver)?;
        }
    }
    Ok(signals)
}

check! {
    fn packets_of_every_length_come_whole_and_in_order(job, setup) over 2 {
        let team = job.world()?;
        let _board = barrier_by_signals(job, 1)?;
        let most = job.device().capabilities().max_packet;
        let lens: Vec<usize> = (0..300).chain((300..most).step_by(97)).chain([most - 1, most, 0, most, 1]).collect();
        if job.rank_number() == 0 {
            for (seed, len) in lens.iter().enumerate() {
                let bytes = pattern(seed, *len);
                let (header, body) = bytes.split_at(len / 5);
                let (a, b) = body.split_at(body.len() / 3);
                send_waiting(job, 1, header, &[a, &[], b])?;
            }
        } else {
            receive_patterns(job, &lens)?;
        }
        team.barrier()
    }
}

check! {
    fn long_packets_are_sent_from_memory_until_they_complete(job, setup) over 2 {
        let (copied, lent) = (job.device().capabilities().max_packet, job.device().capabilities().max_lent_packet);
        if lent <= copied || job.device().shares_memory(1 - job.rank_number()) {
            return setup.skip("the device copies every packet");
        }
        let team = job.world()?;
        let _board = barrier_by_signals(job, 1)?;
        let lens: Vec<usize> = (copied + 1..lent).step_by(997).chain([lent, 1, lent, 0, copied, lent]).collect();
        if job.rank_number() == 0 {
            let all: Vec<Vec<u8>> = lens.iter().enumerate().map(|(seed, len)| pattern(seed, *len)).collect();
            let (mut open, mut id) = (std::collections::VecDeque::new(), 0);
            while id < all.len() || !open.is_empty() {
                if let Some(bytes) = all.get(id) {
                    let (header, body) = bytes.split_at(bytes.len().min(150));
                    let body = [Block::of(body.as_ptr(), body.len())];
                    let request =
                        WorkRequest { peer: 1, operation: Operation::send(header, &body), notify: None, id: id as u64 };
                    // SAFETY: the bytes live until all packets have completed.
                    let posted = unsafe { job.device().post(&request) }?;
                    let expected = if bytes.len() > copied { Posted::Pending } else { Posted::Done };
                    assert!(posted == expected || posted == Posted::Busy, "{posted:?}: {} bytes", bytes.len());
                    if posted == Posted::Pending {
                        open.push_back(id as u64);
                    }
                    id += usize::from(posted != Posted::Busy);
                }
                job.device().poll(&mut |event| {
                    let Event::Completed { id, result } = event else { panic!("a packet for rank 0") };
                    result.unwrap();
                    assert_eq!(Some(id), open.pop_front(), "in order");
                })?;
                job.check_peers()?;
            }
        } else {
            receive_patterns(job, &lens)?;
        }
        team.barrier()
    }
}

check! {
    fn packets_to_one_from_many_keep_the_order_of_each(job, setup) over 4 {
        let team = job.world()?;
        let _board = barrier_by_signals(job, 0)?;
        let n = setup.rounds(3000, 300) as u32;
        if job.rank_number() > 0 {
            for i in 0..n {
                send_waiting(job, 0, &i.to_le_bytes(), &[&pattern(i as usize, i as usize % 90)])?;
            }
        } else {
            let mut next = [0u32; 4];
            while next[1..] != [n; 3] {
                for (source, bytes) in receive(job)? {
                    let i = next[source as usize];
                    let want = [&i.to_le_bytes()[..], &pattern(i as usize, i as usize % 90)].concat();
                    assert!(bytes == want, "packet {i} from rank {source}");
                    next[source as usize] += 1;
                }
            }
        }
        team.barrier()
    }
}

check! {
    fn full_queue_is_busy_and_loses_nothing(job, setup) over 2 {
        let team = job.world()?;
        let signals = barrier_by_signals(job, 1)?;
        let Some(room) = &setup.packet_room else {
            return setup.skip("no fixed room for packets to a rank that takes none");
        };
        // Only cells are read, without a turn of progress, so that packets stay in the queue until `receive`.
        let await_more = |before: u64| {
            while signals.get(0, 1) == before {
                job.check_peers()?;
                std::thread::yield_now();
            }
            Ok::<u64, Error>(signals.get(0, 1))
        };
        let mut total = 0;
        for len in [4, 56, 57, 1000, job.device().capabilities().max_packet] {
            for _ in 0..5 {
                if job.rank_number() == 0 {
                    let mut sent = 0u64;
                    let packet = |i: u64| [&(i as u32).to_le_bytes()[..], &vec![3; len - 4]].concat();
                    while send(job, 1, &packet(sent), &[])? == Posted::Done {
                        sent += 1;
                    }
                    assert!(room(len).contains(&(sent as usize)), "{sent} packets of {len} bytes");
                    let before = job.stats();
                    assert_eq!(send(job, 1, &packet(sent), &[])?, Posted::Busy);
                    assert_eq!((job.stats() - before).messages(), 0, "a refused packet was counted");
                    total += sent;
                    signals.set(1, 1, total)?;
                    while signals.get(1, 1) != total {
                        job.check_peers()?;
                        std::thread::yield_now();
                    }
                } else {
                    let before = total;
                    total = await_more(before)?;
                    let mut got = 0;
                    while got < total - before {
                        for (_, bytes) in receive(job)? {
                            assert_eq!((bytes.len(), &bytes[..4]), (len, &(got as u32).to_le_bytes()[..]));
                            got += 1;
                        }
                    }
                    assert!(receive(job)?.is_empty(), "more came than was sent");
                    signals.set(0, 1, total)?;
                }
            }
        }
        team.barrier()
    }
}
