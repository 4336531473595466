//! Every setting, in one table: name, default, allowed values, help. `farside info` and the README are made from it.

use std::time::Duration;

use crate::coll::operation::Operation;
use crate::coll::selection::Choice;
use crate::device::{CutOffs, MessageCutOffs};
use crate::error::{Error, ErrorKind, Result};

/// One row of the table.
#[derive(Debug)]
pub struct Setting {
    /// The environment variable.
    pub name: &'static str,
    /// The value when it is not set.
    pub default: &'static str,
    /// What it may be, in words.
    pub values: &'static str,
    /// What it does.
    pub help: &'static str,
}

/// How a waiting rank spends its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Spin, yield, then park; park early when there are more ranks than cores.
    Auto,
    /// Never give up the core.
    Spin,
    /// Give up the core at every turn, never sleep.
    Yield,
    /// Sleep at once.
    Park,
}

/// How memory that the runtime did not allocate is reached by ranks of the same node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserMemory {
    /// The best way that works here: `remap`, else `vm`, else `ring`.
    Auto,
    /// Whole pages are moved onto a shared mapping; the ragged edges are served by message.
    Remap,
    /// `process_vm_readv` and `process_vm_writev`.
    Vm,
    /// A pipelined copy through a shared bounce buffer, done by the target.
    Ring,
}

/// How ranks reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// Shared memory if all ranks are on one node; verbs if each is on its own; else both, as `Route`.
    Auto,
    /// Shared memory.
    Shm,
    /// An HCA, also between ranks of one node.
    Verbs,
    /// Shared memory between ranks of one node, an HCA between nodes.
    Route,
}

/// How transfers between two layouts travel where memory is not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferScheme {
    /// As the planner finds best by the device's cut-offs.
    Auto,
    /// Packed, sent, unpacked.
    Generic,
    /// Puts that gather, gets that scatter.
    Gather,
    /// One message a block.
    MultiW,
    /// Lists of blocks on both sides.
    Sgrs,
}

/// Numbers with commas between them.
fn numbers<const N: usize>(text: &str) -> Option<[u64; N]> {
    text.split(',').map(number).collect::<Option<Vec<u64>>>()?.try_into().ok()
}

fn cut_offs(text: &str) -> Option<CutOffs> {
    let [gather_block, multi_w_block, sgrs_block, sgrs_bytes, segment] = numbers(text)?;
    Some(CutOffs { gather_block, multi_w_block, sgrs_block, sgrs_bytes, segment })
}

fn message_cut_offs(text: &str) -> Option<MessageCutOffs> {
    let [eager, read_intra, read_inter] = numbers(text)?.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    Some(MessageCutOffs { eager, read_intra, read_crowded: read_intra, read_inter })
}

fn log_level(text: &str) -> Option<tracing::Level> {
    use tracing::Level;
    [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE]
        .into_iter()
        .find(|level| level.as_str().eq_ignore_ascii_case(text))
}

/// An algorithm of an operation, if the runtime is not to choose.
fn algorithm(operation: Operation, text: &str) -> Option<Option<Choice>> {
    if text == "auto" { Some(None) } else { Choice::parse(operation, text).ok().map(Some) }
}

/// What is wrong with the value of a setting.
fn refusal(name: &str, text: &str, values: &str) -> String {
    let fixes = |o: &Operation| name.strip_prefix("FARSIDE_COLL_").is_some_and(|n| n.eq_ignore_ascii_case(o.name()));
    match Operation::ALL.into_iter().find(fixes).map(|o| Choice::parse(o, text)) {
        Some(Err(why)) => why,
        _ => format!("allowed: {values}"),
    }
}

/// A number that may be left to the runtime.
fn number_or<T: std::str::FromStr>(auto: &str, text: &str) -> Option<Option<T>> {
    if text == auto { Some(None) } else { number(text).map(Some) }
}

macro_rules! settings {
    ($($field:ident: $ty:ty = $name:literal, $default:literal, $values:literal, $parse:expr, $help:literal;)*) => {
        /// The table.
        pub const TABLE: &[Setting] = &[$(Setting { name: $name, default: $default, values: $values, help: $help },)*];

        /// The settings of one job, each with where its value came from.
        #[derive(Clone, Debug)]
        pub struct Settings {
            $(#[doc = $help] pub $field: $ty,)*
            origins: Vec<(&'static str, String, Origin)>,
        }

        impl Settings {
            /// Reads every setting through `lookup` (the environment, or a test's own).
            ///
            /// # Errors
            /// `Setting`, naming the variable, the value and what is allowed.
            pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
                let mut origins = Vec::new();
                $(
                    let (text, origin) = match lookup($name) {
                        Some(text) => (text, Origin::Environment),
                        None => ($default.to_owned(), Origin::Default),
                    };
                    let parse: fn(&str) -> Option<$ty> = $parse;
                    let $field = parse(&text).ok_or_else(|| {
                        Error::new(ErrorKind::Setting, "read the settings")
                            .cause(format!("{}={text:?}: {}", $name, refusal($name, &text, $values)))
                    })?;
                    origins.push(($name, text, origin));
                )*
                Ok(Self { $($field,)* origins })
            }
        }
    };
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.trim().parse().ok()
}

settings! {
    wait: WaitPolicy = "FARSIDE_WAIT", "auto", "auto, spin, yield, park",
        |s| match s { "auto" => Some(WaitPolicy::Auto), "spin" => Some(WaitPolicy::Spin), "yield" => Some(WaitPolicy::Yield), "park" => Some(WaitPolicy::Park), _ => None },
        "How a rank waits: auto spins, yields and then sleeps, and sleeps early when ranks outnumber cores.";
    spin_us: u32 = "FARSIDE_SPIN_US", "100", "microseconds, 0 to 1000000", |s| number(s).filter(|v| *v <= 1_000_000),
        "How long a rank spins before it sleeps, when it has a core of its own.";
    timeout_s: u32 = "FARSIDE_TIMEOUT_S", "60", "seconds, 1 to 86400", |s| number(s).filter(|v| (1..=86_400).contains(v)),
        "How long start-up and orderly end may take before they fail.";
    peer_check_ms: u32 = "FARSIDE_PEER_CHECK_MS", "100", "milliseconds, 1 to 2000", |s| number(s).filter(|v| (1..=2_000).contains(v)),
        "How often a waiting rank looks whether the others are alive.";
    shm_dir: String = "FARSIDE_SHM_DIR", "/dev/shm", "a directory on a memory file system", |s| Some(s.to_owned()),
        "Where shared memory comes from; its files have no name, so none can stay behind.";
    shm_ring: usize = "FARSIDE_SHM_RING", "32768", "bytes, a power of two, 8192 to 16777216", |s| number(s).filter(|v: &usize| v.is_power_of_two() && (8192..=16_777_216).contains(v)),
        "Size of the ring for small messages from one rank to another.";
    shm_bounce: usize = "FARSIDE_SHM_BOUNCE", "131072", "bytes, a power of two, 8192 to 16777216", |s| number(s).filter(|v: &usize| v.is_power_of_two() && (8192..=16_777_216).contains(v)),
        "Size of a rank's buffer for copies to and from memory that is not mapped.";
    shm_user_memory: UserMemory = "FARSIDE_SHM_USER_MEMORY", "auto", "auto, remap, vm, ring",
        |s| match s { "auto" => Some(UserMemory::Auto), "remap" => Some(UserMemory::Remap), "vm" => Some(UserMemory::Vm), "ring" => Some(UserMemory::Ring), _ => None },
        "How ranks of one node reach window memory that the runtime did not allocate.";
    device: DeviceChoice = "FARSIDE_DEVICE", "auto", "auto, shm, verbs, route",
        |s| match s { "auto" => Some(DeviceChoice::Auto), "shm" => Some(DeviceChoice::Shm), "verbs" => Some(DeviceChoice::Verbs), "route" => Some(DeviceChoice::Route), _ => None },
        "How ranks reach each other: route is shared memory on a node and verbs between nodes; auto is that, or one of the two where it is enough; verbs uses the HCA on one node too.";
    nodes: Option<u32> = "FARSIDE_NODES", "auto", "auto, or 1 to 65536", |s| number_or("auto", s).filter(|v: &Option<u32>| v.is_none_or(|n| (1..=65_536).contains(&n))),
        "For tests: rank r counts as on node r modulo this number, also on one machine.";
    verbs_device: String = "FARSIDE_VERBS_DEVICE", "auto", "auto, or NAME[:PORT],... (rank r takes entry r modulo their number)", |s| Some(s.to_owned()),
        "The RDMA device and port; auto takes the first active one through which all ranks reach each other.";
    verbs_gid: Option<u8> = "FARSIDE_VERBS_GID", "auto", "auto, or an index 0 to 255", |s| number_or("auto", s),
        "The GID of the port; auto prefers RoCE v2 of an IPv4 address.";
    verbs_pkey: Option<u16> = "FARSIDE_VERBS_PKEY", "default", "default, or a key in hexadecimal", |s| if s == "default" { Some(None) } else { u16::from_str_radix(s.trim_start_matches("0x"), 16).ok().map(Some) },
        "The partition (InfiniBand) that connections belong to.";
    verbs_service_level: u8 = "FARSIDE_VERBS_SL", "0", "0 to 15", |s| number(s).filter(|v| *v <= 15),
        "The service level of connections.";
    verbs_traffic_class: u8 = "FARSIDE_VERBS_TRAFFIC_CLASS", "0", "0 to 255", |s| number(s),
        "The traffic class of connections (DSCP and ECN on Ethernet).";
    verbs_timeout: u8 = "FARSIDE_VERBS_TIMEOUT", "19", "1 to 31: 4 microseconds times 2 to this power", |s| number(s).filter(|v| (1..=31).contains(v)),
        "How long the HCA waits for an answer before it sends again; on links that lose packets 14 (67 ms) is better.";
    verbs_retries: u8 = "FARSIDE_VERBS_RETRIES", "6", "1 to 7", |s| number(s).filter(|v| (1..=7).contains(v)),
        "How often the HCA sends again before the peer counts as lost; to Soft-RoCE 7 means for ever.";
    verbs_silence_s: u32 = "FARSIDE_VERBS_SILENCE_S", "7", "seconds, 3 to 86400", |s| number(s).filter(|v| (3..=86_400).contains(v)),
        "How long a rank of another machine may leave all questions unanswered before it counts as lost.";
    verbs_queue: usize = "FARSIDE_VERBS_QUEUE", "128", "work requests, 16 to 4096", |s| number(s).filter(|v| (16..=4096).contains(v)),
        "Length of the queue of requests to one peer.";
    verbs_receives: usize = "FARSIDE_VERBS_RECEIVES", "512", "buffers of 4160 bytes, 32 to 16384", |s| number(s).filter(|v| (32..=16_384).contains(v)),
        "Receive buffers of a rank, which all peers share.";
    verbs_cache: usize = "FARSIDE_VERBS_CACHE", "268435456", "bytes, 0 to 2^46", |s| number(s).filter(|v: &usize| *v <= 1 << 46),
        "Memory of the program that stays registered after an operation, for the next one with the same buffer; 0 keeps none.";
    verbs_cache_entries: usize = "FARSIDE_VERBS_CACHE_ENTRIES", "1024", "registrations, 0 to 1048576", |s| number(s).filter(|v| *v <= 1 << 20),
        "How many registrations are kept so; what was not used for longest goes first.";
    transfer: TransferScheme = "FARSIDE_TRANSFER", "auto", "auto, generic, gather, multi-w, sgrs",
        |s| match s { "auto" => Some(TransferScheme::Auto), "generic" => Some(TransferScheme::Generic), "gather" => Some(TransferScheme::Gather), "multi-w" => Some(TransferScheme::MultiW), "sgrs" => Some(TransferScheme::Sgrs), _ => None },
        "How operations with derived datatypes travel: auto is a copy where memory is mapped, and else what the cut-offs say; what a device, a direction or an epoch does not allow is left to the planner.";
    cut_offs: Option<CutOffs> = "FARSIDE_CUT_OFFS", "auto", "auto, or five byte counts: GATHER,MULTI-W,SGRS-BLOCK,SGRS-MESSAGE,SEGMENT", |s| if s == "auto" { Some(None) } else { cut_offs(s).map(Some) },
        "From which block a put gathers, from which each block is a message, from which block and message SGRS is used, and the pieces of packed transfers; auto is what was measured on the device.";
    message_cut_offs: Option<MessageCutOffs> = "FARSIDE_MESSAGE_CUT_OFFS", "auto", "auto, or three byte counts: EAGER,READ-INTRA-NODE,READ-INTER-NODE", |s| if s == "auto" { Some(None) } else { message_cut_offs(s).map(Some) },
        "Up to which length a message of several packets is sent without asking its target, and from which length of those that are asked for the target reads it out of the sender's memory, within a node and between nodes; auto is what was measured on the device.";
    coll_barrier: Option<Choice> = "FARSIDE_COLL_BARRIER", "auto", "auto, NAME or NAME(NUMBER,...)", |s| algorithm(Operation::Barrier, s),
        "Algorithm of a barrier and its parameters; a call that it is not for is made as by auto.";
    coll_broadcast: Option<Choice> = "FARSIDE_COLL_BROADCAST", "auto", "auto, NAME or NAME(NUMBER,...)", |s| algorithm(Operation::Broadcast, s),
        "Algorithm of a broadcast and its parameters; a call that it is not for is made as by auto.";
    coll_scatter: Option<Choice> = "FARSIDE_COLL_SCATTER", "auto", "auto, NAME or NAME(NUMBER,...)", |s| algorithm(Operation::Scatter, s),
        "Algorithm of a scatter and its parameters; a call that it is not for is made as by auto.";
    coll_gather: Option<Choice> = "FARSIDE_COLL_GATHER", "auto", "auto, NAME or NAME(NUMBER,...)", |s| algorithm(Operation::Gather, s),
        "Algorithm of a gather and its parameters; a call that it is not for is made as by auto.";
    coll_allgather: Option<Choice> = "FARSIDE_COLL_ALLGATHER", "auto", "auto, NAME or NAME(NUMBER,...)", |s| algorithm(Operation::Allgather, s),
        "Algorithm of an allgather and its parameters; a call that it is not for is made as by auto.";
    coll_alltoall: Option<Choice> = "FARSIDE_COLL_ALLTOALL", "auto", "auto, NAME or NAME(NUMBER,...)", |s| algorithm(Operation::Alltoall, s),
        "Algorithm of an alltoall and its parameters; a call that it is not for is made as by auto.";
    coll_reduce: Option<Choice> = "FARSIDE_COLL_REDUCE", "auto", "auto, NAME or NAME(NUMBER,...)", |s| algorithm(Operation::Reduce, s),
        "Algorithm of a reduce and its parameters; a call that it is not for is made as by auto.";
    coll_allreduce: Option<Choice> = "FARSIDE_COLL_ALLREDUCE", "auto", "auto, NAME or NAME(NUMBER,...)", |s| algorithm(Operation::Allreduce, s),
        "Algorithm of an allreduce and its parameters; a call that it is not for is made as by auto.";
    coll_reduce_scatter: Option<Choice> = "FARSIDE_COLL_REDUCE_SCATTER", "auto", "auto, NAME or NAME(NUMBER,...)", |s| algorithm(Operation::ReduceScatter, s),
        "Algorithm of a reduce_scatter and its parameters; a call that it is not for is made as by auto.";
    coll_scan: Option<Choice> = "FARSIDE_COLL_SCAN", "auto", "auto, NAME or NAME(NUMBER,...)", |s| algorithm(Operation::Scan, s),
        "Algorithm of a scan and its parameters; a call that it is not for is made as by auto.";
    coll_exscan: Option<Choice> = "FARSIDE_COLL_EXSCAN", "auto", "auto, NAME or NAME(NUMBER,...)", |s| algorithm(Operation::Exscan, s),
        "Algorithm of an exscan and its parameters; a call that it is not for is made as by auto.";
    coll_neighbor_allgather: Option<Choice> = "FARSIDE_COLL_NEIGHBOR_ALLGATHER", "auto", "auto, NAME or NAME(NUMBER,...)", |s| algorithm(Operation::NeighborAllgather, s),
        "Algorithm of an allgather of neighbours and its parameters; a call that it is not for is made as by auto.";
    coll_neighbor_alltoall: Option<Choice> = "FARSIDE_COLL_NEIGHBOR_ALLTOALL", "auto", "auto, NAME or NAME(NUMBER,...)", |s| algorithm(Operation::NeighborAlltoall, s),
        "Algorithm of an alltoall of neighbours and its parameters; a call that it is not for is made as by auto.";
    log: Option<tracing::Level> = "FARSIDE_LOG", "off", "off, error, warn, info, debug, trace", |s| if s == "off" { Some(None) } else { log_level(s).map(Some) },
        "What a rank says on stderr while it runs, with its number in front, unless ranks are threads; a tracing subscriber of the program takes its place.";
    bill: Option<String> = "FARSIDE_BILL", "0", "0, 1, or a file for it as JSON", |s| Some(Some(s.to_owned()).filter(|s| !matches!(s.as_str(), "0" | ""))),
        "At the end of the job rank 0 says on stderr, for each window and team, what was called and sent, and which rank waited for which other one.";
    stall: Option<Duration> = "FARSIDE_STALL_S", "0", "seconds, 0 to 86400, with fractions; 0 is never", |s| number::<f64>(s).filter(|s| (0.0..=86_400.0).contains(s)).map(|s| (s > 0.0).then(|| Duration::from_secs_f64(s))),
        "A rank that waits for so long says once on stderr what it waits for, and from whom.";
    fault: String = "FARSIDE_FAULT", "none", "none, unmapped (hides that memory is mapped), or drop-put:N, drop-get:N, drop-message:N, drop-signal:N, lose-atomic:N, double-put:N, early-notify:N (the Nth such operation)", |s| Some(s.to_owned()),
        "For tests: a wrapper round the device that damages one operation.";
}

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The table.
    Default,
    /// An environment variable.
    Environment,
}

impl Settings {
    /// Reads the environment.
    ///
    /// # Errors
    /// `Setting`, naming the variable, the value and what is allowed.
    pub fn from_env() -> Result<Self> {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    /// The algorithm that is fixed for an operation.
    #[must_use]
    pub fn algorithm(&self, operation: Operation) -> Option<&Choice> {
        let choice = match operation {
            Operation::Barrier => &self.coll_barrier,
            Operation::Broadcast => &self.coll_broadcast,
            Operation::Scatter => &self.coll_scatter,
            Operation::Gather => &self.coll_gather,
            Operation::Allgather => &self.coll_allgather,
            Operation::Alltoall => &self.coll_alltoall,
            Operation::Reduce => &self.coll_reduce,
            Operation::Allreduce => &self.coll_allreduce,
            Operation::ReduceScatter => &self.coll_reduce_scatter,
            Operation::Scan => &self.coll_scan,
            Operation::Exscan => &self.coll_exscan,
            Operation::NeighborAllgather => &self.coll_neighbor_allgather,
            Operation::NeighborAlltoall => &self.coll_neighbor_alltoall,
        };
        choice.as_ref()
    }

    /// Name, value in force and origin of every setting, in the order of the table.
    pub fn origins(&self) -> impl Iterator<Item = (&'static str, &str, Origin)> {
        self.origins.iter().map(|(n, v, o)| (*n, v.as_str(), *o))
    }
}

/// The table as Markdown, as the README shows it.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::from("| setting | default | values | |\n|---|---|---|---|\n");
    for s in TABLE {
        out += &format!("| `{}` | `{}` | {} | {} |\n", s.name, s.default, s.values, s.help);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_shows_this_table() {
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
        let readme = std::fs::read_to_string(readme).unwrap();
        assert!(readme.contains(&markdown()), "the README should contain:\n{}", markdown());
    }

    #[test]
    fn every_default_parses_and_is_reported() {
        let s = Settings::from_lookup(|_| None).unwrap();
        assert_eq!(s.origins().count(), TABLE.len());
        assert!(s.origins().all(|(_, _, o)| o == Origin::Default));
        assert_eq!(s.wait, WaitPolicy::Auto);
    }

    #[test]
    fn a_bad_value_names_the_variable_and_what_is_allowed() {
        let e = Settings::from_lookup(|n| (n == "FARSIDE_WAIT").then(|| "fast".into())).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Setting);
        let text = e.to_string();
        assert!(text.contains("FARSIDE_WAIT=\"fast\"") && text.contains("park"), "{text}");
    }
}
