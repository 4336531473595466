//! A buffer that is dropped inside the epoch is refused: the transfer may still read it.
use farside_rma::prelude::*;

fn put(window: &mut Window<'static, u64>) -> Result<()> {
    window.fence(Assert::empty(), |epoch| {
        let buffer = vec![1u64; 4];
        epoch.put(&buffer, 0, 0)
    })
}

fn main() {
    let _ = put;
}
