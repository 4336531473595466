#![allow(unsafe_code)]
//! Creation of windows.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use farside_core::bill::Account;
use farside_core::coll::{self, PeerTable};
use farside_core::device::{Capabilities, Region, Registration};
use farside_core::job::EndsWithJob;
use farside_core::memory::keys::AccumulateFn;
use farside_core::service::records::{self, ExposureState, Records, ServedMemory};
use farside_core::signal::SignalArray;
use farside_core::{Error, ErrorKind, Result, Team};

use super::address::Attachments;
use super::announcement::Announcement;
use super::job_end::WindowEnd;
use super::layouts::Planner;
use super::packed::Listener;
use super::published::{CurrentAccess, Handles, Published};
use super::sgrs::Sgrs;
use super::state::{FenceState, GroupState, LockingState, NO_EPOCH, OperationState, ServedState};
use super::target::{ClaimWords, LockState, Own, Target, UnusedTargets};
use super::window::{Options, RawWindow};
use super::words::word;
use crate::elements::WindowElement;

impl RawWindow {
    /// Allocates a window of `len` zeroed bytes at this rank, which the ranks of the node map. Collective; lengths may
    /// differ. Five allgathers; memory: `len`, 192 bytes for each rank of the team (256 with locks) that peers can
    /// access, and about 250 bytes for each rank that they cannot. In a simulation of more than 256 ranks, in which
    /// peers read each other's keys when they first need them: three allreduces, and memory for the peers with which
    /// this rank communicates.
    ///
    /// # Errors
    /// `SharedMemoryFull`, `PeerLost`; the same on every rank, naming the one that failed.
    pub fn allocate(team: &Team, len: usize, options: Options) -> Result<Self> {
        Self::allocate_of(team, Ok(len), options, None)
    }

    /// [`allocate`](Self::allocate) with this rank's memory aligned to `align`, a power of two, which may differ
    /// between ranks.
    ///
    /// # Errors
    /// Those of [`allocate`](Self::allocate).
    pub fn allocate_aligned(team: &Team, len: usize, align: usize, options: Options) -> Result<Self> {
        let region = Self::region(team, Region { align, ..Region::allocated(len) }, options);
        Self::new(team, team.job().device().allocate(region), options, None, None)
    }

    /// Allocates a window of `len` bytes that all ranks use for elements of type `element`. A length that exceeds the
    /// address space is an error on every rank.
    ///
    /// # Errors
    /// Those of [`allocate`](Self::allocate); `Mismatch` on every rank if element types differ.
    pub(crate) fn allocate_of(
        team: &Team,
        len: Result<usize>,
        options: Options,
        element: Option<WindowElement>,
    ) -> Result<Self> {
        let device = team.job().device();
        let align = element.map_or(1, |element| element.align);
        let own = len
            .map_err(|e| e.rank(team.job().rank()))
            .and_then(|len| device.allocate(Self::region(team, Region { align, ..Region::allocated(len) }, options)));
        Self::new(team, own, options, element, None)
    }

    /// Creates a window over user memory. Collective; lengths may differ, and may be 0. Ranks of the node map whole
    /// pages of the memory if the process has no other thread when the window is made, since another thread could store
    /// to pages while they are exchanged; otherwise they access it by system calls and requests.
    ///
    /// # Safety
    /// The memory stays valid, and is accessed only as the window's epochs allow, until [`release`](Self::release)
    /// or [`free`](Self::free) has succeeded.
    ///
    /// # Errors
    /// Those of [`allocate`](Self::allocate), and `Limit`, `Forbidden`.
    pub unsafe fn create(team: &Team, base: *mut u8, len: usize, options: Options) -> Result<Self> {
        // SAFETY: the same contract.
        unsafe { Self::create_of(team, Region::of(base, len), options, None) }
    }

    /// Makes a window over memory that no other thread accesses until the window is released, so that its pages can be
    /// mapped although the process has other threads.
    ///
    /// # Safety
    /// The contract of [`create`](Self::create) and that of [`Region::exclusive`].
    ///
    /// # Errors
    /// Those of [`create`](Self::create).
    pub unsafe fn create_exclusively(team: &Team, base: *mut u8, len: usize, options: Options) -> Result<Self> {
        // SAFETY: the same contract.
        unsafe { Self::create_of(team, Region { exclusive: true, ..Region::of(base, len) }, options, None) }
    }

    /// Creates a window over user memory that all ranks use for elements of type `element`.
    ///
    /// # Safety
    /// The contract of [`create`](Self::create), and that of [`Region::exclusive`] if it is set.
    ///
    /// # Errors
    /// Those of [`create`](Self::create); `Mismatch` on every rank if element types differ.
    pub(crate) unsafe fn create_of(
        team: &Team,
        memory: Region,
        options: Options,
        element: Option<WindowElement>,
    ) -> Result<Self> {
        if memory.base.is_null() {
            let e = Error::new(ErrorKind::BadArgument, "create a window").rank(team.job().rank());
            return Err(e.cause("the address of the memory is null"));
        }
        // SAFETY: the same contract.
        let own = unsafe { team.job().device().register(Self::region(team, memory, options)) };
        Self::new(team, own, options, element, None)
    }

    pub(super) fn region(team: &Team, memory: Region, options: Options) -> Region {
        let accumulate = Some(crate::op::apply_bytes as AccumulateFn);
        Region { accumulate, passive: options.locks, one_node: team.is_on_one_node(), ..memory }
    }

    /// Makes a dynamic window, whose operations are on regions that targets attach. Since `mapped` is false, no
    /// operation is considered complete when issued.
    pub(super) fn attaching(team: &Team, options: Options, attachments: Rc<Attachments>) -> Result<Self> {
        let own = team.job().device().allocate(Self::region(team, Region::allocated(0), options));
        Self::new(team, own, options, None, Some(attachments))
    }

    pub(super) fn new(
        team: &Team,
        own: Result<Registration>,
        options: Options,
        element: Option<WindowElement>,
        attachments: Option<Rc<Attachments>>,
    ) -> Result<Self> {
        let Capabilities { own_by_copy, coherent, .. } = *team.job().device().capabilities();
        let memory = |own: &Registration| Own { base: own.base, len: own.len, coherent };
        let unused = Rc::new(UnusedTargets {
            lock: Cell::new(LockState::No),
            announced: OnceCell::new(),
            own: own.as_ref().ok().filter(|_| own_by_copy).map(|own| (team.rank(), memory(own))),
        });
        let make = {
            let unused = Rc::clone(&unused);
            move |rank, region| unused.make(rank, region)
        };
        // SAFETY: a new registration of this job, which no window uses if the exchange fails.
        let (own, targets) = unsafe { coll::exchange_into(team, own, Some(crate::op::apply_bytes), None, make) }?;
        let mut window = Self::assemble(team, own, (targets, unused), options, attachments)?;
        window.agree(element)?;
        let end: Rc<WindowEnd> = Rc::clone(&window.end);
        window.job.ends_with(Rc::downgrade(&(end as Rc<dyn EndsWithJob>)));
        Ok(window)
    }

    /// Creates the window from local information, before [`agree`](Self::agree).
    fn assemble(
        team: &Team,
        own: Registration,
        (targets, unused): (PeerTable<Target>, Rc<UnusedTargets>),
        options: Options,
        attachments: Option<Rc<Attachments>>,
    ) -> Result<Self> {
        let (job, rank) = (team.job().clone(), team.rank() as u32);
        let claims = word::WAITERS + team.size().div_ceil(64);
        let words = claims + if options.locks { team.size() } else { 0 };
        let account = job.bill().map(|bill| bill.window(team.context(), team.members()));
        let signals = match SignalArray::for_account(team, words, account.unwrap_or(Account::team(team.context()))) {
            Ok(signals) => signals,
            Err(e) => {
                // SAFETY: the regions have not been used.
                unsafe {
                    targets.iter().for_each(|t| job.device().forget(t.region.handle));
                    job.device().release(own.handle)?;
                }
                return Err(e);
            }
        };
        let state = Rc::new(Cell::new(ExposureState::Kept));
        let memory = ServedMemory { base: own.base, len: own.len, state };
        // SAFETY: the listener ends, and updates this state, before the memory and the signal array are released.
        let records = unsafe { Records::new(memory.clone(), crate::op::apply_bytes, signals.own_cells(), rank) };
        let records = Rc::new(records);
        let listener = Listener::new(&job, memory, &records);
        Ok(Self {
            stats: job.stats_of(account),
            account,
            team: team.clone(),
            own,
            signals,
            targets,
            unused,
            options,
            element: None,
            mapped: false,
            attachments,
            access: CurrentAccess::default(),
            epoch: Published::new(NO_EPOCH),
            last_epoch: Cell::new(0),
            fencing: FenceState::default(),
            groups: GroupState::default(),
            locking: LockingState {
                claimant: team.rank(),
                claims,
                uses_queue: false,
                waits_for: Cell::new(None),
                entering: Cell::new(false),
                flushes: Default::default(),
            },
            operations: OperationState::new(Planner::new(&job)),
            serving: ServedState { listener, unique: 0, accumulates: false, records, aggregated: Cell::new(0) },
            counted: Cell::new(false),
            sleepers_fence: job.device().capabilities().sleepers_fence,
            orphans: RefCell::default(),
            own_in_use: Cell::new(false),
            borrowed: Cell::new(false),
            handles: Handles::default(),
            lost: Cell::new(false),
            broken: Cell::new(false),
            released: Cell::new(false),
            end: Rc::default(),
            job,
        })
    }

    /// Agrees with the other ranks on their common capabilities. Ranks see different regions (a rank does not import
    /// its own region, and an empty region is always mapped), but all ranks must use the same protocol for closing
    /// calls. One allgather, or an allreduce ([`coll::announce`]).
    ///
    /// # Errors
    /// `Mismatch` on every rank if element types differ; `PeerLost`.
    fn agree(&mut self, element: Option<WindowElement>) -> Result<()> {
        self.element = element;
        let signals_mapped = (0..self.team.size()).all(|r| self.signals.is_mapped(r));
        let whole = |t: &Target| t.region.mapped.is_some_and(|m| (m.lo, m.hi) == (0, t.region.len));
        let mapped = self.attachments.is_none() && signals_mapped && self.targets.iter().all(whole);
        // A device implements accumulates by several steps either for all regions or for none, and maps nothing if
        // targets are created later.
        let first = self.targets.sample(self.team.rank());
        let steps = self.targets.iter().chain(&first).all(|t| t.region.steps);
        if let Some(first) = first {
            // SAFETY: the region was imported only for this query and is no longer used.
            unsafe { self.job.device().forget(first.region.handle) };
        }
        let listens = self.serving.listener.id();
        let serves = self.attachments.is_none() && steps && listens != 0 && records::has_room(&self.job);
        let lists = Sgrs::new(&self.job, self.serving.listener.memory());
        let own = Announcement {
            mapped,
            signals_mapped,
            same_element: true,
            element: element.map_or(0, WindowElement::code),
            served: serves.then_some((self.own.base.addr() % 16) as u8),
            listens,
            unique: self.serving.listener.unique(),
            lists: lists.as_ref().map_or((0, 0, 0), Sgrs::own),
        };
        let (common, announced) =
            coll::announce(&self.team, "create a window", &own.write(), &mut Announcement::merge)?;
        let common = Announcement::read(&common);
        // The condition is the same at all ranks, so either all or none of them exchange the names.
        if !common.same_element {
            return Err(self.other_element(element)?);
        }
        self.serving.unique = common.unique;
        self.mapped = common.mapped;
        let unused = Rc::clone(&self.unused);
        let claims = (self.options.locks && common.signals_mapped).then(|| self.locking.claims + self.team.rank());
        self.end.change(&mut self.targets, |targets| {
            for (rank, t) in targets.iter_mut().enumerate() {
                t.apply_announcement(&announced.read(rank, Announcement::read));
                t.entry = claims.and_then(|claim| ClaimWords::new(&self.signals, rank, claim));
            }
            if !common.mapped
                && let Some((me, own)) = unused.own
            {
                targets.get_mut(me).into_iter().for_each(|t| t.copy_own(own));
            }
        });
        if self.targets.is_made_later() {
            let _ = self.unused.announced.set(announced);
        }
        self.serving.accumulates = !self.mapped && common.served.is_some();
        let (_, blocks, bytes) = common.lists;
        self.operations.sgrs = lists.filter(|_| !self.mapped).and_then(|lists| lists.limited(blocks, bytes));
        self.locking.uses_queue = self.options.locks && !common.signals_mapped;
        Ok(())
    }

    /// Exchanges the element types and returns the error of a mismatch. One allgather.
    #[cold]
    fn other_element(&self, element: Option<WindowElement>) -> Result<Error> {
        let describe = |element: Option<WindowElement>| {
            element.map_or_else(|| "a window of bytes".into(), WindowElement::describe)
        };
        let own = describe(element);
        let all = coll::allgather(&self.team, own.as_bytes())?;
        let other = all.iter().position(|other| other != own.as_bytes()).unwrap_or(0);
        Ok(Error::new(ErrorKind::Mismatch, "create a window")
            .rank(self.job.rank())
            .peer(self.team.members()[other])
            .cause(format!("the peer creates {}, but this rank creates {own}", String::from_utf8_lossy(&all[other])))
            .remedy("create the same objects with the same element types at all ranks, in the same order"))
    }
}
