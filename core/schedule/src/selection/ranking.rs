//! The algorithms for a call, ordered by their predicted times.

use std::collections::HashSet;

use super::{Choice, Facts, Placement, row};
use crate::operation::{Algorithm, Call, Operation, Parameter};
use crate::schedule::predict::{Bytes, LogGP, Model, PLogP, predict_on_nodes};
use crate::table;

/// Maximum size of one prediction, and of all of a ranking, so that a ranking takes milliseconds: the steps and slices of
/// the root times the number of ranks. Choices with more are not ranked.
const MAX_STEPS: u64 = 1 << 15;
const MAX_STEPS_OF_ALL: u64 = 1 << 18;

/// Segment sizes, in bytes, for which a pipeline is predicted.
const SEGMENT_SIZES: [u64; 6] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];

/// Values for which other parameters are predicted, within their limits and below the number of ranks.
const VALUES: [u32; 7] = [1, 2, 3, 4, 7, 8, 15];

/// Values of a parameter to predict: the default, and those that a model can distinguish.
fn values(parameter: &Parameter, call: &Call<'_>, facts: &Facts) -> Vec<u32> {
    let mut values = vec![parameter.default];
    match parameter.name {
        "segments" | "pieces" => {
            let most = |bytes: u64| u32::try_from(facts.bytes / bytes).unwrap_or(u32::MAX);
            values.push(1);
            values.extend(SEGMENT_SIZES.into_iter().map(most).filter(|parts| *parts > 1));
        }
        "k" | "n" | "f" | "w" | "radix" | "window" => {
            values.extend(VALUES.into_iter().filter(|value| *value < call.size));
        }
        "root-writes" => values.extend([0, 1]),
        "intra" | "inter" => values.extend(parameter.least..=parameter.most),
        // These parameters are costs from which the algorithm makes its plan.
        _ => {}
    }
    values.retain(|value| (parameter.least..=parameter.most).contains(value));
    values.sort_unstable();
    values.dedup();
    values
}

/// All choices of an algorithm that can make a call.
fn variants(algorithm: &'static Algorithm, call: &Call<'_>, facts: &Facts) -> Vec<Choice> {
    let mut all = vec![Vec::new()];
    for parameter in algorithm.parameters {
        let values = values(parameter, call, facts);
        let with = |list: &Vec<u32>| values.iter().map(|v| [&list[..], &[*v]].concat()).collect::<Vec<_>>();
        all = all.iter().flat_map(with).collect();
    }
    let choices = all.into_iter().map(|parameters| Choice { algorithm, parameters });
    choices.filter(|choice| choice.applies(call, facts)).collect()
}

/// The time of a choice for a call with equal blocks, according to a model; `None` if it is not predicted.
fn predicted<M: Model>(choice: &Choice, call: &Call<'_>, facts: &Facts, model: &M, left: &mut u64) -> Option<f64> {
    let of = |rank| Call { rank, parameters: &choice.parameters, ..*call };
    let of_root = (choice.algorithm.build)(&of(call.root));
    let of_root: usize = of_root.steps().map(|step| 1 + step.from.len() + step.into.len()).sum();
    let steps = of_root as u64 * u64::from(call.size);
    if steps > MAX_STEPS.min(*left) {
        return None;
    }
    *left -= steps;
    let bytes = match call.operation {
        Operation::Allgather | Operation::ReduceScatter => Bytes::Each(facts.bytes / u64::from(call.size)),
        operation if operation.is_of_a_vector() => Bytes::Vector(facts.bytes),
        _ => Bytes::Each(facts.bytes),
    };
    let prediction = predict_on_nodes(choice.algorithm, of, bytes, model, &SHARED_MEMORY);
    prediction.ok().map(|prediction| prediction.time)
}

/// The algorithms for a call with equal blocks, ordered by their predicted times, each with the parameter values of its
/// shortest time. Neighbour collectives, whose ranks do not know each other's neighbours, are not ranked; algorithms
/// with more steps than a prediction may have are not ranked either. The model, in nanoseconds if ranks share nodes, is
/// that of the network between nodes; messages within a node take the times of shared memory.
///
/// ```
/// use farside_schedule::operation::{Call, Operation};
/// use farside_schedule::schedule::predict::LogGP;
/// use farside_schedule::selection::{Facts, Placement, ranking};
///
/// let call = Call { elements: 1, ..Call::new(Operation::Broadcast, 0, 64) };
/// let facts = Facts::new(&call, 8, true, Placement::Anywhere);
/// // Where a message takes long and sending one does not, the root sends to all.
/// let far = ranking(&call, &facts, &LogGP::log_p(1000.0, 1.0, 1.0));
/// assert_eq!(far[0].0.algorithm.name, "flat");
/// ```
#[must_use]
pub fn ranking<M: Model>(call: &Call<'_>, facts: &Facts, model: &M) -> Vec<(Choice, f64)> {
    if matches!(call.operation, Operation::NeighborAllgather | Operation::NeighborAlltoall) || call.size == 1 {
        return Vec::new();
    }
    // Only some ranks may be in place.
    let (call, mut left) = (&Call { in_place: false, ..*call }, MAX_STEPS_OF_ALL);
    let best = |algorithm| {
        let timed = variants(algorithm, call, facts).into_iter().filter_map(|choice| {
            let time = predicted(&choice, call, facts, model, &mut left)?;
            Some((choice, time))
        });
        timed.min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let mut all: Vec<(Choice, f64)> = table::of(call.operation).filter_map(best).collect();
    // The sort is stable, so that the order is the same at all ranks.
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    all
}

/// A model of a typical network, in nanoseconds, for the order in which choices are tried if no model was fitted.
const TYPICAL: LogGP = LogGP {
    latency: 1000.0,
    send_overhead: 200.0,
    receive_overhead: 200.0,
    gap: 100.0,
    gap_per_byte: 0.1,
    overhead_per_byte: 0.0,
    threshold: None,
    reduction: 0.2,
    gate: 0.0,
};

/// A model of messages between ranks that share memory, in nanoseconds. A copy keeps the processor busy.
const SHARED_MEMORY: LogGP = LogGP {
    latency: 100.0,
    send_overhead: 100.0,
    receive_overhead: 100.0,
    gap: 50.0,
    gap_per_byte: 0.0,
    overhead_per_byte: 0.05,
    ..TYPICAL
};

/// Maximum numbers of choices that calls try if the model is accurate, and if it is not: a model covers neither memory
/// that ranks share nor waits for a processor.
const TRUSTED_CANDIDATES: usize = 8;
const UNTRUSTED_CANDIDATES: usize = 10;

/// A choice whose predicted time is this many times the shortest is not tried.
const TOO_LONG: f64 = 4.0;

/// The choices that calls of a class try: `first`, the choice of the table, and those with the shortest predicted
/// times.
#[must_use]
pub fn candidates(call: &Call<'_>, facts: &Facts, model: Option<&PLogP>) -> Vec<Choice> {
    let first = row(call, facts).1;
    let trusted = model.is_some() && facts.placement == Placement::Anywhere;
    let ranked = match model {
        Some(model) => ranking(call, facts, model),
        None => ranking(call, facts, &TYPICAL),
    };
    let least = ranked.first().map_or(0.0, |(_, time)| *time);
    let ranked = ranked.into_iter().filter(|(_, time)| !trusted || *time <= TOO_LONG * least);
    let mut names = HashSet::new();
    let all = [first].into_iter().chain(ranked.map(|(choice, _)| choice));
    let different = all.filter(|choice| names.insert(choice.to_string()));
    different.take(if trusted { TRUSTED_CANDIDATES } else { UNTRUSTED_CANDIDATES }).collect()
}
