#![allow(unsafe_code)]
//! Registered memory and `fork`. On kernels before 5.12 a child shares the pages that an HCA accesses, and the next
//! store of the parent goes to a copy, of which the HCA knows nothing. `ibv_fork_init(3)` makes libibverbs withhold
//! registered pages from children; it must be called before the first registration, and does nothing on kernels that
//! give the copies to the child.
//!
//! The static here is one of the few outside a job: libibverbs keeps this state for the process, and does not lock it.

use std::fmt;
use std::io;
use std::sync::OnceLock;

use rdma_sys::{IBV_FORK_ENABLED, IBV_FORK_UNNEEDED, ibv_fork_init, ibv_is_fork_initialized};

use super::check;

static PROTECTION: OnceLock<Protection> = OnceLock::new();

/// How registered memory is protected against `fork`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::device::verbs) enum Protection {
    /// The kernel gives a child its own copies.
    Kernel,
    /// A child has none of the registered pages.
    Withheld,
    /// Registered memory is not protected, for this reason.
    None(String),
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel => f.write_str("fork is safe"),
            Self::Withheld => f.write_str("children of fork have no registered pages"),
            Self::None(why) => write!(f, "fork is not safe ({why})"),
        }
    }
}

fn protection(called: io::Result<()>, status: u32) -> Protection {
    match (called, status) {
        (_, IBV_FORK_UNNEEDED) => Protection::Kernel,
        (Err(e), _) => Protection::None(format!("ibv_fork_init: {e}")),
        (Ok(()), IBV_FORK_ENABLED) => Protection::Withheld,
        (Ok(()), status) => Protection::None(format!("ibv_is_fork_initialized says {status}")),
    }
}

/// Protects memory that is registered from now on; the first call decides for the process.
pub(in crate::device::verbs) fn protect() -> &'static Protection {
    PROTECTION.get_or_init(|| {
        // SAFETY: the calls have no argument, and no other thread of this runtime is in them.
        let protection = unsafe { protection(check(ibv_fork_init()), ibv_is_fork_initialized()) };
        if let Protection::None(_) = protection {
            tracing::warn!("verbs: {protection}: a program that forks may receive no data of peers afterwards");
        }
        protection
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protection_is_that_of_the_kernel_or_of_the_library_or_none() {
        let too_late = || Err(io::Error::from_raw_os_error(libc::EINVAL));
        assert_eq!(protection(Ok(()), 2), Protection::Kernel);
        assert_eq!(protection(Ok(()), 1), Protection::Withheld);
        assert!(matches!(protection(Ok(()), 0), Protection::None(_)));
        assert!(matches!(protection(too_late(), 0), Protection::None(why) if why.contains("ibv_fork_init")));
    }
}
