//! Core.
pub mod bootstrap;
pub mod error;
pub mod settings;
pub use error::{Error, ErrorKind, Result};
