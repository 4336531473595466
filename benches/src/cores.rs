//! Binding the calling thread to one of the cores that it may use.

use farside_core::error::{Error, ErrorKind, Result};
pub(crate) use farside_core::processors::allowed;
use farside_core::processors::only;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Binds the calling thread, and threads that it starts later, to `core`; returns whether that succeeded. Allocates
/// nothing, so a forked process may call it.
pub(crate) fn bind(core: usize) -> bool {
    only(core).is_ok_and(|set| sched_setaffinity(None, &set).is_ok())
}

/// Binds the calling thread to the `index`-th core that it may use.
///
/// # Errors
/// [`ErrorKind::Limit`] with fewer cores; [`ErrorKind::System`].
pub(crate) fn bind_to_nth(index: usize) -> Result<()> {
    const OP: &str = "bind to a core";
    let cores = allowed();
    let Some(&core) = cores.get(index) else {
        return Err(Error::new(ErrorKind::Limit, OP).cause(format!(
            "{} cores are needed, but this process may use only {}",
            index + 1,
            cores.len()
        )));
    };
    sched_setaffinity(None, &only(core)?).map_err(|e| Error::system(OP, e.into()))
}

/// Binds the calling thread to a core until dropped.
pub(crate) struct Pinned {
    before: CpuSet,
}

impl Pinned {
    pub(crate) fn to(core: usize) -> Result<Self> {
        let failed = |e: rustix::io::Errno| Error::system("bind to a core", e.into());
        let before = sched_getaffinity(None).map_err(failed)?;
        sched_setaffinity(None, &only(core)?).map_err(failed)?;
        Ok(Self { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // The mask was valid before; if it no longer is, the thread stays bound.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bind_to_nth_leaves_that_core_only() {
        let before = allowed();
        let last = before.len() - 1;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                bind_to_nth(last).unwrap();
                assert_eq!(allowed(), [before[last]]);
            });
        });
        assert_eq!(allowed(), before);
        assert_eq!(bind_to_nth(before.len()).unwrap_err().kind(), ErrorKind::Limit);
    }
}
