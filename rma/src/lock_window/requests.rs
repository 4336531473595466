//! Request-based operations of passive-target epochs.

use std::slice::{from_mut, from_ref};

use bytemuck::Pod;
use farside_core::{Result, located};

use super::PassiveEpoch;
use crate::op::{CasElement, Element, Op};
use crate::raw::Item;
use crate::raw::layouts::Layouts;
use crate::request::{DataRef, Request};
use crate::selection::Selection;

impl<'scope, T: Pod> PassiveEpoch<'scope, '_, T> {
    /// Starts a request-based put. The request returns `from`: a slice, an array or a vector, shared or exclusive.
    ///
    /// # Errors
    /// Those of [`Epoch::put`](super::Epoch::put).
    #[track_caller]
    pub fn rput<B: DataRef<'scope, T>>(
        &'scope self,
        from: B,
        target: usize,
        displacement: usize,
    ) -> Result<Request<'scope, B>> {
        located(|| self.request(target, from, |from| Item::put(from.data(), displacement)))
    }

    /// Starts a request-based get. The request returns `into`.
    ///
    /// # Errors
    /// Those of [`Epoch::get`](super::Epoch::get).
    #[track_caller]
    pub fn rget(
        &'scope self,
        into: &'scope mut [T],
        target: usize,
        displacement: usize,
    ) -> Result<Request<'scope, &'scope mut [T]>> {
        located(|| self.request(target, into, |into| Item::get(into, displacement)))
    }

    /// Starts a request-based accumulate. The request returns `operand`.
    ///
    /// # Errors
    /// Those of [`Epoch::accumulate`](super::Epoch::accumulate).
    #[track_caller]
    pub fn raccumulate<B: DataRef<'scope, T>>(
        &'scope self,
        op: Op,
        operand: B,
        target: usize,
        displacement: usize,
    ) -> Result<Request<'scope, B>>
    where
        T: Element,
    {
        located(|| self.request(target, operand, |operand| Item::accumulate(op, operand.data(), None, displacement)))
    }

    /// Starts a request-based get_accumulate. The request returns `old`.
    ///
    /// # Errors
    /// Those of [`Epoch::get_accumulate`](super::Epoch::get_accumulate).
    #[track_caller]
    pub fn rget_accumulate(
        &'scope self,
        op: Op,
        operand: &'scope [T],
        old: &'scope mut [T],
        target: usize,
        displacement: usize,
    ) -> Result<Request<'scope, &'scope mut [T]>>
    where
        T: Element,
    {
        located(|| self.request(target, old, |old| Item::accumulate(op, operand, Some(old), displacement)))
    }

    /// Starts a request-based fetch_and_op. The request returns `old`.
    ///
    /// # Errors
    /// Those of [`Epoch::fetch_and_op`](super::Epoch::fetch_and_op).
    #[track_caller]
    pub fn rfetch_and_op(
        &'scope self,
        op: Op,
        operand: &'scope T,
        old: &'scope mut T,
        target: usize,
        displacement: usize,
    ) -> Result<Request<'scope, &'scope mut T>>
    where
        T: Element,
    {
        located(|| {
            self.request(target, old, |old| Item::accumulate(op, from_ref(operand), Some(from_mut(old)), displacement))
        })
    }

    /// Starts a request-based compare_and_swap. The request returns `old`.
    ///
    /// # Errors
    /// Those of [`Epoch::compare_and_swap`](super::Epoch::compare_and_swap).
    #[track_caller]
    pub fn rcompare_and_swap(
        &'scope self,
        expected: T,
        desired: T,
        old: &'scope mut T,
        target: usize,
        displacement: usize,
    ) -> Result<Request<'scope, &'scope mut T>>
    where
        T: CasElement,
    {
        located(|| self.request(target, old, |old| Item::compare_and_swap(expected, desired, old, displacement)))
    }

    /// Starts a request-based [`put_selected`](super::Epoch::put_selected). The request returns `from`.
    ///
    /// # Errors
    /// Those of [`Epoch::put_selected`](super::Epoch::put_selected).
    #[track_caller]
    pub fn rput_selected<B: DataRef<'scope, T>>(
        &'scope self,
        from: B,
        of: &Selection<T>,
        target: usize,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<Request<'scope, B>> {
        located(|| self.request_layouts(target, from, |from| Layouts::put(from.data(), of, displacement, at)))
    }

    /// Starts a request-based [`get_selected`](super::Epoch::get_selected). The request returns `into`.
    ///
    /// # Errors
    /// Those of [`Epoch::get_selected`](super::Epoch::get_selected).
    #[track_caller]
    pub fn rget_selected(
        &'scope self,
        into: &'scope mut [T],
        of: &Selection<T>,
        target: usize,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<Request<'scope, &'scope mut [T]>> {
        located(|| self.request_layouts(target, into, |into| Layouts::get(into, of, displacement, at)))
    }

    /// Starts a request-based [`accumulate_selected`](super::Epoch::accumulate_selected). The request returns `operand`.
    ///
    /// # Errors
    /// Those of [`Epoch::accumulate_selected`](super::Epoch::accumulate_selected).
    #[track_caller]
    pub fn raccumulate_selected<B: DataRef<'scope, T>>(
        &'scope self,
        op: Op,
        operand: B,
        of: &Selection<T>,
        target: usize,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<Request<'scope, B>>
    where
        T: Element,
    {
        located(|| {
            self.request_layouts(target, operand, |operand| {
                Layouts::accumulate(op, operand.data(), None, of, displacement, at)
            })
        })
    }

    /// Starts a request-based [`get_accumulate_selected`](super::Epoch::get_accumulate_selected). The request returns `old`.
    ///
    /// # Errors
    /// Those of [`Epoch::get_accumulate_selected`](super::Epoch::get_accumulate_selected).
    #[allow(clippy::too_many_arguments)] // the arguments of MPI's call
    #[track_caller]
    pub fn rget_accumulate_selected(
        &'scope self,
        op: Op,
        operand: &'scope [T],
        old: &'scope mut [T],
        of: &Selection<T>,
        target: usize,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<Request<'scope, &'scope mut [T]>>
    where
        T: Element,
    {
        located(|| {
            self.request_layouts(target, old, |old| Layouts::accumulate(op, operand, Some(old), of, displacement, at))
        })
    }

    fn request<B>(
        &'scope self,
        target: usize,
        buffer: B,
        item: impl FnOnce(&mut B) -> Result<Item>,
    ) -> Result<Request<'scope, B>> {
        let raw = self.epoch.raw;
        Request::new(raw, target, buffer, |buffer, request| raw.issue(target, item(buffer)?, Some(request)))
    }

    fn request_layouts<'a, B>(
        &'scope self,
        target: usize,
        buffer: B,
        layouts: impl FnOnce(&mut B) -> Result<Layouts<'a>>,
    ) -> Result<Request<'scope, B>> {
        let raw = self.epoch.raw;
        Request::new(raw, target, buffer, |buffer, request| raw.issue_layouts(target, layouts(buffer)?, Some(request)))
    }
}
