//! The lines of the verifier on standard error.

use std::io::Write;

/// Writes a line about a rank.
pub fn report(name: &str, rank: i64, text: &str) {
    write(&format!("VERIFY {}({rank}): {text}", name.to_uppercase()));
}

/// Writes lines by one system call, so that lines of several ranks do not interleave.
pub fn write(lines: &str) {
    // If standard error fails, there is nowhere to report it.
    let _ = std::io::stderr().write_all(format!("{lines}\n").as_bytes());
}
