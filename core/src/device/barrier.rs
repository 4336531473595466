//! Requests to a barrier in the switch of the network.

/// A request to the in-switch barrier of the network, by the protocol of Hoefler 2005, section 3.1. The device
/// retransmits lost packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierRequest {
    /// Allocates an id for a new group. `Busy` while another such request of this rank is in progress.
    Open {
        /// Receives the group, or [`NO_GROUP`](Self::NO_GROUP) if all ids are in use.
        group: *mut u64,
    },
    /// Makes this rank a member of a group. All members have done so before one of them enters.
    Join {
        /// The group.
        group: u64,
    },
    /// Enters a barrier of a group; complete when all its members have entered it.
    Enter {
        /// The group.
        group: u64,
        /// Number of the barrier in the group: 1, 2, ...
        number: u64,
    },
    /// Releases the id of a group. Members that wait in a barrier of the group get an error. No completion is reported.
    Close {
        /// The group.
        group: u64,
    },
}

impl BarrierRequest {
    /// The value that means no group.
    pub const NO_GROUP: u64 = u64::MAX;
}
