//! The data of a send cannot be written before the scope has ended.
use farside_rma::prelude::*;

fn send(team: &Team) -> Result<()> {
    let mut data = [1u64; 4];
    team.overlap(|messages| {
        let request = messages.isend(&data, 1, 0)?;
        data[0] = 2;
        request.wait()
    })
}

fn main() {
    let _ = send;
}
