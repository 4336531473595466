#![allow(unsafe_code)]
//! Operations between two layouts (datatypes with an address), and the planning of their messages.

use std::cell::Cell;

use bytemuck::Pod;
use farside_core::device::{Block, OwnedTransfer, Range, RemoteRegion};
use farside_core::memory::copy;
use farside_core::settings::TransferScheme;
use farside_core::{Error, ErrorKind, Job, Result};
use farside_datatype::{
    CutOffs, DatatypeError, Descriptor, Direction, Mover, Overlap, Plan, PlanLimits, Scheme, TypeMap,
};

use super::item::{Item, Update};
use crate::elements::{WindowElement, bytes, range_text};
use crate::op::{Element, Op, code};
use crate::selection::Selection;

/// Maximum length of a message in bytes; devices may split it further.
const MAX_MESSAGE: u64 = 1 << 30;

/// The accesses of the layout copy loops to window memory, which other ranks may access concurrently.
pub(super) struct Shared<const WIDE: bool = false>;

impl<const WIDE: bool> Mover for Shared<WIDE> {
    type Wide = Shared<true>;

    #[inline(always)]
    unsafe fn fixed<const N: usize>(from: *const u8, to: *mut u8) {
        // SAFETY: the ranges are valid by the contract; window memory is otherwise accessed through `memory::copy`,
        // atomics and devices.
        unsafe { copy::words::<N, WIDE>(from, to) };
    }

    #[inline(always)]
    unsafe fn long(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the ranges are valid by the contract; window memory is otherwise accessed through `memory::copy`,
        // atomics and devices.
        unsafe { copy::bytes(from, to, len) };
    }
}

/// The kind of an operation between layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Put,
    Get,
    Accumulate { code: u32 },
}

impl Action {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Action::Put => "put",
            Action::Get => "get",
            Action::Accumulate { .. } => "accumulate",
        }
    }
}

/// An operation between two layouts. Offsets in a layout count from its address.
#[derive(Clone, Copy)]
pub(crate) struct Layouts<'a> {
    pub(crate) action: Action,
    /// Address of this rank's bytes; written only by a get.
    pub(crate) local: *mut u8,
    pub(crate) origin: &'a TypeMap,
    /// Offset in the target's memory.
    pub(crate) offset: usize,
    pub(crate) target: &'a TypeMap,
    /// Destination of the previous values of an accumulate.
    pub(crate) old: Option<(*mut u8, &'a TypeMap)>,
    /// The region in which `offset` counts, if it is not the window's own.
    pub(crate) attached: Option<&'a RemoteRegion>,
    /// For an accumulate that no device supports: the update function, and whether it has operands.
    pub(crate) update: Option<(&'a Update, bool)>,
}

/// [`Layouts`] of an operation that outlives the call.
pub(crate) struct Owned {
    pub(crate) action: Action,
    local: *mut u8,
    origin: TypeMap,
    offset: usize,
    target: TypeMap,
    old: Option<(*mut u8, TypeMap)>,
    attached: Option<RemoteRegion>,
    update: Option<(Update, bool)>,
}

impl Owned {
    pub(crate) fn borrow(&self) -> Layouts<'_> {
        let Self { action, local, ref origin, offset, ref target, ref old, ref attached, ref update } = *self;
        let old = old.as_ref().map(|(at, map)| (*at, map));
        let update = update.as_ref().map(|(update, has_operands)| (update, *has_operands));
        Layouts { old, attached: attached.as_ref(), update, ..Layouts::new(action, local, origin, offset, target) }
    }
}

/// First byte and length of the range that a layout covers from byte `offset` of some memory; `None` if the range
/// starts before the memory or overflows.
#[inline(always)]
pub(crate) fn reach(map: &TypeMap, offset: usize) -> Option<(usize, usize)> {
    let start = offset.checked_add_signed(map.true_lb() as isize)?;
    let len = map.true_ub().abs_diff(map.true_lb()) as usize;
    start.checked_add(len)?;
    Some((start, len))
}

/// Operations on selected elements of slices. The caller keeps the slices borrowed until the operation is complete or
/// abandoned.
impl<'a> Layouts<'a> {
    #[inline(always)]
    fn selected<T: Pod>(
        action: Action,
        (local, len): (*mut T, usize),
        of: &'a Selection<T>,
        displacement: usize,
        at: &'a Selection<T>,
    ) -> Result<Self> {
        of.check_inside(len)?;
        Ok(Self::new(action, local.cast(), of.type_map(), bytes::<T>(displacement)?, at.type_map()))
    }

    #[inline(always)]
    pub(crate) fn put<T: Pod>(
        from: &[T],
        of: &'a Selection<T>,
        displacement: usize,
        at: &'a Selection<T>,
    ) -> Result<Self> {
        Self::selected(Action::Put, (from.as_ptr().cast_mut(), size_of_val(from)), of, displacement, at)
    }

    /// [`put`](Self::put) from the window's own memory, given by its address and length in bytes.
    pub(crate) fn put_own<T: Pod>(
        (base, len): (*mut u8, usize),
        of: &'a Selection<T>,
        displacement: usize,
        at: &'a Selection<T>,
    ) -> Result<Self> {
        Self::selected(Action::Put, (base.cast::<T>(), len), of, displacement, at)
    }

    #[inline(always)]
    pub(crate) fn get<T: Pod>(
        into: &mut [T],
        of: &'a Selection<T>,
        displacement: usize,
        at: &'a Selection<T>,
    ) -> Result<Self> {
        Self::selected(Action::Get, (into.as_mut_ptr(), size_of_val(into)), of, displacement, at)
    }

    /// The same, with previous values written to the elements that `of` selects in `old`.
    pub(crate) fn accumulate<T: Element>(
        op: Op,
        operand: &[T],
        old: Option<&mut [T]>,
        of: &'a Selection<T>,
        displacement: usize,
        at: &'a Selection<T>,
    ) -> Result<Self> {
        op.check(T::TYPE, "accumulate")?;
        let action = Action::Accumulate { code: code(op, T::TYPE) };
        let operand = (operand.as_ptr().cast_mut(), size_of_val(operand));
        let len = old.as_ref().map_or(operand.1, |old| operand.1.min(size_of_val(*old)));
        let all = Self::selected(action, (operand.0, len), of, displacement, at)?;
        Ok(Self { old: old.map(|old| (old.as_mut_ptr().cast(), of.type_map())), ..all })
    }
}

impl<'a> Layouts<'a> {
    /// A device operation on the window's own memory, without previous values.
    #[inline(always)]
    pub(crate) fn new(action: Action, local: *mut u8, origin: &'a TypeMap, offset: usize, target: &'a TypeMap) -> Self {
        Self { action, local, origin, offset, target, old: None, attached: None, update: None }
    }

    pub(crate) fn owned(&self) -> Owned {
        let Self { action, local, origin, offset, target, old, attached, update } = *self;
        let old = old.map(|(at, map)| (at, map.clone()));
        let attached = attached.copied();
        let update = update.map(|(update, has_operands)| (update.clone(), has_operands));
        Owned { action, local, origin: origin.clone(), offset, target: target.clone(), old, attached, update }
    }

    /// The local layout that receives, which must not contain a byte twice. A target may: an accumulate updates such an element twice, and
    /// of a put it gets one of the values.
    fn receiver(&self) -> Option<(&'static str, &'a TypeMap)> {
        match self.action {
            Action::Put => None,
            Action::Get => Some(("origin", self.origin)),
            Action::Accumulate { .. } => self.old.map(|(_, map)| ("result", map)),
        }
    }

    /// Checks the arguments, but not the epoch, for a target of `len` bytes with elements of this type.
    ///
    /// # Errors
    /// `BadArgument` for sides with different elements and for a receiving local side that contains a byte twice;
    /// `OutOfRange`.
    #[inline]
    pub(crate) fn check(&self, len: usize, element: Option<WindowElement>) -> Result<()> {
        let name = self.action.name();
        self.origin.check_elements(self.target).map_err(|e| refused(name, &e))?;
        if let Some((_, old)) = self.old {
            old.check_elements(self.target).map_err(|e| refused(name, &e).cause(format!("result: {}", e.cause())))?;
        }
        let inside = |(at, n): (usize, usize)| at <= len && n <= len - at;
        if self.target.size() > 0 && !reach(self.target, self.offset).is_some_and(inside) {
            let (lb, ub) = (i128::from(self.target.true_lb()), i128::from(self.target.true_ub()));
            let offset = self.offset as i128;
            let cause = range_text(element, offset + lb, offset + ub, len);
            return Err(Error::new(ErrorKind::OutOfRange, name).cause(cause));
        }
        if let Some((side, map)) = self.receiver()
            && let Overlap::At(at) = map.overlap()
        {
            return Err(Error::new(ErrorKind::BadArgument, name)
                .cause(format!("blocks of the receiving ({side}) layout overlap at byte {at}"))
                .remedy("receive into a layout whose blocks are disjoint"));
        }
        Ok(())
    }

    /// The item of one message of a put or a get.
    fn message(&self, message: &Descriptor) -> Item {
        let put = self.action == Action::Put;
        let at = |offset: i64| (self.offset as i128 + i128::from(offset)) as usize;
        let base = |offset: i64| self.local.wrapping_offset(offset as isize);
        if let ([(from, len)], [(to, _)]) = (&message.origin[..], &message.target[..]) {
            let (local, len, offset) = (base(*from), *len as usize, at(*to));
            return Item::transfer(put, local, len, offset).at(self.attached);
        }
        let block = |(from, len): &(i64, u64)| Block { base: base(*from), len: *len as usize };
        let range = |(to, len): &(i64, u64)| Range { offset: at(*to), len: *len as usize };
        let (local, ranges) = (message.origin.iter().map(block).collect(), message.target.iter().map(range).collect());
        Item::Transfer(OwnedTransfer { write: put, local, region: 0, ranges }).at(self.attached)
    }

    /// The messages of a plan of a put or a get.
    pub(crate) fn messages(self, plan: &Plan<'a>) -> impl Iterator<Item = Item> + use<'a> {
        plan.descriptors().map(move |message| self.message(&message))
    }

    /// Calls the closure with each piece that is consecutive on all sides, in packed order: local address, address of
    /// the previous values (or null), offset in the target's memory, length.
    pub(crate) fn for_each_piece(
        &self,
        mut each: impl FnMut(*mut u8, *mut u8, usize, usize) -> Result<()>,
    ) -> Result<()> {
        let (result, map) = self.old.unwrap_or((std::ptr::null_mut(), &TypeMap::EMPTY));
        let (mut from, mut to, mut former) = (self.origin.blocks(0), self.target.blocks(0), map.blocks(0));
        // If previous values are not fetched, their side is a single unbounded block.
        let (mut a, mut b, mut c) = ((0, 0), (0, 0), (0, if self.old.is_some() { 0 } else { u64::MAX }));
        loop {
            for (block, rest) in [(&mut a, &mut from), (&mut b, &mut to), (&mut c, &mut former)] {
                if block.1 == 0 {
                    let Some(next) = rest.next() else { return Ok(()) };
                    *block = next;
                }
            }
            let len = a.1.min(b.1).min(c.1);
            let old = if self.old.is_some() { result.wrapping_offset(c.0 as isize) } else { std::ptr::null_mut() };
            let at = (self.offset as i128 + i128::from(b.0)) as usize;
            each(self.local.wrapping_offset(a.0 as isize), old, at, len as usize)?;
            for block in [&mut a, &mut b, &mut c] {
                *block = (block.0 + len as i64, block.1 - len);
            }
        }
    }
}

/// Converts an error of the datatype crate to an error of the call.
pub(crate) fn refused(name: &'static str, e: &DatatypeError) -> Error {
    Error::new(ErrorKind::BadArgument, name).cause(e.cause().to_owned()).remedy(e.kind().remedy())
}

/// Plans the transfers of a window.
pub(crate) struct Planner {
    limits: PlanLimits,
    cut_offs: CutOffs,
    /// Minimum length of a message that is sent by lists on both sides.
    sgrs_bytes: u64,
    /// Minimum length of a block that is sent by lists without the target's participation, if the settings specify it.
    lists_from: Option<u64>,
    /// The scheme that the settings or the program force.
    forced_scheme: Cell<TransferScheme>,
}

impl Planner {
    pub(crate) fn new(job: &Job) -> Self {
        let (cut, settings) = (job.cut_offs(), job.settings());
        let max_sge = u32::try_from(job.device().capabilities().max_blocks).unwrap_or(u32::MAX);
        Self {
            limits: PlanLimits { max_sge, max_message: MAX_MESSAGE, mapped: false, target_helps: false },
            cut_offs: CutOffs {
                gather_block: cut.gather_block,
                multi_w_block: cut.multi_w_block,
                sgrs_block: cut.sgrs_block,
                // Lists with the target's participation have already been considered by `prefers_lists`.
                sgrs_bytes: u64::MAX,
                segment: cut.segment,
            },
            sgrs_bytes: cut.sgrs_bytes,
            lists_from: settings.transfer.sgrs_block,
            forced_scheme: Cell::new(settings.transfer.scheme),
        }
    }

    /// Whether the settings leave the choice to the planner.
    pub(crate) fn is_free(&self) -> bool {
        self.forced_scheme.get() == TransferScheme::Auto
    }

    pub(crate) fn force_scheme(&self, scheme: TransferScheme) {
        self.forced_scheme.set(scheme);
    }

    /// Whether lists on both sides are the best scheme for a put or a get, if the target participates.
    ///
    /// # Errors
    /// `BadArgument` of [`Layouts::check`].
    pub(crate) fn prefers_lists(&self, l: &Layouts<'_>, limits: PlanLimits) -> Result<bool> {
        if l.origin.is_contiguous() && l.target.is_contiguous() || l.origin.size() == 0 {
            return Ok(false);
        }
        // Lists at the target receive into disjoint blocks.
        if l.action == Action::Put && matches!(l.target.overlap(), Overlap::At(_)) {
            return Ok(false);
        }
        let direction = if l.action == Action::Put { Direction::Put } else { Direction::Get };
        let cut_offs = CutOffs { sgrs_bytes: self.sgrs_bytes, ..self.cut_offs };
        let plan = match self.forced_scheme.get() {
            TransferScheme::Auto => Plan::new(l.origin, l.target, direction, limits, &cut_offs),
            TransferScheme::Sgrs => Plan::with_scheme(Scheme::Sgrs, l.origin, l.target, direction, limits, &cut_offs),
            TransferScheme::Gather | TransferScheme::MultiW | TransferScheme::Generic => return Ok(false),
        };
        plan.map(|p| p.scheme() == Scheme::Sgrs).map_err(|e| refused(l.action.name(), &e))
    }

    /// Plans a put or a get to `region` that is not executed by loads and stores. If the device accepts lists of remote
    /// ranges, they are best unless blocks are short; the SGRS scheme then does not involve the target. `unpacks` says
    /// whether the target can unpack packed pieces.
    ///
    /// # Errors
    /// `BadArgument` of [`Layouts::check`].
    pub(crate) fn plan<'a>(&self, region: &RemoteRegion, l: &Layouts<'a>, unpacks: bool) -> Result<Plan<'a>> {
        let direction = if l.action == Action::Put { Direction::Put } else { Direction::Get };
        let gather = if direction == Direction::Put { Scheme::WriteGather } else { Scheme::ReadScatter };
        let scheme = match self.forced_scheme.get() {
            _ if l.origin.is_contiguous() && l.target.is_contiguous() => Some(Scheme::Contiguous),
            TransferScheme::Gather => Some(gather),
            TransferScheme::MultiW => Some(Scheme::MultiW),
            TransferScheme::Generic if unpacks => Some(Scheme::Generic),
            forced_scheme => region.lists.map(|from| {
                // If part of the region is mapped, `from` stays 0, since that part is copied in place.
                let from = self.lists_from.filter(|_| from > 0).unwrap_or(from);
                let piece = || l.origin.size() / l.origin.block_count().max(l.target.block_count()).max(1);
                let packs = unpacks && forced_scheme == TransferScheme::Auto && piece() < from;
                if packs { Scheme::Generic } else { Scheme::Sgrs }
            }),
        };
        let limits = PlanLimits { target_helps: unpacks || region.lists.is_some(), ..self.limits };
        let plan = match scheme {
            Some(scheme) => Plan::with_scheme(scheme, l.origin, l.target, direction, limits, &self.cut_offs),
            None => Plan::new(l.origin, l.target, direction, limits, &self.cut_offs),
        };
        plan.map_err(|e| refused(l.action.name(), &e))
    }
}
