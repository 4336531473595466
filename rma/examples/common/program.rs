//! Start and end of an example.

use std::process::ExitCode;

use farside_rma::{Error, ErrorKind, Job};

/// The result of an example: errors are those of the runtime or of files, or a wrong result.
pub(crate) type Outcome<R = ()> = Result<R, Box<dyn std::error::Error>>;

/// Runs `body` as a rank of a job under a launcher, or as all ranks of a simulation under `farside sim`. An error is
/// written to standard error and gives exit code 1, on which the launcher ends the other ranks.
pub(crate) fn run(body: impl Fn(&Job) -> Outcome) -> ExitCode {
    let ranked = |job: &Job| {
        body(job).map_err(|e| match e.downcast::<Error>() {
            Ok(e) => *e,
            Err(e) => Error::new(ErrorKind::Aborted, "run an example").rank(job.rank()).cause(e.to_string()),
        })
    };
    match Job::run(ranked) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// A stream of pseudorandom numbers for each `seed` (splitmix64).
#[allow(dead_code)] // not in every example
pub(crate) fn numbers(seed: usize) -> impl Iterator<Item = u64> {
    let mut state = (seed as u64).wrapping_mul(0xa076_1d64_78bd_642f) ^ 0x2545_f491_4f6c_dd1d;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}
