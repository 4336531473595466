//! Core.
pub mod bootstrap;
pub mod error;
#[cfg(feature = "cli")]
pub mod launch;
pub mod settings;
pub use error::{Error, ErrorKind, Result};
