//! Every setting, in one table: name, default, allowed values, help. `farside info` and `docs/settings.md` are made from it.

mod devices;

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
pub use devices::{DeviceLists, ListedDevice, ListedKind};

/// One row of the table.
#[derive(Debug)]
pub struct Setting {
    /// The environment variable.
    pub name: &'static str,
    /// The value when the variable is not set.
    pub default: &'static str,
    /// A description of the allowed values.
    pub values: &'static str,
    /// The effect of the setting.
    pub help: &'static str,
}

/// Policy of a waiting rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Spin for this long, or yield if ranks outnumber cores; then park.
    Auto(Duration),
    /// Never give up the core.
    Spin,
    /// Yield at every turn, never sleep.
    Yield,
    /// Sleep immediately.
    Park,
}

/// The way in which ranks of the same node access memory that the runtime did not allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserMemory {
    /// The first available of `remap`, `vm` and `ring`.
    Auto,
    /// Whole pages are moved onto a shared mapping; messages transfer the bytes outside whole pages.
    Remap,
    /// `process_vm_readv` and `process_vm_writev`.
    Vm,
    /// A pipelined copy by the target through a shared bounce buffer.
    Ring,
}

/// The device by which ranks reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// Shared memory if all ranks are on one node; verbs if each rank is on a node of its own; otherwise both, as
    /// `Route`.
    Auto,
    /// Shared memory.
    Shm,
    /// An HCA, also between ranks of one node.
    Verbs,
    /// Shared memory between ranks of one node, an HCA between nodes.
    Route,
    /// TCP connections, also between ranks of one node.
    Tcp,
    /// A network by libfabric, also between ranks of one node.
    Ofi,
    /// A simulated network, for programs that start by `Job::run`.
    Sim,
}

/// The folder of the files that keep what jobs have measured on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheFolder {
    /// In the folder for caches of the user.
    Auto,
    /// In this folder.
    At(String),
    /// No folder: nothing is fitted.
    Off,
}

/// The scheme for transfers between two layouts if memory is not mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransferScheme {
    /// The scheme that the planner chooses according to the device's cut-offs.
    #[default]
    Auto,
    /// The data is packed, sent and unpacked.
    Generic,
    /// Puts gather, and gets scatter.
    Gather,
    /// One message for each block.
    MultiW,
    /// Lists of blocks on both sides (SGRS).
    Sgrs,
}

/// A scheme for all transfers between two layouts, and byte counts that replace a device's cut-offs
/// ([`CutOffs`](crate::device::CutOffs), [`MessageCutOffs`](crate::device::MessageCutOffs)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Transfer {
    pub scheme: TransferScheme,
    pub(crate) gather_block: Option<u64>,
    pub(crate) multi_w_block: Option<u64>,
    pub sgrs_block: Option<u64>,
    pub(crate) sgrs_message: Option<u64>,
    pub(crate) segment: Option<u64>,
    pub(crate) eager: Option<u64>,
    pub(crate) read_intra: Option<u64>,
    pub(crate) read_inter: Option<u64>,
}

impl Transfer {
    /// Parses `auto`, or schemes and `CUT-OFF:BYTES` separated by commas.
    fn parse(text: &str) -> Option<Self> {
        text.split(',').try_fold(Self::default(), |mut all, item| {
            match item.trim().split_once(':') {
                Some((name, bytes)) => *all.cut_off(name)? = Some(number(bytes)?),
                None => all.scheme = scheme(item.trim())?,
            }
            Some(all)
        })
    }

    fn cut_off(&mut self, name: &str) -> Option<&mut Option<u64>> {
        Some(match name {
            "gather-block" => &mut self.gather_block,
            "multi-w-block" => &mut self.multi_w_block,
            "sgrs-block" => &mut self.sgrs_block,
            "sgrs-message" => &mut self.sgrs_message,
            "segment" => &mut self.segment,
            "eager" => &mut self.eager,
            "read-intra" => &mut self.read_intra,
            "read-inter" => &mut self.read_inter,
            _ => return None,
        })
    }
}

fn scheme(text: &str) -> Option<TransferScheme> {
    Some(match text {
        "auto" => TransferScheme::Auto,
        "generic" => TransferScheme::Generic,
        "gather" => TransferScheme::Gather,
        "multi-w" => TransferScheme::MultiW,
        "sgrs" => TransferScheme::Sgrs,
        _ => return None,
    })
}

fn wait_policy(text: &str) -> Option<WaitPolicy> {
    Some(match text {
        "spin" => WaitPolicy::Spin,
        "yield" => WaitPolicy::Yield,
        "park" => WaitPolicy::Park,
        "auto" => WaitPolicy::Auto(Duration::from_micros(100)),
        _ => {
            let time = number(text.strip_prefix("auto(")?.strip_suffix(')')?);
            WaitPolicy::Auto(Duration::from_micros(time.filter(|us| *us <= 1_000_000)?))
        }
    })
}

fn log_level(text: &str) -> Option<tracing::Level> {
    use tracing::Level;
    [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE]
        .into_iter()
        .find(|level| level.as_str().eq_ignore_ascii_case(text))
}

/// Parses a number, or the text `auto`, for which it returns `Some(None)`: the runtime chooses.
fn number_or<T: std::str::FromStr>(auto: &str, text: &str) -> Option<Option<T>> {
    if text == auto { Some(None) } else { number(text).map(Some) }
}

macro_rules! settings {
    ($($field:ident: $ty:ty = $name:literal, $default:literal, $values:literal, $parse:expr, $help:literal;)*) => {
        /// The table.
        pub const TABLE: &[Setting] = &[$(Setting { name: $name, default: $default, values: $values, help: $help },)*];

        /// The values of all settings, within their limits.
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub struct Values {
            $(#[doc = $help] pub $field: $ty,)*
        }

        impl Settings {
            /// Reads every setting through `lookup`: from the environment, or from values set by a program.
            ///
            /// # Errors
            /// `Setting`, with the variable, the value and the allowed values; for a former name of a setting, its new
            /// name.
            pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
                if let Some((old, new)) = FORMER.iter().find(|(old, _)| lookup(old).is_some()) {
                    return Err(Error::new(ErrorKind::Setting, "read the settings")
                        .cause(format!("{old} is set, but that setting has a new name"))
                        .remedy(format!("set {new}")));
                }
                let mut origins = Vec::new();
                $(
                    let (text, origin) = match lookup($name) {
                        Some(text) => (text, Origin::Environment),
                        None => ($default.to_owned(), Origin::Default),
                    };
                    let parse: fn(&str) -> Option<$ty> = $parse;
                    let $field = parse(&text).ok_or_else(|| {
                        Error::new(ErrorKind::Setting, "read the settings")
                            .cause(format!("{}={text:?} is not allowed; allowed are {}", $name, $values))
                    })?;
                    origins.push(($name, text, origin));
                )*
                Ok(Self { values: Values { $($field,)* }, origins })
            }
        }
    };
}

/// The settings of one job, each with the origin of its value. Values are read through [`Values`] and can only be set
/// as text, so that each is within its limits.
///
/// ```
/// use farside_core::ErrorKind;
/// use farside_core::settings::{Settings, WaitPolicy};
///
/// let of = |wait: &'static str| Settings::from_lookup(move |name| (name == "FARSIDE_WAIT").then(|| wait.to_owned()));
/// assert_eq!(of("spin")?.wait, WaitPolicy::Spin);
/// assert_eq!(of("never").unwrap_err().kind(), ErrorKind::Setting);
/// # Ok::<(), farside_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Settings {
    values: Values,
    origins: Vec<(&'static str, String, Origin)>,
}

impl std::ops::Deref for Settings {
    type Target = Values;

    fn deref(&self) -> &Values {
        &self.values
    }
}

/// Former names of settings, which are rejected, and their new names.
const FORMER: &[(&str, &str)] = &[
    ("FARSIDE_SPIN_US", "FARSIDE_WAIT=auto(MICROSECONDS)"),
    ("FARSIDE_NODES", "FARSIDE_TEST_NODES"),
    ("FARSIDE_FAULT", "FARSIDE_TEST_FAULT"),
    ("FARSIDE_VERBS_CACHE", "FARSIDE_BUFFER_CACHE"),
    ("FARSIDE_VERBS_CACHE_ENTRIES", "FARSIDE_BUFFER_CACHE, a limit of the bytes"),
    ("FARSIDE_CUT_OFFS", "FARSIDE_TRANSFER=CUT-OFF:BYTES,..."),
    ("FARSIDE_MESSAGE_CUT_OFFS", "FARSIDE_TRANSFER=eager:BYTES,read-intra:BYTES,read-inter:BYTES"),
    ("FARSIDE_COLL_BARRIER", "FARSIDE_COLL=barrier:ALGORITHM"),
    ("FARSIDE_COLL_BROADCAST", "FARSIDE_COLL=broadcast:ALGORITHM"),
    ("FARSIDE_COLL_SCATTER", "FARSIDE_COLL=scatter:ALGORITHM"),
    ("FARSIDE_COLL_GATHER", "FARSIDE_COLL=gather:ALGORITHM"),
    ("FARSIDE_COLL_ALLGATHER", "FARSIDE_COLL=allgather:ALGORITHM"),
    ("FARSIDE_COLL_ALLTOALL", "FARSIDE_COLL=alltoall:ALGORITHM"),
    ("FARSIDE_COLL_REDUCE", "FARSIDE_COLL=reduce:ALGORITHM"),
    ("FARSIDE_COLL_ALLREDUCE", "FARSIDE_COLL=allreduce:ALGORITHM"),
    ("FARSIDE_COLL_REDUCE_SCATTER", "FARSIDE_COLL=reduce_scatter:ALGORITHM"),
    ("FARSIDE_COLL_SCAN", "FARSIDE_COLL=scan:ALGORITHM"),
    ("FARSIDE_COLL_EXSCAN", "FARSIDE_COLL=exscan:ALGORITHM"),
    ("FARSIDE_COLL_NEIGHBOR_ALLGATHER", "FARSIDE_COLL=neighbor_allgather:ALGORITHM"),
    ("FARSIDE_COLL_NEIGHBOR_ALLTOALL", "FARSIDE_COLL=neighbor_alltoall:ALGORITHM"),
];

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.trim().parse().ok()
}

settings! {
    wait: WaitPolicy = "FARSIDE_WAIT", "auto(100)", "auto, auto(MICROSECONDS) up to 1000000, spin, yield, park", wait_policy,
        "How a rank waits: auto spins for 100 microseconds, or for the time given, and then sleeps, at once where answers have lately taken longer, but if ranks outnumber cores it yields or sleeps, by what has answered sooner; spin never gives up the core; yield gives it up at every turn and never sleeps; park sleeps at once.";
    timeout_s: Option<u32> = "FARSIDE_TIMEOUT_S", "auto", "auto, or seconds, 1 to 86400", |s| number_or("auto", s).filter(|v: &Option<u32>| v.is_none_or(|n| (1..=86_400).contains(&n))),
        "Time limit of start-up and of the orderly end of the job. auto is 60 seconds, except that a rank that has come to its end waits for the others as long as they run.";
    peer_check_ms: u32 = "FARSIDE_PEER_CHECK_MS", "100", "milliseconds, 1 to 2000", |s| number(s).filter(|v| (1..=2_000).contains(v)),
        "Interval at which a waiting rank checks that the other ranks are alive.";
    shm_dir: String = "FARSIDE_SHM_DIR", "/dev/shm", "a directory on a memory file system", |s| Some(s.to_owned()),
        "Directory of the files that hold rings, signals and windows of up to 64 KiB; the files have no names, so they cannot be left behind. Longer windows take memory of the machine, page by page as it is touched.";
    shm_ring: Option<usize> = "FARSIDE_SHM_RING", "auto", "auto, or bytes, a power of two, 8192 to 16777216", |s| number_or("auto", s).filter(|v: &Option<usize>| v.is_none_or(|n| n.is_power_of_two() && (8192..=16_777_216).contains(&n))),
        "Size of the ring for messages from one rank to another that are not read from the sender's memory; auto divides a megabyte among the ranks of a node, but gives each at least 32768 and at most 524288 bytes.";
    shm_bounce: usize = "FARSIDE_SHM_BOUNCE", "131072", "bytes, a power of two, 8192 to 16777216", |s| number(s).filter(|v: &usize| v.is_power_of_two() && (8192..=16_777_216).contains(v)),
        "Size of a rank's bounce buffer for copies to and from memory that is not mapped.";
    shm_user_memory: UserMemory = "FARSIDE_SHM_USER_MEMORY", "auto", "auto, remap, vm, ring",
        |s| match s { "auto" => Some(UserMemory::Auto), "remap" => Some(UserMemory::Remap), "vm" => Some(UserMemory::Vm), "ring" => Some(UserMemory::Ring), _ => None },
        "How ranks of one node access window memory that the runtime did not allocate: remap moves whole pages onto a shared mapping, vm uses process_vm_readv and process_vm_writev, ring copies through a bounce buffer; auto is the first of these that works.";
    buffer_cache: usize = "FARSIDE_BUFFER_CACHE", "268435456", "bytes, 0 to 2^46", |s| number(s).filter(|v: &usize| *v <= 1 << 46),
        "Maximum number of bytes of the program's buffers that stay prepared for later operations with the same buffer: moved onto shared memory, which ranks of the same node map, or registered with an HCA; 0 prepares no buffers.";
    device: DeviceChoice = "FARSIDE_DEVICE", "auto", "auto, shm, verbs, route, tcp, ofi, sim",
        |s| match s { "auto" => Some(DeviceChoice::Auto), "shm" => Some(DeviceChoice::Shm), "verbs" => Some(DeviceChoice::Verbs), "route" => Some(DeviceChoice::Route), "tcp" => Some(DeviceChoice::Tcp), "ofi" => Some(DeviceChoice::Ofi), "sim" => Some(DeviceChoice::Sim), _ => None },
        "How ranks reach each other: shm by shared memory; verbs by an HCA, within a node too; tcp by TCP connections, within a node too; ofi by a network of libfabric (FARSIDE_OFI_PROVIDER), within a node too; route by several devices in one job, those of FARSIDE_DEVICES; auto is shm if all ranks are on one node, verbs if no two are, else route, with ofi instead of verbs where ranks have no HCA but a network of the providers that FARSIDE_OFI_PROVIDER=auto takes, and tcp where they have neither. sim runs a Rust program that starts by `Job::run` as all ranks of a simulation in one process.";
    devices: Option<DeviceLists> = "FARSIDE_DEVICES", "auto", "auto, or a list of shm, verbs, verbs:NAME[:PORT], tcp, tcp:INTERFACE, ofi with commas, each as it is or with @ and sizes (small, medium, large, with + between them); lists with ; between them (rank r takes list r modulo their number)", DeviceLists::parse,
        "Devices of a job with several, best first; auto is shm, and between nodes verbs, or ofi or tcp where ranks have no HCA, as for FARSIDE_DEVICE. Two ranks use the first device that both have: shm if they are on one node, and the nth verbs or tcp device of one is connected to the nth of the other. A device that does not work is left out, as the log says. A device with sizes carries reads and writes of these sizes only: medium is 8192 bytes and more, large 262144 and more. Atomic operations between nodes use the first device that all ranks have.";
    simulation: String = "FARSIDE_SIM", "ranks=2", "options with commas between them: ranks=N, topology=TOPOLOGY, latency=NANOSECONDS, ...", |s| Some(s.to_owned()),
        "Ranks, network and faults of the simulation with FARSIDE_DEVICE=sim, as `farside sim --help` lists them.";
    seed: u64 = "FARSIDE_SEED", "0", "0 to 18446744073709551615", number,
        "Seed of the simulation, which decides the order of whatever may happen in several orders: the same seed is the same run.";
    verbs_device: String = "FARSIDE_VERBS_DEVICE", "auto", "auto, or NAME[:PORT],... (the ranks of a machine take the entries in turn)", |s| Some(s.to_owned()),
        "RDMA device and port; auto takes the first active port through which all ranks reach each other.";
    verbs_gid: Option<u8> = "FARSIDE_VERBS_GID", "auto", "auto, or an index 0 to 255", |s| number_or("auto", s),
        "GID index of the port; auto prefers RoCE v2 with an IPv4 address.";
    verbs_pkey: Option<u16> = "FARSIDE_VERBS_PKEY", "default", "default, or a key in hexadecimal", |s| if s == "default" { Some(None) } else { u16::from_str_radix(s.trim_start_matches("0x"), 16).ok().map(Some) },
        "Partition key of connections (InfiniBand).";
    verbs_service_level: u8 = "FARSIDE_VERBS_SL", "0", "0 to 15", |s| number(s).filter(|v| *v <= 15),
        "Service level of connections.";
    verbs_traffic_class: Option<u8> = "FARSIDE_VERBS_TRAFFIC_CLASS", "auto", "auto, or 0 to 255", |s| number_or("auto", s),
        "Traffic class of connections (DSCP and ECN on Ethernet); auto is 106 on Ethernet, which networks for RoCE usually keep free of losses, and 0 on InfiniBand.";
    verbs_on_demand: bool = "FARSIDE_VERBS_ON_DEMAND", "0", "0, 1", |s| match s { "0" => Some(false), "1" => Some(true), _ => None },
        "Whether memory of the program is registered without being pinned, where the HCA supports it (on-demand paging): the first access to a page then waits for the processor, and takes many times as long.";
    verbs_timeout: Option<u8> = "FARSIDE_VERBS_TIMEOUT", "auto", "auto, or 1 to 31: 4 microseconds times 2 to this power", |s| number_or("auto", s).filter(|v: &Option<u8>| v.is_none_or(|n| (1..=31).contains(&n))),
        "Time that the HCA waits for an acknowledgement before it retransmits; auto is 18 (1.1 s) on Ethernet, which may lose packets, and 19 (2.1 s) on InfiniBand; 14 (67 ms) is better on links that lose many.";
    verbs_retries: u8 = "FARSIDE_VERBS_RETRIES", "6", "1 to 7", |s| number(s).filter(|v| (1..=7).contains(v)),
        "Number of retransmissions before the peer counts as lost; with Soft-RoCE, 7 retries forever.";
    verbs_silence_s: u32 = "FARSIDE_VERBS_SILENCE_S", "7", "seconds, 3 to 86400", |s| number(s).filter(|v| (3..=86_400).contains(v)),
        "Time after which a rank on another machine that answers no questions counts as lost.";
    verbs_down_s: Option<u32> = "FARSIDE_VERBS_DOWN_S", "auto", "auto, or seconds, 1 to 86400", |s| number_or("auto", s).filter(|v: &Option<u32>| v.is_none_or(|n| (1..=86_400).contains(&n))),
        "Time for which a rank's port may be down before the job ends, at least that of all retransmissions (FARSIDE_VERBS_TIMEOUT, FARSIDE_VERBS_RETRIES); ranks on other machines then wait two seconds longer for its answers. auto is 5 seconds, which a link that trains anew, or a subnet manager that looks rarely, may exceed.";
    verbs_queue: usize = "FARSIDE_VERBS_QUEUE", "128", "work requests, 16 to 4096", |s| number(s).filter(|v| (16..=4096).contains(v)),
        "Length of the send queue to one peer.";
    verbs_receives: usize = "FARSIDE_VERBS_RECEIVES", "512", "buffers of 4160 bytes, 32 to 16384", |s| number(s).filter(|v| (32..=16_384).contains(v)),
        "Number of receive buffers of a rank, shared by all peers; three for each rank of the job if these are more, but at most 16384.";
    tcp_interface: String = "FARSIDE_TCP_INTERFACE", "auto", "auto, or names or addresses of interfaces with commas (rank r takes entry r modulo their number), or several of them with + for one rank", |s| Some(s.to_owned()),
        "Interfaces on which a rank accepts TCP connections; auto is the loopback interface if all ranks are on one host, else those of the routes to other ranks.";
    tcp_encrypt: bool = "FARSIDE_TCP_ENCRYPT", "0", "0, 1", |s| match s { "0" => Some(false), "1" => Some(true), _ => None },
        "Whether TCP connections are encrypted, at the cost of copies. Without encryption only the start of a connection is authenticated: whoever can change packets on the network can read and write the ranks' exposed memory; set 1 on a network that is not trusted. The secret of the job is as private as the launcher's key-value exchange.";
    tcp_silence_s: u32 = "FARSIDE_TCP_SILENCE_S", "10", "seconds, 3 to 86400", |s| number(s).filter(|v| (3..=86_400).contains(v)),
        "Time after which a host that acknowledges nothing on a TCP connection, or to which none can be made, or re-established, counts as lost with its rank.";
    ofi_provider: Option<String> = "FARSIDE_OFI_PROVIDER", "auto", "auto, or the name of a provider of libfabric", |s| match s { "" => None, "auto" => Some(None), _ => Some(Some(s.to_owned())) },
        "Provider of libfabric for the device ofi, as `farside info` lists them, for example tcp;ofi_rxm; the same for all ranks. auto is the first of cxi, efa, opx and psm2 that this machine has. The network must be trusted: whoever can send to it can read and write the ranks' exposed memory.";
    routes: Option<String> = "FARSIDE_ROUTES", "none", "none, or the absolute path of a file", |s| match s { "none" => Some(None), _ => s.starts_with('/').then(|| Some(s.to_owned())) },
        "Table that `farside routes --output` writes, read on every host: over which nodes, which are hosts by their names, ranks reach each other by TCP if they have no common network. Without it, or where it has no route, two ranks that cannot connect directly communicate over a rank of a third host that shares a network with both. In jobs with several devices, a device that it names for a direct route is used for that range of sizes; where the ranks do not both have it, the order of FARSIDE_DEVICES decides.";
    transfer: Transfer = "FARSIDE_TRANSFER", "auto", "auto, or with commas: generic, gather, multi-w or sgrs; CUT-OFF:BYTES for gather-block, multi-w-block, sgrs-block, sgrs-message, segment, eager, read-intra, read-inter", Transfer::parse,
        "How data travels: auto copies mapped memory, and else chooses by cut-offs measured on the device. A scheme is used for all operations with derived datatypes for which the device, the direction and the epoch allow it. Cut-offs for derived datatypes: gather-block is the shortest block for which a put gathers, multi-w-block the shortest block that is a message of its own, sgrs-block and sgrs-message the shortest block and message for which SGRS is used, segment the length of the pieces of a packed transfer. Cut-offs for messages: eager is the longest message of several packets that is sent without asking its target, read-intra and read-inter the shortest one that the target reads from the sender's memory, within a node and between nodes.";
    calibration: CacheFolder = "FARSIDE_CALIBRATION", "auto", "auto, off, or an absolute path of a folder",
        |s| match s { "auto" => Some(CacheFolder::Auto), "off" => Some(CacheFolder::Off), _ => s.starts_with('/').then(|| CacheFolder::At(s.to_owned())) },
        "Folder of the files that keep what jobs of processes measure on a machine: cut-offs for messages within a node, models of the network with cut-offs for transfers between nodes, and choices of collectives; auto is $XDG_CACHE_HOME/farside, or ~/.cache/farside. The first job measures cut-offs in at most 40 ms and a model in at most 20, and blocking collectives try their best algorithms in their first calls; what is measured while other programs need the processors is not kept; a file or folder that another user may write is not used; off takes the defaults.";
    coll: String = "FARSIDE_COLL", "auto", "auto, or OPERATION:NAME,... or OPERATION:NAME(PARAMETER,...),..., or the absolute path of a file", |s| Some(s.to_owned()),
        "Algorithms of collective operations and their parameters, as `farside info --coll` lists them; a call that the algorithm cannot make is made as with auto. A line of the file is OPERATION RANKS BYTES PLACEMENT ALGORITHM: ranks and bytes are a number, LEAST-MOST or *, the placement is anywhere, one-node, oversubscribed, NODESxRANKS such as 2x4, or *; the last line that holds for a call counts.";
    log: Option<tracing::Level> = "FARSIDE_LOG", "off", "off, error, warn, info, debug, trace", |s| if s == "off" { Some(None) } else { log_level(s).map(Some) },
        "Least severe events that a rank writes to stderr while it runs, each line with the rank in front; not if ranks are threads or the program has a tracing subscriber.";
    bill: Option<String> = "FARSIDE_BILL", "0", "0, 1, or a file, with a dot or slash in its name: a page if it ends in .html, else JSON", |s| match s { "0" | "" => Some(None), _ => (s == "1" || s.contains(['.', '/'])).then(|| Some(s.to_owned())) },
        "Bill at the end of the job: rank 0 writes to stderr, for each window and team, what was called and sent, and which rank waited for which other one.";
    trace: Option<String> = "FARSIDE_TRACE", "0", "0, or a file that ends in .json or .html", |s| if matches!(s, "0" | "") { Some(None) } else { [".json", ".html"].iter().any(|end| s.ends_with(end)).then(|| Some(s.to_owned())) },
        "Timeline of the job, which rank 0 writes at its end as a JSON file for Perfetto (ui.perfetto.dev) or chrome://tracing, or as a page with a picture, ranks down and time across: calls, waits, epochs, messages and remote calls of each rank, with arrows from the rank that signalled to the rank that waited. The last events are kept, at most 65536 of a rank and 1048576 of a job (1024 of a rank at least).";
    stall: Option<Duration> = "FARSIDE_STALL_S", "0", "seconds, 0 to 86400, may have a fraction; 0 is never", |s| number::<f64>(s).filter(|s| (0.0..=86_400.0).contains(s)).map(|s| (s > 0.0).then(|| Duration::from_secs_f64(s))),
        "Time after which a waiting rank writes to stderr, once, what it waits for and for which rank.";
    verify: u8 = "FARSIDE_VERIFY", "0", "0 to 4", |s| number(s).filter(|v| *v <= 4),
        "MPI programs: checks of collective calls by libfarside_verify.so; 0 checks nothing, 1 the calls, 2 explains what it finds, 3 checks Info arguments too, 4 asserts too.";
    universe_size: Option<u32> = "FARSIDE_UNIVERSE_SIZE", "auto", "auto, or 1 to 2147483647", |s| number_or("auto", s).filter(|v: &Option<u32>| v.is_none_or(|n| (1..=i32::MAX as u32).contains(&n))),
        "MPI programs: value of the attribute MPI_UNIVERSE_SIZE; auto is the number of ranks.";
    test_nodes: Option<u32> = "FARSIDE_TEST_NODES", "auto", "auto, or 1 to 65536", |s| number_or("auto", s).filter(|v: &Option<u32>| v.is_none_or(|n| (1..=65_536).contains(&n))),
        "For tests: rank r counts as on node r modulo this number, even if all ranks are on one machine.";
    test_fault: String = "FARSIDE_TEST_FAULT", "none", "none, unmapped (hides that memory is mapped), or drop-put:N, drop-get:N, drop-message:N, drop-signal:N, lose-atomic:N, double-put:N, early-notify:N, wrong-tag:N (the Nth such operation), own-atomic:N (from the Nth on), keep-credit:N (of the receiver of the Nth message)", |s| Some(s.to_owned()),
        "For tests: a wrapper around the device that damages one operation.";
}

/// Origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The default of the table.
    Default,
    /// An environment variable.
    Environment,
}

impl Settings {
    /// Time limit of start-up, and of the end of a rank once all ranks have reached theirs.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s.unwrap_or(60).into())
    }

    /// The reports that a rank makes, one bit each: the bill, the trace and long waits.
    pub(crate) fn reports(&self) -> u32 {
        let all = [self.bill.is_some(), self.trace.is_some(), self.stall.is_some()];
        all.into_iter().enumerate().fold(0, |bits, (bit, on)| bits | u32::from(on) << bit)
    }

    /// The same settings for ranks that never spin.
    pub(crate) fn parking(mut self) -> Self {
        self.values.wait = WaitPolicy::Park;
        self
    }

    /// The same settings for a device of a list.
    pub(crate) fn for_device(&self, device: &ListedDevice) -> Self {
        let mut own = self.clone();
        if let Some(name) = &device.name {
            match device.kind {
                ListedKind::Verbs => own.values.verbs_device.clone_from(name),
                ListedKind::Tcp => own.values.tcp_interface.clone_from(name),
                ListedKind::Ofi => own.values.ofi_provider = Some(name.clone()),
                ListedKind::Shm => {}
            }
        }
        own
    }

    /// The settings of two ranks that test for a link: their own interfaces and RDMA devices, no reports, no relays,
    /// and the minimum time after which tcp declares a peer lost.
    pub(crate) fn for_pairs(&self, tcp_interface: String, verbs_device: String) -> Self {
        let mut own = self.clone();
        (own.values.tcp_interface, own.values.verbs_device) = (tcp_interface, verbs_device);
        (own.values.bill, own.values.trace, own.values.routes, own.values.tcp_silence_s) = (None, None, None, 3);
        own
    }

    /// Turns files of measured values off.
    pub(crate) fn without_cache(&mut self) {
        self.values.calibration = CacheFolder::Off;
    }

    /// Reads the environment.
    ///
    /// # Errors
    /// `Setting`, with the variable, the value and the allowed values.
    pub fn from_env() -> Result<Self> {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    /// Size in bytes of the ring from each of `ranks` ranks of a node to another: with up to 32 ranks, the rings of a
    /// rank together take no more memory than with 32.
    #[must_use]
    pub fn ring(&self, ranks: usize) -> usize {
        const MIN_RING: usize = 32 << 10;
        let share = (MIN_RING * 32 / ranks.max(1)).max(MIN_RING);
        // A single rank sends nothing through a ring.
        let automatic = if ranks == 1 { MIN_RING } else { 1 << share.ilog2() };
        self.shm_ring.unwrap_or(automatic)
    }

    /// Name, value in force and origin of every setting, in the order of the table.
    pub fn origins(&self) -> impl Iterator<Item = (&'static str, &str, Origin)> {
        self.origins.iter().map(|(n, v, o)| (*n, v.as_str(), *o))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table as Markdown, as `docs/settings.md` shows it.
    fn markdown() -> String {
        let rows = TABLE.iter().map(|s| {
            format!(
                "| `{}` | `{}` | {} | {} |
",
                s.name, s.default, s.values, s.help
            )
        });
        "| setting | default | values | |
|---|---|---|---|
"
        .to_owned()
            + &rows.collect::<String>()
    }

    #[test]
    fn the_page_of_settings_shows_this_table() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/settings.md")).unwrap();
        assert!(page.contains(&markdown()), "core/docs/settings.md should contain:\n{}", markdown());
    }

    #[test]
    fn every_default_parses_and_is_reported() {
        let s = Settings::from_lookup(|_| None).unwrap();
        assert_eq!(s.origins().count(), TABLE.len());
        assert!(s.origins().all(|(_, _, o)| o == Origin::Default));
        assert_eq!(s.wait, WaitPolicy::Auto(Duration::from_micros(100)));
    }

    #[test]
    fn a_bad_value_names_the_variable_and_what_is_allowed() {
        let e = Settings::from_lookup(|n| (n == "FARSIDE_WAIT").then(|| "fast".into())).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Setting);
        let text = e.to_string();
        assert!(text.contains("FARSIDE_WAIT=\"fast\"") && text.contains("park"), "{text}");
    }
    #[test]
    fn former_names_are_refused_with_what_takes_their_place() {
        for (old, new) in FORMER {
            let e = Settings::from_lookup(|n| (n == *old).then(|| "1".into())).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Setting);
            let text = e.to_string();
            assert!(text.contains(old) && text.contains(new), "{text}");
            let name = new.split(['=', ',']).next().unwrap();
            assert!(TABLE.iter().any(|s| s.name == name) && TABLE.iter().all(|s| s.name != *old), "{old}: {new}");
        }
    }

    #[test]
    fn transfers_have_a_scheme_and_cut_offs_by_name() {
        let read =
            |text: &str| Settings::from_lookup(|n| (n == "FARSIDE_TRANSFER").then(|| text.into())).map(|s| s.transfer);
        let both =
            Transfer { scheme: TransferScheme::Sgrs, sgrs_block: Some(64), eager: Some(0), ..Transfer::default() };
        assert_eq!(read("eager:0,sgrs, sgrs-block:64").unwrap(), both);
        assert_eq!(read("auto").unwrap(), Transfer::default());
        for wrong in ["", "fast", "eager", "eager:", "eager:-1", "eager:1,", "block:1", "sgrs:1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rings_of_a_rank_share_a_megabyte() {
        let automatic = Settings::from_lookup(|_| None).unwrap();
        let rings = [1, 2, 3, 8, 31, 32, 1000].map(|ranks| automatic.ring(ranks) >> 10);
        assert_eq!(rings, [32, 512, 256, 128, 32, 32, 32]);
        let given = Settings::from_lookup(|n| (n == "FARSIDE_SHM_RING").then(|| "8192".into())).unwrap();
        assert_eq!(given.ring(2), 8192);
    }

    #[test]
    fn a_wait_spins_for_the_time_given() {
        let read = |text: &str| Settings::from_lookup(|n| (n == "FARSIDE_WAIT").then(|| text.into())).map(|s| s.wait);
        assert_eq!(read("auto").unwrap(), WaitPolicy::Auto(Duration::from_micros(100)));
        assert_eq!(read("auto(1000000)").unwrap(), WaitPolicy::Auto(Duration::from_secs(1)));
        assert!(["auto(1000001)", "auto(", "auto()", "park(1)"].into_iter().all(|wrong| read(wrong).is_err()));
    }
}
