//! `datatype`: what packing and unpacking of layouts costs, and puts from layout to layout, beside loops by hand,
//! memcpy and, with `--peers`, MPI libraries.

use std::process::ExitCode;

use clap::Parser;
use farside_benches::plan::Plan;
use farside_benches::program;
use farside_benches::record::{Shape, Suite, Window, best};
use farside_benches::session::{Options, Task};
use farside_benches::shapes;
use farside_benches::targets::layout_targets;
use farside_core::error::{Error, ErrorKind, Result};

/// Measures pack and unpack of vectors, faces, columns, indexed types, structures and nested vectors, and puts of
/// columns, of some blocks and of block diagonals to another rank.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Suites to measure, of pack,put.
    #[arg(long, value_delimiter = ',')]
    suites: Vec<Suite>,
    /// To pack: of vector_4, vector_8, .., face_x, .., indexed_8, struct, nested; to put: of columns_64, columns_128,
    /// none (without gaps), blocks_4, .., diagonals.
    #[arg(long, value_delimiter = ',')]
    shapes: Vec<Shape>,
}

fn run(Arguments { options, suites, shapes }: Arguments) -> Result<bool> {
    let quick = options.quick;
    let wants = |suite| suites.is_empty() || suites.contains(&suite);
    let wants_shape = |shape: &Shape| shapes.is_empty() || shapes.contains(shape);
    let mut plans = Vec::new();
    // All libraries measure one shape before the next, so that compared values are measured close together.
    for shape in shapes::all().into_iter().filter(|shape| wants(Suite::Pack) && wants_shape(shape)) {
        let layouts: Vec<_> = shapes::sizes(shape, quick).into_iter().map(|bytes| (shape, bytes)).collect();
        plans.push(Plan::of_layouts(quick, Suite::Pack, 1, &[], &layouts));
    }
    let mapped = [Window::Allocated, Window::User];
    let puts = shapes::puts(quick).into_iter();
    let puts: Vec<_> = puts.filter(|(shape, _)| wants(Suite::Put) && wants_shape(shape)).collect();
    for part in puts.chunk_by(|a, b| a.0.kind() == b.0.kind()) {
        plans.push(Plan::of_layouts(quick, Suite::Put, 2, &mapped, part));
    }
    let exchanged: Vec<_> = puts.into_iter().filter(|(shape, bytes)| shapes::is_exchanged(*shape, *bytes, 4)).collect();
    if !exchanged.is_empty() {
        plans.push(Plan::of_layouts(quick, Suite::Put, 4, &mapped, &exchanged));
    }
    if plans.is_empty() {
        return Err(Error::new(ErrorKind::BadArgument, "plan the measurements").cause("no shape is of any suite"));
    }
    let targets = |rounds: &[Vec<_>]| layout_targets(&best(&rounds.concat()));
    let title = "Farside: layouts, packed and put";
    Task { name: "datatype", title, plans, limits: None, targets }.run(&options)
}

fn main() -> ExitCode {
    program(run)
}
