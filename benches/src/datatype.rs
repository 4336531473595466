//! `datatype` measures packing and unpacking of layouts, and puts between layouts, and compares them with hand-written
//! loops, memcpy and, with `--peers`, MPI libraries.

use clap::Args;
use farside_core::error::{Error, ErrorKind, Result};

use crate::options::{Libraries, Options};
use crate::plan::Plan;
use crate::record::{Shape, Suite, Window, best};
use crate::session::Task;
use crate::shapes;
use crate::targets::layout_targets;

/// Measures pack and unpack of vectors, faces, columns, indexed types, structures and nested vectors, and puts of
/// columns, of some blocks and of block diagonals to another rank.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    libraries: Libraries,
    /// Suites to measure, of pack,put.
    #[arg(long, value_delimiter = ',')]
    suites: Vec<Suite>,
    /// To pack: of vector_4, vector_8, .., face_x, .., indexed_8, struct, nested; to put: of columns_64, columns_128,
    /// none (without gaps), blocks_4, .., diagonals.
    #[arg(long, value_delimiter = ',')]
    shapes: Vec<Shape>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<bool> {
        let quick = self.options.quick;
        let wants = |suite| self.suites.is_empty() || self.suites.contains(&suite);
        let wants_shape = |shape: &Shape| self.shapes.is_empty() || self.shapes.contains(shape);
        let mut plans = Vec::new();
        // All libraries measure one shape before the next one starts, so that compared values are measured close
        // together.
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
        let exchanged: Vec<_> =
            puts.into_iter().filter(|(shape, bytes)| shapes::is_exchanged(*shape, *bytes, 4)).collect();
        if !exchanged.is_empty() {
            plans.push(Plan::of_layouts(quick, Suite::Put, 4, &mapped, &exchanged));
        }
        if plans.is_empty() {
            return Err(Error::new(ErrorKind::BadArgument, "plan the measurements")
                .cause("no suite measures any of the given shapes"));
        }
        let title = "Farside: layouts, packed and put".to_owned();
        let task = Task { title, plans, libraries: self.libraries.list(), ..Task::default() };
        task.run("datatype", &self.options, |rounds| layout_targets(&best(&rounds.concat())))
    }
}
