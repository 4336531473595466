//! A closure is an operator only as `Commutative` or `Ordered`.
use farside_rma::prelude::*;

fn sum(team: &Team, data: &mut [u64]) -> Result<()> {
    team.allreduce(data, |a: u64, b: u64| a + b)
}

fn main() {
    let _ = sum;
}
