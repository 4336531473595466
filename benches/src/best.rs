//! Several measurements of the same made one: whatever else the machine does makes times longer, never shorter.

use std::collections::BTreeMap;

use crate::record::{Key, Library, Record};

/// Of the records with the same library and key, the one with the smallest time, in the order of first appearance.
#[must_use]
pub fn best(records: &[Record]) -> Vec<Record> {
    let mut places: BTreeMap<(Library, Key), usize> = BTreeMap::new();
    let mut best: Vec<Record> = Vec::new();
    for record in records {
        let place = *places.entry((record.library, record.key())).or_insert(best.len());
        match best.get_mut(place) {
            None => best.push(record.clone()),
            Some(held) if record.us() < held.us() => *held = record.clone(),
            Some(_) => {}
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Op;
    use crate::table::tests::record;

    #[test]
    fn best_keeps_the_smallest_median_of_each() {
        let records = [
            record(Library::Mpich, Op::Put, 8, 3.0),
            record(Library::Farside, Op::Put, 8, 2.0),
            record(Library::Mpich, Op::Put, 8, 1.0),
            record(Library::Mpich, Op::Put, 64, 5.0),
            record(Library::Mpich, Op::Put, 8, 2.0),
        ];
        let kept: Vec<_> = best(&records).iter().map(|r| (r.library, r.bytes, r.us_median)).collect();
        assert_eq!(kept, [(Library::Mpich, 8, 1.0), (Library::Farside, 8, 2.0), (Library::Mpich, 64, 5.0)]);
    }
}
