//! Any program can make up the number of a handle, so releasing one is unsafe: the caller promises that it is unused.
use farside_rma::prelude::*;

fn release(job: &Job) {
    let _ = job.device().release(1);
    job.device().forget(1);
}

fn main() {
    let _ = release;
}
