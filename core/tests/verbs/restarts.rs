//! Queue pairs that fail, and ports that go down and come up: no operation is lost, executed twice or overtaken.

use std::time::Duration;

use farside_core::ErrorKind;
use rdma_sys::ibv_wc_status as s;

use crate::faults::{Links, exchange, nothing_is_left};
use crate::strict::failures::Failing;
use crate::{two, two_with, well};

/// Requests of every kind fail after the peer has executed them. The peer's queue pair continues, so this rank's is
/// restarted, and executed requests are not executed again: an addition returns the same value as before.
#[test]
fn requests_that_fail_after_they_were_executed_are_executed_once() {
    for (every, status) in [(1, 0), (7, s::IBV_WC_LOC_QP_OP_ERR), (4, s::IBV_WC_WR_FLUSH_ERR)] {
        let failing = Failing::new(every, status);
        let Some(errors) = two(|job| exchange(job, 40)) else { return };
        well(Some(errors));
        assert!(failing.completed() > 100, "the driver is not used");
        drop(failing);
        nothing_is_left();
    }
}

/// After a failure that reveals nothing about the peer's queue pair, the peer is lost, and no rank waits forever.
#[test]
fn requests_that_fail_for_good_lose_the_peer() {
    for status in [s::IBV_WC_RETRY_EXC_ERR, s::IBV_WC_GENERAL_ERR, s::IBV_WC_LOC_PROT_ERR, 999] {
        let failing = Failing::new(50, status);
        let errors = two(|job| exchange(job, 1000));
        drop(failing);
        let errors: Vec<_> = errors.into_iter().flatten().map(|e| e.expect("a request that has failed")).collect();
        assert!(errors.iter().all(|e| matches!(e.kind(), ErrorKind::PeerLost | ErrorKind::BadArgument)), "{errors:#?}");
        nothing_is_left();
    }
}

/// A port is down for a second while requests of every kind are in progress: all continue after that.
#[test]
fn port_that_is_down_for_a_second_changes_no_result() {
    for device in ["rxe0", "rxe1"] {
        let Some(_links) = Links::new() else { return };
        let (blinked, ended) = std::sync::mpsc::channel();
        let errors = two_with(&[("FARSIDE_WAIT", "park")], move |job| {
            let team = job.world()?;
            team.barrier()?;
            if job.rank_number() == 0 {
                let blinked = blinked.clone();
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(200));
                    Links::change(&["down", device]);
                    std::thread::sleep(Duration::from_secs(1));
                    Links::change(&["up", device]);
                    let _ = blinked.send(());
                });
            }
            exchange(job, 60)?;
            (0..100).try_for_each(|_| team.barrier())
        });
        let _ = ended.recv();
        // On a slow machine the port may be down for so long that this is rightly an error.
        let is_said = |e: &farside_core::Error| e.to_string().contains("is down");
        match errors {
            Some(errors) if errors.iter().flatten().any(is_said) => println!("the port was down for long: {errors:?}"),
            errors => well(errors),
        }
        nothing_is_left();
    }
}
