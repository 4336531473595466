//! A future that is dropped half-way ends its borrows, so the operations of an async epoch own their buffers.
use farside_rma::prelude::*;

async fn borrowed(window: &LockWindow<u64>, buffer: &mut [u64]) -> Result<()> {
    window
        .lock_all_async(Assert::default(), async |epoch| {
            epoch.rget(buffer, 0, 0)?.await?;
            Ok(())
        })
        .await
}

fn main() {
    let _ = borrowed;
}
