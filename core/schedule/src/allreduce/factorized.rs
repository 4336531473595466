//! The factorized combination with the minimum cost: the butterfly for the factors two of P, rings for some odd prime
//! factors, 3-2 elimination for the product of the others, and the best number of halving rounds. A message of m
//! elements costs α + βm, and their reduction γm (Rabenseifner, Träff 2004, sections 3.5 and 3.6).

use crate::butterfly::{COSTS, Costs, Reduction, factorized};
use crate::operation::{Algorithm, Operation};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allreduce,
    name: "factorized",
    source: "Rabenseifner, Träff 2004, section 3.6",
    parameters: COSTS,
    build: |call| {
        let plan = factorized(call.size, call.elements, Costs::of_parameters(call.parameters));
        Reduction::schedule(call, &plan)
    },
    ..Algorithm::PLAIN
};
