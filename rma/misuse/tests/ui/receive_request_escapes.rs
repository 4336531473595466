//! A request of a receive does not outlive its scope.
use farside_rma::prelude::*;

fn keep(team: &Team) -> Result<()> {
    let mut into = [0u64; 4];
    let request = team.overlap(|messages| messages.irecv(&mut into, 0, 0))?;
    request.wait().map(|_| ())
}

fn main() {
    let _ = keep;
}
