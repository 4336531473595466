//! Collectives: the measurements, the algorithms, and the predictions of a model for each.

pub(crate) mod command;
pub(crate) mod report;

use farside_core::coll::operation::{Call, Neighbors, Operation};
use farside_core::coll::schedule::predict::{Bytes, Model, PLogP, Table, predict_algorithm};
use farside_core::coll::selection::{Choice, Facts, Placement, row};
use farside_core::coll::table;
use farside_core::model::Models;
use farside_core::settings::{DeviceChoice, Settings};

use crate::record::{Library, Op, Record};

/// Bytes of an element: a double.
pub(crate) const ELEMENT: u64 = 8;
/// The minimum length at which algorithms with segments are also measured with segments of [`SEGMENT_SIZES`] bytes.
const MIN_SEGMENTED_BYTES: u64 = 256 << 10;
const SEGMENT_SIZES: [u64; 2] = [32 << 10, 128 << 10];

/// The collective operation of a key.
pub(crate) fn operation(op: Op) -> Option<Operation> {
    Operation::ALL.into_iter().find(|operation| operation.name() == op.name())
}

/// Every operation, as in keys.
pub(crate) fn operations() -> Vec<Op> {
    Op::ALL.iter().copied().filter(|op| operation(*op).is_some()).collect()
}

/// A collective with a vector or blocks of `bytes` bytes; root 0. The ranks are on one node, or, where `FARSIDE_DEVICE` is
/// verbs, each on a node of its own.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The operation.
    pub(crate) operation: Operation,
    /// Number of ranks.
    pub(crate) ranks: u32,
    /// Bytes of the vector or of a block.
    pub(crate) bytes: u64,
    is_between_nodes: bool,
    /// For each rank, the ranks before and after it on a ring, which are its sources and destinations.
    ring: Vec<[u32; 2]>,
}

impl Case {
    /// A case on doubles.
    pub(crate) fn new(operation: Operation, ranks: u32, bytes: u64) -> Self {
        let ring = (0..ranks).map(|rank| [(rank + ranks - 1) % ranks, (rank + 1) % ranks]).collect();
        let is_between_nodes = Settings::from_env().is_ok_and(|settings| settings.device == DeviceChoice::Verbs);
        Self { operation, ranks, bytes, is_between_nodes, ring }
    }

    /// The same with each rank on a node of its own, if `is_so`.
    pub(crate) fn between_nodes(self, is_so: bool) -> Self {
        Self { is_between_nodes: self.is_between_nodes || is_so, ..self }
    }

    fn call(&self, rank: u32) -> Call<'_> {
        let ring = &self.ring[rank as usize];
        let neighbors = Neighbors { sources: ring, destinations: ring };
        // A reduction on a team works in place.
        let in_place = self.operation.is_reduction() && self.operation.is_of_a_vector();
        let call = Call::new(self.operation, rank, self.ranks);
        Call { neighbors, in_place, elements: self.bytes / ELEMENT, lends: !self.is_between_nodes, ..call }
    }

    fn facts(&self) -> Facts {
        let processors = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
        let oversubscribed = self.ranks as usize > processors;
        let placement = match (self.is_between_nodes, oversubscribed) {
            (true, _) => Placement::Anywhere,
            (false, true) => Placement::OversubscribedNode,
            (false, false) => Placement::OneNode,
        };
        Facts::new(&self.call(0), ELEMENT, true, placement)
    }

    /// The choice of the selection table.
    pub(crate) fn selected(&self) -> Choice {
        row(&self.call(0), &self.facts()).1
    }

    /// The algorithms that can implement the operation (all, or only the given ones), and the selected algorithm.
    pub(crate) fn choices(&self, named: &[String]) -> Vec<Choice> {
        let mut all: Vec<Choice> = Vec::new();
        let facts = self.facts();
        let mut add = |choice: Choice| {
            let known = all.iter().any(|other| other.to_string() == choice.to_string());
            if !known && choice.applies(&self.call(0), &facts) {
                all.push(choice);
            }
        };
        add(self.selected());
        named.iter().filter_map(|name| Choice::parse(self.operation, name).ok()).for_each(&mut add);
        for algorithm in table::of(self.operation).filter(|_| named.is_empty()) {
            let segments = algorithm.parameters.iter().position(|p| p.name == "segments");
            if let Some(at) = segments.filter(|_| self.bytes >= MIN_SEGMENTED_BYTES) {
                for bytes in SEGMENT_SIZES {
                    let mut parameters = algorithm.defaults();
                    parameters[at] = (self.bytes / bytes) as u32;
                    add(Choice { algorithm, parameters: algorithm.within_limits(&parameters) });
                }
            }
            add(Choice { algorithm, parameters: algorithm.defaults() });
        }
        all
    }

    /// The time that a model predicts, in the model's unit.
    pub(crate) fn predicted(&self, choice: &Choice, model: &impl Model) -> Option<f64> {
        let of = |rank| Call { parameters: &choice.parameters, ..self.call(rank) };
        let vector = self.operation.is_of_a_vector();
        let bytes = if vector { Bytes::Vector(self.bytes) } else { Bytes::Each(self.bytes) };
        predict_algorithm(choice.algorithm, of, bytes, model).ok().map(|prediction| prediction.time)
    }
}

/// The parameters of pLogP, in microseconds, from round trips of messages ([`Op::Pingpong`]) between two of `ranks`
/// ranks and from the time of reducing a byte. Half the time of the shortest message is taken as latency, and a quarter
/// as the overhead of either side, for longer messages too: a round trip does not separate them.
pub(crate) fn model(records: &[Record], ranks: u32, reduction: f64) -> Option<PLogP> {
    let is_trip = |r: &&Record| (r.library, r.key.op, r.key.ranks) == (Library::Farside, Op::Pingpong, ranks);
    let mut one_way: Vec<(u64, f64)> = records.iter().filter(is_trip).map(|r| (r.key.bytes, r.us() / 2.0)).collect();
    one_way.sort_by_key(|(bytes, _)| *bytes);
    let (least, shortest) = *one_way.first()?;
    let latency = shortest / 2.0;
    let overhead = Table(vec![(least, shortest / 4.0)]);
    let gap = Table(one_way.into_iter().map(|(bytes, us)| (bytes, us - latency)).collect());
    Some(PLogP { latency, gap, send_overhead: overhead.clone(), receive_overhead: overhead, reduction })
}

/// The parameters of pLogP, in microseconds, that `farside tune` has stored for ranks of this machine.
pub(crate) fn stored(settings: &Settings) -> Option<PLogP> {
    let models = Models::load(settings, "shm")?;
    let PLogP { latency, gap, send_overhead, receive_overhead, reduction } = models.p_log_p();
    let table = |table: &Table| Table(table.0.iter().map(|(bytes, ns)| (*bytes, ns / 1e3)).collect());
    let [gap, send_overhead, receive_overhead] = [gap, send_overhead, receive_overhead].map(table);
    Some(PLogP { latency: latency / 1e3, gap, send_overhead, receive_overhead, reduction: reduction / 1e3 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Key, Suite};

    fn trip(bytes: u64, us: f64) -> Record {
        let key = Key { suite: Suite::Coll, op: Op::Pingpong, bytes, ranks: 4, ..Key::default() };
        Record::from_blocks(Library::Farside, key, 1, &[us]).unwrap()
    }

    #[test]
    fn every_operation_has_its_name_in_keys() {
        assert_eq!(operations().len(), Operation::ALL.len());
    }

    #[test]
    fn choices_hold_the_selected_one_and_every_algorithm_once() {
        for operation in Operation::ALL {
            for (ranks, bytes) in [(2, 8), (6, 65536), (8, 1 << 20)] {
                let case = Case::new(operation, ranks, bytes);
                let names: Vec<String> = case.choices(&[]).iter().map(ToString::to_string).collect();
                assert_eq!(names[0], case.selected().to_string());
                assert_eq!(names.iter().filter(|name| **name == names[0]).count(), 1);
            }
        }
        let case = Case::new(Operation::Broadcast, 8, 1 << 20);
        let named = ["flat(4)".to_owned(), "ring".to_owned()];
        let names: Vec<String> = case.choices(&named).iter().map(ToString::to_string).collect();
        assert_eq!(names[1..], ["flat(4)"]);
    }

    #[test]
    fn model_of_round_trips_predicts_a_message_in_half_of_one() {
        let records = [trip(1024, 6.0), trip(8, 2.0)];
        assert!(model(&records, 2, 0.0).is_none());
        let model = model(&records, 4, 0.0).unwrap();
        for (bytes, us) in [(8, 1.0), (1024, 3.0)] {
            let case = Case::new(Operation::Broadcast, 2, bytes);
            let flat = Choice::parse(Operation::Broadcast, "flat").unwrap();
            assert!((case.predicted(&flat, &model).unwrap() - us).abs() < 1e-9);
        }
    }
}
