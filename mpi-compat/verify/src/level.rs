//! The level of checks, set by `FARSIDE_VERIFY` and `MPI_Pcontrol`, and the time after which a waiting rank reports the
//! wait.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// The level; -1, which acts like 0, until MPI or a session has started.
static LEVEL: AtomicI32 = AtomicI32::new(-1);

/// Whether checks are disabled.
pub fn off() -> bool {
    LEVEL.load(Ordering::Relaxed) <= 0
}

/// The level: 0 off, 1 short messages, 2 explanations too, 3 Info arguments too, 4 asserts too.
pub fn get() -> i32 {
    LEVEL.load(Ordering::Relaxed)
}

/// Sets the level. Levels above 4 are for other tools, and change nothing.
pub fn set(level: i32) {
    if (0..=4).contains(&level) {
        LEVEL.store(level, Ordering::Relaxed);
    }
}

/// The first call reads the level from the environment. The default is 1, since the library was preloaded.
pub fn read() {
    if get() >= 0 {
        return;
    }
    let text = std::env::var("FARSIDE_VERIFY").unwrap_or_else(|_| "1".into());
    match text.trim().parse() {
        Ok(level) if (0..=4).contains(&level) => set(level),
        _ => {
            crate::say::write(&format!("VERIFY: FARSIDE_VERIFY={text} is not 0, 1, 2, 3 or 4; using 1"));
            set(1);
        }
    }
}

/// `FARSIDE_STALL_S`, as the library reads it: seconds after which a waiting rank reports the ranks for which it waits;
/// 0, the default, means never.
pub fn stall() -> Option<Duration> {
    static STALL: OnceLock<Option<Duration>> = OnceLock::new();
    *STALL.get_or_init(|| {
        let seconds = std::env::var("FARSIDE_STALL_S").ok()?.trim().parse::<f64>().ok()?;
        Duration::try_from_secs_f64(seconds).ok().filter(|stall| !stall.is_zero())
    })
}
