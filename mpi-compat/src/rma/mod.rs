//! One-sided communication (MPI-5.0 chapter 12) over `farside_rma::raw`: handles, arguments and error classes. Every
//! call ends in a call of its window's `RawWindow`.

mod access;
mod accumulate;
mod attach;
mod requests;
mod sync;
mod transfer;
mod window;
pub mod without_lock;

pub use accumulate::*;
pub use attach::*;
pub use requests::*;
pub use sync::*;
pub use transfer::*;
pub use window::*;
