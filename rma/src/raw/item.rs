//! Operations on one target as values, and their conversion to device operations.

use std::cell::Cell;
use std::rc::Rc;

use farside_core::device::{self, Change, Operation, OwnedTransfer, Place, Range, RemoteRegion};
use farside_core::job::Track;
use farside_core::stats::Kind;
use farside_core::{Job, Result};
use farside_datatype::TypeMap;

use super::layouts::{Action, Owned};
use crate::elements::{bytes, same_length};
use crate::op::{self, CasElement, Element, ElementType, Op};

/// One operation on one target.
#[derive(Clone)]
pub(crate) enum Item {
    /// A write or a read, or one message of a transfer between layouts.
    Transfer(OwnedTransfer),
    Update(device::Update),
    /// A whole operation between layouts that is queued for its target.
    Layouts(Rc<Owned>),
    /// An operation on an attached region instead of the window's own.
    At(Box<(RemoteRegion, Item)>),
}

/// The function of an update on the elements of the target.
///
/// ```
/// use std::rc::Rc;
///
/// use farside_rma::datatype::{Datatype, Named};
/// use farside_rma::prelude::*;
/// use farside_rma::raw::{Options, RawWindow, Update};
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let window = RawWindow::allocate(&team, 16, Options::default())?;
///     // Replaces an element that is zero by the operand.
///     let one = Datatype::from(Named::LongDouble).message(1).unwrap();
///     let combine = Rc::new(|own: &mut [u8], operand: &[u8]| {
///         if own.iter().all(|byte| *byte == 0) {
///             own.copy_from_slice(operand);
///         }
///     });
///     let update = Update { array: one.clone(), len: 16, combine: Some(combine) };
///     let operand = [1 + team.rank() as u8; 16];
///     window.lock_all(Assert::empty())?;
///     // SAFETY: the operand is valid until the epoch is closed.
///     unsafe { window.update(&update, Some((operand.as_ptr(), &one)), None, 0, 0, &one) }?;
///     window.unlock_all()?;
///     team.barrier()?;
///     // SAFETY: 16 bytes of this rank's memory, which no other rank writes concurrently.
///     let own = unsafe { std::slice::from_raw_parts(window.base(), 16) };
///     assert!(team.rank() != 0 || own[0] > 0 && own.iter().all(|byte| *byte == own[0]));
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Clone)]
pub struct Update {
    /// The layout of the elements in an array. `combine` receives the target's elements and the operands in this
    /// layout.
    pub array: TypeMap,
    /// Bytes of the array.
    pub len: usize,
    /// Combines the operands into the elements of the target. `None` if the elements are only read.
    pub combine: Option<Combine>,
}

/// Updates the first array with the second, which is empty if the update has no operands.
pub type Combine = Rc<dyn Fn(&mut [u8], &[u8])>;

/// The region of an item is that of its target, which [`with_operation`](Self::with_operation) names.
const OF_TARGET: u64 = 0;

/// The caller keeps memory that an operation names until it is complete or abandoned.
impl Item {
    /// Writes `len` bytes to the target, or reads them from there.
    pub(crate) fn transfer(write: bool, local: *mut u8, len: usize, offset: usize) -> Self {
        Item::Transfer(OwnedTransfer::one(write, local, len, Place { region: OF_TARGET, offset }))
    }

    /// Previous values are written to `old` unless it is null.
    pub(crate) fn update(change: Change, old: *mut u8, len: usize, offset: usize) -> Self {
        Item::Update(device::Update { change, at: Place { region: OF_TARGET, offset }, len, old })
    }

    /// Whether it changes elements of the target atomically.
    pub(super) fn is_update(&self) -> bool {
        match self {
            Self::Transfer(_) => false,
            Self::Update(_) => true,
            Self::Layouts(all) => matches!(all.action, Action::Accumulate { .. }),
            Self::At(at) => at.1.is_update(),
        }
    }

    /// Accumulates elements of `len` bytes.
    pub(crate) fn of_elements(
        (op, ty): (Op, ElementType),
        operand: *const u8,
        old: *mut u8,
        len: usize,
        offset: usize,
    ) -> Self {
        Self::update(Change::Accumulate { code: op::code(op, ty), operand }, old, len, offset)
    }

    /// Compares and swaps an integer.
    pub(crate) fn swap<T: CasElement>(expected: T, desired: T, old: *mut T, offset: usize) -> Self {
        let change = Change::CompareSwap { expected: widen(expected), desired: widen(desired) };
        Self::update(change, old.cast(), size_of::<T>(), offset)
    }

    pub(crate) fn put<T>(from: &[T], displacement: usize) -> Result<Self> {
        let (from, len) = (from.as_ptr().cast_mut().cast(), size_of_val(from));
        Ok(Self::transfer(true, from, len, bytes::<T>(displacement)?))
    }

    pub(crate) fn get<T>(into: &mut [T], displacement: usize) -> Result<Self> {
        Ok(Self::transfer(false, into.as_mut_ptr().cast(), size_of_val(into), bytes::<T>(displacement)?))
    }

    /// Previous values are written to `old`, which has the same length.
    pub(crate) fn accumulate<T: Element>(
        op: Op,
        operand: &[T],
        old: Option<&mut [T]>,
        displacement: usize,
    ) -> Result<Self> {
        op.check(T::TYPE, "accumulate")?;
        same_length(operand.len(), old.as_ref().map_or(operand.len(), |old| old.len()))?;
        let (from, len) = (operand.as_ptr().cast(), size_of_val(operand));
        let old = old.map_or(std::ptr::null_mut(), |old| old.as_mut_ptr().cast());
        Ok(Self::of_elements((op, T::TYPE), from, old, len, bytes::<T>(displacement)?))
    }

    pub(crate) fn compare_and_swap<T: CasElement>(
        expected: T,
        desired: T,
        old: &mut T,
        displacement: usize,
    ) -> Result<Self> {
        Ok(Self::swap(expected, desired, old, bytes::<T>(displacement)?))
    }

    /// The same operation on an attached region.
    pub(crate) fn at(self, attached: Option<&RemoteRegion>) -> Self {
        match attached {
            Some(region) => Item::At(Box::new((*region, self))),
            None => self,
        }
    }

    /// Splits the operation after its first `at` bytes.
    pub(super) fn split(mut self, at: usize) -> (Self, Self) {
        let mut rest = self.clone();
        match (&mut self, &mut rest) {
            (Item::Transfer(first), Item::Transfer(rest)) => {
                let len = rest.len().saturating_sub(at);
                (*first, *rest) = (rest.part(OF_TARGET, 0, at), rest.part(OF_TARGET, at, len));
            }
            (Item::Update(first), Item::Update(rest)) => {
                first.len = at;
                rest.skip(at);
            }
            _ => {}
        }
        (self, rest)
    }

    /// Size in bytes of the element that the operation updates atomically.
    pub(super) fn element_size(&self) -> usize {
        if let Item::Update(update) = self { update.element() } else { 1 }
    }

    /// Converts an operation whose offset is an address to an operation on the attached region that starts at address
    /// `base`.
    pub(super) fn by_address(mut self, region: RemoteRegion, base: usize) -> Self {
        match &mut self {
            Item::Transfer(transfer) => transfer.ranges.iter_mut().for_each(|range| range.offset -= base),
            Item::Update(update) => update.at.offset -= base,
            Item::Layouts(_) | Item::At(_) => {}
        }
        Item::At(Box::new((region, self)))
    }

    /// The attached region of the operation, if any.
    pub(super) fn attached(&self) -> Option<&RemoteRegion> {
        if let Item::At(at) = self { Some(&at.0) } else { None }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Item::Transfer(transfer) => ["get", "put"][usize::from(transfer.write)],
            Item::Update(update) => match update.change {
                Change::CompareSwap { .. } => "compare and swap",
                _ if update.old.is_null() => "accumulate",
                _ => "get_accumulate",
            },
            Item::Layouts(all) => all.action.name(),
            Item::At(at) => at.1.name(),
        }
    }

    /// The kind under which the statistics count the operation.
    pub(super) fn kind(&self) -> Kind {
        match self {
            Item::Transfer(transfer) => [Kind::Read, Kind::Write][usize::from(transfer.write)],
            Item::Update(device::Update { change: Change::CompareSwap { .. }, .. }) => Kind::CompareSwap,
            Item::Update(_) | Item::Layouts(_) => Kind::Accumulate,
            Item::At(at) => at.1.kind(),
        }
    }

    /// Whether the operation reads memory of the target, and whether it may change that memory by plain stores.
    pub(super) fn reads_and_stores(&self) -> (bool, bool) {
        match self {
            Item::Transfer(transfer) => (!transfer.write, transfer.write),
            Item::Update(update) => match update.change {
                Change::CompareSwap { .. } => (true, false),
                _ => (!update.old.is_null(), true),
            },
            Item::Layouts(all) => (all.action != Action::Put, all.action != Action::Get),
            Item::At(at) => at.1.reads_and_stores(),
        }
    }

    /// Offset and length of the operation's range at the target, if it is one range from or to one block.
    pub(super) fn range(&self) -> Option<(usize, usize)> {
        match self {
            Item::Transfer(transfer) => match (&transfer.local[..], &transfer.ranges[..]) {
                ([_], [Range { offset, len }]) => Some((*offset, *len)),
                _ => None,
            },
            Item::Update(update) => Some((update.at.offset, update.len)),
            Item::Layouts(_) => None,
            Item::At(at) => at.1.range(),
        }
    }

    /// Calls a closure with the equivalent device operation on `region`, with offsets from byte `start`; `None` if the
    /// operation takes more than one message.
    pub(crate) fn with_operation<R>(
        &self,
        (region, start): (u64, usize),
        post: impl FnOnce(Operation<'_>) -> R,
    ) -> Option<R> {
        match self {
            Item::Transfer(transfer) => Some(transfer.with_operation((region, start), post)),
            Item::Update(update) => {
                let at = Place { region, offset: start + update.at.offset };
                Some(post(Operation::Update(device::Update { at, ..*update })))
            }
            Item::Layouts(_) => None,
            Item::At(inner) => inner.1.with_operation((inner.0.handle, 0), post),
        }
    }
}

/// An operation that is queued for its target.
pub(crate) struct Queued {
    pub(super) target: usize,
    pub(super) item: Item,
    pub(super) request: Option<Request>,
}

/// The completion of the operations of one call ([`RawWindow::request`](super::RawWindow::request)). Dropping it has no
/// effect on the operations, which are complete when the epoch is closed.
///
/// ```
/// use farside_rma::prelude::*;
/// use farside_rma::raw::{Options, RawWindow};
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let (window, peer, mut got) = (RawWindow::allocate(&team, 8, Options::default())?, 1 - team.rank(), [9u8; 8]);
///     window.lock_all(Assert::empty())?;
///     // SAFETY: `got` is accessed again only after the request is complete.
///     let request = window.request(|| unsafe { window.get(got.as_mut_ptr(), 8, peer, 0) })?;
///     window.wait_request(&request, peer)?;
///     assert_eq!(got, [0; 8]);
///     window.unlock_all()?;
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) track: Rc<Track>,
    /// Whether an operation is still in the queue.
    pub(crate) queued: Rc<Cell<bool>>,
}

impl Request {
    pub(crate) fn new() -> Self {
        Self { track: Track::new(), queued: Rc::default() }
    }

    /// Whether the operations are complete at origin and target. Makes no progress.
    #[must_use]
    pub fn done(&self) -> bool {
        !self.queued.get() && self.track.open() == 0
    }

    /// Whether an operation has failed, and [`outcome`](Self::outcome) has not returned its error yet.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.track.has_failed()
    }

    /// The outcome of the operations, once they are complete.
    ///
    /// # Errors
    /// The first error of an operation.
    pub fn outcome(&self) -> Result<()> {
        self.track.check()
    }

    /// Abandons the operations: their buffers are no longer accessed.
    pub fn cancel(&self, job: &Job) {
        job.cancel(&self.track);
    }
}

/// An integer as a zero-extended word.
#[inline(always)]
pub(super) fn widen<T: CasElement>(value: T) -> u64 {
    let bytes = bytemuck::bytes_of(&value);
    let mut word = [0u8; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// The integer in the low bytes of a word.
#[inline(always)]
pub(super) fn narrow<T: CasElement>(word: u64) -> T {
    bytemuck::pod_read_unaligned(&word.to_le_bytes()[..size_of::<T>()])
}
