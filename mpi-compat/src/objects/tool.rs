//! The tool interface.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;

use crate::constants::*;

/// The state of the tool interface.
#[derive(Default)]
pub struct Tool {
    /// The number of calls of `MPI_T_init_thread` minus the number of calls of `MPI_T_finalize`.
    pub opened: Cell<u32>,
    /// Sessions of performance variables.
    pub sessions: RefCell<Vec<usize>>,
    pub last_session: Cell<usize>,
}

impl Tool {
    pub fn has(&self, session: Opaque) -> Result<(), c_int> {
        self.sessions.borrow().contains(&session.0).then_some(()).ok_or(MPI_T_ERR_INVALID_SESSION)
    }
}
