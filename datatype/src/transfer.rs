//! Copies from one layout to another in one pass, without a buffer between.
#![allow(unsafe_code)]

use crate::copy::{Times, walk};
use crate::kernels::{self, Steps};
use crate::runs::{Run, Runs};
use crate::shape::{Node, Shape};

/// Copies `len` bytes from packed byte `skip` on of `from` to the same bytes of `to`, up to the end of the shorter, and
/// returns how many.
///
/// # Safety
/// Every block of `from` must be readable and every one of `to` writable, relative to their bases, and none of the
/// first may share a byte with one of the second.
pub(crate) unsafe fn transfer(
    from: &Shape,
    from_base: *const u8,
    to: &Shape,
    to_base: *mut u8,
    skip: u64,
    len: u64,
) -> usize {
    let len = len.min(from.size.min(to.size).saturating_sub(skip));
    if len == 0 {
        return 0;
    }
    let (a, b) = (from_base.wrapping_offset(from.offset as isize), to_base.wrapping_offset(to.offset as isize));
    // SAFETY: the caller's promise, for the blocks of each side.
    unsafe {
        if to.node.block().is_some() {
            walk::<true>(from, from_base.cast_mut(), skip, len, b.wrapping_add(skip as usize));
        } else if from.node.block().is_some() {
            walk::<false>(to, to_base, skip, len, a.cast_mut().wrapping_add(skip as usize));
        } else if len < from.size || len < to.size || !alike(&from.node, &to.node, Times::ONCE, a, b) {
            by_runs(Runs::new(from, skip, len), from_base, Runs::new(to, skip, len), to_base);
        }
    }
    len as usize
}

/// Copies all of a layout, which is not empty, to the same elsewhere: `from` and `to` are where its first block starts.
///
/// # Safety
/// As [`transfer`].
pub(crate) unsafe fn mirror(shape: &Shape, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise; a level is always like itself.
    let done = unsafe { alike(&shape.node, &shape.node, Times::ONCE, from, to) };
    debug_assert!(done);
}

/// Copies one to the other so many times (`times.at` apart at `to`, `times.packed` at `from`), if they are levels of the
/// same kind with pieces of the same lengths, and says whether they are; if not, some of it may have been copied.
///
/// # Safety
/// As [`transfer`], with the first blocks at `from` and `to`, and for every repetition.
unsafe fn alike(a: &Node, b: &Node, times: Times, from: *const u8, to: *mut u8) -> bool {
    let steps = Steps { count: times.count, from: times.packed, to: times.at };
    let (by, to_by) = (|at: i64| from.wrapping_offset(at as isize), |at: i64| to.wrapping_offset(at as isize));
    // SAFETY: the caller's promise, for the blocks of each level.
    unsafe {
        match (a, b) {
            (Node::Run { count, stride, len, .. }, Node::Run { count: n, stride: by, len: l, .. }) => {
                if (count, len) != (n, l) {
                    return false;
                }
                let inner = Steps { count: *count as usize, from: *stride as isize, to: *by as isize };
                match (steps.count, inner.count) {
                    (1, _) => kernels::strided(*len as usize, inner, from, to),
                    (_, 1) => kernels::strided(*len as usize, steps, from, to),
                    _ => kernels::nested(*len as usize, steps, inner, from, to),
                }
                true
            }
            (Node::Repeat { count, stride, inner }, Node::Repeat { count: n, stride: by, inner: other })
                if count == n && inner.size == other.size && times.count == 1 =>
            {
                let times = Times { packed: *stride as isize, ..Times::of(*count as usize, *by, other) };
                alike(&inner.node, &other.node, times, from, to)
            }
            (Node::Same { at, inner }, Node::Same { at: list, inner: other })
                if at.len() == list.len() && inner.size == other.size && times.count == 1 =>
            {
                match (inner.node.block(), other.node.block()) {
                    (Some(len), Some(_)) => {
                        kernels::matched(len as usize, at, list, from, to);
                        true
                    }
                    _ => (at.iter().zip(list.iter()))
                        .all(|(at, place)| alike(&inner.node, &other.node, Times::ONCE, by(*at), to_by(*place))),
                }
            }
            (Node::Blocks(list), Node::Blocks(places)) if list.len() == places.len() => {
                if times.count > 1 {
                    return tiles(list.len(), a, b, times, from, to);
                }
                let (mut start, mut done) = (0, 0);
                while done < list.len() && list[done].end == places[done].end {
                    done += kernels::matched_blocks(start, &list[done..], &places[done..], from, to);
                    start = list[done - 1].end;
                }
                done == list.len()
            }
            (Node::Parts(parts), Node::Parts(places))
                if parts.items.len() == places.items.len() && times.count == 1 =>
            {
                parts.items.iter().zip(&places.items).all(|(part, place)| {
                    let same = part.end == place.end;
                    same && alike(&part.node, &place.node, Times::ONCE, by(part.at), to_by(place.at))
                })
            }
            // Repetitions of what is none of these in one loop: one by one.
            _ if times.count > 1 => (0..times.count as isize).all(|i| {
                let (from, to) = (from.wrapping_offset(i * times.packed), to.wrapping_offset(i * times.at));
                alike(a, b, Times::ONCE, from, to)
            }),
            _ => false,
        }
    }
}

/// [`alike`] of blocks that are repeated: one by one for a tile of repetitions, where that pays.
///
/// # Safety
/// As [`alike`].
unsafe fn tiles(pieces: usize, a: &Node, b: &Node, times: Times, from: *const u8, to: *mut u8) -> bool {
    let (Node::Blocks(list), Node::Blocks(places)) = (a, b) else { return false };
    // SAFETY: the caller's promise.
    unsafe {
        if !times.tiles(pieces) {
            return (0..times.count as isize).all(|i| {
                let (from, to) = (from.wrapping_offset(i * times.packed), to.wrapping_offset(i * times.at));
                alike(a, b, Times::ONCE, from, to)
            });
        }
        if list.iter().zip(places.iter()).any(|(block, place)| block.end != place.end) {
            return false;
        }
        times.each_tile(to, from.cast_mut(), |times, to, from| {
            let mut start = 0;
            for (block, place) in list.iter().zip(places.iter()) {
                let steps = Steps { count: times.count, from: times.packed, to: times.at };
                let (from, to) = (from.wrapping_offset(block.at as isize), to.wrapping_offset(place.at as isize));
                kernels::strided((block.end - start) as usize, steps, from, to);
                start = block.end;
            }
        });
        true
    }
}

/// Copies the bytes of any runs to those of any others; the shorter side ends it.
///
/// # Safety
/// As [`transfer`].
unsafe fn by_runs(from: Runs<'_>, from_base: *const u8, to: Runs<'_>, to_base: *mut u8) {
    let (mut from, mut to) = (Side::new(from), Side::new(to));
    while let (Some((a, a_step, a_len)), Some((b, b_step, b_len))) = (from.at_hand(), to.at_hand()) {
        let (whole_a, whole_b) = (from.done == 0, to.done == 0);
        // Blocks of one length pair off as long as both runs last, and a longer block is taken for a run of the other
        // side's; else one piece.
        let (count, len, a_step, b_step) = if whole_a && whole_b && a_len == b_len {
            (from.run.count.min(to.run.count), a_len, a_step, b_step)
        } else if whole_b && a_len > b_len {
            (to.run.count.min(a_len / b_len), b_len, b_len as i64, b_step)
        } else if whole_a && b_len > a_len {
            (from.run.count.min(b_len / a_len), a_len, a_step, a_len as i64)
        } else {
            (1, a_len.min(b_len), 0, 0)
        };
        let steps = Steps { count: count as usize, from: a_step as isize, to: b_step as isize };
        // SAFETY: the pieces are parts of blocks that the caller vouches for.
        unsafe {
            let (a, b) = (from_base.wrapping_offset(a as isize), to_base.wrapping_offset(b as isize));
            kernels::strided(len as usize, steps, a, b);
        }
        from.take(count * len);
        to.take(count * len);
    }
}

/// One side of a transfer: the run at hand, of whose first block `done` bytes are copied.
struct Side<'a> {
    runs: Runs<'a>,
    run: Run,
    done: u64,
}

impl<'a> Side<'a> {
    fn new(runs: Runs<'a>) -> Self {
        Self { runs, run: Run { offset: 0, count: 0, stride: 0, len: 0 }, done: 0 }
    }

    /// Offset of what comes next, the stride of its run, and the bytes left of its block.
    fn at_hand(&mut self) -> Option<(i64, i64, u64)> {
        if self.run.count == 0 {
            self.run = self.runs.next()?;
        }
        Some((self.run.offset + self.done as i64, self.run.stride, self.run.len - self.done))
    }

    /// The next `bytes` are copied: whole blocks, or a part of one.
    fn take(&mut self, bytes: u64) {
        self.done += bytes;
        let blocks = self.done / self.run.len;
        self.done -= blocks * self.run.len;
        self.run.count -= blocks;
        // Past the last block there is nothing, and the sum need not fit.
        self.run.offset = self.run.offset.wrapping_add(self.run.stride.wrapping_mul(blocks as i64));
    }
}
