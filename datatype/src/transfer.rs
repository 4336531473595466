//! Copies from one layout to another in one pass, without a buffer between.
#![allow(unsafe_code)]

use crate::copy::walk;
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
    let total = from.size.min(to.size);
    let len = len.min(total.saturating_sub(skip));
    let (a, b) = (from_base.wrapping_offset(from.offset as isize), to_base.wrapping_offset(to.offset as isize));
    // SAFETY: the caller's promise, for the blocks of each side.
    unsafe {
        if len == 0 {
            return 0;
        }
        if to.node.block().is_some() {
            return walk::<true>(from, from_base.cast_mut(), skip, len, b.wrapping_add(skip as usize));
        }
        if from.node.block().is_some() {
            return walk::<false>(to, to_base, skip, len, a.cast_mut().wrapping_add(skip as usize));
        }
        if len < from.size || len < to.size || !alike(&from.node, &to.node, a, b) {
            by_runs(Runs::new(from, skip, len), from_base, Runs::new(to, skip, len), to_base);
        }
    }
    len as usize
}

/// Copies one to the other, if they are nested strides of the same counts and lengths, and says whether it did.
///
/// # Safety
/// As [`transfer`], with the first blocks at `from` and `to`.
unsafe fn alike(a: &Node, b: &Node, from: *const u8, to: *mut u8) -> bool {
    // SAFETY: the caller's promise, for the blocks of each level.
    unsafe {
        match (a, b) {
            (Node::Run { count, stride, len }, Node::Run { count: n, stride: by, len: l })
                if (count, len) == (n, l) =>
            {
                let steps = Steps { count: *count as usize, from: *stride as isize, to: *by as isize };
                kernels::strided(*len as usize, steps, from, to);
                true
            }
            (Node::Repeat { count, stride, inner }, Node::Repeat { count: n, stride: by, inner: other })
                if count == n && inner.size == other.size =>
            {
                let outer = Steps { count: *count as usize, from: *stride as isize, to: *by as isize };
                match (&inner.node, &other.node) {
                    (Node::Run { count, stride, len }, Node::Run { count: n, stride: by, len: l })
                        if (count, len) == (n, l) =>
                    {
                        let steps = Steps { count: *count as usize, from: *stride as isize, to: *by as isize };
                        kernels::nested(*len as usize, outer, steps, from, to);
                        true
                    }
                    // That the first are alike says it of all.
                    (inner, other) => (0..outer.count as isize).all(|i| {
                        let (from, to) = (from.wrapping_offset(i * outer.from), to.wrapping_offset(i * outer.to));
                        alike(inner, other, from, to)
                    }),
                }
            }
            _ => false,
        }
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
