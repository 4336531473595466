//! The connection table: the devices that this rank uses to each peer.

use crate::error::{Error, ErrorKind, Result};

/// Maximum number of devices of a job.
pub(crate) const MAX_DEVICES: usize = 6;
/// Minimum length in bytes of a medium-sized read or write, and of a large one.
const MEDIUM_BYTES: usize = 8 << 10;
pub(super) const LARGE_BYTES: usize = 256 << 10;

/// Number of size ranges: small, medium-sized, large.
pub(crate) const SIZES: usize = 3;
const LARGEST_RANGE: usize = SIZES - 1;

/// The size range of a length in bytes.
#[inline(always)]
pub(super) fn size_of(len: usize) -> usize {
    usize::from(len >= MEDIUM_BYTES) + usize::from(len >= LARGE_BYTES)
}

/// A device of a rank, as input of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// The device's number in the job, the same at all ranks that have it.
    pub(crate) number: u8,
    /// The device's kind: the large reads and writes of a pair are striped over devices of one kind.
    pub(crate) kind: u8,
    /// Whether the device is used for reads and writes of each size range.
    pub(crate) carries: [bool; SIZES],
}

/// The device that a routing table names for a size range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// The best device of this kind ([`Member::kind`]); large reads and writes may be striped over all devices of the
    /// kind.
    Kind(u8),
    /// Only the device with this number in the job.
    Device(u8),
}

/// The devices that a routing table names for a peer.
pub(crate) type Choice = [Option<Chosen>; SIZES];

/// The devices to one peer, by their numbers at this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Connection {
    /// Device for reads and writes of each size range; packets use the first.
    pub(super) by_size: [u8; SIZES],
    /// Devices over which large reads and writes are striped, as bits; 0 unless there are several.
    pub(super) rails: u8,
    /// All inter-node devices that both ranks have, as bits; 0 unless there are several. If one fails, the others
    /// continue.
    pub(super) common: u8,
    /// Whether the peer is on this node and reached by shared memory.
    pub(super) on_node: bool,
    /// Whether requests to the peer use several devices, so that one may overtake another.
    pub(super) is_mixed: bool,
}

/// The connections to all ranks.
#[derive(Debug)]
pub(super) struct Table {
    connections: Vec<Connection>,
    /// The device for atomics on regions that ranks of several nodes use; all ranks have it.
    pub(super) domain: u8,
}

impl Table {
    /// The table of rank `me`. `node`: the ranks reached by the intra-node device, which then is device 0. `inter`: the
    /// other devices, best first. `has`: a bit for each device of the job that a rank has, by rank. `chosen`: the
    /// devices that a routing table names, by rank, the same at both ranks of a pair; it may be empty. If the pair does
    /// not have a named device, the order of the devices decides.
    ///
    /// # Errors
    /// `Unsupported` if this rank has no device in common with another one, or if no device is common to all ranks.
    pub(super) fn new(me: u32, node: &[u32], inter: &[Member], has: &[u8], chosen: &[Choice]) -> Result<Self> {
        const OP: &str = "choose devices";
        let first = u8::from(!node.is_empty());
        let lacking = |peer: usize| {
            Error::new(ErrorKind::Unsupported, OP).rank(me).peer(peer).device("route").remedy(
                "give all ranks a device in common in FARSIDE_DEVICES, and see the log (FARSIDE_LOG=info) for devices that do not work",
            )
        };
        let all = has.iter().fold(u8::MAX, |all, one| all & one);
        let domain = inter.iter().position(|member| all >> member.number & 1 == 1);
        let Some(domain) = domain.map(|at| at as u8 + first).or((node.len() == has.len()).then_some(0)) else {
            let with = |number: u8| has.iter().filter(|one| **one >> number & 1 == 1).count();
            let best = inter.iter().max_by_key(|member| with(member.number)).map_or(0, |member| member.number);
            let without = has.iter().position(|one| one >> best & 1 == 0).unwrap_or(me as usize);
            return Err(lacking(without).cause("no inter-node device is common to all ranks"));
        };
        let connection = |(peer, has): (usize, &u8)| {
            if node.contains(&(peer as u32)) {
                return Ok(Connection { by_size: [0; SIZES], rails: 0, common: 0, on_node: true, is_mixed: true });
            }
            let common = || inter.iter().enumerate().filter(|(_, member)| has >> member.number & 1 == 1);
            let place = |at: usize| at as u8 + first;
            let Some((any, _)) = common().next() else { return Err(lacking(peer).cause("no device in common")) };
            let choice = chosen.get(peer).copied().unwrap_or_default();
            let named = |size: usize| match choice[size]? {
                Chosen::Device(number) => common().find(|(_, member)| member.number == number),
                Chosen::Kind(kind) => {
                    let of_kind = || common().filter(move |(_, member)| member.kind == kind);
                    of_kind().find(|(_, member)| member.carries[size]).or_else(|| of_kind().next())
                }
            };
            let first = |size: usize| {
                let found = named(size).or_else(|| common().find(|(_, member)| member.carries[size]));
                found.map_or(any, |(at, _)| at)
            };
            let by_size = std::array::from_fn(|size| place(first(size)));
            let kind = inter[first(LARGEST_RANGE)].kind;
            let alike = common().filter(|(_, member)| member.carries[LARGEST_RANGE] && member.kind == kind);
            let rails = alike.fold(0u8, |bits, (at, _)| bits | 1 << place(at));
            let is_alone = matches!(choice[LARGEST_RANGE], Some(Chosen::Device(_)));
            let rails = if rails.count_ones() > 1 && !is_alone { rails } else { 0 };
            let all = common().fold(0u8, |bits, (at, _)| bits | 1 << place(at));
            let all = if all.count_ones() > 1 && peer != me as usize { all } else { 0 };
            let is_mixed = all != 0 || rails != 0 || by_size.iter().any(|device| *device != domain);
            Ok(Connection { by_size, rails, common: all, on_node: false, is_mixed })
        };
        Ok(Self { connections: has.iter().enumerate().map(connection).collect::<Result<_>>()?, domain })
    }

    #[inline(always)]
    pub(super) fn get(&self, peer: u32) -> Option<&Connection> {
        self.connections.get(peer as usize)
    }

    /// Whether a peer is reached through this device alone.
    pub(super) fn needs(&self, device: u8) -> bool {
        self.connections.iter().any(|c| c.common == 0 && c.by_size.contains(&device))
    }

    /// The devices that execute requests, or would if others failed, as bits.
    pub(super) fn used(&self) -> u8 {
        let of = |c: &Connection| c.by_size.iter().fold(c.common, |bits, device| bits | 1 << device);
        self.connections.iter().fold(1 << self.domain, |bits, connection| bits | of(connection))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u8) -> Member {
        Member { number, kind: number, carries: [true; SIZES] }
    }

    /// Device 0 of the job is shared memory, 1 verbs, 2 tcp.
    #[test]
    fn pairs_use_the_best_device_that_both_have_and_atomics_the_one_that_all_have() {
        let has = [0b111, 0b111, 0b101, 0b111];
        let table = Table::new(0, &[0, 3], &[member(1), member(2)], &has, &[]).unwrap();
        let devices: Vec<[u8; 3]> = (0..4).map(|rank| table.get(rank).unwrap().by_size).collect();
        assert_eq!(devices, [[0; 3], [1; 3], [2; 3], [0; 3]]);
        assert_eq!((table.domain, table.used()), (2, 0b111));
        assert_eq!([0, 1, 2].map(|rank| table.get(rank).unwrap().is_mixed), [true, true, false]);
        assert_eq!([0, 1, 2].map(|rank| table.get(rank).unwrap().common), [0, 0b110, 0]);
        assert_eq!(table.get(4), None);
        // Rank 2 has two devices, which it numbers 0 and 1.
        let table = Table::new(2, &[2], &[member(2)], &has, &[]).unwrap();
        assert_eq!((table.domain, table.get(0).unwrap().by_size, table.get(0).unwrap().is_mixed), (1, [1; 3], false));
        assert!(size_of_connection() <= 8);
    }

    fn size_of_connection() -> usize {
        std::mem::size_of::<Connection>()
    }

    #[test]
    fn sizes_choose_among_the_devices_of_a_pair() {
        let small = Member { carries: [true, false, false], ..member(1) };
        let table = Table::new(0, &[], &[small, member(2)], &[0b110; 2], &[]).unwrap();
        assert_eq!((table.get(1).unwrap().by_size, table.domain), ([0, 1, 1], 0));
        assert_eq!([0, MEDIUM_BYTES - 1, MEDIUM_BYTES, LARGE_BYTES - 1, LARGE_BYTES].map(size_of), [0, 0, 1, 1, 2]);
        // The first device is used for a size range that no device names.
        assert_eq!(Table::new(0, &[], &[small], &[0b10; 2], &[]).unwrap().get(1).unwrap().by_size, [0; 3]);
    }

    #[test]
    fn devices_of_one_kind_are_rails_for_large_transfers() {
        let rail = |number| Member { kind: 7, ..member(number) };
        let table = Table::new(0, &[0], &[rail(1), rail(2), member(3)], &[0b1111, 0b1111, 0b1011], &[]).unwrap();
        let of = |peer| table.get(peer).map(|c| (c.rails, c.is_mixed, c.by_size)).unwrap();
        assert_eq!((of(0), of(1), of(2)), ((0, true, [0; 3]), (0b110, true, [1; 3]), (0, true, [1; 3])));
        // Rank 2 has one of the rails, and another device that takes over if the rail fails.
        assert_eq!([0, 1, 2].map(|peer| table.get(peer).unwrap().common), [0, 0b1110, 0b1010]);
        assert_eq!((table.used(), table.domain), (0b1111, 1));
        let small = Member { carries: [true, true, false], ..rail(2) };
        assert_eq!(Table::new(0, &[], &[rail(1), small], &[0b110; 2], &[]).unwrap().get(1).unwrap().rails, 0);
    }

    #[test]
    fn table_of_routes_chooses_among_the_devices_of_a_pair() {
        let rail = |number| Member { kind: 7, ..member(number) };
        let devices = [rail(1), rail(2), member(3)];
        let of = |choice: Choice, has: u8| {
            let table = Table::new(0, &[0], &devices, &[0b1111, has], &[Choice::default(), choice]).unwrap();
            assert_eq!((table.domain, table.get(0).unwrap().by_size), (1, [0; 3]), "the domain and the node stay");
            table.get(1).map(|c| (c.by_size, c.rails, c.is_mixed)).unwrap()
        };
        let device = |number| Some(Chosen::Device(number));
        assert_eq!(of(Choice::default(), 0b1111), ([1; 3], 0b110, true));
        assert_eq!(of([device(3), None, device(2)], 0b1111), ([3, 1, 2], 0, true));
        assert_eq!(of([Some(Chosen::Kind(3)); 3], 0b1111), ([3; 3], 0, true));
        assert_eq!(of([Some(Chosen::Kind(7)); 3], 0b1111), ([1; 3], 0b110, true));
        // If the pair does not have a named device, the order decides.
        assert_eq!(of([device(3), device(5), Some(Chosen::Kind(9))], 0b0111), ([1; 3], 0b110, true));
        // Both ranks of a pair use the same device for packets, whatever their orders.
        let other = Table::new(1, &[1], &[member(3), rail(1)], &[0b1111, 0b1011], &[[device(3); 3]]).unwrap();
        assert_eq!(other.get(0).unwrap().by_size, [1; 3]);
        assert_eq!(of([device(3); 3], 0b1011).0, [3; 3]);
    }

    #[test]
    fn ranks_without_a_common_device_are_named() {
        let e = Table::new(0, &[0], &[member(1)], &[0b011, 0b101], &[]).unwrap_err();
        assert_eq!((e.kind(), e.blamed_number()), (ErrorKind::Unsupported, Some(1)), "{e}");
        let devices = [member(1), member(2)];
        let e = Table::new(0, &[0], &devices, &[0b111, 0b011, 0b101], &[]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
        // If all ranks are on one node, they need no other device.
        assert_eq!(Table::new(0, &[0, 1], &[], &[1; 2], &[]).unwrap().domain, 0);
    }
}
