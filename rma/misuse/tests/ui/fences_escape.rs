//! The handle of a run of fences does not outlive it.
use farside_rma::prelude::*;

fn keep(window: &mut Window<'static, u64>) -> Result<()> {
    let mut kept = None;
    window.fences(|fences| {
        kept = Some(fences);
        Ok(())
    })?;
    kept.map_or(Ok(()), |fences| fences.epoch(Assert::empty(), |_| Ok(())))
}

fn main() {
    let _ = keep;
}
