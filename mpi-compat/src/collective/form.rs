//! The forms of a collective (MPI-5.0 sections 6.12 and 6.13), and the requests of non-blocking and persistent ones.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_core::Job;
use farside_core::bill::Awaited;
use farside_core::coll::execute::CallMode;

use super::plan::{Caller, Plan};
use crate::arguments::{Out, StatusOut};
use crate::constants::*;
use crate::errhandler::HasErrhandler;
use crate::fail::{Fail, Result, fail};
use crate::handle::{Comm, Info, Request};
use crate::objects::{CommObject, Outcome};
use crate::runtime::{Call, Operation, Persistence};
use crate::status::Status;

/// The form of a collective call.
pub enum Form {
    Blocking,
    Started(Out<Request>),
    Persistent(Info, Out<Request>),
}

/// Work after the successful completion of a call, in addition to that of its plan. Called once.
pub type Finish = Box<dyn FnOnce(&Call<'_>) -> Result>;

impl Form {
    /// The form in which the core makes the call.
    pub fn mode(&self, call: &Call<'_>) -> Result<CallMode> {
        match self {
            Self::Blocking => Ok(CallMode::Blocking),
            Self::Started(_) => Ok(CallMode::Started),
            Self::Persistent(MPI_INFO_NULL, _) => Ok(CallMode::Persistent),
            Self::Persistent(info, _) => call.infos.get(*info).map(|_| CallMode::Persistent),
        }
    }

    /// Makes the call, starts it, or only creates its request, depending on the form.
    pub fn make(self, caller: &Caller<'_>, plan: Plan, finish: Option<Finish>) -> Result {
        let call = caller.call;
        let (request, is_persistent) = match self {
            Self::Blocking => {
                plan.make(call)?;
                return finish.map_or(Ok(()), |finish| finish(call));
            }
            Self::Started(request) => {
                plan.start()?;
                (request, false)
            }
            Self::Persistent(_, request) => (request, true),
        };
        let comm = (caller.handle, Rc::clone(&caller.comm));
        let (is_active, ended, finish) = (Cell::new(!is_persistent), RefCell::default(), RefCell::new(finish));
        request.set(call.requests.insert(Rc::new(Pending { plan, comm, is_persistent, is_active, ended, finish })));
        Ok(())
    }
}

/// A collective with a request.
struct Pending {
    plan: Plan,
    comm: (Comm, Rc<CommObject>),
    is_persistent: bool,
    is_active: Cell<bool>,
    /// The result, once it has been queried.
    ended: RefCell<Option<std::result::Result<(), Fail>>>,
    finish: RefCell<Option<Finish>>,
}

impl Pending {
    fn end(&self, call: &Call<'_>) -> Result {
        self.plan.call.wait()?;
        self.plan.finish();
        self.finish.take().map_or(Ok(()), |finish| finish(call))
    }
}

impl Operation for Pending {
    fn object(&self) -> Option<&dyn HasErrhandler> {
        Some(&self.comm)
    }

    fn persistence(&self) -> Persistence {
        match (self.is_persistent, self.is_active.get()) {
            (false, _) => Persistence::None,
            (true, false) => Persistence::Inactive,
            (true, true) => Persistence::Active,
        }
    }

    fn has_ended(&self) -> bool {
        !self.plan.call.is_active()
    }

    fn awaits(&self) -> Option<Awaited> {
        Some(self.plan.call.awaits())
    }

    fn outcome(&self, call: &Call<'_>) -> Outcome {
        let known = self.ended.borrow().clone();
        let ended = known.unwrap_or_else(|| self.end(call).map_err(|failed| failed.on(&self.comm)));
        *self.ended.borrow_mut() = Some(ended.clone());
        Outcome { status: Status::EMPTY, failed: ended.err() }
    }

    fn complete(self: Rc<Self>, call: &Call<'_>, status: StatusOut) -> Result {
        let outcome = self.outcome(call);
        *self.ended.borrow_mut() = None;
        self.is_active.set(false);
        outcome.put(status)
    }

    fn start(&self, _: &Call<'_>) -> Result {
        self.plan.start()?;
        self.is_active.set(true);
        Ok(())
    }

    fn cancel(&self, _: &Call<'_>) -> Result {
        Err(fail(MPI_ERR_REQUEST, "belongs to a collective operation, which cannot be cancelled").named("request"))
    }

    fn free(&self, call: &Call<'_>) -> Result<bool> {
        if !self.is_active.get() {
            return Ok(false);
        }
        if !call.test(|| self.has_ended())? {
            let text = "belongs to an active collective operation, which must be completed before its request is freed";
            return Err(fail(MPI_ERR_REQUEST, text).named("request").on(&self.comm));
        }
        // The standard forbids freeing such a request while it is active, but programs do so.
        self.outcome(call).failed.map_or(Ok(false), Err)
    }

    fn abandon(&self, _: &Job) {
        self.plan.call.cancel();
    }
}
