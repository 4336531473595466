//! Error handlers, and the objects that have one. Module `errors` calls them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::constants::Callback;

/// The kind of object for which an error handler is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Comm,
    Win,
    File,
    Session,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ends the job (`MPI_ERRORS_ABORT`).
    Abort,
    Return,
    Function(Target, Callback),
}

/// An error handler.
pub struct ErrhandlerObject {
    pub action: Action,
    pub handle: Cell<usize>,
}

/// The error handler of an object.
pub type Handler = RefCell<Rc<ErrhandlerObject>>;

/// An error handler, and the object handle that is passed to it.
pub type ErrhandlerOf = (Rc<ErrhandlerObject>, usize);

/// An object that has an error handler.
pub trait HasErrhandler {
    fn errhandler_of(&self) -> ErrhandlerOf;
}
