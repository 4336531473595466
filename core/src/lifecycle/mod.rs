//! How a job starts, its team of all ranks, and its orderly end.

mod end;
mod start;
