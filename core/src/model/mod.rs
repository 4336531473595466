//! Models of the network on which a job runs: parameters of LogGP, pLogP and LoP, which are [measured](Models::measure)
//! with a job's own messages and writes, [fitted](fit), and cached in a file for later jobs.
//!
//! ```
//! use std::time::Duration;
//!
//! use farside_core::model::Models;
//! use farside_core::sim::{Interface, Network, Simulation};
//!
//! let interface = Interface { latency: 1500.0, gap_per_byte: 0.2, ..Interface::log_p(1500.0, 200.0, 300.0) };
//! let simulation = Simulation::new(2).network(Network { interface, ..Network::default() });
//! let measured = simulation.run(|job| Models::measure(job, &[0, 1], Duration::from_millis(20)))?;
//! let found = measured.results[1].log_gp();
//! assert!((found.latency - 1500.0).abs() < 75.0 && (found.gap_per_byte - 0.2).abs() < 0.01);
//! # Ok::<(), farside_core::Error>(())
//! ```

pub mod fit;
mod link;
mod measure;
mod page;
mod store;
mod transfers;

#[doc(inline)]
pub use farside_schedule::model::{LoP, LogGP, Model, OnePort, Overhead, PLogP, Receiving, RoundTrip, Sending, Table};
pub use transfers::{TransferTimes, Transfers};

use std::time::Duration;

use crate::device::sim::{Interface, Network};
use crate::error::Result;
use crate::job::Job;
use crate::load::Load;
use fit::Fitted;

impl From<Interface> for LogGP {
    /// The model of an interface, for messages that never wait for their receives, and reductions that take no time.
    fn from(interface: Interface) -> Self {
        let Interface { latency, send_overhead, receive_overhead, gap, gap_per_byte, overhead_per_byte, .. } =
            interface;
        Self { latency, send_overhead, receive_overhead, gap, gap_per_byte, overhead_per_byte, ..Self::default() }
    }
}

impl From<&Network> for LogGP {
    /// The model of the interfaces of a network, and of its in-switch barrier.
    fn from(network: &Network) -> Self {
        Self { gate: network.switch.map_or(0.0, |switch| switch.gate), ..network.interface.into() }
    }
}

/// The operation that transfers bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Primitive {
    /// Active messages with headers as long as those of collectives, which the receiver's processor handles.
    Messages,
    /// Writes to the memory of a peer, each with a signal for which the peer waits.
    Writes,
}

impl Primitive {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Messages, Self::Writes];

    /// The name: `messages` or `writes`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Writes => "writes",
        }
    }
}

/// How requests are posted (Hoefler 2005, section 2.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Posting {
    /// One request for each message, whose 256 bytes are in the sender's memory.
    Normal,
    /// One request for each message, which contains its 8 bytes.
    Inline,
    /// One request for all blocks, of 256 bytes each, to one peer. Only for writes, and only if the device supports
    /// such requests.
    List,
}

impl Posting {
    /// All ways.
    pub const ALL: [Self; 3] = [Self::Normal, Self::Inline, Self::List];

    /// The name: `normal`, `inline` or `list`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Inline => "inline",
            Self::List => "list",
        }
    }
}

/// The models of a primitive. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Fits {
    /// LogGP, of messages up to its threshold, which is the maximum length that is sent eagerly.
    pub log_gp: Fitted<LogGP>,
    /// pLogP, of all lengths.
    pub p_log_p: Fitted<PLogP>,
    /// LoP, for each way of posting that was measured.
    pub lo_p: Vec<(Posting, Fitted<LoP>)>,
}

/// Models of the network between the ranks of a device, on one machine. Times are in nanoseconds.
///
/// The points of the fits exist only at the rank that has measured; they are neither sent nor stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Models {
    device: String,
    messages: Fits,
    writes: Option<Fits>,
    transfers: Option<Transfers>,
    transfer_times: Vec<TransferTimes>,
    /// The load under which the models were measured; like the points, it is not sent to other ranks.
    load: Load,
}

impl Models {
    /// Measures the network between `ranks` for about `limit`, and fits the models; all of these ranks get them.
    /// Collective over `ranks`, with the same arguments at each.
    ///
    /// The first rank measures with the next rank that is not on its node or, if there is none, with the second rank;
    /// LoP is measured with up to 64 ranks at the same distance. If there are fewer than p such ranks, several of the p
    /// messages go to each. Below 200 ms, messages are at most 64 KiB long, and LoP is not measured; it needs the
    /// feature `tune`.
    ///
    /// # Errors
    /// `BadArgument` for fewer than two ranks, or for a rank that does not belong to them; `Timeout` if the limit is
    /// too short for a fit; `Limit`, `PeerLost`.
    pub fn measure(job: &Job, ranks: &[u32], limit: Duration) -> Result<Self> {
        measure::measure(job, ranks, limit)
    }

    /// Whether a rank that measured had to wait for a processor for a considerable part of the time. Such models are not
    /// [stored](Self::store).
    #[must_use]
    pub fn are_of_loaded_processors(&self) -> bool {
        self.load.is_heavy()
    }

    /// The name of the device that was measured.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// LogGP of messages: its threshold is the maximum length of a message that is sent eagerly.
    #[must_use]
    pub fn log_gp(&self) -> &LogGP {
        &self.messages.log_gp.model
    }

    /// pLogP of messages.
    #[must_use]
    pub fn p_log_p(&self) -> &PLogP {
        &self.messages.p_log_p.model
    }

    /// LoP of a primitive, if it was measured.
    #[must_use]
    pub fn lo_p(&self, primitive: Primitive, posting: Posting) -> Option<&LoP> {
        let known = self.of(primitive)?.lo_p.iter().find(|(known, _)| *known == posting);
        known.map(|(_, fitted)| &fitted.model)
    }

    /// The cut-offs of transfers, measured between ranks that share no memory and can write to each other's.
    #[must_use]
    pub fn transfers(&self) -> Option<&Transfers> {
        self.transfers.as_ref()
    }

    /// The times from which the cut-offs of transfers follow; empty at ranks that have not measured.
    #[must_use]
    pub fn transfer_times(&self) -> &[TransferTimes] {
        &self.transfer_times
    }

    /// The models of a primitive, with their residuals. Writes are not measured if memory cannot be exposed.
    #[must_use]
    pub fn of(&self, primitive: Primitive) -> Option<&Fits> {
        match primitive {
            Primitive::Messages => Some(&self.messages),
            Primitive::Writes => self.writes.as_ref(),
        }
    }
}
