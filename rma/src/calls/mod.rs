//! Remote calls: a function runs at another rank, and its result, error or panic comes back.
//!
//! Functions are registered by all ranks in the same order. Arguments and results are any types with serde's
//! `Serialize` and `Deserialize`, in postcard's form. A function runs at the target whenever the target is inside the
//! runtime: after the dispatcher, where it may make calls itself ([`register`](Calls::register)), or, if it is short, in
//! the dispatcher ([`register_short`](Calls::register_short)).
//!
//! | call | messages |
//! |---|---|
//! | `call` | one active message and one for the result, each of one packet if it is short |
//! | `cast` | one; and one back for every 64 of them |
//! | `call_with`, `cast_with` | the same; with an argument of at most 100 bytes, long data goes from the caller's memory to the buffer that the function sees, without a copy |
//! | `call_all`, `cast_all` | those of `call` and `cast` to every rank |
//! | `quiesce` | two allreduces of two words, or more while calls are being made |
//!
//! **Bounded memory.** A rank has at most 256 calls in progress to each target; the next one waits for one of them, unless
//! it is made inside a function: such calls never wait for room, since two functions could wait for each other.
//!
//! **Functions that wait.** While a function waits for a call of its own, other functions run at its rank, inside it. At
//! most 8 can be inside each other: the eighth gets `Limit` if it waits. A function that sends long data, or an answer, may
//! be interrupted by others too, so it must not hold a borrow of state that they use.
//!
//! **Termination detection.** [`quiesce`](Calls::quiesce) is the four-counter method (Mattern 1987, "Algorithms for
//! distributed termination detection"): two consecutive sums of the calls made and the calls done, all equal.

mod dist;
mod function;
mod wire;

use std::any::{TypeId, type_name};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use bytemuck::Pod;
use farside_core::am::{Delivery, HandlerId, Listening, Message, Messenger, Received, Sink, Then};
use farside_core::bill::{Account, Awaited};
use farside_core::{Error, ErrorKind, Job, Result, Team, coll};
use rustc_hash::FxHashMap;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::collectives::{Collectives, poll_of};
use crate::op::Op;
pub use dist::{Dist, Fetching};
pub use function::{Callable, CallableWith, Caller, Function, FunctionWith};
use function::{Erased, Key, Plain, WithData};
use wire::{Header, Kind};

const CALL: &str = "call a remote function";
const REGISTER: &str = "register a remote function";

/// Maximum number of calls of a rank in progress to one target.
const MOST: u32 = 256;
/// Maximum number of functions at a rank inside each other: that of the runtime's completions.
const DEEPEST: u32 = 8;
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
///     // A hash table over all ranks: a closure has the part of its rank.
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
    shared: Rc<Shared>,
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("functions", &self.shared.functions.borrow().list.len()).finish_non_exhaustive()
    }
}

/// The functions of a rank.
#[derive(Default)]
struct Functions {
    list: Vec<Rc<dyn Erased>>,
    by_type: FxHashMap<TypeId, u16>,
}

/// A call whose result is awaited: `None` until it has come.
type Outcome = RefCell<Option<Result<Vec<u8>>>>;

/// State of a rank.
pub(crate) struct Shared {
    team: Team,
    listening: Listening,
    /// The handlers of all ranks.
    handlers: Vec<HandlerId>,
    /// Team ranks by ranks of the job.
    ranks: FxHashMap<u32, usize>,
    functions: RefCell<Functions>,
    open: RefCell<FxHashMap<u32, (usize, Rc<Outcome>)>>,
    last: Cell<u32>,
    /// Number of calls in progress, by target.
    in_progress: Vec<Cell<u32>>,
    /// Number of casts that have run and are not acknowledged, by source.
    casts: Vec<Cell<u32>>,
    /// Number of functions on the stack.
    running: Cell<u32>,
    /// Whether a function runs in the dispatcher.
    dispatching: Cell<bool>,
    made: Cell<u64>,
    done: Cell<u64>,
    freed: Cell<bool>,
}

impl Calls {
    /// Makes the calls of a team. Collective; one allgather.
    ///
    /// # Errors
    /// `Limit` if no handler number is free; `PeerLost`.
    pub fn new(team: &Team) -> Result<Self> {
        let own: Rc<RefCell<Weak<Shared>>> = Rc::default();
        let shared = Rc::clone(&own);
        let handler = move |message: Message<'_>| match shared.borrow().upgrade() {
            Some(shared) => shared.receive(&message),
            None => Delivery::Done,
        };
        let listening = team.job().active_messages().listen(handler);
        // 0 is no number of the runtime.
        let own_id = listening.as_ref().map_or(0, |listening| listening.id().0);
        let all = coll::allgather(team, &own_id.to_le_bytes())?;
        let handlers: Vec<HandlerId> = all.iter().map(|id| HandlerId(u16::from_le_bytes([id[0], id[1]]))).collect();
        let listening = listening?;
        if let Some(none) = handlers.iter().position(|id| id.0 == 0) {
            team.job().active_messages().end(&listening);
            let e = Error::new(ErrorKind::Limit, "make remote calls").rank(team.job().rank());
            return Err(e.peer(team.members()[none]).cause("no handler number is free there"));
        }
        let zeros = || (0..team.size()).map(|_| Cell::new(0)).collect();
        let shared = Rc::new(Shared {
            listening,
            handlers,
            ranks: team.members().iter().copied().zip(0..).collect(),
            functions: RefCell::default(),
            open: RefCell::default(),
            last: Cell::new(0),
            in_progress: zeros(),
            casts: zeros(),
            running: Cell::new(0),
            dispatching: Cell::new(false),
            made: Cell::new(0),
            done: Cell::new(0),
            freed: Cell::new(false),
            team: team.clone(),
        });
        *own.borrow_mut() = Rc::downgrade(&shared);
        // No rank makes a call before all others can receive it.
        team.barrier()?;
        Ok(Self { shared })
    }

    /// The team.
    #[must_use]
    pub fn team(&self) -> &Team {
        &self.shared.team
    }

    /// Registers a function, which runs after the dispatcher and may make calls and wait. Collective, in the same order at
    /// all ranks; one allgather. The function is named at a call by itself, if it is a function item, or by the returned
    /// value.
    ///
    /// # Errors
    /// `Mismatch` on every rank if the ranks register functions of different types; `Limit` after 65535 functions;
    /// `PeerLost`.
    pub fn register<F, A, R>(&self, function: F) -> Result<Function<A, R>>
    where
        F: Fn(&Caller<'_>, A) -> R + 'static,
        A: Serialize + DeserializeOwned + 'static,
        R: Serialize + DeserializeOwned + 'static,
    {
        self.add(TypeId::of::<F>(), Rc::new(Plain::new(function, false))).map(|number| Function::new(self.id(), number))
    }

    /// Registers a function that runs in the dispatcher, which saves a turn of progress: it must be short, and cannot make
    /// calls or wait. Collective, as [`register`](Self::register).
    ///
    /// # Errors
    /// Those of [`register`](Self::register).
    pub fn register_short<F, A, R>(&self, function: F) -> Result<Function<A, R>>
    where
        F: Fn(&Caller<'_>, A) -> R + 'static,
        A: Serialize + DeserializeOwned + 'static,
        R: Serialize + DeserializeOwned + 'static,
    {
        self.add(TypeId::of::<F>(), Rc::new(Plain::new(function, true))).map(|number| Function::new(self.id(), number))
    }

    /// Registers a function that also gets a slice of elements, in the buffer in which they have landed. Collective, as
    /// [`register`](Self::register).
    ///
    /// ```
    /// use farside_rma::calls::Calls;
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let calls = Calls::new(&team)?;
    ///     let scaled = calls.register_with(|_, factor: f64, data: &[f64]| data.iter().sum::<f64>() * factor)?;
    ///     let data = vec![0.5; 100_000];
    ///     assert_eq!(calls.call_with(1 - team.rank(), scaled, 2.0, &data)?.wait()?, 100_000.0);
    ///     calls.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`register`](Self::register).
    pub fn register_with<F, A, T, R>(&self, function: F) -> Result<FunctionWith<A, T, R>>
    where
        F: Fn(&Caller<'_>, A, &[T]) -> R + 'static,
        A: Serialize + DeserializeOwned + 'static,
        T: Pod,
        R: Serialize + DeserializeOwned + 'static,
    {
        self.add(TypeId::of::<F>(), Rc::new(WithData::new(function))).map(|number| FunctionWith::new(self.id(), number))
    }

    /// A number that tells these calls from others of this rank.
    fn id(&self) -> u16 {
        self.shared.listening.id().0
    }

    fn add(&self, by: TypeId, function: Rc<dyn Erased>) -> Result<u16> {
        self.shared.usable(REGISTER)?;
        self.shared.outside(REGISTER)?;
        let signature = function.signature();
        let number = {
            let mut functions = self.shared.functions.borrow_mut();
            let number = u16::try_from(functions.list.len());
            let number = number.map_err(|_| Error::new(ErrorKind::Limit, REGISTER).cause("65535 are registered"))?;
            functions.list.push(function);
            functions.by_type.insert(by, number);
            number
        };
        // Afterwards the function is registered at all ranks.
        let all = coll::allgather(self.team(), signature.as_bytes())?;
        if let Some(other) = all.iter().position(|other| *other != all[0]) {
            let by = if all[other] == signature.as_bytes() { 0 } else { other };
            return Err(Error::new(ErrorKind::Mismatch, REGISTER)
                .rank(self.team().job().rank())
                .peer(self.team().members()[by])
                .cause(format!("it registers {}, and this rank {signature}", String::from_utf8_lossy(&all[by])))
                .remedy("register the same functions in the same order at all ranks"));
        }
        Ok(number)
    }

    /// Calls a function at `rank`; the handle gives the result by wait, test or `.await`. Waits for room if 256 calls to
    /// `rank` are in progress.
    ///
    /// Errors, all returned by the handle: `NoSuchRank`; `BadArgument` for a function that is not registered; `Aborted` if
    /// the function has panicked, with the panic's message, or could not read its argument; `Protocol` for bytes that are no
    /// result; `Limit` and `WrongEpoch` inside of functions (see the module); `PeerLost`. A rank that has dropped its calls
    /// without [`free`](Self::free) does not answer.
    pub fn call<F, A, R>(&self, rank: usize, function: F, argument: A) -> Calling<R>
    where
        F: Callable<A, R>,
        A: Serialize,
        R: DeserializeOwned,
    {
        let encoded = self.shared.encoded(function.key(), &argument);
        let started = encoded.and_then(|(number, argument)| self.shared.start(rank, number, &argument, &[]));
        Calling::new(self, rank, started)
    }

    /// Calls a function with a slice of elements ([`register_with`](Self::register_with)). On return the slice may be
    /// reused.
    ///
    /// # Errors
    /// Those of [`call`](Self::call); those of the function are returned by the handle.
    pub fn call_with<F, A, T, R>(&self, rank: usize, function: F, argument: A, data: &[T]) -> Result<Calling<R>>
    where
        F: CallableWith<A, T, R>,
        A: Serialize,
        T: Pod,
        R: DeserializeOwned,
    {
        let (number, argument) = self.shared.encoded(function.key(), &argument)?;
        let started = self.shared.start(rank, number, &argument, bytemuck::cast_slice(data))?;
        Ok(Calling::new(self, rank, Ok(started)))
    }

    /// Calls a function at `rank` without a result. On return the argument has been sent; [`quiesce`](Self::quiesce) waits
    /// until the function has run. A panic of the function is reported at the target.
    ///
    /// # Errors
    /// Those of [`call`](Self::call) that are known here.
    pub fn cast<F, A, R>(&self, rank: usize, function: F, argument: A) -> Result<()>
    where
        F: Callable<A, R>,
        A: Serialize,
    {
        let (number, argument) = self.shared.encoded(function.key(), &argument)?;
        self.shared.send_call(rank, Header::cast(number), &argument, &[])
    }

    /// [`cast`](Self::cast) with a slice of elements.
    ///
    /// # Errors
    /// Those of [`cast`](Self::cast).
    pub fn cast_with<F, A, T, R>(&self, rank: usize, function: F, argument: A, data: &[T]) -> Result<()>
    where
        F: CallableWith<A, T, R>,
        A: Serialize,
        T: Pod,
    {
        let (number, argument) = self.shared.encoded(function.key(), &argument)?;
        self.shared.send_call(rank, Header::cast(number), &argument, bytemuck::cast_slice(data))
    }

    /// Calls a function at every rank, this one too; the handle gives the results in the order of the ranks.
    ///
    /// Errors: those of [`call`](Self::call), of the first rank that has one.
    pub fn call_all<F, A, R>(&self, function: F, argument: A) -> CallingAll<R>
    where
        F: Callable<A, R>,
        A: Serialize,
        R: DeserializeOwned,
    {
        let encoded = self.shared.encoded(function.key(), &argument);
        let start = |rank| match &encoded {
            Ok((number, argument)) => self.shared.start(rank, *number, argument, &[]),
            Err(e) => Err(e.again()),
        };
        CallingAll {
            calls: (0..self.team().size()).map(|rank| Calling::new(self, rank, start(rank))).collect(),
            results: Vec::new(),
        }
    }

    /// [`cast`](Self::cast) to every rank, this one too.
    ///
    /// # Errors
    /// Those of [`cast`](Self::cast).
    pub fn cast_all<F, A, R>(&self, function: F, argument: A) -> Result<()>
    where
        F: Callable<A, R>,
        A: Serialize,
    {
        let (number, argument) = self.shared.encoded(function.key(), &argument)?;
        (0..self.team().size()).try_for_each(|rank| self.shared.send_call(rank, Header::cast(number), &argument, &[]))
    }

    /// Waits until all calls and casts of all ranks, and those that their functions have made, have run. Collective; calls
    /// that a rank makes after its own call of this may be waited for or not.
    ///
    /// # Errors
    /// `WrongEpoch` inside a function; `PeerLost`.
    pub fn quiesce(&self) -> Result<()> {
        self.shared.outside("wait for all remote calls")?;
        let mut before = None;
        loop {
            let mut sums = [self.shared.made.get(), self.shared.done.get()];
            self.team().allreduce(&mut sums, Op::Sum)?;
            if sums[0] == sums[1] && before == Some(sums) {
                return Ok(());
            }
            before = Some(sums);
            // An allreduce of one rank makes no progress.
            self.shared.job().progress_of_test()?;
        }
    }

    /// Waits until all calls have run, and forgets the functions. Collective.
    ///
    /// # Errors
    /// Those of [`quiesce`](Self::quiesce); `PeerLost`.
    pub fn free(self) -> Result<()> {
        self.quiesce()?;
        let shared = &self.shared;
        for (source, casts) in shared.casts.iter().enumerate().filter(|(_, casts)| casts.get() > 0) {
            let to = shared.team.members()[source];
            shared.send(shared.job(), to, source, Header::acknowledge(casts.take()), &[], &[])?;
        }
        // Then no message for the handler is on its way any more.
        let all_known = || shared.in_progress.iter().all(|calls| calls.get() == 0);
        shared.job().wait(|| shared.awaited(None), || Ok(all_known().then_some(())))?;
        self.team().barrier()?;
        self.shared.freed.set(true);
        *self.shared.functions.borrow_mut() = Functions::default();
        Ok(())
    }
}

impl Shared {
    fn job(&self) -> &Job {
        self.team.job()
    }

    fn usable(&self, operation: &'static str) -> Result<()> {
        if !self.freed.get() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Freed, operation).rank(self.job().rank()).cause("the calls have been freed"))
    }

    /// Checks that no function is running.
    fn outside(&self, operation: &'static str) -> Result<()> {
        if self.running.get() == 0 { Ok(()) } else { Err(self.inside(operation)) }
    }

    #[cold]
    fn inside(&self, operation: &'static str) -> Error {
        Error::new(ErrorKind::WrongEpoch, operation)
            .rank(self.job().rank())
            .cause("a remote function is running at this rank")
            .remedy("do it outside of the function; a function waits by `wait`, and a short one does not wait or call")
    }

    /// Checks that a function may wait for a call here.
    fn may_wait(&self) -> Result<()> {
        if self.dispatching.get() {
            return Err(self.inside(CALL));
        }
        if self.running.get() < DEEPEST {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Limit, CALL)
            .rank(self.job().rank())
            .cause(format!("{DEEPEST} functions wait for calls inside each other"))
            .remedy("let functions answer without waiting, or register those that they wait for as short ones"))
    }

    fn awaited(&self, rank: Option<usize>) -> Awaited {
        let from = rank.and_then(|rank| self.team.members().get(rank).copied());
        Awaited { account: Some(Account::team(self.team.context())), operation: CALL, call: 0, from }
    }

    /// The number of a function, and the bytes of its argument.
    fn encoded(&self, key: Key, argument: &impl Serialize) -> Result<(u16, Vec<u8>)> {
        self.usable(CALL)?;
        if self.dispatching.get() {
            return Err(self.inside(CALL));
        }
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
        let bytes = postcard::to_allocvec(argument).map_err(|e| wire::bad("an argument", &e))?;
        if u32::try_from(bytes.len()).is_err() {
            return Err(Error::new(ErrorKind::Limit, CALL).cause(format!("an argument of {} bytes", bytes.len())));
        }
        Ok((number, bytes))
    }

    /// Starts a call with a result.
    fn start(&self, rank: usize, number: u16, argument: &[u8], data: &[u8]) -> Result<Rc<Outcome>> {
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

    /// Sends a call or a cast, once there is room for one more.
    fn send_call(&self, rank: usize, header: Header, argument: &[u8], data: &[u8]) -> Result<()> {
        let to = self.team.job_rank(rank)?;
        let in_progress = &self.in_progress[rank];
        if in_progress.get() >= MOST && self.running.get() == 0 {
            self.job().wait(|| self.awaited(Some(rank)), || Ok((in_progress.get() < MOST).then_some(())))?;
        }
        in_progress.set(in_progress.get() + 1);
        self.made.set(self.made.get() + 1);
        let sent = self.send(self.job(), to, rank, header, argument, data);
        if sent.is_err() {
            in_progress.set(in_progress.get() - 1);
            self.made.set(self.made.get() - 1);
        }
        sent
    }

    fn send(&self, job: &Messenger, to: u32, rank: usize, header: Header, body: &[u8], data: &[u8]) -> Result<()> {
        let message = header.with(body, data);
        wire::send(job, to, self.handlers[rank], &message)
    }

    /// The header handler.
    fn receive(self: &Rc<Self>, message: &Message<'_>) -> Delivery {
        let source = self.ranks.get(&message.source).copied();
        let Some((source, (header, inline))) = source.zip(Header::read(message.header)) else {
            tracing::error!("a malformed call of rank {} was dropped", message.source);
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
                // An answer of another rank ends no call.
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
                    *outcome.borrow_mut() = Some(bytes);
                };
                if message.len == 0 {
                    take(Ok(inline.to_vec()));
                    return Delivery::Done;
                }
                let then = move |received: Result<Received>| take(received.map(|received| received.buffer));
                Delivery::Into(Sink::buffer(Vec::new()), Then::quick(then))
            }
        }
    }

    fn receive_call(self: &Rc<Self>, source: usize, header: Header, inline: &[u8], message: &Message<'_>) -> Delivery {
        let function = self.functions.borrow().list.get(usize::from(header.function)).cloned();
        let shared = Rc::clone(self);
        let is_short = function.as_ref().is_some_and(|function| function.is_short());
        if is_short && let Some(data) = message.data() {
            let (argument, _) = header.split(inline, data);
            self.dispatching.set(true);
            let result = self.run(function.as_deref(), source, argument, &[]);
            self.dispatching.set(false);
            let casts = self.casts[source].get() + 1;
            if header.kind == Kind::Cast && result.is_ok() && casts < CASTS {
                self.casts[source].set(casts);
                self.done.set(self.done.get() + 1);
                return Delivery::Done;
            }
            let then = move |job: &Messenger, _: Result<Received>| shared.answer(job, source, header, result);
            return Delivery::Into(Sink::discard(), Then::later(then));
        }
        let (inline, waits) = (inline.to_vec(), message.waits);
        let then = move |job: &Messenger, received: Result<Received>| {
            let bytes = match received {
                Ok(received) => received.buffer,
                // The caller of a message that waits at its sender has an error too, and has taken the call back.
                Err(_) if waits => return Ok(()),
                Err(e) => return shared.answer(job, source, header, Err(format!("its argument did not arrive: {e}"))),
            };
            let (argument, data) = header.split(&inline, &bytes);
            let result = shared.run(function.as_deref(), source, argument, data);
            shared.answer(job, source, header, result)
        };
        Delivery::Into(Sink::buffer(Vec::new()), Then::later(then))
    }

    /// Runs a function.
    fn run(
        self: &Rc<Self>,
        function: Option<&dyn Erased>,
        source: usize,
        argument: &[u8],
        data: &[u8],
    ) -> std::result::Result<Vec<u8>, String> {
        let calls = Calls { shared: Rc::clone(self) };
        self.running.set(self.running.get() + 1);
        let result = match function {
            Some(function) => function.run(&Caller { rank: source, calls: &calls }, argument, data),
            None => Err("the function is not registered there".to_owned()),
        };
        self.running.set(self.running.get() - 1);
        result
    }

    /// Sends the result of a call, or acknowledges casts. Only then the call counts as done.
    fn answer(
        &self,
        job: &Messenger,
        source: usize,
        header: Header,
        result: std::result::Result<Vec<u8>, String>,
    ) -> Result<()> {
        let answered = self.send_answer(job, source, header, result);
        self.done.set(self.done.get() + 1);
        answered
    }

    fn send_answer(
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
                    tracing::error!("a call of rank {to} without a result failed: {why}");
                    farside_core::say(format_args!("rank {}: a call of rank {to} failed: {why}", self.job().rank()));
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

/// The result of a remote call, by wait, test or `.await`. Dropping it has no effect on the call.
#[must_use = "wait or await it, or use `cast`"]
pub struct Calling<R> {
    shared: Rc<Shared>,
    rank: usize,
    /// `None` once the result was returned.
    outcome: Option<Result<Rc<Outcome>>>,
    result: PhantomData<fn() -> R>,
}

impl<R> fmt::Debug for Calling<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calling").field("result", &type_name::<R>()).finish_non_exhaustive()
    }
}

impl<R: DeserializeOwned> Calling<R> {
    fn new(calls: &Calls, rank: usize, outcome: Result<Rc<Outcome>>) -> Self {
        Self { shared: Rc::clone(&calls.shared), rank, outcome: Some(outcome), result: PhantomData }
    }

    /// The result, if it has come.
    fn take(&mut self) -> Result<Option<R>> {
        let returned = || Error::new(ErrorKind::BadArgument, CALL).cause("the result was returned before");
        let bytes = match self.outcome.as_ref().ok_or_else(returned)? {
            Ok(outcome) => outcome.borrow_mut().take(),
            Err(e) => Some(Err(e.again())),
        };
        let Some(bytes) = bytes else { return Ok(None) };
        self.outcome = None;
        let bytes: Vec<u8> = bytes?;
        postcard::from_bytes(&bytes).map(Some).map_err(|e| wire::bad("a result", &e))
    }

    /// Waits for the result. Functions that other ranks call run meanwhile.
    ///
    /// # Errors
    /// Those of [`Calls::call`]; `BadArgument` if [`test`](Self::test) has returned the result.
    pub fn wait(mut self) -> Result<R> {
        let (shared, rank) = (Rc::clone(&self.shared), self.rank);
        if let Some(result) = self.take()? {
            return Ok(result);
        }
        shared.may_wait()?;
        shared.job().wait(|| shared.awaited(Some(rank)), || self.take())
    }

    /// Makes progress once; returns the result if it has come. Not inside a function, where no other function would run.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait); `WrongEpoch` inside a function.
    pub fn test(&mut self) -> Result<Option<R>> {
        if let Some(result) = self.take()? {
            return Ok(Some(result));
        }
        self.shared.outside(CALL)?;
        self.shared.job().progress_of_test()?;
        self.take()
    }
}

impl<R: DeserializeOwned> Future for Calling<R> {
    type Output = Result<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = self.test();
        poll_of(self.shared.job(), context, outcome)
    }
}

/// The results of a call at every rank ([`Calls::call_all`]).
#[derive(Debug)]
#[must_use = "wait or await it, or use `cast_all`"]
pub struct CallingAll<R> {
    calls: Vec<Calling<R>>,
    results: Vec<R>,
}

// The results are never accessed through a pinned reference.
impl<R> Unpin for CallingAll<R> {}

impl<R: DeserializeOwned> CallingAll<R> {
    /// Waits for the results, in the order of the ranks.
    ///
    /// # Errors
    /// Those of [`Calls::call_all`].
    pub fn wait(self) -> Result<Vec<R>> {
        let Self { calls, mut results } = self;
        for call in calls.into_iter().skip(results.len()) {
            results.push(call.wait()?);
        }
        Ok(results)
    }
}

impl<R: DeserializeOwned> Future for CallingAll<R> {
    type Output = Result<Vec<R>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        while let Some(next) = this.calls.get_mut(this.results.len()) {
            match Pin::new(next).poll(context) {
                Poll::Ready(Ok(result)) => this.results.push(result),
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(std::mem::take(&mut this.results)))
    }
}
