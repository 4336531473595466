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
