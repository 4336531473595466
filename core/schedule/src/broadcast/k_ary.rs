//! Tree with k children, balanced: few levels, and k messages for each segment at every rank that has children.

use super::{SEGMENTS, down};
use crate::operation::{Algorithm, Operation, Parameter};
use crate::tree::Place;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Broadcast,
    name: "k-ary",
    source: "Pješivac-Grbović, Angskun, Bosilca, Fagg, Gabriel, Dongarra 2007 (Performance Analysis of MPI Collective \
             Operations), section 3",
    parameters: &[Parameter { name: "k", default: 4, least: 2, most: 256, help: "children of a rank" }, SEGMENTS],
    build: |call| down(call, &Place::k_ary(call.parameters[0], call.relative(), call.size), call.parameters[1]),
    ..Algorithm::PLAIN
};
