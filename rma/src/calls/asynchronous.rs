//! Remote functions that are async.

use std::any::type_name;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use farside_core::am::Messenger;
use farside_core::callback::caught;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::function::{self, Body, Registered};
use super::state::{Calls, Running, Shared};
use super::wire::Header;

/// The rank that has called an async function ([`Calls::register_async`]).
///
/// ```
/// use farside_rma::calls::{AsyncCaller, Calls};
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let calls = Calls::new(&team)?;
///     let greet = calls.register_async(|caller: AsyncCaller, name: String| async move {
///         format!("{name}, rank {} greets rank {}", caller.calls().team().rank(), caller.rank)
///     })?;
///     if team.rank() == 0 {
///         assert_eq!(calls.call(2, greet, "hello".to_owned()).wait()?, "hello, rank 2 greets rank 0");
///     }
///     calls.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
pub struct AsyncCaller {
    /// The calling rank of the team.
    pub rank: usize,
    calls: Calls,
}

impl AsyncCaller {
    /// The calls of this rank, for a function that makes calls itself.
    #[must_use]
    pub fn calls(&self) -> &Calls {
        &self.calls
    }
}

/// A function in progress: its encoded result, or the text of the error.
type InProgress = Pin<Box<dyn Future<Output = Result<Vec<u8>, String>>>>;

/// Starts a function, given its caller and the encoded argument.
pub(super) type Start = dyn Fn(AsyncCaller, &[u8]) -> Result<InProgress, String>;

impl Registered {
    pub(super) fn asynchronous<F, A, R>(function: F) -> Self
    where
        F: AsyncFn(AsyncCaller, A) -> R + Clone + 'static,
        A: DeserializeOwned + 'static,
        R: Serialize,
    {
        let name = type_name::<F>();
        let start = move |caller: AsyncCaller, argument: &[u8]| {
            let argument = function::decoded(name, argument)?;
            let function = function.clone();
            let mut running = Box::pin(async move { function(caller, argument).await });
            let result = poll_fn(move |context| match caught(|| running.as_mut().poll(context)) {
                Ok(poll) => poll.map(|result| function::encoded(name, &result)),
                Err(text) => Poll::Ready(Err(function::panicked(name, &text))),
            });
            Ok(Box::pin(result) as InProgress)
        };
        let signature = format!("async {name}({}) -> {}", type_name::<A>(), type_name::<R>());
        Self { body: Body::Async(Box::new(start)), is_short: false, name, signature }
    }
}

impl Shared {
    /// Starts an async function, as a task that answers the call.
    pub(super) fn start_async(
        self: &Rc<Self>,
        job: &Messenger,
        function: (&Start, &'static str),
        (source, header): (usize, Header),
        argument: &[u8],
    ) -> Result<(), String> {
        let ((start, name), shared) = (function, Rc::clone(self));
        let mut function = start(AsyncCaller { rank: source, calls: Calls { shared: Rc::clone(self) } }, argument)?;
        job.active_messages().spawn(async move {
            let polled = poll_fn(|context| {
                let _running = Running::new(&shared, true);
                shared.recorded(name, (source, header), || function.as_mut().poll(context))
            });
            let result = polled.await;
            if let Err(e) = shared.answer(shared.job(), source, header, result) {
                tracing::error!("the result of {name} cannot be returned: {e}");
            }
        });
        Ok(())
    }
}
