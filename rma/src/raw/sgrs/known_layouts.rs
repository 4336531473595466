//! The layouts that a target has already received: each is sent once and afterwards referred to by its name.

use rustc_hash::FxHashMap;

use super::message::{LAYOUTS, Named};

/// The layouts that one target has received.
#[derive(Default)]
pub(super) struct KnownLayouts {
    version: u32,
    names: FxHashMap<Vec<u8>, u32>,
}

impl KnownLayouts {
    /// The version and the names of two layouts. The name of a new layout includes the length of its wire form.
    pub(super) fn names(&mut self, wires: [&[u8]; 2]) -> (u32, [Named; 2]) {
        if self.names.len() + 2 > LAYOUTS {
            self.forget();
        }
        let version = self.version;
        let names = wires.map(|wire| {
            let next = self.names.len() as u32;
            match self.names.get(wire) {
                Some(id) => Named { id: *id, len: None },
                None => {
                    self.names.insert(wire.to_vec(), next);
                    Named { id: next, len: Some(wire.len() as u32) }
                }
            }
        });
        (version, names)
    }

    pub(super) fn forget(&mut self) {
        self.version = self.version.wrapping_add(1);
        self.names.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_told_once_in_each_version() {
        let mut known = KnownLayouts::default();
        let (a, b) = (&b"first"[..], &b"second"[..]);
        let new = |id, wire: &[u8]| Named { id, len: Some(wire.len() as u32) };
        let old = |id| Named { id, len: None };
        assert_eq!(known.names([a, b]), (0, [new(0, a), new(1, b)]));
        assert_eq!(known.names([b, a]), (0, [old(1), old(0)]));
        assert_eq!(known.names([b, b]), (0, [old(1), old(1)]));
        known.forget();
        assert_eq!(known.names([a, a]), (1, [new(0, a), old(0)]), "one layout on both sides");
        for i in 0..1000u32 {
            let (_, names) = known.names([&i.to_le_bytes(), a]);
            assert!(names.iter().all(|n| (n.id as usize) < LAYOUTS));
        }
        assert!(known.version > 1 && known.names.len() <= LAYOUTS);
    }
}
