//! Handles are numbers that anybody can write down: to give one back to the device is a promise that nobody uses it.
use farside_rma::prelude::*;

fn release(job: &Job) {
    let _ = job.device().release(1);
    job.device().forget(1);
}

fn main() {
    let _ = release;
}
