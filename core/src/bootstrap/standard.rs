#![allow(unsafe_code)]
//! Standard input, output and error of this process, which may be closed at the start of a program.

use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, fcntl_getfd};

/// Opens those that are closed on `/dev/null`: otherwise a segment or a socket of the runtime would get the descriptor,
/// and the program's output would be written to it. Rust programs do the same at their start; C programs do not.
pub(super) fn fill() {
    for number in 0..=2 {
        // SAFETY: the call only tests whether the descriptor is open.
        let is_closed = fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) }) == Err(Errno::BADF);
        // The kernel assigns the lowest number that is free, unless another thread has taken it meanwhile.
        if is_closed && let Ok(null) = open("/dev/null", OFlags::RDWR, Mode::empty()) {
            set_descriptor(null, number);
        }
    }
}

fn set_descriptor(null: OwnedFd, number: i32) {
    if null.as_raw_fd() == number {
        let _ = null.into_raw_fd();
    }
}
