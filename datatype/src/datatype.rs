//! The datatype: its constructors (MPI-4.1 §5.1.2, §5.1.7) and its bounds (§5.1.6 to §5.1.9).

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::{DatatypeError, DatatypeErrorKind, Result};
use crate::named::Named;
use crate::shape::{MAX_DEPTH, Sequence, Shape};
use crate::signature::Signature;
use crate::typemap::{Known, TypeMap};

/// An MPI datatype: predefined, or built from other datatypes by the constructors below and those of arrays
/// ([`Datatype::subarray`], [`Datatype::darray`]).
///
/// Clones share the type. There is no commit: a type is normalized on construction. Counts and displacements have 64
/// bits throughout, and counts cannot be negative. Every constructor fails with `Overflow` if a size, an extent or a
/// displacement does not fit 64 bits signed, and with `TooDeep` beyond [`MAX_DEPTH`] nested constructors.
///
/// ```
/// use farside_datatype::{Datatype, Named};
///
/// // struct { double position[3]; int kind; }, which a C compiler pads to 32 bytes.
/// let particle = Datatype::structure(&[3, 1], &[0, 24], &[Named::Double.into(), Named::Int.into()])?;
/// assert_eq!((particle.size(), particle.extent(), particle.align()), (28, 32, 8));
/// // Every second of ten particles.
/// let some = Datatype::vector(5, 1, 2, &particle)?;
/// assert_eq!((some.size(), some.extent()), (5 * 28, 9 * 32));
/// assert_eq!(some.signature().elements(), 5 * 4);
/// # Ok::<(), farside_datatype::DatatypeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Datatype(pub(crate) Repr);

#[derive(Clone, Debug)]
pub(crate) enum Repr {
    Named(Named),
    Derived(Arc<Derived>),
}

#[derive(Debug)]
pub(crate) struct Derived {
    /// The type map, without values that can be computed from the shape.
    map: Shape,
    signature: Signature,
    overlap: Known,
    rare: Option<Box<Rare>>,
    /// The strictest alignment of its elements, as a power of two.
    align_log: u8,
    depth: u8,
    /// See [`Datatype::parts`].
    parts: Box<[(u64, Datatype)]>,
}

/// Rare properties, boxed.
#[derive(Debug)]
struct Rare {
    /// The bounds, if a resized component type fixes them.
    marks: Option<(i64, i64)>,
    /// Bytes in external32.
    external: u64,
}

impl Derived {
    fn marks(&self) -> Option<(i64, i64)> {
        self.rare.as_ref()?.marks
    }

    /// Bytes in external32.
    pub(crate) fn external(&self) -> u64 {
        self.rare.as_ref().map_or(self.map.size, |rare| rare.external)
    }

    fn map(&self) -> TypeMap {
        TypeMap { shape: self.map.clone(), signature: self.signature, overlap: self.overlap.clone() }
    }
}

/// The parts of a type under construction.
pub(crate) struct Draft {
    pub(crate) map: TypeMap,
    pub(crate) marks: Option<(i64, i64)>,
    align_log: u8,
    depth: u8,
}

impl From<Named> for Datatype {
    fn from(named: Named) -> Self {
        Self(Repr::Named(named))
    }
}

impl Datatype {
    /// `count` elements of `old`, one extent apart.
    ///
    /// # Errors
    /// See [`Datatype`].
    pub fn contiguous(count: u64, old: &Datatype) -> Result<Self> {
        let call = "Datatype::contiguous";
        old.draft(call)?.repeat(count, old.extent(), call)?.finish(call, old)
    }

    /// `count` blocks of `blocklength` elements, `stride` elements from start to start.
    ///
    /// ```
    /// use farside_datatype::{Datatype, Named};
    ///
    /// let pairs = Datatype::vector(2, 2, 3, &Named::Int.into())?;
    /// assert!(pairs.message(1)?.blocks(0).eq([(0, 8), (12, 8)]));
    /// # Ok::<(), farside_datatype::DatatypeError>(())
    /// ```
    ///
    /// # Errors
    /// See [`Datatype`].
    pub fn vector(count: u64, blocklength: u64, stride: i64, old: &Datatype) -> Result<Self> {
        let call = "Datatype::vector";
        let bytes = if count > 1 { scaled(stride, old.extent(), call)? } else { 0 };
        old.draft(call)?.repeat(blocklength, old.extent(), call)?.repeat(count, bytes, call)?.finish(call, old)
    }

    /// `count` blocks of `blocklength` elements, `stride` bytes from start to start.
    ///
    /// # Errors
    /// See [`Datatype`].
    pub fn hvector(count: u64, blocklength: u64, stride: i64, old: &Datatype) -> Result<Self> {
        let call = "Datatype::hvector";
        old.draft(call)?.repeat(blocklength, old.extent(), call)?.repeat(count, stride, call)?.finish(call, old)
    }

    /// Blocks of different lengths at displacements, in elements.
    ///
    /// ```
    /// use farside_datatype::{Datatype, Named};
    ///
    /// // In the order of the list: the sender's elements 5 and 6, then element 0.
    /// let some = Datatype::indexed(&[2, 1], &[5, 0], &Named::Short.into())?;
    /// assert!(some.message(1)?.blocks(0).eq([(10, 4), (0, 2)]));
    /// # Ok::<(), farside_datatype::DatatypeError>(())
    /// ```
    ///
    /// # Errors
    /// `BadArgument` if the lists differ in length; else see [`Datatype`].
    pub fn indexed(blocklengths: &[u64], displacements: &[i64], old: &Datatype) -> Result<Self> {
        let call = "Datatype::indexed";
        same_length(call, blocklengths.len(), displacements.len())?;
        old.blocks(blocklengths.iter().copied().zip(displacements), old.extent(), call)
    }

    /// Blocks of different lengths (elements) at displacements, in bytes.
    ///
    /// # Errors
    /// `BadArgument` if the lists differ in length; else see [`Datatype`].
    pub fn hindexed(blocklengths: &[u64], displacements: &[i64], old: &Datatype) -> Result<Self> {
        let call = "Datatype::hindexed";
        same_length(call, blocklengths.len(), displacements.len())?;
        old.blocks(blocklengths.iter().copied().zip(displacements), 1, call)
    }

    /// Blocks of `blocklength` elements at displacements, in elements.
    ///
    /// # Errors
    /// See [`Datatype`].
    pub fn indexed_block(blocklength: u64, displacements: &[i64], old: &Datatype) -> Result<Self> {
        let call = "Datatype::indexed_block";
        old.blocks(displacements.iter().map(|at| (blocklength, at)), old.extent(), call)
    }

    /// Blocks of `blocklength` elements at displacements, in bytes.
    ///
    /// # Errors
    /// See [`Datatype`].
    pub fn hindexed_block(blocklength: u64, displacements: &[i64], old: &Datatype) -> Result<Self> {
        let call = "Datatype::hindexed_block";
        old.blocks(displacements.iter().map(|at| (blocklength, at)), 1, call)
    }

    /// Blocks of different lengths (elements), types, and displacements in bytes.
    ///
    /// The extent is rounded up to the strictest alignment of the elements, as a C compiler pads a struct
    /// (§5.1.6). If one of the types was resized, the bounds of the resized types count, and no padding is added.
    ///
    /// ```
    /// use farside_datatype::{Datatype, Named};
    ///
    /// let types = [Named::Char.into(), Named::Double.into()];
    /// let padded = Datatype::structure(&[1, 2], &[0, 8], &types)?;
    /// assert_eq!((padded.size(), padded.extent()), (17, 24));
    /// # Ok::<(), farside_datatype::DatatypeError>(())
    /// ```
    ///
    /// # Errors
    /// `BadArgument` if the lists differ in length; else see [`Datatype`].
    pub fn structure(blocklengths: &[u64], displacements: &[i64], types: &[Datatype]) -> Result<Self> {
        let call = "Datatype::structure";
        same_length(call, blocklengths.len(), displacements.len())?;
        same_length(call, blocklengths.len(), types.len())?;
        let mut joined = Join::new(call);
        for ((count, at), old) in blocklengths.iter().zip(displacements).zip(types) {
            if *count > 0 {
                joined.push(&old.draft(call)?.repeat(*count, old.extent(), call)?.shift(*at, call)?)?;
            }
        }
        let parts = blocklengths.iter().copied().zip(types.iter().cloned());
        joined.finish()?.finish_of(call, parts.filter(|(len, old)| len * old.size() > 0).collect())
    }

    /// `old` with the lower bound `lb` and the extent `extent`, in bytes.
    ///
    /// ```
    /// use farside_datatype::{Datatype, Named};
    ///
    /// // A column of a 3 x 4 matrix; consecutive columns are 4 bytes apart.
    /// let column = Datatype::resized(&Datatype::vector(3, 1, 4, &Named::Int.into())?, 0, 4)?;
    /// assert!(column.message(2)?.blocks(0).take(4).eq([(0, 4), (16, 4), (32, 4), (4, 4)]));
    /// # Ok::<(), farside_datatype::DatatypeError>(())
    /// ```
    ///
    /// # Errors
    /// See [`Datatype`].
    pub fn resized(old: &Datatype, lb: i64, extent: i64) -> Result<Self> {
        let call = "Datatype::resized";
        let mut draft = old.draft(call)?;
        draft.mark(lb, extent, call)?;
        draft.finish(call, old)
    }

    /// The number of data bytes in one element of this type.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.0 {
            Repr::Named(named) => named.size() as u64,
            Repr::Derived(derived) => derived.map.size,
        }
    }

    /// The lower bound, bytes.
    #[must_use]
    pub fn lb(&self) -> i64 {
        match &self.0 {
            Repr::Named(_) => 0,
            Repr::Derived(derived) => derived.marks().map_or(derived.map.low, |marks| marks.0),
        }
    }

    /// The upper bound, bytes.
    #[must_use]
    pub fn ub(&self) -> i64 {
        match &self.0 {
            Repr::Named(named) => named.extent() as i64,
            Repr::Derived(derived) => match derived.marks() {
                Some(marks) => marks.1,
                // The sum fits, as `finish` has checked.
                None => derived.map.high + padding(derived.map.low, derived.map.high, derived.align_log),
            },
        }
    }

    /// Bytes from one element of this type to the next: upper minus lower bound.
    #[must_use]
    pub fn extent(&self) -> i64 {
        self.ub() - self.lb()
    }

    /// Offset of the lowest byte of data; 0 for an empty type.
    #[must_use]
    pub fn true_lb(&self) -> i64 {
        match &self.0 {
            Repr::Named(_) => 0,
            Repr::Derived(derived) => derived.map.low,
        }
    }

    /// Bytes from the lowest to the highest byte of data.
    #[must_use]
    pub fn true_extent(&self) -> u64 {
        match &self.0 {
            Repr::Named(named) => {
                (named.second_at() + named.pair().map_or(named.size(), |(_, second)| second.size())) as u64
            }
            Repr::Derived(derived) => derived.map.high.abs_diff(derived.map.low),
        }
    }

    /// The strictest alignment of its elements, in bytes.
    #[must_use]
    pub fn align(&self) -> u64 {
        1 << self.align_log()
    }

    /// The signature of one element of this type.
    #[must_use]
    pub fn signature(&self) -> Signature {
        match &self.0 {
            Repr::Named(named) => named.signature(),
            Repr::Derived(derived) => derived.signature,
        }
    }

    /// The predefined type, if this datatype was not built by a constructor.
    #[must_use]
    pub fn named(&self) -> Option<Named> {
        match &self.0 {
            Repr::Named(named) => Some(*named),
            Repr::Derived(_) => None,
        }
    }

    /// `count` elements of this type as a message, on which transfers, pack and plans operate.
    ///
    /// # Errors
    /// `Overflow` if an offset in the message exceeds 2^63 bytes.
    pub fn message(&self, count: u64) -> Result<TypeMap> {
        let call = "Datatype::message";
        if let Repr::Named(named) = &self.0
            && let Some(map) = TypeMap::of_array(*named, count)
        {
            return Ok(map);
        }
        self.draft(call)?.map.repeat(count, self.extent(), call)
    }

    /// The component types, one level down, in packed order, each with its number of elements; none for a predefined
    /// type of one element.
    #[must_use]
    pub fn parts(&self) -> Cow<'_, [(u64, Datatype)]> {
        match &self.0 {
            Repr::Named(named) => {
                named.pair().map(|(a, b)| vec![(1, a.into()), (1, b.into())]).unwrap_or_default().into()
            }
            Repr::Derived(derived) => Cow::Borrowed(&derived.parts),
        }
    }

    fn align_log(&self) -> u8 {
        match &self.0 {
            Repr::Named(named) => named.align().trailing_zeros() as u8,
            Repr::Derived(derived) => derived.align_log,
        }
    }

    fn depth(&self) -> u8 {
        match &self.0 {
            Repr::Named(_) => 0,
            Repr::Derived(derived) => derived.depth,
        }
    }

    pub(crate) fn draft(&self, call: &'static str) -> Result<Draft> {
        let (map, marks) = match &self.0 {
            Repr::Named(named) => (TypeMap::named(*named)?, None),
            Repr::Derived(derived) => (derived.map(), derived.marks()),
        };
        if usize::from(self.depth()) >= MAX_DEPTH {
            let cause = format!("more than {MAX_DEPTH} nested constructors");
            return Err(DatatypeError::new(DatatypeErrorKind::TooDeep, call, cause));
        }
        Ok(Draft { map, marks, align_log: self.align_log(), depth: self.depth() })
    }

    /// Blocks of a number of elements, at displacements in units of `unit` bytes.
    fn blocks<'a>(&self, blocks: impl Iterator<Item = (u64, &'a i64)>, unit: i64, call: &'static str) -> Result<Self> {
        let one = self.draft(call)?;
        let mut joined = Join::new(call);
        joined.depth = one.depth;
        for (count, at) in blocks.filter(|(count, _)| *count > 0) {
            joined.push(&one.repeat(count, self.extent(), call)?.shift(scaled(*at, unit, call)?, call)?)?;
        }
        joined.finish()?.finish(call, self)
    }
}

impl Draft {
    pub(crate) fn repeat(&self, count: u64, stride: i64, call: &'static str) -> Result<Self> {
        let map = self.map.repeat(count, stride, call)?;
        let moved = |(lb, ub): (i64, i64)| {
            let last = if count == 1 { 0 } else { i64::try_from(count - 1).ok()?.checked_mul(stride)? };
            Some((lb.checked_add(last.min(0))?, ub.checked_add(last.max(0))?))
        };
        let too_far = || DatatypeError::overflow(call, "the extent of the type");
        let marks = self.marks.filter(|_| count > 0);
        let marks = marks.map(|marks| moved(marks).ok_or_else(too_far)).transpose()?;
        let align_log = if count > 0 { self.align_log } else { 0 };
        Ok(Self { map, marks, align_log, depth: self.depth })
    }

    pub(crate) fn shift(&self, by: i64, call: &'static str) -> Result<Self> {
        let too_far = || DatatypeError::overflow(call, "the extent of the type");
        let moved = |(lb, ub): (i64, i64)| lb.checked_add(by).zip(ub.checked_add(by)).ok_or_else(too_far);
        let marks = self.marks.map(moved).transpose()?;
        Ok(Self { map: self.map.shift(by, call)?, marks, align_log: self.align_log, depth: self.depth })
    }

    /// Sets the nesting depth to at least that of `inner`, even if normalization has removed levels.
    pub(crate) fn keep_depth(&mut self, inner: &Draft) {
        self.depth = self.depth.max(inner.depth);
    }

    /// Fixes the bounds.
    pub(crate) fn mark(&mut self, lb: i64, extent: i64, call: &'static str) -> Result<()> {
        let ub = lb.checked_add(extent).ok_or_else(|| DatatypeError::overflow(call, "the upper bound"))?;
        self.marks = Some((lb, ub));
        Ok(())
    }

    /// Builds the type, whose elements all have type `old`.
    pub(crate) fn finish(self, call: &'static str, old: &Datatype) -> Result<Datatype> {
        let count = self.map.size().checked_div(old.size()).filter(|count| *count > 0);
        self.finish_of(call, count.map(|count| (count, old.clone())).into_iter().collect())
    }

    fn finish_of(self, call: &'static str, parts: Box<[(u64, Datatype)]>) -> Result<Datatype> {
        let too_far = || DatatypeError::overflow(call, "the extent of the type");
        let (low, high, size) = (self.map.true_lb(), self.map.true_ub(), self.map.size());
        let (lb, ub) = match self.marks {
            Some(bounds) => bounds,
            None => {
                high.checked_sub(low).ok_or_else(too_far)?;
                (low, high.checked_add(padding(low, high, self.align_log)).ok_or_else(too_far)?)
            }
        };
        ub.checked_sub(lb).ok_or_else(too_far)?;
        let rare =
            Rare { marks: self.marks, external: parts.iter().map(|(len, old)| len * old.external_element()).sum() };
        Ok(Datatype(Repr::Derived(Arc::new(Derived {
            map: self.map.shape,
            signature: self.map.signature,
            overlap: self.map.overlap,
            rare: (rare.marks.is_some() || rare.external != size).then(|| Box::new(rare)),
            align_log: self.align_log,
            depth: self.depth + 1,
            parts,
        }))))
    }
}

/// Bytes that a C compiler adds to the end of a struct that spans `low..high`.
fn padding(low: i64, high: i64, align_log: u8) -> i64 {
    let align = 1_i64 << align_log;
    (align - (high - low) % align) % align
}

/// Concatenates drafts.
pub(crate) struct Join {
    sequence: Sequence,
    signature: Signature,
    marks: Option<(i64, i64)>,
    align_log: u8,
    depth: u8,
}

impl Join {
    pub(crate) fn new(call: &'static str) -> Self {
        let signature = Signature::default();
        Self { sequence: Sequence::new(call), signature, marks: None, align_log: 0, depth: 0 }
    }

    pub(crate) fn push(&mut self, draft: &Draft) -> Result<()> {
        self.sequence.push(&draft.map.shape)?;
        self.signature = self.signature.then(draft.map.signature);
        self.align_log = self.align_log.max(draft.align_log);
        self.depth = self.depth.max(draft.depth);
        self.marks = match (self.marks, draft.marks) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<Draft> {
        let shape: Shape = self.sequence.finish()?;
        let map = TypeMap::new(shape, self.signature);
        Ok(Draft { map, marks: self.marks, align_log: self.align_log, depth: self.depth })
    }
}

pub(crate) fn scaled(elements: i64, extent: i64, call: &'static str) -> Result<i64> {
    elements.checked_mul(extent).ok_or_else(|| DatatypeError::overflow(call, "a displacement"))
}

fn same_length(call: &'static str, left: usize, right: usize) -> Result<()> {
    if left == right {
        return Ok(());
    }
    Err(DatatypeError::argument(call, format!("the lists have different lengths: {left} and {right}")))
}
