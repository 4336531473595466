//! Error classes, codes and messages, and the predefined error handlers.
//!
//! A code of this library consists of a class and, in its upper half, the number of an error message; the last [`KEPT`]
//! messages are kept for `MPI_Error_string`. Classes and codes that the program adds follow `MPI_ERR_LASTCODE`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::rc::Rc;

use crate::constants::*;
use crate::errhandler::{Action, ErrhandlerObject};
use crate::handle::{Errhandler, Handle, Known, Objects};

/// The number of messages that are kept.
const KEPT: usize = 64;
/// The mask of a code's lower half, the class.
const CLASS: c_int = 0xffff;

impl Known for ErrhandlerObject {
    fn handle(&self) -> &Cell<usize> {
        &self.handle
    }
}

/// A class or code that the program has added.
pub struct Added {
    pub class: c_int,
    pub text: Vec<u8>,
}

/// The state of error handling.
pub struct Errors {
    /// The last messages, with their numbers.
    recent: RefCell<VecDeque<(c_int, String)>>,
    last: Cell<c_int>,
    pub added: RefCell<BTreeMap<c_int, Added>>,
    pub last_used: Cell<c_int>,
    /// The initial error handler of files that are opened.
    pub files: RefCell<Option<Rc<ErrhandlerObject>>>,
}

impl Default for Errors {
    fn default() -> Self {
        let (recent, last, added, files) = Default::default();
        Self { recent, last, added, last_used: Cell::new(MPI_ERR_LASTCODE), files }
    }
}

impl Errors {
    /// The code for a class and a message. A code that a callback has returned is not changed.
    pub fn code_of(&self, class: c_int, text: &str) -> c_int {
        if !(0..=MPI_ERR_LASTCODE).contains(&class) {
            return class;
        }
        let number = self.last.get() % 0x7fff + 1;
        self.last.set(number);
        let mut recent = self.recent.borrow_mut();
        if recent.len() == KEPT {
            recent.pop_front();
        }
        recent.push_back((number, text.into()));
        number << 16 | class
    }

    /// The class of a code; `None` if there is no such code.
    pub fn class(&self, code: c_int) -> Option<c_int> {
        let base = code & CLASS;
        if code < 0 {
            None
        } else if ERROR_CLASSES.iter().any(|(_, class, _)| *class == base) && base != MPI_ERR_LASTCODE {
            Some(base)
        } else {
            self.added.borrow().get(&base).map(|added| added.class)
        }
    }

    pub fn text(&self, code: c_int) -> Option<Vec<u8>> {
        let (base, number) = (code & CLASS, code >> 16);
        if let Some(added) = self.added.borrow().get(&base) {
            return Some(added.text.clone());
        }
        self.class(code)?;
        let (name, _, words) = ERROR_CLASSES.iter().find(|(_, class, _)| *class == base)?;
        let message = self.recent.borrow().iter().find(|(n, _)| *n == number).map(|(_, text)| text.clone());
        Some(match message {
            Some(message) => format!("{name}: {words}: {message}").into_bytes(),
            None => format!("{name}: {words}").into_bytes(),
        })
    }
}

/// Creates the predefined handlers.
pub fn predefined(errhandlers: &Objects<Errhandler, ErrhandlerObject>, errors: &Errors) {
    let actions =
        [(MPI_ERRORS_ARE_FATAL, Action::Abort), (MPI_ERRORS_ABORT, Action::Abort), (MPI_ERRORS_RETURN, Action::Return)];
    for (handle, action) in actions {
        let object = ErrhandlerObject { action, handle: Cell::new(handle.value()) };
        errhandlers.set_predefined(handle, Some(Rc::new(object)));
    }
    *errors.files.borrow_mut() = errhandlers.get(MPI_ERRORS_RETURN).ok();
}
