//! Bruck et al. 1997, index algorithm: a block for the rank at distance i, with i written in base `radix`, moves by z
//! radix^k ranks in the round of digit k = z. All blocks with that digit are one message, so there are at most (radix -
//! 1) ⌈log_radix P⌉ messages, of about P / radix blocks each. For short blocks.
//!
//! A block is sent from the input and arrives in the output. Between hops it is in scratch, alternately at one of two
//! positions, so that a receive does not wait for a send. There is no rotation and no packing.

use super::begun;
use crate::operation::{Algorithm, Call, Operation, Parameter};
use crate::schedule::{Schedule, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Alltoall,
    name: "bruck",
    source: "Bruck, Ho, Kipnis, Upfal, Weathersby 1997, section 3",
    parameters: &[Parameter { name: "radix", default: 2, least: 2, most: 64, help: "base of the distances" }],
    // Blocks of other ranks pass through this rank, which knows their sizes only if all are equal.
    applies: |call| call.sizes.is_empty(),
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me, radix) = (call.size, call.rank, u64::from(call.parameters[0]));
    let mut s = begun(call);
    let mut places = vec![[None; 2]; p as usize];
    // The slice that holds the block of each distance, and the number of the block's moves.
    let mut at: Vec<Slice> = (0..p).map(|i| Slice::input((me + i) % p, 1)).collect();
    let mut moves = vec![0; p as usize];
    let mut stride = 1;
    while stride < u64::from(p) {
        for z in (1..radix).take_while(|z| z * stride < u64::from(p)) {
            let hop = (z * stride) as u32;
            let moved: Vec<u32> = (0..p).filter(|i| u64::from(*i) / stride % radix == z).collect();
            let from: Vec<Slice> = moved.iter().map(|i| at[*i as usize]).collect();
            for i in &moved {
                let (index, arrives) = (*i as usize, u64::from(*i) < stride * radix);
                at[index] = if arrives {
                    Slice::output((me + p - i) % p, 1)
                } else {
                    *places[index][moves[index] % 2].get_or_insert_with(|| s.scratch_like(Slice::input(*i, 1)))
                };
                moves[index] += 1;
            }
            let into: Vec<Slice> = moved.iter().map(|i| at[*i as usize]).collect();
            s.receive((me + p - hop) % p, 0, &into);
            s.send((me + hop) % p, 0, &from);
        }
        stride *= radix;
    }
    s.done()
}
