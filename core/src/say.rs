//! What the runtime says on standard error, apart from events of `tracing`.

use std::fmt;
use std::io::Write;

/// Writes a line on standard error, after `farside: `, by one system call: no line of another rank gets into it, and a rank that
/// is killed meanwhile has written all of it or nothing.
pub fn say(line: fmt::Arguments<'_>) {
    let line = format!("farside: {line}\n");
    // There is nobody else who could be told of an error.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
