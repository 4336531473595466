//! A mark by which a child process of a rank detects that it is not that rank, although it inherits the variables of a
//! launcher that is reached by its address. The mark is an open file without contents, named after the rank; a child
//! process inherits no such file, and searches its ancestors for one.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::getppid;

use crate::error::{Error, ErrorKind, Result};

/// Maximum number of trailing characters of a rank's name that are used: the kernel accepts 249 bytes in all.
const NAME_MAX: usize = 56;

/// Marks this process as the rank that the launcher calls `name`, until the result is dropped. `None` if the system
/// refuses the file: child processes that act as the rank then fail later, when the launcher does not know them.
///
/// # Errors
/// `Launcher` if an ancestor of this process is that rank.
pub(super) fn mark(name: &str) -> Result<Option<OwnedFd>> {
    const OP: &str = "connect to the launcher";
    let left_out = name.chars().count().saturating_sub(NAME_MAX);
    let name = format!("farside-rank {}", name.chars().skip(left_out).collect::<String>());
    let link = PathBuf::from(format!("/memfd:{name} (deleted)"));
    if let Some(pid) = ancestors().find(|pid| has_open(*pid, link.as_os_str())) {
        return Err(Error::new(ErrorKind::Launcher, OP)
            .cause(format!("process {pid}, an ancestor of this process, is already registered as this rank"))
            .remedy(
                "a child process of a rank inherits the launcher's variables: unset them for it (PMIX_NAMESPACE \
                 and PMIX_RANK, or PMI_PORT and PMI_ID), or start it with `farside run`",
            ));
    }
    let refused =
        |e: &_| tracing::debug!("child processes could register as this rank again, because memfd_create failed: {e}");
    Ok(memfd_create(name, MemfdFlags::CLOEXEC).inspect_err(refused).ok())
}

/// Whether a process has a file open, if the system lets this process see that.
fn has_open(pid: i32, link: &OsStr) -> bool {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.into_iter().any(|file| std::fs::read_link(file.path()).is_ok_and(|path| path.as_os_str() == link))
}

/// The numbers of the ancestors of this process, the parent first.
pub(super) fn ancestors() -> impl Iterator<Item = i32> {
    let parent = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program, in parentheses, may have spaces; its state and its parent follow.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok().filter(|pid| *pid > 0)
    };
    std::iter::successors(getppid().map(|pid| pid.as_raw_nonzero().get()), parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_is_seen_while_it_is_kept() {
        let own = std::process::id() as i32;
        let link = OsStr::new("/memfd:farside-rank a-job@1.3 (deleted)");
        let kept = mark("a-job@1.3").unwrap();
        assert!(has_open(own, link));
        assert!(mark("a-job@1.3").is_ok(), "this process is no ancestor of its own");
        drop(kept);
        assert!(!has_open(own, link));
    }

    #[test]
    fn ancestors_end_with_the_first_process() {
        let all: Vec<i32> = ancestors().collect();
        assert_eq!(all.first().copied(), getppid().map(|pid| pid.as_raw_nonzero().get()));
        assert!(all.len() < 1000, "{all:?}");
    }
}
