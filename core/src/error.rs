//! The error type of the whole runtime: operation, rank, device, cause and remedy.

use std::fmt;
use std::panic::Location;

/// The result of every fallible call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $remedy:literal;)*) => {
        /// Kind of an error; the only list of errors of the runtime.
        ///
        /// ```
        /// use farside_core::{ErrorKind, Job};
        ///
        /// let failed = Job::threads(2, |job| job.world()?.subteam(&[0, 5]).map(drop));
        /// assert_eq!(failed.unwrap_err().kind(), ErrorKind::NoSuchRank);
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind { $($(#[$doc])* $name,)* }

        impl ErrorKind {
            /// Every kind, for tables and tests.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$name),*];

            /// A short description of the kind.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(ErrorKind::$name => $text,)* }
            }

            /// The usual remedy; a call may give a better one.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self { $(ErrorKind::$name => $remedy,)* }
            }
        }
    };
}

kinds! {
    /// A rank that is not in the team or group.
    NoSuchRank = "no such rank", "use a rank below the team's size";
    /// A target range outside the window.
    OutOfRange = "target range outside the window", "check the displacement and the length against the target's window size";
    /// A target address that the element type does not allow.
    Misaligned = "misaligned target", "use a displacement that is a multiple of the element size";
    /// A call that the window's present epoch does not allow.
    WrongEpoch = "call not allowed in the current epoch", "open the epoch that the call needs (fence, start, lock), and close any epoch that forbids it";
    /// A call that communicates, waits or makes progress inside a callback that may not do so.
    InCallback = "not allowed inside a callback", "make the call outside the callback";
    /// A window, handle or registration that was freed.
    Freed = "the window has been freed", "do not use a window after it was freed";
    /// Memory that was detached from a dynamic window, or never attached.
    NotAttached = "the memory is not attached to the window", "attach it at the target first, and do not detach it while others use it";
    /// A remote key that the target does not know.
    BadKey = "unknown remote key", "the key's registration was released; exchange keys again";
    /// An argument that no call can accept.
    BadArgument = "bad argument", "correct the argument";
    /// A call that only some windows, devices or builds support.
    Unsupported = "not supported here", "see the support table of the README";
    /// Arguments of one collective call that contradict each other between ranks.
    Mismatch = "ranks disagree in a collective call", "call it with matching arguments on every rank of the team";
    /// A rank that ended or was lost while others waited for it.
    PeerLost = "a rank is gone", "check that rank's output and exit status; the job cannot continue without it";
    /// A wait that took longer than allowed.
    Timeout = "timed out", "raise FARSIDE_TIMEOUT_S if the ranks are only slow";
    /// No room for shared memory.
    SharedMemoryFull = "no room for shared memory", "free space in the shared memory file system, enlarge it (mount -o remount,size=.. /dev/shm), or set FARSIDE_SHM_DIR";
    /// A system limit that is too low: descriptors, locked memory, processes.
    Limit = "a system limit is too low", "raise the limit (ulimit) for this process";
    /// The system forbids something that the runtime needs.
    Forbidden = "forbidden by the system", "obtain the permission named in the cause, or choose another mechanism in the settings";
    /// A launcher that does not speak a supported protocol, or breaks it.
    Launcher = "the launcher cannot be used", "start with `farside run`, or with a launcher that speaks PMI-1, PMI-2 or PMIx (mpiexec.hydra, prterun)";
    /// Bytes from a peer that break the protocol.
    Protocol = "a peer broke the protocol", "make sure that all ranks run the same build";
    /// A setting with a value that is not allowed.
    Setting = "bad setting", "see `farside info` for the settings and their values";
    /// The job was aborted.
    Aborted = "the job was aborted", "see the reason given by the rank that aborted";
    /// An error of the operating system that none of the others describes.
    System = "system error", "see the cause";
}

/// A rank of the job: `usize` in interfaces, `u32` in messages.
pub trait RankNumber {
    /// The rank.
    fn number(self) -> usize;
}

impl RankNumber for usize {
    fn number(self) -> usize {
        self
    }
}

impl RankNumber for u32 {
    fn number(self) -> usize {
        self as usize
    }
}

/// Conversion of literal numbers.
impl RankNumber for i32 {
    fn number(self) -> usize {
        usize::try_from(self).unwrap_or(usize::MAX)
    }
}

struct Inner {
    kind: ErrorKind,
    operation: &'static str,
    rank: Option<usize>,
    peer: Option<usize>,
    device: Option<&'static str>,
    cause: String,
    remedy: Option<String>,
    source: Option<std::io::Error>,
    caller: Option<&'static Location<'static>>,
}

/// An error: operation, rank, peer, device, cause and remedy. One word wide, so that results stay cheap. `Debug`
/// reads like `Display`, for programs whose `main` returns it.
///
/// ```
/// use farside_core::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::BadArgument, "scatter").rank(2).cause("3 counts for 4 ranks");
/// assert_eq!((error.kind(), error.operation()), (ErrorKind::BadArgument, "scatter"));
/// assert_eq!(error.to_string(), "scatter: bad argument (at rank 2): 3 counts for 4 ranks; correct the argument");
/// ```
pub struct Error(Box<Inner>);

impl Error {
    /// An error of `kind` in `operation`.
    #[cold]
    #[must_use]
    pub fn new(kind: ErrorKind, operation: &'static str) -> Self {
        Self(Box::new(Inner {
            kind,
            operation,
            rank: None,
            peer: None,
            device: None,
            cause: String::new(),
            remedy: None,
            source: None,
            caller: None,
        }))
    }

    /// An error of the operating system in `operation`, stored as the source; `Limit` if the process has no descriptors
    /// left.
    #[cold]
    #[must_use]
    pub fn system(operation: &'static str, source: std::io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => {
                let e = Self::new(ErrorKind::Limit, operation).source_error(source);
                e.remedy("raise the limit of open descriptors (`ulimit -n`)")
            }
            _ => Self::new(ErrorKind::System, operation).source_error(source),
        }
    }

    /// `errno` as an error in `operation`.
    #[cold]
    #[must_use]
    pub fn last_os(operation: &'static str) -> Self {
        Self::system(operation, std::io::Error::last_os_error())
    }

    /// Sets the reporting rank.
    #[must_use]
    pub fn rank(mut self, rank: impl RankNumber) -> Self {
        self.0.rank = Some(rank.number());
        self
    }

    /// Sets the rank that is to blame or was addressed.
    #[must_use]
    pub fn peer(mut self, peer: impl RankNumber) -> Self {
        self.0.peer = Some(peer.number());
        self
    }

    /// Sets the device.
    #[must_use]
    pub fn device(mut self, device: &'static str) -> Self {
        self.0.device = Some(device);
        self
    }

    /// Sets the cause.
    #[must_use]
    pub fn cause(mut self, cause: impl Into<String>) -> Self {
        self.0.cause = cause.into();
        self
    }

    /// Sets the operation, for a caller that determines it more precisely than the code that made the error.
    pub(crate) fn during(mut self, operation: &'static str) -> Self {
        self.0.operation = operation;
        self
    }

    /// Prefixes the cause with the step that needed the operation.
    pub(crate) fn because(mut self, why: &str) -> Self {
        self.0.cause = if self.0.cause.is_empty() { why.to_owned() } else { format!("{why}: {}", self.0.cause) };
        self
    }

    /// The text of the cause, or that of the kind if there is no cause.
    pub(crate) fn reason(&self) -> String {
        match (&self.0.cause, &self.0.source) {
            (cause, Some(source)) => format!("{cause} {source}").trim().to_owned(),
            (cause, None) if cause.is_empty() => self.0.kind.text().to_owned(),
            (cause, None) => cause.clone(),
        }
    }

    /// The same error with the ranks in it renumbered.
    pub(crate) fn renumbered(mut self, number: impl Fn(usize) -> usize) -> Self {
        self.0.rank = self.0.rank.map(&number);
        self.0.peer = self.0.peer.map(number);
        self
    }

    /// Sets a remedy that is better than the kind's own.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.0.remedy = Some(remedy.into());
        self
    }

    /// Sets an operating-system error as the source.
    pub(crate) fn source_error(mut self, source: std::io::Error) -> Self {
        self.0.source = Some(source);
        self
    }

    /// A copy of the error; an operating-system error becomes part of the cause.
    #[must_use]
    pub fn again(&self) -> Self {
        let e = &self.0;
        let cause = match (&e.source, e.cause.is_empty()) {
            (None, _) => e.cause.clone(),
            (Some(source), true) => source.to_string(),
            (Some(source), false) => format!("{}: {source}", e.cause),
        };
        Self(Box::new(Inner { cause, remedy: e.remedy.clone(), source: None, ..**e }))
    }

    /// The same error without the location of the call, for a call that the program has not made itself.
    #[must_use]
    pub fn without_caller(mut self) -> Self {
        self.0.caller = None;
        self
    }

    /// The location in the program that made the call, if known.
    #[must_use]
    pub fn caller(&self) -> Option<&'static Location<'static>> {
        self.0.caller
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The call that failed.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// The rank that is to blame or was addressed, if any.
    #[must_use]
    pub fn blamed(&self) -> Option<usize> {
        self.0.peer
    }

    /// The same rank, as the `u32` of messages.
    #[must_use]
    pub fn blamed_number(&self) -> Option<u32> {
        self.0.peer.and_then(|peer| u32::try_from(peer).ok())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = &self.0;
        write!(f, "{}: {}", e.operation, e.kind.text())?;
        if let Some(rank) = e.rank {
            write!(f, " (at rank {rank})")?;
        }
        if let Some(peer) = e.peer {
            write!(f, ", peer rank {peer}")?;
        }
        if let Some(device) = e.device {
            write!(f, ", device {device}")?;
        }
        if !e.cause.is_empty() {
            write!(f, ": {}", e.cause)?;
        }
        if let Some(source) = &e.source {
            write!(f, ": {source}")?;
        }
        write!(f, "; {}", e.remedy.as_deref().unwrap_or(e.kind.remedy()))?;
        if let Some(caller) = e.caller {
            write!(f, " (called at {}:{})", caller.file(), caller.line())?;
        }
        Ok(())
    }
}

/// Runs the body of a public call. If the public function is `#[track_caller]`, an error contains the location of the
/// call; that of the outermost such call is used.
///
/// # Errors
/// Those of `body`.
#[inline(always)]
#[track_caller]
pub fn located<R>(body: impl FnOnce() -> Result<R>) -> Result<R> {
    body().located()
}

/// [`located`] for results, for short calls that a closure would keep from being inlined.
pub trait Located {
    /// The same result; an error contains the location of the call.
    #[track_caller]
    fn located(self) -> Self;
}

impl<R> Located for Result<R> {
    #[inline(always)]
    #[track_caller]
    fn located(self) -> Self {
        match self {
            Ok(r) => Ok(r),
            Err(e) => Err(called_at(e, Location::caller())),
        }
    }
}

#[cold]
fn called_at(mut e: Error, caller: &'static Location<'static>) -> Error {
    e.0.caller = Some(caller);
    e
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|e| e as _)
    }
}
