#![allow(unsafe_code)]
//! Operations with derived datatypes at origin and target (MPI-4 §12.3). Packed pieces are in [`super::packed`], lists
//! on both sides in [`super::sgrs`]. As with contiguous operations, the notification of the closing call is combined
//! with the last message of a transfer.

use std::rc::Rc;

use farside_core::device::{Change, Place, Update, code};
use farside_core::settings::TransferScheme;
use farside_core::stats::Kind;
use farside_core::{Error, ErrorKind, Result};
use farside_datatype::{Class, DatatypeError, Named, Overlap, Scheme, TypeMap};

use super::item::{Item, Request};
use super::layouts::{Action, Layouts, Shared, reach, refused};
use super::{RawWindow, Target};
use crate::op::{ElementType, Op};

impl RawWindow {
    /// Sets the scheme of later transfers between datatypes; it is used whenever it is applicable, also on mapped
    /// windows. Meant for measurements and tests. [`farside_core::settings::Settings`] has the same option for all
    /// windows.
    pub fn set_transfer(&self, scheme: TransferScheme) {
        self.operations.planner.force_scheme(scheme);
    }

    /// Puts the bytes of `origin`, relative to `from`, to those of `at`, relative to byte `offset` of `target`.
    /// Completes like [`put`](Self::put). Both sides have the same elements in the same order, which is checked by
    /// their signatures. A byte that `at` contains twice gets one of its values. The datatypes need not outlive the call.
    /// Messages of a transfer:
    ///
    /// | target | messages |
    /// |---|---|
    /// | mapped, ready | none: one copy from layout to layout |
    /// | of this node, not mapped | one for up to 1024 blocks on either side: one system call, or pieces through the ring; for puts of short blocks packed pieces, as below |
    /// | inter-node, target consecutive | one for up to 1024 blocks of the origin |
    /// | inter-node, target not consecutive | one for each block; for puts of short blocks between fences, or from start to complete, packed pieces that the target unpacks |
    ///
    /// Inter-node, if the target enters the runtime before the epoch ends (fence, and start with post), transfers of
    /// many short blocks use lists on both sides (SGRS).
    ///
    /// # Safety
    /// All bytes of `origin` relative to `from` are valid and not written until the epoch is closed or flushed, or
    /// [`abandon`](Self::abandon) has returned; none of them is a byte of the target.
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`, `WrongEpoch`; `BadArgument` for datatypes with different elements.
    #[inline]
    pub unsafe fn put_typed(
        &self,
        from: *const u8,
        origin: &TypeMap,
        target: usize,
        offset: usize,
        at: &TypeMap,
    ) -> Result<()> {
        self.transfer_layouts(target, Layouts::new(Action::Put, from.cast_mut(), origin, offset, at))
    }

    /// Gets the bytes of `at`, relative to byte `offset` of `target`, to those of `origin`, relative to `into`.
    /// Completes like [`get`](Self::get). Elements and messages as for [`put_typed`](Self::put_typed).
    ///
    /// # Safety
    /// All bytes of `origin` relative to `into` are valid, and not accessed otherwise, for as long as
    /// [`put_typed`](Self::put_typed) demands.
    ///
    /// # Errors
    /// Those of [`put_typed`](Self::put_typed); `BadArgument` for an origin datatype that contains a byte twice.
    #[inline]
    pub unsafe fn get_typed(
        &self,
        into: *mut u8,
        origin: &TypeMap,
        target: usize,
        offset: usize,
        at: &TypeMap,
    ) -> Result<()> {
        self.transfer_layouts(target, Layouts::new(Action::Get, into, origin, offset, at))
    }

    /// Accumulates the elements of `origin`, relative to `operand`, into those of `at`, relative to byte `offset` of
    /// `target`: each atomically, in packed order, and in the order in which this rank issues such operations. Previous
    /// values are written to the elements of the datatype `old`, relative to its address. An element that `at` contains
    /// twice is updated twice. For [`Op::NoOp`] with `old` the operands are not read, and `operand` may be null. One
    /// message, or one record of a message ([`farside_core::service::records`]), for each piece that is consecutive on
    /// all sides.
    ///
    /// After an error that the target detects (`Misaligned`), the preceding elements in packed order have been updated.
    ///
    /// # Safety
    /// The contract of [`put_typed`](Self::put_typed) for `operand`, and of [`get_typed`](Self::get_typed) for `old`.
    ///
    /// # Errors
    /// Those of [`put_typed`](Self::put_typed), except that only `old` must not contain a byte twice; `Misaligned`;
    /// `Unsupported` for an operation that is not defined on the element type, for elements of several types, and for
    /// predefined types without an [`ElementType`].
    pub unsafe fn accumulate_typed(
        &self,
        op: Op,
        (operand, origin): (*const u8, &TypeMap),
        old: Option<(*mut u8, &TypeMap)>,
        target: usize,
        offset: usize,
        at: &TypeMap,
    ) -> Result<()> {
        let layouts = accumulate(op, (operand, origin), old, offset, at)?;
        self.issue_layouts(target, layouts, None)
    }

    /// Starts a put or a get between layouts, as a copy if the target is ready and its side is mapped.
    #[inline(always)]
    pub(crate) fn transfer_layouts(&self, target: usize, l: Layouts<'_>) -> Result<()> {
        let receiver = if l.action == Action::Put { l.target } else { l.origin };
        if let Some(remote) = self.direct_layout(target, l.offset, l.target)
            && receiver.overlap() == Overlap::None
            && self.copy_layouts(&l, remote).is_ok()
        {
            return Ok(());
        }
        self.issue_layouts(target, l, None)
    }

    /// Copies a whole put or get between layouts from or to mapped memory. Offsets of the target's side count from
    /// `remote`.
    #[inline(always)]
    fn copy_layouts(&self, l: &Layouts<'_>, remote: *mut u8) -> std::result::Result<usize, DatatypeError> {
        let put = l.action == Action::Put;
        self.order_stores((!put, put));
        // SAFETY: the target's side is inside its mapped memory; the local bytes are valid by the contract of the call.
        let copied = unsafe {
            if put {
                l.origin.copy_raw::<Shared>(l.local, l.target, remote, 0, u64::MAX)
            } else {
                l.target.copy_raw::<Shared>(remote, l.origin, l.local, 0, u64::MAX)
            }
        }?;
        self.stats().add(if put { Kind::Write } else { Kind::Read }, copied);
        self.stats().add(Kind::Copy, copied);
        Ok(copied)
    }

    /// The address of offset 0 of a layout, if the target is ready and its side is mapped. Also `None` for an empty
    /// layout, and if a scheme is forced.
    #[inline(always)]
    fn direct_layout(&self, target: usize, offset: usize, at: &TypeMap) -> Option<*mut u8> {
        let (start, len) = reach(at, offset)?;
        let lowest = self.direct(target, start, len).filter(|_| len > 0 && self.operations.planner.is_free())?;
        Some(lowest.wrapping_offset((at.true_lb() as isize).wrapping_neg()))
    }

    /// Checks an operation between layouts for `t`. Whether its addresses are attached is looked up later, when `t` is
    /// ready.
    #[inline]
    pub(super) fn check(&self, t: &Target, l: &Layouts<'_>) -> Result<()> {
        let len = if self.attachments.is_some() { usize::MAX } else { l.attached.unwrap_or(&t.region).len };
        l.check(len, self.element).map_err(|e| e.rank(self.job.rank()).peer(t.region.peer))
    }

    /// Starts an operation between layouts, or queues it until its target is ready.
    pub(crate) fn issue_layouts(&self, target: usize, l: Layouts<'_>, request: Option<&Request>) -> Result<()> {
        let name = l.action.name();
        self.usable(name)?;
        let t = self.target(target, name)?;
        self.check(t, &l)?;
        if l.target.size() == 0 {
            return self.permit(name, target);
        }
        let current = self.operations.current_request.borrow().clone();
        let request = request.or(current.as_ref());
        if self.ready_or_queued(name, target, request, || Item::Layouts(Rc::new(l.owned())))? {
            self.execute_layouts(t, &l, request)?;
        }
        Ok(())
    }

    /// Issues an operation between layouts that is not empty and has been checked, to a target that is ready.
    pub(crate) fn execute_layouts(&self, t: &Target, l: &Layouts<'_>, request: Option<&Request>) -> Result<()> {
        if let Some((update, has_operands)) = l.update {
            return self.execute_update(t, l, update, has_operands);
        }
        if let Some(attachments) = self.attachments.as_ref().filter(|_| l.attached.is_none()) {
            return self.transfer_by_address(attachments, t, l, request);
        }
        // On mapped windows forced schemes end up here too and become copies.
        self.order_stores((l.action != Action::Put, l.action != Action::Get));
        let own = l.attached.is_none();
        let mapped = self.direct_layout(t.team_rank, l.offset, l.target).filter(|_| own);
        if let Action::Accumulate { code } = l.action {
            return match mapped.filter(|_| self.mapped || self.takes_atomics(t)) {
                Some(_) => self.accumulate_mapped(t, code, l),
                None => l.for_each_piece(|operand, old, offset, len| {
                    self.begin(
                        t,
                        Item::update(Change::Accumulate { code, operand }, old, len, offset).at(l.attached),
                        request,
                    )
                }),
            };
        }
        if let Some(remote) = mapped {
            return self.copy_layouts(l, remote).map(|_| ()).map_err(|e| refused(l.action.name(), &e));
        }
        if own && self.by_lists(t, l, request)? {
            return Ok(());
        }
        let unpacks = own && l.action == Action::Put && request.is_none() && self.unpacks(t);
        let plan = self.operations.planner.plan(l.attached.unwrap_or(&t.region), l, unpacks)?;
        match plan.scheme() {
            Scheme::Empty => Ok(()),
            Scheme::Contiguous | Scheme::WriteGather | Scheme::ReadScatter | Scheme::MultiW | Scheme::Sgrs => {
                l.messages(&plan).try_for_each(|message| self.begin(t, message, request))
            }
            Scheme::Generic if unpacks => self.put_packed(t, l, &plan),
            // Unreachable: the planner never chooses these for unmapped memory and a target that does not unpack.
            Scheme::Mapped | Scheme::Generic => {
                Err(Error::new(ErrorKind::Unsupported, l.action.name()).cause(format!(
                    "the planner chose {:?}, which does not apply to unmapped memory; report this as a bug",
                    plan.scheme()
                )))
            }
        }
    }

    /// Applies an accumulate to mapped memory, under one element lock.
    fn accumulate_mapped(&self, t: &Target, code: u32, l: &Layouts<'_>) -> Result<()> {
        let len = l.target.size() as usize;
        self.stats().add(Kind::Accumulate, len);
        let access = self.enter_elements(t, len == code::element(code))?;
        l.for_each_piece(|operand, old, offset, len| {
            let at = Place { region: t.region.handle, offset };
            let update = Update { change: Change::Accumulate { code, operand }, at, len, old };
            // SAFETY: the piece is in the target's mapped memory; the local bytes are valid by the contract of the
            // call.
            unsafe { self.update_mapped(t, &access, l.action.name(), &update, t.base.wrapping_add(offset)) }
        })
    }
}

/// Issues an accumulate between layouts, after checking its element type.
pub(crate) fn accumulate<'a>(
    op: Op,
    (operand, origin): (*const u8, &'a TypeMap),
    old: Option<(*mut u8, &'a TypeMap)>,
    offset: usize,
    at: &'a TypeMap,
) -> Result<Layouts<'a>> {
    const OP: &str = "accumulate";
    // If the operands are not read, the layout of the previous values stands in for theirs.
    let (local, origin) = match old {
        Some(old) if op == Op::NoOp => old,
        _ => (operand.cast_mut(), origin),
    };
    let layouts = |code| Layouts { old, ..Layouts::new(Action::Accumulate { code }, local, origin, offset, at) };
    if at.size() == 0 {
        return Ok(layouts(0));
    }
    let named = at.element().ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, OP)
            .cause("the target layout has elements of several predefined types")
            .remedy("accumulate elements of one type at a time")
    })?;
    let ty = element_type(named).ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, OP).cause(format!("{} cannot be accumulated", named.mpi_name()))
    })?;
    op.check(ty, OP)?;
    Ok(layouts(crate::op::code(op, ty)))
}

/// The element type with which [`RawWindow::accumulate_typed`] accumulates a predefined type; `None` for a type that
/// [`RawWindow::update`] accumulates.
///
/// ```
/// use farside_rma::datatype::Named;
/// use farside_rma::op::ElementType;
/// use farside_rma::raw::element_type;
///
/// assert_eq!(element_type(Named::Int), Some(ElementType::I32));
/// assert_eq!(element_type(Named::DoubleInt), None);
/// ```
#[must_use]
pub fn element_type(named: Named) -> Option<ElementType> {
    use ElementType::{F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    let types: &[ElementType] = match named.class() {
        Class::Signed => &[I8, I16, I32, I64],
        Class::Unsigned | Class::Opaque => &[U8, U16, U32, U64],
        Class::Float => &[F32, F64],
        Class::LongDouble | Class::Pair => &[],
    };
    // Comparing the alignment excludes complex numbers, which are aligned like their components.
    types.iter().copied().find(|ty| (ty.size(), ty.size()) == (named.size(), named.align()))
}
