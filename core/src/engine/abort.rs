#![allow(unsafe_code)]
//! The end of a job by an error of one rank.

use super::Engine;
use crate::bootstrap::report_abort;
use crate::say::say;

impl Engine {
    /// Ends the whole job with `code`, passes the reason to the launcher, and ends this process after its exit
    /// handlers. If this rank is already ending the process, in an exit handler or a destructor, or a signal handler
    /// has interrupted the end, then the reason is printed, and the process ends immediately with the first code.
    pub fn abort(&self, code: i32, reason: &str) -> ! {
        self.abort_by(code, reason, |code| std::process::exit(code))
    }

    /// Like [`abort`](Self::abort), but calls `end` to end this process.
    pub fn abort_by(&self, code: i32, reason: &str, end: fn(i32) -> !) -> ! {
        // Code that runs at process exit must not regard this as an orderly end.
        self.left.set(true);
        if let Some(first) = self.ending.get() {
            end_again(first, reason, || ());
        }
        self.ending.set(Some(code));
        // The bootstrap is borrowed if a signal handler has interrupted it; the launcher then sees only the code.
        match self.bootstrap.try_borrow_mut() {
            Ok(mut bootstrap) => bootstrap.abort(code, reason),
            Err(_) => report_abort(self.rank, reason),
        }
        end(code)
    }
}

/// Ends a process that is already ending, because of another error with this `reason`: prints it, calls `before`, and
/// ends the process with the `first` code. Output buffered by the C library is flushed; exit handlers that have not run
/// do not run.
pub fn end_again(first: i32, reason: &str, before: impl FnOnce()) -> ! {
    say(format_args!("another error while the process exits with code {first}: {reason}"));
    before();
    // SAFETY: the functions access no memory of this process except the C library's own.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        libc::_exit(first)
    }
}
