#![allow(unsafe_code)]
//! Accumulates that no device supports: on pairs, on complex numbers, on elements of more than 8 bytes, or by a user
//! function.
//!
//! The origin executes them under a lock word of the target that excludes other such updates: it gets the elements,
//! combines them with the operands, and puts the results.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use farside_core::callback::Callback;
use farside_core::job::Unnotified;
use farside_core::memory::zeroed;
use farside_core::{Error, ErrorKind, Result};
use farside_datatype::{Private, TypeMap};

use super::item::{Request, Update};
use super::layouts::{Action, Layouts, refused};
use super::{RawWindow, Target, word};

impl RawWindow {
    /// Applies `update` to the elements of `at`, relative to byte `offset` of `target`, with the operands, if any.
    /// Previous values are written to the elements of `old`. Complete on return if the target is ready, else after the
    /// call that closes the epoch or flushes. If the target has no agent (a window without locks), the update completes
    /// only after the target has entered the runtime.
    ///
    /// Updates of one target are atomic with each other, each as a whole, and in the order in which a rank issues them.
    /// They are not atomic with accumulates, so an element must not be the target of both. Messages: two on a lock word
    /// of the target (and one for each failed attempt to take it) unless this rank has locked the target exclusively, a
    /// get, a put; none on mapped windows.
    ///
    /// # Safety
    /// The contract of [`put_typed`](Self::put_typed) for the operands, and of [`get_typed`](Self::get_typed) for
    /// `old`.
    ///
    /// # Errors
    /// Those of [`put_typed`](Self::put_typed).
    pub unsafe fn update(
        &self,
        update: &Update,
        operands: Option<(*const u8, &TypeMap)>,
        old: Option<(*mut u8, &TypeMap)>,
        target: usize,
        offset: usize,
        at: &TypeMap,
    ) -> Result<()> {
        let action = Action::Accumulate { code: 0 };
        let name = action.name();
        let blamed = |e: Error| e.rank(self.job.rank());
        update.array.check_elements(at).map_err(|e| blamed(refused(name, &e)))?;
        if update.array.true_lb() < 0 || update.array.true_ub() > update.len as i64 {
            let e = Error::new(ErrorKind::BadArgument, name);
            return Err(blamed(e.cause("the datatype has elements outside the operand array")));
        }
        // Without operands, the origin's side takes the datatype of the target.
        let (local, origin) = operands.map_or((std::ptr::null_mut(), at), |(from, map)| (from.cast_mut(), map));
        let layouts = Layouts::new(action, local, origin, offset, at);
        let update = Some((update, operands.is_some()));
        self.issue_layouts(target, Layouts { old, update, ..layouts }, None)
    }

    pub(super) fn execute_update(
        &self,
        t: &Target,
        l: &Layouts<'_>,
        update: &Update,
        has_operands: bool,
    ) -> Result<()> {
        // Earlier operations of this rank complete first.
        if let Some(before) = t.withheld.take() {
            self.send_earlier(t, &before, None);
        }
        self.settle(t.team_rank)?;
        let alone = || self.update_exclusively(t, l, update, has_operands);
        if t.is_locked_exclusively() {
            return alone();
        }
        let mark = self.team.rank() as u64 + 1;
        // A rank that releases the word notifies no waiter, so this wait must poll.
        let awaited = || self.awaited(l.action.name(), t.team_rank);
        self.job.wait(Unnotified(awaited), || {
            let holder = self.signals.compare_swap(t.team_rank, word::UPDATE, 0, mark)?;
            Ok((holder == 0).then_some(()))
        })?;
        // The word is also released after an error or a panic, so that other ranks do not wait forever.
        let done = catch_unwind(AssertUnwindSafe(alone));
        let released = self.signals.fetch_add(t.team_rank, word::UPDATE, mark.wrapping_neg());
        done.unwrap_or_else(|panic| resume_unwind(panic)).and(released.map(drop))
    }

    /// Executes the update while the word is held.
    fn update_exclusively(&self, t: &Target, l: &Layouts<'_>, update: &Update, has_operands: bool) -> Result<()> {
        let mut elements = zeroed(update.len, l.action.name())?;
        let refused = |e| refused(l.action.name(), &e);
        self.transfer_blocking(t, l, Action::Get, elements.as_mut_ptr(), &update.array)?;
        if let Some((old, map)) = l.old {
            // SAFETY: the array holds the elements, and `old` is valid by the contract of `update`.
            unsafe { update.array.copy_raw::<Private>(elements.as_ptr(), map, old, 0, u64::MAX) }.map_err(refused)?;
        }
        let Some(combine) = &update.combine else { return Ok(()) };
        let mut operands = Vec::new();
        if has_operands {
            operands = zeroed(update.len, l.action.name())?;
            let into = operands.as_mut_ptr();
            // SAFETY: the operands are valid by the contract of `update`, and `operands` has room for the array.
            unsafe { l.origin.copy_raw::<Private>(l.local, &update.array, into, 0, u64::MAX) }.map_err(refused)?;
        }
        {
            let _inside = self.job.inside(Callback::Operator);
            combine(&mut elements, &operands);
        }
        self.transfer_blocking(t, l, Action::Put, elements.as_mut_ptr(), &update.array)
    }

    /// A put or a get of an array, complete on return.
    fn transfer_blocking(
        &self,
        t: &Target,
        l: &Layouts<'_>,
        action: Action,
        local: *mut u8,
        array: &TypeMap,
    ) -> Result<()> {
        let request = Request::new();
        let transfer = Layouts { attached: l.attached, ..Layouts::new(action, local, array, l.offset, l.target) };
        let issued = self.execute_layouts(t, &transfer, Some(&request));
        let waited = issued.and_then(|()| self.job.wait(action.name(), || Ok(request.done().then_some(()))));
        if waited.is_err() {
            request.cancel(&self.job);
        }
        waited.and_then(|()| request.outcome())
    }
}
