#![allow(unsafe_code)]
//! A non-blocking descriptor that is read directly, and waited for by the runtime only when there is nothing to read.
//!
//! tokio's own streams refuse to read until the runtime has seen them ready, but what a process wrote before it ended
//! must be read at the moment that its end is known.

use std::io::PipeReader;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::net::unix::pipe::Receiver;

/// A descriptor that is never replaced while the runtime watches it.
#[derive(Debug)]
pub struct Watched<T: AsRawFd>(AsyncFd<T>);

impl Watched<UnixStream> {
    /// Watches a socket, which becomes non-blocking.
    ///
    /// # Errors
    /// When the system or the runtime refuses.
    pub fn socket(socket: UnixStream) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        // SAFETY: the stream owns its descriptor; this type hands out shared references only, through which it can
        // be neither closed nor replaced.
        Ok(Self(unsafe { AsyncFd::register(socket) }?))
    }
}

impl Watched<PipeReader> {
    /// Watches a pipe, which becomes non-blocking.
    ///
    /// # Errors
    /// When the system or the runtime refuses.
    pub fn pipe(pipe: PipeReader) -> std::io::Result<Self> {
        let fd: OwnedFd = Receiver::from_owned_fd(pipe.into())?.into_nonblocking_fd()?;
        // SAFETY: as for a socket.
        Ok(Self(unsafe { AsyncFd::register(PipeReader::from(fd)) }?))
    }
}

impl<T: AsRawFd> Watched<T> {
    /// The stream itself, to read and write.
    #[must_use]
    pub fn get(&self) -> &T {
        self.0.get_ref()
    }

    /// Waits until there is something to read.
    ///
    /// # Errors
    /// When the runtime has ended.
    pub async fn readable(&self) -> std::io::Result<AsyncFdReadyGuard<'_, T>> {
        self.0.readable().await
    }
}
