//! Collectives over threads as ranks: values by absolute comparison, messages against the table.

use farside_core::coll::{self, TABLE};
use farside_core::{Job, Result};

fn every_size(f: impl Fn(&Job) -> Result<()> + Sync) {
    for p in 1..=9 {
        Job::threads(p, &f).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
    }
}

fn add_u32(into: &mut [u8], from: &[u8]) {
    for (a, b) in into.chunks_exact_mut(4).zip(from.chunks_exact(4)) {
        let sum = u32::from_le_bytes(a.try_into().unwrap()) + u32::from_le_bytes(b.try_into().unwrap());
        a.copy_from_slice(&sum.to_le_bytes());
    }
}

#[test]
fn reduce_scatter_sums_each_block() {
    every_size(|job| {
        let team = job.world()?;
        let p = team.size();
        let mine: Vec<u8> = (0..p).flat_map(|to| ((team.rank() * 100 + to) as u32).to_le_bytes()).collect();
        let got = coll::reduce_scatter(&team, &mine, &mut add_u32)?;
        let want: u32 = (0..p).map(|from| (from * 100 + team.rank()) as u32).sum();
        assert_eq!(got, want.to_le_bytes());
        Ok(())
    });
}

#[test]
fn collectives_send_as_many_messages_as_the_table_says() {
    every_size(|job| {
        let team = job.world()?;
        let p = team.size();
        for algorithm in TABLE {
            team.barrier()?;
            let before = job.stats();
            match algorithm.operation {
                "barrier" => team.barrier()?,
                "broadcast" => drop(coll::broadcast(&team, 0, &[1])?),
                "allgather" => drop(coll::allgather(&team, &[1])?),
                "allreduce" => drop(coll::allreduce(&team, &[1], &mut |_, _| ())?),
                "reduce_scatter" => drop(coll::reduce_scatter(&team, &vec![1; p], &mut |_, _| ())?),
                other => panic!("no test for {other}"),
            }
            let sent = (job.stats() - before).messages() as usize;
            let most = (algorithm.messages)(p);
            let exact = matches!(algorithm.operation, "barrier" | "allgather" | "reduce_scatter");
            assert!(sent <= most && (!exact || sent == most), "{} at {p} ranks: {sent}, {most}", algorithm.operation);
        }
        Ok(())
    });
}
