#![allow(unsafe_code)]
//! Collectives of byte strings whose lengths the other ranks need not know, for start-up and tools.

use super::execute::{self, Arguments, Memory, Reduction, Shape};
use super::operation::{Algorithm, Operation};
use super::schedule::Side;
use crate::callback::{caught, operator_panicked};
use crate::coll;
use crate::coll::team::{LARGE_TEAM, Team};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::zeroed;

/// Bytes of a record of [`allgather`] and [`broadcast`]: the length of the data, and its first bytes, which are often
/// all of the data.
const RECORD: usize = 128;
/// Bytes of the length.
const LENGTH: usize = 8;
/// The [purpose](Arguments::purpose) of these calls.
const BYTES: &str = "a collective of byte strings";

fn record(data: &[u8], len: usize) -> Vec<u8> {
    let mut record = vec![0; len];
    record[..LENGTH].copy_from_slice(&(data.len() as u64).to_le_bytes());
    let first = &data[..data.len().min(len - LENGTH)];
    record[LENGTH..][..first.len()].copy_from_slice(first);
    record
}

/// Splits a record into the length and the first bytes.
fn parts(record: &[u8]) -> (usize, &[u8]) {
    let (len, first) = record.split_first_chunk::<LENGTH>().unwrap_or((&[0; LENGTH], &[]));
    let len = u64::from_le_bytes(*len) as usize;
    (len, &first[..len.min(first.len())])
}

/// The data of all ranks.
#[derive(Debug)]
pub struct Gathered {
    records: Vec<u8>,
    /// Bytes of a record.
    record: usize,
    /// The data of all ranks, if it did not fit into the record of some rank.
    long: Option<Vec<Vec<u8>>>,
}

impl Gathered {
    /// The data of a team rank; empty for a rank that does not exist.
    pub(super) fn get(&self, rank: usize) -> &[u8] {
        match &self.long {
            Some(all) => all.get(rank).map_or(&[], |data| data),
            None => self.records.chunks_exact(self.record).nth(rank).map_or(&[], |record| parts(record).1),
        }
    }

    /// The data of each rank, by team rank.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let each = self.records.chunks_exact(self.record).enumerate();
        each.map(|(rank, record)| self.long.as_ref().map_or_else(|| parts(record).1, |all| &all[rank]))
    }
}

fn named(a: &'static Algorithm) -> Option<(&'static Algorithm, &'static [u32])> {
    Some((a, &[]))
}

/// The address of a buffer that is only read.
fn read(bytes: &[u8]) -> Memory {
    Memory::Contiguous(bytes.as_ptr().cast_mut())
}

/// Zeroed memory for the result of a call, which fails at the other ranks too if the memory cannot be allocated.
fn zeroed_result(team: &Team, len: usize, operation: Operation) -> Result<Vec<u8>> {
    zeroed(len, operation.name()).map_err(|e| execute::fail_everywhere(team, e))
}

/// Gives every rank the data of all ranks, by team rank. Lengths may differ. ⌈log2 P⌉ messages per rank (Bruck), twice
/// as many if any rank has more than 120 bytes.
///
/// ```
/// use farside_core::{Job, coll};
///
/// Job::threads(3, |job| {
///     let all = coll::allgather(&job.world()?, &vec![7; job.rank() as usize])?;
///     assert_eq!(all, [vec![], vec![7], vec![7, 7]]);
///     Ok(())
/// })?;
/// # Ok::<(), farside_core::Error>(())
/// ```
///
/// # Errors
/// `PeerLost`; `Mismatch` if a peer makes another collective call; `Limit` if a rank has no memory for the result.
pub fn allgather(team: &Team, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
    gather_records(team, BYTES, mine, RECORD - LENGTH).map(|all| all.iter().map(<[u8]>::to_vec).collect())
}

/// [`allgather`] for a purpose of the caller, of data that mostly has at most `most` bytes; both arguments are the same
/// at all ranks. In a team of more than 256 ranks, each rank's data takes `most` + 8 bytes in the messages and in the
/// result, instead of 128 or more. ⌈log2 P⌉ messages per rank, twice as many if any rank has more than `most` bytes.
///
/// # Errors
/// Those of [`allgather`].
pub fn allgather_short(team: &Team, purpose: &'static str, mine: &[u8], most: usize) -> Result<Gathered> {
    gather_records(team, purpose, mine, if team.size() > LARGE_TEAM { most } else { most.max(RECORD - LENGTH) })
}

fn gather_records(team: &Team, purpose: &'static str, mine: &[u8], most: usize) -> Result<Gathered> {
    let len = most.saturating_add(LENGTH);
    let own = record(mine, len);
    let mut records = zeroed_result(team, len.saturating_mul(team.size()), Operation::Allgather)?;
    let arguments = Arguments {
        shape: Shape::Equal(1),
        element: len,
        input: read(&own),
        output: Memory::Contiguous(records.as_mut_ptr()),
        purpose,
        algorithm: named(&coll::allgather::bruck::ALGORITHM),
        ..Arguments::new(Operation::Allgather)
    };
    // SAFETY: the call has ended when this returns, and the buffers have the lengths in the shape.
    unsafe { execute::run(team, &arguments) }?;
    let mut all = Gathered { records, record: len, long: None };
    let rest = |record: &[u8]| parts(record).0.saturating_sub(most) as u64;
    if all.records.chunks_exact(len).any(|record| rest(record) > 0) {
        let rests: Vec<u64> = all.records.chunks_exact(len).map(rest).collect();
        let total = rests.iter().fold(0u64, |sum, rest| sum.saturating_add(*rest));
        let mut bytes = zeroed_result(team, total as usize, Operation::Allgather)?;
        let arguments = Arguments {
            shape: Shape::Each(rests[..].into()),
            element: 1,
            input: read(&mine[mine.len().min(most)..]),
            output: Memory::Contiguous(bytes.as_mut_ptr()),
            ..arguments
        };
        // SAFETY: as above.
        unsafe { execute::run(team, &arguments) }?;
        let mut later = &bytes[..];
        let whole = |(first, rest): (&[u8], &u64)| {
            let now;
            (now, later) = later.split_at(*rest as usize);
            [first, now].concat()
        };
        let long = all.iter().zip(&rests).map(whole).collect();
        all.long = Some(long);
    }
    Ok(all)
}

/// Gives rank `root` the data of all ranks, by team rank; the other ranks get an empty result. Messages: those of
/// [`allgather`] for the lengths, and of a gather.
///
/// # Errors
/// Those of [`allgather`]; `NoSuchRank`.
pub fn gather(team: &Team, root: usize, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
    let lens = allgather(team, &(mine.len() as u64).to_le_bytes())?;
    let lens: Vec<u64> = lens.iter().map(|len| len.as_slice().try_into().map_or(0, u64::from_le_bytes)).collect();
    let total = lens.iter().fold(0u64, |sum, len| sum.saturating_add(*len));
    let is_root = team.rank() == root;
    let mut all = zeroed_result(team, if is_root { total as usize } else { 0 }, Operation::Gather)?;
    let arguments = Arguments {
        shape: Shape::Each(lens[..].into()),
        sizes_known: true,
        root,
        element: 1,
        input: read(mine),
        output: Memory::Contiguous(all.as_mut_ptr()),
        purpose: BYTES,
        ..Arguments::new(Operation::Gather)
    };
    // SAFETY: the call has ended when this returns, and the buffers have the lengths in the shape.
    unsafe { execute::run(team, &arguments) }?;
    let mut rest = &all[..];
    let mut block = |len: &u64| {
        let (now, later) = rest.split_at(*len as usize);
        rest = later;
        now.to_vec()
    };
    Ok(if is_root { lens.iter().map(&mut block).collect() } else { Vec::new() })
}

/// Gives every rank the root's `data`, which may have any length; the `data` of other ranks is ignored. At most ⌈log2
/// P⌉ messages per rank (binomial tree), twice as many for more than 120 bytes.
///
/// ```
/// use farside_core::{Job, coll};
///
/// Job::threads(3, |job| {
///     let mine = if job.rank() == 1 { &b"of any length"[..] } else { b"" };
///     assert_eq!(coll::broadcast(&job.world()?, 1, mine)?, b"of any length");
///     Ok(())
/// })?;
/// # Ok::<(), farside_core::Error>(())
/// ```
///
/// # Errors
/// `NoSuchRank`, `PeerLost`; `Mismatch` if a peer makes another collective call; `Limit` as for [`allgather`].
pub fn broadcast(team: &Team, root: usize, data: &[u8]) -> Result<Vec<u8>> {
    let data = if team.rank() == root { data } else { &[] };
    let mut record = record(data, RECORD);
    let most = RECORD - LENGTH;
    let arguments = Arguments {
        root,
        shape: Shape::Vector(1),
        element: RECORD,
        output: Memory::Contiguous(record.as_mut_ptr()),
        algorithm: named(&coll::broadcast::binomial::ALGORITHM),
        purpose: BYTES,
        ..Arguments::new(Operation::Broadcast)
    };
    // SAFETY: the call has ended when this returns, and the buffers have the lengths in the shape.
    unsafe { execute::run(team, &arguments) }?;
    let (len, first) = parts(&record);
    let mut all = zeroed_result(team, len, Operation::Broadcast)?;
    all[..first.len()].copy_from_slice(first);
    if len > most {
        let rest = &mut all[most..];
        if team.rank() == root {
            rest.copy_from_slice(&data[most..]);
        }
        let output = Memory::Contiguous(rest.as_mut_ptr());
        let arguments = Arguments { element: len - most, output, ..arguments };
        // SAFETY: as above.
        unsafe { execute::run(team, &arguments) }?;
    }
    Ok(all)
}

/// Combines the data of all ranks in rank order: `combine(low, high)` leaves the result of "low then high" in `low`.
/// All ranks give the same length, and all get the same result.
///
/// ```
/// use farside_core::{Job, coll};
///
/// Job::threads(4, |job| {
///     let mut max = |low: &mut [u8], high: &[u8]| low[0] = low[0].max(high[0]);
///     assert_eq!(coll::allreduce(&job.world()?, &[job.rank() as u8], &mut max)?, [3]);
///     Ok(())
/// })?;
/// # Ok::<(), farside_core::Error>(())
/// ```
///
/// # Errors
/// `PeerLost`; `Mismatch` for another length.
pub fn allreduce(team: &Team, mine: &[u8], combine: &mut dyn FnMut(&mut [u8], &[u8])) -> Result<Vec<u8>> {
    reduce_by(team, BYTES, mine, combine, None)
}

/// [`allreduce`] for a purpose of the caller, by an algorithm that needs no earlier call of the team.
pub(super) fn agree(
    team: &Team,
    purpose: &'static str,
    mine: &[u8],
    combine: &mut dyn FnMut(&mut [u8], &[u8]),
) -> Result<Vec<u8>> {
    reduce_by(team, purpose, mine, combine, named(&coll::allreduce::recursive_doubling::ALGORITHM))
}

fn reduce_by(
    team: &Team,
    purpose: &'static str,
    mine: &[u8],
    combine: &mut dyn FnMut(&mut [u8], &[u8]),
    algorithm: Option<(&'static Algorithm, &'static [u32])>,
) -> Result<Vec<u8>> {
    let mut result = zeroed_result(team, mine.len(), Operation::Allreduce)?;
    let mut reducer = Reducer { combine, len: mine.len() };
    let arguments = Arguments {
        // A vector of one element is not cut.
        shape: Shape::Vector(1),
        element: mine.len(),
        input: read(mine),
        output: Memory::Contiguous(result.as_mut_ptr()),
        reduction: Some(reducer.reduction(false)),
        purpose,
        algorithm,
        ..Arguments::new(Operation::Allreduce)
    };
    // SAFETY: the call and its use of the reducer have ended when this returns.
    unsafe { execute::run(team, &arguments) }?;
    Ok(result)
}

/// Combines block `i` of all ranks into rank `i`'s result. `mine` holds P blocks of equal length, by rank;
/// `combine(into, from)` is commutative and associative. ⌈log2 P⌉ messages per rank (Bruck).
///
/// ```
/// use farside_core::{Job, coll};
///
/// Job::threads(3, |job| {
///     let mut add = |into: &mut [u8], from: &[u8]| into[0] += from[0];
///     assert_eq!(coll::reduce_scatter(&job.world()?, &[1, 2, 3], &mut add)?, [3 * (1 + job.rank() as u8)]);
///     Ok(())
/// })?;
/// # Ok::<(), farside_core::Error>(())
/// ```
///
/// # Errors
/// `BadArgument` for a length that is not a multiple of P; `PeerLost`; `Mismatch`.
pub fn reduce_scatter(team: &Team, mine: &[u8], combine: &mut dyn FnMut(&mut [u8], &[u8])) -> Result<Vec<u8>> {
    let p = team.size();
    if !mine.len().is_multiple_of(p) {
        let e = Error::new(ErrorKind::BadArgument, "reduce_scatter");
        return Err(e.cause(format!("{} bytes are not a multiple of the {p} ranks", mine.len())));
    }
    let mut result = zeroed_result(team, mine.len() / p, Operation::ReduceScatter)?;
    let mut reducer = Reducer { combine, len: result.len() };
    let arguments = Arguments {
        shape: Shape::Equal(1),
        element: result.len(),
        input: read(mine),
        output: Memory::Contiguous(result.as_mut_ptr()),
        reduction: Some(reducer.reduction(true)),
        algorithm: named(&coll::reduce_scatter::bruck::ALGORITHM),
        purpose: BYTES,
        ..Arguments::new(Operation::ReduceScatter)
    };
    // SAFETY: as in `allreduce`.
    unsafe { execute::run(team, &arguments) }?;
    Ok(result)
}

/// A closure that combines elements of `len` bytes.
struct Reducer<'a> {
    combine: &'a mut dyn FnMut(&mut [u8], &[u8]),
    len: usize,
}

impl Reducer<'_> {
    fn reduction(&mut self, commutative: bool) -> Reduction {
        Reduction {
            function: reduce,
            context: std::ptr::from_mut(self).cast_const().cast(),
            code: 0,
            commutative,
            align: 1,
        }
    }
}

/// # Safety
/// The contract of [`ReduceFn`](execute::ReduceFn); the context is a [`Reducer`] to which there is no other reference.
unsafe fn reduce(context: *const (), operand: *const u8, into: *mut u8, elements: usize, side: Side) -> Result<()> {
    // SAFETY: by the caller's contract.
    let reducer = unsafe { &mut *context.cast_mut().cast::<Reducer<'_>>() };
    if reducer.len == 0 {
        return Ok(());
    }
    let bytes = elements * reducer.len;
    // SAFETY: by the caller's contract.
    let (operand, into) =
        unsafe { (std::slice::from_raw_parts(operand, bytes), std::slice::from_raw_parts_mut(into, bytes)) };
    let all = operand.chunks_exact(reducer.len).zip(into.chunks_exact_mut(reducer.len));
    let done = caught(|| {
        all.for_each(|(operand, into)| match side {
            Side::Right => (reducer.combine)(into, operand),
            Side::Left => {
                let mut low = operand.to_vec();
                (reducer.combine)(&mut low, into);
                into.copy_from_slice(&low);
            }
        });
    });
    done.map_err(|text| operator_panicked(&text))
}
