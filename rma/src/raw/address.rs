#![allow(unsafe_code)]
//! Dynamic windows by address: operations name the memory of a target by the addresses that it has there, and belong to the
//! epochs of a window without memory of its own ([`RawDynamicWindow::window`]).
//!
//! The table of a target is read when its owner has changed it: one word tells, which is read for every operation.

use std::sync::atomic::Ordering;

use farside_core::device::RemoteRegion;
use farside_core::{Error, ErrorKind, Result};
use farside_datatype::TypeMap;

use super::dynamic::{Attachment, ENTRY, RawDynamicWindow, TABLE};
use super::item::{Item, widen};
use super::layouts::{Action, Layouts};
use super::typed::accumulate;
use super::{RawWindow, Update};
use crate::op::{CasElement, Op};

/// What a rank knows of a target's table: its version, and each attachment with its first byte and length.
#[derive(Debug, Default)]
pub(super) struct KnownTable {
    version: u64,
    attachments: Vec<(usize, usize, Attachment)>,
}

impl RawDynamicWindow {
    /// The window whose epochs the operations by address belong to. It has no memory of its own.
    #[must_use]
    pub fn window(&self) -> &RawWindow {
        &self.epochs
    }

    /// The attachment of this rank that begins at `base`.
    #[must_use]
    pub fn attachment_at(&self, base: *const u8) -> Option<Attachment> {
        let attached = self.attached.borrow();
        attached.iter().find(|(_, own)| own.base.cast_const() == base).map(|(attachment, _)| *attachment)
    }

    /// Whether some attachment of this rank has one of these bytes.
    #[must_use]
    pub fn has_attached(&self, base: *const u8, len: usize) -> bool {
        let (from, to) = (base.addr(), base.addr().saturating_add(len));
        self.attached.borrow().values().any(|own| own.base.addr() < to && from < own.base.addr() + own.len)
    }

    /// Tells the others that the table has changed.
    pub(super) fn changed(&self) {
        // Release half: pairs with the look-up of an origin, which reads the version before and after the table.
        self.word_at(0).fetch_add(1, Ordering::AcqRel);
    }

    /// Reads a target's table, if it has changed.
    fn refresh(&self, target: usize, known: &mut KnownTable) -> Result<()> {
        loop {
            // Version, and slots that were ever used.
            let mut head = [0u64; 2];
            self.look_up(&mut head, target, 0)?;
            if head[0] == known.version {
                return Ok(());
            }
            let slots = (head[1] as usize).min(super::dynamic::MAX_ATTACHED);
            let mut table = vec![0u64; slots * ENTRY / 8];
            self.look_up(&mut table, target, TABLE)?;
            let entry = |(slot, entry): (usize, &[u64])| {
                let attachment = Attachment { id: entry[0], slot: slot as u64 };
                (entry[0] != 0).then_some((entry[3] as usize, entry[1] as usize, attachment))
            };
            known.attachments = table.chunks_exact(ENTRY / 8).enumerate().filter_map(entry).collect();
            let mut again = [0u64; 1];
            self.look_up(&mut again, target, 0)?;
            if again[0] == head[0] {
                known.version = head[0];
                return Ok(());
            }
        }
    }

    /// The region of the attachment that has all bytes of `at` relative to `address`, and its first address.
    fn place(&self, name: &'static str, target: usize, address: usize, at: &TypeMap) -> Result<(RemoteRegion, usize)> {
        self.epochs.target(target, name)?;
        let (lb, ub) = (at.true_lb(), at.true_ub());
        let low = address.checked_add_signed(lb as isize);
        let high = address.checked_add_signed(ub as isize);
        // Not borrowed meanwhile: other threads of the rank may come here while it waits. The last one keeps its copy.
        let mut known = self.known.borrow_mut().remove(&target).unwrap_or_default();
        self.refresh(target, &mut known)?;
        let found = known.attachments.iter().find(|(base, len, _)| {
            low.is_some_and(|low| low >= *base) && high.is_some_and(|high| high <= base.saturating_add(*len))
        });
        let found = found.copied();
        self.known.borrow_mut().insert(target, known);
        let (base, _, attachment) = found.ok_or_else(|| {
            Error::new(ErrorKind::NotAttached, name)
                .rank(self.epochs.job().rank())
                .peer(self.epochs.team().members()[target])
                .cause(format!("{} bytes at address {address:#x}", ub.abs_diff(lb)))
                .remedy("attach the memory there, and tell this rank after that")
        })?;
        Ok((self.region(name, target, attachment)?, base))
    }

    /// Has `issue` issue an operation on the bytes of `at` at an address of `target`, by the region and the byte of it.
    fn by_address(
        &self,
        name: &'static str,
        (target, address, at): (usize, usize, &TypeMap),
        issue: impl FnOnce(&RemoteRegion, usize) -> Result<()>,
    ) -> Result<()> {
        self.epochs.usable(name)?;
        if at.size() == 0 {
            self.epochs.target(target, name)?;
            return self.epochs.permit(name, target);
        }
        self.epochs.permit(name, target)?;
        let (region, base) = self.place(name, target, address, at)?;
        issue(&region, address.wrapping_sub(base))
    }

    /// As [`RawWindow::put_typed`], at an address of `target`.
    ///
    /// # Safety
    /// The contract of [`RawWindow::put_typed`].
    ///
    /// # Errors
    /// Those of [`RawWindow::put_typed`]; `NotAttached`.
    pub unsafe fn put_at(
        &self,
        (from, origin): (*const u8, &TypeMap),
        target: usize,
        address: usize,
        at: &TypeMap,
    ) -> Result<()> {
        self.by_address("put", (target, address, at), |region, offset| {
            let (action, local, attached) = (Action::Put, from.cast_mut(), Some(region));
            let layouts = Layouts { action, local, origin, offset, target: at, old: None, attached };
            self.epochs.issue_layouts(target, layouts, None)
        })
    }

    /// As [`RawWindow::get_typed`], at an address of `target`.
    ///
    /// # Safety
    /// The contract of [`RawWindow::get_typed`].
    ///
    /// # Errors
    /// Those of [`put_at`](Self::put_at).
    pub unsafe fn get_at(
        &self,
        (local, origin): (*mut u8, &TypeMap),
        target: usize,
        address: usize,
        at: &TypeMap,
    ) -> Result<()> {
        self.by_address("get", (target, address, at), |region, offset| {
            let (action, attached) = (Action::Get, Some(region));
            let layouts = Layouts { action, local, origin, offset, target: at, old: None, attached };
            self.epochs.issue_layouts(target, layouts, None)
        })
    }

    /// As [`RawWindow::accumulate_typed`], at an address of `target`.
    ///
    /// # Safety
    /// The contract of [`RawWindow::accumulate_typed`].
    ///
    /// # Errors
    /// Those of [`RawWindow::accumulate_typed`]; `NotAttached`.
    pub unsafe fn accumulate_at(
        &self,
        op: Op,
        operand: (*const u8, &TypeMap),
        old: Option<(*mut u8, &TypeMap)>,
        target: usize,
        address: usize,
        at: &TypeMap,
    ) -> Result<()> {
        self.by_address("accumulate", (target, address, at), |region, offset| {
            let layouts = accumulate(op, operand, old, offset, at)?;
            self.epochs.issue_layouts(target, Layouts { attached: Some(region), ..layouts }, None)
        })
    }

    /// As [`RawWindow::update`], at an address of `target`.
    ///
    /// # Safety
    /// The contract of [`RawWindow::update`].
    ///
    /// # Errors
    /// Those of [`RawWindow::update`]; `NotAttached`.
    pub unsafe fn update_at(
        &self,
        update: &Update,
        operands: Option<(*const u8, &TypeMap)>,
        old: Option<(*mut u8, &TypeMap)>,
        target: usize,
        address: usize,
        at: &TypeMap,
    ) -> Result<()> {
        self.by_address("accumulate", (target, address, at), |region, offset| {
            self.epochs.update_in(update, operands, old, (target, offset, at), Some(region))
        })
    }

    /// As [`RawWindow::compare_and_swap`], at an address of `target` where `at` is one element.
    ///
    /// # Safety
    /// The contract of [`RawWindow::compare_and_swap`].
    ///
    /// # Errors
    /// Those of [`RawWindow::compare_and_swap`]; `NotAttached`.
    pub unsafe fn compare_and_swap_at<T: CasElement>(
        &self,
        (expected, desired, old): (T, T, *mut T),
        target: usize,
        address: usize,
        at: &TypeMap,
    ) -> Result<()> {
        self.by_address("compare and swap", (target, address, at), |region, offset| {
            let (expected, desired) = (widen(expected), widen(desired));
            let item = Item::CompareSwap { len: size_of::<T>(), expected, desired, old: old.cast(), offset };
            self.epochs.issue(target, item.at(Some(region)), None)
        })
    }
}
