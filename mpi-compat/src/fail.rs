//! Errors of calls: a class, a text, and the invalid argument.

use std::ffi::c_int;
use std::ops::{Deref, DerefMut};

use farside_core::ErrorKind;
use farside_datatype::{DatatypeError, DatatypeErrorKind};

use crate::constants::*;
use crate::errhandler::{ErrhandlerOf, HasErrhandler};

/// An error of a call. One word, so that results are cheap.
#[derive(Clone)]
pub struct Fail(Box<Reason>);

/// The content of an error.
#[derive(Clone)]
pub struct Reason {
    /// A class, or the code that a callback returned.
    pub code: c_int,
    pub text: String,
    /// The name of the invalid argument.
    pub argument: Option<&'static str>,
    /// The invalid handle; the exported function knows which argument it is.
    pub handle: Option<usize>,
    /// Whether the other ranks of a collective have been notified of the error, if they need to be.
    pub is_announced: bool,
    /// The error handler to call, if it is not that of the first argument. Requests hold their error handler, since its
    /// object may be freed.
    pub on: Option<ErrhandlerOf>,
}

/// An error of a class.
#[cold]
pub fn fail(class: c_int, text: impl Into<String>) -> Fail {
    Fail(Box::new(Reason {
        code: class,
        text: text.into(),
        argument: None,
        handle: None,
        is_announced: false,
        on: None,
    }))
}

/// The result of a call.
pub type Result<T = (), E = Fail> = std::result::Result<T, E>;

impl Deref for Fail {
    type Target = Reason;

    fn deref(&self) -> &Reason {
        &self.0
    }
}

impl DerefMut for Fail {
    fn deref_mut(&mut self) -> &mut Reason {
        &mut self.0
    }
}

impl Fail {
    /// Sets another class.
    pub fn class(mut self, class: c_int) -> Self {
        self.code = class;
        self
    }

    /// Sets the name of the invalid argument.
    pub fn named(mut self, argument: &'static str) -> Self {
        self.argument = Some(argument);
        self
    }

    /// Sets the object whose error handler is called.
    pub fn on(mut self, object: &dyn HasErrhandler) -> Self {
        self.on.get_or_insert_with(|| object.errhandler_of());
        self
    }

    /// Sets the invalid handle.
    pub fn value(mut self, handle: usize) -> Self {
        self.handle = Some(handle);
        self
    }
}

/// The error of a rank argument, of a group of `ranks` ranks.
#[cold]
pub fn bad_rank(rank: c_int, ranks: usize, name: &'static str) -> Fail {
    let last = ranks.saturating_sub(1);
    fail(MPI_ERR_RANK, format!("is {rank}, but there are {ranks} ranks, from 0 to {last}")).named(name)
}

impl From<farside_core::Error> for Fail {
    #[cold]
    fn from(error: farside_core::Error) -> Self {
        use ErrorKind as K;
        let class = match error.kind() {
            K::NoSuchRank => MPI_ERR_RANK,
            K::OutOfRange | K::NotAttached | K::BadKey => MPI_ERR_RMA_RANGE,
            K::WrongEpoch => MPI_ERR_RMA_SYNC,
            K::Misaligned => MPI_ERR_DISP,
            K::Freed => MPI_ERR_WIN,
            K::Unsupported => MPI_ERR_UNSUPPORTED_OPERATION,
            K::Limit | K::SharedMemoryFull => MPI_ERR_NO_MEM,
            K::PeerLost => MPI_ERR_PROC_ABORTED,
            K::BadArgument | K::Mismatch => MPI_ERR_ARG,
            K::Protocol => MPI_ERR_INTERN,
            _ => MPI_ERR_OTHER,
        };
        fail(class, error.to_string())
    }
}

impl From<DatatypeError> for Fail {
    #[cold]
    fn from(error: DatatypeError) -> Self {
        let class = match error.kind() {
            DatatypeErrorKind::External => MPI_ERR_CONVERSION,
            DatatypeErrorKind::Buffer => MPI_ERR_TRUNCATE,
            DatatypeErrorKind::Signature | DatatypeErrorKind::Overlap | DatatypeErrorKind::TooDeep => MPI_ERR_TYPE,
            _ => MPI_ERR_ARG,
        };
        fail(class, error.to_string())
    }
}
