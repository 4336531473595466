#![allow(unsafe_code)]
//! Collective calls as they are passed to the core, with the local work before their start and after their end.

use std::ffi::c_int;
use std::rc::Rc;

use farside_core::coll::execute::{Arguments, CallMode, Memory, Prepared, Shape, fail_everywhere};
use farside_core::coll::operation::{Neighbors, Operation};
use farside_core::{Error, ErrorKind, Team};
use farside_datatype::Private;

use super::buffer::{Segments, Sizes, Step};
use super::key::Key;
use super::reduction::{Operand, scratch};
use crate::constants::*;
use crate::fail::{Fail, Result, fail};
use crate::handle::Comm;
use crate::objects::CommObject;
use crate::operands::Address;
use crate::runtime::Call;

/// The ranks of the team that this rank receives from and sends to.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub sources: Vec<u32>,
    pub destinations: Vec<u32>,
}

impl Graph {
    fn neighbors(&self) -> Neighbors<'_> {
        Neighbors { sources: &self.sources, destinations: &self.destinations }
    }
}

/// The role of this rank in a rooted operation.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// The root's rank in the team.
    root: usize,
    pub is_root: bool,
    /// Whether the root exchanges data with this rank. The root of an intracommunicator exchanges data with all ranks
    /// including itself.
    pub is_served: bool,
}

/// The rank that calls a collective, on its communicator.
pub struct Caller<'a> {
    pub call: &'a Call<'a>,
    pub handle: Comm,
    pub comm: Rc<CommObject>,
    pub mode: CallMode,
    pub key: Option<Key>,
}

impl<'a> Caller<'a> {
    /// The caller of a blocking call.
    pub fn new(call: &'a Call<'a>, comm: Comm) -> Result<Self> {
        Ok(Self { call, handle: comm, comm: call.comms.get(comm)?, mode: CallMode::Blocking, key: None })
    }

    /// Prepares a collective. If this rank cannot allocate its memory, the call fails at the other ranks too; a call
    /// with invalid arguments has not been made.
    pub fn prepared<R>(&self, f: impl FnOnce() -> Result<R>) -> Result<R> {
        f().map_err(|failed| if failed.code == MPI_ERR_NO_MEM { self.fail_everywhere(failed) } else { failed })
    }

    /// Makes a collective that this rank cannot make fail at the other ranks too.
    pub fn fail_everywhere(&self, failed: Fail) -> Fail {
        fail_at_peers(self.call, &self.comm.team, failed)
    }

    pub fn is_inter(&self) -> bool {
        self.comm.remote.is_some()
    }

    /// The number of ranks with which blocks are exchanged: on an intercommunicator, the size of the remote group.
    pub fn peers(&self) -> usize {
        self.comm.peers.members.len()
    }

    pub fn local_size(&self) -> usize {
        self.comm.group.members.len()
    }

    pub fn role(&self, root: c_int) -> Result<Role> {
        let found = usize::try_from(root).ok().filter(|root| *root < self.peers());
        let me = self.comm.team.rank();
        Ok(match (self.is_inter(), root, found) {
            (true, MPI_ROOT, _) => Role { root: me, is_root: true, is_served: false },
            (true, MPI_PROC_NULL, _) => Role { root: 0, is_root: false, is_served: false },
            (_, _, Some(root)) => {
                let root = self.comm.team_rank(root);
                Role { root, is_root: root == me, is_served: true }
            }
            (inter, _, None) => {
                let of = if inter { "the remote group" } else { "the communicator" };
                return Err(fail(MPI_ERR_ROOT, format!("is {root}, but {of} has {} ranks", self.peers())).named("root"));
            }
        })
    }

    /// The edges of an operation on an intercommunicator. If `to_root`, blocks go to the root, else from it.
    fn remote_graph(&self, role: Option<Role>, to_root: bool) -> Graph {
        let all = || (0..self.peers()).map(|rank| self.comm.team_rank(rank) as u32).collect();
        let ranks = |role: Role| match (role.is_root, role.is_served) {
            (true, _) => all(),
            (_, true) => vec![role.root as u32],
            _ => Vec::new(),
        };
        match role {
            None => Graph { sources: all(), destinations: all() },
            Some(role) if role.is_root == to_root => Graph { sources: ranks(role), destinations: Vec::new() },
            Some(role) => Graph { sources: Vec::new(), destinations: ranks(role) },
        }
    }

    /// Prepares a call with local work before its start and after its end. Calls without local work are cached by the
    /// team under their key.
    fn prepare(&self, arguments: Arguments<'_>, before: Vec<Step>, after: Vec<Step>) -> Result<Plan> {
        let key = self.key.filter(|_| before.is_empty() && after.is_empty()).and_then(|key| key.cacheable());
        let plan = Plan::new(&self.comm.team, &Arguments { key, ..arguments }, self.mode)?;
        Ok(Plan { before, after, ..plan })
    }

    pub fn barrier(&self) -> Result<Plan> {
        self.prepare(Arguments::new(Operation::Barrier), Vec::new(), Vec::new())
    }

    /// An exchange with neighbours: one block for all destinations, or one for each.
    pub fn exchange(&self, graph: &Graph, for_each: bool, send: &Segments, recv: &Segments) -> Result<Plan> {
        self.prepare(exchange(graph, for_each, send, recv)?, Vec::new(), Vec::new())
    }

    /// A broadcast, scatter, gather, allgather or alltoall. A buffer is `None` if the rank does not use it, or if both
    /// are one buffer. `sizes_known`: in a scatter or gather, every rank has the sizes of all blocks.
    pub fn transfer(
        &self,
        operation: Operation,
        role: Option<Role>,
        sizes_known: bool,
        send: Option<Segments>,
        recv: Option<Segments>,
    ) -> Result<Plan> {
        use Operation as O;
        if self.is_inter() {
            let for_each = matches!(operation, O::Scatter | O::Alltoall);
            let graph = self.remote_graph(role, operation == O::Gather);
            let inputs = if for_each { graph.destinations.len() } else { 1 };
            let [send, recv] = [(send, inputs), (recv, 0)].map(|(of, n)| of.unwrap_or_else(|| Segments::none(n)));
            let arguments = exchange(&graph, for_each, &send, &recv)?;
            return self.prepare(on_intercomm(operation, role, arguments), Vec::new(), Vec::new());
        }
        let me = self.comm.rank;
        let is_root = role.is_some_and(|role| role.is_root);
        let (mut send, mut recv) = (send, recv);
        let mut before: Vec<Step> = Vec::new();
        if let (Some(from), Some(into)) = (&send, &recv) {
            from.check_apart(into)?;
            let at = |many: bool| if many { me } else { 0 };
            let from_block = at(matches!(operation, O::Scatter | O::Alltoall));
            let into_block = at(operation != O::Scatter);
            let (sent, received) = (from.sizes.of(from_block), into.sizes.of(into_block));
            if sent > received {
                let text =
                    format!("describes {sent} bytes that this rank sends to itself, but it receives only {received}");
                return Err(fail(MPI_ERR_TRUNCATE, text).named(from.address.count()));
            }
            // The signatures must match, but other libraries accept a block that is shorter than its receive buffer,
            // which `mpi-compat/verify` reports. This rank's own block is copied, and the call is made in place.
            if sent < received && operation != O::Alltoall {
                before.push(copy_of_block((from, from_block), (into, into_block))?);
                *(if operation == O::Scatter { &mut recv } else { &mut send }) = None;
            }
        }
        let in_place = matches!(operation, O::Allgather | O::Gather | O::Scatter) && (send.is_none() || recv.is_none());
        let in_place = in_place && (is_root || operation == O::Allgather);
        if operation == O::Alltoall
            && send.is_none()
            && let Some(recv) = &recv
        {
            let (copied, step) = copy_of(recv)?;
            before.push(step);
            send = Some(copied);
        }
        let sizes = |buffer: &Option<Segments>| buffer.as_ref().map(|buffer| buffer.sizes.clone());
        let shape = match (operation, sizes(&send), sizes(&recv)) {
            (O::Broadcast, _, Some(sizes)) => Shape::Vector(sizes.of(0)),
            (O::Alltoall, Some(Sizes::Equal(n, _)), Some(Sizes::Equal(m, _))) if n == m => Shape::Equal(n),
            (O::Alltoall, Some(send), Some(recv)) => Shape::Each([send.each(), recv.each()].concat().into()),
            (O::Scatter, Some(sizes), _) if is_root => sizes.shape(),
            (O::Gather, _, Some(sizes)) if is_root => sizes.shape(),
            (O::Scatter, _, Some(own)) | (O::Gather, Some(own), _) if sizes_known => Shape::Equal(own.of(0)),
            (O::Scatter, _, Some(own)) | (O::Gather, Some(own), _) => Shape::Own(own.of(0)),
            (_, _, Some(sizes)) => sizes.shape(),
            _ => Shape::Equal(0),
        };
        let memory = |buffer: &Option<Segments>| buffer.as_ref().map_or(Memory::None, Segments::memory);
        let (input, output) = (memory(&send), memory(&recv));
        let root = role.map_or(0, |role| role.root);
        let arguments = Arguments { root, sizes_known, input, output, in_place, ..of_bytes(operation, shape) };
        self.prepare(arguments, before, Vec::new())
    }

    /// A reduction of vectors; a reduce-scatter returns blocks of `sizes` elements.
    pub fn reduce(
        &self,
        operation: Operation,
        role: Option<Role>,
        operand: Rc<Operand>,
        send: Address,
        recv: Address,
        sizes: Sizes,
    ) -> Result<Plan> {
        use Operation as O;
        let me = self.comm.rank;
        let blocks = sizes.each();
        let total = blocks.iter().try_fold(0u64, |sum, n| sum.checked_add(*n)).unwrap_or(u64::MAX);
        let before_mine: u64 = blocks.iter().take(me).sum();
        let kept = if operation == O::ReduceScatter { sizes.of(me) } else { total };
        // Rank 0 of an exclusive scan has no result, so its receive buffer is not significant unless it is the input.
        let has_result = operation != O::Exscan || me > 0 || send.is_in_place();
        let receives = has_result && role.is_none_or(|role| role.is_root);
        let sends = role.is_none_or(|role| role.is_served);
        let in_place = !self.is_inter() && receives && send.is_in_place();
        let (source, whole) = if in_place { (recv, operation != O::ReduceScatter) } else { (send, false) };
        let output = if receives { Some(operand.elements(recv, kept)?) } else { None };
        // Elements that are reduced in place are copied to the address of the result.
        let input = if sends && !whole { Some(operand.elements(source, total)?) } else { None };
        if let (Some(_), Some(_), false) = (&input, &output, in_place) {
            operand.check_apart(send, total, recv, kept)?;
        }
        let contiguous = |address: Option<*mut u8>| address.map_or(Memory::None, Memory::Contiguous);
        let graph = if self.is_inter() { self.remote_graph(role, true) } else { Graph::default() };
        let mut arguments = Arguments {
            element: operand.stride,
            input: contiguous(input.as_ref().map(|input| input.address)),
            output: contiguous(output.as_ref().map(|output| output.address)),
            may_be_shorter: !self.is_inter(), // The vectors are combined element by element.
            ..Arguments::new(operation)
        };
        let mut finish: Vec<Step> = Vec::new();
        if self.is_inter() {
            let vectors = graph.sources.len();
            let (memory, address) = scratch(operand.bytes(total.saturating_mul(vectors as u64))?)?;
            let sent = u64::from(sends) * total;
            arguments = Arguments {
                operation: O::NeighborAllgather,
                shape: Shape::Each([vec![sent], vec![total; vectors]].concat().into()),
                output: contiguous((vectors > 0).then_some(address)),
                neighbors: graph.neighbors(),
                ..on_intercomm(operation, role, arguments)
            };
            if let Some(output) = output.as_ref().filter(|_| vectors > 0) {
                let (operand, to, stride) = (Rc::clone(&operand), output.address.addr(), operand.stride);
                let (total, at, kept) = (total as usize, before_mine as usize, kept as usize);
                let at = if operation == O::ReduceScatter { at } else { 0 };
                finish.push(Box::new(move || {
                    let _memory = &memory;
                    // SAFETY: the memory has the vectors of all sources; the output, which does not overlap it, has
                    // room for this rank's elements of the result.
                    unsafe {
                        operand.fold(address, vectors, total);
                        let result = address.wrapping_add(((vectors - 1) * total + at) * stride);
                        std::ptr::copy_nonoverlapping(result, to as *mut u8, kept * stride);
                    }
                }));
            }
        } else {
            arguments = Arguments {
                root: role.map_or(0, |role| role.root),
                shape: if operation == O::ReduceScatter { sizes.shape() } else { Shape::Vector(total) },
                in_place: whole,
                reduction: Some(operand.reduction()),
                owner: Some(Rc::<Operand>::clone(&operand)),
                ..arguments
            };
            if in_place
                && !whole
                && let (Some(input), Some(output)) = (&input, &output)
                && input.address == output.address
            {
                // The input is still read after the first result has been written.
                let bytes = operand.bytes(kept)?;
                let (memory, address) = scratch(bytes)?;
                arguments.output = contiguous(Some(address));
                let to = output.address.addr();
                finish.push(Box::new(move || {
                    let _memory = &memory;
                    // SAFETY: both have the bytes of the result; the program guarantees its buffer.
                    unsafe { std::ptr::copy_nonoverlapping(address, to as *mut u8, bytes as usize) };
                }));
            }
        }
        let written = operation != O::Exscan || me > 0;
        if whole {
            arguments.input = Memory::None;
        }
        let (mut before, mut after) = (None, None);
        if let Some(output) = output {
            before = output.before.filter(|_| whole);
            after = output.after.filter(|_| written);
        }
        let before = before.or(input.and_then(|input| input.before)).into_iter().collect();
        self.prepare(arguments, before, finish.into_iter().chain(after).collect())
    }
}

/// Arguments of an operation on bytes, in which a message may be shorter than the block that receives it.
pub fn of_bytes<'a>(operation: Operation, shape: Shape<'a>) -> Arguments<'a> {
    Arguments { shape, may_be_shorter: true, ..Arguments::new(operation) }
}

/// The arguments of an operation on an intercommunicator, which is implemented as a neighbourhood collective.
fn on_intercomm<'a>(operation: Operation, role: Option<Role>, arguments: Arguments<'a>) -> Arguments<'a> {
    Arguments { root: role.map_or(0, |role| role.root), purpose: operation.name(), ..arguments }
}

/// The arguments of an exchange with neighbours: one block for all destinations, or one for each.
fn exchange<'g>(graph: &'g Graph, for_each: bool, send: &Segments, recv: &Segments) -> Result<Arguments<'g>> {
    let operation = if for_each { Operation::NeighborAlltoall } else { Operation::NeighborAllgather };
    send.check_apart(recv)?;
    let shape = match (&send.sizes, &recv.sizes) {
        // Empty blocks are not merged: a neighbour with separate blocks sends and expects no message for an empty one.
        (Sizes::Equal(n, _), Sizes::Equal(m, _)) if n == m && *n > 0 => Shape::Equal(*n),
        _ => Shape::Each([send.sizes.each(), recv.sizes.each()].concat().into()),
    };
    let (input, output, neighbors) = (send.memory(), recv.memory(), graph.neighbors());
    Ok(Arguments { input, output, neighbors, ..of_bytes(operation, shape) })
}

/// Makes a collective call that this rank cannot make fail at the other ranks of the team too.
#[cold]
pub fn fail_at_peers(call: &Call<'_>, team: &Team, failed: Fail) -> Fail {
    if failed.is_announced {
        return failed;
    }
    let argument = failed.argument.map(|name| format!("{name} ")).unwrap_or_default();
    let kind = if failed.code == MPI_ERR_NO_MEM { ErrorKind::Limit } else { ErrorKind::Aborted };
    let e = Error::new(kind, call.name).rank(team.job().rank());
    fail_everywhere(team, e.cause(format!("{argument}{}", failed.text)));
    failed
}

/// A packed copy of segments, and the step that fills it.
fn copy_of(segments: &Segments) -> Result<(Segments, Step)> {
    let (memory, address) = scratch(segments.map.size())?;
    let (map, from) = (segments.map.clone(), segments.address.at().addr());
    let step = Box::new(move || {
        let _memory = &memory;
        // SAFETY: the program guarantees its buffer; the memory has room for the packed bytes.
        unsafe { map.pack_raw::<Private>(from as *const u8, 0, address, map.size() as usize) };
    });
    Ok((Segments::bytes(address, segments.sizes.clone()), step))
}

/// The step that copies a block to the start of another block, which is not shorter.
fn copy_of_block((from, sent): (&Segments, usize), (into, received): (&Segments, usize)) -> Result<Step> {
    let start = |segments: &Segments, block: usize| (0..block).map(|block| segments.sizes.of(block)).sum::<u64>();
    let (skip, at, bytes) = (start(from, sent), start(into, received), from.sizes.of(sent) as usize);
    let ((memory, packed), [source, target]) = (scratch(bytes as u64)?, [from, into].map(|of| of.map.clone()));
    let [buffer, place] = [from, into].map(|of| of.address.at().addr());
    Ok(Box::new(move || {
        let _memory = &memory;
        // SAFETY: the program guarantees its buffers; the memory has room for the packed bytes.
        unsafe {
            source.pack_raw::<Private>(buffer as *const u8, skip, packed, bytes);
            target.unpack_raw::<Private>(packed, at, place as *mut u8, bytes);
        }
    }))
}

/// A prepared call, and its local work, which owns the memory that the call uses.
pub struct Plan {
    pub call: Prepared,
    before: Vec<Step>,
    after: Vec<Step>,
}

impl Plan {
    /// A call without local work, on memory of the caller.
    pub fn new(team: &Team, arguments: &Arguments<'_>, mode: CallMode) -> Result<Self> {
        let call = Prepared::new(team, arguments, mode).map_err(|e| {
            let mut failed = Fail::from(e);
            failed.is_announced = true;
            failed
        })?;
        Ok(Self { call, before: Vec::new(), after: Vec::new() })
    }

    /// Starts the call, which may be persistent. The plan must live until the call has ended.
    pub fn start(&self) -> Result {
        self.before.iter().for_each(|step| step());
        // SAFETY: the program guarantees its buffers until the call has ended; the plan owns the other memory.
        Ok(unsafe { self.call.start() }?)
    }

    /// Executes the local work after a successful call.
    pub fn finish(&self) {
        self.after.iter().for_each(|step| step());
    }

    /// Makes a blocking call.
    pub fn make(&self, call: &Call<'_>) -> Result {
        self.before.iter().for_each(|step| step());
        run(call, &self.call)?;
        self.finish();
        Ok(())
    }
}

/// Starts a prepared blocking call, and waits until it has ended.
#[inline]
pub fn run(call: &Call<'_>, prepared: &Prepared) -> Result {
    let job = prepared.team().job();
    // SAFETY: the program guarantees its buffers until the call has ended, and this function returns only then; the
    // caller owns the other memory.
    Ok(unsafe { prepared.run(|awaited, ready| call.wait_for(job, awaited, ready)) }?)
}
