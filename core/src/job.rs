//! A job from the view of one rank: the engine, and the messages and collectives above it.
//!
//! A rank is one thread: `Job` is neither `Send` nor `Sync`. Ranks may be processes ([`Job::init`]) or threads of one
//! process ([`Job::threads`]); both run the same code.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::rc::{Rc, Weak};
use std::time::Instant;

use crate::am::{ActiveMessages, Messenger};
use crate::bill::Awaited;
use crate::device::Unread;
use crate::engine::{Engine, MessageLayer};
use crate::error::{Error, ErrorKind, Result};
use crate::two_sided::{Mailbox, TwoSided};

pub use crate::engine::{CancelOnDrop, Unnotified, WaitHook, WaitReason};
pub use crate::tracked::Track;

/// A job, as seen by one of its ranks. Clones refer to the same rank.
///
/// ```
/// use farside_core::Job;
///
/// let sizes = Job::threads(3, |job| {
///     let world = job.world()?;
///     world.barrier()?;
///     assert_eq!(world.rank(), job.rank() as usize);
///     Ok((job.rank(), job.size()))
/// })?;
/// assert_eq!(sizes, [(0, 3), (1, 3), (2, 3)]);
/// # Ok::<(), farside_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Job {
    // The field is first, so that compiler errors name it.
    _thread: OneThread,
    inner: Rc<Inner>,
}

/// Marks the handles of a rank, which stay in its thread: the compiler names this type where one is sent to another.
pub type OneThread = PhantomData<*const ARankIsOneThread>;

/// The reason why handles of a rank cannot be sent to another thread.
#[derive(Debug)]
pub struct ARankIsOneThread;

/// Work of layers above the messages, which every turn of progress advances: the collectives.
pub(crate) trait ProgressHook: Any {
    /// Whether no work is in progress.
    fn is_idle(&self) -> bool;
    /// Advances all work that can continue; returns whether any did.
    fn advance(&self, messenger: &Messenger) -> bool;
    /// Called in a wait with the number of peer checks so far. Fails if the awaited condition can no longer be
    /// fulfilled.
    fn wait_on(&self, messenger: &Messenger, checks: u32, awaited: &dyn Fn() -> Awaited) -> Result<()>;
}

/// An operation in progress that owns its buffer and whose handle was dropped. Dropping it cancels it.
pub trait Unfinished {
    /// Whether the buffer is no longer accessed.
    fn is_done(&self) -> bool;
}

/// An object whose operations on other ranks end with the job.
pub trait EndsWithJob {
    /// Called when the job has ended for this rank.
    fn end(&self);
}

/// The objects that end with the job.
#[derive(Default)]
struct EndList {
    objects: Vec<Weak<dyn EndsWithJob>>,
    /// Length of the list at which dropped objects are removed.
    compact_at: usize,
}

#[derive(Default)]
struct UnfinishedList {
    operations: Vec<Box<dyn Unfinished>>,
    /// Length of the list at which completed operations are dropped.
    compact_at: usize,
}

struct Inner {
    mailbox: Mailbox,
    calls: Box<dyn ProgressHook>,
    /// Number of contexts that this rank has allocated.
    contexts: Cell<u32>,
    /// The team of all ranks, stored until the end of the job. `Any`, since the type `Team` is defined in a module that
    /// depends on this one.
    world: RefCell<Option<Box<dyn Any>>>,
    /// Operations in progress whose handles were dropped.
    unfinished: RefCell<UnfinishedList>,
    ending: RefCell<EndList>,
    /// Number of deferred completions on the stack, each run from a wait inside the previous one.
    running_deferred: Cell<u32>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("engine", &**self.mailbox).finish_non_exhaustive()
    }
}

impl Deref for Job {
    type Target = Mailbox;

    #[inline(always)]
    fn deref(&self) -> &Mailbox {
        &self.inner.mailbox
    }
}

/// Counts a deferred completion as running until this is dropped, even when a panic unwinds.
struct Running<'a>(&'a Cell<u32>);

impl<'a> Running<'a> {
    /// Returns `None` if `most` completions are running.
    fn new(running: &'a Cell<u32>, most: u32) -> Option<Self> {
        let room = running.get() < most;
        room.then(|| running.set(running.get() + 1)).map(|()| Self(running))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl MessageLayer for Inner {
    fn deliver(&self, source: u32, packet: &[u8]) -> Result<()> {
        self.mailbox.active_messages().dispatch(&self.mailbox, source, packet)
    }

    fn deliver_in_place(&self, source: u32, packet: &Unread<'_>) -> Result<()> {
        self.mailbox.active_messages().dispatch_long(&self.mailbox, source, packet)
    }

    #[inline]
    fn advance(&self, later: u32) -> Result<bool> {
        let (am, two_sided) = (self.mailbox.active_messages(), self.mailbox.two_sided());
        let idle = am.is_quiet() && self.calls.is_idle() && !two_sided.owes_credit() && !am.tasks().has_any();
        if idle { Ok(false) } else { self.progress_all(later) }
    }

    fn now(&self) -> Instant {
        self.mailbox.device().now()
    }

    fn is_blocked(&self) -> bool {
        self.mailbox.active_messages().is_blocked()
    }

    #[inline]
    fn wait_on(&self, checks: u32, awaited: &dyn Fn() -> Awaited) -> Result<()> {
        self.calls.wait_on(&self.mailbox, checks, awaited)
    }

    fn cancel(&self, track: &Rc<Track>) {
        self.mailbox.active_messages().cancel(&self.mailbox, track);
    }
}

impl Inner {
    /// Sends queued messages, advances collectives, and runs deferred completions and tasks; returns whether anything
    /// was sent, advanced or completed.
    #[inline]
    fn progress_all(&self, later: u32) -> Result<bool> {
        let messenger = &*self.mailbox;
        let am = messenger.active_messages();
        let calls = &self.calls;
        self.mailbox.give_credit()?;
        let mut any = am.progress(messenger)? | (!calls.is_idle() && calls.advance(messenger));
        while am.has_deferred()
            && let Some(_running) = Running::new(&self.running_deferred, later)
        {
            let Some(f) = am.next_deferred() else { break };
            any = true;
            messenger.outside_limit(|| f(messenger))?;
            am.progress(messenger)?;
        }
        if am.tasks().has_any() {
            any |= messenger.outside_limit(|| am.tasks().poll());
        }
        Ok(any)
    }
}

impl Job {
    /// Builds a job from its parts.
    pub(crate) fn new(
        engine: impl FnOnce(Weak<dyn MessageLayer>) -> Engine,
        am: ActiveMessages,
        two_sided: Rc<TwoSided>,
        calls: Box<dyn ProgressHook>,
    ) -> Self {
        let inner = Rc::new_cyclic(|inner: &Weak<Inner>| Inner {
            mailbox: Mailbox::new(Messenger::new(engine(inner.clone()), am), two_sided),
            calls,
            contexts: Cell::new(0),
            world: RefCell::new(None),
            unfinished: RefCell::default(),
            ending: RefCell::default(),
            running_deferred: Cell::new(0),
        });
        Self { _thread: PhantomData, inner }
    }

    /// The team of all ranks, if it was made. `Any`, since `Team` is defined in a module that depends on this one.
    pub(crate) fn stored_world(&self) -> &RefCell<Option<Box<dyn Any>>> {
        &self.inner.world
    }

    /// Stores an operation until it is complete, at the latest until the end of the job.
    pub fn keep_until_done(&self, operation: Box<dyn Unfinished>) {
        let mut list = self.inner.unfinished.borrow_mut();
        let mut done = Vec::new();
        if list.operations.len() >= list.compact_at {
            let all = std::mem::take(&mut list.operations);
            (done, list.operations) = all.into_iter().partition(|operation| operation.is_done());
            list.compact_at = 2 * list.operations.len().max(4);
        }
        list.operations.push(operation);
        drop(list);
        // Dropping them calls code of the layers above, which may call this function again.
        drop(done);
    }

    /// Cancels the stored operations.
    pub(crate) fn drop_unfinished(&self) {
        let operations = std::mem::take(&mut self.inner.unfinished.borrow_mut().operations);
        drop(operations);
    }

    /// Calls `object` when the job ends, if it still exists then.
    pub fn ends_with(&self, object: Weak<dyn EndsWithJob>) {
        let mut list = self.inner.ending.borrow_mut();
        if list.objects.len() >= list.compact_at {
            list.objects.retain(|object| object.strong_count() > 0);
            list.compact_at = 2 * list.objects.len().max(4);
        }
        list.objects.push(object);
    }

    /// Ends the job for this rank: every call that needs other ranks fails from now on.
    pub(crate) fn end(&self) {
        // This calls the engine's `end`, after which calls are refused.
        (**self).end();
        self.active_messages().tasks().clear();
        let objects = std::mem::take(&mut self.inner.ending.borrow_mut().objects);
        objects.iter().filter_map(Weak::upgrade).for_each(|object| object.end());
    }

    /// The collectives, as a hook, since their type is defined in a module that depends on this one.
    #[inline]
    pub(crate) fn progress_hook(&self) -> &dyn Any {
        &*self.inner.calls
    }

    /// [`new_context`](Self::new_context) never returns contexts below this one: 0 belongs to the team of all ranks,
    /// the others to teams whose context every member knows without communication.
    pub const FIXED_CONTEXTS: u32 = 16;

    /// Returns a context for a new team that no rank of the job has returned before. Sends no message: each rank has
    /// its own range of 2^32 / P numbers.
    ///
    /// # Errors
    /// `Limit` when this rank has returned all numbers of its range.
    pub fn new_context(&self) -> Result<u32> {
        let (given, size) = (self.inner.contexts.get(), self.size_number());
        let number = || given.checked_add(Self::FIXED_CONTEXTS)?.checked_mul(size)?.checked_add(self.rank_number());
        let number = number().ok_or_else(|| {
            let e = Error::new(ErrorKind::Limit, "make a context").rank(self.rank());
            e.cause(format!("this rank has already allocated {given} contexts, the maximum"))
                .remedy("let another member of the team allocate the context")
        })?;
        self.inner.contexts.set(given + 1);
        Ok(number)
    }
}
