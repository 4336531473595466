#![allow(unsafe_code)]
//! The state of the library, which is the process's, calls into it and their waits, and the operations of requests.
//!
//! There is one lock (`lock`). Every call takes it, and a thread that has it takes it again, since functions of the program that a
//! call runs (error handlers, attribute callbacks, operators) may call MPI. So the state is reached by shared references,
//! its cells are not borrowed while such a function runs, and what it keeps need not be `Send`: the job is behind an `Rc`.
//! Error handlers, attribute callbacks and functions of generalized requests run without the lock, so that they may jump out of the
//! call; an operator, which runs inside the progress of the job, has it.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::c_int;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::OnceLock;

use farside_core::Job;
use farside_core::bill::Awaited;

use crate::arguments::StatusOut;
use crate::constants::*;
use crate::errhandler::{ErrhandlerObject, HasErrhandler};
use crate::fail::{Fail, Result, fail};
use crate::handle::{Comm, Errhandler, Group, Info, Message, Objects, Op, Request, Session, Type, Win};
use crate::lock::{LOCK, Taken};
use crate::objects::{self, *};
use crate::waiting::Waiting;

/// Where the program is between `MPI_Init` and `MPI_Finalize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Before,
    Running,
    After,
    /// In a child made by fork of a process of the job, which has no part in the job.
    Child,
}

/// The error of a call that needs MPI to run.
#[cold]
pub fn not_running(phase: Phase) -> Fail {
    let why = match phase {
        Phase::Before => "called before MPI_Init, and without a session",
        Phase::Child => "called in a child process made by fork, which has no part in the job",
        _ => "called after MPI_Finalize, and without a session",
    };
    fail(MPI_ERR_OTHER, why)
}

/// The state.
pub struct Runtime {
    pub phase: Cell<Phase>,
    /// Whether functions that communicate may be called: between `MPI_Init` and `MPI_Finalize`, or while a session is open.
    pub active: Cell<bool>,
    /// The number of open sessions.
    pub sessions_open: Cell<u32>,
    /// Whether the process leaves the job when it exits, since there was a session.
    pub leaves_at_exit: Cell<bool>,
    /// Once started, kept until the process ends, since a session may come at any time.
    pub job: RefCell<Option<Job>>,
    /// The thread level that was granted.
    pub level: Cell<c_int>,
    /// The thread that called `MPI_Init`.
    pub main_thread: Cell<u64>,
    /// Threads in calls that wait.
    pub waiting: Waiting,
    pub comms: Objects<Comm, CommObject>,
    pub groups: Objects<Group, GroupObject>,
    pub types: Objects<Type, TypeObject>,
    pub plain: PlainTypes,
    pub ops: Objects<Op, OpObject>,
    pub infos: Objects<Info, InfoObject>,
    pub errhandlers: Objects<Errhandler, ErrhandlerObject>,
    pub wins: Objects<Win, WinObject>,
    pub sessions: Objects<Session, SessionObject>,
    pub requests: Objects<Request, dyn Operation>,
    /// The request of all sends that were complete when they were started.
    pub complete_send: Cell<Request>,
    /// Point-to-point operations to be used again.
    pub spare: Spare,
    /// Requests that were freed before their operations were over.
    pub freed: RefCell<Vec<Rc<dyn Operation>>>,
    pub messages: Objects<Message, MessageObject>,
    /// The buffer of buffered sends for which no other one is attached.
    pub buffer: Attached,
    /// All that are attached.
    pub buffers: RefCell<Vec<Rc<AttachedBuffer>>>,
    pub errors: Errors,
    pub keyvals: Keyvals,
    /// Types made by `MPI_Type_create_f90_*`: one for the same arguments.
    pub f90: RefCell<Vec<([c_int; 3], Rc<TypeObject>)>>,
    pub fortran: Fortran,
    pub tool: Tool,
    /// Values of predefined attributes, which programs get pointers to.
    pub predefined: OnceCell<Predefined>,
}

/// The state, which is reached only with the lock.
struct Shared(Runtime);

// SAFETY: `Runtime::of` alone gives it out, to those that hold the lock meanwhile.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in it belongs to the thread that made it.
unsafe impl Send for Shared {}

static RUNTIME: OnceLock<Shared> = OnceLock::new();

impl Runtime {
    fn new() -> Self {
        let runtime = Self {
            phase: Cell::new(Phase::Before),
            active: Cell::new(false),
            sessions_open: Cell::new(0),
            leaves_at_exit: Cell::new(false),
            job: RefCell::default(),
            level: Cell::new(MPI_THREAD_SINGLE),
            main_thread: Cell::new(0),
            waiting: Waiting::default(),
            comms: Objects::default(),
            groups: Objects::default(),
            types: Objects::default(),
            plain: PlainTypes::default(),
            ops: Objects::default(),
            infos: Objects::default(),
            errhandlers: Objects::default(),
            wins: Objects::default(),
            sessions: Objects::default(),
            requests: Objects::default(),
            complete_send: Cell::new(MPI_REQUEST_NULL),
            spare: Spare::default(),
            freed: RefCell::default(),
            messages: Objects::default(),
            buffer: Attached::default(),
            buffers: RefCell::default(),
            errors: Errors::default(),
            keyvals: Keyvals::default(),
            f90: RefCell::default(),
            fortran: Fortran::default(),
            tool: Tool::default(),
            predefined: OnceCell::new(),
        };
        objects::errors::predefined(&runtime.errhandlers, &runtime.errors);
        objects::datatype::predefined(&runtime.types, &runtime.plain);
        objects::op::predefined(&runtime.ops);
        objects::group::predefined(&runtime.groups);
        objects::info::predefined(&runtime.infos);
        objects::message::no_proc(&runtime.messages);
        runtime.complete_send.set(runtime.requests.insert_for_good(Rc::new(CompleteSend)));
        runtime
    }

    /// Runs `f` with the lock.
    pub fn with<R>(f: impl FnOnce(&Runtime) -> R) -> R {
        let taken = Taken::new();
        f(Self::of(&taken))
    }

    /// The state, for the one that has the lock.
    #[inline(always)]
    fn of(_: &Taken) -> &Self {
        &RUNTIME.get_or_init(|| Shared(Self::new())).0
    }

    /// Notes that MPI was started or ended, or a session opened or closed.
    pub fn set_active(&self) {
        let phase = self.phase.get();
        self.active.set(phase == Phase::Running || phase != Phase::Child && self.sessions_open.get() > 0);
    }

    /// Makes calls fail in a child of this process. The C library calls it there, in the only thread of the child.
    pub extern "C" fn in_child() {
        LOCK.in_child();
        if let Some(Shared(runtime)) = RUNTIME.get() {
            runtime.phase.set(Phase::Child);
            runtime.set_active();
        }
    }

    /// The job.
    pub fn job(&self) -> Result<Job> {
        if self.phase.get() == Phase::Child {
            return Err(not_running(Phase::Child));
        }
        let missing = || fail(MPI_ERR_OTHER, "MPI is not initialized");
        self.job.borrow().clone().ok_or_else(missing)
    }
}

/// One call of an MPI function.
pub struct Call<'a> {
    runtime: &'a Runtime,
    /// Its name.
    pub name: &'static str,
    /// Whether it is the form with large counts.
    pub large: bool,
}

impl<'a> Call<'a> {
    /// A call of the thread that has the lock.
    #[inline(always)]
    pub fn of(taken: &'a Taken, name: &'static str, large: bool) -> Self {
        Self { runtime: Runtime::of(taken), name, large }
    }
}

impl Deref for Call<'_> {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.runtime
    }
}

/// An operation that a request stands for.
pub trait Operation: Any {
    /// The object whose error handler gets its errors.
    fn object(&self) -> Option<&dyn HasErrhandler> {
        None
    }

    /// Whether its request stays when it is complete, to be started again.
    fn is_persistent(&self) -> bool {
        false
    }

    /// Whether it was started, and not completed since consume.
    fn is_active(&self) -> bool {
        true
    }

    /// Whether it can be completed without waiting. Makes no progress, and calls no function of the program.
    fn is_over(&self) -> bool;

    /// Whether its request goes when it is completed now.
    fn is_finished(&self) -> bool {
        self.is_active() && self.is_over() && !self.is_persistent()
    }

    /// The status and the error of an operation that is over.
    fn outcome(&self, call: &Call<'_>, consume: Consume) -> Outcome;

    /// Starts a persistent one that is inactive.
    fn start(&self, _: &Call<'_>) -> Result {
        Ok(())
    }

    /// Cancels it if that is still possible; it is over soon in any case.
    fn cancel(&self, call: &Call<'_>) -> Result;

    /// Its request is freed by the program; whether the handle is to live on.
    fn free(&self, _: &Call<'_>) -> Result<bool> {
        Ok(false)
    }

    /// The peer and the call that it waits for now, for the bill.
    fn awaits(&self) -> Option<Awaited> {
        None
    }

    /// Its memory is not touched any more.
    fn give_up(&self, job: &Job);

    /// Hands out how it has ended, after it is over, where nothing else holds it any more than its callers do.
    fn complete(self: Rc<Self>, call: &Call<'_>, status: StatusOut) -> Result {
        self.outcome(call, Consume::Yes).put(status)
    }
}

impl dyn Operation {
    /// The operation, if it is one of this kind.
    pub fn of_kind<T: Operation>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

/// A send that was complete when it was started: all such requests are this one.
struct CompleteSend;

impl Operation for CompleteSend {
    fn is_over(&self) -> bool {
        true
    }

    fn outcome(&self, _: &Call<'_>, _: Consume) -> Outcome {
        Outcome::from(Status::EMPTY)
    }

    fn cancel(&self, _: &Call<'_>) -> Result {
        Ok(())
    }

    fn give_up(&self, _: &Job) {}
}

impl Call<'_> {
    /// Waits until `ready`, which peers or other threads bring about. Makes progress.
    #[inline]
    pub fn wait(&self, ready: impl FnMut() -> bool) -> Result {
        self.wait_until(|| None, ready)
    }

    /// The same; `awaited` says what for, at any time, if that is known.
    #[inline]
    pub fn wait_until(&self, awaited: impl Fn() -> Option<Awaited>, mut ready: impl FnMut() -> bool) -> Result {
        if ready() {
            return Ok(());
        }
        let awaited = || awaited().unwrap_or(Awaited::unknown(self.name));
        Ok(self.wait_for(&self.job()?, awaited, ready)?)
    }

    /// The same, for what is not there yet.
    pub fn wait_for(
        &self,
        job: &Job,
        awaited: impl Fn() -> Awaited,
        mut ready: impl FnMut() -> bool,
    ) -> farside_core::Result<()> {
        let waiting = &self.waiting;
        while waiting.driven.get() {
            waiting.sleep(&mut ready);
            if ready() {
                if !waiting.driven.get() {
                    waiting.wake_next();
                }
                return Ok(());
            }
        }
        waiting.driven.set(true);
        let ended = job.wait_for(awaited, || {
            if ready() {
                return Ok(Some(()));
            }
            waiting.wake_ready();
            Ok(None)
        });
        waiting.driven.set(false);
        waiting.wake_next();
        ended
    }

    /// Whether `ready`, at the latest after one turn of progress.
    #[inline]
    pub fn test(&self, mut ready: impl FnMut() -> bool) -> Result<bool> {
        if ready() {
            return Ok(true);
        }
        self.job()?.progress_of_test()?;
        self.waiting.do_deferred();
        if LOCK.is_wanted() {
            LOCK.let_in();
        }
        Ok(ready())
    }
}
