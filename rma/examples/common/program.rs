//! Start and end of an example: a rank of the job, and a result that says what was wrong.

use std::error::Error;
use std::process::ExitCode;

use farside_rma::Job;

/// What goes wrong in an example: an error of the runtime or of a file, or a result that is not right.
pub type Outcome<R = ()> = Result<R, Box<dyn Error>>;

/// Runs `body` as a rank of the job and ends it in order; an error is written to standard error and is exit code 1,
/// on which the launcher ends the other ranks.
pub fn run(body: impl FnOnce(&Job) -> Outcome) -> ExitCode {
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
