//! One rank's part of the plate: its cells, a ghost row or column on each side, and one step of the stencil.

use farside_rma::Section;

/// The share of the difference to each neighbour that a cell takes over in one step; stable up to 1/4.
const CONDUCTIVITY: f64 = 0.2;

/// The sides of a block; also the order of ghosts in a ghost buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    North,
    South,
    West,
    East,
}

impl Side {
    pub(crate) const ALL: [Side; 4] = [Side::North, Side::South, Side::West, Side::East];

    pub(crate) fn opposite(self) -> Self {
        match self {
            Side::North => Side::South,
            Side::South => Side::North,
            Side::West => Side::East,
            Side::East => Side::West,
        }
    }
}

/// Number of cells of a block's ghost buffer, which has the four sides one after the other.
pub(crate) fn ghost_len(block: Section<2>) -> usize {
    let [rows, columns] = block.shape();
    2 * (rows + columns)
}

/// Offset of the ghosts of `side` in the ghost buffer of a block.
pub(crate) fn ghost_offset(block: Section<2>, side: Side) -> usize {
    let [rows, columns] = block.shape();
    match side {
        Side::North => 0,
        Side::South => columns,
        Side::West => 2 * columns,
        Side::East => 2 * columns + rows,
    }
}

/// The cells of a section of the plate in a frame of ghosts, which stay 0 (cold) outside the plate.
pub(crate) struct Block {
    section: Section<2>,
    now: Vec<f64>,
    next: Vec<f64>,
}

impl Block {
    /// The section at time 0.
    pub(crate) fn new(section: Section<2>, temperature: impl Fn(usize, usize) -> f64) -> Self {
        let [rows, columns] = section.shape();
        let mut block = Self { section, now: vec![0.0; (rows + 2) * (columns + 2)], next: Vec::new() };
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
            let at = block.at(row + 1, column + 1);
            block.now[at] = temperature(section.start[0] + row, section.start[1] + column);
        }
        block.next = block.now.clone();
        block
    }

    pub(crate) fn section(&self) -> Section<2> {
        self.section
    }

    /// Index in the framed memory, where the block's own cells start at (1, 1).
    fn at(&self, row: usize, column: usize) -> usize {
        row * (self.section.shape()[1] + 2) + column
    }

    /// The indices along a side: in the block's outermost row or column, or with `ghost` in the frame beyond it.
    fn along(&self, side: Side, ghost: bool) -> impl Iterator<Item = usize> + use<> {
        let [rows, columns] = self.section.shape();
        let pitch = columns + 2;
        let inside = usize::from(!ghost);
        let (first, count, stride) = match side {
            Side::North => (self.at(inside, 1), columns, 1),
            Side::South => (self.at(rows + 1 - inside, 1), columns, 1),
            Side::West => (self.at(1, inside), rows, pitch),
            Side::East => (self.at(1, columns + 1 - inside), rows, pitch),
        };
        (0..count).map(move |i| first + i * stride)
    }

    /// The cells along a side, which the neighbour there needs as ghosts.
    pub(crate) fn edge(&self, side: Side) -> Vec<f64> {
        self.along(side, false).map(|at| self.now[at]).collect()
    }

    /// Sets the ghosts beyond a side.
    pub(crate) fn set_ghosts(&mut self, side: Side, values: &[f64]) {
        for (at, value) in self.along(side, true).zip(values) {
            self.now[at] = *value;
        }
    }

    /// One step of the explicit five-point scheme. The order of operations is that of the formula, so that every
    /// division of the plate gives the same bits.
    pub(crate) fn step(&mut self) {
        let [rows, columns] = self.section.shape();
        let pitch = columns + 2;
        for row in 1..=rows {
            let line = |row: usize| &self.now[row * pitch..][..pitch];
            let (above, here, below) = (line(row - 1), line(row), line(row + 1));
            let next = &mut self.next[row * pitch..][..pitch];
            for c in 1..=columns {
                let around = above[c] + below[c] + here[c - 1] + here[c + 1];
                next[c] = here[c] + CONDUCTIVITY * (around - 4.0 * here[c]);
            }
        }
        std::mem::swap(&mut self.now, &mut self.next);
    }

    /// The block's own cells, row by row.
    pub(crate) fn cells(&self) -> Vec<f64> {
        let [rows, columns] = self.section.shape();
        (1..=rows).flat_map(|row| &self.now[self.at(row, 1)..][..columns]).copied().collect()
    }
}
