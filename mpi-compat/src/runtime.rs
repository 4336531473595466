#![allow(unsafe_code)]
//! The state of the library, which is the process's, and the entry of every call into it.
//!
//! There is one lock (`lock`). Every call takes it, and a thread that has it takes it again, since functions of the program that a
//! call runs (error handlers, attribute callbacks, operators) may call MPI. So the state is reached by shared references,
//! its cells are not borrowed while such a function runs, and what it keeps need not be `Send`: the job is behind an `Rc`.

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::c_int;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

use farside_core::Job;

use crate::attributes::Keyvals;
use crate::buffer::{Attached, Buffer};
use crate::comm::CommObject;
use crate::constants::*;
use crate::datatype::{PlainTypes, TypeObject};
use crate::errors::{self, ErrhandlerObject, Errors};
use crate::fail::{Fail, Result, fail};
use crate::group::GroupObject;
use crate::handle::{Comm, Errhandler, File, Group, Info, Message, Objects, Op, Request, Session, Type, Win};
use crate::info::InfoObject;
use crate::lock::Taken;
use crate::op::OpObject;
use crate::p2p::{MessageObject, Spare};
use crate::request::Operation;
use crate::rma::WinObject;
use crate::session::SessionObject;
use crate::waiting::Waiting;

/// Where the program is between `MPI_Init` and `MPI_Finalize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Before,
    Running,
    After,
}

/// When a function may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Running,
    Always,
}

/// The object whose error handler gets an error.
#[derive(Clone, Copy, Debug)]
pub enum On {
    /// None: that of `MPI_COMM_SELF`, and before `MPI_Init` the initial one.
    Process,
    Comm(Comm),
    Win(Win),
    File(File),
    Session(Session),
    /// An object that the call makes, with an error handler that it is given: the null handle, the kind, the handler.
    New(usize, errors::Target, Errhandler),
}

/// The state.
pub struct Runtime {
    pub phase: Cell<Phase>,
    /// Whether functions that communicate may be called: between `MPI_Init` and `MPI_Finalize`, or while a session is open.
    pub active: Cell<bool>,
    /// How many sessions are open.
    pub sessions_open: Cell<u32>,
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
    /// Of buffered sends for which no other is attached.
    pub buffer: Attached,
    /// All that are attached.
    pub buffers: RefCell<Vec<Rc<Buffer>>>,
    pub errors: Errors,
    pub keyvals: Keyvals,
    /// Types made by `MPI_Type_create_f90_*`: one for the same arguments.
    pub f90: RefCell<Vec<([c_int; 3], Rc<TypeObject>)>>,
    pub fortran: crate::abi::Fortran,
    pub tool: crate::tool::Tool,
    /// Values of predefined attributes, which programs get pointers to.
    pub predefined: OnceCell<crate::attributes::Predefined>,
}

/// The state, which is reached only with the lock.
struct Shared(Runtime);

// SAFETY: `Runtime::of` alone gives it out, to those that hold the lock meanwhile.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in it belongs to the thread that made it.
unsafe impl Send for Shared {}

static RUNTIME: OnceLock<Shared> = OnceLock::new();

/// The process that leaves the job when it exits, once there was a session. Read without the lock.
pub static LEAVES_AT_EXIT: AtomicU32 = AtomicU32::new(0);

impl Runtime {
    fn new() -> Self {
        let runtime = Self {
            phase: Cell::new(Phase::Before),
            active: Cell::new(false),
            sessions_open: Cell::new(0),
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
            fortran: crate::abi::Fortran::default(),
            tool: crate::tool::Tool::default(),
            predefined: OnceCell::new(),
        };
        errors::predefined(&runtime);
        crate::datatype::predefined(&runtime);
        crate::op::predefined(&runtime);
        crate::group::predefined(&runtime);
        crate::info::predefined(&runtime);
        crate::request::predefined(&runtime);
        crate::p2p::predefined(&runtime);
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
        self.active.set(self.phase.get() == Phase::Running || self.sessions_open.get() > 0);
    }

    /// The job.
    pub fn job(&self) -> Result<Job> {
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

impl Deref for Call<'_> {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.runtime
    }
}

/// Runs the body of a function, and tells an error handler if it fails. `handles` are names and values of those among
/// the arguments.
#[inline(always)]
pub fn enter(
    name: &'static str,
    large: bool,
    when: When,
    on: On,
    handles: impl FnOnce() -> Vec<(&'static str, usize)>,
    body: impl FnOnce(&Call<'_>) -> Result,
) -> c_int {
    let taken = Taken::new();
    let call = Call { runtime: Runtime::of(&taken), name, large };
    let may = when == When::Always || call.active.get();
    let result = if may { body(&call) } else { Err(not_running(call.phase.get())) };
    match result {
        Ok(()) => MPI_SUCCESS,
        Err(fail) => raise(&call, on, fail, &handles()),
    }
}

#[cold]
fn not_running(phase: Phase) -> Fail {
    let why = if phase == Phase::Before {
        "called before MPI_Init, and without a session"
    } else {
        "called after MPI_Finalize, and without a session"
    };
    fail(MPI_ERR_OTHER, why)
}

/// Names the argument, and calls the error handler.
#[cold]
fn raise(call: &Call<'_>, on: On, mut fail: Fail, handles: &[(&'static str, usize)]) -> c_int {
    if fail.argument.is_none() {
        let named = |value| handles.iter().find(|(_, handle)| *handle == value).map(|(name, _)| *name);
        fail.argument = fail.handle.and_then(named);
    }
    errors::raise(call, on, fail)
}

/// A function that is not there yet.
#[cold]
pub fn not_yet(name: &'static str, on: On) -> c_int {
    let body = |_: &Call<'_>| {
        Err(fail(MPI_ERR_UNSUPPORTED_OPERATION, "is not there yet: see the support table of the README"))
    };
    enter(name, false, When::Always, on, Vec::new, body)
}
