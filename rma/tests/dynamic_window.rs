//! Dynamic windows: attach, use, detach, and what happens to those who come late.

use std::cell::RefCell;

use farside_rma::prelude::Team;
use farside_rma::{Attachment, DynamicWindow, ErrorKind, Job, Op, Result};

/// The attachment of rank 0, on all ranks.
fn broadcast(team: &Team, mine: Attachment) -> Result<Attachment> {
    let bytes = farside_rma::core::coll::broadcast(team, 0, bytemuck::bytes_of(&mine))?;
    Ok(bytemuck::pod_read_unaligned(&bytes))
}

fn run(fault: &str, user_memory: &str) {
    let settings = farside_rma::core::settings::Settings::from_lookup(|name| match name {
        "FARSIDE_FAULT" => Some(fault.to_owned()),
        "FARSIDE_SHM_USER_MEMORY" => Some(user_memory.to_owned()),
        // The device comes from the environment.
        "FARSIDE_DEVICE" | "FARSIDE_NODES" => std::env::var(name).ok(),
        _ if name.starts_with("FARSIDE_VERBS_") => std::env::var(name).ok(),
        _ => None,
    })
    .unwrap();
    Job::threads_with(3, &settings, |job| {
        let team = job.world()?;
        let me = team.rank();
        let window = DynamicWindow::<u64>::new(&team)?;
        // 5,001 elements: whole pages and ragged edges.
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
        // The slot is used again; the old attachment stays gone.
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
