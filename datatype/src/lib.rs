//! Layouts: which bytes of a buffer a transfer touches, and in which order.
//!
//! A [`Layout`] is contiguous or nested-strided and takes a few words whatever it describes. [`Layout::blocks`] walks
//! it from any byte; [`pair_blocks`] walks two of the same size together, as a transfer from one to the other does.
//!
//! ```
//! use farside_datatype::{Layout, pair_blocks};
//!
//! // Three rows of 16 bytes, 64 bytes apart, into a packed buffer.
//! let section = Layout::section_2d(64, 3, 16)?;
//! let packed = Layout::contiguous(section.size());
//! let pieces: Vec<_> = pair_blocks(&section, &packed)?.collect();
//! assert_eq!(pieces, [(0, 0, 16), (64, 16, 16), (128, 32, 16)]);
//! # Ok::<(), farside_datatype::LayoutError>(())
//! ```

mod arrays;
mod blocks;
mod contents;
mod copy;
mod datatype;
mod descriptors;
mod error;
mod external32;
mod layout;
mod named;
mod pack;
mod plan;
mod runs;
mod shape;
mod signature;
mod typemap;
mod wire;

pub use arrays::{Darray, Distribution, Order, Subarray};
pub use blocks::{Blocks, PairBlocks, pair_blocks};
pub use contents::{Combiner, Contents, Envelope};
pub use datatype::Datatype;
pub use descriptors::{BlockList, Descriptor, Descriptors};
pub use error::{DatatypeError, DatatypeErrorKind, Result};
pub use layout::{Layout, LayoutError, MAX_DIMS};
pub use named::{Class, Named};
pub use plan::{CutOffs, Direction, Plan, PlanLimits, Scheme};
pub use runs::{MapBlocks, Run, Runs};
pub use shape::MAX_DEPTH;
pub use signature::Signature;
pub use typemap::{Overlap, TypeMap};
