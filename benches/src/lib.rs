//! What surrounds Farside's benchmarks: the plan of what is measured, the records, the peers and the limits that are
//! measured in the same run, and the reports.
//!
//! A benchmark does, in this order:
//! 1. makes a [`plan::Plan`] and a [`progress::Progress`] over it;
//! 2. measures Farside itself, one [`record::Record`] for each [`record::Key`] of the plan;
//! 3. adds the floors of the machine with [`limits::measure`];
//! 4. adds the peers with [`peers::Peers::run`];
//! 5. collects all in [`results::Results`], and prints its [`table::Table`] or writes it as JSON lines or as HTML.

pub mod best;
pub mod by_hand;
pub mod cores;
pub mod growth;
pub mod launch;
pub mod limits;
pub mod machine;
pub mod measure;
pub mod messages;
pub mod pack;
pub mod packets;
pub mod peers;
pub mod plan;
mod plot;
pub mod progress;
pub mod record;
pub mod report;
pub mod results;
pub mod run;
pub mod schemes;
pub mod shapes;
pub mod table;
pub mod targets;
pub mod usage;
pub mod waiting;
