//! Farside's core: jobs and teams, memory, devices, progress, active messages and the collectives that remote memory
//! access needs. Element types, windows and epochs are in `farside-rma`. Their errors are also kinds of [`ErrorKind`]:
//! all layers share one list, so that an error passes through them unchanged.
//!
//! Everything belongs to a [`Job`]; there are no statics, so ranks may be processes or threads of one process.

pub mod am;
pub mod bill;
pub mod bootstrap;
mod cache;
pub mod calibration;
pub mod callback;
pub mod coll;
pub mod device;
pub mod engine;
mod entered;
pub mod error;
#[cfg(test)]
mod interleavings;
pub mod job;
mod lifecycle;
mod load;
#[cfg(feature = "log")]
mod log;
pub mod matching;
pub mod memory;
pub mod mistyped;
pub mod model;
pub(crate) mod order;
mod peers;
pub mod plot;
mod processes;
pub mod processors;
pub(crate) mod progress;
mod say;
pub mod service;
pub mod settings;
pub mod signal;
mod slots;
pub mod stats;
mod tracked;
pub mod tuning;
pub mod two_sided;
pub mod wire;

pub(crate) use coll::team;
pub use error::{Error, ErrorKind, Located, Result, located};
pub use job::Job;
pub use say::say;
pub use team::Team;

/// Discovery of the network between the hosts of a job, for `farside routes`.
pub mod discovery {
    pub use crate::lifecycle::discover::{Discovery, Host, Link, discover};
}

/// Simulation: ranks on a network that takes virtual time, with one seed that decides the order of simultaneous events.
pub mod sim {
    pub use crate::device::sim::{Flap, Interface, Network, Nodes, Switch, Topology, Trace};
    pub use crate::lifecycle::simulate::{Simulated, Simulation};
}

/// The README's program compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// The program of this page compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../docs/simulation.md")]
pub struct SimulationPage;
