//! System errors whose cause may be a limit that is too low.

use std::io;

use rustix::process::{Resource, getrlimit};

use crate::error::{Error, ErrorKind};

const REMEDY: &str =
    "raise the limits: `ulimit -l unlimited` (memlock in /etc/security/limits.conf), `ulimit -n 65536`";

/// A system error, with a remedy for the limits that are usually too low.
pub(super) fn limit(operation: &'static str, e: io::Error) -> Error {
    let kind = match e.raw_os_error() {
        Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::EAGAIN) => ErrorKind::Limit,
        Some(libc::EPERM | libc::EACCES) => ErrorKind::Forbidden,
        _ => ErrorKind::System,
    };
    let error = Error::new(kind, operation).device("verbs").source_error(e);
    if kind == ErrorKind::Limit {
        return error
            .cause("a device or system limit was reached (locked memory, queue pairs, descriptors)")
            .remedy(REMEDY);
    }
    error
}

/// Like [`limit`], for a registration that needs `bytes` of locked memory.
pub(super) fn registration(operation: &'static str, bytes: usize, e: io::Error) -> Error {
    let error = limit(operation, e);
    if error.kind() != ErrorKind::Limit {
        return error.cause(format!("{bytes} bytes cannot be registered"));
    }
    let limit = getrlimit(Resource::Memlock).current.map_or_else(|| "unlimited".into(), |l| format!("{l} bytes"));
    error.cause(format!("{bytes} bytes must be locked, but the process's limit of locked memory is {limit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memlock_errors_name_the_command_that_helps() {
        let e = limit("register memory", io::Error::from_raw_os_error(libc::ENOMEM));
        assert_eq!(e.kind(), ErrorKind::Limit);
        assert!(e.to_string().contains("ulimit -l unlimited"), "{e}");
        let e = registration("register memory", 12_345, io::Error::from_raw_os_error(libc::ENOMEM));
        assert!(
            e.to_string().contains("12345 bytes") && e.to_string().contains("the process's limit of locked memory"),
            "{e}"
        );
        let e = limit("register memory", io::Error::from_raw_os_error(libc::EACCES));
        assert_eq!(e.kind(), ErrorKind::Forbidden);
    }
}
