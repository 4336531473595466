//! Simulated networks of the papers, and the experiments on them.

use farside_core::Job;
use farside_core::coll::schedule::predict::{LoP, Overhead, RoundTrip};
use farside_core::error::Result;
use farside_core::plot::time;
use farside_core::settings::Settings;
use farside_core::sim::{Interface, Network, Simulation};

use crate::measure::{self, Budget, Method};
use crate::plan::Plan;
use crate::record::Record;

/// A simulated network with settings.
pub(super) fn simulation(ranks: u32, network: &Network, settings: &[(&str, &str)]) -> Result<Simulation> {
    let given = |asked: &str| settings.iter().find(|(name, _)| *name == asked).map(|(_, value)| (*value).to_owned());
    Ok(Simulation::new(ranks as usize).network(network.clone()).settings(Settings::from_lookup(given)?))
}

/// The virtual times of a plan.
pub(super) fn records(ranks: u32, network: &Network, settings: &[(&str, &str)], plan: &Plan) -> Result<Vec<Record>> {
    let of_rank = |job: &Job| {
        let mut lines = Vec::new();
        measure::run(job, plan, Budget::of(true, Method::Virtual), &mut lines)?;
        Ok(lines)
    };
    let lines = simulation(ranks, network, settings)?.run(of_rank)?.results.swap_remove(0);
    String::from_utf8_lossy(&lines).lines().map(Record::parse).collect()
}

fn network(interface: Interface) -> Network {
    Network { interface, ..Network::default() }
}

/// The parameters of a network as text.
pub(super) fn parameters(Network { interface, .. }: &Network) -> String {
    let Interface { latency, send_overhead, receive_overhead, gap, gap_per_byte, gap_per_block, .. } = interface;
    let own = [latency, send_overhead, receive_overhead, gap, gap_per_byte].map(|ns| time(*ns));
    let block = if *gap_per_block > 0.0 {
        format!(", {} for each block of a list", time(*gap_per_block))
    } else {
        String::new()
    };
    format!(
        "L = {}, o = {} (sender) and {} (receiver), g = {}, G = {}/B{block}",
        own[0], own[1], own[2], own[3], own[4]
    )
}

/// Fast Ethernet: G is that of 100 Mbit/s; L, o and g are assumed, as of TCP in 2004.
pub(super) fn fast_ethernet() -> Network {
    network(Interface { gap_per_byte: 80.0, ..Interface::log_p(30_000.0, 15_000.0, 15_000.0) })
}

/// InfiniBand as Hoefler measured it: LoP of RDMA writes with inline data (2005, section 2.3.7), in microseconds.
pub(super) fn infiniband_lop() -> LoP {
    LoP {
        send_overhead: Overhead([0.54, 0.50, -0.49]),
        receive_overhead: Overhead::default(),
        round_trip: RoundTrip([2.0 * 7.48, 0.04, 2.0 * 1.5, 2.0 * 3.09, -0.053, 8.27]),
    }
}

/// The same network as LogGP: L(1), and the overhead of each of many messages, which is also the minimum time between
/// them; a receiver of RDMA writes has no overhead. G is that of a 4x link of 8 Gbit/s; the time of a block of a list
/// is assumed.
pub(super) fn infiniband() -> Network {
    let lop = infiniband_lop();
    let overhead = 1e3 * lop.send_overhead.0[0];
    let log_p = Interface::log_p((1e3 * lop.latency(1)).round(), overhead, overhead);
    network(Interface { receive_overhead: 0.0, gap_per_byte: 1.0, gap_per_block: 100.0, ..log_p })
}

/// A network on which a vector of `bytes` bytes takes βm = 100 α, as in row XL of table 1 of Rabenseifner and Träff
/// 2004. Reductions take no time.
pub(super) fn long_vectors(bytes: u64) -> Network {
    network(Interface { gap_per_byte: 100.0 * 10_000.0 / bytes as f64, ..Interface::log_p(10_000.0, 0.0, 0.0) })
}

/// The IBM SP of Foster et al. 1996, section 3.1: 87.9 µs for a short message, of which half is assumed to be
/// overhead, and 0.0326 µs a byte.
pub(super) fn sp() -> Network {
    network(Interface { gap_per_byte: 32.6, ..Interface::log_p(43_900.0, 22_000.0, 22_000.0) })
}
