//! Start-up: the ranks agree on a port for each rank; each opens its device and publishes its endpoint address. Once a
//! rank has all addresses it is ready, with no connections yet.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU16};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::VerbsDevice;
use super::adapter::{self, Accepted};
use super::address::EndpointAddress;
use super::connect::credits;
use super::connect::datagrams::Endpoint;
use super::connect::links::{Links, Room, Table};
use super::limit::{limit, registration};
use super::memory::CacheLimits;
use super::memory::buffers::{PACKET, Pool, Receives};
use super::memory::regions::Regions;
use super::memory::user::{self, UserMemory};
use super::partition;
use super::port::{LocalPort, LocalPorts, Opened, agree};
use super::post::cut::Limits;
use super::post::engine::Engine;
use super::post::lists::SgrsQueues;
use super::sys::qp::{Parts, Tuning};
use super::sys::queue::{Channel, Completions, SharedReceives};
use super::sys::{Context, Domain, fork};
use super::wait::{WakeFd, random};
use crate::bootstrap::Bootstrap;
use crate::device::{Capabilities, CutOffs, Lists, MessageCutOffs, Placement};
use crate::error::{Error, ErrorKind, Result};
use crate::settings::Settings;

/// Maximum number of blocks in one gather list of the device interface; lists are split into requests by the HCA's own
/// limit.
const MAX_BLOCKS: usize = 1024;
/// Measured on Soft-RoCE; `ci/bench-verbs --only schemes` prints the values. Other HCAs need other values
/// (`FARSIDE_TRANSFER`).
const MEASURED: CutOffs = CutOffs { multi_w_block: 8192, sgrs_block: 64, sgrs_bytes: 4096, ..CutOffs::UNMEASURED };
/// Messages of up to two packets are eager; a read is cheaper than four packets, whose bytes are copied at both ends.
const MESSAGES: MessageCutOffs =
    MessageCutOffs { eager_inter: 8 << 10, read_inter: 16 << 10, ..MessageCutOffs::UNMEASURED };
/// Maximum number of cached registrations of the program's memory; the least recently used is dropped first.
const CACHE_ENTRIES: usize = 1024;
/// Maximum number of reads and atomics in progress per connection.
const DEPTH: i32 = 16;

/// A rank that has opened its device, before it knows the addresses of the others.
pub(crate) struct Prepared {
    rank: u32,
    context: Arc<Context>,
    domain: Arc<Domain>,
    choice: LocalPort,
    tuning: Tuning,
    endpoint: Endpoint,
    address: EndpointAddress,
    capabilities: Capabilities,
    /// Shown by `farside info`.
    atomics: &'static str,
    max_completions: usize,
    /// Maximum length of a shared receive queue.
    max_receives: usize,
    /// Maximum length of a registration.
    longest: usize,
    /// Whether memory of the user is registered for on-demand paging and not pinned.
    on_demand: bool,
    limits: Limits,
    accepted: Accepted,
    settings: Settings,
}

/// Time for which the port may be down unless it is set.
const DOWN: Duration = Duration::from_secs(5);
/// Time in which a peer answers once its port is up again.
const DETECTED: Duration = Duration::from_secs(2);

const OP: &str = "open a verbs device";

/// Identifies the processes that this rank can watch: equal on ranks that can watch each other; empty if this machine
/// does not provide the identity.
fn node() -> Vec<u8> {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id");
    let space = std::fs::read_link("/proc/self/ns/pid");
    match (boot, space) {
        (Ok(boot), Ok(space)) => [boot, space.into_os_string().into_encoded_bytes()].concat(),
        _ => Vec::new(),
    }
}

/// Number of bytes of locked memory that a rank needs at start-up.
fn locked_bytes(settings: &Settings, ranks: usize) -> usize {
    Endpoint::BYTES + credits::buffers(settings.verbs_receives, ranks) * PACKET + Pool::bytes() + Regions::bytes(ranks)
}

impl Prepared {
    /// Opens the port of this rank through which all ranks reach each other. Collective.
    ///
    /// # Errors
    /// `Unsupported` at all ranks if no choice of ports connects them; `Setting`, `Limit`, `Protocol`; errors of
    /// `bootstrap`.
    pub(crate) fn new(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<Self> {
        let rank = bootstrap.rank();
        Self::over(rank, agree(bootstrap, LocalPorts::find(settings)).map_err(|e| e.rank(rank))?, settings)
    }

    fn over(rank: u32, (choice, context): Opened, settings: &Settings) -> Result<Self> {
        let failed = |e: std::io::Error| limit(OP, e).rank(rank);
        let attributes = context.attributes().map_err(failed)?;
        let port = context.port(choice.port).map_err(failed)?;
        let atomics = atomics(attributes.atomic_cap);
        let (general, reliable) = context.on_demand();
        let domain = adapter::domain(&context, &attributes).map_err(failed)?;
        let keys = context.partition_keys(choice.port, port.pkey_tbl_len);
        let (pkey_index, partition) = partition::choose(&keys, settings.verbs_pkey)?;
        let tuning = Tuning {
            pkey_index,
            port: choice.port,
            mtu: port.active_mtu,
            timeout: timeout(settings.verbs_timeout, choice.ethernet),
            retries: settings.verbs_retries,
        };
        let queue = settings.verbs_queue as u32;
        let accepted = Accepted::probe(&context, &domain, &tuning, &attributes, queue).map_err(failed)?;
        // The highest bit would request the key of a privileged process.
        let qkey = u32::from_le_bytes(random::<4>().map_err(failed)?) & 0x7fff_ffff;
        let endpoint = Endpoint::new(&context, &domain, &tuning, qkey);
        let endpoint = endpoint.map_err(|e| registration(OP, locked_bytes(settings, 1), e).rank(rank))?;
        let address = EndpointAddress {
            gid: choice.gid,
            lid: choice.lid,
            ethernet: choice.ethernet,
            global: choice.global,
            partition,
            mtu: port.active_mtu as u8,
            depth: DEPTH.min(attributes.max_qp_rd_atom).min(attributes.max_qp_init_rd_atom).clamp(1, 255) as u8,
            atomics: domain.keys.atomics,
            relaxed: domain.keys.relaxed,
            datagrams: endpoint.number(),
            qkey,
            token: random().map_err(failed)?,
            node: node(),
            pid: std::process::id(),
        };
        tracing::debug!(rank, "verbs: {}", choice.why);
        Ok(Self {
            rank,
            context,
            domain,
            tuning,
            endpoint,
            address,
            atomics,
            capabilities: Capabilities {
                max_blocks: MAX_BLOCKS,
                lists: (accepted.blocks > 0).then(|| Lists {
                    blocks: accepted.blocks as usize,
                    bytes: port.max_msg_sz.clamp(1, 1 << 30) as usize,
                }),
                cut_offs: MEASURED,
                messages: MESSAGES,
                own_by_copy: true,
                ..Capabilities::minimal("verbs", PACKET)
            },
            on_demand: settings.verbs_on_demand && user::on_demand(general, reliable),
            longest: if attributes.max_mr_size == 0 { usize::MAX } else { attributes.max_mr_size as usize },
            max_completions: attributes.max_cqe.max(32) as usize,
            max_receives: attributes.max_srq_wr.max(32) as usize,
            limits: Limits {
                pieces: accepted.pieces as usize,
                reads: accepted.reads as usize,
                message: port.max_msg_sz.clamp(1, 1 << 30) as usize,
            },
            accepted,
            choice,
            settings: settings.clone(),
        })
    }

    /// The endpoint address to publish to the other ranks.
    pub(crate) fn address(&self) -> Vec<u8> {
        self.address.write()
    }

    /// Creates the device, given the addresses of all ranks. No connection is made yet.
    ///
    /// # Errors
    /// `Protocol` for a malformed address, `Mismatch` for one with another link type, `Limit`.
    pub(crate) fn connect(self, addresses: &[Vec<u8>]) -> Result<VerbsDevice> {
        let failed = |e: std::io::Error| limit(OP, e).rank(self.rank);
        let locked = |e| registration(OP, locked_bytes(&self.settings, addresses.len()), e).rank(self.rank);
        let mut all = Vec::with_capacity(addresses.len());
        for (rank, bytes) in addresses.iter().enumerate() {
            let fail = |kind| Error::new(kind, OP).rank(self.rank).peer(rank as u32).device("verbs");
            let address =
                EndpointAddress::read(bytes).ok_or_else(|| fail(ErrorKind::Protocol).cause("malformed address"))?;
            if address.ethernet != self.choice.ethernet {
                return Err(fail(ErrorKind::Mismatch)
                    .cause("one port is Ethernet, the peer's InfiniBand")
                    .remedy("select ports of one link layer with FARSIDE_VERBS_DEVICE"));
            }
            if let Some(why) = partition::apart(self.address.partition, address.partition) {
                return Err(fail(ErrorKind::Mismatch)
                    .cause(why)
                    .remedy("name a partition of which both ports are members by FARSIDE_VERBS_PKEY"));
            }
            all.push(address);
        }
        // All ranks decide alike. A completion of a write of relaxed order only says that the target's adapter has it; a
        // read pushes it to memory (PCIe base specification, ordering rules).
        let atomics = all.iter().all(|address| address.atomics);
        let is_relaxed = all.iter().any(|address| address.relaxed);
        let placement = if is_relaxed { Placement::AtRead } else { Placement::InOrder };
        let channel = Channel::new(&self.context).map_err(failed)?;
        // All requests may complete at the same time: the completion queue has room for each.
        let queue = self.settings.verbs_queue.min((self.max_completions - 16) / addresses.len()).max(4);
        let count = credits::buffers(self.settings.verbs_receives, addresses.len()).min(self.max_receives);
        // The completion queue of receives has room for each buffer, too.
        let count = count.min(self.max_completions - 16);
        // At first it has room for the peers of the start, and of one more.
        let room = Room { each: queue, limit: self.max_completions };
        let first = room.of(addresses.len().next_power_of_two().ilog2() as usize + 1);
        let sends = Completions::growing(&channel, first, room.of(addresses.len())).map_err(failed)?;
        let receives = Completions::new(&channel, count + 16).map_err(failed)?;
        let shared = SharedReceives::new(&self.domain, count).map_err(failed)?;
        let buffers = Receives::new(&self.domain, &shared, count).map_err(locked)?;
        let parts = |shared| Parts {
            domain: Arc::clone(&self.domain),
            sends: Arc::clone(&sends),
            receives: Arc::clone(&receives),
            shared,
        };
        let sending = parts(None);
        let pool = Pool::new(&self.domain).map_err(locked)?;
        let regions = Regions::new(&self.domain, self.rank, addresses.len(), self.longest).map_err(locked)?;
        let kept = CacheLimits { bytes: self.settings.buffer_cache, entries: CACHE_ENTRIES };
        let user = UserMemory::new(&self.domain, kept, self.on_demand, self.longest);
        let lists = self.capabilities.lists.unwrap_or(Lists { blocks: 1, bytes: 1 });
        let serving = parts(Some(shared));
        let traffic_class = traffic_class(self.settings.verbs_traffic_class, self.choice.ethernet);
        let links = Arc::new(Links {
            me: self.rank,
            context: self.context,
            domain: self.domain,
            choice: self.choice,
            table: Mutex::new(Table::new(all.len())),
            addresses: all,
            sending,
            room,
            serving,
            sizes: self.accepted.sizes(queue as u32),
            sgrs_sizes: self.accepted.list_sizes(),
            channel,
            pkey_index: AtomicU16::new(self.tuning.pkey_index),
            tuning: self.tuning,
            service_level: self.settings.verbs_service_level,
            traffic_class,
            counters: regions.counters(),
            rank_wake: WakeFd::new().map_err(failed)?,
            elsewhere: OnceLock::new(),
            agent_wake: WakeFd::new().map_err(failed)?,
            stop: AtomicBool::new(false),
        });
        let window = credits::window(count, addresses.len());
        let sgrs = SgrsQueues::new(addresses.len(), lists);
        let stats = Rc::default();
        let engine = Engine::new(&links, (pool, regions, user), sgrs, (window, self.limits), &stats);
        let capabilities = Capabilities { atomics, placement, ..self.capabilities };
        let patience = patience(&self.settings, self.tuning.timeout);
        VerbsDevice::new(links, self.endpoint, buffers, engine, capabilities, patience, stats)
    }
}

/// The traffic class of connections: on Ethernet by default the one to which RoCE networks give flow control (DSCP 26,
/// and packets that may be marked), as UCX.
fn traffic_class(set: Option<u8>, ethernet: bool) -> u8 {
    set.unwrap_or(if ethernet { 106 } else { 0 })
}

/// The exponent of the time after which a packet without an acknowledgement is sent again: by default 18 on Ethernet,
/// where a switch may drop packets, and 19 on InfiniBand, whose links keep them. A peer is lost when all retries have
/// passed, which must take longer than the five seconds for which a link may be down: seven times 1.1 s.
fn timeout(set: Option<u8>, ethernet: bool) -> u8 {
    set.unwrap_or(if ethernet { 18 } else { 19 })
}

/// Time for which this rank's port may be down, and for which a peer may be silent: what the settings say, but a port
/// that is set to may be down for the time in which the HCA retries, and a peer's port as long.
fn patience(settings: &Settings, timeout: u8) -> (Duration, Duration) {
    let silence = Duration::from_secs(u64::from(settings.verbs_silence_s));
    let Some(down) = settings.verbs_down_s else { return (DOWN, silence) };
    let retry = Duration::from_nanos(4096) * (1 << timeout.min(30)) * (u32::from(settings.verbs_retries) + 1);
    let down = Duration::from_secs(u64::from(down)).max(retry);
    (down, silence.max(down + DETECTED))
}

fn atomics(capability: u32) -> &'static str {
    match capability {
        rdma_sys::ibv_atomic_cap::IBV_ATOMIC_NONE => "no atomics: processors make updates",
        rdma_sys::ibv_atomic_cap::IBV_ATOMIC_GLOB => "atomics coherent with the processor's",
        _ => "atomics among HCAs only",
    }
}

/// Checks that `rank` can open a port.
///
/// # Errors
/// `Setting`; `Unsupported` if no port can be opened.
pub(crate) fn has_port(rank: u32, settings: &Settings) -> Result<()> {
    LocalPorts::find(settings).and_then(LocalPorts::alone).map(drop).map_err(|e| e.rank(rank))
}

/// Describes the device as a job of one rank would use it.
fn probe(found: LocalPorts, settings: &Settings) -> Result<String> {
    let prepared = Prepared::over(0, found.alone()?, settings)?;
    let atomics = prepared.atomics;
    let mtu = 128u32 << prepared.address.mtu;
    let Limits { pieces, reads, message } = prepared.limits;
    let Accepted { blocks, inline, .. } = prepared.accepted;
    let (why, depth, partition) = (&prepared.choice.why, prepared.address.depth, prepared.address.partition);
    Ok(format!(
        "{why}; path MTU {mtu}, {pieces} pieces a request, {reads} a read, {blocks} a list, {inline} bytes inline, \
         messages up to {message} bytes, {depth} reads at once, partition {partition:#06x}; {atomics}; {}{}",
        if prepared.address.relaxed { "keys of relaxed order only: signals wait for writes; " } else { "" },
        fork::protect()
    ))
}

/// The device's part of `farside info`: a description of the device on this machine, or the reason why it does not
/// work, and a line for each port and GID.
pub(crate) fn report(settings: &Settings) -> (Result<String>, Vec<String>) {
    match LocalPorts::find(settings) {
        Ok(found) => {
            let lines = found.explain();
            (probe(found, settings), lines)
        }
        Err(e) => (Err(e), Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_of_the_class_without_losses_on_ethernet() {
        assert_eq!([true, false].map(|ethernet| traffic_class(None, ethernet)), [106, 0]);
        assert_eq!([true, false].map(|ethernet| traffic_class(Some(4), ethernet)), [4, 4]);
    }

    #[test]
    fn lost_packets_are_sent_again_sooner_on_ethernet() {
        assert_eq!([true, false].map(|ethernet| timeout(None, ethernet)), [18, 19]);
        assert_eq!([true, false].map(|ethernet| timeout(Some(14), ethernet)), [14, 14]);
    }

    #[test]
    fn port_may_be_down_for_the_time_of_all_retries_and_peers_wait_longer() {
        let settings = |set: &[(&str, &str)]| {
            let value = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            Settings::from_lookup(value).unwrap()
        };
        let seconds = |set: &[(&str, &str)]| {
            let settings = settings(set);
            let (down, silence) = patience(&settings, timeout(settings.verbs_timeout, false));
            (down.as_secs(), silence.as_secs())
        };
        assert_eq!(seconds(&[]), (5, 7));
        assert_eq!(seconds(&[("FARSIDE_VERBS_DOWN_S", "60")]), (60, 62));
        // 4.096 microseconds * 2^19 * 7
        assert_eq!(seconds(&[("FARSIDE_VERBS_DOWN_S", "1")]), (15, 17));
        assert_eq!(seconds(&[("FARSIDE_VERBS_DOWN_S", "1"), ("FARSIDE_VERBS_TIMEOUT", "14")]), (1, 7));
        assert_eq!(seconds(&[("FARSIDE_VERBS_DOWN_S", "20"), ("FARSIDE_VERBS_SILENCE_S", "90")]), (20, 90));
    }
}
