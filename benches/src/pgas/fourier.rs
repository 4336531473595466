//! Fourier transforms of a stream of square pictures: a pipeline of two tasks, of which the first transforms the rows of a
//! picture while the second transforms the columns of the one before; and one task of all ranks, which transforms the rows,
//! redistributes the array and transforms the columns.

use std::f64::consts::TAU;
use std::time::Duration;

use farside_core::error::Result;
use farside_rma::LocalView;
use farside_rma::global_array::{Format, Transfer};
use farside_rma::prelude::*;

use super::{Meter, wrong_data};

/// A complex number.
type Complex = [f64; 2];

/// Sizes of pictures: rows and columns.
pub(crate) const SIZES: [usize; 4] = [16, 64, 256, 512];

/// Number of columns that are transformed together.
const COLUMNS_TOGETHER: usize = 8;

/// Measures pictures of these sizes, each a power of two; prints thousands of pictures a second.
///
/// # Errors
/// Those of the calls; `Protocol` for a wrong transform.
pub(crate) fn measure(meter: &Meter<'_>, sizes: &[usize]) -> Result<()> {
    sizes.iter().try_for_each(|size| {
        two_tasks(meter, *size)?;
        one_task(meter, *size)
    })
}

/// The transform of sequences of one length, by powers of two (Cooley and Tukey 1965).
struct Transform {
    /// Powers of the root of unity.
    roots: Vec<Complex>,
    /// The bit-reversed index of each element.
    order: Vec<usize>,
    /// Columns that are transformed together.
    columns: Vec<Complex>,
}

impl Transform {
    fn new(n: usize) -> Self {
        let root = |k: usize| {
            let (sin, cos) = (-TAU * k as f64 / n as f64).sin_cos();
            [cos, sin]
        };
        let bits = n.trailing_zeros();
        let order = (0..n).map(|i| if bits == 0 { 0 } else { i.reverse_bits() >> (usize::BITS - bits) }).collect();
        Self { roots: (0..n / 2).map(root).collect(), order, columns: vec![[0.0; 2]; COLUMNS_TOGETHER * n] }
    }

    fn apply(roots: &[Complex], order: &[usize], x: &mut [Complex]) {
        let n = x.len();
        for (i, j) in order.iter().enumerate().filter(|(i, j)| i < j) {
            x.swap(i, *j);
        }
        let mut half = 1;
        while half < n {
            let stride = n / (2 * half);
            for pair in x.chunks_exact_mut(2 * half) {
                let (low, high) = pair.split_at_mut(half);
                for ((a, b), [cos, sin]) in low.iter_mut().zip(high).zip(roots.iter().step_by(stride)) {
                    let turned = [b[0] * cos - b[1] * sin, b[0] * sin + b[1] * cos];
                    *b = [a[0] - turned[0], a[1] - turned[1]];
                    *a = [a[0] + turned[0], a[1] + turned[1]];
                }
            }
            half *= 2;
        }
    }

    fn rows(&mut self, meter: &Meter<'_>, view: &mut LocalView<'_, Complex, 2>) {
        let [height, width] = view.shape();
        self.compute(meter, height, width);
        view.rows_mut().for_each(|row| Self::apply(&self.roots, &self.order, row));
    }

    /// Takes the virtual time of `count` transforms of length `n` on a simulated processor.
    fn compute(&self, meter: &Meter<'_>, count: usize, n: usize) {
        if meter.flop_ns > 0.0 {
            let flops = 5.0 * (count * n) as f64 * (n as f64).log2();
            meter.team.job().device().compute(Duration::from_nanos((flops * meter.flop_ns) as u64));
        }
    }

    /// Transforms several columns at a time, since rows whose length is a power of two share sets of the cache.
    fn columns(&mut self, meter: &Meter<'_>, view: &mut LocalView<'_, Complex, 2>) {
        let [height, width] = view.shape();
        self.compute(meter, width, height);
        let elements = view.elements_mut();
        for first in (0..width).step_by(COLUMNS_TOGETHER) {
            let together = COLUMNS_TOGETHER.min(width - first);
            for (i, row) in elements.chunks_exact(width).enumerate() {
                row[first..first + together].iter().enumerate().for_each(|(j, x)| self.columns[j * height + i] = *x);
            }
            let columns = self.columns.chunks_exact_mut(height).take(together);
            columns.for_each(|column| Self::apply(&self.roots, &self.order, column));
            for (i, row) in elements.chunks_exact_mut(width).enumerate() {
                let elements = row[first..first + together].iter_mut().enumerate();
                elements.for_each(|(j, x)| *x = self.columns[j * height + i]);
            }
        }
    }
}

/// A picture of one wave, whose transform has a single nonzero element.
fn wave([i, j]: [usize; 2], n: usize) -> Complex {
    let (sin, cos) = (TAU * (i + 2 * j) as f64 / n as f64).sin_cos();
    [cos, sin]
}

/// This rank's elements of the picture that each step begins with.
fn picture(array: &GlobalArray<Complex, 2>, n: usize) -> Result<Vec<Complex>> {
    array.with_local(|view| Ok(view.iter().map(|(index, _)| wave(index, n)).collect()))
}

/// Checks a transform of [`wave`].
fn check(array: &GlobalArray<Complex, 2>, n: usize) -> Result<()> {
    let mut is_right = true;
    array.for_each(|index, [re, im]| {
        let expected = if index == [1 % n, 2 % n] { (n * n) as f64 } else { 0.0 };
        is_right &= (*re - expected).abs() + im.abs() < 1e-6 * (n * n) as f64;
    })?;
    if is_right { Ok(()) } else { Err(wrong_data("a transform")) }
}

fn two_tasks(meter: &Meter<'_>, n: usize) -> Result<()> {
    let world = meter.team;
    let half = world.size() / 2;
    let first = world.rank() < half;
    let Some(task) = world.split(Some(u32::from(first)), 0)? else { return Ok(()) };
    let formats = if first { [Format::Block, Format::Whole] } else { [Format::Whole, Format::Block] };
    // Two arrays in turn: one is in transfer while the ranks compute on the other.
    let make = || GlobalArray::<Complex, 2>::distributed(&task, [n, n], formats);
    let arrays = [make()?, make()?];
    let other = if first { half } else { 0 };
    let links = [arrays[0].link(world, other, 0)?, arrays[1].link(world, other, 1)?];
    let mut transform = Transform::new(n);
    let picture = picture(&arrays[0], n)?;
    meter.millions("fourier_two_tasks", n, 1000, |count| {
        let mut open: [Option<Transfer<'_, Complex, 2>>; 2] = [None, None];
        if !first {
            open[0] = Some(links[0].start_recv()?);
        }
        for turn in 0..count as usize {
            let (now, next) = (turn % 2, (turn + 1) % 2);
            if let Some(transfer) = open[now].take() {
                transfer.wait()?;
            }
            if first {
                arrays[now].with_local(|mut view| {
                    view.elements_mut().copy_from_slice(&picture);
                    transform.rows(meter, &mut view);
                    Ok::<(), Error>(())
                })?;
                open[now] = Some(links[now].start_send()?);
            } else {
                if turn + 1 < count as usize {
                    open[next] = Some(links[next].start_recv()?);
                }
                arrays[now].with_local(|mut view| {
                    transform.columns(meter, &mut view);
                    Ok::<(), Error>(())
                })?;
            }
        }
        open.into_iter().flatten().try_for_each(Transfer::wait)
    })?;
    if !first {
        check(&arrays[0], n)?;
    }
    drop(links);
    arrays.into_iter().try_for_each(GlobalArray::free)
}

fn one_task(meter: &Meter<'_>, n: usize) -> Result<()> {
    let rows = GlobalArray::<Complex, 2>::distributed(meter.team, [n, n], [Format::Block, Format::Whole])?;
    let columns = GlobalArray::<Complex, 2>::distributed(meter.team, [n, n], [Format::Whole, Format::Block])?;
    let mut transform = Transform::new(n);
    let picture = picture(&rows, n)?;
    meter.millions("fourier_one_task", n, 1000, |count| {
        for _ in 0..count {
            rows.with_local(|mut view| {
                view.elements_mut().copy_from_slice(&picture);
                transform.rows(meter, &mut view);
                Ok::<(), Error>(())
            })?;
            rows.redistribute_into(&columns)?;
            columns.with_local(|mut view| {
                transform.columns(meter, &mut view);
                Ok::<(), Error>(())
            })?;
        }
        Ok(())
    })?;
    check(&columns, n)?;
    columns.free()?;
    rows.free()
}
