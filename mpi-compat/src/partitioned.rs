#![allow(unsafe_code)]
//! Partitioned communication (MPI-5.0 chapter 4), implemented by the partitioned messages of core.

use std::cell::Cell;
use std::ffi::c_int;
use std::rc::Rc;

use farside_core::two_sided::{PartitionedReceive, PartitionedSend};
use farside_core::{ErrorKind, Job};

use crate::arguments::{List, Out, StatusOut, count};
use crate::constants::*;
use crate::errhandler::HasErrhandler;
use crate::fail::{Fail, Result, fail};
use crate::handle::{Comm, Info, Request};
use crate::objects::{CommObject, Data, Outcome};
use crate::operands::{Buffer, Peer};
use crate::request;
use crate::runtime::{Call, Operation, Persistence};
use crate::status::Status;

/// The message in core.
enum Side {
    Send(PartitionedSend),
    Receive(Rc<PartitionedReceive>),
}

impl Side {
    fn send(&self) -> Option<&PartitionedSend> {
        if let Self::Send(send) = self { Some(send) } else { None }
    }

    fn receive(&self) -> Option<&PartitionedReceive> {
        if let Self::Receive(receive) = self { Some(receive) } else { None }
    }
}

/// The operation of a partitioned request.
struct Partitioned {
    side: Side,
    comm: (Comm, Rc<CommObject>),
    peer: Peer,
    number: u64,
    /// The bytes of one partition.
    len: u64,
    is_active: Cell<bool>,
    /// An outcome that has been read but not consumed.
    known: Cell<Option<Box<Outcome>>>,
}

impl Partitioned {
    /// The number of a partition, after a check that it exists.
    fn partition(&self, partition: c_int) -> Result<u32> {
        let found = u32::try_from(partition).ok().filter(|partition| u64::from(*partition) < self.number);
        let no_such_partition =
            || fail(MPI_ERR_ARG, format!("is {partition}, but there are {} partitions", self.number));
        found.ok_or_else(|| no_such_partition().named("partition"))
    }

    /// Sends a partition, which the program has declared ready.
    fn ready(&self, call: &Call<'_>, send: &PartitionedSend, partition: c_int) -> Result {
        if !self.is_active.get() {
            return Err(fail(MPI_ERR_REQUEST, "is inactive").named("request"));
        }
        let partition = self.partition(partition)?;
        // SAFETY: the program does not change the buffer until the round is complete; the request lives until the round
        // has ended.
        unsafe { send.ready(&*call.job()?, partition) }.map_err(|e| match e.kind() {
            ErrorKind::BadArgument => Fail::from(e).named("partition"),
            _ => e.into(),
        })
    }

    /// Whether a partition has arrived; if not, checks again after one round of progress.
    fn arrived(&self, call: &Call<'_>, receive: &PartitionedReceive, partition: c_int) -> Result<bool> {
        if !self.is_active.get() {
            return Ok(true);
        }
        let from = u64::from(self.partition(partition)?) * self.len;
        call.test(|| receive.has_arrived(from..from + self.len))
    }

    /// The status of a round that has ended.
    fn ended(&self) -> Result<Status> {
        let receive = match &self.side {
            Side::Send(send) => return Ok(send.outcome().map(|_| Status::EMPTY)?),
            Side::Receive(receive) => receive,
        };
        let received = receive.outcome()?.unwrap_or_default();
        if self.peer.rank == MPI_PROC_NULL {
            return Ok(Status::FROM_PROC_NULL);
        }
        if received.kept < received.len {
            let (len, room) = (received.len, received.kept);
            let text = format!("the partitioned message has {len} bytes, but the receive buffer has {room}");
            return Err(fail(MPI_ERR_TRUNCATE, text));
        }
        Ok(Status::received(self.peer.rank, self.peer.tag, received.kept))
    }
}

impl Operation for Partitioned {
    fn object(&self) -> Option<&dyn HasErrhandler> {
        Some(&self.comm)
    }

    fn persistence(&self) -> Persistence {
        if self.is_active.get() { Persistence::Active } else { Persistence::Inactive }
    }

    fn has_ended(&self) -> bool {
        match &self.side {
            Side::Send(send) => send.is_done(),
            Side::Receive(receive) => receive.is_done(),
        }
    }

    fn outcome(&self, _: &Call<'_>) -> Outcome {
        let ended = || match self.ended() {
            Ok(status) => Outcome::from(status),
            Err(failed) => Outcome { status: Status::EMPTY, failed: Some(failed.on(&self.comm)) },
        };
        let outcome = self.known.take().map_or_else(ended, |known| *known);
        self.known.set(Some(Box::new(outcome.clone())));
        outcome
    }

    fn complete(self: Rc<Self>, call: &Call<'_>, status: StatusOut) -> Result {
        let outcome = self.outcome(call);
        self.known.take();
        self.is_active.set(false);
        outcome.put(status)
    }

    fn start(&self, call: &Call<'_>) -> Result {
        match &self.side {
            Side::Send(send) => send.start(),
            // SAFETY: the program does not access the buffer until the round is complete; the request lives until the
            // round has ended.
            Side::Receive(receive) => unsafe { receive.start(&*call.job()?) },
        }?;
        self.is_active.set(true);
        Ok(())
    }

    fn cancel(&self, _: &Call<'_>) -> Result {
        Err(fail(MPI_ERR_REQUEST, "belongs to a partitioned communication, which cannot be cancelled").named("request"))
    }

    fn abandon(&self, job: &Job) {
        match &self.side {
            Side::Send(send) => send.forget(job),
            Side::Receive(receive) => receive.forget(job),
        }
    }
}

/// Creates a request whose partitions have the layout `one`. `side` creates the core message from the job, the peer,
/// context and tag, and the memory.
fn init(
    call: &Call<'_>,
    one: Buffer,
    partitions: c_int,
    peer: Peer,
    info: Info,
    request: Out<Request>,
    side: impl FnOnce(&Job, Option<u32>, (u32, c_int), &Data) -> farside_core::Result<Side>,
) -> Result {
    let object = call.comms.get(peer.comm)?;
    let member = peer.target(&object)?;
    if info != MPI_INFO_NULL {
        call.infos.get(info)?;
    }
    let (number, n) = (count(partitions.into(), "partitions")?, count(one.n, one.address.count())?);
    if number == 0 {
        return Err(fail(MPI_ERR_COUNT, "is 0").named("partitions"));
    }
    let all = number.checked_mul(n).and_then(|all| i64::try_from(all).ok());
    let data = Data::new(call, Buffer { n: all.ok_or_else(|| one.address.too_far(n))?, ..one })?;
    let len = data.len() as u64 / number;
    let side = side(&call.job()?, member, (object.context, peer.tag), &data)?;
    let (comm, (is_active, known)) = ((peer.comm, object), Default::default());
    request.set(call.requests.insert(Rc::new(Partitioned { side, comm, peer, number, len, is_active, known })));
    Ok(())
}

pub fn psend_init(
    call: &Call<'_>,
    data: Buffer,
    partitions: c_int,
    peer: Peer,
    info: Info,
    request: Out<Request>,
) -> Result {
    init(call, data, partitions, peer, info, request, |job, target, key, data| {
        let (number, context) = (partitions.cast_unsigned(), job.new_context()?);
        Ok(Side::Send(job.partitioned_send(target, key, data.source(), number, context)?))
    })
}

pub fn precv_init(
    call: &Call<'_>,
    data: Buffer,
    partitions: c_int,
    peer: Peer,
    info: Info,
    request: Out<Request>,
) -> Result {
    init(call, data, partitions, peer, info, request, |job, source, key, data| {
        // SAFETY: the memory is accessed from the start to the end of each round only.
        Ok(Side::Receive(job.partitioned_receive(source, key, unsafe { data.sink() })?))
    })
}

/// Calls `f` with the operation of a request and its `side`, which `what` names in errors; errors are raised on its
/// communicator.
fn with<T, R>(
    call: &Call<'_>,
    request: Request,
    what: &str,
    side: fn(&Side) -> Option<&T>,
    f: impl FnOnce(&Partitioned, &T) -> Result<R>,
) -> Result<R> {
    let operation = request::get(call, request, "request")?;
    let found = operation.of_kind::<Partitioned>().and_then(|found| Some((found, side(&found.side)?)));
    let other = || fail(MPI_ERR_REQUEST, format!("is not a {what}")).named("request");
    let done = found.ok_or_else(other).and_then(|(found, side)| f(found, side));
    done.map_err(|failed| request::on(&*operation, failed))
}

/// Sends partitions that the program has declared ready.
fn ready(call: &Call<'_>, request: Request, mut partitions: impl Iterator<Item = c_int>) -> Result {
    with(call, request, "partitioned send", Side::send, |found, send| {
        partitions.try_for_each(|partition| found.ready(call, send, partition))
    })
}

pub fn pready(call: &Call<'_>, partition: c_int, request: Request) -> Result {
    pready_range(call, partition, partition, request)
}

pub fn pready_range(call: &Call<'_>, low: c_int, high: c_int, request: Request) -> Result {
    ready(call, request, low..=high)
}

pub fn pready_list(call: &Call<'_>, length: c_int, partitions: List<c_int>, request: Request) -> Result {
    ready(call, request, partitions.read(length.into())?.into_iter())
}

pub fn parrived(call: &Call<'_>, request: Request, partition: c_int, flag: Out<c_int>) -> Result {
    let arrived = |found: &Partitioned, receive: &_| found.arrived(call, receive, partition);
    let arrived = request == MPI_REQUEST_NULL || with(call, request, "partitioned receive", Side::receive, arrived)?;
    flag.set(arrived.into());
    Ok(())
}
