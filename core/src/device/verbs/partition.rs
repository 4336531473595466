//! Partitions of an InfiniBand subnet. The highest bit of a partition key means full membership, the others are the
//! number of the partition. Ports reach each other in a partition of which both are members, one of them at least a full
//! one.

use crate::error::{Error, ErrorKind, Result};

const FULL: u16 = 0x8000;
/// The key of ports that have none of their own, such as those of Ethernet.
const DEFAULT: u16 = 0xffff;

/// Index and value of the key to use among those of the port: of partition `wanted`, or else of the first one, in both
/// cases with full membership if there is such a key.
///
/// # Errors
/// `Setting` if the port is not in the partition.
pub(super) fn choose(keys: &[u16], wanted: Option<u16>) -> Result<(u16, u16)> {
    let is_wanted = |key: u16| key != 0 && wanted.is_none_or(|wanted| key & !FULL == wanted & !FULL);
    let first = |full: u16| keys.iter().position(|key| is_wanted(*key) && key & full == full);
    match (first(FULL).or_else(|| first(0)), wanted) {
        (Some(index), _) => Ok((index as u16, keys[index])),
        (None, None) => Ok((0, DEFAULT)),
        (None, Some(wanted)) => {
            let keys: Vec<String> = keys.iter().filter(|k| **k != 0).map(|k| format!("{k:#06x}")).collect();
            Err(Error::new(ErrorKind::Setting, "open a verbs device")
                .device("verbs")
                .cause(format!("the port is not in partition {wanted:#06x}; its partitions are {}", keys.join(", ")))
                .remedy("correct FARSIDE_VERBS_PKEY"))
        }
    }
}

/// The reason why ports with these keys do not reach each other, if they do not.
pub(super) fn apart(own: u16, peer: u16) -> Option<String> {
    if own & !FULL != peer & !FULL {
        return Some(format!("this rank's port is in partition {own:#06x}, the peer's in {peer:#06x}"));
    }
    ((own | peer) & FULL == 0)
        .then(|| format!("both ports are limited members of partition {own:#06x}, which do not reach each other"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_is_found_by_its_number_and_full_membership_is_preferred() {
        let keys = [0x7fff, 0, 0xffff, 0x8001, 0x0002];
        for (wanted, expected) in
            [(None, (2, 0xffff)), (Some(0x7fff), (2, 0xffff)), (Some(0x0001), (3, 0x8001)), (Some(0x8002), (4, 0x0002))]
        {
            assert_eq!(choose(&keys, wanted).unwrap(), expected, "{wanted:?}");
        }
        for absent in [0x8003, 0] {
            let e = choose(&keys, Some(absent)).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Setting);
            assert!(e.to_string().contains("0x7fff, 0xffff, 0x8001, 0x0002"), "{e}");
        }
        // A storage partition first, as on some clouds; limited members only; a port without keys.
        assert_eq!(choose(&[0x0001, 0x8007], None).unwrap(), (1, 0x8007));
        assert_eq!(choose(&[0, 0x0001], None).unwrap(), (1, 0x0001));
        assert_eq!(choose(&[], None).unwrap(), (0, 0xffff));
    }

    #[test]
    fn ports_of_two_partitions_and_two_limited_members_are_apart() {
        for (own, peer) in [(0xffff, 0xffff), (0x8001, 0x0001), (0x0001, 0x8001)] {
            assert_eq!(apart(own, peer), None);
        }
        let why = apart(0x8001, 0xffff).unwrap();
        assert!(why.contains("0x8001") && why.contains("0xffff"), "{why}");
        assert!(apart(0x0001, 0x0001).unwrap().contains("limited members of partition 0x0001"));
    }
}
