//! Functions that can be called remotely, and how a call names them.

use std::any::{TypeId, type_name};
use std::fmt;
use std::marker::PhantomData;

use bytemuck::Pod;
use farside_core::callback;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::asynchronous::Start;
use super::state::Calls;

/// The rank that has called a function.
///
/// A function that makes calls itself:
///
/// ```
/// use farside_rma::calls::{Caller, Calls};
/// use farside_rma::prelude::*;
///
/// fn sum_to(caller: &Caller<'_>, n: u32) -> u32 {
///     let calls = caller.calls();
///     let right = (calls.team().rank() + 1) % calls.team().size();
///     if n == 0 { 0 } else { n + calls.call(right, sum_to, n - 1).wait().unwrap_or(0) }
/// }
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let calls = Calls::new(&team)?;
///     calls.register(sum_to)?;
///     if team.rank() == 0 {
///         assert_eq!(calls.call(1, sum_to, 3).wait()?, 6);
///     }
///     calls.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
pub struct Caller<'a> {
    /// The calling rank of the team.
    pub rank: usize,
    pub(super) calls: &'a Calls,
}

impl Caller<'_> {
    /// The calls of this rank, for a function that makes calls itself.
    #[must_use]
    pub fn calls(&self) -> &Calls {
        self.calls
    }
}

/// The key by which a call identifies its function.
#[derive(Clone, Copy, Debug)]
pub enum Key {
    /// The number of the `Calls` object, and the number of the registration in it.
    Number(u16, u16),
    /// The type of the function item, and the name of that type.
    Type(TypeId, &'static str),
}

/// A name of a function with an argument `A` and a result `R`: the function itself, or what
/// [`register`](Calls::register) has returned for it.
///
/// ```
/// use farside_rma::calls::{Caller, Calls, Function};
/// use farside_rma::prelude::*;
///
/// fn half(_: &Caller<'_>, x: f64) -> f64 {
///     x / 2.0
/// }
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let calls = Calls::new(&team)?;
///     let value: Function<f64, f64> = calls.register(half)?;
///     assert_eq!(calls.call(1 - team.rank(), half, 3.0).wait()?, 1.5);
///     assert_eq!(calls.call(1 - team.rank(), value, 5.0).wait()?, 2.5);
///     calls.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a remote function of this argument",
    label = "give a registered function item, or the value that `register` has returned"
)]
pub trait Callable<A, R> {
    #[doc(hidden)]
    fn key(&self) -> Key;
}

impl<F: Fn(&Caller<'_>, A) -> R + 'static, A, R> Callable<A, R> for F {
    fn key(&self) -> Key {
        // Function pointers of one type, and closures with other values, are different functions.
        const {
            assert!(
                size_of::<F>() == 0,
                "for a function pointer or a capturing closure, pass the value that `register` has returned"
            )
        };
        Key::Type(TypeId::of::<F>(), type_name::<F>())
    }
}

/// A name of a function that also gets elements of type `T`.
///
/// ```
/// use farside_rma::calls::{Caller, Calls};
/// use farside_rma::prelude::*;
///
/// fn count(_: &Caller<'_>, byte: u8, data: &[u8]) -> usize {
///     data.iter().filter(|other| **other == byte).count()
/// }
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let calls = Calls::new(&team)?;
///     calls.register_with(count)?;
///     assert_eq!(calls.call_with(1 - team.rank(), count, b'a', b"banana")?.wait()?, 3);
///     calls.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a remote function of this argument and these elements",
    label = "give a registered function item, or the value that `register_with` has returned"
)]
pub trait CallableWith<A, T, R> {
    #[doc(hidden)]
    fn key(&self) -> Key;
}

impl<F: Fn(&Caller<'_>, A, &[T]) -> R + 'static, A, T, R> CallableWith<A, T, R> for F {
    fn key(&self) -> Key {
        // Function pointers of one type, and closures with other values, are different functions.
        const {
            assert!(
                size_of::<F>() == 0,
                "for a function pointer or a capturing closure, pass the value that `register` has returned"
            )
        };
        Key::Type(TypeId::of::<F>(), type_name::<F>())
    }
}

/// The signature as a function pointer type, for the handles that registrations return.
type Signature<A, R> = PhantomData<fn(A) -> R>;

/// A registered function ([`Calls::register`]).
///
/// ```
/// use std::cell::Cell;
/// use std::rc::Rc;
///
/// use farside_rma::calls::{Calls, Function};
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let (calls, most) = (Calls::new(&team)?, Rc::new(Cell::new(0)));
///     let own = Rc::clone(&most);
///     let raise: Function<u64, ()> = calls.register_short(move |_, to: u64| own.set(own.get().max(to)))?;
///     calls.cast_all(raise, 10 * team.rank() as u64)?;
///     calls.quiesce()?;
///     assert_eq!(most.get(), 20);
///     calls.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
pub struct Function<A, R> {
    calls: u16,
    number: u16,
    signature: Signature<A, R>,
}

impl<A, R> Function<A, R> {
    pub(super) fn new(calls: u16, number: u16) -> Self {
        Self { calls, number, signature: PhantomData }
    }

    /// The same function, for arguments of another type with the same encoding, such as references.
    pub(crate) fn given<B>(self) -> Function<B, R> {
        Function::new(self.calls, self.number)
    }
}

impl<A, R> Clone for Function<A, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, R> Copy for Function<A, R> {}

impl<A, R> fmt::Debug for Function<A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Function").field(&self.number).finish()
    }
}

impl<A, R> Callable<A, R> for Function<A, R> {
    fn key(&self) -> Key {
        Key::Number(self.calls, self.number)
    }
}

/// A registered function that also gets elements of type `T` ([`Calls::register_with`]).
///
/// ```
/// use std::cell::Cell;
/// use std::rc::Rc;
///
/// use farside_rma::calls::{Calls, FunctionWith};
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let (calls, sum) = (Calls::new(&team)?, Rc::new(Cell::new(0)));
///     let own = Rc::clone(&sum);
///     let add: FunctionWith<u64, u64, ()> = calls.register_with(move |_, factor: u64, data: &[u64]| {
///         own.set(own.get() + factor * data.iter().sum::<u64>());
///     })?;
///     calls.cast_with(0, add, 2, &[team.rank() as u64; 100])?;
///     calls.quiesce()?;
///     assert_eq!(sum.get(), if team.rank() == 0 { 600 } else { 0 });
///     calls.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
pub struct FunctionWith<A, T, R> {
    calls: u16,
    number: u16,
    signature: Signature<(A, PhantomData<T>), R>,
}

impl<A, T, R> FunctionWith<A, T, R> {
    pub(super) fn new(calls: u16, number: u16) -> Self {
        Self { calls, number, signature: PhantomData }
    }
}

impl<A, T, R> Clone for FunctionWith<A, T, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, T, R> Copy for FunctionWith<A, T, R> {}

impl<A, T, R> fmt::Debug for FunctionWith<A, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FunctionWith").field(&self.number).finish()
    }
}

impl<A, T, R> CallableWith<A, T, R> for FunctionWith<A, T, R> {
    fn key(&self) -> Key {
        Key::Number(self.calls, self.number)
    }
}

/// Runs a function, given its caller, the encoded argument and the bytes of its elements. Returns the encoded result,
/// or the text of the error.
type Run = dyn Fn(&Caller<'_>, &[u8], &[u8]) -> Result<Vec<u8>, String>;

/// The code of a function.
pub(super) enum Body {
    Plain(Box<Run>),
    Async(Box<Start>),
}

/// A registered function without its types.
pub(super) struct Registered {
    pub(super) body: Body,
    /// Whether the function runs in the dispatcher.
    pub(super) is_short: bool,
    /// The type name of the function.
    pub(super) name: &'static str,
    /// The type names of its argument, elements and result.
    pub(super) signature: String,
}

impl Registered {
    pub(super) fn plain<F, A, R>(function: F, is_short: bool) -> Self
    where
        F: Fn(&Caller<'_>, A) -> R + 'static,
        A: DeserializeOwned,
        R: Serialize,
    {
        let name = type_name::<F>();
        let run =
            move |caller: &Caller<'_>, argument: &[u8], _: &[u8]| run_catching(name, argument, |a| function(caller, a));
        let signature = format!("{name}({}) -> {}", type_name::<A>(), type_name::<R>());
        Self { body: Body::Plain(Box::new(run)), is_short, name, signature }
    }

    pub(super) fn with_data<F, A, T, R>(function: F) -> Self
    where
        F: Fn(&Caller<'_>, A, &[T]) -> R + 'static,
        A: DeserializeOwned,
        T: Pod,
        R: Serialize,
    {
        const { assert!(size_of::<T>() > 0, "zero-sized elements are not supported") };
        let name = type_name::<F>();
        let run = move |caller: &Caller<'_>, argument: &[u8], data: &[u8]| {
            if !data.len().is_multiple_of(size_of::<T>()) {
                return Err(format!("{} bytes are not elements of type {}", data.len(), type_name::<T>()));
            }
            match bytemuck::try_cast_slice(data) {
                Ok(elements) => run_catching(name, argument, |argument| function(caller, argument, elements)),
                // Rare: the buffer is not aligned for the elements, so they are copied.
                Err(_) => {
                    let elements: Vec<T> =
                        data.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect();
                    run_catching(name, argument, |argument| function(caller, argument, &elements))
                }
            }
        };
        let signature = format!("{name}({}, [{}]) -> {}", type_name::<A>(), type_name::<T>(), type_name::<R>());
        Self { body: Body::Plain(Box::new(run)), is_short: false, name, signature }
    }
}

/// Decodes the argument, runs `f` and encodes its result; a panic of any of them becomes an error.
fn run_catching<A: DeserializeOwned, R: Serialize>(
    name: &str,
    argument: &[u8],
    f: impl FnOnce(A) -> R,
) -> Result<Vec<u8>, String> {
    let run = || encoded(name, &f(decoded(name, argument)?));
    callback::caught(run).unwrap_or_else(|text| Err(panicked(name, &text)))
}

pub(super) fn decoded<A: DeserializeOwned>(name: &str, argument: &[u8]) -> Result<A, String> {
    postcard::from_bytes(argument).map_err(|e| format!("cannot decode the argument of {name}: {e}"))
}

pub(super) fn encoded<R: Serialize>(name: &str, result: &R) -> Result<Vec<u8>, String> {
    postcard::to_allocvec(result).map_err(|e| format!("the result of {name} cannot be encoded: {e}"))
}

pub(super) fn panicked(name: &str, text: &str) -> String {
    format!("{name} panicked: {text}")
}
