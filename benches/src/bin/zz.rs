use farside_core::{Job, settings::Settings};
use farside_rma::{Collectives, Op};
use std::time::Instant;
fn main() {
    let n: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let blocks: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    let settings = Settings::from_lookup(|name| std::env::var(name).ok()).unwrap();
    Job::threads_with(2, &settings, |job| {
        if blocks > 1 {
            farside_benches::cores::bind_to_nth(job.rank() as usize)?;
        }
        let team = job.world()?;
        let mut best = [f64::MAX; 3];
        let mut data = [0.0f64];
        for _ in 0..blocks {
            team.barrier()?;
            let t = Instant::now();
            for _ in 0..n {
                team.make(farside_rma::collectives::call::allreduce(&mut data, Op::Sum))?;
            }
            best[0] = best[0].min(t.elapsed().as_secs_f64() * 1e9 / n as f64);
            let t = Instant::now();
            for _ in 0..n {
                team.barrier()?;
            }
            best[1] = best[1].min(t.elapsed().as_secs_f64() * 1e9 / n as f64);
            let t = Instant::now();
            for _ in 0..n {
                team.make(farside_rma::collectives::call::barrier())?;
            }
            best[2] = best[2].min(t.elapsed().as_secs_f64() * 1e9 / n as f64);
        }
        if job.rank() == 0 {
            println!("allreduce {:.0} ns, team barrier {:.0}, call barrier {:.0}", best[0], best[1], best[2]);
        }
        Ok(())
    })
    .unwrap();
}
