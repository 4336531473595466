//! A buffer that is dropped before the scope ends cannot be that of a receive, which may outlive its request.
use farside_rma::prelude::*;

fn receive(team: &Team) -> Result<()> {
    team.overlap(|messages| {
        let mut into = [0u64; 4];
        std::mem::forget(messages.irecv(&mut into, 0, 0)?);
        Ok(())
    })
}

fn main() {
    let _ = receive;
}
