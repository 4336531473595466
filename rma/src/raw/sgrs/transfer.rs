#![allow(unsafe_code)]
//! The origin's side: transfers are deferred to the closing call.

use std::rc::Rc;
use std::time::Duration;

use farside_core::am::{self, Counters, HandlerId};
use farside_core::device::{Block, Operation};
use farside_core::job::{CancelOnDrop, Track};
use farside_core::stats::Kind;
use farside_core::{Error, ErrorKind, Job, Result};
use farside_datatype::{CutOffs, Descriptor, Direction, Plan, Scheme, TypeMap};

use super::Sgrs;
use super::message::{LISTS, ListTotals, Request, Verdict};
use super::serve::list_totals;
use crate::raw::layouts::{Action, Layouts, refused};
use crate::raw::{Access, RawWindow, Request as Single, Target};

/// Maximum length of the wire form of a layout that is sent.
const MAX_WIRE_BYTES: usize = 64 << 10;
/// Maximum time that the target waits for its lists to complete after all origins have reported that theirs are
/// complete.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// The parts in progress of the transfers to one target.
struct PartsInProgress<'a> {
    job: &'a Job,
    earlier: Rc<Track>,
    current: Rc<Track>,
}

impl Drop for PartsInProgress<'_> {
    fn drop(&mut self) {
        [&self.earlier, &self.current].into_iter().filter(|t| t.open() > 0).for_each(|t| self.job.cancel(t));
    }
}

impl RawWindow {
    /// Defers a transfer to the closing call if it uses lists on both sides; returns whether it does.
    pub(crate) fn by_lists(&self, t: &Target, l: &Layouts<'_>, request: Option<&Single>) -> Result<bool> {
        let Some(sgrs) = &self.operations.sgrs else { return Ok(false) };
        let target_participates = matches!(self.access.get(), Access::Fence(_) | Access::Start);
        if !target_participates || request.is_some() || t.team_rank == self.team.rank() {
            return Ok(false);
        }
        let uses_lists = self.operations.planner.prefers_lists(l, sgrs.shared.limits.get())?;
        if !uses_lists || [l.origin, l.target].iter().any(|map| map.to_wire().len() > MAX_WIRE_BYTES) {
            return Ok(false);
        }
        sgrs.pending.borrow_mut().push((t.team_rank, Rc::new(l.owned())));
        Ok(true)
    }

    /// Whether a transfer to `target` is deferred to the closing call.
    pub(crate) fn has_lists(&self, target: usize) -> bool {
        self.operations.sgrs.as_ref().is_some_and(|s| s.has_pending(target))
    }

    /// Executes the deferred transfers to `target`, in order. An error ends them, and is stored for
    /// [`check_lists`](Self::check_lists).
    ///
    /// # Errors
    /// `PeerLost`.
    pub(crate) fn run_lists(&self, target: usize) -> Result<()> {
        let Some(sgrs) = self.operations.sgrs.as_ref().filter(|s| s.has_pending(target)) else { return Ok(()) };
        let all = std::mem::take(&mut *sgrs.pending.borrow_mut());
        let (current, later): (Vec<_>, Vec<_>) = all.into_iter().partition(|(t, _)| *t == target);
        sgrs.pending.borrow_mut().extend(later);
        let mut flow = PartsInProgress { job: &self.job, earlier: Track::new(), current: Track::new() };
        let name = current.last().map_or("put", |(_, owned)| owned.action.name());
        let sent = current.iter().try_for_each(|(_, owned)| self.transfer(sgrs, target, &owned.borrow(), &mut flow));
        let completed = sent.and_then(|()| self.completed(name, &flow.earlier));
        let Err(e) = completed else { return Ok(()) };
        let e = e.rank(self.job.rank()).peer(self.targets[target].region.peer);
        if e.kind() == ErrorKind::PeerLost {
            return Err(e);
        }
        sgrs.failed.borrow_mut().get_or_insert(e);
        Ok(())
    }

    /// Fails with the first error of this rank's own transfers, which it clears.
    pub(crate) fn check_lists(&self) -> Result<()> {
        let failed = self.operations.sgrs.as_ref().and_then(|s| s.failed.borrow_mut().take());
        failed.map_or(Ok(()), Err)
    }

    /// Called when all origins have reported that their transfers are complete: waits until the lists posted for them
    /// have completed, and returns the first error of this rank's own transfers and of those of peers to and from this
    /// rank.
    ///
    /// # Errors
    /// Those of [`check_lists`](Self::check_lists); `Timeout` for lists that were requested but not used.
    pub(crate) fn end_lists(&self) -> Result<()> {
        self.check_lists()?;
        let Some(sgrs) = &self.operations.sgrs else { return Ok(()) };
        // A new track, since a rank that is already in its next closing call may request more lists meanwhile.
        let track = sgrs.shared.track.replace(Track::new());
        if track.open() > 0 {
            let all_used = || Ok((track.open() == 0).then_some(()));
            let _open = CancelOnDrop::new(&self.job, &track);
            self.job.within(LIST_TIMEOUT, || self.job.wait("complete an SGRS transfer", all_used))?;
        }
        let failed = sgrs.shared.failed.borrow_mut().take();
        failed.map_or_else(|| track.check(), Err)
    }

    /// Whether no list that was posted for peers is outstanding.
    pub(crate) fn has_no_open_lists(&self) -> bool {
        self.operations.sgrs.as_ref().is_none_or(|s| s.shared.track.borrow().open() == 0)
    }

    fn transfer(&self, sgrs: &Sgrs, target: usize, l: &Layouts<'_>, flow: &mut PartsInProgress<'_>) -> Result<()> {
        let name = l.action.name();
        let direction = if l.action == Action::Put { Direction::Put } else { Direction::Get };
        let limits = sgrs.shared.limits.get();
        let plan = Plan::with_scheme(Scheme::Sgrs, l.origin, l.target, direction, limits, &CutOffs::default())
            .map_err(|e| refused(name, &e))?;
        let mut messages = plan.descriptors();
        let mut packed = 0;
        loop {
            let part: Vec<Descriptor> = messages.by_ref().take(LISTS).collect();
            if part.is_empty() {
                return Ok(());
            }
            self.part(sgrs, target, l, &plan, &part, packed, &flow.current)?;
            // At most two parts are in progress, of this transfer or the previous one.
            self.completed(name, &flow.earlier)?;
            packed += list_totals(&part).bytes;
            flow.earlier = std::mem::replace(&mut flow.current, Track::new());
        }
    }

    fn completed(&self, name: &'static str, track: &Track) -> Result<()> {
        self.job.wait(name, || Ok((track.open() == 0).then_some(())))?;
        track.check()
    }

    /// Executes one part of a transfer: the lists of both ranks are posted.
    #[allow(clippy::too_many_arguments)]
    fn part(
        &self,
        sgrs: &Sgrs,
        target: usize,
        l: &Layouts<'_>,
        plan: &Plan<'_>,
        part: &[Descriptor],
        packed: u64,
        track: &Rc<Track>,
    ) -> Result<()> {
        let totals = list_totals(part);
        let get = l.action == Action::Get;
        if get {
            self.post_lists(target, l, part, track)?;
        }
        let proposed = if get { totals } else { ListTotals::default() };
        let mut again = true;
        loop {
            let number = self.request_lists(sgrs, target, l, plan, packed, proposed)?;
            let verdict = self.job.wait(l.action.name(), || {
                let answer = sgrs.shared.answer.borrow_mut().take();
                // The target replies to a get only if it rejects the request.
                let done = get && track.open() == 0;
                let verdict = answer.filter(|a| a.number == number).map(|a| a.verdict);
                Ok(verdict.or_else(|| done.then_some(Verdict::Posted(totals))))
            })?;
            match verdict {
                Verdict::Posted(d) if d == totals => break,
                Verdict::Posted(d) => {
                    return Err(Error::new(ErrorKind::Protocol, l.action.name()).cause(format!(
                        "the target expects {} lists of {} bytes, but this rank expects {} of {}",
                        d.lists, d.bytes, totals.lists, totals.bytes
                    )));
                }
                Verdict::Unknown if std::mem::take(&mut again) => {
                    sgrs.known.borrow_mut().entry(target).or_default().forget()
                }
                Verdict::Unknown => {
                    return Err(Error::new(ErrorKind::Protocol, l.action.name())
                        .cause("the target does not recognize the layouts that this rank has sent"));
                }
                Verdict::Refused(kind, text) => {
                    return Err(
                        Error::new(kind, l.action.name()).cause(format!("the target rejected the request: {text}"))
                    );
                }
            }
        }
        if get { Ok(()) } else { self.post_lists(target, l, part, track) }
    }

    /// Requests the target's lists; returns the number of the request.
    fn request_lists(
        &self,
        sgrs: &Sgrs,
        target: usize,
        l: &Layouts<'_>,
        plan: &Plan<'_>,
        packed: u64,
        totals: ListTotals,
    ) -> Result<u32> {
        debug_assert_eq!(plan.scheme(), Scheme::Sgrs);
        let wires = [l.origin, l.target].map(TypeMap::to_wire);
        let (version, named) = sgrs.known.borrow_mut().entry(target).or_default().names([&wires[0], &wires[1]]);
        let mut data = Vec::new();
        for (wire, _) in wires.iter().zip(&named).filter(|(_, n)| n.len.is_some()) {
            self.stats().add(Kind::Layout, wire.len());
            data.extend_from_slice(wire);
        }
        let number = sgrs.last.get().wrapping_add(1);
        sgrs.last.set(number);
        let request = Request {
            number,
            direction: if l.action == Action::Put { Direction::Put } else { Direction::Get },
            reply: sgrs.listening.id().0,
            offset: l.offset as u64,
            packed,
            totals,
            version,
            origin: named[0],
            target: named[1],
        };
        let peer = self.targets[target].region.peer;
        let to = HandlerId(self.targets[target].lists);
        // SAFETY: the request is for the peer's window, in an epoch in which the window is exposed.
        unsafe { am::send_any(&self.job, peer, to, &request.write(), &data, Counters::default()) }?;
        Ok(number)
    }

    fn post_lists(&self, target: usize, l: &Layouts<'_>, part: &[Descriptor], track: &Rc<Track>) -> Result<()> {
        for message in part {
            let at = |(at, len): &(i64, u64)| Block { base: l.local.wrapping_offset(*at as isize), len: *len as usize };
            let blocks: Vec<Block> = message.origin.iter().map(at).collect();
            let operation = match l.action {
                Action::Get => Operation::scatter(&blocks),
                _ => Operation::gather(&blocks),
            };
            // SAFETY: the memory of the operation is valid until the epoch is closed, by the contract of the call that
            // made it. Closing waits for the track or cancels it.
            unsafe { self.job.post(self.targets[target].region.peer, operation, None, &[track]) }?;
        }
        Ok(())
    }
}
