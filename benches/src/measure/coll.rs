//! Suite "coll": collectives of the team on doubles, called as a program calls them, alternating between the
//! algorithms. An iteration is one call; rooted operations change the root to the next rank in each call, so that no
//! rank runs ahead.

use farside_core::coll::operation::{Neighbors, Operation};
use farside_core::coll::selection::Choice;
use farside_core::error::Result;
use farside_core::{Error, ErrorKind, Team};
use farside_rma::Collectives;
use farside_rma::Op as Reduction;
use farside_rma::collectives::call;

use super::turns::Way;
use super::{Bench, Method};
use crate::coll::{Case, ELEMENT, operation};
use crate::plan::Plan;
use crate::record::{Library, Op, Suite, Sync, Window};

pub(super) fn run(bench: &Bench<'_>, plan: &Plan) -> Result<()> {
    let algorithms = &plan.algorithms[..];
    for op in &plan.operations {
        match operation(*op) {
            Some(Operation::Barrier) => measure(bench, *op, Operation::Barrier, 0, algorithms)?,
            Some(operation) => {
                plan.sizes.iter().try_for_each(|bytes| measure(bench, *op, operation, *bytes, algorithms))?;
            }
            None if *op == Op::Pingpong => ping_pong(bench, &plan.sizes)?,
            None => {
                let e = Error::new(ErrorKind::BadArgument, "measure collectives");
                return Err(e.cause(format!("{op} is not a collective")));
            }
        }
    }
    Ok(())
}

/// The number of calls in which up to ten algorithms are tried for a class of calls.
const SETTLED_CALLS: u64 = 256;

/// The buffers of a rank: blocks of `count` doubles, one for each rank.
struct Buffers {
    team: Team,
    operation: Operation,
    count: usize,
    ring: [u32; 2],
    from: Vec<f64>,
    into: Vec<f64>,
    /// The next root.
    root: usize,
}

impl Buffers {
    fn new(team: &Team, operation: Operation, bytes: u64) -> Self {
        let (p, me, count) = (team.size() as u32, team.rank() as u32, (bytes / ELEMENT) as usize);
        let ring = [(me + p - 1) % p, (me + 1) % p];
        let (from, into) = (vec![0.0; count * team.size()], vec![0.0; count * team.size()]);
        Self { team: team.clone(), operation, count, ring, from, into, root: 0 }
    }

    /// One call.
    fn call(&mut self, choice: Option<&Choice>) -> Result<()> {
        use Operation as O;
        let Self { team, operation, count, ring, from, into, root } = self;
        let (n, p) = (*count, team.size());
        let graph = Neighbors { sources: ring, destinations: ring };
        let both = 2 * n;
        let now = *root;
        *root = (now + 1) % p;
        macro_rules! make {
            ($call:expr) => {
                match choice {
                    Some(choice) => team.make($call.by(choice)),
                    None => team.make($call),
                }
            };
        }
        match operation {
            O::Barrier if choice.is_none() => team.barrier(),
            O::Barrier => make!(call::barrier()),
            O::Broadcast => make!(call::broadcast(&mut into[..n], now)),
            O::Scatter => make!(call::scatter(from, &mut into[..n], now)),
            O::Gather => make!(call::gather(&from[..n], into, now)),
            O::Allgather => make!(call::allgather(&from[..n], into)),
            O::Alltoall => make!(call::alltoall(from, into)),
            O::Reduce => make!(call::reduce(&mut into[..n], Reduction::Sum, now)),
            O::Allreduce => make!(call::allreduce(&mut into[..n], Reduction::Sum)),
            O::ReduceScatter => make!(call::reduce_scatter(from, &mut into[..n], Reduction::Sum)),
            O::Scan => make!(call::scan(&mut into[..n], Reduction::Sum)),
            O::Exscan => make!(call::exscan(&mut into[..n], Reduction::Sum)),
            O::NeighborAllgather => {
                make!(call::neighbor_allgather(&from[..n], &mut into[..both], graph))
            }
            O::NeighborAlltoall => {
                make!(call::neighbor_alltoall(&from[..both], &mut into[..both], n, graph))
            }
        }
    }

    /// Double `index` of the input of rank `rank`. Sums of these are exact.
    fn value(rank: usize, index: usize) -> f64 {
        (rank * 7 + index % 1009 + 1) as f64
    }

    /// The first doubles of the expected output of one call with root `root`; `None` if the output is not written.
    fn expected(&self, root: usize) -> Vec<f64> {
        use Operation as O;
        let (n, p, me) = (self.count, self.team.size(), self.team.rank());
        let value = Self::value;
        let block = |rank: usize, first: usize| (first..first + n).map(move |i| value(rank, i));
        let sum = |ranks: std::ops::Range<usize>, first: usize| {
            (first..first + n).map(move |i| ranks.clone().map(|rank| value(rank, i)).sum()).collect()
        };
        let [left, right] = self.ring.map(|rank| rank as usize);
        match self.operation {
            O::Barrier => Vec::new(),
            O::Broadcast => block(root, 0).collect(),
            O::Scatter => block(root, me * n).collect(),
            O::Gather | O::Reduce if me != root => Vec::new(),
            O::Gather | O::Allgather => (0..p).flat_map(|rank| block(rank, 0)).collect(),
            O::Alltoall => (0..p).flat_map(|rank| block(rank, me * n)).collect(),
            O::Reduce | O::Allreduce => sum(0..p, 0),
            O::ReduceScatter => sum(0..p, me * n),
            O::Scan => sum(0..me + 1, 0),
            O::Exscan if me == 0 => block(0, 0).collect(),
            O::Exscan => sum(0..me, 0),
            O::NeighborAllgather => block(left, 0).chain(block(right, 0)).collect(),
            // The first destination of a rank is its predecessor, whose second source it is.
            O::NeighborAlltoall if p == 2 => block(left, 0).chain(block(right, n)).collect(),
            O::NeighborAlltoall => block(left, n).chain(block(right, 0)).collect(),
        }
    }

    /// Makes one call on known data with root 0 and one with the last rank as root; returns whether the results are
    /// correct.
    fn is_right(&mut self, choice: Option<&Choice>) -> Result<bool> {
        let me = self.team.rank();
        let mut right = true;
        for root in [0, self.team.size() - 1] {
            self.root = root;
            for (index, (from, into)) in self.from.iter_mut().zip(&mut self.into).enumerate() {
                let is_input = self.operation.is_of_a_vector()
                    && (!self.operation.is_rooted() || self.operation == Operation::Reduce || me == root);
                *from = Self::value(me, index);
                *into = if is_input { *from } else { -1.0 };
            }
            self.call(choice)?;
            right &= self.into.starts_with(&self.expected(root));
        }
        // The data are zeros, so that repeated sums do not change.
        self.from.fill(0.0);
        self.into.fill(0.0);
        self.root = 0;
        self.team.barrier()?;
        Ok(right)
    }
}

fn measure(bench: &Bench<'_>, op: Op, operation: Operation, bytes: u64, algorithms: &[String]) -> Result<()> {
    let key = bench.key(Suite::Coll, Window::None, Sync::None, op, bytes as usize);
    let choices = Case::new(operation, bench.ranks as u32, bytes).between_nodes(!bench.team.is_on_one_node());
    let choices = choices.choices(algorithms);
    let mut ways = vec![None];
    ways.extend(choices.iter().map(Some));
    let mut buffers = Buffers::new(&bench.team, operation, bytes);
    for choice in &ways {
        let right = buffers.is_right(*choice)?;
        let by = choice.map_or_else(|| "the selection".to_owned(), ToString::to_string);
        bench.check(right, key, &format!("{bytes} bytes by {by}"))?;
    }
    // Only one measured function uses the buffers at a time.
    let buffers = std::cell::RefCell::new(buffers);
    let run = |choice: Option<&Choice>, iterations: u64| {
        let mut buffers = buffers.borrow_mut();
        (0..iterations).try_for_each(|_| buffers.call(choice))
    };
    run(None, if bench.budget.method == Method::Virtual { 1 } else { SETTLED_CALLS })?;
    let mut runs: Vec<_> = ways.iter().map(|choice| move |iterations| run(*choice, iterations)).collect();
    let mut turns: Vec<Way<'_>> = Vec::new();
    for (choice, run) in ways.iter().zip(&mut runs) {
        let way = Way::of(Library::Farside, run);
        turns.push(match choice {
            Some(choice) => way.by(choice.to_string()),
            None => way,
        });
    }
    bench.time_alternating(key, true, &mut turns).map(|_| ())
}

/// Round trips between the first two ranks, in which each message is a broadcast over two ranks.
fn ping_pong(bench: &Bench<'_>, sizes: &[u64]) -> Result<()> {
    let pair = bench.team.subteam(&[0, 1])?;
    let message = Choice::parse(Operation::Broadcast, "flat")
        .map_err(|cause| Error::new(ErrorKind::BadArgument, "measure messages").cause(cause))?;
    for bytes in sizes {
        let key = bench.key(Suite::Coll, Window::None, Sync::None, Op::Pingpong, *bytes as usize);
        let mut buffers = pair.as_ref().map(|pair| Buffers::new(pair, Operation::Broadcast, *bytes));
        bench.time_single(key, 1, true, &mut |iterations| {
            let Some(buffers) = &mut buffers else { return Ok(()) };
            (0..2 * iterations).try_for_each(|_| buffers.call(Some(&message)))
        })?;
    }
    Ok(())
}
