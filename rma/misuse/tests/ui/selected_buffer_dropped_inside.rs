//! A buffer that is dropped inside the epoch is refused for selections too; the selections themselves may be dropped.
use farside_rma::prelude::*;

fn put(window: &mut Window<'static, u64>) -> Result<()> {
    window.fence(Assert::empty(), |epoch| {
        let column = Selection::vector(4, 1, 4)?;
        let buffer = vec![1u64; 16];
        epoch.put_selected(&buffer, &column, 0, 0, &column)
    })
}

fn main() {
    let _ = put;
}
