//! The butterfly with doubling distances, for every P: the reduction phase of the overlapping 3-2 elimination, in which
//! each round halves. Of the ranks that exchange, each keeps the blocks of the ranks at its own position, so a rank
//! that is never eliminated ends with its own block. Eliminated ranks get their blocks in one more round. ⌈log2 P⌉
//! rounds, two more if P is not a power of two. The blocks of a message are not consecutive: the device gathers and
//! scatters them.

use crate::butterfly::{Factor, Reduction, odd_factor};
use crate::operation::{Algorithm, Operation};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::ReduceScatter,
    name: "butterfly",
    source: "Rabenseifner, Träff 2004, sections 2 and 3.2",
    build: |call| Reduction::schedule(call, &odd_factor(call.size, Factor::Overlapping).halved(usize::MAX)),
    ..Algorithm::PLAIN
};
