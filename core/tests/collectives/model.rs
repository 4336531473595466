#![allow(unsafe_code)]
//! Calls with data that is different for every rank and index, and their expected results by a serial model.

use std::rc::Rc;

use farside_core::am::Layout;
use farside_core::coll::execute::{self, Arguments, Memory, Prepared, Reduction, Shape};
use farside_core::coll::operation::{Algorithm, Neighbors, Operation};
use farside_core::coll::schedule::Side;
use farside_core::device::Block;
use farside_core::{Result, Team};

/// Content of the memory outside the blocks, before and after.
const OUTSIDE: u64 = 0x5555_5555_5555_5555;

/// Element `i` of the contribution of `rank` for `to`.
pub(crate) fn value(rank: usize, to: usize, i: u64) -> u64 {
    let x = (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (to as u64 + 7).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    (x ^ i.wrapping_mul(0x1656_67b1_9e37_79f9)).rotate_left(23).wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// Composition of two affine maps x → a x + b modulo 2^32: associative, not commutative.
pub(crate) fn compose(low: u64, high: u64) -> u64 {
    let split = |x: u64| (x as u32, (x >> 32) as u32);
    let ((a, b), (c, d)) = (split(low), split(high));
    u64::from(a.wrapping_mul(c)) | u64::from(b.wrapping_mul(c).wrapping_add(d)) << 32
}

pub(crate) fn add(low: u64, high: u64) -> u64 {
    low.wrapping_add(high)
}

/// # Safety
/// The contract of `ReduceFn`; the context points to a `fn(u64, u64) -> u64`.
unsafe fn apply(context: *const (), operand: *const u8, into: *mut u8, elements: usize, side: Side) -> Result<()> {
    // SAFETY: by the caller's contract.
    let f = unsafe { *context.cast::<fn(u64, u64) -> u64>() };
    for i in 0..elements {
        // SAFETY: by the caller's contract the pointers are aligned and have `elements` elements.
        unsafe {
            let (operand, into) = (*operand.cast::<u64>().add(i), into.cast::<u64>().add(i));
            *into = if side == Side::Left { f(operand, *into) } else { f(*into, operand) };
        }
    }
    Ok(())
}

pub(crate) fn reduction(f: &'static fn(u64, u64) -> u64, commutative: bool) -> Reduction {
    let context = std::ptr::from_ref(f).cast();
    Reduction { function: apply, context, code: 1, commutative, align: align_of::<u64>() }
}

pub(crate) static ADD: fn(u64, u64) -> u64 = add;
pub(crate) static COMPOSE: fn(u64, u64) -> u64 = compose;

/// The layout of the blocks of a buffer in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placing {
    Contiguous,
    /// From the last block to the first, with gaps between blocks.
    Displaced,
    /// Each element is followed by two that are not part of the buffer.
    Gaps,
}

/// Elements with gaps between them.
struct Strided {
    base: *mut u64,
    elements: usize,
}

// SAFETY: each block is the requested part of an element.
unsafe impl Layout for Strided {
    fn packed_len(&self) -> usize {
        8 * self.elements
    }

    fn blocks(&self, from: usize, len: usize, blocks: &mut Vec<Block>) {
        let (mut at, end) = (from, from + len);
        while at < end {
            let now = (8 - at % 8).min(end - at);
            blocks.push(Block { base: self.base.cast::<u8>().wrapping_add(at / 8 * 24 + at % 8), len: now });
            at += now;
        }
    }
}

/// A buffer of a call: the content of its blocks, and the memory.
pub(crate) struct Data {
    sizes: Vec<u64>,
    placing: Placing,
    memory: Vec<u64>,
}

impl Data {
    fn new(sizes: Vec<u64>, placing: Placing, content: impl Fn(usize, u64) -> u64) -> Self {
        let total: u64 = sizes.iter().sum();
        let room = match placing {
            Placing::Contiguous => total,
            Placing::Displaced => total + 3 * sizes.len() as u64,
            Placing::Gaps => 3 * total,
        };
        let mut data = Self { sizes, placing, memory: vec![OUTSIDE; room as usize] };
        let places: Vec<(usize, usize, u64)> = data.places().collect();
        places.into_iter().for_each(|(at, block, i)| data.memory[at] = content(block, i));
        data
    }

    /// First elements of the blocks.
    fn starts(&self) -> Vec<usize> {
        let n = self.sizes.len();
        (0..n)
            .map(|b| match self.placing {
                Placing::Displaced => self.sizes[b + 1..].iter().map(|s| *s as usize + 3).sum(),
                _ => self.sizes[..b].iter().map(|s| *s as usize).sum(),
            })
            .collect()
    }

    /// Index in memory, block, and index in the block of every element.
    fn places(&self) -> impl Iterator<Item = (usize, usize, u64)> + use<> {
        let stride = if self.placing == Placing::Gaps { 3 } else { 1 };
        let sizes = self.sizes.clone();
        self.starts()
            .into_iter()
            .enumerate()
            .flat_map(move |(b, start)| (0..sizes[b]).map(move |i| (stride * (start + i as usize), b, i)))
    }

    fn memory(&mut self) -> Memory {
        let base = self.memory.as_mut_ptr();
        match self.placing {
            Placing::Contiguous => Memory::Contiguous(base.cast()),
            Placing::Displaced => Memory::Displaced(base.cast(), self.starts().iter().map(|s| *s as isize).collect()),
            Placing::Gaps => {
                Memory::Layout(Rc::new(Strided { base, elements: self.sizes.iter().sum::<u64>() as usize }))
            }
        }
    }

    /// Compares the memory with the expected content.
    fn assert(&self, what: &str, content: impl Fn(usize, u64) -> u64) {
        let mut want = vec![OUTSIDE; self.memory.len()];
        self.places().for_each(|(at, block, i)| want[at] = content(block, i));
        assert!(self.memory == want, "{what}: {:x?} instead of {want:x?}", self.memory);
    }
}

/// A graph with double edges and self-loops: destinations and sources of each rank.
pub(crate) fn graph(p: usize) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
    let destinations: Vec<Vec<u32>> = (0..p)
        .map(|r| [(r + 1) % p, (r * r + 2) % p, (r + p - 1) % p, r][r % 3..].iter().map(|d| *d as u32).collect())
        .collect();
    let sources = (0..p)
        .map(|r| {
            (0..p)
                .flat_map(|s| destinations[s].iter().filter(move |d| **d as usize == r).map(move |_| s as u32))
                .collect()
        })
        .collect();
    (destinations, sources)
}

/// The parameters of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub operation: Operation,
    pub algorithm: Option<&'static Algorithm>,
    pub root: usize,
    /// The number of elements of a vector or a block.
    pub elements: u64,
    /// Whether blocks have different sizes, some of them zero.
    pub irregular: bool,
    pub in_place: bool,
    pub commutative: bool,
    pub placing: Placing,
}

impl Case {
    pub(crate) fn new(operation: Operation) -> Self {
        let (algorithm, placing) = (None, Placing::Contiguous);
        Self {
            operation,
            algorithm,
            root: 0,
            elements: 5,
            irregular: false,
            in_place: false,
            commutative: false,
            placing,
        }
    }

    /// Elements of the block from one rank to another, or of the block of a rank.
    fn size(&self, from: usize, to: usize) -> u64 {
        match self.irregular {
            false => self.elements,
            true if (from + 2 * to) % 3 == 1 => 0,
            true => self.elements + (3 * from + 5 * to) as u64 % 4,
        }
    }
}

/// A call with its buffers.
pub(crate) struct Made {
    case: Case,
    what: String,
    rank: usize,
    size: usize,
    sizes: Vec<u64>,
    input: Data,
    output: Data,
    sources: Vec<u32>,
    destinations: Vec<u32>,
    /// For each edge to this rank: its index among the edges from the same source.
    edges: Vec<usize>,
}

impl Made {
    pub(crate) fn new(team: &Team, case: Case) -> Self {
        use Operation as O;
        let (p, me, root) = (team.size(), team.rank(), case.root);
        let is_root = me == root;
        let (destinations, sources) = graph(p);
        let edges = (0..sources[me].len())
            .map(|edge| {
                let source = sources[me][edge];
                let before = sources[me][..edge].iter().filter(|s| **s == source).count();
                let places = destinations[source as usize].iter().enumerate().filter(|(_, d)| **d as usize == me);
                places.map(|(place, _)| place).nth(before).unwrap()
            })
            .collect();
        let own = |of: usize| case.size(of, of);
        let all = || (0..p).map(own).collect::<Vec<_>>();
        let none = Vec::new;
        let vector = || vec![case.elements];
        let (sources, destinations) = (sources[me].clone(), destinations[me].clone());
        let (input, output, sizes) = match case.operation {
            O::Barrier => (none(), none(), none()),
            O::Broadcast => (none(), vector(), none()),
            O::Scatter => (if is_root { all() } else { none() }, vec![own(me)], all()),
            O::Gather => (vec![own(me)], if is_root { all() } else { none() }, all()),
            O::Allgather => (vec![own(me)], all(), all()),
            O::Alltoall => {
                let to: Vec<u64> = (0..p).map(|to| case.size(me, to)).collect();
                let from: Vec<u64> = (0..p).map(|from| case.size(from, me)).collect();
                (to.clone(), from.clone(), [to, from].concat())
            }
            O::Reduce => (vector(), if is_root { vector() } else { none() }, none()),
            O::Allreduce | O::Scan | O::Exscan => (vector(), vector(), none()),
            O::ReduceScatter => (all(), vec![own(me)], all()),
            O::NeighborAllgather => {
                let from: Vec<u64> = sources.iter().map(|s| own(*s as usize)).collect();
                (vec![own(me)], from.clone(), [vec![own(me)], from].concat())
            }
            O::NeighborAlltoall => {
                let to: Vec<u64> = destinations.iter().map(|d| case.size(me, *d as usize)).collect();
                let from: Vec<u64> = sources.iter().map(|s| case.size(*s as usize, me)).collect();
                (to.clone(), from.clone(), [to, from].concat())
            }
        };
        let placing = |data: &Vec<u64>| {
            // A single vector has no displacements.
            let plain = case.placing == Placing::Displaced && data.len() < 2;
            if plain { Placing::Contiguous } else { case.placing }
        };
        let (of_input, of_output) = (placing(&input), placing(&output));
        let mut made = Self {
            case,
            what: format!("{case:?}, rank {me} of {p}"),
            rank: me,
            size: p,
            sizes,
            input: Data::new(input, of_input, |_, _| 0),
            output: Data::new(output, of_output, |_, _| 0),
            sources,
            destinations,
            edges,
        };
        made.fill();
        made
    }

    fn contribution(&self, rank: usize, block: usize, i: u64) -> u64 {
        match self.case.operation {
            Operation::Alltoall | Operation::Scatter | Operation::ReduceScatter | Operation::NeighborAlltoall => {
                value(rank, block, i)
            }
            _ => value(rank, 0, i),
        }
    }

    /// Fills the input, and the output: with the data of an in-place call, otherwise with values that are not in the
    /// result. Addresses do not change.
    pub(crate) fn fill(&mut self) {
        use Operation as O;
        let (case, me) = (self.case, self.rank);
        let input = |block: usize, i: u64| self.contribution(me, block, i);
        let new_input = Data::new(self.input.sizes.clone(), self.input.placing, input);
        let output = |block: usize, i: u64| match case.operation {
            O::Broadcast if me == case.root => value(me, 0, i),
            O::Gather | O::Allgather if case.in_place && block == me => value(me, 0, i),
            O::Reduce | O::Allreduce | O::Scan | O::Exscan if case.in_place => value(me, 0, i),
            _ => 1 + i,
        };
        let new_output = Data::new(self.output.sizes.clone(), self.output.placing, output);
        self.input.memory.copy_from_slice(&new_input.memory);
        self.output.memory.copy_from_slice(&new_output.memory);
    }

    /// Calls `f` with the arguments.
    pub(crate) fn with<R>(&mut self, parameters: &[u32], f: impl FnOnce(&Arguments<'_>) -> R) -> R {
        let case = self.case;
        let is_root = self.rank == case.root;
        let at_root_only = matches!(case.operation, Operation::Gather | Operation::Reduce);
        let no_input = case.in_place
            && (!at_root_only || is_root)
            && !matches!(case.operation, Operation::Scatter | Operation::Broadcast);
        let no_output = case.in_place && case.operation == Operation::Scatter && is_root;
        let reduction = case
            .operation
            .is_reduction()
            .then(|| if case.commutative { reduction(&ADD, true) } else { reduction(&COMPOSE, false) });
        let shape = match (case.operation.is_of_a_vector(), case.irregular) {
            (true, _) => Shape::Vector(case.elements),
            (false, true) => Shape::Each(self.sizes[..].into()),
            (false, false) => Shape::Equal(if case.operation == Operation::Barrier { 0 } else { case.elements }),
        };
        f(&Arguments {
            root: case.root,
            shape,
            element: 8,
            input: if no_input { Memory::None } else { self.input.memory() },
            output: if no_output { Memory::None } else { self.output.memory() },
            in_place: case.in_place,
            reduction,
            neighbors: Neighbors { sources: &self.sources, destinations: &self.destinations },
            algorithm: case.algorithm.map(|a| (a, parameters)),
            ..Arguments::new(case.operation)
        })
    }

    /// Starts the call.
    pub(crate) fn start(&mut self, team: &Team, parameters: &[u32]) -> Result<Prepared> {
        // SAFETY: tests keep the buffers until the call has ended.
        self.with(parameters, |arguments| unsafe { Prepared::started(team, arguments) })
    }

    /// Makes the call, and waits for it.
    pub(crate) fn run(&mut self, team: &Team, parameters: &[u32]) -> Result<()> {
        // SAFETY: the buffers outlive the call.
        self.with(parameters, |arguments| unsafe { execute::run(team, arguments) })
    }

    /// Checks that the output is as expected, and that the input and all memory between blocks are unchanged.
    pub(crate) fn assert(&self) {
        use Operation as O;
        let (case, me, p) = (self.case, self.rank, self.size);
        let f = if case.commutative { add } else { compose };
        let fold = |ranks: std::ops::Range<usize>, block: usize, i: u64| {
            ranks.map(|r| self.contribution(r, block, i)).reduce(f).unwrap()
        };
        self.input.assert(&format!("input of {}", self.what), |block, i| self.contribution(me, block, i));
        if case.in_place && case.operation == O::Scatter && me == case.root {
            return;
        }
        self.output.assert(&self.what, |block, i| match case.operation {
            O::Barrier => unreachable!(),
            O::Broadcast => value(case.root, 0, i),
            O::Scatter => value(case.root, me, i),
            O::Gather | O::Allgather => value(block, 0, i),
            O::Alltoall => value(block, me, i),
            O::Reduce | O::Allreduce => fold(0..p, 0, i),
            O::ReduceScatter => fold(0..p, me, i),
            O::Scan => fold(0..me + 1, 0, i),
            O::Exscan if me > 0 => fold(0..me, 0, i),
            O::Exscan if case.in_place => value(me, 0, i),
            O::Exscan => 1 + i,
            O::NeighborAllgather => value(self.sources[block] as usize, 0, i),
            O::NeighborAlltoall => value(self.sources[block] as usize, self.edges[block], i),
        });
    }
}
