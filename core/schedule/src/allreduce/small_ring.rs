//! Small rings: the butterfly for the factors two of P, then rings for its odd prime factors, 3, 5 and 7. In a ring of
//! r each rank keeps 1/r of the piece, which the others send it in r - 1 rounds, or gets all pieces in ⌈log2 r⌉ rounds
//! (Bruck's allgather) if the piece is short. It reduces when all parts have arrived, and so in the order of the ranks.
//! P = 3·2^n and 9·2^n need the minimum number of rounds for short vectors, ⌈log2 P⌉.

use crate::butterfly::{Factor, Plan, THRESHOLD, halved, prime_factors};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::Schedule;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allreduce,
    name: "small-ring",
    source: "Rabenseifner, Träff 2004, section 3.4",
    parameters: &[THRESHOLD],
    applies: |call| prime_factors(call.size).all(|prime| prime <= 7),
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let factors: Vec<Factor> = prime_factors(call.size).map(Factor::Ring).collect();
    halved(call, Plan::new(call.size, &factors))
}
