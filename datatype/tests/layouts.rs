//! Layouts: types, plans, packing, the wire form, external32.

mod common;
mod external32;
mod memory;
mod mover;
mod pack;
mod plan;
mod type_properties;
mod types;
mod wire;
