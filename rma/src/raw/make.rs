#![allow(unsafe_code)]
//! Creation of windows.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_core::bill::Account;
use farside_core::coll;
use farside_core::device::{Region, Registration, RemoteRegion};
use farside_core::job::EndsWithJob;
use farside_core::memory::keys::AccumulateFn;
use farside_core::service::records::{self, ExposureState, Records, ServedMemory};
use farside_core::signal::SignalArray;
use farside_core::{Error, ErrorKind, Result, Team};

use super::address::Attachments;
use super::job_end::WindowEnd;
use super::layouts::Planner;
use super::packed::Listener;
use super::sgrs::Sgrs;
use super::state::{Access, FenceState, GroupState, LockingState, NO_EPOCH, OperationState, ServedState};
use super::target::{ClaimWords, Target};
use super::window::{Options, RawWindow};
use super::words::word;
use crate::elements::WindowElement;

/// Announced instead of an alignment if this rank's CPU does not apply accumulates of peers.
const NOT_SERVED: u8 = u8::MAX;

/// Bytes of an announcement that tell element types apart.
const ELEMENT: std::ops::Range<usize> = 4..12;

/// The byte of an announcement with the alignment of the memory, or [`NOT_SERVED`].
const ALIGNMENT: usize = ELEMENT.end;

/// Bytes of an announcement with the unique number of the listener. That of the first rank tells windows apart.
const UNIQUE: std::ops::Range<usize> = ALIGNMENT + 1..ALIGNMENT + 9;

impl RawWindow {
    /// Allocates a window of `len` zeroed bytes at this rank, which the ranks of the node map. Collective; lengths may
    /// differ. Five allgathers; memory: `len` and 192 bytes for each rank of the team, with locks 256, which peers may reach, and
    /// about 250 for each rank that they may not.
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

    /// Allocates a window of `len` bytes that all ranks use for elements of type `element`. A length above the address
    /// space fails on every rank.
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

    /// Makes a window over memory of the user. Collective; lengths may differ, and may be 0. Ranks of the node map
    /// whole pages of the memory if the process has no other thread when the window is made, since another thread could
    /// store to pages while they are exchanged; otherwise they access it by system calls and requests.
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

    /// Makes a window over memory of the user that all ranks use for elements of type `element`.
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
            let e = Error::new(ErrorKind::BadArgument, "make a window").rank(team.job().rank());
            return Err(e.cause("a null pointer"));
        }
        // SAFETY: the same contract.
        let own = unsafe { team.job().device().register(Self::region(team, memory, options)) };
        Self::new(team, own, options, element, None)
    }

    pub(super) fn region(team: &Team, memory: Region, options: Options) -> Region {
        let accumulate = Some(crate::op::apply_bytes as AccumulateFn);
        Region { accumulate, passive: options.locks, one_node: team.is_on_one_node(), ..memory }
    }

    /// Makes a dynamic window, whose operations are on regions that targets attach. None of them counts as complete
    /// when issued, since `mapped` is false.
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
        // SAFETY: a new registration of this job; no window uses it if the exchange fails.
        let (own, regions) = unsafe { coll::exchange_regions(team, own, Some(crate::op::apply_bytes)) }?;
        let mut window = Self::assemble(team, own, regions, options, attachments)?;
        window.agree(element)?;
        let end: Rc<WindowEnd> = Rc::clone(&window.end);
        window.job.ends_with(Rc::downgrade(&(end as Rc<dyn EndsWithJob>)));
        Ok(window)
    }

    /// Makes the window from local information, before [`agree`](Self::agree).
    fn assemble(
        team: &Team,
        own: Registration,
        regions: Vec<RemoteRegion>,
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
                    regions.iter().for_each(|r| job.device().forget(r.handle));
                    job.device().release(own.handle)?;
                }
                return Err(e);
            }
        };
        let state = Rc::new(Cell::new(ExposureState::Kept));
        let memory = ServedMemory { base: own.base, len: own.len, state };
        // SAFETY: the listener ends before the memory and the signal array do, and sets the state then.
        let records = unsafe { Records::new(memory.clone(), crate::op::apply_bytes, signals.own_cells(), rank) };
        let records = Rc::new(records);
        let listener = Listener::new(&job, memory, &records);
        Ok(Self {
            stats: job.stats_of(account),
            account,
            team: team.clone(),
            own,
            signals,
            targets: regions.into_iter().enumerate().map(Target::new).collect(),
            options,
            element: None,
            mapped: false,
            attachments,
            access: Cell::new(Access::None),
            epoch: Cell::new(NO_EPOCH),
            last_epoch: Cell::new(0),
            fencing: FenceState::default(),
            groups: GroupState::default(),
            locking: LockingState {
                claimant: team.rank(),
                claims,
                in_line: false,
                waits_for: Cell::new(None),
                entering: Cell::new(false),
                flushes: Cell::new(0),
            },
            operations: OperationState::new(Planner::new(&job)),
            serving: ServedState { listener, unique: 0, accumulates: false, records },
            counted: Cell::new(false),
            sleepers_fence: job.device().capabilities().sleepers_fence,
            orphans: RefCell::default(),
            own_in_use: Cell::new(false),
            lent: Cell::new(false),
            lost: Cell::new(false),
            broken: Cell::new(false),
            released: Cell::new(false),
            end: Rc::default(),
            job,
        })
    }

    /// Agrees with the other ranks on the capabilities that all of them have. Ranks see different regions (a rank does
    /// not import its own region, and an empty region is always mapped), but all ranks must use the same protocol for
    /// closing calls. One allgather.
    ///
    /// # Errors
    /// `Mismatch` on every rank if element types differ; `PeerLost`.
    fn agree(&mut self, element: Option<WindowElement>) -> Result<()> {
        self.element = element;
        let signals_mapped = (0..self.team.size()).all(|r| self.signals.is_mapped(r));
        let whole = |t: &Target| t.region.mapped.is_some_and(|m| (m.lo, m.hi) == (0, t.region.len));
        let mapped = self.attachments.is_none() && self.targets.iter().all(whole) && signals_mapped;
        let serves = self.attachments.is_none()
            && self.targets.iter().all(|t| t.region.steps)
            && self.serving.listener.id() != 0
            && records::has_room(&self.job);
        let lists = Sgrs::new(&self.job, self.serving.listener.memory(), self.team.size());
        let mut announcement = vec![u8::from(mapped), u8::from(signals_mapped)];
        announcement.extend(self.serving.listener.id().to_le_bytes());
        // 0 for a window of bytes.
        announcement.extend(element.map_or(0, WindowElement::code).to_le_bytes());
        announcement.push(if serves { (self.own.base.addr() % 16) as u8 } else { NOT_SERVED });
        announcement.extend(self.serving.listener.unique().to_le_bytes());
        announcement.extend(Sgrs::announcement(lists.as_ref()));
        let all = coll::allgather_short(&self.team, "make a window", &announcement, announcement.len())?;
        // The same at all ranks, so all of them or none exchange the names.
        let first = all.iter().next().and_then(|first| first.get(ELEMENT));
        if all.iter().any(|other| other.get(ELEMENT) != first) {
            return Err(self.other_element(element)?);
        }
        let unique = all.iter().next().and_then(|first| first.get(UNIQUE)?.try_into().ok());
        self.serving.unique = unique.map_or(0, u64::from_le_bytes);
        self.mapped = all.iter().all(|m| m.first() == Some(&1));
        self.serving.accumulates =
            !self.mapped && all.iter().all(|m| m.get(ALIGNMENT).is_some_and(|a| *a != NOT_SERVED));
        let announcements: Vec<&[u8]> = all.iter().map(|own| own.get(UNIQUE.end..).unwrap_or_default()).collect();
        self.operations.sgrs =
            lists.filter(|_| !self.mapped).and_then(|lists| lists.with_announcements(&announcements));
        self.locking.in_line = self.options.locks && !all.iter().all(|m| m.get(1) == Some(&1));
        let me = self.team.rank();
        self.end.change(&mut self.targets, |targets| {
            if !self.mapped && self.job.device().capabilities().own_by_copy {
                targets[me].copy_own(&self.own);
            }
            for (t, m) in targets.iter_mut().zip(all.iter()) {
                t.listens = m.get(2..4).map_or(0, |id| u16::from_le_bytes([id[0], id[1]]));
                t.alignment = m.get(ALIGNMENT).copied().unwrap_or(0);
                if self.options.locks && !self.locking.in_line {
                    t.entry = ClaimWords::new(&self.signals, t.team_rank, self.locking.claims + me);
                }
            }
        });
        Ok(())
    }

    /// The error of a rank whose element type differs from that of another rank. One allgather.
    #[cold]
    fn other_element(&self, element: Option<WindowElement>) -> Result<Error> {
        let describe = |element: Option<WindowElement>| {
            element.map_or_else(|| "a window of bytes".into(), WindowElement::describe)
        };
        let own = describe(element);
        let all = coll::allgather(&self.team, own.as_bytes())?;
        let other = all.iter().position(|other| other != own.as_bytes()).unwrap_or(0);
        Ok(Error::new(ErrorKind::Mismatch, "make a window")
            .rank(self.job.rank())
            .peer(self.targets[other].region.peer)
            .cause(format!("it makes {}, and this rank {own}", String::from_utf8_lossy(&all[other])))
            .remedy("make the same object with the same element type at all ranks, in the same order"))
    }
}
