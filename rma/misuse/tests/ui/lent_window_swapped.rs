//! A window over borrowed memory cannot be swapped with another window, borrowed or not.
use farside_rma::prelude::*;

fn swap_owned(team: &Team, memory: &mut [u64], owned: &mut Window<'static, u64>) -> Result<()> {
    Window::over(team, memory, |window| {
        std::mem::swap(window, owned);
        Ok(())
    })
}

fn swap_lent(team: &Team, a: &mut [u64], b: &mut [u64]) -> Result<()> {
    Window::over(team, a, |outer| {
        Window::over(team, b, |inner| {
            std::mem::swap(outer, inner);
            Ok(())
        })
    })
}

fn main() {
    let _ = (swap_owned, swap_lent);
}
