#![allow(unsafe_code)]
//! Partitioned communication (MPI-5.0 chapter 4): one message whose partitions are sent when the program declares them
//! ready.
//!
//! `MPI_Psend_init` sends an offer, in a context derived from that of the communicator and with the tag of the call:
//! the partitioning of the message, and a context for its partitions. `MPI_Precv_init` posts the receive of the offer,
//! so that the two are matched in the order of these calls. Each partition of the sender is then a message; its tag is
//! the partition's number, and its bytes are received at their position in the receiver's buffer. The order of messages
//! keeps rounds apart. If a receive is started before its offer has arrived, the first wait of any thread that finds
//! the offer posts the receives (`Waiting::defer`).

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::rc::{Rc, Weak};

use farside_core::Job;
use farside_core::am::{Sink, Source};
use farside_core::matching::Pattern;
use farside_core::two_sided::{Mode, Receive, Sending};

use crate::arguments::{List, Out, count};
use crate::comm::new_context;
use crate::constants::*;
use crate::errhandler::HasErrhandler;
use crate::fail::{Fail, Result, fail};
use crate::handle::{Comm, Info, Request};
use crate::objects::{CommObject, Consume, Data, Outcome, PARTITIONED};
use crate::operands::{Buffer, Peer};
use crate::request;
use crate::runtime::{Call, Operation};
use crate::status::Status;

/// The most partitions of a message; each is sent as a message.
const MOST: u64 = 1 << 24;

/// The arguments of both sides.
struct Partitions {
    comm: (Comm, Rc<CommObject>),
    /// The peer's rank in the job; `None` for `MPI_PROC_NULL`.
    peer: Option<u32>,
    rank: c_int,
    tag: c_int,
    /// The memory of all partitions.
    data: Data,
    number: u64,
    /// The bytes of one partition.
    len: u64,
}

impl Partitions {
    fn new(call: &Call<'_>, one: Buffer, partitions: c_int, peer: Peer, info: Info) -> Result<Self> {
        let object = call.comms.get(peer.comm)?;
        let Peer { rank, tag, .. } = peer;
        let comm = (peer.comm, Rc::clone(&object));
        let peer = peer.target(&object)?;
        if info != MPI_INFO_NULL {
            call.infos.get(info)?;
        }
        let (number, n) = (count(partitions.into(), "partitions")?, count(one.n, one.address.count())?);
        if number == 0 {
            return Err(fail(MPI_ERR_COUNT, "is 0").named("partitions"));
        }
        if number > MOST {
            return Err(fail(MPI_ERR_ARG, format!("is {number}, more than {MOST}")).named("partitions"));
        }
        let all = number.checked_mul(n).and_then(|all| i64::try_from(all).ok());
        let data = Data::new(call, Buffer { n: all.ok_or_else(|| one.address.too_far(n))?, ..one })?;
        let len = data.len() as u64 / number;
        Ok(Self { comm, peer, rank, tag, data, number, len })
    }

    fn offers(&self) -> u32 {
        self.comm.1.context | PARTITIONED
    }

    fn check(&self, partition: c_int) -> Result<usize> {
        let found = usize::try_from(partition).ok().filter(|partition| (*partition as u64) < self.number);
        let none = || fail(MPI_ERR_ARG, format!("is {partition}, but there are {} partitions", self.number));
        found.ok_or_else(|| none().named("partition"))
    }

    fn ended(&self, known: Result<Status>) -> Outcome {
        match known {
            Ok(status) => Outcome::from(status),
            Err(failed) => Outcome { status: Status::EMPTY, failed: Some(failed.on(&self.comm)) },
        }
    }
}

/// Length of an offer: context, number of partitions, bytes of a partition.
const OFFER: usize = 20;

/// A partitioned send.
struct PartitionedSend {
    all: Partitions,
    context: u32,
    /// The send of the offer and its bytes, kept until the request is freed; `None` for `MPI_PROC_NULL`.
    offer: RefCell<Option<(Sending, Box<[u8; OFFER]>)>>,
    /// The send of each partition, once that is ready; `None` while inactive.
    round: RefCell<Option<Vec<Option<Sending>>>>,
    /// All sends before this index are known to be done.
    done: Cell<usize>,
}

/// Whether all of `n` operations are done; those before `first` are known to be.
fn all_done(first: &Cell<usize>, n: usize, is_done: impl Fn(usize) -> bool) -> bool {
    let open = (first.get()..n).find(|at| !is_done(*at)).unwrap_or(n);
    first.set(open);
    open == n
}

impl PartitionedSend {
    /// Sends a partition, which the program has declared ready.
    fn ready(&self, call: &Call<'_>, partition: c_int) -> Result {
        let at = self.all.check(partition)?;
        let inactive = || fail(MPI_ERR_REQUEST, "is inactive").named("request");
        if self.round.borrow().as_ref().ok_or_else(inactive)?[at].is_some() {
            return Err(fail(MPI_ERR_ARG, format!("is {partition}, which was ready already")).named("partition"));
        }
        let sending = match self.all.peer {
            None => Sending::Done,
            Some(peer) => {
                let len = self.all.len as usize;
                let source = self.all.data.part(at * len, len).source();
                // SAFETY: the program does not change the buffer until the round is complete; the request is kept until
                // it is over.
                unsafe { call.job()?.start_message(peer, self.context, partition, source, Mode::Standard) }?
            }
        };
        if let Some(round) = &mut *self.round.borrow_mut() {
            round[at] = Some(sending);
        }
        Ok(())
    }
}

impl Operation for PartitionedSend {
    fn object(&self) -> Option<&dyn HasErrhandler> {
        Some(&self.all.comm)
    }

    fn is_persistent(&self) -> bool {
        true
    }

    fn is_active(&self) -> bool {
        self.round.borrow().is_some()
    }

    fn is_over(&self) -> bool {
        let gone = self.offer.borrow().as_ref().is_none_or(|(sending, _)| sending.is_done());
        let round = self.round.borrow();
        let is_done = |round: &Vec<Option<Sending>>, at: usize| round[at].as_ref().is_some_and(Sending::is_done);
        gone && round.as_ref().is_none_or(|round| all_done(&self.done, round.len(), |at| is_done(round, at)))
    }

    fn outcome(&self, _: &Call<'_>, consume: Consume) -> Outcome {
        let offered = self.offer.borrow().as_ref().map_or(Ok(None), |(sending, _)| sending.outcome());
        let mut ended = offered.map(|_| ());
        for sending in self.round.borrow().iter().flatten().flatten() {
            ended = ended.and(sending.outcome().map(|_| ()));
        }
        if consume == Consume::Yes {
            *self.round.borrow_mut() = None;
        }
        self.all.ended(ended.map(|()| Status::EMPTY).map_err(Fail::from))
    }

    fn start(&self, _: &Call<'_>) -> Result {
        *self.round.borrow_mut() = Some(vec![None; self.all.number as usize]);
        self.done.set(0);
        Ok(())
    }

    fn cancel(&self, _: &Call<'_>) -> Result {
        Err(fail(MPI_ERR_REQUEST, "is of a partitioned send, which cannot be cancelled").named("request"))
    }

    fn give_up(&self, job: &Job) {
        self.offer.borrow().iter().for_each(|(sending, _)| job.forget_send(sending));
        self.round.borrow().iter().flatten().flatten().for_each(|sending| job.forget_send(sending));
    }
}

/// An offer: the partitioning of the sender, and the context of its partitions.
struct Offer {
    context: u32,
    number: u64,
    len: u64,
}

/// The receive of an offer, and its memory.
type Coming = (Rc<Receive>, Box<Cell<[u8; OFFER]>>);

/// The receive of a partition of the sender, and, once it has ended, the number of bytes received.
type Part = (Rc<Receive>, Cell<Option<u64>>);

/// A partitioned receive.
struct PartitionedReceive {
    all: Partitions,
    coming: RefCell<Option<Coming>>,
    offer: RefCell<Option<Offer>>,
    round: RefCell<Vec<Part>>,
    /// All receives before this index are known to be done.
    done: Cell<usize>,
    active: Cell<bool>,
    /// Whether the receives of this round are posted.
    posted: Cell<bool>,
    failed: RefCell<Option<Fail>>,
}

impl PartitionedReceive {
    /// Reads the offer if it has arrived, and posts the receives of the round if it is started. Returns whether the
    /// offer is no longer waited for, so that only starts post receives from then on.
    fn advance(&self, job: &Job) -> bool {
        let done = self.read_offer().and_then(|()| match &*self.offer.borrow() {
            Some(offer) if self.active.get() && !self.posted.get() => self.post(job, offer),
            _ => Ok(()),
        });
        if let Err(failed) = done {
            self.round.borrow().iter().for_each(|(receive, _)| job.forget_receive(receive));
            *self.failed.borrow_mut() = Some(failed);
        }
        self.coming.borrow().is_none()
    }

    fn read_offer(&self) -> Result {
        if !self.coming.borrow().as_ref().is_some_and(|(receive, _)| receive.is_done()) {
            return Ok(());
        }
        let Some((receive, bytes)) = self.coming.take() else { return Ok(()) };
        let len = receive.outcome()?.map_or(0, |status| status.len);
        let bytes = bytes.get();
        let (context, rest) = bytes.split_at(4);
        let (number, size) = rest.split_at(8);
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let offer = Offer { context: word(context) as u32, number: word(number), len: word(size) };
        if len != OFFER
            || offer.number > MOST
            || offer.number.checked_mul(offer.len).is_none_or(|n| n > i64::MAX as u64)
        {
            return Err(fail(MPI_ERR_INTERN, "the sender's offer of a partitioned message is malformed"));
        }
        *self.offer.borrow_mut() = Some(offer);
        Ok(())
    }

    fn post(&self, job: &Job, offer: &Offer) -> Result {
        let (all, room) = (&self.all, self.all.data.len());
        let mut round = self.round.borrow_mut();
        for partition in 0..offer.number {
            let from = ((partition * offer.len) as usize).min(room);
            let part = all.data.part(from, (offer.len as usize).min(room - from));
            let pattern = Pattern::new(offer.context, all.peer, Some(partition as i32));
            let receive = Receive::new();
            round.push((Rc::clone(&receive), Cell::new(None)));
            // SAFETY: the program does not access the buffer until the round is complete; the request is kept until it
            // is over, and all receives are forgotten if one fails.
            unsafe { job.start_receive(&receive, pattern, part.sink()) }?;
        }
        self.posted.set(true);
        Ok(())
    }

    /// Whether the bytes from `from` to `to` of the message have arrived.
    fn has(&self, from: u64, to: u64) -> bool {
        let offer = self.offer.borrow();
        let Some(offer) = offer.as_ref().filter(|_| self.posted.get()) else { return false };
        let round = self.round.borrow();
        let mut parts = round.iter().enumerate().map(|(i, part)| (i as u64 * offer.len, part));
        // An empty partition arrives when all others have.
        let beside = |begin| from < to && (begin >= to || begin + offer.len <= from);
        parts.all(|(begin, (receive, _))| receive.is_done() || beside(begin))
    }

    /// The status of a round that is over.
    fn status(&self) -> Result<Status> {
        if let Some(failed) = &*self.failed.borrow() {
            return Err(failed.clone());
        }
        if self.all.peer.is_none() {
            return Ok(Status::FROM_PROC_NULL);
        }
        let mut bytes = 0;
        for (receive, known) in &*self.round.borrow() {
            if known.get().is_none() {
                let ended = receive.outcome()?.map_or((0, 0), |status| (status.len, status.kept));
                if ended.1 < ended.0 {
                    let text = format!("a partitioned message is longer than the {} bytes here", self.all.data.len());
                    return Err(fail(MPI_ERR_TRUNCATE, text));
                }
                known.set(Some(ended.1 as u64));
            }
            bytes += known.get().unwrap_or(0);
        }
        Ok(Status::received(self.all.rank, self.all.tag, bytes as usize))
    }
}

impl PartitionedReceive {
    /// Whether a partition has arrived, checked again after one round of progress.
    fn arrived(&self, call: &Call<'_>, partition: c_int) -> Result<bool> {
        if !self.is_active() {
            return Ok(true);
        }
        let at = self.all.check(partition)? as u64 * self.all.len;
        call.test(|| self.is_over() || self.has(at, at + self.all.len))
    }
}

impl Operation for PartitionedReceive {
    fn object(&self) -> Option<&dyn HasErrhandler> {
        Some(&self.all.comm)
    }

    fn is_persistent(&self) -> bool {
        true
    }

    fn is_active(&self) -> bool {
        self.active.get()
    }

    fn is_over(&self) -> bool {
        let round = self.round.borrow();
        let came = || self.posted.get() && all_done(&self.done, round.len(), |at| round[at].0.is_done());
        !self.active.get() || self.all.peer.is_none() || self.failed.borrow().is_some() || came()
    }

    fn outcome(&self, _: &Call<'_>, consume: Consume) -> Outcome {
        let status = self.status();
        if let Err(failed) = &status {
            self.failed.borrow_mut().get_or_insert_with(|| failed.clone());
        }
        if consume == Consume::Yes {
            self.active.set(false);
        }
        self.all.ended(status)
    }

    fn start(&self, call: &Call<'_>) -> Result {
        self.round.borrow_mut().clear();
        self.done.set(0);
        self.posted.set(false);
        // The error of an offer is final.
        if self.offer.borrow().is_some() || self.coming.borrow().is_some() {
            *self.failed.borrow_mut() = None;
        }
        self.active.set(true);
        self.advance(&call.job()?);
        Ok(())
    }

    fn cancel(&self, _: &Call<'_>) -> Result {
        Err(fail(MPI_ERR_REQUEST, "is of a partitioned receive, which cannot be cancelled").named("request"))
    }

    fn free(&self, call: &Call<'_>) -> Result<bool> {
        // A freed receive still takes part in matching: the sends of the peer are matched in the order of their offers.
        if !self.is_active()
            && let Some((receive, bytes)) = self.coming.take()
        {
            call.waiting.defer(Box::new(move || {
                // Kept alive, since the offer is received into it.
                let _ = &bytes;
                receive.is_done()
            }));
        }
        Ok(false)
    }

    fn give_up(&self, job: &Job) {
        self.coming.borrow().iter().for_each(|(receive, _)| job.forget_receive(receive));
        self.round.borrow().iter().for_each(|(receive, _)| job.forget_receive(receive));
    }
}

pub fn psend_init(
    call: &Call<'_>,
    data: Buffer,
    partitions: c_int,
    peer: Peer,
    info: Info,
    request: Out<Request>,
) -> Result {
    let all = Partitions::new(call, data, partitions, peer, info)?;
    let (job, mut context, mut offer) = (call.job()?, 0, None);
    if let Some(peer) = all.peer {
        context = new_context(&job)?;
        let mut bytes = Box::new([0; OFFER]);
        bytes[..4].copy_from_slice(&context.to_le_bytes());
        bytes[4..12].copy_from_slice(&all.number.to_le_bytes());
        bytes[12..].copy_from_slice(&all.len.to_le_bytes());
        let source = Source::of(&bytes[..]);
        // SAFETY: the bytes are kept until the send is done, or forgotten.
        let sending = unsafe { job.start_message(peer, all.offers(), all.tag, source, Mode::Standard) }?;
        offer = Some((sending, bytes));
    }
    let (offer, round, done) = (RefCell::new(offer), RefCell::default(), Cell::default());
    request.set(call.requests.insert(Rc::new(PartitionedSend { all, context, offer, round, done })));
    Ok(())
}

pub fn precv_init(
    call: &Call<'_>,
    data: Buffer,
    partitions: c_int,
    peer: Peer,
    info: Info,
    request: Out<Request>,
) -> Result {
    let all = Partitions::new(call, data, partitions, peer, info)?;
    let (job, mut coming) = (call.job()?, None);
    if let Some(peer) = all.peer {
        let bytes = Box::new(Cell::new([0; OFFER]));
        let pattern = Pattern::new(all.offers(), Some(peer), Some(all.tag));
        let receive = Receive::new();
        // SAFETY: the bytes are kept until the receive is done, or forgotten; writes meanwhile are allowed, since they
        // are in a cell.
        let started = unsafe { job.start_receive(&receive, pattern, Sink::memory(bytes.as_ptr().cast(), OFFER)) };
        started.inspect_err(|_| job.forget_receive(&receive))?;
        coming = Some((receive, bytes));
    }
    let (offer, round, done, active, posted, failed) = Default::default();
    let coming = RefCell::new(coming);
    let receive = Rc::new(PartitionedReceive { all, coming, offer, round, done, active, posted, failed });
    let weak: Weak<PartitionedReceive> = Rc::downgrade(&receive);
    call.waiting.defer(Box::new(move || weak.upgrade().is_none_or(|receive| receive.advance(&job))));
    request.set(call.requests.insert(receive));
    Ok(())
}

/// Calls `f` with the operation of a request, which must be a `T` (`what` names it in errors); errors are raised on its
/// communicator.
fn with<T: Operation, R>(call: &Call<'_>, request: Request, what: &str, f: impl FnOnce(&T) -> Result<R>) -> Result<R> {
    let operation = request::get(call, request, "request")?;
    let other = || fail(MPI_ERR_REQUEST, format!("is no {what}")).named("request");
    operation.of_kind().ok_or_else(other).and_then(f).map_err(|failed| request::on(&*operation, failed))
}

/// Sends partitions that the program has declared ready.
fn ready(call: &Call<'_>, request: Request, partitions: impl IntoIterator<Item = c_int>) -> Result {
    with(call, request, "partitioned send", |send: &PartitionedSend| {
        partitions.into_iter().try_for_each(|partition| send.ready(call, partition))
    })
}

pub fn pready(call: &Call<'_>, partition: c_int, request: Request) -> Result {
    ready(call, request, [partition])
}

pub fn pready_range(call: &Call<'_>, low: c_int, high: c_int, request: Request) -> Result {
    ready(call, request, low..=high)
}

pub fn pready_list(call: &Call<'_>, length: c_int, partitions: List<c_int>, request: Request) -> Result {
    ready(call, request, partitions.read(length.into())?)
}

pub fn parrived(call: &Call<'_>, request: Request, partition: c_int, flag: Out<c_int>) -> Result {
    let arrived = |receive: &PartitionedReceive| receive.arrived(call, partition);
    let arrived = request == MPI_REQUEST_NULL || with(call, request, "partitioned receive", arrived)?;
    flag.set(arrived.into());
    Ok(())
}
