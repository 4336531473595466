//! Memory that the HCA accesses: regions that peers access ([`regions`]), memory of the program that is registered when
//! an operation needs it ([`user`], with its [`cache`]), and this device's own buffers ([`buffers`]).

pub(super) mod buffers;
mod cache;
mod group;
pub(super) mod lent;
pub(super) mod regions;
pub(super) mod slab;
mod spread;
pub(super) mod user;

pub(super) use cache::Limits as CacheLimits;
