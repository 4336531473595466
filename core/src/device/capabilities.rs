//! Limits and guarantees of a device, and the sizes at which its protocols change.

use crate::settings::Transfer;

/// Limits and guarantees of a device. Each field determines a decision above the device seam.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The name of the device, for messages and statistics.
    pub name: &'static str,
    /// The ranks whose memory this rank can map, including itself; empty if the device maps none.
    pub node: Vec<u32>,
    /// The lowest rank of each rank's node, by rank, the same at all ranks; empty if the device does not know the
    /// nodes, or is as fast within a node as between nodes.
    pub nodes: Vec<u32>,
    /// Maximum length in bytes of the keys of regions, a multiple of 8, the same at all ranks; at most
    /// [`MAX_KEY`](super::MAX_KEY).
    pub max_key: usize,
    /// Maximum number of blocks in one gather or scatter list.
    pub max_blocks: usize,
    /// Maximum length in bytes of a packet, header and body.
    pub max_packet: usize,
    /// Maximum length in bytes of a packet that the device sends from the caller's memory, and whose completion it
    /// reports; at most [`max_packet`](Self::max_packet) if it has no such packets.
    pub max_lent_packet: usize,
    /// Whether peers store into this rank's memory without a completion at this rank, so that a rank that waits for a
    /// signal cell only needs to read the cell.
    pub mapped: bool,
    /// When a write is visible at its target. Unless it is visible [in order](Placement::InOrder),
    /// [`service`](crate::service) makes signals and atomics wait for earlier writes.
    pub placement: Placement,
    /// Whether the device has atomics on words of 8 bytes. If not, it supports no [`Update`](super::Update), and
    /// [`service`](crate::service) sends every update in a packet to the target, whose processor makes it.
    pub atomics: bool,
    /// Whether every operation on memory of a rank takes effect while the rank computes, by the network or an agent. If
    /// not, updates take effect while the rank is inside the runtime.
    pub passive: bool,
    /// Whether the device supports every [`Update`](super::Update). If not, it supports only
    /// [`Add`](super::Change::Add) and [`CompareSwap`](super::Change::CompareSwap) on a word of 8 bytes, and
    /// [`service`](crate::service) composes the other updates from these.
    pub(crate) accumulate: bool,
    /// Whether atomics and accumulates are coherent with atomic operations of the ranks' processors on the same memory,
    /// because processors execute them.
    pub coherent: bool,
    /// Limits of [`Operation::List`](super::Operation::List); `None` if the device does not support them.
    pub lists: Option<Lists>,
    /// Sizes at which the protocol of a transfer between two layouts changes.
    pub cut_offs: CutOffs,
    /// Sizes at which the protocol of a message changes.
    pub messages: MessageCutOffs,
    /// Whether the waiting side pays for the store-load fence, so that a writer may check the sleeper flag right after
    /// its store to mapped memory.
    pub sleepers_fence: bool,
    /// Whether a rank may access its own region, and set its own cells, by loads and stores although it is not mapped,
    /// while other operations on it go through the device; atomics and accumulates too, unless they are `coherent`.
    pub own_by_copy: bool,
    /// The in-switch barrier of the network ([`Operation::Barrier`](super::Operation::Barrier)); `None` if the network
    /// has none.
    pub switch: Option<SwitchLimits>,
}

impl Capabilities {
    /// The simplest device: packets, writes, reads and atomics on words of 8 bytes, one block at a time.
    #[must_use]
    pub fn minimal(name: &'static str, max_packet: usize) -> Self {
        Self {
            name,
            node: Vec::new(),
            nodes: Vec::new(),
            max_key: 96,
            max_blocks: 1,
            max_packet,
            max_lent_packet: 0,
            mapped: false,
            placement: Placement::InOrder,
            atomics: true,
            passive: true,
            accumulate: false,
            coherent: false,
            lists: None,
            cut_offs: CutOffs::UNMEASURED,
            messages: MessageCutOffs::UNMEASURED,
            sleepers_fence: false,
            own_by_copy: false,
            switch: None,
        }
    }
}

/// When a write is visible at its target to the target's processor, and to reads and atomics of other ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Before every atomic, notification and signal to an unmapped cell that the rank posts to the target after it, and when
    /// it completes.
    #[default]
    InOrder,
    /// When it completes. Writes may be placed in any order, and atomics and signals may overtake them.
    AtCompletion,
    /// When a read of the target completes that the rank posted after the write had completed: the completion comes from
    /// the target's interface, not from its memory (`fi_cxi(7)`). Atomics and signals may overtake writes.
    AtRead,
}

/// Limits of the in-switch barrier of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchLimits {
    /// Maximum number of groups at a time.
    pub groups: u32,
    /// Smallest number of nodes (ranks, unless several share a node) at which the in-switch barrier takes less time
    /// than ⌈log2 N⌉ rounds of signals between them. With fewer nodes it is used only if the setting `FARSIDE_COLL`
    /// selects it.
    pub least_nodes: u32,
}

/// Limits of one scatter or gather list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lists {
    /// Maximum number of blocks.
    pub blocks: usize,
    /// Maximum number of bytes.
    pub bytes: usize,
}

/// Sizes in bytes, measured on a device, at which the protocol of a transfer between two layouts changes. The fields
/// have the meaning of those of `farside_datatype::CutOffs`, which plans transfers with them; a device does not
/// interpret layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutOffs {
    /// Shortest block for which a gathering write or a scattering read is used although the target could help instead.
    pub gather_block: u64,
    /// Shortest block for which one request per block is better than every protocol with the target's help.
    pub multi_w_block: u64,
    /// Shortest block for which lists on both sides are better than packing.
    pub sgrs_block: u64,
    /// Shortest message for which lists on both sides pay.
    pub sgrs_bytes: u64,
    /// Packed bytes per segment, so that packing, sending and unpacking overlap.
    pub segment: u64,
}

impl CutOffs {
    /// Values for a device that was not measured.
    pub const UNMEASURED: Self =
        Self { gather_block: 256, multi_w_block: 32 << 10, sgrs_block: 128, sgrs_bytes: 64 << 10, segment: 64 << 10 };

    /// Replaces the values that the setting names.
    #[must_use]
    pub fn adjusted(self, by: &Transfer) -> Self {
        Self {
            gather_block: by.gather_block.unwrap_or(self.gather_block),
            multi_w_block: by.multi_w_block.unwrap_or(self.multi_w_block),
            sgrs_block: by.sgrs_block.unwrap_or(self.sgrs_block),
            sgrs_bytes: by.sgrs_message.unwrap_or(self.sgrs_bytes),
            segment: by.segment.unwrap_or(self.segment),
        }
    }
}

/// Sizes in bytes of data, measured on a device, at which the protocol of an active message changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageCutOffs {
    /// Longest message of several packets that is sent eagerly, without asking the target, to a target on the sender's
    /// node.
    pub eager_intra: usize,
    /// `eager_intra` for a target on another node.
    pub eager_inter: usize,
    /// Maximum of the fitted values within a node: the capacity of the device's buffers while the target does not
    /// run; 0 if no value is fitted.
    pub(crate) most_eager: usize,
    /// Shortest message that a target on the sender's node reads from the sender's memory
    /// ([`Region::brief`](super::Region::brief)). Only a message that is too long to be sent eagerly, or whose memory
    /// peers can map, is read.
    pub read_intra: usize,
    /// `read_intra` for a target on another node.
    pub read_inter: usize,
}

impl MessageCutOffs {
    /// Values for a device that was not measured: every message longer than one packet is a rendezvous, and none is
    /// read from the sender's memory.
    pub(crate) const UNMEASURED: Self =
        Self { eager_intra: 0, eager_inter: 0, most_eager: 0, read_intra: usize::MAX, read_inter: usize::MAX };

    /// Replaces the values that the setting names.
    #[must_use]
    pub fn adjusted(self, by: &Transfer) -> Self {
        let or = |bytes: Option<u64>, measured| bytes.map_or(measured, |n| usize::try_from(n).unwrap_or(usize::MAX));
        Self {
            eager_intra: or(by.eager, self.eager_intra),
            eager_inter: or(by.eager, self.eager_inter),
            most_eager: self.most_eager,
            read_intra: or(by.read_intra, self.read_intra),
            read_inter: or(by.read_inter, self.read_inter),
        }
    }
}
