//! Threads use an epoch only until its closure returns: a thread of an outer scope could use it after it is closed.
use farside_rma::prelude::*;

fn spawn(window: &LockWindow<u64>) -> Result<()> {
    std::thread::scope(|scope| {
        window.lock_all(Assert::empty(), |epoch| {
            let shared = epoch.shared()?;
            scope.spawn(move || shared.put_value(1, 0, 0));
            Ok(())
        })
    })
}

fn main() {
    let _ = spawn;
}
