#![allow(unsafe_code)]
//! The target's side: it matches its own layout with the origin's, posts its lists, and replies.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_core::am::{self, Counters, Delivery, HandlerId, Message as Active, Messenger, OnComplete, Received, Sink};
use farside_core::device::{Block, Operation};
use farside_core::job::Track;
use farside_core::service::records::{ExposureState, ServedMemory};
use farside_core::{Error, ErrorKind, Result};
use farside_datatype::{CutOffs, Descriptor, Direction, Overlap, Plan, PlanLimits, Scheme, TypeMap};
use rustc_hash::FxHashMap;

use super::message::{Answer, LAYOUTS, LISTS, ListTotals, Message, Named, Request, Verdict, refusal};
use crate::raw::layouts::{reach, refused};

const OP: &str = "serve an SGRS transfer";

/// The layouts received from one origin, by the origin's names.
#[derive(Default)]
struct Known {
    version: u32,
    maps: FxHashMap<u32, TypeMap>,
}

/// State that a window and its handler share.
pub(super) struct Shared {
    memory: ServedMemory,
    pub(super) limits: Cell<PlanLimits>,
    known: RefCell<FxHashMap<u32, Known>>,
    /// Tracks lists that were posted for peers since the last closing call.
    pub(super) track: RefCell<Rc<Track>>,
    /// The first error of serving a transfer.
    pub(super) failed: RefCell<Option<Error>>,
    /// The last reply to a request of this rank.
    pub(super) answer: RefCell<Option<Answer>>,
}

impl Shared {
    pub(super) fn new(memory: ServedMemory, limits: PlanLimits) -> Self {
        Self {
            memory,
            limits: Cell::new(limits),
            known: RefCell::default(),
            track: RefCell::new(Track::new()),
            failed: RefCell::default(),
            answer: RefCell::default(),
        }
    }

    /// The handler, called by the dispatcher: stores replies, and defers the serving of requests.
    pub(super) fn receive(self: &Rc<Self>, m: Active<'_>) -> Delivery {
        match Message::read(m.header, m.data()) {
            Some(Message::Answer(answer)) => {
                self.answer.replace(Some(answer));
                Delivery::Done
            }
            Some(Message::Request(request)) => {
                let (shared, source) = (Rc::clone(self), m.source);
                let then = move |job: &Messenger, received: Result<Received>| {
                    shared.serve(job, source, &request, &received?.buffer)
                };
                Delivery::Into(Sink::buffer(Vec::new()), OnComplete::deferred(then))
            }
            None => {
                let e = Error::new(ErrorKind::Protocol, OP).peer(m.source).cause("the origin sent a malformed request");
                self.failed.borrow_mut().get_or_insert(e);
                Delivery::Done
            }
        }
    }

    fn serve(&self, job: &Messenger, source: u32, request: &Request, data: &[u8]) -> Result<()> {
        let verdict = match self.post(job, source, request, data) {
            Ok(verdict) => verdict,
            Err(e) if e.kind() == ErrorKind::PeerLost => return Err(e),
            Err(e) => {
                let verdict = refusal(&e);
                self.failed.borrow_mut().get_or_insert(e.rank(job.rank()).peer(source));
                verdict
            }
        };
        // The origin of a get has already decided on the lists, and waits only for the bytes.
        if request.direction == Direction::Get && matches!(verdict, Verdict::Posted(_)) {
            return Ok(());
        }
        let answer = Answer { number: request.number, verdict };
        let (header, text) = answer.write();
        // SAFETY: the reply goes to the handler of the window at `source` that sent the request.
        unsafe { am::send_any(job, source, HandlerId(request.reply), &header, text, Counters::default()) }
    }

    fn post(&self, job: &Messenger, source: u32, request: &Request, data: &[u8]) -> Result<Verdict> {
        match self.memory.state.get() {
            ExposureState::Exposed => {}
            ExposureState::Kept => return Err(Error::new(ErrorKind::WrongEpoch, OP).cause("the window is not exposed")),
            ExposureState::Ended => return Err(Error::new(ErrorKind::Freed, OP)),
        }
        if !self.learn(source, request, data)? {
            return Ok(Verdict::Unknown);
        }
        let known = self.known.borrow();
        let map = |n: Named| known.get(&source).and_then(|k| k.maps.get(&n.id));
        let (Some(origin), Some(target)) = (map(request.origin), map(request.target)) else {
            return Ok(Verdict::Unknown);
        };
        let offset = usize::try_from(request.offset).unwrap_or(usize::MAX);
        if reach(target, offset).is_none_or(|(at, n)| at > self.memory.len || n > self.memory.len - at) {
            let (lb, ub) = (i128::from(target.true_lb()), i128::from(target.true_ub()));
            let (lb, ub) = (lb + i128::from(request.offset), ub + i128::from(request.offset));
            return Err(Error::new(ErrorKind::OutOfRange, OP)
                .cause(format!("bytes {lb} to {ub} are not inside a window of {} bytes", self.memory.len)));
        }
        if request.direction == Direction::Put
            && let Overlap::At(at) = target.overlap()
        {
            return Err(Error::new(ErrorKind::BadArgument, OP)
                .cause(format!("blocks of the receiving (target) layout overlap at byte {at}")));
        }
        let (direction, limits) = (request.direction, self.limits.get());
        let plan = Plan::with_scheme(Scheme::Sgrs, origin, target, direction, limits, &CutOffs::default())
            .map_err(|e| refused(OP, &e))?;
        let messages: Vec<Descriptor> = plan.descriptors_from(request.packed).take(LISTS).collect();
        let totals = list_totals(&messages);
        if direction == Direction::Get && totals != request.totals {
            return Err(Error::new(ErrorKind::Protocol, OP).cause(format!(
                "the origin expects {} lists of {} bytes, but this rank expects {} of {}",
                request.totals.lists, request.totals.bytes, totals.lists, totals.bytes
            )));
        }
        drop(known);
        let track = Rc::clone(&self.track.borrow());
        for message in &messages {
            let at = |(at, len): &(i64, u64)| Block {
                base: self.memory.base.wrapping_add(offset).wrapping_offset(*at as isize),
                len: *len as usize,
            };
            let blocks: Vec<Block> = message.target.iter().map(at).collect();
            let operation = match direction {
                Direction::Put => Operation::scatter(&blocks),
                Direction::Get => Operation::gather(&blocks),
            };
            // SAFETY: the blocks are inside the window, as checked above. The window waits for the track, or cancels
            // it, before its memory is deregistered; the origin is in an access epoch to it.
            unsafe { job.post(source, operation, None, &[&track]) }?;
        }
        Ok(Verdict::Posted(totals))
    }

    /// Stores the layouts of a request; returns `false` if the request names an unknown layout.
    fn learn(&self, source: u32, request: &Request, data: &[u8]) -> Result<bool> {
        let mut known = self.known.borrow_mut();
        let known = known.entry(source).or_default();
        if known.version != request.version {
            *known = Known { version: request.version, maps: FxHashMap::default() };
        }
        let mut rest = data;
        for named in [request.origin, request.target] {
            let Some(len) = named.len else { continue };
            let bad = |cause: String| Error::new(ErrorKind::Protocol, OP).cause(cause);
            let (wire, others) = rest
                .split_at_checked(len as usize)
                .ok_or_else(|| bad(format!("{len} bytes of a layout were announced, but {} arrived", rest.len())))?;
            rest = others;
            if known.maps.len() >= LAYOUTS && !known.maps.contains_key(&named.id) {
                return Err(bad(format!("the origin sent more than {LAYOUTS} layouts of one version")));
            }
            let map = TypeMap::from_wire(wire).map_err(|e| bad(format!("malformed layout: {}", e.cause())))?;
            known.maps.insert(named.id, map);
        }
        Ok([request.origin, request.target].iter().all(|n| known.maps.contains_key(&n.id)))
    }
}

/// Number of lists, and their bytes, into which the receiver splits these messages.
pub(super) fn list_totals(messages: &[Descriptor]) -> ListTotals {
    ListTotals { lists: messages.len() as u32, bytes: messages.iter().map(|m| m.len).sum() }
}
