//! Start-up: every rank makes its base segment and publishes its endpoint address; then it maps the segments of the
//! others.

use std::cell::{Cell, OnceCell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::arena::{Arena, ImportedSlots};
use super::channel::Channel;
use super::layout::{EAGER, IDENTITY, Layout, MAGIC, REFUSED, STATE, STATE_RUNNING, VM_WORKS};
use super::live::LiveKeys;
use super::node::Node;
use super::open_name::MAX_OPEN_NAMES;
use super::ring::max_packet;
use super::segments::Segments;
use super::{NOT_HERE, ShmDevice, liveness, park, vm};
use crate::device::target::TargetService;
use crate::device::{Capabilities, MessageCutOffs};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::segment::{self, Mapping, Pages, Segment, SegmentName};
use crate::processes::Process;
use crate::settings::{Settings, UserMemory};
use crate::stats::Stats;
use crate::wire::{Reader, Writer};

/// A message that fits into a cell and into half of the ring is sent whole, so the sender need not wait until the target
/// runs. For a longer message both ranks would have to run alternately, once for each filling of the ring, so the
/// target reads it from the sender's memory: two messages and one copy, whatever the length.
fn messages(ring: usize) -> MessageCutOffs {
    let most_eager = ring / 2;
    let eager = EAGER.min(most_eager);
    MessageCutOffs { eager_intra: eager, read_intra: eager + 1, most_eager, ..MessageCutOffs::UNMEASURED }
}

/// A rank that has made its segment but not yet mapped the others'.
pub(crate) struct Prepared {
    me: usize,
    ranks: Vec<u32>,
    layout: Layout,
    own: Segment,
    node: Node,
    asymmetric: bool,
    settings: Settings,
}

/// The segments of all ranks of this node, as one rank has mapped them.
pub(crate) struct MappedPeers {
    peers: Vec<Mapping>,
    processes: Vec<Option<Process>>,
    pids: Vec<(u32, u64)>,
    vm_works: Vec<Cell<bool>>,
    asymmetric: bool,
}

impl MappedPeers {
    /// Whether a rank cannot map all segments ([`Prepared::refuse`]); valid after a fence. This rank has mapped the
    /// segment of such a rank, or is one itself, so all ranks of the node get the same result.
    pub(crate) fn are_refused(&self) -> bool {
        self.peers.iter().any(|peer| peer.word(REFUSED).load(Ordering::SeqCst) != 0)
    }
}

/// The address that a rank publishes so that others can reach it.
pub(super) struct EndpointAddress {
    name: SegmentName,
    base: u64,
    asymmetric: bool,
    sizes: [u64; 2],
    pub(super) node: Node,
}

impl EndpointAddress {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let name = SegmentName::read(&mut r)?;
        let base = r.u64()?;
        let asymmetric = r.u8()? != 0;
        let sizes = [r.u64()?, r.u64()?];
        Some(Self { name, base, asymmetric, sizes, node: Node::read(&mut r)? })
    }
}

impl Prepared {
    /// Makes the base segment of the rank with number `me` in `ranks`, the ranks of the job that the device will
    /// connect.
    ///
    /// # Errors
    /// `SharedMemoryFull`, `System`.
    ///
    /// # Panics
    /// If `ranks` has no index `me`.
    pub(crate) fn new(me: usize, ranks: Vec<u32>, settings: &Settings) -> Result<Self> {
        let dir = PathBuf::from(&settings.shm_dir);
        let node = Node::of(ranks[me], &dir, settings.test_nodes)?;
        let layout = Layout { ranks: ranks.len(), ring: settings.ring(ranks.len()), bounce: settings.shm_bounce };
        let own = Segment::create(&dir, layout.len(), Pages::AtOnce)?;
        let m = own.mapping();
        m.word(IDENTITY).store((me as u64) << 32 | ranks.len() as u64, Ordering::SeqCst);
        m.half(STATE).store(STATE_RUNNING, Ordering::SeqCst);
        m.word(0).store(MAGIC, Ordering::SeqCst);
        Ok(Self { me, ranks, layout, own, node, asymmetric: park::register_barrier(), settings: settings.clone() })
    }

    /// The endpoint address, for the other ranks.
    ///
    /// # Errors
    /// Only for a system failure: the segment's name is open until [`connect`](Self::connect).
    pub(crate) fn address(&self) -> Result<Vec<u8>> {
        let address = self.own.name()?.write(Writer::new());
        let address = address
            .u64(self.own.mapping().at(0).addr() as u64)
            .u8(u8::from(self.asymmetric))
            .u64(self.layout.ring as u64)
            .u64(self.layout.bounce as u64);
        Ok(self.node.write(address).done())
    }

    /// Maps the segments of all other ranks, whose endpoint addresses are given in the order of their numbers; the job
    /// has `size` ranks.
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    pub(crate) fn connect(self, addresses: &[Vec<u8>], size: u32) -> Result<ShmDevice> {
        let peers = self.map(addresses)?;
        Ok(self.join(peers, size))
    }

    /// Informs the ranks that map this rank's segment that it cannot map all their segments.
    pub(crate) fn refuse(&self) {
        self.own.mapping().word(REFUSED).store(1, Ordering::SeqCst);
    }

    /// Maps the segments of all other ranks, whose endpoint addresses are given in the order of their numbers.
    ///
    /// # Errors
    /// `Unsupported` for a rank on another node, `Mismatch` for a rank with other settings, `Forbidden` if the system does
    /// not let this process open the memory of another one; `PeerLost`, `Protocol`, `Limit`.
    pub(crate) fn map(&self, addresses: &[Vec<u8>]) -> Result<MappedPeers> {
        const OP: &str = "connect to the ranks of this node";
        let mut peers = Vec::with_capacity(addresses.len());
        let mut processes = Vec::with_capacity(addresses.len());
        let mut pids = Vec::with_capacity(addresses.len());
        let mut asymmetric = true;
        for (number, (bytes, peer)) in addresses.iter().zip(self.ranks.iter().copied()).enumerate() {
            let fail = |kind| Error::new(kind, OP).rank(self.ranks[self.me]).peer(peer).device("shm");
            let address = EndpointAddress::read(bytes)
                .ok_or_else(|| fail(ErrorKind::Protocol).cause("malformed endpoint address"))?;
            if address.node != self.node {
                return Err(fail(ErrorKind::Unsupported)
                    .cause(format!("the peer is on node `{}`, this rank on `{}`", address.node, self.node))
                    .remedy(
                        "start all ranks on one node, or leave FARSIDE_DEVICE at auto, which uses verbs or tcp between nodes",
                    ));
            }
            if address.sizes != [self.layout.ring as u64, self.layout.bounce as u64]
                || address.name.len != self.own.mapping().len() as u64
            {
                return Err(
                    fail(ErrorKind::Mismatch).cause("FARSIDE_SHM_RING or FARSIDE_SHM_BOUNCE differ between ranks")
                );
            }
            // The process is watched before its segment is mapped: if the segment then opens, the watched process is
            // the right one.
            processes.push(if address.name.pid == std::process::id() {
                None
            } else {
                Some(liveness::watch(address.name.pid, peer)?)
            });
            let mapping = segment::open(address.name, Pages::AtOnce, peer)?;
            let identity = (number as u64) << 32 | addresses.len() as u64;
            if mapping.word(0).load(Ordering::SeqCst) != MAGIC
                || mapping.word(IDENTITY).load(Ordering::SeqCst) != identity
            {
                return Err(fail(ErrorKind::Protocol).cause("the segment belongs to another rank"));
            }
            pids.push((address.name.pid, address.base));
            asymmetric &= address.asymmetric;
            peers.push(mapping);
        }
        let user_memory = self.settings.shm_user_memory;
        let may_use_vm = matches!(user_memory, UserMemory::Auto | UserMemory::Vm);
        let vm_works: Vec<_> =
            pids.iter().map(|(pid, known)| Cell::new(may_use_vm && vm::works(*pid, *known).is_ok())).collect();
        let works = vm_works.iter().all(Cell::get);
        self.own.mapping().word(VM_WORKS).store(u64::from(works), Ordering::SeqCst);
        Ok(MappedPeers { peers, processes, pids, vm_works, asymmetric })
    }

    /// The device over segments that are mapped; the job has `size` ranks.
    pub(crate) fn join(self, mapped: MappedPeers, size: u32) -> ShmDevice {
        let MappedPeers { peers, processes, pids, vm_works, asymmetric } = mapped;
        let user_memory = self.settings.shm_user_memory;
        let layout = self.layout;
        let capabilities = Capabilities {
            max_blocks: 1024,
            mapped: true,
            accumulate: true,
            coherent: true,
            node: self.ranks.clone(),
            sleepers_fence: asymmetric,
            messages: messages(layout.ring),
            ..Capabilities::minimal("shm", layout.max_packet())
        };
        let mut numbers = vec![NOT_HERE; size as usize];
        self.ranks.iter().zip(0..).for_each(|(rank, number)| numbers[*rank as usize] = number);
        // The ranks of a process share its descriptors.
        let in_this_process = processes.iter().filter(|process| process.is_none()).count();
        let names_left = MAX_OPEN_NAMES / in_this_process.max(1);
        let own = (self.me, self.own.mapping());
        let channels = peers.iter().enumerate().map(|peer| Channel::new(&layout, own, peer)).collect();
        let service = layout.service();
        let shared = Arc::new(Segments { me: self.me, ranks: self.ranks, service, own: self.own, peers });
        ShmDevice {
            service: TargetService::new(shared.clone(), layout.ranks),
            sleeper: OnceCell::new(),
            shared,
            channels,
            packet: RefCell::new(vec![0; max_packet(layout.ring)]),
            numbers,
            processes,
            pids,
            capabilities,
            stats: Stats::default(),
            asymmetric,
            arena: Arena::new(Path::new(&self.settings.shm_dir)),
            imported_slots: ImportedSlots::default(),
            moved: RefCell::default(),
            kept: RefCell::default(),
            uses: RefCell::default(),
            live: LiveKeys::default(),
            views: RefCell::default(),
            user_memory,
            buffer_cache: self.settings.buffer_cache,
            vm_works,
            all_use_vm: Cell::new(false),
            check: Duration::from_millis(u64::from(self.settings.peer_check_ms)),
            timeout: self.settings.timeout(),
            owned: RefCell::new(FxHashMap::default()),
            used: RefCell::default(),
            names_left: Rc::new(Cell::new(names_left)),
            places: RefCell::default(),
            imports: RefCell::new(FxHashMap::default()),
            last: Cell::new(0),
            first: Cell::new(0),
        }
    }
}

/// Reports whether and how the device works here, for `farside info`.
///
/// # Errors
/// The reason why the device does not work.
pub(crate) fn probe(settings: &Settings) -> Result<String> {
    let dir = PathBuf::from(&settings.shm_dir);
    let segment = Segment::create(&dir, 1, Pages::AtOnce)?;
    segment::open(segment.name()?, Pages::AtOnce, 0)?;
    let byte = 0u8;
    let vm = match vm::works(std::process::id(), (&raw const byte).addr() as u64) {
        Ok(()) => "process_vm works".to_owned(),
        Err(e) => format!("no process_vm ({e})"),
    };
    let barrier = if park::register_barrier() { "sleeping by membarrier" } else { "sleeping by full fences" };
    Ok(format!("windows mapped from {}; atomics coherent; {vm}; {barrier}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_that_is_not_read_fits_into_half_of_the_ring() {
        let cut_offs = |ring| {
            let MessageCutOffs { eager_intra, read_intra, most_eager, .. } = messages(ring);
            [eager_intra, read_intra, most_eager]
        };
        assert_eq!(cut_offs(8192), [4096, 4097, 4096]);
        assert_eq!(cut_offs(1 << 20), [EAGER, EAGER + 1, 1 << 19]);
    }

    #[test]
    fn probe_names_a_directory_that_cannot_be_used() {
        let settings = Settings::from_lookup(|n| (n == "FARSIDE_SHM_DIR").then(|| "/nowhere".into())).unwrap();
        assert!(probe(&settings).unwrap_err().to_string().contains("/nowhere"));
        let settings = Settings::from_lookup(|_| None).unwrap();
        assert!(probe(&settings).unwrap().contains("/dev/shm"));
    }
}
