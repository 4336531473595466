//! Farside's windows, epochs, one-sided operations and global arrays.

mod assert;
pub mod op;
pub mod raw;

pub use assert::Assert;
