//! Windows: every operation under every synchronization, message counts, errors, ends.

mod after_finalize;
mod bodies;
mod buffers;
mod closing_errors;
mod contention;
mod ends;
mod errors;
mod exchange;
mod matrix;
mod messages;
mod request_based;
mod store_order;
