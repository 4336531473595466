//! Who are my peers: the key-value exchange by which ranks find each other. One file per way of being started.
//!
//! A backend is small: rank, size, `put`, `fence`, `get`. Everything else (addresses of devices, descriptors of
//! shared memory) is values that the job exchanges through it.

pub mod detect;
pub mod pmi1;
pub mod pmi1_wire;
pub mod threads;

use crate::error::{Error, ErrorKind, Result};
use crate::say::say;

pub use detect::connect;
pub use threads::threads;

/// The longest key, in characters.
pub const KEY_MAX: usize = 48;
/// How the names of jobs begin that `farside run` has started.
pub const JOB_PREFIX: &str = "farside-";
/// The longest value, in bytes.
pub const VALUE_MAX: usize = 64 * 1024;

/// One way of being started.
pub trait Bootstrap: Send {
    /// What started this rank, for messages: `"pmi-1"`, `"singleton"`, `"threads"`.
    fn kind(&self) -> &'static str;
    /// This rank, from 0.
    fn rank(&self) -> u32;
    /// The number of ranks.
    fn size(&self) -> u32;
    /// A name of the job that is unique on this machine while it runs.
    fn job_id(&self) -> &str;
    /// Publishes a value. Keys are 1 to 48 characters of `[A-Za-z0-9._-]`; values are any bytes, up to 64 KiB
    /// (a backend encodes and splits them as its protocol needs). Visible to others after the next `fence`.
    ///
    /// # Errors
    /// `Launcher` or `PeerLost` when the other end is gone or breaks the protocol.
    fn put(&mut self, key: &str, value: &[u8]) -> Result<()>;
    /// Waits until every rank has called it; then all values put before are visible to all.
    ///
    /// # Errors
    /// As `put`; `Timeout` after the job's `FARSIDE_TIMEOUT_S`.
    fn fence(&mut self) -> Result<()>;
    /// A value that some rank put before the last `fence`.
    ///
    /// # Errors
    /// As `put`; `Protocol` when nobody put the key.
    fn get(&mut self, key: &str) -> Result<Vec<u8>>;
    /// If the launcher has asked what this rank waits for, answers with what `waits_for` gives. Waits for nothing itself; a
    /// launcher that is gone is found out by the next call.
    fn answer(&mut self, _waits_for: &dyn Fn() -> String) {}
    /// Says goodbye: this rank ends in order. Called once, last.
    ///
    /// # Errors
    /// As `put`.
    fn finalize(&mut self) -> Result<()>;
    /// Asks the launcher to end the whole job with `code`, and says so on stderr unless the launcher does. Best effort;
    /// the caller exits afterwards.
    fn abort(&mut self, code: i32, reason: &str);
}

/// Says that a rank ends the job, where no launcher does.
fn report_abort(rank: u32, reason: &str) {
    say(format_args!("rank {rank} aborts the job: {reason}"));
}

/// Refuses a key that no backend can carry.
fn check_key(operation: &'static str, key: &str) -> Result<()> {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
    if (1..=KEY_MAX).contains(&key.len()) && key.bytes().all(allowed) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::BadArgument, operation).cause(format!(
        "key {:?}: keys are 1 to {KEY_MAX} characters of [A-Za-z0-9._-]",
        key.chars().take(KEY_MAX + 1).collect::<String>()
    )))
}

/// Refuses a value that no backend can carry.
fn check_value(operation: &'static str, key: &str, value: &[u8]) -> Result<()> {
    if value.len() <= VALUE_MAX {
        return Ok(());
    }
    Err(Error::new(ErrorKind::BadArgument, operation)
        .cause(format!("value of key {key:?} has {} bytes, the most is {VALUE_MAX}", value.len())))
}

/// The error of a `get` that finds nothing.
fn no_such_key(operation: &'static str, key: &str) -> Error {
    Error::new(ErrorKind::Protocol, operation).cause(format!("no rank put the key {key:?} before the last fence"))
}
