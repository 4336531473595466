//! The buffer of a receive cannot be read before its request, or the scope, returns it.
use farside_rma::prelude::*;

fn receive(team: &Team) -> Result<u64> {
    let mut into = [0u64; 4];
    team.overlap(|messages| {
        std::mem::forget(messages.irecv(&mut into, ANY_SOURCE, ANY_TAG)?);
        Ok(into[0])
    })
}

fn main() {
    let _ = receive;
}
