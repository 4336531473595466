#![allow(unsafe_code)]
//! Scopes of nonblocking and persistent calls and of messages: a scope ends only after all of them have completed or
//! are cancelled.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytemuck::Pod;
use farside_core::coll::execute::{Arguments, CallMode, Prepared};
use farside_core::{Error, ErrorKind, Job, Result, Team, located};

use super::call::Call;
use super::operator::Operator;

/// An operation that its scope owns. Dropping it completes or cancels the operation.
pub(crate) trait Pending {
    /// Whether the operation is in progress, or its outcome has not been returned yet.
    fn is_active(&self) -> bool;

    /// Waits until the operation is complete at this rank.
    fn wait(&self) -> Result<()>;

    /// Cancels the operation: its buffers are no longer accessed.
    fn cancel(&self);
}

/// Values that a call needs besides its buffers; they are owned only so that they are dropped after the call.
trait CallResources {}

impl<T> CallResources for T {}

/// The copied input of a persistent call. It is accessed by address only, so the field is never read.
struct OwnedInput<T>(#[allow(dead_code)] Vec<T>);

/// A call that its scope owns.
struct OwnedCall<'env> {
    // Dropped first, which ends the call; the call uses the other field until then.
    call: Prepared,
    _needs: Box<dyn CallResources + 'env>,
}

impl Pending for OwnedCall<'_> {
    fn is_active(&self) -> bool {
        self.call.is_active()
    }

    fn wait(&self) -> Result<()> {
        self.call.wait()
    }

    fn cancel(&self) {
        self.call.cancel();
    }
}

/// The scope in which calls and messages are started ([`overlap`](super::Collectives::overlap)). It ends only after all
/// of them have completed or are cancelled.
///
/// As in `std::thread::scope`, a buffer given to an operation must outlive the scope `'scope`. The scope itself owns
/// every operation that it has started, so neither a leaked handle nor a panic can make a transfer outlive its buffer.
///
/// ```
/// use farside_rma::collectives::call;
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let (me, right, left) = (team.rank(), (team.rank() + 1) % 3, (team.rank() + 2) % 3);
///     let (mine, mut theirs, mut sum) = ([me], [9], [me]);
///     team.overlap(|scope| {
///         let sum = scope.start(call::allreduce(&mut sum, Op::Sum))?;
///         let received = scope.irecv(&mut theirs, left, 0)?;
///         scope.isend(&mine, right, 0)?.wait()?;
///         assert_eq!((sum.wait()?[0], received.wait()?.0[0]), (3, left));
///         Ok(())
///     })
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
pub struct Overlap<'scope, 'env: 'scope> {
    team: Team,
    operations: RefCell<Vec<Rc<dyn Pending + 'env>>>,
    /// Length of `operations` at which operations that have ended are removed from it.
    sweep_len: Cell<usize>,
    // Invariant in both lifetimes, like `std::thread::Scope`.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl fmt::Debug for Overlap<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlap").field("operations", &self.operations.borrow().len()).finish_non_exhaustive()
    }
}

impl<'scope, 'env> Overlap<'scope, 'env> {
    /// Starts a call, without waiting. All ranks start the same calls in the same order, and may complete them in any
    /// order.
    ///
    /// # Errors
    /// `NoSuchRank`, `BadArgument`, `Unsupported`: the call has not been made. The handle, or the end of the scope,
    /// returns later errors.
    #[track_caller]
    pub fn start<T: Pod, O: Operator<T> + 'env>(&'scope self, call: Call<'scope, T, O>) -> Result<Started<'scope, T>> {
        located(|| {
            let (mut call, operator) = call.replace(());
            let operator = Box::new(operator);
            // SAFETY: the buffers are borrowed until the scope has ended, and the scope completes or cancels the call
            // before that; the operator is kept with the call.
            let begin = |arguments: &Arguments<'_>| unsafe { Prepared::started(&self.team, arguments) };
            let started = call.with_arguments(&self.team, &*operator, begin)?;
            Ok(Started { owned: self.own_call(started, operator), output: Some(call.output()), buffers: PhantomData })
        })
    }

    /// Creates a persistent call, which owns a copy of the input. All ranks make the same persistent calls in the same
    /// order, and may start them in any order. While the call is not in progress the handle gives access to the data.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    #[track_caller]
    pub fn persistent<T: Pod, O: Operator<T> + 'env>(
        &'scope self,
        call: Call<'scope, T, O>,
    ) -> Result<Persistent<'scope, T>> {
        located(|| {
            let (mut call, operator) = call.replace(());
            let operator = Box::new(operator);
            let mut own: Vec<T> = call.input().to_vec();
            let input = (own.as_mut_ptr(), own.len());
            call.set_input(input.0);
            let prepare = |arguments: &Arguments<'_>| Prepared::new(&self.team, arguments, CallMode::Persistent);
            let made = call.with_arguments(&self.team, &*operator, prepare)?;
            let owned = self.own_call(made, Box::new((operator, OwnedInput(own))));
            Ok(Persistent { owned, input, output: call.output(), buffers: PhantomData })
        })
    }

    fn own_call(&self, call: Prepared, needs: Box<dyn CallResources + 'env>) -> Rc<OwnedCall<'env>> {
        self.own_operation(OwnedCall { call, _needs: needs })
    }

    /// Owns an operation until the scope has ended, or until the operation has no handle and is inactive.
    pub(crate) fn own_operation<P: Pending + 'env>(&self, pending: P) -> Rc<P> {
        let pending = Rc::new(pending);
        let mut operations = self.operations.borrow_mut();
        if operations.len() >= self.sweep_len.get() {
            operations.retain(|operation| Rc::strong_count(operation) > 1 || operation.is_active());
            self.sweep_len.set(2 * operations.len().max(4));
        }
        operations.push(Rc::<P>::clone(&pending));
        pending
    }

    /// The team whose ranks make the calls.
    #[must_use]
    pub fn team(&self) -> &Team {
        &self.team
    }

    /// Cancels all operations in progress.
    fn cancel(&self) {
        self.operations.borrow().iter().for_each(|operation| operation.cancel());
    }

    /// Waits for all operations in progress.
    fn finish(&self) -> Result<()> {
        let active = |operation: &Rc<dyn Pending + 'env>| operation.is_active().then(|| Rc::clone(operation));
        let active: Vec<_> = self.operations.borrow().iter().filter_map(active).collect();
        active.iter().try_for_each(|operation| operation.wait())
    }
}

/// Runs `body`, and completes the operations that it has started. If `body` or one of these operations fails, cancels
/// the others.
pub(super) fn overlap<'env, R, E: From<Error>>(
    team: &Team,
    body: impl for<'scope> FnOnce(&'scope Overlap<'scope, 'env>) -> Result<R, E>,
) -> Result<R, E> {
    let (team, operations, sweep_len) = (team.clone(), RefCell::default(), Cell::default());
    let scope = Overlap { team, operations, sweep_len, scope: PhantomData, env: PhantomData };
    let ended = catch_unwind(AssertUnwindSafe(|| body(&scope).and_then(|r| Ok(scope.finish().map(|()| r)?))));
    if !matches!(ended, Ok(Ok(_))) {
        scope.cancel();
    }
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

/// A nonblocking call in progress. Dropping the handle has no effect on the call: the end of the scope waits for it.
///
/// ```
/// use farside_rma::collectives::call;
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let mut data = [team.rank() as u64 + 1];
///     team.overlap(|calls| {
///         let mut product = calls.start(call::allreduce(&mut data, Op::Prod))?;
///         while !product.test()? {
///             // Other work.
///         }
///         assert_eq!(product.wait()?, &[6]);
///         Ok(())
///     })
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[must_use = "wait, await, or let the end of the scope complete it"]
pub struct Started<'scope, T> {
    owned: Rc<OwnedCall<'scope>>,
    /// `None` once the output has been returned.
    output: Option<(*mut T, usize)>,
    buffers: PhantomData<&'scope mut [T]>,
}

impl<T> fmt::Debug for Started<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.owned.call, f)
    }
}

impl<'scope, T> Started<'scope, T> {
    /// Waits until the call is complete at this rank, and returns the output.
    ///
    /// # Errors
    /// `PeerLost`, `Mismatch`, `Aborted`, each naming the rank that caused it.
    #[track_caller]
    pub fn wait(mut self) -> Result<&'scope mut [T]> {
        located(|| {
            self.owned.call.wait()?;
            self.take_output()
        })
    }

    /// Whether the call is complete, making progress once.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    #[track_caller]
    pub fn test(&mut self) -> Result<bool> {
        located(|| self.owned.call.test())
    }

    /// Takes the output of a complete call.
    fn take_output(&mut self) -> Result<&'scope mut [T]> {
        let Some((base, len)) = self.output.take() else {
            return Err(Error::new(ErrorKind::BadArgument, self.owned.call.name())
                .cause("the request has already been awaited"));
        };
        // SAFETY: the output is borrowed exclusively for the scope, the call is complete, and `take` returns it only
        // once.
        Ok(unsafe { std::slice::from_raw_parts_mut(base, len) })
    }
}

/// The result of a poll of a future whose test has just made progress: ready with the outcome, or pending with its
/// waker registered.
pub(crate) fn poll_of<R>(job: &Job, context: &Context<'_>, outcome: Result<Option<R>>) -> Poll<Result<R>> {
    match outcome.transpose() {
        // `poll` is called by an async runtime, so its location does not help the user.
        Some(outcome) => Poll::Ready(outcome.map_err(Error::without_caller)),
        None => {
            if let Err(e) = job.poll_later(context) {
                return Poll::Ready(Err(e));
            }
            Poll::Pending
        }
    }
}

impl<'scope, T> Future for Started<'scope, T> {
    type Output = Result<&'scope mut [T]>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let done = self.owned.call.test();
        let outcome = done.and_then(|done| done.then(|| self.take_output()).transpose());
        poll_of(self.owned.call.team().job(), context, outcome)
    }
}

/// A persistent call.
///
/// ```
/// use farside_rma::collectives::call;
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let mut all = [0; 3];
///     team.overlap(|calls| {
///         let mut gather = calls.persistent(call::allgather(&[0], &mut all))?;
///         for round in 1..4 {
///             gather.input()?[0] = round * team.rank();
///             gather.start()?;
///             gather.wait()?;
///             assert_eq!(gather.output()?, [0, round, 2 * round]);
///         }
///         Ok(())
///     })
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
pub struct Persistent<'scope, T> {
    owned: Rc<OwnedCall<'scope>>,
    /// Points into the copy that `owned` holds.
    input: (*mut T, usize),
    output: (*mut T, usize),
    buffers: PhantomData<&'scope mut [T]>,
}

impl<T> fmt::Debug for Persistent<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.owned.call, f)
    }
}

impl<T> Persistent<'_, T> {
    /// Starts the call, without waiting.
    ///
    /// # Errors
    /// `BadArgument` if it is in progress; `Aborted` if it has failed; `Freed`.
    #[track_caller]
    pub fn start(&mut self) -> Result<()> {
        located(|| {
            // SAFETY: the buffers are borrowed until the scope has ended, and `input` and `output` refuse them while the
            // call is in progress.
            unsafe { self.owned.call.start() }
        })
    }

    /// Waits until the operation is complete at this rank.
    ///
    /// # Errors
    /// Those of [`Started::wait`].
    #[track_caller]
    pub fn wait(&mut self) -> Result<()> {
        located(|| self.owned.call.wait())
    }

    /// Whether the call is complete or has not been started, making progress once.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    #[track_caller]
    pub fn test(&mut self) -> Result<bool> {
        located(|| self.owned.call.test())
    }

    /// The output, which is also the input of in-place calls (broadcast, reduce, allreduce, scan, exscan).
    ///
    /// # Errors
    /// `BadArgument` while it is in progress.
    #[track_caller]
    pub fn output(&mut self) -> Result<&mut [T]> {
        located(|| {
            self.check_idle()?;
            // SAFETY: borrowed exclusively for the scope; no start is possible while this borrow lives.
            Ok(unsafe { std::slice::from_raw_parts_mut(self.output.0, self.output.1) })
        })
    }

    /// The input of a call that is not in place.
    ///
    /// # Errors
    /// `BadArgument` while it is in progress.
    #[track_caller]
    pub fn input(&mut self) -> Result<&mut [T]> {
        located(|| {
            self.check_idle()?;
            // SAFETY: `owned` holds the memory, and no other reference to it exists; no start is possible while this borrow
            // lives.
            Ok(unsafe { std::slice::from_raw_parts_mut(self.input.0, self.input.1) })
        })
    }

    fn check_idle(&self) -> Result<()> {
        if !self.owned.call.is_active() {
            return Ok(());
        }
        let e = Error::new(ErrorKind::BadArgument, self.owned.call.name());
        Err(e.cause("buffer accessed while the collective is in progress"))
    }
}
