//! A window over borrowed memory does not outlive the call that made it.
use farside_rma::prelude::*;

fn keep(team: &Team) -> Result<()> {
    let mut memory = vec![0u64; 4];
    let mut kept = None;
    Window::over(team, &mut memory, |window| {
        kept = Some(window);
        Ok(())
    })?;
    drop(memory);
    kept.map_or(Ok(()), |window| window.local().map(|_| ()))
}

fn main() {
    let _ = keep;
}
