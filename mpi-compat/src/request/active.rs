//! An active request: a receive in the table of receives, or an operation.

use std::rc::Rc;

use farside_core::bill::Awaited;

use super::{get, is_null, on, release};
use crate::arguments::StatusOut;
use crate::constants::*;
use crate::fail::{Fail, Result};
use crate::handle::Request;
use crate::objects::Outcome;
use crate::runtime::{Call, Operation, Persistence};
use crate::status::Status;

/// The object that an active request refers to.
pub enum Active {
    Receive(Request),
    Operation(Rc<dyn Operation>),
}

impl Active {
    /// The object of a request; `None` if the request is null, or persistent and not started.
    #[inline]
    pub fn of(call: &Call<'_>, request: Request, name: &'static str) -> Result<Option<Self>> {
        if is_null(request) {
            return Ok(None);
        }
        if call.receives.has(request) {
            return Ok(Some(Self::Receive(request)));
        }
        let operation = get(call, request, name)?;
        Ok((operation.persistence() != Persistence::Inactive).then_some(Self::Operation(operation)))
    }

    #[inline]
    pub fn has_ended(&self, call: &Call<'_>) -> bool {
        match self {
            Self::Receive(request) => call.receives.has_ended(*request),
            Self::Operation(operation) => operation.has_ended(),
        }
    }

    pub fn awaits(&self, call: &Call<'_>) -> Option<Awaited> {
        match self {
            Self::Receive(request) => call.receives.awaits(*request),
            Self::Operation(operation) => operation.awaits(),
        }
    }

    /// The operation; `None` if another thread has freed the request of a receive.
    fn operation(&self, call: &Call<'_>) -> Option<Rc<dyn Operation>> {
        match self {
            Self::Receive(request) => call.receives.operation(*request).map(|operation| operation as Rc<dyn Operation>),
            Self::Operation(operation) => Some(Rc::clone(operation)),
        }
    }

    /// Directs an error to the error handler of the operation's object.
    pub fn direct_error(&self, call: &Call<'_>, failed: Fail) -> Fail {
        match self.operation(call) {
            Some(operation) => on(&*operation, failed),
            None => failed,
        }
    }

    /// Returns the status and the error of an operation that has ended, without consuming them.
    pub fn read(&self, call: &Call<'_>, status: StatusOut) -> Result {
        let outcome = self.operation(call).map(|operation| operation.outcome(call));
        outcome.unwrap_or(Outcome::from(Status::EMPTY)).put(status)
    }

    /// Returns the status and the error of an operation that has ended, and frees the request if it is not persistent.
    #[inline]
    pub fn complete(self, call: &Call<'_>, request: &mut Request, status: StatusOut) -> Result {
        if let Self::Receive(receive) = self
            && let Some((comm, ended)) = call.receives.close(receive)
        {
            *request = MPI_REQUEST_NULL;
            return match ended {
                Ok(received) => received.map_or(Status::EMPTY.into(), |one| Outcome::received(&comm, &one)).put(status),
                Err(e) => Err(Fail::from(e).on(&comm)),
            };
        }
        let Some(operation) = self.operation(call) else {
            // The request occurs twice in the call's array.
            *request = MPI_REQUEST_NULL;
            status.set(Status::EMPTY);
            return Ok(());
        };
        if operation.persistence() == Persistence::None {
            release(call, *request);
            *request = MPI_REQUEST_NULL;
        }
        operation.complete(call, status)
    }
}
