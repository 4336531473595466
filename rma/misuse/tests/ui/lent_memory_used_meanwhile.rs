//! Memory that a window borrows cannot be accessed otherwise.
use farside_rma::prelude::*;

fn both(team: &Team) -> Result<()> {
    let mut memory = vec![0u64; 4];
    Window::over(team, &mut memory, |_| {
        memory[0] = 1;
        Ok(())
    })
}

fn main() {
    let _ = both;
}
