#![allow(unsafe_code)]
//! Operations on attached memory (MPI-5.0 section 12.2.4). The target may attach memory until it is exposed or locked,
//! so addresses are looked up only then. An operation may span several adjacent regions.

use std::rc::Rc;

use farside_core::Result;
use farside_core::device::code::{self, Effect};
use farside_core::device::{self, Change};
use farside_datatype::{Datatype, Named};

use super::address::Attachments;
use super::item::{Combine, Item, Request, Update};
use super::layouts::{Action, Layouts, reach, refused};
use super::{RawWindow, Target};
use crate::op::apply_bytes;

impl RawWindow {
    /// Starts an operation whose offset is an address at `t`, as one operation for each region that contains some of
    /// its bytes.
    pub(super) fn begin_by_address(
        &self,
        attachments: &Attachments,
        t: &Target,
        mut item: Item,
        request: Option<&Request>,
    ) -> Result<()> {
        while let Some((address, len)) = item.range().filter(|(_, len)| *len > 0) {
            let (region, base) = attachments.place(item.name(), t.team_rank, address, len)?;
            let here = region.len - (address - base);
            if here >= len {
                return self.begin(t, item.by_address(region, base), request);
            }
            let size = item.element_size();
            let whole = here - here % size;
            let (first, rest) = item.split(if whole == 0 { size } else { whole });
            if whole == 0 {
                self.update_across_regions(t, &first)?;
            } else {
                self.begin(t, first.by_address(region, base), request)?;
            }
            item = rest;
        }
        Ok(())
    }

    /// Accumulates an element that spans two regions, so that no device can update it as a whole. All ranks update such
    /// an element by [`update`](Self::update), so they are atomic with each other.
    fn update_across_regions(&self, t: &Target, item: &Item) -> Result<()> {
        let (Item::Update(changed), name) = (item, item.name()) else { return Ok(()) };
        let device::Update { change, at, len, old } = *changed;
        let (code, operand, swaps) = match change {
            Change::Accumulate { code, operand } => (code, operand, false),
            _ => (changed.code(), std::ptr::null(), true),
        };
        let bytes = Datatype::contiguous(len as u64, &Datatype::from(Named::Byte)).and_then(|bytes| bytes.message(1));
        let bytes = bytes.map_err(|e| refused(name, &e))?;
        let combine = move |element: &mut [u8], operand: &[u8]| {
            // The kernel requires an aligned element, so it is copied to a word.
            let mut now = 0u64;
            bytemuck::bytes_of_mut(&mut now)[..len].copy_from_slice(element);
            let change = if swaps { change } else { Change::Accumulate { code, operand: operand.as_ptr() } };
            // SAFETY: a local word; an operand has `len` bytes.
            let applied = unsafe { change.apply(Some(apply_bytes), (&raw mut now).cast(), std::ptr::null_mut(), len) };
            debug_assert!(applied.is_ok());
            element.copy_from_slice(&bytemuck::bytes_of(&now)[..len]);
        };
        let changes = swaps || code::effect(code) != Effect::Read;
        let update = Update { array: bytes.clone(), len, combine: changes.then(|| Rc::new(combine) as Combine) };
        let whole = Layouts::new(Action::Accumulate { code }, operand.cast_mut(), &bytes, at.offset, &bytes);
        let old = (!old.is_null()).then_some((old, &bytes));
        self.execute_layouts(t, &Layouts { old, update: Some((&update, changes && !swaps)), ..whole }, None)
    }

    /// Issues an operation between layouts whose offset is an address at `t`: as one operation if a region contains its
    /// whole range, otherwise block by block.
    pub(super) fn transfer_by_address(
        &self,
        attachments: &Attachments,
        t: &Target,
        l: &Layouts<'_>,
        request: Option<&Request>,
    ) -> Result<()> {
        let name = l.action.name();
        let (address, len) = reach(l.target, l.offset).unwrap_or((l.offset, usize::MAX));
        let (region, base) = attachments.place(name, t.team_rank, address, 1)?;
        if len <= region.len - (address - base) {
            // The offset wraps below 0 if the layout's address is before the region and its bytes are inside.
            let inside = Layouts { attached: Some(&region), offset: l.offset.wrapping_sub(base), ..*l };
            return self.execute_layouts(t, &inside, request);
        }
        // Check that all blocks are attached before the first piece is issued.
        for (at, len) in l.target.blocks(0) {
            attachments.place(name, t.team_rank, l.offset.wrapping_add_signed(at as isize), len as usize)?;
        }
        l.for_each_piece(|local, old, offset, len| {
            let piece = match l.action {
                Action::Put => Item::transfer(true, local, len, offset),
                Action::Get => Item::transfer(false, local, len, offset),
                Action::Accumulate { code } => {
                    Item::update(Change::Accumulate { code, operand: local }, old, len, offset)
                }
            };
            self.begin_by_address(attachments, t, piece, request)
        })
    }
}
