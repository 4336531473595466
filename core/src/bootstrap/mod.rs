//! The key-value exchange through which ranks find each other. One file per launch method.
//!
//! A backend has few operations: rank, size, `put`, `fence`, `get`. Everything else (addresses of devices, descriptors
//! of shared memory) travels as values.

mod connection;
pub mod detect;
mod directory;
mod mark;
pub mod pmi1;
pub mod pmi1_wire;
pub mod pmi2;
mod pmix;
mod standard;
pub(crate) mod threads;

use crate::error::{Error, ErrorKind, Result};
use crate::say::say;

pub use detect::connect;
pub use directory::Directory;
pub(crate) use directory::{Exchange, Published};
pub(crate) use threads::threads;

/// Maximum length of a key in characters.
pub(crate) const KEY_MAX: usize = 48;
/// Prefix of the names of jobs that `farside run` has started.
pub const JOB_PREFIX: &str = "farside-";
/// Maximum length of a value in bytes.
pub(crate) const VALUE_MAX: usize = 64 * 1024;

/// The [kind](Bootstrap::kind) of the exchange of a simulation, whose ranks have one clock.
pub(crate) const SIMULATION: &str = "simulation";

/// A launch method.
pub trait Bootstrap {
    /// Name of the launch method, for messages: `"pmi-1"`, `"pmi-2"`, `"pmix"`, `"singleton"`, `"threads"`.
    fn kind(&self) -> &'static str;
    /// This rank, from 0.
    fn rank(&self) -> u32;
    /// The number of ranks.
    fn size(&self) -> u32;
    /// A name of the job that is unique on this machine while it runs.
    fn job_id(&self) -> &str;
    /// Publishes a value. Keys are 1 to 48 characters of `[A-Za-z0-9._-]`; values are any bytes, up to 64 KiB (a
    /// backend encodes and splits them as its protocol needs). Other ranks see the value after the next `fence`.
    ///
    /// # Errors
    /// `Launcher` or `PeerLost` if the launcher is gone or breaks the protocol.
    fn put(&mut self, key: &str, value: &[u8]) -> Result<()>;
    /// Waits until every rank has called it; all values put before are then visible to all ranks.
    ///
    /// # Errors
    /// Those of `put`; `Timeout` after the job's `FARSIDE_TIMEOUT_S`.
    fn fence(&mut self) -> Result<()>;
    /// A value that any rank put before the last `fence`.
    ///
    /// # Errors
    /// Those of `put`; `Protocol` if no rank put the key.
    fn get(&mut self, key: &str) -> Result<Vec<u8>>;
    /// The directory in which ranks find each other's values without a message, if all ranks of the job are in this
    /// process.
    fn directory(&self) -> Option<Directory> {
        None
    }
    /// If the launcher has asked what this rank waits for, answers with the result of `waits_for`. Does not block. If
    /// the launcher is gone, this ends the process with code 1, since no other process would end it.
    fn answer(&mut self, _waits_for: &dyn Fn() -> String) {}
    /// Announces that this rank ends in order. Must be the last call on a backend.
    fn finalize(&mut self) -> Result<()>;
    /// Asks the launcher to end the whole job with `code`, and reports this on stderr unless the launcher does. Best
    /// effort; the caller exits afterwards.
    fn abort(&mut self, code: i32, reason: &str);
}

/// Reports on stderr that a rank aborts the job, if no launcher does.
pub(crate) fn report_abort(rank: u32, reason: &str) {
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
        .cause(format!("the value of key {key:?} has {} bytes, and at most {VALUE_MAX} are allowed", value.len())))
}

/// The error of a `get` for a key that does not exist.
pub(crate) fn no_such_key(operation: &'static str, key: &str) -> Error {
    Error::new(ErrorKind::Protocol, operation).cause(format!("no rank put the key {key:?} before the last fence"))
}
