//! Windows: every operation under every synchronization, message counts, errors, ends.

mod checks;
mod matrix;
mod request_based;
