//! The properties of its part of a window that each rank announces. All ranks must use the same protocols, so each uses
//! those that all ranks support; the other fields are for ranks that send to this rank.

use farside_core::wire::{Reader, Writer};

/// Announced in place of an alignment by a rank whose CPU does not apply accumulates for peers.
const NOT_SERVED: u8 = u8::MAX;

/// The announcement of one rank, or the combined announcements of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    /// Whether the rank maps the whole memory of every target.
    pub(super) mapped: bool,
    /// Whether the rank maps the signal array of every target.
    pub(super) signals_mapped: bool,
    /// Whether all ranks have the same element type.
    pub(super) same_element: bool,
    /// The code of that type, 0 for a window of bytes.
    pub(super) element: u64,
    /// The address of its memory modulo 16, if its CPU applies accumulates.
    pub(super) served: Option<u8>,
    /// The handler of packed pieces, or 0.
    pub(super) listens: u16,
    /// The unique number of that handler. The first rank's number identifies the window.
    pub(super) unique: u64,
    /// The handler of transfers by lists, and the maximum numbers of blocks and bytes of a list; 0 without lists.
    pub(super) lists: (u16, u32, u64),
}

impl Announcement {
    pub(super) fn write(&self) -> Vec<u8> {
        let (handler, blocks, bytes) = self.lists;
        let flags = [self.mapped, self.signals_mapped, self.same_element].map(u8::from);
        let w = flags.iter().fold(Writer::new(), |w, flag| w.u8(*flag)).u8(self.served.unwrap_or(NOT_SERVED));
        w.u64(self.element).u32(self.listens.into()).u64(self.unique).u32(handler.into()).u32(blocks).u64(bytes).done()
    }

    /// Reads an announcement. A malformed one is read as an announcement without any property.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut r = Reader::new(bytes);
        let fields = (|| {
            let mut flag = || Some(r.u8()? != 0);
            let (mapped, signals_mapped, same_element) = (flag()?, flag()?, flag()?);
            let served = Some(r.u8()?).filter(|served| *served != NOT_SERVED);
            let element = r.u64()?;
            let (listens, unique) = (r.u32()?.try_into().ok()?, r.u64()?);
            let lists = (r.u32()?.try_into().ok()?, r.u32()?, r.u64()?);
            Some(Self { mapped, signals_mapped, same_element, element, served, listens, unique, lists })
        })();
        fields.unwrap_or(Self {
            mapped: false,
            signals_mapped: false,
            same_element: false,
            element: 0,
            served: None,
            listens: 0,
            unique: 0,
            lists: (0, 0, 0),
        })
    }

    /// Combines two announcements into the properties that both have. Associative.
    pub(super) fn merge(one: &mut [u8], other: &[u8]) {
        let (a, b) = (Self::read(one), Self::read(other));
        let common = Self {
            mapped: a.mapped && b.mapped,
            signals_mapped: a.signals_mapped && b.signals_mapped,
            same_element: a.same_element && b.same_element && a.element == b.element,
            served: a.served.and(b.served),
            lists: (a.lists.0, a.lists.1.min(b.lists.1), a.lists.2.min(b.lists.2)),
            ..a
        };
        one.copy_from_slice(&common.write());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ranks_have_in_common_is_the_least_of_each() {
        let all = Announcement {
            mapped: true,
            signals_mapped: true,
            same_element: true,
            element: 7,
            served: Some(8),
            listens: 3,
            unique: 5,
            lists: (4, 16, 1 << 40),
        };
        assert_eq!(Announcement::read(&all.write()), all);
        let merged = |other: Announcement| {
            let mut one = all.write();
            Announcement::merge(&mut one, &other.write());
            Announcement::read(&one)
        };
        assert_eq!(
            merged(Announcement { served: Some(0), listens: 9, unique: 2, ..all }),
            Announcement { served: Some(0), ..all }
        );
        assert_eq!(merged(Announcement { mapped: false, ..all }), Announcement { mapped: false, ..all });
        assert_eq!(merged(Announcement { element: 0, ..all }), Announcement { same_element: false, ..all });
        let lists = merged(Announcement { served: None, lists: (5, 3, 0), ..all });
        assert_eq!(lists, Announcement { served: None, lists: (4, 3, 0), ..all });
        assert!(!Announcement::read(&[1]).mapped);
    }
}
