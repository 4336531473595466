//! The state of a rank's remote calls: registered functions, calls in progress, and the header handler.

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::task::Waker;

use farside_core::am::{Delivery, HandlerId, Listening, Message, Messenger, OnComplete, Received, Sink};
use farside_core::bill::{Account, Awaited, SignalKind};
use farside_core::callback::Callback;
use farside_core::{Error, ErrorKind, Job, Result, Team};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::function::{Body, Caller, Key, Registered};
use super::wire::{self, CALL, Header, Kind};

/// Maximum number of calls of a rank in progress to one target.
const MAX_CALLS_IN_PROGRESS: u32 = 256;
/// Maximum number of nested functions at a rank; equals the runtime's limit on nested completions.
const MAX_DEPTH: u32 = 8;
/// Number of casts that one message acknowledges.
const CASTS: u32 = 64;

/// The remote calls of a team.
///
/// ```
/// use std::cell::RefCell;
/// use std::collections::HashMap;
/// use std::rc::Rc;
///
/// use farside_rma::calls::{Caller, Calls};
/// use farside_rma::prelude::*;
///
/// fn add(_: &Caller<'_>, (a, b): (u32, u32)) -> u32 {
///     a + b
/// }
///
/// Job::threads(4, |job| {
///     let team = job.world()?;
///     let calls = Calls::new(&team)?;
///     calls.register(add)?;
///     // A distributed hash table: each rank's closure owns that rank's part.
///     let map = Rc::new(RefCell::new(HashMap::<String, u64>::new()));
///     let own = Rc::clone(&map);
///     let count = calls.register(move |_, (key, by): (String, u64)| {
///         *own.borrow_mut().entry(key).or_default() += by;
///     })?;
///
///     let right = (team.rank() + 1) % 4;
///     assert_eq!(calls.call(right, add, (2, 3)).wait()?, 5);
///     calls.cast(3, count, ("word".to_owned(), 1))?;
///     calls.quiesce()?;
///     assert_eq!(map.borrow().get("word").copied(), (team.rank() == 3).then_some(4));
///     calls.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
///
/// In an async function, `calls.call(right, add, (2, 3)).await`.
pub struct Calls {
    pub(super) shared: Rc<Shared>,
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("functions", &self.shared.functions.borrow().list.len()).finish_non_exhaustive()
    }
}

/// The functions that a rank has registered.
#[derive(Default)]
pub(super) struct Functions {
    pub(super) list: Vec<Rc<Registered>>,
    pub(super) by_type: FxHashMap<TypeId, u16>,
}

/// A call whose result is awaited.
#[derive(Default)]
pub(super) struct Outcome {
    /// `None` until it has arrived.
    pub(super) result: RefCell<Option<Result<Vec<u8>>>>,
    /// The async function that awaits it.
    pub(super) waker: RefCell<Option<Waker>>,
}

/// State of the remote calls at one rank.
pub(super) struct Shared {
    pub(super) team: Team,
    pub(super) listening: Listening,
    /// The handlers of all ranks.
    pub(super) handlers: Vec<HandlerId>,
    /// Team ranks by ranks of the job.
    pub(super) ranks: FxHashMap<u32, usize>,
    pub(super) functions: RefCell<Functions>,
    pub(super) open: RefCell<FxHashMap<u32, (usize, Rc<Outcome>)>>,
    pub(super) last: Cell<u32>,
    /// Number of calls in progress, by target.
    pub(super) in_progress: Vec<Cell<u32>>,
    /// Number of casts that have run but are not acknowledged yet, by source.
    pub(super) casts: Vec<Cell<u32>>,
    /// Number of functions that are running, nested in each other.
    pub(super) running: Cell<u32>,
    /// Whether the innermost of them is async: the turn of progress that polls it delivers what it awaits.
    pub(super) in_async: Cell<bool>,
    pub(super) calls_made: Cell<u64>,
    pub(super) calls_done: Cell<u64>,
    pub(super) freed: Cell<bool>,
}

/// Counts a function as running until this is dropped, even when a panic unwinds.
pub(super) struct Running<'a> {
    shared: &'a Shared,
    /// Whether the function around it is async.
    around: bool,
}

impl<'a> Running<'a> {
    pub(super) fn new(shared: &'a Shared, is_async: bool) -> Self {
        shared.running.set(shared.running.get() + 1);
        Self { shared, around: shared.in_async.replace(is_async) }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.shared.running.set(self.shared.running.get() - 1);
        self.shared.in_async.set(self.around);
    }
}

impl Shared {
    pub(super) fn job(&self) -> &Job {
        self.team.job()
    }

    pub(super) fn usable(&self, operation: &'static str) -> Result<()> {
        if !self.freed.get() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Freed, operation).rank(self.job().rank()).cause("this `Calls` object has been freed"))
    }

    /// Checks that no function is running.
    pub(super) fn check_outside_function(&self, operation: &'static str) -> Result<()> {
        self.job().running(operation)?;
        if self.running.get() == 0 { Ok(()) } else { Err(self.inside_function(operation)) }
    }

    #[cold]
    fn inside_function(&self, operation: &'static str) -> Error {
        Error::new(ErrorKind::InCallback, operation)
            .rank(self.job().rank())
            .cause("a remote function is running at this rank")
            .remedy("move this call out of the remote function; inside one, wait with `wait`")
    }

    /// Checks that a function may wait for a call here.
    pub(super) fn may_wait(&self) -> Result<()> {
        if self.running.get() < MAX_DEPTH {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Limit, CALL)
            .rank(self.job().rank())
            .cause(format!("{MAX_DEPTH} nested remote functions wait for calls, the maximum"))
            .remedy("return without waiting, or register the awaited functions with `register_short`"))
    }

    pub(super) fn awaited(&self, rank: Option<usize>) -> Awaited {
        let from = rank.and_then(|rank| self.team.members().get(rank).copied());
        Awaited { account: Some(Account::team(self.team.context())), operation: CALL, call: 0, from }
    }

    /// Looks up the number of a function and encodes its argument.
    pub(super) fn encoded(&self, key: Key, argument: &impl Serialize) -> Result<(u16, Vec<u8>)> {
        self.usable(CALL)?;
        self.job().running(CALL)?;
        let number = match key {
            Key::Number(calls, number) => (calls == self.listening.id().0).then_some(number),
            Key::Type(ty, _) => self.functions.borrow().by_type.get(&ty).copied(),
        };
        let number = number.ok_or_else(|| {
            let name = if let Key::Type(_, name) = key { name } else { "a function of other calls" };
            Error::new(ErrorKind::BadArgument, CALL)
                .rank(self.job().rank())
                .cause(format!("`{name}` is not registered here"))
                .remedy("register the function at all ranks first")
        })?;
        let bytes = postcard::to_allocvec(argument).map_err(|e| wire::codec_error("an argument", &e))?;
        if u32::try_from(bytes.len()).is_err() {
            let cause = format!("the argument has {} bytes; at most {} are allowed", bytes.len(), u32::MAX);
            return Err(Error::new(ErrorKind::Limit, CALL)
                .cause(cause)
                .remedy("pass large data with `call_with` or `cast_with`"));
        }
        Ok((number, bytes))
    }

    /// Starts a call that returns a result.
    pub(super) fn start(&self, rank: usize, number: u16, argument: &[u8], data: &[u8]) -> Result<Rc<Outcome>> {
        let outcome = Rc::new(Outcome::default());
        let mut call = self.last.get();
        {
            let mut open = self.open.borrow_mut();
            loop {
                call = call.wrapping_add(1);
                if !open.contains_key(&call) {
                    break;
                }
            }
            self.last.set(call);
            open.insert(call, (rank, Rc::clone(&outcome)));
        }
        let sent = self.send_call(rank, Header::call(number, call), argument, data);
        if sent.is_err() {
            self.open.borrow_mut().remove(&call);
        }
        sent.map(|()| outcome)
    }

    /// Sends a call or a cast, once fewer than the maximum are in progress to the target.
    pub(super) fn send_call(&self, rank: usize, header: Header, argument: &[u8], data: &[u8]) -> Result<()> {
        let to = self.team.job_rank(rank)?;
        let in_progress = &self.in_progress[rank];
        if in_progress.get() >= MAX_CALLS_IN_PROGRESS && self.running.get() == 0 {
            self.job()
                .wait(|| self.awaited(Some(rank)), || Ok((in_progress.get() < MAX_CALLS_IN_PROGRESS).then_some(())))?;
        }
        in_progress.set(in_progress.get() + 1);
        self.calls_made.set(self.calls_made.get() + 1);
        let header = header.numbered(self.calls_made.get());
        if let Some(bill) = self.job().bill() {
            let account = Account::team(self.team.context());
            bill.called_for(account, CALL, Some(to));
            bill.signalled(account, SignalKind::Call, to, header.id(self.handlers[rank]));
        }
        let sent = self.send(self.job(), to, rank, header, argument, data);
        if sent.is_err() {
            in_progress.set(in_progress.get() - 1);
            self.calls_made.set(self.calls_made.get() - 1);
        }
        sent
    }

    pub(super) fn send(
        &self,
        job: &Messenger,
        to: u32,
        rank: usize,
        header: Header,
        body: &[u8],
        data: &[u8],
    ) -> Result<()> {
        let message = header.with(body, data);
        wire::send(job, to, self.handlers[rank], &message)
    }

    /// The header handler.
    pub(super) fn receive(self: &Rc<Self>, message: &Message<'_>) -> Delivery {
        let source = self.ranks.get(&message.source).copied();
        let Some((source, (header, inline))) = source.zip(Header::read(message.header)) else {
            tracing::error!("dropped a malformed call from rank {}", message.source);
            return Delivery::Done;
        };
        match header.kind {
            Kind::Call | Kind::Cast => self.receive_call(source, header, inline, message),
            Kind::Acknowledge => {
                let in_progress = &self.in_progress[source];
                in_progress.set(in_progress.get().saturating_sub(header.call));
                Delivery::Done
            }
            Kind::Result | Kind::Failed => {
                let mut open = self.open.borrow_mut();
                // Ignored: only the target of a call may answer it.
                if open.get(&header.call).is_none_or(|(rank, _)| *rank != source) {
                    return Delivery::Done;
                }
                let Some((_, outcome)) = open.remove(&header.call) else { return Delivery::Done };
                drop(open);
                let in_progress = &self.in_progress[source];
                in_progress.set(in_progress.get().saturating_sub(1));
                let (failed, peer) = (header.kind == Kind::Failed, message.source);
                let take = move |bytes: Result<Vec<u8>>| {
                    let bytes =
                        bytes.and_then(|bytes| if failed { Err(wire::failure(&bytes, peer)) } else { Ok(bytes) });
                    *outcome.result.borrow_mut() = Some(bytes);
                    if let Some(waker) = outcome.waker.take() {
                        waker.wake();
                    }
                };
                if message.len == 0 {
                    take(Ok(inline.to_vec()));
                    return Delivery::Done;
                }
                let then = move |received: Result<Received>| take(received.map(|received| received.buffer));
                Delivery::Into(Sink::buffer(Vec::new()), OnComplete::inline(then))
            }
        }
    }

    pub(super) fn receive_call(
        self: &Rc<Self>,
        source: usize,
        header: Header,
        inline: &[u8],
        message: &Message<'_>,
    ) -> Delivery {
        let function = self.functions.borrow().list.get(usize::from(header.function)).cloned();
        let shared = Rc::clone(self);
        let is_short = function.as_ref().is_some_and(|function| function.is_short);
        if is_short && let Some(data) = message.data() {
            let (argument, _) = header.split(inline, data);
            let inside = self.job().inside(Callback::ShortFunction);
            let result = self.run(function.as_deref(), (source, header), argument, &[]);
            drop(inside);
            let casts = self.casts[source].get() + 1;
            if header.kind == Kind::Cast && result.is_ok() && casts < CASTS {
                self.casts[source].set(casts);
                self.calls_done.set(self.calls_done.get() + 1);
                return Delivery::Done;
            }
            let then = move |job: &Messenger, _: Result<Received>| shared.answer(job, source, header, result);
            return Delivery::Into(Sink::discard(), OnComplete::deferred(then));
        }
        let (inline, waits) = (inline.to_vec(), message.waits);
        let then = move |job: &Messenger, received: Result<Received>| {
            let bytes = match received {
                Ok(received) => received.buffer,
                // In a rendezvous, the caller gets the error too and has already withdrawn the call.
                Err(_) if waits => return Ok(()),
                Err(e) => {
                    return shared.answer(job, source, header, Err(format!("its argument was not received: {e}")));
                }
            };
            let (argument, data) = header.split(&inline, &bytes);
            let result = match function.as_deref() {
                Some(Registered { body: Body::Async(start), name, .. }) => {
                    match shared.start_async(job, (start, name), (source, header), argument) {
                        Ok(()) => return Ok(()),
                        Err(why) => Err(why),
                    }
                }
                function => shared.run(function, (source, header), argument, data),
            };
            shared.answer(job, source, header, result)
        };
        Delivery::Into(Sink::buffer(Vec::new()), OnComplete::deferred(then))
    }

    /// Runs a function.
    pub(super) fn run(
        self: &Rc<Self>,
        function: Option<&Registered>,
        (source, header): (usize, Header),
        argument: &[u8],
        data: &[u8],
    ) -> std::result::Result<Vec<u8>, String> {
        let Some(Registered { body: Body::Plain(run), name, .. }) = function else {
            return Err("the function is not registered at the target".to_owned());
        };
        let calls = Calls { shared: Rc::clone(self) };
        let _running = Running::new(self, false);
        self.recorded(name, (source, header), || run(&Caller { rank: source, calls: &calls }, argument, data))
    }

    /// Runs (a part of) a function, and records it if there is a bill.
    pub(super) fn recorded<R>(
        &self,
        name: &'static str,
        (source, header): (usize, Header),
        run: impl FnOnce() -> R,
    ) -> R {
        let Some(bill) = self.job().bill() else { return run() };
        let (account, from) = (Account::team(self.team.context()), self.team.members()[source]);
        bill.run(account, name, (from, header.id(self.listening.id())), run)
    }

    /// Sends the result of a call, or acknowledges casts, and then counts the call as completed.
    pub(super) fn answer(
        &self,
        job: &Messenger,
        source: usize,
        header: Header,
        result: std::result::Result<Vec<u8>, String>,
    ) -> Result<()> {
        let answered = self.send_answer(job, source, header, result);
        self.calls_done.set(self.calls_done.get() + 1);
        answered
    }

    pub(super) fn send_answer(
        &self,
        job: &Messenger,
        source: usize,
        header: Header,
        result: std::result::Result<Vec<u8>, String>,
    ) -> Result<()> {
        let to = self.team.members()[source];
        match (header.kind, result) {
            (Kind::Call, Ok(result)) => self.send(job, to, source, header.answered(Kind::Result), &result, &[]),
            (Kind::Call, Err(why)) => self.send(job, to, source, header.answered(Kind::Failed), why.as_bytes(), &[]),
            (_, result) => {
                if let Err(why) = result {
                    tracing::error!("a cast from rank {to} failed: {why}");
                    farside_core::say(format_args!("rank {}: a cast from rank {to} failed: {why}", self.job().rank()));
                }
                let casts = self.casts[source].get() + 1;
                if casts < CASTS {
                    self.casts[source].set(casts);
                    return Ok(());
                }
                self.casts[source].set(0);
                self.send(job, to, source, Header::acknowledge(casts), &[], &[])
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Peers may still send to a rank that has not freed its calls: the handler stays, and drops their messages.
        if self.freed.get() {
            self.job().active_messages().end(&self.listening);
        }
    }
}
