//! Contexts: sets of operations that are completed independently of other operations.

use std::cell::RefCell;
use std::rc::Rc;

use bytemuck::Pod;
use farside_core::{Result, located};

use super::Symmetric;
use crate::pending::{Buffer, Pending, Transfer};
use crate::raw::{RawWindow, Request};

/// A set of operations in progress, on any arrays, which are completed together and independently of others, like a
/// communication context of OpenSHMEM.
///
/// ```
/// use farside_rma::prelude::*;
/// use farside_rma::symmetric::Context;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let table = Symmetric::<u64>::allocate(&team, 8)?;
///     let (urgent, rest) = (Context::new(), Context::new());
///     let peer = 1 - team.rank();
///     let _ = rest.put_nbi(&table, vec![1; 7], peer, 1)?;
///     let _ = urgent.put_nbi(&table, [9], peer, 0)?;
///     // Waits for the second put only.
///     urgent.quiet()?;
///     rest.quiet()?;
///     table.barrier()?;
///     assert_eq!(table.local().to_vec()?, [9, 1, 1, 1, 1, 1, 1, 1]);
///     table.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Context {
    open: RefCell<Open>,
}

#[derive(Debug, Default)]
struct Open {
    operations: Vec<(Rc<RawWindow>, usize, Request)>,
    /// Length of the list at which completed operations are removed.
    most: usize,
}

impl Context {
    /// Creates a context without operations. Sends nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a put of a buffer ([`Symmetric::put_nbi`]).
    ///
    /// # Errors
    /// Those of [`Symmetric::put_nbi`].
    #[track_caller]
    pub fn put_nbi<T: Pod, B: Buffer<T>>(
        &self,
        to: &Symmetric<T>,
        from: B,
        rank: usize,
        at: usize,
    ) -> Result<Pending<B>> {
        located(|| to.transfer(Transfer::Put, from, rank, at, Some(self)))
    }

    /// Starts a get into a buffer ([`Symmetric::get_nbi`]).
    ///
    /// # Errors
    /// Those of [`Symmetric::get_nbi`].
    #[track_caller]
    pub fn get_nbi<T: Pod, B: Buffer<T>>(
        &self,
        from: &Symmetric<T>,
        into: B,
        rank: usize,
        at: usize,
    ) -> Result<Pending<B>> {
        located(|| from.transfer(Transfer::Get, into, rank, at, Some(self)))
    }

    /// A closure that adds an operation to a context, if there is one.
    pub(super) fn note<'a>(
        context: Option<&'a Self>,
        window: &'a Rc<RawWindow>,
        target: usize,
    ) -> impl FnOnce(&Request) + 'a {
        move |request| context.into_iter().for_each(|context| context.add(window, target, request))
    }

    /// Adds an operation in progress.
    fn add(&self, window: &Rc<RawWindow>, target: usize, request: &Request) {
        let mut open = self.open.borrow_mut();
        if open.operations.len() >= open.most {
            // An operation that has failed is kept, so that `quiet` returns its error.
            open.operations.retain(|(_, _, request)| !request.done() || request.has_failed());
            open.most = 2 * open.operations.len().max(8);
        }
        open.operations.push((Rc::clone(window), target, request.clone()));
    }

    /// Completes the operations of the context at their targets. No message.
    ///
    /// # Errors
    /// The first error of an operation; `PeerLost`. The context is then empty.
    #[track_caller]
    pub fn quiet(&self) -> Result<()> {
        located(|| {
            let open = std::mem::take(&mut *self.open.borrow_mut()).operations;
            let mut all = Ok(());
            for (window, target, request) in open {
                let one = window.complete_request(&request, target);
                all = all.and(one);
            }
            all
        })
    }
}
