//! The transfer planner chooses the scheme of a transfer from the two layouts, the device's capabilities and the
//! cut-offs.

use crate::descriptors::Descriptors;
use crate::error::{DatatypeError, DatatypeErrorKind, Result};
use crate::overlap::Overlap;
use crate::pack::check_signatures;
use crate::typemap::TypeMap;

/// Direction of a transfer. The origin makes the call; its side is local.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From origin to target.
    Put,
    /// From target to origin.
    Get,
}

/// Capabilities of the device for a pair of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLimits {
    /// The maximum number of blocks in a gather or scatter list; 0 counts as 1.
    pub max_sge: u32,
    /// The maximum number of bytes in one message; 0 counts as 1.
    pub max_message: u64,
    /// The origin can load from and store to the target's memory.
    pub mapped: bool,
    /// The target participates: it can unpack (Generic), and post scatter or gather lists (SGRS).
    pub target_helps: bool,
}

/// Sizes in bytes at which one scheme becomes better than another, measured for a device. The length of a block is the
/// mean over the pieces into which both sides' blocks cut the message.
///
/// ```
/// use farside_datatype::{CutOffs, Datatype, Direction, Named, Plan, PlanLimits, Scheme};
///
/// let column = Datatype::vector(100, 1, 2, &Named::Double.into())?.message(1)?;
/// let limits = PlanLimits { max_sge: 30, max_message: 1 << 30, mapped: false, target_helps: true };
/// let scheme = |cut_offs| Ok(Plan::new(&column, &column, Direction::Put, limits, &cut_offs)?.scheme());
/// assert_eq!(scheme(CutOffs::default())?, Scheme::Generic);
/// assert_eq!(scheme(CutOffs { multi_w_block: 8, ..CutOffs::default() })?, Scheme::MultiW);
/// # Ok::<(), farside_datatype::DatatypeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutOffs {
    /// Shortest block for which a gathering write or a scattering read is better than a scheme with the target's
    /// participation.
    pub gather_block: u64,
    /// Shortest block for which Multi-W is better than every scheme with the target's participation.
    pub multi_w_block: u64,
    /// Shortest block for which SGRS is better than Generic.
    pub sgrs_block: u64,
    /// Shortest message for which the SGRS handshake pays.
    pub sgrs_bytes: u64,
    /// Packed bytes per piece in the Generic scheme, chosen such that packing, sending and unpacking overlap; 0 counts
    /// as 1.
    pub segment: u64,
}

impl Default for CutOffs {
    /// The order of the schemes in the paper cited at [`Scheme`]: Generic for short blocks and messages, then SGRS,
    /// then Multi-W. A device replaces these by its own measurements (`Capabilities::cut_offs` in core).
    fn default() -> Self {
        Self { gather_block: 256, multi_w_block: 32 << 10, sgrs_block: 128, sgrs_bytes: 64 << 10, segment: 64 << 10 }
    }
}

/// The protocol of a transfer. The schemes are those of Santhanaraman, Wu, Panda 2004, "Zero-copy MPI derived datatype
/// communication over InfiniBand" (EuroPVM/MPI).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// No bytes.
    Empty,
    /// One block on both sides: plain messages.
    Contiguous,
    /// Copied from layout to layout with loads and stores, in one pass: [`TypeMap::copy_raw`].
    Mapped,
    /// Packed, sent and unpacked, in pieces.
    Generic,
    /// Puts that gather blocks of the origin into one block of the target, without the target's participation.
    WriteGather,
    /// Gets that scatter one block of the target to blocks of the origin, without the target's participation.
    ReadScatter,
    /// One put or get for each block.
    MultiW,
    /// Messages of many blocks on both sides (send-gather, receive-scatter), posted by both ranks.
    Sgrs,
}

/// The plan of a transfer. Borrows the layouts; its size does not depend on theirs.
///
/// ```
/// use farside_datatype::{CutOffs, Datatype, Direction, Named, Plan, PlanLimits, Scheme};
///
/// // A column into consecutive memory: one put that gathers.
/// let column = Datatype::vector(8, 100, 400, &Named::Int.into())?.message(1)?;
/// let packed = Datatype::contiguous(800, &Named::Int.into())?.message(1)?;
/// let limits = PlanLimits { max_sge: 30, max_message: 1 << 30, mapped: false, target_helps: false };
/// let plan = Plan::new(&column, &packed, Direction::Put, limits, &CutOffs::default())?;
/// assert_eq!(plan.scheme(), Scheme::WriteGather);
/// let message = plan.descriptors().next().unwrap();
/// assert_eq!((message.origin.len(), &message.target[..]), (8, &[(0, 3200)][..]));
/// # Ok::<(), farside_datatype::DatatypeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    scheme: Scheme,
    origin: &'a TypeMap,
    target: &'a TypeMap,
    limits: PlanLimits,
    segment: u64,
}

impl<'a> Plan<'a> {
    /// The best scheme for a transfer between `origin` and `target`, according to `limits` and `cut_offs`.
    ///
    /// A pure function of its arguments, so both ranks get the same plan. No data is read.
    ///
    /// # Errors
    /// `Signature` if the sides have different elements; `Overlap` if two blocks of the origin of a get share a byte.
    /// Targets of puts may have such blocks; they, and receiving layouts of more than 2^20 interleaved blocks, for which
    /// this is not decided, are unpacked in order where the target helps.
    pub fn new(
        origin: &'a TypeMap,
        target: &'a TypeMap,
        direction: Direction,
        limits: PlanLimits,
        cut_offs: &CutOffs,
    ) -> Result<Self> {
        let overlap = check(origin, target, direction, "Plan::new")?;
        let scheme = choose(origin, target, direction, &limits, cut_offs, overlap);
        Ok(Self { scheme, origin, target, limits, segment: cut_offs.segment })
    }

    /// A plan with a scheme chosen by the caller, for measurements and tests.
    ///
    /// ```
    /// use farside_datatype::{CutOffs, Datatype, DatatypeErrorKind, Direction, Named, Plan, PlanLimits, Scheme};
    ///
    /// let column = Datatype::vector(8, 1, 9, &Named::Double.into())?.message(1)?;
    /// let limits = PlanLimits { max_sge: 4, max_message: 1 << 20, mapped: false, target_helps: false };
    /// let by = |scheme| Plan::with_scheme(scheme, &column, &column, Direction::Put, limits, &CutOffs::default());
    /// assert_eq!(by(Scheme::MultiW)?.descriptors().count(), 8);
    /// // The target does not unpack.
    /// assert_eq!(by(Scheme::Generic).unwrap_err().kind(), DatatypeErrorKind::Scheme);
    /// # Ok::<(), farside_datatype::DatatypeError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Plan::new`], and `Scheme` if the device, the direction or the layouts do not allow it: `Contiguous`
    /// needs a block on both sides, `Mapped` mapped memory, `Generic` and `Sgrs` the target's participation,
    /// `WriteGather` a put and `ReadScatter` a get.
    pub fn with_scheme(
        scheme: Scheme,
        origin: &'a TypeMap,
        target: &'a TypeMap,
        direction: Direction,
        limits: PlanLimits,
        cut_offs: &CutOffs,
    ) -> Result<Self> {
        let call = "Plan::with_scheme";
        check(origin, target, direction, call)?;
        let allowed = match scheme {
            Scheme::Empty => origin.size() == 0,
            Scheme::Contiguous => origin.is_contiguous() && target.is_contiguous(),
            Scheme::Mapped => limits.mapped,
            Scheme::Generic | Scheme::Sgrs => limits.target_helps,
            Scheme::WriteGather => direction == Direction::Put,
            Scheme::ReadScatter => direction == Direction::Get,
            Scheme::MultiW => true,
        };
        if !allowed {
            let cause =
                format!("scheme {scheme:?} does not support a {direction:?} between these layouts on this device");
            return Err(DatatypeError::new(DatatypeErrorKind::Scheme, call, cause));
        }
        Ok(Self { scheme, origin, target, limits, segment: cut_offs.segment })
    }

    /// The scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The messages of a scheme without packing, in packed order; none for `Empty`, `Mapped` and `Generic`.
    #[must_use]
    pub fn descriptors(&self) -> Descriptors<'a> {
        self.descriptors_from(0)
    }

    /// The messages from packed byte `packed` on, at which a message must begin: for a rank that continues a partly
    /// completed transfer.
    #[must_use]
    pub fn descriptors_from(&self, packed: u64) -> Descriptors<'a> {
        let sge = self.limits.max_sge.max(1) as usize;
        let (origin, target) = match self.scheme {
            Scheme::Empty | Scheme::Mapped | Scheme::Generic => {
                return Descriptors::new(&TypeMap::EMPTY, &TypeMap::EMPTY, 0, (1, 1), 1);
            }
            Scheme::Contiguous | Scheme::MultiW => (1, 1),
            Scheme::WriteGather | Scheme::ReadScatter => (sge, 1),
            Scheme::Sgrs => (sge, sge),
        };
        Descriptors::new(self.origin, self.target, packed, (origin, target), self.limits.max_message.max(1))
    }

    /// The pieces of the Generic scheme as (packed byte, length): each is packed from that offset, sent as one message,
    /// and unpacked to the same offset. Empty for the other schemes.
    pub fn segments(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let size = if self.scheme == Scheme::Generic { self.origin.size() } else { 0 };
        let segment = self.segment.clamp(1, self.limits.max_message.max(1));
        (0..size.div_ceil(segment)).map(move |i| (i * segment, segment.min(size - i * segment)))
    }
}

fn check(origin: &TypeMap, target: &TypeMap, direction: Direction, call: &'static str) -> Result<Overlap> {
    check_signatures(origin, target, call)?;
    if direction == Direction::Put {
        return Ok(target.overlap());
    }
    let overlap = origin.overlap();
    if let Overlap::At(at) = overlap {
        let cause = format!("blocks of the receiving side, the origin, overlap at byte {at}");
        return Err(DatatypeError::new(DatatypeErrorKind::Overlap, call, cause));
    }
    Ok(overlap)
}

fn choose(
    origin: &TypeMap,
    target: &TypeMap,
    direction: Direction,
    limits: &PlanLimits,
    cut: &CutOffs,
    overlap: Overlap,
) -> Scheme {
    let size = origin.size();
    if size == 0 {
        return Scheme::Empty;
    }
    if limits.mapped {
        return Scheme::Mapped;
    }
    if origin.is_contiguous() && target.is_contiguous() {
        return Scheme::Contiguous;
    }
    if overlap != Overlap::None && limits.target_helps {
        return Scheme::Generic;
    }
    // There are at least as many pieces as blocks on the side with more blocks, and fewer than on both sides together.
    let (origin_blocks, target_blocks) = (origin.block_count(), target.block_count());
    let piece = size / origin_blocks.max(target_blocks);
    let gathers = limits.max_sge > 1 && target_blocks < origin_blocks;
    let gather = match direction {
        Direction::Put => Scheme::WriteGather,
        Direction::Get => Scheme::ReadScatter,
    };
    if !limits.target_helps {
        return if gathers { gather } else { Scheme::MultiW };
    }
    if gathers && target.is_contiguous() && piece >= cut.gather_block {
        return gather;
    }
    if piece >= cut.multi_w_block {
        return Scheme::MultiW;
    }
    if limits.max_sge > 1 && piece >= cut.sgrs_block && size >= cut.sgrs_bytes {
        return Scheme::Sgrs;
    }
    Scheme::Generic
}
