//! Packets to a rank that does not poll: the senders wait, and the HCA never lacks a receive buffer.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use farside_core::am::{self, Counters, Delivery, HandlerId};
use farside_core::stats::Kind;

use crate::{ranks, well};

const ID: HandlerId = HandlerId(9);
const PACKETS: u64 = 700;

/// The number of times that devices of this machine lacked a receive buffer, or a peer reported that it did.
fn refusals() -> Option<u64> {
    let mut sum = None;
    for device in std::fs::read_dir("/sys/class/infiniband").ok()?.flatten() {
        for counter in ["send_rnr_err", "rcvd_rnr_err"] {
            let path = device.path().join("ports/1/hw_counters").join(counter);
            if let Ok(text) = std::fs::read_to_string(path) {
                sum = Some(sum.unwrap_or(0) + text.trim().parse::<u64>().ok()?);
            }
        }
    }
    sum
}

/// Three ranks send more packets than rank 0 has buffers, while it sleeps: all arrive in order, and no packet is
/// refused.
#[test]
fn packets_to_a_rank_that_sleeps_wait_at_their_senders() {
    let Some(before) = refusals() else {
        println!("skipped: no RDMA device here counts refusals");
        return;
    };
    well(ranks(4, &[], |job| {
        let team = job.world()?;
        let got: Rc<[Cell<u64>; 4]> = Rc::default();
        let sink = Rc::clone(&got);
        job.active_messages().register(ID, move |m| {
            let number = u64::from_le_bytes(m.data().unwrap().try_into().unwrap());
            let count = &sink[m.source as usize];
            assert_eq!(count.replace(number + 1), number, "packets of rank {}", m.source);
            Delivery::Done
        })?;
        team.barrier()?;
        let before = job.stats();
        if job.rank_number() == 0 {
            std::thread::sleep(Duration::from_millis(500));
            job.wait("all packets", || Ok((1..4).all(|r| got[r].get() == PACKETS).then_some(())))?;
        } else {
            (0..PACKETS).try_for_each(|i| am::send(job, 0, ID, &[], &i.to_le_bytes(), Counters::default()))?;
            // The last packets may be queued at the sender as copies.
            let sent = || (job.stats() - before).count(Kind::Send);
            job.wait("packets to go", || Ok((sent() >= PACKETS).then_some(())))?;
            assert_eq!(sent(), PACKETS);
        }
        team.barrier()
    }));
    let refused = refusals().unwrap_or(0) - before;
    assert_eq!(refused, 0, "packets that met no receive buffer");
}
