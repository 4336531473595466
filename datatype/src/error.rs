//! Errors of datatypes, of their transfers and of their wire forms.

use std::fmt;

/// The kind of a [`DatatypeError`].
///
/// ```
/// use farside_datatype::{Datatype, DatatypeErrorKind, Named};
///
/// let error = Datatype::vector(1 << 40, 1, 1 << 40, &Named::Int.into()).unwrap_err();
/// assert_eq!(error.kind(), DatatypeErrorKind::Overflow);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DatatypeErrorKind {
    /// A size, an extent or a displacement does not fit 64 bits.
    Overflow,
    /// The constructor does not accept an argument.
    BadArgument,
    /// More than [`MAX_DEPTH`](crate::MAX_DEPTH) nested constructors or levels of layout.
    TooDeep,
    /// The elements of the two sides differ in number, order or type.
    Signature,
    /// Blocks of the receiving side share a byte.
    Overlap,
    /// The buffer does not contain all bytes of the message.
    Buffer,
    /// The bytes are not the wire form of a layout.
    Wire,
    /// A value does not fit its external32 form, or the type has no such form.
    External,
    /// The device's capabilities do not allow the scheme.
    Scheme,
}

impl DatatypeErrorKind {
    /// The usual remedy.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Overflow => "keep sizes, extents and displacements below 2^63 bytes",
            Self::BadArgument => "correct the argument",
            Self::TooDeep => "construct the type with fewer nested constructors",
            Self::Signature => "use the same elements in the same order at origin and target",
            Self::Overlap => "receive into a datatype whose blocks are disjoint",
            Self::Buffer => "pass a buffer that spans the message from its true lower to its true upper bound",
            Self::Wire => "run the same build of Farside at all ranks",
            Self::External => "use fixed-width types and values that external32 can hold",
            Self::Scheme => "let the planner choose the scheme",
        }
    }
}

/// An error of this crate: the call, the cause, and the kind, which implies a remedy.
///
/// ```
/// use farside_datatype::{Datatype, DatatypeErrorKind, Named};
///
/// let error = Datatype::indexed(&[1, 2], &[0], &Named::Int.into()).unwrap_err();
/// assert_eq!((error.kind(), error.call()), (DatatypeErrorKind::BadArgument, "Datatype::indexed"));
/// assert_eq!(error.to_string(), "Datatype::indexed: the lists have different lengths: 2 and 1; correct the argument");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatatypeError {
    kind: DatatypeErrorKind,
    call: &'static str,
    cause: String,
}

impl DatatypeError {
    #[cold]
    pub(crate) fn new(kind: DatatypeErrorKind, call: &'static str, cause: impl Into<String>) -> Self {
        Self { kind, call, cause: cause.into() }
    }

    #[cold]
    pub(crate) fn overflow(call: &'static str, what: &str) -> Self {
        Self::new(DatatypeErrorKind::Overflow, call, format!("{what} exceeds 64 bits"))
    }

    #[cold]
    pub(crate) fn argument(call: &'static str, cause: impl Into<String>) -> Self {
        Self::new(DatatypeErrorKind::BadArgument, call, cause)
    }

    /// The cause, as data.
    #[must_use]
    pub fn kind(&self) -> DatatypeErrorKind {
        self.kind
    }

    /// The cause, without the call and the remedy.
    #[must_use]
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// The call that failed.
    #[must_use]
    pub fn call(&self) -> &'static str {
        self.call
    }
}

impl fmt::Display for DatatypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.call, self.cause, self.kind.remedy())
    }
}

impl std::error::Error for DatatypeError {}

/// The result of this crate's fallible calls.
pub type Result<T> = std::result::Result<T, DatatypeError>;
