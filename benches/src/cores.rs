//! The cores that the calling thread may use, and binding it to one of them.
#![allow(unsafe_code)]

use std::mem::{self, MaybeUninit};

use farside_core::error::{Error, ErrorKind, Result};

fn affinity() -> Result<libc::cpu_set_t> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the kernel writes at most the given size.
    let code = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) };
    if code != 0 {
        return Err(Error::last_os("ask for the cores of this process"));
    }
    // SAFETY: a cpu_set_t is plain bits; all were zeroed before.
    Ok(unsafe { set.assume_init() })
}

/// The cores that the calling thread may use, in ascending order.
///
/// # Errors
/// [`ErrorKind::System`].
pub fn allowed() -> Result<Vec<usize>> {
    let set = affinity()?;
    // SAFETY: every index is below the size of the set.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect())
}

/// Binds the calling thread, and those that it starts later, to `core`; allocates nothing, so that a forked process may
/// call it. Whether that was possible.
pub(crate) fn bind(core: usize) -> bool {
    if core >= libc::CPU_SETSIZE as usize {
        return false;
    }
    // SAFETY: a cpu_set_t is plain bits, and zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `core` is in range of the set, which is whole.
    unsafe {
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0
    }
}

/// Binds the calling thread to the `index`-th core that it may use.
///
/// # Errors
/// [`ErrorKind::Limit`] with fewer cores; [`ErrorKind::System`].
pub fn bind_to_nth(index: usize) -> Result<()> {
    const OP: &str = "bind to a core";
    let cores = allowed()?;
    let Some(&core) = cores.get(index) else {
        return Err(Error::new(ErrorKind::Limit, OP).cause(format!("core {index} of {}", cores.len())));
    };
    if bind(core) { Ok(()) } else { Err(Error::last_os(OP)) }
}

/// Binds the calling thread to a core until dropped.
pub(crate) struct Pinned {
    before: libc::cpu_set_t,
}

impl Pinned {
    pub(crate) fn to(core: usize) -> Result<Self> {
        let before = affinity()?;
        bind(core).then_some(Self { before }).ok_or_else(|| Error::last_os("bind to a core"))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: `before` is a whole cpu_set_t that the kernel has filled.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const self.before) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bind_to_nth_leaves_that_core_only() {
        let before = allowed().unwrap();
        let last = before.len() - 1;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                bind_to_nth(last).unwrap();
                assert_eq!(allowed().unwrap(), [before[last]]);
            });
        });
        assert_eq!(allowed().unwrap(), before);
        assert_eq!(bind_to_nth(before.len()).unwrap_err().kind(), ErrorKind::Limit);
    }
}
