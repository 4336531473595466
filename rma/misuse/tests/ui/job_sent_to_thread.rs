//! A rank is one thread: neither the job nor the team can be sent to another thread.
use farside_rma::prelude::*;

fn send(job: Job, team: &Team) {
    std::thread::spawn(move || job.rank());
    std::thread::scope(|s| {
        s.spawn(|| team.rank());
    });
}

fn main() {
    let _ = send;
}
