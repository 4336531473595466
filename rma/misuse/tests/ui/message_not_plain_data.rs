//! Messages consist of plain data only.
use farside_rma::prelude::*;

fn send(team: &Team) -> Result<()> {
    team.send(&[String::new()], 1, 0)
}

fn main() {
    let _ = send;
}
