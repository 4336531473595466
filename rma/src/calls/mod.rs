//! Remote calls: a function runs at another rank, and its result, error or panic is returned to the caller.
//!
//! Functions are registered by all ranks in the same order. Arguments and results may have any type that implements
//! serde's `Serialize` and `Deserialize`; they are encoded by postcard. A function runs when the target is inside the
//! runtime: after the dispatcher has returned, where it may make calls itself ([`register`](Calls::register)), or, if
//! it is short, in the dispatcher ([`register_short`](Calls::register_short)). An async function
//! ([`register_async`](Calls::register_async)) awaits the calls that it makes, and does not hold up the rank.
//!
//! | call | messages |
//! |---|---|
//! | `call` | one active message and one for the result, each of one packet if it is short |
//! | `cast` | one; and one back for every 64 of them |
//! | `call_with`, `cast_with` | the same; with an argument of at most 100 bytes, long data goes from the caller's memory to the buffer that the function sees, without a copy |
//! | `call_all`, `cast_all` | those of `call` and `cast` to every rank |
//! | `quiesce` | two allreduces of two words, or more while calls are being made |
//!
//! **Bounded memory.** A rank has at most 256 calls in progress to each target; the next one waits for one of them,
//! unless it is made inside a function: such calls never wait for room, since two functions could wait for each other.
//!
//! **Functions that wait.** While a function waits for a call of its own, other functions run at its rank, inside it.
//! At most 8 can be nested: the eighth gets `Limit` if it waits. Other functions may also run while a function sends
//! long data or a reply, so it must not hold a borrow of state that they use.
//!
//! **Permitted calls.** In a short function, every call that communicates, waits or makes progress gets `InCallback`,
//! on every device; in another function, `register`, `quiesce` and `free`. `ARCHITECTURE.md` has the table of all such
//! functions of the program ("Callbacks").
//!
//! **Termination detection.** [`quiesce`](Calls::quiesce) is the four-counter method (Mattern 1987, "Algorithms for
//! distributed termination detection"): two consecutive reductions of the number of calls made and the number of calls
//! completed, with all four sums equal.

mod asynchronous;
mod calling;
mod dist;
mod function;
mod state;
mod wire;

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use bytemuck::Pod;
use farside_core::am::{Delivery, HandlerId, Message};
use farside_core::{Error, ErrorKind, Result, Team, coll, located};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::collectives::Collectives;
use crate::op::Op;
pub use asynchronous::AsyncCaller;
pub use calling::{Calling, CallingAll};
pub use dist::{Dist, Fetching};
use function::Registered;
pub use function::{Callable, CallableWith, Caller, Function, FunctionWith};
pub use state::Calls;
use state::{Functions, Shared};
use wire::Header;

const REGISTER: &str = "register a remote function";

impl Calls {
    /// Creates the remote calls of a team. Collective; one allgather.
    ///
    /// # Errors
    /// `Limit` if no handler number is free; `PeerLost`.
    #[track_caller]
    pub fn new(team: &Team) -> Result<Self> {
        located(|| {
            let own: Rc<RefCell<Weak<Shared>>> = Rc::default();
            let shared = Rc::clone(&own);
            let handler = move |message: Message<'_>| match shared.borrow().upgrade() {
                Some(shared) => shared.receive(&message),
                None => Delivery::Done,
            };
            let listening = team.job().active_messages().listen(handler);
            // 0 means that no handler number was free, as the runtime never assigns 0.
            let own_id = listening.as_ref().map_or(0, |listening| listening.id().0);
            let all = coll::allgather(team, &own_id.to_le_bytes())?;
            let handlers: Vec<HandlerId> = all.iter().map(|id| HandlerId(u16::from_le_bytes([id[0], id[1]]))).collect();
            let listening = listening?;
            if let Some(none) = handlers.iter().position(|id| id.0 == 0) {
                team.job().active_messages().end(&listening);
                let e = Error::new(ErrorKind::Limit, "create remote calls").rank(team.job().rank());
                return Err(e.peer(team.members()[none]).cause("the rank has no free handler number"));
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
                in_async: Cell::new(false),
                calls_made: Cell::new(0),
                calls_done: Cell::new(0),
                freed: Cell::new(false),
                team: team.clone(),
            });
            *own.borrow_mut() = Rc::downgrade(&shared);
            // A barrier, so that no rank makes a call before all others can receive it.
            team.barrier()?;
            Ok(Self { shared })
        })
    }

    /// The team.
    #[must_use]
    pub fn team(&self) -> &Team {
        &self.shared.team
    }

    /// Registers a function, which runs after the dispatcher and may make calls and wait. Collective, in the same order
    /// at all ranks; one allgather. The function is named at a call by itself, if it is a function item, or by the
    /// returned value.
    ///
    /// # Errors
    /// `Mismatch` on every rank if the ranks register functions of different types; `Limit` after 65535 functions;
    /// `PeerLost`.
    #[track_caller]
    pub fn register<F, A, R>(&self, function: F) -> Result<Function<A, R>>
    where
        F: Fn(&Caller<'_>, A) -> R + 'static,
        A: Serialize + DeserializeOwned + 'static,
        R: Serialize + DeserializeOwned + 'static,
    {
        located(|| self.register_plain(function, false))
    }

    /// Registers a function that runs in the dispatcher, which saves a turn of progress: it must be short, and every
    /// call in it that communicates, waits or makes progress gets `InCallback`, on every device. Collective, like
    /// [`register`](Self::register).
    ///
    /// # Errors
    /// Those of [`register`](Self::register).
    #[track_caller]
    pub fn register_short<F, A, R>(&self, function: F) -> Result<Function<A, R>>
    where
        F: Fn(&Caller<'_>, A) -> R + 'static,
        A: Serialize + DeserializeOwned + 'static,
        R: Serialize + DeserializeOwned + 'static,
    {
        located(|| self.register_plain(function, true))
    }

    /// Registers a function that also gets a slice of elements, in the buffer in which they have arrived. Collective,
    /// like [`register`](Self::register).
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
    #[track_caller]
    pub fn register_with<F, A, T, R>(&self, function: F) -> Result<FunctionWith<A, T, R>>
    where
        F: Fn(&Caller<'_>, A, &[T]) -> R + 'static,
        A: Serialize + DeserializeOwned + 'static,
        T: Pod,
        R: Serialize + DeserializeOwned + 'static,
    {
        located(|| {
            self.add(TypeId::of::<F>(), Registered::with_data(function))
                .map(|number| FunctionWith::new(self.id(), number))
        })
    }

    /// Registers an async function, which may make calls, start operations, and await them: other functions run
    /// meanwhile, however many. It is polled by this rank's progress, when what it awaits has arrived, and answers its
    /// call when it ends. It may await the handles of this library; a timer or a socket of a runtime is polled only
    /// while the rank makes progress. It is named at a call by the returned value. Collective, like
    /// [`register`](Self::register).
    ///
    /// ```
    /// use farside_rma::calls::{AsyncCaller, Calls};
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(4, |job| {
    ///     let team = job.world()?;
    ///     let calls = Calls::new(&team)?;
    ///     let half = calls.register(|_, x: f64| x / 2.0)?;
    ///     // Both calls of the function are in progress at the same time.
    ///     let mean = calls.register_async(async move |caller: AsyncCaller, (x, y): (f64, f64)| {
    ///         let [left, right] = [(1, x), (2, y)].map(|(rank, value)| caller.calls().call(rank, half, value));
    ///         Some(left.await.ok()? + right.await.ok()?)
    ///     })?;
    ///     if team.rank() == 0 {
    ///         assert_eq!(calls.call(3, mean, (3.0, 5.0)).wait()?, Some(4.0));
    ///     }
    ///     calls.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`register`](Self::register).
    #[track_caller]
    pub fn register_async<F, A, R>(&self, function: F) -> Result<Function<A, R>>
    where
        F: AsyncFn(AsyncCaller, A) -> R + Clone + 'static,
        A: Serialize + DeserializeOwned + 'static,
        R: Serialize + DeserializeOwned + 'static,
    {
        located(|| {
            let number = self.add(TypeId::of::<F>(), Registered::asynchronous(function))?;
            Ok(Function::new(self.id(), number))
        })
    }

    fn register_plain<F, A, R>(&self, function: F, short: bool) -> Result<Function<A, R>>
    where
        F: Fn(&Caller<'_>, A) -> R + 'static,
        A: DeserializeOwned + 'static,
        R: Serialize + 'static,
    {
        let number = self.add(TypeId::of::<F>(), Registered::plain(function, short))?;
        Ok(Function::new(self.id(), number))
    }

    /// A number that distinguishes these calls from others of this rank.
    fn id(&self) -> u16 {
        self.shared.listening.id().0
    }

    fn add(&self, by: TypeId, function: Registered) -> Result<u16> {
        self.shared.usable(REGISTER)?;
        self.shared.check_outside_function(REGISTER)?;
        let signature = function.signature.clone();
        let number = {
            let mut functions = self.shared.functions.borrow_mut();
            let number = u16::try_from(functions.list.len());
            let number = number.map_err(|_| {
                Error::new(ErrorKind::Limit, REGISTER).cause("65535 functions are registered, the maximum")
            })?;
            functions.list.push(Rc::new(function));
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
                .cause(format!(
                    "the peer registers {}, but this rank registers {signature}",
                    String::from_utf8_lossy(&all[by])
                ))
                .remedy("register the same functions in the same order at all ranks"));
        }
        Ok(number)
    }

    /// Calls a function at `rank`; wait, test or `.await` on the handle returns the result. Waits while 256 calls to
    /// `rank` are in progress.
    ///
    /// Errors, all returned by the handle: `NoSuchRank`; `BadArgument` for a function that is not registered; `Aborted`
    /// if the function has panicked, with the panic's message, or could not read its argument; `Protocol` for bytes
    /// that are not a result; `Limit` and `InCallback` inside of functions (see [`calls`](self)); `PeerLost`. A rank
    /// that has dropped its calls without [`free`](Self::free) does not answer.
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

    /// Calls a function with a slice of elements ([`register_with`](Self::register_with)). The slice may be reused on
    /// return.
    ///
    /// # Errors
    /// Those of [`call`](Self::call); the handle returns those of the function.
    #[track_caller]
    pub fn call_with<F, A, T, R>(&self, rank: usize, function: F, argument: A, data: &[T]) -> Result<Calling<R>>
    where
        F: CallableWith<A, T, R>,
        A: Serialize,
        T: Pod,
        R: DeserializeOwned,
    {
        located(|| {
            let (number, argument) = self.shared.encoded(function.key(), &argument)?;
            let started = self.shared.start(rank, number, &argument, bytemuck::cast_slice(data))?;
            Ok(Calling::new(self, rank, Ok(started)))
        })
    }

    /// Calls a function at `rank` without a result. On return the argument has been sent; [`quiesce`](Self::quiesce)
    /// waits until the function has run. A panic of the function is reported at the target.
    ///
    /// # Errors
    /// Those of [`call`](Self::call) that are detected at the caller.
    #[track_caller]
    pub fn cast<F, A, R>(&self, rank: usize, function: F, argument: A) -> Result<()>
    where
        F: Callable<A, R>,
        A: Serialize,
    {
        located(|| {
            let (number, argument) = self.shared.encoded(function.key(), &argument)?;
            self.shared.send_call(rank, Header::cast(number), &argument, &[])
        })
    }

    /// Like [`cast`](Self::cast), with a slice of elements.
    ///
    /// # Errors
    /// Those of [`cast`](Self::cast).
    #[track_caller]
    pub fn cast_with<F, A, T, R>(&self, rank: usize, function: F, argument: A, data: &[T]) -> Result<()>
    where
        F: CallableWith<A, T, R>,
        A: Serialize,
        T: Pod,
    {
        located(|| {
            let (number, argument) = self.shared.encoded(function.key(), &argument)?;
            self.shared.send_call(rank, Header::cast(number), &argument, bytemuck::cast_slice(data))
        })
    }

    /// Calls a function at every rank, including this one; the handle returns the results in the order of the ranks.
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
        (0..self.team().size()).map(|rank| Calling::new(self, rank, start(rank))).collect()
    }

    /// Like [`cast`](Self::cast), to every rank including this one.
    ///
    /// # Errors
    /// Those of [`cast`](Self::cast).
    #[track_caller]
    pub fn cast_all<F, A, R>(&self, function: F, argument: A) -> Result<()>
    where
        F: Callable<A, R>,
        A: Serialize,
    {
        located(|| {
            let (number, argument) = self.shared.encoded(function.key(), &argument)?;
            (0..self.team().size())
                .try_for_each(|rank| self.shared.send_call(rank, Header::cast(number), &argument, &[]))
        })
    }

    /// Waits until all calls and casts of all ranks, and those that their functions have made, have run. Collective;
    /// calls that a rank makes after it has entered `quiesce` may be included or not.
    ///
    /// # Errors
    /// `InCallback` inside a function; `PeerLost`.
    #[track_caller]
    pub fn quiesce(&self) -> Result<()> {
        located(|| {
            self.shared.check_outside_function("wait for all remote calls")?;
            let mut before = None;
            loop {
                let mut sums = [self.shared.calls_made.get(), self.shared.calls_done.get()];
                self.team().allreduce(&mut sums, Op::Sum)?;
                if sums[0] == sums[1] && before == Some(sums) {
                    return Ok(());
                }
                before = Some(sums);
                // With one rank, the allreduce makes no progress.
                self.shared.job().progress_of_test()?;
            }
        })
    }

    /// Waits until all calls have run, and frees the functions. Collective.
    ///
    /// # Errors
    /// Those of [`quiesce`](Self::quiesce); `PeerLost`.
    #[track_caller]
    pub fn free(self) -> Result<()> {
        located(|| {
            self.quiesce()?;
            let shared = &self.shared;
            for (source, casts) in shared.casts.iter().enumerate().filter(|(_, casts)| casts.get() > 0) {
                let to = shared.team.members()[source];
                shared.send(shared.job(), to, source, Header::acknowledge(casts.take()), &[], &[])?;
            }
            // After this wait, no message for the handler is in transit.
            let all_known = || shared.in_progress.iter().all(|calls| calls.get() == 0);
            shared.job().wait(|| shared.awaited(None), || Ok(all_known().then_some(())))?;
            self.team().barrier()?;
            self.shared.freed.set(true);
            *self.shared.functions.borrow_mut() = Functions::default();
            Ok(())
        })
    }
}
