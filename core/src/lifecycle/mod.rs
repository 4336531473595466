//! How a job starts, its team of all ranks, and its orderly end.

mod describe;
pub(crate) mod discover;
mod end;
pub(crate) mod simulate;
mod stacks;
mod start;
