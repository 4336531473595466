#![allow(unsafe_code)]
//! The state of the library, of which each process has one; the calls and their waits; and the operations of requests.
//!
//! One recursive lock (`lock`) protects the state. Every call takes it, even in a thread that already holds it: user
//! functions that a call runs (error handlers, attribute callbacks, operators) may call MPI. So the state (except for
//! `WithoutLock`) is reached by shared references, its cells are not borrowed while such a function runs, and its
//! values need not be `Send`: the job is in an `Rc`. Error handlers, attribute callbacks and functions of generalized
//! requests run without the lock, so they may jump out of the call; an operator, which runs inside the progress of the
//! job, runs with the lock.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::c_int;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::OnceLock;

use farside_core::Job;
use farside_core::bill::Awaited;

use crate::arguments::StatusOut;
use crate::concurrent::Table;
use crate::constants::*;
use crate::errhandler::{ErrhandlerObject, HasErrhandler};
use crate::fail::{Fail, Result, fail};
use crate::handle::{Comm, Errhandler, Group, Info, Message, Objects, Op, Request, Session, Type, Win};
use crate::lock::{Biased, LOCK, Taken};
use crate::objects::{self, *};
use crate::waiting::Waiting;

/// The phase of the process relative to `MPI_Init` and `MPI_Finalize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Before,
    Running,
    After,
    /// A child created by fork from a process of the job; it is not part of the job.
    Child,
}

/// The error of a call that requires MPI to be initialized.
#[cold]
pub fn not_running(phase: Phase) -> Fail {
    let why = match phase {
        Phase::Before => "called before MPI_Init and without an open session",
        Phase::Child => "called in a child process created by fork, which is not part of the job",
        _ => "called after MPI_Finalize and without an open session",
    };
    fail(MPI_ERR_OTHER, why)
}

/// The state of the MPI library in this process: its phase, its sessions and its job.
pub struct Runtime {
    pub phase: Cell<Phase>,
    /// Whether functions that communicate may be called: between `MPI_Init` and `MPI_Finalize`, or while a session is
    /// open.
    pub active: Cell<bool>,
    /// The number of open sessions.
    pub sessions_open: Cell<u32>,
    /// Whether the process leaves the job when it exits, which it does once it has opened a session.
    pub leaves_at_exit: Cell<bool>,
    /// The thread that is ending the process because of an error, and the exit code; `None` if there is none.
    pub ending: Cell<Option<(u64, c_int)>>,
    /// The job. It is kept until the process ends, since a session may be opened at any time.
    pub job: RefCell<Option<Job>>,
    /// The thread level that was granted.
    pub level: Cell<c_int>,
    /// The thread that called `MPI_Init`.
    pub main_thread: Cell<u64>,
    /// The threads that wait in calls.
    pub waiting: Waiting,
    pub comms: Objects<Comm, CommObject>,
    pub groups: Objects<Group, GroupObject>,
    pub types: Objects<Type, TypeObject>,
    pub plain: PlainTypes,
    pub ops: Objects<Op, OpObject>,
    pub infos: Objects<Info, InfoObject>,
    pub errhandlers: Objects<Errhandler, ErrhandlerObject>,
    pub wins: Objects<Win, WinObject>,
    /// The windows whose memory all ranks map.
    pub mapped: Table<Mapped>,
    pub sessions: Objects<Session, SessionObject>,
    pub requests: Objects<Request, dyn Operation>,
    /// The request shared by all sends that were complete at their start.
    pub complete_send: Cell<Request>,
    /// The receives of requests that are not persistent.
    pub receives: Receives,
    /// Requests that were freed before their operations had ended.
    pub freed: RefCell<FreedOperations>,
    /// The request array of the last call that completed one or some of many requests.
    pub known: RefCell<KnownRequests>,
    pub messages: Objects<Message, MessageObject>,
    /// The process's attached buffer for buffered sends, used if no other buffer applies.
    pub buffer: Attached,
    /// All attached buffers.
    pub buffers: RefCell<Vec<Rc<AttachedBuffer>>>,
    pub errors: Errors,
    pub keyvals: Keyvals,
    /// Types created by `MPI_Type_create_f90_*`: one for each combination of arguments.
    pub f90: RefCell<Vec<([c_int; 3], Rc<TypeObject>)>>,
    pub fortran: Fortran,
    pub tool: Tool,
    /// Values of predefined attributes, to which programs receive pointers.
    pub predefined: OnceCell<Predefined>,
}

/// The state, accessed only with the lock.
struct Shared(Runtime);

// SAFETY: only `Runtime::of` returns a reference to it, to callers that hold the lock.
unsafe impl Sync for Shared {}
// SAFETY: as above; no part of it is bound to the thread that created it.
unsafe impl Send for Shared {}

static RUNTIME: OnceLock<Shared> = OnceLock::new();

impl Runtime {
    fn new() -> Self {
        let (types, plain) = objects::datatype::predefined();
        let runtime = Self {
            phase: Cell::new(Phase::Before),
            active: Cell::new(false),
            sessions_open: Cell::new(0),
            leaves_at_exit: Cell::new(false),
            ending: Cell::new(None),
            job: RefCell::default(),
            level: Cell::new(MPI_THREAD_SINGLE),
            main_thread: Cell::new(0),
            waiting: Waiting::default(),
            comms: Objects::default(),
            groups: Objects::default(),
            types,
            plain,
            ops: Objects::default(),
            infos: Objects::default(),
            errhandlers: Objects::default(),
            wins: Objects::default(),
            mapped: Table::default(),
            sessions: Objects::default(),
            requests: Objects::default(),
            complete_send: Cell::new(MPI_REQUEST_NULL),
            receives: Receives::default(),
            freed: RefCell::default(),
            known: RefCell::default(),
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
        objects::op::predefined(&runtime.ops);
        objects::group::predefined(&runtime.groups);
        objects::info::predefined(&runtime.infos);
        objects::message::no_proc(&runtime.messages);
        runtime.complete_send.set(runtime.requests.insert_permanent(Rc::new(CompleteSend)));
        runtime
    }

    /// Runs `f` with the lock.
    pub fn with<R>(f: impl FnOnce(&Runtime) -> R) -> R {
        let taken = Taken::new();
        f(Self::of(&taken))
    }

    /// Returns the state; `Taken` proves that the caller holds the lock.
    #[inline(always)]
    fn of(_: &Taken) -> &Self {
        &RUNTIME.get_or_init(|| Shared(Self::new())).0
    }

    /// The state, in a call of the thread to which the lock is biased.
    #[inline(always)]
    pub fn of_biased(_: &Biased) -> &Self {
        // SAFETY: `set_active`, a method of this state, has biased the lock.
        unsafe { &RUNTIME.get().unwrap_unchecked().0 }
    }

    /// The parts of the state that need no lock.
    #[inline(always)]
    pub fn without_lock() -> Option<WithoutLock> {
        let Shared(runtime) = RUNTIME.get()?;
        Some(WithoutLock { plain: &runtime.plain, mapped: &runtime.mapped })
    }

    /// Updates `active` after MPI was started or ended, or a session opened or closed. The lock is biased only while
    /// MPI is active.
    pub fn set_active(&self) {
        let phase = self.phase.get();
        self.active.set(phase == Phase::Running || phase != Phase::Child && self.sessions_open.get() > 0);
        if self.active.get() { LOCK.bias() } else { LOCK.unbias() }
    }

    /// Makes calls fail in a child of this process. The C library calls it in the only thread of the child.
    pub extern "C" fn reset_in_child() {
        LOCK.reset_in_child();
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

/// The parts of the state that any thread may use without the lock.
#[derive(Clone, Copy)]
pub struct WithoutLock {
    pub plain: &'static PlainTypes,
    pub mapped: &'static Table<Mapped>,
}

const _: () = {
    const fn is_sync<T: Sync>() {}
    is_sync::<WithoutLock>();
};

/// One call of an MPI function.
pub struct Call<'a> {
    runtime: &'a Runtime,
    /// The name of the function.
    pub name: &'static str,
    /// Whether the form with large counts was called.
    pub large: bool,
}

impl<'a> Call<'a> {
    /// A call in a thread that holds the lock.
    #[inline(always)]
    pub fn of(taken: &'a Taken, name: &'static str, large: bool) -> Self {
        Self { runtime: Runtime::of(taken), name, large }
    }
}

impl Deref for Call<'_> {
    type Target = Runtime;

    #[inline(always)]
    fn deref(&self) -> &Runtime {
        self.runtime
    }
}

/// Operations in progress whose requests were freed.
#[derive(Default)]
pub struct FreedOperations {
    pub operations: Vec<Rc<dyn Operation>>,
    /// Length of the list at which operations that have ended are dropped.
    most: usize,
}

impl FreedOperations {
    /// Owns an operation until it has ended.
    pub fn add(&mut self, operation: Rc<dyn Operation>) {
        if operation.has_ended() {
            return;
        }
        if self.operations.len() >= self.most {
            self.operations.retain(|operation| !operation.has_ended());
            self.most = 2 * self.operations.len().max(4);
        }
        self.operations.push(operation);
    }
}

/// Whether a request can be started again, and whether it is started.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// Completing the operation frees the request.
    None,
    Inactive,
    /// Started, and its completion has not been consumed since.
    Active,
}

/// The operation of a request.
pub trait Operation: Any {
    /// The object whose error handler is called for the operation's errors.
    fn object(&self) -> Option<&dyn HasErrhandler> {
        None
    }

    fn persistence(&self) -> Persistence {
        Persistence::None
    }

    /// Whether the operation can be completed without waiting. Makes no progress, and calls no user function.
    fn has_ended(&self) -> bool;

    /// The status and the error of an operation that has ended; does not consume them.
    fn outcome(&self, call: &Call<'_>) -> Outcome;

    /// Returns and consumes the outcome of an operation that has ended: the operation of a persistent request becomes
    /// inactive, and any other operation is about to be dropped.
    fn complete(self: Rc<Self>, call: &Call<'_>, status: StatusOut) -> Result {
        self.outcome(call).put(status)
    }

    /// Starts an inactive persistent operation.
    fn start(&self, _: &Call<'_>) -> Result {
        Ok(())
    }

    /// Cancels the operation if that is still possible; in either case it ends soon.
    fn cancel(&self, _: &Call<'_>) -> Result {
        Ok(())
    }

    /// Called when the program frees the request; returns whether the handle stays valid.
    fn free(&self, _: &Call<'_>) -> Result<bool> {
        Ok(false)
    }

    /// The peer and the call for which the operation currently waits, for the wait statistics.
    fn awaits(&self) -> Option<Awaited> {
        None
    }

    /// Ends all accesses to the operation's memory.
    fn abandon(&self, _: &Job) {}
}

impl dyn Operation {
    /// The operation, if it is one of this kind.
    pub fn of_kind<T: Operation>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

/// The operation of the request shared by all sends that were complete at their start.
struct CompleteSend;

impl Operation for CompleteSend {
    fn has_ended(&self) -> bool {
        true
    }

    fn outcome(&self, _: &Call<'_>) -> Outcome {
        Outcome::from(Status::EMPTY)
    }
}

impl Call<'_> {
    /// Waits, making progress, until `ready` returns true, which depends on peers or other threads.
    #[inline]
    pub fn wait(&self, ready: impl FnMut() -> bool) -> Result {
        self.wait_until(|| None, ready)
    }

    /// Like [`wait`](Self::wait); `awaited` describes the peer and operation awaited at the time, if known.
    #[inline]
    pub fn wait_until(&self, awaited: impl Fn() -> Option<Awaited>, mut ready: impl FnMut() -> bool) -> Result {
        if ready() {
            return Ok(());
        }
        let awaited = || awaited().unwrap_or(Awaited::unknown(self.name));
        Ok(self.wait_for(&self.job()?, awaited, ready)?)
    }

    /// Like [`wait_until`](Self::wait_until), without a first check of `ready` and with the wait always described.
    pub fn wait_for(
        &self,
        job: &Job,
        awaited: impl Fn() -> Awaited,
        mut ready: impl FnMut() -> bool,
    ) -> farside_core::Result<()> {
        // Inside an operator, the wait that would have to continue first is one of this thread.
        job.running(self.name)?;
        let waiting = &self.waiting;
        while waiting.has_driver.get() {
            waiting.sleep(&mut ready);
            if ready() {
                if !waiting.has_driver.get() {
                    waiting.wake_next();
                }
                return Ok(());
            }
        }
        waiting.has_driver.set(true);
        let ended = job.wait(awaited, || {
            if ready() {
                return Ok(Some(()));
            }
            waiting.wake_ready();
            Ok(None)
        });
        waiting.has_driver.set(false);
        waiting.wake_next();
        ended
    }

    /// Evaluates `ready`, again after one round of progress if it is false.
    #[inline]
    pub fn test(&self, mut ready: impl FnMut() -> bool) -> Result<bool> {
        if ready() {
            return Ok(true);
        }
        self.job()?.progress_of_test()?;
        if LOCK.is_wanted() {
            LOCK.wake_waiter();
        }
        Ok(ready())
    }
}
