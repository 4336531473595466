#![allow(unsafe_code)]
//! Dynamic windows: attach, use, detach, and operations after detach.

use std::cell::RefCell;

use farside_rma::core::settings::Settings;
use farside_rma::core::stats::Kind;
use farside_rma::prelude::Team;
use farside_rma::raw::Options;
use farside_rma::raw::dynamic::RawDynamicWindow;
use farside_rma::{Assert, Attachment, DynamicWindow, ErrorKind, Job, Op, Result};

/// The attachment of rank 0, on all ranks.
fn broadcast(team: &Team, mine: Attachment) -> Result<Attachment> {
    let bytes = farside_rma::core::coll::broadcast(team, 0, bytemuck::bytes_of(&mine))?;
    Ok(bytemuck::pod_read_unaligned(&bytes))
}

fn settings(fault: &str, user_memory: &str) -> Settings {
    Settings::from_lookup(|name| match name {
        "FARSIDE_TEST_FAULT" => Some(fault.to_owned()),
        "FARSIDE_SHM_USER_MEMORY" => Some(user_memory.to_owned()),
        // The environment selects the device.
        "FARSIDE_DEVICE" | "FARSIDE_TEST_NODES" => std::env::var(name).ok(),
        _ if ["FARSIDE_VERBS_", "FARSIDE_TCP_", "FARSIDE_OFI_"].iter().any(|start| name.starts_with(start)) => {
            std::env::var(name).ok()
        }
        _ => None,
    })
    .unwrap()
}

fn run(fault: &str, user_memory: &str) {
    Job::threads_with(3, &settings(fault, user_memory), |job| {
        let team = job.world()?;
        let me = team.rank();
        let window = DynamicWindow::<u64>::new(&team)?;
        // 5,001 elements: whole pages and partial pages at both ends.
        let mine = window.attach(vec![7; 5001])?;
        let zero = broadcast(&team, mine)?;
        let block = vec![me as u64 + 100; 1000];
        window.put(&block, 0, zero, me * 1000 + 1)?;
        window.accumulate(Op::Sum, &[1; 3], None, 0, zero, 4000)?;
        let mut old = [0; 2];
        window.accumulate(Op::NoOp, &[0; 2], Some(&mut old), 0, zero, 0)?;
        assert_eq!(old[0], 7);
        let won = window.compare_and_swap(7, 1000 + me as u64, 0, zero, 5000)?;
        team.barrier()?;
        let winner = RefCell::new([0u64]);
        window.get(&mut *winner.borrow_mut(), 0, zero, 5000)?;
        assert_eq!(won == 7, winner.borrow()[0] == 1000 + me as u64);
        let mut got = vec![0; 3004];
        window.get(&mut got, 0, zero, 0)?;
        for rank in 0..3 {
            assert!(got[rank * 1000 + 1..][..1000].iter().all(|x| *x == rank as u64 + 100));
        }
        let kind = |r: Result<()>| r.unwrap_err().kind();
        assert_eq!(kind(window.put(&[1], 0, zero, 5001)), ErrorKind::OutOfRange);
        assert_eq!(kind(window.put(&[1], 3, zero, 0)), ErrorKind::NoSuchRank);
        assert_eq!(kind(window.put(&[1], 0, Attachment { id: 99, ..zero }, 0)), ErrorKind::NotAttached);
        team.barrier()?;
        if me == 0 {
            let back = window.detach(mine)?;
            assert_eq!((back[0], back[1], back[2001], back[4000..4003].to_vec()), (7, 100, 102, vec![10; 3]));
            assert_eq!(window.detach(mine).unwrap_err().kind(), ErrorKind::NotAttached);
        }
        team.barrier()?;
        // The slot is reused; the old attachment stays invalid.
        let again = if me == 0 { window.attach(vec![1; 10])? } else { mine };
        team.barrier()?;
        assert_eq!(kind(window.put(&[1], 0, zero, 0)), ErrorKind::NotAttached);
        let again = broadcast(&team, again)?;
        let mut one = [0];
        window.get(&mut one, 0, again, 9)?;
        assert_eq!(one, [1]);
        window.free()
    })
    .unwrap();
}

#[test]
fn attach_use_detach_remapped() {
    run("none", "remap");
}

#[test]
fn attach_use_detach_by_requests() {
    run("none", "ring");
}

#[test]
fn attach_use_detach_unmapped_device() {
    run("unmapped", "auto");
}

#[test]
fn attach_more_than_the_table_holds_is_an_error() {
    Job::threads(1, |job| {
        let window = DynamicWindow::<u8>::new(&job.world()?)?;
        let all = (0..farside_rma::MAX_ATTACHED).map(|_| window.attach(vec![0; 3])).collect::<Result<Vec<_>>>()?;
        assert_eq!(window.attach(vec![]).unwrap_err().kind(), ErrorKind::Limit);
        window.detach(all[5])?;
        window.attach(vec![])?;
        window.free()
    })
    .unwrap();
}

/// Words of the memory that each rank attaches: whole pages in the middle.
const WORDS: usize = 4096;

/// The numbers of requests and of reads in ten rounds of a put, a get, a fetch-and-op and a compare-and-swap on word
/// `word` of `target`, by address. Ten of the reads belong to the gets.
fn counted(fault: &str, user_memory: &str, target: usize, word: usize) -> (u64, u64) {
    let counted = Job::threads_with(2, &settings(fault, user_memory), |job| {
        let team = job.world()?;
        let mut memory = vec![0u64; WORDS];
        let window = RawDynamicWindow::new(&team, None, Options::default())?;
        // SAFETY: the memory outlives the window, and is not accessed otherwise.
        unsafe { window.attach_exclusively(memory.as_mut_ptr().cast(), 8 * WORDS) }?;
        let bases = farside_rma::core::coll::allgather(&team, &memory.as_ptr().addr().to_le_bytes())?;
        let base = usize::from_le_bytes(bases[target].as_slice().try_into().unwrap());
        let (raw, at) = (window.window(), base + 8 * word);
        raw.lock_all(Assert::empty())?;
        let round = |i: u64| {
            let (mut got, mut old, mut former) = (0u64, 0u64, 0u64);
            // SAFETY: the buffers outlive the flushes.
            unsafe {
                raw.put((&raw const i).cast(), 8, target, at)?;
                raw.flush(target)?;
                raw.get((&raw mut got).cast(), 8, target, at)?;
                raw.accumulate(Op::Sum, &raw const i, &raw mut old, 1, target, at)?;
                raw.flush(target)?;
                raw.compare_and_swap(2 * i, i, &raw mut former, target, at)?;
                raw.flush(target)?;
            }
            assert_eq!((got, old, former), (i, i, 2 * i));
            Ok(())
        };
        let mut counted = (0, 0);
        if team.rank() == 0 {
            // The first round looks up and imports the attachment.
            round(1)?;
            let before = job.stats();
            (0..10).try_for_each(round)?;
            let of = |kind| job.stats().count(kind) - before.count(kind);
            counted = (of(Kind::Request), of(Kind::Read));
        }
        team.barrier()?;
        raw.unlock_all()?;
        team.barrier()?;
        // The imported attachment is not used after detach.
        if team.rank() == target {
            window.detach(window.attachment_at(memory.as_ptr().cast()).unwrap())?;
        }
        team.barrier()?;
        raw.lock_all(Assert::empty())?;
        let mut got = 0u64;
        // SAFETY: the buffer outlives the epoch.
        let gone = unsafe { raw.get((&raw mut got).cast(), 8, target, at) };
        assert_eq!(gone.unwrap_err().kind(), ErrorKind::NotAttached);
        raw.unlock_all()?;
        window.free()?;
        Ok(counted)
    });
    counted.unwrap()[0]
}

#[test]
fn operations_by_address_are_loads_and_stores_or_one_request_each() {
    if std::env::var_os("FARSIDE_DEVICE").is_some() || std::env::var_os("FARSIDE_TEST_NODES").is_some() {
        return;
    }
    assert_eq!(counted("none", "ring", 0, 1), (0, 10), "memory of the rank itself");
    assert_eq!(counted("none", "remap", 1, WORDS / 2), (0, 10), "a page that is shared");
    assert_eq!(counted("none", "ring", 1, WORDS / 2), (40, 10), "memory of another");
    // Each operation checks whether the table has changed.
    assert_eq!(counted("unmapped", "remap", 1, WORDS / 2), (0, 50), "tables that are not mapped");
}
