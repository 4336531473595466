//! Operations on one target as values, and their conversion to operations of a device.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use farside_core::device::code;
use farside_core::device::{Block, Operation, Place, Range, RemoteRegion, RemoteVector};
use farside_core::job::Track;
use farside_core::stats::Kind;
use farside_core::{Job, Result};
use farside_datatype::TypeMap;

use super::layouts::{Action, Owned};
use crate::elements::{bytes, same_length};
use crate::op::{self, CasElement, Element, Op};

/// One operation on one target.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Put {
        from: *const u8,
        len: usize,
        offset: usize,
    },
    Get {
        into: *mut u8,
        len: usize,
        offset: usize,
    },
    Accumulate {
        code: u32,
        operand: *const u8,
        old: *mut u8,
        len: usize,
        offset: usize,
    },
    CompareSwap {
        len: usize,
        expected: u64,
        desired: u64,
        old: *mut u8,
        offset: usize,
    },
    /// One message of a transfer between layouts.
    Lists(Box<Lists>),
    /// A whole operation between layouts that waits for its target.
    Layouts(Rc<Owned>),
    /// An operation on an attached region instead of the window's own.
    At(Box<(RemoteRegion, Item)>),
}

/// Blocks of this rank and ranges of the target, with the same total length.
#[derive(Clone, Debug)]
pub(crate) struct Lists {
    /// Whether the bytes go to the target; otherwise they come from it.
    pub(super) put: bool,
    pub(super) blocks: Vec<Block>,
    pub(super) ranges: Vec<Range>,
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
///     // The operand instead of an element that is zero.
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
///     // SAFETY: 16 bytes of this rank, to which no other rank writes now.
///     let own = unsafe { std::slice::from_raw_parts(window.base(), 16) };
///     assert!(team.rank() != 0 || own[0] > 0 && own.iter().all(|byte| *byte == own[0]));
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Clone)]
pub struct Update {
    /// The elements as an array. `combine` gets the target's elements and the operands in this form.
    pub array: TypeMap,
    /// Bytes of the array.
    pub len: usize,
    /// Combines the operands into the elements of the target. `None` if the elements are only read.
    pub combine: Option<Combine>,
}

/// Changes the first array, given the second, which is empty if the update has no operands.
pub type Combine = Rc<dyn Fn(&mut [u8], &[u8])>;

impl fmt::Debug for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Update").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Operations on slices. The caller keeps these borrowed until the operation is complete or abandoned.
impl Item {
    pub(crate) fn put<T>(from: &[T], displacement: usize) -> Result<Self> {
        Ok(Item::Put { from: from.as_ptr().cast(), len: size_of_val(from), offset: bytes::<T>(displacement)? })
    }

    pub(crate) fn get<T>(into: &mut [T], displacement: usize) -> Result<Self> {
        Ok(Item::Get { into: into.as_mut_ptr().cast(), len: size_of_val(into), offset: bytes::<T>(displacement)? })
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
        Ok(Item::Accumulate {
            code: op::code(op, T::TYPE),
            operand: operand.as_ptr().cast(),
            old: old.map_or(std::ptr::null_mut(), |old| old.as_mut_ptr().cast()),
            len: size_of_val(operand),
            offset: bytes::<T>(displacement)?,
        })
    }

    pub(crate) fn compare_and_swap<T: CasElement>(
        expected: T,
        desired: T,
        old: &mut T,
        displacement: usize,
    ) -> Result<Self> {
        let (len, offset, old) = (size_of::<T>(), bytes::<T>(displacement)?, std::ptr::from_mut(old).cast());
        Ok(Item::CompareSwap { len, expected: widen(expected), desired: widen(desired), old, offset })
    }

    /// The same operation on an attached region.
    pub(crate) fn at(self, attached: Option<&RemoteRegion>) -> Self {
        match attached {
            Some(region) => Item::At(Box::new((*region, self))),
            None => self,
        }
    }

    /// Splits the operation into the part on its first `at` bytes and the part on the rest.
    pub(super) fn split(mut self, at: usize) -> (Self, Self) {
        let mut rest = self.clone();
        if let Item::Put { len, .. } | Item::Get { len, .. } | Item::Accumulate { len, .. } = &mut self {
            *len = at;
        }
        if let Item::Put { len, offset, .. }
        | Item::Get { len, offset, .. }
        | Item::Accumulate { len, offset, .. }
        | Item::CompareSwap { len, offset, .. } = &mut rest
        {
            (*len, *offset) = (*len - at, *offset + at);
        }
        match &mut rest {
            Item::Put { from, .. } => *from = from.wrapping_add(at),
            Item::Get { into, .. } => *into = into.wrapping_add(at),
            Item::Accumulate { operand, old, .. } => {
                *operand = operand.wrapping_add(at);
                if !old.is_null() {
                    *old = old.wrapping_add(at);
                }
            }
            _ => {}
        }
        (self, rest)
    }

    /// Size in bytes of the element that it changes atomically.
    pub(super) fn element_size(&self) -> usize {
        match *self {
            Item::Accumulate { code, .. } => code::element(code),
            Item::CompareSwap { len, .. } => len,
            _ => 1,
        }
    }

    /// Converts an operation whose offset is an address to one on the attached region that starts at address `base`.
    pub(super) fn by_address(mut self, region: RemoteRegion, base: usize) -> Self {
        if let Item::Put { offset, .. }
        | Item::Get { offset, .. }
        | Item::Accumulate { offset, .. }
        | Item::CompareSwap { offset, .. } = &mut self
        {
            *offset -= base;
        }
        Item::At(Box::new((region, self)))
    }

    /// The attached region of the operation, if any.
    pub(super) fn attached(&self) -> Option<&RemoteRegion> {
        if let Item::At(at) = self { Some(&at.0) } else { None }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Item::Put { .. } => "put",
            Item::Get { .. } => "get",
            Item::Accumulate { old, .. } if !old.is_null() => "get_accumulate",
            Item::Accumulate { .. } => "accumulate",
            Item::CompareSwap { .. } => "compare and swap",
            Item::Lists(lists) if lists.put => "put",
            Item::Lists(_) => "get",
            Item::Layouts(all) => all.action.name(),
            Item::At(at) => at.1.name(),
        }
    }

    /// The kind as which the operation is counted.
    pub(super) fn kind(&self) -> Kind {
        match self {
            Item::Put { .. } => Kind::Write,
            Item::Get { .. } => Kind::Read,
            Item::CompareSwap { .. } => Kind::CompareSwap,
            Item::Lists(lists) if lists.put => Kind::Write,
            Item::Lists(_) => Kind::Read,
            Item::Accumulate { .. } | Item::Layouts(_) => Kind::Accumulate,
            Item::At(at) => at.1.kind(),
        }
    }

    /// Whether the operation reads memory of the target, and whether it may change that memory by plain stores.
    pub(super) fn reads_and_stores(&self) -> (bool, bool) {
        match self {
            Item::Put { .. } => (false, true),
            Item::Accumulate { old, .. } => (!old.is_null(), true),
            Item::Get { .. } | Item::CompareSwap { .. } => (true, false),
            Item::Lists(lists) => (!lists.put, lists.put),
            Item::Layouts(all) => (all.action != Action::Put, all.action != Action::Get),
            Item::At(at) => at.1.reads_and_stores(),
        }
    }

    /// Offset and length of its range at the target, if it is one range.
    pub(super) fn range(&self) -> Option<(usize, usize)> {
        match *self {
            Item::Put { len, offset, .. }
            | Item::Get { len, offset, .. }
            | Item::Accumulate { len, offset, .. }
            | Item::CompareSwap { len, offset, .. } => Some((offset, len)),
            Item::Lists(_) | Item::Layouts(_) => None,
            Item::At(ref at) => at.1.range(),
        }
    }

    /// Calls a closure with the device's operation on `region`, with offsets from byte `start`; `None` if it takes more
    /// than one message.
    pub(crate) fn with_operation<R>(
        &self,
        (region, start): (u64, usize),
        post: impl FnOnce(Operation<'_>) -> R,
    ) -> Option<R> {
        let at = |offset: usize| Place { region, offset: start + offset };
        let ranges: Vec<Range>;
        let block;
        let operation = match *self {
            Item::Put { from, len, offset } => {
                block = [Block::of(from, len)];
                Operation::Write { from: &block, to: at(offset) }
            }
            Item::Get { into, len, offset } => {
                block = [Block { base: into, len }];
                Operation::Read { into: &block, from: at(offset) }
            }
            Item::Accumulate { code, operand, old, len, offset } => {
                Operation::Accumulate { at: at(offset), code, operand: Block::of(operand, len), old }
            }
            Item::CompareSwap { len, expected, desired, old, offset } => {
                Operation::CompareSwap { at: at(offset), len, expected, desired, old }
            }
            Item::Lists(ref lists) => {
                let mut of = &lists.ranges;
                if start > 0 {
                    ranges = of.iter().map(|range| Range { offset: start + range.offset, ..*range }).collect();
                    of = &ranges;
                }
                let (blocks, remote) = (&lists.blocks, RemoteVector { region, ranges: of });
                match (&lists.ranges[..], lists.put) {
                    ([one], true) => Operation::Write { from: blocks, to: at(one.offset) },
                    ([one], false) => Operation::Read { into: blocks, from: at(one.offset) },
                    (_, true) => Operation::WriteBlocks { from: blocks, to: remote },
                    (_, false) => Operation::ReadBlocks { into: blocks, from: remote },
                }
            }
            Item::Layouts(_) => return None,
            Item::At(ref inner) => return inner.1.with_operation((inner.0.handle, 0), post),
        };
        Some(post(operation))
    }
}

/// An operation that waits for its target.
#[derive(Debug)]
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

    /// Abandons the operations: their buffers are not accessed any more.
    pub fn cancel(&self, job: &Job) {
        job.cancel(&self.track);
    }
}

/// An integer as a zero-extended word.
#[inline(always)]
pub(crate) fn widen<T: CasElement>(value: T) -> u64 {
    let bytes = bytemuck::bytes_of(&value);
    let mut word = [0u8; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// The integer in the low bytes of a word.
#[inline(always)]
pub(crate) fn narrow<T: CasElement>(word: u64) -> T {
    bytemuck::pod_read_unaligned(&word.to_le_bytes()[..size_of::<T>()])
}
