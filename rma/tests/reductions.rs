//! Collectives of a team, in addition to the examples of their documentation.

use farside_rma::collectives::Commutative;
use farside_rma::prelude::*;

/// Calls of the same number of bytes whose elements have another alignment, for which a cached call must not be reused.
/// The test makes more than the four collectives after which short vectors use signals.
#[test]
fn reductions_of_equal_length_whose_elements_are_aligned_otherwise() {
    Job::threads(2, |job| {
        let team = job.world()?;
        for _ in 0..8 {
            let mut pair = [[1u64, 2]];
            team.allreduce(&mut pair, Commutative(|a: [u64; 2], b: [u64; 2]| [a[0] + b[0], a[1] * b[1]]))?;
            assert_eq!(pair, [[2, 4]]);
            let mut wide = [3u128 << 64];
            team.allreduce(&mut wide, Commutative(|a: u128, b: u128| a + b))?;
            assert_eq!(wide, [6u128 << 64]);
        }
        Ok(())
    })
    .unwrap();
}
