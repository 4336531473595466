//! The objects that handles refer to, as data: communicators, groups, windows, datatypes and the others, and the
//! predefined ones. This module does not access the state of the library; the modules of the chapters implement the
//! calls on objects.

mod atomics;
mod attributes;
mod buffer;
mod comm;
pub mod datatype;
pub mod elements;
pub mod errors;
pub mod group;
pub mod info;
pub mod kernels;
mod known;
pub mod message;
pub mod op;
mod tool;
mod topology;
mod wide;
mod window;

pub use atomics::{Atomics, operation};
pub use attributes::*;
pub use buffer::*;
pub use comm::*;
pub use datatype::{ConstructorCall, PlainTypes, TypeObject};
pub use errors::{Added, Errors};
pub use group::{GroupObject, SessionObject};
pub use info::{Fortran, InfoObject};
pub use known::*;
pub use message::*;
pub use op::OpObject;
pub use tool::Tool;
pub use topology::*;
pub use window::*;
