//! How a job starts, its team of all ranks, and its orderly end.

mod describe;
mod end;
pub(crate) mod simulate;
mod start;
