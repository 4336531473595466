//! Start and end of an example.

use std::error::Error;
use std::process::ExitCode;

use farside_rma::Job;

/// The result of an example: errors are those of the runtime or of files, or a wrong result.
pub(crate) type Outcome<R = ()> = Result<R, Box<dyn Error>>;

/// Runs `body` as a rank of the job and then finalizes the job. An error is written to standard error and gives exit
/// code 1, on which the launcher ends the other ranks.
pub(crate) fn run(body: impl FnOnce(&Job) -> Outcome) -> ExitCode {
    let ranked = || -> Outcome {
        let job = Job::init()?;
        body(&job).map_err(|e| format!("rank {} of {}: {e}", job.rank(), job.size()))?;
        Ok(job.finalize()?)
    };
    match ranked() {
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
