//! Farside's windows, epochs, one-sided operations and global arrays.

pub mod op;
