//! The common part of the four versions: the neighbours of a rank, and the cells that they receive.

use farside_rma::{GlobalArray, Result};

use crate::block::{Block, Side, ghost_offset};

/// A rank on the other side of one of the own block's sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neighbour {
    pub rank: usize,
    /// The side of the own block.
    pub side: Side,
    /// Offset of the own cells in the neighbour's ghost buffer.
    pub offset: usize,
}

impl Neighbour {
    /// The side of the neighbour's block.
    pub(crate) fn its_side(&self) -> Side {
        self.side.opposite()
    }
}

/// The neighbours of this rank on the grid of `plate`. A rank without cells has no neighbours and is not a neighbour.
pub(crate) fn neighbours(plate: &GlobalArray<f64, 2>) -> Result<Vec<Neighbour>> {
    let me = plate.team().rank();
    let own = plate.owned(me)?;
    let [grid_rows, grid_columns] = plate.grid();
    let (row, column) = (me / grid_columns, me % grid_columns);
    let mut found = Vec::new();
    for side in Side::ALL {
        let place = match side {
            Side::North => row.checked_sub(1).map(|row| (row, column)),
            Side::South => Some((row + 1, column)),
            Side::West => column.checked_sub(1).map(|column| (row, column)),
            Side::East => Some((row, column + 1)),
        };
        let Some((row, column)) = place.filter(|(r, c)| *r < grid_rows && *c < grid_columns) else { continue };
        let rank = row * grid_columns + column;
        let theirs = plate.owned(rank)?;
        if !own.is_empty() && !theirs.is_empty() {
            found.push(Neighbour { rank, side, offset: ghost_offset(theirs, side.opposite()) });
        }
    }
    Ok(found)
}

/// The cells for each neighbour, in the order of `neighbours`.
pub(crate) fn edges(block: &Block, neighbours: &[Neighbour]) -> Vec<Vec<f64>> {
    neighbours.iter().map(|n| block.edge(n.side)).collect()
}

/// Copies the cells that the neighbours have put into a ghost buffer to the frame of the block.
pub(crate) fn take_ghosts(block: &mut Block, neighbours: &[Neighbour], ghosts: &[f64]) {
    for n in neighbours {
        block.set_ghosts(n.side, &ghosts[ghost_offset(block.section(), n.side)..]);
    }
}

/// One way to exchange ghosts.
pub(crate) trait Exchange {
    /// Gives the neighbours their ghosts of `step`, counted from 0, and sets those of `block`.
    ///
    /// # Errors
    /// Those of the communication.
    fn exchange(&mut self, step: u64, block: &mut Block) -> Result<()>;

    /// Frees windows and handlers. Collective.
    ///
    /// # Errors
    /// Those of freeing a window.
    fn free(self: Box<Self>) -> Result<()>;
}
