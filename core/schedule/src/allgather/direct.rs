//! Direct: every rank reads the block of each other rank in place: P - 1 blocks, each copied once.

use crate::direct::read_from_all;
use crate::operation::{Algorithm, Operation};
use crate::schedule::Slice;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allgather,
    name: "direct",
    source: "Ma, Bosilca, Bouteiller, Goglin, Squyres, Dongarra 2011 (kernel-assisted collectives)",
    applies: |call| call.lends,
    build: |call| read_from_all(call, |_| Slice::input(0, 1)),
    ..Algorithm::PLAIN
};
