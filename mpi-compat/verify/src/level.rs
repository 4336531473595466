//! How much is checked: `FARSIDE_VERIFY` and `MPI_Pcontrol`; and how long a rank waits for others before it says so.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// -1 until MPI or a session has started, which is as 0.
static LEVEL: AtomicI32 = AtomicI32::new(-1);

/// Whether nothing is checked.
pub fn off() -> bool {
    LEVEL.load(Ordering::Relaxed) <= 0
}

/// 0 off, 1 short messages, 2 explanations too, 3 Info arguments too, 4 asserts too.
pub fn get() -> i32 {
    LEVEL.load(Ordering::Relaxed)
}

/// Other levels are for other tools, and change nothing.
pub fn set(level: i32) {
    if (0..=4).contains(&level) {
        LEVEL.store(level, Ordering::Relaxed);
    }
}

/// Takes the level of the environment, the first time; without one it is 1, since this library was loaded.
pub fn read() {
    if get() >= 0 {
        return;
    }
    let text = std::env::var("FARSIDE_VERIFY").unwrap_or_else(|_| "1".into());
    match text.trim().parse() {
        Ok(level) if (0..=4).contains(&level) => set(level),
        _ => {
            crate::shadow::write(&format!("VERIFY: FARSIDE_VERIFY={text} is not 0, 1, 2, 3 or 4; 1 is taken"));
            set(1);
        }
    }
}

/// `FARSIDE_STALL_S`, as the library has it: seconds after which a rank that waits reports what it waits for; never at 0, which is
/// the default.
pub fn stall() -> Option<Duration> {
    static STALL: OnceLock<Option<Duration>> = OnceLock::new();
    *STALL.get_or_init(|| {
        let seconds = std::env::var("FARSIDE_STALL_S").ok()?.trim().parse::<f64>().ok()?;
        Duration::try_from_secs_f64(seconds).ok().filter(|stall| !stall.is_zero())
    })
}
