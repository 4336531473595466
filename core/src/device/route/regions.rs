//! Regions in several devices: keys, the handles of a rank's own regions, and the devices by which a peer's region is
//! accessed.
//!
//! A key begins with a byte in which a bit is set for each device of the job with which the region is registered. The
//! devices' own keys follow in the order of their numbers, each but the last after a byte with its length.

use super::table::{MAX_DEVICES, SIZES, size_of};
use crate::device::Operation;
use crate::device::imports::ImportedRegion;

/// The handle of a region in a device with which it is not registered.
pub(super) const NO_HANDLE: u64 = u64::MAX;

/// Handles of a region in the devices of this rank.
pub(super) type Handles = [u64; MAX_DEVICES];

/// Joins keys of devices, in ascending order of the devices' numbers in the job.
pub(super) fn write_key(keys: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut all = vec![keys.iter().fold(0, |bits, (number, _)| bits | 1 << number)];
    for (at, (_, key)) in keys.iter().enumerate() {
        if at + 1 < keys.len() {
            all.push(key.len() as u8);
        }
        all.extend(key);
    }
    all
}

/// The keys of the devices, by their numbers in the job; `None` for a malformed key.
pub(super) fn read_key(key: &[u8]) -> Option<[Option<&[u8]>; MAX_DEVICES]> {
    let (bits, mut rest) = key.split_first()?;
    let mut keys = [None; MAX_DEVICES];
    if *bits == 0 || bits >> MAX_DEVICES != 0 {
        return None;
    }
    for (number, slot) in keys.iter_mut().enumerate().filter(|(number, _)| bits >> number & 1 == 1) {
        if bits >> number == 1 {
            *slot = Some(std::mem::take(&mut rest));
            continue;
        }
        let (len, after) = rest.split_first()?;
        let (one, after) = after.split_at_checked(usize::from(*len))?;
        (*slot, rest) = (Some(one), after);
    }
    Some(keys)
}

/// A peer's region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Imported {
    pub(super) peer: u32,
    /// Device for reads and writes of each range of sizes.
    pub(super) by_size: [u8; SIZES],
    /// Devices over which large reads and writes are striped, as bits; 0 unless there are several.
    pub(super) rails: u8,
    /// Device for atomics and accumulates.
    pub(super) atomic: u8,
    /// Device for signals.
    pub(super) signal: u8,
    /// Whether writes are complete when they have been posted.
    pub(super) is_mapped: bool,
    /// Whether the region has accumulates.
    pub(super) has_accumulates: bool,
    /// Whether requests to the peer use several devices, so that one may overtake another.
    pub(super) is_mixed: bool,
    /// Whether this rank and the peer have several inter-node devices in common, of which the others continue if one
    /// fails.
    pub(super) has_spare: bool,
    pub(super) handles: Handles,
}

/// The device for an operation on a region, and what decides how the operation is posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) device: u8,
    /// The device's handle of the region.
    pub(super) handle: u64,
    /// Whether a write is complete when it has been posted.
    pub(super) is_mapped: bool,
    /// Whether large reads and writes of the region are striped.
    pub(super) has_rails: bool,
    /// As in [`Imported`].
    pub(super) is_mixed: bool,
    pub(super) has_spare: bool,
    /// Whether the operation is neither striped nor repeated, and no later request may overtake it.
    pub(super) is_plain: bool,
}

impl Imported {
    /// A region that is accessed through a single device.
    pub(super) fn alone(peer: u32, device: u8, handle: u64) -> Self {
        let mut handles = [NO_HANDLE; MAX_DEVICES];
        handles[usize::from(device)] = handle;
        Self {
            peer,
            by_size: [device; SIZES],
            rails: 0,
            atomic: device,
            signal: device,
            is_mapped: false,
            has_accumulates: false,
            is_mixed: false,
            has_spare: false,
            handles,
        }
    }

    /// The device for an operation on the region, or for a signal.
    #[inline(always)]
    pub(super) fn find(&self, operation: Option<&Operation<'_>>) -> Found {
        let device = match operation {
            Some(Operation::Transfer(_)) if self.by_size == [self.by_size[0]; SIZES] => self.by_size[0],
            Some(Operation::Transfer(transfer)) => self.by_size[size_of(transfer.len())],
            None | Some(Operation::Signal { .. }) => self.signal,
            Some(_) => self.atomic,
        };
        let Self { is_mixed, has_spare, .. } = *self;
        let (handle, is_mapped) = (self.handles[usize::from(device)], self.is_mapped && device == 0);
        let has_rails = self.rails != 0;
        let is_plain = (is_mapped || !is_mixed) && !has_rails && !has_spare;
        Found { device, handle, is_mapped, has_rails, is_mixed, has_spare, is_plain }
    }
}

impl ImportedRegion for Imported {
    #[inline(always)]
    fn peer(&self) -> u32 {
        self.peer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_back_and_others_are_refused() {
        let keys = [(0, vec![1, 2, 3]), (2, vec![4; 200]), (5, vec![])];
        for first in 0..3 {
            for last in first..3 {
                let key = write_key(&keys[first..=last]);
                let mut expected = [None; MAX_DEVICES];
                keys[first..=last].iter().for_each(|(number, key)| expected[usize::from(*number)] = Some(&key[..]));
                assert_eq!(read_key(&key), Some(expected));
                if first < last {
                    (0..2 + keys[first].1.len()).for_each(|len| assert_eq!(read_key(&key[..len]), None, "{len}"));
                }
            }
        }
        for key in [&[][..], &[0], &[0, 1, 2], &[1 << MAX_DEVICES, 1], &[0b11], &[0b11, 3, 0]] {
            assert_eq!(read_key(key), None, "{key:?}");
        }
    }
}
