//! Messages of the runtime on standard error, apart from `tracing` events.

use std::fmt;
use std::io::Write;

/// Writes a line on standard error, after `farside: `, by one system call: lines of other ranks do not mix with it, and
/// a rank that is killed meanwhile has written either all of it or nothing.
pub fn say(line: fmt::Arguments<'_>) {
    let line = format!("farside: {line}\n");
    // If standard error fails, the error cannot be reported anywhere.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
