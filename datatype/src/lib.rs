//! Datatypes and layouts: the bytes of a buffer that a transfer accesses, their order, and the best way to transfer
//! them. Pure: no transport, no clock, no state.
//!
//! - [`Datatype`]: MPI's predefined types and constructors, with bounds and component types.
//! - [`TypeMap`]: a message of some datatype, normalized: nested strides that take a few words whatever their counts,
//!   walked from any byte, with the signature of its elements and a wire form.
//! - [`TypeMap::pack`], [`TypeMap::unpack`], [`TypeMap::copy`] move its bytes; [`Datatype::pack_external`] packs to
//!   external32.
//! - [`Plan`]: the scheme of a transfer and its messages, from two type maps and a device's limits and cut-offs.
//!
//! ```
//! use farside_datatype::{CutOffs, Datatype, Direction, Named, Plan, PlanLimits, Scheme};
//!
//! // 64 rows of 100 ints in a matrix of 4096 columns, put to the same position in another matrix.
//! let section = Datatype::vector(64, 100, 4096, &Named::Int.into())?.message(1)?;
//! let limits = PlanLimits { max_sge: 30, max_message: 1 << 30, mapped: false, target_helps: true };
//! let cut_offs = CutOffs { sgrs_bytes: 16 << 10, ..CutOffs::default() };
//! let plan = Plan::new(&section, &section, Direction::Put, limits, &cut_offs)?;
//! assert_eq!(plan.scheme(), Scheme::Sgrs);
//! assert_eq!(plan.descriptors().count(), 3);
//! # Ok::<(), farside_datatype::DatatypeError>(())
//! ```

mod arrays;
mod copy;
mod datatype;
mod descriptors;
mod error;
mod external32;
mod kernels;
mod long_double;
mod named;
mod overlap;
mod pack;
mod plan;
mod runs;
mod shape;
mod signature;
mod typemap;
mod wire;

pub use arrays::{Darray, Distribution, Order, Subarray};
pub use datatype::Datatype;
pub use descriptors::{BlockList, Descriptor, Descriptors};
pub use error::{DatatypeError, DatatypeErrorKind, Result};
pub use kernels::{Mover, Private};
pub use named::{Class, Named};
pub use overlap::Overlap;
pub use plan::{CutOffs, Direction, Plan, PlanLimits, Scheme};
pub use runs::{MapBlocks, Run, Runs};
pub use shape::MAX_DEPTH;
pub use signature::Signature;
pub use typemap::TypeMap;

/// The README's program compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
