//! A whole array is transferred from one task to another task with a different distribution, and back: over a
//! persistent link, over a link created for every transfer, and by messages that are packed and unpacked by hand.
//! `benches/pgas/alltoallw.c` uses `MPI_Alltoallw`.

use std::ops::Range;

use farside_core::error::Result;
use farside_rma::global_array::Format;
use farside_rma::prelude::*;

use super::{Meter, wrong_data};

/// Shapes of the arrays of `f64`: 4 KiB and 1 MiB.
pub(crate) const SHAPES: [[usize; 2]; 2] = [[16, 32], [256, 512]];

/// Measures arrays of these shapes; the first half of the ranks forms one task, the second half the other.
///
/// # Errors
/// Those of the calls; `Protocol` for wrong data.
pub(crate) fn measure(meter: &Meter<'_>, shapes: &[[usize; 2]]) -> Result<()> {
    shapes.iter().try_for_each(|shape| {
        links(meter, *shape)?;
        by_hand(meter, *shape)
    })
}

/// The value of the element at an index of the array.
fn element([i, j]: [usize; 2]) -> f64 {
    (1000 * i + j) as f64
}

fn links(meter: &Meter<'_>, shape: [usize; 2]) -> Result<()> {
    let world = meter.team;
    let half = world.size() / 2;
    let first = world.rank() < half;
    let Some(task) = world.split(Some(u32::from(first)), 0)? else { return Ok(()) };
    let other = if first { half } else { 0 };
    let formats = if first { [Format::Block, Format::Whole] } else { [Format::Whole, Format::Block] };
    let array = GlobalArray::<f64, 2>::distributed(&task, shape, formats)?;
    if first {
        array.for_each(|index, x| *x = element(index))?;
    }
    let bytes = 8 * shape[0] * shape[1];
    let link = array.link(world, other, 0)?;
    meter.microseconds("array_link", bytes, 0.5, |count| {
        (0..count).try_for_each(|_| {
            if first {
                link.send()?;
                link.recv()
            } else {
                link.recv()?;
                link.send()
            }
        })
    })?;
    drop(link);
    meter.microseconds("array_new_link", bytes, 0.5, |count| {
        (0..count).try_for_each(|_| {
            if first {
                array.send_to(world, other, 0)?;
                array.recv_from(world, other, 0)
            } else {
                array.recv_from(world, other, 0)?;
                array.send_to(world, other, 0)
            }
        })
    })?;
    let mut is_right = true;
    array.for_each(|index, x| is_right &= *x == element(index))?;
    if !is_right {
        return Err(wrong_data("an array"));
    }
    array.free()
}

/// The indices of the `part`-th of `parts` blocks of `count` indices, as HPF distributes them.
fn block(count: usize, parts: usize, part: usize) -> Range<usize> {
    let each = count.div_ceil(parts);
    (part * each).min(count)..((part + 1) * each).min(count)
}

/// Copies elements of a row-major array with rows of `width` elements to a buffer.
fn pack(array: &[f64], width: usize, [rows, columns]: [Range<usize>; 2], into: &mut Vec<f64>) {
    into.clear();
    rows.for_each(|row| into.extend_from_slice(&array[row * width..][columns.clone()]));
}

/// Copies a buffer to elements of a row-major array.
fn unpack(from: &[f64], array: &mut [f64], width: usize, [rows, columns]: [Range<usize>; 2]) {
    for (row, from) in rows.zip(from.chunks_exact(columns.len().max(1))) {
        array[row * width..][columns.clone()].copy_from_slice(from);
    }
}

fn by_hand(meter: &Meter<'_>, [height, width]: [usize; 2]) -> Result<()> {
    let world = meter.team;
    let half = world.size() / 2;
    let (first, me) = (world.rank() < half, world.rank() % half);
    let parts = if first { half } else { world.size() - half };
    let peers = world.size() - parts;
    // The first task owns rows, the other task columns.
    let (own_rows, own_columns) =
        if first { (block(height, parts, me), 0..width) } else { (0..height, block(width, parts, me)) };
    let own_width = own_columns.len();
    let places = own_rows.clone().flat_map(|i| own_columns.clone().map(move |j| [i, j]));
    let mut array: Vec<f64> = places.map(|place| if first { element(place) } else { 0.0 }).collect();
    // The elements of this rank's array that it shares with each rank of the other task.
    let common = |peer: usize| match first {
        true => [0..own_rows.len(), block(width, peers, peer)],
        false => [block(height, peers, peer), 0..own_width],
    };
    let rank_of = |peer: usize| if first { half + peer } else { peer };
    let mut buffers: Vec<Vec<f64>> = vec![Vec::new(); peers];
    let mut received: Vec<Vec<f64>> =
        (0..peers).map(|peer| vec![0.0; common(peer).map(|r| r.len()).iter().product()]).collect();
    let mut send = |array: &[f64]| -> Result<()> {
        let mut sends = Vec::new();
        for (peer, buffer) in buffers.iter_mut().enumerate() {
            pack(array, own_width, common(peer), buffer);
            sends.push(world.send_nbi(std::mem::take(buffer), rank_of(peer), 0)?);
        }
        for (buffer, send) in buffers.iter_mut().zip(sends) {
            *buffer = send.wait()?;
        }
        Ok(())
    };
    let mut receive = |array: &mut [f64]| -> Result<()> {
        let mut receives = Vec::new();
        for (peer, buffer) in received.iter_mut().enumerate() {
            receives.push(world.recv_nbi(std::mem::take(buffer), rank_of(peer), 0)?);
        }
        for (peer, (buffer, receive)) in received.iter_mut().zip(receives).enumerate() {
            *buffer = receive.wait()?.0;
            unpack(buffer, array, own_width, common(peer));
        }
        Ok(())
    };
    meter.microseconds("array_by_hand", 8 * height * width, 0.5, |count| {
        (0..count).try_for_each(|_| {
            if first {
                send(&array)?;
                receive(&mut array)
            } else {
                receive(&mut array)?;
                send(&array)
            }
        })
    })?;
    let places = own_rows.clone().flat_map(|i| own_columns.clone().map(move |j| [i, j]));
    if places.zip(&array).any(|(place, x)| element(place) != *x) {
        return Err(wrong_data("the array that was packed by hand"));
    }
    Ok(())
}
