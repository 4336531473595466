//! Callbacks: functions of the program that the runtime calls. This module says which of them may not communicate, and
//! handles their panics. ARCHITECTURE.md ("Callbacks") has a table of the calls that each may make.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, ErrorKind};

/// A callback that runs inside a turn of progress or a step of a collective. While it runs, calls that communicate,
/// wait or make progress are refused on every device, since some devices could not execute them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callback {
    /// A header handler or an `Inline` completion of an active message.
    Handler,
    /// A remote function that runs in the dispatcher.
    ShortFunction,
    /// The operator of a reduction, or the function of an accumulate.
    Operator,
    /// A function that gets an entry of a distributed map.
    MapFunction,
}

impl Callback {
    #[cold]
    pub(crate) fn refuse(self, operation: &'static str) -> Error {
        let (what, remedy) = match self {
            Self::Handler => {
                ("an active message handler", "make the call from a deferred completion (`OnComplete::deferred`)")
            }
            Self::ShortFunction => {
                ("a short remote function", "register the function with `register`, which allows it to wait")
            }
            Self::Operator => ("an operator", "fetch the operator's data before the call"),
            Self::MapFunction => {
                ("a function of a map", "return from it first, with what the call needs as its result")
            }
        };
        Error::new(ErrorKind::InCallback, operation).cause(format!("{what} is running at this rank")).remedy(remedy)
    }
}

/// Runs code of the program. A panic is converted to its message, and its payload is dropped, even if dropping it
/// panics.
///
/// # Errors
/// The message of the panic.
///
/// ```
/// use farside_core::callback::caught;
///
/// assert_eq!(caught(|| 1 + 1), Ok(2));
/// // `resume_unwind` prints nothing.
/// let failed = caught(|| std::panic::resume_unwind(Box::new("no data")));
/// assert_eq!(failed, Err::<(), _>("no data".to_owned()));
/// ```
pub fn caught<R>(run: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(message_of)
}

/// The error of a call whose operator has panicked with this message.
#[cold]
#[must_use]
pub fn operator_panicked(text: &str) -> Error {
    let e = Error::new(ErrorKind::Aborted, "reduce").cause(format!("the operator panicked: {text}"));
    e.remedy("fix the operator, or make it return without panicking")
}

/// The message of a panic that was caught. Drops the payload; if that panics too, the second payload is leaked.
#[must_use]
pub fn message_of(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no message").to_owned();
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(second);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    struct PanicsOnDrop;

    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(PanicsOnDrop));
        }
    }

    #[test]
    fn payload_whose_drop_panics_is_caught_with_its_panic() {
        let failed = caught(|| std::panic::resume_unwind(Box::new(PanicsOnDrop)));
        assert_eq!(failed, Err::<(), _>("no message".to_owned()));
        let failed = caught(|| std::panic::resume_unwind(Box::new("text".to_owned())));
        assert_eq!(failed, Err::<(), _>("text".to_owned()));
    }
}
