//! Heat in a cuboid: a three-dimensional stencil whose ranks exchange the faces of their blocks without packing them.
//!
//!     farside run -n 8 target/release/examples/halo_3d --size 48 --steps 20
//!
//! The cuboid is a grid of blocks, one for each rank, each in an array with a layer of ghost cells around it. In every
//! step a rank puts the faces of its block, which are subarrays of its array, to the ghost layers of its neighbours,
//! which are subarrays of theirs: planes of long rows, of short rows, and of single cells. Each synchronization and
//! each transfer scheme must give, bit by bit, the cells of a run with a single block.

#[path = "common/program.rs"]
mod program;

use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use farside_rma::core::settings::TransferScheme;
use farside_rma::prelude::*;
use program::{Outcome, run};

/// Heat in a cuboid, with faces exchanged as subarrays.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Synchronization of the ranks; by default all.
    #[arg(long, value_enum)]
    sync: Option<Sync>,
    /// Transfer scheme of the faces; by default all. It is used for mapped memory too.
    #[arg(long, value_enum)]
    scheme: Option<Scheme>,
    /// Cells on each side of the cuboid.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=512))]
    size: u32,
    /// Number of steps.
    #[arg(long, default_value_t = 10)]
    steps: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sync {
    Fence,
    Pscw,
    Lock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scheme {
    Auto,
    Generic,
    Gather,
    MultiW,
    Sgrs,
}

impl Scheme {
    fn transfer(self) -> TransferScheme {
        match self {
            Scheme::Auto => TransferScheme::Auto,
            Scheme::Generic => TransferScheme::Generic,
            Scheme::Gather => TransferScheme::Gather,
            Scheme::MultiW => TransferScheme::MultiW,
            Scheme::Sgrs => TransferScheme::Sgrs,
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| {
        let team = job.world()?;
        let grid = near_cubic(team.size());
        let size = options.size as usize;
        let serial = Block::of([0..size, 0..size, 0..size]);
        let alone = (0..options.steps).fold(serial, |block, _| block.next());
        for sync in Sync::value_variants().iter().filter(|s| options.sync.is_none_or(|only| only == **s)) {
            for scheme in Scheme::value_variants().iter().filter(|s| options.scheme.is_none_or(|only| only == **s)) {
                version(&team, grid, &options, *sync, *scheme, &alone)?;
            }
        }
        Ok(())
    })
}

/// Runs one version and compares the cells with those of the run with a single block.
fn version(team: &Team, grid: [usize; 3], options: &Options, sync: Sync, scheme: Scheme, alone: &Block) -> Outcome {
    let (mut halo, block) = Halo::new(team, grid, options.size as usize, sync, scheme)?;
    let (since, before) = (Instant::now(), team.job().stats());
    let mut block = block;
    for _ in 0..options.steps {
        block = halo.exchange(block)?.next();
    }
    let messages = (team.job().stats() - before).messages();
    let time = since.elapsed();
    halo.free()?;
    block.same_cells(alone)?;
    if team.rank() == 0 {
        println!(
            "{sync:?}, {scheme:?}: {} steps of {}^3 cells on {grid:?} ranks, {messages} messages of rank 0, {time:.1?}",
            options.steps, options.size
        );
    }
    Ok(())
}

/// The three factors of `ranks` with the smallest sum.
fn near_cubic(ranks: usize) -> [usize; 3] {
    let triples = (1..=ranks).filter(|x| ranks.is_multiple_of(*x)).flat_map(|x| {
        let rest = ranks / x;
        (1..=rest).filter(move |y| rest.is_multiple_of(*y)).map(move |y| [x, y, rest / y])
    });
    triples.min_by_key(|t| t.iter().sum::<usize>()).unwrap_or([1, 1, ranks])
}

/// A block of the cuboid in an array that has a layer of ghosts around it.
#[derive(Clone)]
struct Block {
    /// The range of the block's cells in each dimension of the cuboid.
    part: [Range<usize>; 3],
    cells: Vec<f64>,
}

impl Block {
    /// The block at the start: warm in one corner.
    fn of(part: [Range<usize>; 3]) -> Self {
        let mut block = Self { cells: Vec::new(), part };
        block.cells = vec![0.0; block.shape().iter().product()];
        for (x, y, z) in block.inside() {
            let at = block.at(x, y, z);
            let [i, j, k] = [x, y, z].map(|n| n - 1);
            let warm = block.part[0].start + i + 2 * (block.part[1].start + j) + 3 * (block.part[2].start + k);
            block.cells[at] = 1000.0 / (1 + warm) as f64;
        }
        block
    }

    /// Shape of the array, ghosts included.
    fn shape(&self) -> [usize; 3] {
        self.part.clone().map(|r| r.len() + 2)
    }

    fn at(&self, x: usize, y: usize, z: usize) -> usize {
        let [_, ny, nz] = self.shape();
        (x * ny + y) * nz + z
    }

    /// The indices in the array of all cells except ghosts.
    fn inside(&self) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let [nx, ny, nz] = self.part.clone().map(|r| r.len());
        (1..=nx).flat_map(move |x| (1..=ny).flat_map(move |y| (1..=nz).map(move |z| (x, y, z))))
    }

    /// The block one step later. Ghosts do not change; outside the cuboid they are 0.
    fn next(&self) -> Self {
        let mut next = self.clone();
        for (x, y, z) in self.inside() {
            let c = |x, y, z| self.cells[self.at(x, y, z)];
            let around =
                c(x - 1, y, z) + c(x + 1, y, z) + c(x, y - 1, z) + c(x, y + 1, z) + c(x, y, z - 1) + c(x, y, z + 1);
            let at = self.at(x, y, z);
            next.cells[at] = 0.4 * self.cells[at] + 0.1 * around;
        }
        next
    }

    /// Compares with the same cells of `whole`.
    fn same_cells(&self, whole: &Block) -> Outcome {
        for (x, y, z) in self.inside() {
            let [i, j, k] = [0, 1, 2].map(|d| self.part[d].start);
            let (mine, expected) = (self.cells[self.at(x, y, z)], whole.cells[whole.at(i + x, j + y, k + z)]);
            if mine.to_bits() != expected.to_bits() {
                return Err(format!("cell {:?} is {mine}, not {expected}", [i + x - 1, j + y - 1, k + z - 1]).into());
            }
        }
        Ok(())
    }

    /// The layer at `index` of dimension `d` in an array of `shape`, without the ghosts of the other dimensions.
    fn layer(shape: [usize; 3], d: usize, index: usize) -> Result<Selection<f64>> {
        let all = [0, 1, 2].map(|e| if e == d { index..index + 1 } else { 1..shape[e] - 1 });
        Selection::subarray(shape, all)
    }
}

/// A neighbour: its rank, the face that is put to it, and the ghosts in its array that receive the face.
struct Face {
    rank: usize,
    face: Selection<f64>,
    ghosts: Selection<f64>,
}

enum Ghosts {
    Active(Window<'static, f64>),
    Passive(LockWindow<f64>),
}

/// The window of ghosts, which neighbours write, and the faces to put.
struct Halo {
    sync: Sync,
    faces: Vec<Face>,
    ranks: Vec<usize>,
    ghosts: Ghosts,
}

impl Halo {
    /// Makes the window, and the block of this rank at the start. Collective.
    fn new(team: &Team, grid: [usize; 3], size: usize, sync: Sync, scheme: Scheme) -> Result<(Self, Block)> {
        let place = |rank: usize| [rank / (grid[1] * grid[2]), rank / grid[2] % grid[1], rank % grid[2]];
        let part = |at: [usize; 3]| [0, 1, 2].map(|d| at[d] * size / grid[d]..(at[d] + 1) * size / grid[d]);
        let here = place(team.rank());
        let block = Block::of(part(here));
        let mut faces = Vec::new();
        for d in 0..3 {
            for up in [false, true] {
                let mut there = here;
                if if up { here[d] + 1 == grid[d] } else { here[d] == 0 } {
                    continue;
                }
                there[d] = if up { here[d] + 1 } else { here[d] - 1 };
                let (mine, its) = (block.shape(), part(there).map(|r| r.len() + 2));
                faces.push(Face {
                    rank: (there[0] * grid[1] + there[1]) * grid[2] + there[2],
                    face: Block::layer(mine, d, if up { mine[d] - 2 } else { 1 })?,
                    ghosts: Block::layer(its, d, if up { 0 } else { its[d] - 1 })?,
                });
            }
        }
        let len = block.cells.len();
        let ghosts = if sync == Sync::Lock {
            let window = LockWindow::allocate(team, len)?;
            window.set_transfer(scheme.transfer());
            Ghosts::Passive(window)
        } else {
            let window = Window::allocate(team, len)?;
            window.set_transfer(scheme.transfer());
            Ghosts::Active(window)
        };
        let ranks = faces.iter().map(|f| f.rank).collect();
        Ok((Self { sync, faces, ranks, ghosts }, block))
    }

    /// Puts the faces of a block to the neighbours, and copies the ghosts that they have put into the block.
    fn exchange(&mut self, mut block: Block) -> Result<Block> {
        let (faces, none) = (&self.faces, Assert::empty());
        let cells = &block.cells;
        match &mut self.ghosts {
            Ghosts::Active(window) => {
                if self.sync == Sync::Fence {
                    window.fence(none, |e| {
                        faces.iter().try_for_each(|f| e.put_selected(cells, &f.face, f.rank, 0, &f.ghosts))
                    })?;
                } else {
                    window.expose(&self.ranks, none, |x| {
                        x.start(&self.ranks, none, |e| {
                            faces.iter().try_for_each(|f| e.put_selected(cells, &f.face, f.rank, 0, &f.ghosts))
                        })
                    })?;
                }
                take_ghosts(&mut block, window.local()?);
            }
            Ghosts::Passive(window) => {
                for f in faces {
                    window.lock(LockKind::Shared, f.rank, none, |e| {
                        e.put_selected(cells, &f.face, f.rank, 0, &f.ghosts)
                    })?;
                }
                // After the first barrier the ghosts are complete; until the second one no rank writes them again.
                let team = window.team().clone();
                team.barrier()?;
                window.with_local(|local| {
                    take_ghosts(&mut block, local);
                    Ok(())
                })?;
                team.barrier()?;
            }
        }
        Ok(block)
    }

    /// Frees the window. Collective.
    fn free(self) -> Result<()> {
        match self.ghosts {
            Ghosts::Active(window) => window.free(),
            Ghosts::Passive(window) => window.free(),
        }
    }
}

/// Copies the ghosts that neighbours have written from the window into the block. Outside the cuboid both have 0.
fn take_ghosts(block: &mut Block, window: &[f64]) {
    let [nx, ny, nz] = block.shape();
    for x in 0..nx {
        for y in 0..ny {
            let row = block.at(x, y, 0);
            if x == 0 || x == nx - 1 || y == 0 || y == ny - 1 {
                block.cells[row..row + nz].copy_from_slice(&window[row..row + nz]);
            } else {
                block.cells[row] = window[row];
                block.cells[row + nz - 1] = window[row + nz - 1];
            }
        }
    }
}
