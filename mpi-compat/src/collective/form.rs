//! The forms of a collective (MPI-5.0 sections 6.12 and 6.13), and the requests of non-blocking and persistent ones.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use farside_core::Job;
use farside_core::bill::Awaited;
use farside_core::coll::execute::Collective;

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

/// Work after a call that has ended without an error, in addition to that of its plan. Called once.
pub type Finish = Box<dyn FnOnce(&Call<'_>) -> Result>;

impl Form {
    /// Makes the call, starts it, or prepares it, depending on the form.
    pub fn make(self, caller: &Caller<'_>, plan: Plan, finish: Option<Finish>) -> Result {
        let call = caller.call;
        let request = match self {
            Self::Blocking => {
                plan.make(call)?;
                return finish.map_or(Ok(()), |finish| finish(call));
            }
            Self::Started(request) => request,
            Self::Persistent(info, request) => {
                if info != MPI_INFO_NULL {
                    call.infos.get(info)?;
                }
                let collective = plan.persistent()?;
                let operation = Pending::new(caller, plan, true, None);
                let _ = operation.collective.set(collective);
                request.set(call.requests.insert(Rc::new(operation)));
                return Ok(());
            }
        };
        let collective = plan.start()?;
        let operation = Pending::new(caller, plan, false, finish);
        let _ = operation.collective.set(collective);
        operation.is_active.set(true);
        request.set(call.requests.insert(Rc::new(operation)));
        Ok(())
    }
}

/// A collective with a request. The plan is dropped after the collective, which uses its memory.
struct Pending {
    collective: OnceCell<Collective>,
    plan: Plan,
    comm: (Comm, Rc<CommObject>),
    is_persistent: bool,
    is_active: Cell<bool>,
    /// The result, once it has been asked for.
    ended: RefCell<Option<std::result::Result<(), Fail>>>,
    finish: RefCell<Option<Finish>>,
}

impl Pending {
    fn new(caller: &Caller<'_>, plan: Plan, is_persistent: bool, finish: Option<Finish>) -> Self {
        let (collective, ended) = Default::default();
        let (is_active, finish) = (Cell::new(false), RefCell::new(finish));
        let comm = (caller.handle, Rc::clone(&caller.comm));
        Self { collective, plan, comm, is_persistent, is_active, ended, finish }
    }

    fn end(&self, call: &Call<'_>) -> Result {
        self.collective.get().map_or(Ok(()), Collective::wait)?;
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

    fn is_over(&self) -> bool {
        self.collective.get().is_none_or(|collective| !collective.is_active())
    }

    fn awaits(&self) -> Option<Awaited> {
        self.collective.get().map(Collective::awaits)
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
        if let Some(collective) = self.collective.get() {
            self.plan.start_again(collective)?;
        }
        self.is_active.set(true);
        Ok(())
    }

    fn cancel(&self, _: &Call<'_>) -> Result {
        Err(fail(MPI_ERR_REQUEST, "is of a collective, which cannot be cancelled").named("request"))
    }

    fn free(&self, call: &Call<'_>) -> Result<bool> {
        if !self.is_active.get() {
            return Ok(false);
        }
        if !call.test(|| self.is_over())? {
            let text = "is of a collective in progress, which must be completed";
            return Err(fail(MPI_ERR_REQUEST, text).named("request").on(&self.comm));
        }
        // The standard forbids to free such a request while it is active, but programs do so.
        self.outcome(call).failed.map_or(Ok(false), Err)
    }

    fn give_up(&self, _: &Job) {
        self.collective.get().inspect(|collective| collective.cancel());
    }
}
