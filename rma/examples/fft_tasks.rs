//! A pipelined 2-D Fourier transform of two tasks: the first transforms the rows of each picture and sends the array, which
//! arrives at the second in another distribution, as whole columns, while the first continues with the next picture.
//!
//!     farside run -n 4 target/release/examples/fft_tasks --size 256 --pictures 20

#[path = "common/program.rs"]
mod program;

use std::f64::consts::TAU;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use farside_rma::global_array::Format;
use farside_rma::prelude::*;
use program::{Outcome, run};

/// Transforms pictures with two tasks of ranks.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Rows and columns of a picture, a power of two.
    #[arg(long, default_value_t = 16)]
    size: usize,
    /// Number of pictures.
    #[arg(long, default_value_t = 3)]
    pictures: usize,
}

/// A complex number.
type Complex = [f64; 2];

/// The Fourier transform of a sequence whose length is a power of two (Cooley and Tukey 1965).
fn transform(x: &mut [Complex]) {
    let n = x.len();
    if n < 2 {
        return;
    }
    let mut halves = [0, 1].map(|odd| x.iter().skip(odd).step_by(2).copied().collect::<Vec<_>>());
    halves.iter_mut().for_each(|half| transform(half));
    for k in 0..n / 2 {
        let (sin, cos) = (-TAU * k as f64 / n as f64).sin_cos();
        let ([a, b], [re, im]) = (halves[0][k], halves[1][k]);
        let turned = [re * cos - im * sin, re * sin + im * cos];
        x[k] = [a + turned[0], b + turned[1]];
        x[k + n / 2] = [a - turned[0], b - turned[1]];
    }
}

/// The picture of this number: one wave, whose transform has a single element that is not zero.
fn picture(number: usize, [i, j]: [usize; 2], n: usize) -> Complex {
    let (sin, cos) = (TAU * (number * i + (number + 1) * j) as f64 / n as f64).sin_cos();
    [cos, sin]
}

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| pipeline(job, &options))
}

fn pipeline(job: &Job, options: &Options) -> Outcome {
    let (world, n) = (job.world()?, options.size);
    if world.size() < 2 || !n.is_power_of_two() {
        println!("two tasks need two ranks, and the size is a power of two");
        return Ok(());
    }
    let rows = world.size() / 2;
    let first = world.rank() < rows;
    let task = world.split(Some(u32::from(first)), 0)?.ok_or("every rank has a task")?;
    let formats = if first { [Format::Block, Format::Whole] } else { [Format::Whole, Format::Block] };
    let array = GlobalArray::<Complex, 2>::distributed(&task, [n, n], formats)?;
    let link = array.link(&world, if first { rows } else { 0 }, 0)?;

    let start = Instant::now();
    let mut wrong = 0;
    for number in 0..options.pictures {
        if first {
            array.with_local(|mut view| {
                view.for_each(|index, x| *x = picture(number, index, n));
                view.rows_mut().for_each(transform);
                Ok::<(), Error>(())
            })?;
            link.send()?;
        } else {
            link.recv()?;
            array.with_local(|mut view| {
                let (width, height) = (view.shape()[1], view.shape()[0]);
                for column in 0..width {
                    let mut x: Vec<Complex> = (0..height).map(|row| view.elements()[row * width + column]).collect();
                    transform(&mut x);
                    (0..height).for_each(|row| view.elements_mut()[row * width + column] = x[row]);
                }
                let peak = [number % n, (number + 1) % n];
                let expected = |index| if index == peak { (n * n) as f64 } else { 0.0 };
                let is_wrong = |(index, [re, im]): ([usize; 2], &Complex)| {
                    (re - expected(index)).abs() + im.abs() > 1e-6 * (n * n) as f64
                };
                wrong += view.iter().filter(|one| is_wrong(*one)).count();
                Ok::<(), Error>(())
            })?;
        }
    }
    drop(link);
    world.barrier()?;
    if wrong > 0 {
        return Err(format!("{wrong} elements are wrong").into());
    }
    if world.rank() == 0 {
        println!(
            "{} pictures of {n} x {n} by {} ranks: {:.2?} each",
            options.pictures,
            world.size(),
            start.elapsed() / options.pictures.max(1) as u32
        );
    }
    Ok(array.free()?)
}
