#![allow(unsafe_code)]
//! Whether shared memory works here, found out by using a little of it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use crate::settings::Settings;

/// What the shm device could do here, or why it cannot work.
///
/// # Errors
/// Why, and what would help.
pub fn probe(settings: &Settings) -> Result<String, String> {
    reserve_page(&settings.shm_dir)?;
    let direct = match read_own_memory() {
        Ok(()) => "direct copies to and from unmapped memory (process_vm_readv)".to_owned(),
        Err(e) => format!("unmapped memory by bounce buffer only (process_vm_readv: {e})"),
    };
    Ok(format!("windows mapped by all ranks of the node, CPU atomics; {direct}"))
}

/// Makes a file without a name and reserves a page for it, as the device does for a window.
fn reserve_page(dir: &str) -> Result<(), String> {
    let file: File =
        File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(dir).map_err(|e| {
            format!("no unnamed file in {dir}: {e}; set FARSIDE_SHM_DIR to a directory on a memory file system")
        })?;
    // SAFETY: fallocate takes integers; the descriptor is open.
    if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, 4096) } != 0 {
        let e = std::io::Error::last_os_error();
        return Err(format!("no room for one page in {dir}: {e}; free space there or enlarge it"));
    }
    Ok(())
}

/// Whether the system call is there and not filtered: a process may always read itself.
fn read_own_memory() -> std::io::Result<()> {
    let from = [7u8; 8];
    let mut to = [0u8; 8];
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    // SAFETY: both ranges are live arrays of this function and do not overlap; the call only reads the remote one.
    let n = unsafe { libc::process_vm_readv(std::process::id() as i32, &raw const local, 1, &raw const remote, 1, 0) };
    match n {
        8 if to == from => Ok(()),
        n if n < 0 => Err(std::io::Error::last_os_error()),
        _ => Err(std::io::Error::other("it read something else")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_names_a_directory_that_cannot_be_used() {
        let settings = Settings::from_lookup(|n| (n == "FARSIDE_SHM_DIR").then(|| "/nowhere".into())).unwrap();
        assert!(probe(&settings).unwrap_err().contains("/nowhere"));
    }
}
