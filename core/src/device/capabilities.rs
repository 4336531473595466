//! What a device can do, and from which sizes on one way is better than another.

use crate::settings::Transfer;

/// What a device can do and how much of it. Each entry steers something above the seam.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The name of the device, for messages and statistics.
    pub name: &'static str,
    /// The ranks whose memory this rank can map, itself among them; empty where the device maps none.
    pub node: Vec<u32>,
    /// Most blocks in one gather or scatter list.
    pub max_blocks: usize,
    /// Largest packet of [`Operation::Send`](super::Operation::Send), header and body.
    pub max_packet: usize,
    /// Whether peers store into this rank's memory without a completion here, so that a rank that waits for a signal
    /// cell need only look at the cell.
    pub mapped: bool,
    /// Whether the device does [`Operation::Accumulate`](super::Operation::Accumulate), and
    /// [`Operation::CompareSwap`](super::Operation::CompareSwap) on integers of 1, 2 and 4 bytes.
    /// If not, [`service`](crate::service) does them by steps of what the device has.
    pub accumulate: bool,
    /// Limits of [`Operation::Scatter`](super::Operation::Scatter) and [`Operation::Gather`](super::Operation::Gather);
    /// `None` where the device does not have them.
    pub lists: Option<Lists>,
    /// Where one way of a transfer between two layouts becomes better than another.
    pub cut_offs: CutOffs,
    /// Where one way of a message becomes better than another.
    pub messages: MessageCutOffs,
    /// Whether the waiting side pays for the store-load fence, so that a writer may check the sleeper flag right after
    /// its store to mapped memory.
    pub sleepers_fence: bool,
    /// Whether a rank may read and write its own region, and set its own cells, by loads and stores although it is not
    /// mapped, beside what goes through the device; atomics and accumulates still do.
    pub own_by_copy: bool,
}

impl Capabilities {
    /// What the simplest device has: packets, writes, reads and atomics on words of 8 bytes, one block at a time.
    #[must_use]
    pub fn minimal(name: &'static str, max_packet: usize) -> Self {
        Self {
            name,
            node: Vec::new(),
            max_blocks: 1,
            max_packet,
            mapped: false,
            accumulate: false,
            lists: None,
            cut_offs: CutOffs::UNMEASURED,
            messages: MessageCutOffs::UNMEASURED,
            sleepers_fence: false,
            own_by_copy: false,
        }
    }
}

/// Limits of one scatter or gather list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lists {
    /// Most blocks.
    pub blocks: usize,
    /// Most bytes.
    pub bytes: usize,
}

/// Where one way to move blocks becomes better than another, as measured on a device; in bytes. The meaning of each is
/// that of `farside_datatype::CutOffs`, which plans with them; the device knows no layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutOffs {
    /// Shortest block for which a write gathers or a read scatters, when the target could help instead.
    pub gather_block: u64,
    /// Shortest block for which one request a block is better than every way with the target's help.
    pub multi_w_block: u64,
    /// Shortest block for which lists on both sides are better than packing.
    pub sgrs_block: u64,
    /// Shortest message for which lists on both sides pay.
    pub sgrs_bytes: u64,
    /// Packed bytes of a piece, so that packing, sending and unpacking overlap.
    pub segment: u64,
}

impl CutOffs {
    /// What a device has for which nothing was measured: packing for blocks below 128 bytes in messages below 64 KiB.
    pub const UNMEASURED: Self =
        Self { gather_block: 256, multi_w_block: 32 << 10, sgrs_block: 128, sgrs_bytes: 64 << 10, segment: 64 << 10 };

    /// With the byte counts of a setting in place of those that it names.
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

/// Where one way of an active message becomes better than another, as measured on a device; in bytes of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageCutOffs {
    /// Longest message of several packets that is sent without asking the target.
    pub eager: usize,
    /// Shortest message that a target on the sender's node reads out of the sender's memory
    /// ([`Region::brief`](super::Region::brief)).
    pub read_intra: usize,
    /// The same where ranks of the node share processors, and would take turns to move the packets.
    pub read_oversubscribed: usize,
    /// The same for a target on another node.
    pub read_inter: usize,
}

impl MessageCutOffs {
    /// What a device has for which nothing was measured: more than one packet is sent when the target has a place for it.
    pub const UNMEASURED: Self =
        Self { eager: 0, read_intra: usize::MAX, read_oversubscribed: usize::MAX, read_inter: usize::MAX };

    /// With the byte counts of a setting in place of those that it names.
    #[must_use]
    pub fn adjusted(self, by: &Transfer) -> Self {
        let or = |bytes: Option<u64>, measured| bytes.map_or(measured, |n| usize::try_from(n).unwrap_or(usize::MAX));
        Self {
            eager: or(by.eager, self.eager),
            read_intra: or(by.read_intra, self.read_intra),
            read_oversubscribed: or(by.read_intra, self.read_oversubscribed),
            read_inter: or(by.read_inter, self.read_inter),
        }
    }
}
