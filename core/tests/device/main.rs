//! Conformance of a device with the contracts of `core/src/device/mod.rs`: one suite, run over every
//! configuration of the shared-memory device, with ranks as threads and as processes.
//!
//! A new device joins by a row in [`harness::configs`].

#[macro_use]
mod harness;
mod processes;
#[path = "../common/regions.rs"]
mod regions;
mod world;

mod accumulate;
mod atomics;
mod errors;
mod growth;
mod keys;
mod lists;
mod notify;
mod packets;
mod passive;
mod release;
mod system;
mod transfer;
