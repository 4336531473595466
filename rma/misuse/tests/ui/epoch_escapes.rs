//! The handle of an epoch does not outlive it.
use farside_rma::prelude::*;

fn keep(window: &mut Window<'static, u64>) -> Result<()> {
    let mut kept = None;
    window.fence(Assert::empty(), |epoch| {
        kept = Some(epoch);
        Ok(())
    })?;
    kept.map_or(Ok(()), |epoch| epoch.put_value(1, 0, 0))
}

fn main() {
    let _ = keep;
}
